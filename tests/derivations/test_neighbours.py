"""Claims of neighbouring papers: similar false claims, Gaussian forces by quadrature."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy
from sympy import Function, exp, log

from klsym.calculus import *
from klsym.derivations import neighbours as module
from klsym.errors import NotInRing, ProofError
from klsym.kernel.ring import ExpPoly
from klsym.language.convert import find_generic_functions, to_ring
from klsym.numeric.exact import check_theorem, evaluate
from klsym.numeric.models import random_model
from klsym.study.ledger.registry import select
from klsym.study.ledger.settle_claim import recall
from support.ledger_table import BATCHES_AND_SEQUENCES

Make = Callable[[], Any]


# ---------------------------------------------------------------------------- similar false claims
g, f = Function("g")(k1), Function("f")(log_q, log_p, log_mu)
UNBIASED = (KL(q, p), expectation(f, under=q))


def of(loss: Any) -> Any:
    return derive(sample_gradient(loss)).differentiate()


def averaged(loss: Any) -> Any:
    return derive(expected_gradient(loss, under=mu)).differentiate()


def both(estimator: Any, reward: Any = 1, loss: Any = 1) -> Any:
    return reward * expectation(s * sg(estimator), under=q) + loss * expected_gradient(estimator, under=q)


P, P_p, sigma = (parameter(name) for name in ("P", "P_p", "sigma"))
STEP, WEIGHT = exp(1 / (beta * sigma)), exp(f / (beta * sigma))
BINARY = (
    (expectation(f * WEIGHT, under=p), STEP * expectation(f, under=p)),
    (expectation((1 - f) * WEIGHT, under=p), expectation(1 - f, under=p)),
    (expectation(f, under=p), P_p),
)


def next_success(step: Any = STEP, before: Any = P_p, premises: Any = BINARY) -> Any:
    """P'/(1 - P') = step before/(1 - before), used as the proof uses its premises."""
    using = [(0, before - 1), (1, before * step), (2, -step)][-len(premises) :]
    using = [(i, m) for i, (_, m) in enumerate(using)]
    return derive((1 - before) * expectation(f * WEIGHT, under=p), premises=premises).equals(
        step * before * expectation((1 - f) * WEIGHT, under=p), using=using
    )


WRONG: dict[str, list[Make]] = {
    "neighbour.loss-as-reward": [
        lambda: of(g).equals(sample(s * sg(g))),
        lambda: of(g).equals(sample(s * g.diff(log_q, 2))),
        lambda: of(k3).equals(sample(s * sg(k1))),
        lambda: of(k3).equals(sample(s * sg(r - 1))),
    ],
    "neighbour.chi2": [
        lambda: derive(covariance(1 - r, 1 - r, under=q)).equals(chi2(q, p)),
        lambda: derive(covariance(1 - r, 1 - r, under=p)).equals(chi2(p, q)),
    ],
    "neighbour.in-reward-and-in-loss": [
        lambda: derive(both(f)).equals(grad(KL(q, p))),  # no premise
        lambda: derive(both(f, loss=2), premises=(UNBIASED,)).equals(grad(KL(q, p))),
        lambda: derive(both(f) / 2, premises=(UNBIASED,)).equals(grad(KL(q, p))),
        lambda: derive(both(f), premises=((KL(p, q), expectation(f, under=q)),)).equals(grad(KL(q, p))),
        lambda: derive(both(k2)).equals(grad(KL(q, p))),
        lambda: derive(both(k1, loss=5)).differs_from(grad(KL(q, p))),  # the k1 loss has no gradient at all
    ],
    "neighbour.rpg-forward": [
        lambda: averaged(beta * log_q).equals(beta * grad(KL(mu, q))),
        lambda: averaged(-beta * log_q).equals(beta * grad(KL(q, mu))),
        lambda: averaged(-beta * log_q).equals(beta * grad(KL(mu, p))),
        lambda: averaged(beta * (2 * rho - log(rho))).differs_from(beta * grad(KL(mu, q))),
    ],
    "neighbour.rpg-reverse": [
        lambda: averaged(beta * log(rho)).equals(beta * grad(KL(q, mu))),
        lambda: averaged(beta * rho * log(rho)).equals(beta * grad(KL(q, p))),
        lambda: averaged(beta * (rho * log(rho) - rho)).differs_from(beta * grad(KL(q, mu))),
    ],
    "neighbour.k3-is-unnormalised-kl": [
        lambda: derive(sample(exp(log_q) * k3)).equals(sample(exp(log_q) * (log_q - log_p))),
        lambda: derive(sample(exp(log_p) * k3)).equals(
            sample(exp(log_p) - exp(log_q) + exp(log_q) * (log_q - log_p))),
        lambda: derive(expectation(exp(log_q) * (log_q - log_p) - exp(log_q), under=count)).change_measure(
            to=q).equals(KL(q, p)),
    ],
    "neighbour.grpo-missing-weight": [
        lambda: averaged(rho * k3).differs_from(grad(KL(q, p))),
        lambda: averaged(k3).equals(grad(KL(q, p))),
    ],
    "neighbour.grpo-success-recurrence": [
        lambda: next_success(step=exp(1 / beta)),  # the root is missing
        lambda: next_success(step=exp(-1 / (beta * sigma))),  # the wrong way
        lambda: next_success(before=P),  # the previous policy where the reference stands
        lambda: next_success(premises=BINARY[2:]),  # rewards of more than two values
    ],
    "neighbour.k3-loss-first-order": [
        lambda: derive(sample(k1 - (1 - r))).equals(sample(k2)),
        lambda: derive(sample(k1 - (1 - r))).equals(sample(0)),
    ],
    "neighbour.gaussian-k3-reward-vanishes": [
        lambda: derive(expectation(s * sg(k3), under=q)).equals(0),
        lambda: derive(expectation(s * sg(k3), under=q)).equals(grad(KL(p, q))),
    ],
}  # fmt: skip
NEIGHBOURS = [pytest.param(make, id=f"{name} {i}") for name in WRONG for i, make in enumerate(WRONG[name])]


def test_every_claim_has_a_similar_false_claim() -> None:
    """Those of batches and sequences have theirs in a file of their own."""
    elsewhere = {*BATCHES_AND_SEQUENCES, "neighbour.rao-blackwell"}
    assert {claim.id for claim in select(["neighbour"])} - elsewhere == {*WRONG}


@pytest.mark.parametrize("make", NEIGHBOURS)
def test_a_similar_false_claim_is_refused(make: Make) -> None:
    with pytest.raises(ProofError, match=r"the two sides differ|no finite model tells"):
        make()


# ---------------------------------------------------------------------------- generic functions
def test_the_derivative_of_a_generic_function_has_a_name() -> None:
    assert to_ring(g.diff(log_q)) == ExpPoly.from_variable("g'")
    assert to_ring(sg(g.diff(log_q, 2)) * k1) == ExpPoly.from_variable("sg(g'')") * ExpPoly.from_variable(
        "k1"
    )
    assert find_generic_functions(g.diff(log_q) * g) == {"g": ("k1",)}


@pytest.mark.parametrize(
    "wrong", [f.diff(log_q), sympy.Subs(g, log_q, log_p), Function("g")(log_q).diff(log_q)]
)
def test_other_derivatives_are_refused(wrong: Any) -> None:
    with pytest.raises(NotInRing, match="no exponential polynomial"):
        to_ring(wrong)


@pytest.mark.parametrize(
    ("function", "slope"),
    [
        (lambda x: x**3 + np.exp(-x), lambda x: 3 * x**2 - np.exp(-x)),
        (ExpPoly.from_variable("k1") ** 3, lambda x: 3 * x**2),
        ((ExpPoly.from_variable("k1") * 2).exp(), lambda x: 2 * np.exp(2 * x)),
    ],
)
def test_the_oracle_takes_the_derivative_of_the_function(function: Any, slope: Any) -> None:
    theorem = recall("neighbour.loss-as-reward").theorems[4]
    for seed in range(5):
        model = random_model(seed, 4)
        left, right = evaluate(theorem.statement, model, {"g": function})
        q_, p_, u = (np.array(row) for row in (model.q, model.p, model.u))
        literal = q_ @ (slope(np.log(q_ / p_)) * (u - q_ @ u))
        assert left == pytest.approx(literal) and right == pytest.approx(literal)
    assert check_theorem(theorem, functions={"g": function}).passed


# ---------------------------------------------------------------------------- Gaussians
def force(loss: Any, q_: tuple[float, float], p_: tuple[float, float]) -> list[float]:
    """E_q[s loss] along the mean and the log scale, by Gauss-Hermite quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    (m, v), (n, u) = q_, p_
    x = m + math.sqrt(v) * nodes
    k = (x - n) ** 2 / (2 * u) - nodes**2 / 2 + math.log(u / v) / 2
    scores = (nodes / math.sqrt(v), nodes**2 - 1)
    return [float((weights * score * loss(k)).sum() / math.sqrt(2 * math.pi)) for score in scores]


def push_of_k3(k: Any) -> Any:
    return np.expm1(-k) + k


@pytest.mark.parametrize("u", [0.8, 1.0, 1.3])
def test_for_any_variances_the_calculation_is_that_of_quadrature(u: float) -> None:
    for estimator, loss in ((k3, push_of_k3), (k1, lambda k: k)):
        values = {module.m: 0.3, module.v: 1.0, module.n: -0.2, module.u: u}
        exact = [float(c.subs(values)) for c in module._force(estimator)]
        assert force(loss, (0.3, 1.0), (-0.2, u)) == pytest.approx(exact, abs=1e-9)


def test_only_the_gradient_of_the_series_fits() -> None:
    """The pattern (-1)^i/i, by hand, for the powers that are shown."""
    x = sympy.Symbol("x")
    series = sympy.series(x - sympy.log(1 + x), x, 0, module.SHOWN).removeO()
    found = [series.coeff(x, i) for i in range(module.SHOWN)]
    assert found == [0, 0, *(sympy.Rational((-1) ** i, i) for i in range(2, module.SHOWN))]
    tail = sum(0.5**i / i for i in range(module.SHOWN, 200)) * 2**module.SHOWN
    assert 0.294 < tail <= 0.295
