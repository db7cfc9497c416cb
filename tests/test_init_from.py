"""Starting from another run, or from Stable-Baselines3: what is taken and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from own_networks import Plain, Wider
from run_helpers import SMALL, TinyEnv, TwoCosts, as_flags, assert_same_run, final_state, make_tiny
from space_envs import SpaceEnv

import cspo
from cspo.cli import main

TINY = "run_helpers:make_tiny"
SHORT: dict[str, Any] = {**SMALL, "total_steps": 1200, "quiet": True}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source") / "run"
    cspo.train(TINY, "ppo-lag", run_dir=folder, **SHORT)
    return folder


def beginning(run: Path) -> dict[str, np.ndarray]:
    """Return the policy's arrays in the checkpoint of epoch 0."""
    return final_state(run)[1]


def test_networks_and_normaliser_are_taken_and_the_rest_begins_anew(source: Path) -> None:
    config = cspo.make_config(TINY, "ppo-lag", init_from=str(source), **SMALL)
    theirs = final_state(source)[1]
    with (
        cspo.Trainer(config, env=make_tiny) as trainer,
        cspo.Trainer(cspo.make_config(TINY, "ppo-lag", **SMALL), env=make_tiny) as fresh,
    ):
        policy = trainer.policy.state_dict()
        for name in ("actor", "critics"):
            np.testing.assert_array_equal(policy[name], theirs[f"/policy/{name}"])
        np.testing.assert_array_equal(
            policy["normaliser"]["mean"], theirs["/policy/normaliser/mean"]
        )
        saved = final_state(source)[0]["policy"]["normaliser"]["count"]
        assert policy["normaliser"]["count"] == saved > 1000
        assert trainer.epoch == 0 and len(trainer.window) == 0
        ours, new = trainer.algorithm.state_dict(), fresh.algorithm.state_dict()
        np.testing.assert_equal(ours, new)  # the multiplier is the initial one
        np.testing.assert_equal(trainer.learner.state_dict(), fresh.learner.state_dict())


def test_another_algorithm_takes_the_critics_that_both_have(source: Path) -> None:
    config = cspo.make_config(TINY, "appo", init_from=str(source), **SMALL)
    theirs = final_state(source)[1]["/policy/critics"]
    with cspo.Trainer(config, env=make_tiny) as trainer:
        count = min(len(theirs), trainer.policy.critics.count)
        np.testing.assert_array_equal(trainer.policy.critics.parameters[:count], theirs[:count])


def test_resuming_needs_the_source_no_more_and_is_exact(
    source: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(source, copy)
    words = ["train", TINY, "--algo", "cspo", "--init-from", str(copy), *as_flags(SMALL)]
    assert main([*words, "--run-dir", str(tmp_path / "whole")]) == 0
    assert "after epoch 3: the actor, the critics" in capsys.readouterr().err
    config = cspo.make_config(TINY, "cspo", init_from=str(copy), **SMALL)
    for name, epochs in (("none", 0), ("some", 2)):  # stopped before the first epoch, and later
        with cspo.Trainer(config, run_dir=tmp_path / name) as trainer:
            for _, _ in zip(range(epochs), trainer, strict=False):
                pass
            if epochs:
                trainer.save()
    shutil.rmtree(copy)
    for name in ("none", "some"):
        assert main(["train", "--resume", str(tmp_path / name), "--quiet"]) == 0
        assert_same_run(tmp_path / name, tmp_path / "whole")


def test_a_run_that_lost_its_beginning_is_not_started_from_nothing(
    source: Path, tmp_path: Path
) -> None:
    config = cspo.make_config(TINY, "cspo", init_from=str(source), **SMALL)
    cspo.Trainer(config, run_dir=tmp_path / "run").close()
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with pytest.raises(cspo.CspoError, match="stopped before it kept what it started from"):
        cspo.resume(tmp_path / "run", quiet=True)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"hidden_sizes": (8,)}, "--hidden-sizes is 16,16 there, 8 here"),
        ({"observation_clip": 3.0}, "--observation-clip is 5 there, 3 here"),
        ({"normalise_observations": False}, "--normalise-observations is True there, False here"),
        ({"policy": Plain}, "no network of a user's own"),
    ],
)
def test_other_settings_are_refused_by_name(
    source: Path, tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(cspo.CspoError, match=said):
        cspo.train(TINY, init_from=source, run_dir=tmp_path / "run", **SHORT | settings)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("env", "limit", "said"),
    [
        (TwoCosts, (25.0, 25.0), "costs: cost there, cost_0, cost_1 here"),
        (SpaceEnv, (25.0,), "numbers in an observation: 2 there, 11 here; options of its choices"),
    ],
)
def test_other_spaces_and_costs_are_refused_by_name(
    source: Path, env: Any, limit: tuple[float, ...], said: str
) -> None:
    with pytest.raises(cspo.CspoError, match=said):
        cspo.train(env, init_from=source, cost_limit=limit, **SHORT)


