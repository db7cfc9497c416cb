"""Tasks and robots of a user's own: made known by one call, they work like those of the package."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from run_helpers import SMALL

import cspo
from cspo.cli import main
from cspo.envs import registration, tasks
from cspo.envs.navigation.games import Game, GoalGame
from cspo.envs.navigation.parts import goal, vases
from cspo.envs.navigation.robots import ROBOTS
from cspo.envs.navigation.robots.point import POINT

EXAMPLE = Path(__file__).parents[1] / "examples" / "my_task.py"
AGENTS = [robot.name for robot in ROBOTS]


@pytest.fixture(autouse=True)
def nothing_stays_registered() -> Iterator[None]:
    tables = tasks.FACTS, tasks.NAVIGATION
    kept = [dict(table) for table in tables]
    lists = registration._games[:], registration._robots[:]
    yield
    for table, before in zip(tables, kept, strict=True):
        table.clear()
        table.update(before)
    registration._games[:], registration._robots[:] = lists
    for name in [one for one in gymnasium.registry if one.startswith("cspo/")]:
        if name.removeprefix("cspo/") not in kept[0]:
            del gymnasium.registry[name]


def example() -> type[Game]:
    spec = importlib.util.spec_from_file_location("my_task", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Slow


def test_the_example_is_one_file_of_at_most_sixty_lines():
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 60


@pytest.mark.parametrize("agent", AGENTS)
def test_every_robot_plays_the_task_of_the_example(agent):
    example()
    name = f"Safety{agent}Slow-v0"
    assert cspo.envs.tasks.task_row(name).cost_terms == ("speed", "pillars")
    env = gymnasium.make(f"cspo/{name}")
    assert env.spec.max_episode_steps == 400
    observation, _ = env.reset(seed=1)
    rewards = []
    for _ in range(20):
        observation, reward, _, _, info = env.step(env.action_space.sample())
        rewards.append(reward)
        assert info["cost"] == max(info["cost_speed"], info["cost_pillars"])
    assert np.isfinite(observation).all() and any(rewards)
    env.close()


def test_the_example_costs_what_it_says():
    example()
    env = cspo.make_batch("SafetyPointSlow-v0", 3, cost_terms=("speed", "pillars"))
    env.reset(seed=0)
    seen = set()
    for step in range(400):
        if step == 100:  # a pillar in front of each
            for i in range(3):
                model, world = env.physics.models[i], env.world
                world.where("pillars")[i, 0] = world.robot_places[i] + [0.25, 0.0]
                model.body_pos[world.fixed_bodies[0], :2] = world.where("pillars")[i, 0]
        result = env.step(np.array([[1.0, 0.1], [0.3, 0.0], [1.0, -0.5]]))
        if step >= 398:
            break  # a new episode begins
        for i in range(3):
            data = env.physics.data[i]
            velocity = np.linalg.norm(env.world.robot_velocities[i, :2])
            away = env.world.where("pillars")[i] - data.body("agent").xpos[:2]
            slow = velocity <= 0.5 or np.linalg.norm(away, axis=1).min() >= 1.0
            assert result.cost[i, 0] == (not slow)
            seen.add(("speed", bool(result.cost[i, 0])))
            seen.add(("pillars", bool(result.cost[i, 1])))
    assert len(seen) == 4


def test_a_run_on_a_task_of_a_plugin_trains_resumes_and_is_measured(tmp_path, capsys):
    run = tmp_path / "run"
    settings = {**SMALL, "num_envs": 2, "steps_per_epoch": 60, "minibatch_size": 30}
    settings |= {"env_options": {"time_limit": 30}, "plugin": str(EXAMPLE), "quiet": True}
    settings["total_steps"] = 120
    summary = cspo.train("SafetyCarSlow-v0", run_dir=run, **settings)
    assert summary.finished
    registered = [name for name in tasks.FACTS if "Slow" in name]
    assert registered == [f"Safety{agent}Slow-v0" for agent in AGENTS]
    assert cspo.resume(run, total_steps=180, quiet=True).epochs == 3
    assert main(["eval", str(run), "--episodes", "1"]) == 0
    assert main(["tasks", "slow", "--plugin", str(EXAMPLE)]) == 0
    told = capsys.readouterr().out
    assert "SafetyDoggoSlow-v0" in told and "SafetyPointGoal1-v0" not in told


def test_a_robot_of_a_users_own_plays_every_game():
    example()
    sluggish = dataclasses.replace(POINT, name="Snail", verb="creep", timestep=0.001)
    cspo.register_agent(sluggish)
    known = [name for name in tasks.FACTS if "Snail" in name]
    assert len(known) == 14 and "SafetySnailSlow-v0" in known
    env = cspo.make_batch("SafetySnailPush1-v0", 2)
    env.reset(seed=0)
    assert np.isfinite(env.step(np.ones((2, 2))).observation).all()
    assert env.row.step_seconds == pytest.approx(0.01)


def test_what_cannot_work_is_refused_in_words_and_nothing_is_registered():
    before = list(tasks.FACTS)

    class Fine(GoalGame):
        name, description = "Fine", "{} on"
        objects = (goal(0.3, 0.3), vases(1))

        def _reached(self, distance):
            return distance < 0.1

        def _count_costs(self):
            pass

    def refused(words: str, **changes: object) -> None:
        with pytest.raises(cspo.CspoError, match=words):
            cspo.register_task(type("Wrong", (Fine,), changes))
        assert list(tasks.FACTS) == before

    refused("task of this package", name="Goal1")
    refused("a capital and letters or digits", name="my task")
    refused("class attribute name", name=3)
    refused("two classes of objects of one name", objects=(vases(1), vases(2)))
    refused("feels 'pillars', and has no such objects", felt=("pillars",))
    with pytest.raises(cspo.CspoError, match="derived from Game"):
        cspo.register_task(object)  # type: ignore[type-var]
    with pytest.raises(cspo.CspoError, match="must define judge"):
        cspo.register_task(type("Half", (Game,), {"name": "Half", "description": "{}"}))
    with pytest.raises(cspo.CspoError, match="task of this package"):
        cspo.register_agent(dataclasses.replace(POINT, verb="roll"))
    cspo.register_task(Fine)
    cspo.register_task(Fine)  # one's own may be registered again
    assert len(tasks.FACTS) == len(before) + len(AGENTS)
