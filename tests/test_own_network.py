"""Networks of a user's own: the same gradients as the compiled ones, exact resume, refusals."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="pip install 'cspo[torch]' brings PyTorch")

import own_networks
from conftest import make_learner
from own_networks import Plain, Wider
from run_helpers import (
    SMALL,
    TASK,
    TinyEnv,
    as_flags,
    assert_same_run,
    start,
    wait_for_epochs,
)
from space_envs import ACTION_SPACES, SpaceEnv

import cspo
from cspo.algorithms import surrogates
from cspo.algorithms.learner import Loss, Reference
from cspo.algorithms.registry import BUILT_IN
from cspo.cli import main
from cspo.errors import CspoError
from cspo.optim.critics import critic_pass
from cspo.optim.objective import SurrogateObjective
from cspo.policy.distribution import Distribution
from cspo.policy.policy import Policy
from cspo.policy.settings import PolicySettings
from cspo.types import Batch

SIZE, ROWS = 5, 300
DISTRIBUTIONS = {
    "gaussian": Distribution(3),
    "categorical": Distribution(0, (4,)),
    "independent": Distribution(0, (2, 3, 5)),
    "bits": Distribution(0, (1, 1)),
    "mixed": Distribution(2, (3, 1)),
}
SETTINGS: Any = {**SMALL, "cost_limit": (0.5,)}
BRIEF: Any = {**SETTINGS, "total_steps": 400}
CLOSE = {"rtol": 2e-4, "atol": 2e-6}  # float32, summed in another order


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than these runs."""
    import cspo.runs.curves  # noqa: F401

    monkeypatch.setattr(sys.modules["cspo.runs.curves"], "draw_curve", lambda run: run)


def as_compiled(flat: Any, outputs: int) -> Any:
    """Return parameters or gradients of `Plain` in the order in which the compiled MLP has them."""
    parts, start = [], 0
    for fan_in, fan_out in ((SIZE, 16), (16, 16), (16, outputs)):
        end = start + fan_in * fan_out
        parts += [flat[start:end].reshape(fan_out, fan_in).T.reshape(-1), flat[end : end + fan_out]]
        start = end + fan_out
    return np.concatenate([*parts, flat[start:]])


def twins(distribution: Distribution) -> tuple[Policy, Policy]:
    """Return a policy of a user's networks and a compiled one, with the same numbers in them."""
    settings = PolicySettings(hidden_sizes=(16, 16), log_std_init=-0.4)
    sizes = SIZE, distribution.action_size, 1, settings
    choices = distribution.choices
    own = Policy(*sizes, np.random.default_rng(3), choices=choices, network=Plain)
    compiled = Policy(*sizes, np.random.default_rng(4), choices=choices)
    own.actor.log_std[:] = np.linspace(-0.5, 0.2, distribution.gaussians)
    compiled.actor.parameters[:] = as_compiled(own.actor.parameters, distribution.output_size)
    for theirs, ours in zip(compiled.critics.parameters, own.critics.parameters, strict=True):
        theirs[:] = as_compiled(ours, 1)
    return own, compiled


