"""Four navigation tasks: drive a robot to goals or buttons, around hazards and gremlins.

They do what Safety-Gymnasium 1.0.0 does, step for step and seed for seed (`cspo parity` shows it on
recordings), quirks included: a robot that does not turn below a tenth of full command, gremlins
that hover.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cspo.envs.batch import BoolArray, FloatArray, StepResult, check_actions
from cspo.envs.navigation.facts import (
    BUTTON_TIMER,
    GREMLIN_HEIGHT,
    GREMLIN_TRAVEL,
    HAZARD_RADIUS,
    LIDAR_BINS,
    REWARD_CLIP,
    SUB_STEPS,
    TASKS,
    NavigationTask,
)
from cspo.envs.navigation.layout import Layout, Stream, heights_of, keepouts_of
from cspo.envs.navigation.lidar import read_lidars, rotation_matrices
from cspo.envs.navigation.model import body_names, compiled
from cspo.envs.navigation.resting import RestingVases
from cspo.envs.physics.compiled import NOTHING, ROBOT
from cspo.envs.physics.simulated import SimulatedEnv
from cspo.envs.physics.step import Circle, Physics
from cspo.envs.tasks import check_cost_terms, task_row
from cspo.errors import CspoError, nearest

if TYPE_CHECKING:
    from cspo.envs.navigation.scene import Portrait
    from cspo.envs.tools.render import Scene


class NavigationEnv(SimulatedEnv):
    """N copies of one navigation task.

    Actions outside [-1, 1] are clipped, as the task does.

    Args:
        name: One of `TASKS`.
        num_envs: Number of copies, N.
        threads: Threads that step the physics.
        autoreset: Reset finished environments within `step`; False leaves them where they ended.
        time_limit: Steps after which an episode is truncated.
        stepper: "compiled", "python" or "auto", see `Physics`.
        cost_terms: Terms of the cost to give one by one, K columns; by default the cost, which is 1
            where any term is.
        button_timer_after_reset: Steps at the start of an episode for which buttons are dark and
            harmless: 0 in Safety-Gymnasium 1.0.0, 10 in later versions.

    Attributes:
        elapsed: (N,) steps since the last reset.
        objects: (N, M, 2) where the objects are, in the order of `task.objects`.
        button_bodies: Numbers of the buttons' bodies in the models.
        goal_button: (N,) which button is the goal.
        timer: (N,) steps for which buttons stay dark and harmless.
        last_distance: (N,) distance to the goal after the last step, which the next reward is
            measured from.
        info_terms: Of the last step, (N,) each, 0 or 1: the terms of the cost as `cost_NAME`, and
            `goal_met`.
        total_cost: (N,) 1 where any term of the cost is.
    """

    def __init__(
        self,
        name: str,
        num_envs: int = 1,
        threads: int = 1,
        autoreset: bool = True,
        time_limit: int | None = 1000,
        stepper: Literal["auto", "compiled", "python"] = "auto",
        cost_terms: Sequence[str] = (),
        button_timer_after_reset: int = 0,
    ) -> None:
        """Compile the world and create N simulators of it."""
        if name not in TASKS:
            raise CspoError(f"there is no navigation task {name!r}: {nearest(name, TASKS)}")
        check_cost_terms(name, cost_terms)
        self.name, self.num_envs, self.time_limit, self.autoreset = (
            name,
            num_envs,
            time_limit,
            autoreset,
        )
        self.task = task = TASKS[name]
        self.model = model = compiled(task)
        moving = [model.body(one).id for one in body_names(task, ("free", "tied"))]
        self.physics = Physics(
            # Each its own: the Point hangs on joints fixed to where it started, buttons are fixed,
            # vases may rest.
            [copy.copy(model) for _ in range(num_envs)],
            num_envs,
            threads,
            frame_skip=SUB_STEPS,
            gather=lambda data: _row_of(data, moving),
            forward=True,
            circle=Circle(GREMLIN_TRAVEL, GREMLIN_HEIGHT) if model.nmocap else None,
            kinds=_kinds_of(task, model),
            stepper=stepper,
        )
        self.cost_names = tuple(cost_terms) or ("cost",)
        self._button_timer_after_reset = button_timer_after_reset
        self._sensors = int(model.nsensordata)
        self.observation_size = 12 * (2 if task.robot == "car" else 1) + LIDAR_BINS * len(
            task.lidars
        )
        self.action_size = int(model.nu)
        self.action_low, self.action_high = (bound.copy() for bound in model.actuator_ctrlrange.T)
        self._keepouts = keepouts_of(task)  # (1 + M,)
        self._heights = heights_of(task)  # (1 + M,)
        self.button_bodies = [model.body(one).id for one in body_names(task, ("fixed",))]
        self._streams: list[Stream | None] = [None] * num_envs
        # Safety-Gymnasium draws the number of physics steps of every step, from a distribution that
        # always gives ten. Nothing needs that number, so these draws are counted, and made before
        # the next one that matters.
        self._owed = np.zeros(num_envs, np.int64)
        vases = body_names(task, ("free",))
        self._vases = (
            RestingVases(self.physics.models, self.physics.data, vases[0]) if vases else None
        )
        self._portrait: Portrait | None = None  # made when somebody looks
        self._index_objects()
        self._allocate()

    def _index_objects(self) -> None:
        """Remember which of the M objects are of which class, and where in a row or an observation they are."""
        task = self.task
        self._of: dict[str, slice] = {}
        columns: list[int] = []
        for one in task.objects:
            self._of[one.name] = slice(len(columns), len(columns) + one.count)
            columns += [LIDAR_BINS * task.lidars.index(one.name)] * one.count
        self._columns = np.array(columns)  # (M,)
        self._goal = self._of["goal"].start
        self._moving = self._of["vases" if task.goal == "area" else "gremlins"]
        self._lidars = slice(
            self.observation_size - LIDAR_BINS * len(task.lidars), self.observation_size
        )

    def _allocate(self) -> None:
        n, terms = self.num_envs, task_row(self.name).cost_terms
        self.elapsed = np.zeros(n, np.int64)
        self.objects: FloatArray = np.zeros((n, len(self._columns), 2))
        self.goal_button = np.zeros(n, np.int64)
        self.timer = np.zeros(n, np.int64)
        self.last_distance: FloatArray = np.zeros(n)
        self._costs: FloatArray = np.zeros((len(terms), n))
        self.info_terms: dict[str, FloatArray] = {
            f"cost_{term}": row for term, row in zip(terms, self._costs, strict=True)
        }
        self.info_terms["goal_met"] = np.zeros(n)
        self.total_cost: FloatArray = np.zeros(n)
        self._result = StepResult.zeros(n, self.observation_size, len(self.cost_names))

    def step(self, actions: ArrayLike) -> StepResult:
        """Advance every environment by one step with `actions` (N, 2), clipped to [-1, 1]."""
        result = self._result
        controls = check_actions(self.name, actions, self.physics.controls.shape)
        if self._vases is not None:
            away = _distances(self.where("vases")[:, 0], self._robot_places())
            self._vases.update(away, self.physics.rows[:, -6:], self.elapsed)
        self.physics.step(np.clip(controls, self.action_low, self.action_high))
        self._owed += 1
        self._see()
        reached = self._judge()
        np.maximum(self.timer - 1, 0, out=self.timer)
        result.terminated[:] = False
        for i in np.flatnonzero(reached).tolist():
            result.terminated[i] = not self._new_goal(i)
        self.elapsed += 1
        if self.time_limit is not None:
            np.greater(self.elapsed >= self.time_limit, result.terminated, out=result.truncated)
        self._observe()
        self._reset_finished()
        return result

    def where(self, name: str) -> FloatArray:
        """Return where the objects of a class are, (N, count, 2); this is not a copy."""
        return self.objects[:, self._of[name]]

    def _see(self) -> None:
        """Take over where the simulators have moved objects to."""
        first, count = self._sensors + 12, self._moving.stop - self._moving.start
        moved = self.physics.rows[:, first : first + 3 * count].reshape(self.num_envs, count, 3)
        self.objects[:, self._moving] = moved[:, :, :2]

    def _judge(self) -> BoolArray:
        """Write reward and costs of the step just taken; returns (N,) where the goal is reached."""
        task, result, touched = self.task, self._result, self.physics.touched
        here = self._robot_places()
        distance = _distances(self.objects[:, self._goal], here)
        if task.goal == "area":
            reached = distance <= task.goal_size
        else:
            buttons = touched[:, : task.count("buttons")] > 0.0
            reached = np.take_along_axis(buttons, self.goal_button[:, None], axis=1)[:, 0]
            wrong = buttons.sum(axis=1) - reached
            self.info_terms["cost_buttons"][:] = (wrong > 0) & (self.timer == 0)
            self.info_terms["cost_gremlins"][:] = touched[:, task.count("buttons") :].any(axis=1)
        hazards = _distances(self.where("hazards"), here[:, None])
        self.info_terms["cost_hazards"][:] = (hazards < HAZARD_RADIUS).any(axis=1)
        self.info_terms["goal_met"][:] = reached
        self._costs.max(axis=0, out=self.total_cost)
        terms = [self.info_terms.get(f"cost_{name}", self.total_cost) for name in self.cost_names]
        np.stack(terms, axis=1, out=result.cost)
        np.subtract(self.last_distance, distance, out=result.reward)
        result.reward[:] += reached
        np.clip(result.reward, -REWARD_CLIP, REWARD_CLIP, out=result.reward)
        self.last_distance[:] = distance
        return reached

    def _new_goal(self, index: int) -> bool:
        """Choose the next goal of one environment; False if there is no place for it, which ends the episode."""
        stream = self._stream(index)
        if self.task.goal == "button":
            self.goal_button[index] = button = stream.draw_button(self.task.count("buttons"))
            self.objects[index, self._goal] = self.where("buttons")[index, button]
            self.timer[index] = BUTTON_TIMER
        else:
            places = np.concatenate([self._robot_places()[index][None], self.objects[index]])
            if not stream.draw_goal(self._keepouts, places, 1 + self._goal):
                return False
            self.objects[index, self._goal] = places[1 + self._goal]
        away = self.objects[index, self._goal] - self._robot_places()[index]
        self.last_distance[index] = math.sqrt(away[0] * away[0] + away[1] * away[1])
        return True

    def _observe(self, which: Any = slice(None)) -> FloatArray:
        """Write the observations into the result, for all or for some environments, and return all."""
        observation, rows = self._result.observation, self.physics.rows[which]
        fresh = observation[which]
        first = self._sensors
        if self.task.robot == "car":
            fresh[:, :15] = rows[:, :15]
            rotation_matrices(fresh[:, 15:24], rows[:, 15:19])
        else:
            fresh[:, :first] = rows[:, :first]
        lidars = fresh[:, self._lidars]
        position, rotation = rows[:, first : first + 3], rows[:, first + 3 : first + 12]
        read_lidars(lidars, self._columns, self.objects[which], position, rotation)
        if self.task.goal == "button":
            column = LIDAR_BINS * self.task.lidars.index("buttons")
            lidars[self.timer[which] > 0, column : column + LIDAR_BINS] = 0.0
        if fresh.base is not observation:
            observation[which] = fresh
        return observation

    def _seed_stream(self, index: int, seed: int) -> None:
        self._streams[index], self._owed[index] = Stream(seed), 0

    def _reset_one(self, index: int) -> None:
        """Start a new episode as Safety-Gymnasium does: the same draws in the same order."""
        import mujoco

        layout = self._stream(index).draw_layout(self._keepouts)
        if self._vases is not None:
            self._vases.set(index, False)
        mujoco.mj_resetData(self.physics.models[index], self.physics.data[index])
        self.place(index, layout)
        self.forward(index)
        self.elapsed[index] = 0
        if not self._new_goal(index):
            raise CspoError(f"{self.name} found no place for its goal.")
        self.timer[index] = self._button_timer_after_reset

    def place(self, index: int, layout: Layout) -> None:
        """Put robot and objects of one copy where a layout says; `forward` then makes it so for the simulator."""
        model, data, task = self.physics.models[index], self.physics.data[index], self.task
        self.objects[index] = layout.places[1:]
        poses = np.zeros(
            (len(layout.rotations), 7)
        )  # position and quaternion of the robot and the objects
        poses[:, :2] = layout.places
        poses[:, 2] = self._heights
        poses[:, 3], poses[:, 6] = np.cos(0.5 * layout.rotations), np.sin(0.5 * layout.rotations)
        # The model compiler divided by the length. At rest a wheel or a gremlin just touches the
        # floor: the last bit of its rotation decides whether that is a contact.
        poses[:, 3:] /= np.sqrt(poses[:, 3] * poses[:, 3] + poses[:, 6] * poses[:, 6])[:, None]
        if task.robot == "car":
            data.qpos[:7] = poses[0]
        else:
            model.body_pos[1], model.body_quat[1] = poses[0, :3], poses[0, 3:]
        moving = poses[1:][self._moving]
        data.qpos[-moving.size :] = moving.reshape(-1)  # free bodies come last
        if task.goal == "button":
            model.eq_data[:, 3:10] = (
                moving  # what keeps a gremlin at this place when its target is at the origin
            )
            fixed, buttons = self.button_bodies, poses[1:][self._of["buttons"]]
            model.body_pos[fixed], model.body_quat[fixed] = buttons[:, :3], buttons[:, 3:]

    def forward(self, index: int) -> None:
        """Recompute what follows from the state of one simulator, and take it over."""
        import mujoco

        data = self.physics.data[index]
        mujoco.mj_forward(self.physics.models[index], data)
        data.qacc_warmstart[:] = data.qacc  # as mujoco 2.3.3 did
        self.physics.refresh(index)

    def scene(self, index: int = 0) -> Scene:
        """Return what there is to see of one copy, for a `Renderer`; the physics is only read."""
        from cspo.envs.navigation.scene import Portrait

        if self._portrait is None:
            self._portrait = Portrait(self.task)
        return self._portrait.scene(self, index)

    def lidar_readings(self, index: int = 0) -> FloatArray:
        """Return the readings that a copy observes now, (lidars, 16), in the order of `task.lidars`."""
        return self._result.observation[index, self._lidars].reshape(-1, LIDAR_BINS).copy()

    def random_state(self) -> dict[str, Any]:
        """Return the state of the N random streams; null for one that was never used."""
        known = [stream is not None for stream in self._streams]
        return {
            "streams": [self._stream(i).state() if known[i] else None for i in range(self.num_envs)]
        }

    def set_random_state(self, state: dict[str, Any]) -> None:
        """Put back what `random_state` returned."""
        saved = state["streams"]
        if len(saved) != self.num_envs:
            raise CspoError(
                f"the saved random state is of {len(saved)} environments, not {self.num_envs}."
            )
        self._streams = [None if one is None else Stream() for one in saved]
        self._owed[:] = 0
        for stream, one in zip(self._streams, saved, strict=True):
            if stream is not None:
                stream.set_state(one)

    def _stream(self, index: int) -> Stream:
        """Return the random stream of one copy, with the draws it owes made."""
        stream = self._streams[index]
        if stream is None:
            stream = self._streams[index] = Stream()
        stream.skip(int(self._owed[index]))
        self._owed[index] = 0
        return stream

    def _robot_places(self) -> FloatArray:
        """Return where the robots are, (N, 2)."""
        return self.physics.rows[:, self._sensors : self._sensors + 2]


def _row_of(data: Any, moving: Sequence[int]) -> Sequence[FloatArray]:
    """Return the arrays a step needs: sensors, the robot's place and rotation, places of what moves, a vase's speed."""
    robot = data.body("agent")
    return (
        data.sensordata,
        robot.xpos,
        robot.xmat,
        data.xpos[moving[0] : moving[-1] + 1],
        data.qvel[-6:],
    )


def _kinds_of(task: NavigationTask, model: Any) -> NDArray[np.int64] | None:
    """Say for each geom whose contacts matter: the robot's, and those of buttons and gremlins, in this order."""
    if task.goal == "area":
        return None
    kinds = np.full(model.ngeom, NOTHING)
    robot = model.body("agent").id
    kinds[model.body_rootid[model.geom_bodyid] == robot] = ROBOT
    for number, name in enumerate(body_names(task, ("fixed", "tied"))):
        kinds[model.geom_bodyid == model.body(name).id] = number
    return kinds


def _distances(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the lengths of the last axis of `a - b`, which is a plane."""
    away = a - b
    lengths: FloatArray = np.sqrt(away[..., 0] * away[..., 0] + away[..., 1] * away[..., 1])
    return lengths
