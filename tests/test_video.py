"""Videos hold the episode they claim to hold, and a video that fails costs nothing but itself."""

from __future__ import annotations

import builtins
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from run_helpers import SMALL, TASK, TinyEnv, start

import cspo
from cspo.cli import main
from cspo.envs.tools.opengl import find_backend
from cspo.errors import CspoError
from cspo.use.caption import Line, captioned, lines_of
from cspo.use.video import VideoWriter

av = pytest.importorskip("av")
pytestmark = pytest.mark.usefixtures("no_pictures")
FAST = {**SMALL, "total_steps": 400}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("video") / "run"
    cspo.train(TASK, run_dir=folder, quiet=True, env_options={"time_limit": 40}, **FAST)
    return folder


@pytest.fixture(scope="module")
def drawing() -> None:
    if find_backend().name is None:
        pytest.skip(find_backend().fault)


def decoded(path: Path) -> tuple[Any, np.ndarray]:
    """Return the facts of the video stream and all its pictures, (T, height, width, 3)."""
    with av.open(str(path)) as file:
        stream = file.streams.video[0]
        facts = (
            stream.codec_context.name,
            stream.codec_context.pix_fmt,
            float(stream.average_rate),
        )
        return facts, np.stack([frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)])


def squares(count: int, width: int, height: int) -> list[np.ndarray]:
    """Return pictures of a bright square that moves to the right on grey."""
    pictures = []
    for i in range(count):
        picture = np.full((height, width, 3), 60, np.uint8)
        picture[10:30, 4 * i : 4 * i + 20] = (250, 240, 40)
        pictures.append(picture)
    return pictures


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


def test_mp4_gives_back_its_pictures(tmp_path: Path) -> None:
    pictures = squares(12, 96, 64)
    with VideoWriter(tmp_path / "a.mp4", 125 / 3, 96, 64) as video:
        for picture in pictures:
            video.add(picture)
        assert not (tmp_path / "a.mp4").exists()  # it appears complete or not at all
    facts, seen = decoded(tmp_path / "a.mp4")
    assert facts[:2] == ("h264", "yuv420p") and facts[2] == pytest.approx(125 / 3, rel=1e-3)
    assert seen.shape == (12, 64, 96, 3)
    assert (
        np.abs(seen.astype(int) - np.stack(pictures)).mean() < 6
    )  # lossy, but the square is where it was
    assert leftovers(tmp_path) == []


def test_odd_sizes_get_an_even_video(tmp_path: Path) -> None:
    with VideoWriter(tmp_path / "odd.mp4", 20, 97, 63) as video:
        for picture in squares(3, 97, 63):
            video.add(picture)
    assert decoded(tmp_path / "odd.mp4")[1].shape == (3, 64, 98, 3)


def test_gif_keeps_the_pace(tmp_path: Path) -> None:
    from PIL import Image

    with VideoWriter(tmp_path / "a.GIF", 24, 96, 64) as video:
        for picture in squares(12, 96, 64):
            video.add(picture)
    with Image.open(tmp_path / "a.GIF") as image:
        assert (image.n_frames, image.size) == (12, (96, 64))
        total = 0
        for i in range(image.n_frames):
            image.seek(i)
            total += image.info["duration"]
    assert total == 500


