"""Power series at q = p: coefficients, moments, remainders, refusals; the measured order of remainders."""

from __future__ import annotations

import random
from fractions import Fraction

import mpmath
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Rational, exp, sqrt

from klsym.derivations.tools.remainder_order import check_order, mean, moments
from klsym.derivations.tools.taylor import (
    Expansion,
    covariance_bound,
    expand,
    expanded_covariance,
    expectation_bound,
    expected_expansion,
    moment_name,
    show_series,
    variance,
)
from klsym.errors import NotInRing, UsageError
from klsym.language.convert import to_ring, to_sympy
from klsym.language.expressions import A, R, alpha, k, k1, k2, k3, lam, log_q, r, rho, sg

F = Fraction


# ---------------------------------------------------------------------------- series
COEFFICIENTS = [  # by hand
    (k1, [0, -1, F(1, 2), F(-1, 3), F(1, 4)]),
    (k2, [0, 0, F(1, 2), F(-1, 2), F(11, 24)]),
    (k3, [0, 0, F(1, 2), F(-1, 3), F(1, 4)]),
    (sg(k1) * k1, [0, 0, 1, -1, F(11, 12)]),
    (r, [1, 1, 0, 0, 0]),
    (r**3, [1, 3, 3, 1, 0]),
    (1 / r, [1, -1, 1, -1, 1]),
    (sqrt(r), [1, F(1, 2), F(-1, 8), F(1, 16), F(-5, 128)]),
    (r * k1, [0, -1, F(-1, 2), F(1, 6), F(-1, 12)]),
    (exp(k2), [1, 0, F(1, 2), F(-1, 2), F(7, 12)]),
    (k1**7, [0, 0, 0, 0, 0]),
    (sympy.Integer(5), [5, 0, 0, 0, 0]),
]


@pytest.mark.parametrize("loss, expected", COEFFICIENTS)
def test_coefficients(loss, expected):
    found = [to_sympy(c) for c in expand(loss, 5)]
    assert found == [Rational(c) for c in expected]
    assert [to_sympy(c) for c in expand(to_ring(loss), 3)] == found[:3]


def test_coefficients_hold_parameters():
    assert [to_sympy(c) for c in expand(k(lam), 3)] == [0, lam - 1, Rational(1, 2)]
    found = [sympy.expand(to_sympy(c)) for c in expand(r**alpha, 4)]
    assert found == [sympy.expand(sympy.ff(alpha, i) / sympy.factorial(i)) for i in range(4)]
    assert to_sympy(expand(exp(lam + k1), 2)[0]) == exp(lam)


def random_loss(rng):
    """A function of k1 as a SymPy expression, and the same as a function of eps in mpmath."""
    rows = [(F(rng.randint(-6, 6), rng.randint(1, 5)), rng.randint(0, 3), F(rng.randint(-6, 6), 2))
            for _ in range(rng.randint(1, 3))]  # fmt: skip
    loss = sum(Rational(c) * k1**j * r ** Rational(a) for c, j, a in rows)

    def number(eps):
        base = 1 + mpmath.mpf(eps)
        terms = ((-mpmath.log(base)) ** j * base ** (mpmath.mpf(a.numerator) / a.denominator)
                 for _, j, a in rows)  # fmt: skip
        return mpmath.fsum(c.numerator * t / c.denominator for (c, _, _), t in zip(rows, terms, strict=True))

    return sympy.sympify(loss), number


@pytest.mark.parametrize("seed", range(15))
def test_taylor_coefficients_agree(seed):
    loss, number = random_loss(random.Random(seed))
    with mpmath.workdps(60):
        numeric = mpmath.taylor(number, 0, 7)
        for found, expected in zip(expand(loss, 8), numeric, strict=True):
            assert abs(mpmath.mpf(sympy.N(to_sympy(found), 50)) - expected) < 1e-20


# ---------------------------------------------------------------------------- moments
def models(rng, outcomes):
    """q and r in rationals, of mean one, |r - 1| <= 1/2."""
    weights = [F(rng.randint(1, 9)) for _ in range(outcomes)]
    q = [w / sum(weights) for w in weights]
    raw = [F(rng.randint(-9, 9)) for _ in range(outcomes)]
    centred = [x - mean(q, raw) for x in raw]
    size = 2 * max(map(abs, centred)) or 1
    return q, [1 + x / size for x in centred]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 5), st.integers(0, 3), st.integers(0, 3))
