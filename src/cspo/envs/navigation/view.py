"""Where everything is in one world of a navigation task, by Safety-Gymnasium's names; only to read.

`env.unwrapped.task.agent.pos`, `.goal.pos`, `.hazards.pos`, ...: scripts look there to draw maps,
to steer by hand or to count.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict

from cspo.envs.batch import FloatArray
from cspo.envs.navigation.parts import LIDAR_BINS, ObjectClass
from cspo.envs.navigation.task import NavigationEnv

SINGLE = ("goal", "push_box", "circle")  # classes that have one position, not a list


class AgentView:
    """The robot: copies of where it is and how it moves."""

    def __init__(self, env: NavigationEnv, index: int) -> None:
        """Look at world `index`."""
        self._world, self._index = env.world, index

    @property
    def pos(self) -> FloatArray:
        """Position of its root, (3,)."""
        return np.array(self._world.robot_positions[self._index])

    @property
    def mat(self) -> FloatArray:
        """Rotation matrix of its root, (3, 3)."""
        return self._world.robot_poses[self._index, 3:].reshape(3, 3).copy()

    @property
    def vel(self) -> FloatArray:
        """Velocity of its root in the frame of the world, (3,)."""
        return np.array(self._world.robot_velocities[self._index])

    def dist_xy(self, pos: Any) -> float:
        """Return how far it is from a position, in the plane."""
        return float(np.linalg.norm(np.asarray(pos)[:2] - self.pos[:2]))


class ObjectsView:
    """The objects of a class, or the only one."""

    def __init__(self, env: NavigationEnv, index: int, kind: ObjectClass) -> None:
        """Look at world `index`."""
        self._world, self._index, self._kind = env.world, index, kind
        self.name, self.num, self.keepout = kind.name, kind.count, kind.keepout
        size = re.search(r'size="([0-9.]+)', kind.shapes[0])
        self.size = float(size.group(1)) if size else 0.0

    @property
    def pos(self) -> Any:
        """Their positions, a list of (3,); of a goal, a box or a circle the position itself."""
        if self._kind.placement in ("free", "tied"):
            places = self._world.positions(self.name)[self._index].copy()
        else:
            places = np.full((self.num, 3), self._kind.height)
            places[:, :2] = self._world.where(self.name)[self._index]
        return places[0] if self.name in SINGLE else list(places)


class TaskView:
    """One world of a navigation task.

    The classes of its objects are attributes (`goal`, `hazards`, `vases`, `buttons`, ...), and so
    is what the game remembers (`last_dist_goal`).

    Attributes:
        agent: The robot.
        agent_name: What it is called.
        num_steps: Steps of an episode.
        placements_conf: Has `extents`, the rectangle that objects are placed in.
        lidar_conf: Has `num_bins` and `max_dist`.
    """

    def __init__(self, env: NavigationEnv, index: int = 0) -> None:
        """Look at world `index`."""
        self._env, self._index = env, index
        game, extent = env.task.game, env.task.game.extent
        self.agent, self.agent_name = AgentView(env, index), env.task.robot.name
        self.num_steps = env.row.time_limit
        self.placements_conf = SimpleNamespace(extents=[-extent, -extent, extent, extent])
        self.lidar_conf = SimpleNamespace(num_bins=LIDAR_BINS, max_dist=game.lidar_range)

    def __getattr__(self, name: str) -> Any:
        """Return a class of objects, or what the game remembers under that name."""
        if name.startswith("_"):
            raise AttributeError(name)
        for kind in self._env.task.objects:
            if kind.name == name:
                return ObjectsView(self._env, self._index, kind)
        if name in self._env.game.memory:
            return self._env.game.memory[name][self._index].item()
        known = ", ".join([*(kind.name for kind in self._env.task.objects), *self._env.game.memory])
        raise AttributeError(f"{self._env.name} has no {name!r} to look at; it has {known}.")

    @property
    def goal_pos(self) -> FloatArray:
        """Position of the goal, (3,)."""
        pos: FloatArray = self.goal.pos
        return pos

    @property
    def goal_achieved(self) -> bool:
        """Whether the last step met a goal."""
        return bool(self._env.info_terms["goal_met"][self._index])

    @property
    def obs_space_dict(self) -> Dict:
        """The parts of an observation, in their order."""
        robot, seen = self._env.task.robot, self._env.task.seen
        sizes = {
            one.kind if one.of == "agent" else f"{one.kind}_{one.of}": one.shown_size
            for one in robot.sensors
        }
        sizes |= {f"{one.name}_lidar": LIDAR_BINS for one in seen}
        parts = [(name, Box(-np.inf, np.inf, (size,), np.float64)) for name, size in sizes.items()]
        return Dict(OrderedDict(parts))  # of a plain dict it would sort the names

    @property
    def model(self) -> Any:
        """The `mujoco.MjModel`; what is only seen, such as hazards and goals, is not in it."""
        return self._env.physics.models[self._index]

    @property
    def data(self) -> Any:
        """The `mujoco.MjData` of it; do not change it."""
        return self._env.physics.data[self._index]

    def dist_goal(self) -> float:
        """Return how far the robot is from the goal, in the plane."""
        return self.agent.dist_xy(self.goal_pos)


def view_of(env: Any, index: int = 0) -> TaskView:
    """Return one world of a navigation task."""
    if not isinstance(env, NavigationEnv):
        raise AttributeError(f"{env.name} is not a navigation task: it has `model` and `data`.")
    return TaskView(env, index)
