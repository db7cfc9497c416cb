"""How fast a native task steps, measured against bare MuJoCo on the same trajectory."""

from __future__ import annotations

import copy
import math
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

import mujoco
import numpy as np
from mujoco import mj_forward, mj_step

from cspo.envs.batch import FloatArray
from cspo.envs.native import make_native
from cspo.envs.tasks import native_name
from cspo.errors import CspoError

# Batched steps per round: few, so that both measurements see the same moods of the machine.
ROUND = 25
RESETS = 3  # of all environments, timed at the end

WHOLE_STATE = mujoco.mjtState.mjSTATE_INTEGRATION
State = FloatArray  # all that a simulator's future depends on
Resets = list[dict[int, State]]  # per step, the states of the simulators that were reset


def bench_env(
    name: str, num_envs: int = 20, threads: int = 2, seconds: float = 5.0
) -> dict[str, Any]:
    """Compare batched steps of a task with a bare loop of `mj_step` over as many simulators.

    Rounds of both alternate in this process. In each round the task takes 25 steps with unclipped
    Gaussian actions, and everything counts: physics, observation, reward, cost, resets. Then the
    bare loop repeats that round: it starts from the same states, sets the same controls and calls
    in Python what the task needs of MuJoCo for a step, such as ten `mj_step` and one `mj_forward`,
    in as many threads, each with a fixed share of the simulators and free to run ahead of the
    others. Where an episode ended, the bare loop is only handed the new state, so both simulate the
    same motion, except that it does not move the targets of gremlins.

    Returns:
        `task, num_envs, threads, stepper`, environment steps per second of the task (`steps_per_s`)
        and of the bare loop (`raw_steps_per_s`), `ratio`, the first over the second, and the
        milliseconds that one environment takes to reset (`reset_ms`). Speeds are medians over
        rounds.
    """
    task_name = native_name(name)
    if task_name is None:
        only = "only native tasks can be measured"
        raise CspoError(f"{only}, and {name!r} is not one: see `cspo tasks`.")
    env: Any = make_native(task_name, num_envs, threads)
    raw = _RawLoop(env, threads)
    generator = np.random.default_rng(0)
    env.reset(seed=0)
    # Episodes begin spread over their length, so that every round has its share of resets.
    env.elapsed[:] = generator.integers(env.time_limit, size=num_envs)
    rounds: list[tuple[float, float]] = []  # seconds of the task and of the bare loop
    deadline = math.inf
    try:
        while time.perf_counter() < deadline:
            actions = generator.standard_normal((ROUND, num_envs, env.action_size))
            starts = [_state(env, i) for i in range(num_envs)]
            spent, resets = _run_round(env, actions)
            rounds.append((spent, raw.run(starts, actions, resets)))
            if len(rounds) == 1:  # it only warms up
                deadline = time.perf_counter() + seconds
        resets_from = time.perf_counter()
        for _ in range(RESETS):
            env.reset()
        reset_seconds = (time.perf_counter() - resets_from) / (RESETS * num_envs)
    finally:
        env.close()
        raw.close()
    steps = ROUND * num_envs
    ours, bare = (median(spent) for spent in zip(*rounds[1:], strict=True))
    return {
        "task": task_name,
        "num_envs": num_envs,
        "threads": threads,
        "stepper": env.physics.stepper,
        "steps_per_s": steps / ours,
        "raw_steps_per_s": steps / bare,
        "ratio": bare / ours,
        "reset_ms": 1000.0 * reset_seconds,
    }


def _run_round(env: Any, actions: FloatArray) -> tuple[float, Resets]:
    """Step the task; return the seconds it took and, per step, the states that resets produced."""
    spent, resets = 0.0, []
    for action in actions:
        before = time.perf_counter()
        result = env.step(action)
        spent += time.perf_counter() - before
        ended = np.flatnonzero(result.terminated | result.truncated)
        resets.append({int(i): _state(env, int(i)) for i in ended})
    return spent, resets


class _RawLoop:
    """The yardstick: N more simulators of the same model, and a loop over them in Python."""

    def __init__(self, env: Any, threads: int) -> None:
        # Copies, because a task may change its own to make them cheaper.
        self.theirs = env.physics.models
        self.models = [copy.copy(model) for model in self.theirs]
        self.recipe = env.physics.recipe
        self.data = [mujoco.MjData(model) for model in self.models]
        self.shares = [range(first, env.num_envs, threads) for first in range(threads)]
        self.pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def run(self, starts: list[State], actions: FloatArray, resets: Resets) -> float:
        for theirs, model, data, state in zip(
            self.theirs, self.models, self.data, starts, strict=True
        ):
            model.body_pos[:], model.body_quat[:] = theirs.body_pos, theirs.body_quat
            model.eq_data[:] = theirs.eq_data
            mujoco.mj_setState(model, data, state, WHOLE_STATE)
        before = time.perf_counter()
        if self.pool is None:
            self._run_share(self.shares[0], actions, resets)
        else:
            list(self.pool.map(lambda share: self._run_share(share, actions, resets), self.shares))
        return time.perf_counter() - before

    def _run_share(self, share: range, actions: FloatArray, resets: Resets) -> None:
        frame_skip, forward = self.recipe.frame_skip, self.recipe.forward
        mine = [(i, self.models[i], self.data[i], self.data[i].ctrl) for i in share]
        for action, fresh in zip(actions, resets, strict=True):
            for i, model, data, ctrl in mine:
                ctrl[:] = action[i]
                mj_step(model, data, frame_skip)
                if forward:
                    mj_forward(model, data)
                if i in fresh:
                    mujoco.mj_setState(model, data, fresh[i], WHOLE_STATE)

    def close(self) -> None:
        if self.pool is not None:
            self.pool.shutdown()


def _state(env: Any, index: int) -> State:
    """Return all that the future of a simulator depends on."""
    model, data = env.physics.models[index], env.physics.data[index]
    state = np.empty(mujoco.mj_stateSize(model, WHOLE_STATE))
    mujoco.mj_getState(model, data, state, WHOLE_STATE)
    return state
