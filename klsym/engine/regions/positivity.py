"""Prove that an exponential polynomial is nowhere negative: by factors, squares and tangents.  Untrusted.

>>> from klsym.language.convert import to_ring
>>> from klsym.language.expressions import k3, rho, k1
>>> rows = find_positive_sum(to_ring(rho * (2 * k3 + 1)))
>>> len(rows.squares), len(rows.tangents)
(1, 1)
>>> split = split_difference_of_squares(to_ring(rho * (k1 + 1)), to_ring(rho * k1))
>>> split.remainder == to_ring(2 * k1 + 1), split.unit == to_ring(rho**2)
(True, True)
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import gcd, lcm
from typing import Any, NamedTuple

from klsym.kernel.names import parse_name
from klsym.kernel.ring import ONE, ZERO, Exponent, ExpPoly, Number
from klsym.language.convert import to_sympy
from klsym.records import record

MAX_TANGENTS = 3  # that are taken out of one sum
MAX_SUMMANDS = 30  # of a sum that is searched
ProofRow = dict[str, Any]


# ---------------------------------------------------------------------------- factors
@record
class SignSplit:
    """a^2 - b^2 = scale unit root^2 remainder: scale > 0 is a number, unit an exponential.

    The remainder is the product of the factors and has the sign of the difference.
    """

    scale: Fraction
    unit: ExpPoly
    root: ExpPoly
    factors: tuple[ExpPoly, ...]  # of rest

    @property
    def remainder(self) -> ExpPoly:
        product = ONE
        for factor in self.factors:
            product = product * factor
        return product

    @property
    def signed_factors(self) -> tuple[ExpPoly, ...]:
        """The factors of one sign, such as k3 or -k3, each with the sign that makes it nowhere negative."""
        signed = (f if find_positive_sum(f) else -f for f in self.factors if f.names())
        return tuple(f for f in signed if find_positive_sum(f))

    @property
    def displayed_factors(self) -> tuple[tuple[ExpPoly, ...], tuple[ExpPoly, ...]]:
        """The factors that decide the sign, and factors that may be 0 elsewhere."""
        sign = ONE
        for f in self.factors:
            sign = -sign if -f in self.signed_factors else sign
        remainder = [f for f in self.factors if not {f, -f} & set(self.signed_factors) and f != ONE]
        remainder = [sign * f for f in remainder[:1]] + remainder[1:] or [sign]
        zeros = (f for f in (self.root, *self.signed_factors) if f.names() and not _is_positive_sum(f))
        return tuple(remainder), tuple(f for f in zeros if not {f, -f} & set(remainder))


def _is_positive_sum(f: ExpPoly) -> bool:
    """Is one of the squares in the sum that equals f an exponential?"""
    rows = find_positive_sum(f)
    return rows is not None and any(row["b"] == 1 for row in rows.squares)


def split_difference_of_squares(a: ExpPoly, b: ExpPoly) -> SignSplit:
    """Return (a - b)(a + b) without positive factors and without squares."""
    if a * a == b * b:
        return SignSplit(Fraction(1), ONE, ONE, (ZERO,))
    first, second = split_common_factors(a - b), split_common_factors(a + b)
    number, monomial = first.number * second.number, first.monomial * second.monomial
    [(powers, _)] = monomial.terms
    half = tuple((name, power // 2) for name, power in powers if power // 2)
    odd = tuple((name, power % 2) for name, power in powers if power % 2)
    root, factors = ExpPoly({(half, ()): 1}), [ExpPoly({(odd, ()): 1})]
    if first.remainder == second.remainder:
        root = root * first.remainder
    else:
        factors += [first.remainder, second.remainder]
    nontrivial = [f for f in factors if f != ONE] or [ONE]
    nontrivial[0] = nontrivial[0] * (1 if number > 0 else -1)
    exponential = first.exponential * second.exponential
    return SignSplit(abs(number), exponential, root, tuple(nontrivial))


class CommonFactors(NamedTuple):
    """The product number * exponential * monomial * remainder, the first three shared by all terms."""

    number: Fraction
    exponential: ExpPoly
    monomial: ExpPoly
    remainder: ExpPoly


def split_common_factors(f: ExpPoly) -> CommonFactors:
    """Split off what all terms share.

    The remainder is positive at q = p = mu, or if it is 0 there, its first term is positive.
    """
    exponents = [dict(e) for _, e in f.terms]
    unit = ExpPoly({((), _find_shared_powers(exponents)): 1})
    monomial = ExpPoly({(_find_shared_powers([dict(m) for m, _ in f.terms]), ()): 1})
    remainder = f * unit.invert() * monomial.invert()
    numbers = [Fraction(v) for v in remainder.terms.values()]
    content = Fraction(gcd(*(v.numerator for v in numbers)), lcm(*(v.denominator for v in numbers)))
    at_equality = sum(v for (m, _), v in remainder.terms.items() if not m)
    lead = at_equality or remainder.terms[min(remainder.terms)]
    number = content if lead > 0 else -content
    return CommonFactors(number, unit, monomial, remainder * (1 / number))


def drop_positive_factors(f: ExpPoly) -> ExpPoly:
    """Return f without the exponential and even powers that all its terms share: same signs."""
    if not f:
        return f
    factors = split_common_factors(f)
    [(powers, _)] = factors.monomial.terms
    odd = tuple((name, 1) for name, power in powers if power % 2)
    return ExpPoly({(odd, ()): 1 if factors.number > 0 else -1}) * factors.remainder


def _find_shared_powers(powers: list[dict[Any, Any]]) -> tuple[Any, ...]:
    """Return the common part of products of powers: where all have one sign, the power nearest to 0."""
    shared = []
    for name in sorted(powers[0]):
        values = [p.get(name, 0) for p in powers]
        if all(v > 0 for v in values) or all(v < 0 for v in values):
            shared.append((name, min(values, key=abs)))
    return tuple(shared)


def find_multiple(a: ExpPoly, b: ExpPoly) -> Number:
    """Return the rational c with a = c b, or 0."""
    if not b:
        return 0
    key = min(b.terms)
    c = Fraction(a.terms.get(key, 0)) / b.terms[key]
    return c if a == b * c else 0


# ---------------------------------------------------------------------------- sums
@record
class Rows:
    """Squares scale exp(v) b^2 and tangents scale exp(v) (exp(u) - 1 - u), as `at_most` takes them."""

    squares: tuple[ProofRow, ...]
    tangents: tuple[ProofRow, ...]


@lru_cache(maxsize=1024)
def find_positive_sum(element: ExpPoly) -> Rows | None:
    """Return the element as a sum of squares and tangents with positive coefficients, or None."""
    return _search_sum(element, MAX_TANGENTS) if element and len(element.terms) <= MAX_SUMMANDS else None


def _search_sum(element: ExpPoly, tangents: int) -> Rows | None:
    squares = _find_squares(element)
    if squares is not None:
        return Rows(tuple(squares), ())
    for (monomial, v), value in sorted(element.terms.items()) if tangents else ():
        if len(monomial) != 1 or not _is_log_ratio(*monomial[0]):
            continue
        for u, t in _list_tangent_candidates(element, v, monomial):
            scale = -Fraction(value) / t
            if scale > 0:
                front, rise = ExpPoly({((), v): scale}), ExpPoly({(monomial, ()): t})
                rows = _search_sum(element - front * (u - 1 - rise), tangents - 1)
                if rows:
                    row = {"scale": _convert_number(scale), "v": _convert_exponent(v), "u": to_sympy(rise)}
                    return Rows(rows.squares, (row, *rows.tangents))
    return None


def _is_log_ratio(name: str, power: int) -> bool:
    return power == 1 and parse_name(name).base in ("k1", "w", "o")


def _list_tangent_candidates(element: ExpPoly, v: Exponent, monomial: Any) -> list[tuple[ExpPoly, Fraction]]:
    """Return exp(u) and t for each positive term exp(v + u) of the element with u = t k1 (or t w).

    The tangent exp(v) (exp(u) - 1 - u) >= 0 may cancel the term exp(v) k1 (or w), the monomial.
    """
    slopes = []
    for (m, e), value in sorted(element.terms.items()):
        u = ExpPoly({((), e): 1}) * ExpPoly({((), v): 1}).invert()
        [(_, exponent)] = u.terms
        if value > 0 and not m and len(exponent) == 1 and exponent[0][0] == monomial:
            slopes.append((u, Fraction(exponent[0][1])))
    return slopes


def _find_squares(element: ExpPoly) -> list[ProofRow] | None:
    """Return rows of exponentials times even monomials or quadratics without real zeros; else None."""
    groups: dict[Exponent, ExpPoly] = {}
    for (m, e), value in element.terms.items():
        groups[e] = groups.get(e, ZERO) + ExpPoly({(m, ()): value})
    rows: list[ProofRow] = []
    for v, polynomial in groups.items():
        squares = _split_even_monomials(polynomial) or _complete_square(polynomial)
        if squares is None:
            return None
        rows += [
            {"scale": _convert_number(c), "v": _convert_exponent(v), "b": to_sympy(b)} for c, b in squares
        ]
    return rows


def _split_even_monomials(polynomial: ExpPoly) -> list[tuple[Fraction, ExpPoly]] | None:
    """Return c and b of a sum of c b^2 with c >= 0, one for each monomial; None if one is odd or negative."""
    squares = []
    for (monomial, _), value in polynomial.terms.items():
        if value < 0 or any(power % 2 for _, power in monomial):
            return None
        half = tuple((name, power // 2) for name, power in monomial)
        squares.append((Fraction(value), ExpPoly({(half, ()): 1})))
    return squares


def _complete_square(polynomial: ExpPoly) -> list[tuple[Fraction, ExpPoly]] | None:
    """Write c2 x^2 + c1 x + c0 as c2 (x + c1/2c2)^2 + c0 - c1^2/4c2."""
    names = polynomial.names()
    if len(names) != 1:
        return None
    x = ExpPoly.from_variable(*names)
    c0, c1, c2 = (Fraction(polynomial.terms.get(next(iter((x**i).terms)), 0)) for i in range(3))
    if c2 <= 0 or polynomial != x**2 * c2 + x * c1 + c0 or c0 < c1**2 / (4 * c2):
        return None
    constant = c0 - c1**2 / (4 * c2)
    return [(c2, x + c1 / (2 * c2)), *([(constant, ONE)] if constant else [])]


def _convert_exponent(v: Exponent) -> Any:
    return to_sympy(ExpPoly({(m, ()): value for m, value in v}))


def _convert_number(value: Fraction) -> Any:
    return to_sympy(ExpPoly.from_number(value))
