"""`cspo toy`: the paper's first figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from cspo.commands.options import parse
from cspo.errors import CspoError
from cspo.settings import not_negative, positive, setting

LONGEST = 100_000  # iterations


def _countable(steps: int) -> str | None:
    return positive(steps) or (f"must be at most {LONGEST}" if steps > LONGEST else None)


def _from_1_to_10(value: float) -> str | None:
    return None if 1.0 <= value <= 10.0 else "must be from 1 to 10"


@dataclass(frozen=True)
class ToyOptions:
    """Draw primal-dual descent and CSPO on a problem with two parameters and a steep boundary.

    CSPO is there twice, as in the paper and with a price. All start at the same point with the same
    step sizes, multipliers at 0. Writes toy.png, toy.svg and toy.gif.
    """

    out: Annotated[str, tyro.conf.arg(metavar="DIR")] = "toy"
    """Folder for the pictures."""
    steps: int = setting(200, _countable)
    """Iterations."""
    alpha: float = setting(0.85, not_negative)
    """Fraction of the violation that a step of CSPO, of either kind, aims to remove."""
    step_theta: float = setting(0.1, positive)
    """Step size of the parameters, for all."""
    step_lambda: float = setting(0.05, positive)
    """Step size of the multiplier; CSPO with a price has none."""
    steepness: float = setting(2.0, _from_1_to_10)
    """Exponent of the constraint: larger is steeper, with the same feasible set."""
    curvature: float = setting(0.2, positive)
    """Curvature of the objective: smaller makes the boundary steeper next to it."""
    start: tuple[float, ...] = (0.0, 1.5)
    """Where all start."""
    gif: bool = True
    """Write the animation too."""


def main(arguments: Sequence[str]) -> int:
    """Run `cspo toy`."""
    options = parse(ToyOptions, "toy", arguments)
    if len(options.start) != 2 or not all(abs(value) <= 3.0 for value in options.start):
        raise CspoError("--start takes two numbers from -3 to 3, as in --start 0,1.5.")

    from cspo.lab.toy import METHODS, Problem, follow, format_table
    from cspo.lab.toy.pictures import draw_pictures

    problem = Problem(options.steepness, options.curvature)
    sizes = (options.step_theta, options.step_lambda, options.alpha)
    paths = [follow(name, problem, options.start, options.steps, *sizes) for name in METHODS]
    files = draw_pictures(problem, paths, Path(options.out), gif=options.gif)
    sizes_named = f"{options.step_theta:g} (theta) and {options.step_lambda:g} (lambda)"
    print(
        f"{options.steps} iterations from ({options.start[0]:g}, {options.start[1]:g}), step sizes "
        f"{sizes_named}, alpha {options.alpha:g}, steepness {options.steepness:g}, "
        f"curvature {options.curvature:g}\n"
    )
    print(format_table(paths, problem))
    print("\nwrote " + ", ".join(map(str, files)))
    return 0
