"""`cspo toy`: gradients, the optimum, the closed form of a CSPO step, and the files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.optimize import approx_fprime, minimize

from cspo.commands.toy import main as toy
from cspo.errors import CspoError
from cspo.lab.toy import METHODS, Problem, follow, format_table
from cspo.lab.toy.methods import EPSILON, Trajectory, cspo_step, primal_dual_step

START, SIZES = (0.0, 1.5), (0.2, 0.05)  # step sizes of theta and lambda


class HalfPlane(Problem):
    """A linear constraint, 3 x - 4 y <= 1, and no objective."""

    def gradient_f(self, theta: np.ndarray) -> np.ndarray:
        return np.zeros(2)

    def g(self, theta: np.ndarray) -> np.ndarray:
        return np.asarray(3.0 * theta[..., 0] - 4.0 * theta[..., 1] - 1.0)

    def gradient_g(self, theta: np.ndarray) -> np.ndarray:
        return np.array([3.0, -4.0])


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
def test_both_end_at_the_optimum(name: str) -> None:
    problem = Problem()
    path = follow(name, problem, START, 600, *SIZES, 0.85)
    theta, lam = problem.optimum()
    np.testing.assert_allclose(path.theta[-1], theta, atol=1e-4)
    assert path.lam[-1] == pytest.approx(lam, abs=1e-4)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_a_step_removes_the_fraction_alpha_of_a_linear_violation(alpha: float) -> None:
    problem, theta = HalfPlane(), np.array([2.0, -1.0])  # g = 9
    after, lam = cspo_step(problem, theta, 0.0, 1.0, 0.1, alpha)
    assert float(problem.g(after)) == pytest.approx((1.0 - alpha) * 9.0, abs=1e-6)
    assert lam == pytest.approx(0.9)
    # The shortest way back: along the gradient, alpha g / |grad g| long.
    np.testing.assert_allclose(
        after - theta, -alpha * 9.0 / (25.0 + EPSILON) * np.array([3.0, -4.0])
    )
    # With a smaller step size it is that part of it.
    assert float(problem.g(cspo_step(problem, theta, 0.0, 0.2, 0.1, alpha)[0])) == pytest.approx(
        (1 - 0.2 * alpha) * 9
    )


def test_within_the_limit_cspo_is_primal_dual() -> None:
    problem, theta = Problem(), np.array([0.5, 0.5])
    ours, theirs = (
        cspo_step(problem, theta, 0.3, *SIZES, 0.85),
        primal_dual_step(problem, theta, 0.3, *SIZES),
    )
    assert problem.g(theta) < 0.0
    np.testing.assert_array_equal(ours[0], theirs[0])
    assert ours[1] == theirs[1] == max(0.0, 0.3 + 0.05 * float(problem.g(theta)))
    unaided = follow("CSPO", problem, START, 100, *SIZES, 0.0)  # and with alpha = 0 everywhere
    np.testing.assert_array_equal(
        unaided.theta, follow("primal-dual", problem, START, 100, *SIZES, 0.0).theta
    )


def test_what_is_counted() -> None:
    g = np.array([2.0, 1.0, -1.0, 0.5, -0.5, 0.25, 0.75, 0.0])
    path = Trajectory("CSPO", np.zeros((8, 2)), np.zeros(8), g)
    assert path.violations == [2, 1, 2] and path.first_safe == 2
    lines = format_table([path], Problem()).splitlines()[1:]
    table = {label.rstrip(): value for label, value in (line.rsplit(" ", 1) for line in lines)}
    assert table["iterations above the limit"] == "5" and table["violations"] == "3"
    assert (
        table["largest violation after that"] == "0.750"
        and table["deepest overshoot (least g)"] == "-1.000"
    )
    never = Trajectory("CSPO", np.zeros((2, 2)), np.zeros(2), np.ones(2))
    assert never.first_safe is None and "never" in format_table([never], Problem())


def test_the_settings_in_the_documentation() -> None:
    """docs/toy.md shows every setting that was tried, the unfavourable ones too."""
    page = (Path(__file__).parent.parent / "docs" / "toy.md").read_text()
    above, after = [], []
    for curvature in (0.2, 0.5, 1.0):
        for step_theta in (0.05, 0.1, 0.2):
            cells = []
            for step_lambda in (0.01, 0.02, 0.05, 0.1):
                sizes = (step_theta, step_lambda, 0.85)
                ours = [
                    follow(name, Problem(2.0, curvature), START, 200, *sizes) for name in METHODS
                ]
                above.append([sum(path.violations) for path in ours])
                # A method that never recovers has no violation after that.
                after.append(
                    [
                        None if path.first_safe is None else path.g[path.first_safe :].max()
                        for path in ours
                    ]
                )
                cells.append(f"{above[-1][0]} / {above[-1][1]}")
            assert f"| {curvature:g} | {step_theta:g} | {' | '.join(cells)} |" in page
    fewer, more = sum(y < x for x, y in above), sum(y > x for x, y in above)
    smaller = sum(x is not None and y is not None and max(y, 0.0) < max(x, 0.0) for x, y in after)
    said = " ".join(page.split())
    assert (
        f"above the limit in {fewer} of the 36, as many in {36 - fewer - more} and more in {more};"
        in said
    )
    assert f"is smaller in {smaller}." in said


def test_the_files_and_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--steps", "40"]
    assert toy([*words, "--out", str(tmp_path / "a")]) == 0
    output = capsys.readouterr().out
    assert "primal-dual" in output and "CSPO" in output and "iterations above the limit" in output
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
