"""Threads change the speed, never the result, and the maths libraries are kept from starting their own."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import random_batch, small_policy

from cspo.optim.minibatch import Learner, denormals_flushed
from cspo.optim.objective import SurrogateObjective
from cspo.surrogates import clipped_reward

SCRIPT = """
import threadpoolctl
import cspo
from cspo.loop import single_threaded_math

config = cspo.make_config("SafetyHopperVelocity-v1", total_steps=400, steps_per_epoch=200, num_envs=4, passes=1)
trainer = cspo.Trainer(config)
next(iter(trainer))  # whatever is loaded lazily is loaded now
before = threadpoolctl.threadpool_info()
with single_threaded_math():
    inside = threadpoolctl.threadpool_info()
after = threadpoolctl.threadpool_info()
blas = [pool for pool in inside if pool["user_api"] == "blas"]
assert blas, "no BLAS found"
assert all(pool["num_threads"] == 1 for pool in blas), blas
assert [pool["num_threads"] for pool in after] == [pool["num_threads"] for pool in before]
"""


def test_every_blas_library_is_limited_to_one_thread_during_an_epoch_and_released_afterwards() -> None:
    # A fresh process, because the limit must also reach libraries that are loaded late.
    result = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


TINY = np.float32(1e-40)  # below the smallest normal number of single precision
needs_flushing = pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this processor cannot flush")


def is_flushed() -> bool:
    return bool(TINY * np.float32(1.0) == 0.0)


@needs_flushing
def test_numbers_too_small_are_zero_during_an_update_and_only_then() -> None:
    assert not is_flushed()
    with denormals_flushed():
        assert is_flushed()
        with denormals_flushed():
            assert is_flushed()
        assert is_flushed()  # the inner one puts back what it found
    assert not is_flushed()
    with pytest.raises(ZeroDivisionError), denormals_flushed():
        raise ZeroDivisionError
    assert not is_flushed()


@needs_flushing
def test_critics_on_other_threads_flush_as_well() -> None:
    results = []
    for threads in (1, 3):
        policy = small_policy(3, 2)
        policy.critics.parameters[1:] *= TINY / np.float32(0.1)  # as the L2 term leaves them while nothing costs
        batch = random_batch(policy, 200)
        batch.value_target[1:] = 0.0
        learner = Learner(policy, np.random.default_rng(0), passes=2, minibatch_size=64, threads=threads)
        with denormals_flushed():
            learner.fit(batch, SurrogateObjective([clipped_reward(batch.adv_r)], 0.2, lambda L_R: (-1.0,)))
        results.append(policy.critics.parameters.copy())
    np.testing.assert_array_equal(results[0], results[1])
    moments = learner.critic_optimiser.second
    assert not ((moments > 0) & (moments < np.finfo(np.float32).tiny)).any()
