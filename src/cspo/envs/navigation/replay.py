"""How a navigation task is replayed against a recording."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cspo.envs.batch import FloatArray
from cspo.envs.navigation.layout import Stream
from cspo.envs.navigation.task import NavigationEnv
from cspo.envs.replay import Field, Recording, Replay, Shapes

# At the 99th percentile of the rows: where a contact is found a moment earlier or later, a row may
# be off by more. A robot's `Exactness` says the rest.
TOLERANCE = 1e-3
UNEQUAL_SHARE = 1e-3  # of the rows, for what is 0 or 1
RESET_TOLERANCE = 1e-9


class NavigationReplay(Replay):
    """One world, put into recorded states."""

    def __init__(self, task: str) -> None:
        """Create the environment; it never resets by itself."""
        # The Python stepper needs no compiling, and gives the same bits.
        self.env = NavigationEnv(task, autoreset=False, stepper="python")
        super().__init__(self.env)
        objects = self.env.task.objects
        self._goal = any(one.name == "goal" for one in objects)
        self._still = [one for one in objects if one.placement in ("fixed", "drawn")]
        self._recorded = [one for one in self._still if one.name not in ("goal", "circle")]
        # The bodies of what does not move are the last of a recorded model.
        self._still_bodies = sum(one.count for one in self._still)

    def shapes(self) -> Shapes:
        """Return the shape of one row of each key, those of the world included."""
        drawn = sum(one.count for one in self._still if one.placement == "drawn")
        bodies = int(self.model.nbody) + drawn
        memory = [f"{key}_{when}" for key in self.env.game.memory for when in ("before", "after")]
        places: dict[str, tuple[int, ...]] = {
            "model_body_pos": (bodies, 3),
            "model_body_quat": (bodies, 4),
            "model_eq_data": self.model.eq_data.shape,
            **{f"{one.name}_pos": (one.count, 3) for one in self._recorded},
            **dict.fromkeys(("time_before", "steps_before", *memory), ()),
            **dict.fromkeys(("rng_key_index_before", "rng_pos_before", "rng_pos_after"), ()),
            **dict.fromkeys(("rng_pos",), ()),
        }
        if self._goal:
            places |= dict.fromkeys(("goal_pos_before", "goal_pos_after"), (3,))
        return {**super().shapes(), **places}

    def optional(self) -> frozenset[str]:
        """Return keys of the state before a step that a file may lack."""
        return frozenset(("steps_before", "rng_key_index_before", "rng_pos_before"))

    def step_fields(self) -> Sequence[Field]:
        """Compare everything that a step gives."""

        def close(key: str, columns: slice = slice(None), optional: bool = False) -> Field:
            return Field(key, key, columns, TOLERANCE, optional, typical, largest=math.inf)

        typical, observation, in_contact, reward = self.env.task.robot.exactness

        memory = self.env.game.memory
        counts = [f"{key}_after" for key, kept in memory.items() if kept.dtype.kind == "i"]
        lengths = [f"{key}_after" for key, kept in memory.items() if kept.dtype.kind == "f"]
        flags = ["cost", *self.env.info_terms, "terminated", "truncated", *counts]
        return [
            Field("obs", "obs", tolerance=in_contact, typical=observation, largest=math.inf),
            Field("reward", "reward", tolerance=reward, typical=typical, largest=math.inf),
            close("qpos_after"),
            *([close("goal_pos_after", slice(2))] if self._goal else []),
            *(close(key, optional=True) for key in lengths),
            *(Field(key, key, unequal_share=UNEQUAL_SHARE) for key in flags),
            Field("rng_pos_after", "rng_pos_after", optional=True),
        ]

    def reset_fields(self) -> Sequence[Field]:
        """Compare the first observation, the state behind it, and where everything is."""
        names = [one.name for one in self.env.task.objects]
        keys = ["obs", "qpos", "qvel", "agent_pos", *(f"{one}_pos" for one in names)]
        keys += self.env.game.memory
        return [
            *(Field(key, key, tolerance=RESET_TOLERANCE, optional=key != "obs") for key in keys),
            Field("rng_pos", "rng_pos", optional=True),
        ]

    def step(self, trace: Recording, row: int) -> Mapping[str, Any]:
        """Put the environment into the state before `row` and step it."""
        env = self.env
        if row == 0 or trace["episode"][row] != trace["episode"][row - 1]:
            # Its random stream has to run along, because goals are drawn from it.
            env.reset(int(trace["seed0"] + trace["episode"][row]))
        if "rng_keys" in trace:
            which, place = trace["rng_key_index_before"][row], trace["rng_pos_before"][row]
            key = trace["rng_keys"][int(which)].astype(np.uint32)
            self._stream().set_state({"key": key, "pos": place})
        if "steps_before" in trace:
            env.elapsed[0] = trace["steps_before"][row]
        self._restore(lambda key: trace[key][row])
        values = self.outcome(env.step(trace["action"][row : row + 1]))
        if self._goal:
            values["goal_pos_after"] = env.world.where("goal")[0, 0]
        memory = {f"{key}_after": kept[0] for key, kept in env.game.memory.items()}
        return {**values, **memory, "rng_pos_after": self._stream().state()["pos"]}

    def _stream(self) -> Stream:
        return self.env._stream(0)

    def _restore(self, before: Callable[[str], FloatArray]) -> None:
        """Put back what was recorded before a step: the world, the simulator, the task."""
        world, model, data = self.env.world, self.model, self.data
        positions, rotations = before("model_body_pos"), before("model_body_quat")
        model.body_pos[1], model.body_quat[1] = positions[1], rotations[1]
        model.eq_data[:] = before("model_eq_data")
        for one in self._recorded:
            world.where(one.name)[0] = before(f"{one.name}_pos")[:, :2]
        if self._goal:
            world.where("goal")[0] = before("goal_pos_before")[:2]
        fixed = [one.placement == "fixed" for one in self._still for _ in range(one.count)]
        last = slice(len(positions) - self._still_bodies, None)
        model.body_pos[world.fixed_bodies] = positions[last][fixed]
        model.body_quat[world.fixed_bodies] = rotations[last][fixed]
        for key, kept in self.env.game.memory.items():
            kept[0] = before(f"{key}_before")
        data.time = before("time_before")
        data.qpos[:], data.qvel[:] = before("qpos_before"), before("qvel_before")
        world.forward(0)
        data.qacc_warmstart[:] = before("qacc_warmstart_before")

    def reset(self, seed: int | None) -> Mapping[str, Any]:
        """Reset the environment."""
        observation = self.env.reset(seed)[0]
        values = {"obs": observation, "qpos": self.data.qpos, "qvel": self.data.qvel}
        values["agent_pos"] = self.data.body("agent").xpos
        values |= {key: kept[0] for key, kept in self.env.game.memory.items()}
        values["rng_pos"] = self._stream().state()["pos"]
        for one in self.env.task.objects:
            places = self.env.world.where(one.name)[0]  # (count, 2)
            solid = np.column_stack([places, np.full(len(places), one.height)])
            values[f"{one.name}_pos"] = solid[0] if one.name in ("goal", "push_box") else solid
        return values
