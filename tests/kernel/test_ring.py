"""The ring: axioms, calculus and the zero test against NumPy, JSON, what is refused, and what work costs."""

from __future__ import annotations

import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klsym.errors import NotInRing
from klsym.kernel.ring import (
    MAX_NAMES,
    MAX_TERMS,
    ONE,
    ZERO,
    ExpPoly,
    read_number,
)
from support.scale import scaled

CHECK = settings(
    derandomize=True, database=None, deadline=None, max_examples=scaled(100, 30),
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
x, y, z, t = (ExpPoly.from_variable(n) for n in "xyzt")
NUMBERS = st.sampled_from([-3, -1, 1, 2, Fraction(1, 2), Fraction(-5, 3)])
MONOMIALS = st.dictionaries(st.sampled_from("xyz"), st.sampled_from([1, 2, 3, -1, -2]), max_size=2)
STEP = 1e-30


def monomial(powers: dict[str, int]) -> ExpPoly:
    product = ONE
    for name, power in powers.items():
        product = product * ExpPoly.from_variable(name) ** power
    return product


@st.composite
def polynomials(draw: Any, size: int = 2) -> ExpPoly:
    rows = draw(st.lists(st.tuples(NUMBERS, MONOMIALS), max_size=size))
    return sum((monomial(powers) * value for value, powers in rows), ZERO)


@st.composite
def elements(draw: Any, size: int = 3) -> ExpPoly:
    """Sums of polynomial times exp(polynomial)."""
    parts = draw(st.integers(0, size))
    return sum((draw(polynomials()) * draw(polynomials()).exp() for _ in range(parts)), ZERO)


def value(element: ExpPoly, at: dict[str, Any]) -> Any:
    """The number that an element stands for; reads the JSON form, not the dictionary of terms."""

    def power_product(powers: dict[str, int]) -> Any:
        return np.prod([at[name] ** float(power) for name, power in powers.items()])

    total = 0.0
    for coefficient, powers, *exponent in element.to_json():
        inside = sum(float(Fraction(c)) * power_product(m) for c, m in (exponent or [[]])[0])
        total = total + float(Fraction(coefficient)) * power_product(powers) * np.exp(inside)
    return total


ROWS = np.random.default_rng(5).uniform(0.5, 1.5, (4, 4))
POINTS = [dict(zip("xyzt", row, strict=True)) for row in ROWS]


def close(a: Any, b: Any, scale: float = 0.0) -> bool:
    return bool(abs(a - b) <= 1e-9 * (1 + abs(a) + abs(b) + scale))


# ---------------------------------------------------------------------------- ring
@CHECK
@given(elements(), elements(), elements())
def test_ring_axioms(a, b, c):
    assert a + b == b + a and (a + b) + c == a + (b + c)
    assert a * b == b * a and (a * b) * c == a * (b * c)
    assert a * (b + c) == a * b + a * c
    assert a + ZERO == a and a * ONE == a and a * ZERO == ZERO
    assert a - a == ZERO and a + (-a) == ZERO and not (a - a)
    assert a * 2 - a == a and 1 - a == ONE - a and 2 * a == a * 2


@CHECK
@given(elements(), elements())
def test_operations_are_those_of_numbers(a, b):
    for at in POINTS:
        u, v = value(a, at), value(b, at)
        assert close(value(a + b, at), u + v) and close(value(a - b, at), u - v)
        assert close(value(a * b, at), u * v)
        assert close(value(a**2, at), u**2)


@CHECK
@given(elements(), elements())
def test_equal_elements_are_equal_functions_and_the_reverse(a, b):
    """The zero test: an empty dictionary if and only if the value is zero at random points."""
    for element in (a - b, a * b, a * a - b * b, (a - b) * (a + b) - a * a + b * b):
        scale = max(abs(float(Fraction(str(v)))) for v in [0, *element.terms.values()])
        values = [abs(value(element, at)) for at in POINTS]
        assert (max(values) <= 1e-13 * scale) == (not element)


@CHECK
@given(elements(), elements())
def test_equality_agrees_with_hash(a, b):
    assert (a == b) == (not (a - b))
    same = (a + b) - b
    assert same == a and hash(same) == hash(a) and repr(same) == repr(a)


@CHECK
@given(polynomials(), polynomials())
def test_exp_turns_sums_into_products(a, b):
    assert (a + b).exp() == a.exp() * b.exp()
    assert a.exp() * (-a).exp() == ONE and ZERO.exp() == ONE
    assert (a.exp() == b.exp()) == (a == b)


def test_powers_and_inverses():
    assert (x + 1) ** 0 == ONE and (x + 1) ** 1 == x + 1
    assert (x + 1) ** 5 == (x + 1) ** 2 * (x + 1) ** 3
    term = x**2 * (y * 3).exp() * Fraction(2, 3)
    assert term.invert() * term == ONE and term**-2 == (term * term).invert()
    assert x**1000 * x**-999 == x


# ---------------------------------------------------------------------------- calculus
def along_x(name: str) -> ExpPoly:
    return ONE if name == "x" else ZERO


def mixed(name: str) -> ExpPoly:
    """A derivation with nonconstant values: Dx = y, Dy = x exp(z), Dz = 1/2."""
    return {"x": y, "y": x * z.exp(), "z": ONE * Fraction(1, 2)}[name]


@CHECK
@given(elements(), elements())
def test_leibniz_and_linearity(a, b):
    for rule in (along_x, mixed):
        assert (a * b).derive(rule) == a.derive(rule) * b + a * b.derive(rule)
        assert (a * 3 + b).derive(rule) == a.derive(rule) * 3 + b.derive(rule)
        assert ONE.derive(rule) == ZERO


@CHECK
@given(elements())
def test_the_derivative_is_that_of_the_function(a):
    """Complex step along x, and along the direction (Dx, Dy, Dz) of `mixed`."""
    for at in POINTS:
        step = at | {"x": at["x"] + 1j * STEP}
        assert close(np.imag(value(a, step)) / STEP, value(a.derive(along_x), at))
        step = at | {n: at[n] + 1j * STEP * value(mixed(n), at) for n in "xyz"}
        assert close(np.imag(value(a, step)) / STEP, value(a.derive(mixed), at))


@CHECK
@given(polynomials())
def test_chain_rule(a):
    assert a.exp().derive(along_x) == a.exp() * a.derive(along_x)


@CHECK
@given(elements(), st.sampled_from([z * 2, z**2 * 3, ONE * 2, x.invert() * z]))
def test_substitution_is_composition(a, single):
    replaced = a.substitute({"x": single})
    assert "x" not in replaced.names() or "x" in single.names()
    for at in POINTS:
        assert close(value(replaced, at), value(a, at | {"x": value(single, at)}))
    assert a.substitute({"x": x}) == a and a.substitute({"t": ONE}) == a


@CHECK
@given(elements())
def test_substitution_is_simultaneous_and_renaming_is_undone(a):
    swapped = a.substitute({"x": y, "y": x})
    assert swapped.substitute({"x": y, "y": x}) == a
    assert a.rename(lambda n: n + "1").rename(lambda n: n[:-1]) == a
    assert a.rename(lambda n: n + "1").names() == {n + "1" for n in a.names()}


def test_substitution_of_sums():
    assert (x**2 + x.exp()).substitute({"x": y + z}) == (y + z) ** 2 + (y + z).exp()
    assert (x - y).substitute({"x": y}) == ZERO
    with pytest.raises(NotInRing, match="division by a sum"):
        x.invert().substitute({"x": y + 1})
    with pytest.raises(NotInRing, match="division by zero"):
        x.invert().substitute({"x": ZERO})
    with pytest.raises(NotInRing, match="exp of an exponential"):
        x.exp().substitute({"x": y.exp()})


# ---------------------------------------------------------------------------- exponents
def test_exponents_with_parameters_stay_apart():
    beta, k1 = ExpPoly.from_variable("beta"), ExpPoly.from_variable("k1")
    assert (beta * k1).exp() * (k1 * 2).exp() == ((beta + 2) * k1).exp()
    assert (beta * k1).exp() != (k1 * 2).exp()
    assert (k1 * beta.invert()).exp() ** 2 == (k1 * 2 * beta.invert()).exp()
    by_k1 = (beta * k1).exp().derive(lambda n: ONE if n == "k1" else ZERO)
    assert by_k1 == beta * (beta * k1).exp()
    assert (beta * k1).exp().substitute({"beta": -ONE}) == (-k1).exp()
    assert (ONE * 2).exp() != ONE * 7 and (ONE * Fraction(1, 2)).exp() ** 2 == ONE.exp()


@CHECK
@given(elements())
def test_names_and_denominators(a):
    seen, below = set(), set()
    for _, powers, *exponent in a.to_json():
        for found in (powers, *(m for _, m in (exponent or [[]])[0])):
            seen |= set(found)
            below |= {name for name, power in found.items() if power < 0}
    assert a.names() == seen and a.collect_divisors() == below


# ---------------------------------------------------------------------------- JSON
@CHECK
@given(elements())
def test_json_round_trip(a):
    data = a.to_json()
    assert ExpPoly.from_json(data) == a and ExpPoly.from_json(data).to_json() == data
    assert ExpPoly.from_json(data[::-1]) == a
    assert ExpPoly.from_json(data + data) == a * 2


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ([], ZERO),
        ([["0", {}]], ZERO),
        ([["1", {}], ["-1", {}]], ZERO),
        ([["1", {"y": 1, "x": 2}]], x**2 * y),
        ([["2", {}, []]], ONE * 2),
        ([["1", {}, [["1", {"x": 1}], ["2", {"x": 1}]]]], (x * 3).exp()),
        ([["1", {}, [["1/2", {"x": 1}], ["1/2", {"x": 1}]]]], x.exp()),
        ([["1", {}, [["1", {"x": 1}], ["-1", {"x": 1}]]]], ONE),
        ([["1", {}, [["0", {"x": 1}]]]], ONE),
        ([["1", {}, [["1", {"y": 1}], ["1", {"x": 1}]]]], (x + y).exp()),
        ([["1/2", {}, [["1", {"x": 1}]]], ["1/2", {}, [["1", {"x": 1}]]]], x.exp()),
        ([["1", {}, [["3", {}]]]], (ONE * 3).exp()),
        ([["1", {}, [["1", {"x": 1}, []]]]], x.exp()),
    ],
)
def test_every_spelling_of_an_element_is_read_as_one(data, expected):
    read = ExpPoly.from_json(data)
    assert read == expected and read.to_json() == expected.to_json()
    assert all(type(v) is type(w) for v, w in zip(read.terms.values(), expected.terms.values(), strict=True))


