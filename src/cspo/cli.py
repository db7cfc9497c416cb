"""The `cspo` command: finds the command, calls it, and turns errors into one or two lines."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

from cspo import __version__
from cspo.errors import CspoError, nearest, told, users_place

# name: (module and function that runs it, what it does)
COMMANDS = {
    "train": ("cspo.commands.train:main", "train a policy, or resume a run"),
    "check-env": ("cspo.commands.check_env:main", "try an environment, say what is wrong with it"),
    "probe": ("cspo.commands.probe:main", "train briefly without a limit, and propose limits"),
    "init": ("cspo.commands.init:main", "write a starter: environment with a cost, settings, test"),
    "eval": ("cspo.commands.runs:evaluate", "measure the policy of a run"),
    "export": ("cspo.commands.export:main", "write a policy as one file, to take away"),
    "plot": ("cspo.commands.runs:plot", "draw the learning curve of a run again"),
    "study": ("cspo.commands.study:main", "train a grid of runs, or continue it"),
    "watch": ("cspo.commands.watch:main", "follow a training or a study on a local page"),
    "metrics": ("cspo.commands.metrics:metrics", "measure how runs recover from violations"),
    "report": ("cspo.commands.report:main", "write the tables, figures and page of a study"),
    "toy": ("cspo.commands.toy:main", "draw the paper's first figure"),
    "tasks": ("cspo.commands.lists:tasks", "list the native tasks"),
    "algos": ("cspo.commands.lists:algos", "list the algorithms"),
    "bench": ("cspo.commands.measure:bench", "measure the speed of a task or of training"),
    "parity": ("cspo.commands.measure:parity", "compare the tasks with recorded transitions"),
    "doctor": ("cspo.commands.doctor:main", "check this installation"),
    "completion": ("cspo.commands.completion:main", "print a script that completes on Tab"),
}
GREETING = f"""\
cspo {__version__}: train policies that maximise return while keeping costs under limits.

  cspo doctor             check that everything works here
  cspo train SafetyHopperVelocity-v1 --total-steps 1e6
                          train a policy; its numbers, picture and checkpoints go to runs/
  cspo eval runs/*        measure it: return, cost, how often the limit is kept
  cspo tasks              list the tasks; a Gymnasium id, or an environment of your own, works too
  cspo init               begin with an environment of your own
`cspo --help` lists all commands, `cspo COMMAND --help` explains one."""
USAGE, INTERRUPTED = 2, 130  # exit codes
TRACEBACK = "--traceback"  # with any command


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    in_full = TRACEBACK in arguments
    shown, warnings.showwarning = warnings.showwarning, _show_warning
    try:
        code = _run([word for word in arguments if word != TRACEBACK])
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BaseException as fault:
        if (explanation := _explain(fault)) is None:
            raise
        if in_full and explanation:
            traceback.print_exception(fault)
        elif explanation:
            first, *others = explanation.split("\n")
            more = f" `{TRACEBACK}` shows all of it." if _has_more(fault) else ""
            print(f"cspo: error: {first}{more}", *others, sep="\n", file=sys.stderr)
        return USAGE if explanation else 0
    finally:
        warnings.showwarning = shown


def _explain(fault: BaseException) -> str | None:
    """Return what to say of a fault; nothing if it is none, None if this program is to blame."""
    if isinstance(fault, CspoError):
        return str(fault)
    if (place := users_place(fault)) is not None:
        # Whatever a user's code raises, `sys.exit(0)` say, is a fault: it was not asked to end us.
        return f"{told(fault)} ({place})."
    if isinstance(fault, BrokenPipeError):
        # The reader left (`cspo tasks | head -1`): nothing to say, and nothing left to flush at
        # exit.
        _mute()
        return ""
    if not isinstance(fault, Exception):
        return None
    if isinstance(fault, OSError) and fault.strerror:
        # Of a name too long, say, or of an output that goes to a full disk.
        if fault.filename is None:
            _mute()
            return f"the system refused something: {fault.strerror}."
        return f"{fault.strerror}: {str(fault.filename)!r:.200}"
    if isinstance(fault, ValueError) and "null byte" in str(fault):
        return "the name of a file must not hold a null character."
    from cspo.envs.tools.opengl import explain_import

    return explain_import(fault)


def _mute() -> None:
    """Leave nothing to be flushed at exit, which would fail once more."""
    with contextlib.suppress(OSError, ValueError):  # of a stream that is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _has_more(fault: BaseException) -> bool:
    """Whether a fault has another behind it, of which only the outcome was told."""
    cause = fault.__cause__
    while isinstance(cause, CspoError):
        cause = cause.__cause__
    return users_place(fault if cause is None else cause) is not None


def _show_warning(
    message: Warning | str, category: type[Warning], *where: Any, **more: Any
) -> None:
    """Print a warning of ours as a line; another one as Python does."""
    ours = category.__module__.startswith("cspo.")
    plain = warnings.formatwarning(message, category, *where[:2])
    sys.stderr.write(f"cspo: warning: {message}\n" if ours else plain)


def _run(arguments: Sequence[str]) -> int:
    if not arguments:
        print(GREETING)
        return 0
    name = arguments[0]
    if name in ("-h", "--help", "help"):
        print(_help())
        return 0
    if name in ("--version", "-V"):
        print(_versions())
        return 0
    if name not in COMMANDS:
        what = "option" if name.startswith("-") else "command"
        raise CspoError(
            f"there is no {what} {name!r}: {nearest(name, [*COMMANDS, '--help', '--version'])}"
        )
    module, function = COMMANDS[name][0].split(":")
    code: int = getattr(importlib.import_module(module), function)(list(arguments[1:]))
    return code


def _versions() -> str:
    """Return the version, and those of everything that decides how this program behaves."""
    from importlib.metadata import PackageNotFoundError, version

    from cspo.runs.summary import commit, versions

    found = versions()
    head = f"cspo {found.pop('cspo')}"
    if (checkout := commit()) is not None:
        head += f" (commit {checkout})"
    try:
        found["torch"] = version("torch")
    except PackageNotFoundError:
        found["torch"] = "not installed; only networks and losses written in it need it"
    return "\n".join([head, *(f"  {name:<9}  {text}" for name, text in found.items())])


def _help() -> str:
    rows = [f"  {name:<10}  {summary}" for name, (_, summary) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: cspo COMMAND ...",
            "",
            "Train policies that maximise return while keeping costs under limits.",
            "",
            *rows,
            "",
            "Try:",
            "  cspo train SafetyHopperVelocity-v1 --cost-limit 25 --total-steps 1e6",
            "",
            "`cspo COMMAND --help` explains a command; `cspo --version` prints the versions.",
            f"`{TRACEBACK}`, with any command, shows where an error came from.",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
