"""cspo: train policies that maximise return while keeping costs under limits."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

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
    "from_sb3": "cspo.use.sb3",
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
    "Summary": "cspo.runs.summary",
    "TrainedPolicy": "cspo.use.load",
    "Action": "cspo.types",
    "EvaluationRow": "cspo.use.evaluate",
    "ProbeResult": "cspo.lab.probe",
    "Settings": "cspo.flat",
}
__all__ = ["__version__", *_PUBLIC]

if TYPE_CHECKING:  # the same for type checkers and editors, which do not run what is below
    from cspo.algorithms import register as register
    from cspo.config import TrainConfig as TrainConfig
    from cspo.config import make_config as make_config
    from cspo.envs import make_batch as make_batch
    from cspo.envs.check import check_env as check_env
    from cspo.envs.registration import register_agent as register_agent
    from cspo.envs.registration import register_task as register_task
    from cspo.envs.six_tuple import six_tuple as six_tuple
    from cspo.errors import CspoError as CspoError
    from cspo.experience.limits import Schedule as Schedule
    from cspo.flat import Settings as Settings
    from cspo.lab.probe import ProbeResult as ProbeResult
    from cspo.lab.probe import probe as probe
    from cspo.runs.session import resume as resume
    from cspo.runs.session import train as train
    from cspo.runs.summary import Summary as Summary
    from cspo.runs.trainer import Trainer as Trainer
    from cspo.types import Action as Action
    from cspo.types import EpochReport as EpochReport
    from cspo.use.evaluate import EvaluationRow as EvaluationRow
    from cspo.use.evaluate import evaluate as evaluate
    from cspo.use.export.exported import load_exported as load_exported
    from cspo.use.export.write import export as export
    from cspo.use.load import TrainedPolicy as TrainedPolicy
    from cspo.use.load import load as load
    from cspo.use.record import record as record
    from cspo.use.sb3 import from_sb3 as from_sb3
else:

    def __getattr__(name):
        if name in _PUBLIC:
            return getattr(importlib.import_module(_PUBLIC[name]), name)
        raise AttributeError(f"module 'cspo' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """Keeps `cspo.train` the function: importing the module of that name would take its place."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _PUBLIC and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package

register_tasks()  # gymnasium.make("cspo/...") works after `import cspo`
