"""`cspo.record`: a video of a policy at work."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cspo.envs.batch import BatchEnv
from cspo.envs.foreign import REAL_KINDS, ForeignCall, number
from cspo.envs.given import CostFunction, Environment
from cspo.envs.make import factory_of, is_batch_env, is_environment
from cspo.envs.tasks import native_name, task_row
from cspo.envs.tools.render import Drawable, Picture, Renderer, check_size
from cspo.errors import CspoError, EnvironmentFault
from cspo.policy.network import Network
from cspo.runs.trust import allowed_task
from cspo.setup import copies_of, environment_for, make_environment
from cspo.use.acting import Acting
from cspo.use.caption import Line, captioned, lines_of
from cspo.use.evaluate import environment_seed
from cspo.use.load import load
from cspo.use.video import FASTEST, VideoWriter, check_target

LONGEST = 5000  # steps after which the film of an episode is cut
USUAL_RATE = 30.0  # pictures per second of an environment that does not say


class Recording(NamedTuple):
    """A video and what happens in it."""

    path: Path
    frames: int
    fps: float
    returns: tuple[float, ...]  # one per episode
    costs: tuple[tuple[float, ...], ...]  # K per episode


def record(
    run: Path | str | Acting,
    path: Path | str,
    episodes: int = 1,
    *,
    camera: str = "follow",
    width: int = 640,
    height: int = 480,
    deterministic: bool = True,
    seed: int | None = None,
    caption: bool = True,
    env: Environment | None = None,
    cost_fn: CostFunction | None = None,
    policy: str | Network | None = None,
    trust: bool = False,
) -> Recording:
    """Film a policy.

    A native task is drawn here, without a screen; any other environment gives its own pictures, and
    must support `render_mode="rgb_array"`. The video runs in the task's own time; of a task with
    very short steps it shows every second or third. An episode that does not end is cut after 5000
    steps.

    Args:
        run: A run's folder, or a policy from `load`.
        path: The file to write, `.mp4` or `.gif`.
        episodes: Complete episodes to film, one after another.
        camera: "follow" goes along with the robot, "top" looks down on it; "track", "fixednear",
            "fixedfar" and "vision" are those of Safety-Gymnasium. Native tasks only.
        width: Of the video in pixels; native tasks only.
        height: Of the video in pixels; native tasks only.
        deterministic: Take the mean of the policy; False draws from it as training did.
        seed: As in `evaluate`: the same seed films the first episode that it counts.
        caption: Write return and cost so far into the pictures, every cost against its limit.
        env: As in `evaluate`.
        cost_fn: The cost function, if the run used one.
        policy: As in `load`.
        trust: As in `evaluate`.

    Raises:
        CspoError: If the environment cannot be drawn or the file cannot be written.
    """
    path = check_video(path, episodes, width, height)
    trained = run if isinstance(run, Acting) else load(run, policy=policy, trust=trust)
    seed = trained.config.seed if seed is None else seed
    owns_env = env is None or isinstance(env, str)
    env = allowed_task(trained.config, trust) if env is None else env
    batch = _make_drawable(trained, env, cost_fn)
    with ExitStack() as opened:
        if owns_env:
            opened.enter_context(closing(batch))
        trained.check_sizes(batch)
        draw, rate = _native_source(batch, camera, width, height, opened) or _own_source(batch)
        film = _Film(path, draw, rate, caption, opened)
        filmed = _filmed_episodes(trained, batch, film, seed, deterministic)
        returns, costs = zip(*islice(filmed, episodes), strict=True)
    assert film.video is not None
    return Recording(path, film.video.frames, film.fps, returns, costs)


def check_video(path: Path | str, episodes: int = 1, width: int = 640, height: int = 480) -> Path:
    """Return the path of a video, or say what is wrong with it or its size, before any work."""
    if episodes < 1:
        raise CspoError(f"--video-episodes must be at least 1, not {episodes}.")
    check_size(width, height)
    return check_target(path)


class _Film:
    """A video that takes the size of its first picture, and leaves out steps that are too quick."""

    def __init__(
        self,
        path: Path,
        draw: Callable[[], Picture],
        rate: float,
        caption: bool,
        opened: ExitStack,
    ) -> None:
        self._path, self._draw, self._caption, self._opened = path, draw, caption, opened
        self._stride = math.ceil(rate / FASTEST[path.suffix.lower()])
        self.fps = rate / self._stride
        self.video: VideoWriter | None = None  # closed, or discarded, with `opened`

    def show(self, step: int, lines: list[Line]) -> None:
        if step % self._stride:
            return
        picture = self._draw()
        if self.video is None:
            height, width, _ = picture.shape
            video = VideoWriter(self._path, self.fps, width, height)
            self.video = self._opened.enter_context(video)
        if self._caption:
            picture = captioned(picture, lines)
        self.video.add(picture)


def _filmed_episodes(
    policy: Acting, env: BatchEnv, film: _Film, seed: int, deterministic: bool
) -> Iterator[tuple[float, tuple[float, ...]]]:
    """Film one episode after another of the first environment; yields return and costs of each."""
    observation = env.reset(seed=environment_seed(seed))
    policy.seed(seed)
    while True:
        total_return, total_cost = 0.0, np.zeros(len(env.cost_names))
        step_cost = total_cost
        for step in range(LONGEST):
            # Before the step: after the last one the environment already shows the next episode.
            told = (total_return, total_cost, step_cost, policy.cost_limit, policy.cost_names)
            film.show(step, lines_of(*told))
            result = env.step(policy.act(observation, deterministic=deterministic))
            observation = result.observation
            total_return += float(result.reward[0])
            step_cost = result.cost[0].copy()
            total_cost = total_cost + step_cost
            if result.terminated[0] or result.truncated[0]:
                break
        else:
            observation = env.reset()
        yield total_return, tuple(total_cost.tolist())


def _make_drawable(policy: Acting, env: Any, cost_fn: Any) -> BatchEnv:
    """Return one copy of the run's environment, made to draw itself where it takes that option."""
    config = policy.config
    what = environment_for(config, env)
    native = isinstance(what, str) and native_name(what) is not None
    if native or is_batch_env(what) or is_environment(what):
        return make_environment(config, env, cost_fn, copies_of(env) or 1)
    options = {**config.env_options, "render_mode": "rgb_array"}
    try:
        factory_of(what, options)
    except CspoError:  # a factory without that option; its environments may draw all the same
        options = config.env_options
    return make_environment(config, env, cost_fn, 1, options)


