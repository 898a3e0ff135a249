"""Gaussian expectations, exact and in floats: the ledger's numbers, quadrature, derivatives, refusals."""

from __future__ import annotations

import random
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import sympy
from sympy import Rational, exp, oo, sqrt

from klsym.errors import NotInRing, UsageError
from klsym.kernel.ring import ExpPoly
from klsym.language.convert import to_ring
from klsym.language.expressions import A, R, k, k1, k2, k3, lam, log_p, log_q, r, rho, s, sg
from klsym.study.gaussian.floats import GaussianSetting
from klsym.study.gaussian.models import (
    Divergent,
    Gaussian,
    build_table,
    compute_expectation,
    compute_log_ratio,
    compute_variance,
)
from support.scale import scaled

d = sympy.Symbol("d", real=True)
v, v2 = sympy.symbols("v v2", positive=True)
w = sympy.log(rho)
STANDARD = Gaussian(0, 1)
STEP = 1e-30
PAIRS = ((0.2, 1.3), (-0.4, 1.1), (0.5, 1.6))  # q, p, mu
SETTING = GaussianSetting(*PAIRS, {"lam": 0.7})
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
    rows = build_table(q, p)
    assert list(rows) == ["k1", "k2", "k3"]
    assert rows["k1"].mean == rows["k3"].mean == kl
    assert [row.bias_over_true for row in rows.values()] == [0, bias, 0]
    for row, expected in zip(rows.values(), deviations, strict=True):
        assert same(row.sd_over_true, expected) and same(row.sd, expected * kl)
        assert row.condition is sympy.true


def test_an_infinite_variance_is_told():
    row = build_table(STANDARD, Gaussian(0, 2))["k3"]
    assert row.sd == row.sd_over_true == oo and row.condition is sympy.false


def test_the_moments_of_r():
    """E_q[r^n] is finite iff sigma_q^2 > (1 - 1/n) sigma_p^2, in text, in symbols and at the edge."""
    for n in range(2, 7):
        [condition] = compute_expectation(r**n, Gaussian(0, v), Gaussian(d, v2)).conditions
        bound = 1 - Rational(1, n)
        assert condition.text == f"sigma_q^2 > ({bound}) sigma_p^2"
        assert condition.holds.subs({v: bound * v2}) is sympy.false
        assert condition.holds.subs({v: bound * v2 + 1}).simplify() is sympy.true
        with pytest.raises(Divergent) as error:
            compute_expectation(r**n, Gaussian(0, bound), Gaussian(1, 1))
        assert error.value.condition.text == condition.text
        assert compute_expectation(
            r**n, Gaussian(0, bound + Rational(1, 1000)), Gaussian(1, 1)
        ).value.is_finite


@pytest.mark.parametrize("loss, value", [(r, 1), (k1, None), (r * k1, None)])
def test_sure_moments_have_no_condition(loss, value):
    found = compute_expectation(loss, Gaussian(d, v), Gaussian(0, v2))
    assert found.conditions == () and (value is None or same(found.value, value))


def test_symbolic_kl_and_its_mirror():
    q, p = Gaussian(d, v), Gaussian(0, v2)
    kl = (sympy.log(v2 / v) + (v + d**2) / v2 - 1) / 2
    assert same(sympy.expand_log(compute_expectation(k1, q, p).value - kl), 0)
    assert same(sympy.expand_log(compute_expectation(k3, q, p).value - kl), 0)
    reverse = compute_expectation(k1, p, q).value  # E_q[-r k1] = KL(p||q) by change of measure
    assert same(sympy.expand_log(compute_expectation(-r * k1, q, p).value - reverse), 0)


def test_change_of_measure():
    q, p, mu = Gaussian(0, 1), Gaussian(1, 2), Gaussian(Rational(1, 2), Rational(5, 4))
    assert same(
        compute_expectation(sg(rho) * k2, q, p, mu, under=mu).value, compute_expectation(k2, q, p).value
    )
    assert (
        compute_expectation(rho * k2, q, p).value == compute_expectation(k2, q, p).value
    )  # on-policy rho is one
    with pytest.raises(Divergent, match=r"sigma_mu\^2 > \(1/2\) sigma_q\^2"):
        compute_expectation(rho**2, Gaussian(0, 2), mu=STANDARD, under=STANDARD)


