"""The native tasks in Gymnasium's registry, put there by `import cspo`."""

from __future__ import annotations

import gymnasium

from cspo.envs.tasks import FACTS, NAMESPACE


def register_tasks() -> None:
    """Tell Gymnasium about the native tasks as "cspo/NAME"; a second call changes nothing."""
    for name, facts in FACTS.items():
        if NAMESPACE + name not in gymnasium.registry:
            gymnasium.register(
                id=NAMESPACE + name,
                entry_point="cspo.envs.gym:SafetyTaskEnv",
                vector_entry_point="cspo.envs.gym:SafetyVectorEnv",
                max_episode_steps=facts.row.time_limit,
                kwargs={"task": name},
            )
