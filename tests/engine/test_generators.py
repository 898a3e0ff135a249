"""The inverse problem against SymPy's derivatives in r, and against finite models in floats."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import sympy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import klsym
from klsym.engine.divergences.f_divergence import (
    NAMED_GENERATORS,
    compute_third_derivative,
    find_convex_region,
    generator,
    name_divergence,
    strength,
)
from klsym.engine.divergences.f_divergence_smooth import convert_to_x
from klsym.engine.fields.primitives import find_objective_under
from klsym.kernel.ring import ExpPoly
from klsym.language.convert import to_ring, to_sympy
from klsym.language.expressions import R, k1, k2, k3, lam, log_q, parameter, r, rho
from klsym.language.parser import parse

CHECK = settings(
    derandomize=True, database=None, deadline=None, max_examples=30, suppress_health_check=list(HealthCheck)
)
NAMES = ("k1", "w", "log_q")
NUMBERS = st.fractions(-3, 3, max_denominator=4).filter(bool)
x = sympy.Symbol("x", positive=True)


@st.composite
def coefficients(draw, names=("k1",)):
    """A sum of terms c k1^n w^m exp(a k1 + b w ...)."""
    total = ExpPoly({})
    for _ in range(draw(st.integers(1, 4))):
        term = ExpPoly.from_number(draw(NUMBERS))
        for name in names:
            term = term * ExpPoly.from_variable(name) ** draw(st.integers(0, 3))
            term = term * (ExpPoly.from_variable(name) * draw(st.integers(-2, 2))).exp()
        total = total + term
    return total


def of_ratio(element):
    """A function of k1 as a SymPy expression in r = x, read off the terms."""
    total = sympy.Integer(0)
    for (monomial, exponent), value in element.terms.items():
        power = dict(monomial).get("k1", 0)
        rate = dict(exponent).get((("k1", 1),), 0)
        scale = sympy.Rational(Fraction(value).numerator, Fraction(value).denominator)
        rate = sympy.Rational(Fraction(rate).numerator, Fraction(rate).denominator)
        total += scale * (-sympy.log(x)) ** power * x ** (-rate)
    return total


class Model:
    """q = softmax(theta), p and mu on four outcomes."""

    def __init__(self, seed):
        stream = np.random.default_rng(seed)
        self.theta, self.u, *others = stream.normal(size=(4, 4)) * 0.7
        self.p, self.mu = (np.exp(logits) / np.exp(logits).sum() for logits in others)

    def q(self, t=0.0):
        weights = np.exp(self.theta + t * self.u)
        return weights / weights.sum()

    def value(self, element, q):
        logs = {"k1": np.log(q / self.p), "w": np.log(q / self.mu), "log_q": np.log(q)}
        total = 0 * q
        for (monomial, exponent), value in element.terms.items():
            term = float(value) * np.exp(sum(float(v) * logs[m[0][0]] for m, v in exponent) + 0 * q)
            for name, power in monomial:
                term = term * logs[name] ** power
            total = total + term
        return total

    def gradient(self, f):
        """d/dt E_q[f] along u, by a complex step."""
        q = self.q(1e-30j)
        return np.imag((q * self.value(f, q)).sum()) / 1e-30

    def field(self, c):
        q = self.q()
        return (q * self.value(c, q) * (self.u - (q * self.u).sum())).sum()


@CHECK
@given(coefficients(), st.integers(0, 9))
def test_a_coefficient_in_r_has_its_generator(c, seed):
    f = generator(c)
    in_r, of_c = of_ratio(f), of_ratio(c)
    residue = sympy.expand(
        sympy.expand(sympy.diff(in_r, x, 2) * x**2) + sympy.expand(sympy.diff(of_c, x) * x)
    )
    assert residue == 0  # f'' = -c'/r
    assert in_r.subs(x, 1) == 0 and sympy.diff(in_r, x).subs(x, 1) == 0
    assert sympy.Rational(str(strength(c).terms.get(((), ()), 0))) == -sympy.diff(of_c, x).subs(x, 1)
    third = sympy.diff(in_r, x, 3).subs(x, 1)
    assert sympy.Rational(str(compute_third_derivative(c).terms.get(((), ()), 0))) == third
    model = Model(seed)
    size = 1 + abs(model.value(c, model.q())).max()
    assert abs(model.gradient(f) - model.field(c)) < 1e-11 * size


@CHECK
@given(coefficients(names=NAMES), st.integers(0, 9))
def test_any_coefficient_has_an_objective(c, seed):
    f, model = find_objective_under(c, "q"), Model(seed)
    size = 1 + abs(model.value(c, model.q())).max()
    assert abs(model.gradient(f) - model.field(c)) < 1e-10 * size


@CHECK
@given(coefficients())
def test_convexity_is_that_of_floats(c):
    """Where E_q[f] is said to be convex in q, c rises with k1, and falls elsewhere."""
    found = find_convex_region(c)
    if found is None:
        return
    f = sympy.lambdify(x, sympy.diff(of_ratio(c), x), "mpmath")
    for place in [i / 7 - 3 for i in range(43)]:
        inside = any(_within(place, stretch) for stretch in found)
        near = any(end and abs(place - end[0]) < 1e-6 for s in found for end in (s.lower, s.upper))
        rising = -f(math.exp(-place)) * math.exp(-place)
        if not near and abs(rising) > 1e-9:
            assert inside == (rising > 0), (place, found)


def _within(place, stretch):
    low = -math.inf if stretch.lower is None else float(stretch.lower[0])
    high = math.inf if stretch.upper is None else float(stretch.upper[1])
    return low < place < high


NAMED = {
    "k1": (k1, "reverse-kl", 1),
    "three times k1": (3 * k1, "reverse-kl", 3),
    "a parameter": (lam * k1 + 2, "reverse-kl", lam),
    "-r": (-r, "forward-kl", 1),
    "both": (k1 - r, "jeffreys", 1),
    "r^2": (-(r**2), "pearson-chi2", 1),
    "1/r": (1 / r, "neyman-chi2", sympy.Rational(1, 2)),
    "the square root": (-(r ** sympy.Rational(1, 2)), "squared-hellinger", 1),
    "a power": (-(r**3), "alpha=3", 3),
}


@pytest.mark.parametrize("name", NAMED)
def test_generators_with_a_name(name):
    c, expected, multiple = NAMED[name]
    found = name_divergence(generator(to_ring(c)))
    assert found == (expected, to_ring(multiple))


NAMELESS = {"k2": k2, "k3": k3, "rho*k2": k1 + k2, "k1 - 2 r": k1 - 2 * r, "k1^3": k1**3, "r k1": r * k1}


@pytest.mark.parametrize("name", NAMELESS)
def test_generators_without_a_name(name):
    assert name_divergence(generator(to_ring(NAMELESS[name]))) is None


def test_named_generators_are_divergences():
    """f(1) = f'(1) = 0 and f > 0 elsewhere, in SymPy."""
    for f in NAMED_GENERATORS.values():
        in_r = of_ratio(f)
        assert in_r.subs(x, 1) == 0 == sympy.diff(in_r, x).subs(x, 1)
        assert all(in_r.subs(x, place) > 0 for place in (sympy.Rational(1, 9), sympy.Rational(7, 3)))