def test_terms_that_cancel_do_not_diverge():
    p = Gaussian(0, 5)
    with pytest.raises(Divergent):
        compute_expectation(r**3 - r**2 * rho, STANDARD, p, mu=p)  # r^3 against r
    assert compute_expectation(r**2 - rho**-2, STANDARD, p, mu=p, under=STANDARD).value == 0  # p = mu
    parts = to_ring(r**2) - to_ring(r**2)
    assert compute_expectation(parts, STANDARD, p).value == 0


def test_log_ratio_is_the_quadratic():
    x = sympy.Symbol("x", real=True)
    assert compute_log_ratio(STANDARD, Gaussian(0, 4)) == -3 * x**2 / 8 + sympy.log(4) / 2
    assert compute_log_ratio(STANDARD, STANDARD) == 0


# ---------------------------------------------------------------------------- quadrature
def quadrature(loss, gaussians, under, score=()):
    """The integral over [-60, 60], from the densities of q, p, mu; loss is a function of k1, w, log q."""
    pairs = [[mpmath.mpf(c.numerator) / c.denominator for c in map(Fraction, g)] for g in gaussians]

    def log_density(g, t):
        return -((t - g[0]) ** 2) / (2 * g[1]) - mpmath.log(2 * mpmath.pi * g[1]) / 2

    def integrand(t):
        a, b, c = (log_density(g, t) for g in pairs)
        m, u = pairs[0]
        slopes = ((t - m) / u, (t - m) ** 2 / u - 1)
        factor = mpmath.fprod(slopes[i] for i in score)
        return loss(a - b, a - c, a) * factor * mpmath.exp((a, b, c)[["q", "p", "mu"].index(under)])

    return mpmath.quad(integrand, [-60, -25, *range(-12, 13, 3), 25, 60])


def random_loss(rng):
    """A loss as a SymPy expression, and the same as a function of numbers k1, w, log q."""
    rows = [
        (Fraction(rng.randint(-6, 6), rng.randint(1, 5)), rng.randint(0, 3), rng.randint(0, 2),
         rng.randint(0, 1), Fraction(rng.randint(-3, 3), 2), Fraction(rng.randint(-2, 2), 2))
        for _ in range(rng.randint(1, 4))
    ]  # fmt: skip
    loss = sum((Rational(c) * k1**i * w**j * log_q**h * r ** Rational(a) * rho ** Rational(b))
               for c, i, j, h, a, b in rows)  # fmt: skip

    def number(k, w, lq):
        return sum(mpmath.mpf(c.numerator) / c.denominator * k**i * w**j * lq**h
                   * mpmath.exp(-k * a.numerator / a.denominator + w * b.numerator / b.denominator)
                   for c, i, j, h, a, b in rows)  # fmt: skip

    return sympy.sympify(loss), number


def random_pairs(rng):
    return [(Fraction(rng.randint(-5, 5), 4), Fraction(rng.randint(5, 10), 6)) for _ in range(3)]


def exactly(loss, pairs, under):
    """The exact expectation, with p, q and mu as Gaussians."""
    q, p, mu = (Gaussian(*pair) for pair in pairs)
    return compute_expectation(loss, q, p, mu, under={"q": q, "p": p, "mu": mu}[under])


def in_floats(pairs, weight=0.0):
    return GaussianSetting(*((float(m), float(u)) for m, u in pairs), {"lam": float(weight)})


@pytest.mark.parametrize("seed", range(scaled(8, 3)))
def test_quadrature_agrees(seed):
    rng = random.Random(seed)
    pairs, under = random_pairs(rng), rng.choice(["q", "p", "mu"])
    loss, number = random_loss(rng)
    exact = exactly(loss, pairs, under)
    assert exact.finite is sympy.true
    with mpmath.workdps(20):
        numeric, value = quadrature(number, pairs, under), mpmath.mpf(sympy.N(exact.value, 30))
        assert abs(numeric - value) < mpmath.mpf(10) ** -10 * (1 + abs(value))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.share(3)
