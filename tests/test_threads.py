"""Threads change the speed, never the result, and the maths libraries are kept from starting their own."""

from __future__ import annotations

import subprocess
import sys

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
