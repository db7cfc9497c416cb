"""The native tasks in Gymnasium's registry; `import cspo` does this, which costs the import of Gymnasium."""

from __future__ import annotations

import gymnasium

from cspo.envs.tasks import NAMESPACE, native_tasks


def register_tasks() -> None:
    """Tell Gymnasium about the native tasks as "cspo/NAME"; a second call changes nothing."""
    for row in native_tasks():
        if NAMESPACE + row.name not in gymnasium.registry:
            gymnasium.register(
                id=NAMESPACE + row.name,
                entry_point="cspo.envs.gym:SafetyTaskEnv",
                vector_entry_point="cspo.envs.gym:SafetyVectorEnv",
                max_episode_steps=1000,
                kwargs={"task": row.name},
            )
