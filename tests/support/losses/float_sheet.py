"""The cheat sheet of the literature, and the gradients of losses on finite models in plain floats."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest

from klsym.api import explain
from support.oracle import losses
from support.oracle.numbers import Jet

Point = Mapping[str, Any]  # numbers, or arrays of samples
PARAMETERS = {"lam": 0.37, "beta": 1.43, "eps": 0.19, "alpha": 0.61, "n": 7.0, "T": 11.0, "har": -0.83}


# ---------------------------------------------------------------------------- plain arithmetic
def _value(text: str, at: Point, log_q: Any) -> Any:
    known = losses.defined({**PARAMETERS, **at, "log_q": log_q})
    return losses.evaluate(text, lambda name, slot=None: known[name])


def evaluate(text: str, at: Point) -> Any:
    """The value of a loss at samples."""
    return losses.plain(_value(text, at, np.float64(at["log_q"]))) * 1.0


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


def expected_gradient(loss: str, model: tuple[Any, ...], sampling: str, use: str) -> float:
    """E_m[grad L] (a loss) or E_m[L s] (a reward), along u."""
    m, score, at = samples(model, sampling)
    return float((m * score * (derivative if use == "loss" else evaluate)(loss, at)).sum())


def score_form(c: str, model: tuple[Any, ...], sampling: str) -> float:
    """E_q[c s] along u."""
    _, score, at = samples(model, sampling)
    return float((at["q"] * score * evaluate(c, at)).sum())


def mean(v: str, model: tuple[Any, ...], sampling: str) -> float:
    """E_q[v]."""
    at = samples(model, sampling)[2]
    return float((at["q"] * evaluate(v, at)).sum())


def expected_value(loss: str, model: tuple[Any, ...], sampling: str) -> float:
    m, _, at = samples(model, sampling)
    return float((m * evaluate(loss, at)).sum())


def close(a: Any, b: Any) -> bool:
    return bool(np.all(np.abs(a - b) <= np.maximum(1e-6 * np.maximum(np.abs(a), np.abs(b)), 1e-7)))


def same(a: str, b: str, sampling: str = "off-policy") -> bool:
    """Do two grammar strings have the same value at every sample of the models?"""
    points = [samples(model, sampling)[2] for model in MODELS]
    return all(close(evaluate(a, at), evaluate(b, at)) for at in points)


SCORE_FORMS = {"reverse-kl": "({})*k1", "forward-kl": "-({})*r", "reward": "{}"}


def combined(combination: Mapping[str, str]) -> str:
    return " + ".join(SCORE_FORMS[name].format(value) for name, value in combination.items()) or "0"


# ---------------------------------------------------------------------------- the cheat sheet
# loss: target, combination, gradient at one sample over s, score coefficient, value (! = unbiased)
REVERSE, FORWARD = {"reverse-kl": "1"}, {"forward-kl": "1"}
PLUS, MINUS = {**REVERSE, **FORWARD}, {**REVERSE, "forward-kl": "-1"}
ON_POLICY_LOSS = {
    "k1": ("zero", {}, "1", "0", "reverse-kl!"),
    "k2": ("reverse-kl", REVERSE, "k1", "k1", "f-divergence"),
    "k3": ("forward-kl", FORWARD, "1 - r", "-r", "reverse-kl!"),
    "k(lam)": ("forward-kl", {"forward-kl": "lam"}, "1 - lam*r", "-lam*r", "reverse-kl!"),
    "k(0.5)": ("forward-kl", {"forward-kl": "1/2"}, "1 - r/2", "-r/2", "reverse-kl!"),
    "k(-1)": ("forward-kl", {"forward-kl": "-1"}, "1 + r", "r", "reverse-kl!"),
    "rho*k1": ("reverse-kl", REVERSE, "k1 + 1", "k1", "reverse-kl!"),
    "rho*k2": ("f-divergence", {}, "k1 + k2", "k1 + k2", "f-divergence"),
    "rho*k3": ("reverse-kl", REVERSE, "k1", "k1", "reverse-kl!"),
    "rho*k(lam)": ("reverse-kl", REVERSE, "k1 + 1 - lam", "k1", "reverse-kl!"),
    "rho": ("zero", {}, "1", "0", "zero"),
    "sg(rho)*k1": ("zero", {}, "1", "0", "reverse-kl!"),
    "sg(rho)*k2": ("reverse-kl", REVERSE, "k1", "k1", "f-divergence"),
    "sg(rho)*k3": ("forward-kl", FORWARD, "1 - r", "-r", "reverse-kl!"),
    "sg(rho)*k(lam)": ("forward-kl", {"forward-kl": "lam"}, "1 - lam*r", "-lam*r", "reverse-kl!"),
    "exp(log_q - sg(log_q))*k3": ("reverse-kl", REVERSE, "k1", "k1", "reverse-kl!"),
    "rho**2*k3": (
        "combination", {"reverse-kl": "2", "forward-kl": "-1"}, "2*k3 + 1 - r", "2*k1 + r", "reverse-kl!"),
    "rho**2*k1": ("reverse-kl", {"reverse-kl": "2"}, "2*k1 + 1", "2*k1", "reverse-kl!"),
    # straight-through, surrogates
    "k2 - sg(k2) + sg(k3)": ("reverse-kl", REVERSE, "k1", "k1", "reverse-kl!"),
    "k3 - sg(k3) + sg(k2)": ("forward-kl", FORWARD, "1 - r", "-r", "f-divergence"),
    "k2 - sg(k2) + sg(k1)": ("reverse-kl", REVERSE, "k1", "k1", "reverse-kl!"),
    "sg(k1)*log_q": ("reverse-kl", REVERSE, "k1", "k1", "separable"),
    "sg(k3)*log_q": ("combination", MINUS, "k3", "k1 + r", "separable"),
    "sg(k1)*k1": ("reverse-kl", REVERSE, "k1", "k1", "f-divergence"),
    "sg(k1)": ("zero", {}, "0", "0", "reverse-kl!"),
    # the same functions in other words
    "-log(r)": ("zero", {}, "1", "0", "reverse-kl!"),
    "r - 1 - log(r)": ("forward-kl", FORWARD, "1 - r", "-r", "reverse-kl!"),
    "(log_q - log_p)**2/2": ("reverse-kl", REVERSE, "k1", "k1", "f-divergence"),
    "r": ("forward-kl", FORWARD, "-r", "-r", "zero"),
    "r*log(r)": ("f-divergence", {}, "r*k1 - r", "r*k1 - r", "forward-kl!"),
    "-r*k1": ("f-divergence", {}, "r*k1 - r", "r*k1 - r", "forward-kl!"),
    "(r - 1)**2/2": ("f-divergence", {}, "r - r**2", "r - r**2", "f-divergence"),
    "sqrt(r)": ("f-divergence", {}, "-sqrt(r)/2", "-sqrt(r)/2", "f-divergence"),
    "r**alpha": ("f-divergence", {}, "-alpha*r**alpha", "-alpha*r**alpha", "f-divergence"),
    "1/r": ("f-divergence", {}, "1/r", "1/r", "f-divergence"),
    "k1**3": ("f-divergence", {}, "3*k1**2", "3*k1**2", "f-divergence"),
    # multiples and combinations
    "2*k2": ("reverse-kl", {"reverse-kl": "2"}, "2*k1", "2*k1", "f-divergence"),
    "-k2": ("reverse-kl", {"reverse-kl": "-1"}, "-k1", "-k1", "f-divergence"),
    "k1**2": ("reverse-kl", {"reverse-kl": "2"}, "2*k1", "2*k1", "f-divergence"),
    "beta*k2": ("reverse-kl", {"reverse-kl": "beta"}, "beta*k1", "beta*k1", "f-divergence"),
    "0.1*k3/n": ("forward-kl", {"forward-kl": "1/(10*n)"}, "(1 - r)/(10*n)", "-r/(10*n)", "reverse-kl"),
    "har*k3": ("forward-kl", {"forward-kl": "har"}, "har*(1 - r)", "-har*r", "reverse-kl"),
    "exp(lam)*k2": ("reverse-kl", {"reverse-kl": "exp(lam)"}, "exp(lam)*k1", "exp(lam)*k1", "f-divergence"),
    "k2 + lam*k1 + beta": ("reverse-kl", REVERSE, "k1 + lam", "k1", "f-divergence"),
    "k2 + k3": ("combination", PLUS, "k1 + 1 - r", "k1 - r", "f-divergence"),
    "k2 - k3": ("combination", MINUS, "k1 - 1 + r", "k1 + r", "f-divergence"),
    "(1 - lam)*k2 + lam*k3": (
        "combination", {"reverse-kl": "1 - lam", "forward-kl": "lam"},
        "(1 - lam)*k1 + lam*(1 - r)", "(1 - lam)*k1 - lam*r", "f-divergence"),
    "rho*k3 + rho*k1": ("reverse-kl", {"reverse-kl": "2"}, "2*k1 + 1", "2*k1", "reverse-kl"),
    "k1 - k1": ("zero", {}, "0", "0", "zero"),
    # policy gradients and entropy
    "A*log_q": ("combination", {"reward": "A"}, "A", "A", "separable"),
    "sg(A)*log_q": ("combination", {"reward": "A"}, "A", "A", "separable"),
    "rho*A": ("combination", {"reward": "A"}, "A", "A", "combination"),
    "R*k1": ("combination", {"reward": "R"}, "R", "R", "separable"),
    "k2*R": ("separable", {}, "R*k1", "R*k1", "separable"),
    "-A*log_q + beta*k2": (
        "combination", {"reward": "-A", "reverse-kl": "beta"}, "beta*k1 - A", "beta*k1 - A", "separable"),
    "-(rho*A - beta*k3)": (
        "combination", {"reward": "-A", "forward-kl": "beta"},
        "beta*(1 - r) - A", "-beta*r - A", "combination"),
    "-rho*(R - beta*k1)": (
        "combination", {"reward": "-R", "reverse-kl": "beta"},
        "beta*(k1 + 1) - R", "beta*k1 - R", "combination"),
    "-(R - beta*sg(k1))*log_q": (
        "combination", {"reward": "-R", "reverse-kl": "beta"}, "beta*k1 - R", "beta*k1 - R", "separable"),
    "log_q": ("zero", {}, "1", "0", "separable"),
    "sg(log_q)*log_q": ("separable", {}, "log_q", "log_q", "separable"),
    "rho*log_q": ("separable", {}, "log_q + 1", "log_q", "separable"),
    "log_p": ("zero", {}, "0", "0", "separable"),
    "R": ("zero", {}, "0", "0", "combination"),
    "3": ("zero", {}, "0", "0", "zero"),
}  # fmt: skip
OFF_POLICY_LOSS = {
    "k1": ("separable", {}, "1", "1/rho", "separable"),
    "k2": ("separable", {}, "k1", "k1/rho", "separable"),
    "k3": ("separable", {}, "1 - r", "(1 - r)/rho", "separable"),
    "rho*k1": ("reverse-kl", REVERSE, "rho*(k1 + 1)", "k1", "reverse-kl!"),
    "rho*k2": ("f-divergence", {}, "rho*(k1 + k2)", "k1 + k2", "f-divergence"),
    "rho*k3": ("reverse-kl", REVERSE, "rho*k1", "k1", "reverse-kl!"),
    "rho*k(lam)": ("reverse-kl", REVERSE, "rho*(k1 + 1 - lam)", "k1", "reverse-kl!"),
    "sg(rho)*k1": ("zero", {}, "rho", "0", "reverse-kl!"),
    "sg(rho)*k2": ("reverse-kl", REVERSE, "rho*k1", "k1", "f-divergence"),
    "sg(rho)*k3": ("forward-kl", FORWARD, "rho*(1 - r)", "-r", "reverse-kl!"),
    "sg(rho)*k(lam)": ("forward-kl", {"forward-kl": "lam"}, "rho*(1 - lam*r)", "-lam*r", "reverse-kl!"),
    "rho": ("zero", {}, "rho", "0", "zero"),
    "1/rho": ("separable", {}, "-1/rho", "-1/rho**2", "separable"),
    "rho*r": ("zero", {}, "0", "0", "zero"),
    "rho**2*k1": ("separable", {}, "rho**2*(2*k1 + 1)", "rho*(2*k1 + 1)", "separable"),
    "sg(rho)*rho*k3": ("separable", {}, "rho**2*k1", "rho*k1", "separable"),
    "sg(rho*k1)*log_q": ("reverse-kl", REVERSE, "rho*k1", "k1", "separable"),
    "sg(rho)*(k2 - sg(k2) + sg(k3))": ("reverse-kl", REVERSE, "rho*k1", "k1", "reverse-kl!"),
    "exp(log_q - log_mu)*k3": ("reverse-kl", REVERSE, "rho*k1", "k1", "reverse-kl!"),
    "beta*rho*k3": ("reverse-kl", {"reverse-kl": "beta"}, "beta*rho*k1", "beta*k1", "reverse-kl"),
    "rho*k3 + sg(rho)*k3": ("combination", PLUS, "rho*(k1 + 1 - r)", "k1 - r", "reverse-kl"),
    "rho*A": ("combination", {"reward": "A"}, "rho*A", "A", "combination"),
    "A*log_q": ("separable", {}, "A", "A/rho", "separable"),
    "sg(rho)*A*log_q": ("combination", {"reward": "A"}, "rho*A", "A", "separable"),
    "-rho*A + beta*rho*k3": (
        "combination", {"reward": "-A", "reverse-kl": "beta"},
        "rho*(beta*k1 - A)", "beta*k1 - A", "combination"),
    "-rho*A + beta*sg(rho)*k3": (
        "combination", {"reward": "-A", "forward-kl": "beta"},
        "rho*(beta*(1 - r) - A)", "-beta*r - A", "combination"),
    "-(rho*A - beta*k3)": (
        "separable", {"reward": "-A"}, "beta*(1 - r) - rho*A", "beta*(1 - r)/rho - A", "separable"),
    "rho*log_q": ("separable", {}, "rho*(log_q + 1)", "log_q", "separable"),
    "log(rho)": ("separable", {}, "1", "1/rho", "separable"),
    "log_mu": ("zero", {}, "0", "0", "separable"),
}  # fmt: skip
ON_POLICY_REWARD = {
    "k1": ("reverse-kl", REVERSE, "k1", "k1", "reverse-kl!"),
    "k2": ("f-divergence", {}, "k2", "k2", "f-divergence"),
    "k3": ("combination", MINUS, "k3", "k1 + r", "reverse-kl!"),
    "k(lam)": ("combination", {**REVERSE, "forward-kl": "-lam"}, "k(lam)", "k1 + lam*r", "reverse-kl!"),
    "-k1": ("reverse-kl", {"reverse-kl": "-1"}, "-k1", "-k1", "reverse-kl"),
    "sg(k1)": ("reverse-kl", REVERSE, "k1", "k1", "reverse-kl!"),
    "rho*k1": ("reverse-kl", REVERSE, "k1", "k1", "reverse-kl!"),
    "R": ("combination", {"reward": "R"}, "R", "R", "combination"),
    "R*A": ("combination", {"reward": "R*A"}, "R*A", "R*A", "combination"),
    "R - beta*k1": (
        "combination", {"reward": "R", "reverse-kl": "-beta"}, "R - beta*k1", "R - beta*k1", "combination"),
    "A - beta*k3": (
        "combination", {"reward": "A", "reverse-kl": "-beta", "forward-kl": "beta"},
        "A - beta*k3", "A - beta*k1 - beta*r", "combination"),
    "r": ("forward-kl", {"forward-kl": "-1"}, "r", "r", "zero"),
    "r - 1": ("forward-kl", {"forward-kl": "-1"}, "r - 1", "r", "zero"),
    "r*k1": ("f-divergence", {}, "r*k1", "r*k1", "forward-kl"),
    "1": ("zero", {}, "1", "0", "zero"),
    "beta": ("zero", {}, "beta", "0", "zero"),
    "log_q": ("separable", {}, "log_q", "log_q", "separable"),
    "k1 + 5": ("reverse-kl", REVERSE, "k1 + 5", "k1", "reverse-kl"),
    "k1 - k1": ("zero", {}, "0", "0", "zero"),
}  # fmt: skip
OFF_POLICY_REWARD = {
    "k1": ("separable", {}, "k1", "k1/rho", "separable"),
    "rho*k1": ("reverse-kl", REVERSE, "rho*k1", "k1", "reverse-kl!"),
    "sg(rho)*k1": ("reverse-kl", REVERSE, "rho*k1", "k1", "reverse-kl!"),
    "rho*k2": ("f-divergence", {}, "rho*k2", "k2", "f-divergence"),
    "rho*k3": ("combination", MINUS, "rho*k3", "k1 + r", "reverse-kl!"),
    "rho**2*k1": ("separable", {}, "rho**2*k1", "rho*k1", "separable"),
    "rho*(R - beta*k1)": (
        "combination", {"reward": "R", "reverse-kl": "-beta"},
        "rho*(R - beta*k1)", "R - beta*k1", "combination"),
    "R": ("separable", {}, "R", "R/rho", "separable"),
    "rho": ("zero", {}, "rho", "0", "zero"),
    "1": ("separable", {}, "1", "1/rho", "zero"),
    "0*k1": ("zero", {}, "0", "0", "zero"),
}  # fmt: skip
SHEET = [
    pytest.param(loss, sampling, use, row, id=f"{loss} {sampling} {use}")
    for sampling, use, rows in (
        ("on-policy", "loss", ON_POLICY_LOSS),
        ("off-policy", "loss", OFF_POLICY_LOSS),
        ("on-policy", "reward", ON_POLICY_REWARD),
        ("off-policy", "reward", OFF_POLICY_REWARD),
    )
    for loss, row in rows.items()
]


@cache
def sheet(loss: str, sampling: str, use: str) -> Any:
    return explain(loss, sampling=sampling, use=use, parameters=["har"])
