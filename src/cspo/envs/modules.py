"""Modules that a user names: where one would be imported from, and its import.

`module:factory` and plugins come this way, and no other. A name is no reason to run something that
was never meant to make an environment: Python's own modules are refused, whoever names them.
"""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, NamedTuple

from cspo.envs.foreign import ForeignCall
from cspo.envs.tasks import native_name
from cspo.errors import CspoError

# Packages whose functions do things by name or from a file; their environments are classes.
TOOLS = (
    *("cspo", "gymnasium", "numpy", "scipy", "numba", "llvmlite", "mujoco", "matplotlib", "PIL"),
    *("torch", "ray", "fsspec", "tensorboard", "safetensors", "tyro", "rich", "jinja2", "tomli_w"),
    *("pip", "setuptools", "pkg_resources", "wheel", "cloudpickle", "joblib", "pandas", "pytest"),
)


# In front of a program for `python -c`: what lies in the current directory is not imported.
INSTALLED_ONLY = "import sys; sys.path[:] = [path for path in sys.path if path]\n"


class Place(NamedTuple):
    """Where a module comes from."""

    path: str  # its file, or the folders of a package without one
    is_standard: bool  # part of Python itself
    is_here: bool  # found in the current directory only


def names_code(task: str, options: Mapping[str, Any]) -> bool:
    """Whether making an environment of a task imports something that its name or options choose.

    A native task imports nothing, and a plain Gymnasium id only what is installed under it; but
    options of an id may in turn name modules and files.
    """
    return native_name(task) is None and (":" in task or bool(options))


def place_of(module: str) -> Place | None:
    """Return where a module, or the package it is in, would be imported from; runs nothing."""
    top = module.partition(".")[0]
    if not all(part.isidentifier() for part in module.split(".")):
        return None
    if top in sys.modules:
        spec = getattr(sys.modules[top], "__spec__", None)
        return Place("this program", False, False) if spec is None else _place(spec, False)
    # In the order in which Python itself would look.
    for finder in (importlib.machinery.BuiltinImporter, importlib.machinery.FrozenImporter):
        if (spec := finder.find_spec(top)) is not None:
            return _place(spec, False)
    if (spec := importlib.machinery.PathFinder.find_spec(top, _here())) is not None:
        return _place(spec, True)
    spec = importlib.util.find_spec(top)
    return None if spec is None else _place(spec, False)


def _here() -> list[str]:
    """Return the current directory, if there is one."""
    try:
        return [os.getcwd()]
    except OSError:
        return []


def _place(spec: ModuleSpec, is_here: bool) -> Place:
    folders = list(spec.submodule_search_locations or ())
    if spec.origin is None and folders:
        return Place(os.pathsep.join(map(os.path.realpath, folders)), False, is_here)
    if not spec.has_location or spec.origin is None:
        return Place(f"Python ({spec.origin})", True, False)
    return Place(os.path.realpath(spec.origin), _is_in_library(Path(spec.origin)), is_here)


@functools.lru_cache(maxsize=1)
def _library() -> tuple[Path, ...]:
    paths = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), os.__file__)
    found = [Path(path).resolve() for path in paths if path]
    return tuple(path.parent if path.suffix == ".py" else path for path in found)


def _is_in_library(file: Path) -> bool:
    """Whether a file is one of Python's own, and not of an installed package."""
    file = file.resolve()
    for folder in _library():
        if file.is_relative_to(folder):
            return not {"site-packages", "dist-packages"} & {*file.relative_to(folder).parts}
    return False


def import_named(module: str, asked: str) -> Any:
    """Import a user's module, looking in the current directory first as `python` itself does.

    Args:
        module: Its name.
        asked: What named it, for the message.

    Raises:
        CspoError: It is one of Python's own.
        ModuleNotFoundError: There is none, or it lacks another one.
    """
    place, here = refuse_standard(module, asked), _here()
    if place is None:
        top = module.partition(".")[0]
        raise ModuleNotFoundError(f"No module named {module!r}", name=top)
    # Only for a module that is there: what else lies in the current directory hides nothing.
    if place.is_here and here[0] not in sys.path and "" not in sys.path:
        sys.path.insert(0, here[0])
    try:
        return importlib.import_module(module)
    finally:
        if here and here != _here():  # a module that goes elsewhere must not take our files along
            os.chdir(here[0])


def import_of_user(module: str, asked: str) -> Any:
    """Import the module of a factory, or say why that cannot be, in words."""
    with ForeignCall(f"importing {module} for {asked!r}"):
        try:
            return import_named(module, asked)
        except ModuleNotFoundError as fault:
            if fault.name not in (module, module.partition(".")[0]):
                raise  # it is there, and something that it imports is not
            raise CspoError(missing_module(module, asked)) from fault


def missing_module(module: str, asked: str) -> str:
    """Return the sentence about a module that is not there."""
    return f"there is no module {module!r} (asked for by {asked!r}) here or installed."


def refuse_standard(module: str, asked: str) -> Place | None:
    """Return where a module would be imported from, unless it is one of Python's own."""
    place = place_of(module)
    if place is not None and place.is_standard:
        raise CspoError(f"{asked!r} is refused: {module} is a module of Python itself.")
    return place


def check_factory(factory: Any, asked: str, made: str = "environments") -> None:
    """Refuse what is callable but was never meant to make environments, or networks.

    What counts is where it was defined, not the module that it was taken from: `from os import
    system` does not make a factory of it.
    """
    while isinstance(factory, functools.partial):
        factory = factory.func
    home = getattr(factory, "__module__", None) or type(factory).__module__
    is_fine = made == "environments" and hasattr(factory, "step") and hasattr(factory, "reset")
    place = place_of(str(home))
    standard = str(home).partition(".")[0] in sys.stdlib_module_names
    if standard if place is None else place.is_standard:
        what = f"{home} is a module of Python itself"
    elif str(home).partition(".")[0] in TOOLS and not is_fine:
        what = f"it is a function of {home}, and no class of {made}"
    else:
        return
    raise CspoError(f"{asked!r} is no factory of {made}: {what}.")
