"""The plugins and tools of benchmarks/: each part of CSPO is changed alone, noise and delay fit."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import make_learner, random_batch, small_policy
from probe_envs import Tradeoff

import cspo
from cspo.algorithms import registry
from cspo.algorithms.cppo_pid import CPPOPID
from cspo.algorithms.cspo import CSPO
from cspo.algorithms.sensitivity import SHARED, Sensitivity
from cspo.config import make_config
from cspo.envs import make_batch
from cspo.lab.study.grid import read_study
from cspo.plugins import load_plugin
from cspo.train import Trainer
from cspo.types import Discount, EpochReport, FloatArray

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
LIMIT = 5.0  # far below the cost of 50 that a policy of the probe begins with
SMALL: dict[str, Any] = {
    "num_envs": 4,
    "steps_per_epoch": 800,
    "total_steps": 2400,
    "passes": 2,
    "minibatch_size": 200,
    "hidden_sizes": (8,),
    "threads": 1,
}
EPISODES = 16  # of an epoch of the probe
HOPPER = "SafetyHopperVelocity-v1"


@pytest.fixture(autouse=True)
def _forgotten_afterwards(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a plugin registers, and the path it is found by, ends with the test."""
    registry.algorithm_names()  # loads the built-in ones
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("cspo_plugin_") or name in ("noisy_costs", "prediction"):
            del sys.modules[name]


def trainer(algo: str, plugin: str = "cspo_parts", **settings: Any) -> Trainer:
    """Return a run on the probe, where reward asks for more cost than the limit allows."""
    load_plugin(str(BENCHMARKS / f"{plugin}.py"))
    values = SMALL | {"cost_limit": (LIMIT,), "margin": "off"} | settings
    return Trainer(make_config("<probe>", algo, **values), env=lambda: Tradeoff(50, "truncated"))


def epochs(algo: str, **settings: Any) -> tuple[Trainer, list[EpochReport]]:
    made = trainer(algo, **settings)
    return made, list(made)


@pytest.fixture(scope="module")
def original() -> list[EpochReport]:
    return epochs("cspo")[1]


def assert_alike(first: EpochReport, second: EpochReport) -> None:
    """Two epochs saw the same and did the same."""
    assert first.cost == second.cost and first.metrics == second.metrics


def measured(report: EpochReport) -> dict[str, float]:
    """Return what an epoch measured before any price was set from it."""
    names = ("price_natural", "sensitivity", "cost_epoch", "cost_level", "gain", "price_delta")
    return {name: report.metrics[name] for name in names}


def test_without_rho_only_rho_is_missing(original: list[EpochReport]) -> None:
    _, reports = epochs("cspo-without-rho")
    assert original[1].metrics["price_rho"] > 0.01, "the probe has a price"
    assert [report.metrics["price_rho"] for report in reports] == [0.0] * 3
    assert measured(reports[1]) == measured(original[1])
    # The same violation is answered by a price that is lower by just that.
    missing = original[1].multiplier[0] - reports[1].multiplier[0]
    assert missing == pytest.approx(original[1].metrics["price_rho"])


def test_without_delta_it_stays_zero_and_adds_no_doubt(original: list[EpochReport]) -> None:
    made, reports = epochs("cspo-without-delta")
    assert original[2].metrics["price_delta"] != 0.0
    assert [report.metrics["price_delta"] for report in reports] == [0.0] * 3
    assert_alike(reports[1], original[1])
    assert reports[2].cost == original[2].cost
    assert reports[2].metrics["gain"] < original[2].metrics["gain"]
    np.testing.assert_array_equal(made.algorithm.forecast.P[:, 0, 1], 0.0)


def test_without_epsilon_the_weight_is_nearly_one_over_S() -> None:
    """Below a limit, where no bound holds the push."""
    pushes = []
    for algo, epsilon in (("cspo", CSPO.epsilon), ("cspo-without-epsilon", CSPO.epsilon / 100.0)):
        made, reports = epochs(algo, cost_limit=(70.0,))
        seen, unit = reports[1].metrics, made.algorithm.forecast.unit[0]
        weight = 1.0 / (seen["sensitivity"] + epsilon / seen["price_natural"])
        wanted = weight * (seen["cost_level"] - 70.0) / unit
        assert seen["price_push"] == pytest.approx(wanted)
        assert wanted < 0.0
        pushes.append(abs(wanted))
    assert pushes[1] > 2.0 * pushes[0]


