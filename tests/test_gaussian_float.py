"""Gaussian expectations in floating point: SymPy's closed form, quadrature, derivatives, refusals."""

from __future__ import annotations

import random
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Rational, exp

from klsym.convert import to_ring
from klsym.errors import UsageError
from klsym.language import A, R, k, k1, k2, k3, lam, log_q, r, rho, s, sg
from klsym.numeric.gaussian import Divergent, Gaussian, expect
from klsym.numeric.gaussian_float import GaussianSetting
from klsym.ring import ExpPoly

w = sympy.log(rho)
STEP = 1e-30
SETTING = GaussianSetting((0.2, 1.3), (-0.4, 1.1), (0.5, 1.6), {"lam": 0.7})


def random_loss(rng):
    """A loss of one to four terms in k1, w, log q, r, rho and the parameter lam."""
    return sympy.sympify(
        sum(
            Rational(rng.randint(-6, 6), rng.randint(1, 5))
            * k1 ** rng.randint(0, 3) * w ** rng.randint(0, 2) * log_q ** rng.randint(0, 1)
            * lam ** rng.randint(0, 1)
            * r ** Rational(rng.randint(-2, 3), 2) * rho ** Rational(rng.randint(-2, 1), 2)
            for _ in range(rng.randint(1, 4))
        )
    )  # fmt: skip


def random_pairs(rng):
    return [(Fraction(rng.randint(-5, 5), 4), Fraction(rng.randint(5, 10), 6)) for _ in range(3)]


def floats(pairs, weight=0.0):
    return GaussianSetting(*((float(m), float(v)) for m, v in pairs), {"lam": float(weight)})


def quadrature(loss, setting, measure, score):
    """The integral from the densities alone; loss is a function of k1, w, log q."""

    def log_density(pair, t):
        return -((t - pair[0]) ** 2) / (2 * pair[1]) - mpmath.log(2 * mpmath.pi * pair[1]) / 2

    def integrand(t):
        a, b, c = (log_density(pair, t) for pair in (setting.q, setting.p, setting.mu))
        m, v = setting.q
        slopes = ((t - m) / v, (t - m) ** 2 / v - 1)
        factor = mpmath.fprod(slopes[i] for i in score)
        return loss(a - b, a - c, a) * factor * mpmath.exp(log_density(getattr(setting, measure), t))

    return mpmath.quad(integrand, [-60, -25, *range(-12, 13, 3), 25, 60])


# ---------------------------------------------------------------------------- values
@pytest.mark.parametrize("seed", range(25))
def test_the_symbolic_closed_form_agrees(seed):
    rng = random.Random(seed)
    pairs, loss, weight = random_pairs(rng), random_loss(rng), Fraction(rng.randint(-4, 4), 3)
    name = rng.choice(["q", "p", "mu"])
    q, p, mu = (Gaussian(*pair) for pair in pairs)
    found = expect(loss, q, p, mu, under={"q": q, "p": p, "mu": mu}[name]).value
    exact = float(sympy.N(found.subs(lam, Rational(weight)), 20))
    value = floats(pairs, weight).expectation(name, to_ring(loss))
    assert isinstance(value, float) and value == pytest.approx(exact, rel=1e-11, abs=1e-11)


CASES = [  # loss, as a function of k1, w, log q, measure, score
    (k1, lambda k, w, lq: k, "q", (0,)),
    (rho * k3, lambda k, w, lq: mpmath.exp(w) * (mpmath.exp(-k) - 1 + k), "mu", (1,)),
    (sg(rho) * k2, lambda k, w, lq: mpmath.exp(w) * k**2 / 2, "mu", (0, 1)),
    (k2**2 * log_q, lambda k, w, lq: k**4 / 4 * lq, "p", (1, 1)),
    (r**2 / rho, lambda k, w, lq: mpmath.exp(-2 * k - w), "q", (0, 0, 1)),
]


@pytest.mark.parametrize("loss, number, measure, score", CASES)
def test_quadrature_agrees_with_score_functions(loss, number, measure, score):
    numeric = quadrature(number, SETTING, measure, score)
    assert SETTING.expectation(measure, to_ring(loss), score) == pytest.approx(float(numeric), rel=1e-12)


