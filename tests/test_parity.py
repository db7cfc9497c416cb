"""Recorded transitions of Safety-Gymnasium are reproduced, and damage is noticed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cspo.envs.navigation.facts import TASKS as NAVIGATION_TASKS
from cspo.envs.tools.parity import format_report, replay, replay_resets
from cspo.envs.velocity.facts import TASKS
from cspo.envs.velocity.task import VelocityEnv
from cspo.errors import CspoError

TRACES = Path(__file__).parents[2] / "shared" / "reference" / "traces"
NAMES = [name for name in TASKS if (TRACES / f"{name}.npz").exists()]
SUITE = [name for name in TASKS if name not in NAMES]  # recorded with the rest of the suite
NAVIGATION = [name for name in NAVIGATION_TASKS if (TRACES / f"{name}.npz").exists()]
# Rows out of tolerance: the robot and a gremlin or a button begin to touch, see docs/parity.md.
FIRST_CONTACTS = {"SafetyPointButton1-v0": {275, 1489}, "SafetyCarButton1-v0": {173, 642, 643, 865}}

pytestmark = pytest.mark.skipif(
    not TRACES.exists(), reason="the recorded reference transitions are not here"
)


def recording(name: str, rows: int | None = None) -> dict[str, np.ndarray]:
    with np.load(TRACES / f"{name}.npz") as file:
        return {key: file[key][:rows] if file[key].ndim else file[key] for key in file.files}


def save(
    folder: Path, arrays: dict[str, np.ndarray], name: str = "SafetyHopperVelocity-v1"
) -> Path:
    path = folder / f"{name}.npz"
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_step_is_reproduced(name):
    report = replay(TRACES / f"{name}.npz")
    fields = {field.name: field for field in report.fields}
    assert report.ok, format_report(report)
    assert report.task == name and report.rows == 1500 and report.kind == "steps"
    for exact in ("cost", "terminated", "truncated"):
        assert fields[exact].mismatches == 0
    for close in ("obs", "reward", "qpos_after", "qvel_after", "x_velocity"):
        assert fields[close].p99 <= 1e-5
    assert ("obs_contact_forces" in fields) == ("Humanoid" in name)
    assert ("y_velocity" in fields) == (name.removeprefix("Safety")[:3] in ("Ant", "Hum", "Swi"))
    json.dumps(report.to_dict(), allow_nan=False)


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_reset_is_reproduced(name):
    report = replay(TRACES / "resets" / f"{name}.npz")
    assert report.ok, format_report(report)
    assert report.kind == "resets" and report.rows == 60
    assert {field.name for field in report.fields} == {
        "obs",
        "qpos",
        "qvel",
        "obs_next_unseeded_reset",
    }
    assert max(field.max for field in report.fields) <= 1e-9


@pytest.mark.parametrize("name", SUITE)
def test_the_rest_of_the_velocity_tasks_is_reproduced(name):
    steps, resets = replay(TRACES / "suite" / f"{name}.npz"), TRACES / "suite" / "resets"
    fields = {field.name: field for field in steps.fields}
    assert steps.ok and steps.rows == 250, format_report(steps)
    assert all(fields[exact].mismatches == 0 for exact in ("cost", "terminated", "truncated"))
    assert max(fields[close].max for close in ("obs", "reward", "qpos_after")) <= 1e-9
    report = replay(resets / f"{name}.npz")
    assert max(field.max for field in report.fields) <= 1e-9, format_report(report)


@pytest.mark.parametrize("name", NAVIGATION)
def test_every_recorded_navigation_step_is_reproduced_but_for_a_few_first_contacts(name):
    report = replay(TRACES / f"{name}.npz")
    fields = {field.name: field for field in report.fields}
    assert report.ok, format_report(report)
    flags = [
        key
        for key in fields
        if key in ("goal_met", "terminated", "truncated") or key.startswith("cost")
    ]
    assert len(flags) == (5 if "Goal" in name else 7)
    for exact in (
        *flags,
        "goal_pos_after",
    ):  # goals are drawn from the recorded episode's own random stream
        assert fields[exact].mismatches == 0
    for close in ("obs", "reward", "qpos_after"):
        assert fields[close].p95 <= 1e-6 and fields[close].p99 <= 1e-3
    off = {row for field in report.fields for row in field.off}
    assert off <= FIRST_CONTACTS.get(name, set())
    json.dumps(report.to_dict(), allow_nan=False)


@pytest.mark.parametrize("name", NAVIGATION)
def test_every_recorded_world_is_reproduced(name):
    report = replay(TRACES / "resets" / f"{name}.npz")
    assert report.ok, format_report(report)
    assert report.kind == "resets" and report.rows == 20
    names = {field.name for field in report.fields}
    assert names > {
        "obs",
        "qpos",
        "qvel",
        "agent_pos",
        "goal_pos",
        "hazards_pos",
        "obs_next_unseeded_reset",
    }
    assert max(field.max for field in report.fields) <= 1e-9


def test_a_navigation_recording_with_another_goal_or_cost_is_noticed(tmp_path):
    name = "SafetyPointButton1-v0"
    trace = recording(name)
    met = int(np.flatnonzero(trace["goal_met"])[0])
    goal, timer = trace["goal_button_after"].copy(), trace["buttons_timer_after"].copy()
    goal[met] = (goal[met] + 1) % 4
    report = replay(save(tmp_path, {**trace, "goal_button_after": goal}, name))
    fields = {field.name: field for field in report.fields}
    assert fields["goal_button_after"].off == (met,)
    assert report.ok  # one row of 1500 is within the share that may differ
    timer[[5, 6]] += 1.0
    report = replay(save(tmp_path, {**trace, "buttons_timer_after": timer}, name))
    assert not report.ok and "off: 5, 6" in format_report(report)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("episode", [0, 2])
def test_an_episode_replayed_from_its_seed_alone_stays_on_the_recorded_path(name, episode):
    """No state is restored here: the reset, and every step after it, must be right by itself."""
    trace = recording(name)
    rows = np.flatnonzero(trace["episode"] == episode)
    env = VelocityEnv(name, autoreset=False)
    env.reset(seed=1000 + episode)
    before = (trace[f"{key}_before"][rows[0]] for key in ("qpos", "qvel", "qacc_warmstart"))
    for ours, theirs in zip(env.get_state(0), before, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
    steps = 0
    for row in rows:
        if not np.array_equal(trace["qvel_before"][row], trace["qvel_after"][row - 1]) and steps:
            break  # the recorder's first kick
        result = env.step(trace["action"][row : row + 1])
        np.testing.assert_allclose(result.observation[0], trace["obs"][row], rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(result.reward[0], trace["reward"][row], rtol=1e-7, atol=1e-7)
        assert result.cost[0, 0] == trace["cost"][row]
        steps += 1
    assert steps >= 5


def test_a_wider_tolerance_does_not_hide_that_1e_5_is_exceeded(tmp_path):
    name = "SafetyPointGoal1-v0"
    trace = recording(name, 100)
    exact = replay(save(tmp_path, trace, name))
    assert exact.ok and exact.strict and "99 % within 1e-05" in format_report(exact)
    trace["obs"][[3, 4], 0] += 1e-4  # in 2 of 100 rows, which the tolerance of contacts allows
    report = replay(save(tmp_path, trace, name))
    assert report.ok and not report.strict and report.to_dict()["strict"] is False
    assert [field.name for field in report.fields if not field.strict] == ["obs"]
    text = format_report(report)
    assert "beyond 1e-05 in more than 1 %: obs" in text and "1e-06, 5e-02, -" in text


def test_a_perturbed_reward_fails(tmp_path):
    trace = recording("SafetyHopperVelocity-v1", 200)
    assert replay(save(tmp_path, trace)).ok
    trace["reward"][17] += 1e-3
    report = replay(save(tmp_path, trace))
    assert [field.name for field in report.fields if not field.ok] == ["reward"]
    assert "FAILED" in format_report(report) and not report.to_dict()["ok"]


@pytest.mark.parametrize("key", ["cost", "terminated", "truncated"])
def test_one_flipped_flag_fails(tmp_path, key):
    trace = recording("SafetyHopperVelocity-v1", 100)
    trace[key][-1] = 1 - trace[key][-1]
    report = replay(save(tmp_path, trace))
    failed = [field for field in report.fields if not field.ok]
    assert [(field.name, field.mismatches) for field in failed] == [(key, 1)]


def test_wrong_physics_and_missing_numbers_fail(tmp_path):
    trace = recording("SafetyHopperVelocity-v1", 50)
    trace["obs"][3, 2] = np.nan
    report = replay(save(tmp_path, trace))
    failed = [field for field in report.fields if not field.ok]
    assert [field.name for field in failed] == ["obs"]
    assert failed[0].max is None
    json.dumps(report.to_dict(), allow_nan=False)
    trace = recording("SafetyHopperVelocity-v1", 50)
    trace["action"] = trace["action"][::-1]
    assert not replay(save(tmp_path, trace)).ok


def test_a_wrong_seed_fails(tmp_path):
    with np.load(TRACES / "resets" / "SafetyHopperVelocity-v1.npz") as file:
        arrays = dict(file)
    arrays["seed"] = arrays["seed"] + 1
    assert not replay_resets(save(tmp_path, arrays)).ok


def test_a_recording_may_lack_optional_arrays_and_be_short_or_named_otherwise(tmp_path):
    trace = recording("SafetyAntVelocity-v1", 1)
    for key in ("x_velocity", "y_velocity"):
        del trace[key]
    report = replay(save(tmp_path, trace, "anything"), task="SafetyAntVelocity-v1")
    assert report.ok and report.rows == 1
    assert replay(save(tmp_path, trace, "SafetyAntVelocity-v1_again")).ok


def test_a_recorded_time_limit_is_reproduced(tmp_path):
    """1000 steps of the simulator itself, recorded likewise: only the last is truncated."""
    name = "SafetySwimmerVelocity-v1"
    env = VelocityEnv(name, autoreset=False)
    env.reset(seed=0)
    rows: dict[str, list] = {}
    for action in np.random.default_rng(0).uniform(-1, 1, (1000, 1, 2)):
        before = dict(
            zip(
                ("qpos_before", "qvel_before", "qacc_warmstart_before"),
                env.get_state(0),
                strict=True,
            )
        )
        result = env.step(action)
        after = dict(zip(("qpos_after", "qvel_after"), env.get_state(0)[:2], strict=True))
        outcome = {
            "obs": result.observation[0].copy(),
            "reward": result.reward[0],
            "cost": result.cost[0, 0],
            "terminated": result.terminated[0],
            "truncated": result.truncated[0],
        }
        for key, value in {"episode": 0, "action": action[0], **before, **outcome, **after}.items():
            rows.setdefault(key, []).append(value)
    assert sum(rows["truncated"]) == 1
    assert replay(save(tmp_path, {key: np.array(value) for key, value in rows.items()}, name)).ok


def test_what_cannot_be_replayed_is_said_in_a_line(tmp_path):
    def message(path, task=None) -> str:
        with pytest.raises(CspoError) as caught:
            replay(path, task)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    good = recording("SafetyHopperVelocity-v1", 5)
    assert "there is no file" in message(tmp_path / "SafetyHopperVelocity-v1.npz")
    text = tmp_path / "SafetyAntVelocity-v1.npz"
    text.write_text("not a recording")
    assert "not a .npz file" in message(text)
    np.save(tmp_path / "SafetyAntVelocity-v1.npy", np.zeros(3))
    assert "not a .npz file" in message(tmp_path / "SafetyAntVelocity-v1.npy")
    assert "not a .npz file" in message(save(tmp_path, {**good, "extra": np.array([object()])}))
    cut = save(tmp_path, good)
    cut.write_bytes(cut.read_bytes()[:2000])
    assert "not a .npz file" in message(cut)
    assert "lacks the arrays action, reward" in message(
        save(
            tmp_path, {key: value for key, value in good.items() if key not in ("reward", "action")}
        )
    )
    assert "action has shape (5, 2)" in message(
        save(tmp_path, {**good, "action": good["action"][:, :2]})
    )
    assert "(4,)" in message(save(tmp_path, {**good, "cost": good["cost"][:4]}))
    assert "has no rows" in message(save(tmp_path, {key: value[:0] for key, value in good.items()}))
    assert "not named after a task" in message(save(tmp_path, good, "hopper"))
    assert "did you mean 'SafetyHopperVelocity-v1'" in message(
        save(tmp_path, good), "SafetyHoperVelocity-v1"
    )
    assert "qpos_before has shape" in message(save(tmp_path, good), "SafetyAntVelocity-v1")