def make_batch(policy: Policy) -> Batch:
    """Return a batch that the policy could have collected."""
    rng, actor = np.random.default_rng(5), policy.actor

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    observation = normal(ROWS, SIZE)
    output = actor.outputs(observation)
    noise = actor.distribution.noise(rng, (ROWS,), actor.log_std)
    action = actor.distribution.sample(output, noise)
    log_prob = actor.distribution.log_prob(output, actor.log_std, action)
    A_r, A_c = normal(ROWS), normal(ROWS, 1)
    costs: Any = {"any_cost": np.ones(1, dtype=bool), "epoch_cost": np.ones(1)}
    old = {"output": output, "log_std": actor.log_std.copy(), "log_prob": log_prob}
    return Batch(
        observation, action, **old, adv_r=A_r, adv_c=A_c, value_target=normal(2, ROWS), **costs
    )


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_outputs_scores_and_fisher_products_are_those_of_the_compiled_network(name: str) -> None:
    distribution = DISTRIBUTIONS[name]
    own, compiled = twins(distribution)
    batch, outputs = make_batch(own), distribution.output_size
    x, rng = batch.observation, np.random.default_rng(6)
    np.testing.assert_allclose(own.actor.outputs(x), compiled.actor.outputs(x), **CLOSE)
    np.testing.assert_allclose(own.values(x), compiled.values(x), **CLOSE)
    weights = rng.standard_normal((2, ROWS)).astype(np.float32)
    for rows in (np.arange(ROWS), np.arange(3, ROWS, 2)):
        found = own.actor.score_gradients(x, batch.action, weights, rows)
        wanted = compiled.actor.score_gradients(x, batch.action, weights, rows)
        for ours, theirs in zip(found, wanted, strict=True):
            np.testing.assert_allclose(as_compiled(ours, outputs), theirs, **CLOSE)
    fisher, reference = own.actor.fisher(x), compiled.actor.fisher(x)
    for _ in range(2):
        v = rng.standard_normal(own.actor.parameters.size)
        wanted_product = reference.product(as_compiled(v, outputs))
        found_product = as_compiled(fisher.product(v), outputs)
        np.testing.assert_allclose(found_product, wanted_product, **CLOSE)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_gradients_of_every_surrogate_are_those_of_the_compiled_network(name: str) -> None:
    distribution = DISTRIBUTIONS[name]
    own, compiled = twins(distribution)
    batch, outputs = make_batch(own), distribution.output_size
    shift = np.random.default_rng(7).standard_normal(batch.output.shape).astype(np.float32)
    reference = Reference(batch.output + np.float32(0.3) * shift, batch.log_std - np.float32(0.1))
    drift = np.float32(0.05) * shift[:, :1].mean()
    own.actor.parameters += drift  # away from the policy that collected the data
    compiled.actor.parameters += drift
    A, index = batch.adv_r, np.arange(0, ROWS, 3)
    bricks = (
        *(surrogates.clipped_reward, surrogates.clipped_cost, surrogates.unclipped),
        *(surrogates.unclipped_inside, surrogates.divergence, surrogates.share_inside),
    )
    for brick in bricks:
        loss = Loss(lambda L: -(L + L**2), brick(A), clip=0.1, reference=reference, trust=0.2)
        for policy in (own, compiled):
            learner = make_learner(policy, entropy_coefficient=0.01)
            learner._write_gradient(batch, SurrogateObjective(loss), index)
        found, wanted = as_compiled(own.actor.gradient, outputs), compiled.actor.gradient
        np.testing.assert_allclose(found, wanted, **CLOSE, err_msg=brick.__name__)


def test_a_pass_of_a_critic_is_that_of_the_compiled_one() -> None:
    own, compiled = twins(Distribution(1))
    batch = make_batch(own)
    for k in (0, 1):
        errors = []
        for policy in (own, compiled):
            learner = make_learner(policy, minibatch_size=64, critic_lr=1e-3, critic_l2=1e-3)
            order = np.random.default_rng(8).permutation(ROWS)
            adam = learner.critic_optimiser
            errors.append(critic_pass(policy.critics, k, adam, learner.settings, batch, order))
        assert errors[0] == pytest.approx(errors[1], rel=1e-5)
        found, wanted = as_compiled(own.critics.parameters[k], 1), compiled.critics.parameters[k]
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("algo", [name.replace("_", "-") for name in BUILT_IN])
def test_every_algorithm_trains_a_network_of_ones_own(algo: str) -> None:
    config = cspo.make_config(TASK, algo, **BRIEF)
    trainer = cspo.Trainer(config, policy=Plain)
    before = trainer.policy.actor.parameters.copy()
    (report,) = trainer
    assert np.isfinite(report.kl) and not np.array_equal(before, trainer.policy.actor.parameters)
    hashes = {trainer.parameter_hash()}
    again = cspo.Trainer(replace(config, run=replace(config.run, threads=2)), policy=Plain)
    list(again)
    assert {again.parameter_hash()} == hashes, "it depends on the number of threads"