def test_an_exponential_of_a_quadratic():
    """With equal variances k1 is linear, so exp(-k1^2/7) is a Gaussian factor."""
    setting = GaussianSetting((0.2, 1.3), (-0.4, 1.3), (0.5, 1.6))
    numeric = quadrature(lambda k, w, lq: mpmath.exp(-(k**2) / 7) * w, setting, "mu", (1,))
    value = setting.expectation("mu", to_ring(exp(-(k1**2) / 7) * w), (1,))
    assert value == pytest.approx(float(numeric), rel=1e-12)
    with pytest.raises(UsageError, match="degree 4"):
        SETTING.expectation("mu", to_ring(exp(-(k1**2) / 7)))


def test_far_tilts_keep_their_digits():
    """E_q[r^2] = exp(d^2) for unit variances; the tilted mean lies 20 deviations out."""
    setting = GaussianSetting((0.0, 1.0), (10.0, 1.0))
    assert setting.expectation("q", to_ring(r**2)) == pytest.approx(float(np.exp(100.0)), rel=1e-13)
    tilted = setting.expectation("q", to_ring(r**2 * (k1 + 150) ** 4))  # k1 = 50 - 10 x, x ~ N(20, 1)
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
            found = at.expectation(measure, to_ring(loss))
            assert isinstance(found, complex)
            expected = SETTING.expectation(measure, slope, (index,))
            assert found.imag / STEP == pytest.approx(expected, rel=1e-12, abs=1e-13)
            assert found.real == pytest.approx(SETTING.expectation(measure, to_ring(loss)), rel=1e-13)


def test_on_policy_the_sampler_is_the_still_q():
    """Without mu, rho = q/sg(q): value 1, derivative s."""
    still = GaussianSetting((0.3, 0.8), (0.0, 1.0))
    assert still.expectation("mu", to_ring(rho)) == 1.0
    moved = GaussianSetting((0.3 + STEP * 1j, 0.8), (0.0, 1.0), still=still)
    found = moved.expectation("mu", to_ring(rho * k1))
    assert found.imag / STEP == pytest.approx(still.expectation("q", to_ring(k1), (0,)), rel=1e-12)
    assert moved.expectation("q", to_ring(sg(k1))).imag / STEP == pytest.approx(found.imag / STEP)


@settings(max_examples=60, deadline=None)
@given(
    st.floats(-3, 3), st.floats(0.2, 4), st.floats(-3, 3), st.floats(0.2, 4), st.sampled_from([0, 1])
)  # fmt: skip
def test_ratios_have_mean_one_and_scores_mean_zero(m, v, n, u, index):
    setting = GaussianSetting((m, v), (n, u))
    assert setting.expectation("q", to_ring(r)) == pytest.approx(1.0, rel=1e-9)
    assert setting.expectation("q", ExpPoly.number(1), (index,)) == pytest.approx(0.0, abs=1e-12)
    kl = (np.log(u / v) + (v + (m - n) ** 2) / u - 1) / 2
    assert setting.expectation("q", to_ring(k1)) == pytest.approx(kl, rel=1e-10, abs=1e-10)


# ---------------------------------------------------------------------------- finiteness
@pytest.mark.parametrize("power", [2, 3, Fraction(5, 2), 7])
@pytest.mark.parametrize("variance", [1.0, 0.3, 1.7])
def test_moments_of_r_are_finite_up_to_the_edge(power, variance):
    """E_q[r^n] is finite iff v_q > (1 - 1/n) v_p."""
    edge = variance / (1 - 1 / float(power))
    loss = to_ring(r ** Rational(power))
    for scale, finite in ((0.5, True), (1 - 1e-9, True), (1.0, False), (1 + 1e-9, False), (5, False)):
        setting = GaussianSetting((0.1, variance), (0.1, edge * scale))
        assert setting.finite("q", loss) is finite
        if finite:
            assert setting.expectation("q", loss) > 0
        else:
            with pytest.raises(Divergent, match=r"needs 1 - 2 a v > 0 \(a = .*which is false here") as error:
                setting.expectation("q", loss)
            assert not error.value.condition.holds


