"""Write all that is computed in docs/evidence/, from the archived studies in results/.

make evidence

Every folder of results/ with a study.toml gets its report anew (tables, figures, page). Then the
tables in docs/evidence/*.md and docs/suite-runs.md are replaced, those between
`<!-- table STUDY/NAME -->` and `<!-- end -->`; STUDY+STUDY takes the runs of both together.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from cspo.errors import CspoError
from cspo.lab.report import collect, write_report
from cspo.lab.report.formats import to_markdown
from cspo.lab.report.write import all_tables
from cspo.runs.files import write_text

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(
    r"(<!-- table (?P<study>[\w+-]+)/(?P<table>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL
)


def main(root: Path = ROOT) -> None:
    """Write the reports, then the tables of the pages."""
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        reports = {
            study: pool.submit(write_report, [study], study / "report") for study in studies(root)
        }
        for study, report in reports.items():
            report.result()
            print(study.relative_to(root) / "report")
    tables = Tables(root)
    for page in pages(root):
        write_text(page, filled(page.read_text(encoding="utf-8"), tables))
        print(page.relative_to(root))


def studies(root: Path) -> list[Path]:
    """Return the archived studies of results/."""
    return [
        file.parent
        for file in sorted((root / "results").glob("*/study.toml"))
        if (file.parent / "runs").is_dir()
    ]


def pages(root: Path) -> list[Path]:
    """Return the pages that hold tables."""
    docs = root / "docs"
    return sorted([*(docs / "evidence").glob("*.md"), *docs.glob("suite-runs.md")])


class Tables:
    """The tables of the archived studies as Markdown, read when one is asked for."""

    def __init__(self, root: Path) -> None:
        """Read nothing yet."""
        self.root, self.read = root, dict[str, dict[str, str]]()

    def __call__(self, study: str, table: str) -> str:
        """Return one table without its title; its notes stay with it."""
        if study not in self.read:
            found = all_tables(collect([self.root / "results" / one for one in study.split("+")]))
            self.read[study] = {one.name: to_markdown(one) for one in found}
        if table not in self.read[study]:
            known = ", ".join(self.read[study])
            raise CspoError(
                f"docs/evidence asks for table {table!r} of {study}, which has: {known}."
            )
        return "\n".join(
            line for line in self.read[study][table].splitlines() if not line.startswith("#")
        ).strip()


def filled(text: str, table: Callable[[str, str], str]) -> str:
    """Return a page with its tables replaced."""
    return BLOCK.sub(
        lambda block: f"{block[1]}\n{table(block['study'], block['table'])}\n\n{block[4]}", text
    )


if __name__ == "__main__":
    try:
        main()
    except CspoError as error:
        sys.exit(f"make evidence: {error}")
