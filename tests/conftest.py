"""What several test files share: small policies and batches, and networks written once more."""

from __future__ import annotations

import itertools
import os
import signal
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from cspo.algorithms.learner import FitResult
from cspo.optim.minibatch import MinibatchLearner
from cspo.optim.settings import UpdateSettings
from cspo.policy.policy import Policy
from cspo.policy.settings import PolicySettings
from cspo.runs.files import user_cache
from cspo.types import Batch

Array = NDArray[np.float64]

# The marks of runs that tests start are kept apart from the user's, and processes inherit it.
os.environ.setdefault("CSPO_STATE_DIR", tempfile.mkdtemp(prefix="cspo-state-"))
# A shell starts what it runs in the background deaf to Ctrl-C, and processes inherit that, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Some tests give processes another cache folder: what is compiled stays where it is all the same.
os.environ.setdefault("NUMBA_CACHE_DIR", str(user_cache()))


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Train as the library does, on one thread: more are slower at this size."""
    torch.set_num_threads(1)


@pytest.fixture
def no_runtime_warnings() -> Iterator[None]:
    """Fail where a division or a root is of numbers that do not allow it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


@pytest.fixture(scope="module")
def no_pictures() -> Iterator[None]:
    """Leave curve.png out in a whole file: drawing takes longer than the trainings of tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cspo.runs.curves.draw_curve", lambda run: run)
        yield


def unpack(flat: Any, sizes: Sequence[int]) -> tuple[list[tuple[Any, Any]], Any]:
    """Cut flat parameters into (weight (in, out), bias (out,)) per layer, and what remains."""
    layers, start = [], 0
    for fan_in, fan_out in itertools.pairwise(sizes):
        weight = flat[start : start + fan_in * fan_out].reshape(fan_in, fan_out)
        start += fan_in * fan_out
        layers.append((weight, flat[start : start + fan_out]))
        start += fan_out
    return layers, flat[start:]


def reference_mlp(layers: list[tuple[Any, Any]], x: Any) -> Any:
    """Hidden layers with tanh, linear output; works on NumPy arrays and on tensors."""
    tanh = torch.tanh if isinstance(x, torch.Tensor) else np.tanh
    for weight, bias in layers[:-1]:
        x = tanh(x @ weight + bias)
    weight, bias = layers[-1]
    return x @ weight + bias


def reference_log_prob(flat: Array, sizes: Sequence[int], x: Array, action: Array) -> Array:
    """Log-density of a diagonal Gaussian, written with densities of single coordinates."""
    layers, log_std = unpack(flat, sizes)
    mean, variance = reference_mlp(layers, x), np.exp(log_std) ** 2
    return -0.5 * (np.log(2.0 * np.pi * variance) + (action - mean) ** 2 / variance).sum(axis=1)


def central_differences(function: Any, point: Array, step: float = 1e-5) -> Array:
    """Gradient of a scalar function of a vector, in float64."""
    gradient = np.empty_like(point)
    for i in range(len(point)):
        forward, backward = point.copy(), point.copy()
        forward[i] += step
        backward[i] -= step
        gradient[i] = (function(forward) - function(backward)) / (2.0 * step)
    return gradient


def float64(values: Any) -> Array:
    """Copy an array or a tensor to a float64 array."""
    plain = values.detach().numpy() if isinstance(values, torch.Tensor) else values
    return np.array(plain, dtype=np.float64)


def relative_error(value: Any, reference: Array) -> float:
    """Return |value - reference| / |reference| in the Euclidean norm."""
    return float(np.linalg.norm(float64(value) - reference) / np.linalg.norm(reference))


def small_policy(
    observation: int = 3,
    action: int = 2,
    costs: int = 1,
    hidden: Sequence[int] = (5, 4),
    seed: int = 0,
    log_std: float = -0.3,
    choices: Sequence[int] = (),
) -> Policy:
    """Return a policy of a few dozen parameters."""
    settings = PolicySettings(hidden_sizes=tuple(hidden), log_std_init=log_std)
    rng = np.random.default_rng(seed)
    return Policy(observation, action, costs, settings, rng, choices=choices)


def make_learner(
    policy: Policy, rng: Any = None, threads: int = 1, **settings: Any
) -> MinibatchLearner:
    """Return a learner of a policy; settings are those of `UpdateSettings`."""
    rng = np.random.default_rng(0) if rng is None else rng
    return MinibatchLearner(policy, UpdateSettings(**settings), rng, threads)


def random_batch(
    policy: Policy, samples: int, costs: int = 1, seed: int = 1, **changes: Any
) -> Batch:
    """Return a batch that `policy` could have collected, with random advantages and targets."""
    rng = np.random.default_rng(seed)
    actor = policy.actor

    def normal(*shape: int) -> NDArray[np.float32]:
        return rng.standard_normal(shape).astype(np.float32)

    observation = normal(samples, actor.mlp.sizes[0])
    output, log_std = actor.outputs(observation), actor.log_std.copy()
    kind = actor.distribution
    noise = normal(samples, kind.gaussians) * np.exp(log_std)
    if kind.choices:
        noise = np.concatenate([noise, rng.random((samples, len(kind.choices)), np.float32)], 1)
    action = kind.sample(output, noise)
    A_r, A_c = normal(samples), normal(samples, costs) * np.float32(1.7)
    values: dict[str, Any] = {
        "observation": observation,
        "action": action,
        "output": output,
        "log_std": log_std,
        "log_prob": actor.distribution.log_prob(output, log_std, action),
        "adv_r": (A_r - A_r.mean()) / (A_r.std() or 1.0),
        "adv_c": A_c - A_c.mean(0),
        "value_target": normal(1 + costs, samples),
        "any_cost": np.ones(costs, dtype=bool),
        "epoch_cost": np.full(costs, 30.0),
    }
    return Batch(**(values | changes))


def perturb(policy: Policy, size: float, seed: int = 2) -> None:
    """Move the actor away from the policy that collected the data."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal(policy.actor.parameters.shape).astype(np.float32)
    policy.actor.parameters += size * noise


