"""Exponential polynomials: the ring in which equality is decidable.  Trusted; standard library only.

An element is a finite sum  sum_i c_i * m_i * exp(Q_i)  with rational c_i, Laurent monomials m_i and
Laurent polynomials Q_i in named variables.  Distinct exponents are linearly independent over rational
functions, and e**a, e**b for distinct rationals a, b over the rationals (Lindemann-Weierstrass), so
the dictionary of terms is unique: an element is zero exactly when its dictionary is empty.

>>> k1 = ExpPoly.from_variable("k1")
>>> k3 = (-k1).exp() - 1 + k1
>>> (k3 - (k1 - 1)) * k1.exp() == ExpPoly.from_number(1)
True
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Any

from klsym.errors import NotInRing, Refused

Number = int | Fraction
Monomial = tuple[tuple[str, int], ...]  # sorted by name, powers nonzero
Exponent = tuple[tuple[Monomial, Number], ...]  # a polynomial, sorted by monomial
Key = tuple[Monomial, Exponent]
Terms = dict[Key, Number]

MAX_DIGITS, MAX_BITS = 4000, 13_280  # of an integer, when read and when computed
MAX_POWER, MAX_NAMES = 4096, 64  # of a variable, and in one product, when read
MAX_TERMS = 20_000  # a bound on what one product may grow to; far above any loss met in practice
_NUMBER = re.compile("-?[0-9]{1,4000}(/[1-9][0-9]{0,3999})?")
_LEFT: ContextVar[list[int] | None] = ContextVar("budget", default=None)


@contextmanager
def set_budget(units: int) -> Iterator[None]:
    """Let `charge` refuse, within this block, once so many units of work (about 1 us each) are spent."""
    token = _LEFT.set([units])
    try:
        yield
    finally:
        _LEFT.reset(token)


def charge(units: int) -> None:
    if (remaining := _LEFT.get()) is not None:
        remaining[0] -= units
        if remaining[0] < 0:
            raise Refused("the budget of work for one certificate is spent")


def _charge_sum(a: ExpPoly, b: ExpPoly) -> None:
    """Pay for an addition by the terms of both operands and by their digits."""
    if _LEFT.get() is not None:
        charge(len(a.terms) * (1 + a.measure_work()[1]) + len(b.terms) * (1 + b.measure_work()[1]) >> 2)


def count_bits(value: Number) -> int:
    """Return the bits of an exact number."""
    if type(value) is int:
        return value.bit_length()
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _normalise_number(value: Number) -> Number:
    """Return integers as `int`: they are several times faster than `Fraction`."""
    if type(value) is int or value.denominator == 1:
        return value.numerator
    if value.denominator.bit_length() > MAX_BITS:
        raise Refused(f"a number of more than {MAX_DIGITS} digits")
    return value


@lru_cache(maxsize=65536)
def _multiply_monomials(a: Monomial, b: Monomial) -> Monomial:
    if not a or not b:
        return a or b
    powers = dict(a)
    for name, power in b:
        powers[name] = powers.get(name, 0) + power
    return tuple(sorted((n, p) for n, p in powers.items() if p))


@lru_cache(maxsize=65536)
def _add_exponents(a: Exponent, b: Exponent) -> Exponent:
    if not a or not b:
        return a or b
    total = dict(a)
    for monomial, value in b:
        total[monomial] = _normalise_number(total.get(monomial, 0) + value)
    return tuple(sorted((m, v) for m, v in total.items() if v))


class ExpPoly:
    """An exponential polynomial; immutable, hashable, with exact equality.

    >>> x = ExpPoly.from_variable("x")
    >>> (x + 1) ** 2 == x * x + 2 * x + 1, x.exp() * (-x).exp() == ExpPoly.from_number(1)
    (True, True)
    """

    __slots__ = ("_hash", "_names", "_work", "terms")

    def __init__(self, terms: Terms) -> None:
        self.terms = terms if all(terms.values()) else {k: v for k, v in terms.items() if v}
        self._hash: int | None = None
        self._names: frozenset[str] | None = None
        self._work: tuple[int, int] | None = None

    @staticmethod
    def from_number(value: Number) -> ExpPoly:
        """Return the constant `value`, an int or a Fraction; floats are refused."""
        if isinstance(value, bool) or not isinstance(value, int | Fraction):
            raise NotInRing(f"{value!r} is not an exact rational number")
        return ExpPoly({((), ()): _normalise_number(value)})

    @staticmethod
    def from_variable(name: str) -> ExpPoly:
        return ExpPoly({(((name, 1),), ()): 1})

    def exp(self) -> ExpPoly:
        """Return exp of a polynomial; an exp inside exp is outside the ring."""
        if any(exponent for _, exponent in self.terms):
            raise NotInRing("exp of an exponential")
        return ExpPoly({((), tuple(sorted((m, v) for (m, _), v in self.terms.items()))): 1})

    # -- ring operations ----------------------------------------------------------------
    def __add__(self, other: ExpPoly | Number) -> ExpPoly:
        other = _as_element(other)
        if not other.terms:
            return self
        _charge_sum(self, other)
        if not self.terms:
            return other
        total = dict(self.terms)
        for key, value in other.terms.items():
            total[key] = _normalise_number(total[key] + value) if key in total else value
        return ExpPoly(total)

    def __neg__(self) -> ExpPoly:
        return ExpPoly({key: -value for key, value in self.terms.items()})

    def __sub__(self, other: ExpPoly | Number) -> ExpPoly:
        return self + (-_as_element(other))

    def __rsub__(self, other: Number) -> ExpPoly:
        return _as_element(other) + (-self)

    def __mul__(self, other: ExpPoly | Number) -> ExpPoly:
        other = _as_element(other)
        if other.terms == _ONE or self.terms == _ONE:
            return self if other.terms == _ONE else other
        pairs = len(self.terms) * len(other.terms)
        if pairs > MAX_TERMS:
            raise NotInRing(f"a product of more than {MAX_TERMS} terms")
        (rows, long), (rows_of_other, longer) = self.measure_work(), other.measure_work()
        charge(rows * rows_of_other * (1 + long) * (1 + longer))
        total: Terms = {}
        for (m1, e1), v1 in self.terms.items():
            for (m2, e2), v2 in other.terms.items():
                key, value = (_multiply_monomials(m1, m2), _add_exponents(e1, e2)), v1 * v2
                value = total[key] + value if key in total else value
                total[key] = value if type(value) is int else _normalise_number(value)
        product = ExpPoly(total)
        charge(pairs * product.measure_work()[1])
        return product

    __radd__ = __add__
    __rmul__ = __mul__

    def __pow__(self, power: int) -> ExpPoly:
        if power < 0:
            return self.invert() ** (-power)
        if power > 64 and len(self.terms) > 1:
            raise NotInRing(f"power {power} of a sum is above the limit of 64")
        result, base = ONE, self
        while power:
            result = result * base if power & 1 else result
            power >>= 1
            base = base * base if power else base
        return result

    def invert(self) -> ExpPoly:
        """Return 1/x for a single term; the inverse of a sum is outside the ring."""
        if len(self.terms) != 1:
            raise NotInRing("division by zero" if not self.terms else "division by a sum")
        [((monomial, exponent), value)] = self.terms.items()
        flipped = tuple((name, -power) for name, power in monomial)
        return ExpPoly(
            {(flipped, tuple((m, -v) for m, v in exponent)): _normalise_number(Fraction(1, value))}
        )

    # -- calculus and substitution ------------------------------------------------------
    def derive(self, rule: Callable[[str], ExpPoly]) -> ExpPoly:
        """Return the derivative by the derivation that sends each variable to `rule(name)`.

        D(m exp(Q)) = D(m) exp(Q) + m D(Q) exp(Q), with D(x^a y^b) = a x^(a-1) y^b Dx + b x^a y^(b-1) Dy.
        """
        charge(self.measure_work()[0])
        slopes, total = {name: slope for name in sorted(self.names()) if (slope := rule(name))}, ZERO
        for (monomial, exponent), value in self.terms.items() if slopes else ():
            for name, power in (item for item in monomial if item[0] in slopes):
                below = _multiply_monomials(monomial, ((name, -1),)), exponent
                total = total + ExpPoly({below: _normalise_number(value * power)}) * slopes[name]
            if exponent:
                total = total + ExpPoly({(monomial, exponent): value}) * _build_polynomial(exponent).derive(
                    rule
                )
        return total

    def substitute(self, values: Mapping[str, ExpPoly]) -> ExpPoly:
        """Replace variables by elements (inside an exponent: by polynomials)."""
        if not values.keys() & self.names():
            return self
        total = ZERO
        for (monomial, exponent), value in self.terms.items():
            term = ExpPoly({(tuple(item for item in monomial if item[0] not in values), ()): value})
            for name, power in monomial:
                term = term * values[name] ** power if name in values else term
            total = total + (
                term * _build_polynomial(exponent).substitute(values).exp() if exponent else term
            )
        return total

    def rename(self, new_name: Callable[[str], str]) -> ExpPoly:
        """Replace names by names, which may coincide with others."""
        new, total = {name: new_name(name) for name in self.names()}, ZERO
        if all(a == b for a, b in new.items()):
            return self

        def rename_monomial(monomial: Monomial) -> Monomial:
            return reduce(_multiply_monomials, [((new[name], power),) for name, power in monomial], ())

        for (monomial, exponent), value in self.terms.items():
            inside: Exponent = ()
            for m, v in exponent:
                inside = _add_exponents(inside, ((rename_monomial(m), v),))
            total = total + ExpPoly({(rename_monomial(monomial), inside): value})
        return total

    # -- inspection ---------------------------------------------------------------------
    def _list_monomials(self) -> list[Monomial]:
        return [m for monomial, exponent in self.terms for m, _ in ((monomial, 1), *exponent)]

    def measure_work(self) -> tuple[int, int]:
        """Return what a factor costs: its monomials, also in exponents, and its longest number squared."""
        if self._work is None:
            rows = longest = 0
            for (monomial, exponent), value in self.terms.items():
                for m, number in ((monomial, value), *exponent):
                    rows += 1 + len(m) // 8
                    bits = number.bit_length() if type(number) is int else count_bits(number)
                    longest = bits if bits > longest else longest
            if longest > MAX_BITS:
                raise Refused(f"a number of more than {MAX_DIGITS} digits")
            self._work = rows, (longest >> 8) ** 2
        return self._work

    def names(self) -> frozenset[str]:
        if self._names is None:
            self._names = frozenset([name for m in self._list_monomials() for name, _ in m])
        return self._names

    def collect_divisors(self) -> set[str]:
        """Return the names that stand in a denominator."""
        return {name for m in self._list_monomials() for name, power in m if power < 0}

    def __bool__(self) -> bool:
        return bool(self.terms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExpPoly) and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        """Hashes of texts differ between processes: what is cached stays behind."""
        return ExpPoly, (self.terms,)

    def __repr__(self) -> str:
        return f"ExpPoly({self.to_json()})"

    # -- JSON: [[coefficient, {name: power}, [[coefficient, {name: power}], ...]], ...] -------
    def to_json(self) -> list[Any]:
        """Return the canonical JSON form: terms sorted, numbers as exact strings."""
        return [
            [str(value), dict(m), *([[[str(v), dict(inner)] for inner, v in exponent]] if exponent else ())]
            for (m, exponent), value in sorted(self.terms.items())
        ]

    @staticmethod
    def from_json(data: Any) -> ExpPoly:
        """Read `to_json` back; raises NotInRing on anything malformed."""
        total: Terms = {}
        for row in data if isinstance(data, list) else [data]:
            if not isinstance(row, list) or len(row) not in (2, 3):
                raise NotInRing(
                    f"a list of terms expected, each [coefficient, powers, exponent], got {str(row)[:60]}"
                )
            [(_, exponent)] = (ExpPoly.from_json(row[2]).exp() if row[2:] else ONE).terms
            key = _read_monomial(row[1]), exponent
            total[key] = _normalise_number(total.get(key, 0) + read_number(row[0]))
        return ExpPoly(total)


_ONE: Terms = {((), ()): 1}
ZERO, ONE = ExpPoly({}), ExpPoly(_ONE)


def _as_element(value: ExpPoly | Number) -> ExpPoly:
    return value if isinstance(value, ExpPoly) else ExpPoly.from_number(value)


def _build_polynomial(exponent: Exponent) -> ExpPoly:
    return ExpPoly({(monomial, ()): value for monomial, value in exponent})


def read_number(text: Any) -> Number:
    """Return an exact rational in lowest terms from its text, such as "-3" or "22/7"; nothing else."""
    if isinstance(text, str) and _NUMBER.fullmatch(text):
        numerator, _, denominator = text.partition("/")
        value = (
            _normalise_number(Fraction(int(numerator), int(denominator))) if denominator else int(numerator)
        )
        if str(value) == text:
            return value
    raise NotInRing(f'an exact number such as "-3/2" in lowest terms expected, got {str(text)[:40]!r}')


def _read_monomial(data: Any) -> Monomial:
    if not isinstance(data, dict):
        raise NotInRing(f"powers {{name: power}} expected, got {str(data)[:60]}")
    if len(data) > MAX_NAMES:
        raise NotInRing(f"a product of more than {MAX_NAMES} names")
    for name, power in data.items():
        if type(power) is not int or not 0 < abs(power) <= MAX_POWER:
            raise NotInRing(f"power of {name!r}: a nonzero integer up to {MAX_POWER} expected")
    return tuple(sorted(data.items()))
