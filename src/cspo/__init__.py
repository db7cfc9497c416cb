"""cspo: train policies that maximise return while keeping costs under limits."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

from cspo.envs.registration import register_tasks

__version__ = "0.1.0"

# Imported on first use: `import cspo` and `cspo --help` must not wait for MuJoCo or Numba.
_PUBLIC = {
    "Trainer": "cspo.runs.trainer",
    "train": "cspo.runs.session",
    "resume": "cspo.runs.session",
    "make_config": "cspo.config",
    "TrainConfig": "cspo.config",
    "load": "cspo.use.load",
    "evaluate": "cspo.use.evaluate",
    "record": "cspo.use.record",
    "export": "cspo.use.export.write",
    "load_exported": "cspo.use.export.exported",
    "check_env": "cspo.envs.check",
    "probe": "cspo.lab.probe",
    "make_batch": "cspo.envs",
    "six_tuple": "cspo.envs.six_tuple",
    "register": "cspo.algorithms",
    "register_task": "cspo.envs.registration",
    "register_agent": "cspo.envs.registration",
    "CspoError": "cspo.errors",
    "EpochReport": "cspo.types",
    "Schedule": "cspo.experience.limits",
}
__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'cspo' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """Keeps `cspo.train` the function: importing the module of that name would take its place."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _PUBLIC and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package

register_tasks()  # gymnasium.make("cspo/...") works after `import cspo`
