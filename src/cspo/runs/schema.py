"""The one schema of a checkpoint: what the run's own trainer would save, name by name.

It is derived, not written down. From the settings of the run, and the sizes that the checkpoint
says its environment has, a trainer is built at epoch 0, with those sizes for an environment. What
it would save is what the checkpoint must hold: the same names, each array of the same type and
shape, finite where it begins finite. The few rules that cannot be derived are the constants below.

Compiled code trusts the lengths of its arrays: what passes here is safe to compute with. `eval`,
`load` and `--resume` all ask here, and nowhere else.
"""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np

from cspo.algorithms.registry import get_algorithm, is_built_in
from cspo.config import TrainConfig
from cspo.envs.layout import ActionLayout, ObservationLayout
from cspo.envs.settings import WorkerSettings
from cspo.errors import CspoError
from cspo.policy.distribution import Distribution
from cspo.policy.network import AUTO, NetworkFault, compare_signatures
from cspo.policy.networks import parameter_count
from cspo.runs.checkpoint import AnotherVersion, DamagedCheckpoint, State
from cspo.settings import UnknownSettings
from cspo.setup import EARLIER_FACTS, build_policy, network_for, observation_layout
from cspo.state import names_in
from cspo.train import PARTS, Trainer

NAMES = {"epoch", "cost_limit", "facts", *PARTS, "env"}
NEWER = {"progress", "limit_set", "stop"}  # what checkpoints need not have
STREAMS = ("PCG64", "PCG64DXSM")
FACTS: dict[str, Any] = {
    "observation_size": int,
    "action_size": int,
    "action_low": np.ndarray,
    "action_high": np.ndarray,
    "cost_names": list,
    "cost_fn": bool,
    "time_limit": (int, type(None)),
    "clip_actions": bool,
}
SPACES: dict[str, Any] = {  # what checkpoints of earlier releases do not have, all of it or none
    "action_choices": list,
    "observation_as_is": (np.ndarray, type(None)),
    "observation_space": (dict, type(None)),
    "action_space": (dict, type(None)),
}
# What is a sum of squares, a variance, a length or a price.
NOT_NEGATIVE = {
    *("square_sum", "second", "lengths", "weight", "eta", "unit", "Q", "R"),
    *("multiplier", "z", "noise", "excess"),
}
WIDEST = 2**128  # whole numbers: states of random streams, and counters, which are far below
WHOLE = 2**53  # and those that are computed with as floating-point numbers, such as counters


def check_state(state: State, config: TrainConfig, policy: Any = None, trains: bool = True) -> None:
    """Raise `DamagedCheckpoint` unless a state is one of a run with these settings.

    Who does not train needs nothing of the algorithm. `policy` is the network that the user gave;
    if it is another than the run's, nothing is damaged: that is a `NetworkFault`.
    """
    _same_names(state, NAMES | (NEWER & state.keys()), "it")
    _demand(state["epoch"] <= config.epochs, f"it is of epoch {state['epoch']} of {config.epochs}")
    _demand(isinstance(state["env"], dict), "env is not a table")
    _check_streams(state["env"])
    facts = _check_facts(state["facts"], config)
    _check_network(state, facts, config, policy)
    if isinstance(config.algorithm, UnknownSettings):
        _check_policy(state, facts, config, policy)
        return
    blank = _blank(config, facts, policy)
    compare_signatures(state["policy"].get("network"), blank.policy.signature)
    _compare(state["cost_limit"], blank.limits.now, "cost_limit", {})
    for name in PARTS:
        if name != "algorithm" or _compares(state[name], blank, config, trains):
            _compare(state[name], getattr(blank, name).state_dict(), name, _rows_that_vary(blank))
    _demand(bool((state["cost_limit"] >= 0.0).all()), "cost_limit is negative")
    _demand(state.get("limit_set", True) is True, "limit_set is not true")
    stop = state.get("stop", {"rule": "", "count": 0})
    _compare(stop, {"rule": stop["rule"] if isinstance(stop, dict) else "", "count": 0}, "stop", {})
    _demand(len({len(rows) for rows in state["window"].values()}) == 1, "window is torn apart")
    if "progress" in state:
        _check_rows(state["progress"], state["epoch"])


