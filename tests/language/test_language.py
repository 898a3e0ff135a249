"""The language: stop-gradient, estimators, clip, and how they print."""

from __future__ import annotations

import pickle
from fractions import Fraction
from typing import Any

import pytest
import sympy
from sympy import E, Float, Function, Heaviside, Integer, Rational, Symbol, diff, exp, log, simplify, sqrt

import klsym.language.expressions as language
from klsym.errors import Refused, UsageError
from klsym.kernel.definitions import LOG, REGION, Definition
from klsym.kernel.ring import ExpPoly
from klsym.language.abbreviations import Context, MeanVariance, Side
from klsym.language.expressions import *
from klsym.language.expressions import Estimator, as_expression, as_loss
from klsym.language.parser import parse
from klsym.language.unfolding import unfold as unfold_sums
from klsym.notation.losses import show
from klsym.notation.printers import LATEX

ESTIMATORS = {"k1": k1, "k2": k2, "k3": k3, "r": r, "rho": rho}
# by hand, in log densities alone
DEFINITIONS = {
    "k1": log_q - log_p,
    "k2": (log_q - log_p) ** 2 / 2,
    "k3": exp(log_p - log_q) - 1 - (log_p - log_q),
    "r": exp(log_p - log_q),
    "rho": exp(log_q - log_mu),
}
g = Function("g")


# ---------------------------------------------------------------------------- stop-gradient
@pytest.mark.parametrize(
    "inner", [log_q, k1, k2, k3, r, rho, rho * k3, sg(k1) * k2, exp(log_q), R * k1, g(k1)]
)
def test_sg_has_no_derivative(inner: Any) -> None:
    assert sg(inner).has(sg)
    for name in (log_q, log_p, log_mu):
        assert diff(sg(inner), name) == 0


@pytest.mark.parametrize("free", [log_p, log_mu, R, A, beta, Integer(3), log_p - log_mu, beta * R])
def test_sg_of_what_is_free_of_theta_is_itself(free: Any) -> None:
    assert sg(free) == free


def test_sg_is_idempotent_also_deep_inside() -> None:
    assert sg(sg(k1)) == sg(k1)
    assert sg(sg(sg(rho * k2))) == sg(rho * k2)
    assert sg(1 + sg(k1)) - sg(1 + sg(k1)) == 0


@pytest.mark.parametrize(
    ("loss", "derivative"),
    [
        (sg(rho) * k2, sg(rho) * k1),
        (rho * sg(k2), rho * sg(k2)),
        (sg(k1) * log_q, sg(k1)),
        (k2 - sg(k2) + sg(k3), k1),
        (sg(k1) ** 2 * k1, sg(k1) ** 2),
        (exp(sg(k1)) * r, -exp(sg(k1)) * r),
        (exp(k1 * sg(k1)), sg(k1) * exp(k1 * sg(k1))),
        (rho * k3, rho * k3 + rho * (1 - r)),
        (sg(k1 + sg(k2)), 0),
    ],
)
def test_derivatives_with_sg(loss: Any, derivative: Any) -> None:
    assert sympy.expand(diff(loss, log_q) - derivative) == 0


def test_sg_is_real_and_keeps_its_argument_apart() -> None:
    assert sg(k1).is_real
    assert sg(k1) != k1 and sg(k1) != sg(k2)
    assert sg(k1) - k1 != 0


def test_sg_keeps_the_sign_of_its_argument() -> None:
    assert sg(r).is_positive and sg(rho).is_positive and sg(k2).is_nonnegative
    assert sg(k1).is_nonnegative is None
    assert sqrt(sg(r) ** 2) == sg(r)


# ---------------------------------------------------------------------------- estimators
@pytest.mark.parametrize("name", ESTIMATORS)
def test_definition(name: str) -> None:
    estimator = ESTIMATORS[name]
    assert simplify(estimator.definition() - DEFINITIONS[name]) == 0
    assert estimator.doit() == estimator.definition() == unfold(estimator)
    assert str(estimator) == name == ATOMS[name].name


@pytest.mark.parametrize("variable", [log_q, log_p, log_mu])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_derivative_is_that_of_the_definition(name: str, variable: Any) -> None:
    got = diff(ESTIMATORS[name], variable)
    assert simplify(unfold(got) - diff(DEFINITIONS[name], variable)) == 0


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_higher_derivatives(name: str, order: int) -> None:
    got = diff(ESTIMATORS[name], log_q, order)
    assert simplify(unfold(got) - diff(DEFINITIONS[name], log_q, order)) == 0


