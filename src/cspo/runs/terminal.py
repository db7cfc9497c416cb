"""Rich's console, for commands whose reader may leave (`cspo study status DIR | head -1`)."""

from __future__ import annotations

from rich.console import Console


class Terminal(Console):
    """Rich's, but that a reader who left is not a failure: the command line ends quietly."""

    def on_broken_pipe(self) -> None:
        """Raise what happened; Rich would end the process with exit code 1 and without a word."""
        raise BrokenPipeError
