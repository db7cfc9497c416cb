"""The native tasks by name: one table, one function, the same manners for all of them."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from task_names import SAMPLE

from cspo.envs import make_batch, native_tasks
from cspo.envs.batch import check_actions
from cspo.envs.native import check_native, make_native, native_options
from cspo.envs.tasks import task_row
from cspo.errors import CspoError

ROWS = [row for row in native_tasks() if row.name in SAMPLE]
NAMES = [row.name for row in ROWS]
HOPPER, BUTTON, GOAL = "SafetyHopperVelocity-v1", "SafetyPointButton1-v0", "SafetyPointGoal1-v0"


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_the_table_tells_the_truth(row):
    env = make_native(row.name, 2)
    assert (env.name, env.num_envs, env.time_limit) == (row.name, 2, row.time_limit)
    assert (env.observation_size, env.action_size) == (row.observation_size, row.action_size)
    assert len(env.cost_names) == 1 and env.reset(seed=0).shape == (2, row.observation_size)
    env.step(np.zeros((2, row.action_size)))
    assert env.physics.data[1].time == pytest.approx(row.step_seconds)
    env.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_step_tells_its_terms_and_its_total_cost(name):
    terms = task_row(name).cost_terms
    whole, split = make_native(name, 3), make_native(name, 3, cost_terms=terms)
    assert split.cost_names == (terms or ("cost",))
    np.testing.assert_array_equal(whole.reset(seed=4), split.reset(seed=4))
    for action in np.random.default_rng(0).uniform(-1, 1, (30, 3, whole.action_size)):
        one, several = whole.step(action), split.step(action)
        assert one.cost.shape == (3, 1) and several.cost.shape == (3, len(terms) or 1)
        np.testing.assert_array_equal(one.cost[:, 0], several.cost.any(axis=1))
        for env in (whole, split):
            np.testing.assert_array_equal(env.total_cost, one.cost[:, 0])
            assert all(values.shape == (3,) for values in env.info_terms.values())


@pytest.mark.parametrize("name", NAMES)
def test_one_copy_can_be_seeded_alone(name):
    env, reference = make_native(name, 3), make_native(name, 1)
    env.reset(seed=0)
    env.seed_one(1, 77)
    env.seed_one(2, None)
    observation = env.reset()
    np.testing.assert_array_equal(observation[1], reference.reset(seed=77)[0])
    other = make_native(name, 3)
    other.reset(seed=0)
    np.testing.assert_array_equal(observation[[0, 2]], other.reset()[[0, 2]])
    with pytest.raises(CspoError, match=r"a seed .*-1"):
        env.seed_one(0, -1)


@pytest.mark.parametrize("name", NAMES)
def test_actions_must_be_finite_and_of_the_right_shape(name):
    env = make_native(name, 2)
    env.reset(seed=0)
    size = env.action_size
    for wrong, reason in (
        (np.zeros(size), rf"takes actions of shape \(2, {size}\), not \({size},\)"),
        (np.zeros((3, size)), rf"not \(3, {size}\)"),
        ([["a"] * size] * 2, "not an array of numbers"),
        ([[0.0], [0.0, 1.0]], "not an array of numbers"),
        (np.full((2, size), np.nan), r"not finite \(NaN or infinity\), for copy 0"),
        ([[0.0] * size, [np.inf] + [0.0] * (size - 1)], "for copy 1"),
    ):
        with pytest.raises(CspoError, match=reason) as refused:
            env.step(wrong)
        assert name in str(refused.value)
    env.step(np.zeros((2, size), np.float32))


def test_checked_actions_come_back_as_they_are():
    actions = np.ones((2, 3))
    assert check_actions("x", actions, (2, 3)) is actions
    assert check_actions("x", [[1, 2]], (1, 2)).dtype == np.float64
    batch = make_batch("Pendulum-v1", 1, cost_fn=lambda *_: 0.0)
    batch.reset(seed=0)
    with pytest.raises(CspoError, match="Pendulum-v1 was given an action that is not finite"):
        batch.step(np.array([[np.nan]]))


@pytest.mark.parametrize(
    ("name", "terms", "options", "reason"),
    [
        ("SafetyHoperVelocity-v1", (), {}, "did you mean 'SafetyHopperVelocity-v1'"),
        (
            GOAL,
            ("gremlins",),
            {},
            "SafetyPointGoal1-v0 has no cost term 'gremlins': it has hazards.",
        ),
        (BUTTON, ("vases",), {}, "it has buttons, gremlins, hazards."),
        (BUTTON, ("hazards", "hazards"), {}, "names a term twice: hazards,hazards"),
        (HOPPER, (), {"time_limt": 3}, "has no option 'time_limt': did you mean 'time_limit'"),
        (
            GOAL,
            (),
            {"button_timer_after_reset": 10},
            "SafetyPointGoal1-v0 has no option 'button_timer_after_reset'",
        ),
        (
            BUTTON,
            (),
            {"button_timer_after_reset": -1},
            "must be a whole number of steps from 0 on, not -1",
        ),
        (BUTTON, (), {"button_timer_after_reset": True}, "not True"),
        (HOPPER, (), {"time_limit": 0}, "must be a whole number of steps from 1 on, not 0"),
        (HOPPER, (), {"time_limit": "3"}, "not '3'"),
        (HOPPER, (), {"stepper": "fast"}, "must be one of auto, compiled, python, not 'fast'"),
        (HOPPER, (), {"autoreset": False}, "has no option 'autoreset'"),
        (HOPPER, (), {"threads": 2}, "has no option 'threads'"),
    ],
)
def test_what_a_task_does_not_take_is_refused_in_words(name, terms, options, reason):
    with pytest.raises(CspoError) as refused:
        make_batch(name, 1, cost_terms=terms, env_options=options)
    assert reason in str(refused.value) and "\n" not in str(refused.value)
    if not terms and name in NAMES:
        with pytest.raises(CspoError):
            gymnasium.make(f"cspo/{name}", **options)


def test_options_reach_the_task():
    assert make_batch(HOPPER, 1, env_options={"time_limit": 7, "stepper": "python"}).time_limit == 7
    assert native_options(task_row(HOPPER)) == ("time_limit", "stepper")
    assert native_options(task_row(BUTTON)) == ("time_limit", "stepper", "button_timer_after_reset")
    check_native("cspo/SafetyCarButton1-v0", ("gremlins", "buttons"), {})


def test_the_button_timer_after_reset_is_an_option():
    """While the timer runs the lidar of the buttons, after 12 numbers of sensors, reads zero."""
    for steps, blind in ((0, False), (10, True)):
        options = {"button_timer_after_reset": steps}
        batch = make_batch(BUTTON, 1, env_options=options)
        single = gymnasium.make(f"cspo/{BUTTON}", **options)
        several = gymnasium.make_vec(f"cspo/{BUTTON}", num_envs=1, **options)
        for first in (batch.reset(seed=3)[0], single.reset(seed=3)[0], several.reset(seed=3)[0][0]):
            assert (first[12:28] == 0.0).all() == blind
        single.close()
        several.close()
