"""Any Gymnasium environment as a `BatchEnv`, stepped one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
from gymnasium.spaces import Box

from cspo.envs.batch import BatchEnv, FloatArray, StepResult, check_actions, check_copies
from cspo.errors import CspoError, EnvironmentFault, nearest

# (observation, action, next observation, info) -> cost
CostFunction = Callable[[Any, Any, Any, dict[str, Any]], Any]


class GymBatchEnv(BatchEnv):
    """N Gymnasium environments with Box observations and Box actions, and a cost.

    The cost of a step is what `cost_fn` returns, if given; the values `info["cost_TERM"]` of
    `cost_terms`, if given; otherwise the third of six returned values, as in Safety-Gymnasium;
    otherwise `info["cost"]`. It is one number or a sequence of K numbers. K is the length of the
    environment's `cost_names`, or its `num_costs`; an environment with neither is asked by one
    reset and step at construction, after which its random generator is put back.

    Actions are clipped to the action space before the environment sees them, because a Gymnasium
    environment may rely on that. Observations and actions that are not vectors are flattened.

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
        self.owns = callable(environments)
        if callable(environments):
            environments = [environments() for _ in range(num_envs)]
        self.envs = list(environments)
        self.name = name or name_of(self.envs[0])
        self.num_envs, self.cost_fn, self.clip_actions = num_envs, cost_fn, clip_actions
        self.cost_terms = tuple(cost_terms)
        try:
            self._learn_sizes()
        except BaseException:
            self.close()
            raise

    def _learn_sizes(self) -> None:
        num_envs = self.num_envs
        if len(self.envs) != num_envs or len({id(env) for env in self.envs}) != num_envs:
            needed = f"{num_envs} different environments of {self.name} are needed"
            raise CspoError(f"{needed}: make a new one each time.")
        self._observation_space, self._action_space = _box_spaces(self.envs[0], self.name)
        self.observation_size = int(np.prod(self._observation_space.shape))
        self.action_size = int(np.prod(self._action_space.shape))
        self.action_low = self._action_space.low.reshape(-1).astype(np.float64)
        self.action_high = self._action_space.high.reshape(-1).astype(np.float64)
        self.time_limit = time_limit_of(self.envs[0])
        self._raw: list[Any] = [None] * num_envs  # the last observation as each environment gave it
        self._elapsed = np.zeros(num_envs, np.int64)  # steps of each environment's episode
        self._result = StepResult.zeros(num_envs, self.observation_size, 1)
        declared = None if self.cost_terms else names_of_costs(self.envs[0])
        self.cost_names = declared or self._probe_costs()
        self._result = StepResult.zeros(num_envs, self.observation_size, len(self.cost_names))

    def reset(self, seed: int | None = None) -> FloatArray:
        """Start N episodes; environment i is seeded with `seed + i`, or goes on if None."""
        for i in range(self.num_envs):
            self._reset_one(i, None if seed is None else int(seed) + i)
        self._demand_finite(self._result.observation, "a non-finite observation at reset")
        return self._result.observation

    def step(self, actions: FloatArray) -> StepResult:
        """Step every environment with its row of `actions` (N, A), and reset those that ended."""
        result = self._result
        actions = check_actions(self.name, actions, (self.num_envs, self.action_size))
        if self.clip_actions:
            actions = np.clip(actions, self.action_low, self.action_high)
        self._elapsed += 1
        for i in range(self.num_envs):
            cost, reward, terminated, truncated = self._step_one(i, actions[i])
            if cost.size != result.cost.shape[1]:
                expected = f"{len(self.cost_names)} ({', '.join(self.cost_names)})"
                self._fault(f"gave {cost.size} costs instead of {expected}.")
            result.cost[i] = cost
            result.reward[i] = reward
            result.terminated[i] = terminated
            result.truncated[i] = truncated and not terminated
        self._demand_finite(result.observation, "a non-finite observation")
        self._demand_finite(result.reward, "a non-finite reward")
        self._demand_finite(result.cost, "a non-finite cost")
        ended = np.flatnonzero(result.terminated | result.truncated)
        if ended.size:
            result.final_observation[ended] = result.observation[ended]
            for i in ended.tolist():
                self._reset_one(i, None)
            self._demand_finite(result.observation, "a non-finite observation at reset")
        return result

    def random_state(self) -> dict[str, Any]:
        """Return what is random in each environment; null where nothing can be saved."""
        return {"generators": [_random_state(env) for env in self.envs]}

    def set_random_state(self, state: dict[str, Any]) -> None:
        """Put back what `random_state` returned; an environment saved as null is left alone."""
        saved = check_copies(state["generators"], self.num_envs)
        for env, one in zip(self.envs, saved, strict=True):
            if one is not None:
                _set_random_state(env, one)

    def close(self) -> None:
        """Close the environments made here; a user's own stay open."""
        if self.owns:
            for env in self.envs:
                env.close()

    def _reset_one(self, index: int, seed: int | None) -> None:
        answer = self.envs[index].reset(seed=seed)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise EnvironmentFault(f"reset() of {self.name} must return (observation, info).")
        self._elapsed[index] = 0
        self._keep(index, answer[0])

    def _step_one(self, index: int, action: FloatArray) -> tuple[FloatArray, float, bool, bool]:
        """Step one environment; its observation goes into the result, its cost (K,) comes back."""
        space = self._action_space
        shaped = action.astype(space.dtype).reshape(space.shape)
        before = self._raw[index]
        answer = self.envs[index].step(shaped)
        observation, reward, cost, terminated, truncated, info = split_step(answer, self.name)
        if self.cost_fn is not None:
            cost = self.cost_fn(before, shaped, observation, info)
        elif self.cost_terms:
            cost = named_costs(info, self.cost_terms, f"the environment {self.name}")
        if cost is None:
            raise CspoError(
                f"the environment {self.name} gives no cost: return info['cost'], or pass "
                "cost_fn=function(observation, action, next_observation, info)."
            )
        self._keep(index, observation)
        costs: FloatArray = np.asarray(cost, np.float64).reshape(-1)
        return costs, float(reward), bool(terminated), bool(truncated)

    def _keep(self, index: int, observation: Any) -> None:
        """Store an observation flat, and as it came for the cost function."""
        flat = np.asarray(observation, np.float64).reshape(-1)
        if flat.size != self.observation_size:
            declared = f"its observation_space says {self.observation_size}"
            self._fault(f"gave an observation of {flat.size} numbers; {declared}.")
        self._result.observation[index] = flat
        if self.cost_fn is not None:
            # A copy: environments may reuse their observation array.
            self._raw[index] = np.array(observation)

    def _probe_costs(self) -> tuple[str, ...]:
        """Find the number of costs by one reset and one step; the random generator is put back."""
        env = self.envs[0]
        base = getattr(env, "unwrapped", env)
        saved = _random_state(env)
        self._reset_one(0, 0)
        action = np.clip(np.zeros(self.action_size), self.action_low, self.action_high)
        count = self._step_one(0, action)[0].size
        if saved is not None:
            _set_random_state(env, saved)
        elif hasattr(base, "_np_random"):
            base._np_random = None
        return self.cost_terms or numbered_costs(count)

    def _demand_finite(self, values: FloatArray, what: str) -> None:
        finite = np.isfinite(values)
        if not finite.all():
            where = int(np.argwhere(~finite)[0][0])
            when = f"step {self._elapsed[where]} of its episode"
            self._fault(f"(copy {where}) gave {what}, {when}: `cspo.check_env` may tell more.")

    def _fault(self, what: str) -> NoReturn:
        raise EnvironmentFault(f"the environment {self.name} {what}")