def test_what_is_no_function_of_r_has_no_generator():
    for c in (rho * k1, k1 + R, log_q):
        assert generator(to_ring(c)) is None
    alpha = parameter("alpha")
    assert generator(to_ring(r**alpha)) is None  # 1/(1 - alpha) is no element of the ring


POWERS = ["r**alpha", "r**alpha/alpha", "beta*r**(2*alpha) + k2", "k1 - lam*r**(alpha - 1)"]


@pytest.mark.parametrize("loss", POWERS)
@pytest.mark.parametrize("use", ["loss", "reward"])
@pytest.mark.share(3)
def test_f_of_a_parametric_power_by_numbers(loss, use):
    """f(1) = f'(1) = 0 and f'' = -c'/r, by SymPy's derivatives, at the values told apart, too."""
    verdict = klsym.explain(loss, use=use, parameters=["alpha", "beta", "lam"])
    told = verdict.objective.generator
    a, numbers = parameter("alpha"), {parameter("beta"): Fraction(3, 7), parameter("lam"): Fraction(2, 5)}

    def of_x(e):
        return convert_to_x(e).subs(numbers)

    f, c = of_x(told.f), of_x(parse(verdict.gradient.canonical_text, ["alpha", "beta", "lam"]))
    for value in (sympy.Rational(-3, 4), sympy.Rational(5, 3), 3):
        f_, c_ = f.subs(a, value), c.subs(a, value)
        assert sympy.simplify(f_.subs(x, 1)) == 0 == sympy.simplify(f_.diff(x).subs(x, 1))
        for place in (0.3, 1.0, 4.0):
            assert float((f_.diff(x, 2) + c_.diff(x) / x).subs(x, place)) == pytest.approx(0, abs=1e-12)
    for name, value, other in told.cases:
        assert name == "alpha"
        c_ = c.subs(a, sympy.Rational(value))
        f_ = sympy.S.Zero if other is None else of_x(to_sympy(other))
        assert sympy.simplify(sympy.diff(f_, x, 2) + c_.diff(x) / x) == 0
    assert "if alpha = " in str(verdict)
    assert find_objective_under(to_ring(R - 2 * k1), "q") == to_ring(R - 2 * k1 + 2)


def test_edges():
    assert [s.upper for s in find_convex_region(to_ring(r * k1))] == [(1, 1)]  # r >= 1/e
    assert find_convex_region(to_ring(k3))[0].lower == (0, 0) and not find_convex_region(to_ring(-k1))
    assert find_convex_region(to_ring(k1))[0].everywhere
    inside, outside = find_convex_region(to_ring(k1**3 - 3 * k1))
    assert inside.upper[1] < 0 < outside.lower[0]  # away from q = p
