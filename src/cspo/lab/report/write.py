"""`write_report`: tables, figures and the page of some folders of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from cspo.errors import CspoError
from cspo.lab.report.comparison import main_comparison, recovery_comparison, split_comparison
from cspo.lab.report.formats import Table, write_table
from cspo.lab.report.results import Results, collect
from cspo.lab.report.seeds import seeds_table
from cspo.lab.report.tables import main_table, recovery_table, split_table, variants_table
from cspo.lab.report.versus import improvement_table, versus_table
from cspo.runs.files import own_folder, write_bytes, write_text

# In the order of the page.
TABLES: tuple[Callable[[Results], Table], ...] = (
    *(main_table, main_comparison, recovery_table, recovery_comparison, split_table),
    *(split_comparison, variants_table, versus_table, improvement_table, seeds_table),
)


def write_report(folders: Sequence[Path | str], out: Path | str | None = None) -> list[Path]:
    """Write the report on one or more studies, and return its files; the page comes first.

    Args:
        folders: Study folders, folders of runs, or single runs; several are merged.
        out: Folder of the report; by default `report` in the first of them.
    """
    return write_results(collect(folders), report_folder(folders, out))


def report_folder(folders: Sequence[Path | str], out: Path | str | None = None) -> Path:
    """Return where the report goes."""
    if out is not None:
        return Path(out)
    folder = Path(folders[0]) / "report"
    if folder.is_symlink():  # which the user did not name
        raise CspoError(f"{folder} is a link, and is not followed: name a folder with --out.")
    return folder


def all_tables(results: Results) -> list[Table]:
    """Return every table the results have something for."""
    return [table for table in (make(results) for make in TABLES) if table.rows]


def write_results(results: Results, out: Path) -> list[Path]:
    """Write the report on results that have been read."""
    from cspo.lab.report.figures import draw_figures, render
    from cspo.lab.report.page import make_page

    _refuse_mixed_limits(results)
    tables = all_tables(results)
    try:
        out.mkdir(parents=True, exist_ok=True)
        for folder in (out / "tables", out / "figures"):
            own_folder(folder)
        files = [path for table in tables for path in write_table(table, out / "tables")]
        captions = []
        for name, caption, figure in draw_figures(results):
            captions.append((name, caption))
            for kind in ("svg", "png"):
                files.append(out / "figures" / f"{name}.{kind}")
                write_bytes(files[-1], render(figure, kind))
        write_text(out / "index.html", make_page(results, tables, captions))
    except OSError as fault:
        said = f"Cannot write the report to {out}: {fault.strerror}. Try another --out."
        raise CspoError(said) from fault
    return [out / "index.html", *files]


def _refuse_mixed_limits(results: Results) -> None:
    """Refuse to average over runs that were asked for different things."""
    for cell in results.cells:
        limits = sorted({tuple(map(float, run.series.limit[-1])) for run in cell.runs})
        if len(limits) > 1:
            named = " and ".join(",".join(f"{value:g}" for value in limit) for limit in limits)
            runs = f"The runs of {cell.label} on {cell.task}"
            raise CspoError(f"{runs} have different cost limits ({named}): report them apart.")
        shortest = min(len(run.series) for run in cell.runs)
        if len({run.series.limit[:shortest].tobytes() for run in cell.runs}) > 1:
            runs = f"The runs of {cell.label} on {cell.task}"
            raise CspoError(f"{runs} have limits that moved differently: report them apart.")
