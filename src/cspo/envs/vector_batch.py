"""A `gymnasium.vector.VectorEnv` as a `BatchEnv`, whichever way it resets itself."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import concatenate, create_empty_array, iterate

from cspo.envs.batch import BoolArray, FloatArray, StepResult, check_actions, check_copies
from cspo.envs.foreign import (
    REAL_KINDS,
    ForeignCall,
    WrongAnswer,
    all_finite,
    array_of,
    close_all,
    numbers,
)
from cspo.envs.given import CostFunction
from cspo.envs.gym_facts import (
    name_of,
    names_of_costs,
    numbered_costs,
    random_state_of,
    set_random_state_of,
    time_limit_of,
)
from cspo.envs.gym_step import named_costs
from cspo.envs.layout import Misfit
from cspo.envs.spaces import action_bounds, layouts_of
from cspo.envs.vector_facts import Infos, mode_of, one_of, put_back, random_parts
from cspo.errors import shown


class VectorBatchEnv:
    """A vector environment with a cost.

    Every copy that ended is reset within the same step, and its true last observation is kept:
    in SAME_STEP mode the environment gives it as `infos["final_obs"]`; in DISABLED mode exactly
    those copies are reset with `options={"reset_mask": ...}`. In NEXT_STEP mode the step after an
    end would be none, and there is no way to step the other copies alone: Gymnasium's own
    vector environments are reset in the same way as in DISABLED mode, which takes their reset out
    of the next step, and others are refused.

    The cost is that of `GymBatchEnv`: `cost_fn` for each copy, the terms, or `infos["cost"]`. Of an
    ended copy in SAME_STEP mode it is in `infos["final_info"]`.

    The random state is that of the copies where they can be reached, as in Gymnasium's own, else
    that of the environment's `np_random`; what else is random cannot be saved.

    Args:
        env: The environment.
        cost_fn: `cost_fn(observation, action, next_observation, info)` of one copy.
        name: What to call the environment in messages and results.
        cost_terms: Names of values in `infos`, without "cost_", that are the K costs.
        owns: Whether `close` closes it.
    """

    clip_actions = True

    def __init__(
        self,
        env: Any,
        cost_fn: CostFunction | None = None,
        name: str | None = None,
        cost_terms: Sequence[str] = (),
        owns: bool = False,
    ) -> None:
        self.vector, self.cost_fn, self.cost_terms = env, cost_fn, tuple(cost_terms)
        self.owns, self.num_envs = owns, int(env.num_envs)
        self.name = name or type(env.unwrapped).__name__
        self._resetting, self._stepping = self._calling("reset()"), self._calling("step()")
        with self._calling("the description"):
            self.envs = getattr(env.unwrapped, "envs", ())  # where they are in this process
            one = self.envs[0] if self.envs else env
            self.name = name or name_of(one)
            self._mode = mode_of(env, self.name)
            single = SimpleNamespace(
                observation_space=env.single_observation_space, action_space=env.single_action_space
            )
            self.observation_layout, self.action_layout = layouts_of(single, self.name)
            bounds = action_bounds(single.action_space, self.action_layout)
            self.time_limit = time_limit_of(one)
            declared = None if self.cost_terms else names_of_costs(env) or names_of_costs(one)
        self.observation_size = self.observation_layout.size
        self.observation_as_is = self.observation_layout.as_is
        self.action_size, self.action_choices = self.action_layout.size, self.action_layout.choices
        self.action_low, self.action_high = bounds
        self._raw: Any = None  # the last observations as they came, for the cost function
        self._make_result(1)
        self.cost_names = declared or self._probe_costs()
        self._make_result(len(self.cost_names))

    def _make_result(self, num_costs: int) -> None:
        sizes = self.num_envs, self.observation_size, num_costs
        self._result, self._numbers = StepResult.with_numbers(*sizes)

    def reset(self, seed: int | None = None) -> FloatArray:
        """Start N episodes; Gymnasium's own seed copy i with `seed + i`."""
        self._numbers[:] = 0.0
        with self._resetting:
            self._keep(self._rows(self._reset(seed=None if seed is None else int(seed))))
            self._demand_finite()
        return self._result.observation

    def step(self, actions: FloatArray) -> StepResult:
        """Step all copies, and reset those that ended."""
        actions = check_actions(self.name, actions, (self.num_envs, self.action_size))
        self._step(self._decoded(actions))
        result = self._result
        ended = result.terminated | result.truncated
        if self._mode != AutoresetMode.SAME_STEP and ended.any():
            result.final_observation[ended] = result.observation[ended]
            self._reset_ended(ended)
        return result

    def _decoded(self, actions: FloatArray) -> Any:
        """Return the raw actions of rows (N, A), one for each copy."""
        clipped = np.minimum(np.maximum(actions, self.action_low), self.action_high)
        return self.action_layout.decode_all(clipped)

    def _batched(self, given: Any) -> Any:
        """Return raw actions as the environment takes them, all in one."""
        if isinstance(given, np.ndarray):
            return given
        space = self.vector.single_action_space
        empty: Any = create_empty_array(space, self.num_envs)
        return concatenate(space, given, empty)

    def _step(self, given: Any) -> None:
        """Step all copies and fill in the result; `observation` is then what `step` returned."""
        result = self._result
        with self._stepping:
            answer = self.vector.step(self._batched(given))
            if not isinstance(answer, tuple) or len(answer) != 5:
                raise WrongAnswer(f"must return five values, not {shown(answer)}")
            observation, reward, terminated, truncated, infos = answer
            if not isinstance(infos, dict):
                raise WrongAnswer(f"must return a dict as infos, not {shown(infos)}")
            result.terminated[:] = self._column(terminated, "terminated") != 0
            result.truncated[:] = self._column(truncated, "truncated") != 0
            result.truncated[:] &= ~result.terminated
            result.reward[:] = self._column(reward, "reward")
            ended = result.terminated | result.truncated
            rows, same_step = self._rows(observation), self._mode == AutoresetMode.SAME_STEP
            last = self._last(rows, infos, ended) if same_step else rows
            of_ended = infos.get("final_info") if same_step else infos
            self._give_costs(given, last, Infos(infos, of_ended, ended))
            self._keep(rows)
            self._demand_finite()

    def _last(self, rows: Any, infos: dict[str, Any], ended: BoolArray) -> Any:
        """Return what each copy saw last in its episode, in SAME_STEP mode; it is kept."""
        if not ended.any():
            return rows
        if "final_obs" not in infos:
            raise WrongAnswer("gives no infos['final_obs'] in a step that ended an episode")
        last = list(rows)
        for copy in np.flatnonzero(ended).tolist():
            last[copy] = one_of(infos["final_obs"], copy)
            self._write(last[copy], self._result.final_observation[copy])
        if not np.isfinite(self._result.final_observation[ended]).all():
            raise WrongAnswer("gave a non-finite final observation")
        return last

    def _reset_ended(self, ended: BoolArray) -> None:
        """Reset the copies that ended, and make sure that the others were left alone."""
        going = self._result.observation[~ended]
        with self._resetting:
            self._keep(self._rows(self._reset(options={"reset_mask": ended})))
            if not np.array_equal(self._result.observation[~ended], going):
                raise WrongAnswer(
                    "does not keep to options['reset_mask'] and resets copies that had not ended: "
                    "make it with autoreset_mode=AutoresetMode.SAME_STEP"
                )
            self._demand_finite()

    def _reset(self, **how: Any) -> Any:
        answer = self.vector.reset(**how)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise WrongAnswer(f"must return (observations, infos), not {shown(answer)}")
        return answer[0]

    def _rows(self, observation: Any) -> Any:
        """Return the raw observations of all copies, one after another."""
        if not self.observation_layout.box:
            return list(iterate(self.vector.observation_space, observation))
        array = array_of(observation)
        if array.shape != (self.num_envs, *self.observation_layout.shape):
            raise WrongAnswer(f"gave observations of shape {array.shape}")
        if array.dtype.kind not in REAL_KINDS:
            raise WrongAnswer(f"gave observations that are not numbers but {shown(observation)}")
        return array

    def _write(self, observation: Any, row: FloatArray) -> None:
        try:
            self.observation_layout.write(observation, row)
        except Misfit as fault:
            raise WrongAnswer(f"gave {fault}") from None

    def _keep(self, rows: Any) -> None:
        """Store the observations of all copies flat, and as they came for the cost function."""
        if isinstance(rows, np.ndarray):
            self._result.observation[...] = rows.reshape(self.num_envs, -1)
        else:
            for one, row in zip(rows, self._result.observation, strict=True):
                self._write(one, row)
        if self.cost_fn is not None:
            self._raw = deepcopy(rows)  # environments may use their arrays again

    def _column(self, values: Any, what: str) -> Any:
        array = array_of(values)
        if array.shape != (self.num_envs,) or array.dtype.kind not in REAL_KINDS:
            raise WrongAnswer(
                f"gave {what} that is not {self.num_envs} numbers but {shown(values)}"
            )
        return array

    def _give_costs(self, given: Any, last: Any, infos: Infos) -> None:
        """Fill in the costs (N, K) of a step."""
        cost, names = self._result.cost, self.cost_names
        plain = infos.whole("cost")
        if self.cost_fn is None and not self.cost_terms and plain is not None:
            values = numbers(plain, "a cost")
            if values.size != cost.size:
                raise WrongAnswer(f"gave {values.size} costs for {self.num_envs} copies")
            cost[...] = values.reshape(cost.shape)
            return
        for copy in range(self.num_envs):
            values = numbers(self._cost_of(copy, given, last, infos), "a cost")
            if values.size != len(names):
                expected = f"{len(names)} ({', '.join(names)})"
                raise WrongAnswer(f"gave {values.size} costs instead of {expected}")
            cost[copy] = values

    def _cost_of(self, copy: int, given: Any, last: Any, infos: Infos) -> Any:
        info = infos.of(copy)
        if self.cost_fn is not None:
            with ForeignCall("cost_fn", self._stepping.owner, self.cost_fn, copy):
                return self.cost_fn(self._raw[copy], given[copy], last[copy], info)
        if self.cost_terms:
            return named_costs(info, self.cost_terms)
        if "cost" not in info:
            raise WrongAnswer(
                f"gives no infos['cost'] for copy {copy}: return it in every step, or pass "
                "cost_fn=function(observation, action, next_observation, info)"
            )
        return info["cost"]

    def _probe_costs(self) -> tuple[str, ...]:
        """Find the number of costs by one reset and one step; random generators are put back."""
        saved = self.random_state()
        with self._resetting:
            self._keep(self._rows(self._reset(seed=0)))
        given = self._decoded(np.zeros((self.num_envs, self.action_size)))
        with self._stepping:
            observation, _, terminated, truncated, infos = self.vector.step(self._batched(given))
            ended = np.asarray(terminated, bool) | np.asarray(truncated, bool)
            final = infos.get("final_info")
            cost = self._cost_of(0, given, self._rows(observation), Infos(infos, final, ended))
            names = self.cost_terms or numbered_costs(numbers(cost, "a cost").size)
        self.set_random_state(saved)
        return names

    def random_state(self) -> dict[str, Any]:
        """Return what is random in each copy; null where nothing can be saved."""
        with self._calling("random_state()"):
            return {"generators": [random_state_of(one) for one in random_parts(self.vector)]}

    def set_random_state(self, state: dict[str, Any]) -> None:
        """Put back what `random_state` returned; what was saved as null is left alone."""
        parts = random_parts(self.vector)
        saved = check_copies(state["generators"], len(parts))
        with self._calling("set_random_state()"):
            for one, row in zip(parts, saved, strict=True):
                if row is not None:
                    set_random_state_of(one, row)
            put_back(self.vector, parts)

    def close(self) -> None:
        """Close the environment, if it was made here."""
        if self.owns:
            close_all([self.vector], f"the environment {self.name}")

    def _calling(self, call: str) -> ForeignCall:
        return ForeignCall(call, f"the environment {self.name}", self.vector)

    def _demand_finite(self) -> None:
        if not all_finite(self._numbers):
            for name in ("observation", "reward", "cost"):
                wrong = np.argwhere(~np.isfinite(getattr(self._result, name)))
                if len(wrong):
                    raise WrongAnswer(f"gave a non-finite {name} in copy {int(wrong[0][0])}")
