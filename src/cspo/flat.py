"""Every setting by its flat name: as a keyword of a call, and as an attribute of `TrainConfig`.

Type checkers read it: a keyword that is no setting, or whose value is of a wrong type, is an error
before anything runs. Written by scripts/make_flat.py; declare a setting where it belongs, and run
that again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import Field
from typing import Any, ClassVar, Literal, Protocol, TypedDict, runtime_checkable

from cspo.envs.settings import EnvironmentSettings, WorkerSettings
from cspo.experience.limits import Schedule
from cspo.experience.settings import AdvantageSettings, MarginSettings
from cspo.optim.settings import UpdateSettings
from cspo.policy.settings import PolicySettings
from cspo.runs.settings import FileSettings, RunSettings
from cspo.types import Discount


@runtime_checkable
class AlgorithmConfig(Protocol):
    """The settings of an algorithm: an instance of its `Config`, a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


class FreeSettings(TypedDict, total=False):
    """Settings that change no result of a training."""

    plugin: str | None
    """File, or module, of yours that registers algorithms, see docs/own-algorithm.md."""
    threads: int | float
    """Threads that step the simulators; 0 means one per available core. Does not change results."""
    workers: int | float
    """Processes over which the copies of an environment that is no native task are spread; 0 steps
    them one after another in this process. Does not change results."""
    worker_timeout: float | None
    """Seconds a worker may take for a reset or a step before it counts as hung; none waits for
    ever. Making the environments may take ten minutes in any case."""
    restart_workers: int | float
    """How often a worker that died, hung or raised is started again, with new episodes for its
    copies, before training stops."""
    checkpoint_every: int | float
    """Epochs between checkpoints; the last epoch always gets one."""
    keep_checkpoints: int | float
    """Newest checkpoints kept."""
    log: (
        Literal["csv", "tensorboard", "jsonl", "wandb", "mlflow"]
        | Sequence[Literal["csv", "tensorboard", "jsonl", "wandb", "mlflow"]]
    )
    """Where the numbers of every epoch go; progress.csv, which resuming and reports read, is
    written whether csv is named or not. See docs/logging.md."""
    tensorboard: bool
    """Write TensorBoard events, if --log names them."""


class ResumeSettings(FreeSettings, total=False):
    """What `cspo.resume` may change."""

    total_steps: int | float
    """Environment steps of the whole run."""
    stop_when: str | None
    """Rule that ends the run early, as "cost<limit and return>2000 for 20" (epochs in a row)."""