def test_constant_S_prices_and_predicts_by_it(original: list[EpochReport]) -> None:
    S = 20_000.0
    made, reports = epochs("cspo-constant-S", S=S)
    assert [report.metrics["sensitivity"] for report in reports] == [0.0, S, S]
    assert original[1].metrics["sensitivity"] not in (0.0, S)
    for name in ("price_rho", "price_natural", "cost_level"):
        assert reports[1].metrics[name] == original[1].metrics[name]
    unit = made.algorithm.forecast.unit[0]
    for report in reports[1:]:
        seen = report.metrics
        flat = CSPO.epsilon / seen["price_natural"]
        wanted = (seen["cost_level"] - LIMIT) / unit / (S + flat)
        assert seen["price_push"] == pytest.approx(wanted), "too small to be held down"
        hold = max(seen["price_rho"] + seen["price_delta"], 0.0)
        change = unit * S * (hold - report.multiplier[0])
        assert seen["cost_predicted"] - seen["cost_level"] == pytest.approx(change)


def test_the_plain_norm_has_the_noise_of_the_gradients_in_it(original: list[EpochReport]) -> None:
    load_plugin(str(BENCHMARKS / "cspo_parts.py"))
    # The halves' cost gradients share nothing: all of their mean's length is noise.
    halves = np.array([[[1.0, 1.0], [2.0, 0.0]], [[1.0, 1.0], [0.0, 2.0]]])
    plain, shared = registry.get_algorithm("cspo-plain-norm").Measure(1), Sensitivity(1)
    for _ in range(200):
        plain.average(halves, halves, np.array([True]))
        shared.average(halves, halves, np.array([True]))
    norm = 1.0**2 + 1.0**2  # of (1, 1), the mean of (2, 0) and (0, 2)
    assert plain.bb[0, 0] == pytest.approx(norm)
    assert shared.bb[0, 0] == pytest.approx(SHARED * norm)
    assert plain.rho == pytest.approx(shared.rho)
    _, reports = epochs("cspo-plain-norm")
    assert reports[1].metrics["sensitivity"] > original[1].metrics["sensitivity"]
    assert reports[1].metrics["price_natural"] == original[1].metrics["price_natural"]


def test_windowed_the_filter_sees_the_reported_cost_and_its_error() -> None:
    window = 40  # two and a half epochs
    made = trainer("cspo-windowed", episode_window=window, window=window)
    see, seen = made.algorithm.forecast.update, []
    made.algorithm.forecast.update = lambda batch, *rest: seen.append(batch) or see(batch, *rest)
    for epoch, report in enumerate(made):
        costs = made.window.episodes.costs
        assert len(costs) == min(EPISODES * (epoch + 1), window)
        assert report.metrics["cost_epoch"] == report.cost[0] == costs.mean()
        error = costs[-EPISODES:].std() / np.sqrt(len(costs))
        assert seen[-1].cost_error[0] == pytest.approx(error)
    again = trainer("cspo-windowed", episode_window=window, window=window)
    again.load_state_dict(made.state_dict())
    assert again.algorithm.episodes == 3 * EPISODES


def noisy(noise: float, copies: int, seed: int, **options: float) -> Any:
    sys.path.append(str(BENCHMARKS))
    env = make_batch(f"noisy_costs:{HOPPER}", copies, env_options={"noise": noise, **options})
    env.reset(seed)
    return env


def test_noise_is_of_the_stated_size_on_the_cost_alone() -> None:
    steps, copies, noise = 60, 100, 0.5
    plain, env = make_batch(HOPPER, copies), noisy(noise, copies, seed=4)
    plain.reset(4)
    added = np.empty((steps, copies))
    for t in range(steps):
        action = np.full((copies, env.action_size), 0.1 * np.sin(t))
        exact, result = plain.step(action), env.step(action)
        np.testing.assert_array_equal(result.observation, exact.observation)
        np.testing.assert_array_equal(result.reward, exact.reward)
        added[t] = (result.cost - exact.cost)[:, 0]
    assert abs(added.mean()) < 4.0 * noise / np.sqrt(added.size)
    assert added.std() == pytest.approx(noise, rel=0.04)
    assert added.sum(axis=0).std() == pytest.approx(noise * np.sqrt(steps), rel=0.25)
    assert abs(np.corrcoef(added[:-1].ravel(), added[1:].ravel())[0, 1]) < 0.06


