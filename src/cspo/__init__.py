"""cspo: train policies that maximise return while keeping costs under limits."""

from __future__ import annotations

import importlib
from typing import Any

from cspo.envs.registration import register_tasks

__version__ = "0.1.0"

# Imported on first use: `import cspo` and `cspo --help` must not wait for PyTorch or MuJoCo.
_PUBLIC = {
    "Trainer": "cspo.loop",
    "train": "cspo.session",
    "resume": "cspo.session",
    "make_config": "cspo.config",
    "TrainConfig": "cspo.config",
    "load": "cspo.evaluation",
    "evaluate": "cspo.evaluation",
    "record": "cspo.recording",
    "check_env": "cspo.envs.check",
    "make_batch": "cspo.envs",
    "six_tuple": "cspo.envs.six_tuple",
    "register": "cspo.algorithms",
    "CspoError": "cspo.errors",
    "EpochReport": "cspo.types",
}
__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'cspo' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


register_tasks()  # gymnasium.make("cspo/...") works after `import cspo`
