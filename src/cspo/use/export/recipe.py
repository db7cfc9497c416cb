"""Everything that happens between a raw observation and a raw action, as plain arrays.

The three formats are written from this: leaves of the observation -> columns -> standardised ->
network -> distribution -> (drawn) -> action box -> leaves of the action.

Letters: B samples, D observation columns, O outputs of the network, G Gaussian columns of an
action, M choices, A = G + M.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cspo.envs.described import Leaf
from cspo.envs.layout import ActionLayout, ObservationLayout
from cspo.policy.distribution import Distribution
from cspo.policy.mlp import MLPActor
from cspo.policy.network import Pixels
from cspo.types import Array, FloatArray
from cspo.use.load import TrainedPolicy

DISTRIBUTION, NOISE = "distribution", "noise"  # outputs besides the action


class Port(NamedTuple):
    """An input or an output of an exported file; its arrays are (B, *shape)."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    content: str  # what it is, in words


class Options(NamedTuple):
    """Neighbouring choices of equally many options."""

    begin: int  # the first of their logits, counted from the first logit
    size: int  # how many choices
    options: int  # k of each; 1 is a bit


@dataclass(frozen=True)
class Recipe:
    """What a file is written from.

    Attributes:
        deterministic: Whether the file takes means and most probable options, or draws.
        seen: Layout of observations.
        done: Layout of actions.
        mean: Subtracted from columns (D,); None if they are not standardised.
        inverse_std: Then multiplied (D,).
        bound: Then the largest absolute values (D,), infinite where columns pass as they are.
        image: Whether the network sees bytes divided by 255.
        layers: Weights (in, out) and biases (out,) of an MLP with tanh; None of another network.
        module: A network in PyTorch, from (B, *shape) to (B, O), where there is no MLP.
        shape: Of what that network sees.
        distribution: What is drawn from the outputs.
        std: Standard deviations (G,).
        half_range: Of the action box, 1 where there are no bounds (G,).
        centre: Of the action box, 0 where there are no bounds (G,).
        low: Where actions are cut off (G,); None if they are not.
        high: The same above.
    """

    deterministic: bool
    seen: ObservationLayout
    done: ActionLayout
    mean: FloatArray | None
    inverse_std: FloatArray | None
    bound: FloatArray | None
    image: bool
    layers: list[tuple[Array, Array]] | None
    module: Any
    shape: tuple[int, ...]
    distribution: Distribution
    std: Array
    half_range: FloatArray
    centre: FloatArray
    low: FloatArray | None
    high: FloatArray | None

    @property
    def clips(self) -> bool:
        """Whether actions are cut off at their bounds."""
        return self.low is not None

    @property
    def inputs(self) -> list[Port]:
        """What a file takes: the leaves of an observation."""
        names = _names("observation", self.seen.leaves)
        return [_port(name, leaf) for name, leaf in zip(names, self.seen.leaves, strict=True)]

    @property
    def outputs(self) -> list[Port]:
        """What a file returns: the leaves of an action, and what they were drawn from."""
        names = _names("action", self.done.leaves)
        ports = [_port(name, leaf) for name, leaf in zip(names, self.done.leaves, strict=True)]
        size, actions = self.distribution.output_size, self.distribution.action_size
        ports.append(Port(DISTRIBUTION, (size,), "float32", "means, then logits"))
        if not self.deterministic:
            drawn = "what was drawn: deviations from the means, then uniform numbers"
            ports.append(Port(NOISE, (actions,), "float32", drawn))
        return ports

    @property
    def option_groups(self) -> list[Options]:
        """The choices, those with equally many options together."""
        groups, begin = [], 0
        for options, same in groupby(self.distribution.choices):
            groups.append(Options(begin, len(list(same)), options))
            begin += groups[-1].size * options
        return groups