def split_step(answer: Any, name: str) -> tuple[Any, Any, Any, Any, Any, dict[str, Any]]:
    """Return (observation, reward, cost or None, terminated, truncated, info) of an answer."""
    if isinstance(answer, tuple) and len(answer) == 6:
        return answer
    if isinstance(answer, tuple) and len(answer) == 5:
        observation, reward, terminated, truncated, info = answer
        cost = info.get("cost") if isinstance(info, dict) else None
        return observation, reward, cost, terminated, truncated, info
    got = f"{len(answer)} values" if isinstance(answer, tuple) else type(answer).__name__
    raise EnvironmentFault(
        f"step() of {name} must return (observation, reward, terminated, truncated, info), or six "
        f"values with the cost third; it returned {got}."
    )


def name_of(env: Any) -> str:
    """Return the id an environment was made by, or the name of its class."""
    spec = getattr(env, "spec", None)
    return str(spec.id) if spec is not None else type(getattr(env, "unwrapped", env)).__name__


def names_of_costs(env: Any) -> tuple[str, ...] | None:
    """Return the names an environment declares (`cost_names`, or `num_costs` of them), or None."""
    base = getattr(env, "unwrapped", env)
    names, count = getattr(base, "cost_names", None), getattr(base, "num_costs", None)
    if names:
        return tuple(str(name) for name in names)
    return None if count is None else numbered_costs(int(count))


