"""Where pictures are computed when there is no screen: finds an OpenGL that works on this machine.

An explicit `MUJOCO_GL` decides. Without one, Linux tries EGL, then OSMesa, then a window system if
there is one; macOS and Windows have one way each. A backend is tried in a process of its own first:
PyOpenGL fixes its platform with the first import and cannot change it afterwards, and a broken
driver may end the process that loads it.
"""

from __future__ import annotations

import functools
import importlib
import os
import platform
import subprocess
import sys
from typing import Any, NamedTuple

from cspo.envs.modules import INSTALLED_ONLY
from cspo.errors import CspoError

OFF = ("disable", "disabled", "off", "false", "0")  # values of MUJOCO_GL that turn drawing off
HOW_TO = (
    "On Debian or Ubuntu: apt-get install libegl1 libgl1-mesa-dri (or libosmesa6). "
    "MUJOCO_GL chooses between them."
)
PATIENCE = 60  # seconds a trial may take; a healthy one takes about one
# Opens a context and lets MuJoCo load OpenGL into it: some backends fail only then.
TRIAL = """
import importlib, sys, warnings
warnings.simplefilter("ignore")
import mujoco
context = importlib.import_module("mujoco." + sys.argv[1]).GLContext(64, 64)
context.make_current()
model = mujoco.MjModel.from_xml_string("<mujoco/>")
mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_50.value).free()
"""


class Backend(NamedTuple):
    """What draws here, or why nothing does."""

    name: str | None  # "egl", "osmesa", "glfw" or "cgl"
    fault: str  # empty if one works


def open_context(width: int, height: int) -> Any:
    """Return an OpenGL context with `make_current` and `free`.

    Raises:
        CspoError: If nothing on this machine can draw; says what to install.
    """
    found = find_backend()
    if found.name is None:
        raise CspoError(found.fault)
    try:
        context = importlib.import_module(f"mujoco.{found.name}").GLContext(width, height)
        context.make_current()
    except Exception as fault:  # each backend and each driver fails in its own way
        # It worked in a process of its own: other code of this one has bound PyOpenGL to something
        # else.
        reason = f"does not work in this process ({_first_line(str(fault))})"
        raise CspoError(f"Drawing with {found.name} {reason}.") from fault
    return context


def find_backend() -> Backend:
    """Return the first backend that works here; `MUJOCO_GL`, if set, is the only candidate."""
    return _find(os.environ.get("MUJOCO_GL", "").lower().strip())


@functools.lru_cache(maxsize=4)
def _find(setting: str) -> Backend:
    if setting in OFF:
        return Backend(None, f"MUJOCO_GL={setting} turns drawing off: unset it to draw.")
    faults = []
    for name in [_backend_of(setting)] if setting else _candidates():
        fault = _trial(name)
        if fault is None:
            return Backend(name, "")
        faults.append(fault if setting else f"{name}: {fault}")
    asked = f"MUJOCO_GL={setting} does not work here"
    what = asked if setting else "Nothing on this machine can draw"
    return Backend(None, f"{what} ({'; '.join(faults)}).\n{HOW_TO}")


def explain_import(fault: BaseException) -> str | None:
    """Return a sentence if `fault` is mujoco refusing to load because of MUJOCO_GL, else None."""
    trace = fault.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__") == "mujoco.gl_context":
            setting, reason = os.environ.get("MUJOCO_GL", ""), _first_line(str(fault))
            return f"MuJoCo does not load with MUJOCO_GL={setting} ({reason}): unset it.\n{HOW_TO}"
        trace = trace.tb_next
    return None


def _candidates() -> list[str]:
    system = platform.system()
    if system == "Linux":
        return ["egl", "osmesa", *(["glfw"] if os.environ.get("DISPLAY") else [])]
    return ["cgl" if system == "Darwin" else "glfw"]


def _backend_of(setting: str) -> str:
    """Return the backend that mujoco takes for a value of MUJOCO_GL."""
    if platform.system() == "Darwin":
        return "cgl"
    return setting if setting in ("egl", "osmesa") else "glfw"


def _trial(backend: str) -> str | None:
    """Return why a backend does not work, or None if it does."""
    command = [sys.executable, "-c", INSTALLED_ONLY + TRIAL, backend]
    how: dict[str, Any] = {"capture_output": True, "text": True, "timeout": PATIENCE}
    try:
        ended = subprocess.run(command, check=False, **how)
    except (OSError, subprocess.TimeoutExpired) as fault:
        return _first_line(str(fault))
    if ended.returncode == 0:
        return None
    lines = [line for line in ended.stderr.splitlines() if line[:1].isalpha()]
    errors = [line for line in lines if "Error" in line.split(":")[0]]
    return _first_line(errors[0] if errors else f"exit code {ended.returncode}")


def _first_line(text: str) -> str:
    if "'NoneType' object has no attribute" in text:  # PyOpenGL's way of saying so
        return "its library is not installed"
    line = (text.strip().splitlines() or ["no reason given"])[0].rstrip(".")
    return line if len(line) <= 90 else f"{line[:87]}..."
