"""How findings are laid out: marked sentences and a table of distributions, plain in a pipe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from cspo.runs.summary import short_number

if TYPE_CHECKING:
    from cspo.runs.terminal import Terminal

STYLES = {"ok": "green", "WRONG": "bold red", "note": "yellow", "": ""}
COLUMNS = ("mean", "lowest", "10 %", "median", "90 %", "highest", "zero")
KEYS = ("mean", "lowest", "q10", "median", "q90", "highest")


def terminal() -> Terminal:
    """Return what prints: as wide as the screen, or so wide in a pipe that nothing is folded."""
    from cspo.runs.terminal import Terminal

    console = Terminal(highlight=False, markup=False)
    if console.is_terminal:
        return console
    return Terminal(highlight=False, markup=False, width=10_000)


def write(console: Terminal, drawn: Any) -> None:
    """Print a table without the spaces that fill its lines up."""
    with console.capture() as captured:
        console.print(drawn)
    for line in captured.get().splitlines():
        print(line.rstrip())


def marked(rows: Iterable[tuple[str, str, str]]) -> Any:
    """Return rows of a mark, a subject and a sentence, which is folded below itself."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    for column in range(3):
        grid.add_column(no_wrap=column < 2)
    for mark, subject, sentence in rows:
        grid.add_row(Text(mark, STYLES[mark]), subject, sentence)
    return grid


def distributions(rows: Mapping[str, Mapping[str, Any]]) -> Any:
    """Return a table with a row of numbers for each name; the values are of `Distribution`s."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for name in COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    for name, row in rows.items():
        zero = f"{100 * row['zero_share']:.0f} %" if name.startswith("cost") else ""
        table.add_row(name, *(short_number(row[key]) for key in KEYS), zero)
    return table