def recipe_of(policy: TrainedPolicy, deterministic: bool, clip: bool | None = None) -> Recipe:
    """Return how a policy acts; `clip` is that of a `TrainedPolicy`'s call."""
    clip = policy.clip_actions if clip is None else clip
    trained, scaling = policy.networks, policy.scaling
    actor, distribution = trained.actor, trained.actor.distribution
    numbers = slice(distribution.gaussians)
    seen, done = layouts_of(policy)
    return Recipe(
        deterministic,
        seen,
        done,
        *_standardising(trained.normaliser),
        image=isinstance(trained.normaliser, Pixels),
        layers=_layers(actor.mlp.sizes, actor.parameters) if isinstance(actor, MLPActor) else None,
        module=getattr(actor, "module", None),  # of a network in PyTorch, which is an extra
        shape=seen.shape,
        distribution=distribution,
        std=np.exp(actor.log_std),
        half_range=scaling.half_range[numbers],
        centre=scaling.centre[numbers],
        low=scaling.low[numbers] if clip else None,
        high=scaling.high[numbers] if clip else None,
    )


def layouts_of(policy: TrainedPolicy) -> tuple[ObservationLayout, ActionLayout]:
    """Return the layouts of a policy; those of a native task are boxes of flat numbers."""
    seen, done = policy.observation_layout, policy.action_layout
    return (
        ObservationLayout(flat_box(policy.observation_size)) if seen is None else seen,
        ActionLayout(flat_box(policy.action_size)) if done is None else done,
    )


def flat_box(size: int) -> dict[str, Any]:
    """Return the description of a box of so many numbers."""
    return {"kind": "box", "shape": [size], "dtype": "float64"}


def _standardising(
    normaliser: Any,
) -> tuple[FloatArray | None, FloatArray | None, FloatArray | None]:
    """Return mean, inverse standard deviation and bound (D,), or three times nothing."""
    if not normaliser.enabled or normaliser.count <= 1:
        return None, None, None
    mean, inverse = normaliser.mean.copy(), normaliser.inverse_std.copy()
    bound = np.full(len(mean), float(normaliser.clip))
    if normaliser.as_is is not None:
        mean[normaliser.as_is], inverse[normaliser.as_is] = 0.0, 1.0
        bound[normaliser.as_is] = np.inf
    return mean, inverse, bound


def _layers(sizes: Sequence[int], parameters: Array) -> list[tuple[Array, Array]]:
    """Return weights (in, out) and biases (out,) of every layer, from the flat parameters."""
    layers, start = [], 0
    for fan_in, fan_out in pairwise(sizes):
        border, end = start + fan_in * fan_out, start + fan_in * fan_out + fan_out
        weight = parameters[start:border].reshape(fan_in, fan_out).copy()
        layers.append((weight, parameters[border:end].copy()))
        start = end
    return layers


def _names(stem: str, leaves: Sequence[Leaf]) -> list[str]:
    """Return a name for every leaf: its path after the stem, all different."""
    names: list[str] = []
    for leaf in leaves:
        name = ".".join([stem, *map(str, leaf.path)])
        while name in names:  # {"a.b": ...} beside {"a": {"b": ...}}
            name += "_"
        names.append(name)
    return names


WORDS = {"box": "numbers", "multi_discrete": "one option of each", "multi_binary": "bits"}


def _port(name: str, leaf: Leaf) -> Port:
    words = WORDS.get(leaf.kind, "")
    if leaf.kind == "discrete":
        words = f"an option, {leaf.start[0]} to {leaf.start[0] + leaf.options[0] - 1}"
    return Port(name, leaf.shape, leaf.dtype, words)


def option_columns(leaf: Leaf) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return which number of a leaf each of its flat columns is of, and which value makes it 1."""
    numbers = np.repeat(np.arange(len(leaf.options)), leaf.options)
    values = np.concatenate(
        [start + np.arange(k) for start, k in zip(leaf.start, leaf.options, strict=True)]
    )
    return numbers.astype(np.int64), values.astype(np.int64)
