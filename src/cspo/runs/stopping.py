"""Rules that end a run early, such as `cost<25 and return>2000 for 20`: parsed, never evaluated.

    rule      = condition { "and" condition } [ "for" epochs ]
    condition = name ( "<" | "<=" | ">" | ">=" ) ( number | name )

A name is a column of progress.csv; `limit` is short for `cost_limit`. With several constraints
`cost` and the like stand for all of them: the condition must hold for each. An unknown number (NaN)
fulfils no condition.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from cspo.errors import CspoError, nearest
from cspo.runs.progress import as_row, constraint_columns
from cspo.types import EpochReport

EXAMPLE = '"cost<limit and return>2000 for 20"'
COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
SHORT = {"limit": "cost_limit"}
CLOCKS = ("steps_per_second",)  # would end the same run elsewhere, on another machine
NUMBER = r"[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
TOKEN = re.compile(rf"\s*(?:({NUMBER})|([A-Za-z_]\w*)|(<=|>=|<|>))")


class Condition(NamedTuple):
    """One comparison of a column with a number or another column."""

    name: str
    sign: str
    other: str | float

    def holds(self, row: Mapping[str, float]) -> bool:
        """Whether it holds in an epoch, for every constraint if it is about several."""
        left = _values(row, self.name)
        right = _values(row, self.other) if isinstance(self.other, str) else [self.other]
        count = max(len(left), len(right))
        if {len(left), len(right)} - {1, count}:
            both = f"{self.name} has {len(left)} values and {self.other} {len(right)}"
            raise CspoError(f"--stop-when: {both}: they cannot be compared.")
        pairs = zip(left * (count // len(left)), right * (count // len(right)), strict=True)
        return all(COMPARE[self.sign](a, b) for a, b in pairs)


def _values(row: Mapping[str, float], name: str) -> list[float]:
    found = constraint_columns(row, SHORT.get(name, name))
    if not found:
        there = [*row, *SHORT]
        raise CspoError(f"--stop-when: there is no column {name!r}: {nearest(name, there)}")
    return found


@dataclass(frozen=True)
class StopRule:
    """A rule that was parsed."""

    text: str
    conditions: tuple[Condition, ...]
    epochs: int  # in a row in which it must hold

    def holds(self, report: EpochReport) -> bool:
        """Whether all conditions hold in an epoch."""
        row = as_row(report)
        held = [condition.holds(row) for condition in self.conditions]  # so that no name is missed
        return all(held)


def parse_rule(text: str) -> StopRule:
    """Return the rule that `text` means.

    Raises:
        CspoError: Tells what was expected, and where.
    """
    words = _tokens(text)
    conditions = [_condition(words, text)]
    while words and words[0] == "and":
        words.pop(0)
        conditions.append(_condition(words, text))
    epochs = 1
    if words and words[0] == "for":
        count = words[1] if len(words) > 1 else None
        if not isinstance(count, float) or count < 1 or count != int(count):
            raise _fault(text, "after 'for' comes a whole number of epochs")
        epochs, words = int(count), words[2:]
    if words:
        raise _fault(text, f"{_shown(words)} does not belong there")
    return StopRule(" ".join(text.split()), tuple(conditions), epochs)


def _tokens(text: str) -> list[str | float]:
    """Return the words of a rule: numbers as numbers, names and signs as text."""
    found: list[str | float] = []
    place, text = 0, text.rstrip()
    while place < len(text):
        match = TOKEN.match(text, place)
        if match is None:
            raise _fault(
                text, f"{text[place:].strip()[:20]!r} is neither name, number nor < <= > >="
            )
        found.append(float(match[1]) if match[1] else match[2] or match[3])
        place = match.end()
    return found


def _condition(words: list[str | float], text: str) -> Condition:
    """Take a condition from the front of the words."""
    name, sign, other = [*words[:3], None, None, None][:3]
    if not isinstance(name, str) or name in COMPARE or name in ("and", "for"):
        raise _fault(text, f"a condition begins with the name of a column, not {_shown(words)}")
    if name in CLOCKS:
        raise _fault(text, f"{name} differs from one machine to the next")
    if sign not in COMPARE:
        raise _fault(text, f"after {name!r} comes < <= > or >=, not {_shown(words[1:])}")
    if other is None or other in COMPARE or other in ("and", "for", *CLOCKS):
        raise _fault(text, f"after '{name}{sign}' comes a number or a column")
    del words[:3]
    return Condition(name, str(sign), other)


def _shown(words: list[str | float]) -> str:
    if not words:
        return "the end"
    return repr(words[0]) if isinstance(words[0], str) else f"{words[0]:g}"


def _fault(text: str, what: str) -> CspoError:
    return CspoError(f"--stop-when {text.strip()}: {what}. Write it as in {EXAMPLE}.")


def read_rule(value: Any, name: str = "stop_when") -> str | None:
    """Return the text of a rule in one form, or None for "none"; the setting's reader."""
    if value is None or (isinstance(value, str) and value.strip().lower() in ("", "none")):
        return None
    if not isinstance(value, str):
        raise CspoError(f"Setting {name} = {value!r} is not text. Write it as in {EXAMPLE}.")
    return parse_rule(value).text


class Stopping:
    """How long the rule of a run has held; without a rule it never does.

    Attributes:
        count: Newest epochs in a row in which it held.
    """

    def __init__(self, text: str | None) -> None:
        """Start with no epoch seen."""
        self.rule, self.count = None if text is None else parse_rule(text), 0

    def see(self, report: EpochReport) -> None:
        """Take in an epoch."""
        if self.rule is not None:
            self.count = self.count + 1 if self.rule.holds(report) else 0

    @property
    def is_due(self) -> bool:
        """Whether the rule ends the run."""
        return self.rule is not None and self.count >= self.rule.epochs

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of it: nothing without a rule."""
        return {} if self.rule is None else {"stop": {"rule": self.rule.text, "count": self.count}}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Put back what `state_dict` returned; another rule than then begins to count here."""
        kept = saved.get("stop", {})
        same = self.rule is not None and kept.get("rule") == self.rule.text
        self.count = int(kept["count"]) if same else 0
