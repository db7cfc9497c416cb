"""`cspo toy`: the paper's first figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from cspo.commands.options import parse, typed
from cspo.errors import CspoError
from cspo.settings import check_fields, not_negative, positive, setting

LONGEST = 100_000  # iterations


@dataclass(frozen=True)
class ToyOptions:
    """Draw primal-dual descent and CSPO on a problem with two parameters and a steep boundary.

    Both start at the same point with the same step sizes and lambda = 0. Writes toy.png, toy.svg
    and toy.gif.
    """

    out: Annotated[str, tyro.conf.arg(metavar="DIR")] = "toy"
    """Folder for the pictures."""
    steps: typed(int, "steps") = setting(200, positive)  # type: ignore[valid-type]
    """Iterations."""
    alpha: typed(float, "alpha") = setting(0.85, not_negative)  # type: ignore[valid-type]
    """Fraction of the violation that CSPO's correction aims to remove."""
    step_theta: typed(float, "step_theta") = setting(0.1, positive)  # type: ignore[valid-type]
    """Step size of the parameters, for both."""
    step_lambda: typed(float, "step_lambda") = setting(0.05, positive)  # type: ignore[valid-type]
    """Step size of the multiplier, for both."""
    steepness: typed(float, "steepness") = 2.0  # type: ignore[valid-type]
    """Exponent of the constraint: larger is steeper, with the same feasible set."""
    curvature: typed(float, "curvature") = setting(0.2, positive)  # type: ignore[valid-type]
    """Curvature of the objective: smaller makes the boundary steeper next to it."""
    start: typed(tuple[float, ...], "start") = (0.0, 1.5)  # type: ignore[valid-type]
    """Where both start."""
    gif: bool = True
    """Write the animation too."""


def main(arguments: Sequence[str]) -> int:
    """Run `cspo toy`."""
    options = parse(ToyOptions, "toy", arguments)
    check_fields(options)
    if options.steps > LONGEST:
        raise CspoError(f"--steps must be at most {LONGEST}, not {options.steps}.")
    if not 1.0 <= options.steepness <= 10.0:
        raise CspoError(f"--steepness must be from 1 to 10, not {options.steepness:g}.")
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