def _compares(saved: Any, blank: Trainer, config: TrainConfig, trains: bool) -> bool:
    """Whether an algorithm's state can be compared; that of a user's own only its method reads."""
    _demand(isinstance(saved, dict), "algorithm is not a table")
    if not is_built_in(get_algorithm(config.algo)):
        return False
    differ = names_in(saved) ^ names_in(blank.algorithm.state_dict())
    if differ and trains:
        raise AnotherVersion(f"only one of the two remembers {'algorithm' + min(differ)!r:.60}")
    return not differ


def _check_streams(value: Any) -> None:
    """Refuse random streams of kinds that are never saved: NumPy does not check their states."""
    if isinstance(value, dict):
        known = value.get("bit_generator", STREAMS[0]) in STREAMS
        _demand(known, "env has a random stream of an unknown kind")
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list):
            _check_streams(inner)


def _check_facts(facts: Any, config: TrainConfig) -> SimpleNamespace:
    """Return the sizes of the environment, if they can be those of an environment of the run."""
    kinds = FACTS | SPACES
    if isinstance(facts, dict) and not facts.keys() & SPACES.keys():
        facts = facts | EARLIER_FACTS
    _same_names(facts, kinds.keys(), "facts")
    for name, kind in kinds.items():
        wrong = isinstance(facts[name], bool) and kind is not bool
        _demand(isinstance(facts[name], kind) and not wrong, f"facts/{name} is of a wrong kind")
    for name in ("observation_size", "action_size", "time_limit"):
        _demand(facts[name] is None or 0 < facts[name] < 2**31, f"facts/{name} is out of range")
    low, high = facts["action_low"], facts["action_high"]
    for name, bound in (("action_low", low), ("action_high", high)):
        _demand(bound.shape == (facts["action_size"],), f"facts/{name} is of another size")
        _demand(bound.dtype == np.float64, f"facts/{name} is of type {bound.dtype}, not float64")
        endless = facts["action_space"] is not None
        _demand(endless or bool(np.isfinite(bound).all()), f"facts/{name} is not finite")
    fine = bool((low <= high).all() and (low < np.inf).all() and (high > -np.inf).all())
    _demand(fine, "facts/action_low is above facts/action_high")
    _check_spaces(facts)
    names, limits = facts["cost_names"], len(config.cost_limit)
    _demand(all(isinstance(name, str) for name in names), "facts/cost_names are not names")
    _demand(len(names) == limits, f"it has {len(names)} costs, and the settings {limits} limit(s)")
    return SimpleNamespace(**facts)


def _check_spaces(facts: Any) -> None:
    """Refuse choices, masks and spaces that do not fit the sizes of the environment."""
    choices, mask, last = facts["action_choices"], facts["observation_as_is"], facts["action_size"]
    _demand(all(type(k) is int and 1 <= k < 2**31 for k in choices), "facts/action_choices differ")
    _demand(len(choices) <= last, "facts/action_choices are too many")
    bounds = facts["action_low"][last - len(choices) :], facts["action_high"][last - len(choices) :]
    from_zero = not bounds[0].any() and bounds[1].tolist() == [max(k, 2) - 1 for k in choices]
    _demand(from_zero, "facts/action_choices do not fit the bounds of their columns")
    if mask is not None:
        fits = mask.shape == (facts["observation_size"],) and mask.dtype == np.bool_
        _demand(fits, "facts/observation_as_is is not a mask of the observations")
    try:
        seen = _read(ObservationLayout, facts["observation_space"])
        done = _read(ActionLayout, facts["action_space"])
    except ValueError as fault:
        raise DamagedCheckpoint(f"facts has {fault}") from fault
    if seen is not None:
        _demand(seen.size == facts["observation_size"], "facts/observation_space is of other size")
    if done is not None:
        _demand(done.size == last, "facts/action_space is of another size")
        _demand(list(done.choices) == choices, "facts/action_space has other choices")


