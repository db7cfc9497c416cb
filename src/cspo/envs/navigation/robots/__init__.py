"""Who drives around: one module per robot."""

from __future__ import annotations

from cspo.envs.navigation.parts import Robot
from cspo.envs.navigation.robots.car import CAR
from cspo.envs.navigation.robots.point import POINT

ROBOTS: tuple[Robot, ...] = (POINT, CAR)

__all__ = ["ROBOTS"]
