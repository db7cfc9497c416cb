"""The native tasks as Gymnasium environments, one or many at a time.

`import cspo` registers them (`registration.py`), so that
`gymnasium.make("cspo/SafetyHopperVelocity-v1")` and `gymnasium.make_vec(...)` know them;
`gymnasium.make("cspo:cspo/SafetyHopperVelocity-v1")` imports the package by itself. The other way,
`gym_batch.py` makes any Gymnasium environment a `BatchEnv`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from cspo.envs.batch import BoolArray
from cspo.envs.facts import TimeLimit
from cspo.envs.native import check_native, make_native
from cspo.envs.tools.render import Picture, Renderer
from cspo.errors import CspoError

if TYPE_CHECKING:
    from cspo.envs.navigation.view import TaskView
    from cspo.envs.physics.simulated import SimulatedEnv

RENDER_MODES = ["rgb_array"]


class _NativeTask:
    """What both kinds of environment are made of: simulators, and a renderer where asked for."""

    metadata: dict[str, Any]

    def _take(
        self, batch: SimulatedEnv, render_mode: str | None, width: int, height: int, camera: str
    ) -> None:
        """Take the simulators; OpenGL is opened by the first picture."""
        if render_mode not in (None, *RENDER_MODES):
            raise CspoError(f'render_mode must be None or "rgb_array", not {render_mode!r}.')
        self._batch, self.cost_names = batch, batch.cost_names
        self.render_mode = render_mode
        self.metadata = self.metadata | {"render_fps": round(1.0 / batch.row.step_seconds)}
        self._size, self._camera = (width, height), camera
        self._renderer: Renderer | None = None

    def _terms(self) -> dict[str, Any]:
        """Return what `info` tells of the last step, (N,) each."""
        return {"cost": self._batch.total_cost, **self._batch.info_terms}

    def _draw(self) -> tuple[Picture, ...] | None:
        """Return a picture of every copy, or None without a `render_mode`."""
        if self.render_mode is None:
            return None
        if self._renderer is None:
            self._renderer = Renderer(*self._size)
        scenes = (self._batch.scene(i) for i in range(self._batch.num_envs))
        return tuple(self._renderer.draw(scene, self._camera) for scene in scenes)

    def _release(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
        self._batch.close()


class SafetyTaskEnv(_NativeTask, gymnasium.Env[Any, Any]):
    """One native task as a Gymnasium environment: five values per step, the cost in `info["cost"]`.

    Resets draw the same random numbers as Safety-Gymnasium; the time limit is Gymnasium's
    `TimeLimit` wrapper.

    Args:
        task: Name of the task.
        render_mode: "rgb_array" for pictures by `render()`, or None.
        width: Of a picture, in pixels.
        height: Of a picture, in pixels.
        camera: "follow", "top", "track", "fixednear", "fixedfar" or "vision", see `Scene`.
        **options: Options of the task, such as `button_timer_after_reset`.
    """

    metadata: dict[str, Any] = {"render_modes": RENDER_MODES}  # noqa: RUF012 (Gymnasium's way)

    def __init__(
        self,
        task: str,
        render_mode: str | None = None,
        width: int = 480,
        height: int = 480,
        camera: str = "follow",
        **options: Any,
    ) -> None:
        """Create the simulator."""
        check_native(task, (), options)
        batch = make_native(task, autoreset=False, **({"time_limit": None} | options))
        self._take(batch, render_mode, width, height, camera)
        self.observation_space, self.action_space = _spaces(batch)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode; without a seed the random stream of the task goes on."""
        super().reset(seed=seed)
        self._batch.seed_one(0, seed)
        return self._batch.reset()[0].copy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Advance by one step; `info` holds `cost` and what else is told, such as `x_velocity`."""
        result = self._batch.step(np.asarray(action)[None])
        info = {name: float(value[0]) for name, value in self._terms().items()}
        ended = bool(result.terminated[0]), bool(result.truncated[0])
        return result.observation[0].copy(), float(result.reward[0]), *ended, info

    def render(self) -> Picture | None:  # type: ignore[override]
        """Return a picture of now, (height, width, 3), or None without a `render_mode`."""
        pictures = self._draw()
        return None if pictures is None else pictures[0]

    @property
    def untold(self) -> list[str]:
        """What `info` of the last step tells as 0 and Safety-Gymnasium leaves out."""
        return [name for name, where in self._batch.untold.items() if where[0]]

    @property
    def task(self) -> TaskView:
        """Where everything is in the world of a navigation task, by Safety-Gymnasium's names."""
        from cspo.envs.navigation.view import view_of

        return view_of(self._batch)

    @property
    def obs_space_dict(self) -> Dict:
        """The parts of an observation, in their order: of a navigation task."""
        return self.task.obs_space_dict

    @property
    def model(self) -> Any:
        """The `mujoco.MjModel` that is simulated."""
        return self._batch.physics.models[0]

    @property
    def data(self) -> Any:
        """The `mujoco.MjData` of it; do not change it."""
        return self._batch.physics.data[0]

    def set_seed(self, seed: int | None = None) -> None:
        """Start the random stream anew, for the next reset; None leaves it as it is."""
        self._batch.seed_one(0, seed)

    def random_state(self) -> dict[str, Any]:
        """Return the state of the random stream, as JSON-compatible data."""
        return self._batch.random_state()

    def set_random_state(self, state: dict[str, Any]) -> None:
        """Put back what `random_state` returned."""
        self._batch.set_random_state(state)

    def close(self) -> None:
        """Release the simulator."""
        self._release()


