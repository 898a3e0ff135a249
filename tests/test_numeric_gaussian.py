"""Exact Gaussian expectations: the ledger's numbers, finiteness, refusals, and numerical quadrature."""

from __future__ import annotations

import random
from fractions import Fraction

import mpmath
import pytest
import sympy
from sympy import Rational, exp, oo, sqrt

from klsym.convert import to_ring
from klsym.errors import NotInRing, UsageError
from klsym.language import A, R, k1, k2, k3, lam, log_p, log_q, r, rho, s, sg
from klsym.numeric.gaussian import Divergent, Gaussian, expect, log_ratio, table, variance
from klsym.ring import ExpPoly

d = sympy.Symbol("d", real=True)
v, v2 = sympy.symbols("v v2", positive=True)
STANDARD = Gaussian(0, 1)
TABLES = {
    "near": (
        Fraction(1, 10), Rational(1, 200), Rational(1, 400),
        (20, sqrt(804) / 20, 200 * sqrt(exp(Rational(1, 100)) - Rational(101, 100))),
    ),
    "far": (1, Rational(1, 2), Rational(1, 4), (2, sqrt(3), 2 * sqrt(sympy.E - 2))),
}  # fmt: skip


def same(a, b):
    return sympy.simplify(a - b) == 0


# ---------------------------------------------------------------------------- the ledger
@pytest.mark.parametrize("name", TABLES)
def test_schulmans_table_is_exact(name):
    mean, kl, bias, deviations = TABLES[name]
    q, p = STANDARD, Gaussian(mean, 1)
    rows = table(q, p)
    assert list(rows) == ["k1", "k2", "k3"]
    assert rows["k1"].mean == rows["k3"].mean == kl
    assert [row.bias_over_true for row in rows.values()] == [0, bias, 0]
    for row, expected in zip(rows.values(), deviations, strict=True):
        assert same(row.sd_over_true, expected) and same(row.sd, expected * kl)
        assert row.condition is sympy.true


def test_the_crossover_of_k1_and_k3():
    """Var k3 = e^u - 1 - u and Var k1 = u with u = d^2: they cross at u* = -1/2 - W_{-1}(-exp(-1/2)/2)."""
    far = Gaussian(d, 1)
    assert same(variance(k1, STANDARD, far).value, d**2)
    assert same(variance(k3, STANDARD, far).value, exp(d**2) - 1 - d**2)
    u = -Rational(1, 2) - sympy.LambertW(-exp(-Rational(1, 2)) / 2, -1)
    assert abs(sympy.N((exp(u) - 1 - u) - u, 30)) < 1e-25 and abs(sympy.N(u) - 1.2564) < 1e-4


def test_heavy_tails():
    """N(0,1) against N(0,v): Var k1 is always finite, Var k3 if and only if v < 2."""
    wide = Gaussian(0, v)
    assert variance(k1, STANDARD, wide).finite is sympy.true
    finite = variance(k3, STANDARD, wide).finite
    for value in (Rational(1, 9), 1, Rational(199, 100), 2, Rational(201, 100), 50):
        p = Gaussian(0, value)
        assert finite.subs(v, value) == sympy.sympify(value < 2)
        assert variance(k1, STANDARD, p).value == (1 - 1 / sympy.S(value)) ** 2 / 2
        if value < 2:
            assert variance(k3, STANDARD, p).value.is_finite
        else:
            with pytest.raises(Divergent, match=r"needs sigma_q\^2 > \(1/2\) sigma_p\^2, which is false"):
                variance(k3, STANDARD, p)
    row = table(STANDARD, Gaussian(0, 2))["k3"]
    assert row.sd == row.sd_over_true == oo and row.condition is sympy.false


def test_the_moments_of_r():
    """E_q[r^n] is finite iff sigma_q^2 > (1 - 1/n) sigma_p^2, in text, in symbols and at the edge."""
    for n in range(2, 7):
        [condition] = expect(r**n, Gaussian(0, v), Gaussian(d, v2)).conditions
        bound = 1 - Rational(1, n)
        assert condition.text == f"sigma_q^2 > ({bound}) sigma_p^2"
        assert condition.holds.subs({v: bound * v2}) is sympy.false
        assert condition.holds.subs({v: bound * v2 + 1}).simplify() is sympy.true
        with pytest.raises(Divergent) as error:
            expect(r**n, Gaussian(0, bound), Gaussian(1, 1))
        assert error.value.condition.text == condition.text
        assert expect(r**n, Gaussian(0, bound + Rational(1, 1000)), Gaussian(1, 1)).value.is_finite


