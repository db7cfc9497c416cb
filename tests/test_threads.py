"""Threads change the speed, never the result, and maths libraries may not start their own."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from conftest import make_learner, small_policy

from cspo.arithmetic import denormals_flushed, flush_denormals, single_threaded_math

SCRIPT = """
import threadpoolctl
import cspo
from cspo.arithmetic import single_threaded_math

settings = {"total_steps": 400, "steps_per_epoch": 200, "num_envs": 4, "passes": 1}
config = cspo.make_config("SafetyHopperVelocity-v1", **settings)
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


WITHOUT_TORCH = """
import sys
import numpy as np
import threadpoolctl
from cspo.arithmetic import denormals_flushed, single_threaded_math

with single_threaded_math(), denormals_flushed():
    pools = threadpoolctl.threadpool_info()
    assert (np.ones((64, 64)) @ np.ones((64, 64)) == 64.0).all()
blas = [pool for pool in pools if pool["user_api"] == "blas"]
assert blas and all(pool["num_threads"] == 1 for pool in blas), pools
assert "torch" not in sys.modules
"""


def test_arithmetic_is_limited_without_loading_torch() -> None:
    result = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_torch_is_limited_to_one_thread_and_released_where_it_is_loaded() -> None:
    torch.set_num_threads(3)
    with single_threaded_math():
        assert torch.get_num_threads() == 1
        with single_threaded_math():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1  # the inner one puts back what it found
    assert torch.get_num_threads() == 3
    with pytest.raises(ZeroDivisionError), single_threaded_math():
        raise ZeroDivisionError
    assert torch.get_num_threads() == 3


# ---------------------------------------------------------------- denormal numbers

# Below the smallest normal number of single precision, 1.2e-38, and of double precision, 2.2e-308.
DENORMAL = {"float32": np.full(20, 1e-40, np.float32), "float64": np.full(20, 1e-310)}
# Products of these are that small.
SMALL = {"float32": np.full(20, 1e-20, np.float32), "float64": np.full(20, 1e-155)}


def is_flushed() -> bool:
    """Compute with denormal operands and results, on arrays and on single numbers."""
    flushed: list[bool] = []
    for kind in ("float32", "float64"):
        operand, small = DENORMAL[kind], SMALL[kind]
        huge = operand.dtype.type(1e30)
        for product in (operand * huge, small * small, operand[0] * huge, small[0] * small[0]):
            flushed.extend(np.atleast_1d(product == 0.0).tolist())
    assert len(set(flushed)) == 1, "all kinds of numbers are treated alike"
    return flushed[0]


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


def test_normal_numbers_infinity_and_nan_are_left_alone() -> None:
    numbers = np.array([1.2e-38, -1.0, 3e38, np.inf, -np.inf, np.nan], np.float32)
    plain = numbers * np.float32(1.0), np.float32(1.0) / numbers[:3], np.exp(numbers[1:2])
    with denormals_flushed():
        flushed = numbers * np.float32(1.0), np.float32(1.0) / numbers[:2], np.exp(numbers[1:2])
    np.testing.assert_array_equal(flushed[0], plain[0])
    np.testing.assert_array_equal(flushed[1], plain[1][:2])  # 1 / 3e38 is denormal itself
    np.testing.assert_array_equal(flushed[2], plain[2])


def test_every_thread_has_its_own_switch() -> None:
    with ThreadPoolExecutor(1) as pool:
        assert not pool.submit(is_flushed).result()  # the thread exists: a new one would inherit
        with denormals_flushed():
            assert is_flushed()
            assert not pool.submit(is_flushed).result()
        pool.submit(flush_denormals).result()
        assert pool.submit(is_flushed).result()
        assert not is_flushed()

        def nested() -> bool:
            with denormals_flushed():
                inside = is_flushed()
            return inside and is_flushed()  # as it was before

        assert pool.submit(nested).result()
    assert not is_flushed()


def test_threads_that_train_critics_flush_as_well() -> None:
    learner = make_learner(small_policy(3, 2), np.random.default_rng(0), threads=3)
    assert learner._pool is not None
    assert all(learner._pool.submit(is_flushed).result() for _ in range(10))
    assert not is_flushed()
