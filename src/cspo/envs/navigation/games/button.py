"""Button: touch the one that is marked, and none of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cspo.envs.batch import BoolArray, FloatArray
from cspo.envs.navigation.games.game import Game
from cspo.envs.navigation.parts import buttons, goal, gremlins, hazards

if TYPE_CHECKING:
    from cspo.envs.navigation.layout import Stream
    from cspo.envs.navigation.world import World

DARK_STEPS = 10  # for which buttons are dark and harmless after one was pressed


class Button1(Game):
    """Four buttons, four hazards and four gremlins.

    Args:
        world: The N worlds.
        button_timer_after_reset: Steps at the start of an episode for which buttons are dark and
            harmless: 0 in Safety-Gymnasium 1.0.0, 10 in later versions.

    Attributes:
        goal_button: (N,) which button is the goal.
        timer: (N,) steps for which buttons stay dark and harmless.
    """

    name = "Button1"
    description = "{} to marked buttons, but touch nothing else"
    objects = (buttons(4), goal(0.2, keepout=0.4), hazards(4), gremlins(4))
    felt = ("buttons", "gremlins")
    cost_terms = ("buttons", "gremlins", "hazards")
    options = ("button_timer_after_reset",)

    def __init__(self, world: World, button_timer_after_reset: int = 0) -> None:
        """Begin with no button marked."""
        super().__init__(world)
        self._timer_after_reset = button_timer_after_reset
        self.goal_button = np.zeros(world.num_envs, np.int64)
        self.timer = np.zeros(world.num_envs, np.int64)

    def begin(self, index: int, stream: Stream) -> bool:
        """Mark the first button of an episode."""
        found = super().begin(index, stream)
        self.timer[index] = self._timer_after_reset
        return found

    def blind(self, lidars: FloatArray, which: Any) -> None:
        """Blank the lidar of the buttons where they are dark."""
        lidars[self.timer[which] > 0, self.world.classes.index("buttons")] = 0.0

    def _reached(self, distance: FloatArray) -> BoolArray:
        """Tell the marked button from the others, whose touch costs; the timer runs down."""
        touched = self.world.touched("buttons")  # (N, 4)
        reached: BoolArray = np.take_along_axis(touched, self.goal_button[:, None], axis=1)[:, 0]
        wrong = touched.sum(axis=1) - reached
        self.costs["buttons"][:] = (wrong > 0) & (self.timer == 0)
        self.costs["gremlins"][:] = self.world.touched("gremlins").any(axis=1)
        np.maximum(self.timer - 1, 0, out=self.timer)
        return reached

    def _choose_goal(self, index: int, stream: Stream) -> bool:
        """Mark any of the buttons, also the one just pressed."""
        places = self.world.where("buttons")[index]
        self.goal_button[index] = button = stream.draw_button(len(places))
        self.world.where("goal")[index] = places[button]
        self.timer[index] = DARK_STEPS
        return True
