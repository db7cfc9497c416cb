"""Studies: a grid of runs from one file, trained side by side, continued after any interruption."""

from cspo.lab.study.grid import RunSpec, Study, read_study, shipped_studies
from cspo.lab.study.plan import StudyProblems

__all__ = ["RunSpec", "Study", "StudyProblems", "read_study", "shipped_studies"]