def test_floats_agree_with_symbols(seed):
    rng = random.Random(seed)
    pairs, under, weight = random_pairs(rng), rng.choice(["q", "p", "mu"]), Fraction(rng.randint(-4, 4), 3)
    loss = random_loss(rng)[0] * lam ** rng.randint(0, 1) + lam * k1
    if not in_floats(pairs, 1).is_finite(under, to_ring(loss)):
        with pytest.raises(Divergent):
            exactly(loss, pairs, under)
        return
    exact = float(sympy.N(exactly(loss, pairs, under).value.subs(lam, Rational(weight)), 20))
    value = in_floats(pairs, weight).compute_expectation(under, to_ring(loss))
    assert isinstance(value, float) and value == pytest.approx(exact, rel=1e-11, abs=1e-11)


def test_quadrature_agrees_on_variances_with_a_parameter():
    pairs = [(Fraction(1, 3), Fraction(1)), (Fraction(-1, 4), Fraction(3, 2))]
    value = compute_variance(k1 + lam * (r - 1), *(Gaussian(*g) for g in pairs)).value
    for weight in (Fraction(0), Fraction(1), Fraction(-2, 3)):
        x = mpmath.mpf(weight.numerator) / weight.denominator
        powers = [
            quadrature(
                lambda k, _, __, n=n, x=x: (k + x * (mpmath.exp(-k) - 1)) ** n, [*pairs, pairs[0]], "q"
            )
            for n in (1, 2)
        ]
        exact = mpmath.mpf(sympy.N(value.subs(lam, Rational(weight)), 30))
        assert abs(powers[1] - powers[0] ** 2 - exact) < 1e-11


def test_a_ring_element_serves_as_well():
    element = ExpPoly.from_variable("k1")
    assert compute_expectation(element * element, STANDARD, Gaussian(1, 1)).value == Rational(5, 4)


CASES = [  # loss, as a function of k1, w, log q, measure, score
    (k1, lambda k, w, lq: k, "q", (0,)),
    (rho * k3, lambda k, w, lq: mpmath.exp(w) * (mpmath.exp(-k) - 1 + k), "mu", (1,)),
    (sg(rho) * k2, lambda k, w, lq: mpmath.exp(w) * k**2 / 2, "mu", (0, 1)),
    (k2**2 * log_q, lambda k, w, lq: k**4 / 4 * lq, "p", (1, 1)),
    (r**2 / rho, lambda k, w, lq: mpmath.exp(-2 * k - w), "q", (0, 0, 1)),
]


@pytest.mark.parametrize("loss, number, measure, score", CASES)
def test_quadrature_agrees_with_score_functions(loss, number, measure, score):
    numeric = quadrature(number, PAIRS, measure, score)
    assert SETTING.compute_expectation(measure, to_ring(loss), score) == pytest.approx(
        float(numeric), rel=1e-12
    )


def test_an_exponential_of_a_quadratic():
    """With equal variances k1 is linear, so exp(-k1^2/7) is a Gaussian factor."""
    pairs = ((0.2, 1.3), (-0.4, 1.3), (0.5, 1.6))
    numeric = quadrature(lambda k, w, lq: mpmath.exp(-(k**2) / 7) * w, pairs, "mu", (1,))
    value = GaussianSetting(*pairs).compute_expectation("mu", to_ring(exp(-(k1**2) / 7) * w), (1,))
    assert value == pytest.approx(float(numeric), rel=1e-12)
    with pytest.raises(UsageError, match="degree 4"):
        SETTING.compute_expectation("mu", to_ring(exp(-(k1**2) / 7)))


def test_far_tilts_keep_their_digits():
    """E_q[r^2] = exp(d^2) for unit variances; the tilted mean lies 20 deviations out."""
    setting = GaussianSetting((0.0, 1.0), (10.0, 1.0))
    assert setting.compute_expectation("q", to_ring(r**2)) == pytest.approx(float(np.exp(100.0)), rel=1e-13)
    tilted = setting.compute_expectation("q", to_ring(r**2 * (k1 + 150) ** 4))  # k1 = 50 - 10 x, x ~ N(20, 1)
    assert tilted == pytest.approx(3e4 * float(np.exp(100.0)), rel=1e-12)


