"""Where experience comes from: native tasks and any Gymnasium environment, behind one interface."""

from __future__ import annotations

from cspo.envs.batch import BatchEnv, StepResult
from cspo.envs.facts import TaskRow
from cspo.envs.make import make_batch
from cspo.envs.tasks import native_tasks

__all__ = ["BatchEnv", "StepResult", "TaskRow", "make_batch", "native_tasks"]