class ProbeSettings(FreeSettings, total=False):
    """Keywords of `cspo.probe`, besides its own."""

    margin: Literal["auto", "on", "off"]
    """Steer below the limit, so far that the reported cost exceeds it as rarely as asked; auto
    means on with CSPO, but not to the letter of its paper, and off with the baselines."""
    violation_rate: float
    """Largest share of epochs in which the reported cost may exceed its limit, once learning has
    settled; the margin is set by it."""
    cost_terms: str | Sequence[str]
    """Constrain these terms of the task's cost one by one instead of their sum, as
    `hazards,gremlins`."""
    env_options: Mapping[str, object]
    """Keyword arguments the environment is made with, as `key=value,key=value`; text in quotes."""
    seed: int | float
    """The run's only source of randomness."""
    episode_window: int | float
    """Finished episodes over which return, cost J_c and length are averaged."""
    stop_when: str | None
    """Rule that ends the run early, as "cost<limit and return>2000 for 20" (epochs in a row)."""
    hidden_sizes: int | float | Sequence[int | float]
    """Hidden layers of the actor and of every critic."""
    network: str
    """The compiled MLP, and a convolution network for images ("auto"), the MLP for images as well
    ("mlp"), or `module:factory` of your own in PyTorch, see docs/own-network.md."""
    log_std_init: float
    """Initial log standard deviation of the policy."""
    normalise_observations: bool
    """Standardise observations with running statistics."""
    observation_clip: float
    """Bound of a standardised observation."""
    observation_std_floor: float
    """Smallest standard deviation an observation is divided by."""
    normalise_rewards: bool
    """Train on rewards standardised with running statistics and bounded by 5; what is logged stays
    raw."""
    normalise_costs: bool
    """The same for costs, each on its own; the limit refers to raw costs all the same."""
    gamma: float
    """Discount of rewards."""
    gae_lambda: float
    """GAE's lambda for rewards."""
    cost_gamma: float | None
    """Discount of costs; by default that of rewards."""
    cost_gae_lambda: float | None
    """GAE's lambda for costs; by default that of rewards."""
    passes: int | float
    """Passes over the epoch's samples per update."""
    minibatch_size: int | float
    """Samples per gradient step; the last minibatch of a pass may be shorter."""
    target_kl: float
    """Stop the update when KL(old || new), summed over action dimensions, exceeds this."""
    kl_check: Literal["pass", "minibatch"]
    """Check the KL after every pass on all samples, or after every minibatch on its own."""
    actor_lr: float
    """Learning rate of the actor."""
    actor_lr_decay: bool
    """Decay the actor's learning rate linearly to zero over the run."""
    critic_lr: float
    """Learning rate of the critics."""
    max_grad_norm: float
    """Gradient norm clip, separately for the actor and for each critic."""
    critic_l2: float
    """Weight of the sum of squared parameters in each critic's loss."""
    entropy_coefficient: float
    """Weight of the policy's entropy in the objective."""
    alpha: float | Sequence[float]
    """Fraction of the violation each epoch aims to remove, one value or one per constraint. (Of
    cspo.)"""
    backtracks: int | float
    """Tries of the line search, each 0.8 times the one before. (Of c-trpo, cpo, pcpo, trpo-pid.)"""
    barrier: float
    """Strength kappa of the barrier, the inverse of its temperature. (Of ipo.)"""
    barrier_weight: float
    """Weight beta of the cost's part in the divergence. (Of c-trpo.)"""
    cg_iterations: int | float
    """Iterations of conjugate gradients. (Of c-trpo, cpo, pcpo, trpo-pid.)"""
    clip: float
    """Clip range eps of the probability ratio. (Of appo, cppo-pid, cspo, cup, epo, ipo, p3o, ppo,
    ppo-lag.)"""
    damping: float
    """Added to the diagonal of the curvature. (Of c-trpo, cpo, pcpo, trpo-pid.)"""
    delay: int | float
    """Epochs over which the rise of the cost is measured. (Of cppo-pid, trpo-pid.)"""
    derivative: float
    """Gain K_D of the rise of the averaged cost. (Of cppo-pid, trpo-pid.)"""
    divide: bool
    """Divide the loss by 1 + the exponentials of the violations. (Of epo.)"""
    dual: Literal["adam", "projected"]
    """Adam, or projected (plain ascent, cut off at zero; the textbook rule has a step size of
    sigma). (Of appo, cup, focops, ppo-lag.)"""
    form: Literal["price", "paper"]
    """The price above, or the letter of the paper. (Of cspo.)"""
    hysteresis: float
    """Recovery ends when the cost is below this share h of the limit. (Of c-trpo.)"""
    integral: float
    """Gain K_I of the summed violation. (Of cppo-pid, trpo-pid.)"""
    kl_limit: float
    """Trust region delta: limit of the divergence, the KL being averaged over samples and action
    dimensions. (Of c-trpo, cpo, pcpo, trpo-pid.)"""
    linear_share: float
    """Share a of the cost advantages in the penalty; the rest is that of the quadratic stream. (Of
    epo.)"""
    memory: float
    """Share of the past in the two moving averages; 0 switches them off. (Of cppo-pid,
    trpo-pid.)"""
    metric: Literal["euclidean", "fisher"]
    """Metric in which gradients are multiplied; fisher needs conjugate gradients in each epoch. (Of
    cspo.)"""
    multiplier_init: float
    """Initial Lagrange multiplier. (Of appo, cppo-pid, cspo, cup, focops, ppo-lag, trpo-pid.)"""
    multiplier_lr: float
    """Step size of the multiplier. (Of appo, cspo, cup, focops, ppo-lag.)"""
    multiplier_max: float
    """Upper bound of the multiplier. (Of appo, cup, focops, ppo-lag.)"""
    patience: float
    """Epochs above the limit in which delta may rise by one natural price; after that it rises
    e-fold in as many: how long a policy may go on learning outside the limit. (Of cspo.)"""
    penalty: float
    """Weight sigma of the quadratic penalty. (Of appo, epo, p3o.)"""
    penalty_max: float
    """Price of a unit of cost near the limit and beyond it. (Of ipo.)"""
    proportional: float
    """Gain K_P of the averaged violation. (Of cppo-pid, trpo-pid.)"""
    surrogate_cap: float
    """Value m above which a surrogate of the penalty gives no gradient. (Of epo.)"""
    temperature: float
    """Temperature tau: how much divergence an advantage is worth. (Of focops.)"""
    trust: float
    """Divergence eta beyond which a sample is masked. (Of focops.)"""
    variant: Literal["paper", "corrected"]
    """As in the paper's experiments, or with the violation per step (see docs/algorithms/cpo.md).
    (Of cpo, focops, p3o, pcpo.)"""
    violation_cap: float
    """Largest violation M in the exponential. (Of epo.)"""
    weight_epsilon: float
    """Added to the squared gradient norm; the paper prints none. (Of cspo.)"""
    weight_max: float
    """Upper bound of the sensitivity weight; the paper prints none. (Of cspo.)"""
    weight_memory: float
    """Share of the old weight in the moving average over epochs; the paper prints none. (Of
    cspo.)"""
    weight_min: float
    """Lower bound of the sensitivity weight; the paper prints none. (Of cspo.)"""
    algorithm: Mapping[str, object] | AlgorithmConfig
    """Settings of an algorithm of your own, or all of any other's."""


