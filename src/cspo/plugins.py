"""Algorithms of a user's own: `--plugin my_file.py` makes what the file registers known.

A plugin is a Python file, or the name of a module that can be imported from here.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cspo.algorithms.registry import registered_by
from cspo.errors import CspoError


class MissingPlugin(CspoError):
    """A plugin that is not where it was said to be."""


def load_plugin(name: str) -> str:
    """Load a plugin, once per process, and return the name by which it is found from any folder."""
    if name.endswith(".py") or os.sep in name:
        path = Path(name).expanduser().resolve()
        if not path.is_file():
            raise MissingPlugin(f"There is no plugin file {name}.")
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
    if not registered_by(module_name):
        raise CspoError(
            f'Plugin {name} registers no algorithm: put @cspo.register("name") above its class.'
        )
    return found


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
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)  # as `python` itself does
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as fault:
        if fault.name is None or not f"{name}.".startswith(f"{fault.name}."):
            raise  # the module is there; something it imports is not
        raise MissingPlugin(
            f"There is no plugin module {name!r} here or installed; a file is given as FILE.py."
        ) from None


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn what goes wrong in a user's file into a line that says where."""
    try:
        yield
    except MissingPlugin:
        raise
    except CspoError as fault:
        raise CspoError(f"Plugin {name}: {fault}") from fault
    except SyntaxError as fault:
        raise CspoError(
            f"Plugin {name} cannot be read: {fault.filename}, line {fault.lineno}: {fault.msg}."
        ) from fault
    except Exception as fault:
        if getattr(fault, "name", None) == "torch":
            raise CspoError(f"Plugin {name} needs PyTorch: pip install 'cspo[torch]'") from fault
        place = traceback.extract_tb(fault.__traceback__)[-1]
        where = f"{place.filename}, line {place.lineno}"
        what = f"{type(fault).__name__}: {fault} ({where})"
        raise CspoError(f"Plugin {name} failed: {what}.") from fault