class _GivenRows:
    """Stands in for the generator that shuffles."""

    def __init__(self) -> None:
        self.rows: NDArray[np.int64] | None = None

    def permutation(self, samples: int) -> NDArray[np.int64]:
        return np.arange(samples) if self.rows is None else self.rows


class _Capture:
    """Stands in for the actor's optimiser: keeps the gradient and does not move."""

    lr, count = 0.0, 0
    gradient: Array

    def step(self, gradient: Any, **options: Any) -> None:
        self.gradient = float64(gradient)


class RecordingLearner(MinibatchLearner):
    """The real minibatch loop, with one minibatch per pass and an actor that stays where it is."""

    def __init__(self, policy: Policy, samples: int) -> None:
        self.given, self.capture = _GivenRows(), _Capture()
        settings = UpdateSettings(passes=1, minibatch_size=samples, target_kl=1e9)
        super().__init__(policy, settings, self.given)  # type: ignore[arg-type]
        self.actor_optimiser = self.capture  # type: ignore[assignment]

    def fit(self, batch: Batch, loss: Any) -> FitResult:
        self.batch, self.loss = batch, loss
        return super().fit(batch, loss)

    def gradient(self, rows: Sequence[int] | range | None = None) -> Array:
        """Return the gradient of the recorded loss, on some of the rows, where the actor is now."""
        self.given.rows = None if rows is None else np.array(rows)
        super().fit(self.batch, self.loss)
        return self.capture.gradient

    def surrogates(self, rows: Sequence[int] | range | None = None) -> list[Any]:
        """Return the values of the surrogates that the recorded loss is made of."""
        seen: list[Any] = []
        original = self.loss.observe

        def spy(*values: Any) -> None:
            seen.extend(np.copy(value) for value in values)
            if original is not None:
                original(*values)

        self.loss.observe = spy
        try:
            self.gradient(rows)
        finally:
            self.loss.observe = original
        return seen
