"""The vector environment that ran in other processes there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from cspo.envs.six_tuple.vector.sync_vector_env import SafetySyncVectorEnv
from cspo.errors import CspoError


class SafetyAsyncVectorEnv(SafetySyncVectorEnv):
    """The same as `SafetySyncVectorEnv`: a native step takes less time than talking to a process.

    Args:
        env_fns: N functions that make one each.
        observation_space: Of one; by default that of the first.
        action_space: Of one; by default that of the first.
        shared_memory: Without effect, as are the next three.
        copy: See above.
        context: See above.
        daemon: See above.
        worker: Must be left out: there are no other processes to work in.
    """

    def __init__(
        self,
        env_fns: Iterable[Callable[[], Any]],
        observation_space: Any = None,
        action_space: Any = None,
        shared_memory: bool = True,
        copy: bool = True,
        context: str | None = None,
        daemon: bool = True,
        worker: Any = None,
    ) -> None:
        """Make them."""
        if worker is not None:
            raise CspoError("there are no other processes here for a `worker` to work in.")
        super().__init__(env_fns, observation_space, action_space, copy)
