"""The `cspo` command: finds the command, calls it, and turns errors into one or two lines."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from cspo import __version__
from cspo.errors import CspoError, nearest

# name: (module and function that runs it, what it does)
COMMANDS = {
    "train": ("cspo.commands.train:main", "train a policy, or resume a run"),
    "eval": ("cspo.commands.runs:evaluate", "measure the policy of a run"),
    "plot": ("cspo.commands.runs:plot", "draw the learning curve of a run again"),
    "study": ("cspo.commands.study:main", "train a grid of runs, or continue it"),
    "metrics": ("cspo.commands.metrics:metrics", "measure how runs recover from violations"),
    "report": ("cspo.commands.report:main", "write the tables, figures and page of a study"),
    "toy": ("cspo.commands.toy:main", "draw the paper's first figure"),
    "tasks": ("cspo.commands.lists:tasks", "list the native tasks"),
    "algos": ("cspo.commands.lists:algos", "list the algorithms"),
    "bench": ("cspo.commands.measure:bench", "measure the speed of a task or of training"),
    "parity": ("cspo.commands.measure:parity", "compare the tasks with recorded transitions"),
    "doctor": ("cspo.commands.doctor:main", "check this installation"),
}
USAGE, INTERRUPTED = 2, 130  # exit codes


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except CspoError as error:
        print(f"cspo: error: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader left (`cspo tasks | head -1`): nothing to say, and nothing left to flush at
        # exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as fault:
        from cspo.envs.tools.opengl import explain_import

        if (explanation := explain_import(fault)) is None:
            raise
        print(f"cspo: error: {explanation}", file=sys.stderr)
        return USAGE


def _run(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_help())
        return 0
    name = arguments[0]
    if name in ("--version", "-V"):
        print(f"cspo {__version__}")
        return 0
    if name not in COMMANDS:
        what = "option" if name.startswith("-") else "command"
        raise CspoError(
            f"there is no {what} {name!r}: {nearest(name, [*COMMANDS, '--help', '--version'])}"
        )
    module, function = COMMANDS[name][0].split(":")
    code: int = getattr(importlib.import_module(module), function)(list(arguments[1:]))
    return code


def _help() -> str:
    rows = [f"  {name:<8}  {summary}" for name, (_, summary) in COMMANDS.items()]
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
            "`cspo COMMAND --help` explains a command; `cspo --version` prints the version.",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
