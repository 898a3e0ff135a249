"""Claims about Gaussians: closed forms typed from the ledger, quadrature, checks that can fail."""

from __future__ import annotations

import math

import mpmath
import pytest
import sympy

from klsym.derivations import gaussians
from klsym.derivations.tools.gaussian_quadrature import ESTIMATORS, mean, mean_and_sd
from klsym.language.expressions import k1, k3
from klsym.ledger.registry import load, recall, settle
from klsym.numeric.gaussian.models import Divergent, Gaussian, variance

CLAIMS = (
    "value.gaussian-table-near",
    "value.gaussian-table-far",
    "value.gaussian-crossover",
    "value.heavy-tail",
)
U = -0.5 - float(mpmath.lambertw(-mpmath.exp(-0.5) / 2, -1).real)


@pytest.fixture(scope="module")
def settled():
    return {name: recall(name) for name in CLAIMS}


@pytest.mark.parametrize("name", CLAIMS)
def test_claims_settle_and_their_checks_pass(settled, name):
    found = settled[name]
    assert (found.status, found.error, found.trust) == ("settled", "", "sympy")
    for part in found.parts:
        passed, line = part.oracle()
        assert passed and "quadrature" in line and "\n" not in line
        assert part.latex.count("{") == part.latex.count("}") and part.steps


def test_the_near_table(settled):
    found = settled["value.gaussian-table-near"]
    assert found.statement == (
        "q = N(0,1), p = N(1/10,1), KL = 1/200: bias/true 0, 1/400, 0; sd/true 20, "
        "sqrt(201)/10 = 1.41774..., 200*sqrt(-101/100 + exp(1/100)) = 1.41657... (k1, k2, k3); "
        "the printed 0, 0.002, 0; 20, 1.42, 1.42 agree to the digits given"
    )
    assert math.isclose(math.sqrt(201) / 10, math.sqrt(804) / 20)
    numbers = (math.sqrt(804) / 20, 200 * math.sqrt(math.exp(0.01) - 1.01))
    assert [f"{math.floor(x * 1e5) / 1e5}" for x in numbers] == ["1.41774", "1.41657"]
    assert [round(x, 2) for x in numbers] == [1.42, 1.42]  # as printed
    assert found.printed is None and found.claim.verdict == "exact"


def test_the_far_table(settled):
    found = settled["value.gaussian-table-far"]
    assert found.statement == (
        "q = N(0,1), p = N(1,1), KL = 1/2: bias/true 0, 1/4, 0; sd/true 2, sqrt(3) = 1.73205..., "
        "2*sqrt(-2 + E) = 1.69503... (k1, k2, k3); the printed 0, 0.25, 0; 2, 1.73, 1.7 agree to the digits "
        "given"
    )
    assert [round(x, d) for x, d in ((math.sqrt(3), 2), (2 * math.sqrt(math.e - 2), 1))] == [1.73, 1.7]
    assert found.printed is None


def test_the_crossover(settled):
    text = settled["value.gaussian-crossover"].statement
    assert text == (
        "q = N(0,1), p = N(d,1): Var k3 < Var k1 iff 0 < d^2 < u*, u* = -1/2 - LambertW(-exp(-1/2)/2, -1) "
        "= 1.256431..., that is 0 < KL < 0.628215..."
    )
    assert abs(math.exp(U) - 1 - 2 * U) < 1e-12
    assert (f"{math.floor(U * 1e6) / 1e6}", f"{math.floor(U / 2 * 1e6) / 1e6}") == ("1.256431", "0.628215")


@pytest.mark.parametrize("scale", [0.001, 0.1, 0.5, 0.99, 1.01, 2, 9])
def test_the_order_of_the_variances_on_either_side(scale):
    p = (math.sqrt(U * scale), 1.0)
    first, third = (mean_and_sd(ESTIMATORS[k], (0.0, 1.0), p)[1] for k in ("k1", "k3"))
    assert (third < first) is (scale < 1)


def test_at_p_equal_q_both_variances_are_zero():
    """So the strict inequality needs d != 0, which the ledger's wording leaves out."""
    q = Gaussian(0, 1)
    assert variance(k1, q, q).value == variance(k3, q, q).value == 0


def test_heavy_tails(settled):
    first, third = settled["value.heavy-tail"].parts
    assert first.text == "Var k1 = (v - 1)^2/(2*v^2), finite for every v > 0"
    assert third.text == (
        "Var k3 is finite iff v < 2, and is then -v + 3/2 - 2/v + 1/(2*v^2) + 1/(sqrt(v)*sqrt(2 - v))"
    )
    assert settled["value.heavy-tail"].hypotheses == ["q = N(0,1), p = N(0,v), v > 0"]
    for value in (0.3, 1.0, 1.7):
        closed = -value + 1.5 - 2 / value + 0.5 / value**2 + 1 / math.sqrt(value * (2 - value))
        sd = mean_and_sd(ESTIMATORS["k3"], (0.0, 1.0), (0.0, value))[1]
        assert sd**2 == pytest.approx(closed, rel=1e-6, abs=1e-12)
    for value in (2, sympy.Rational(201, 100), 17):
        with pytest.raises(Divergent):
            variance(k3, Gaussian(0, 1), Gaussian(0, value))


# ---------------------------------------------------------------------------- checks that can fail
def test_a_wrong_closed_form_is_caught(monkeypatch):
    """Closed forms at another q than the quadrature's."""
    right = gaussians.table
    monkeypatch.setattr(gaussians, "table", lambda q, p: right(Gaussian(0, sympy.Rational(101, 100)), p))
    for name in CLAIMS[:2]:
        assert not settle(load()[name]).parts[0].oracle()[0]


@pytest.mark.parametrize("name", CLAIMS[2:])
def test_a_wrong_variance_is_caught(monkeypatch, name):
    monkeypatch.setattr(gaussians, "STANDARD", Gaussian(0, sympy.Rational(4, 5)))
    found = settle(load()[name])
    assert found.status == "failed" and "not what was computed" in found.error
    assert not any(part.oracle()[0] for part in found.parts)


@pytest.mark.parametrize("printed", ["0.0020", "0.0024", "0.004", "0.001"])
def test_a_printed_figure_that_is_wrong_in_its_digits_is_caught(monkeypatch, printed):
    figures = gaussians.PRINTED["near"] | {"k2": (printed, "1.42")}
    monkeypatch.setattr(gaussians, "PRINTED", {"near": figures})
    found = settle(load()[CLAIMS[0]])
    assert found.status == "failed" and "not what was computed" in found.error


# ---------------------------------------------------------------------------- quadrature itself
@pytest.mark.parametrize(
    "value, q, p, expected",
    [
        (lambda k: k**0, (3.0, 2.0), (0.0, 1.0), 1.0),
        (lambda k: k, (0.0, 1.0), (2.0, 1.0), 2.0),
        (lambda k: k, (1.0, 4.0), (0.0, 9.0), (math.log(9 / 4) + 5 / 9 - 1) / 2),
        (lambda k: math.e**-k, (0.0, 1.0), (1.5, 1.0), 1.0),
        (lambda k: math.e ** (-2 * k), (0.0, 1.0), (1.0, 1.0), math.e),
    ],
)
def test_quadrature_by_hand(value, q, p, expected):
    assert mean(value, q, p) == pytest.approx(expected, rel=1e-12)


def test_a_divergent_integral_grows_with_its_range():
    reaches = [mean(lambda k: math.e ** (-2 * k), (0.0, 1.0), (0.0, 2.5), reach) for reach in (5, 10, 20)]
    assert reaches[0] * 10 < reaches[1] < reaches[2] / 10