def test_finiteness_agrees_with_the_symbolic_version():
    rng = random.Random(5)
    verdicts = set()
    for _ in range(60):
        pairs = [(Fraction(rng.randint(-2, 2)), Fraction(rng.randint(1, 8), 3)) for _ in range(3)]
        loss = k1 ** rng.randint(0, 1) * r ** rng.randint(-2, 3) * rho ** rng.randint(-2, 3)
        name = rng.choice(["q", "p", "mu"])
        q, p, mu = (Gaussian(*pair) for pair in pairs)
        try:
            expect(loss, q, p, mu, under={"q": q, "p": p, "mu": mu}[name])
            finite = True
        except Divergent:
            finite = False
        assert floats(pairs).finite(name, to_ring(loss)) is finite
        verdicts.add(finite)
    assert verdicts == {True, False}


def test_terms_that_cancel_do_not_diverge():
    wide = GaussianSetting((0.1, 0.3), (0.7, 0.9), (0.7, 0.9))  # p = mu
    assert wide.expectation("q", to_ring(r**2 - rho**-2 + k1)) == wide.expectation("q", to_ring(k1))
    assert not wide.finite("q", to_ring(r**2 - 2 * rho**-2))
    assert not wide.finite("q", to_ring(r**2 - rho**-2 * k1))
    assert wide.finite("q", to_ring(r**2 - sg(r) ** 2))
    moved = GaussianSetting((0.1, 0.3 + STEP * 1j), (0.7, 0.9), still=wide)
    assert not moved.finite("q", to_ring(r**2 - sg(r) ** 2))  # zero, with a divergent derivative


# ---------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    "arguments, message",
    [
        (((0.0, 0.0),), "variance of q is positive"), (((0.0, -1.0 + 1j),), "variance of q is positive"),
        (((0.0,),), "q is a pair"), ((0.0,), "q is a pair"), ((("0", 1.0),), "mean of q is a finite"),
        (((0.0, 1.0), (float("nan"), 1.0)), "mean of p is a finite"),
        (((0.0, 1.0), (True, 1.0)), "mean of p is a finite"), (((0.0, 1.0), None, (0.0, float("inf"))), "mu"),
        (((0.0, 1.0), None, None, {"lam": "1"}), "parameter lam"),
        (((0.0, 1.0), None, None, {}, 3), "still is a GaussianSetting"),
    ],
)  # fmt: skip
def test_settings_are_validated(arguments, message):
    with pytest.raises(UsageError, match=message) as error:
        GaussianSetting(*arguments)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "loss, message",
    [(1 / k1, "1/k1"), (R * k1, "R is no"), (A, "A is no"), (s * k1, "s is no"), (exp(k2), "degree 4"),
     (sympy.Function("g")(k1), "no parameter"), (k1**300, "degree"), (sympy.Symbol("beta") * k1, "for beta")],
)  # fmt: skip
def test_losses_are_refused_in_one_line(loss, message):
    with pytest.raises(UsageError, match=message) as error:
        SETTING.expectation("q", to_ring(loss))
    assert "\n" not in str(error.value) and not isinstance(error.value, Divergent)


def test_other_refusals():
    one = ExpPoly.number(1)
    with pytest.raises(UsageError, match="give the Gaussian p"):
        GaussianSetting((0.0, 1.0)).expectation("q", to_ring(k1))
    with pytest.raises(UsageError, match="no Gaussian is called 'x'"):
        SETTING.expectation("x", one)
    with pytest.raises(UsageError, match="score is 0"):
        SETTING.expectation("q", one, (2,))
    with pytest.raises(UsageError, match="beyond the range"):
        GaussianSetting((0.0, 1.0), (60.0, 1.0)).expectation("q", to_ring(r**2))
    with pytest.raises(UsageError, match="lam is zero"):
        GaussianSetting((0.0, 1.0), parameters={"lam": 0.0}).expectation("q", to_ring(1 / lam))
