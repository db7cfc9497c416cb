"""The paper's first figure: primal-dual descent, the paper's CSPO, CSPO with a price."""

from cspo.lab.toy.methods import METHODS, Trajectory, follow, format_table
from cspo.lab.toy.problem import Problem

__all__ = ["METHODS", "Problem", "Trajectory", "follow", "format_table"]
