"""How far an exported file is from the policy it was made of, on recorded observations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cspo.envs.layout import ObservationLayout
from cspo.streams import stream
from cspo.types import Array, FloatArray
from cspo.use.export.exported import ExportedPolicy
from cspo.use.export.recipe import DISTRIBUTION, NOISE, Recipe
from cspo.use.load import TrainedPolicy

TOLERANCE = 1e-5  # of a number, relative to half the width of its box, or to itself if it is large


@dataclass(frozen=True)
class Comparison:
    """The largest differences between a file and the policy it was made of.

    Attributes:
        observations: How many there were.
        recorded: Whether an environment gave them.
        action: Of the numbers in actions, in the environment's units; None without such numbers.
        distribution: Of means and logits.
        relative: The larger of both, as the tolerance has it.
        choices: How many choices there were.
        different_choices: How many of them differ where the policy is not in two minds, that is
            where no option is within the tolerance of the one chosen.
        tolerance: Above which a file is wrong.
    """

    observations: int
    recorded: bool
    action: float | None
    distribution: float
    relative: float
    choices: int
    different_choices: int
    tolerance: float = TOLERANCE

    @property
    def same(self) -> bool:
        """Whether the file acts as the policy does."""
        return self.relative <= self.tolerance and self.different_choices == 0


def compare(
    policy: TrainedPolicy, recipe: Recipe, file: ExportedPolicy, rows: FloatArray, recorded: bool
) -> Comparison:
    """Return how far a file is from its policy at flat observations (B, D).

    Where the file draws, the policy is given the numbers that it has drawn.
    """
    action, outputs = file.results(rows)
    alone = file.results(rows[:1])[1][DISTRIBUTION]  # a batch of one, too
    actor, kind = policy.networks.actor, recipe.distribution
    wanted = actor.outputs(policy.networks.normaliser(rows))  # (B, O)
    noise = None if recipe.deterministic else outputs[NOISE]
    drawn = kind.mode(wanted.copy()) if noise is None else kind.sample(wanted, noise.copy())
    scaled = policy.scaling(drawn, clip=recipe.clips)  # (B, A)
    gaussians = kind.gaussians
    distribution = np.abs(outputs[DISTRIBUTION] - wanted)
    distribution[0] = np.maximum(distribution[0], np.abs(alone[0] - wanted[0]))
    relative = [distribution / np.maximum(1.0, np.abs(wanted))]
    largest = None
    if gaussians:
        numbers = _differences(recipe, action, scaled)
        size = np.maximum(recipe.half_range, np.abs(scaled[:, :gaussians]))
        relative.append(numbers / size)
        largest = float(numbers.max())
    different = action[:, gaussians:] != scaled[:, gaussians:]
    different &= _decided(recipe, wanted, noise)
    return Comparison(
        observations=len(rows),
        recorded=recorded,
        action=largest,
        distribution=float(distribution.max()),
        relative=max(float(part.max()) for part in relative),
        choices=int(different.size),
        different_choices=int(different.sum()),
    )


def _differences(recipe: Recipe, action: FloatArray, scaled: FloatArray) -> FloatArray:
    """Return how far numbers (B, G) are from the policy's; rounding at a border is no difference.

    What is rounded to a coarse type may fall to either side where the policy is at the border.
    """
    near = TOLERANCE * recipe.half_range
    steps = scaled.copy(), scaled.copy(), scaled.copy()
    steps[1][:, : len(near)] -= near
    steps[2][:, : len(near)] += near
    wanted, below, above = (_as_raw(recipe, step)[:, : len(near)] for step in steps)
    own = action[:, : len(near)]
    difference = np.abs(own - wanted)
    coarse = np.concatenate(
        [
            np.full(leaf.size, leaf.dtype not in ("float32", "float64"))
            for leaf in recipe.done.leaves
            if leaf.kind == "box"
        ]
    )
    difference[coarse & (below <= own) & (own <= above)] = 0.0
    return difference


def _as_raw(recipe: Recipe, rows: FloatArray) -> FloatArray:
    """Return rows (B, A) rounded as raw actions are."""
    done = recipe.done
    return np.array([done.encode(done.decode(row)) for row in rows])


def _decided(recipe: Recipe, output: Array, noise: Array | None) -> NDArray[np.bool_]:
    """Return for each choice (B, M) whether rounding could not have changed it."""
    kind, decided, begin = recipe.distribution, [], recipe.distribution.gaussians
    for m, options in enumerate(kind.choices):
        logits = output[:, begin : begin + options].astype(np.float64)
        begin += options
        if options == 1:
            logits = np.concatenate([np.zeros_like(logits), logits], axis=1)
        if noise is None:
            best = np.sort(logits, axis=1)[:, -2:]
            decided.append(best[:, 1] - best[:, 0] > TOLERANCE)
        else:
            weights = np.exp(logits - logits.max(axis=1, keepdims=True))
            below = np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True)
            uniform = noise[:, kind.gaussians + m, None]
            borders = 1.0 - below if options == 1 else below  # a bit is 1 below its probability
            decided.append((np.abs(uniform - borders[:, :-1]) > TOLERANCE).all(axis=1))
    return np.stack(decided, axis=1) if decided else np.ones((len(output), 0), bool)


def drawn_observations(policy: TrainedPolicy, seen: ObservationLayout, count: int) -> FloatArray:
    """Return flat observations (B, D) as training's statistics have them, without an environment.

    Each column on its own: normal with the mean and the deviation seen, options and bits at random.
    """
    rng, normaliser = stream(policy.config.seed, "export"), policy.networks.normaliser
    rows = rng.standard_normal((count, seen.size))
    if normaliser.enabled and normaliser.count > 1:
        rows = normaliser.mean + rows / normaliser.inverse_std
    begin = 0
    for leaf in seen.leaves:
        columns = rows[:, begin : begin + leaf.width]
        if leaf.start:
            columns[:] = 0.0
            first = np.cumsum([0, *leaf.options[:-1]])
            for number, options in zip(first, leaf.options, strict=True):
                columns[np.arange(count), number + rng.integers(options, size=count)] = 1.0
        elif leaf.kind == "multi_binary":
            columns[:] = rng.integers(2, size=columns.shape)
        elif np.dtype(leaf.dtype).kind in "iu":
            info = np.iinfo(leaf.dtype)
            if normaliser.enabled:
                columns[:] = np.clip(np.rint(columns), max(info.min, -(2**53)), info.max)
            else:
                columns[:] = rng.integers(0, 256, columns.shape) % (int(info.max) + 1)
        begin += leaf.width
    return rows.astype(np.float64)
