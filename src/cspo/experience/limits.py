"""Limits on costs, fixed or moving: how they are written, and which holds in an epoch.

    limits   = number { "," number }  |  limit { ";" limit }     one per constraint, in their order
    limit    = number  |  point { ( "," | "~" ) point }
    point    = number "@" steps                                 the first at 0, in rising order

`25@0, 15@2e6` is 25 and, from 2 million environment steps on, 15. `25@0 ~ 15@2e6` goes there in a
straight line. After its last point a limit stays. An epoch has the limit of its first step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from cspo.errors import CspoError, flag
from cspo.settings import written
from cspo.types import FloatArray

MOST_STEPS = 2**53  # whole numbers below are themselves as floating-point numbers
EXAMPLE = '"25@0, 15@2e6" (25, and 15 from two million steps on; "~" for "," is a line between)'


class Point(NamedTuple):
    """Where a schedule is fixed."""

    limit: float
    steps: int  # environment steps
    linear: bool = False  # whether the way to it from the point before is a line, not a step


Given = tuple[float, float] | tuple[float, float, bool]  # what is taken as a point


@dataclass(frozen=True, init=False)
class Schedule:
    """A limit that moves with the environment steps, such as `Schedule([(25, 0), (15, 2e6)])`.

    Attributes:
        points: `Point(limit, steps, linear)`, the first at 0 steps.
    """

    points: tuple[Point, ...]

    def __init__(self, points: Iterable[Given]) -> None:
        """Take points: tuples of limit, steps and, if a line leads there, True.

        Raises:
            CspoError: Tells what is wrong.
        """
        made = tuple(Point(float(p[0]), *p[1:]) for p in points)  # type: ignore[arg-type]  # below
        wrong = _wrong(made)
        if wrong:
            raise CspoError(f"That is no schedule of a cost limit: {wrong}.")
        whole = tuple(point._replace(steps=int(point.steps)) for point in made)
        object.__setattr__(self, "points", whole)  # frozen

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """Return the schedule that `text` means, as in `"25@0 ~ 15@2e6"`.

        Raises:
            CspoError: Tells what is wrong.
        """
        pieces = re.split(r"([,~])", text)  # points, and between them what leads to the next
        ways = [",", *pieces[1::2]]
        return cls(tuple(map(_point, pieces[::2], ways)))

    def at(self, steps: int) -> float:
        """Return the limit of an epoch that begins after so many environment steps."""
        now = self.points[0]
        for before, after in pairwise(self.points):
            if before.steps <= steps < after.steps and after.linear:
                share = (steps - before.steps) / (after.steps - before.steps)
                return before.limit + share * (after.limit - before.limit)
            now = after if steps >= after.steps else now
        return now.limit

    @property
    def moves(self) -> bool:
        """Whether it ever changes."""
        return len({point.limit for point in self.points}) > 1

    @property
    def tightest(self) -> float:
        """The least of its limits that is not zero."""
        return min(point.limit for point in self.points if point.limit > 0.0 or not self.moves)

    def __str__(self) -> str:
        """Return it as it is written, so that reading it gives it again."""
        texts = [f"{written(p.limit)}@{written(float(p.steps))}" for p in self.points]
        ways = [" ~ " if point.linear else ", " for point in self.points[1:]]
        return "".join([texts[0], *(w + t for w, t in zip(ways, texts[1:], strict=True))])


Limit = float | Schedule


def _point(text: str, way: str) -> Point:
    limit, at, steps = text.partition("@")
    if not at:
        raise CspoError(f"{text.strip()!r} is no point of a schedule: write {EXAMPLE}.")
    values = []
    for part, what in ((limit, "limit"), (steps, "number of steps")):
        try:
            values.append(float(part))
        except ValueError:
            raise CspoError(f"{part.strip()!r} in {text.strip()!r} is no {what}.") from None
    return Point(values[0], values[1], way == "~")  # type: ignore[arg-type]  # whole by `_wrong`


def _wrong(points: Sequence[Point]) -> str | None:
    """Return what is wrong with the points of a schedule, if anything."""
    if not points:
        return "it has no point"
    for point in points:
        if not 0.0 <= point.limit < math.inf:
            return f"the limit {point.limit:g} must be zero or more and finite"
        if not 0 <= point.steps < MOST_STEPS or point.steps != int(point.steps):
            return f"{point.steps:g} must be a whole number of steps"
    if points[0].steps != 0:
        return f"its first point is at {points[0].steps:g} steps, and must be at 0"
    for before, after in pairwise(points):
        if after.steps <= before.steps:
            return f"{after.steps:g} steps follow {before.steps:g}: steps must rise"
    return None


def read_limits(value: Any, name: str = "cost_limit") -> tuple[Limit, ...]:
    """Return limits from text, a number, a schedule, or a list of them; the setting's reader.

    Raises:
        CspoError: Tells what is wrong.
    """
    items = value if isinstance(value, list | tuple) else _parts(value, name)
    return tuple(_limit(item, name) for item in items)


def _parts(value: Any, name: str) -> list[Any]:
    """Return the texts of the constraints in one text; anything else is the only one."""
    if not isinstance(value, str):
        return [value]
    bare = value.strip()
    bare = bare[1:-1] if bare[:1] + bare[-1:] in ("()", "[]") else bare
    if not bare:
        return []
    if "@" not in bare and ";" in bare and "," in bare:
        raise CspoError(f"{flag(name)} {value}: separate limits by commas or by semicolons.")
    return bare.split(";" if "@" in bare or ";" in bare else ",")


def _limit(item: Any, name: str) -> Limit:
    if isinstance(item, Schedule):
        return item
    if isinstance(item, str) and ("@" in item or "~" in item):
        try:
            return Schedule.parse(item)
        except CspoError as fault:
            raise CspoError(f"{flag(name)} {item.strip()}: {fault}") from None
    try:
        if isinstance(item, bool):
            raise ValueError
        return float(item)
    except (TypeError, ValueError, OverflowError):
        shown = item.strip() if isinstance(item, str) else item
        raise CspoError(f"{flag(name)} {shown}: that is not a number.") from None


def check_limits(limits: Iterable[Limit]) -> str | None:
    """Return what is wrong with numbers among limits; a schedule was checked when it was made."""
    numbers = [limit for limit in limits if not isinstance(limit, Schedule)]
    fine = bool(limits) and all(0.0 <= d < math.inf for d in numbers)
    return None if fine else "must be zero or more and finite"


def written_limit(value: Any) -> Any:
    """Return what files hold of an item of a list: a schedule as text, all else as it is."""
    return str(value) if isinstance(value, Schedule) else value


def limits_at(limits: Iterable[Limit], steps: int) -> tuple[float, ...]:
    """Return the limits (K,) of an epoch that begins after so many environment steps."""
    return tuple(d.at(steps) if isinstance(d, Schedule) else d for d in limits)


class Limits:
    """The K limits of a run, epoch by epoch: those of its settings, or what was set since.

    Attributes:
        now: (K,) the limits of the present epoch.
    """

    def __init__(self, limits: Sequence[Limit]) -> None:
        """Start at the limits of the first epoch."""
        self._planned, self._set = tuple(limits), False
        self.now: FloatArray = np.array(limits_at(limits, 0))

    def __len__(self) -> int:
        """Return the number of constraints."""
        return len(self.now)

    def begin_epoch(self, steps: int) -> None:
        """Go to the limits of an epoch that begins after so many environment steps."""
        if not self._set:
            self.now = np.array(limits_at(self._planned, steps))

    def set(self, *limits: float) -> None:
        """Take these limits from now on, in place of those of the settings and their schedule."""
        if len(limits) != len(self) or not all(0 <= d < np.inf for d in limits):
            raise CspoError(f"Give {len(self)} finite limit(s) of zero or more.")
        self.now, self._set = np.array(limits, dtype=float), True

    def typical(self, limit: FloatArray) -> FloatArray:
        """Return what tells the size of the costs (K,): `limit`, or the tightest of a schedule."""
        if self._set:
            return limit
        pairs = zip(self._planned, limit, strict=True)
        moving = (d.tightest if isinstance(d, Schedule) and d.moves else own for d, own in pairs)
        return np.array(list(moving))

    def state_dict(self) -> dict[str, Any]:
        """Return the present limits, and whether they took the place of a schedule."""
        scheduled = any(isinstance(limit, Schedule) for limit in self._planned)
        return {"cost_limit": self.now} | ({"limit_set": True} if self._set and scheduled else {})

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Put back what `state_dict` returned; also that of a run without a schedule."""
        scheduled = any(isinstance(limit, Schedule) for limit in self._planned)
        if scheduled and not saved.get("limit_set", False):
            self.now, self._set = np.array(saved["cost_limit"]), False
        else:
            self.set(*saved["cost_limit"])
