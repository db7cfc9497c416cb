"""Hand-written networks, gradients and optimisers against PyTorch's own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import (
    float64,
    make_learner,
    perturb,
    random_batch,
    reference_mlp,
    relative_error,
    small_policy,
    unpack,
)
from torch import Tensor, nn

from cspo.algorithms.learner import Loss
from cspo.algorithms.surrogates import clipped_reward
from cspo.errors import CspoError
from cspo.optim.adam import FlatAdam
from cspo.optim.autograd import AutogradObjective, Distribution, distribution
from cspo.optim.minibatch import MinibatchLearner
from cspo.policy.gaussian import log_density, mean_kl, standardise
from cspo.policy.kernels import add_bias_tanh
from cspo.policy.mlp import MLPActor
from cspo.policy.networks import CHUNK, StackedMLP, parameter_count
from cspo.types import Array, Batch

# float32 sums over a batch differ from float64 by a few units of 6e-8 times the condition of the
# sum; the largest relative error (Euclidean norm) seen in this file is 6e-7.
FLOAT32 = 2e-6


def stacked(count: int, sizes: Sequence[int], seed: int = 0) -> tuple[StackedMLP, Array, Array]:
    """Return `count` networks with their parameters and gradients."""
    parameters = np.zeros((count, parameter_count(sizes)), np.float32)
    gradient = np.full_like(parameters, np.nan)  # anything `backward` forgets stays visible
    mlp = StackedMLP(sizes, parameters, gradient)
    mlp.initialise(np.random.default_rng(seed))
    return mlp, parameters, gradient


def double(values: Any) -> Tensor:
    """Copy an array to a float64 tensor, for PyTorch's own arithmetic."""
    return torch.from_numpy(float64(values))


def sequential(flat: Array, sizes: Sequence[int]) -> nn.Sequential:
    """Return one network as PyTorch modules in float64."""
    layers, _ = unpack(double(flat), sizes)
    modules: list[nn.Module] = []
    for weight, bias in layers:
        linear = nn.Linear(*weight.shape).double()
        with torch.no_grad():
            linear.weight.copy_(weight.T)
            linear.bias.copy_(bias)
        modules += [linear, nn.Tanh()]
    return nn.Sequential(*modules[:-1])


def flat_gradient(network: nn.Sequential) -> np.ndarray:
    """Return a network's gradient in the order of the flat parameters."""
    pieces = []
    for module in network:
        if isinstance(module, nn.Linear):
            assert module.weight.grad is not None
            assert module.bias.grad is not None
            pieces += [module.weight.grad.T.reshape(-1), module.bias.grad]
    return float64(torch.cat(pieces))


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("sizes", [(3, 2), (7, 64, 1), (5, 64, 64, 3), (4, 9, 8, 7, 2)])
@pytest.mark.parametrize("rows", [1, 7, 512])
def test_stacked_networks_equal_torch_modules(
    count: int, sizes: tuple[int, ...], rows: int
) -> None:
    mlp, parameters, gradient = stacked(count, sizes)
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, sizes[0], generator=generator)
    grad_output = torch.randn(count, rows, sizes[-1], generator=generator)
    order = np.random.default_rng(rows).permutation(rows)
    back = np.argsort(order)
    output = [mlp.forward(k, x.numpy(), order)[back] for k in range(count)]
    for k in range(count):
        mlp.backward(k, grad_output[k].numpy()[order])
    assert output[0].dtype == np.float32
    for k in range(count):
        network = sequential(parameters[k], sizes)
        expected = network(x.double())
        expected.backward(grad_output[k].double())
        np.testing.assert_allclose(float64(output[k]), float64(expected), atol=1e-6)
        assert relative_error(gradient[k], flat_gradient(network)) < FLOAT32


@pytest.mark.parametrize("rows", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 37])
def test_predict_gives_every_row_of_any_batch(rows: int) -> None:
    mlp, parameters, _ = stacked(3, (5, 8, 8, 2))
    x = torch.randn(rows, 5, generator=torch.Generator().manual_seed(0)).numpy()
    result = mlp.predict(x)
    assert result.shape == (3, rows, 2)
    for k in range(3):
        expected = reference_mlp(unpack(float64(parameters[k]), mlp.sizes)[0], float64(x))
        np.testing.assert_allclose(float64(result[k]), expected, atol=1e-6)


