"""Goal: be in the area of light, which then is somewhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cspo.envs.batch import BoolArray, FloatArray
from cspo.envs.navigation.games.game import Game
from cspo.envs.navigation.parts import goal, hazards, vases

if TYPE_CHECKING:
    from cspo.envs.navigation.layout import Stream

RADIUS = 0.3  # of the area


class Goal1(Game):
    """Eight hazards, and one vase that costs nothing."""

    name = "Goal1"
    description = "{} to goals, but not through hazards"
    objects = (goal(RADIUS, keepout=0.305), hazards(8), vases(1))
    cost_terms = ("hazards",)

    def _reached(self, distance: FloatArray) -> BoolArray:
        return distance <= RADIUS

    def _choose_goal(self, index: int, stream: Stream) -> bool:
        """Draw a place that is clear of where everything is now."""
        world = self.world
        goal = world.rows["goal"].start
        places = np.concatenate([world.robot_places[index][None], world.objects[index]])
        if not stream.draw_goal(world.keepouts, places, 1 + goal):
            return False
        world.objects[index, goal] = places[1 + goal]
        return True