def _read(layout: Any, description: Any) -> Any:
    return None if description is None else layout(description)


def _check_network(state: State, facts: SimpleNamespace, config: TrainConfig, policy: Any) -> None:
    """Compare the size of the actor before one is made: sizes may say anything."""
    _demand(isinstance(state["policy"], dict), "policy is not a table")
    distribution = Distribution.of(facts.action_size, facts.action_choices)
    hidden, layout = config.policy.hidden_sizes, observation_layout(facts)
    if network_for(config, policy, facts) is None:
        wanted = parameter_count((facts.observation_size, *hidden, distribution.output_size))
    elif policy is None and config.policy.network == AUTO:
        from cspo.policy import convolution

        assert layout is not None
        wanted = convolution.parameter_count(layout.shape, distribution.output_size, hidden)
    else:
        return  # only the user's own code knows the size
    wanted += distribution.gaussians
    actor = state["policy"].get("actor")
    found = actor.size if isinstance(actor, np.ndarray) else 0
    _demand(found == wanted, f"policy/actor has {found} numbers, not {wanted}")


def _check_policy(state: State, facts: SimpleNamespace, config: TrainConfig, policy: Any) -> None:
    """Check what acting needs, where the algorithm is not known here: nobody trains with it."""
    limits, critics = np.zeros(len(facts.cost_names)), state["policy"].get("critics")
    extra = len(critics) - 1 - len(limits) if np.ndim(critics) else 0
    _demand(extra in (0, len(limits)), "policy/critics are of another number")
    _compare(state["cost_limit"], limits, "cost_limit", {})
    built = build_policy(config, facts, extra, policy)
    compare_signatures(state["policy"].get("network"), built.signature)
    _compare(state["policy"], built.state_dict(), "policy", {})


def _check_rows(saved: Any, epochs: int) -> None:
    """Refuse what are not rows of so many epochs, as `mend.Numbers` gives them."""
    _same_names(saved, {"columns", "whole", "rows"}, "progress")
    columns, whole, rows = saved["columns"], saved["whole"], saved["rows"]
    named = isinstance(columns, list) and all(isinstance(name, str) for name in columns)
    if not named or len(set(columns)) < len(columns) or not isinstance(whole, list):
        raise DamagedCheckpoint("progress does not name its columns")
    if not isinstance(rows, np.ndarray) or rows.dtype != np.float64 or rows.ndim != 2:
        raise DamagedCheckpoint("progress/rows are no rows of numbers")
    if rows.shape[1] != max(len(columns), 1) or len(rows) > epochs:
        raise DamagedCheckpoint(f"progress/rows have the shape {rows.shape}")
    if not all(isinstance(name, str) and name in columns for name in whole):
        raise DamagedCheckpoint("progress/whole names no columns")
    numbers = rows[:, [columns.index(name) for name in whole]]
    is_whole = np.isfinite(numbers).all() and (numbers == np.floor(numbers)).all()
    if not is_whole or not (np.abs(numbers) < WHOLE).all():
        raise DamagedCheckpoint("progress/whole names a column of other numbers")
    if len(rows) and (columns[0] != "epoch" or not {"epoch", "steps"} <= {*whole}):
        raise DamagedCheckpoint("progress does not number its epochs and steps")
    if any(not name.isprintable() or {*name} & {*',"'} for name in columns):
        raise DamagedCheckpoint("progress has a column whose name is none")
    if not set(rows[:, 0]) <= set(range(epochs)) or (np.diff(rows[:, 0]) <= 0.0).any():
        raise DamagedCheckpoint("progress has rows of other epochs")


