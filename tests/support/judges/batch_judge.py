"""Centred batches of one sample of three outcomes, by the literal oracle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from support.judges.token_judge import NUMBERS, value
from support.oracle.grammar import defined
from support.oracle.losses import Forest, Setting, Tree, node
from support.oracle.losses import centred as centred_jets
from support.oracle.numbers import Jet

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
    logs = {"log_q": np.log(softmax(theta)[x]), "log_p": np.log(P[x]), "log_mu": np.log(MU[x])}
    return defined({**logs, "R": R[x], "A": A[x]}) | more


def centred(h: Vector, batch: str) -> Vector:
    """What is left of the coefficients of one batch."""
    if batch == "none":
        return h
    return np.array([float(x.value) for x in centred_jets([Jet(np.array(x)) for x in h], batch)])


def field(coefficient: Coefficient, theta: Vector, on_policy: bool, batch: str, n: int) -> Vector:
    """E_m[mean_i c_i s_i] over all batches of n draws: the coefficients stand as rewards."""
    h = [coefficient(x, theta) for x in range(len(theta))]
    forest = Forest([Tree(node(theta, P, MU, h), A)], ("on-policy" if on_policy else "off-policy",))
    return forest.field("R", Setting(forest.sampling, "reward", batch=batch, n=n)).a[:, 0, 0]


def formula(text: str) -> Coefficient:
    return lambda x, theta: value(text, names(x, theta))


def score_form(text: str, theta: Vector, **more: float) -> Vector:
    """E_q[c s]."""
    return Forest([Tree(node(theta, P, MU, R), A, NUMBERS)], ("off-policy",)).form(text, **more).a[:, 0, 0]


def mean_under_mu(text: str, theta: Vector) -> float:
    return float(sum(MU[x] * value(text, names(x, theta)) for x in range(len(theta))))


def twist(of: Callable[[Vector], Vector]) -> float:
    """The largest entry of J - J^T for the Jacobian J of a field."""
    columns = [(of(THETA + STEP * e) - of(THETA - STEP * e)) / (2 * STEP) for e in np.eye(len(THETA))]
    jacobian = np.array(columns)
    return float(np.abs(jacobian - jacobian.T).max())
