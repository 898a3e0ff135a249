"""What sequence losses do on average: exact fields, lengths, Jacobians and variances of finite models.

Everything is taken over whole sequences y of `klsym.numeric.autoregressive`, with l_t = log q - log p
and rho_t = q/mu of the symbol drawn at step t, and s_t its score under q.  At a forced stop all three
are trivial: l_t = 0, rho_t = 1, s_t = 0.  Time is linear in max_length unless a sum over sequences is
announced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from klsym.errors import UsageError
from klsym.numeric.autoregressive import (
    Autoregressive,
    Sequences,
    expectation,
    occupations,
    token_kl,
    token_log_probabilities,
    token_scores,
)

SMALL_STEP = 1e-30  # the error of a complex step is its square: nothing is subtracted
FIELDS = ("kl", "k2", "k3")


# ---------------------------------------------------------------------------- common pieces
def _log_ratio(q: Autoregressive, other: Autoregressive) -> Any:
    """log q(a|s) - log other(a|s), 0 where both exclude the symbol; `token_kl` has checked the pair."""
    both = np.isfinite(q.logits)
    return np.subtract(q.log_probabilities, other.log_probabilities, where=both, out=np.zeros(both.shape))


def _weights(q: Autoregressive, mu: Autoregressive) -> Any:
    """rho(s, a) = q(a|s) / mu(a|s), as mu and rho appear in a run: two factors, never simplified."""
    token_kl(q, mu)  # refuses models that cannot be compared
    return np.exp(_log_ratio(q, mu))


def _scored(q: Autoregressive, coefficients: Any) -> Any:
    """sum_a c(s, a) grad log q(a|s), whose entry at [s, b] is c(s, b) - q(b|s) sum_a c(s, a)."""
    return coefficients - q.probabilities * coefficients.sum(axis=1, keepdims=True)


def _after(q: Autoregressive, to_go: Any) -> Any:
    """What is still to come after each symbol, nothing after stop: shape (states, vocabulary + 1)."""
    return np.pad(to_go[q.successors], ((0, 0), (0, 1)))


# ---------------------------------------------------------------------------- whole sequences
def forward_kl(q: Autoregressive, p: Autoregressive) -> tuple[float, Any]:
    """KL(p||q) over whole sequences and its gradient in the logits of q.

    KL(p||q) = sum_s d_p(s) KL(p(.|s)||q(.|s))
    grad     = -E_p[sum_t s_t] = -E_q[(p/q)(y) sum_t s_t] = sum_s d_p(s) (q(.|s) - p(.|s))

    with d_p(s) the expected number of draws of p in state s.  The second form is the expected gradient
    of the whole-sequence loss k3 = r - 1 - log r, r = (p/q)(y), under q.

    >>> q, p = (Autoregressive([[0.0, z]], memory=0, max_length=3) for z in (0.0, np.log(3)))
    >>> value, gradient = forward_kl(q, p)
    >>> round(value, 6), gradient.round(6).tolist()
    (0.163515, [[0.3125, -0.3125]])

    Returns nats, and shape (states, vocabulary + 1).
    Raises UsageError: models of different shapes, or without common support.
    Source: Schulman 2020, Approximating KL divergence.
    """
    visits = occupations(p).sum(axis=0)
    return float(visits @ token_kl(p, q)), visits[:, None] * (q.probabilities - p.probabilities)


def prefix_weighted_gradient(q: Autoregressive, p: Autoregressive, mu: Autoregressive) -> Any:
    """E_mu[sum_u rho_1 ... rho_u l_u sum_{t <= u} s_t]: off-policy, each l_u under its prefix weight.

    m_1 = 1[start], m_{t+1}(s') = sum_{s, a: s' follows} m_t(s) mu(a|s) rho(s, a)
    W_t(s) = sum_a mu rho (l + W_{t+1}(next state))
    field = sum_t sum_{s, a} m_t(s) mu rho (l + W_{t+1}(next state)) grad log q(a|s)

    m_t(s) is E_mu[rho_1 ... rho_{t-1}; state_t = s]; W_t(s) is E_mu[sum_{u >= t} rho_t ... rho_u l_u | s].

    >>> from klsym.numeric.autoregressive import random_autoregressive, sequence_kl
    >>> q, p, mu = (random_autoregressive(seed, 2, 1, 9) for seed in (0, 1, 2))
    >>> bool(np.allclose(prefix_weighted_gradient(q, p, mu), sequence_kl(q, p)[1]))
    True

    Returns shape (states, vocabulary + 1).
    Raises UsageError: models of different shapes, or without common support.
    Source: Precup, Sutton & Singh 2000, Eligibility traces for off-policy policy evaluation.
    """
    token_kl(q, p)
    weighted, ratio = mu.probabilities * _weights(q, mu), _log_ratio(q, p)
    mass = np.zeros((q.max_length - 1, q.states))
    if len(mass):
        mass[0, 0] = 1
    for t in range(1, len(mass)):
        flow = mass[t - 1][:, None] * weighted[:, :-1]
        mass[t] = np.bincount(q.successors.ravel(), weights=flow.ravel(), minlength=q.states)
    to_go, coefficients = np.zeros(q.states), np.zeros(q.logits.shape)
    for reached in mass[::-1]:
        action = weighted * (ratio + _after(q, to_go))
        coefficients += reached[:, None] * action
        to_go = action.sum(axis=1)
    return _scored(q, coefficients)


def token_weighted_field(q: Autoregressive, p: Autoregressive, mu: Autoregressive) -> Any:
    """E_mu[sum_t rho_t l_t s_t]: off-policy, each token under its own weight, prefixes left to mu.

    field = sum_s d_mu(s) sum_a mu(a|s) rho(s, a) l(s, a) grad log q(a|s)

    >>> from klsym.numeric.autoregressive import random_autoregressive, token_field
    >>> q, p, mu = (random_autoregressive(seed, 2, 1, 9) for seed in (0, 1, 2))
    >>> bool(np.allclose(token_weighted_field(q, p, q), token_field(q, p, "k2")))
    True

    Returns shape (states, vocabulary + 1).
    Raises UsageError: models of different shapes, or without common support.
    Source: Schulman et al. 2017, Proximal policy optimization algorithms.
    """
    token_kl(q, p)
    per_draw = mu.probabilities * _weights(q, mu) * _log_ratio(q, p)
    return _scored(q, occupations(mu).sum(axis=0)[:, None] * per_draw)


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


def length_gradient(q: Autoregressive) -> Lengths:
    """P(T = t), E_q[T], E_q[1/T] and the gradients of both means.

    V_t(s) = q(stop|s) f(t) + sum_a q(a|s) V_{t+1}(next state), V_{max_length} = f(max_length)
    grad E_q[f(T)] = E_q[f(T) sum_t s_t] = sum_t d_t(s) q(a|s) (Q_t(s, a) - V_t(s))

    With f(T) = 1/T this is the expected gradient of the length-normalised k1, (1/T) sum_t l_t.

    >>> found = length_gradient(Autoregressive([[0.0, 0.0]], memory=0, max_length=3))
    >>> found.law.tolist(), found.mean, round(found.inverse, 6)
    ([0.5, 0.25, 0.25], 1.75, 0.708333)
    >>> found.inverse_gradient.round(6).tolist()  # longer sequences lower 1/T
    [[-0.166667, 0.166667]]

    Source: Sutton et al. 2000, Policy gradient methods, theorem 1.
    """
    table = occupations(q)
    law = np.zeros(q.max_length)
    law[:-1] = table @ q.probabilities[:, -1]
    law[-1] = (table[-1] @ q.probabilities[:, :-1]).sum() if len(table) else 1.0
    steps = np.arange(1, q.max_length + 1)
    return Lengths(law, *_mean_over_lengths(q, table, steps), *_mean_over_lengths(q, table, 1 / steps))


def _mean_over_lengths(q: Autoregressive, table: Any, values: Any) -> tuple[float, Any]:
    """E_q[f(T)] and its gradient, f(t) = values[t - 1]."""
    to_go, gradient = np.full(q.states, float(values[-1])), np.zeros(q.logits.shape)
    for occupation, value in zip(table[::-1], values[-2::-1], strict=True):
        action = _after(q, to_go)
        action[:, -1] = value
        to_go = (q.probabilities * action).sum(axis=1)
        gradient += occupation[:, None] * q.probabilities * (action - to_go[:, None])
    return float(to_go[0]), gradient


# ---------------------------------------------------------------------------- Jacobians
def jacobian(field: str, q: Autoregressive, p: Autoregressive) -> Any:
    """The Jacobian of a field in the logits z of q, by complex steps: exact up to rounding.

    J[s, a, s', b] = d field[s, a] / d z[s', b] = Im field(z + i h 1[s', b]) / h + O(h^2)

    A gradient has a symmetric Jacobian; a field whose Jacobian is not symmetric has no objective.

    >>> from klsym.numeric.sequence_examples import asymmetric_pair
    >>> found = [asymmetry(jacobian(field, *asymmetric_pair())) for field in ("kl", "k2", "k3")]
    >>> [round(x, 6) for x in found]  # 0, log(3)/16, 1/16
    [0.0, 0.068663, 0.0625]

    field: "kl", the gradient of the sequence KL; "k2" or "k3", the token-level field
    E_q[sum_t grad loss(l_t)] of `token_field`.  Returns shape (states, symbols, states, symbols); its
    rows and columns for excluded symbols are 0.
    Raises UsageError: another field, models of different shapes, or without common support.
    Source: Squire & Trapp 1998, Using complex variables to estimate derivatives of real functions.
    """
    if field not in FIELDS:
        raise UsageError(f"jacobian: field {field!r}: 'kl', 'k2' or 'k3' expected")
    token_kl(q, p)
    parameters = q.logits.size
    steps = 1j * SMALL_STEP * np.eye(parameters).reshape(parameters, *q.logits.shape)
    moved = _complex_field(field, q, p, steps).imag / SMALL_STEP
    return np.moveaxis(moved, 0, -1).reshape(*q.logits.shape, *q.logits.shape)


def asymmetry(matrix: Any) -> float:
    """The largest |J[i, j] - J[j, i]| of a Jacobian of shape (states, symbols, states, symbols).

    >>> asymmetry(np.eye(4).reshape(2, 2, 2, 2))
    0.0
    """
    return float(np.abs(matrix - np.transpose(matrix, (2, 3, 0, 1))).max())


def _complex_field(field: str, q: Autoregressive, p: Autoregressive, steps: Any) -> Any:
    """The fields at the logits z + step, for many complex steps: shape (steps, states, symbols)."""
    both = np.isfinite(q.logits)
    shift = q.logits.max(axis=1, keepdims=True)
    moved = np.where(both, np.where(both, q.logits - shift, 0.0) + steps, 0.0)
    mass = np.where(both, np.exp(moved), 0.0)
    total = mass.sum(axis=2, keepdims=True)
    draw = mass / total
    ratio = np.where(both, moved - np.log(total) - np.where(both, p.log_probabilities, 0.0), 0.0)
    leads = np.eye(q.states)[q.successors.ravel()]  # row s, a: the next state
    table = [np.eye(q.states)[0] * np.ones((len(steps), 1), dtype=complex)] * (q.max_length > 1)
    for _ in range(q.max_length - 2):
        flow = table[-1][:, :, None] * draw[:, :, :-1]
        table.append(flow.reshape(len(steps), -1) @ leads)
    found, to_go = np.zeros(draw.shape, dtype=complex), np.zeros(draw.shape[:2], dtype=complex)
    for occupation in table[::-1]:
        action = ratio.copy()
        if field == "kl":
            action[:, :, :-1] += to_go[:, q.successors]
        to_go = (draw * action).sum(axis=2)
        centred = draw - p.probabilities if field == "k3" else draw * (action - to_go[:, :, None])
        found += occupation[:, :, None] * centred
    return found


# ---------------------------------------------------------------------------- variances
@dataclass(frozen=True)
class KLVariances:
    """KL(q||p), nats, and the variances, nats^2, of two unbiased estimates of it from one sequence.

    sampled: of sum_t l_t.  exact_steps: of sum_t KL(q(.|state_t)||p(.|state_t)).
    """

    kl: float
    sampled: float
    exact_steps: float


def kl_variances(q: Autoregressive, p: Autoregressive) -> KLVariances:
    """The variances of sum_t l_t and of the sum of exact next-token KLs, over one sequence from q.

    Var_t(s) = sum_a q(a|s) ((x(s, a) + V_{t+1}(next) - V_t(s))^2 + Var_{t+1}(next))

    with x = l or x = KL_s, and V_t(s) the KL still to come, which both share.  The difference is

    Var sum_t l_t - Var sum_t KL_t = sum_t E[Var(l_t | state_t)] + 2 sum_{t<u} Cov(l_t - KL_t, KL_u)

    whose second sum can be negative and the larger: then the exact steps vary more
    (`sequence_examples.offset_pair`), since KL_u depends on earlier draws and the sum is no conditional
    mean of sum_t l_t.  Close to q = p they vary less: the first sum is of
    second order there, the second sum of third.

    >>> q, p = (Autoregressive([[0.0, z]], memory=0, max_length=2) for z in (0.0, np.log(3)))
    >>> found = kl_variances(q, p)
    >>> round(found.sampled, 6), found.exact_steps  # one draw, l = log 2 or log(2/3): (log 3)^2 / 4
    (0.301737, 0.0)

    Raises UsageError: models of different shapes, or without common support.
    Source: Amini, Vieira & Cotterell 2025, Better estimation of the KL divergence between language models.
    """
    now = token_kl(q, p)
    ratio = _log_ratio(q, p)
    to_go, sampled, steps = (np.zeros(q.states) for _ in range(3))
    for _ in range(q.max_length - 1):
        after = _after(q, to_go)
        to_go = now + (q.probabilities * after).sum(axis=1)
        off = after - to_go[:, None]
        sampled = (q.probabilities * ((ratio + off) ** 2 + _after(q, sampled))).sum(axis=1)
        steps = (q.probabilities * ((now[:, None] + off) ** 2 + _after(q, steps))).sum(axis=1)
    return KLVariances(float(to_go[0]), float(sampled[0]), float(steps[0]))


ESTIMATORS = ("sampled", "exact-steps", "vanilla", "cumulative", "cumulative-exact-steps")


def estimator_moments(q: Autoregressive, p: Autoregressive, estimator: str) -> tuple[Any, float]:
    """Mean and total variance (trace of the covariance) of an estimate from one sequence, enumerated.

    sampled                  sum_t l_t                                           of KL(q||p)
    exact-steps              sum_t KL_t, KL_t = KL(q(.|state_t)||p(.|state_t))   of KL(q||p)
    vanilla                  (sum_u l_u) (sum_t s_t)                             of its gradient
    cumulative               sum_t s_t sum_{u >= t} l_u                          of its gradient
    cumulative-exact-steps   sum_t (grad KL_t + s_t sum_{u > t} KL_u)            of its gradient

    >>> q, p = (Autoregressive([[0.0, z]], memory=0, max_length=3) for z in (0.0, np.log(3)))
    >>> [round(estimator_moments(q, p, name)[1], 3) for name in ("vanilla", "cumulative")]
    [0.601, 0.24]

    Returns the mean, a number or shape (states, vocabulary + 1), and a number.
    Raises UsageError: another estimator, models of different shapes or without common support, too many
    sequences.
    """
    if estimator not in ESTIMATORS:
        raise UsageError(f"estimator_moments: {estimator!r}: one of {', '.join(ESTIMATORS)} expected")
    token_kl(q, p)
    mean = expectation(q, lambda y: _estimates(q, p, y, estimator))
    return mean, float(expectation(q, lambda y: _squared(_estimates(q, p, y, estimator) - mean)))


def _squared(values: Any) -> Any:
    return (values.reshape(len(values), -1) ** 2).sum(axis=1)


def _estimates(q: Autoregressive, p: Autoregressive, y: Sequences, estimator: str) -> Any:
    """The estimate from each sequence, shape (n,) or (n, states, vocabulary + 1)."""
    ratio = token_log_probabilities(q, y) - token_log_probabilities(p, y)
    if estimator == "sampled":
        return ratio.sum(axis=1)
    score = token_scores(q, y)
    if estimator == "vanilla":
        return ratio.sum(axis=1)[:, None, None] * score.sum(axis=1)
    if estimator == "cumulative":
        return np.einsum("nt,ntsa->nsa", _sum_from(ratio), score)
    visited = _visited(q, y)
    steps = visited @ token_kl(q, p)
    if estimator == "exact-steps":
        return steps.sum(axis=1)
    gradients = _scored(q, q.probabilities * _log_ratio(q, p))  # of KL_s in the logits of its own row
    return visited.sum(axis=1)[:, :, None] * gradients + np.einsum(
        "nt,ntsa->nsa", _sum_from(steps) - steps, score
    )


def _sum_from(values: Any) -> Any:
    """sum_{u >= t} x_u, for each step t of shape (n, width)."""
    return np.cumsum(values[:, ::-1], axis=1)[:, ::-1]


def _visited(q: Autoregressive, y: Sequences) -> Any:
    """1[step t is drawn, not forced, in state s], shape (n, width, states)."""
    found = np.zeros((*y.symbols.shape, q.states))
    state, drawn = np.zeros(len(y), dtype=np.intp), np.ones(len(y), dtype=bool)
    for t in range(min(y.symbols.shape[1], q.max_length - 1)):
        found[drawn, t, state[drawn]] = 1
        drawn = drawn & (y.symbols[:, t] != q.stop)
        state[drawn] = q.successors[state[drawn], y.symbols[drawn, t]]
    return found