# ---------------------------------------------------------------------------- derivatives
def test_the_complex_step_is_the_derivative():
    """d/dtheta E_q[a] = E_q[a s] + E_q[da/dtheta], the detached twins and mu staying put."""
    for index in (0, 1):
        m, v = SETTING.q
        moved = (m + STEP * 1j, v) if index == 0 else (m, v * (1 + 2j * STEP))  # d/dm, d/d log sd
        at = GaussianSetting(moved, SETTING.p, SETTING.mu, SETTING.parameters, still=SETTING)
        derivative = {
            ("q", k1): to_ring(k1),  # + E_q[s] = 0
            ("mu", rho * k3): to_ring(rho * k1),
            ("mu", sg(rho) * k2): to_ring(rho * k1),
            ("mu", rho * k2): to_ring(rho * (k1 + k2)),
            ("mu", sg(k1) * log_q + k(lam)): to_ring(k1 + 1 - lam * r),
        }
        for (measure, loss), slope in derivative.items():
            found = at.compute_expectation(measure, to_ring(loss))
            assert isinstance(found, complex)
            expected = SETTING.compute_expectation(measure, slope, (index,))
            assert found.imag / STEP == pytest.approx(expected, rel=1e-12, abs=1e-13)
            assert found.real == pytest.approx(SETTING.compute_expectation(measure, to_ring(loss)), rel=1e-13)


def test_on_policy_the_sampler_is_the_still_q():
    """Without mu, rho = q/sg(q): value 1, derivative s."""
    still = GaussianSetting((0.3, 0.8), (0.0, 1.0))
    assert still.compute_expectation("mu", to_ring(rho)) == 1.0
    moved = GaussianSetting((0.3 + STEP * 1j, 0.8), (0.0, 1.0), still=still)
    found = moved.compute_expectation("mu", to_ring(rho * k1))
    assert found.imag / STEP == pytest.approx(still.compute_expectation("q", to_ring(k1), (0,)), rel=1e-12)
    assert moved.compute_expectation("q", to_ring(sg(k1))).imag / STEP == pytest.approx(found.imag / STEP)


# ---------------------------------------------------------------------------- finiteness
@pytest.mark.parametrize("power", [2, 3, Fraction(5, 2), 7])
@pytest.mark.parametrize("variance", [1.0, 0.3, 1.7])
def test_moments_of_r_are_finite_up_to_the_edge(power, variance):
    """E_q[r^n] is finite iff v_q > (1 - 1/n) v_p."""
    edge = variance / (1 - 1 / float(power))
    loss = to_ring(r ** Rational(power))
    for scale, finite in ((0.5, True), (1 - 1e-9, True), (1.0, False), (1 + 1e-9, False), (5, False)):
        setting = GaussianSetting((0.1, variance), (0.1, edge * scale))
        assert setting.is_finite("q", loss) is finite
        if finite:
            assert setting.compute_expectation("q", loss) > 0
        else:
            with pytest.raises(Divergent, match=r"needs 1 - 2 a v > 0 \(a = .*which is false here") as error:
                setting.compute_expectation("q", loss)
            assert not error.value.condition.holds


def test_finiteness_of_floats_is_that_of_symbols():
    rng, verdicts = random.Random(5), set()
    for _ in range(60):
        pairs = [(Fraction(rng.randint(-2, 2)), Fraction(rng.randint(1, 8), 3)) for _ in range(3)]
        loss = k1 ** rng.randint(0, 1) * r ** rng.randint(-2, 3) * rho ** rng.randint(-2, 3)
        under, finite = rng.choice(["q", "p", "mu"]), True
        try:
            exactly(loss, pairs, under)
        except Divergent:
            finite = False
        assert in_floats(pairs).is_finite(under, to_ring(loss)) is finite
        verdicts.add(finite)
    assert verdicts == {True, False}


