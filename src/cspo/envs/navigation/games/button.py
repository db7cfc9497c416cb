"""Button: touch the one that is marked, and none of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from cspo.envs.batch import BoolArray, FloatArray
from cspo.envs.navigation.games.game import GoalGame, Names, Objects
from cspo.envs.navigation.parts import HAZARD_RADIUS, buttons, goal, gremlins, hazards

if TYPE_CHECKING:
    from cspo.envs.navigation.layout import Stream
    from cspo.envs.navigation.world import World

DARK_STEPS = 10  # for which buttons are dark and harmless after one was pressed


class Button0(GoalGame):
    """Four buttons.

    Args:
        world: The N worlds.
        button_timer_after_reset: Steps at the start of an episode for which buttons are dark and
            harmless: 0 in Safety-Gymnasium 1.0.0, 10 in later versions.

    Attributes:
        goal_button: (N,) which button is the goal.
        timer: (N,) steps for which buttons stay dark and harmless.
    """

    name = "Button0"
    description = "{} to marked buttons"
    objects: ClassVar[Objects] = (buttons(4), goal(0.2, keepout=0.4))
    felt: ClassVar[Names] = ("buttons",)
    options = ("button_timer_after_reset",)
    extent = 1.0

    def __init__(self, world: World, button_timer_after_reset: int = 0) -> None:
        """Begin with no button marked."""
        super().__init__(world)
        self._timer_after_reset = button_timer_after_reset
        self.goal_button = self.remember("goal_button", np.int64)
        self.timer = self.remember("buttons_timer", np.int64)

    def judge(self, reward: FloatArray) -> BoolArray:
        """Write rewards (N,) and costs of the step just taken; the timer then runs down."""
        reached = super().judge(reward)
        np.maximum(self.timer - 1, 0, out=self.timer)
        return reached

    def begin(self, index: int, stream: Stream) -> bool:
        """Mark the first button of an episode."""
        found = super().begin(index, stream)
        self.timer[index] = self._timer_after_reset
        return found

    def blind(self, lidars: FloatArray, which: Any) -> None:
        """Blank the lidar of the buttons, which is the first, where they are dark."""
        lidars[self.timer[which] > 0, 0] = 0.0

    def _reached(self, distance: FloatArray) -> BoolArray:
        """Tell whether the marked button is touched."""
        touched = self.world.touched("buttons")  # (N, 4)
        reached: BoolArray = np.take_along_axis(touched, self.goal_button[:, None], axis=1)[:, 0]
        return reached

    def _count_costs(self) -> None:
        """Nothing costs."""

    def _choose_goal(self, index: int, stream: Stream) -> bool:
        """Mark any of the buttons, also the one just pressed."""
        places = self.world.where("buttons")[index]
        self.goal_button[index] = button = stream.draw_button(len(places))
        self.world.where("goal")[index] = places[button]
        self.timer[index] = DARK_STEPS
        return True


class Button1(Button0):
    """Four buttons, four hazards and four gremlins."""

    name = "Button1"
    description = "{} to marked buttons, but touch nothing else"
    objects = (*Button0.objects, hazards(4), gremlins(4))
    felt = ("buttons", "gremlins")
    cost_terms = ("buttons", "gremlins", "hazards")
    extent = 1.5

    def __init__(self, world: World, button_timer_after_reset: int = 0) -> None:
        """Begin with no button marked."""
        super().__init__(world, button_timer_after_reset)
        self.unjudged["buttons"] = np.zeros(world.num_envs, np.bool_)

    def _count_costs(self) -> None:
        """Touching another button than the marked one costs while buttons are lit."""
        touched = self.world.touched("buttons")
        np.put_along_axis(touched, self.goal_button[:, None], False, axis=1)
        dark = np.greater(self.timer, 0, out=self.unjudged["buttons"])
        self.costs["buttons"][:] = touched.any(axis=1) & ~dark
        self.costs["gremlins"][:] = self.world.touched("gremlins").any(axis=1)
        inside = self.world.distances("hazards") < HAZARD_RADIUS  # (N, hazards)
        self.costs["hazards"][:] = inside.any(axis=1)


class Button2(Button1):
    """Four buttons, eight hazards and six gremlins."""

    name = "Button2"
    objects = (*Button0.objects, hazards(8), gremlins(6))
    extent = 1.8
