"""`cspo toy`: gradients, the optimum, the closed forms of CSPO's steps, the page and the files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.optimize import approx_fprime, minimize

from cspo.commands.options import parse
from cspo.commands.toy import ToyOptions
from cspo.commands.toy import main as toy
from cspo.errors import CspoError
from cspo.lab.toy import METHODS, Problem, follow, format_table
from cspo.lab.toy.methods import (
    EPSILON,
    Trajectory,
    cspo_price,
    cspo_step,
    paper_step,
    primal_dual_step,
)

PAGE = (Path(__file__).parent.parent / "docs" / "toy.md").read_text()
START, SIZES = (0.0, 1.5), (0.2, 0.05)  # step sizes of theta and lambda


class HalfPlane(Problem):
    """A linear constraint, 3 x - 4 y <= 1, and no objective."""

    def gradient_f(self, theta: np.ndarray) -> np.ndarray:
        return np.zeros(2)

    def g(self, theta: np.ndarray) -> np.ndarray:
        return np.asarray(3.0 * theta[..., 0] - 4.0 * theta[..., 1] - 1.0)

    def gradient_g(self, theta: np.ndarray) -> np.ndarray:
        return np.array([3.0, -4.0])


class PulledAcross(HalfPlane):
    """The same with an objective that falls across the boundary: a = (1, -2), a.b = 11."""

    def gradient_f(self, theta: np.ndarray) -> np.ndarray:
        return np.array([-1.0, 2.0])


def moved(
    problem: Problem, theta: np.ndarray, step_theta: float, alpha: float
) -> tuple[np.ndarray, float]:
    """One step of CSPO from theta: the next point and the price that was used."""
    lam = cspo_price(problem, theta, step_theta, alpha)
    return cspo_step(problem, theta, lam, step_theta, alpha)[0], lam


@pytest.mark.parametrize("steepness", [1.0, 2.0, 3.5])
def test_gradients_are_those_of_finite_differences(steepness: float) -> None:
    problem = Problem(steepness)
    for theta in np.random.default_rng(0).uniform(-2.0, 2.0, (20, 2)):
        for value, gradient in ((problem.f, problem.gradient_f), (problem.g, problem.gradient_g)):
            numeric = approx_fprime(theta, lambda point, value=value: float(value(point)), 1e-7)
            np.testing.assert_allclose(gradient(theta), numeric, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("steepness", [1.0, 2.0, 3.5])
def test_optimum_is_what_a_general_solver_finds(steepness: float) -> None:
    # Written out again, without the problem's own functions.
    found = minimize(
        lambda t: 0.1 * ((t[0] - 2.0) ** 2 + (t[1] - 1.5) ** 2),
        [0.5, 0.5],
        constraints={"type": "ineq", "fun": lambda t: 1.0 - (t[0] ** 2 / 4.0 + t[1] ** 2)},
        method="SLSQP",
        options={"ftol": 1e-14},
    )
    problem = Problem(steepness)
    theta, lam = problem.optimum()
    np.testing.assert_allclose(theta, found.x, atol=1e-6)
    # The conditions of Karush, Kuhn and Tucker: feasible, lam >= 0, stationary.
    assert abs(problem.g(theta)) < 1e-9 and lam > 0.0
    np.testing.assert_allclose(
        problem.gradient_f(theta) + lam * problem.gradient_g(theta), 0.0, atol=1e-7
    )


@pytest.mark.parametrize("name", METHODS)
def test_all_end_at_the_optimum(name: str) -> None:
    problem = Problem()
    path = follow(name, problem, START, 600, *SIZES, 0.85)
    theta, lam = problem.optimum()
    np.testing.assert_allclose(path.theta[-1], theta, atol=1e-4)
    assert path.lam[-1] == pytest.approx(lam, abs=1e-4)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_the_papers_penalty_removes_the_fraction_alpha_of_a_linear_violation(alpha: float) -> None:
    problem, theta = HalfPlane(), np.array([2.0, -1.0])  # g = 9
    after, lam = paper_step(problem, theta, 0.0, 1.0, 0.1, alpha)
    assert float(problem.g(after)) == pytest.approx((1.0 - alpha) * 9.0, abs=1e-6)
    assert lam == pytest.approx(0.9)
    # The shortest way back: along the gradient, alpha g / |grad g| long.
    np.testing.assert_allclose(
        after - theta, -alpha * 9.0 / (25.0 + EPSILON) * np.array([3.0, -4.0])
    )
    # With a smaller step size it is that part of it.
    assert float(problem.g(paper_step(problem, theta, 0.0, 0.2, 0.1, alpha)[0])) == pytest.approx(
        (1 - 0.2 * alpha) * 9
    )


@pytest.mark.parametrize("step_theta", [0.01, 0.2, 3.0])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_the_price_leaves_the_fraction_1_minus_alpha_of_a_linear_g(
    alpha: float, step_theta: float
) -> None:
    problem = PulledAcross()
    # Above the limit and below it: g = 9 and, near enough for a price, as much as a free step adds.
    for g in (9.0, -11.0 * step_theta):
        theta = np.array([(1.0 + g) / 3.0, 0.0])
        after, lam = moved(problem, theta, step_theta, alpha)
        assert lam == pytest.approx((11.0 + alpha * g / step_theta) / 25.0, abs=1e-6)
        assert float(problem.g(after)) == pytest.approx((1.0 - alpha) * g, abs=1e-6)
    # Farther inside it costs nothing: the step is that of f alone.
    theta = np.array([(1.0 - 50.0 * step_theta) / 3.0, 0.0])
    after, lam = moved(problem, theta, step_theta, 0.3)
    assert lam == 0.0
    np.testing.assert_allclose(after - theta, step_theta * np.array([1.0, -2.0]))


@pytest.mark.parametrize("alpha", [0.0, 0.85, 1.0])
@pytest.mark.parametrize("steepness", [1.0, 2.0, 3.5])
def test_the_price_keeps_the_optimum(steepness: float, alpha: float) -> None:
    problem = Problem(steepness)
    theta, multiplier = problem.optimum()
    after, lam = moved(problem, theta, 0.1, alpha)
    np.testing.assert_allclose(after, theta, atol=1e-8)
    assert lam == pytest.approx(multiplier, rel=1e-6)


def test_the_price_makes_the_step_a_projection() -> None:
    """The nearest point to the step of f alone where g, made linear, is at most (1 - alpha) g."""
    problem, step_theta, alpha = Problem(), 0.3, 0.6
    priced = 0
    for theta in np.random.default_rng(1).uniform(-1.5, 1.5, (30, 2)):
        g, b = float(problem.g(theta)), problem.gradient_g(theta)
        free = -step_theta * problem.gradient_f(theta)
        found = minimize(
            lambda step, free=free: ((step - free) ** 2).sum(),
            np.zeros(2),
            jac=lambda step, free=free: 2.0 * (step - free),
            constraints={"type": "ineq", "fun": lambda step, b=b, g=g: -alpha * g - b @ step},
            method="SLSQP",
            options={"ftol": 1e-15},
        )
        after, lam = moved(problem, theta, step_theta, alpha)
        np.testing.assert_allclose(after - theta, found.x, atol=1e-6)
        priced += lam > 0.0
    assert 5 <= priced <= 25  # both kinds of step were there


def test_the_price_of_a_trajectory_is_the_one_that_leaves_its_row() -> None:
    problem = Problem()
    path = follow("CSPO", problem, START, 20, 0.1, 0.05, 0.85)
    # At (0, 1.5): a = (0.4, 0), b = (0, 4 * 2.25 * 1.5), so rho = 0; g = 1.5^4 - 1.
    assert path.lam[0] == pytest.approx(0.85 * 4.0625 / (0.1 * 13.5**2))
    for row in range(20):
        gradient = problem.gradient_f(path.theta[row]) + path.lam[row] * problem.gradient_g(
            path.theta[row]
        )
        np.testing.assert_allclose(path.theta[row + 1], path.theta[row] - 0.1 * gradient)
    flat = follow("CSPO", problem, (0.0, 0.0), 1, 0.1, 0.05, 0.85)  # grad g = 0: nothing to pay for
    np.testing.assert_allclose(flat.theta[1], [0.04, 0.03])
    assert flat.lam[0] == 0.0


def test_within_the_limit_the_papers_cspo_is_primal_dual() -> None:
    problem, theta = Problem(), np.array([0.5, 0.5])
    ours, theirs = (
        paper_step(problem, theta, 0.3, *SIZES, 0.85),
        primal_dual_step(problem, theta, 0.3, *SIZES),
    )
    assert problem.g(theta) < 0.0
    np.testing.assert_array_equal(ours[0], theirs[0])
    assert ours[1] == theirs[1] == max(0.0, 0.3 + 0.05 * float(problem.g(theta)))
    unaided = follow(
        "CSPO (paper)", problem, START, 100, *SIZES, 0.0
    )  # and with alpha = 0 everywhere
    np.testing.assert_array_equal(
        unaided.theta, follow("primal-dual", problem, START, 100, *SIZES, 0.0).theta
    )


def test_what_is_counted() -> None:
    g = np.array([2.0, 1.0, -1.0, 0.5, -0.5, 0.25, 0.75, 1e-9])
    path = Trajectory("CSPO", np.zeros((8, 2)), np.zeros(8), g)
    assert path.violations == [2, 1, 2] and path.first_safe == 2
    lines = format_table([path], Problem()).splitlines()[1:]
    table = {label.rstrip(): value for label, value in (line.rsplit(" ", 1) for line in lines)}
    assert table["iterations above the limit"] == "5" and table["violations"] == "3"
    assert table["the same, counting any g > 0"] == "6"
    assert (
        table["largest violation after that"] == "0.750"
        and table["deepest overshoot (least g)"] == "-1.000"
    )
    never = Trajectory("CSPO", np.zeros((2, 2)), np.zeros(2), np.ones(2))
    assert never.first_safe is None and "never" in format_table([never], Problem())


def test_the_grid_in_the_documentation() -> None:
    """docs/toy.md shows every setting that was tried, the unfavourable ones too."""
    above, after, safe = [], [], []
    for curvature in (0.2, 0.5, 1.0):
        for step_theta in (0.05, 0.1, 0.2):
            cells = []
            for step_lambda in (0.01, 0.02, 0.05, 0.1):
                sizes = (step_theta, step_lambda, 0.85)
                paths = [
                    follow(name, Problem(2.0, curvature), START, 200, *sizes) for name in METHODS
                ]
                above.append([sum(path.violations) for path in paths])
                after.append([path.largest_after for path in paths])
                safe.append([201 if path.first_safe is None else path.first_safe for path in paths])
                assert (paths[2].g > 0.0).all()
                cells.append(f"{above[-1][0]} / {above[-1][1]}")
            row = f"| {curvature:g} | {step_theta:g} | {' | '.join(cells)} | {above[-1][2]} |"
            assert row in PAGE
    fewer, more = sum(y < x for x, y, _ in above), sum(y > x for x, y, _ in above)
    # A method that never recovers has no violation after that.
    smaller = sum(x is not None and y is not None and y < x for x, y, _ in after)
    least = sum(z < min(x, y) for x, y, z in above)
    later = sum(z > min(x, y) for x, y, z in safe)
    said = " ".join(PAGE.split())
    for sentence in (
        f"than primal-dual in {fewer} of the 36, as many in {36 - fewer - more} and more in {more}",
        f"after the first recovery is smaller in {smaller}.",
        f"CSPO spends fewer than both in {least} of the 36.",
        f"It comes back later than the quicker of the two in {later} of them,",
    ):
        assert sentence in said


def counted(command: str) -> dict[str, list[str]]:
    """What a command of the page prints, by label, without its pictures."""
    options = parse(ToyOptions, "toy", command.split()[2:])
    problem = Problem(options.steepness, options.curvature)
    sizes = (options.step_theta, options.step_lambda, options.alpha)
    paths = [follow(name, problem, options.start, options.steps, *sizes) for name in METHODS]
    lines = format_table(paths, problem).splitlines()[1:]
    return {" ".join(line.split()[:-3]): line.split()[-3:] for line in lines}


def test_the_tables_in_the_documentation() -> None:
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.splitlines()]
    default = counted("cspo toy")
    assert sum(row[1:] == default[row[0]] for row in rows if row and row[0] in default) == 8
    unfavourable = [row for row in rows if row and row[0].startswith("`cspo toy")]
    assert len(unfavourable) == 10
    for command, label, *values in unfavourable:
        assert values == counted(command.strip("`"))[label], command


def test_the_sentences_in_the_documentation() -> None:
    label, said = "iterations above the limit", " ".join(PAGE.split())
    assert "(4 and 3 iterations above the limit); at 1.5 there are four violations" in said
    assert [counted(f"cspo toy --alpha {alpha}")[label][2] for alpha in (1, 1.2)] == ["4", "3"]
    assert counted("cspo toy --alpha 1.5")["violations"][2] == "4"
    assert "(`--start 0,0`: 79, 76 and 0 iterations above the limit)" in said
    assert counted("cspo toy --start 0,0")[label] == ["79", "76", "0"]
    for steepness in (5, 10):
        assert counted(f"cspo toy --start 0,0 --steepness {steepness}")[label][2] == "0"
    assert "leaves by 0.934 (the others by 3.940 and 3.194)" in said
    largest = counted("cspo toy --start=-1,-0.5 --curvature 1 --step-theta 0.5")
    assert largest["largest violation after that"] == ["3.940", "3.194", "0.934"]
    assert "it has 113 iterations above the limit" in said
    units = counted("cspo toy --alpha 8.5")
    assert units[label][1] == "113" and units["longest violation, iterations"][1] == "111"
    assert units["deepest overshoot (least g)"][1] == "-0.707"


@pytest.mark.parametrize(
    ("steepness", "start", "step_theta"),
    [(5.0, START, 0.1), (2.0, (3.0, 3.0), 0.1), (2.0, START, 2.0), (2.0, START, 6.0)],
)
def test_where_the_others_diverge_the_price_converges(
    steepness: float, start: tuple[float, float], step_theta: float
) -> None:
    problem = Problem(steepness)
    for name in ("primal-dual", "CSPO (paper)"):
        with pytest.raises(CspoError, match=r"use a smaller --step-theta.*--step-lambda"):
            follow(name, problem, start, 200, step_theta, 0.05, 0.85)
    path = follow("CSPO", problem, start, 600, step_theta, 0.05, 0.85)
    np.testing.assert_allclose(path.theta[-1], problem.optimum()[0], atol=1e-4)


def test_too_large_steps_with_a_price() -> None:
    assert follow("CSPO", Problem(), START, 200, 7.0, 0.05, 0.85).first_safe is None
    with pytest.raises(CspoError, match=r"^CSPO diverges .* --step-theta or --alpha\.$"):
        follow("CSPO", Problem(), START, 200, 50.0, 0.05, 0.85)


def test_the_files_and_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--steps", "40"]
    assert toy([*words, "--out", str(tmp_path / "a")]) == 0
    output = capsys.readouterr().out
    assert all(f"  {name}" in output for name in METHODS)
    assert "iterations above the limit" in output
    names = {"toy.png", "toy.svg", "toy.gif"}
    assert {path.name for path in (tmp_path / "a").iterdir()} == names
    with Image.open(tmp_path / "a" / "toy.gif") as animation:
        assert animation.n_frames >= 20 and animation.width >= 600
    # Again, in another process: the same bytes.
    code = "import sys; from cspo.commands.toy import main; sys.exit(main(sys.argv[1:]))"
    subprocess.run(
        [sys.executable, "-c", code, *words, "--out", str(tmp_path / "b")],
        check=True,
        capture_output=True,
    )
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    assert (
        toy(
            [
                *words,
                "--no-gif",
                "--steepness",
                "3",
                "--start",
                "1,1.2",
                "--out",
                str(tmp_path / "c"),
            ]
        )
        == 0
    )
    assert {path.name for path in (tmp_path / "c").iterdir()} == {"toy.png", "toy.svg"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--steps 0", "--steps must be positive"),
        ("--steps many", "--steps many: that is not a whole number."),
        ("--steps 1_000_000", "--steps must be at most"),
        ("--alpha -1", "--alpha must not be negative"),
        ("--step-theta 0", "--step-theta must be positive"),
        ("--step-theta 50", "diverges in iteration"),
        ("--step-lambda nan", "--step-lambda"),
        ("--curvature 0", "--curvature must be positive"),
        ("--steepness 0.5", "--steepness must be from 1 to 10"),
        ("--start 1", "--start takes two numbers"),
        ("--start 1,nan", "--start"),
        ("--alfa 1", "did you mean '--alpha'?"),
        ("extra", "'extra'"),
        ("--steps 5 --out file", "Cannot write to file"),
    ],
)
def test_wrong_arguments(
    words: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CspoError) as fault:
        toy(words.split())
    assert said in str(fault.value) and len(str(fault.value).splitlines()) == 1
