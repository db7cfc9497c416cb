"""The algorithms, one file each. None imports another; importing them does not load PyTorch."""

from cspo.algorithms.registry import Algorithm, algorithm_names, get_algorithm, register

__all__ = ["Algorithm", "algorithm_names", "get_algorithm", "register"]