def test_unit_multiplies_the_cost_and_nothing_else() -> None:
    plain, scaled = noisy(0.1, 3, 7), noisy(0.1, 3, 7, unit=0.25)
    for t in range(5):
        action = np.full((3, plain.action_size), 0.1 * t)
        ours, theirs = plain.step(action), scaled.step(action)
        np.testing.assert_array_equal(theirs.cost, 0.25 * ours.cost)
        np.testing.assert_array_equal(theirs.reward, ours.reward)
        np.testing.assert_array_equal(theirs.observation, ours.observation)


def test_noise_follows_the_seed_and_its_state_is_put_back() -> None:
    def costs(env: Any) -> Any:
        action = np.zeros((env.num_envs, env.action_size))
        return [env.step(action).cost.copy() for _ in range(5)]

    env, same, other = noisy(0.1, 3, 7), noisy(0.1, 3, 7), noisy(0.1, 3, 8)
    first = costs(env)
    np.testing.assert_array_equal(costs(same), first)
    assert not np.isclose(costs(other), first).any()
    state = json.loads(json.dumps(env.random_state()))
    env.reset()
    after = costs(env)
    other.set_random_state(state)
    other.reset()
    np.testing.assert_array_equal(costs(other), after)


TINY: dict[str, Any] = {
    **SMALL,
    "steps_per_epoch": 400,
    "total_steps": 1600,
    "cost_limit": (0.5,),
    "seed": 3,
    "tensorboard": False,
}


def test_a_noisy_run_resumes_exactly_and_without_noise_it_is_the_native_one() -> None:
    sys.path.append(str(BENCHMARKS))

    def made(task: str, **settings: Any) -> Trainer:
        return Trainer(make_config(task, "cspo", **TINY, **settings))

    task, options = f"noisy_costs:{HOPPER}", {"noise": 0.3}
    undisturbed = made(task, env_options=options)
    costs, states = [], []
    for report in undisturbed:
        costs.append(report.cost)
        states.append(undisturbed.state_dict())
    resumed = made(task, env_options=options)
    resumed.load_state_dict(states[1])
    assert [report.cost for report in resumed] == costs[2:]
    assert resumed.parameter_hash() == undisturbed.parameter_hash()

    silent, native = made(task, env_options={"noise": 0.0}), made(HOPPER)
    assert [report.cost for report in silent] == [report.cost for report in native] != costs
    assert silent.parameter_hash() == native.parameter_hash()


