"""Recorded episodes of the benchmark, replayed from their seeds and actions alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from navigation_helpers import (
    CAR_BUTTON,
    CAR_GOAL,
    POINT_BUTTON,
    POINT_GOAL,
    Array,
    goal_of,
    rows_of,
)

from cspo.envs.navigation.task import NavigationEnv

TRACES = Path(__file__).parents[2] / "shared" / "reference" / "traces"
EPISODES = 3

pytestmark = pytest.mark.skipif(
    not TRACES.exists(), reason="the recorded reference transitions are not here"
)


def episodes(name: str, steps: int) -> dict[str, Array]:
    """The first steps of every recorded episode, (steps, episodes, ...) each."""
    with np.load(TRACES / f"{name}.npz") as file:
        rows = np.stack(
            [np.flatnonzero(file["episode"] == e)[:steps] for e in range(EPISODES)], axis=1
        )
        return {
            key: file[key][rows]
            for key in file.files
            if file[key].shape[:1] == file["episode"].shape
        }


def replay(name: str, recorded: dict[str, Array]) -> dict[str, Array]:
    """Step an environment per episode with the recorded actions; nothing else is told to it."""
    env = NavigationEnv(name, num_envs=EPISODES, autoreset=False)
    env.reset(seed=1000)  # copy e has the seed of episode e
    kept: dict[str, list[Array]] = {}
    for action in recorded["action"]:
        result = env.step(action)
        now = {
            "obs": result.observation,
            "reward": result.reward,
            "cost": result.cost[:, 0],
            **env.info_terms,
        }
        now |= {"terminated": result.terminated, "truncated": result.truncated}
        now["goal_pos_after"] = np.array([[*goal_of(env, e)] for e in range(EPISODES)])
        if "Button" in name:
            now |= {
                "buttons_timer_after": env.game.timer,
                "goal_button_after": env.game.goal_button,
            }
        for key, value in now.items():
            kept.setdefault(key, []).append(value.copy())
    np.testing.assert_allclose(
        env.world.objects[:, rows_of(name, "hazards")],
        recorded["hazards_pos"][-1][..., :2],
        rtol=0,
        atol=1e-12,
    )
    return {key: np.array(values) for key, values in kept.items()}


def assert_same_events(ours: dict[str, Array], theirs: dict[str, Array]) -> None:
    """Whatever is counted in whole numbers: costs, goals, ends, buttons."""
    whole = [key for key in ours if key not in ("obs", "reward", "goal_pos_after")]
    assert (
        {"cost", "cost_hazards", "goal_met", "terminated", "truncated"} <= set(whole) <= set(theirs)
    )
    for key in whole:
        np.testing.assert_array_equal(ours[key], theirs[key], err_msg=key)
    np.testing.assert_allclose(
        ours["goal_pos_after"], theirs["goal_pos_after"][..., :2], rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("name", [POINT_GOAL, POINT_BUTTON])
def test_the_point_lives_its_recorded_episodes_again(name: str) -> None:
    """Its trembling heading multiplies differences in rounding, so not all of 500 steps."""
    theirs = episodes(name, 100)
    ours = replay(name, theirs)
    assert_same_events(ours, theirs)
    np.testing.assert_allclose(ours["reward"], theirs["reward"], rtol=0, atol=1e-3)
    for key in ("obs", "reward"):
        np.testing.assert_allclose(ours[key][:5], theirs[key][:5], rtol=0, atol=1e-9)
    assert theirs["goal_met"].any() and theirs["cost"].any(), "something happens"


@pytest.mark.parametrize("name", [CAR_GOAL, CAR_BUTTON])
def test_the_car_lives_its_recorded_episodes_again(name: str) -> None:
    theirs = episodes(name, 90)
    ours = replay(name, theirs)
    assert_same_events(ours, theirs)
    for key in ("obs", "reward"):
        np.testing.assert_allclose(ours[key], theirs[key], rtol=0, atol=1e-6)
    assert theirs["goal_met"].any() and theirs["cost"].any(), "something happens"
