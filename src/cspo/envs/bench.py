"""How fast a native task steps, measured against bare MuJoCo on the same trajectory."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

import numpy as np

from cspo.envs.batch import FloatArray
from cspo.envs.tasks import native_name
from cspo.envs.velocity import VelocityEnv
from cspo.errors import CspoError

ROUND = 25  # batched steps per round: short, so that both measurements see the same moods of the machine

State = tuple[FloatArray, FloatArray, FloatArray]  # qpos, qvel, qacc_warmstart


def bench_env(name: str, num_envs: int = 20, threads: int = 2, seconds: float = 5.0) -> dict[str, Any]:
    """Compare batched steps of a task with a bare loop of `mj_step` over as many simulators.

    Rounds of both alternate in this process. In each round the task takes 25 steps with unclipped Gaussian
    actions, and everything counts: physics, observation, reward, cost, resets. Then the bare loop repeats
    that
    round: it starts from the same states, sets the same controls and calls `mujoco.mj_step(model, data,
    skip)` in Python, in as many threads, each with a fixed share of the simulators and free to run ahead of
    the others. Where an episode ended, the bare loop is only handed the new state, so both simulate the same
    motion.

    Returns:
        `task, num_envs, threads, stepper`, environment steps per second of the task (`steps_per_s`) and of
        the bare loop (`raw_steps_per_s`), and `ratio`, the first over the second. Speeds are medians over
        rounds.
    """
    task_name = native_name(name)
    if task_name is None:
        raise CspoError(f"only native tasks can be measured, and {name!r} is not one: see `cspo tasks`.")
    env = VelocityEnv(task_name, num_envs, threads)
    raw = _RawLoop(env, threads)
    generator = np.random.default_rng(0)
    env.reset(seed=0)
    ours, bare = [], []
    deadline: float | None = None
    try:
        while deadline is None or time.perf_counter() < deadline:
            actions = generator.standard_normal((ROUND, num_envs, env.action_size))
            starts = [env.get_state(i) for i in range(num_envs)]
            spent, resets = _run_round(env, actions)
            spent_bare = raw.run(starts, actions, resets)
            if deadline is None:  # the first round only warms up
                deadline = time.perf_counter() + seconds
                continue
            ours.append(spent)
            bare.append(spent_bare)
    finally:
        env.close()
        raw.close()
    steps = ROUND * num_envs
    return {
        "task": task_name,
        "num_envs": num_envs,
        "threads": threads,
        "stepper": env.physics.stepper,
        "steps_per_s": steps / median(ours),
        "raw_steps_per_s": steps / median(bare),
        "ratio": median(bare) / median(ours),
    }


def _run_round(env: VelocityEnv, actions: FloatArray) -> tuple[float, list[dict[int, State]]]:
    """Step the task; return the seconds it took and, per step, the states that resets produced."""
    spent, resets = 0.0, []
    for action in actions:
        before = time.perf_counter()
        result = env.step(action)
        spent += time.perf_counter() - before
        ended = np.flatnonzero(result.terminated | result.truncated)
        resets.append({int(i): env.get_state(int(i)) for i in ended})
    return spent, resets


class _RawLoop:
    """The yardstick: N more simulators of the same model, and a loop over them in Python."""

    def __init__(self, env: VelocityEnv, threads: int) -> None:
        import mujoco

        self.model, self.frame_skip = env.model, env.task.frame_skip
        self.data = [mujoco.MjData(env.model) for _ in range(env.num_envs)]
        self.shares = [range(first, env.num_envs, threads) for first in range(threads)]
        self.pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def run(self, starts: list[State], actions: FloatArray, resets: list[dict[int, State]]) -> float:
        for data, state in zip(self.data, starts, strict=True):
            _put(data, state)
        before = time.perf_counter()
        if self.pool is None:
            self._run_share(self.shares[0], actions, resets)
        else:
            list(self.pool.map(lambda share: self._run_share(share, actions, resets), self.shares))
        return time.perf_counter() - before

    def _run_share(self, share: range, actions: FloatArray, resets: list[dict[int, State]]) -> None:
        from mujoco import mj_step

        model, frame_skip = self.model, self.frame_skip
        mine = [(i, self.data[i], self.data[i].ctrl) for i in share]
        for action, fresh in zip(actions, resets, strict=True):
            for i, data, ctrl in mine:
                ctrl[:] = action[i]
                mj_step(model, data, frame_skip)
                if i in fresh:
                    _put(data, fresh[i])

    def close(self) -> None:
        if self.pool is not None:
            self.pool.shutdown()


def _put(data: Any, state: State) -> None:
    data.qpos[:], data.qvel[:], data.qacc_warmstart[:] = state
