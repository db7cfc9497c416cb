"""Where experience comes from: native tasks and any Gymnasium environment, behind one interface."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cspo.envs.batch import BatchEnv, StepResult
from cspo.envs.facts import TaskRow
from cspo.envs.tasks import native_tasks

if TYPE_CHECKING:
    from cspo.envs.make import make_batch as make_batch
else:

    def __getattr__(name):
        """Import the adapters on first use: `import cspo` passes here."""
        if name != "make_batch":
            raise AttributeError(f"module 'cspo.envs' has no attribute {name!r}")
        from cspo.envs.make import make_batch

        return make_batch


__all__ = ["BatchEnv", "StepResult", "TaskRow", "make_batch", "native_tasks"]
