"""Where things are put: the placement of Safety-Gymnasium 1.0.0, draw for draw.

One legacy `RandomState` per environment makes every choice, in this order: all positions (x, then
y, object by object, tried again until they fit), the robot's heading, one rotation per object, then
the goal. A world of the benchmark is thus known by its seed, and what comes later in an episode
continues the same stream.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any, NamedTuple

import numpy as np

from cspo.arithmetic import exact_kernel
from cspo.envs.batch import FloatArray
from cspo.envs.physics.calls import call_double
from cspo.errors import CspoError

WORDS = 624  # of the state of a Mersenne Twister
TRIES_PER_OBJECT = 100
TRIES_PER_LAYOUT = 10_000
TRIES_PER_GOAL = 10_000
FULL_TURN = 2.0 * math.pi


class Rooms(NamedTuple):
    """Where things may be put: the robot first, then the objects in the order of placement."""

    keepouts: FloatArray  # (1 + M,) two are at least the sum of theirs apart
    areas: FloatArray  # (1 + M, 4) smallest x and y, largest x and y of the centre

    @classmethod
    def square(cls, extent: float, keepouts: FloatArray) -> Rooms:
        """Let everything be anywhere in a square, its whole keepout inside."""
        far = extent - keepouts
        return cls(keepouts, np.stack([-far, -far, far, far], axis=1))


class Layout(NamedTuple):
    """One world: the robot first, then the objects in the order of placement."""

    places: FloatArray  # (1 + M, 2)
    rotations: FloatArray  # (1 + M,)


class Stream:
    """The random numbers of one environment: NumPy's legacy generator, shared with compiled code.

    Args:
        seed: Where the stream starts; by default anywhere.
        now: How many steps all environments have made so far, see `catch_up`.
    """

    def __init__(self, seed: int | None = None, now: int = 0) -> None:
        """Start the stream."""
        self._now = now
        bits = np.random.MT19937()
        self._random = np.random.RandomState(bits)
        if seed is not None:
            self._random.seed(seed)
        interface = bits.ctypes
        self._next_double = ctypes.cast(interface.next_double, ctypes.c_void_p).value
        self._state = interface.state_address

    def catch_up(self, now: int) -> None:
        """Pass over one random number per step since the last time, up to step `now`.

        Safety-Gymnasium draws the number of physics steps of every step, from a distribution that
        always gives ten. Nothing needs that number, so these draws are made before the next one
        that matters.
        """
        if now > self._now:
            self._random.random_sample(now - self._now)
        self._now = now

    def draw_layout(self, rooms: Rooms) -> Layout:
        """Draw a world in which the robot and the objects keep their distance.

        Raises:
            CspoError: No such world was found, which does not happen for the shipped tasks.
        """
        places = np.empty((len(rooms.keepouts), 2))
        if not draw_places(self._next_double, self._state, *rooms, places):
            raise CspoError("the objects of this task do not fit into its square.")
        return Layout(places, FULL_TURN * self._random.random_sample(len(places)))

    def draw_goal(self, rooms: Rooms, places: FloatArray, goal: int) -> bool:
        """Draw a place for number `goal`, clear of all others, into `places`; False if none."""
        source, count = (self._next_double, self._state), len(places)
        return bool(draw_place(*source, *rooms, places, goal, count, TRIES_PER_GOAL))

    def uniform(self, low: float, high: float, count: int) -> FloatArray:
        """Draw `count` numbers between two bounds."""
        return self._random.uniform(low, high, count)

    def draw_button(self, count: int) -> int:
        """Choose one of `count` buttons."""
        return int(self._random.choice(count))

    def state(self) -> dict[str, Any]:
        """Return the state of the generator as JSON-compatible data."""
        state = self._random.get_state(legacy=False)["state"]
        return {"key": state["key"].tolist(), "pos": int(state["pos"])}

    def set_state(self, state: dict[str, Any]) -> None:
        """Put back what `state` returned."""
        key, place = np.array(state["key"], np.uint32), int(state["pos"])
        if key.shape != (WORDS,) or not 0 <= place <= WORDS:  # NumPy would read beside the words
            raise ValueError("this is no state of a random stream")
        inner = {"key": key, "pos": place}
        self._random.set_state({"bit_generator": "MT19937", "state": inner})


@exact_kernel
def draw_places(next_double: Any, source: Any, keepouts: Any, areas: Any, places: Any) -> Any:
    """Place everything, each clear of those before it; all over again when one finds no place."""
    for _ in range(TRIES_PER_LAYOUT):
        placed = 0
        while placed < len(keepouts) and draw_place(
            next_double, source, keepouts, areas, places, placed, placed, TRIES_PER_OBJECT
        ):
            placed += 1
        if placed == len(keepouts):
            return True
    return False


@exact_kernel
def draw_place(
    next_double: Any,
    source: Any,
    keepouts: Any,
    areas: Any,
    places: Any,
    which: Any,
    count: Any,
    tries: Any,
) -> Any:
    """Draw until number `which` is clear of the first `count`, itself aside; only then write it."""
    low_x, low_y, high_x, high_y = areas[which]
    for _ in range(tries):
        x = low_x + (high_x - low_x) * call_double(next_double, source)
        y = low_y + (high_y - low_y) * call_double(next_double, source)
        clear = True
        for other in range(count):
            away_x, away_y = x - places[other, 0], y - places[other, 1]
            distance = math.sqrt(away_x * away_x + away_y * away_y)
            if other != which and distance < keepouts[other] + keepouts[which]:
                clear = False
                break
        if clear:
            places[which, 0], places[which, 1] = x, y
            return True
    return False