@pytest.mark.parametrize("algo", ["cspo", "cpo"])
@pytest.mark.parametrize("space", ACTION_SPACES)
def test_it_trains_on_every_kind_of_action_space(space: str, algo: str) -> None:
    sizes: Any = {**BRIEF, "num_envs": 2, "steps_per_epoch": 100, "total_steps": 200}
    config = cspo.make_config("<SpaceEnv>", algo, **sizes)
    trainer = cspo.Trainer(config, env=lambda: SpaceEnv(space), policy=Plain)
    assert len(list(trainer)) == 2
    assert np.isfinite(trainer.policy.actor.parameters).all()


@pytest.mark.parametrize("network", ["Frozen", "Tied", "Normed"])
def test_frozen_tied_and_normalised_layers_train(network: str) -> None:
    own = getattr(own_networks, network)
    for algo in ("ppo", "cpo"):
        trainer = cspo.Trainer(cspo.make_config(TASK, algo, **BRIEF), policy=own)
        assert all(np.isfinite(report.kl) for report in trainer)
    if network == "Frozen":
        assert trainer.policy.signature == ["head.weight (3, 16)", "head.bias (3,)"]


@pytest.mark.parametrize("algo", ["cspo", "cpo"])
def test_killed_and_resumed_it_ends_where_the_undisturbed_run_does(
    tmp_path: Path, algo: str
) -> None:
    reference, run = tmp_path / "reference", tmp_path / "run"
    named: Any = {"policy": "own_networks:Plain", "quiet": True}
    assert cspo.train(TASK, algo, run_dir=reference, **named, **SETTINGS).finished
    words = ["train", TASK, "--algo", algo, "--quiet", "--network", "own_networks:Plain"]
    process = start(*words, "--run-dir", run, *as_flags(SETTINGS | {"threads": 2}))
    wait_for_epochs(run, 2, process)
    process.kill()
    assert process.wait() == -signal.SIGKILL, "it was still running"
    cspo.resume(run, quiet=True, threads=1)  # this user's own run: the name is enough
    assert_same_run(run, reference)


def test_an_object_is_passed_again_to_resume_load_and_evaluate(tmp_path: Path) -> None:
    reference, run = tmp_path / "reference", tmp_path / "run"
    own: Any = {"policy": Plain, "quiet": True, **BRIEF, "total_steps": 1200}
    cspo.train(TinyEnv, "cspo", run_dir=reference, **{**own, "num_envs": 4})
    trainer = cspo.Trainer(
        cspo.make_config("<TinyEnv>", "cspo", **{**BRIEF, "total_steps": 1200}),
        env=TinyEnv,
        policy=Plain,
        run_dir=run,
    )
    next(iter(trainer))
    trainer.close()
    again = "Python object <Plain> for a network, which a run folder cannot hold.* policy="
    for call in (cspo.load, lambda run: cspo.resume(run, env=TinyEnv)):
        with pytest.raises(CspoError, match=again):
            call(run)
    with pytest.raises(CspoError, match=r"it has body.1.weight \(17, 2\) where .*\(16, 2\)"):
        cspo.load(run, policy=Wider)
    with pytest.raises(CspoError, match="another network"):
        cspo.resume(run, env=TinyEnv, policy=Wider)
    cspo.resume(run, env=TinyEnv, policy=Plain, quiet=True)
    assert_same_run(run, reference)
    policy = cspo.load(run, policy=Plain)
    action = policy([0.3, -0.2])
    assert action.shape == (1,) and policy([[0.3, -0.2]] * 2).shape == (2, 1)
    assert cspo.load(run, policy="own_networks:Plain")([0.3, -0.2]) == action
    rows = cspo.evaluate(run, 2, env=TinyEnv, policy=Plain)
    assert rows == cspo.evaluate(policy, 2, env=TinyEnv)


def test_a_run_without_one_refuses_one(tmp_path: Path) -> None:
    run = tmp_path / "run"
    cspo.train(TASK, "ppo", run_dir=run, quiet=True, **BRIEF)
    for call in (cspo.load, cspo.resume):
        with pytest.raises(CspoError, match=r"no network of a user's own: leave policy= out"):
            call(run, policy=Plain)


