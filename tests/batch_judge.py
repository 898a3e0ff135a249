"""A judge for centred batches, written by hand: all batches of n draws from three outcomes are enumerated."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from token_judge import value

Vector = Any
THETA = np.array([0.4, -0.3, 0.2])
P, MU = np.array([0.2, 0.5, 0.3]), np.array([0.35, 0.25, 0.4])
R, A = (1.0, -2.0, 0.5), (0.3, 1.0, -1.5)
STEP = 1e-5
Coefficient = Callable[[int, Vector], float]  # of an outcome, at theta


def softmax(theta: Vector) -> Vector:
    weights = np.exp(theta - theta.max())
    return weights / weights.sum()


def scores(theta: Vector) -> Vector:
    """Row x is grad log q(x)."""
    return np.eye(len(theta)) - softmax(theta)


def names(x: int, theta: Vector, **more: float) -> dict[str, float]:
    q = softmax(theta)
    k1 = math.log(q[x] / P[x])
    return {
        "k1": k1,
        "r": P[x] / q[x],
        "rho": q[x] / MU[x],
        "log_q": math.log(q[x]),
        "R": R[x],
        "A": A[x],
        **more,
    }


def centred(h: Vector, batch: str) -> Vector:
    """What is left of the coefficients of one batch."""
    n = len(h)
    if batch == "none":
        return h
    if batch == "mean":
        return h - h.mean()
    if batch == "leave-one-out":
        return h - (h.sum() - h) / (n - 1)
    return (h - h.mean()) / h.std() if np.ptp(h) else 0 * h  # of equal numbers, rounding leaves no spread


def field(coefficient: Coefficient, theta: Vector, on_policy: bool, batch: str, n: int) -> Vector:
    """E_m[mean_i c_i s_i] over all batches of n draws."""
    m, s = softmax(theta) if on_policy else MU, scores(theta)
    h = np.array([coefficient(x, theta) for x in range(len(theta))])
    total = np.zeros(len(theta))
    for drawn in product(range(len(theta)), repeat=n):
        chance = math.prod(m[x] for x in drawn)
        rows = centred(h[list(drawn)], batch)[:, None] * s[list(drawn)]
        total += chance * rows.mean(axis=0)
    return total


def formula(text: str) -> Coefficient:
    return lambda x, theta: value(text, names(x, theta))


def score_form(text: str, theta: Vector, **more: float) -> Vector:
    """E_q[c s]."""
    q, s = softmax(theta), scores(theta)
    return sum(q[x] * value(text, names(x, theta, **more)) * s[x] for x in range(len(theta)))


def mean_under_mu(text: str, theta: Vector) -> float:
    return float(sum(MU[x] * value(text, names(x, theta)) for x in range(len(theta))))


def twist(of: Callable[[Vector], Vector]) -> float:
    """The largest entry of J - J^T for the Jacobian J of a field."""
    columns = [(of(THETA + STEP * e) - of(THETA - STEP * e)) / (2 * STEP) for e in np.eye(len(THETA))]
    jacobian = np.array(columns)
    return float(np.abs(jacobian - jacobian.T).max())