def numbered_costs(count: int) -> tuple[str, ...]:
    """Return names for costs that nobody named."""
    return ("cost",) if count == 1 else tuple(f"cost_{k}" for k in range(count))


def named_costs(info: dict[str, Any], terms: Sequence[str], name: str) -> list[Any]:
    """Return `info["cost_TERM"]` of each term, or say which there are."""
    for term in terms:
        if f"cost_{term}" not in info:
            there = [key.removeprefix("cost_") for key in info if key.startswith("cost_")]
            hint = nearest(term, there) if there else "no name in it starts with cost_."
            raise CspoError(f"{name} gives no info['cost_{term}'] in a step: {hint}")
    return [info[f"cost_{term}"] for term in terms]


def time_limit_of(env: Any) -> int | None:
    """Return after how many steps the `TimeLimit` wrapper ends an episode, or None without one."""
    while env is not None:
        limit = getattr(env, "_max_episode_steps", None)
        if limit is not None:
            return int(limit)
        spec = getattr(env, "spec", None)
        if spec is not None and spec.max_episode_steps is not None:
            return int(spec.max_episode_steps)
        env = getattr(env, "env", None)
    return None


def space_problem(space: Any, what: str) -> str | None:
    """Say why training cannot use a space, or return None."""
    if space is None:
        return f"it has no {what}_space"
    if not isinstance(space, Box):
        return f"its {what}_space is {type(space).__name__}, and only Box is supported"
    if not np.issubdtype(space.dtype, np.number) or 0 in space.shape:
        found = f"dtype {space.dtype} and shape {space.shape}"
        return f"its {what}_space has {found}, and numbers are needed"
    if what == "action" and not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        return "the range of its actions is infinite: give action_space finite low and high"
    return None


def _box_spaces(env: Any, name: str) -> tuple[Box, Box]:
    for what in ("observation", "action"):
        problem = space_problem(getattr(env, f"{what}_space", None), what)
        if problem is not None:
            raise CspoError(f"the environment {name} cannot be trained on: {problem}.")
    return env.observation_space, env.action_space


def _random_state(env: Any) -> dict[str, Any] | None:
    """Return what is random in an environment: what it says itself, else its `np_random`."""
    base = getattr(env, "unwrapped", env)
    if _keeps_random_state(base):
        return dict(base.random_state())
    generator = getattr(base, "_np_random", None)
    if not isinstance(generator, np.random.Generator):
        return None
    state = dict(generator.bit_generator.state)
    # Generators other than Gymnasium's PCG64 may hold arrays, which are not JSON.
    return state if state.get("bit_generator") in ("PCG64", "PCG64DXSM") else None


def _set_random_state(env: Any, state: dict[str, Any]) -> None:
    base = getattr(env, "unwrapped", env)
    if _keeps_random_state(base):
        base.set_random_state(state)
    else:
        base.np_random.bit_generator.state = state


def _keeps_random_state(base: Any) -> bool:
    return hasattr(base, "random_state") and hasattr(base, "set_random_state")
