"""What `explain` says of penalties that are no divergences, against floats and stationary policies."""

from __future__ import annotations

import math
import re
from itertools import islice, product

import numpy as np
import pytest

import klsym
from klsym.engine.proof.counterexamples import generate_models
from klsym.engine.proof.float_screen import is_plainly_at_most
from klsym.engine.proof.quantities import expectation, to_quantity
from klsym.kernel.models import Model, enclose
from klsym.language.abbreviations import Context
from klsym.language.parser import parse
from klsym.language.unfolding import unfold
from klsym.render.divergences import describe_effects
from klsym.study.api import optimum

# what is detached and multiplies s, as a function of r
PENALTIES = {
    "k2": lambda r: np.log(r) ** 2 / 2,
    "k3": lambda r: r - 1 - np.log(r),
    "-k1": lambda r: np.log(r),
    "k1 + k2": lambda r: -np.log(r) + np.log(r) ** 2 / 2,
    "-k2": lambda r: -(np.log(r) ** 2) / 2,
    "r*k1": lambda r: -r * np.log(r),
}


def found(loss: str):
    return klsym.explain(loss, use="reward").objective.effects


@pytest.mark.parametrize("loss", PENALTIES)
def test_the_force(loss: str) -> None:
    """The slope of c along log q = -log r, at q = p and far away, by differences."""
    told, c = found(loss), PENALTIES[loss]

    def force(k: float) -> float:
        h = 1e-5
        return float(c(math.exp(-k - h)) - c(math.exp(-k + h))) / (2 * h)

    assert abs(force(0) - told.strength) < 1e-8
    for end, way in ((told.overweight, 1), (told.underweight, -1)):
        near, far = force(6 * way), force(12 * way)
        if math.isinf(end):
            assert far * end > 0 and abs(far) > 1.5 * abs(near)
        else:
            assert abs(far - end) < 1e-2 and abs(far - end) <= abs(near - end) + 1e-6


@pytest.mark.parametrize("loss", PENALTIES)
def test_the_objective_below_that_of_the_reference(loss: str) -> None:
    """The model of the kernel, evaluated again: E_q[f(r)] < 0."""
    told = found(loss)
    if told.lower is None:
        assert loss in ("k1 + k2", "r*k1")  # log(r)^2/2 and r log(r)^2/2
        return
    model = told.lower.theorem.close["model"]
    q, p = (np.array([float(eval(x)) for x in model[name]]) for name in ("q", "p"))
    f = klsym.explain(loss, use="reward").to_json()["gradient"]["f"]
    value = (q * eval(f, {"log": np.log, "r": p / q})).sum()
    [shown] = re.findall("the objective is (-[0-9.e-]+)", " ".join(describe_effects(told)))
    assert value < 0 and abs(value / float(shown) - 1) < 1e-6


@pytest.mark.parametrize("loss", PENALTIES)
def test_each_corner_attracts_or_not(loss: str) -> None:
    """For random rewards and references; where it is not claimed, there is a counterexample."""
    told, stream, all_corners = found(loss), np.random.default_rng(3), []
    for _ in range(6):
        rewards = [f"{x:.3f}" for x in stream.normal(size=3) * 2]
        reference = [f"{x:.4f}" for x in stream.dirichlet(np.ones(3) * 2)]
        reference[2] = f"{1 - float(reference[0]) - float(reference[1]):.4f}"
        ends = optimum(loss, "0.3", rewards, reference, use="reward").optimum
        corners = {one.policy.index(1.0) for one in ends.boundary if 1.0 in one.policy}
        all_corners.append(len(corners) == 3)
    assert all(all_corners) == told.corners_attract


@pytest.mark.parametrize("loss", ["k3", "-k1"])
def test_how_fast_the_objective_falls(loss: str) -> None:
    """Two outcomes, p = (1/3, 2/3): E_q[f] over its leading term goes to 1."""
    told = found(loss)
    f = klsym.explain(loss, use="reward").to_json()["gradient"]["f"]
    if told.falls is None:
        assert loss != "k3"
        return
    rate, power, factor = (float(x) for x in told.falls)
    shares = []
    for log_q in (-40.0, -400.0):
        q, p = np.array([math.exp(log_q), 1 - math.exp(log_q)]), np.array([1, 2]) / 3
        k = math.log(q[0] / p[0])
        value = (q * eval(f, {"log": np.log, "r": p / q})).sum()
        shares.append(value / (p[0] * factor * k**power * math.exp(rate * k)))
    assert abs(shares[1] - 1) < 0.02 < abs(shares[0] - 1) + 0.02 and abs(shares[1] - 1) < abs(shares[0] - 1)


def test_a_divergence_has_no_such_section() -> None:
    for loss in ("k1", "-r", "k1 - r", "k(lam)", "R - beta*k1"):
        verdict = klsym.explain(loss, use="reward")
        assert verdict.objective.effects is None and "What descending it does" not in verdict.text(full=True)
    whole = klsym.explain("R - beta*k3", use="reward").text(full=True)
    assert "What descending it does" in whole


def test_a_glance_never_contradicts_the_enclosures() -> None:
    """Floats pass over a model only where left <= right there; never where it is equal or above."""
    losses = ("k3", "r*log(r)", "k2 - k1*k3", "(k1 - 1)**3", "rho*k1", "r**2 - 1", "k1 - 1e-9")
    sides = [unfold(to_quantity(expectation(parse(f), under="q")).side, Context()) for f in losses]
    passed = above = 0
    for data in islice(generate_models(Context()), 12):
        model = Model.from_json(data, Context())
        worth = [enclose(side, model) for side in sides]
        for (left, a), (right, b) in product(zip(sides, worth, strict=True), repeat=2):
            at_most = is_plainly_at_most(left, right, model)
            assert not at_most or a.upper < b.lower
            passed, above = passed + at_most, above + (a.lower > b.upper)
    assert passed > 200 and above > 200
