"""What the sources advise: what stands, and what does not.

Sources: WZ1, WZ2 = Wang & Zhang 2025 (two versions); TM = Tang & Munos 2025.
"""

import math
from fractions import Fraction

import numpy as np

from klsym.calculus import (
    KL,
    Function,
    derive,
    expectation,
    expected_gradient,
    future,
    grad,
    k1,
    k2,
    k3,
    log,
    log_mu,
    log_p,
    log_q,
    mean_over_i,
    mu,
    now,
    others,
    own,
    p,
    parameter,
    q,
    r,
    rho,
    s,
    sample,
    sample_gradient,
    sg,
    sum_over_t,
    token_gradient,
)
from klsym.derivations.batches import BATCH, PAIR, batch_mean, penalty
from klsym.derivations.rewards import rewarded
from klsym.derivations.sequences import SEQUENCES, TO_GO
from klsym.study.ledger.evidence import Evidence
from klsym.study.ledger.registry import claim

h = Function("h")(k1)  # any reward that is a function of k1
outside = Function("I")(log_q, log_p, log_mu)  # the indicator of k1 > C
b, n, C = (parameter(name) for name in ("b", "n", "C"))


# ---------------------------------------------------------------------------- penalties in the reward
@claim(
    "practice.reward-k3-advised",
    verdict="corrected",
    source="WZ1 practice guide, Trap 1, Summary",
    words="k3 in the reward, unbiased for the value, is right",
    later="withdrawn in WZ2 7 and 9.4",
)
def penalties_advised_for_the_reward():
    """Both have the right expectation. As a factor of the score function, only k1 has the right gradient."""
    return (
        rewarded(k1).equals(grad(KL(q, p))),
        rewarded(k3).equals(grad(KL(q, p)) - grad(KL(p, q))),
        rewarded(k3).differs_from(grad(KL(q, p))),
    )


@claim(
    "practice.reward-forward",
    verdict="corrected",
    source="WZ1 practice guide",
    words="r log r in the reward penalises the forward KL",
    later="WZ2 names it for the value alone",
)
def forward_kl_in_the_reward():
    """r log r has the expectation KL(p||q), but E_q[h s] is grad KL(p||q) only for h = -r + b."""
    excess = expectation(s * sg(h), under=q) - grad(KL(p, q))
    return (
        rewarded(b - r).equals(grad(KL(p, q))),
        derive(excess).drop_stop_gradients().iff("h", is_=b - r, constants=(b,)),
        derive(expectation(r * log(r), under=q)).equals(KL(p, q)),
        rewarded(r * log(r)).is_no_combination(),
        rewarded(r * log(r)).differs_from(grad(KL(p, q))),
    )


@claim(
    "practice.quick-table-k1",
    verdict="corrected",
    source="WZ1 Quick comparison",
    slip=True,
    later="mended in WZ2",
)
def sign_of_k1():
    """With r = p/q the log ratio is -k1, and its expectation is minus the divergence."""
    return (
        derive(sample(k1)).equals(sample(-log(r))),
        derive(expectation(log(r), under=q)).equals(-KL(q, p)),
        derive(expectation(log(r), under=q)).differs_from(KL(q, p)),
    )


@claim(
    "practice.token-ratio-log",
    verdict="corrected",
    source="TM app. D (against eq. 7)",
    slip=True,
    reading=(
        *SEQUENCES,
        "rho_t is q_t/p_t, as at eq. 7: 1/r_now; 1/r_future is the product of the later ones",
    ),
)
def log_of_the_token_ratio():
    """The sums contain the log of the ratio once; the log ratio itself is negative for some tokens."""
    to_go = -log(now(r)) - log(future(r))
    return derive(sum_over_t(to_go * now(s), under=q)).equals(grad(KL(q, p))), _logarithm_of_the_log_ratio()


