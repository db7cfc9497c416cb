"""`cspo report`: tables, figures and one page from the runs of a study."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from cspo.commands.options import parse
from cspo.errors import CspoError

FolderArguments = Annotated[
    tuple[str, ...],
    tyro.conf.Positional,
    tyro.conf.arg(metavar="DIR [DIR ...]", help_behavior_hint=""),
]


@dataclass(frozen=True)
class ReportOptions:
    """Write tables (CSV, Markdown, LaTeX), figures (PNG, SVG) and one HTML page about runs.

    Examples:
        cspo report studies/small
        cspo report runs/first runs/second --out comparison
    """

    folders: FolderArguments = ()
    """Study folders, folders of runs, or single runs; several are merged."""
    out: Annotated[str | None, tyro.conf.arg(metavar="OUT", help_behavior_hint="")] = None
    """Folder of the report; by default DIR/report, in the first DIR."""


def main(arguments: Sequence[str]) -> int:
    """Run `cspo report`."""
    options = parse(ReportOptions, "report", arguments)
    if not options.folders:
        raise CspoError("Name a folder with runs, as in `cspo report runs`.")
    from cspo.lab.report.formats import to_markdown
    from cspo.lab.report.results import collect
    from cspo.lab.report.tables import main_table
    from cspo.lab.report.write import report_folder, write_results

    results = collect(options.folders)
    out = report_folder(options.folders, options.out)
    files = write_results(results, out)
    print(to_markdown(main_table(results)))
    kinds = {name: sum(path.suffix == ending for path in files) for name, ending in KINDS.items()}
    print(f"{out}: {kinds['tables']} tables, {kinds['figures']} figures, {len(results.runs)} runs")
    print(f"page: {files[0]}")
    return 0


KINDS = {"tables": ".csv", "figures": ".svg"}  # of every table and figure there is one such file
