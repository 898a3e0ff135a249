"""Exponential polynomials: the ring in which equality is decidable.  Trusted; standard library only.

An element is a finite sum  sum_i c_i * m_i * exp(Q_i)  with rational c_i, Laurent monomials m_i and
Laurent polynomials Q_i in named variables.  Distinct exponents are linearly independent over rational
functions, and e**a, e**b for distinct rationals a, b over the rationals (Lindemann-Weierstrass), so
the dictionary of terms is unique: an element is zero exactly when its dictionary is empty.

>>> k1 = ExpPoly.variable("k1")
>>> k3 = (-k1).exp() - 1 + k1
>>> (k3 - (k1 - 1)) * k1.exp() == ExpPoly.number(1)
True
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

from klsym.errors import NotInRing

Number = int | Fraction
Monomial = tuple[tuple[str, int], ...]  # sorted by name, powers nonzero
Exponent = tuple[tuple[Monomial, Number], ...]  # a polynomial, sorted by monomial
Key = tuple[Monomial, Exponent]
Terms = dict[Key, Number]

MAX_DIGITS = 4000  # of an integer, when read
MAX_POWER = 4096  # of a variable, when read
MAX_TERMS = 20_000  # a bound on what one product may grow to; far above any loss met in practice


def _plain(value: Number) -> Number:
    """Integers stay `int`: they are several times faster than `Fraction`."""
    return value.numerator if value.denominator == 1 else value


@lru_cache(maxsize=65536)
def _times(a: Monomial, b: Monomial) -> Monomial:
    if not a or not b:
        return a or b
    powers = dict(a)
    for name, power in b:
        powers[name] = powers.get(name, 0) + power
    return tuple(sorted((n, p) for n, p in powers.items() if p))


@lru_cache(maxsize=65536)
def _plus(a: Exponent, b: Exponent) -> Exponent:
    if not a or not b:
        return a or b
    total = dict(a)
    for monomial, value in b:
        total[monomial] = _plain(total.get(monomial, 0) + value)
    return tuple(sorted((m, v) for m, v in total.items() if v))


_ONE: Terms = {((), ()): 1}


class ExpPoly:
    """An exponential polynomial; immutable, hashable, with exact equality.

    >>> x = ExpPoly.variable("x")
    >>> (x + 1) ** 2 == x * x + 2 * x + 1
    True
    >>> x.exp() * (-x).exp() == ExpPoly.number(1)
    True
    """

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: Terms) -> None:
        self.terms = terms if all(terms.values()) else {k: v for k, v in terms.items() if v}
        self._hash: int | None = None

    # -- construction -------------------------------------------------------------------
    @staticmethod
    def number(value: Number) -> ExpPoly:
        """The constant `value`, an int or a Fraction; floats are refused."""
        if isinstance(value, bool) or not isinstance(value, int | Fraction):
            raise NotInRing(f"{value!r} is not an exact rational number")
        return ExpPoly({((), ()): _plain(value)})

    @staticmethod
    def variable(name: str) -> ExpPoly:
        return ExpPoly({(((name, 1),), ()): 1})

    def exp(self) -> ExpPoly:
        """exp of a polynomial; an exp inside exp is outside the ring."""
        if any(exponent for _, exponent in self.terms):
            raise NotInRing("exp of an exponential")
        return ExpPoly({((), tuple(sorted((m, v) for (m, _), v in self.terms.items()))): 1})

    # -- ring operations ----------------------------------------------------------------
    def __add__(self, other: ExpPoly | Number) -> ExpPoly:
        other = _element(other)
        if not self.terms or not other.terms:
            return self if self.terms else other
        total = dict(self.terms)
        for key, value in other.terms.items():
            total[key] = _plain(total.get(key, 0) + value)
        return ExpPoly(total)

    def __neg__(self) -> ExpPoly:
        return ExpPoly({key: -value for key, value in self.terms.items()})

    def __sub__(self, other: ExpPoly | Number) -> ExpPoly:
        return self + (-_element(other))

    def __rsub__(self, other: Number) -> ExpPoly:
        return _element(other) + (-self)

    def __mul__(self, other: ExpPoly | Number) -> ExpPoly:
        other = _element(other)
        if other.terms == _ONE or self.terms == _ONE:
            return self if other.terms == _ONE else other
        if len(self.terms) * len(other.terms) > MAX_TERMS:
            raise NotInRing(f"a product of more than {MAX_TERMS} terms")
        total: Terms = {}
        for (m1, e1), v1 in self.terms.items():
            for (m2, e2), v2 in other.terms.items():
                key = (_times(m1, m2), _plus(e1, e2))
                total[key] = _plain(total.get(key, 0) + v1 * v2)
        return ExpPoly(total)

    __radd__ = __add__
    __rmul__ = __mul__

    def __pow__(self, power: int) -> ExpPoly:
        if power < 0:
            return self.inverse() ** (-power)
        if power > 64 and len(self.terms) > 1:
            raise NotInRing(f"power {power} of a sum is above the limit of 64")
        result, base = ExpPoly.number(1), self
        while power:
            if power & 1:
                result = result * base
            power >>= 1
            if power:
                base = base * base
        return result

    def inverse(self) -> ExpPoly:
        """1/x for a single term; the inverse of a sum is outside the ring.

        >>> ExpPoly.variable("beta").inverse() * ExpPoly.variable("beta") == ExpPoly.number(1)
        True
        """
        if len(self.terms) != 1:
            raise NotInRing("division by zero" if not self.terms else "division by a sum")
        [((monomial, exponent), value)] = self.terms.items()
        flipped = tuple((name, -power) for name, power in monomial)
        return ExpPoly({(flipped, tuple((m, -v) for m, v in exponent)): _plain(1 / Fraction(value))})

    # -- calculus and substitution ------------------------------------------------------
    def derive(self, rule: Callable[[str], ExpPoly]) -> ExpPoly:
        """The derivation that sends each variable to `rule(name)`.

        D(m exp(Q)) = D(m) exp(Q) + m D(Q) exp(Q), D by the product rule on monomials.
        """
        total = ZERO
        for (monomial, exponent), value in self.terms.items():
            outer = ExpPoly({((), exponent): value})
            inner = _derive_monomial(monomial, rule)
            for m, v in exponent:
                inner = inner + ExpPoly({(monomial, ()): v}) * _derive_monomial(m, rule)
            total = total + inner * outer
        return total

    def substitute(self, values: Mapping[str, ExpPoly]) -> ExpPoly:
        """Replace variables by elements (inside an exponent: by polynomials)."""
        if not values.keys() & self.names():
            return self
        total = ZERO
        for (monomial, exponent), value in self.terms.items():
            inside = ZERO
            for m, v in exponent:
                inside = inside + _substitute_monomial(m, values) * v
            total = total + _substitute_monomial(monomial, values) * value * inside.exp()
        return total

    def rename(self, new_name: Callable[[str], str]) -> ExpPoly:
        renamed = {name: new_name(name) for name in self.names()}
        return self.substitute({a: ExpPoly.variable(b) for a, b in renamed.items() if a != b})

    # -- inspection ---------------------------------------------------------------------
    def names(self) -> set[str]:
        found: set[str] = set()
        for monomial, exponent in self.terms:
            found.update(name for name, _ in monomial)
            for m, _ in exponent:
                found.update(name for name, _ in m)
        return found

    def inverted(self) -> set[str]:
        """Names that stand in a denominator."""
        parts = [m for m, _ in self.terms] + [m for _, e in self.terms for m, _ in e]
        return {name for m in parts for name, power in m if power < 0}

    def __bool__(self) -> bool:
        return bool(self.terms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExpPoly) and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        """Hashes of texts differ between processes: the cached one stays behind."""
        return ExpPoly, (self.terms,)

    def __repr__(self) -> str:
        return f"ExpPoly({self.to_json()})"

    # -- JSON: [[coefficient, {name: power}, [[coefficient, {name: power}], ...]], ...] -------
    def to_json(self) -> list[Any]:
        """The canonical JSON form: terms sorted, numbers as exact strings."""
        rows: list[Any] = []
        for (monomial, exponent), value in sorted(self.terms.items()):
            row: list[Any] = [str(value), dict(monomial)]
            if exponent:
                row.append([[str(v), dict(m)] for m, v in exponent])
            rows.append(row)
        return rows

    @staticmethod
    def from_json(data: Any) -> ExpPoly:
        """Read `to_json` back; raises NotInRing on anything malformed.

        >>> x = ExpPoly.variable("x") * Fraction(1, 2)
        >>> ExpPoly.from_json(x.to_json()) == x
        True
        """
        if not isinstance(data, list):
            raise NotInRing(f"a list of terms expected, got {str(data)[:60]}")
        total: Terms = {}
        for row in data:
            if not isinstance(row, list) or len(row) not in (2, 3):
                raise NotInRing(f"a term [coefficient, powers, exponent] expected, got {str(row)[:60]}")
            exponent = _read_polynomial(row[2]) if len(row) == 3 else ()
            key = (_read_monomial(row[1]), exponent)
            total[key] = _plain(total.get(key, 0) + read_number(row[0]))
        return ExpPoly(total)


ZERO = ExpPoly({})
ONE = ExpPoly(_ONE)


def _element(value: ExpPoly | Number) -> ExpPoly:
    return value if isinstance(value, ExpPoly) else ExpPoly.number(value)


def _derive_monomial(monomial: Monomial, rule: Callable[[str], ExpPoly]) -> ExpPoly:
    """D(x^a y^b) = a x^(a-1) y^b Dx + b x^a y^(b-1) Dy."""
    total = ZERO
    for name, power in monomial:
        change = rule(name)
        if change:
            rest = _times(monomial, ((name, -1),))
            total = total + ExpPoly({(rest, ()): power}) * change
    return total


def _substitute_monomial(monomial: Monomial, values: Mapping[str, ExpPoly]) -> ExpPoly:
    product = ONE
    for name, power in monomial:
        if name in values:
            product = product * values[name] ** power
        else:
            product = product * ExpPoly({(((name, power),), ()): 1})
    return product


def read_number(text: Any) -> Number:
    """An exact rational from its JSON string `"-3"` or `"22/7"`; nothing else is accepted."""
    numerator, _, denominator = text.partition("/") if isinstance(text, str) else ("", "", "")
    digits = numerator.removeprefix("-")
    if not (_is_digits(digits) and (not denominator or _is_digits(denominator))):
        raise NotInRing(f'an exact number such as "-3/2" expected, got {str(text)[:40]!r}')
    if denominator and int(denominator) == 0:
        raise NotInRing(f"zero denominator in {text[:40]!r}")
    value = _plain(Fraction(int(numerator), int(denominator or 1)))
    if str(value) != text:
        raise NotInRing(f"a number in lowest terms expected, got {text[:40]!r}")
    return value


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS


def _read_monomial(data: Any) -> Monomial:
    if not isinstance(data, dict):
        raise NotInRing(f"powers {{name: power}} expected, got {str(data)[:60]}")
    for name, power in data.items():
        if type(power) is not int or not 0 < abs(power) <= MAX_POWER:
            raise NotInRing(f"power of {name!r}: a nonzero integer up to {MAX_POWER} expected")
    return tuple(sorted(data.items()))


def _read_polynomial(data: Any) -> Exponent:
    if not isinstance(data, list):
        raise NotInRing(f"an exponent [[coefficient, powers], ...] expected, got {str(data)[:60]}")
    total: dict[Monomial, Number] = {}
    for row in data:
        if not isinstance(row, list) or len(row) != 2:
            raise NotInRing(f"[coefficient, powers] expected in an exponent, got {str(row)[:60]}")
        monomial = _read_monomial(row[1])
        total[monomial] = _plain(total.get(monomial, 0) + read_number(row[0]))
    return tuple(sorted((m, v) for m, v in total.items() if v))
