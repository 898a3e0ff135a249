"""Where the logits of a softmax go along the expected gradient, simulated; nothing of klsym is used.

dtheta_j/dt = q_j (C_j - sum q C) with C = R - beta c(q), by Euler's implicit method: steps grow as the flow
slows down, but never beyond what would hold a policy on an unstable point.
"""

from __future__ import annotations

import numpy as np

LONGEST, STEPS, LOWEST = 1e8, 1500, -60.0


def softmax(logits):
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def update(level, logits):
    """The expected update of the logits."""
    q = softmax(logits)
    c = level(np.maximum(q, 1e-280))
    return q * (c - (q * c).sum())


def jacobian(level, logits):
    """By central differences."""
    width, size = 1e-6, len(logits)
    columns = [update(level, logits + h) - update(level, logits - h) for h in np.eye(size) * width]
    return np.array(columns).T / (2 * width)


def end(level, logits):
    """The policy at the end from these logits; None where the flow has not come to rest."""
    logits, step, time, still = logits - logits.max(), 1e-3, 0.0, 0
    for _ in range(STEPS):
        fastest = np.linalg.eigvals(jacobian(level, logits)).real.max()
        step = min(step, 0.3 / fastest) if fastest > 1e-8 else step
        moved = _implicit(level, logits, step)
        change = 1.0 if moved is None else np.abs(softmax(moved) - softmax(logits)).max()
        if change > 0.02:
            step /= 3
            if step < 1e-16:
                return None
            continue
        time, still = time + step, still + 1 if change < 1e-9 else 0
        logits, step = np.maximum(moved - moved.max(), LOWEST), step * 1.5
        if time > LONGEST or (still > 40 and (logits.min() <= LOWEST or fastest <= 1e-8)):
            return softmax(logits)
    return None


def _implicit(level, logits, step):
    """theta with theta - step update(theta) = logits, by Newton's method; None without convergence."""
    theta = logits.copy()
    for _ in range(12):
        gap = theta - step * update(level, theta) - logits
        move = np.linalg.solve(np.eye(len(theta)) - step * jacobian(level, theta), gap)
        theta = theta - move
        if not np.isfinite(theta).all() or np.abs(theta - logits).max() > 50:
            return None
        if np.abs(move).max() < 1e-9:
            return theta
    return None
