"""`cspo.load`: a trained policy, with its normaliser frozen, as a function."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Generic, cast

import numpy as np

from cspo.arithmetic import single_threaded_math
from cspo.config import TrainConfig
from cspo.envs.layout import ActionLayout, Misfit, ObservationLayout
from cspo.errors import CspoError
from cspo.policy.mlp import MLPActor
from cspo.policy.network import Network
from cspo.policy.scaling import ActionScaling
from cspo.runs.checkpoint import epoch_of, list_checkpoints, load_newest, path_of
from cspo.runs.checkpoint import load as load_checkpoint
from cspo.runs.console import Console
from cspo.runs.folder import load_config
from cspo.runs.schema import check_state
from cspo.runs.trust import allowed_network
from cspo.settings import UnknownSettings
from cspo.setup import EARLIER_FACTS, build_policy
from cspo.streams import stream
from cspo.types import Action, FloatArray
from cspo.use.acting import Acting

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    ActionType = TypeVar("ActionType", default=Action, covariant=True)
else:
    from typing import TypeVar

    ActionType = TypeVar("ActionType", covariant=True)
StateType = TypeVar("StateType")
SMALL_PRODUCT = 2**17  # multiplications in a matrix product that is not worth two threads


class TrainedPolicy(Acting, Generic[ActionType]):
    """A policy and everything it needs to act: no environment, no trainer.

    Call it with a raw observation to get a raw action, in the environment's own units. What kind of
    action that is depends on the environment: `cspo.Action` has all of them, and
    `TrainedPolicy[int]` is a policy of which you know that it is a whole number.

    Attributes:
        config: Settings of the run it comes from.
        epoch: Epochs it was trained for.
        observation_size: D.
        action_size: A, the columns of a flat action.
        action_low: Lower bounds of a flat action, shape (A,).
        action_high: Upper bounds, shape (A,).
        action_choices: How many options each of the last columns has; 1 is a bit.
        cost_names: Names of the K costs.
        cost_limit: Limits at the end of training, shape (K,).
        clip_actions: Whether the environment received its actions cut off at these bounds.
        observation_layout: How raw observations become flat rows; None if they are.
        action_layout: How flat actions become raw ones; None if they are.
        networks: The normalisers, the actor and the critics.
        scaling: From the actor's actions to the environment's units.
    """

    def __init__(
        self, config: TrainConfig, state: dict[str, Any], policy: str | Network | None = None
    ) -> None:
        """Build the policy from a run's settings and the state in one of its checkpoints.

        `policy` makes its networks, if they are a user's own.
        """
        facts = EARLIER_FACTS | state["facts"]
        self.config, self.epoch = config, int(state["epoch"])
        self.observation_size = int(facts["observation_size"])
        self.action_size = int(facts["action_size"])
        self.action_low = np.array(facts["action_low"])
        self.action_high = np.array(facts["action_high"])
        self.cost_names: tuple[str, ...] = tuple(facts["cost_names"])
        self.cost_limit = np.array(state["cost_limit"])
        self.clip_actions = bool(facts["clip_actions"])
        seen, done = facts["observation_space"], facts["action_space"]
        self.observation_layout = None if seen is None else ObservationLayout(seen)
        self.action_layout = None if done is None else ActionLayout(done)
        self.action_choices = tuple(facts["action_choices"])
        self.scaling = ActionScaling(self.action_low, self.action_high, len(self.action_choices))
        # What an algorithm that is not known here asked for is what it was given.
        unknown = isinstance(config.algorithm, UnknownSettings)
        extra = len(state["policy"]["critics"]) - 1 - len(self.cost_names) if unknown else None
        self.networks = build_policy(config, SimpleNamespace(**facts), extra, policy)
        self.networks.load_state_dict(state["policy"])
        self._rng = stream(config.seed, "policy")
        self._few = _few_rows(self.networks.actor)

    def seed(self, seed: int) -> None:
        """Start the stream that stochastic actions are drawn from anew."""
        self._rng = stream(seed, "policy")

    def __call__(
        self, observation: object, *, deterministic: bool = True, clip: bool | None = None
    ) -> ActionType:
        """Return the action for an observation, or the actions for several.

        Args:
            observation: As the environment gives it, not normalised: an array, a whole number, a
                dict or a tuple. Several are a list of them, or one whose arrays have one axis
                more. Flat ones, (D,) or (B, D) floating-point numbers, are understood as well.
            deterministic: Take the mean and the most probable options; False draws as training did.
            clip: Cut the action off at the bounds of the action box. By default as in training: a
                Gymnasium environment was given clipped actions, a native task (whose physics clamps
                the controls, and whose reward counts the action as given) unclipped ones.

        Returns:
            What the environment takes: (A,) or (B, A) of a native task, else an action of its own
            space. Several are an array, or a list if they are dicts or tuples.
        """
        rows, several = self._rows(observation)
        flat = self.act(rows, deterministic=deterministic, clip=clip)
        return cast("ActionType", self._raw_actions(flat) if several else self._raw_action(flat[0]))

    def _raw_action(self, row: FloatArray) -> Action:
        """Return the action of the environment's own space that a flat one (A,) stands for."""
        if self.action_layout is None:
            return np.asarray(row)
        action: Action = self.action_layout.decode(row)
        return action

    def _raw_actions(self, flat: FloatArray) -> Action:
        """Return those of several (B, A)."""
        if self.action_layout is None:
            return flat
        actions = [self._raw_action(row) for row in flat]
        return actions if self.action_layout.nested else np.array(actions)

    def predict(
        self,
        observation: object,
        state: StateType | None = None,
        episode_start: object = None,
        deterministic: bool = False,
    ) -> tuple[Action, StateType | None]:
        """Return the action and the state, as a model of Stable-Baselines3 does.

        Args:
            observation: As in a call; several may also be one dict or tuple of arrays with one
                axis more, as a `VecEnv` gives them.
            state: Returned as it is: these policies remember nothing.
            episode_start: Has no effect, for the same reason.
            deterministic: Take the mean and the most probable options; the default draws.
        """
        action: Any = self(observation, deterministic=deterministic)
        nested = self.action_layout is not None and self.action_layout.nested
        return (action if nested else np.asarray(action)), state

    def act(
        self, rows: FloatArray, *, deterministic: bool = True, clip: bool | None = None
    ) -> FloatArray:
        """Return flat actions (B, A) for flat observations (B, D), as a `BatchEnv` has them."""
        x, actor = self.networks.normaliser(rows), self.networks.actor
        if len(x) <= self._few:
            output = actor.outputs(x)  # (B, O)
        else:
            with single_threaded_math():
                output = actor.outputs(x)
        if deterministic:
            action = actor.distribution.mode(output)  # (B, A)
        else:
            noise = actor.distribution.noise(self._rng, (len(x),), actor.log_std)
            action = actor.distribution.sample(output, noise)
        return self.scaling(action, clip=self.clip_actions if clip is None else clip)

    def _rows(self, observation: Any) -> tuple[FloatArray, bool]:
        """Return raw observations as rows (B, D), and whether they are several."""
        layout = self.observation_layout
        if layout is None or layout.box or _is_flat(observation):
            array = np.asarray(observation, dtype=np.float64)
            shapes: list[tuple[int, ...]] = [(self.observation_size,)]
            if layout is not None and layout.box:
                shapes.append(layout.shape)
            for shape in shapes:
                if shape in (array.shape, array.shape[1:]):
                    several = array.shape != shape
                    return array.reshape(-1, self.observation_size), several
            wanted = " or ".join(f"{_shown(shape)} or {_shown(('B', *shape))}" for shape in shapes)
            raise CspoError(f"The policy takes observations of shape {wanted}, not {array.shape}.")
        several = isinstance(observation, list)
        if isinstance(observation, np.ndarray) and len(layout.leaves) == 1:
            several = observation.ndim > len(layout.leaves[0].shape)
        try:
            if not several and (together := layout.batch_of(observation)) is not None:
                return layout.flatten_leaves(together), True
            rows = [layout.flatten(one) for one in (observation if several else [observation])]
        except Misfit as fault:
            raise CspoError(f"The policy was given {fault}.") from None
        return np.array(rows).reshape(-1, self.observation_size), several


