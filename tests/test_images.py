"""Images: learned from by convolutions, kept as bytes, resumed exactly, flattened on request."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

pytest.importorskip("torch", reason="pip install 'cspo[torch]' brings PyTorch")

import torch
from run_helpers import SMALL, assert_same_run

import cspo
from cspo.errors import CspoError
from cspo.policy.convolution import ConvolutionNetwork, parameter_count
from cspo.settings import machine_memory

SETTINGS: Any = {
    **SMALL,
    "num_envs": 2,
    "steps_per_epoch": 80,
    "total_steps": 240,
    "minibatch_size": 40,
    "cost_limit": (2.0,),
}


class Dots(gymnasium.Env[Any, Any]):
    """One bright row in a dark picture; naming its half is rewarded, and the lower half costs."""

    side, channels_first, kind = 12, False, "image"

    def __init__(self) -> None:
        n = self.side
        shape = (3, n, n) if self.channels_first else (n, n, 3)
        high = 1.0 if self.kind == "float" else 255
        dtype: Any = np.float32 if self.kind == "float" else np.uint8
        self.observation_space: Any = Box(0, high, shape, dtype)
        if self.kind == "dict":
            self.observation_space = Dict(
                {"image": self.observation_space, "speed": Box(-1.0, 1.0, (2,), np.float32)}
            )
        self.action_space = Discrete(2)

    def _picture(self) -> Any:
        self.row = int(self.np_random.integers(self.side))
        picture = np.zeros((self.side, self.side, 3), np.uint8)
        picture[self.row] = 200
        if self.channels_first:
            picture = picture.transpose(2, 0, 1)
        if self.kind == "wrong":
            return picture / 255.0
        if self.kind == "dict":
            return {"image": picture, "speed": np.zeros(2, np.float32)}
        return picture.astype(self.observation_space.dtype)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self._picture(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        lower = self.row >= self.side // 2
        reward, cost = float(action == lower), float(lower and action == 1)
        return self._picture(), reward, False, self.t == 20, {"cost": cost}


class ChannelsFirst(Dots):
    channels_first = True


class WithVector(Dots):
    kind = "dict"


class Floats(Dots):
    kind = "float"


class Wrong(Dots):
    kind = "wrong"


class Large(Dots):
    side = 40


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than these runs."""
    import cspo.runs.curves  # noqa: F401

    monkeypatch.setattr(sys.modules["cspo.runs.curves"], "draw_curve", lambda run: run)


def trainer_on(env: Any, algo: str = "ppo", **changes: Any) -> Any:
    config = cspo.make_config(f"<{env.__name__}>", algo, **(SETTINGS | changes))
    return cspo.Trainer(config, env=env)


@pytest.mark.parametrize("env", [Dots, ChannelsFirst, Large])
@pytest.mark.parametrize("algo", ["cspo", "cpo"])
def test_images_train_through_convolutions(env: Any, algo: str) -> None:
    trainer = trainer_on(env, algo, total_steps=80)
    assert len(list(trainer)) == 1
    signature = trainer.policy.signature
    kernels = [part for part in signature if part.count(",") == 3]
    assert len(kernels) == 3 and kernels[0].split("(")[1].split(", ")[1] == "3", signature
    assert trainer.policy.normaliser(np.full((1, 12), 7.0)).dtype == np.uint8


def test_the_network_sees_pixels_divided_by_255_in_the_shape_of_the_environment() -> None:
    seen = []

    class Looking(ConvolutionNetwork):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(x.detach().clone())
            return super().forward(x)

    config = cspo.make_config("<Dots>", "ppo", **{**SETTINGS, "total_steps": 80})
    trainer = cspo.Trainer(config, env=Dots, policy=Looking)
    seen.clear()
    list(trainer)
    assert all(x.shape[1:] == (12, 12, 3) for x in seen)
    assert set(torch.cat([x.unique() for x in seen]).tolist()) == {0.0, np.float32(200 / 255)}


def test_both_orders_of_the_axes_give_the_same_outputs() -> None:
    torch.manual_seed(0)
    last = ConvolutionNetwork((10, 12, 3), 4)
    first = ConvolutionNetwork((3, 10, 12), 4)
    first.load_state_dict(last.state_dict())
    x = torch.rand(2, 10, 12, 3)
    assert torch.allclose(last(x), first(x.permute(0, 3, 1, 2)), atol=1e-6)
    count = parameter_count((10, 12, 3), 4, (64, 64))
    assert count == sum(parameter.numel() for parameter in last.parameters())


@pytest.mark.parametrize("side", [1, 2, 5, 35, 36, 50])
def test_it_fits_images_of_every_size(side: int) -> None:
    assert ConvolutionNetwork((side, side + 3, 1), 2)(torch.rand(2, side, side + 3, 1)).shape == (
        2,
        2,
    )


def test_a_policy_learns_from_what_it_sees() -> None:
    trainer = trainer_on(
        Dots,
        **{"steps_per_epoch": 400, "total_steps": 4000, "minibatch_size": 100, "passes": 4},
        **{"actor_lr": 3e-3, "episode_window": 20, "hidden_sizes": (32,)},
    )
    returns = [report.episode_return for report in trainer]
    assert returns[0] < 14.0 and returns[-1] > 17.0, returns  # 10 by chance, 20 at best


@pytest.mark.parametrize("algo", ["cspo", "cpo"])
def test_a_stopped_run_goes_on_exactly_and_its_policy_takes_raw_images(
    tmp_path: Path, algo: str
) -> None:
    whole, part = tmp_path / "whole", tmp_path / "part"
    cspo.train(Dots, algo, run_dir=whole, quiet=True, **SETTINGS)
    config = cspo.make_config("<Dots>", algo, **SETTINGS)
    with cspo.Trainer(config, env=Dots, run_dir=part) as trainer:
        next(iter(trainer))
    cspo.resume(part, env=Dots, quiet=True)
    assert_same_run(part, whole)
    policy, picture = cspo.load(part), Dots().reset(seed=1)[0]
    assert policy(picture) in (0, 1)
    assert policy(np.stack([picture] * 3)).tolist() == [policy(picture)] * 3
    assert len(cspo.evaluate(policy, 2, env=Dots)) == 2
    with pytest.raises(CspoError, match=r"numbers other than 0, 1, \.\.\. 255"):
        policy(picture / 255.0)


def test_a_dict_with_an_image_floats_and_mlp_are_flattened() -> None:
    for trainer in (
        trainer_on(WithVector, total_steps=80),
        trainer_on(Floats, total_steps=80),
        trainer_on(Dots, total_steps=80, network="mlp"),
    ):
        assert trainer.policy.signature is None and len(list(trainer)) == 1


def test_an_environment_whose_images_are_none_is_told_so() -> None:
    with pytest.raises(CspoError, match="though its observation_space is of type uint8"):
        list(trainer_on(Wrong))


def test_memory_is_counted_in_bytes_per_pixel() -> None:
    pixels = 12 * 12 * 3
    steps = (
        machine_memory() // (2 * pixels) // 2 * 2
    )  # half of the memory as bytes, twice as floats
    trainer_on(Dots, steps_per_epoch=steps, total_steps=steps)
    with pytest.raises(CspoError, match="--steps-per-epoch"):
        trainer_on(Dots, steps_per_epoch=steps, total_steps=steps, network="mlp")