class TrainSettings(ProbeSettings, total=False):
    """Keywords of `cspo.train`, besides its own."""

    cost_limit: float | Schedule | str | Sequence[float | Schedule | str]
    """Limit d on the mean cost of an episode; one value, one per constraint as `25,5`, or a
    schedule over steps as `25@0, 15@2e6`."""
    total_steps: int | float
    """Environment steps of the whole run."""
    steps_per_epoch: int | float
    """Environment steps between two updates, over all environments together."""
    num_envs: int | float
    """Parallel environments; all are reset at the start of every epoch."""


class Settings(TrainSettings, total=False):
    """Keywords of `cspo.make_config`: every setting but task and algo."""

    init_from: str | None
    """Folder of a run whose networks and normaliser to start from, see docs/warm-start.md; the
    multiplier or price, the optimisers and the count of steps begin anew."""


class FlatSettings:
    """Reads the settings of the groups by their flat names: `config.gamma`."""

    limits: MarginSettings
    environment: EnvironmentSettings
    run: RunSettings
    parallel: WorkerSettings
    policy: PolicySettings
    advantages: AdvantageSettings
    update: UpdateSettings
    files: FileSettings

    @property
    def margin(self) -> Literal["auto", "on", "off"]:
        """Steer below the limit, so far that the reported cost exceeds it as rarely as asked; auto
        means on with CSPO, but not to the letter of its paper, and off with the baselines."""
        return self.limits.margin

    @property
    def violation_rate(self) -> float:
        """Largest share of epochs in which the reported cost may exceed its limit, once learning
        has settled; the margin is set by it."""
        return self.limits.violation_rate

    @property
    def cost_terms(self) -> tuple[str, ...]:
        """Constrain these terms of the task's cost one by one instead of their sum, as
        `hazards,gremlins`."""
        return self.environment.cost_terms

    @property
    def env_options(self) -> dict[str, Any]:
        """Keyword arguments the environment is made with, as `key=value,key=value`; text in
        quotes."""
        return self.environment.env_options

    @property
    def total_steps(self) -> int:
        """Environment steps of the whole run."""
        return self.run.total_steps

    @property
    def steps_per_epoch(self) -> int:
        """Environment steps between two updates, over all environments together."""
        return self.run.steps_per_epoch

    @property
    def num_envs(self) -> int:
        """Parallel environments; all are reset at the start of every epoch."""
        return self.run.num_envs

    @property
    def seed(self) -> int:
        """The run's only source of randomness."""
        return self.run.seed

    @property
    def threads(self) -> int:
        """Threads that step the simulators; 0 means one per available core. Does not change
        results."""
        return self.run.threads

    @property
    def episode_window(self) -> int:
        """Finished episodes over which return, cost J_c and length are averaged."""
        return self.run.episode_window

    @property
    def stop_when(self) -> str | None:
        """Rule that ends the run early, as "cost<limit and return>2000 for 20" (epochs in a
        row)."""
        return self.run.stop_when

    @property
    def workers(self) -> int:
        """Processes over which the copies of an environment that is no native task are spread; 0
        steps them one after another in this process. Does not change results."""
        return self.parallel.workers

    @property
    def worker_timeout(self) -> float | None:
        """Seconds a worker may take for a reset or a step before it counts as hung; none waits for
        ever. Making the environments may take ten minutes in any case."""
        return self.parallel.worker_timeout

    @property
    def restart_workers(self) -> int:
        """How often a worker that died, hung or raised is started again, with new episodes for its
        copies, before training stops."""
        return self.parallel.restart_workers

    @property
    def hidden_sizes(self) -> tuple[int, ...]:
        """Hidden layers of the actor and of every critic."""
        return self.policy.hidden_sizes

    @property
    def network(self) -> str:
        """The compiled MLP, and a convolution network for images ("auto"), the MLP for images as
        well ("mlp"), or `module:factory` of your own in PyTorch, see docs/own-network.md."""
        return self.policy.network

    @property
    def init_from(self) -> str | None:
        """Folder of a run whose networks and normaliser to start from, see docs/warm-start.md; the
        multiplier or price, the optimisers and the count of steps begin anew."""
        return self.policy.init_from

    @property
    def log_std_init(self) -> float:
        """Initial log standard deviation of the policy."""
        return self.policy.log_std_init

    @property
    def normalise_observations(self) -> bool:
        """Standardise observations with running statistics."""
        return self.policy.normalise_observations

    @property
    def observation_clip(self) -> float:
        """Bound of a standardised observation."""
        return self.policy.observation_clip

    @property
    def observation_std_floor(self) -> float:
        """Smallest standard deviation an observation is divided by."""
        return self.policy.observation_std_floor

    @property
    def normalise_rewards(self) -> bool:
        """Train on rewards standardised with running statistics and bounded by 5; what is logged
        stays raw."""
        return self.policy.normalise_rewards

    @property
    def normalise_costs(self) -> bool:
        """The same for costs, each on its own; the limit refers to raw costs all the same."""
        return self.policy.normalise_costs

    @property
    def gamma(self) -> float:
        """Discount of rewards."""
        return self.advantages.gamma

    @property
    def gae_lambda(self) -> float:
        """GAE's lambda for rewards."""
        return self.advantages.gae_lambda

    @property
    def cost_gamma(self) -> float | None:
        """Discount of costs; by default that of rewards."""
        return self.advantages.cost_gamma

    @property
    def cost_gae_lambda(self) -> float | None:
        """GAE's lambda for costs; by default that of rewards."""
        return self.advantages.cost_gae_lambda

    @property
    def passes(self) -> int:
        """Passes over the epoch's samples per update."""
        return self.update.passes

    @property
    def minibatch_size(self) -> int:
        """Samples per gradient step; the last minibatch of a pass may be shorter."""
        return self.update.minibatch_size

    @property
    def target_kl(self) -> float:
        """Stop the update when KL(old || new), summed over action dimensions, exceeds this."""
        return self.update.target_kl

    @property
    def kl_check(self) -> Literal["pass", "minibatch"]:
        """Check the KL after every pass on all samples, or after every minibatch on its own."""
        return self.update.kl_check

    @property
    def actor_lr(self) -> float:
        """Learning rate of the actor."""
        return self.update.actor_lr

    @property
    def actor_lr_decay(self) -> bool:
        """Decay the actor's learning rate linearly to zero over the run."""
        return self.update.actor_lr_decay

    @property
    def critic_lr(self) -> float:
        """Learning rate of the critics."""
        return self.update.critic_lr

    @property
    def max_grad_norm(self) -> float:
        """Gradient norm clip, separately for the actor and for each critic."""
        return self.update.max_grad_norm

    @property
    def critic_l2(self) -> float:
        """Weight of the sum of squared parameters in each critic's loss."""
        return self.update.critic_l2

    @property
    def entropy_coefficient(self) -> float:
        """Weight of the policy's entropy in the objective."""
        return self.update.entropy_coefficient

    @property
    def checkpoint_every(self) -> int:
        """Epochs between checkpoints; the last epoch always gets one."""
        return self.files.checkpoint_every

    @property
    def keep_checkpoints(self) -> int:
        """Newest checkpoints kept."""
        return self.files.keep_checkpoints

    @property
    def log(self) -> tuple[Literal["csv", "tensorboard", "jsonl", "wandb", "mlflow"], ...]:
        """Where the numbers of every epoch go; progress.csv, which resuming and reports read, is
        written whether csv is named or not. See docs/logging.md."""
        return self.files.log

    @property
    def tensorboard(self) -> bool:
        """Write TensorBoard events, if --log names them."""
        return self.files.tensorboard

    @property
    def epochs(self) -> int:
        """Number of epochs of the run."""
        return self.run.epochs

    @property
    def resolved_threads(self) -> int:
        """Number of threads that step the simulators."""
        return self.run.resolved_threads

    @property
    def of_rewards(self) -> Discount:
        """Discount and GAE's lambda of rewards."""
        return self.advantages.of_rewards

    @property
    def of_costs(self) -> Discount:
        """Discount and GAE's lambda of costs."""
        return self.advantages.of_costs
