"""`make` and `register` as Safety-Gymnasium has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium

from cspo.envs.six_tuple.single import six_tuple
from cspo.envs.six_tuple.wrappers import SafeAutoResetWrapper, SafeTimeLimit
from cspo.envs.tasks import FACTS, native_name, task_row
from cspo.errors import CspoError

VISION = {"camera": "vision", "width": 256, "height": 256}  # what a picture is, unless asked for
TRACK = {"camera": "track", "width": 480, "height": 480}
# Cameras by their numbers in the models there.
NUMBERED = {"navigation": ("fixednear", "fixedfar", "vision", "track"), "velocity": ("track",)}
_registered: set[str] = set()  # ids whose environments give six values by themselves


def register(**kwargs: Any) -> None:
    """Tell `make`, and Gymnasium, about an environment of your own that gives six values.

    Args:
        **kwargs: What `gymnasium.register` takes: `id`, `entry_point`, `max_episode_steps`,
            `kwargs`, ...
    """
    gymnasium.register(**kwargs)
    _registered.add(kwargs["id"])


def register_gymnasium_names() -> None:
    """Tell Gymnasium about the native tasks by their names there: "SafetyPointGoal1Gymnasium-v0".

    They give five values.
    """
    for name, facts in FACTS.items():
        start, dash, version = name.partition("-")
        if (id := f"{start}Gymnasium{dash}{version}") not in gymnasium.registry:
            gymnasium.register(
                id=id,
                entry_point="cspo.envs.gym:SafetyTaskEnv",
                max_episode_steps=facts.row.time_limit,
                kwargs={"task": name},
            )


def make(
    id: str,
    max_episode_steps: int | None = None,
    autoreset: bool | None = None,
    apply_api_compatibility: bool | None = None,
    disable_env_checker: bool | None = None,
    **kwargs: Any,
) -> gymnasium.Env[Any, Any]:
    """Return an environment with six values per step.

    Args:
        id: A native task, an id that was registered, or any Gymnasium id whose environment gives
            `info["cost"]`.
        max_episode_steps: Time limit; by default the task's own.
        autoreset: Begin the next episode within the last step of one.
        apply_api_compatibility: Must be left out: that was for environments of Gym 0.21.
        disable_env_checker: Leave out Gymnasium's checks of the first steps.
        **kwargs: `render_mode`, `width`, `height`, `camera_name` or `camera_id`, and options of the
            task. Pictures have the sizes and viewpoints that they have there by default.
    """
    if apply_api_compatibility:
        raise CspoError("apply_api_compatibility was for environments of Gym 0.21: leave it out.")
    if id in _registered:
        env: Any = _make_registered(id, max_episode_steps, kwargs)
    else:
        options = {"max_episode_steps": max_episode_steps}
        options |= {"disable_env_checker": disable_env_checker}
        given = {name: value for name, value in options.items() if value is not None}
        env = six_tuple(id, **given, **(native_options(id, kwargs) or kwargs))
    return SafeAutoResetWrapper(env) if autoreset else env


def _make_registered(
    id: str, max_episode_steps: int | None, kwargs: Mapping[str, Any]
) -> gymnasium.Env[Any, Any]:
    """Return an environment that gives six values, without Gymnasium's wrappers for five."""
    limit = gymnasium.spec(id).max_episode_steps if max_episode_steps is None else max_episode_steps
    env = gymnasium.make(id, max_episode_steps=-1, disable_env_checker=True, **kwargs)
    return env if limit is None else SafeTimeLimit(env, limit)


def native_options(id: str, kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the options of a native task by their names here, or None if it is not one."""
    name = native_name(id)
    if name is None:
        return None
    family, options = task_row(name).family, dict(kwargs)
    camera, number = options.pop("camera_name", None), options.pop("camera_id", None)
    if camera is not None and number is not None:
        raise CspoError("camera_name and camera_id are two ways to say one thing: give one.")
    if number is not None:
        known = NUMBERED[family]
        if not (isinstance(number, int) and 0 <= number < len(known)):
            names = ", ".join(f"{i} ({one})" for i, one in enumerate(known))
            raise CspoError(f"the cameras of {name} are {names}, not {number!r}.")
        camera = known[number]
    usual = VISION if family == "navigation" else TRACK
    return usual | options | ({} if camera is None else {"camera": camera})