def test_slopes_stay_in_named_form() -> None:
    assert (diff(k1, log_q), diff(k2, log_q), diff(k3, log_q)) == (1, k1, 1 - r)
    assert (diff(r, log_q), diff(rho, log_q), diff(rho, log_mu)) == (-r, rho, -rho)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_know_their_sign(name: str) -> None:
    estimator = ESTIMATORS[name]
    assert estimator.is_real and estimator.is_extended_real
    assert bool(estimator.is_positive) == (name in ("r", "rho"))
    assert bool(estimator.is_nonnegative) == (name != "k1")


def test_an_estimator_must_be_a_subclass() -> None:
    for method in ("definition", "slope"):
        with pytest.raises(TypeError, match="subclass"):
            getattr(Estimator(log_q, log_p), method)()


@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        (0, k1),
        (1, k3),
        (lam, k1 + lam * (r - 1)),
        (Rational(1, 2), k1 + (r - 1) / 2),
        (-beta, k1 - beta * (r - 1)),
    ],
)
def test_k_lambda(weight: Any, expected: Any) -> None:
    assert simplify(unfold(k(weight) - expected)) == 0


@pytest.mark.parametrize("weight", ["lam", None, [1], k1 > 0])
def test_k_refuses_what_is_no_expression(weight: Any) -> None:
    with pytest.raises(UsageError, match="expression expected"):
        k(weight)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (sg(rho) * k2, sg(exp(log_q - log_mu)) * (log_q - log_p) ** 2 / 2),
        (sg(k3), sg(exp(log_p - log_q) - 1 - log_p + log_q)),
        (sqrt(k2) + clip(r, 0, 1), sqrt((log_q - log_p) ** 2 / 2) + clip(exp(log_p - log_q), 0, 1)),
        (beta * R, beta * R),
    ],
)
def test_unfold(expression: Any, expected: Any) -> None:
    assert simplify(unfold(expression) - expected) == 0
    assert not unfold(expression).atoms(Estimator)


# ---------------------------------------------------------------------------- clip
LO, HI = Integer(-1), Integer(2)


@pytest.mark.parametrize(
    ("at", "slope"), [(-2, 0), (-1, 1), (Rational(-1, 2), 1), (0, 1), (2, 1), (Rational(21, 10), 0), (9, 0)]
)
def test_clip_has_derivative_one_on_the_closed_interval(at: Any, slope: int) -> None:
    x = Symbol("x", real=True)
    assert diff(clip(x, LO, HI), x).subs(x, at) == slope


@pytest.mark.parametrize(
    ("at", "value"), [(-2, -1), (-1, -1), (0, 0), (Rational(3, 2), Rational(3, 2)), (7, 2)]
)
def test_clip_of_numbers(at: Any, value: Any) -> None:
    assert clip(Rational(at), LO, HI) == value
    assert unfold(clip(k1, LO, HI)).subs({log_q: at, log_p: 0}) == value


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (k1, -2),
        (k3, exp(2) - 3),
        (abs(k1), 2),
        (clip(k1, 0, 1), 0),
        (clip(k1, -9, 1), -2),
        (sympy.Max(k1, 0), 0),
        (sympy.Min(k1, k2), -2),
    ],
    ids=str,
)
def test_numbers_put_in_give_a_number(expression: Any, value: Any) -> None:
    at = {log_q: -2, log_p: 0}
    assert simplify(unfold(expression).subs(at) - value) == 0
    assert abs(float(expression.subs(at).evalf()) - float(value)) < 1e-12


def test_clip_with_moving_bounds() -> None:
    """Beyond the bound, the bound's gradient flows (the sum of the three cases is always one)."""
    x, lo, hi = (Symbol(name, real=True) for name in ("x", "lo", "hi"))
    slopes = [diff(clip(x, lo, hi), v) for v in (x, lo, hi)]
    assert simplify(sum(slopes)) == 1
    below, above = {x: -5, lo: -1, hi: 1}, {x: 5, lo: -1, hi: 1}
    assert [f.subs(below) for f in slopes] == [0, 1, 0]
    assert [f.subs(above) for f in slopes] == [0, 0, 1]