def load(
    run_dir: Path | str,
    checkpoint: Path | str | int | None = None,
    *,
    policy: str | Network | None = None,
    plugin: str | None = None,
    trust: bool = False,
) -> TrainedPolicy[ActionType]:
    """Return the policy of a run.

    Examples:
        >>> policy = cspo.load("runs/mine")
        >>> observation, info = env.reset(seed=0)
        >>> action = policy(observation)  # as env.step takes it
        >>> ferry: cspo.TrainedPolicy[int] = cspo.load("runs/ferry")  # for a type checker

    Nothing that the run names is imported for it, but for a network of your own (see SECURITY.md).
    Says so on the error stream if its newest checkpoint is damaged.

    Args:
        run_dir: The run's folder.
        checkpoint: A checkpoint file, or the number of epochs after which it was written; by
            default the newest that is not damaged.
        policy: What makes the networks, if the run used such an object; or its name, to say that
            this is what may be imported.
        plugin: File or module with the run's algorithm, to be loaded; acting does not need it.
        trust: Import the network that the run names, also if the run was not started by this user
            here.
    """
    run_dir = Path(run_dir)
    config = load_config(run_dir, plugin)
    folder, network = run_dir / "checkpoints", allowed_network(config, policy, trust)

    def accept(state: dict[str, Any]) -> None:
        check_state(state, config, network, trains=False)

    if checkpoint is None:
        state, notes = load_newest(folder, accept=accept)
        for note in notes:
            Console().note(note)
        if state is None:
            command = f"cspo train --resume {run_dir}"
            raise CspoError(f"{run_dir} has no checkpoint yet: train it first, `{command}`.")
        return TrainedPolicy(config, state, network)
    if isinstance(checkpoint, int):
        checkpoint = path_of(folder, checkpoint)
    path = Path(checkpoint)
    if not path.exists():
        epochs = [str(epoch_of(one)) for one in list_checkpoints(folder)]
        kept = f"The run keeps those of epochs: {', '.join(epochs) or 'none'}."
        raise CspoError(f"There is no checkpoint {path}. {kept}")
    return TrainedPolicy(config, load_checkpoint(path, accept), network)


def _few_rows(actor: Any) -> int:
    """Return up to how many observations BLAS uses one thread by itself: asking it takes longer."""
    if not isinstance(actor, MLPActor):
        return 0
    return int(SMALL_PRODUCT // max(a * b for a, b in pairwise(actor.mlp.sizes)))


def _is_flat(observation: Any) -> bool:
    """Whether an observation of a space that is no box comes as flat rows."""
    return isinstance(observation, np.ndarray) and observation.dtype.kind == "f"


def _shown(shape: tuple[Any, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
