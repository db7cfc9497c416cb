"""A trained policy in plain NumPy: this file is all it needs.

    from policy import Policy

    policy = Policy()
    action, state = policy.predict(observation)

An observation is what the environment gives: an array, a whole number, a dict or a tuple of these;
or several at once, every array in it with one axis more in front. Actions come back likewise.
`Policy.card` says what it was trained on.
"""

import base64
import io
import json

import numpy as np


class Policy:
    """The policy, with everything between raw observations and raw actions.

    Attributes:
        card: What it was trained on, and names and shapes of inputs and outputs.
        deterministic: What `predict` does unless it is told.
    """

    def __init__(self, seed=None):
        """Read the numbers below; `seed` is of what is drawn."""
        file = np.load(io.BytesIO(base64.b64decode(DATA)), allow_pickle=False)
        arrays = {name: file[name] for name in file.files}
        self.card = json.loads(arrays.pop("card").tobytes().decode())
        spec = json.loads(arrays.pop("spec").tobytes().decode())
        self.deterministic = spec["deterministic"]
        self._seen, self._done = spec["seen"], spec["done"]
        self._seen_tree, self._done_tree = spec["seen_tree"], spec["done_tree"]
        self._gaussians, self._choices = spec["gaussians"], spec["choices"]
        self._layers = [(arrays[f"weight_{i}"], arrays[f"bias_{i}"]) for i in range(spec["layers"])]
        self._std, self._half_range = arrays["std"], arrays["half_range"]
        self._centre, self._mean = arrays["centre"], arrays.get("mean")
        self._inverse_std, self._bound = arrays.get("inverse_std"), arrays.get("bound")
        self._low, self._high = arrays.get("low"), arrays.get("high")
        self._is_row = len(self._seen) == 1 and self._seen[0]["kind"] == "box"
        self._is_row = self._is_row and len(self._seen[0]["shape"]) == 1
        self.seed(seed)

    def seed(self, seed=None):
        """Start the random numbers anew."""
        self._random = np.random.default_rng(seed)

    def predict(self, observation, state=None, episode_start=None, deterministic=None):
        """Return the action and the state, which such a policy does not have.

        Args:
            observation: One, or several.
            state: Returned as it is.
            episode_start: Has no effect.
            deterministic: Take means and the most probable options, or draw.
        """
        parts = self._leaves(observation)
        results = self._act(parts, self.deterministic if deterministic is None else deterministic)
        return _assemble(self._done_tree, iter(results[0])), state

    def __call__(self, observation, deterministic=None):
        """Return the action."""
        return self.predict(observation, deterministic=deterministic)[0]

    def run(self, inputs, deterministic=None):
        """Return outputs by name for inputs by name, arrays (B, ...), as an ONNX file would."""
        parts = [np.asarray(inputs[leaf["name"]]) for leaf in self._seen]
        deterministic = self.deterministic if deterministic is None else deterministic
        actions, output, noise = self._act(parts, deterministic)
        # Without strict=, which Python 3.9 does not know.
        named = {leaf["name"]: value for leaf, value in zip(self._done, actions)}  # noqa: B905
        named["distribution"] = output
        return named if noise is None else {**named, "noise": noise}

    def _leaves(self, observation):
        """Return the arrays that an observation is made of."""
        if self._is_row:
            return [np.asarray(observation)]
        parts = []
        for leaf in self._seen:
            value = observation
            for key in leaf["path"]:
                value = value[key]
            parts.append(np.asarray(value))
        return parts

    def _act(self, parts, deterministic):
        """Return the leaves of the action, what it was drawn from (..., O), and the noise."""
        columns = [_flat(leaf, part) for leaf, part in zip(self._seen, parts)]  # noqa: B905
        x = columns[0] if len(columns) == 1 else np.concatenate(columns, axis=-1)
        if self._mean is not None:
            x = (x - self._mean) * self._inverse_std
            np.minimum(x, self._bound, out=x)
            np.maximum(x, -self._bound, out=x)
        output = self._network(x.astype(np.float32))
        noise = None if deterministic else self._draw(output.shape[:-1])
        numbers = chosen = None
        if self._gaussians:
            numbers = output[..., : self._gaussians]
            if noise is not None:
                numbers = numbers + noise[..., : self._gaussians]
            numbers = numbers * self._half_range + self._centre
            if self._low is not None:
                numbers = np.maximum(np.minimum(numbers, self._high), self._low)
        if self._choices:
            uniform = None if noise is None else noise[..., self._gaussians :]
            chosen = self._choose(output[..., self._gaussians :], uniform)
        return [_raw(leaf, numbers, chosen) for leaf in self._done], output, noise

    def _network(self, x):
        """Return the outputs (..., O): means, then logits."""
        for weight, bias in self._layers[:-1]:
            x = np.tanh(x @ weight + bias)
        weight, bias = self._layers[-1]
        return x @ weight + bias

    def _draw(self, shape):
        """Return deviations from the means, then a uniform number for each choice, (..., A)."""
        normal = self._random.standard_normal((*shape, self._gaussians), dtype=np.float32)
        uniform = self._random.random((*shape, len(self._choices)), dtype=np.float32)
        return np.concatenate([normal * self._std, uniform], axis=-1)

    def _choose(self, logits, uniform):
        """Return the index of the option of every choice, (..., M)."""
        chosen, begin = [], 0
        for m, options in enumerate(self._choices):
            own = logits[..., begin : begin + options]
            begin += options
            if options == 1:  # a bit, whose logit is its log-odds
                bit = own[..., 0]
                if uniform is None:
                    chosen.append(bit > 0.0)
                else:
                    chosen.append(uniform[..., m] < 0.5 * (1.0 + np.tanh(0.5 * bit)))
            elif uniform is None:
                chosen.append(own.argmax(axis=-1))
            else:
                weights = np.exp(own - own.max(axis=-1, keepdims=True))
                below = np.cumsum(weights, axis=-1) / weights.sum(axis=-1, keepdims=True)
                chosen.append((uniform[..., m : m + 1] >= below[..., :-1]).sum(axis=-1))
        return np.stack(chosen, axis=-1).astype(np.int64)


