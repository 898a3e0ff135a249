"""A detached penalty k_i in the reward of a bandit: the expected update, where it vanishes, what is stable.

With q = softmax(theta) the expected update, R - beta k_i(k1) times the score, is

    dtheta_x/dt = q_x (A_x - sum_y q_y A_y)        A_x = R_x - beta k_i(log q_x - log p_x)

**Objective.**  It ascends G(q) = E_q[R] - beta D_i: D_1 = KL(q||p), D_2 = E_q[k2] - KL(q||p),
D_3 = KL(q||p) - KL(p||q).  D_3 has no lower bound: it falls forever as an arm vanishes.

**Stationary points** inside the simplex solve k_i(k1_x) = u_x = (R_x - nu)/beta for one nu, with
sum_x p_x exp(k1_x) = 1:

    k1: k1 = u, one solution for each arm, q proportional to p exp(R/beta)
    k2: k1 = +sqrt(2u) or -sqrt(2u)
    k3: exp(-k1) = -W(-exp(-1 - u)), W_0 for k1 >= 0 (q above p) and W_{-1} for k1 <= 0 (q below p)

**Stability.**  With a_x = k_i'(k1_x) (1, k1, 1 - exp(-k1)) the linearised flow is the symmetric form

    v . J v = -beta sum_x q_x a_x (v_x - E_q v)^2

so k1 is stable everywhere.  With a_x not 0 it is negative definite, up to a shift of all logits, iff every
a_x > 0, or exactly one is negative and sum_x q_x/a_x < 0.  With k2 and k3 not every arm can lie above p, so
one, say 0, must lie below.  For k3, sum_x q_x (1 - r_x) = 0 and Cauchy-Schwarz over the other arms turn the
inequality into (1 - q_0)^2 < q_0^2, so p_0 > q_0 > 1/2.  For k2, q_x/a_x = q_x L_x/(q_x - p_x) with L the
logarithmic mean of q and p, and the same step leaves (1 - p_0)^2 < p_0^2.  Hence **where no arm of the
reference holds more than half, no interior stationary point is stable, whatever R and beta** (a zero beside
a negative a_x makes a saddle).  The one point with all a_x = 0 is q = p with R constant: D_2 and D_3 are
E_p[e^3]/6 + ... at q = p (1 + e), a saddle of third order.

**Where it goes instead.**  As q_x -> 0 the update tends to -beta p_x for k3: the logit falls at constant
speed.  For k2 it is -beta q_x k1^2/2: the arm vanishes too, like 2/(beta t log^2 t).  For k1 it is +beta
q_x |k1|: it comes back, after a time like 1/(beta q_x), the plateau of softmax policies.  So every vertex
attracts under k2 and k3, and repels under k1.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from klsym.experiments.softmax import check_penalty, penalty, positive, refuse_unless, slope

NEWTON = 60  # steps at most; convergence is monotone, and quadratic at the end
SCAN, BISECTIONS = 400, 55  # values of nu looked at, and halvings of a bracket
LARGEST_LOG = 50.0  # log of a probability beyond which only its being above one matters
LARGEST_ARMS = 8  # 2^arms combinations of branches


def expected_update(name: str, log_q: Any, log_p: Any, reward: Any, beta: float) -> Any:
    """E_q[(R - beta k) s] in the logits, for many bandits at once.

    q_x k3(k1_x) = p_x - q_x + q_x k1_x, so that nothing overflows when an arm vanishes.

    >>> half = np.log([[0.5], [0.5]])
    >>> expected_update("k1", np.log([[0.8], [0.2]]), half, np.zeros((2, 1)), 1.0).round(3).ravel().tolist()
    [-0.222, 0.222]

    log_q, log_p, reward: shape (arms, bandits).  Returns the same shape.
    """
    q, k1 = np.exp(log_q), log_q - log_p
    weighted = np.exp(log_p) - q + q * k1 if name == "k3" else q * penalty(name, k1)
    gain = q * reward - beta * weighted
    return gain - q * gain.sum(axis=0)


# ---------------------------------------------------------------------------- branches
def branch(name: str, u: Any, side: int) -> Any:
    """The solution k1 of k(k1) = u above p (side 1, k1 >= 0) or below it (side -1, k1 <= 0).

    k3, by Newton's method from a bound beyond the root: k1 = u + sqrt(2u) above p, and below it
    -k1 = min(sqrt(2u), log(1 + u + sqrt(2u))).

    >>> [round(float(branch("k3", 0.5, side)), 4) for side in (1, -1)]
    [1.1983, -0.8577]

    u: 0 or more, any shape.  Raises UsageError: u negative or nan, another side, the penalty k1.
    """
    check_penalty(name)
    u = np.asarray(u, dtype=float)
    refuse_unless(name != "k1", "k1 has one branch, k1 = u")
    refuse_unless(side in (1, -1), f"side {side!r}: 1 or -1 expected")
    refuse_unless(bool((u >= 0).all()), "u: 0 or more expected")
    root: Any = np.sqrt(2 * u)
    if name == "k2":
        return side * root
    k1 = u + root if side > 0 else -np.minimum(root, np.log1p(u + root))
    for _ in range(NEWTON):
        by = slope("k3", k1)
        change = np.divide(penalty("k3", k1) - u, by, out=np.zeros_like(k1), where=by != 0)
        k1 = k1 - change
        if bool((np.abs(change) <= 1e-15 * np.abs(k1)).all()):
            break
    return k1


# ---------------------------------------------------------------------------- stationary points
def stationary_points(name: str, log_p: Any, reward: Any, beta: float) -> tuple[Any, Any]:
    """k1 at every interior stationary point found, of many bandits at once, and whose each point is.

    For each of the 2^arms choices of branches, the roots of sum_x p_x exp(k1_x(nu)) = 1 in nu <= min R, by
    a scan and bisection; a pair of roots closer than the scan may be missed.

    >>> k1, which = stationary_points("k1", np.log([[0.5], [0.5]]), np.array([[0.0], [1.0]]), 1.0)
    >>> k1.round(3).ravel().tolist(), which.tolist()
    ([-0.62, 0.38], [0])

    log_p, reward: shape (arms, bandits), at most 8 arms.  beta: positive.
    Returns shapes (arms, points) and (points,).
    Raises UsageError: another penalty, beta not positive, shapes that do not fit, nan.
    """
    check_penalty(name)
    positive("beta", beta)
    log_p, reward = np.asarray(log_p, dtype=float), np.asarray(reward, dtype=float)
    fits = log_p.ndim == 2 and log_p.shape == reward.shape and 2 <= len(log_p) <= LARGEST_ARMS
    refuse_unless(fits, f"shapes {log_p.shape}, {reward.shape}: (arms, bandits), 2 to {LARGEST_ARMS} arms")
    refuse_unless(bool(np.isfinite(log_p).all() and np.isfinite(reward).all()), "finite numbers expected")
    if name == "k1":
        k1 = reward / beta
        return k1 - np.log(np.exp(log_p + k1).sum(axis=0)), np.arange(log_p.shape[1])
    base = (reward - reward.min(axis=0)) / beta
    depth = _scan(log_p)
    u = depth[:, None] + base
    mass = {side: np.exp(np.minimum(log_p + branch(name, u, side), LARGEST_LOG)) for side in (1, -1)}
    found = []
    for pattern in product((1, -1), repeat=len(log_p)):
        below = sum(mass[side][:, x] for x, side in enumerate(pattern)) < 1
        at, which = np.nonzero(below[:-1] != below[1:])
        every = np.repeat(np.array(pattern)[:, None], len(at), axis=1)
        found.append((every, which, depth[at, which], depth[at + 1, which], below[at, which]))
    sides, which, low, high, negative = (np.concatenate(part, axis=-1) for part in zip(*found, strict=True))
    return _bisect(name, log_p[:, which], base[:, which], sides, low, high, negative), which


def _scan(log_p: Any) -> Any:
    """Values of (min R - nu)/beta from 0 to where one arm above p has q > 1 by itself, (SCAN, bandits)."""
    deepest = 2.0 + log_p.min(axis=0) ** 2
    share = np.concatenate([[0.0], np.geomspace(1e-9, 1.0, SCAN - 1)])
    return share[:, None] * deepest


def _bisect(name: str, log_p: Any, base: Any, sides: Any, low: Any, high: Any, negative: Any) -> Any:
    def place(depth: Any) -> Any:
        return np.where(sides > 0, branch(name, depth + base, 1), branch(name, depth + base, -1))

    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        mass = np.exp(np.minimum(log_p + place(middle), LARGEST_LOG)).sum(axis=0)
        same = (mass < 1) == negative
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return place((low + high) / 2)


def growth(name: str, k1: Any, log_p: Any, beta: float) -> float:
    """The largest eigenvalue of the linearised flow at a stationary point, the shift of all logits left out.

    J = -beta P' diag(q a) P, P = 1 - 1 q', a = k'(k1).  The point is stable where it is negative.

    >>> growth("k1", np.array([-0.62, 0.38]), np.log([0.5, 0.5]), 1.0) < 0
    True

    k1, log_p: shape (arms,).
    """
    q = np.exp(log_p + k1)
    project = np.eye(len(q)) - q
    form = -beta * project.T @ np.diag(q * slope(name, k1)) @ project
    basis = np.linalg.qr(np.column_stack([np.ones(len(q)), np.eye(len(q))[:, 1:]]))[0][:, 1:]
    return float(np.linalg.eigvalsh(basis.T @ form @ basis).max())
