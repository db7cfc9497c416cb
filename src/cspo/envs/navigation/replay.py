"""How a navigation task is replayed against a recording."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cspo.envs.batch import FloatArray
from cspo.envs.navigation.games.button import Button1
from cspo.envs.navigation.task import NavigationEnv
from cspo.envs.replay import Field, Recording, Replay, Shapes

TYPICAL = 1e-6  # at the 95th percentile of the rows
# At the 99th: where a contact is found a moment earlier or later, a row may be off by more.
TOLERANCE = 1e-3
UNEQUAL_SHARE = 1e-3  # of the rows, for what is 0 or 1
RESET_TOLERANCE = 1e-9
BUTTON_KEYS = ("goal_button", "buttons_timer")  # recorded before and after a step


class NavigationReplay(Replay):
    """One world, put into recorded states."""

    def __init__(self, task: str) -> None:
        """Create the environment; it never resets by itself."""
        # The Python stepper needs no compiling, and gives the same bits.
        self.env = NavigationEnv(task, autoreset=False, stepper="python")
        super().__init__(self.env)
        game = self.env.game
        self._buttons = game if isinstance(game, Button1) else None

    def shapes(self) -> Shapes:
        """Return the shape of one row of each key, those of the world included."""
        counts = {one.name: one.count for one in self.env.task.game.objects}
        places = {
            **dict.fromkeys(("agent_body_pos", "goal_pos_before", "goal_pos_after"), (3,)),
            "agent_body_quat": (4,),
            "hazards_pos": (counts["hazards"], 3),
            **dict.fromkeys(("time_before", "last_dist_goal_before"), ()),
        }
        if self._buttons is not None:
            both = [f"{key}_{when}" for key in BUTTON_KEYS for when in ("before", "after")]
            places |= {"buttons_pos": (counts["buttons"], 3), **dict.fromkeys(both, ())}
            places["model_eq_data"] = self.model.eq_data.shape
        return {**super().shapes(), **places}

    def step_fields(self) -> Sequence[Field]:
        """Compare everything that a step gives."""

        def close(key: str, columns: slice = slice(None)) -> Field:
            return Field(key, key, columns, TOLERANCE, typical=TYPICAL, largest=math.inf)

        flags = ["cost", *self.env.info_terms, "terminated", "truncated"]
        if self._buttons is not None:
            flags += [f"{key}_after" for key in BUTTON_KEYS]
        return [
            *(close(key) for key in ("obs", "reward", "qpos_after")),
            close("goal_pos_after", slice(2)),
            *(Field(key, key, unequal_share=UNEQUAL_SHARE) for key in flags),
        ]

    def reset_fields(self) -> Sequence[Field]:
        """Compare the first observation, the state behind it, and where everything is."""
        keys = [
            "obs",
            "qpos",
            "qvel",
            "agent_pos",
            *(f"{one}_pos" for one in self.env.world.classes),
        ]
        keys += [] if self._buttons is None else ["goal_button"]
        return [Field(key, key, tolerance=RESET_TOLERANCE, optional=key != "obs") for key in keys]

    def step(self, trace: Recording, row: int) -> Mapping[str, Any]:
        """Put the environment into the state before `row` and step it."""
        env, buttons = self.env, self._buttons
        if row == 0 or trace["episode"][row] != trace["episode"][row - 1]:
            # Its random stream has to run along, because goals are drawn from it.
            env.reset(int(trace["seed0"] + trace["episode"][row]))
        self._restore(lambda key: trace[key][row])
        values = self.outcome(env.step(trace["action"][row : row + 1]))
        values["goal_pos_after"] = env.world.where("goal")[0, 0]
        if buttons is not None:
            after = buttons.goal_button[0], buttons.timer[0]
            values["goal_button_after"], values["buttons_timer_after"] = after
        return values

    def _restore(self, before: Callable[[str], FloatArray]) -> None:
        """Put back what was recorded before a step: the world, the simulator, the task."""
        world, model, data, buttons = self.env.world, self.model, self.data, self._buttons
        model.body_pos[1], model.body_quat[1] = before("agent_body_pos"), before("agent_body_quat")
        world.where("hazards")[0] = before("hazards_pos")[:, :2]
        world.where("goal")[0] = before("goal_pos_before")[:2]
        if buttons is not None:
            world.where("buttons")[0] = before("buttons_pos")[:, :2]
            model.body_pos[world.fixed_bodies] = before("buttons_pos")
            model.eq_data[:] = before("model_eq_data")
            buttons.goal_button[0] = before("goal_button_before")
            buttons.timer[0] = before("buttons_timer_before")
        self.env.game.last_distance[0] = before("last_dist_goal_before")
        data.time = before("time_before")
        data.qpos[:], data.qvel[:] = before("qpos_before"), before("qvel_before")
        world.forward(0)
        data.qacc_warmstart[:] = before("qacc_warmstart_before")

    def reset(self, seed: int | None) -> Mapping[str, Any]:
        """Reset the environment."""
        observation = self.env.reset(seed)[0]
        values = {"obs": observation, "qpos": self.data.qpos, "qvel": self.data.qvel}
        values["agent_pos"] = self.data.body("agent").xpos
        if self._buttons is not None:
            values["goal_button"] = self._buttons.goal_button[0]
        for one in self.env.task.game.objects:
            places = self.env.world.where(one.name)[0]  # (count, 2)
            solid = np.column_stack([places, np.full(len(places), one.height)])
            values[f"{one.name}_pos"] = solid[0] if one.name == "goal" else solid
        return values