class SafetyVectorEnv(_NativeTask, VectorEnv[Any, Any, Any]):
    """N copies of a native task as a Gymnasium vector environment with same-step automatic reset.

    `info` holds `cost` and what else the task tells of every copy for the step just taken, (N,)
    each. Where an episode ended, `final_obs` and `final_info` follow Gymnasium's conventions.

    Args:
        task: Name of the task.
        num_envs: Number of copies, N.
        threads: Threads that step the physics.
        max_episode_steps: Time limit; by default the task's own.
        render_mode: "rgb_array" for pictures by `render()`, or None.
        width: Of a picture, in pixels.
        height: Of a picture, in pixels.
        camera: Where it is taken from, see `Scene`.
        **options: Options of the task.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "render_modes": RENDER_MODES,
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(
        self,
        task: str,
        num_envs: int = 1,
        threads: int = 1,
        max_episode_steps: TimeLimit = "task",
        render_mode: str | None = None,
        width: int = 480,
        height: int = 480,
        camera: str = "follow",
        **options: Any,
    ) -> None:
        """Create the simulators."""
        check_native(task, (), options)
        if max_episode_steps != "task":
            options = {"time_limit": max_episode_steps} | options
        batch = make_native(task, num_envs, threads, **options)
        self._take(batch, render_mode, width, height, camera)
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = _spaces(batch)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Start N episodes; copy i is seeded with `seed + i`, or with `seed[i]`."""
        if isinstance(seed, Sequence):
            if len(seed) != self.num_envs:
                raise ValueError(f"{len(seed)} seeds were given for {self.num_envs} environments")
            for i, one in enumerate(seed):
                self._batch.seed_one(i, one)
            seed = None
        super().reset(seed=seed)
        return self._batch.reset(seed).copy(), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Advance every copy by one step; a copy whose episode ended already shows its next one."""
        result = self._batch.step(actions)
        terms = self._terms()
        info = _masked(terms, np.ones(self.num_envs, np.bool_))
        ended = result.terminated | result.truncated
        if ended.any():
            final = np.full(self.num_envs, None, dtype=object)
            for i in np.flatnonzero(ended):
                final[i] = result.final_observation[i].copy()
            info |= {"final_obs": final, "_final_obs": ended}
            info |= {"final_info": _masked(terms, ended), "_final_info": ended.copy()}
        outcome = (result.observation, result.reward, result.terminated, result.truncated)
        observation, reward, terminated, truncated = (array.copy() for array in outcome)
        return observation, reward, terminated, truncated, info

    @property
    def untold(self) -> Mapping[str, BoolArray]:
        """(N,) where `info` tells 0 and Safety-Gymnasium nothing, by the key in `info`."""
        return self._batch.untold

    def render(self) -> tuple[Picture, ...] | None:  # type: ignore[override]
        """Return a picture of every copy, or None without a `render_mode`."""
        return self._draw()

    def close_extras(self, **kwargs: Any) -> None:
        """Release the simulators."""
        self._release()


def _masked(terms: dict[str, Any], mask: Any) -> dict[str, Any]:
    """Return batched infos in Gymnasium's form: arrays, zero where they do not apply, and masks."""
    info: dict[str, Any] = {}
    for name, values in terms.items():
        info[name], info[f"_{name}"] = np.where(mask, values, 0.0), mask.copy()
    return info


def _spaces(batch: SimulatedEnv) -> tuple[Box, Box]:
    """Return the observation and action space of one copy, typed as Safety-Gymnasium types them."""
    observation = Box(-np.inf, np.inf, (batch.observation_size,), np.float64)
    low, high = batch.action_low.astype(np.float32), batch.action_high.astype(np.float32)
    return observation, Box(low, high, dtype=np.float32)
