"""Bandits with softmax policies: the set-up of Tang & Munos 2025, appendix C, and its estimators, vectorised.

A bandit has a reference p = softmax(eps1), a policy q = softmax(eps1 + eps2) and rewards R, all standard
normal, one row a repeat.  Every estimate depends on its n samples only through how often each arm came
up, so errors at any n cost one multinomial draw.  Everything is held as log-probabilities.

Reverse KL is KL(q||p), the penalty of the objective; the paper calls KL(p||q) the reversed one, hence its
name pi*_rev for the policy that is best under it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from klsym.errors import UsageError
from klsym.experiments.softmax import (
    PENALTIES,
    Array,
    at_least,
    kl,
    log_softmax,
    penalty,
    positive,
    refuse_unless,
    slope,
)

VALUES = PENALTIES
GRADIENTS = ("k1 loss", "k3 loss", "vanilla", "leave-one-out")
SLOPE_OF = {"k1 loss": "k1", "k3 loss": "k3", "vanilla": "k2"}  # whose slope multiplies the score
HALVINGS = 100  # of a bracket in log x: more than a float can tell apart


# ---------------------------------------------------------------------------- the set-up
@dataclass(frozen=True, eq=False)
class Bandits:
    """Independent bandits, one a row.

    log_p, log_q: log-probabilities of the reference and of the policy, shape (repeats, arms).
    rewards: shape (repeats, arms).
    """

    log_p: Array
    log_q: Array
    rewards: Array

    def start(self, name: str) -> Array:
        """The policy that a run begins with: the "reference", or the "policy"."""
        return self.log_p if name == "reference" else self.log_q

    def part(self, rows: slice) -> Bandits:
        """Some of them."""
        return Bandits(self.log_p[rows], self.log_q[rows], self.rewards[rows])


def draw_bandits(seed: int, repeats: int, arms: int) -> Bandits:
    """Bandits with logits eps1 and eps1 + eps2 and rewards, all standard normal.

    >>> draw_bandits(seed=0, repeats=2, arms=3).log_p.shape
    (2, 3)

    Raises UsageError: fewer than 2 arms, less than 1 repeat, a negative seed.
    Source: Tang & Munos 2025, appendix C.
    """
    at_least("arms", arms, 2), at_least("repeats", repeats, 1), at_least("seed", seed, 0)
    eps1, eps2, rewards = np.random.default_rng([seed, 0]).standard_normal((3, repeats, arms))
    return Bandits(log_softmax(eps1), log_softmax(eps1 + eps2), rewards)


# ---------------------------------------------------------------------------- estimates
def value_estimates(counts: Any, log_q: Array, log_p: Array) -> Array:
    """Means of k1, k2 and k3 over n samples, from the counts of each arm.

    >>> value_estimates(np.array([1.0, 1.0]), np.log([0.5, 0.5]), np.log([0.25, 0.75])).round(4).tolist()
    [0.1438, 0.1612, 0.1438]

    counts, log_q, log_p: shape (..., arms).  Returns shape (3, ...), in nats, in the order of VALUES.
    """
    weights = counts / counts.sum(-1, keepdims=True)
    return np.stack([(weights * penalty(name, log_q - log_p)).sum(-1) for name in VALUES])


def score_coefficient(name: str, k1: Array, mean_k1: Any = 0.0, n: int = 2) -> Array:
    """What multiplies the score of a sample, for an estimate named in GRADIENTS.

    grad k1 = s,  grad k3 = (1 - r) s,  grad k2 = k1 s,  and with the mean of the other n - 1 samples as a
    control variate (k1_i - mean of the others) s_i = n/(n-1) (k1_i - mean_k1) s_i.

    >>> score_coefficient("k3 loss", np.log([0.5, 2.0])).round(6).tolist()
    [-1.0, 0.5]

    k1: at the samples, or at the arms.  mean_k1: mean over all n samples, broadcast against k1; it and n
    matter to leave-one-out alone.
    """
    return slope(SLOPE_OF[name], k1) if name in SLOPE_OF else (k1 - mean_k1) * (n / (n - 1))


def gradient_estimates(counts: Any, log_q: Array, log_p: Array) -> Array:
    """Estimates of grad KL(q||p) with respect to the logits, from the counts of each arm.

    With the softmax score s(y) = e_y - q, a mean of c_i s_i over samples is (N c)/n - (sum N c)/n q.

    counts, log_q, log_p: shape (..., arms), n >= 2 counts in every row.
    Returns shape (4, ..., arms) in the order of GRADIENTS.
    Raises UsageError: n < 2, or rows of different n.
    """
    total = np.unique(counts.sum(-1))
    if len(total) != 1:
        raise UsageError("counts of different totals: draw the same n for every repeat")
    n = at_least("n", int(total[0]), 2)
    k1, q = log_q - log_p, np.exp(log_q)
    weights = counts / n
    mean_k1 = (weights * k1).sum(-1, keepdims=True)
    terms = [weights * score_coefficient(name, k1, mean_k1, n) for name in GRADIENTS]
    return np.stack([term - term.sum(-1, keepdims=True) * q for term in terms])


def kl_gradient(log_q: Array, log_p: Array) -> Array:
    """grad KL(q||p) with respect to the logits of q, exact: q (k1 - KL(q||p)), shape (..., arms)."""
    k1 = log_q - log_p
    return np.asarray(np.exp(log_q) * (k1 - kl(log_q, log_p)[..., None]))


# ---------------------------------------------------------------------------- the two optima
def optimum(log_p: Array, rewards: Array, beta: float) -> Array:
    """log of pi* = p exp(R/beta) / Z, which maximises E_q[R] - beta KL(q||p).

    >>> np.exp(optimum(np.log([0.5, 0.5]), np.log([1.0, 3.0]), beta=1.0)).round(6).tolist()
    [0.25, 0.75]

    log_p, rewards: shape (..., arms).  Raises UsageError: beta not positive, rewards not finite.
    """
    _check_problem(rewards, beta)
    return log_softmax(log_p + rewards / beta)


def reversed_optimum(log_p: Array, rewards: Array, beta: float) -> Array:
    """log of pi*_rev = beta p/(nu - R), which maximises E_q[R] - beta KL(p||q); nu makes it sum to one.

    >>> np.exp(reversed_optimum(np.log([0.5, 0.5]), np.array([0.0, 4 / 3]), beta=1.0)).round(6).tolist()
    [0.25, 0.75]

    The sum falls strictly in nu, and with x = nu - max R the root is bracketed by

        beta max {p_y : R_y = max R}  <=  x  <=  beta:

    on the left a best arm alone has probability one, on the right every arm has at most its p.  Both ends
    are positive, so the bisection runs in log x, exact for tiny and large gaps of the rewards alike.

    log_p, rewards: shape (..., arms).  Raises UsageError: beta not positive, rewards not finite.
    Source: Tang & Munos 2025, section 3.1; Grill et al. 2020.
    """
    _check_problem(rewards, beta)
    gap = rewards.max(-1, keepdims=True) - rewards
    log_beta = np.log(beta)
    low = np.where(gap == 0, log_beta + log_p, -np.inf).max(-1, keepdims=True)
    high = np.full_like(low, log_beta)
    with np.errstate(divide="ignore"):
        log_gap = np.log(gap)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        log_sum = _log_sum_exp(log_beta + log_p - np.logaddexp(middle, log_gap))
        low, high = np.where(log_sum > 0, middle, low), np.where(log_sum > 0, high, middle)
    return log_softmax(log_beta + log_p - np.logaddexp(high, log_gap))


def _log_sum_exp(x: Array) -> Array:
    top = x.max(-1, keepdims=True)
    return np.asarray(top + np.log(np.exp(x - top).sum(-1, keepdims=True)))


def _check_problem(rewards: Array, beta: float) -> None:
    positive("beta", beta)
    with np.errstate(over="ignore", invalid="ignore"):
        spread = np.ptp(rewards, -1) / beta
    reason = "rewards that are nan or infinite, or too far apart for this beta: give finite ones"
    refuse_unless(bool(np.isfinite(spread).all()), reason)
