"""The four navigation tasks as native batched simulators."""

from __future__ import annotations

from cspo.envs.navigation.task import NavigationEnv

__all__ = ["NavigationEnv"]