@pytest.mark.parametrize(
    ("at", "value", "slopes"),
    [
        # x, lo, hi: the value, and the slopes along them
        ((0, 1, 2), 1, (0, 1, 0)),
        ((1, 1, 2), 1, (1, 0, 0)),
        ((2, 1, 2), 2, (1, 0, 0)),
        ((3, 1, 2), 2, (0, 0, 1)),
        ((0, 2, 1), 1, (0, 0, 1)),  # lo > hi
        ((1, 2, 1), 1, (0, 0, 1)),
        ((Rational(3, 2), 2, 1), 1, (0, 0, 1)),
        ((2, 2, 1), 1, (0, 0, 1)),
        ((3, 2, 1), 1, (0, 0, 1)),
        ((0, 1, 1), 1, (0, 1, 0)),
        ((1, 1, 1), 1, (1, 0, 0)),
        ((2, 1, 1), 1, (0, 0, 1)),
    ],
)
def test_clip_with_bounds_that_cross(at: Any, value: int, slopes: tuple[int, ...]) -> None:
    """min(max(x, lo), hi), with the slope 1 of x at both bounds."""
    names = tuple(Symbol(name, real=True) for name in ("x", "lo", "hi"))
    numbers = dict(zip(names, map(sympy.sympify, at), strict=True))
    assert clip(*names).subs(numbers) == value
    assert tuple(diff(clip(*names), name).subs(numbers) for name in names) == slopes


@pytest.mark.parametrize(
    ("expression", "is_x"),
    [
        (clip(1, 1 - parameter("T"), 1 + parameter("T")), True),  # T is positive
        (clip(k2, 0, k2 + r), True),
        (clip(1, 1 - eps, 1 + eps), False),
        (clip(k2, 0, 5), False),
        (clip(r, 0, 0), False),
        (clip(rho, 1, 1), False),
    ],
    ids=str,
)
def test_a_clip_that_cannot_bind_is_left_out(expression: Any, is_x: bool) -> None:
    assert expression.has(clip) == (not is_x)
    assert not is_x or expression in (1, k2)


def test_clip_in_a_loss() -> None:
    got = diff(clip(k3, 0, 5), log_q)
    assert sympy.expand(got - (1 - r) * (Heaviside(k3, 1) - Heaviside(k3 - 5, 0))) == 0


# ---------------------------------------------------------------------------- printing
POWERS = [
    (sg(r), r"\mathrm{sg}(r)^{2}"),
    (sg(rho), r"\mathrm{sg}(\rho)^{2}"),
    (k1, "k_1^{2}"),
    (k2, "k_2^{2}"),
    (k3, "k_3^{2}"),
    (r, "r^{2}"),
    (rho, r"\rho^{2}"),
    (clip(k1, 0, 1), r"\mathrm{clip}(k_1, 0, 1)^{2}"),
]


@pytest.mark.parametrize(("base", "expected"), POWERS, ids=[str(base) for base, _ in POWERS])
def test_latex_keeps_the_power(base: Any, expected: str) -> None:
    """Of SymPy's own printer, which shows expressions in Jupyter."""
    latex = sympy.latex
    assert latex(base**2) == expected
    assert latex(base) != latex(base**2) != latex(base**3)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (log_mu, r"\log\mu"),
        (eps * beta, r"\beta\,\varepsilon"),
        (log_q**2, r"\left(\log q\right)^{2}"),  # \log q^2 would read as the log of q^2
        (lam**2, r"\lambda^{2}"),
        (sg(k1 * log_p), r"\mathrm{sg}(k_1\,\log p)"),
        (1 / r, r"\frac{1}{r}"),
        (sqrt(k2), r"\sqrt{k_2}"),
        (parameter("T"), "T"),
    ],
)
def test_latex(expression: Any, expected: str) -> None:
    assert show(expression, LATEX) == expected


def test_text_of_a_product_is_readable() -> None:
    assert str(sg(rho) * k2) == "k2*sg(rho)"
    assert str(rho**2 + k3) == "k3 + rho**2"


# ---------------------------------------------------------------------------- symbols and input
def test_parameters_and_atoms_do_not_clash() -> None:
    assert not set(ATOMS) & set(PARAMETERS)
    assert all(parameter(name) == getattr(language, name, parameter(name)) for name in PARAMETERS)
    assert parameter("n").is_positive and parameter("T").is_positive
    assert parameter("beta").is_real and parameter("beta").is_positive is None


