"""SymPy expressions to exponential polynomials and back: nothing is lost, nothing is invented."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
import sympy
from hypothesis import given
from sympy import Abs, E, Function, Max, Min, Rational, Symbol, exp, log, sqrt

from klsym.errors import KlsymError, NotInRing, UsageError
from klsym.kernel.ring import ExpPoly
from klsym.language.convert import detach, find_generic_functions, rename, split_score, to_ring, to_sympy
from klsym.language.expressions import *
from klsym.language.parser import parse
from support.float_sheet import close, evaluate
from support.ring_strategies import losses, points, ring_elements

V = ExpPoly.from_variable
VK1, VW, VQ = V("k1"), V("w"), V("log_q")
DK1, DW, DQ = V("sg(k1)"), V("sg(w)"), V("sg(log_q)")
g, f = Function("g")(k1), Function("f")(log_q, log_p, log_mu)

# ---------------------------------------------------------------------------- the table
CONVERTED: list[tuple[Any, ExpPoly]] = [
    (log_q, VQ),
    (log_p, VQ - VK1),
    (log_mu, VQ - VW),
    (k1, VK1),
    (k2, VK1**2 * Fraction(1, 2)),
    (r, (-VK1).exp()),
    (k3, (-VK1).exp() - 1 + VK1),
    (rho, VW.exp()),
    (k(lam), VK1 + V("lam") * ((-VK1).exp() - 1)),
    (log_q - log_p, VK1),
    (log_q - log_mu, VW),
    (log_p - log_mu, VW - VK1),
    (exp(log_p - log_q), (-VK1).exp()),
    (exp(log_q), VQ.exp()),
    (log(r), -VK1),
    (log(rho), VW),
    (log(exp(beta)), V("beta")),
    (log(rho * r**2), VW - VK1 * 2),
    (sqrt(r), (VK1 * Fraction(-1, 2)).exp()),
    (rho ** Rational(3, 2), (VW * Fraction(3, 2)).exp()),
    (r**lam, (-VK1 * V("lam")).exp()),
    (1 / r, VK1.exp()),
    (1 / beta, V("beta").invert()),
    (k1 / beta, VK1 * V("beta").invert()),
    (k1**3, VK1**3),
    (exp(k2), (VK1**2 * Fraction(1, 2)).exp()),
    (exp(k1 / beta), (VK1 * V("beta").invert()).exp()),
    (E, ExpPoly.from_number(1).exp()),
    (exp(2) * R, ExpPoly.from_number(2).exp() * V("R")),
    (sg(k1), DK1),
    (sg(rho), DW.exp()),
    (sg(log_p), VQ - VK1),
    (sg(log_q), DQ),
    (sg(k1 * R * beta), DK1 * V("R") * V("beta")),
    (sg(rho * k2), DW.exp() * DK1**2 * Fraction(1, 2)),
    (sg(k1 + sg(k2)), DK1 + DK1**2 * Fraction(1, 2)),
    (sg(g), V("sg(g)")),
    (g, V("g")),
    (f, V("f")),
    (R, V("R")),
    (A * beta, V("A") * V("beta")),
    (Rational(22, 7), ExpPoly.from_number(Fraction(22, 7))),
    (Fraction(1, 3), ExpPoly.from_number(Fraction(1, 3))),
    (3, ExpPoly.from_number(3)),
    (0, ExpPoly({})),
    (k1 - log_q + log_p, ExpPoly({})),
    (rho * exp(log_mu - log_q) - 1, ExpPoly({})),
]


@pytest.mark.parametrize(("expression", "element"), CONVERTED, ids=[str(e) for e, _ in CONVERTED])
def test_to_ring(expression: Any, element: ExpPoly) -> None:
    assert to_ring(expression) == element


def test_sg_of_log_p_is_log_p() -> None:
    """log p = log q - k1 is free of theta, so detaching its two coordinates must change nothing."""
    assert to_ring(sg(k1) + log_p - sg(log_q)) != ExpPoly({})  # k1 is detached apart from log q
    assert to_ring(sg(k1 + log_p)) == to_ring(sg(log_q))
    assert to_ring(sg(rho * exp(log_mu))) == to_ring(sg(exp(log_q)))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (k1.subs(log_p, log_mu), log_q - log_mu),
        (k3.subs(log_p, log_mu), 1 / rho - 1 + log_q - log_mu),
        (r.subs(log_q, log_mu), exp(log_p - log_mu)),
        (rho.subs(log_mu, log_p), 1 / r),
        (k2.subs({log_q: log_p, log_p: log_q}, simultaneous=True), k2),
        (k1.subs({log_q: log_p, log_p: log_q}, simultaneous=True), -k1),
        (k1.subs(log_p, log_q), 0),
        (rho.subs(log_mu, log_q), 1),
        (k1.subs(log_p, sg(log_q)), log_q - sg(log_q)),
    ],
)
def test_estimators_of_other_densities_are_what_they_say(one: Any, other: Any) -> None:
    assert to_ring(one) == to_ring(other)


# ---------------------------------------------------------------------------- outside, and wrong
@pytest.mark.parametrize(
    "expression",
    [
        *(1 / (1 + r), log(1 + r), log(2 * r), log(k1), sqrt(k2), sqrt(2) * k1, sympy.pi, k1**beta, 2**k1),
        *(Abs(k1), Max(k1, 0), Min(rho, 2), clip(k1, 0, 1), exp(exp(k1)), exp(r), sympy.sin(k1), k3**-1),
        *(sympy.I * k1, sympy.oo, sympy.nan, 1 / (k1 - k1 + 0 * r + sg(k1) - sg(k1) + k3 - k1 - r + 1)),
        *(exp(1 / (1 + beta)), (k1 + 1) ** Rational(1, 2), log(R), (k1 + r) ** 65, r**r),
    ],
    ids=str,
)
def test_not_in_the_ring(expression: Any) -> None:
    with pytest.raises(NotInRing) as caught:
        to_ring(expression)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "wrong",
    [
        *("k1", None, 1j, [k1], k1 > 0, Symbol("k1"), Symbol("w"), Symbol("R"), Symbol("a b")),
        *(Symbol("λ"), Function("g")(log_q), Function("g")(k1, k2), Function("k1")(k1), Function("w")(k1)),
    ],
    ids=repr,
)
def test_input_that_is_no_loss(wrong: Any) -> None:
    with pytest.raises(UsageError) as caught:
        to_ring(wrong)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


# ---------------------------------------------------------------------------- round trip
@given(ring_elements())
def test_round_trip(element: ExpPoly) -> None:
    assert to_ring(to_sympy(element)) == element


@given(ring_elements(), ring_elements())
def test_conversion_is_a_homomorphism(a: ExpPoly, b: ExpPoly) -> None:
    x, y = to_sympy(a), to_sympy(b)
    assert to_ring(x + y) == a + b
    assert to_ring(x * y) == a * b
    assert to_ring(-x) == -a


@given(ring_elements())
def test_detaching_twice_is_detaching_once(element: ExpPoly) -> None:
    once = detach(element)
    assert detach(once) == once
    assert not {"k1", "w", "log_q"} & once.names()
    assert once.names() & {"R", "A", "lam", "beta"} == element.names() & {"R", "A", "lam", "beta"}


# ---------------------------------------------------------------------------- agreement in numbers
def value(element: ExpPoly, at: dict[str, float]) -> float:
    """An exponential polynomial at a point, read straight off its dictionary."""
    total = 0.0
    for (monomial, exponent), number in element.terms.items():
        inner = sum(float(v) * _powers(m, at) for m, v in exponent)
        total += float(number) * _powers(monomial, at) * math.exp(inner)
    return total


def _powers(monomial: Any, at: dict[str, float]) -> float:
    return math.prod(at[name.removeprefix("sg(").removesuffix(")")] ** power for name, power in monomial)


@given(losses, points)
def test_the_ring_form_has_the_value_of_the_loss(text: str, point: dict[str, float]) -> None:
    """Both are evaluated in plain floats; sg(x) has the value of x."""
    element = to_ring(parse(text))
    at = {
        "k1": point["log_q"] - point["log_p"],
        "w": point["log_q"] - point["log_mu"],
        "lam": 0.37,
        "beta": 1.43,
    }
    want = evaluate(text, point)
    assert close(value(element, {**point, **at}), want) or abs(want) > 1e9


@given(losses, points)
def test_the_sympy_form_has_the_value_of_the_loss(text: str, point: dict[str, float]) -> None:
    from klsym.language.expressions import unfold

    back = unfold(to_sympy(to_ring(parse(text)))).replace(lambda e: isinstance(e, sg), lambda e: e.args[0])
    exact = {name: Rational(str(v)) for name, v in point.items()}
    at = {symbol: exact[str(symbol)] for symbol in back.free_symbols if str(symbol) in exact}
    got = float(back.subs(at).subs({lam: Rational("0.37"), beta: Rational("1.43")}))
    want = evaluate(text, point)
    assert close(got, want) or abs(want) > 1e9


# ---------------------------------------------------------------------------- scores and functions
@pytest.mark.parametrize(
    ("expression", "parts"),
    [
        (k1, {0: k1}),
        (k1 * s, {1: k1}),
        (s, {1: 1}),
        ((k1 * s) ** 2, {2: k1**2}),
        (k1 * s + s**2 * rho - 3, {0: -3, 1: k1, 2: rho}),
        ((1 - r) * s, {1: 1 - r}),
        (sg(k1) * s * beta, {1: sg(k1) * beta}),
        (s * k1 - s * k1, {}),
        (0, {}),
    ],
)
def test_split_score(expression: Any, parts: dict[int, Any]) -> None:
    assert split_score(expression) == {power: to_ring(part) for power, part in parts.items()}


@pytest.mark.parametrize("expression", [1 / s, k1 / s, exp(s), s * exp(k1 * s), log(s), s ** Rational(1, 2)])
def test_the_score_stands_in_positive_powers_only(expression: Any) -> None:
    with pytest.raises(KlsymError):
        split_score(expression)


@pytest.mark.parametrize(
    ("expression", "functions"),
    [
        (k1, {}),
        (g, {"g": ("k1",)}),
        (f * k1 + g, {"f": ("k1", "log_q", "w"), "g": ("k1",)}),
        (sg(g) * sg(f), {"f": ("k1", "log_q", "w"), "g": ("k1",)}),
        (5, {}),
    ],
)
def test_generic_functions(expression: Any, functions: dict[str, Any]) -> None:
    assert find_generic_functions(expression) == functions
    assert list(find_generic_functions(expression)) == sorted(functions)


def test_one_generic_function_has_one_list_of_arguments() -> None:
    with pytest.raises(UsageError, match="two lists"):
        find_generic_functions(g + Function("g")(log_q, log_p, log_mu))


# ---------------------------------------------------------------------------- a symbol for another
T, SIZE, LESS = Symbol("T", positive=True), Symbol("length", positive=True), Symbol("length", real=True)
RENAMED = [
    A / T,
    Min(rho ** (1 / T) * A, clip(rho ** (1 / T), 1 - eps, 1 + eps) * A),
    Max(Min(k1 / T, 2), -T, k2),
    Min(T, k3),
    Abs(k1 - T) * sg(rho / T) + log(T),
    k2,
    T,
    Rational(1, 2),
]


@pytest.mark.parametrize("e", RENAMED)
@pytest.mark.parametrize("new", [SIZE, LESS, Symbol("lam", real=True)])
def test_rename_gives_what_xreplace_gives(e, new):
    assert rename(e, T, new) == e.xreplace({T: new}) and not rename(e, T, new).has(T)


def test_rename_compares_what_becomes_equal():
    assert rename(Min(T, 2 * SIZE), T, SIZE) == SIZE and rename(Max(T, SIZE), T, SIZE) == SIZE


def test_rename_does_not_compare_again(monkeypatch):
    compared = []
    e, compare = RENAMED[1], Max._is_connected.__func__
    monkeypatch.setattr(
        type(e).__mro__[1], "_is_connected", classmethod(lambda *x: compared.append(x) or compare(*x))
    )
    assert rename(e, T, Symbol("number", positive=True)).has(Symbol("number", positive=True)) and not compared
    assert (
        e.xreplace({T: Symbol("another", positive=True)}).has(Symbol("another", positive=True)) and compared
    )
