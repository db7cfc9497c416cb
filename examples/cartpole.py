"""CartPole of Gymnasium: balance the pole, but stay near the middle of the track.

    python examples/cartpole.py

Discrete actions, and a cost that the environment does not have: a function adds it.
"""

from __future__ import annotations

import argparse
from typing import Any

import cspo


def off_centre(observation: Any, action: Any, after: Any, info: dict[str, Any]) -> float:
    """Return the cost of a step: 1 if the cart is then more than 0.2 from the middle."""
    return float(abs(after[0]) > 0.2)


def main() -> None:
    """Read the arguments and train."""
    parser = argparse.ArgumentParser(description="CartPole with a limit on steps off the centre")
    parser.add_argument("--algo", default="cspo", help="see `cspo algos`; ppo ignores the limit")
    parser.add_argument("--cost-limit", type=float, default=20.0)
    parser.add_argument("--steps", type=int, default=400_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run-dir", default=None)
    arguments = parser.parse_args()
    cspo.train(
        "CartPole-v1",
        arguments.algo,
        cost_fn=off_centre,
        cost_limit=arguments.cost_limit,
        total_steps=arguments.steps,
        num_envs=8,
        steps_per_epoch=min(8000, arguments.steps),
        seed=arguments.seed,
        run_dir=arguments.run_dir,
    )


if __name__ == "__main__":
    main()