class _Sizes(SimpleNamespace):
    """Stands in for an environment: it has the sizes of one, and cannot be stepped."""

    def random_state(self) -> dict[str, Any]:
        return {}

    def set_random_state(self, state: dict[str, Any]) -> None:
        raise NotImplementedError


def _blank(config: TrainConfig, facts: SimpleNamespace, policy: Any) -> Trainer:
    """Return the trainer of a run at its beginning, on sizes in place of an environment."""
    sizes = vars(facts) | {"num_envs": config.num_envs, "cost_names": tuple(facts.cost_names)}
    try:
        in_this_process = dataclasses.replace(config, parallel=WorkerSettings())
        return Trainer(in_this_process, env=_Sizes(**sizes), policy=policy)
    except NetworkFault:
        raise
    except CspoError as fault:
        raise DamagedCheckpoint(f"it does not fit the settings. {fault}") from fault


def _rows_that_vary(blank: Trainer) -> dict[str, range]:
    """Return the arrays that have more or fewer rows as time goes by, and how many they may."""
    episodes = range(blank.window.size + 1)
    vary = {f"window/{name}": episodes for name in ("returns", "costs", "lengths")}
    delay = getattr(getattr(blank.algorithm, "dual", None), "delay", None)
    return vary if delay is None else vary | {"algorithm/dual/history": range(1, delay + 1)}


def _compare(saved: Any, like: Any, path: str, vary: dict[str, range]) -> None:
    """Refuse what a checkpoint has at `path` unless it is like what a trainer has there."""
    if isinstance(like, dict):
        _same_names(saved, like.keys(), path)
        for name, inner in like.items():
            _compare(saved[name], inner, f"{path}/{name}", vary)
    elif isinstance(like, np.ndarray):
        _compare_arrays(saved, like, path, vary.get(path))
    elif isinstance(like, str | list):  # the kind of a random stream, parts of a network
        _demand(saved == like, f"{path} is not {like!r}")
    else:
        _demand(type(saved) is type(like), f"{path} is not {_KINDS[type(like)]}")
        if type(saved) is int:
            most = WHOLE if path.endswith("/count") else WIDEST
            _demand(0 <= saved < most, f"{path} is out of range")


_KINDS = {int: "a whole number", bool: "true or false", float: "a number", type(None): "null"}


def _compare_arrays(saved: Any, like: Any, path: str, rows: range | None) -> None:
    like = np.ascontiguousarray(like)  # as `split` writes it: a single number is an array of one
    _demand(isinstance(saved, np.ndarray), f"{path} is not an array")
    shown = f"{path} is of type {saved.dtype}, not {like.dtype}"
    _demand(saved.dtype == like.dtype, shown)
    shape = like.shape
    if rows is not None and saved.ndim == like.ndim and len(saved) in rows:
        shape = (len(saved), *like.shape[1:])
    _demand(saved.shape == shape, f"{path} has the shape {saved.shape}, not {shape}")
    _demand(saved.flags.c_contiguous, f"{path} is not contiguous")
    if saved.dtype.kind == "f":
        if np.isfinite(like).all():
            _demand(bool(np.isfinite(saved).all()), f"{path} is not finite")
        _demand(not np.isinf(saved).any(), f"{path} is infinite")  # NaN may stand for "not yet"
        if path.rpartition("/")[2] in NOT_NEGATIVE:
            _demand(not (saved < 0.0).any(), f"{path} is negative")


def _same_names(table: Any, wanted: Any, path: str) -> None:
    _demand(isinstance(table, dict), f"{path} is not a table")
    if missing := sorted(wanted - table.keys()):
        raise DamagedCheckpoint(f"{path} has no {missing[0]}")
    if unknown := sorted(table.keys() - wanted):
        raise DamagedCheckpoint(f"{path} has something that it should not have, {unknown[0]!r:.40}")


def _demand(holds: bool, otherwise: str) -> None:
    if not holds:
        raise DamagedCheckpoint(otherwise)
