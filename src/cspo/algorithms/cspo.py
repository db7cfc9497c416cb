"""CSPO: constraint-sensitive policy optimisation (2026), its sensitivity in units of the update.

    minimise  [ -L_R + sum_i lam_i L_C_i ] / (1 + sum_i lam_i / natural_i)

    lam = [ rho + delta + alpha min( w (J - d), natural ) ]_+         once per epoch
    w   = 1 / (S + epsilon / natural)

    L_R = mean min(r A_r, clip(r) A_r)    L_C = mean max(r A_c, clip(r) A_c)    (clipped separately)
    rho      the price that holds the cost, by the gradients: the least-squares multiplier
    delta    what experience adds to it, and time where the bound holds the price down
    S        eta H ||grad L_C||^2, without its noise: the fall of the cost per unit of price
    natural  ||grad L_R|| / ||grad L_C||: a larger price drowns the reward in the cost's noise

At a KKT point J = d and lam = rho = lambda*. The paper's penalty is the third part: its gradient is
alpha w [g]_+ grad g with w = 1 / (||grad g||^2 + epsilon); here it has no hinge, so that the price
falls off before the limit and the cost is led up to it instead of repaired. Its dual variable is
rho + delta, estimated instead of integrated.

Where S is large, w removes the share alpha of the violation in one epoch. Where the cost hardly
answers, that would throw the price about for the noise of J; epsilon, a fifth of the limit, has it
answered by one natural price at most. That is a linear-quadratic regulator's gain, within a
quarter, if a natural price weighs as much as a fifth of the limit.

With several constraints 1/S and [.]_+ become a non-negative least-squares problem,
`Sensitivity.prices`: a limit that does not bind costs nothing.

Symbols: r = pi_theta(a|s) / pi_k(a|s), A_r, A_c = advantages, d = `cost_limit` less its margin, H =
length of an episode, eta = step size of an update. `sensitivity.py` measures rho, natural and S,
`forecast.py` J and delta, `patience.py` the time; `cspo_paper.py` is `--form paper`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from cspo.algorithms.cspo_paper import CSPOPaper, PaperSettings
from cspo.algorithms.forecast import LIMIT, Forecast
from cspo.algorithms.learner import Learner, Loss
from cspo.algorithms.patience import Patience
from cspo.algorithms.registry import SOLID, Look, Traits, register
from cspo.algorithms.sensitivity import Sensitivity
from cspo.algorithms.surrogates import clip_fraction, clipped_cost, clipped_reward
from cspo.settings import positive, setting
from cspo.state import Remembers
from cspo.types import Batch, Discount, FloatArray, per_constraint


@dataclass(frozen=True)
class CSPOConfig(PaperSettings):
    """Settings of CSPO; those of weight and multiplier are of `--form paper` alone."""

    form: Literal["price", "paper"] = "price"
    """The price above, or the letter of the paper."""
    alpha: tuple[float, ...] = (1.0,)
    """Fraction of the violation each epoch aims to remove, one value or one per constraint."""
    patience: float = setting(10.0, positive)
    """Epochs above the limit in which delta may rise by one natural price; after that it rises
    e-fold in as many: how long a policy may go on learning outside the limit."""
    metric: Literal["euclidean", "fisher"] = "euclidean"
    """Metric in which gradients are multiplied; fisher needs conjugate gradients in each epoch."""

    @property
    def keeps_margin(self) -> bool:
        """Whether `--margin auto` means on."""
        return self.form == "price"


@register("cspo")
class CSPO(Remembers):
    """PPO with a price on each cost that leads it up to its limit and holds it there."""

    title = "CSPO"
    look = Look("#d55e00", "#ff8f45", SOLID, "*", stands_out=True)
    Config = CSPOConfig
    summary = "PPO with a price on cost, set by the cost's measured sensitivity"
    traits = Traits("first", "price")
    forms: ClassVar[dict[str, Any]] = {"paper": CSPOPaper}
    remembered = ("multiplier", "sensitivity", "forecast", "patience")
    epsilon: ClassVar[float] = LIMIT / 5.0  # of cost, in units in which the limit is LIMIT

    def __init__(
        self, config: CSPOConfig, learner: Learner, num_costs: int, discount: Discount
    ) -> None:
        """Start without a price."""
        self.config, self.learner = config, learner
        self.alpha = np.broadcast_to(np.asarray(config.alpha, dtype=np.float64), (num_costs,))
        self.sensitivity, self.forecast = Sensitivity(num_costs), Forecast(num_costs)
        self.multiplier, self.patience = np.zeros(num_costs), Patience(num_costs)
        self.cost_unit = self.forecast.cost_unit

    def update(self, batch: Batch, J_c: FloatArray, d: FloatArray) -> dict[str, float]:
        """Measure, set the price, minimise the loss, and see what it changed."""
        sense, eps = self.sensitivity, self.config.clip
        sense.measure(self.learner, batch, self.config.metric)
        S, natural = sense.S, sense.natural
        J, delta, d = self.forecast.update(batch, d, natural)
        hold = np.maximum(sense.rho + delta, 0.0)
        wanted = (J - d) / (S + self.epsilon / natural)  # w (J - d)
        push = self.alpha * np.minimum(wanted, natural)
        known = batch.any_cost & (S > 0.0)  # before the first update nothing is known of a price
        lam = sense.prices(hold, push) * known

        def loss(L_R: Any, L_C: Any) -> Any:
            return (-L_R + (lam * L_C).sum()) / (1.0 + (lam / natural).sum())

        stated = Loss(loss, clipped_reward(batch.adv_r), clipped_cost(batch.adv_c), clip=eps)
        fit = self.learner.fit(batch, stated)
        self.forecast.expect(sense.change(hold, lam), S)
        sense.learn(lam, fit.ratio, batch)
        held = known & (wanted > natural)
        rise = self.patience.spend(held, (J - d) / LIMIT, self.config.patience)
        self.forecast.lift(self.alpha * rise * natural)
        self.multiplier = lam
        return fit.report(
            clip_fraction=clip_fraction(fit.ratio, batch.adv_r, eps),
            **per_constraint("price_rho", sense.rho),
            **per_constraint("price_delta", delta),
            **per_constraint("price_push", push),
            **per_constraint("price_natural", natural),
            **per_constraint("sensitivity", S),
            **per_constraint("gradient_norm", sense.gradient_norm),
            **self.forecast.report(),
        )