def test_what_goes_wrong_leaves_the_older_file(tmp_path: Path) -> None:
    path = tmp_path / "old.mp4"
    path.write_bytes(b"precious")
    with pytest.raises(ZeroDivisionError), VideoWriter(path, 20, 96, 64) as video:
        video.add(squares(1, 96, 64)[0])
        raise ZeroDivisionError
    wrong = r"is \(64, 96, 3\) of uint8, not \(64, 96, 3\) of float64"
    with pytest.raises(CspoError, match=wrong), VideoWriter(path, 20, 96, 64) as video:
        video.add(np.zeros((64, 96, 3)))  # type: ignore[arg-type]
    with pytest.raises(CspoError, match="at least one picture"), VideoWriter(path, 20, 96, 64):
        pass
    assert path.read_bytes() == b"precious" and leftovers(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("film.avi", "A video is an .mp4 or a .gif file, and 'film.avi' is neither"),
        ("film", "'film' is neither"),
        ("nowhere/film.mp4", "There is no folder .*nowhere to write film.mp4 to"),
        ("folder.mp4", "folder.mp4 is a folder: name a file in it"),
        ("file/film.mp4", "There is no folder"),
        ("x" * 300 + ".mp4", "Cannot write .*: File name too long"),
    ],
)
def test_a_wrong_place_is_refused_before_the_evaluation(
    name: str, message: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder.mp4").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(CspoError, match=message):
        cspo.record(run, tmp_path / name)
    assert main(["eval", str(run), "--video", str(tmp_path / name)]) == 2
    said = capsys.readouterr()
    assert (
        said.out == "" and said.err.startswith("cspo: error: ") and len(said.err.splitlines()) == 1
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--video-episodes 0", "--video-episodes must be at least 1, not 0"),
        ("--width 3", "The width of a picture is 16 to 4096 pixels, not 3"),
        ("--height 9999", "The height of a picture"),
        (
            "--camera side",
            "--camera side: choose from: fixedfar, fixednear, follow, top, track, vision",
        ),
    ],
)
def test_wrong_options_are_refused_before_the_evaluation(
    words: str, message: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", str(run), "--video", str(tmp_path / "a.mp4"), *words.split()]) == 2
    said = capsys.readouterr()
    assert said.out == "" and message in said.err


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = builtins.__import__

    def without_av(name: str, *rest: Any, **more: Any) -> Any:
        if name == "av":
            raise ImportError("No module named 'av'")
        return load(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without_av)
    with pytest.raises(
        CspoError, match=r"Videos need the package av .*: pip install 'cspo\[video\]'"
    ):
        VideoWriter(tmp_path / "a.mp4", 20, 96, 64)


def test_a_video_shows_the_episode_that_was_evaluated(
    drawing: None, run: Path, tmp_path: Path
) -> None:
    (row,) = cspo.evaluate(run, 1, deterministic=True)
    film = cspo.record(run, tmp_path / "a.mp4", width=96, height=64, caption=False)
    assert film.returns == (pytest.approx(row.episode_return.mean),)
    assert film.costs == ((pytest.approx(row.cost[0].mean),),)
    facts, pictures = decoded(film.path)
    # Hopper makes 125 steps in a second, more than a video shows: every third is left.
    assert film.fps == pytest.approx(125 / 3) and facts[2] == pytest.approx(film.fps, rel=1e-3)
    assert film.frames == len(pictures) == int(np.ceil(row.episode_length / 3))
    assert pictures.shape[1:] == (64, 96, 3)
    assert np.abs(pictures[0].astype(int) - pictures[-1]).max() > 60  # it moves
    again = cspo.record(cspo.load(run), tmp_path / "b.mp4", 2, width=96, height=64, camera="top")
    assert again.returns[0] == film.returns[0] != again.returns[1]
    assert np.abs(decoded(again.path)[1][0].astype(int) - pictures[0]).mean() > 10
    drawn_from = cspo.record(
        run, tmp_path / "c.mp4", width=96, height=64, deterministic=False, seed=5
    )
    assert drawn_from.returns != film.returns


def test_eval_prints_the_numbers_then_films(
    drawing: None, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.gif"
    words = ["--episodes", "2", "--json", "--width", "96", "--height", "64", "--video", str(path)]
    assert main(["eval", str(run), *words]) == 0
    said = capsys.readouterr()
    assert len(json.loads(said.out)) == 2
    assert f"video: {path} (" in said.err and path.exists()


def test_without_a_backend_the_numbers_are_printed_first(run: Path, tmp_path: Path) -> None:
    words = ["eval", run, "--episodes", "2", "--json", "--video", tmp_path / "a.mp4"]
    variables = {"MUJOCO_GL": "egl", "MUJOCO_EGL_DEVICE_ID": "99"}
    process = start(*words, variables=variables)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert [row["episodes"] for row in json.loads(out)] == [2, 2]
    filming, first, second = err.splitlines()
    assert filming.startswith("filming to ")
    assert first.startswith(
        "cspo: error: There is no video, but the numbers are complete. MUJOCO_GL=egl does not work"
    )
    assert "apt-get install" in second
    assert list(tmp_path.iterdir()) == []


def test_a_setting_that_mujoco_refuses_is_explained(run: Path) -> None:
    process = start("eval", run, variables={"MUJOCO_GL": "nonsense"})
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2 and out == ""
    assert (
        err.startswith("cspo: error: MuJoCo does not load with MUJOCO_GL=nonsense (")
        and "Traceback" not in err
    )


class Painted(TinyEnv):
    """Draws itself: a grey value that follows the time step."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(
        self, render_mode: str | None = None, shape: tuple[int, ...] = (48, 64, 3)
    ) -> None:
        super().__init__()
        self.render_mode, self.shape = render_mode, shape

    def render(self) -> Any:
        return np.full(self.shape, 10 * self.t, np.uint8)


def make_painted(render_mode: str | None = None) -> Painted:
    return Painted(render_mode)


def make_stubborn() -> Painted:
    return Painted("rgb_array", shape=(48, 64))


@pytest.fixture(scope="module")
def painted_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("painted") / "run"
    cspo.train("test_video:make_painted", run_dir=folder, quiet=True, **FAST)
    return folder


def test_an_environment_of_the_user_gives_its_own_pictures(
    painted_run: Path, tmp_path: Path
) -> None:
    film = cspo.record(painted_run, tmp_path / "a.mp4", 2, caption=False)
    assert (film.frames, film.fps) == (40, 10.0)  # two episodes of 20 steps
    _, pictures = decoded(film.path)
    assert pictures.shape == (40, 48, 64, 3)
    np.testing.assert_allclose(
        pictures.mean(axis=(1, 2, 3)), np.tile(10 * np.arange(20), 2), atol=3
    )
    captioned = cspo.record(painted_run, tmp_path / "b.mp4")
    assert (
        np.ptp(decoded(captioned.path)[1][0][:20, :40]) > 100
    )  # white on black, on a black picture
    instance = Painted("rgb_array")
    assert cspo.record(painted_run, tmp_path / "c.mp4", env=instance).returns == captioned.returns
    assert not instance.closed


BAR = {"kept": (120, 200, 255), "broken": (255, 80, 60)}


def reach(picture: np.ndarray, line: int, bar: str) -> int:
    """Return how many pixels wide the bar of a line is, in pictures of 48 rows: fonts of 10."""
    row = picture[20 * (line + 1) - 1].astype(int)
    return int((np.abs(row - BAR[bar]).max(axis=1) < 12).sum())


def test_every_cost_is_drawn_against_its_limit() -> None:
    grey, names = np.full((80, 160, 3), 90, np.uint8), ("cost_heat", "cost_noise")

    def drawn(*costs: float, now: tuple[float, ...] = (0.0, 0.0)) -> np.ndarray:
        told = (1.0, np.array(costs), np.array(now), np.array([20.0, 5.0]), names)
        lines = lines_of(*told)
        assert [line.text for line in lines] == [
            "return 1.0",
            f"cost heat {costs[0]:g} of 20",
            f"cost noise {costs[1]:g} of 5",
        ]
        return captioned(grey, lines)

    half, above = drawn(10.0, 5.0), drawn(0.0, 5.1)
    whole = reach(half, 2, "kept")  # at its limit, which is not above it
    assert reach(half, 1, "kept") == pytest.approx(whole / 2, abs=2) and whole > 60
    assert reach(above, 1, "kept") == reach(above, 2, "kept") == 0
    assert reach(above, 2, "broken") == whole
    # The text of a constraint is red while the step costs it, and no other.
    red = drawn(10.0, 5.0, now=(0.0, 1.0)).astype(int) - half
    assert not red[:40].any() and red[40:].any()
    free = lines_of(0.0, np.array([0.0]), np.zeros(1), np.array([0.0]), ("cost",))
    assert (free[1].text, free[1].share) == ("cost 0 of 0", 0.0)


def test_the_limit_in_a_film_is_the_last_of_a_schedule(painted_run: Path, tmp_path: Path) -> None:
    two = {**FAST, "total_steps": 800, "cost_limit": "25@0, 4@400"}
    cspo.train("test_video:make_painted", run_dir=tmp_path / "run", quiet=True, **two)
    assert cspo.load(tmp_path / "run").cost_limit == [4.0]
    film = cspo.record(tmp_path / "run", tmp_path / "a.gif", seed=1, deterministic=False)
    texts: list[str] = []

    def noted(picture: np.ndarray, lines: list[Line]) -> np.ndarray:
        texts.append(lines[1].text)
        return captioned(picture, lines)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cspo.use.record.captioned", noted)
        again = cspo.record(tmp_path / "run", tmp_path / "b.gif", seed=1, deterministic=False)
    assert again == film._replace(path=again.path) and len(texts) == 20
    assert texts[0] == "cost 0 of 4" and {text.split(" of ")[1] for text in texts} == {"4"}
    assert texts[-1] in {f"cost {film.costs[0][0] - last:g} of 4" for last in (0, 1)}


def test_a_gymnasium_id_is_made_with_its_render_mode(painted_run: Path, tmp_path: Path) -> None:
    gymnasium.register("test/Painted-v0", entry_point=Painted, max_episode_steps=7)
    try:
        cspo.train("test/Painted-v0", run_dir=tmp_path / "run", quiet=True, **FAST)
        assert cspo.record(tmp_path / "run", tmp_path / "a.mp4").frames == 7
    finally:
        del gymnasium.registry["test/Painted-v0"]


def test_an_environment_without_pictures_says_so(painted_run: Path, tmp_path: Path) -> None:
    with pytest.raises(
        CspoError, match=r"does not draw itself: a video needs .*render_mode='rgb_array'"
    ):
        cspo.record(painted_run, tmp_path / "a.mp4", env=TinyEnv)
    with pytest.raises(
        CspoError, match=r"must give arrays of shape \(height, width, 3\), not \(48, 64\)"
    ):
        cspo.record(painted_run, tmp_path / "a.mp4", env=make_stubborn)

    class Broken(Painted):
        def render(self) -> Any:
            raise ModuleNotFoundError("No module named 'pygame'")

    with pytest.raises(CspoError, match=r"cannot draw itself .*pygame"):
        cspo.record(painted_run, tmp_path / "a.mp4", env=Broken)
    assert list(tmp_path.iterdir()) == []


def test_help_does_not_load_encoders() -> None:
    heavy = "{'av', 'PIL', 'mujoco', 'OpenGL'}"
    modules = "sys, cspo.use.video, cspo.envs.tools.render"
    code = f"import {modules}; print({heavy} & set(sys.modules))"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.stdout == "set()\n"