def test_predict_returns_an_array_that_later_calls_leave_alone() -> None:
    mlp, _, _ = stacked(2, (3, 4, 1))
    x = torch.randn(10, 3, generator=torch.Generator().manual_seed(0)).numpy()
    first = mlp.predict(x)
    kept = first.copy()
    mlp.predict(x + np.float32(1.0))
    assert np.array_equal(first, kept)


def test_tanh_is_accurate_to_single_precision_everywhere() -> None:
    u = np.concatenate(
        [np.linspace(-12.0, 12.0, 200_001), np.logspace(-30, 1, 1000), [-1e30, 1e30, 0.0]]
    )
    x = u.astype(np.float32)[:, None].copy()
    add_bias_tanh(x, np.zeros(1, np.float32))
    exact = np.tanh(u.astype(np.float32).astype(np.float64))
    assert np.abs(x[:, 0] - exact).max() < 5e-7
    small = np.abs(u) < 1e-3
    np.testing.assert_allclose(x[small, 0], exact[small], rtol=5e-7)  # relative accuracy near zero
    assert np.abs(x).max() <= 1.0 + 5e-7
    not_a_number = np.full((1, 1), np.nan, np.float32)
    add_bias_tanh(not_a_number, np.zeros(1, np.float32))
    assert np.isnan(not_a_number).all(), "a broken network must not look healthy"


def test_initial_weights_and_biases_fill_plus_minus_one_over_root_fan_in() -> None:
    mlp, parameters, _ = stacked(400, (60, 64, 64, 2))
    networks = [unpack(row, mlp.sizes)[0] for row in float64(parameters)]
    for layer, fan_in in enumerate((60, 64, 64)):
        bound = fan_in**-0.5
        weight, bias = (np.stack([network[layer][part] for network in networks]) for part in (0, 1))
        for values in (weight.ravel(), bias.ravel()):
            assert np.abs(values).max() <= bound * (1.0 + 1e-6)
            # Uniform: at least 800 draws come within 3 % of both ends, and the standard deviation
            # is bound / sqrt(3) (standard error of the estimate: below 1.8 %).
            assert values.max() > 0.97 * bound
            assert values.min() < -0.97 * bound
            assert values.std() == pytest.approx(bound / np.sqrt(3.0), rel=0.06)


def test_actor_of_60_observations_and_2_actions_has_8196_parameters() -> None:
    actor = MLPActor((60, 64, 64, 2), 0.0, np.random.default_rng(0))
    assert actor.parameters.size == 8196
    assert np.array_equal(actor.log_std, np.zeros(2))


def _surrogate(log_prob: Tensor, mean: Tensor, log_std: Tensor, ratio: Tensor, data: Any) -> Tensor:
    return (ratio * data.adv_r).minimum(ratio.clamp(0.8, 1.2) * data.adv_r).mean()


def _kl_old_new(
    log_prob: Tensor, mean: Tensor, log_std: Tensor, ratio: Tensor, data: Any
) -> Tensor:
    variance, old_variance = (2.0 * log_std).exp(), (2.0 * data.log_std).exp()
    kl = (
        log_std - data.log_std + (old_variance + (data.output - mean) ** 2) / (2.0 * variance) - 0.5
    )
    return kl.sum(1).mean()


