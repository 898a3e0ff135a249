"""Losses of the literature, and values and slopes of losses at samples of finite models, in floats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from support.oracle import grammar
from support.oracle.numbers import Jet

Point = Mapping[str, Any]  # numbers, or arrays of samples
PARAMETERS = {"lam": 0.37, "beta": 1.43, "eps": 0.19, "alpha": 0.61, "n": 7.0, "T": 11.0, "har": -0.83}


# ---------------------------------------------------------------------------- plain arithmetic
def _value(text: str, at: Point, log_q: Any) -> Any:
    known = grammar.defined({**PARAMETERS, **at, "log_q": log_q})
    return grammar.evaluate(text, lambda name, slot=None: known[name])


def evaluate(text: str, at: Point) -> Any:
    """The value of a loss at samples."""
    return grammar.plain(_value(text, at, np.float64(at["log_q"]))) * 1.0


def derivative(text: str, at: Point) -> Any:
    """dL/dlog q at samples with sg(.) held constant."""
    found = _value(text, at, Jet(np.float64(at["log_q"]), 1.0))
    return (found.a if isinstance(found, Jet) else 0.0) + 0 * at["log_q"]


# q, p, mu, u (a direction of the softmax logits), R, A
MODELS = (
    ((0.5, 0.5), (0.25, 0.75), (0.3, 0.7), (1, 0), (1, 3), (-1, 2)),
    ((0.2, 0.3, 0.5), (0.6, 0.15, 0.25), (0.35, 0.4, 0.25), (1, 0, 0), (0, 2, 1), (1, -2, 0.5)),
    ((0.1, 0.2, 0.3, 0.4), (0.3, 0.3, 0.1, 0.3), (0.25, 0.15, 0.2, 0.4), (0, 1, 0.5, 0), (1, 0, 2, 2),
     (3, 1, 0, 1)),
)  # fmt: skip


def samples(model: tuple[Any, ...], sampling: str) -> tuple[Any, Any, Point]:
    """The sampler's probabilities, s(x) along u, and all samples."""
    q, p, mu, u, R, A = (np.array(row, dtype=float) for row in model)
    mu = q if sampling == "on-policy" else mu
    logs = {"log_q": np.log(q), "log_p": np.log(p), "log_mu": np.log(mu)}
    return mu, u - q @ u, {**logs, "R": R, "A": A, "q": q}


def close(a: Any, b: Any) -> bool:
    return bool(np.all(np.abs(a - b) <= np.maximum(1e-6 * np.maximum(np.abs(a), np.abs(b)), 1e-7)))


def same(a: str, b: str, sampling: str = "off-policy") -> bool:
    """Do two grammar strings have the same value at every sample of the models?"""
    points = [samples(model, sampling)[2] for model in MODELS]
    return all(close(evaluate(a, at), evaluate(b, at)) for at in points)


# ---------------------------------------------------------------------------- losses of the literature
ON_POLICY_LOSS = (
    "k1", "k2", "k3", "k(lam)", "k(0.5)", "k(-1)", "rho*k1", "rho*k2", "rho*k3", "rho*k(lam)", "rho",
    "sg(rho)*k1", "sg(rho)*k2", "sg(rho)*k3", "sg(rho)*k(lam)", "exp(log_q - sg(log_q))*k3", "rho**2*k3",
    "rho**2*k1", "k2 - sg(k2) + sg(k3)", "k3 - sg(k3) + sg(k2)", "k2 - sg(k2) + sg(k1)", "sg(k1)*log_q",
    "sg(k3)*log_q", "sg(k1)*k1", "sg(k1)", "-log(r)", "r - 1 - log(r)", "(log_q - log_p)**2/2", "r",
    "r*log(r)", "-r*k1", "(r - 1)**2/2", "sqrt(r)", "r**alpha", "1/r", "k1**3", "2*k2", "-k2", "k1**2",
    "beta*k2", "0.1*k3/n", "har*k3", "exp(lam)*k2", "k2 + lam*k1 + beta", "k2 + k3", "k2 - k3",
    "(1 - lam)*k2 + lam*k3", "rho*k3 + rho*k1", "k1 - k1", "A*log_q", "sg(A)*log_q", "rho*A", "R*k1",
    "k2*R", "-A*log_q + beta*k2", "-(rho*A - beta*k3)", "-rho*(R - beta*k1)", "-(R - beta*sg(k1))*log_q",
    "log_q", "sg(log_q)*log_q", "rho*log_q", "log_p", "R", "3",
)  # fmt: skip
OFF_POLICY_LOSS = (
    "k1", "k2", "k3", "rho*k1", "rho*k2", "rho*k3", "rho*k(lam)", "sg(rho)*k1", "sg(rho)*k2", "sg(rho)*k3",
    "sg(rho)*k(lam)", "rho", "1/rho", "rho*r", "rho**2*k1", "sg(rho)*rho*k3", "sg(rho*k1)*log_q",
    "sg(rho)*(k2 - sg(k2) + sg(k3))", "exp(log_q - log_mu)*k3", "beta*rho*k3", "rho*k3 + sg(rho)*k3",
    "rho*A", "A*log_q", "sg(rho)*A*log_q", "-rho*A + beta*rho*k3", "-rho*A + beta*sg(rho)*k3",
    "-(rho*A - beta*k3)", "rho*log_q", "log(rho)", "log_mu",
)  # fmt: skip
ON_POLICY_REWARD = (
    "k1", "k2", "k3", "k(lam)", "-k1", "sg(k1)", "rho*k1", "R", "R*A", "R - beta*k1", "A - beta*k3", "r",
    "r - 1", "r*k1", "1", "beta", "log_q", "k1 + 5", "k1 - k1",
)  # fmt: skip
OFF_POLICY_REWARD = (
    "k1", "rho*k1", "sg(rho)*k1", "rho*k2", "rho*k3", "rho**2*k1", "rho*(R - beta*k1)", "R", "rho", "1",
    "0*k1",
)  # fmt: skip
SHEET = [
    pytest.param(loss, sampling, use, None, id=f"{loss} {sampling} {use}")
    for sampling, use, known in (
        ("on-policy", "loss", ON_POLICY_LOSS), ("off-policy", "loss", OFF_POLICY_LOSS),
        ("on-policy", "reward", ON_POLICY_REWARD), ("off-policy", "reward", OFF_POLICY_REWARD),
    )
    for loss in known
]  # fmt: skip
