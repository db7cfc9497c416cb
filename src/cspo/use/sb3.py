"""`cspo.from_sb3`: the actor of a PPO of Stable-Baselines3, to start a training from."""

from __future__ import annotations

from typing import Any

import numpy as np

from cspo.envs.layout import ActionLayout, ObservationLayout
from cspo.envs.spaces import Unsupported, action_bounds, action_layout, describe
from cspo.errors import CspoError
from cspo.policy.scaling import ActionScaling
from cspo.runs.warm_start import WarmStart
from cspo.types import Array

FLATTENERS = ("FlattenExtractor", "CombinedExtractor")
COUNT = 1e9  # observations that statistics count for at most


def from_sb3(model: Any) -> WarmStart:
    """Return the actor of a loaded PPO model, as `cspo.train(..., init_from=...)` takes it.

    The actor's layers, its standard deviations and, if the model was trained with `VecNormalize`,
    the statistics of observations are taken. The critics begin anew: the model has none for costs.
    Its settings have to be the new run's: `cspo.train(env, init_from=start, **start.settings)`.

    Args:
        model: What `stable_baselines3.PPO.load` or a training gave. A file is not taken: reading
            one runs code in it (pickle), which is for you to decide.

    Raises:
        CspoError: If the model is of another kind than the compiled MLP can be.
    """
    policy = getattr(model, "policy", None)
    if isinstance(model, str) or not hasattr(policy, "mlp_extractor"):
        raise CspoError(
            "from_sb3 takes a loaded model with an actor, such as PPO.load(...), not "
            f"{type(model).__name__}: loading a file runs code in it."
        )
    try:
        seen, done = describe(model.observation_space), action_layout(model.action_space)
    except Unsupported as fault:
        raise CspoError(f"The model cannot be taken: its space {fault}.") from fault
    if ObservationLayout(seen).is_image:
        raise CspoError("The model sees images: only an actor of numbers fits.")
    layers, hidden = _layers(policy)
    low, high = action_bounds(model.action_space, done)
    statistics, settings = _statistics(model, hidden)
    facts = {
        "observation_space": seen,
        "action_space": done.description,
        "action_choices": list(done.choices),
        "action_low": low,
        "action_high": high,
    }
    return WarmStart(
        label=f"<{type(model).__name__}>",
        told=f"the {type(model).__name__} of Stable-Baselines3",
        facts=facts,
        settings=settings,
        actor=_parameters(policy, layers, done, ActionScaling(low, high, len(done.choices))),
        normaliser=statistics,
    )


def _layers(policy: Any) -> tuple[list[tuple[Array, Array]], tuple[int, ...]]:
    """Return weights (in, out) and biases of the actor, and the sizes of its hidden layers."""
    if getattr(policy, "use_sde", False) or getattr(policy, "squash_output", False):
        raise CspoError("The model explores by gSDE, or squashes its actions: that is not ours.")
    extractor = type(policy.features_extractor).__name__
    if extractor not in FLATTENERS or any(
        parameter.numel() for parameter in policy.features_extractor.parameters()
    ):
        raise CspoError(f"The model extracts features ({extractor}): only an MlpPolicy fits.")
    layers, hidden = [], []
    for part in policy.mlp_extractor.policy_net:
        kind = type(part).__name__
        if kind == "Linear":
            layers.append(_linear(part))
            hidden.append(int(part.out_features))
        elif kind != "Tanh":
            raise CspoError(f"The model's actor has {kind}; ours has Tanh between its layers.")
    return [*layers, _linear(policy.action_net)], tuple(hidden)


def _linear(part: Any) -> tuple[Array, Array]:
    weight, bias = (x.detach().cpu().numpy() for x in (part.weight, part.bias))
    return weight.T.astype(np.float32), bias.astype(np.float32)


def _statistics(
    model: Any, hidden: tuple[int, ...]
) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return what `VecNormalize` has seen, if there is one, and the settings to go on with it."""
    settings: dict[str, Any] = {"hidden_sizes": hidden}
    wrapper = model.get_vec_normalize_env() if hasattr(model, "get_vec_normalize_env") else None
    if wrapper is None or not wrapper.norm_obs:
        return None, settings | {"normalise_observations": False}
    seen = wrapper.obs_rms
    if isinstance(seen, dict):
        raise CspoError("The model normalises a dict of observations: only a Box fits.")
    count = int(min(max(seen.count, 2), COUNT))
    variance = np.asarray(seen.var, np.float64).reshape(-1) + wrapper.epsilon
    statistics = {
        "count": count,
        "mean": np.asarray(seen.mean, np.float64).reshape(-1),
        "square_sum": variance * (count - 1),
    }
    clip = float(wrapper.clip_obs)
    return statistics, settings | {"normalise_observations": True, "observation_clip": clip}


def _parameters(
    policy: Any, layers: list[tuple[Array, Array]], done: ActionLayout, scaling: ActionScaling
) -> Array:
    """Return the actor's flat parameters; its means are in [-1, 1] here, and in units there."""
    weight, bias = (np.asarray(part, np.float64) for part in layers[-1])
    gaussians = done.gaussians
    log_std = np.zeros(0)
    if gaussians:
        half, centre = scaling.half_range[:gaussians], scaling.centre[:gaussians]
        weight, bias = weight / half, (bias - centre) / half
        log_std = policy.log_std.detach().cpu().numpy() - np.log(half)
    else:
        # A choice of one option has a logit there, and none here.
        options = [k for leaf in done.leaves for k in leaf.options or [2] * leaf.size]
        if done.leaves[0].options:
            kept = np.repeat(np.array(options) > 1, options)
            weight, bias = weight[:, kept], bias[kept]
    flat = [part.reshape(-1) for layer in layers[:-1] for part in layer]
    flat += [part.reshape(-1).astype(np.float32) for part in (weight, bias, log_std)]
    return np.concatenate(flat).astype(np.float32)
