"""One by one, what an environment returns: observations, rewards, flags and costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from cspo.envs.examination import Examination
from cspo.envs.foreign import ForeignCall, WrongAnswer, number, numbers, truth
from cspo.envs.gym_facts import names_of_costs, numbered_costs
from cspo.envs.gym_step import named_costs
from cspo.envs.layout import Misfit, ObservationLayout
from cspo.errors import shown


class TrialOver(Exception):
    """What was found makes no sense of looking further."""


class ValueChecks:
    """Looks at what one environment returns, and keeps what is wrong with it.

    Attributes:
        found: What is known so far.
        observations: How observations are flattened, once the spaces are known.
    """

    observations: ObservationLayout

    def __init__(
        self, env: Any, cost_fn: Any, cost_terms: Sequence[str], found: Examination
    ) -> None:
        """Nothing is called yet; what is found goes to `found`."""
        self.env, self.cost_fn, self.cost_terms = env, cost_fn, cost_terms
        self.found = found
        self.num_costs: int | None = None
        self.num_values: int | None = None

    def advise(self, problem: str) -> None:
        """Add a problem that training would live with, once."""
        self.found.advise(problem)

    def say(self, problem: str) -> None:
        """Add a problem at which training would stop, once."""
        self.found.add_fault(problem)

    def stop(self, problem: str) -> NoReturn:
        """Add a problem, and look no further."""
        self.say(problem)
        raise TrialOver

    def check_observation(self, observation: Any, where: str) -> None:
        """Say what is wrong with an observation."""
        space = self.env.observation_space
        if not self.observations.box:
            self._check_nested(observation, where)
            return
        with ForeignCall(where, code=self.env):
            numbers(observation, "an observation")
        array = np.asarray(observation)
        gave, says = f"{where} gave an observation of", "; observation_space says"
        if array.shape != space.shape:
            tell = self.advise if array.size == np.prod(space.shape) else self.say
            tell(f"{gave} shape {array.shape}{says} {space.shape}.")
            return
        if array.dtype != space.dtype:
            self.advise(f"{gave} dtype {array.dtype}{says} {space.dtype}.")
        if not np.isfinite(array.astype(np.float64)).all():
            self.say(f"{where} gave a non-finite observation (NaN or infinity).")
        elif (array < space.low).any() or (array > space.high).any():
            self.advise(f"{where} gave an observation outside the limits of observation_space.")

    def _check_nested(self, observation: Any, where: str) -> None:
        """Check an observation of a space that is not a single box."""
        try:
            row = self.observations.flatten(observation)
        except Misfit as fault:
            self.say(f"{where} gave {fault}.")
            return
        if not np.isfinite(row).all():
            self.say(f"{where} gave a non-finite observation (NaN or infinity).")
        elif not self.env.observation_space.contains(observation):
            self.advise(f"{where} gave an observation that observation_space does not contain.")

    def check_reward(self, reward: Any) -> None:
        """Say what is wrong with a reward."""
        try:
            if not np.isfinite(number(reward, "a reward")):
                self.say("The reward was not finite (NaN or infinity).")
        except (WrongAnswer, OverflowError):
            self.say(f"The reward must be one number, not {shown(reward)}.")

    def flag(self, name: str, flag: Any) -> bool:
        """Return whether an episode ended; a flag that is 0 or 1 is a problem, and understood."""
        problem = f"{name} must be True or False, not {shown(flag)}."
        if not isinstance(flag, bool | np.bool_):
            self.advise(problem)
        try:
            return truth(flag, name)
        except WrongAnswer:
            self.stop(problem)

    def check_cost(
        self, cost: Any, answer: tuple[Any, ...], before: Any, action: Any, info: dict[str, Any]
    ) -> Any:
        """Return the costs (K,) of a step."""
        source = "the third of six values" if len(answer) == 6 else 'info["cost"]'
        if self.cost_terms:
            source = ", ".join(f'info["cost_{term}"]' for term in self.cost_terms)
            with ForeignCall("It"):
                cost = named_costs(info, self.cost_terms)
        elif self.cost_fn is not None:
            source = "your cost function"
            with ForeignCall("cost_fn", code=self.cost_fn):
                cost = self.cost_fn(before, action, answer[0], info)
        elif len(answer) == 6 and "cost" in info and not np.array_equal(info["cost"], cost):
            both = "as its third value and in info['cost']"
            self.advise(f"step() gives two different costs, {both}.")
        if cost is None:
            where = " in some steps" if self.num_costs is not None else ""
            advice = "return info['cost'] in every step, or pass cost_fn=..."
            self.stop(f"It gives no cost{where}: {advice}")
        try:
            values = numbers(cost, "a cost")
        except WrongAnswer:
            self.stop(f"The cost must be a number or a sequence of numbers, not {shown(cost)}.")
        self.found.cost_source = source
        self._check_cost_values(values)
        return values

    def _check_cost_values(self, values: Any) -> None:
        if self.num_costs not in (None, values.size):
            counts = f"{self.num_costs} in one step and {values.size} in another"
            self.say(f"The number of costs changes: {counts}.")
        self.num_costs = values.size
        names = None if self.cost_terms else names_of_costs(self.env)
        named = names or tuple(self.cost_terms) or numbered_costs(values.size)
        self.found.cost_names = self.found.cost_names or named
        if names is not None and len(names) != values.size:
            declared = f"{len(names)} costs ({', '.join(names)})"
            self.say(f"It declares {declared} and gives {values.size}.")
        if not np.isfinite(values).all():
            self.say("The cost was not finite (NaN or infinity).")
        elif (values < 0).any():
            meant = "a cost is 0 where nothing is wrong and positive otherwise"
            self.advise(f"The cost was negative: {meant}.")
