"""Claims about variances of gradient estimates: texts by hand, wrong neighbours, models worked out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sympy import log

from klsym.calculus import *
from klsym.derivations import variances as module
from klsym.derivations.variances import BEST, G1, G_STAR, average, variance
from klsym.engine.proof.quantities import Quantity
from klsym.errors import ProofError
from klsym.kernel import check
from klsym.kernel.ring import ExpPoly
from klsym.ledger.registry import recall
from klsym.numeric.exact import check_theorem, evaluate
from klsym.numeric.models import FiniteModel, from_certificate, random_model
from klsym.numeric.random_models import drawn_into, inside
from klsym.sampling.backends import backend
from klsym.sampling.identities import Options, identities

Make = Callable[[], Any]

VAR_STAR = "E_mu[k1**2*rho**2*s**2] - E_mu[rho*k1*s] E_mu[rho*k1*s]"
VAR_1 = "E_mu[(k1 + 1)**2*rho**2*s**2] - E_mu[rho*(k1 + 1)*s] E_mu[rho*(k1 + 1)*s]"
CLAIMS: dict[str, tuple[str, ...]] = {
    "variance.difference": (
        "E_mu[rho*(k1 + 1)*s] = E_mu[rho*k1*s]",
        "E_mu[rho*k1*s] E_mu[rho*k1*s] + E_mu[(2*k1 + 1)*rho**2*s**2]"
        " - E_mu[rho*(k1 + 1)*s] E_mu[rho*(k1 + 1)*s] = E_mu[(2*k1 + 1)*rho**2*s**2]",
    ),
    "variance.noise-term": ("grad(rho*k1) - grad(rho*k3) = rho*s", "E_mu[rho*s] = 0"),
    "variance.sufficient-region": (
        f"{VAR_STAR} <= {VAR_1}; equality iff (2*k1 + 1)*s = 0 wherever mu*rho**2 > 0",
    ),
    "variance.no-universal-order": (f"{VAR_STAR} <= {VAR_1} fails in a model",),
    "variance.optimal-baseline": (
        "E_q[(2*b_star*k1 + b**2 - 2*b*k1 - b_star**2)*s**2] + E_q[(k1 - b_star)*s] E_q[(k1 - b_star)*s]"
        " - E_q[(k1 - b)*s] E_q[(k1 - b)*s] = E_q[(b - b_star)**2*s**2]",
        "E_q[(b_star - k1)**2*s**2] - E_q[(k1 - b_star)*s] E_q[(k1 - b_star)*s]"
        " <= E_q[(b - k1)**2*s**2] - E_q[(k1 - b)*s] E_q[(k1 - b)*s];"
        " equality iff b = b_star or s = 0 wherever q > 0",
        "E_q[k1*s**2] - E_q[k1] E_q[s**2] = E_q[(b_star - d)*s**2]",
    ),
    "variance.orders": (
        "Var_mu g1 = E_mu[rho^2 s^2] - 2 E_mu[rho^2 s^2 eps] + O(eps^2),"
        " the remainder at most 5.389 e^2 E_mu[rho^2 s^2]",
        "Var_mu g* = E_mu[rho^2 s^2 eps^2] - E_q[s eps]^2 + O(eps^3),"
        " the remainder at most 3.688 e^3 E_mu[rho^2 s^2]",
    ),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_claim_settles(name: str) -> None:
    settled = recall(name)
    trust = "sympy" if name == "variance.orders" else "kernel"
    assert (settled.status, settled.trust, settled.error) == ("settled", trust, "")
    assert tuple(map(str, settled.parts)) == CLAIMS[name]
    assert settled.claim.source and settled.claim.explanation.endswith(".")
    if trust == "kernel":
        assert [t.kind for t in check(settled.certificate())] == [t.kind for t in settled.theorems]
    for theorem in settled.theorems:
        outcome = check_theorem(theorem, range(12))
        assert outcome.passed, outcome.text


def test_the_region_is_a_hypothesis() -> None:
    lines = recall("variance.sufficient-region").hypotheses
    assert "2*k1 + 1 >= 0 wherever mu > 0, that is r <= exp(1/2)" in lines


# ---------------------------------------------------------------------------- what the claims write
@pytest.mark.parametrize(
    ("name", "number", "difference"),
    [
        ("variance.difference", 1, lambda: variance(G1, mu) - variance(G_STAR, mu)),
        (
            "variance.optimal-baseline",
            0,
            lambda: variance(k1 - parameter("b"), q) - variance(k1 - parameter("b_star"), q),
        ),
    ],
)
def test_what_merges_in_print_is_the_difference_of_the_variances(
    name: str, number: int, difference: Any
) -> None:
    assert Quantity(recall(name).proofs[number].theorem.statement.left).side == difference().side


def literal_variance(a: Any, weights: Any, scores: Any) -> float:
    """Of a s, by centring."""
    centred = a * scores - weights @ (a * scores)
    return float(weights @ centred**2)


def arrays(model: FiniteModel) -> tuple[Any, ...]:
    q_, p_, mu_, u = (
        np.array([float(x) for x in row]) for row in (model.q, model.p, model.mu or (), model.u)
    )
    return q_, p_, mu_, u - q_ @ u


@pytest.mark.parametrize("seed", range(6))
def test_variances_are_those_of_centred_gradients(seed: int) -> None:
    model = random_model(seed, 3 + seed % 3)
    q_, p_, mu_, scores = arrays(model)
    rho_, k1_ = q_ / mu_, np.log(q_ / p_)
    theorem = recall("variance.no-universal-order").theorems[0]
    star, first = evaluate(theorem.statement, model)
    assert star == pytest.approx(literal_variance(rho_ * k1_, mu_, scores), abs=1e-12)
    assert first == pytest.approx(literal_variance(rho_ * (k1_ + 1), mu_, scores), abs=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_the_best_baseline_is_the_best_of_a_grid(seed: int) -> None:
    q_, p_, _, scores = arrays(random_model(seed, 4))
    k1_ = np.log(q_ / p_)
    best = q_ @ (k1_ * scores**2) / (q_ @ scores**2)
    found = [literal_variance(k1_ - best - step, q_, scores) for step in (0, 0.5, -0.5, 1e-3, -1e-3)]
    assert min(found) == found[0]
    assert found[1] - found[0] == pytest.approx(0.25 * q_ @ scores**2)
    kl, second = q_ @ k1_, q_ @ scores**2
    covariance = q_ @ ((k1_ - kl) * (scores**2 - second))
    excess = literal_variance(k1_ - kl, q_, scores) - found[0]
    assert excess * second == pytest.approx(covariance**2)


# ---------------------------------------------------------------------------- the region
REGION = ExpPoly.variable("k1") * 2 + 1


def test_outside_the_region_a_model_reverses_the_order() -> None:
    """The recorded model of the refutation has r > sqrt(e) somewhere; inside, no model does that."""
    model = from_certificate(recall("variance.no-universal-order").theorems[0].close["model"])
    assert not inside(model, REGION, "mu")
    ratios = [float(b / a) for a, b in zip(model.q, model.p, strict=True)]
    assert max(ratios) > math.sqrt(math.e)
    statement = recall("variance.sufficient-region").theorems[0].statement
    outside, within = 0, 0
    for seed in range(60):
        wild = random_model(seed, 2 + seed % 4)
        star, first = evaluate(statement, wild)
        outside += star > first + 1e-9
        star, first = evaluate(statement, drawn_into(wild, [("mu", REGION)]))
        within += star > first
    assert outside > 0 and within == 0


def test_on_the_edge_the_variances_are_equal_though_the_score_is_not_zero() -> None:
    """r = sqrt(e) wherever s is not 0: that is why the strict order needs r < sqrt(e)."""
    root = math.sqrt(math.e)
    edge = FiniteModel([0.2, 0.2, 0.6], [0.2 * root, 0.2 * root, 1 - 0.4 * root], [1, -1, 0], [0.3, 0.3, 0.4])
    statement = recall("variance.sufficient-region").theorems[0].statement
    star, first = evaluate(statement, edge)
    assert abs(star - first) < 1e-15 < star
    inner = replace(edge, p=[0.2 * 1.6, 0.2 * 1.6, 1 - 0.4 * 1.6])
    star, first = evaluate(statement, inner)
    assert first - star > 1e-3


# ---------------------------------------------------------------------------- wrong neighbours
B, STAR, KL_ = parameter("b"), parameter("b_star"), parameter("d")
SQUARES = expectation(s**2, under=q)
COV = expectation(k1 * s**2, under=q) - expectation(k1, under=q) * SQUARES


def ordered(left: Any, right: Any, **term: Any) -> Any:
    row = {"at": mu, "b": 1, "power": 1, "v": 2 * log(rho), **term}
    return derive(variance(left, mu)).at_most(variance(right, mu), rows=[row])


WRONG: dict[str, list[Make]] = {
    "variance.difference": [
        lambda: derive(variance(G1, mu) - variance(G_STAR, mu)).equals(
            expectation(rho**2 * (k1 + 1) * s**2, under=mu)),
        lambda: derive(variance(G1, mu) - variance(G_STAR, mu)).equals(
            expectation(rho * (2 * k1 + 1) * s**2, under=mu)),
        lambda: derive(variance(k1 + 1, mu) - variance(k1, mu)).equals(
            expectation((2 * k1 + 1) * s**2, under=mu)),  # unweighted, E_mu[s] is not 0
        lambda: derive(average(G1, mu)).equals(average(k1, mu)),
    ],
    "variance.noise-term": [
        lambda: derive(sample_gradient(rho * k1) - sample_gradient(k3)).differentiate().equals(
            sample(rho * s)),
        lambda: derive(expectation(s, under=mu)).equals(0),
    ],
    "variance.sufficient-region": [
        lambda: ordered(G_STAR, G1),
        lambda: ordered(G1, G_STAR, nonnegative=2 * k1 + 1),
        lambda: ordered(G_STAR, G1, nonnegative=k1 + 1),  # up to r = e: too far
        lambda: ordered(G_STAR, G1, nonnegative=2 * k1 - 1),
        lambda: ordered(G_STAR, G1, nonnegative=-2 * k1 - 1),
    ],
    "variance.no-universal-order": [
        lambda: derive(variance(G_STAR, mu)).differs_from(
            variance(G_STAR, mu) + expectation(rho**2 * s**2, under=mu), relation="<="),
        lambda: derive(average(G_STAR, mu)).differs_from(average(G1, mu), relation="<="),
    ],
    "variance.optimal-baseline": [
        lambda: derive(variance(k1 - B, q) - variance(k1 - STAR, q)).equals(
            expectation((B - STAR) ** 2 * s**2, under=q)),
        lambda: derive(variance(k1 - B, q), premises=BEST).at_most(
            variance(k1 - STAR, q),
            rows=[{"b": 1, "factor": B - STAR, "at": q, "power": 1}], using=[(0, -2 * (B - STAR))]),
        lambda: derive(variance(k1 - KL_, q), premises=((KL(q, p), KL_),)).at_most(
            variance(k1 - B, q),
            rows=[{"b": 1, "factor": B - KL_, "at": q, "power": 1}], using=[(0, 2 * (B - KL_))]),
        lambda: derive(COV, premises=(*BEST, (KL(q, p), KL_))).equals(0, using=[(0, 1), (1, SQUARES)]),
    ],
}  # fmt: skip
NEIGHBOURS = [pytest.param(make, id=f"{name} {i}") for name in WRONG for i, make in enumerate(WRONG[name])]


def test_every_claim_of_the_kernel_has_a_wrong_neighbour() -> None:
    assert [*WRONG, "variance.orders"] == list(CLAIMS)


@pytest.mark.parametrize("make", NEIGHBOURS)
def test_a_wrong_neighbour_is_refused(make: Make) -> None:
    with pytest.raises(ProofError, match=r"the two sides differ|no finite model tells|not positive at q = p"):
        make()


# ---------------------------------------------------------------------------- sampling
def test_a_baseline_is_sampled_along_its_own_direction_and_a_region_on_finite_models_only() -> None:
    options = Options(backend("numpy"))
    for part in identities(recall("variance.optimal-baseline"), 0, options):
        assert isinstance(part.finite, list) and part.finite, part.finite
    [region] = identities(recall("variance.sufficient-region"), 0, options)
    assert (
        isinstance(region.finite, list) and region.gaussian == "a bound on p/q that no two Gaussians keep to"
    )


# ---------------------------------------------------------------------------- expansions
@pytest.mark.parametrize("number", [0, 1])
def test_the_check_of_the_orders_can_fail(number: int) -> None:
    """A coefficient changed by one is seen, and so is a bound that is too small."""
    name, order = (("g1", 2), ("g*", 3))[number]
    right = [[(1, 0), (-2, 1)], [(1, 2)]][number]
    slope = [0, -1][number]
    for squares, factor, holds in (
        (right, 6, True),
        ([(c + (i == order - 1), i) for c, i in right], 6, False),
        (right, 0.01, False),
    ):
        found, _ = module.check_order(
            lambda q_, r_: module._literal(name, q_, r_),
            lambda q_, r_, squares=squares: module._leading(squares, slope, q_, r_),
            order,
            lambda q_, r_, factor=factor: factor * max(abs(x - 1) for x in r_) ** order * module._noise(q_),
        )
        assert found is holds


def test_the_bounds_are_those_of_the_series() -> None:
    """With |eps| <= 1/2 and all signs equal: (1 + L)^2, L^2 and L for L = -log(1 - eps), beyond the order."""
    two = math.log(2)
    tail = 4 * (two**2)  # of k1^2 beyond eps^2, over eps^2
    squares_1 = 4 * sum(abs(c) * 0.5**i for i, c in enumerate(square_plus_one(200)) if i >= 2)
    near = 4 * (two - 0.5)
    squares_3 = 8 * (two**2 - 0.25)
    assert 5.388 < squares_1 + tail <= 5.389
    assert 3.687 < squares_3 + 2 * near + near**2 / 2 <= 3.688


def square_plus_one(count: int) -> list[float]:
    """The coefficients of (1 - log(1 + eps))^2."""
    line = [1.0] + [(-1) ** i / i for i in range(1, count)]
    return [sum(line[i] * line[n - i] for i in range(n + 1)) for n in range(count)]