TERMS = "a list of terms expected"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, TERMS),
        ({}, TERMS),
        ("x", TERMS),
        ([["1"]], TERMS),
        (["12"], TERMS),
        ([{"1": {}, "2": {}}], TERMS),
        ([["1", {}, [], 4]], TERMS),
        ([[1, {}]], "an exact number"),
        ([[1.5, {}]], "an exact number"),
        ([["1.5", {}]], "an exact number"),
        ([["", {}]], "an exact number"),
        ([["--1", {}]], "an exact number"),
        ([["1/-2", {}]], "an exact number"),
        ([["1/2/3", {}]], "an exact number"),
        ([["1/0", {}]], "in lowest terms expected, got '1/0'"),
        ([[None, {}]], "an exact number"),
        ([["\u00b2", {}]], "an exact number"),
        ([["1" * 4001, {}]], "an exact number"),
        ([["1/" + "1" * 4001, {}]], "an exact number"),
        ([["1", []]], "powers"),
        ([["4/2", {}]], "in lowest terms expected, got '4/2'"),
        ([["2/-4", {}]], "an exact number"),
        ([["3/1", {}]], "lowest terms"),
        ([["01", {}]], "lowest terms"),
        ([["-0", {}]], "lowest terms"),
        ([["+1", {}]], "an exact number"),
        ([["1", {"x": 0}]], "power of 'x': a nonzero integer up to 4096 expected"),
        ([["1", {"x": 1.0}]], "a nonzero integer up to 4096 expected"),
        ([["1", {"x": True}]], "a nonzero integer up to 4096 expected"),
        ([["1", {"x": "1"}]], "a nonzero integer up to 4096 expected"),
        ([["1", {"x": 4097}]], "a nonzero integer up to 4096 expected"),
        ([["1", {}, [["1", {"x": -4097}]]]], "a nonzero integer up to 4096 expected"),
        ([["1", {}, {}]], TERMS),
        ([["1", {}, [["1"]]]], TERMS),
        ([["1", {}, [["1", {"x": 1}, [["1", {"x": 1}]]]]]], "exp of an exponential"),
        ([["1", {}, [[1, {"x": 1}]]]], "an exact number"),
    ],
)
def test_malformed_json_is_refused(data, message):
    with pytest.raises(NotInRing, match=message):
        ExpPoly.from_json(data)


