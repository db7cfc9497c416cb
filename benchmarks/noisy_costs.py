"""The native tasks with noise on each step's cost: how well does an algorithm see through it?

    cd benchmarks && cspo train noisy_costs:SafetyHopperVelocity-v1 --env-options noise=0.1

`noise` is the standard deviation of what is added to a step's cost, Gaussian and independent. An
episode of 1000 steps then scatters by sqrt(1000) noise, 3.2 for 0.1 and 15.8 for 0.5; the mean of
an epoch's 20 episodes by 0.7 and 3.5, of the 100 in the window by 0.3 and 1.6. With noise every
step has a cost, and a negative one half of the time: an algorithm cannot tell any more that a task
is free of cost yet. The logged cost is the noisy one as well. Without noise, results are those of
the native task, bit for bit.

`unit` multiplies the cost, for studies of whether results depend on the unit in which it comes:
with `unit=0.01` the limit of 25 is one of 0.25.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from cspo.envs import BatchEnv, StepResult
from cspo.envs.native import make_native
from cspo.envs.tasks import native_name
from cspo.types import FloatArray

STREAM = 0x636F7374  # sets the noise apart from the streams of the task, which have seeds alone


class NoisyCosts:
    """A `BatchEnv` whose costs come with noise, in another unit; all else is that of `env`."""

    def __init__(self, env: BatchEnv, noise: float, unit: float) -> None:
        """Wrap `env`; the noise is seeded together with it."""
        self.env, self.noise, self.unit = env, noise, unit
        self.rng = np.random.default_rng()

    def __getattr__(self, name: str) -> Any:
        """Return what else `env` has: sizes, names, `close`."""
        return getattr(self.env, name)

    def reset(self, seed: int | None = None) -> FloatArray:
        """Start N episodes, and with a seed also the noise anew."""
        if seed is not None:
            self.rng = np.random.default_rng([STREAM, seed])
        return self.env.reset(seed)

    def step(self, actions: FloatArray) -> StepResult:
        """Step `env`, and add the noise to its costs."""
        result = self.env.step(actions)
        noise = self.noise * self.rng.standard_normal(result.cost.shape)
        return result._replace(cost=self.unit * (result.cost + noise))

    def random_state(self) -> dict[str, Any]:
        """Return the random state of `env`, and that of the noise."""
        return {"env": self.env.random_state(), "noise": self.rng.bit_generator.state}

    def set_random_state(self, state: dict[str, Any]) -> None:
        """Put back what `random_state` returned."""
        self.env.set_random_state(state["env"])
        self.rng.bit_generator.state = state["noise"]


def make(
    task: str, num_envs: int, threads: int = 1, noise: float = 0.0, unit: float = 1.0
) -> NoisyCosts:
    """Return `num_envs` copies of a native task, their costs with noise and times `unit`."""
    return NoisyCosts(make_native(task, num_envs, threads), noise, unit)


def __getattr__(name: str) -> Callable[..., NoisyCosts]:
    """Return the factory of a native task, so that `noisy_costs:TASK` names one."""
    if native_name(name) is None:
        raise AttributeError(f"noisy_costs has no task {name!r}")
    return functools.partial(make, name)