def _logarithm_of_the_log_ratio():
    """The printed sums at q = (1/2, 1/2), p = (1/4, 3/4), a single token."""
    ratios = [Fraction(1, 2) / there for there in (Fraction(1, 4), Fraction(3, 4))]
    shown, place = ", ".join(f"log({ratio})" for ratio in ratios), "one token, q = (1/2, 1/2), p = (1/4, 3/4)"
    return Evidence(
        "refuted",
        "with rho_t = log(q_t/p_t): grad KL_seq = E_q[sum_{t<=u} s_t log rho_u]",
        r"\rho_t = \log\tfrac{q_t}{p_t}:\quad \nabla\mathrm{KL}_{\mathrm{seq}}"
        r"\quad= \mathbb{E}_q\!\left[\sum_{t\le u} s_t \log\rho_u\right]",
        "sympy",
        (f"{place}: rho is {shown}, and the second has no logarithm",),
        _without_a_logarithm,
        (
            (
                place,
                r",\ ".join(rf"\rho = \log\tfrac{{{x.numerator}}}{{{x.denominator}}}" for x in ratios)
                + " < 0",
            ),
        ),
        holds=min(ratios) < 1,
    )


def _without_a_logarithm():
    """In each of 20 models some token has rho <= 0, and the logarithms of |rho| are no way out."""
    held, apart = True, math.inf
    for seed in range(20):
        stream = np.random.default_rng(seed)
        q_, p_ = (np.exp(row) / np.exp(row).sum() for row in stream.normal(size=(2, 4)))
        ratio = np.log(q_ / p_)
        exact, printed = (q_ * (c - q_ @ c) for c in (ratio, np.log(np.abs(ratio))))
        held &= bool((ratio < 0).any())
        apart = min(apart, float(np.abs(exact - printed).max()))
    return (
        held and apart > 1e-3,
        f"20 models: a negative log ratio in each, with |rho| at least {apart:.1e} off",
    )


# ---------------------------------------------------------------------------- in the loss, in the reward
@claim(
    "practice.loss-against-reward",
    source="WZ2 8.2",
    instances={"I": lambda k1, log_q, w: (k1.real > 0.25) * 1.0},
    reading=(
        *BATCH,
        *SEQUENCES,
        "I is the indicator of k1 > C, so that k1 - I*(k1 - C) is min(k1, C)",
        "others(k1) is the one other k of a pair; over the standard deviation |k_1 - k_2|/2 a deviation is 1"
        " or -1, whatever their size",
    ),
)
def the_same_penalty_in_the_loss_and_in_the_reward():
    """Both are the vector rho k1 s; clipping and centring of the advantage apply to the reward only."""
    vector = sample(rho * k1 * s)
    whole = expectation(sg(k1 - outside * (k1 - C)) * s, under=q)
    return (
        derive(sample_gradient(rho * k3)).differentiate().equals(vector),
        derive(sample_gradient(sg(rho) * k2)).differentiate().equals(vector),
        derive(sample(sg(rho * k1) * s)).equals(vector),
        penalty(own(k1) - batch_mean(k1)).equals((1 - 1 / n) * grad(KL(q, p))),
        derive(mean_over_i((own(k1) - batch_mean(k1)) ** 2, under="sample"), premises=PAIR).equals(
            mean_over_i((own(k1) - others(k1)) ** 2, under="sample") / 4, using=[(0, None)]
        ),
        derive(whole).equals(grad(KL(q, p)) - expectation(outside * (k1 - C) * s, under=q)),
        derive(sum_over_t(sg(TO_GO) * now(s), under=q)).equals(grad(KL(q, p))),
        derive(token_gradient(now(k2), under=q)).equals(
            grad(KL(q, p)) - sum_over_t(future(k1) * now(s), under=q)
        ),
    )


@claim(
    "practice.constant-weight",
    source="WZ2 9.4",
    reading=("on-policy rho is exp(log q - sg(log q)), and the constant 1 in its place leaves k1 and k3",),
)
def the_constant_one_for_the_weight():
    """The weight has the value 1 and the gradient s.

    Without it, the score of the sampling distribution is missing.
    """

    def on_policy(start):
        return derive(start, on_policy=True)

    return (
        on_policy(sample(rho)).equals(sample(1)),
        on_policy(sample_gradient(rho)).equals(sample(s)),
        on_policy(expected_gradient(rho * k1, under=mu)).equals(grad(KL(q, p))),
        on_policy(expected_gradient(rho * k3, under=mu)).equals(grad(KL(q, p))),
        derive(expected_gradient(k1, under=q)).equals(0),
        derive(expected_gradient(k3, under=q)).equals(grad(KL(p, q))),
    )
