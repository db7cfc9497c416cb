"""`cspo.load`: a trained policy, with its normaliser frozen, as a function."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cspo.arithmetic import single_threaded_math
from cspo.config import TrainConfig
from cspo.envs.batch import BatchEnv
from cspo.errors import CspoError
from cspo.policy.scaling import ActionScaling
from cspo.runs.checkpoint import epoch_of, list_checkpoints, load_newest, path_of
from cspo.runs.checkpoint import load as load_checkpoint
from cspo.runs.console import Console
from cspo.runs.folder import load_config
from cspo.runs.schema import check_state
from cspo.settings import UnknownSettings
from cspo.setup import build_policy
from cspo.streams import stream
from cspo.types import FloatArray


class TrainedPolicy:
    """A policy and everything it needs to act: no environment, no trainer.

    Call it with a raw observation to get an action in the environment's own units.

    Attributes:
        config: Settings of the run it comes from.
        epoch: Epochs it was trained for.
        observation_size: D.
        action_size: A.
        action_low: Lower bounds of the action box, shape (A,).
        action_high: Upper bounds, shape (A,).
        cost_names: Names of the K costs.
        cost_limit: Limits at the end of training, shape (K,).
        clip_actions: Whether the environment received its actions cut off at these bounds.
    """

    def __init__(self, config: TrainConfig, state: dict[str, Any]) -> None:
        """Build the policy from a run's settings and the state in one of its checkpoints."""
        facts = state["facts"]
        self.config, self.epoch = config, int(state["epoch"])
        self.observation_size = int(facts["observation_size"])
        self.action_size = int(facts["action_size"])
        self.action_low = np.array(facts["action_low"])
        self.action_high = np.array(facts["action_high"])
        self.cost_names: tuple[str, ...] = tuple(facts["cost_names"])
        self.cost_limit = np.array(state["cost_limit"])
        self.clip_actions = bool(facts["clip_actions"])
        self._scaling = ActionScaling(self.action_low, self.action_high)
        # What an algorithm that is not known here asked for is what it was given.
        unknown = isinstance(config.algorithm, UnknownSettings)
        extra = len(state["policy"]["critics"]) - 1 - len(self.cost_names) if unknown else None
        self._policy = build_policy(config, SimpleNamespace(**facts), extra)
        self._policy.load_state_dict(state["policy"])
        self._rng = stream(config.seed, "policy")

    def seed(self, seed: int) -> None:
        """Start the stream that stochastic actions are drawn from anew."""
        self._rng = stream(seed, "policy")

    def __call__(
        self, observation: ArrayLike, *, deterministic: bool = True, clip: bool | None = None
    ) -> FloatArray:
        """Return the action (A,) for an observation (D,), or (B, A) for (B, D).

        Args:
            observation: As the environment gives it, not normalised.
            deterministic: Take the mean of the policy; False draws from it as training did.
            clip: Cut the action off at the bounds of the action box. By default as in training: a
                Gymnasium environment was given clipped actions, a native task (whose physics clamps
                the controls, and whose reward counts the action as given) unclipped ones.
        """
        raw = np.asarray(observation, dtype=np.float64)
        size = self.observation_size
        if raw.ndim not in (1, 2) or raw.shape[-1] != size:
            wanted = f"({size},) or (B, {size})"
            raise CspoError(f"The policy takes observations of shape {wanted}, not {raw.shape}.")
        x = self._policy.normaliser(np.atleast_2d(raw))
        actor = self._policy.actor
        with single_threaded_math():
            output = actor.outputs(x)  # (B, O)
        if deterministic:
            action = actor.distribution.mode(output)  # (B, A)
        else:
            noise = actor.distribution.noise(self._rng, (len(x),), actor.log_std)
            action = actor.distribution.sample(output, noise)
        scaled = self._scaling(action, clip=self.clip_actions if clip is None else clip)
        return np.asarray(scaled[0] if raw.ndim == 1 else scaled)

    def check_sizes(self, env: BatchEnv) -> None:
        """Refuse an environment with other sizes of observations, actions or costs."""
        theirs = (env.observation_size, env.action_size, len(env.cost_names))
        ours = (self.observation_size, self.action_size, len(self.cost_names))
        if theirs != ours:
            raise CspoError(
                f"The environment has sizes {theirs} of observation, action and costs; "
                f"the policy was trained on {ours}."
            )


def load(
    run_dir: Path | str, checkpoint: Path | str | int | None = None, *, plugin: str | None = None
) -> TrainedPolicy:
    """Return the policy of a run; nothing that the run names is imported for it.

    Says so on the error stream if its newest checkpoint is damaged.

    Args:
        run_dir: The run's folder.
        checkpoint: A checkpoint file, or the number of epochs after which it was written; by
            default the newest that is not damaged.
        plugin: File or module with the run's algorithm, to be loaded; acting does not need it.
    """
    run_dir = Path(run_dir)
    config = load_config(run_dir, plugin)
    folder = run_dir / "checkpoints"

    def accept(state: dict[str, Any]) -> None:
        check_state(state, config)

    if checkpoint is None:
        state, notes = load_newest(folder, accept=accept)
        for note in notes:
            Console().note(note)
        if state is None:
            command = f"cspo train --resume {run_dir}"
            raise CspoError(f"{run_dir} has no checkpoint yet: train it first, `{command}`.")
        return TrainedPolicy(config, state)
    if isinstance(checkpoint, int):
        checkpoint = path_of(folder, checkpoint)
    path = Path(checkpoint)
    if not path.exists():
        epochs = [str(epoch_of(one)) for one in list_checkpoints(folder)]
        kept = f"The run keeps those of epochs: {', '.join(epochs) or 'none'}."
        raise CspoError(f"There is no checkpoint {path}. {kept}")
    return TrainedPolicy(config, load_checkpoint(path, accept))