def test_mlp_is_the_default_for_vectors() -> None:
    hashes = set()
    for network in ("auto", "mlp"):
        trainer = cspo.Trainer(cspo.make_config(TASK, "ppo", network=network, **BRIEF))
        list(trainer)
        hashes.add(trainer.parameter_hash())
    assert len(hashes) == 1


REFUSED = {
    "WithBatchNorm": r"BatchNorm \(body.5\).* LayerNorm",
    "WithDropout": r"Dropout \(body.5\)",
    "Noisy": "neither draw random numbers nor remember",
    "Remembering": "changes its buffer count",
    "Mixing": "depend on others in the batch",
    "Double": "body.1.weight of float64 on cpu: float32 on cpu is needed",
    "Lazy": r"lazy parameters \(head.weight\)",
    "OneTooMany": r"shape \(3, 4\) and type float32 for 3 observations: \(3, 3\)",
    "Detached": "do not depend on its parameters",
    "Untrained": "no parameters to train",
    "Pair": "returned a tuple and not a tensor",
    "Raising": r"raised KeyError: 'lost' \(.*own_networks.py, line \d+\)",
    "not_a_module": "made a int",
    "takes_nothing": "raised TypeError: takes_nothing\\(\\) takes 0 positional",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_trained_is_refused_in_one_line(name: str) -> None:
    config = cspo.make_config(TASK, "ppo", **BRIEF)
    with pytest.raises(CspoError, match=REFUSED[name]) as fault:
        cspo.Trainer(config, policy=getattr(own_networks, name))
    text = str(fault.value)
    assert text.startswith(f"the network {name}") and "\n" not in text and len(text) < 400


def test_an_operation_without_a_forward_derivative_is_named_by_trust_regions() -> None:
    make = own_networks.BackwardOnly
    assert len(list(cspo.Trainer(cspo.make_config(TASK, "ppo", **BRIEF), policy=make))) == 1
    trainer = cspo.Trainer(cspo.make_config(TASK, "cpo", **BRIEF), policy=make)
    with pytest.raises(CspoError, match=r"without a forward derivative.*first-order algorithm"):
        list(trainer)


@pytest.mark.parametrize(
    ("network", "said"),
    [
        ("nowhere:Net", "there is no module 'nowhere'"),
        ("own_networks:Nothing", "has no class or function 'Nothing'"),
        ("os:system", "os is a module of Python itself"),
        ("torch:load", "is no factory of networks: it is a function of torch"),
        ("resnet", "auto, mlp, or module:factory"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused(
    network: str, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["train", TASK, "--network", network, "--run-dir", str(tmp_path / "run")]
    assert main([*words, *as_flags(BRIEF)]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1 and "Traceback" not in error


def test_the_command_line_asks_for_the_name_of_an_object_and_a_strangers_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    named: Any = {"policy": "own_networks:Plain", "quiet": True}
    cspo.train(TASK, "ppo", run_dir=run, **named, **BRIEF)
    (run / ".origin").unlink()  # now it could be anybody's
    for words in (["eval", run], ["train", "--resume", run]):
        assert main([str(word) for word in words]) == 2
        error = capsys.readouterr().err
        assert '--network "own_networks:Plain" or --trust' in error and error.count("\n") == 1
    assert main(["eval", str(run), "--episodes", "1", "--network", "own_networks:Wider"]) == 2
    assert "was trained with --network" in capsys.readouterr().err
    for agreed in (["--network", "own_networks:Plain"], ["--trust"]):
        assert main(["eval", str(run), "--episodes", "1", "--json", *agreed]) == 0
        assert len(json.loads(capsys.readouterr().out)) == 2
    assert main(["train", "--resume", str(run), "--quiet", "--network", "own_networks:Plain"]) == 0
    assert main(["eval", str(run), "--episodes", "1", "--json"]) == 0  # it is this user's now
