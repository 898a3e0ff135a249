"""What sequence losses do on average: exact fields, lengths and variances of finite models.

Everything is taken over whole sequences y of `klsym.study.sequences.autoregressive`, with l_t = log q - log p
and rho_t = q/mu of the symbol drawn at step t, and s_t its score under q.  At a forced stop all three
are trivial: l_t = 0, rho_t = 1, s_t = 0.  Time is linear in max_length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from klsym.study.sequences.autoregressive import (
    Autoregressive,
    compute_log_ratios,
    compute_occupations,
    compute_token_kl,
)


def _gather_to_go(q: Autoregressive, to_go: Any) -> Any:
    """Return what is to come after each symbol, nothing after stop: shape (states, vocabulary + 1)."""
    return np.pad(to_go[q.successors], ((0, 0), (0, 1)))


# ---------------------------------------------------------------------------- whole sequences
def compute_forward_kl(q: Autoregressive, p: Autoregressive) -> tuple[float, Any]:
    """Return KL(p||q) over whole sequences and its gradient in the logits of q.

    KL(p||q) = sum_s d_p(s) KL(p(.|s)||q(.|s))
    grad     = -E_p[sum_t s_t] = -E_q[(p/q)(y) sum_t s_t] = sum_s d_p(s) (q(.|s) - p(.|s))

    with d_p(s) the expected number of draws of p in state s.  The second form is the expected gradient
    of the whole-sequence loss k3 = r - 1 - log r, r = (p/q)(y), under q.

    >>> q, p = (Autoregressive([[0.0, z]], memory=0, max_length=3) for z in (0.0, np.log(3)))
    >>> value, gradient = compute_forward_kl(q, p)
    >>> round(value, 6), gradient.round(6).tolist()
    (0.163515, [[0.3125, -0.3125]])

    Returns nats, and shape (states, vocabulary + 1).
    Raises UsageError: models of different shapes, or without common support.
    Source: Schulman 2020, Approximating KL divergence.
    """
    visits = compute_occupations(p).sum(axis=0)
    return float(visits @ compute_token_kl(p, q)), visits[:, None] * (q.probabilities - p.probabilities)


def compute_weighted_token_gradient(q: Autoregressive, p: Autoregressive, mu: Autoregressive) -> Any:
    """Return E_mu[sum_t rho_t l_t s_t]: each token under its own weight, prefixes left to mu.

    field = sum_s d_mu(s) sum_a mu(a|s) rho(s, a) l(s, a) grad log q(a|s)

    >>> from klsym.study.sequences.autoregressive import random_autoregressive, compute_token_gradient
    >>> q, p, mu = (random_autoregressive(seed, 2, 1, 9) for seed in (0, 1, 2))
    >>> bool(np.allclose(compute_weighted_token_gradient(q, p, q), compute_token_gradient(q, p, "k2")))
    True

    Returns shape (states, vocabulary + 1).
    Raises UsageError: models of different shapes, or without common support.
    Source: Schulman et al. 2017, Proximal policy optimization algorithms.
    """
    compute_token_kl(q, p)
    compute_token_kl(q, mu)  # both refuse models that cannot be compared
    per_draw = mu.probabilities * np.exp(compute_log_ratios(q, mu)) * compute_log_ratios(q, p)
    coefficients = compute_occupations(mu).sum(axis=0)[:, None] * per_draw
    return coefficients - q.probabilities * coefficients.sum(axis=1, keepdims=True)


# ---------------------------------------------------------------------------- lengths
@dataclass(frozen=True, eq=False)
class Lengths:
    """How long the sequences are: the law of T, and two of its means with their gradients.

    law: P(T = t) for t = 1..max_length.  mean, inverse: E_q[T], E_q[1/T], in steps and 1/steps.
    mean_gradient, inverse_gradient: in the logits of q, shape (states, vocabulary + 1).
    """

    law: Any
    mean: float
    mean_gradient: Any
    inverse: float
    inverse_gradient: Any


def compute_length_gradients(q: Autoregressive) -> Lengths:
    """Return P(T = t), E_q[T], E_q[1/T] and the gradients of both means.

    V_t(s) = q(stop|s) f(t) + sum_a q(a|s) V_{t+1}(next state), V_{max_length} = f(max_length)
    grad E_q[f(T)] = E_q[f(T) sum_t s_t] = sum_t d_t(s) q(a|s) (Q_t(s, a) - V_t(s))

    With f(T) = 1/T this is the expected gradient of the length-normalised k1, (1/T) sum_t l_t.

    >>> found = compute_length_gradients(Autoregressive([[0.0, 0.0]], memory=0, max_length=3))
    >>> found.law.tolist(), found.mean, round(found.inverse, 6)
    ([0.5, 0.25, 0.25], 1.75, 0.708333)
    >>> found.inverse_gradient.round(6).tolist()  # longer sequences lower 1/T
    [[-0.166667, 0.166667]]

    Source: Sutton et al. 2000, Policy gradient methods, theorem 1.
    """
    table = compute_occupations(q)
    law = np.zeros(q.max_length)
    law[:-1] = table @ q.probabilities[:, -1]
    law[-1] = (table[-1] @ q.probabilities[:, :-1]).sum() if len(table) else 1.0
    steps = np.arange(1, q.max_length + 1)
    return Lengths(
        law, *_compute_mean_over_lengths(q, table, steps), *_compute_mean_over_lengths(q, table, 1 / steps)
    )


def _compute_mean_over_lengths(q: Autoregressive, table: Any, values: Any) -> tuple[float, Any]:
    """Return E_q[f(T)] and its gradient, f(t) = values[t - 1]."""
    to_go, gradient = np.full(q.states, float(values[-1])), np.zeros(q.logits.shape)
    for occupation, value in zip(table[::-1], values[-2::-1], strict=True):
        action = _gather_to_go(q, to_go)
        action[:, -1] = value
        to_go = (q.probabilities * action).sum(axis=1)
        gradient += occupation[:, None] * q.probabilities * (action - to_go[:, None])
    return float(to_go[0]), gradient


# ---------------------------------------------------------------------------- variances
@dataclass(frozen=True)
class KLVariances:
    """KL(q||p), nats, and the variances, nats^2, of two unbiased estimates of it from one sequence.

    sampled: of sum_t l_t.  exact_steps: of sum_t KL(q(.|state_t)||p(.|state_t)).
    """

    kl: float
    sampled: float
    exact_steps: float


def compute_kl_variances(q: Autoregressive, p: Autoregressive) -> KLVariances:
    """Return the variances of sum_t l_t and of the sum of exact next-token KLs, over one sequence from q.

    Var_t(s) = sum_a q(a|s) ((x(s, a) + V_{t+1}(next) - V_t(s))^2 + Var_{t+1}(next))

    with x = l or x = KL_s, and V_t(s) the KL still to come, which both share.  The difference is

    Var sum_t l_t - Var sum_t KL_t = sum_t E[Var(l_t | state_t)] + 2 sum_{t<u} Cov(l_t - KL_t, KL_u)

    whose second sum can be negative and the larger: then the exact steps vary more
    (`sequence_examples.offset_pair`), since KL_u depends on earlier draws and the sum is no conditional
    mean of sum_t l_t.  Close to q = p they vary less: the first sum is of
    second order there, the second sum of third.

    >>> q, p = (Autoregressive([[0.0, z]], memory=0, max_length=2) for z in (0.0, np.log(3)))
    >>> found = compute_kl_variances(q, p)
    >>> round(found.sampled, 6), found.exact_steps  # one draw, l = log 2 or log(2/3): (log 3)^2 / 4
    (0.301737, 0.0)

    Raises UsageError: models of different shapes, or without common support.
    Source: Amini, Vieira & Cotterell 2025, Better estimation of the KL divergence between language models.
    """
    kl_of_step = compute_token_kl(q, p)
    ratio = compute_log_ratios(q, p)
    to_go, sampled, steps = (np.zeros(q.states) for _ in range(3))
    for _ in range(q.max_length - 1):
        after = _gather_to_go(q, to_go)
        to_go = kl_of_step + (q.probabilities * after).sum(axis=1)
        deviation = after - to_go[:, None]
        sampled = (q.probabilities * ((ratio + deviation) ** 2 + _gather_to_go(q, sampled))).sum(axis=1)
        steps = (q.probabilities * ((kl_of_step[:, None] + deviation) ** 2 + _gather_to_go(q, steps))).sum(
            axis=1
        )
    return KLVariances(float(to_go[0]), float(sampled[0]), float(steps[0]))
