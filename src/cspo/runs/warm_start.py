"""Starting from something: networks and normaliser of another run, or of another library.

Only what knows the task is taken: the actor with its standard deviations, the critics, the
statistics of observations, rewards and costs. Everything that belongs to a training begins anew:
multipliers and prices, the moments of the optimisers, the window of episodes, the margin, the
random streams and the count of steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cspo.errors import CspoError, flag, shown
from cspo.policy.network import AUTO, compare_signatures, is_named, is_object
from cspo.runs.checkpoint import load_newest
from cspo.runs.folder import load_config
from cspo.runs.schema import check_state
from cspo.settings import written
from cspo.setup import EARLIER_FACTS
from cspo.types import Array

if TYPE_CHECKING:
    from cspo.config import TrainConfig
    from cspo.train import Trainer

# What networks see and are made of: where these differ, parameters mean something else.
SETTINGS = (
    *("network", "hidden_sizes", "normalise_observations", "observation_clip"),
    *("observation_std_floor", "normalise_rewards", "normalise_costs"),
)
MOST_SHOWN = 3  # differences in a message
SIZES = {
    "observation_size": "numbers in an observation",
    "action_size": "columns of an action",
    "action_choices": "options of its choices",
    "observation_space": "the observation space",
    "action_space": "the action space",
    "action_low": "lower bounds of actions",
    "action_high": "upper bounds of actions",
}


@dataclass(frozen=True)
class WarmStart:
    """Networks to start from, and what they are for.

    Attributes:
        label: What the settings of the new run say: a run's folder, or `<Name>` of an object.
        told: What it is, in words.
        facts: Sizes and spaces of the environment they were trained on; None is not compared.
        settings: Settings of the policy that the new run must have, by their names.
        actor: Parameters (P,), the log standard deviations last.
        critics: Parameters (C, P) of the reward's critic, the costs', and extra ones; None to
            leave them at their random beginning.
        normaliser: Statistics of observations; None if there are none.
        signals: Statistics of rewards and costs.
        signature: Names and shapes of a network in PyTorch; None of the compiled one.
    """

    label: str
    told: str
    facts: dict[str, Any]
    settings: dict[str, Any]
    actor: Array
    critics: Array | None = None
    normaliser: dict[str, Any] | None = None
    signals: dict[str, Any] | None = None
    signature: list[str] | None = None

    def apply(self, trainer: Trainer) -> str:
        """Put the networks into a trainer that has not begun, and say what was done.

        Raises:
            CspoError: If they do not fit, with every difference named.
        """
        policy = trainer.policy
        if differences := list(self._differences(trainer)):
            more = len(differences) - MOST_SHOWN
            told = "; ".join(differences[:MOST_SHOWN]) + (f"; and {more} more" if more > 0 else "")
            raise CspoError(f"{self.told} does not fit this run: {told}.")
        compare_signatures(self.signature, policy.signature)
        policy.actor.parameters[:] = self.actor
        taken = ["the actor"]
        if self.critics is not None:
            # The extra ones of an algorithm come last: those that both have are the same.
            count = min(len(self.critics), policy.critics.count)
            policy.critics.parameters[:count] = self.critics[:count]
            new = policy.critics.count - count
            taken.append("the critics" + (f" but for {new} that it does not have" if new else ""))
        if self.normaliser is not None:
            policy.normaliser.load_state_dict(self.normaliser)
            taken.append("the normaliser")
        if self.signals is not None:
            policy.signals.load_state_dict(self.signals)
        return f"Starting from {self.told}: {', '.join(taken)}; everything else begins anew."

    def _differences(self, trainer: Trainer) -> Iterator[str]:
        ours = EARLIER_FACTS | trainer.facts
        for name, words in SIZES.items():
            theirs = self.facts.get(name)
            if theirs is None or ours[name] is None:
                continue  # a native task does not describe its spaces
            if not np.array_equal(np.asarray(theirs), np.asarray(ours[name])):
                yield f"{words}: {_brief(theirs)} there, {_brief(ours[name])} here"
        if (costs := self.facts.get("cost_names")) is not None:
            named = list(trainer.env.cost_names)
            if len(costs) != len(named):
                yield f"costs: {', '.join(costs)} there, {', '.join(named)} here"
        for name, theirs in self.settings.items():
            own = getattr(trainer.config.policy, name)
            if own != theirs:
                yield f"{flag(name)} is {written(theirs)} there, {written(own)} here"


def _brief(value: Any) -> str:
    return shown(value.tolist() if isinstance(value, np.ndarray) else value)


def warm_start_of(config: TrainConfig, policy: Any, given: WarmStart | None) -> WarmStart | None:
    """Return what a run starts from: what the caller gave, or the run that its settings name."""
    name = config.policy.init_from
    if given is not None or name is None:
        return given
    if is_object(name):
        raise CspoError(
            f"The settings say that the run starts from the Python object {name}, which a file "
            "cannot hold: pass it again as init_from=, from Python."
        )
    return _of_run(name, config, policy)


def _of_run(name: str, config: TrainConfig, policy: Any) -> WarmStart:
    """Return the newest networks of a run folder; nothing that it names is imported.

    `policy` is the network that the user gave the new run.
    """
    folder = Path(name)
    theirs = load_config(folder)
    network = theirs.policy.network
    if is_named(network) and network != config.policy.network:
        raise CspoError(
            f"{folder} does not fit this run: --network is {shown(network)} there, "
            f"{shown(config.policy.network)} here."
        )
    if is_named(network) and policy is None:
        policy = network  # which the user named for the new run
    elif not is_named(network) and not is_object(network):
        policy = None

    def accept(state: dict[str, Any]) -> None:
        check_state(state, theirs, policy, trains=False)

    state, _ = load_newest(folder / "checkpoints", accept=accept)
    if state is None:
        raise CspoError(f"{folder} has no checkpoint yet: there is nothing to start from.")
    saved, settings = state["policy"], {name: getattr(theirs.policy, name) for name in SETTINGS}
    if saved.get("network") is None:
        del settings["network"]  # the compiled one, whatever it is called
    elif network != AUTO:
        del settings["hidden_sizes"]  # which a network of a user's own does not have
    return WarmStart(
        label=name,
        told=f"{folder} after epoch {state['epoch']}",
        facts=EARLIER_FACTS | state["facts"],
        settings=settings,
        actor=saved["actor"],
        critics=saved["critics"],
        normaliser=saved["normaliser"],
        signals=saved["signals"],
        signature=saved.get("network"),
    )