@pytest.mark.parametrize("loss, value", [(r, 1), (k1, None), (r * k1, None)])
def test_sure_moments_have_no_condition(loss, value):
    found = expect(loss, Gaussian(d, v), Gaussian(0, v2))
    assert found.conditions == () and (value is None or same(found.value, value))


def test_symbolic_kl_and_its_mirror():
    q, p = Gaussian(d, v), Gaussian(0, v2)
    kl = (sympy.log(v2 / v) + (v + d**2) / v2 - 1) / 2
    assert same(sympy.expand_log(expect(k1, q, p).value - kl), 0)
    assert same(sympy.expand_log(expect(k3, q, p).value - kl), 0)
    reverse = expect(k1, p, q).value  # E_q[-r k1] = KL(p||q) by change of measure
    assert same(sympy.expand_log(expect(-r * k1, q, p).value - reverse), 0)


def test_change_of_measure():
    q, p, mu = Gaussian(0, 1), Gaussian(1, 2), Gaussian(Rational(1, 2), Rational(5, 4))
    assert same(expect(sg(rho) * k2, q, p, mu, under=mu).value, expect(k2, q, p).value)
    assert expect(rho * k2, q, p).value == expect(k2, q, p).value  # on-policy rho is one
    with pytest.raises(Divergent, match=r"sigma_mu\^2 > \(1/2\) sigma_q\^2"):
        expect(rho**2, Gaussian(0, 2), mu=STANDARD, under=STANDARD)


def test_terms_that_cancel_do_not_diverge():
    p = Gaussian(0, 5)
    with pytest.raises(Divergent):
        expect(r**3 - r**2 * rho, STANDARD, p, mu=p)  # r^3 against r
    assert expect(r**2 - rho**-2, STANDARD, p, mu=p, under=STANDARD).value == 0  # p = mu
    parts = to_ring(r**2) - to_ring(r**2)
    assert expect(parts, STANDARD, p).value == 0


def test_log_ratio_is_the_quadratic():
    x = sympy.Symbol("x", real=True)
    assert log_ratio(STANDARD, Gaussian(0, 4)) == -3 * x**2 / 8 + sympy.log(4) / 2
    assert log_ratio(STANDARD, STANDARD) == 0


# ---------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    "mean, spread",
    [(0, 0), (0, -1), (0.5, 1), (0, 1.0), ("0", 1), (0, None), (0, oo), (oo, 1), (sympy.I, 1), (0, d),
     (True, 1), (sympy.Symbol("m"), 1), (0, sympy.nan), (sympy.Symbol("x", real=True), 1)],
)  # fmt: skip
def test_gaussians_are_validated(mean, spread):
    with pytest.raises(UsageError) as error:
        Gaussian(mean, spread)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "loss, error",
    [(1 / k1, "1/k1"), (R * k1, "R is no"), (A, "A is no"), (s * k1, "s is no"), (0.5 * k1, "float"),
     (exp(k2), "degree 4"), (sympy.Function("g")(k1), "generic function g"), (k1**300, "degree"),
     (sympy.log(1 + r), "no exponential"), ("k1", "str"), (r**4, r"\(3/4\)"), (log_p, None)],
)  # fmt: skip
def test_losses_are_refused_in_one_line(loss, error):
    if error is None:
        with pytest.raises(UsageError, match="give the Gaussian p"):
            expect(loss, STANDARD)
        return
    with pytest.raises((UsageError, NotInRing), match=error) as caught:
        expect(loss, STANDARD, Gaussian(0, 3))
    assert "\n" not in str(caught.value)


def test_other_refusals():
    with pytest.raises(UsageError, match="KL divergence is zero"):
        table(STANDARD, STANDARD)
    with pytest.raises(UsageError, match="p is a Gaussian, got int"):
        expect(k1, STANDARD, 1)
    with pytest.raises(UsageError, match="q is a Gaussian, got NoneType"):
        expect(k1, None)


