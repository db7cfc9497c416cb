"""Settings of the environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cspo.settings import setting


@dataclass(frozen=True)
class EnvironmentSettings:
    """What the environment is made with."""

    cost_terms: tuple[str, ...] = ()
    """Constrain these terms of the task's cost one by one instead of their sum, as
    `hazards,gremlins`."""
    env_options: dict[str, Any] = setting({})
    """Keyword arguments the environment is made with, as `key=value,key=value`; text in quotes."""