def test_what_is_not_a_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", TINY, "--init-from", str(tmp_path), "--quiet"]) == 2
    assert "holds no run" in capsys.readouterr().err


def test_a_network_of_ones_own(tmp_path: Path) -> None:
    cspo.train(TinyEnv, policy=Plain, run_dir=tmp_path / "a", **SHORT)
    start: Any = {"env": TinyEnv, "init_from": tmp_path / "a", **SHORT, "total_steps": 400}
    cspo.train(**start, policy=Plain, run_dir=tmp_path / "b")
    with pytest.raises(cspo.CspoError, match="another network"):
        cspo.train(**start, policy=Wider, run_dir=tmp_path / "c")


class Boxed(TinyEnv):
    """A box of other than one unit on each side."""

    def __init__(self, space: str = "box") -> None:
        super().__init__()
        bits = gymnasium.spaces.MultiBinary(3)
        box = gymnasium.spaces.Box(-3.0, 1.0, (2,), np.float32)
        self.action_space = {"multi_binary": bits, "box": box}[space]

    def step(self, action: Any) -> Any:
        return super().step([0.1 * float(np.sum(action))])


def sb3(space: str, normalise: bool = False, **keywords: Any) -> Any:
    stable = pytest.importorskip("stable_baselines3", reason="pip install 'cspo[examples]'")
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    env: Any = DummyVecEnv([lambda: Boxed(space)])
    env = VecNormalize(env) if normalise else env
    keywords = {"policy_kwargs": {"net_arch": [8, 8]}, **keywords}
    model = stable.PPO("MlpPolicy", env, n_steps=64, batch_size=64, seed=1, **keywords)
    return model.learn(128)


@pytest.mark.parametrize(
    ("space", "normalise"),
    [("box", False), ("box", True), ("multi_binary", False)],
)
def test_an_actor_of_stable_baselines3_acts_the_same_here(
    space: str, normalise: bool, tmp_path: Path
) -> None:
    model = sb3(space, normalise)
    start = cspo.from_sb3(model)
    settings: Any = {**SMALL, **start.settings}
    config = cspo.make_config("<Boxed>", "cspo", **settings)
    with cspo.Trainer(config, env=lambda: Boxed(space), run_dir=tmp_path / "run", init_from=start):
        pass
    ours = cspo.load(tmp_path / "run")
    rng = np.random.default_rng(0)
    raw = rng.normal(size=(50, 2)) * 2.0
    wrapper = model.get_vec_normalize_env()
    seen = raw if wrapper is None else wrapper.normalize_obs(raw)
    wanted, _ = model.predict(seen, deterministic=True)
    found, _ = ours.predict(raw, deterministic=True)
    np.testing.assert_allclose(found, wanted, atol=2e-5)
    assert np.ptp(wanted, axis=0).max() > 0.0  # they do depend on the observation
    if space == "box":  # deviations are in the units of the box, too
        deviations = np.exp(model.policy.log_std.detach().numpy())
        scaled = np.exp(ours.networks.actor.log_std) * ours.scaling.half_range
        np.testing.assert_allclose(scaled, deviations, rtol=1e-5)


def test_models_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(cspo.CspoError, match="takes a loaded model"):
        cspo.from_sb3(str(tmp_path / "model.zip"))
    relu = {"net_arch": [8, 8], "activation_fn": torch.nn.ReLU}
    with pytest.raises(cspo.CspoError, match="has ReLU"):
        cspo.from_sb3(sb3("box", policy_kwargs=relu))
    start = cspo.from_sb3(sb3("box"))
    with pytest.raises(cspo.CspoError, match="--normalise-observations is False there"):
        cspo.train(Boxed, init_from=start, **SHORT | {"hidden_sizes": (8, 8)})