@pytest.mark.parametrize("expression", [k1, sg(rho) * k2, clip(k3, 0, eps), k(lam), rho**2, sg(k1), s * A])
def test_pickling(expression: Any) -> None:
    again = pickle.loads(pickle.dumps(expression))
    assert again == expression and hash(again) == hash(expression)
    assert diff(again, log_q) == diff(expression, log_q)


@pytest.mark.parametrize("value", [2, Fraction(1, 3), Integer(4), k1, E, log(2)])
def test_as_expression_takes_what_is_exact(value: Any) -> None:
    assert isinstance(as_expression(value), sympy.Expr)


@pytest.mark.parametrize("value", ["k1", "__import__('os')", None, [k1], k1 > 0, object(), 1j])
def test_as_expression_refuses(value: Any) -> None:
    with pytest.raises(UsageError) as caught:
        as_expression(value)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


DECIMALS = [  # an expression with floats, and the text that says the same
    (0.5 * k1**2, "0.5*k1**2"), (0.1 * k1, "0.1*k1"), (k1**2.0, "k1**2"), (1e-7 * k3, "1e-7*k3"),
    (clip(rho, 0.8, 1.2) * A, "clip(rho, 0.8, 1.2)*A"), (sg(0.3 * rho) * k2, "sg(0.3*rho)*k2"),
    (exp(0.25 * k1), "exp(0.25*k1)"), (sympy.Max(0.125, k2), "max(0.125, k2)"), (-0.04 * k1, "-0.04*k1"),
    (123456789.123456789 * k1, "123456789.12345679*k1"), (0.1 + 0.2 + 0 * k1, "0.30000000000000004"),
    (Float("0.1", 40) * k1, "0.1*k1"), (k(0.5), "k(1/2)"), (R - 2.5 * k1, "R - 5*k1/2"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), DECIMALS, ids=[text for _, text in DECIMALS])
def test_a_float_is_the_decimal_that_is_printed_for_it(value: Any, text: str) -> None:
    """The reader of text takes digits for exact decimals, without any float."""
    assert as_expression(value) == parse(text)
    assert as_loss(value) == parse(text)


NOT_THE_DECIMAL = [(0.1 * k1, "0.1000000000000000055511151231257827*k1"), (1 / 3 * k1, "k1/3"),
                   ((0.1 + 0.2) * k1, "0.3*k1"), (0.5 * k1, "k1"), (1e-17 * k1, "0*k1")]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), NOT_THE_DECIMAL, ids=[text for _, text in NOT_THE_DECIMAL])
def test_a_float_is_no_other_number(value: Any, text: str) -> None:
    assert as_expression(value) != parse(text)


@pytest.mark.parametrize("value", [float("nan") * k1, float("inf") * k1, float("nan"), -float("inf")])
def test_a_float_that_is_no_number_is_no_loss(value: Any) -> None:
    with pytest.raises(UsageError, match="not part of the loss grammar"):
        as_loss(value)


@pytest.mark.parametrize("name", language.__all__)
def test_everything_exported_exists(name: str) -> None:
    assert hasattr(language, name)


# ---------------------------------------------------------------------------- abbreviations
W = ExpPoly.from_variable("w")
CONTEXT = Context(
    ("n",), definitions=(Definition("high", REGION, W.exp() - 1), Definition("inv", LOG, W.exp() + 1))
)


def variance(name: str) -> Side:
    """The variance of a batch's average of one variable."""
    return unfold_sums(Side.from_atom(MeanVariance("mu", ExpPoly.from_variable(name), ())), CONTEXT)


@pytest.mark.parametrize("name", ["w[others]", "R[others]", "high[self]", "inv[self]", "A[self]"])
def test_a_variance_of_sums_is_written_out(name: str) -> None:
    assert len(variance(name).terms) == 3  # squares, pairs, the squared expectation


@pytest.mark.parametrize("name", ["high[others]", "inv[others]", "A[others]"])
def test_functions_of_all_others_are_no_sums(name: str) -> None:
    """A region of the others is not the region of one sample plus that of the rest."""
    with pytest.raises(Refused, match="no sum over positions"):
        variance(name)
