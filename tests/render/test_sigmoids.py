"""Quotients of exponentials are written by sigmoid(..): the same numbers, and text that reads as the same."""

from __future__ import annotations

import math

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from klsym import explain
from klsym.errors import UsageError
from klsym.language.expressions import A, beta, k1, log_q, rho
from klsym.language.parser import parse
from klsym.notation.losses import show
from klsym.notation.printers import TEXT
from klsym.notation.sigmoids import logsigmoid, sigmoid, write_by_sigmoids

X = sympy.Symbol("x", real=True)
VALUES = (-1.3, 0.4, 2.1)
numbers = st.fractions(-3, 3, max_denominator=4).map(lambda f: sympy.Rational(f.numerator, f.denominator))
exponents = st.builds(lambda a, b: a * X + b, numbers, numbers)


def compute(e, x: float) -> float:
    """The number of an expression at x, with S from its definition."""
    logistic = {sigmoid: lambda u: 1 / (1 + math.exp(-u)), logsigmoid: lambda u: -math.log1p(math.exp(-u))}
    replaced = e.replace(lambda part: part.func in logistic, lambda part: logistic[part.func](
        float(compute(part.args[0], x))
    ))  # fmt: skip
    return float(replaced.subs(X, x))


@given(exponents, exponents, exponents, st.integers(1, 4), numbers.filter(lambda c: c > 0))
def test_the_numbers_are_the_same(a, b, c, power, factor):
    quotient = A * sympy.exp(c) / (factor * (sympy.exp(a) + sympy.exp(b))) ** power
    written = write_by_sigmoids(quotient)
    for x in VALUES:
        assert compute(written / A, x) == pytest.approx(compute(quotient / A, x), rel=1e-9)


@given(exponents, st.integers(0, 3), st.integers(0, 3))
def test_a_quotient_with_fitting_exponents_has_no_exponential_left(a, above, below):
    varies = sympy.expand(a).has(X)
    quotient = sympy.exp(above * a) / (1 + sympy.exp(a)) ** (above + below)
    assert not varies or not write_by_sigmoids(quotient).has(sympy.exp)


@given(exponents, st.integers(1, 4))
def test_the_log_of_a_power_has_the_numbers_of_the_log(a, power):
    e = sympy.log((1 + sympy.exp(a)) ** power, evaluate=False)
    for x in VALUES:
        assert compute(write_by_sigmoids(e), x) == pytest.approx(compute(e, x), rel=1e-9, abs=1e-12)


SAME = [1 / (1 + X), sympy.exp(X) / (2 + sympy.exp(X)), 1 / (1 - sympy.exp(X)), sympy.exp(X) + 1,
        (1 + sympy.exp(X)) ** sympy.Rational(-1, 2), 1 / (1 + sympy.exp(X) + sympy.exp(-X)),
        sympy.log(2 + sympy.exp(X)), 1 / (1 + X * sympy.exp(X)), sympy.log(X), X]  # fmt: skip


@pytest.mark.parametrize("e", SAME, ids=str)
def test_other_quotients_are_left_as_they_are(e):
    assert write_by_sigmoids(e) == e


@pytest.mark.parametrize(
    ("typed", "printed"),
    [
        ("-A/(1 + exp(1 - rho))", "-A*sigmoid(rho - 1)"),
        ("A*exp(rho - 1)/(exp(rho - 1) + 1)", "A*sigmoid(rho - 1)"),
        ("A*exp(rho)/(exp(rho) + exp(1))", "A*sigmoid(rho - 1)"),
        ("exp(rho + 1)/(exp(rho) + exp(1))**2", "(1 - sigmoid(rho - 1))*sigmoid(rho - 1)"),
        ("log(1 + exp(-beta*log_q))", "-logsigmoid(beta*log_q)"),
        ("A/(2 + 2*exp(beta - beta*rho))", "A*sigmoid(beta*(rho - 1))/2"),
    ],
)
def test_what_is_printed_reads_as_the_same(typed: str, printed: str) -> None:
    assert show(parse(typed), TEXT) == printed
    again = parse(printed)
    at = {rho: 1.7, beta: 0.3, A: -0.8, log_q: -1.1, k1: 0.6}
    assert float(again.subs(at)) == pytest.approx(float(parse(typed).subs(at)))


@pytest.mark.parametrize("tau", ["1", "1.05", "tau"])
def test_the_gate_of_sapo_is_the_policy_gradient_on_policy_and_has_its_weight_off_policy(tau: str) -> None:
    loss = f"-(4/{tau})*sigmoid({tau}*(rho - 1))*A"
    on_policy = explain(loss, sampling="on-policy", parameters=["tau"])
    assert on_policy.trust == "kernel" and on_policy.gradient.multiples == {"reward": "-A"}, on_policy
    weight = str(explain(loss, sampling="off-policy", parameters=["tau"]))
    assert "4*rho*(1 - sigmoid(" in weight.replace("\n    ", " ") and "exp(" not in weight.split("read as")[0]


@pytest.mark.parametrize("loss", ["sigmoid(k1, 1)", "sigmoid()", "sigmoid(2000)", "logsigmoid(-2000)*k1"])
def test_what_is_no_sigmoid_is_refused(loss: str) -> None:
    with pytest.raises(UsageError, match="sigmoid"):
        parse(loss)
