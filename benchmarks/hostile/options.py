"""Wrong values of every option of every command."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from random import Random
from typing import Any, Literal

from hostile.bases import SHORT, TASK
from hostile.case import EITHER, FINE, REFUSED, Case

KIND = "options"
DIGITS = "9" * 5000
# Words that are wrong for a type, whatever else is asked of the value.
WRONG: dict[Any, tuple[str, ...]] = {
    int: (
        *("", "abc", "1.5", "nan", "inf", "-inf", "1e400", "0x10", "1,2", " ", "true", DIGITS),
        *("--", "1e", "½", "[1", "{}", "-", "1 2", "\x1b[31m", "é\udcff"),
    ),
    float: ("", "abc", "0x10", "1,2", " ", "true", "--", "1e", "½", "[", "{}", "1 2", "\x1b[31m"),
    bool: ("=yes", "=", "=1", "=\udcff"),
}
LISTS = ("abc", "1,,2", "1;2", "[[1]]", "nan,x", ",", "1,2,", "--", "\x1b[31m", "½")
TABLES = ("x", "a=", "=1", "a=b", "a=1,a=2", "a={", "a=1}", "[x]", "a=" + "[" * 2000, "a=1\nb=2")
TABLES += ("a=" + DIGITS, "a=1979-05-27", 'a="', "speed=2 mode=3", 'x="y"} #')
CHOICES = ("", "nothing", "AUTO ", "auto,off", "1", "--", "\udcff", "x" * 100_000)


def cases(random: Random) -> Iterator[Case]:
    """Yield drawn wrong values of every option, and command lines that are wrong as a whole."""
    for command, words, group, skipped in _commands():
        found = list(_of_command(command, words, group, skipped))
        # Every option at least once, then what is drawn.
        first = {name: random.choice(values) for name, values in _by_option(found).items()}
        rest = [case for case in found if case not in first.values()]
        yield from first.values()
        yield from random.sample(rest, min(len(rest), len(first) // 3))
    yield from _whole_lines()
    yield from _sizes()


def _by_option(cases: list[Case]) -> dict[str, list[Case]]:
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.name.split(" ")[1], []).append(case)
    return groups


def _commands() -> list[tuple[str, tuple[str, ...], Any, set[str]]]:
    """Return commands: name, words that are right, the class of its options, those left out."""
    from cspo.commands import doctor, lists, measure, metrics, report, runs, study, toy, train

    short = ("train", TASK, *SHORT, "--run-dir", "new")
    files = {"run_dir", "config", "resume", "plugin", "task", "algo"}
    resume = ("train", "--resume", "run", "--quiet")
    bench = ("bench", "env", TASK, "--num-envs", "1", "--seconds", "0.05")
    measured = ("bench", "train", TASK, "--epochs", "1")
    files |= {"out", "runs", "folders", "files", "run", "study", "folder", "video", "archive"}
    files |= {"address", "only", "return_column", "cost_column", "limit_column"}
    return [
        ("train", short, train.options_class("cspo"), files),
        ("train-cpo", (*short, "--algo", "cpo"), train.options_class("cpo"), files | _general()),
        ("resume", resume, train.ResumeOptions, files),
        ("eval", ("eval", "run", "--episodes", "1"), runs.EvalOptions, files | {"json"}),
        ("metrics", ("metrics", "run"), metrics.MetricsOptions, files),
        ("report", ("report", "run"), report.ReportOptions, files),
        ("toy", ("toy", "--out", "out", "--no-gif"), toy.ToyOptions, files),
        ("tasks", ("tasks",), lists.TasksOptions, files),
        ("algos", ("algos",), lists.AlgosOptions, files),
        ("bench-env", bench, measure.BenchEnvOptions, files),
        ("bench-train", measured, measure.BenchTrainOptions, files | {"runs"}),
        ("doctor", ("doctor",), doctor.DoctorOptions, files),
        ("study-run", ("study", "run", "smoke", "--out", "out"), study.RunOptions, files),
        ("study-status", ("study", "status", "study"), study.StatusOptions, files),
        ("study-list", ("study", "list"), study.ListOptions, files),
    ]


def _general() -> set[str]:
    from cspo.config import general_fields

    return {item.name for _, item in general_fields()} | {"quiet"}


def _of_command(
    command: str, words: tuple[str, ...], group: Any, skipped: set[str]
) -> Iterator[Case]:
    for name, hint in _fields(group):
        if name in skipped:
            continue
        option = "--" + name.replace("_", "-")
        for value in _values(hint):
            typed = (*words, option + value) if hint is bool else (*words, option, value)
            shown = value if len(value) < 30 else f"{value[:8]}... ({len(value)} characters)"
            bases = {"run": "run", "study": "study"}
            yield Case(KIND, f"{command} {option} {shown!r}", typed, bases)


def _fields(group: Any) -> Iterator[tuple[str, Any]]:
    hints = typing.get_type_hints(group)
    for item in dataclasses.fields(group):
        hint = hints[item.name]
        if dataclasses.is_dataclass(hint):
            yield from _fields(hint)
        else:
            yield item.name, hint


def _values(hint: Any) -> tuple[str, ...]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return CHOICES
    if origin is dict:
        return TABLES
    if origin is tuple:
        return LISTS if arguments[0] in (int, float) else ()
    if arguments:  # X | None
        return _values(arguments[0])
    return WRONG.get(hint, ())


def _whole_lines() -> Iterator[Case]:
    """Yield command lines, each with the exit codes that are right."""
    short = ("train", TASK, *SHORT, "--run-dir", "new")
    lines: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
        "no such command": (("trian",), REFUSED),
        "no such option": (("--verson",), REFUSED),
        "an empty command": (("",), REFUSED),
        "a command that is no text": (("\udcff",), REFUSED),
        "a command of 1e5 letters": (("x" * 100_000,), REFUSED),
        "control characters": (("\x1b[2J",), REFUSED),
        "train nothing": (("train",), REFUSED),
        "train an empty task": (("train", "", *SHORT), REFUSED),
        "train two tasks": ((*short, TASK), REFUSED),
        "train a path": (("train", "/etc/passwd", *SHORT), REFUSED),
        "train a colon": (("train", ":", *SHORT), REFUSED),
        "train two colons": (("train", "a:b:c", *SHORT), REFUSED),
        "train a relative module": (("train", "..a:b", *SHORT), REFUSED),
        "train no text": (("train", "\udcff", *SHORT), REFUSED),
        "train a module that is no text": (("train", "\udcff:x", *SHORT), REFUSED),
        "train a broken id": (("train", "a/b/c-v0", *SHORT), REFUSED),
        "train 1e5 letters": (("train", "x" * 100_000, *SHORT), REFUSED),
        "train another version": (("train", "SafetyHopperVelocity-v9", *SHORT), REFUSED),
        "an unknown option": ((*short, "--gama", "0.9"), REFUSED),
        "an option without its value": ((*short, "--gamma"), REFUSED),
        "an option of another algorithm": ((*short, "--kp", "1"), REFUSED),
        "the same option twice": ((*short, "--seed", "1", "--seed", "2"), EITHER),
        "an empty algorithm": ((*short, "--algo", ""), REFUSED),
        "an empty algorithm after =": ((*short, "--algo="), REFUSED),
        "an algorithm that is a path": ((*short, "--algo", "../../etc"), REFUSED),
        "an algorithm that is no text": ((*short, "--algo", "\udcff"), REFUSED),
        "an empty run folder": (("train", TASK, *SHORT, "--run-dir", ""), REFUSED),
        "an empty run folder after =": (("train", TASK, *SHORT, "--run-dir="), REFUSED),
        "a run folder that is a file": (
            ("train", TASK, *SHORT, "--run-dir", "outside/precious.txt"),
            REFUSED,
        ),
        "a run folder below a file": (
            ("train", TASK, *SHORT, "--run-dir", "outside/precious.txt/run"),
            REFUSED,
        ),
        "a run folder that holds a run": (("train", TASK, *SHORT, "--run-dir", "run"), REFUSED),
        "a run folder of 5000 letters": (
            ("train", TASK, *SHORT, "--run-dir", "x" * 5000),
            REFUSED,
        ),
        "a run folder that is no text": (("train", TASK, *SHORT, "--run-dir", "\udcff"), EITHER),
        "a run folder with a zero": (("train", TASK, *SHORT, "--run-dir", "a\0b"), REFUSED),
        "a run folder in /dev/full": (("train", TASK, *SHORT, "--run-dir", "/dev/full"), REFUSED),
        "a run folder in /proc": (("train", TASK, *SHORT, "--run-dir", "/proc/x/y"), REFUSED),
        "an empty plugin": ((*short, "--plugin", ""), REFUSED),
        "an empty plugin after =": ((*short, "--plugin="), REFUSED),
        "a plugin that is a folder": ((*short, "--plugin", "outside/"), REFUSED),
        "a plugin that is missing": ((*short, "--plugin", "nothing.py"), REFUSED),
        "a plugin that is no text": ((*short, "--plugin", "\udcff.py"), REFUSED),
        "a plugin with a zero": ((*short, "--plugin", "a\0.py"), REFUSED),
        "a plugin that is relative": ((*short, "--plugin", "..x"), REFUSED),
        "an empty settings file": ((*short, "--config", ""), REFUSED),
        "a settings file that is a folder": ((*short, "--config", "outside"), REFUSED),
        "a settings file with a zero": ((*short, "--config", "a\0b"), REFUSED),
        "the tail of options": ((*short, "--env-options", 'x="y"}\nz = 3 #'), REFUSED),
        "a tail behind options": ((*short, "--env-options", "} \nseed = {x=1"), REFUSED),
        "resume nothing": (("train", "--resume"), REFUSED),
        "resume an empty name": (("train", "--resume", ""), REFUSED),
        "resume with another setting": (("train", "--resume", "run", "--gamma", "0.9"), REFUSED),
        "resume with fewer steps": (("train", "--resume", "run", "--total-steps", "200"), REFUSED),
        "resume with no steps": (("train", "--resume", "run", "--total-steps", "0"), REFUSED),
        "resume an empty plugin": (("train", "--resume", "run", "--plugin", ""), REFUSED),
        "resume with -1 threads": (("train", "--resume", "run", "--threads", "-1"), REFUSED),
        "eval nothing": (("eval",), REFUSED),
        "eval no episodes": (("eval", "run", "--episodes", "0"), REFUSED),
        "eval -1 episodes": (("eval", "run", "--episodes", "-1"), REFUSED),
        "eval a negative seed": (("eval", "run", "--seed", "-1"), REFUSED),
        "eval an empty plugin": (("eval", "run", "--plugin", ""), REFUSED),
        "eval a film of nothing": (("eval", "run", "--video", ""), REFUSED),
        "eval a film of another kind": (("eval", "run", "--video", "a.exe"), REFUSED),
        "eval a film nowhere": (("eval", "run", "--video", "no/where/a.gif"), REFUSED),
        "eval a film of no pictures": (
            ("eval", "run", "--video", "a.gif", "--video-episodes", "0"),
            REFUSED,
        ),
        "eval a film of 1e9 pixels": (
            ("eval", "run", "--video", "a.gif", "--width", "1000000000"),
            REFUSED,
        ),
        "eval a film of -1 pixels": (("eval", "run", "--video", "a.gif", "--height=-1"), REFUSED),
        "metrics nothing": (("metrics",), REFUSED),
        "metrics skip all": (("metrics", "run", "--skip", "1.5"), REFUSED),
        "metrics skip nan": (("metrics", "run", "--skip", "nan"), REFUSED),
        "metrics limit nan": (("metrics", "run", "--limit", "nan"), REFUSED),
        "metrics no such column": (("metrics", "run", "--cost-column", "x"), REFUSED),
        "metrics an empty column": (("metrics", "run", "--return-column", ""), REFUSED),
        "metrics a text": (("metrics", "outside/precious.txt"), REFUSED),
        "metrics a device": (("metrics", "/dev/null"), REFUSED),
        "metrics /dev/zero": (("metrics", "/dev/zero"), REFUSED),
        "report nothing": (("report",), REFUSED),
        "report an empty name": (("report", "", "--out", "out"), REFUSED),
        "report into a file": (("report", "run", "--out", "outside/precious.txt"), REFUSED),
        "report into nothing": (("report", "run", "--out", ""), REFUSED),
        "report with a zero": (("report", "run", "--out", "a\0b"), REFUSED),
        "plot nothing": (("plot",), REFUSED),
        "plot with a zero": (("plot", "a\0b"), REFUSED),
        "toy into a file": (("toy", "--out", "outside/precious.txt", "--no-gif"), REFUSED),
        "toy into nothing": (("toy", "--out", "", "--no-gif"), REFUSED),
        "toy from far away": (("toy", "--start", "1e300,0", "--out", "out"), REFUSED),
        "toy from one number": (("toy", "--start", "1", "--out", "out"), REFUSED),
        "toy from nan": (("toy", "--start", "nan,nan", "--out", "out"), REFUSED),
        "toy with steps of 1e300": (
            ("toy", "--step-theta", "1e300", "--no-gif", "--out", "out"),
            EITHER,
        ),
        "bench nothing": (("bench",), EITHER),
        "bench what": (("bench", "what"), REFUSED),
        "bench no task": (("bench", "env"), REFUSED),
        "bench an unknown task": (("bench", "env", "x"), REFUSED),
        "bench -1 threads": (("bench", "env", TASK, "--threads", "-1"), REFUSED),
        "bench no seconds": (("bench", "env", TASK, "--seconds", "0"), REFUSED),
        "bench nan seconds": (("bench", "env", TASK, "--seconds", "nan"), REFUSED),
        "bench infinite seconds": (("bench", "env", TASK, "--seconds", "inf"), REFUSED),
        "parity nothing": (("parity",), REFUSED),
        "parity a text": (("parity", "outside/precious.txt"), REFUSED),
        "parity a folder": (("parity", "outside"), REFUSED),
        "parity missing": (("parity", "x.npz"), REFUSED),
        "study nothing": (("study", "what"), REFUSED),
        "study run nothing": (("study", "run"), REFUSED),
        "study run without out": (("study", "run", "smoke"), REFUSED),
        "study run unknown": (("study", "run", "x", "--out", "out"), REFUSED),
        "study run a folder": (("study", "run", "outside", "--out", "out"), REFUSED),
        "study run into nothing": (("study", "run", "smoke", "--out", ""), REFUSED),
        "study run into a file": (
            ("study", "run", "smoke", "--out", "outside/precious.txt"),
            REFUSED,
        ),
        "study run only what is not there": (
            ("study", "run", "smoke", "--out", "out", "--only", "x"),
            REFUSED,
        ),
        "study run with no jobs": (("study", "run", "smoke", "--out", "o", "--jobs", "0"), REFUSED),
        "study run an address": (("study", "run", "smoke", "--out", "s3://b/x"), REFUSED),
        "algos of an empty plugin": (("algos", "--plugin", ""), REFUSED),
        "tasks with a word": (("tasks", "x"), REFUSED),
        "help": (("--help",), FINE),
        "help of train": (("train", "--help"), FINE),
        "the version": (("--version",), FINE),
    }
    bases = {"run": "run"}
    for name, (words, expected) in lines.items():
        real = not any("\0" in word or len(word) > 50_000 for word in words)
        process = real and name.startswith(("a command", "no such", "the version", "an empty al"))
        yield Case(KIND, f"line: {name}", words, bases, expected=expected, process=process)


def _sizes() -> Iterator[Case]:
    """Yield sizes that cannot fit into any memory, or come to nothing."""
    short = ("train", TASK, "--passes", "1", "--no-tensorboard", "--quiet", "--run-dir", "new")
    one = (*short, "--num-envs", "4", "--steps-per-epoch", "400", "--total-steps", "400")
    large = "1e12"
    lines = {
        "a billion environments": (
            *(*short, "--num-envs", "1e9", "--steps-per-epoch", "1e9", "--total-steps", "1e9"),
        ),
        "1e18 environments": (
            *(*short, "--num-envs", "1e18", "--steps-per-epoch", "1e18", "--total-steps", "1e18"),
        ),
        "epochs of 1e12 steps": (
            *(*short, "--num-envs", "4", "--steps-per-epoch", large, "--total-steps", large),
        ),
        "epochs of 1e25 steps": (
            *(*short, "--num-envs", "4", "--steps-per-epoch", "1e25", "--total-steps", "1e25"),
        ),
        "layers of 1e19": (*one, "--hidden-sizes", "1e19"),
        "layers of 1e6": (*one, "--hidden-sizes", "1e6,1e6"),
        "layers of 0": (*one, "--hidden-sizes", "0"),
        "layers of -1": (*one, "--hidden-sizes=-1"),
        "a seed of 300 digits, negative": (*one, f"--seed=-{'9' * 300}"),
        "a window of 1e300": (*one, "--episode-window", "1e300"),
        "a hundred thousand threads": (*one, "--threads", "100000"),
        "threads of 1e18": (*one, "--threads", "1e18"),
        "evaluation of 1e18 episodes": ("eval", "run", "--episodes", "1e18"),
        "bench of 1e9 environments": ("bench", "env", TASK, "--num-envs", "1e9"),
        "a toy of 1e18 steps": ("toy", "--steps", "1e18", "--out", "out"),
    }
    for name, words in lines.items():
        expected = EITHER if "threads" in name or "window" in name else REFUSED
        yield Case(KIND, f"size: {name}", words, {"run": "run"}, expected=expected)
