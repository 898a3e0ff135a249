"""Random models in plain floats, and what a printed region says of a sample."""

from __future__ import annotations

import math
import random
import re
from typing import Any

from hypothesis.strategies import composite, integers, lists, sampled_from

from support.float_sheet import derivative, evaluate

# ---------------------------------------------------------------------------- literal enumeration
Model = dict[str, Any]


def random_models(spread: float, count: int = 12) -> list[Model]:
    stream = random.Random(f"compare {spread}")
    found = []
    for number in range(count):
        size = 2 + number % 3
        rows = [[math.exp(spread * stream.gauss(0, 1)) for _ in range(size)] for _ in range(3)]
        q, p, mu = ([w / sum(row) for w in row] for row in rows)
        u, R, A = ([stream.uniform(-2, 2) for _ in range(size)] for _ in range(3))
        found.append({"q": q, "p": p, "mu": mu, "u": u, "R": R, "A": A})
    return found


MODELS = random_models(1.0) + random_models(2.5)


def points(model: Model, sampling: str) -> list[tuple[float, float, dict[str, float]]]:
    """m(x), u.s(x) and the sample, for every outcome."""
    q, p, u = model["q"], model["p"], model["u"]
    mu = q if sampling == "on-policy" else model["mu"]
    mean = sum(a * b for a, b in zip(q, u, strict=True))
    return [
        (mu[x], u[x] - mean, {"log_q": math.log(q[x]), "log_p": math.log(p[x]), "log_mu": math.log(mu[x]),
                              "R": model["R"][x], "A": model["A"][x]})
        for x in range(len(q))
    ]  # fmt: skip


def factor(loss: str, at: dict[str, float], use: str) -> float:
    """a in grad L = a s."""
    return derivative(loss, at) if use == "loss" else evaluate(loss, at)


def moments(loss: str, model: Model, setting: dict[str, str]) -> tuple[float, float, float, list[float]]:
    """E[L], E[a s], Var(a s), and a s at each outcome."""
    rows = points(model, setting.get("sampling", "on-policy"))
    g = [factor(loss, at, setting.get("use", "loss")) * s for _, s, at in rows]
    mean = sum(m * x for (m, _, _), x in zip(rows, g, strict=True))
    value = sum(m * evaluate(loss, at) for m, _, at in rows)
    return value, mean, sum(m * (x - mean) ** 2 for (m, _, _), x in zip(rows, g, strict=True)), g


def near(x: float, y: float) -> bool:
    return abs(x - y) <= 1e-6 * (1 + abs(x) + abs(y))


def inside(region: str, at: dict[str, float]) -> bool:
    if region == "everywhere" or region.startswith(("nowhere", "only where")):
        return region == "everywhere"
    read = re.fullmatch(r"(.*?) >= 0(?:, that is (.*?))?(?: \(or .*\))?", region)
    assert read
    product, edge = read.groups()
    answer = evaluate(product, at) >= 0
    if edge:
        left, relation, right = edge.split(" ", 2)
        below = evaluate(left, at) <= evaluate(right, at)
        assert answer == (below if relation == "<=" else not below)
    return answer


ATOMS = ("k1", "r", "k3", "rho", "R", "1", "k1**2", "2", "sg(k1)")


@composite
def coefficients(draw: Any) -> str:
    """Small random losses, such as 2*k1*rho - r."""
    terms = [
        "*".join(draw(lists(sampled_from(ATOMS), min_size=1, max_size=2)))
        for _ in range(draw(integers(1, 2)))
    ]
    return draw(sampled_from([" + ", " - "])).join(terms)
