"""The native tasks as Safety-Gymnasium hands them out: six values per step, the cost third.

Code written for it runs with its imports changed:

    import cspo.envs.six_tuple as safety_gymnasium

    env = safety_gymnasium.make("SafetyPointGoal1-v0", render_mode="rgb_array")
    observation, info = env.reset(seed=0)
    observation, reward, cost, terminated, truncated, info = env.step(env.action_space.sample())

The names here are the names there: `make`, `register`, `vector` and `wrappers`. What is not there
is listed in docs/gymnasium.md.
"""

from __future__ import annotations

from gymnasium import make as gymnasium_make
from gymnasium import register as gymnasium_register

from cspo.envs.six_tuple import vector, wrappers
from cspo.envs.six_tuple.registration import make, register, register_gymnasium_names
from cspo.envs.six_tuple.single import SixTuple, six_tuple
from cspo.envs.six_tuple.vector import make as make_vec

__all__ = [
    "SixTuple",
    "gymnasium_make",
    "gymnasium_register",
    "make",
    "make_vec",
    "register",
    "six_tuple",
    "vector",
    "wrappers",
]

register_gymnasium_names()
