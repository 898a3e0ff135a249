"""Both sides of statements on Gaussians: sums on a fine grid of x, and finite differences of theta.

Only the densities enter: q moves with its mean or log scale, sg(.) and the measure of an expected gradient
stay where they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sympy import Function

from klsym.calculus import *
from klsym.engine.proof.quantities import quantity
from klsym.errors import UsageError
from klsym.kernel.ring import ExpPoly
from klsym.language.abbreviations import Context, Side, Statement
from klsym.numeric.gaussian.exact import GaussianModel, refuse_unless_gaussian
from klsym.numeric.gaussian.models import Divergent
from support.labels import labelled

X = np.linspace(-40, 40, 8001)
STEP = X[1] - X[0]
LAM = -0.6
H = 2e-3
Pair = tuple[float, float]
MODELS = [
    GaussianModel((0.0, 1.0), (0.5, 0.9), (-0.2, 1.2)),
    GaussianModel((0.7, 0.8), (0.1, 0.8), (0.4, 0.9)),
    GaussianModel((-0.3, 1.1), (0.2, 1.2)),  # on-policy
]


def log_density(pair: Pair) -> Any:
    return -((X - pair[0]) ** 2) / (2 * pair[1]) - math.log(2 * math.pi * pair[1]) / 2


def moved(pair: Pair, direction: int, t: float) -> Pair:
    """The mean, or the log of the standard deviation, moved by t."""
    return (pair[0] + t, pair[1]) if direction == 0 else (pair[0], pair[1] * math.exp(2 * t))


def place(model: GaussianModel, direction: int, t: float) -> Any:
    """Log densities, ratios and an expectation at theta + t; names ending in 0 stay at theta."""
    lq, lp = log_density(moved(model.q, direction, t)), log_density(model.p)
    lq0, lmu = log_density(model.q), log_density(model.mu or model.q)
    up, down = (log_density(moved(model.q, direction, sign * 1e-5)) for sign in (1, -1))
    density = {"q": lq, "q0": lq0, "p": lp, "mu": lmu}

    def e(name: str, of: Any) -> float:
        return float(np.sum(np.exp(density[name]) * of) * STEP)

    return SimpleNamespace(
        e=e, lq=lq, lp=lp, lmu=lmu, k1=lq - lp, w=lq - lmu, k10=lq0 - lp, w0=lq0 - lmu, s=(up - down) / 2e-5
    )


def kl(x: Any, a: str, b: str) -> float:
    logs = {"q": x.lq, "p": x.lp, "mu": x.lmu}
    return float(x.e(a, logs[a] - logs[b]))


def chi(x: Any, a: str, b: str) -> float:
    logs = {"q": x.lq, "p": x.lp, "mu": x.lmu}
    return float(x.e(b, (np.exp(logs[a] - logs[b]) - 1) ** 2))


def cov(x: Any, m: str, a: Any, b: Any) -> float:
    return float(x.e(m, (a - x.e(m, a)) * (b - x.e(m, b))))


Literal = Callable[[Any], float]
VALUES: list[tuple[Any, Literal]] = [
    (expectation(k1, q), lambda x: x.e("q", x.k1)),
    (expectation(k3, p), lambda x: x.e("p", np.exp(-x.k1) - 1 + x.k1)),
    (expectation(k1 * s, q), lambda x: x.e("q", x.k1 * x.s)),
    (expectation(rho * sg(k1) * s, mu), lambda x: x.e("mu", np.exp(x.w) * x.k1 * x.s)),
    (expectation((k1 * s) ** 2, q), lambda x: x.e("q", (x.k1 * x.s) ** 2)),
    (expectation(s**3 * exp(k1 / 4) * log_q, q), lambda x: x.e("q", x.s**3 * np.exp(x.k1 / 4) * x.lq)),
    (KL(q, p), lambda x: kl(x, "q", "p")),
    (KL(p, mu), lambda x: kl(x, "p", "mu")),
    (jeffreys(q, p), lambda x: kl(x, "q", "p") + kl(x, "p", "q")),
    (chi2(q, p), lambda x: chi(x, "q", "p")),
    (chi2(p, q), lambda x: chi(x, "p", "q")),
    (covariance(k1, r, under=q), lambda x: cov(x, "q", x.k1, np.exp(-x.k1))),
    (covariance(k1, k1, under=mu), lambda x: cov(x, "mu", x.k1, x.k1)),
    (lam * KL(q, p) - 3, lambda x: LAM * kl(x, "q", "p") - 3),
    (expectation(lam * k2 / 3, p) / lam, lambda x: x.e("p", x.k1**2 / 6)),
    (
        2 * expectation(k1 * s, q) * KL(q, p) + expectation(s, p),
        lambda x: 2 * x.e("q", x.k1 * x.s) * kl(x, "q", "p") + x.e("p", x.s),
    ),
]
GRADIENTS: list[tuple[Any, Literal]] = [
    (grad(KL(q, p)), lambda x: kl(x, "q", "p")),
    (grad(KL(p, q)), lambda x: kl(x, "p", "q")),
    (grad(KL(mu, q)), lambda x: kl(x, "mu", "q")),
    (grad(KL(q, mu)), lambda x: kl(x, "q", "mu")),
    (grad(KL(mu, p) + lam * KL(q, p)), lambda x: LAM * kl(x, "q", "p")),
    (grad(chi2(q, p)), lambda x: chi(x, "q", "p")),
    (grad(chi2(p, q)), lambda x: chi(x, "p", "q")),
    (grad(jeffreys(p, q)), lambda x: kl(x, "q", "p") + kl(x, "p", "q")),
    (grad(expectation(k2, q)), lambda x: x.e("q", x.k1**2 / 2)),
    (grad(expectation(k2, p)), lambda x: x.e("p", x.k1**2 / 2)),
    (grad(expectation(sg(k1) * k1, q)), lambda x: x.e("q", x.k10 * x.k1)),
    (grad(expectation(sg(rho) * k3, mu)), lambda x: x.e("mu", np.exp(x.w0) * (np.exp(-x.k1) - 1 + x.k1))),
    (grad(expectation(k1, q) * KL(p, q)), lambda x: x.e("q", x.k1) * kl(x, "p", "q")),
    (grad(covariance(k1, r, under=q)), lambda x: cov(x, "q", x.k1, np.exp(-x.k1))),
    (grad(covariance(k1, sg(k1), under=q)), lambda x: cov(x, "q", x.k1, x.k10)),
    (expected_gradient(k1, q), lambda x: x.e("q0", x.k1)),
    (expected_gradient(k3, q), lambda x: x.e("q0", np.exp(-x.k1) + x.k1)),
    (expected_gradient(k3, p), lambda x: x.e("p", np.exp(-x.k1) + x.k1)),
    (expected_gradient(rho * k3, mu), lambda x: x.e("mu", np.exp(x.w) * (np.exp(-x.k1) - 1 + x.k1))),
    (expected_gradient(sg(rho) * k2, mu), lambda x: x.e("mu", np.exp(x.w0) * x.k1**2 / 2)),
    (
        expected_gradient(rho * sg(k1) + lam * log_q, mu),
        lambda x: x.e("mu", np.exp(x.w) * x.k10 + LAM * x.lq),
    ),
    (expected_gradient(k2 - sg(k2) + sg(k3), q), lambda x: x.e("q0", x.k1**2 / 2)),
    (
        2 * expected_gradient(k3, q) - grad(KL(q, p)),
        lambda x: 2 * x.e("q0", np.exp(-x.k1) + x.k1) - kl(x, "q", "p"),
    ),
]


def exactly(of: Any, model: GaussianModel, on_policy: bool) -> Any:
    statement = Statement(of.side, Side(), Context(("lam",), on_policy=on_policy))
    left, right = model.evaluate(statement, {"lam": LAM})
    assert right.tolist() == [0.0, 0.0] and left.shape == (2,)
    return left


@pytest.mark.parametrize("model", MODELS, ids=["apart", "narrow", "on-policy"])
@pytest.mark.parametrize(("of", "literal"), VALUES, ids=labelled)
def test_values(of: Any, literal: Literal, model: GaussianModel) -> None:
    found = exactly(of, model, model.mu is None)
    for direction in (0, 1):
        expected = literal(place(model, direction, 0.0))
        assert found[direction] == pytest.approx(expected, rel=1e-8, abs=1e-9)


@pytest.mark.parametrize("model", MODELS, ids=["apart", "narrow", "on-policy"])
@pytest.mark.parametrize(("of", "literal"), GRADIENTS, ids=labelled)
def test_gradients(of: Any, literal: Literal, model: GaussianModel) -> None:
    found = exactly(of, model, model.mu is None)
    for direction in (0, 1):
        one, two = (
            (literal(place(model, direction, h)) - literal(place(model, direction, -h))) / (2 * h)
            for h in (H, 2 * H)
        )
        assert found[direction] == pytest.approx((4 * one - two) / 3, rel=1e-7, abs=1e-8)


def test_the_literal_meanings_tell_quantities_apart() -> None:
    place_ = place(MODELS[0], 0, 0.1)
    assert len({round(literal(place_), 9) for _, literal in VALUES + GRADIENTS}) > 25


# ---------------------------------------------------------------------------- refusals
def evaluate(of: Any, model: GaussianModel = MODELS[0], context: Any = None, **numbers: Any) -> Any:
    return model.evaluate(Statement(quantity(of).side, Side(), context or Context()), numbers)


g = Function("g")(k1)
G = Context(functions=(("g", ("k1",)),))
GIVEN = Context(given=(("R", ExpPoly.variable("k1")),))
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


@pytest.mark.parametrize(
    "of",
    [expectation(k3**2, q), expectation(r**2 * s, q), chi2(p, q), grad(chi2(p, q)),
     expected_gradient(r**2, q),     covariance(k1, r**2, under=q)],
    ids=repr,
)  # fmt: skip
def test_what_is_infinite(of: Any) -> None:
    with pytest.raises(Divergent):
        evaluate(of, WIDE)


@pytest.mark.parametrize(
    "of", [expectation(k3, q), chi2(q, p), grad(KL(p, q)), expected_gradient(k3, q)], ids=repr
)
def test_what_is_finite_beside_it(of: Any) -> None:
    assert np.isfinite(evaluate(of, WIDE)[0]).all()


def test_the_context_decides() -> None:
    refuse_unless_gaussian(Context(("lam",), on_policy=True))
    for context in (G, GIVEN, PREMISE):
        with pytest.raises(UsageError):
            refuse_unless_gaussian(context)
