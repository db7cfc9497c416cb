"""Run with `pytest`: the environment is sound, and training on it works."""

import cspo
from my_env import Ferry, make


def test_the_environment_is_sound():
    assert cspo.check_env("my_env:make") == []


def test_the_shallows_cost_and_the_open_water_does_not():
    ferry = Ferry()
    ferry.reset(seed=0)
    for place, expected in (((0.0, 0.0), 1.0), ((0.0, -1.0), 0.0)):
        ferry.place = place
        assert ferry.step([0.0, 0.0])[4]["cost"] == expected


def test_two_short_epochs_train(tmp_path):
    summary = cspo.train(
        make,
        cost_limit=20,
        num_envs=2,
        steps_per_epoch=800,
        total_steps=1600,
        run_dir=tmp_path / "run",
        quiet=True,
    )
    assert summary.finished
    assert summary.episode_length == 200
