"""Algorithms and tasks of a user's own: `--plugin my_file.py` makes what the file registers known.

A plugin is a Python file, or the name of a module that can be imported from here.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cspo.algorithms.registry import registered_by
from cspo.envs.modules import import_named, place_of
from cspo.envs.registration import registers_tasks
from cspo.errors import CspoError, places, told, users_place


class MissingPlugin(CspoError):
    """A plugin that is not where it was said to be."""


def load_plugin(name: str) -> str:
    """Load a plugin, once per process, and return the name by which it is found from any folder."""
    if is_file_name(name):
        path = _path(name)
        if not path.is_file():
            raise MissingPlugin(missing(name))
        # The path is part of the name, so that two files called alike can be loaded side by side.
        module_name = f"cspo_plugin_{path.stem}_{zlib.crc32(str(path).encode()):08x}"
        if module_name not in sys.modules:
            with _explained(name):
                _run_file(path, module_name)
        found = str(path)
    else:
        module_name = found = name
        with _explained(name):
            _import_module(name)
    if not registered_by(module_name) and not registers_tasks(module_name):
        raise CspoError(
            f'Plugin {name} registers no algorithm: put @cspo.register("name") above its class, or '
            "@cspo.register_task above that of a task."
        )
    return found


def is_file_name(name: str) -> bool:
    """Whether a plugin is named as a file, and not as a module."""
    return name.endswith(".py") or os.sep in name


def missing(name: str) -> str:
    """Return the sentence about a plugin that is not there."""
    if is_file_name(name):
        return f"There is no plugin file {name}."
    return f"There is no plugin module {name!r} here or installed; a file is given as FILE.py."


def _path(name: str) -> Path:
    return Path(name).expanduser().resolve()


def plugin_place(name: str) -> str | None:
    """Return where a plugin would be loaded from, or None if it is not there; runs nothing."""
    if is_file_name(name):
        return str(_path(name)) if _path(name).is_file() else None
    place = place_of(name)
    return None if place is None else place.path


def _run_file(path: Path, module_name: str) -> None:
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    folder = str(path.parent)
    if folder not in sys.path:  # what lies beside the file can be imported
        sys.path.append(folder)  # at the end, so that it hides nothing
    sys.modules[module_name] = module  # dataclasses look their own module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[module_name]
        raise


def _import_module(name: str) -> None:
    try:
        import_named(name, name)
    except ModuleNotFoundError as fault:
        if fault.name is None or not f"{name}.".startswith(f"{fault.name}."):
            raise  # the module is there; something it imports is not
        raise MissingPlugin(missing(name)) from None


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn what goes wrong in a user's file into a line that says where."""
    try:
        yield
    except (MissingPlugin, KeyboardInterrupt):
        raise
    except CspoError as fault:
        raise CspoError(f"Plugin {name}: {fault}") from fault
    except SyntaxError as fault:
        raise CspoError(
            f"Plugin {name} cannot be read: {fault.filename}, line {fault.lineno}: {fault.msg}."
        ) from fault
    except BaseException as fault:  # `sys.exit(0)` in a plugin is no success of ours
        if getattr(fault, "name", None) == "torch":
            raise CspoError(f"Plugin {name} needs PyTorch: pip install 'cspo[torch]'") from fault
        file, line = list(places(fault))[-1]
        where = users_place(fault) or f"{file}, line {line}"
        raise CspoError(f"Plugin {name} failed: {told(fault)} ({where}).") from fault
