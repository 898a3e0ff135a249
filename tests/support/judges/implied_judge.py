"""What `explain` says of the objective of a score coefficient, judged by floats; it imports nothing of klsym.

The answer is taken as it is printed: f and its region are read by Python.  The field E_q[c s] is computed
from the estimator as it is written, its convexity from second differences of sum_x q f(p/q).
"""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np

TERMS = ("k1**{n}*r**{a}", "r**{a}", "k1**{n}", "k2*r**{a}", "k3**{n}", "r**({a}/2)")
STEP = 1e-4


def coefficient(seed: int, number: int) -> str:
    """A random c(r) in the loss grammar, of one to four terms."""
    stream = random.Random(f"{seed}:{number}")
    parts = []
    for _ in range(stream.randint(1, 4)):
        scale = stream.choice(("", "2*", "1/3*", "5/4*", "0.1*"))
        shape = stream.choice(TERMS).format(n=stream.randint(1, 3), a=stream.choice((1, 2, -1, 3)))
        parts.append(stream.choice("+-") + scale + shape)
    return "".join(parts).lstrip("+")


def evaluated(text: str, r: Any) -> Any:
    """A formula in r, k1, k2, k3 as NumPy reads it."""
    k1 = -np.log(r)
    names = {
        "where": np.where,
        "r": r, "k1": k1, "k2": k1**2 / 2, "k3": r - 1 + k1, "log": np.log, "exp": np.exp, "sqrt": np.sqrt,
        "abs": np.abs, "max": np.maximum, "min": np.minimum, "clip": np.clip, "lam": 0.7, "beta": 0.3,
    }  # fmt: skip
    return eval(text, {"__builtins__": {}}, names) + 0 * r


def holds(where: str | None, r: float, **parameters: float) -> bool:
    """Is a printed region true there?"""
    names = {"r": r, "e": math.e, "exp": math.exp, "log": math.log, **parameters}
    return where is not None and bool(eval(where, {"__builtins__": {}}, names))


class Model:
    """q = softmax(theta) and p on four outcomes, and a direction u."""

    def __init__(self, seed: int) -> None:
        stream = np.random.default_rng(seed)
        self.theta, logits, self.u = stream.normal(size=(3, 4)) * 0.7
        self.p = np.exp(logits) / np.exp(logits).sum()

    def q(self, t: float = 0.0, start: Any = None) -> Any:
        weights = np.exp((self.theta if start is None else start) + t * self.u)
        return weights / weights.sum()

    def objective(self, f: str, t: float, start: Any = None) -> float:
        q = self.q(t, start)
        return float((q * evaluated(f, self.p / q)).sum())

    def field(self, c: str) -> tuple[float, float]:
        """E_q[c s] along u, and the size of what is summed."""
        q = self.q()
        terms = q * evaluated(c, self.p / q) * (self.u - (q * self.u).sum())
        return float(terms.sum()), float(np.abs(terms).sum())


def faults(c: str, told: dict[str, Any], seed: int) -> list[str]:
    """What is wrong with "f", "genuine_divergence" and "fisher_strength" of a coefficient."""
    found, model, f = [], Model(seed), told["f"]
    one = np.array([1.0])
    slope = (evaluated(f, one + STEP) - evaluated(f, one - STEP))[0] / (2 * STEP)
    size = 1 + np.abs(evaluated(f, np.array([0.9, 1.1]))).max()
    if abs(evaluated(f, one)[0]) > 1e-9 * size or abs(slope) > 1e-4 * size:
        found.append(f"f(1) = {evaluated(f, one)[0]:g}, f'(1) = {slope:g}")
    right, scale = model.field(c)
    left = _slope(lambda t: model.objective(f, t))
    if abs(left - right) > 1e-6 * (1 + scale):
        found.append(f"grad E_q[f] = {left:g}, E_q[c s] = {right:g}")
    return found + _of_strength(told, model, size) + _of_convexity(told)


def _slope(g: Any) -> float:
    """By differences of fourth order."""
    return float((8 * (g(STEP) - g(-STEP)) - g(2 * STEP) + g(-2 * STEP)) / (12 * STEP))


def _of_strength(told: dict[str, Any], model: Model, size: float) -> list[str]:
    """Along q_t = p exp(t u)/Z the second difference of E_q[f] at t = 0 is f''(1) Var_p(u)."""
    if told["fisher_strength"] is None:
        return []
    t, start = 1e-3, np.log(model.p)
    second = sum(w * model.objective(told["f"], x * t, start) for w, x in ((1, 1), (1, -1), (-2, 0))) / t**2
    spread = (model.p * model.u**2).sum() - (model.p * model.u).sum() ** 2
    stated = float(evaluated(told["fisher_strength"], np.array([1.0]))[0])
    wrong = abs(second - stated * spread) > 1e-3 * (1 + size + abs(stated))
    return [f"f''(1) = {stated:g}, by differences {second / spread:g}"] if wrong else []


def _of_convexity(told: dict[str, Any]) -> list[str]:
    """d^2/dq^2 of q f(p/q) at p = 1, in relative steps of q."""
    genuine = told["genuine_divergence"]
    if genuine is None:
        return []
    found = []
    for k in np.linspace(-3, 3, 61) + 0.013:
        q = math.exp(k)
        h = q * 1e-3
        grid = np.array([q - h, q, q + h])
        values = grid * evaluated(told["f"], 1 / grid)
        second = values[0] - 2 * values[1] + values[2]
        if abs(second) < 1e-9 * (1 + np.abs(values).max()):
            continue
        inside = genuine["holds"] or holds(genuine["where"], 1 / q)
        edges = {genuine["holds"] or holds(genuine["where"], x / q) for x in (0.98, 1.02)}
        if len(edges) == 1 and inside != (second > 0):
            found.append(f"at r = {1 / q:g}: second difference {second:g}, said to be convex: {inside}")
    return found