LOSSES: dict[str, Callable[..., Tensor]] = {
    "log_prob": lambda log_prob, mean, log_std, ratio, data: (log_prob * data.adv_r).mean(),
    "squared log_prob": lambda log_prob, mean, log_std, ratio, data: log_prob.square().sum(),
    "mean": lambda log_prob, mean, log_std, ratio, data: mean.pow(3).sum(),
    "log_std": lambda log_prob, mean, log_std, ratio, data: log_std.exp().square().sum(),
    "mean and log_std": lambda log_prob, mean, log_std, ratio, data: (
        (mean * (-log_std).exp()).square().mean()
    ),
    "clipped surrogate": _surrogate,
    "KL(old || new)": _kl_old_new,
    "all": lambda *args: (
        _surrogate(*args) + 0.3 * _kl_old_new(*args) + args[2].sum() + args[1].mean()
    ),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("rows", [1, 33, 512])
def test_gradient_of_any_loss_of_the_distribution_equals_autograd(name: str, rows: int) -> None:
    policy = small_policy(6, 3, hidden=(16, 16))
    with np.errstate(invalid="ignore"):
        data = random_batch(policy, rows)
    if rows == 1:
        data.adv_r[:] = 1.3  # a single standardised advantage is not a number
    perturb(policy, 0.05)
    actor, sizes, loss = policy.actor, policy.actor.mlp.sizes, LOSSES[name]
    old = SimpleNamespace(
        **{key: torch.from_numpy(getattr(data, key)) for key in ("adv_r", "output", "log_std")}
    )
    seen: list[float] = []

    def spied(new: Distribution, columns: dict[str, Any]) -> Tensor:
        value = loss(new.log_prob, new.mean, new.log_std, new.ratio, old)
        seen.append(value.item())
        return value

    gradient = AutogradObjective(spied, {}).gradient(actor, data, np.arange(rows), 0.0)

    leaf = double(actor.parameters).requires_grad_()
    layers, log_std = unpack(leaf, sizes)
    mean = reference_mlp(layers, double(data.observation))
    normal = torch.distributions.Normal(mean, log_std.exp())
    log_prob = normal.log_prob(double(data.action)).sum(1)
    ratio = (log_prob - double(data.log_prob)).exp()
    expected = loss(log_prob, mean, log_std, ratio, old)
    expected.backward()
    assert leaf.grad is not None
    assert seen == pytest.approx([expected.item()], rel=5e-6, abs=1e-7)
    assert relative_error(gradient, float64(leaf.grad)) < 2 * FLOAT32


def test_gradient_buffer_holds_nothing_of_an_earlier_loss() -> None:
    policy = small_policy()
    data = random_batch(policy, 20)
    actor = policy.actor

    A_r = torch.from_numpy(data.adv_r)

    def gradient(loss: Callable[[Any], Tensor]) -> np.ndarray:
        objective = AutogradObjective(lambda new, columns: loss(new), {})
        return float64(objective.gradient(actor, data, np.arange(20), 0.0))

    first = gradient(lambda new: (new.ratio * A_r).mean())
    only_std = gradient(lambda new: new.log_std.sum())
    only_mean = gradient(lambda new: new.mean.sum())
    np.testing.assert_array_equal(only_std, np.r_[np.zeros(actor.parameters.size - 2), 1.0, 1.0])
    np.testing.assert_array_equal(only_mean[-2:], [0.0, 0.0])
    np.testing.assert_array_equal(gradient(lambda new: (new.ratio * A_r).mean()), first)


@pytest.mark.parametrize("rows", [1, 100, CHUNK, 2 * CHUNK + 77])
def test_score_gradient_equals_autograd_over_all_chunks(rows: int) -> None:
    policy = small_policy(6, 2, hidden=(16, 16))
    with np.errstate(invalid="ignore"):  # a single standardised advantage is not a number
        data = random_batch(policy, rows)
    weight = torch.randn(rows, generator=torch.Generator().manual_seed(5)) + 0.3
    gradient = policy.actor.score_gradient(data.observation, data.action, weight.numpy())
    leaf = double(policy.actor.parameters).requires_grad_()
    layers, log_std = unpack(leaf, policy.actor.mlp.sizes)
    normal = torch.distributions.Normal(
        reference_mlp(layers, double(data.observation)), log_std.exp()
    )
    (weight.double() * normal.log_prob(double(data.action)).sum(1)).mean().backward()
    assert leaf.grad is not None
    # A mean over thousands of terms of both signs: rounding of the terms is larger relative to the
    # sum.
    assert relative_error(gradient, float64(leaf.grad)) < 1e-5


def test_score_gradient_is_the_gradient_of_the_surrogate_at_the_old_policy() -> None:
    policy = small_policy()
    data = random_batch(policy, 300)
    actor = policy.actor
    objective = AutogradObjective(
        lambda new, columns: (new.ratio * columns["A_c"]).mean(), {"A_c": data.adv_c[:, 0]}
    )
    surrogate = float64(objective.gradient(actor, data, np.arange(300), 0.0))
    score = actor.score_gradient(data.observation, data.action, data.adv_c[:, 0])
    assert relative_error(score, surrogate) < 1e-5


def test_flat_adam_equals_torch_adam_over_many_steps() -> None:
    generator = torch.Generator().manual_seed(0)
    ours = torch.randn(3, 50, generator=generator).numpy()
    theirs = double(ours).requires_grad_()
    optimiser, reference = FlatAdam(ours, 3e-3), torch.optim.Adam([theirs], lr=3e-3)
    for step in range(500):
        # Scales from 1e-6 to 10 and a changing learning rate, as under decay.
        gradient = torch.randn(3, 50, generator=generator) * 10.0 ** (step % 8 - 6)
        optimiser.lr = reference.param_groups[0]["lr"] = 3e-3 * (1.0 - step / 500)
        theirs.grad = gradient.double()
        optimiser.step(gradient.numpy())
        reference.step()
    # 500 additions to parameters of size 1, each rounded to 6e-8.
    np.testing.assert_allclose(float64(ours), float64(theirs), atol=3e-6)


@pytest.mark.parametrize("size", [0.01, 1.0, 40.0, 1e4])
def test_adam_step_clips_the_norm_of_every_row_after_adding_the_l2_term(size: float) -> None:
    generator = torch.Generator().manual_seed(0)
    ours = torch.randn(3, 100, generator=generator).numpy()
    theirs = [nn.Parameter(double(row)) for row in ours]
    optimiser = FlatAdam(ours, 1e-2)
    references = [torch.optim.Adam([row], lr=1e-2) for row in theirs]
    for _ in range(20):
        gradient = torch.randn(3, 100, generator=generator) * size
        gradient[1] *= 0.1
        for row, row_gradient, reference in zip(theirs, gradient, references, strict=True):
            row.grad = row_gradient.double() + 2.0 * 0.05 * row.detach()
            nn.utils.clip_grad_norm_([row], 40.0)
            reference.step()
        optimiser.step(gradient.numpy(), l2=0.05, max_norm=40.0)
    np.testing.assert_allclose(float64(ours), float64(torch.stack(theirs)), atol=1e-6)


def test_mean_kl_is_old_to_new_summed_over_actions() -> None:
    generator = torch.Generator().manual_seed(0)
    old_mean, new_mean = (
        torch.randn(200, 3, generator=generator),
        torch.randn(200, 3, generator=generator),
    )
    old_log_std, new_log_std = torch.tensor([-0.5, 0.2, 0.0]), torch.tensor([0.1, -0.4, 0.3])
    old = torch.distributions.Normal(old_mean.double(), old_log_std.double().exp())
    new = torch.distributions.Normal(new_mean.double(), new_log_std.double().exp())
    expected = torch.distributions.kl_divergence(old, new).sum(1).mean().item()
    reverse = torch.distributions.kl_divergence(new, old).sum(1).mean().item()
    assert abs(expected - reverse) > 0.1 * expected, (
        "the two directions must differ for this test to say anything"
    )
    arrays = (item.numpy() for item in (old_mean, old_log_std, new_mean, new_log_std))
    assert mean_kl(*arrays) == pytest.approx(expected, rel=1e-6)


def test_kl_of_a_policy_with_itself_is_zero() -> None:
    mean = np.random.default_rng(0).standard_normal((50, 4), dtype=np.float32)
    log_std = np.array([-3.0, -1.0, 0.0, 1.0], np.float32)
    assert mean_kl(mean, log_std, mean, log_std) == 0.0


def test_log_density_is_that_of_independent_normal_numbers() -> None:
    rng = np.random.default_rng(0)
    mean, action = rng.standard_normal((2, 100, 3)).astype(np.float32)
    log_std = np.array([-0.5, 0.2, 1.0], np.float32)
    z = standardise(action, mean, log_std)
    normal = torch.distributions.Normal(double(mean), double(log_std).exp())
    expected = float64(normal.log_prob(double(action)).sum(1))
    np.testing.assert_allclose(log_density(z, log_std), expected, rtol=1e-6, atol=2e-6)


def test_distribution_is_the_policy_on_the_samples_asked_for() -> None:
    policy = small_policy(6, 3, hidden=(16, 16))
    data = random_batch(policy, 50)
    perturb(policy, 0.05)
    rows = np.array([41, 3, 3, 17])
    new = distribution(policy.actor, data, rows)
    layers, log_std = unpack(double(policy.actor.parameters), policy.actor.mlp.sizes)
    mean = reference_mlp(layers, double(data.observation[rows]))
    log_prob = torch.distributions.Normal(mean, log_std.exp()).log_prob(double(data.action[rows]))
    np.testing.assert_allclose(float64(new.mean), float64(mean), atol=1e-6)
    np.testing.assert_array_equal(float64(new.log_std), float64(log_std))
    np.testing.assert_allclose(float64(new.log_prob), float64(log_prob.sum(1)), atol=5e-6)
    expected = float64(actor_ratio(policy, data))[rows]
    np.testing.assert_allclose(float64(new.ratio), expected, rtol=1e-5)


@pytest.mark.parametrize("max_grad_norm", [40.0, 0.05])
def test_critic_steps_minimise_squared_error_plus_all_squared_parameters(
    max_grad_norm: float,
) -> None:
    policy = small_policy(6, 2, costs=2, hidden=(16, 16))
    batch = random_batch(policy, 300, costs=2)
    sizes = policy.critics.sizes
    networks = [sequential(row, sizes) for row in policy.critics.parameters]
    optimisers = [torch.optim.Adam(network.parameters(), lr=3e-3) for network in networks]
    learner = make_learner(
        policy,
        np.random.default_rng(7),
        passes=3,
        minibatch_size=128,
        critic_lr=3e-3,
        max_grad_norm=max_grad_norm,
    )
    result = learner.fit(
        batch, AutogradObjective(lambda new, columns: new.log_prob.mean() * 0.0, {})
    )

    shuffle = np.random.default_rng(7)
    for _ in range(3):
        order = shuffle.permutation(300)
        squared_errors = np.zeros(3)
        for start in range(0, 300, 128):
            rows = order[start : start + 128]
            for k, (network, optimiser) in enumerate(zip(networks, optimisers, strict=True)):
                value = network(double(batch.observation[rows]))[:, 0]
                error = value - double(batch.value_target[k, rows])
                squares = sum(p.square().sum() for p in network.parameters())
                squared_errors[k] += error.square().sum().item()
                optimiser.zero_grad()
                (error.square().mean() + 0.001 * squares).backward()
                nn.utils.clip_grad_norm_(network.parameters(), max_grad_norm)
                optimiser.step()
    for k, network in enumerate(networks):
        layers = [(m.weight.T, m.bias) for m in network if isinstance(m, nn.Linear)]
        expected = torch.cat([torch.cat([w.reshape(-1), b]) for w, b in layers])
        # 9 Adam steps of 3e-3: an error of 1e-5 of one step is 3e-8, as large as float32 resolves.
        np.testing.assert_allclose(
            float64(policy.critics.parameters[k]), float64(expected), atol=1e-6
        )
    logged = [result.metrics[f"critic_loss_{name}"] for name in ("reward", "cost_0", "cost_1")]
    assert logged == pytest.approx(squared_errors / 300, rel=1e-5)


def test_critics_do_not_influence_each_other() -> None:
    """The first cost critic trains to the same parameters whether or not there is a second one."""
    results = []
    for costs in (1, 2):
        policy = small_policy(costs=costs)
        parameters = policy.critics.parameters
        parameters[:] = np.linspace(-0.5, 0.5, parameters.shape[1])
        batch = random_batch(policy, 100, costs=costs)
        batch.value_target[:] = [np.linspace(-k, 2.0, 100) for k in range(1 + costs)]
        make_learner(policy, np.random.default_rng(0), passes=2, minibatch_size=32).fit(
            batch, AutogradObjective(lambda new, columns: new.log_prob.mean() * 0.0, {})
        )
        results.append(parameters[:2].copy())
    np.testing.assert_allclose(results[0], results[1], rtol=0.0, atol=1e-7)
    rows = itertools.combinations(results[1], 2)
    assert all(not np.allclose(a, b) for a, b in rows), (
        "different targets must give different critics"
    )


# ---------------------------------------------------------------- the minibatch loop


class Recorder:
    """A loss that pushes the policy, and remembers rows and actor parameters at every call."""

    def __init__(self, policy: Any, samples: int, strength: float = 1.0) -> None:
        self.policy, self.strength = policy, strength
        self.columns = {"row": np.arange(samples)}
        self.rows: list[np.ndarray] = []
        self.before: list[Array] = []  # parameters before each step

    def __call__(self, new: Any, columns: dict[str, Tensor]) -> Tensor:
        self.rows.append(columns["row"].numpy().copy())
        self.before.append(self.policy.actor.parameters.copy())
        return self.strength * (new.mean.mean() + new.log_std.sum())


def kl_by_definition(
    parameters: Array, sizes: Sequence[int], batch: Any, rows: Any = slice(None)
) -> float:
    """Return E_old[log old - log new] of Gaussians, summed over actions, averaged over rows."""
    layers, log_std = unpack(float64(parameters), sizes)
    mean = reference_mlp(layers, float64(batch.observation[rows]))
    old_mean, old_log_std = float64(batch.output[rows]), float64(batch.log_std)
    total = 0.0
    for k in range(len(log_std)):
        s0, s1 = np.exp(old_log_std[k]), np.exp(log_std[k])
        total += np.mean(
            np.log(s1 / s0) + (s0**2 + (old_mean[:, k] - mean[:, k]) ** 2) / (2 * s1**2) - 0.5
        )
    return float(total)


def learner_for(samples: int, **settings: Any) -> tuple[MinibatchLearner, Batch, Recorder]:
    policy = small_policy(2, 2, hidden=(4,))
    batch = random_batch(policy, samples)
    learner = make_learner(policy, np.random.default_rng(3), **settings)
    return learner, batch, Recorder(policy, samples)


def test_20000_samples_make_39_full_minibatches_and_one_of_32_in_every_pass() -> None:
    learner, batch, loss = learner_for(20_000, passes=2, minibatch_size=512, target_kl=1e9)
    result = learner.fit(batch, AutogradObjective(loss, loss.columns))
    assert result.passes == 2
    assert [len(rows) for rows in loss.rows] == ([512] * 39 + [32]) * 2
    assert learner.actor_optimiser.count == learner.critic_optimiser.count == 80
    first, second = np.concatenate(loss.rows[:40]), np.concatenate(loss.rows[40:])
    assert sorted(first) == sorted(second) == list(range(20_000))
    assert (first != second).any(), "each pass is shuffled anew"
    assert (first != np.arange(20_000)).any()


def test_kl_is_checked_once_per_pass_on_the_full_batch_and_stops_critics_too() -> None:
    settings: dict[str, Any] = {"passes": 8, "minibatch_size": 64, "actor_lr": 3e-3}
    learner, batch, loss = learner_for(200, target_kl=1e9, **settings)
    learner.fit(batch, AutogradObjective(loss, loss.columns))
    per_pass = 4  # 200 = 3 * 64 + 8
    after_each_pass = [*loss.before[per_pass::per_pass], learner.policy.actor.parameters]
    kls = [kl_by_definition(p, learner.policy.actor.mlp.sizes, batch) for p in after_each_pass]
    assert all(a < b for a, b in itertools.pairwise(kls)), kls

    target = 0.5 * (kls[3] + kls[4])  # exceeded for the first time after the fifth pass
    learner, batch, loss = learner_for(200, target_kl=target, **settings)
    result = learner.fit(batch, AutogradObjective(loss, loss.columns))
    assert result.passes == 5
    assert (
        len(loss.rows)
        == learner.actor_optimiser.count
        == learner.critic_optimiser.count
        == 5 * per_pass
    )
    assert result.kl == pytest.approx(kls[4], rel=1e-4)
    expected = float64(actor_ratio(learner.policy, batch))
    np.testing.assert_allclose(float64(result.ratio), expected, rtol=1e-5)


def actor_ratio(policy: Any, batch: Any) -> Tensor:
    layers, log_std = unpack(double(policy.actor.parameters), policy.actor.mlp.sizes)
    normal = torch.distributions.Normal(
        reference_mlp(layers, double(batch.observation)), log_std.exp()
    )
    return (normal.log_prob(double(batch.action)).sum(1) - double(batch.log_prob)).exp()


def test_kl_exceeded_within_a_pass_does_not_stop_before_its_end() -> None:
    learner, batch, loss = learner_for(
        200, passes=8, minibatch_size=64, actor_lr=3e-3, target_kl=1e-12
    )
    assert learner.fit(batch, AutogradObjective(loss, loss.columns)).passes == 1
    assert len(loss.rows) == 4


def test_kl_check_per_minibatch_stops_after_the_first_step_that_exceeds() -> None:
    learner, batch, loss = learner_for(
        200, passes=8, minibatch_size=64, actor_lr=3e-3, target_kl=0.003, kl_check="minibatch"
    )
    result = learner.fit(batch, AutogradObjective(loss, loss.columns))
    sizes = learner.policy.actor.mlp.sizes
    after = [*loss.before[1:], learner.policy.actor.parameters]
    kls = [
        kl_by_definition(p, sizes, batch, rows) for p, rows in zip(after, loss.rows, strict=True)
    ]
    assert len(kls) % 4, "it has to stop within a pass for this test to say anything"
    assert max(kls[:-1]) < 0.003 < kls[-1]
    assert learner.critic_optimiser.count == learner.actor_optimiser.count == len(kls)
    assert result.kl == pytest.approx(kl_by_definition(after[-1], sizes, batch), rel=1e-3)


def test_critic_loss_is_a_mean_over_the_samples_of_the_last_pass_even_if_it_was_cut_short() -> None:
    learner, batch, loss = learner_for(
        200,
        passes=1,
        minibatch_size=50,
        actor_lr=3e-3,
        critic_lr=1e-9,
        target_kl=1e-9,
        kl_check="minibatch",
    )
    values = learner.policy.values(batch.observation)
    result = learner.fit(batch, AutogradObjective(loss, loss.columns))
    assert len(loss.rows) == 1
    rows = loss.rows[0]
    expected = float(np.square(values[0, rows] - batch.value_target[0, rows]).mean())
    assert result.metrics["critic_loss_reward"] == pytest.approx(expected, rel=1e-5)


def test_actor_learning_rate_decays_linearly_and_the_critics_keep_theirs() -> None:
    learner, batch, loss = learner_for(50, passes=1, actor_lr=4e-3, critic_lr=1e-3)
    for epoch in range(5):
        learner.set_progress(epoch / 5)
        metrics = learner.fit(batch, AutogradObjective(loss, loss.columns)).metrics
        assert learner.actor_optimiser.lr == pytest.approx(4e-3 * (1 - epoch / 5), rel=1e-12)
        assert metrics["actor_lr"] == learner.actor_optimiser.lr
        assert learner.critic_optimiser.lr == 1e-3


OBJECTIVES: dict[str, Callable[[Array], Any]] = {
    "autograd": lambda A: AutogradObjective(
        lambda new, mb: -(new.ratio * mb["A"]).mean(), {"A": A}
    ),
    "compiled": lambda A: Loss(lambda L: -L, clipped_reward(A), clip=1e9),
}


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
@pytest.mark.parametrize("max_grad_norm", [40.0, 1e-3])
@pytest.mark.parametrize("entropy", [0.0, 0.3])
def test_actor_steps_equal_torch_adam_with_norm_clip_and_entropy(
    objective: Any, max_grad_norm: float, entropy: float
) -> None:
    policy = small_policy(6, 2, hidden=(16, 16))
    batch = random_batch(policy, 300)
    leaf = double(policy.actor.parameters).requires_grad_()
    optimiser = torch.optim.Adam([leaf], lr=1e-3)
    learner = make_learner(
        policy,
        np.random.default_rng(7),
        passes=3,
        minibatch_size=128,
        actor_lr=1e-3,
        target_kl=1e9,
        max_grad_norm=max_grad_norm,
        entropy_coefficient=entropy,
    )
    learner.fit(batch, objective(batch.adv_r))
    shuffle = np.random.default_rng(7)
    for _ in range(3):
        order = shuffle.permutation(300)
        for rows in (order[start : start + 128] for start in range(0, 300, 128)):
            layers, log_std = unpack(leaf, policy.actor.mlp.sizes)
            normal = torch.distributions.Normal(
                reference_mlp(layers, double(batch.observation[rows])), log_std.exp()
            )
            log_prob = normal.log_prob(double(batch.action[rows])).sum(1)
            ratio = (log_prob - double(batch.log_prob[rows])).exp()
            surrogate = (ratio * double(batch.adv_r[rows])).mean()
            loss = -surrogate - entropy * normal.entropy().sum(1).mean()
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_([leaf], max_grad_norm)
            optimiser.step()
    # 9 Adam steps of 1e-3; where the first gradients nearly vanish Adam amplifies their rounding
    # error.
    np.testing.assert_allclose(float64(policy.actor.parameters), float64(leaf), atol=5e-6)


def test_learner_names_what_became_non_finite() -> None:
    learner, batch, loss = learner_for(50, passes=1)
    batch.value_target[0, 3] = float("nan")
    with pytest.raises(CspoError, match="critics became non-finite"):
        learner.fit(batch, AutogradObjective(loss, loss.columns))
    learner, batch, loss = learner_for(50, passes=1)
    loss.strength = float("nan")
    with pytest.raises(CspoError, match="policy became non-finite"):
        learner.fit(batch, AutogradObjective(loss, loss.columns))
