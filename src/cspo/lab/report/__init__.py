"""From the runs of a study to tables, figures and one page."""

from cspo.lab.report.results import Cell, Results, collect
from cspo.lab.report.runs import RunResult
from cspo.lab.report.write import write_report

__all__ = ["Cell", "Results", "RunResult", "collect", "write_report"]