def test_polynomials_are_exact(seed, outcomes, i, j):
    """A polynomial in r ends: its expectation and covariances are rational, with no remainder."""
    q, ratios = models(random.Random(seed), outcomes)
    a, b = r**i - 2 * r, 3 * r**j + r**2 / 2
    numbers = [[x**i - 2 * x for x in ratios], [3 * x**j + x**2 / 2 for x in ratios]]
    values = moments(q, ratios, 9)
    means = [mean(q, n) for n in numbers]
    assert expected_expansion(a, 8).evaluate(values) == means[0]
    product = mean(q, [x * y for x, y in zip(*numbers, strict=True)])
    assert expanded_covariance(a, b, 8).evaluate(values) == product - means[0] * means[1]
    assert variance(a, 8).evaluate(values) == mean(q, [(x - means[0]) ** 2 for x in numbers[0]])


TEXTS = [
    (expected_expansion(k2 - k1, 5), "-E[eps^3]/6 + 5*E[eps^4]/24 + O(eps^5)"),
    (expected_expansion(k1 + r * k1, 4), "-E[eps^3]/6 + O(eps^4)"),  # KL(q||p) - KL(p||q)
    (expected_expansion(r, 3), "1 + O(eps^3)"),
    (expected_expansion(r - 1, 3), "O(eps^3)"),
    (variance(k1, 3), "E[eps^2] + O(eps^3)"),
    (variance(k1, 4), "E[eps^2] - E[eps^3] + O(eps^4)"),
    (variance(k2, 5), "-E[eps^2]^2/4 + E[eps^4]/4 + O(eps^5)"),
    (variance(k3, 5), "-E[eps^2]^2/4 + E[eps^4]/4 + O(eps^5)"),
    (variance(k(lam), 3), "E[eps^2]*(lam - 1)^2 + O(eps^3)"),
    (expanded_covariance(k1, r - 1, 4), "-E[eps^2] + E[eps^3]/2 + O(eps^4)"),
    (expected_expansion(k3, 4) - expected_expansion(k2, 5), "E[eps^3]/6 + O(eps^4)"),
    (expanded_covariance(k1, 1 - r, 5) / variance(r, 5),
     "1 - E[eps^3]/(2*E[eps^2]) + E[eps^4]/(3*E[eps^2]) + O(eps^3)"),
    (expected_expansion(2 - 2 * lam + (alpha - lam) * k3, 3),
     "-2*(lam - 1) + E[eps^2]*(alpha - lam)/2 + O(eps^3)"),
    (expected_expansion(-alpha - lam, 3), "-alpha - lam + O(eps^3)"),
]  # fmt: skip


@pytest.mark.parametrize("expansion, text", TEXTS)
def test_text(expansion, text):
    assert str(expansion) == text


def test_latex():
    assert expected_expansion(k2 - k1, 4).latex == (
        r"-\frac{\mathbb{E}_{q}\!\left[\varepsilon^{3}\right]}{6} + O(\varepsilon^{4})"
    )
    assert variance(k(lam), 3).latex == (
        r"\mathbb{E}_{q}\!\left[\varepsilon^{2}\right] \left(\lambda - 1\right)^{2} + O(\varepsilon^{3})"
    )
    assert show_series(k1, 3) == r"-\varepsilon + \frac{\varepsilon^{2}}{2} + O(\varepsilon^{3})"
    assert show_series(k1**4, 3) == r"O(\varepsilon^{3})"


def test_coefficients_of_moments():
    found = variance(k2, 7)
    assert found.coefficient(4) == to_ring(Rational(1, 4)) == -found.coefficient(2, 2)
    assert not found.coefficient() and not found.coefficient(2, 2, 2)
    assert variance(k(lam), 3).coefficient(2) == to_ring((1 - lam) ** 2)
    assert moment_name(12) == "E[eps^12]"


# ---------------------------------------------------------------------------- remainders
def test_bounds_by_hand():
    assert expectation_bound(r**3, 3) == 1 and expectation_bound(r**3, 4) == 0
    assert expectation_bound(1 / r, 2) == pytest.approx(2, abs=1e-6)  # sum of 2^-i
    assert expectation_bound(k1, 1) == pytest.approx(float(2 * mpmath.log(2)), abs=1e-6)
    assert covariance_bound(r, r, 2) == 2 and covariance_bound(r, r, 3) == 0  # 2 sup|eps|^2


@pytest.mark.parametrize("seed", range(12))
def test_expectation_bounds_hold(seed):
    """Pointwise, which gives it for expectations: |f(eps) - series| <= C |eps|^n."""
    rng = random.Random(seed)
    loss, number = random_loss(rng)
    order = rng.randint(1, 6)
    constant = expectation_bound(loss, order)
    series = [mpmath.mpf(sympy.N(to_sympy(c), 40)) for c in expand(loss, order)]
    with mpmath.workdps(40):
        for point in [-F(1, 2), F(1, 2), *(F(rng.randint(-500, 500), 1000) for _ in range(20))]:
            eps = mpmath.mpf(point.numerator) / point.denominator
            gap = abs(number(eps) - sum(c * eps**i for i, c in enumerate(series)))
            assert gap <= float(constant) * abs(eps) ** order * (1 + 1e-12) + mpmath.mpf(10) ** -30
    coefficient = abs(to_sympy(expand(loss, order + 1)[order]))
    assert coefficient <= constant  # the bound is no less than the next coefficient


