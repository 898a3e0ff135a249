"""Statements on Gaussians, exactly: the values of a finite model on a fine grid of x.

The grid has the densities as probabilities and the scores along the mean and the log scale as directions.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from sympy import Function

from klsym.calculus import *
from klsym.engine.proof.quantities import to_quantity
from klsym.errors import UsageError
from klsym.kernel.ring import ExpPoly
from klsym.language.abbreviations import Context, Side, Statement
from klsym.numeric import evaluation
from klsym.numeric.models import FiniteModel
from klsym.study.gaussian.exact import GaussianModel
from klsym.study.gaussian.models import Divergent
from support.labels import labelled

X = np.linspace(-16, 16, 3201)
LAM = -0.6
MODELS = {
    "apart": GaussianModel((0.0, 1.0), (0.5, 0.9), (-0.2, 1.2)),
    "narrow": GaussianModel((0.7, 0.8), (0.1, 0.8), (0.4, 0.9)),
    "on-policy": GaussianModel((-0.3, 1.1), (0.2, 1.2)),
}
QUANTITIES = [
    expectation(k1, q), expectation(k3, p), expectation(k1 * s, q), expectation(rho * sg(k1) * s, mu),
    expectation((k1 * s) ** 2, q), expectation(s**3 * exp(k1 / 4) * k1, q), KL(q, p), KL(p, mu),
    jeffreys(q, p), chi2(q, p), chi2(p, q), covariance(k1, r, under=q), covariance(k1, k1, under=mu),
    lam * KL(q, p) - 3, expectation(lam * k2 / 3, p) / lam,
    2 * expectation(k1 * s, q) * KL(q, p) + expectation(s, p),
    grad(KL(q, p)), grad(KL(p, q)), grad(KL(mu, q)), grad(KL(q, mu)), grad(KL(mu, p) + lam * KL(q, p)),
    grad(chi2(q, p)), grad(chi2(p, q)), grad(jeffreys(p, q)), grad(expectation(k2, q)),
    grad(expectation(k2, p)), grad(expectation(sg(k1) * k1, q)), grad(expectation(sg(rho) * k3, mu)),
    grad(expectation(k1, q) * KL(p, q)), grad(covariance(k1, r, under=q)),
    grad(covariance(k1, sg(k1), under=q)), expected_gradient(k1, q), expected_gradient(k3, q),
    expected_gradient(k3, p), expected_gradient(rho * k3, mu), expected_gradient(sg(rho) * k2, mu),
    expected_gradient(rho * sg(k1) + lam * log_q, mu), expected_gradient(k2 - sg(k2) + sg(k3), q),
    2 * expected_gradient(k3, q) - grad(KL(q, p)),
]  # fmt: skip


def grid(model: GaussianModel, direction: int) -> FiniteModel:
    """Probabilities in proportion to the densities; u is the score along the mean or the log scale."""

    def chances(pair: tuple[float, float]) -> Any:
        found = np.exp(-((X - pair[0]) ** 2) / (2 * pair[1]))
        return found / found.sum()

    m, v = model.q
    along = (X - m) / v if direction == 0 else (X - m) ** 2 / v - 1
    q_, p_, mu_ = (chances(pair) for pair in (model.q, model.p, model.mu or model.q))
    return FiniteModel(q_, p_, along, mu_, parameters={"lam": LAM})


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("of", QUANTITIES, ids=labelled)
@pytest.mark.share(4)
def test_values_and_gradients(of: Any, name: str) -> None:
    model = MODELS[name]
    statement = Statement(of.side, Side(), Context(("lam",), on_policy=model.mu is None))
    left, right = model.evaluate(statement, {"lam": LAM})
    assert right.tolist() == [0.0, 0.0] and left.shape == (2,)
    for direction in (0, 1):
        expected, _ = evaluation.evaluate(statement, grid(model, direction))
        assert left[direction] == pytest.approx(expected, rel=1e-8, abs=1e-9)


# ---------------------------------------------------------------------------- refusals
def evaluate(of: Any, model: GaussianModel = MODELS["apart"], context: Any = None, **numbers: Any) -> Any:
    return model.evaluate(Statement(to_quantity(of).side, Side(), context or Context()), numbers)


g = Function("g")(k1)
G = Context(functions=(("g", ("k1",)),))
GIVEN = Context(given=(("R", ExpPoly.from_variable("k1")),))
PREMISE = Context(premises=((expectation(k1, q).side, expectation(k1, q).side),))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: evaluate(expectation(g, q), context=G), "generic functions, given values"),
        (lambda: evaluate(expectation(k1, q), context=GIVEN), "generic functions, given values"),
        (lambda: evaluate(expectation(k1, q), context=PREMISE), "generic functions, given values"),
        (lambda: evaluate(expectation(R * s, q)), "R is no function of k1, w and log_q"),
        (lambda: evaluate(expectation(lam * k1, q)), "give a number for lam"),
        (lambda: evaluate(lam * KL(q, p)), "give a number for lam"),
        (lambda: evaluate(lam * KL(q, p), lam=math.nan), "lam is a finite number"),
        (lambda: evaluate(sample(k1)), "Mean has no Gaussian closed form"),
        (lambda: evaluate(sample_gradient(k1)), "MeanGradient has no Gaussian closed form"),
        (lambda: evaluate(bregman(r**2)), "Bregman has no Gaussian closed form"),
        (lambda: evaluate(expectation(k1 * s, count)), "Mean has no Gaussian closed form"),
        (lambda: evaluate(grad(expectation(k1 * s, q))), "Mean has no Gaussian closed form"),
        (lambda: evaluate(grad(grad(KL(q, p)))), "Gradient has no Gaussian closed form"),
        (lambda: evaluate(grad(expected_gradient(k3, q))), "MeanGradient has no Gaussian closed form"),
        (lambda: evaluate(expectation(exp(k1**2), q)), "exp of a polynomial of degree 4"),
        (lambda: evaluate(KL(q, p), GaussianModel((0.0, 0.0), (0.0, 1.0))), "variance of q is positive"),
        (lambda: evaluate(KL(q, p), GaussianModel((0.0, 1.0), (0.0, -1.0))), "variance of p is positive"),
        (lambda: evaluate(KL(q, p), GaussianModel((math.nan, 1.0), (0.0, 1.0))), "mean of q is a finite"),
        (lambda: evaluate(KL(q, p), GaussianModel((0.0, 1.0), (0.0, math.inf))), "variance of p is a finite"),
    ],
)  # fmt: skip
def test_refusals(make: Any, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        make()
    assert "\n" not in str(caught.value) and not isinstance(caught.value, Divergent)


WIDE = GaussianModel((0.0, 1.0), (0.0, 3.0))
TAILS = {
    "infinite": (
        expectation(k3**2, q), expectation(r**2 * s, q), chi2(p, q), grad(chi2(p, q)),
        expected_gradient(r**2, q), covariance(k1, r**2, under=q),
    ),
    "finite": (expectation(k3, q), chi2(q, p), grad(KL(p, q)), expected_gradient(k3, q)),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "of"), [(kind, of) for kind, row in TAILS.items() for of in row], ids=str)
def test_what_is_infinite_is_refused_and_what_is_finite_beside_it_is_not(kind: str, of: Any) -> None:
    with pytest.raises(Divergent) if kind == "infinite" else nullcontext():
        assert np.isfinite(evaluate(of, WIDE)[0]).all()
