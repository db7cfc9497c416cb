"""Who drives around: one module per robot."""

from __future__ import annotations

from cspo.envs.navigation.robots.ant import ANT
from cspo.envs.navigation.robots.car import CAR
from cspo.envs.navigation.robots.doggo import DOGGO
from cspo.envs.navigation.robots.point import POINT
from cspo.envs.navigation.robots.racecar import RACECAR
from cspo.envs.navigation.robots.robot import Robot

ROBOTS: tuple[Robot, ...] = (POINT, CAR, RACECAR, ANT, DOGGO)

__all__ = ["ROBOTS"]
