"""The navigation tasks, simulated: N robots that play a game, each in its own world.

They do what Safety-Gymnasium 1.0.0 does, step for step and seed for seed (`cspo parity` shows it on
recordings), quirks included: a robot that does not turn below a tenth of full command, gremlins
that hover.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cspo.envs.batch import FloatArray, StepResult, check_actions
from cspo.envs.navigation.facts import TASKS, NavigationTask
from cspo.envs.navigation.layout import Stream
from cspo.envs.navigation.lidar import read_lidars
from cspo.envs.navigation.parts import LIDAR_BINS
from cspo.envs.navigation.robots.sensing import plan_of, show_sensors
from cspo.envs.navigation.scene import Portrait
from cspo.envs.navigation.settle import TOTAL, settle
from cspo.envs.navigation.world import World
from cspo.envs.physics.simulated import SimulatedEnv
from cspo.envs.physics.step import Physics, Stepper
from cspo.envs.tools.render import Scene
from cspo.errors import CspoError


class NavigationEnv(SimulatedEnv):
    """N copies of one navigation task.

    Actions outside their box are clipped, as the task does. The arguments are those of
    `SimulatedEnv`, and the options of the game.

    Attributes:
        world: The N worlds.
        game: What is to be done there.
        info_terms: Of the last step, (N,) each, 0 or 1: the terms of the cost as `cost_NAME`, and
            `goal_met`.
    """

    family = "navigation"
    tasks = TASKS
    streams_name = "streams"
    task: NavigationTask

    def _make_physics(self, threads: int, stepper: Stepper) -> Physics:
        """Build the worlds."""
        self.world = World(self.task.robot, self.task.stage, self.num_envs, threads, stepper)
        return self.world.physics

    def _prepare(self, options: Mapping[str, Any]) -> None:
        """Start the game."""
        n, robot = self.num_envs, self.task.robot
        self.game = self.task.game(self.world, **options)
        self.total_cost = np.zeros(n)
        self.info_terms = {f"cost_{term}": values for term, values in self.game.costs.items()}
        self.info_terms["goal_met"] = np.zeros(n)
        self.untold = {f"cost_{term}": where for term, where in self.game.unjudged.items()}
        terms = {name: number for number, name in enumerate(self.game.costs)}
        # (K,) which terms of the cost are given
        self._asked = np.array([terms.get(name, TOTAL) for name in self.cost_names], np.int64)
        self._portrait: Portrait | None = None  # made when somebody looks
        self._steps = 0  # since this object was made
        self._plan = plan_of(robot.sensors)
        self._lidars = slice(robot.observation_size, self.observation_size)
        # (M,) where the lidar of each object's class begins; -1 for those that are not seen
        first = {one.name: LIDAR_BINS * i for i, one in enumerate(self.task.seen)}
        classes = [one.name for one in self.task.objects for _ in range(one.count)]
        self._lidar_of = np.array([first.get(name, -1) for name in classes], np.int64)

    def step(self, actions: ArrayLike) -> StepResult:
        """Advance every environment by one step with `actions` (N, A), clipped to their box."""
        result = self._result
        controls = check_actions(self.name, actions, self.physics.controls.shape)
        self.world.step(np.clip(controls, self.action_low, self.action_high), self.elapsed)
        self._steps += 1
        reached = self.game.judge(result.reward)
        told = self.info_terms["goal_met"], result.terminated, self.total_cost, result.cost
        costs = self.game.all_costs, self._asked
        height = self.world.robot_positions[:, 2], self.task.robot.dies_below
        if settle(*told, reached, *costs, *height):
            for i in np.flatnonzero(reached).tolist():
                result.terminated[i] |= not self.game.new_goal(i, self._stream(i))
        return self._end_step()

    def scene(self, index: int = 0) -> Scene:
        """Return what there is to see of one copy, for a `Renderer`; the physics is only read."""
        if self._portrait is None:
            self._portrait = Portrait(self.task)
        readings = self._result.observation[index, self._lidars].reshape(-1, LIDAR_BINS)
        return self._portrait.scene(self.world, index, readings)

    def _observe(self, which: Any = slice(None)) -> FloatArray:
        """Write the observations into the result, for all or some environments, and return all."""
        observation, world = self._result.observation, self.world
        sensors, poses, fresh = world.sensors[which], world.robot_poses[which], observation[which]
        show_sensors(fresh, sensors, self._plan)
        if self._lidars.start < self._lidars.stop:
            lidars, far = fresh[:, self._lidars], self.task.game.lidar_range
            seen = world.objects[which], poses[:, :3], poses[:, 3:]
            read_lidars(lidars, self._lidar_of, far, *seen)
            self.game.blind(lidars.reshape(len(lidars), -1, LIDAR_BINS), which)
        if fresh.base is not observation:
            observation[which] = fresh
        return observation

    def _new_stream(self, seed: int | None) -> Stream:
        return Stream(seed, self._steps)

    def _stream(self, index: int) -> Stream:
        """Return the random stream of one copy, with the draws of past steps made."""
        stream: Stream = super()._stream(index)
        stream.catch_up(self._steps)
        return stream

    def _reset_one(self, index: int) -> None:
        """Start a new episode as Safety-Gymnasium does: the same draws in the same order."""
        stream, pose = self._stream(index), self.task.robot.pose
        self.world.build(index, stream.draw_layout(self.world.rooms))
        self.elapsed[index] = 0
        if not self.game.begin(index, stream):
            raise CspoError(f"{self.name} found no place for its goal.")
        if pose is not None:
            pose(self.physics.data[index], stream.uniform)
            self.world.forward(index)
