"""What is drawn of a run: its charts, from the columns that its log has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cspo.types import cost_labels

# (column, what it is called, how it is drawn) beside the price of a constraint.
PARTS = (
    ("price_rho", "ρ, holds the cost", "first"),
    ("price_delta", "δ, by experience and time", "second"),
    ("price_push", "push, by distance", "third"),
    ("effective_multiplier", "with penalty", "first"),
    ("penalty", "penalty", "second"),
    ("integral", "integral", "third"),
    ("nu", "ν, in the step", "first"),
)
# Small charts below: column, title.
CONTROL = (("sensitivity", "Sensitivity S"), ("gain", "Gain K"), ("margin", "Margin"))
GENERAL = (
    ("steps_per_second", "Steps per second"),
    ("kl", "KL of the update"),
    ("episode_length", "Episode length"),
    ("policy_std", "Policy's deviation"),
    ("choice_entropy", "Entropy of choices"),
)
MOST_CONSTRAINTS = 12  # that are drawn; a log of a stranger may name any number


@dataclass(frozen=True)
class Line:
    """One line of a chart: the column it shows, its name, and how it is drawn."""

    column: str
    title: str
    look: str  # a class of watch.css
    minus: str = ""  # a column that is subtracted: the limit less its margin is what is aimed at


@dataclass(frozen=True)
class Chart:
    """Lines over the same steps."""

    title: str
    lines: tuple[Line, ...]
    size: str = "large"  # or "small"
    from_zero: bool = False  # whether zero is in sight as long as nothing is below it
    optional: bool = False  # not drawn while all its values are zero


def charts_of(header: Sequence[str], cost_names: Sequence[str] = ()) -> list[Chart]:
    """Return the charts of a log with these columns.

    Args:
        header: Names of the columns of progress.csv.
        cost_names: Names of the constraints, if they are known.
    """
    known = set(header)
    suffixes = [""] if "cost" in known else [f"_{k}" for k in range(MOST_CONSTRAINTS)]
    suffixes = [suffix for suffix in suffixes if f"cost{suffix}" in known]
    numbers = [suffix.lstrip("_") for suffix in suffixes]
    names = cost_names if len(cost_names) == len(suffixes) else numbers
    labels = [label[:1].upper() + label[1:] for label in cost_labels(names)] if suffixes else []
    charts = [Chart("Return", (Line("return", "return", "return"),))] if "return" in known else []
    charts += [_cost(known, *pair) for pair in zip(suffixes, labels, strict=True)]
    several = len(suffixes) > 1
    wheres = [f" of {label.lower()}" if several else "" for label in labels]
    for suffix, where in zip(suffixes, wheres, strict=True):
        charts += _price(known, suffix, where)
    for column, title in CONTROL:
        pairs = zip(suffixes, wheres, strict=True)
        charts += [_small(f"{column}{suffix}", title + where) for suffix, where in pairs]
    charts += [_small(column, title) for column, title in GENERAL]
    return [chart for chart in charts if chart.lines[0].column in known]


def columns_of(charts: Sequence[Chart]) -> list[str]:
    """Return the columns that charts need, with the steps they are drawn over."""
    lines = [line for chart in charts for line in chart.lines]
    needed = [name for line in lines for name in (line.column, line.minus) if name]
    return list(dict.fromkeys(["epoch", "steps", *needed]))


def as_data(charts: Sequence[Chart]) -> list[dict[str, Any]]:
    """Return charts as the page reads them."""
    return [asdict(chart) for chart in charts]


def _cost(known: set[str], suffix: str, label: str) -> Chart:
    lines = [Line(f"cost{suffix}", "cost", "cost")]
    limit, margin = f"cost_limit{suffix}", f"margin{suffix}"
    if limit in known:
        lines.append(Line(limit, "limit", "limit"))
        if margin in known:
            lines.append(Line(limit, "aim", "aim", minus=margin))
    return Chart(label, tuple(lines), from_zero=True)


def _price(known: set[str], suffix: str, where: str) -> list[Chart]:
    # Columns of an algorithm that takes one constraint alone have no number.
    parts = [(name + suffix, title, look) for name, title, look in PARTS if name + suffix in known]
    priced = f"price_rho{suffix}" in known
    main = Line(f"multiplier{suffix}", "price" if priced else "multiplier", "price")
    title = ("Price and its parts" if priced else "Multiplier") + where
    return [Chart(title, (main, *(Line(*part) for part in parts)), optional=True)]


def _small(column: str, title: str) -> Chart:
    return Chart(title, (Line(column, title, "plain"),), size="small", optional=True)