def _flat(leaf, value):
    """Return the columns (..., width) of a part of an observation."""
    shape, ndim = leaf["shape"], len(leaf["shape"])
    front = value.shape[: value.ndim - ndim]
    if len(front) > 1 or value.shape[len(front) :] != tuple(shape):
        raise ValueError(f"{leaf['name']} has the shape {value.shape}, not {tuple(shape)}")
    if ndim != 1:
        value = value.reshape(*front, -1)
    if not leaf["start"]:
        return value if value.dtype == np.float64 else value.astype(np.float64)
    value = value.astype(np.int64) - leaf["start"]
    if ((value < 0) | (value >= leaf["options"])).any():
        raise ValueError(f"{leaf['name']} is no option there")
    return np.concatenate(
        [value[..., i, None] == np.arange(k) for i, k in enumerate(leaf["options"])], axis=-1
    ).astype(np.float64)


def _raw(leaf, numbers, chosen):
    """Return a part of the action from numbers (..., G) and choices (..., M)."""
    begin, end, shape = leaf["begin"], leaf["end"], leaf["shape"]
    if leaf["kind"] == "box":
        value = numbers[..., begin:end]
        if leaf["round"]:
            low, high = leaf["round"]
            value = np.minimum(np.maximum(np.rint(value), low), high)
    elif leaf["kind"] == "multi_binary":
        value = chosen[..., begin:end]
    else:
        front = (chosen if numbers is None else numbers).shape[:-1]
        value = np.zeros((*front, len(leaf["start"])), np.int64)
        if leaf["open"]:
            value[..., leaf["open"]] = chosen[..., begin:end]
        value += np.array(leaf["start"], np.int64)
    value = value.astype(leaf["dtype"])
    if len(shape) != 1:
        value = value.reshape((*value.shape[:-1], *shape))
    return int(value) if leaf["kind"] == "discrete" and value.ndim == 0 else value


def _assemble(tree, values):
    """Return the nested value of leaves that come in order."""
    if tree is None:
        return next(values)
    if isinstance(tree, list):
        return tuple(_assemble(part, values) for part in tree)
    return {name: _assemble(part, values) for name, part in tree.items()}


# What follows is data: settings and numbers of the policy (.npz, base64).
DATA = ""