# ---------------------------------------------------------------------------- quadrature
def quadrature(loss, q, p, mu, under):
    """The integral over [-60, 60], from the densities alone."""

    def log_density(g, t):
        return -((t - g[0]) ** 2) / (2 * g[1]) - mpmath.log(2 * mpmath.pi * g[1]) / 2

    q, p, mu, under = ([mpmath.mpf(c.numerator) / c.denominator for c in g] for g in (q, p, mu, under))

    def integrand(t):
        a, b, c = (log_density(g, t) for g in (q, p, mu))
        return loss(a - b, a - c, a) * mpmath.exp(log_density(under, t))

    return mpmath.quad(integrand, [-60, -25, *range(-12, 13, 3), 25, 60])


def random_loss(rng):
    """A loss as a SymPy expression, and the same as a function of numbers k1, w, log q."""
    rows = [
        (Fraction(rng.randint(-6, 6), rng.randint(1, 5)), rng.randint(0, 3), rng.randint(0, 2),
         rng.randint(0, 1), Fraction(rng.randint(-3, 3), 2), Fraction(rng.randint(-2, 2), 2))
        for _ in range(rng.randint(1, 4))
    ]  # fmt: skip
    w = sympy.log(rho)
    loss = sum((Rational(c) * k1**i * w**j * log_q**h * r ** Rational(a) * rho ** Rational(b))
               for c, i, j, h, a, b in rows)  # fmt: skip

    def number(k, w, lq):
        return sum(mpmath.mpf(c.numerator) / c.denominator * k**i * w**j * lq**h
                   * mpmath.exp(-k * a.numerator / a.denominator + w * b.numerator / b.denominator)
                   for c, i, j, h, a, b in rows)  # fmt: skip

    return sympy.sympify(loss), number


@pytest.mark.parametrize("seed", range(20))
def test_quadrature_agrees(seed):
    rng = random.Random(seed)
    gaussians = [(Fraction(rng.randint(-5, 5), 4), Fraction(rng.randint(5, 10), 6)) for _ in range(3)]
    q, p, mu = (Gaussian(*g) for g in gaussians)
    index = rng.choice([0, 1, 2])
    loss, number = random_loss(rng)
    exact = expect(loss, q, p, mu, under=(q, p, mu)[index])
    assert exact.finite is sympy.true
    with mpmath.workdps(20):
        numeric = quadrature(number, *gaussians, gaussians[index])
        value = mpmath.mpf(sympy.N(exact.value, 30))
        assert abs(numeric - value) < mpmath.mpf(10) ** -10 * (1 + abs(value))


def test_quadrature_agrees_on_variances_with_a_parameter():
    gaussians = [(Fraction(1, 3), Fraction(1)), (Fraction(-1, 4), Fraction(3, 2))]
    q, p = (Gaussian(*g) for g in gaussians)
    value = variance(k1 + lam * (r - 1), q, p).value
    for weight in (Fraction(0), Fraction(1), Fraction(-2, 3)):
        w = mpmath.mpf(weight.numerator) / weight.denominator
        powers = [
            quadrature(lambda k, _, __, n=n, w=w: (k + w * (mpmath.exp(-k) - 1)) ** n,
                       *gaussians, gaussians[0], gaussians[0])
            for n in (1, 2)
        ]  # fmt: skip
        exact = mpmath.mpf(sympy.N(value.subs(lam, Rational(weight)), 30))
        assert abs(powers[1] - powers[0] ** 2 - exact) < 1e-11


def test_quadrature_agrees_on_the_symbolic_variance_of_k3():
    value = variance(k3, Gaussian(0, v), Gaussian(d, v2)).value
    gaussians = [(Fraction(0), Fraction(7, 5)), (Fraction(2, 3), Fraction(8, 5))]
    first, second = (
        quadrature(lambda k, _, __, n=n: (mpmath.exp(-k) - 1 + k) ** n, *gaussians, *gaussians[:1] * 2)
        for n in (1, 2)
    )
    exact = sympy.N(value.subs({v: Rational(7, 5), d: Rational(2, 3), v2: Rational(8, 5)}), 30)
    assert abs(second - first**2 - mpmath.mpf(exact)) < 1e-11


def test_a_ring_element_serves_as_well():
    k = ExpPoly.variable("k1")
    assert expect(k * k, STANDARD, Gaussian(1, 1)).value == Rational(5, 4)