def test_the_canonical_form_is_written_in_order():
    assert repr(x + 1) == repr(1 + x) == "ExpPoly([['1', {}], ['1', {'x': 1}]])"
    assert (y.exp() * x).to_json() == [["1", {"x": 1}, [["1", {"y": 1}]]]] and ZERO.to_json() == []


def test_products_of_many_names_are_refused():
    names = {f"b{i}": 1 for i in range(64)}
    assert len(ExpPoly.from_json([["1", names]]).names()) == MAX_NAMES
    for row in (["1", names | {"c": 1}], ["1", {}, [["1", names | {"c": 1}]]]):
        with pytest.raises(NotInRing, match="a product of more than"):
            ExpPoly.from_json([row])


def test_numbers_are_read_exactly():
    cases = {"-3": -3, "22/7": Fraction(22, 7), "-2": -2, "0": 0, "1" * 4000: int("1" * 4000)}
    for text, expected in cases.items():
        assert read_number(text) == expected
    assert type(read_number("2")) is int
    assert ExpPoly.from_json([["1", {"x": -4096}]]).terms


# ---------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ExpPoly.from_number(0.5), "is not an exact rational number"),
        (lambda: ExpPoly.from_number(True), "is not an exact rational number"),
        (lambda: x + 0.5, "is not an exact rational number"),
        (lambda: x * "2", "is not an exact rational number"),
        (lambda: x.exp().exp(), "exp of an exponential"),
        (lambda: (x + y.exp()).exp(), "exp of an exponential"),
        (lambda: ZERO.invert(), "division by zero"),
        (lambda: (x + 1).invert(), "division by a sum"),
        (lambda: (x + 1) ** -1, "division by a sum"),
        (lambda: (x + 1) ** 65, "above the limit of 64"),
        (lambda: big() * big(), "a product of more than"),
    ],
)
def test_what_is_outside_the_ring_is_refused(build, message):
    with pytest.raises(NotInRing, match=message):
        build()


def big() -> ExpPoly:
    return sum((x**i for i in range(200)), ZERO)


def test_the_bounds_admit_what_they_promise():
    assert len(((x + 1) ** 64).terms) == 65
    assert len((x**10**6).terms) == 1
    rows = MAX_TERMS // 100
    product = sum((x**i for i in range(rows)), ZERO) * sum((y**i for i in range(100)), ZERO)
    assert len(product.terms) == rows * 100


def test_elements_of_other_types_are_never_equal():
    assert ONE != 1 and ZERO != 0 and x != "x"


def test_values_are_plain_and_what_is_computed_is_not_shared():
    assert [type(v) for v in (x * Fraction(1, 2) + x * Fraction(1, 2)).terms.values()] == [int]
    assert [type(v) for v in (x * 2 * Fraction(1, 2)).terms.values()] == [int]
    assert [type(v) for v in (ONE * Fraction(1, 2)).invert().terms.values()] == [int]
    assert (x + ZERO) is x and (x * ONE) is x and (ONE * x) is x and x.substitute({"y": z}) is x
    again = pickle.loads(pickle.dumps(x.exp() + y))
    assert again == x.exp() + y and hash(again) == hash(x.exp() + y)