@pytest.mark.parametrize("algo, original", [("cspo-delayed", CSPO), ("cppo-pid-delayed", CPPOPID)])
def test_costs_arrive_late_and_all_else_on_time(
    algo: str, original: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_plugin(str(BENCHMARKS / "delayed_costs.py"))
    kind, policy, delay = registry.get_algorithm(algo), small_policy(), 2
    seen: list[Any] = []

    def spy(self: Any, batch: Any, J_c: Any, d: Any) -> dict[str, float]:
        seen.append((batch, float(J_c[0]), float(d[0])))
        return {"kl": 0.0}

    monkeypatch.setattr(original, "update", spy)

    def made() -> Any:
        return kind(kind.Config(cost_delay=delay), make_learner(policy), 1, Discount(0.99, 0.95))

    algorithm = made()
    for k in range(6):
        if k == 4:  # as after a kill
            state, algorithm = algorithm.state_dict(), made()
            algorithm.load_state_dict(state)
        now = {"epoch_cost": np.array([10.0 + k]), "cost_error": np.array([0.1 * k])}
        batch = random_batch(policy, 20, seed=k, **now)
        algorithm.update(batch, np.array([20.0 + k]), np.array([30.0 + k]))
        update, J_c, d = seen[-1]
        then = max(k - delay, 0)
        assert J_c == 20.0 + then and d == 30.0 + k
        assert update.epoch_cost[0] == 10.0 + then and update.cost_error[0] == 0.1 * then
        assert update.adv_r is batch.adv_r and update.adv_c is batch.adv_c


@pytest.mark.parametrize("algo", ["cspo", "cppo-pid"])
def test_a_delay_trains_and_one_of_zero_is_the_original(algo: str) -> None:
    hashes = {}
    for delay in (None, 0, 1):
        name = algo if delay is None else f"{algo}-delayed"
        settings = {} if delay is None else {"cost_delay": delay}
        made, _ = epochs(name, plugin="delayed_costs", **settings)
        hashes[delay] = made.parameter_hash()
    assert hashes[None] == hashes[0] != hashes[1]


def test_a_run_by_the_studies_names_is_resumed_from_its_folder(tmp_path: Path) -> None:
    settings = TINY | {"plugin": str(BENCHMARKS / "delayed_costs.py"), "cost_delay": 1}
    config = make_config(
        f"noisy_costs:{HOPPER}", "cspo-delayed", env_options={"noise": 0.1}, **settings
    )
    undisturbed = cspo.Trainer(config)
    *_, last = undisturbed
    stopped = cspo.Trainer(config, run_dir=tmp_path / "run")
    for report in stopped:
        if report.epoch == 1:
            break
    stopped.save()
    assert stopped.run is not None
    stopped.run.close()
    resumed = cspo.Trainer.resume(tmp_path / "run")
    assert resumed.epoch == 2 and [*resumed][-1].cost == last.cost
    assert resumed.parameter_hash() == undisturbed.parameter_hash()


@pytest.mark.parametrize(
    "study, runs",
    [("cspo-parts", 36), ("cspo-constant-s", 6), ("noisy-costs", 24), ("cost-units", 6)],
)
def test_studies_can_be_read(study: str, runs: int) -> None:
    read = read_study(ROOT / "results" / study / "study.toml", environments=True)
    assert read.name == study and len(read.runs) == runs
    assert {spec.steps for spec in read.runs} == {2_000_000}


def write_run(folder: Path, task: str, predicted: Any, realised: Any) -> Path:
    """Write a run whose changes are these, one epoch after another, after one without a price."""
    folder.mkdir()
    (folder / "config.toml").write_text(f'task = "{task}"\nalgo = "cspo"\n')
    levels = np.arange(len(predicted) + 2) * 0.5 + 20.0
    rows = ["epoch,cost_epoch,cost_level,cost_predicted,sensitivity"]
    foreseen = [99.0, *(levels[1:-1] + predicted), 99.0]
    came = [99.0, 99.0, *(levels[1:-1] + realised)]
    for k, row in enumerate(zip(came, levels, foreseen, strict=True)):
        rows.append(",".join(map(repr, [k, *map(float, row), float(k > 0)])))
    (folder / "progress.csv").write_text("\n".join(rows) + "\n")
    return folder


def test_predictions_meet_the_epoch_after_them(tmp_path: Path) -> None:
    sys.path.append(str(BENCHMARKS))
    prediction = importlib.import_module("prediction")
    x = np.array([1.0, -2.0, 0.5, 3.0, -1.5])
    off = np.array([1.0, 0.0, -2.0, 0.0, 1.0])
    off -= x * ((x - x.mean()) @ off) / ((x - x.mean()) @ x)  # not correlated with x
    runs = [
        write_run(tmp_path / "a", "Exact", x, 2.0 * x),
        write_run(tmp_path / "b", "Exact", -x, -2.0 * x),
        write_run(tmp_path / "c", "Noisy", x, x + off),
    ]
    out = tmp_path / "figure.png"
    prediction.main([*map(str, runs), "--out", str(out)])
    assert out.read_bytes().startswith(b"\x89PNG")
    error, still = np.sqrt(np.mean(x**2)), 2.0 * np.sqrt(np.mean(x**2))
    correlation = x.std() / (x + off).std()  # where the slope is 1

    def successive(errors: FloatArray) -> float:
        """Return their correlation with the next, of those past the first 30 % of seven epochs."""
        one, next_one = errors[1:-1], errors[2:]
        return float(2.0 * (one @ next_one) / (one @ one + next_one @ next_one))

    assert out.with_suffix(".md").read_text().splitlines()[2:] == [
        f"| Exact | CSPO | 10 | 1.00 | 2.00 | {error:.2f} | {still:.2f} | {successive(x):.2f} |",
        f"| Noisy | CSPO | 5 | {correlation:.2f} | 1.00 | {np.sqrt(np.mean(off**2)):.2f} "
        f"| {np.sqrt(np.mean((x + off) ** 2)):.2f} | {successive(off):.2f} |",
    ]


def test_a_run_that_predicts_nothing_is_named(tmp_path: Path, capsys: Any) -> None:
    sys.path.append(str(BENCHMARKS))
    run = write_run(tmp_path / "a", "Task", np.ones(2), np.ones(2))
    text = (run / "progress.csv").read_text()
    (run / "progress.csv").write_text(text.replace("cost_level", "level"))
    with pytest.raises(SystemExit):
        importlib.import_module("prediction").main([str(run), "--out", str(tmp_path / "x.png")])
    assert "has no column 'cost_level'" in capsys.readouterr().err
