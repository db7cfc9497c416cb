"""Threads change the speed, never the result, and the maths libraries start none of their own."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import small_policy

from cspo.arithmetic import denormals_flushed
from cspo.optim.minibatch import Learner

SCRIPT = """
import threadpoolctl
import cspo
from cspo.arithmetic import single_threaded_math

small = {"total_steps": 400, "steps_per_epoch": 200, "num_envs": 4, "passes": 1}
config = cspo.make_config("SafetyHopperVelocity-v1", **small)
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


def test_every_blas_library_is_limited_to_one_thread_during_an_epoch_and_released_afterwards() -> (
    None
):
    # A fresh process, because the limit must also reach libraries that are loaded late.
    result = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


TINY = np.float32(1e-40)  # below the smallest normal number of single precision
needs_flushing = pytest.mark.skipif(
    not torch.set_flush_denormal(False), reason="this processor cannot flush"
)


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
def test_threads_that_train_critics_flush_as_well() -> None:
    learner = Learner(small_policy(3, 2), np.random.default_rng(0), threads=3)
    assert learner._pool is not None
    assert all(learner._pool.submit(is_flushed).result() for _ in range(10))
    assert not is_flushed()
