"""Any Gymnasium environment as a `BatchEnv`, stepped one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np

from cspo.envs.batch import BatchEnv, FloatArray, StepResult, check_actions, check_copies
from cspo.envs.foreign import (
    FLAGS,
    NUMBERS,
    REAL_KINDS,
    ForeignCall,
    WrongAnswer,
    all_finite,
    array_of,
    close_all,
    number,
    numbers,
    truth,
)
from cspo.envs.given import CostFunction
from cspo.envs.gym_facts import (
    name_of,
    name_of_factory,
    names_of_costs,
    numbered_costs,
    random_state_of,
    set_random_state_of,
    time_limit_of,
)
from cspo.envs.gym_step import named_costs, split_step
from cspo.envs.layout import Misfit
from cspo.envs.spaces import action_bounds, layouts_of
from cspo.errors import CspoError, shown
from cspo.settings import check_memory

COPY_BYTES = 1_000  # what an environment takes at least


class GymBatchEnv(BatchEnv):
    """N Gymnasium environments and a cost; `cspo.envs.spaces` says which spaces they may have.

    The cost of a step is what `cost_fn` returns, if given; the values `info["cost_TERM"]` of
    `cost_terms`, if given; otherwise the third of six returned values, as in Safety-Gymnasium;
    otherwise `info["cost"]`. It is one number or a sequence of K numbers. K is the length of the
    environment's `cost_names`, or its `num_costs`; an environment with neither is asked by one
    reset and step at construction, after which its random generator is put back.

    Actions are clipped to the action space before the environment sees them, because a Gymnasium
    environment may rely on that. Flat rows become the raw actions of its space, and its raw
    observations flat rows (`cspo.envs.layout`); a cost function sees them raw.

    Bit-exact resuming needs environments that draw from Gymnasium's `np_random`, or that offer
    `random_state()` and `set_random_state(state)` as a `BatchEnv` does: nothing else can be saved.

    Args:
        environments: A function that makes one, called N times, or the environments themselves.
            Only those made here are closed by `close`.
        num_envs: Number of environments, N.
        cost_fn: `cost_fn(observation, action, next_observation, info)`.
        name: What to call the environment in messages and results.
        clip_actions: Clip actions to the action space.
        cost_terms: Names of values in `info`, without "cost_", that are the K costs.
    """

    def __init__(
        self,
        environments: Callable[[], Any] | Sequence[Any],
        num_envs: int,
        cost_fn: CostFunction | None = None,
        name: str | None = None,
        clip_actions: bool = True,
        cost_terms: Sequence[str] = (),
    ) -> None:
        """Make or take the environments and learn their sizes."""
        check_memory(f"{num_envs} environments", {"--num-envs": num_envs * COPY_BYTES})
        self.owns = callable(environments)
        self.num_envs, self.cost_fn, self.clip_actions = num_envs, cost_fn, clip_actions
        self.cost_terms = tuple(cost_terms)
        self.envs: list[Any] = [] if callable(environments) else list(environments)
        self.name = name or name_of_factory(environments)
        try:
            if callable(environments):
                with self._calling("construction", environments) as call:
                    for call.copy in range(num_envs):
                        self.envs.append(environments())
            with self._calling("the description"):
                self.name = name or name_of(self.envs[0])
                # Made once: they are entered in every step.
                self._resetting, self._stepping = self._calling("reset()"), self._calling("step()")
                self._learn_sizes()
        except BaseException:
            self.close()
            raise

    def _learn_sizes(self) -> None:
        num_envs = self.num_envs
        if len(self.envs) != num_envs or len({id(env) for env in self.envs}) != num_envs:
            needed = f"{num_envs} different environments of {self.name} are needed"
            raise CspoError(f"{needed}: make a new one each time.")
        self.observation_layout, self.action_layout = layouts_of(self.envs[0], self.name)
        self.observation_size, self.action_size = (
            self.observation_layout.size,
            self.action_layout.size,
        )
        self.observation_as_is = self.observation_layout.as_is
        self.action_choices = self.action_layout.choices
        self._is_box = self.observation_layout.box
        self.action_low, self.action_high = action_bounds(
            self.envs[0].action_space, self.action_layout
        )
        self.time_limit = time_limit_of(self.envs[0])
        self._raw: list[Any] = [None] * num_envs  # the last observation as each environment gave it
        self._steps, self._began = 0, [0] * num_envs  # steps so far, and before each episode
        self._action_shape = (num_envs, self.action_size)
        self._make_result(1)
        declared = None if self.cost_terms else names_of_costs(self.envs[0])
        self.cost_names = declared or self._probe_costs()
        self._one_cost = len(self.cost_names) == 1
        self._make_result(len(self.cost_names))

    def _make_result(self, num_costs: int) -> None:
        sizes = self.num_envs, self.observation_size, num_costs
        self._result, self._numbers = StepResult.with_numbers(*sizes)

    def reset(self, seed: int | None = None) -> FloatArray:
        """Start N episodes; environment i is seeded with `seed + i`, or goes on if None."""
        self._numbers[:] = 0.0  # what a fault has left there
        with self._resetting as call:
            for i in range(self.num_envs):
                self._reset_one(i, None if seed is None else int(seed) + i, call)
            self._demand_finite(call)
        return self._result.observation

    def step(self, actions: FloatArray) -> StepResult:
        """Step every environment with its row of `actions` (N, A), and reset those that ended."""
        result, ended = self._result, []
        given = self._as_given(check_actions(self.name, actions, self._action_shape))
        self._steps += 1
        with self._stepping as call:
            for i, action in enumerate(given):
                call.copy = i
                observation, reward, cost, terminated, truncated = self._step_one(i, action)
                self._keep(i, observation)
                if self._one_cost and type(cost) in NUMBERS:
                    result.cost[i, 0] = cost
                else:
                    result.cost[i] = self._costs(cost)
                result.reward[i] = reward if type(reward) in NUMBERS else number(reward, "a reward")
                if type(terminated) not in FLAGS or type(truncated) not in FLAGS:
                    terminated = truth(terminated, "terminated")
                    truncated = truth(truncated, "truncated")
                result.terminated[i] = terminated
                result.truncated[i] = truncated and not terminated
                if terminated or truncated:
                    ended.append(i)
            self._demand_finite(call)
        if ended:
            result.final_observation[ended] = result.observation[ended]
            with self._resetting as call:
                for i in ended:
                    self._reset_one(i, None, call)
                self._demand_finite(call)
        return result

    def random_state(self) -> dict[str, Any]:
        """Return what is random in each environment; null where nothing can be saved."""
        states = []
        with self._calling("random_state()") as call:
            for call.copy, env in enumerate(self.envs):
                states.append(random_state_of(env))
        return {"generators": states}

    def set_random_state(self, state: dict[str, Any]) -> None:
        """Put back what `random_state` returned; an environment saved as null is left alone."""
        saved = check_copies(state["generators"], self.num_envs)
        with self._calling("set_random_state()") as call:
            for call.copy, env in enumerate(self.envs):
                if saved[call.copy] is not None:
                    set_random_state_of(env, saved[call.copy])

    def close(self) -> None:
        """Close the environments made here; a user's own stay open."""
        if self.owns:
            close_all(self.envs, f"the environment {self.name}")

    def _calling(self, call: str, code: Any = None) -> ForeignCall:
        """Return what surrounds calls of the environments; its `copy` is the one that is asked."""
        return ForeignCall(call, f"the environment {self.name}", code or self.envs)

    def _reset_one(self, index: int, seed: int | None, call: ForeignCall) -> None:
        call.copy = index
        answer = self.envs[index].reset(seed=seed)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise WrongAnswer(f"must return (observation, info), not {shown(answer)}")
        self._began[index] = self._steps
        self._keep(index, answer[0])

    def _as_given(self, actions: FloatArray) -> Any:
        """Return actions (N, A) as the environments take them, N of them, all converted at once."""
        if self.clip_actions:
            actions = np.minimum(np.maximum(actions, self.action_low), self.action_high)
        return self.action_layout.decode_all(actions)

    def _step_one(self, index: int, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Step one environment; return observation, reward, cost and the flags as they came."""
        before = self._raw[index]
        answer = self.envs[index].step(action)
        observation, reward, cost, terminated, truncated, info = split_step(answer)
        if self.cost_fn is not None:
            with ForeignCall("cost_fn", self._stepping.owner, self.cost_fn, index):
                cost = self.cost_fn(before, action, observation, info)
        elif self.cost_terms:
            cost = named_costs(info, self.cost_terms)
        if cost is None:
            raise WrongAnswer(
                "gives no cost: return info['cost'], or pass "
                "cost_fn=function(observation, action, next_observation, info)"
            )
        return observation, reward, cost, terminated, truncated

    def _costs(self, cost: Any) -> FloatArray:
        """Return the costs (K,) of a step, or refuse another number of them."""
        costs: FloatArray = numbers(cost, "a cost")
        if costs.size != len(self.cost_names):
            expected = f"{len(self.cost_names)} ({', '.join(self.cost_names)})"
            raise WrongAnswer(f"gave {costs.size} costs instead of {expected}")
        return costs

    def _keep(self, index: int, observation: Any) -> None:
        """Store an observation flat, and as it came for the cost function."""
        if not self._is_box:
            try:
                self.observation_layout.write(observation, self._result.observation[index])
            except Misfit as fault:
                raise WrongAnswer(f"gave {fault}") from None
            if self.cost_fn is not None:
                self._raw[index] = deepcopy(observation)
            return
        array = observation if type(observation) is np.ndarray else array_of(observation)
        if array.dtype.kind not in REAL_KINDS:
            array = numbers(observation, "an observation")
        if array.size != self.observation_size:
            declared = f"its observation_space says {self.observation_size}"
            raise WrongAnswer(f"gave an observation of {array.size} numbers; {declared}")
        self._result.observation[index] = array if array.ndim == 1 else array.reshape(-1)
        if self.cost_fn is not None:
            # A copy: environments may reuse their observation array.
            self._raw[index] = np.array(observation)

    def _probe_costs(self) -> tuple[str, ...]:
        """Find the number of costs by one reset and one step; the random generator is put back."""
        env = self.envs[0]
        base = getattr(env, "unwrapped", env)
        with self._calling("random_state()"):
            saved = random_state_of(env)
        with self._resetting as call:
            self._reset_one(0, 0, call)
        actions = np.clip(np.zeros((1, self.action_size)), self.action_low, self.action_high)
        with self._stepping as call:
            call.copy = 0
            observation, _, cost, _, _ = self._step_one(0, self._as_given(actions)[0])
            self._keep(0, observation)
            names = self.cost_terms or numbered_costs(numbers(cost, "a cost").size)
        if saved is not None:
            with self._calling("set_random_state()"):
                set_random_state_of(env, saved)
        elif hasattr(base, "_np_random"):
            base._np_random = None
        return names

    def _demand_finite(self, call: ForeignCall) -> None:
        """Refuse results that are not finite, by the copy and the step that gave them."""
        if all_finite(self._numbers):
            return
        for name in ("observation", "reward", "cost"):
            wrong = np.argwhere(~np.isfinite(getattr(self._result, name)))
            if len(wrong):
                call.copy = int(wrong[0][0])
                when = f"step {self._steps - self._began[call.copy]} of its episode"
                hint = "`cspo.check_env` may tell more"
                raise WrongAnswer(f"gave a non-finite {name}, {when}: {hint}")