def test_terms_that_cancel_do_not_diverge_in_floats():
    wide = GaussianSetting((0.1, 0.3), (0.7, 0.9), (0.7, 0.9))  # p = mu
    assert wide.compute_expectation("q", to_ring(r**2 - rho**-2 + k1)) == wide.compute_expectation(
        "q", to_ring(k1)
    )
    assert not wide.is_finite("q", to_ring(r**2 - 2 * rho**-2))
    assert not wide.is_finite("q", to_ring(r**2 - rho**-2 * k1))
    assert wide.is_finite("q", to_ring(r**2 - sg(r) ** 2))
    moved = GaussianSetting((0.1, 0.3 + STEP * 1j), (0.7, 0.9), still=wide)
    assert not moved.is_finite("q", to_ring(r**2 - sg(r) ** 2))  # zero, with a divergent derivative


# ---------------------------------------------------------------------------- refusals
WIDE = Gaussian(0, 3)
PARAMETERS = [
    (0, 0), (0, -1), (0.5, -1.0), (0, 0.0), ("0", 1), (0, None), (0, oo), (oo, 1), (sympy.I, 1), (0, d),
    (True, 1), (sympy.Symbol("m"), 1), (0, sympy.nan), (sympy.Symbol("x", real=True), 1),
]  # fmt: skip
SETTINGS = [
    (((0.0, 0.0),), "variance of q is positive"), (((0.0, -1.0 + 1j),), "variance of q is positive"),
    (((0.0,),), "q is a pair"), ((0.0,), "q is a pair"), ((("0", 1.0),), "mean of q is a finite"),
    (((0.0, 1.0), (float("nan"), 1.0)), "mean of p is a finite"),
    (((0.0, 1.0), (True, 1.0)), "mean of p is a finite"), (((0.0, 1.0), None, (0.0, float("inf"))), "mu"),
    (((0.0, 1.0), None, None, {"lam": "1"}), "parameter lam"),
    (((0.0, 1.0), None, None, {}, 3), "still is a GaussianSetting"),
]  # fmt: skip
LOSSES = [
    (1 / k1, "1/k1"), (R * k1, "R is no"), (A, "A is no"), (s * k1, "s is no"), (exp(k2), "degree 4"),
    (sympy.Function("g")(k1), "generic function g|no parameter"), (k1**300, "degree"),
]  # fmt: skip
SYMBOLIC = [(1j * k1, "no exp"), (sympy.log(1 + r), "no exponential"), ("k1", "str"), (r**4, r"\(3/4\)")]
NOUGHT = GaussianSetting((0.0, 1.0), parameters={"lam": 0.0})
REFUSED = [
    *((lambda pair=pair: Gaussian(*pair), "^.{10}") for pair in PARAMETERS),
    *((lambda given_=given_: GaussianSetting(*given_), words) for given_, words in SETTINGS),
    *(
        (lambda loss=loss: compute_expectation(loss, STANDARD, WIDE), words)
        for loss, words in [*LOSSES, *SYMBOLIC]
    ),
    *((lambda loss=loss: SETTING.compute_expectation("q", to_ring(loss)), words) for loss, words in LOSSES),
    (lambda: build_table(STANDARD, STANDARD), "KL divergence is zero"),
    (lambda: compute_expectation(k1, STANDARD, 1), "p is a Gaussian, got int"),
    (lambda: compute_expectation(k1, None), "q is a Gaussian, got NoneType"),
    (lambda: compute_expectation(log_p, STANDARD), "give the Gaussian p"),
    (lambda: GaussianSetting((0.0, 1.0)).compute_expectation("q", to_ring(k1)), "give the Gaussian p$"),
    (lambda: SETTING.compute_expectation("x", ExpPoly.from_number(1)), "no Gaussian is called 'x'"),
    (lambda: SETTING.compute_expectation("q", ExpPoly.from_number(1), (2,)), "score is 0"),
    (lambda: SETTING.compute_expectation("q", to_ring(sympy.Symbol("beta") * k1)), "for beta"),
    (
        lambda: GaussianSetting((0.0, 1.0), (60.0, 1.0)).compute_expectation("q", to_ring(r**2)),
        "beyond the range",
    ),
    (lambda: NOUGHT.compute_expectation("q", to_ring(1 / lam)), "lam is zero"),
]


@pytest.mark.parametrize("refuse, words", REFUSED)
def test_refusals_are_one_line(refuse, words):
    with pytest.raises((UsageError, NotInRing), match=words) as caught:
        refuse()
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, Divergent) is (words == r"\(3/4\)")
