"""How a navigation task is replayed against a recording."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cspo.envs.batch import FloatArray
from cspo.envs.navigation.task import NavigationEnv

if TYPE_CHECKING:
    from cspo.envs.tools.parity import Field

TYPICAL = 1e-6  # at the 95th percentile of the rows
TOLERANCE = 1e-3  # at the 99th: where a contact is found a moment earlier or later, a row may be off by more
UNEQUAL_SHARE = 1e-3  # of the rows, for what is 0 or 1
RESET_TOLERANCE = 1e-9


class NavigationReplay:
    """One environment of a task, put into recorded states."""

    def __init__(self, task: str) -> None:
        """Create the environment; it never resets by itself."""
        # The Python stepper needs no compiling, and gives the same bits.
        self.env = NavigationEnv(task, num_envs=1, autoreset=False, stepper="python")
        self.model, self.data = self.env.physics.models[0], self.env.physics.data[0]
        self._has_buttons = self.env.task.goal == "button"

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of one row of each key."""
        env, model = self.env, self.model
        nq, nv = (int(model.nq),), (int(model.nv),)
        shapes: dict[str, tuple[int, ...]] = {
            "qpos_before": nq,
            "qvel_before": nv,
            "qacc_warmstart_before": nv,
            "action": (env.action_size,),
            "obs": (env.observation_size,),
            "qpos_after": nq,
            "qvel_after": nv,
            "agent_body_pos": (3,),
            "agent_body_quat": (4,),
            "hazards_pos": (env.task.count("hazards"), 3),
            "goal_pos_before": (3,),
            "goal_pos_after": (3,),
        }
        scalars = [
            "episode",
            "reward",
            "cost",
            "terminated",
            "truncated",
            "time_before",
            "last_dist_goal_before",
        ]
        if self._has_buttons:
            shapes |= {
                "buttons_pos": (env.task.count("buttons"), 3),
                "model_eq_data": model.eq_data.shape,
            }
            scalars += [
                "goal_button_before",
                "goal_button_after",
                "buttons_timer_before",
                "buttons_timer_after",
            ]
        return {**shapes, **dict.fromkeys([*scalars, *env.info_terms], ())}

    def step_fields(self) -> Sequence[Field]:
        """Compare everything that a step gives."""
        from cspo.envs.tools.parity import Field

        def close(key: str, columns: slice = slice(None)) -> Field:
            return Field(key, key, columns, TOLERANCE, typical=TYPICAL, largest=math.inf)

        flags = ["cost", *self.env.info_terms, "terminated", "truncated"]
        if self._has_buttons:
            flags += ["goal_button_after", "buttons_timer_after"]
        return [
            *(close(key) for key in ("obs", "reward", "qpos_after")),
            close("goal_pos_after", slice(2)),
            *(Field(key, key, unequal_share=UNEQUAL_SHARE) for key in flags),
        ]

    def reset_fields(self) -> Sequence[Field]:
        """Compare the first observation, the state behind it, and where everything is."""
        from cspo.envs.tools.parity import Field

        classes = [f"{one.name}_pos" for one in self.env.task.objects]
        keys = [
            "obs",
            "qpos",
            "qvel",
            "agent_pos",
            *classes,
            *(["goal_button"] if self._has_buttons else []),
        ]
        return [Field(key, key, tolerance=RESET_TOLERANCE, optional=key != "obs") for key in keys]

    def step(self, trace: Mapping[str, FloatArray], row: int) -> Mapping[str, Any]:
        """Put the environment into the state before `row` and step it."""
        env = self.env
        if row == 0 or trace["episode"][row] != trace["episode"][row - 1]:
            # Its random stream has to run along, because goals are drawn from it.
            env.reset(int(trace["seed0"] + trace["episode"][row]))
        self._restore(trace, row)
        result = env.step(trace["action"][row : row + 1])
        return {
            "obs": result.observation[0],
            "reward": result.reward[0],
            "cost": result.cost[0, 0],
            "terminated": result.terminated[0],
            "truncated": result.truncated[0],
            "qpos_after": self.data.qpos,
            "qvel_after": self.data.qvel,
            "goal_pos_after": env.where("goal")[0, 0],
            "goal_button_after": env.goal_button[0],
            "buttons_timer_after": env.timer[0],
            **{name: values[0] for name, values in env.info_terms.items()},
        }

    def _restore(self, trace: Mapping[str, FloatArray], row: int) -> None:
        """Put back what was recorded before a step: the world, the simulator, the task."""
        env, model, data = self.env, self.model, self.data
        model.body_pos[1], model.body_quat[1] = (
            trace["agent_body_pos"][row],
            trace["agent_body_quat"][row],
        )
        env.where("hazards")[0] = trace["hazards_pos"][row, :, :2]
        if self._has_buttons:
            env.where("buttons")[0] = trace["buttons_pos"][row, :, :2]
            model.body_pos[env.button_bodies] = trace["buttons_pos"][row]
            model.eq_data[:] = trace["model_eq_data"][row]
            env.goal_button[0], env.timer[0] = (
                trace["goal_button_before"][row],
                trace["buttons_timer_before"][row],
            )
        env.where("goal")[0] = trace["goal_pos_before"][row, :2]
        env.last_distance[0] = trace["last_dist_goal_before"][row]
        data.time = trace["time_before"][row]
        data.qpos[:], data.qvel[:] = trace["qpos_before"][row], trace["qvel_before"][row]
        env.forward(0)
        data.qacc_warmstart[:] = trace["qacc_warmstart_before"][row]

    def reset(self, seed: int | None) -> Mapping[str, Any]:
        """Reset the environment."""
        env = self.env
        observation = env.reset(seed)[0]
        values = {"obs": observation, "qpos": self.data.qpos, "qvel": self.data.qvel}
        values |= {"agent_pos": self.data.body("agent").xpos, "goal_button": env.goal_button[0]}
        for one in env.task.objects:
            places = env.where(one.name)[0]  # (count, 2)
            solid = np.column_stack([places, np.full(len(places), one.height)])
            values[f"{one.name}_pos"] = solid[0] if one.name == "goal" else solid
        return values
