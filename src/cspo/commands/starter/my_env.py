"""A ferry between two harbours, and shallow water between them: change it into your own problem.

Straight through the shallows is the fastest way, and every step in them costs 1. The way around is
longer. `cost_limit` in settings.toml says how many such steps an episode may have on average.
"""

import gymnasium
import numpy as np
from gymnasium.spaces import Box

HARBOURS = np.array([[-1.0, 0.0], [1.0, 0.0]])  # west and east
HARBOUR_RADIUS = 0.15  # so near, the ferry has arrived
SHALLOWS, SHALLOWS_RADIUS = np.array([0.0, 0.4]), 0.7  # a disc: the way around is in the south
SPEED = 0.06  # the farthest that one step goes
STEPS = 200  # of an episode


class Ferry(gymnasium.Env):
    """Cross as often as possible; stay out of the shallows as far as the limit says."""

    def __init__(self):
        """Say what the policy sees and does."""
        # What the policy sees: where the ferry is (x, y), and which harbour it heads for (-1, 1).
        self.observation_space = Box(-2.0, 2.0, (3,), np.float64)
        # What it does: a direction and how fast, each from -1 to 1.
        self.action_space = Box(-1.0, 1.0, (2,), np.float64)

    def reset(self, *, seed=None, options=None):
        """Begin an episode near a harbour, heading for the other one."""
        super().reset(seed=seed)  # makes self.np_random: draw all randomness from it
        self.target = int(self.np_random.integers(2))
        self.place = HARBOURS[1 - self.target] + self.np_random.uniform(-0.1, 0.1, 2)
        return self.observation(), {}

    def step(self, action):
        """Move, and return what came of it."""
        before = self.distance()
        move = SPEED * np.asarray(action) / max(1.0, float(np.hypot(*action)))
        self.place = np.clip(self.place + move, -2.0, 2.0)
        reward = before - self.distance()  # progress towards the harbour
        if self.distance() < HARBOUR_RADIUS:
            reward += 1.0
            self.target = 1 - self.target  # and back again

        # The cost: 0 where nothing is wrong, positive otherwise. Here 1 for a step in the shallows.
        cost = float(np.hypot(*(self.place - SHALLOWS)) < SHALLOWS_RADIUS)

        # terminated: the task itself ended; truncated is left to the time limit below.
        return self.observation(), reward, False, False, {"cost": cost}

    def observation(self):
        """Return what the policy sees: a new array each time."""
        return np.array([*self.place, HARBOURS[self.target][0]])

    def distance(self):
        """Return how far the harbour is."""
        return float(np.hypot(*(HARBOURS[self.target] - self.place)))


def make():
    """Return one new environment: `my_env:make` on the command line."""
    return gymnasium.wrappers.TimeLimit(Ferry(), max_episode_steps=STEPS)