@pytest.mark.parametrize("seed", range(8))
def test_covariance_bounds_hold(seed):
    rng = random.Random(seed)
    (a, first), (b, second) = random_loss(rng), random_loss(rng)
    order = rng.randint(2, 6)
    constant, expansion = covariance_bound(a, b, order), expanded_covariance(a, b, order)
    for outcomes in (2, 3, 6):
        q, ratios = models(rng, outcomes)
        x, y = ([f(ratio.numerator / mpmath.mpf(ratio.denominator) - 1) for ratio in ratios]
                for f in (first, second))  # fmt: skip
        weights = [w.numerator / mpmath.mpf(w.denominator) for w in q]
        exact = mean(weights, [s * t for s, t in zip(x, y, strict=True)]) - mean(weights, x) * mean(
            weights, y
        )
        gap = abs(exact - float(expansion.evaluate(moments(q, ratios, order + 1))))
        limit = constant * max(abs(ratio - 1) for ratio in ratios) ** order
        assert gap <= float(limit) + 1e-11


# ---------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    "loss, message",
    [(rho * k1, "w is no function of k1"), (log_q, "log_q is no"), (R, "R is no"), (A * k1, "A is no"),
     (1 / k1, "1/k1"), (k1 ** (-2), "1/k1"), (sympy.Symbol("s", commutative=True) * k1, "s is no")],
)  # fmt: skip
def test_losses_are_refused(loss, message):
    for call in (expand, expected_expansion, variance):
        with pytest.raises(UsageError, match=message) as error:
            call(loss, 4)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("order", [0, -1, 65, 2.0, True, "3", None])
def test_orders_are_refused(order):
    with pytest.raises(UsageError, match="order: an integer from 1 to 64"):
        expand(k1, order)


def test_losses_outside_the_ring_are_refused():
    with pytest.raises(NotInRing):
        expand(sympy.log(1 + r), 3)
    with pytest.raises(UsageError, match="str"):
        expand("k1", 3)


@pytest.mark.parametrize("loss", [lam * k1, r**lam, exp(k2), sympy.E * k1])
def test_bounds_need_rational_numbers(loss):
    for call in (lambda: expectation_bound(loss, 3), lambda: covariance_bound(r, loss, 3)):
        with pytest.raises(UsageError, match="a remainder is bounded for"):
            call()


@pytest.mark.parametrize(
    "over, below, message",
    [
        (expected_expansion(k1, 4), variance(k1, 4), "single multiple"),
        (expected_expansion(k1, 4), expected_expansion(k1**3, 4), "single multiple"),
        (
            expected_expansion(k1, 4),
            expected_expansion(lam * r**2 - lam, 4) - expected_expansion((r - 1) ** 2, 4),
            "single",
        ),
        (expected_expansion(k1, 5), variance(r, 4), "known order"),
        (expected_expansion(r * k1 + 1, 4), variance(r, 4), "known order"),
    ],
)
def test_quotients_are_refused(over, below, message):
    with pytest.raises(UsageError, match=message):
        over / below


def test_values_need_no_exponentials():
    with pytest.raises(UsageError, match="exponentials"):
        Expansion(to_ring(exp(lam)), 2).evaluate({"lam": 1})


# ---------------------------------------------------------------------------- measured orders
def kl(q, ratios):
    return mean(q, [-mpmath.log(x) for x in ratios])


@pytest.mark.parametrize(
    "coefficients, order, passed",
    [((F(1, 2), F(-1, 3)), 4, True), ((F(1, 2), F(-1, 3)), 3, True), ((F(1, 2), F(-1, 3)), 5, False),
     ((F(1, 2), F(-1, 4)), 4, False), ((F(1, 3), F(-1, 3)), 3, False), ((F(1, 2), 0), 3, True)],
)  # fmt: skip
def test_measured_orders_tell_right_from_wrong(coefficients, order, passed):
    def approximate(q, ratios):
        values = moments(q, ratios, 3)
        return sum(mpmath.mpf(F(c).numerator) / F(c).denominator * values[moment_name(i)]
                   for i, c in enumerate(coefficients, start=2))  # fmt: skip

    assert check_order(kl, approximate, order)[0] is passed


@pytest.mark.parametrize("scale, passed", [(1, True), (F(1, 4), False)])
def test_measured_remainders_are_held_against_their_bound(scale, passed):
    def bound(q, ratios):
        return float(scale * expectation_bound(k1, 2)) * mean(q, [(x - 1) ** 2 for x in ratios])

    assert check_order(kl, lambda q, ratios: 0, 2, bound)[0] is passed
