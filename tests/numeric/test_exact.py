"""The exact oracle: right on what is known by hand, and no rubber stamp."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import sympy

from klsym.engine.proof.derivation import derive
from klsym.engine.proof.quantities import (
    KL,
    bregman,
    chi2,
    count,
    covariance,
    expectation,
    expected_gradient,
    grad,
    jeffreys,
    mu,
    p,
    q,
    quantity,
    sample,
    sample_gradient,
)
from klsym.errors import UsageError
from klsym.kernel import Theorem
from klsym.kernel.intervals import Interval
from klsym.kernel.names import parse_name
from klsym.kernel.ring import ExpPoly
from klsym.language.abbreviations import (
    Bregman,
    Context,
    Divergence,
    E,
    ExpectedGradient,
    Gradient,
    Side,
    Statement,
    elements,
)
from klsym.language.convert import to_ring
from klsym.language.expressions import *
from klsym.numeric.exact import agreement, check_theorem, enclose, evaluate
from klsym.numeric.models import FiniteModel, from_certificate, random_model

f, g, h = (sympy.Function(name) for name in "fgh")
nu, a, b = (parameter(name) for name in ("nu", "a", "b"))
F = f(log_q, log_p, log_mu)
REVERSE, FORWARD = grad(KL(q, p)), grad(KL(p, q))


def statement(left, right, relation="=", given=None, premises=(), on_policy=False):
    """A statement with its names declared, nothing proved about it."""
    left, right = quantity(left), quantity(right)
    values = tuple(sorted((str(n), to_ring(v)) for n, v in (given or {}).items()))
    pairs = tuple((x.side, y.side) for x, y in premises)
    functions = {**left.functions, **right.functions}
    for pair in premises:
        functions |= {**pair[0].functions, **pair[1].functions}
    parts = [*elements(left.side), *elements(right.side), *(v for _, v in values)]
    bases = {name: parse_name(name).base for part in parts for name in part.names()}
    known = {"k1", "w", "log_q", "R", "A", *functions}
    parameters = tuple(sorted(name for name, base in bases.items() if base not in known))
    context = Context(parameters, tuple(sorted(functions.items())), pairs, on_policy=on_policy, given=values)
    return Statement(left.side, right.side, context, relation)


def at(context, seeds=range(6), **options):
    return [random_model(seed, 2 + seed % 5, context, **options) for seed in seeds]


ON = {"on_policy": True}
OPTIMUM = {"given": {R: nu + beta * k1}}
TRUE = {
    "k1 in the loss": (expected_gradient(k1), 0),
    "k2 in the loss": (expected_gradient(k2), REVERSE),
    "k3 in the loss": (expected_gradient(k3), FORWARD),
    "k(lam) in the loss": (expected_gradient(k(lam)), lam * FORWARD),
    "attached rho, k3": (expected_gradient(rho * k3, under=mu), REVERSE),
    "attached rho, k1": (expected_gradient(rho * k1, under=mu), REVERSE),
    "detached rho, k2": (expected_gradient(sg(rho) * k2, under=mu), REVERSE),
    "detached rho, k3": (expected_gradient(sg(rho) * k3, under=mu), FORWARD),
    "on-policy, attached rho": (expected_gradient(rho * k1, under=mu), REVERSE, ON),
    "on-policy, detached rho": (expected_gradient(sg(rho) * k1, under=mu), 0, ON),
    "on-policy, no rho": (expected_gradient(k3, under=mu), FORWARD, ON),
    "on-policy, q frozen": (grad(expectation(k3, under=mu)), FORWARD, ON),
    "on-policy, log rho": (expectation(log(rho), under=mu), 0, ON),
    "detached reward": (expected_gradient(sg(k1) * log_q), REVERSE),
    "gradient of a value": (grad(expectation(k2, under=q)), expectation((k1 + k2) * s, under=q)),
    "gradient, detached": (grad(expectation(sg(k2), under=q)), expectation(k2 * s, under=q)),
    "KL under p": (FORWARD, expectation(-s, under=p)),
    "KL to mu": (grad(KL(q, mu)), expectation(log(rho) * s, under=q)),
    "nothing moves": (grad(KL(p, mu)), 0),
    "chi2": (chi2(p, q), expectation(r**2, under=q) - 1),
    "chi2 of q": (grad(chi2(q, p)), 2 * expectation(s / r, under=q)),
    "chi2 gradient": (grad(chi2(p, q)), expectation(-(r**2) * s, under=q)),
    "Jeffreys": (grad(jeffreys(q, p)), REVERSE + FORWARD),
    "covariance": (covariance(k1, r - 1, under=q), -jeffreys(p, q)),
    "variance": (covariance(r, r, under=q), chi2(p, q)),
    "covariance, constant": (covariance(lam, k1, under=mu), 0),
    "counting": (expectation(exp(log_q) * k1, under=count), KL(q, p)),
    "counting, gradient": (grad(expectation(exp(log_q) * k1, under=count)), REVERSE),
    "Bregman, k3": (bregman(-log(r)), sample(k3)),
    "Bregman, square": (bregman(r**2), sample((r - 1) ** 2)),
    "one sample": (sample_gradient(sg(rho) * k2), sample_gradient(rho * k3)),
    "one sample, score": (sample_gradient(k2), sample(k1 * s)),
    "policy gradient": (grad(expectation(R, under=q)), expectation(R * s, under=q)),
    "policy gradient, mu": (expected_gradient(rho * A, under=mu), expectation(A * s, under=q)),
    "given": (expected_gradient(beta * k2 - (R - nu) * log_q, under=mu), 0, OPTIMUM),
    "given, detached": (expected_gradient(sg(R) * log_q), beta * REVERSE, OPTIMUM),
    "parameters": (grad(beta * KL(q, p) - lam * KL(p, q)), beta * REVERSE - lam * FORWARD),
    "real exponent": (
        grad(expectation(exp(lam * k1), under=q)),
        (1 + lam) * expectation(exp(lam * k1) * s, under=q),
    ),
    "product": (expectation(k1, under=q) * expectation(r, under=q), KL(q, p)),
    "score, squared": (expectation(k1**2 * s**2, under=mu), expectation(k1**2 * s**2 / rho, under=q)),
}
FALSE = {
    "k1 in the loss": (expected_gradient(k1), REVERSE),
    "k2 in the loss": (expected_gradient(k2), FORWARD),
    "k3 in the loss": (expected_gradient(k3), REVERSE),
    "k(lam) in the loss": (expected_gradient(k(lam)), FORWARD),
    "detached rho, k3 as if attached": (expected_gradient(sg(rho) * k3, under=mu), REVERSE),
    "detached rho, k1": (expected_gradient(sg(rho) * k1, under=mu), REVERSE),
    "attached rho, k2": (expected_gradient(rho * k2, under=mu), REVERSE),
    "no rho": (expected_gradient(k2, under=mu), REVERSE),
    "rho must not move the measure": (grad(expectation(k3, under=mu)), FORWARD),
    "on-policy, detached rho": (expected_gradient(sg(rho) * k1, under=mu), REVERSE, ON),
    "on-policy, w is not zero inside": (expected_gradient(log(rho) * k1, under=mu), 0, ON),
    "on-policy, attached rho": (expected_gradient(rho * k3, under=mu), FORWARD, ON),
    "sg forgotten": (expected_gradient(sg(k1) * k1), expected_gradient(k1 * k1)),
    "value read as loss": (grad(expectation(k2, under=q)), expected_gradient(k2)),
    "detached under grad": (grad(expectation(sg(k2), under=q)), grad(expectation(k2, under=q))),
    "sign": (FORWARD, expectation(s, under=p)),
    "wrong KL": (grad(KL(q, mu)), REVERSE),
    "constant": (KL(q, p) + Fraction(1, 10**6), KL(q, p)),
    "chi2": (chi2(p, q), expectation(r**2, under=p) - 1),
    "chi2 turned": (grad(chi2(p, q)), grad(chi2(q, p))),
    "Jeffreys": (grad(jeffreys(q, p)), 2 * REVERSE),
    "covariance, sign": (covariance(k1, r - 1, under=q), jeffreys(p, q)),
    "covariance, not centred": (covariance(r, r, under=q), expectation(r**2, under=q)),
    "counting": (expectation(k1, under=count), KL(q, p)),
    "Bregman": (bregman(-log(r)), sample(k2)),
    "Bregman, slope": (bregman(r**2), sample(r**2 - 1)),
    "one sample": (sample_gradient(rho * k2), sample_gradient(rho * k3)),
    "policy gradient": (expected_gradient(R), expectation(R * s, under=q)),
    "policy gradient, mu": (expected_gradient(rho * A, under=mu), expectation(A * s, under=mu)),
    "R is not A": (expectation(A * s, under=q), expectation(R * s, under=q)),
    "given": (expected_gradient(beta * k3 - (R - nu) * log_q, under=mu), 0, OPTIMUM),
    "given moves": (grad(expectation(R, under=q)), 2 * beta * REVERSE, OPTIMUM),
    "parameters": (grad(beta * KL(q, p)), lam * REVERSE),
    "real exponent": (
        grad(expectation(exp(lam * k1), under=q)),
        expectation(exp(lam * k1) * s, under=q),
    ),
    "product": (expectation(k1, under=q) * expectation(k1, under=q), expectation(k1**2, under=q)),
    "score, squared": (expectation(k1**2 * s**2, under=mu), expectation(k1**2 * s**2, under=q)),
    "score mean under mu": (expectation(s, under=mu), 0),
    "generic": (grad(expectation(F, under=q)), expected_gradient(F)),
    "generic, detached": (expected_gradient(sg(g(k1)) * k1), expected_gradient(g(k1) * k1)),
    "two functions": (expectation(g(k1), under=q), expectation(h(k1), under=q)),
}


def read(row):
    left, right, *setting = row
    return statement(left, right, **(setting[0] if setting else {}))


@pytest.mark.parametrize("name", TRUE)
def test_true_statements_agree(name):
    claim = read(TRUE[name])
    assert agreement(claim, at(claim.context)).difference < 1e-14
    for model in at(claim.context, (0, 1, 3), exact=True):
        left, right = enclose(claim, model)
        gap = left + right * Interval.exact(-1)
        assert gap.lower <= 0 <= gap.upper
        assert gap.upper - gap.lower < Fraction(1, 10**20)


@pytest.mark.parametrize("name", FALSE)
def test_false_statements_are_told_apart(name):
    claim = read(FALSE[name])
    assert agreement(claim, at(claim.context)).difference > 1e-8
    if not claim.context.functions:
        enclosures = [enclose(claim, model) for model in at(claim.context, exact=True)]
        assert any(x.lower > y.upper or x.upper < y.lower for x, y in enclosures)


def test_as_many_refusals_as_acceptances():
    assert len(FALSE) >= len(TRUE)


# ---------------------------------------------------------------------------- derivatives
def softmax(z):
    weights = np.exp(z - z.max())
    return weights / weights.sum()


# E_m[grad L] as code has it: (measure, loss of live and detached log q, log p, log mu), by hand
LITERAL = {
    "k3": (k3, q, lambda lq, d, lp, lm: np.exp(lp - lq) - 1 - (lp - lq)),
    "k1 squared / 2": (k2, p, lambda lq, d, lp, lm: (lq - lp) ** 2 / 2),
    "rho k3": (rho * k3, mu, lambda lq, d, lp, lm: np.exp(lq - lm) * (np.exp(lp - lq) - 1 - lp + lq)),
    "sg(rho) k3": (sg(rho) * k3, mu, lambda lq, d, lp, lm: np.exp(d - lm) * (np.exp(lp - lq) - lp + lq)),
    "sg(k1) log q": (sg(k1) * log_q, q, lambda lq, d, lp, lm: (d - lp) * lq),
    "r**2 sg(r)": (r**2 * sg(r), mu, lambda lq, d, lp, lm: np.exp(2 * (lp - lq) + lp - d)),
    "exp(k1/2)": (exp(k1 / 2), q, lambda lq, d, lp, lm: np.sqrt(np.exp(lq - lp))),
    "sg(w) w k1": (sg(log(rho)) * log(rho) * k1, mu, lambda lq, d, lp, lm: (d - lm) * (lq - lm) * (lq - lp)),
}


@pytest.mark.parametrize("name", LITERAL)
@pytest.mark.parametrize("seed", range(3))
def test_expected_gradients_are_central_differences_of_the_literal_loss(name, seed):
    loss, measure, literal = LITERAL[name]
    model = random_model(seed, 4)
    z, u, held = np.log(model.q), np.array(model.u), np.array(getattr(model, measure))

    def total(t):
        lq, detached = np.log(softmax(z + t * u)), np.log(softmax(z))
        return held @ literal(lq, detached, np.log(model.p), np.log(model.mu))

    central = (total(1e-5) - total(-1e-5)) / 2e-5
    found, _ = evaluate(statement(expected_gradient(loss, under=measure), 0), model)
    assert found == pytest.approx(central, rel=1e-7, abs=1e-8)


FUNCTIONALS = {
    "E_q[k2]": (expectation(k2, under=q), lambda w, p, m: w @ np.log(w / p) ** 2 / 2),
    "E_mu[rho r]": (expectation(rho * r**2, under=mu), lambda w, p, m: m @ (w / m * (p / w) ** 2)),
    "KL(q||p)": (KL(q, p), lambda w, p, m: w @ np.log(w / p)),
    "KL(p||q)": (KL(p, q), lambda w, p, m: p @ np.log(p / w)),
    "KL(mu||q)": (KL(mu, q), lambda w, p, m: m @ np.log(m / w)),
    "chi2(q||p)": (chi2(q, p), lambda w, p, m: w @ (w / p) - 1),
    "chi2(p||q)": (chi2(p, q), lambda w, p, m: p @ (p / w) - 1),
    "J(mu, q)": (jeffreys(mu, q), lambda w, p, m: (m - w) @ np.log(m / w)),
    "Cov_q(k1, r)": (
        covariance(k1, r, under=q),
        lambda w, p, m: p @ np.log(w / p) - w @ np.log(w / p),
    ),
    "entropy by counting": (expectation(-exp(log_q) * log_q, under=count), lambda w, p, m: -w @ np.log(w)),
    "a product": (
        expectation(k1, under=q) * expectation(log_q, under=p),
        lambda w, p, m: (w @ np.log(w / p)) * (p @ np.log(w)),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONALS)
@pytest.mark.parametrize("on_policy", [False, True])
def test_functionals_and_their_gradients(name, on_policy):
    """On-policy, mu is the q of theta = 0 and stays there."""
    functional, literal = FUNCTIONALS[name]
    claim = statement(functional, grad(functional), on_policy=on_policy)
    model = random_model(11, 5, claim.context)
    z, u = np.log(model.q), np.array(model.u)

    def total(t):
        return literal(softmax(z + t * u), np.array(model.p), np.array(model.mu))

    value, slope = evaluate(claim, model)
    assert value == pytest.approx(total(0), rel=1e-13, abs=1e-14)
    assert slope == pytest.approx((total(1e-5) - total(-1e-5)) / 2e-5, rel=1e-7, abs=1e-8)


def test_pointwise_quantities_are_those_of_the_outcome():
    model = FiniteModel(q=["1/2", "1/4", "1/4"], p=["1/8", "3/8", "1/2"], u=[1, 0, 2], outcome=2)
    left, right = enclose(statement(sample(r * s), sample_gradient(exp(-k1))), model)
    assert left == Interval.exact(2)  # p/q = 2, u_x - (1/2 + 0 + 2/4) = 1
    assert right == Interval.exact(-2)


# ---------------------------------------------------------------------------- two systems
@pytest.mark.parametrize("name", [n for n, row in (TRUE | FALSE).items() if not read(row).context.functions])
def test_floats_lie_in_the_enclosures(name):
    claim = read((TRUE | FALSE)[name])
    for model in at(claim.context, (2, 4), exact=True):
        for number, interval in zip(evaluate(claim, model), enclose(claim, model), strict=True):
            assert number == pytest.approx(float(interval.lower), rel=1e-12, abs=1e-12)
            assert interval.lower <= interval.upper


@pytest.mark.parametrize("name", ["k3 in the loss", "chi2 gradient", "variance", "policy gradient"])
def test_statements_without_logarithms_are_enclosed_in_points(name):
    claim = read(TRUE[name])
    for model in at(claim.context, exact=True):
        left, right = enclose(claim, model)
        assert left.lower == left.upper == right.lower == right.upper


def test_a_logarithm_makes_no_point():
    claim = read(TRUE["k2 in the loss"])
    left, _ = enclose(claim, random_model(0, 3, exact=True))
    assert 0 < left.upper - left.lower < Fraction(1, 10**25)


# ---------------------------------------------------------------------------- generic functions
def test_generic_functions_follow_the_caller():
    claim = statement(expected_gradient(g(k1)), REVERSE)
    model = random_model(5, 4)
    left, right = evaluate(claim, model, {"g": lambda x: x**2 / 2 + 7 * x})
    assert left == pytest.approx(right, abs=1e-14)
    left, right = evaluate(claim, model, {"g": lambda x: np.exp(-x) + x})
    assert left == pytest.approx(evaluate(statement(FORWARD, 0), model)[0], abs=1e-14)
    assert abs(left - right) > 1e-3


def test_generic_functions_meet_their_own_arguments():
    claim = statement(expectation(F, under=q), expectation(log_mu, under=q))
    names = dict(claim.context.functions)["f"]
    model = random_model(5, 4)
    functions = {"f": lambda *xs: (d := dict(zip(names, xs, strict=True)))["log_q"] - d["w"]}
    left, right = evaluate(claim, model, functions)
    assert left == pytest.approx(right, abs=1e-15)


def test_a_constant_function_is_one():
    claim = statement(expectation(g(k1), under=p), 2)
    left, right = evaluate(claim, random_model(1, 3), {"g": lambda x: 2.0})
    assert left == pytest.approx(right, abs=1e-15)


def test_ring_functions_are_enclosed_and_callables_are_not():
    claim = statement(expected_gradient(g(k1)), REVERSE)
    model = random_model(2, 3, exact=True)
    left, right = enclose(claim, model, {"g": to_ring(k2)})
    assert left.lower <= right.upper and right.lower <= left.upper
    with pytest.raises(UsageError, match="function g is a callable, known in floats only"):
        enclose(claim, model, {"g": lambda x: x})
    with pytest.raises(UsageError, match="known in floats only"):
        enclose(claim, model)


def test_the_zero_function_is_not_mistaken_for_none():
    claim = statement(expectation(g(k1), under=q), 0)
    assert evaluate(claim, random_model(2, 3), {"g": ExpPoly({})}) == (0, 0)


@pytest.mark.parametrize("bad", [np.abs, lambda x: np.maximum(np.real(x), 0), lambda x: x * np.nan, np.real])
def test_functions_without_a_complex_step_are_refused(bad):
    claim = statement(expected_gradient(g(k1)), 0)
    with pytest.raises(UsageError, match="function g: not smooth in complex arithmetic"):
        evaluate(claim, random_model(2, 4), {"g": bad})


def test_functions_of_the_wrong_thing_are_refused():
    claim = statement(expected_gradient(g(k1)), 0)
    with pytest.raises(UsageError, match="function g: may depend on k1 only"):
        evaluate(claim, random_model(2, 3), {"g": to_ring(log(rho))})
    with pytest.raises(UsageError, match="the statement has no function f"):
        evaluate(claim, random_model(2, 3), {"f": np.sin})


# ---------------------------------------------------------------------------- premises and models
PREMISE = {"premises": ((KL(q, p), expectation(F, under=q)),)}


def test_premises_are_checked_on_the_model():
    claim = statement(expected_gradient(F) + expectation(F * s, under=q), REVERSE, **PREMISE)
    good = {"f": lambda k1, log_q, w: k1}
    assert agreement(claim, at(claim.context), good).difference < 1e-14
    for bad in (None, {"f": lambda k1, log_q, w: -k1}, {"f": lambda k1, log_q, w: k1 + 1e-6}):
        with pytest.raises(UsageError, match=r"premise 1 fails on this model .*pass functions"):
            evaluate(claim, random_model(0, 3), bad)


def test_premises_hold_for_every_theta():
    """k1 less its mean at theta has the right value at theta, and a wrong one elsewhere."""
    model = random_model(0, 3)
    mean = float(np.array(model.q) @ np.log(np.array(model.q) / np.array(model.p)))
    claim = statement(grad(expectation(F, under=q)), 0, premises=((expectation(F, under=q), quantity(0)),))
    with pytest.raises(UsageError, match="premise 1 fails"):
        evaluate(claim, model, {"f": lambda k1, log_q, w: k1 - mean})


GOOD = {"q": ["1/2", "1/2"], "p": ["1/4", "3/4"], "u": [1, 0]}
NAN = float("nan")
BAD = {
    "nan": ({"q": [NAN, 0.5]}, "q holds nan"),
    "infinite": ({"u": [1, float("inf")]}, "u holds nan or infinity"),
    "sizes": ({"p": ["1/4", "1/4", "1/2"]}, "p has 3 entries, 2 expected"),
    "reward sizes": ({"rewards": {"R": [1]}}, "R has 1 entries, 2 expected"),
    "one outcome": ({"q": [1], "p": [1], "u": [1]}, "q has 1 entries"),
    "zero": ({"q": [0, 1]}, r"q\[0\] = 0 is not positive"),
    "negative": ({"p": ["5/4", "-1/4"]}, r"p\[1\] = -1/4 is not positive"),
    "exact sum": ({"mu": ["1/2", "499999999999999/1000000000000000"]}, "mu sums to"),
    "float sum": ({"q": [0.5, 0.5001]}, "q sums to 1.0001, not to 1"),
    "outcome": ({"outcome": 2}, "outcome 2 is not one of 0..1"),
    "text": ({"q": "1/2"}, "q: a list of numbers expected"),
    "no number": ({"u": [1, "x"]}, "u: numbers expected"),
    "no number, None": ({"u": [1, None]}, "u: numbers expected"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_models_are_refused_in_one_line(name):
    FiniteModel(**GOOD)
    fields, message = BAD[name]
    with pytest.raises(UsageError, match=message) as refusal:
        FiniteModel(**{**GOOD, **fields})
    assert "\n" not in str(refusal.value)


def test_logits():
    model = FiniteModel.from_logits([0.0, 1.0, -1.0], p=[0.2, 0.3, 0.5], u=[0, 1, 0])
    assert model.q == pytest.approx(softmax(np.array([0.0, 1.0, -1.0])), rel=1e-15)
    assert not model.exact
    for bad in ([0.0, NAN], [0.0, -np.inf], [[0.0, 1.0]]):
        with pytest.raises(UsageError, match="logits: a list of finite numbers"):
            FiniteModel.from_logits(bad, p=[0.5, 0.5], u=[1, 0])
    with pytest.raises(UsageError, match="is not positive"):
        FiniteModel.from_logits([0.0, -1000.0], p=[0.5, 0.5], u=[1, 0])


def test_models_must_fit_the_statement():
    on_policy = statement(expected_gradient(k1, under=mu), 0, on_policy=True)
    with pytest.raises(UsageError, match="on-policy, so mu must equal q"):
        evaluate(on_policy, FiniteModel(**GOOD, mu=["1/4", "3/4"]))
    with pytest.raises(UsageError, match="no value for the parameter lam"):
        evaluate(statement(expected_gradient(k(lam)), 0), FiniteModel(**GOOD))
    with pytest.raises(UsageError, match="no value for 'R'"):
        evaluate(statement(expectation(R, under=q), 0), FiniteModel(**GOOD))
    with pytest.raises(UsageError, match="rational numbers"):
        enclose(statement(KL(q, p), 0), random_model(0, 3))
    with pytest.raises(UsageError, match="division by lam, which is zero"):
        evaluate(statement(KL(q, p) * (1 / lam), 0), FiniteModel(**GOOD, parameters={"lam": 0}))


def test_models_are_reproducible_and_differ():
    context = Context(("lam", "n"))
    for exact_ in (False, True):
        drawn = [random_model(seed, size, context, exact_) for seed in range(5) for size in (2, 4)]
        again = [random_model(seed, size, context, exact_) for seed in range(5) for size in (2, 4)]
        assert drawn == again
        assert len({(m.q, m.p, m.u) for m in drawn}) == len(drawn)
        assert all(m.exact is exact_ and m.parameters["n"] in range(2, 7) for m in drawn)
    assert random_model(0, 3, Context(on_policy=True)).mu == random_model(0, 3).q


def test_from_certificate_wants_all_fields():
    with pytest.raises(UsageError, match="the keys"):
        from_certificate({"q": ["1/2", "1/2"]})


K1_, W = ExpPoly.variable("k1"), ExpPoly.variable("w")
UNREADABLE = {
    "a second derivative": (E("q", ExpPoly.variable("g''")), "differentiated once more"),
    "grad of a derivative": (ExpectedGradient("q", ExpPoly.variable("g'")), "differentiated once more"),
    "another slot": (E("q", ExpPoly.variable("k1[self]")), "no such slot"),
    "another score": (E("q", K1_, ("self",)), "no such slot"),
    "an unknown name": (E("q", ExpPoly.variable("k7")), "no value for 'k7'"),
    "a measure": (E("nu", K1_), "unknown measure 'nu'"),
    "a divergence": (Divergence("TV", "q", "p"), "unknown divergence 'TV'"),
    "phi of w": (Bregman(W), "bregman: a function of r alone"),
    "grad grad": (Gradient(Side.atom(ExpectedGradient("q", K1_))), "gradient inside a gradient"),
    "grad of a score": (Gradient(Side.atom(E("q", K1_, ("x",)))), "gradient of a score function"),
    "division by k1": (E("q", ExpPoly({((("k1", -1),), ()): 1})), "division by k1"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_is_not_understood_is_refused(name):
    atom, message = UNREADABLE[name]
    context = Context(functions=(("g", ("k1",)),))
    with pytest.raises(UsageError, match=message):
        evaluate(Statement(Side.atom(atom), Side(), context), random_model(0, 3))


def test_random_coefficients_and_circular_givens_are_refused():
    outside = Statement(Side.of((K1_, (Divergence("KL", "q", "p"),))), Side())
    with pytest.raises(UsageError, match="a random coefficient stands outside"):
        evaluate(outside, random_model(0, 3))
    with pytest.raises(UsageError, match="given values name one another"):
        evaluate(statement(expectation(R, under=q), 0, given={R: A, A: R}), random_model(0, 3))


# ---------------------------------------------------------------------------- the engine
def random_loss(stream, depth=3):
    leaves = [k1, k2, k3, r, rho, log_q, log_p, log_mu, lam, R, A, exp(lam * k1), exp(k1 / 2), 1 / rho]
    kind = stream.integers(5) if depth else 0
    if kind == 0:
        return leaves[stream.integers(len(leaves))]
    if kind == 1:
        return sg(random_loss(stream, depth - 1))
    first, second = random_loss(stream, depth - 1), random_loss(stream, depth - 1)
    return first * second if kind < 4 else first - 2 * second


def random_quantity(stream):
    loss, m = random_loss(stream), [q, p, mu][stream.integers(3)]
    return [
        lambda: expected_gradient(loss, under=m),
        lambda: grad(expectation(loss, under=m)),
        lambda: expectation(loss * s ** int(stream.integers(3)), under=m),
        lambda: covariance(loss, random_loss(stream), under=m),
        lambda: sample_gradient(loss),
    ][stream.integers(5)]()


@pytest.mark.parametrize("seed", range(24))
def test_what_the_engine_reduces_keeps_its_value(seed):
    """Random quantities; a reduction that is off in one coefficient is seen."""
    stream = np.random.default_rng(seed)
    setting = {"on_policy": bool(seed % 2), "given": {R: lam * k1 + log_q} if seed % 3 == 0 else {}}
    start = random_quantity(stream) + lam * random_quantity(stream)
    reduced = derive(start, **setting).reduce()
    drawn = at(reduced.context, range(3), spread=0.5)
    assert agreement(Statement(start.side, reduced.left, reduced.context), drawn).difference < 1e-13
    if reduced.left != Side():
        off = Statement(start.side, reduced.left * Fraction(101, 100), reduced.context)
        assert agreement(off, drawn).difference > 1e-8


# ---------------------------------------------------------------------------- theorems
def theorems():
    yield derive(expected_gradient(rho * k3, under=mu)).equals(REVERSE)
    yield derive(expected_gradient(k3)).differs_from(REVERSE)
    yield derive(expected_gradient(sg(rho) * k2, under=mu), on_policy=True).equals(REVERSE)
    yield derive(covariance(k1, r - 1, under=q)).equals(-jeffreys(p, q))
    yield derive(expected_gradient(g(k1)) - REVERSE).iff("g", k2 + a * k1 + b, (b, a))
    yield derive(expected_gradient(rho * k2, under=mu)).is_no_combination()
    yield derive(expected_gradient(k3 + R * k2 + A * log_q)).is_no_combination()
    yield derive(grad(expectation(F, under=q))).equals(expected_gradient(F) + expectation(F * s, under=q))
    square = expectation(k1 * s, under=q) * expectation(k1 * s, under=q)
    rows = [{"variance": k1, "at": "q", "power": 1}]
    yield derive(square).at_most(expectation((k1 * s) ** 2, under=q), rows=rows)
    yield derive(square).differs_from(expectation((k1 * s) ** 2, under=q))
    yield derive(expectation(k3, under=mu)).differs_from(0, relation="<=")


@pytest.mark.parametrize("number", range(11))
def test_theorems_pass(number):
    proof = list(theorems())[number]
    outcome = check_theorem(proof.theorem)
    assert outcome.passed and outcome.kind == proof.theorem.kind, outcome.text


def test_premises_in_theorems_need_functions():
    F_and_score = expected_gradient(F) + expectation(F * s, under=q)
    proof = derive(F_and_score, premises=((KL(q, p), expectation(F, under=q)),)).equals(REVERSE)
    functions = {"f": lambda k1, log_q, w: k1, "of another theorem": np.sin}
    assert check_theorem(proof.theorem, functions=functions).passed
    with pytest.raises(UsageError, match="premise 1 fails"):
        check_theorem(proof.theorem)


def theorem(kind, left, right, close=None, relation="=", hypotheses=(), **setting):
    """A theorem that no kernel made."""
    claim = statement(left, right, relation, **setting)
    return Theorem(kind, claim, (), hypotheses, close or {})


MODEL = {
    "q": ["1/2", "1/4", "1/4"], "p": ["1/4", "1/4", "1/2"], "mu": ["1/3", "1/3", "1/3"],
    "u": ["1", "0", "0"], "parameters": {}, "rewards": {}, "outcome": 0,
}  # fmt: skip


def family(of, order, constants):
    return {"function": "g", "family": to_ring(of).to_json(), "order": order, "constants": constants}


def with_family(left, of, order, constants, **more):
    made = theorem("unique", left, 0, family(of, order, constants), **more)
    names = tuple(sorted({*made.statement.context.parameters, *constants}))
    context = replace(made.statement.context, parameters=names)
    return replace(made, statement=replace(made.statement, context=context))


ON_G = expected_gradient(g(k1)) - REVERSE
W_G = expectation(log(rho) * g(k1) * k1 * s, under=q)
WRONG = {
    "proved": theorem("proved", expected_gradient(k3), REVERSE),
    "proved by a hair": theorem("proved", KL(q, p) * (1 + Fraction(1, 10**8)), KL(q, p)),
    "proved, but for what no float shows": theorem("proved", KL(q, p) * (1 + Fraction(1, 10**12)), KL(q, p)),
    "proved, the same from below": theorem("proved", KL(q, p), KL(q, p) * (1 + Fraction(1, 10**12))),
    "proved, generic": theorem("proved", expectation(g(k1), under=q), expectation(g(k1), under=q) + 1),
    "proved, generic, above": theorem("proved", expectation(g(k1), under=q) + 1, expectation(g(k1), under=q)),
    "proved <=": theorem("proved", KL(q, p), KL(p, q), relation="<="),
    "refuted": theorem("refuted", expected_gradient(k3), FORWARD, {"model": MODEL}),
    "refuted <=": theorem("refuted", 0, KL(q, p), {"model": MODEL}, relation="<="),
    "refuted by a silent model": theorem(
        "refuted", expectation(k1 * s, under=q), expectation(r * s, under=q),
        {"model": {**MODEL, "p": MODEL["q"]}},
    ),
    "unique, wrong family": with_family(ON_G, 2 * k2, 1, ["b"]),
    "unique, a constant too few": with_family(ON_G, k2 + b, 1, ["b"]),
    "unique, anything goes": with_family(expected_gradient(sg(g(k1))), k2 + b, 1, ["b"]),
    "unique, g = 0 forgotten": with_family(
        expected_gradient(sg(log(rho)) * g(k1) ** 2 / 2) - W_G, k2 + b, 1, ["b"]
    ),
    "unique, beta = 0 forgotten": with_family(ON_G * beta, k2 + b + a * k1, 2, ["b", "a"]),
    "independent": theorem("independent", expected_gradient(k3 + 2 * k2), 0),
    "independent, rewards": theorem("independent", expected_gradient(k3 + R * log_q), 0),
    "independent, parameter": theorem("independent", expected_gradient(lam * k3), 0),
    "independent, zero": theorem("independent", expected_gradient(k1), 0),
    "independent, on-policy": theorem("independent", expected_gradient(k1 * (1 + log(rho))), 0, **ON),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_theorems_fail_without_raising(name):
    outcome = check_theorem(WRONG[name])
    assert not outcome.passed, outcome.text


def test_an_enclosure_too_wide_to_tell_is_no_pass():
    big = 10**30
    wide = theorem("proved", expectation(big * k1, under=q) - big * KL(q, p), 0)
    outcome = check_theorem(wide)
    assert outcome.measured["difference"] < 1e-14 and outcome.measured["width"] > 1e-15
    assert not outcome.passed


def test_agreement_is_that_of_the_worst_model():
    claim = statement(KL(q, p), KL(p, q))
    mirrored = FiniteModel(q=["1/3", "2/3"], p=["2/3", "1/3"], u=[1, 0])
    assert agreement(claim, [mirrored]).difference < 1e-15
    both = agreement(claim, [mirrored, random_model(0, 3)])
    assert both.difference > 1e-3 and both.models == 2


def test_models_move_along_u():
    model = FiniteModel(q=["1/2", "1/2"], p=["1/4", "3/4"], mu=["1/8", "7/8"], u=[1, 0])
    moved = model.moved(np.log(3), Context())
    assert moved.q == pytest.approx([0.75, 0.25], rel=1e-14)
    assert (moved.p, moved.mu) == (model.p, model.mu)
    on_policy = replace(model, mu=model.q).moved(np.log(3), Context(on_policy=True))
    assert on_policy.mu == on_policy.q == moved.q


def test_hypotheses_allow_what_they_exclude():
    silent = WRONG["unique, beta = 0 forgotten"]
    assert "when beta = 0" in check_theorem(silent).text
    assert check_theorem(replace(silent, hypotheses=(("nonzero", "beta"),))).passed


def test_the_scale_is_that_of_the_terms():
    """Ten digits cancel; the difference is judged by the terms, and is still seen when real."""
    big = 10**10
    for extra, small in ((0, True), (Fraction(1, 100), False)):
        left = expectation(big * r, under=q) - big + expectation(k1, under=q)
        claim = statement(left, KL(q, p) + extra)
        assert (agreement(claim, at(claim.context)).difference < 1e-14) is small


@pytest.mark.parametrize(
    "name", ["k3 in the loss", "chi2 gradient", "KL to mu", "score, squared", "policy gradient"]
)
def test_directions_that_move_nothing_are_no_disagreement(name):
    """Along a constant u every gradient is rounding noise."""
    claim = read(TRUE[name])
    model = replace(random_model(0, 5, claim.context), u=[0.1, 0.1, 0.1, 0.1, 0.1])
    assert agreement(claim, [model]).difference < 1e-14


@pytest.mark.parametrize(
    "left", [KL(q, mu), chi2(mu, q), grad(jeffreys(q, mu)), covariance(log(rho), k1, under=p)]
)
def test_noise_around_zero_is_no_disagreement(left):
    claim = statement(left, 0, on_policy=True)
    assert agreement(claim, at(claim.context)).difference < 1e-14


def test_infinite_sides_never_agree():
    model = replace(random_model(0, 3, Context(("eps",))), parameters={"eps": 1e9})
    claim = statement(expectation(exp(eps * k1), under=q), 0)
    assert agreement(claim, [model]).difference == float("inf")