def _native_source(
    env: BatchEnv, camera: str, width: int, height: int, opened: ExitStack
) -> tuple[Callable[[], Picture], float] | None:
    """Return what draws a native task and its steps per second, or None for another environment."""
    if not isinstance(env, Drawable):
        return None
    renderer = opened.enter_context(Renderer(width, height))
    rate = USUAL_RATE if native_name(env.name) is None else 1.0 / task_row(env.name).step_seconds
    return lambda: renderer.draw(env.scene(0), camera), rate


def _own_source(env: BatchEnv) -> tuple[Callable[[], Picture], float]:
    """Return the same for an environment that draws itself."""
    single: Any = next(iter(getattr(env, "envs", ())), None)  # as `GymBatchEnv` holds them
    if getattr(single, "render_mode", None) != "rgb_array":
        raise CspoError(
            f"{env.name} does not draw itself: a video needs an environment (or a factory with "
            "that option) that supports render_mode='rgb_array'."
        )

    def draw() -> Picture:
        try:
            with ForeignCall("render()", f"the environment {env.name}", single):
                picture = np.asarray(single.render())
        except EnvironmentFault as fault:  # a missing package, or whatever else drawing needs
            raise CspoError(f"{env.name} cannot draw itself ({fault}).") from fault
        if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype.kind not in REAL_KINDS:
            wanted = "arrays of shape (height, width, 3)"
            found = f"{picture.shape} of {picture.dtype}"
            raise CspoError(f"render() of {env.name} must give {wanted}, not {found}.")
        return np.ascontiguousarray(picture, dtype=np.uint8)

    with ForeignCall("metadata", f"the environment {env.name}", single):
        rate = (getattr(single, "metadata", None) or {}).get("render_fps") or USUAL_RATE
        return draw, number(rate, "render_fps")
