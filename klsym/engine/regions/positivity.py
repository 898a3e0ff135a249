"""Where an exponential polynomial is nowhere negative: factors, squares and tangents.  Untrusted.

>>> from klsym.language.convert import to_ring
>>> from klsym.language.expressions import k3, rho, k1
>>> rows = positive_sum(to_ring(rho * (2 * k3 + 1)))
>>> len(rows.squares), len(rows.tangents)
(1, 1)
>>> split = difference_of_squares(to_ring(rho * (k1 + 1)), to_ring(rho * k1))
>>> split.rest == to_ring(2 * k1 + 1), split.unit == to_ring(rho**2)
(True, True)
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import gcd, lcm
from typing import Any

from klsym.kernel.names import parse_name
from klsym.kernel.ring import ONE, ZERO, Exponent, ExpPoly, Number
from klsym.language.convert import to_sympy

MAX_TANGENTS = 3  # that are taken out of one sum
MAX_SUMMANDS = 30  # of a sum that is searched
ProofRow = dict[str, Any]


# ---------------------------------------------------------------------------- factors
@dataclass(frozen=True)
class Split:
    """a^2 - b^2 = scale unit root^2 rest: scale > 0 is a number, unit an exponential; rest has the sign."""

    scale: Fraction
    unit: ExpPoly
    root: ExpPoly
    factors: tuple[ExpPoly, ...]  # of rest

    @property
    def rest(self) -> ExpPoly:
        product = ONE
        for factor in self.factors:
            product = product * factor
        return product

    @property
    def decided(self) -> tuple[ExpPoly, ...]:
        """Factors of one sign, such as k3 or -k3, each with the sign that makes it nowhere negative."""
        signed = (f if positive_sum(f) else -f for f in self.factors if f.names())
        return tuple(f for f in signed if positive_sum(f))

    @property
    def shown(self) -> tuple[tuple[ExpPoly, ...], tuple[ExpPoly, ...]]:
        """The factors that decide the sign, and what may be 0 elsewhere."""
        sign = ONE
        for f in self.factors:
            sign = -sign if -f in self.decided else sign
        rest = [f for f in self.factors if not {f, -f} & set(self.decided) and f != ONE]
        rest = [sign * f for f in rest[:1]] + rest[1:] or [sign]
        zeros = (f for f in (self.root, *self.decided) if f.names() and not _positive(f))
        return tuple(rest), tuple(f for f in zeros if not {f, -f} & set(rest))


def _positive(f: ExpPoly) -> bool:
    """One of the squares in the sum that is f is an exponential."""
    rows = positive_sum(f)
    return rows is not None and any(row["b"] == 1 for row in rows.squares)


def difference_of_squares(a: ExpPoly, b: ExpPoly) -> Split:
    """(a - b)(a + b), without what is positive and without squares."""
    if a * a == b * b:
        return Split(Fraction(1), ONE, ONE, (ZERO,))
    (c1, e1, m1, f1), (c2, e2, m2, f2) = _stripped(a - b), _stripped(a + b)
    number, monomial = c1 * c2, m1 * m2
    [(powers, _)] = monomial.terms
    half = tuple((name, power // 2) for name, power in powers if power // 2)
    odd = tuple((name, power % 2) for name, power in powers if power % 2)
    root, factors = ExpPoly({(half, ()): 1}), [ExpPoly({(odd, ()): 1})]
    if f1 == f2:
        root = root * f1
    else:
        factors += [f1, f2]
    kept = [f for f in factors if f != ONE] or [ONE]
    kept[0] = kept[0] * (1 if number > 0 else -1)
    return Split(abs(number), e1 * e2, root, tuple(kept))


def _stripped(f: ExpPoly) -> tuple[Fraction, ExpPoly, ExpPoly, ExpPoly]:
    """f = number * exponential * monomial * rest, all that its terms share; rest is positive at q = p = mu.

    If rest has no sign there, its first term is positive.
    """
    exponents = [dict(e) for _, e in f.terms]
    unit = ExpPoly({((), _shared(exponents)): 1})
    monomial = ExpPoly({(_shared([dict(m) for m, _ in f.terms]), ()): 1})
    rest = f * unit.inverse() * monomial.inverse()
    numbers = [Fraction(v) for v in rest.terms.values()]
    content = Fraction(gcd(*(v.numerator for v in numbers)), lcm(*(v.denominator for v in numbers)))
    at_equality = sum(v for (m, _), v in rest.terms.items() if not m)
    lead = at_equality or rest.terms[min(rest.terms)]
    number = content if lead > 0 else -content
    return number, unit, monomial, rest * (1 / number)


def without_positive_factors(f: ExpPoly) -> ExpPoly:
    """f without the exponential and the even powers that all its terms share: it has the same signs."""
    if not f:
        return f
    number, _, monomial, rest = _stripped(f)
    [(powers, _)] = monomial.terms
    odd = tuple((name, 1) for name, power in powers if power % 2)
    return ExpPoly({(odd, ()): 1 if number > 0 else -1}) * rest


def _shared(powers: list[dict[Any, Any]]) -> tuple[Any, ...]:
    """The common part of some products of powers: where all have one sign, the power nearest to 0."""
    found = []
    for name in sorted(powers[0]):
        values = [p.get(name, 0) for p in powers]
        if all(v > 0 for v in values) or all(v < 0 for v in values):
            found.append((name, min(values, key=abs)))
    return tuple(found)


def multiple(a: ExpPoly, b: ExpPoly) -> Number:
    """The rational c with a = c b, or 0."""
    if not b:
        return 0
    key = min(b.terms)
    c = Fraction(a.terms.get(key, 0)) / b.terms[key]
    return c if a == b * c else 0


# ---------------------------------------------------------------------------- sums
@dataclass(frozen=True)
class Rows:
    """Squares scale exp(v) b^2 and tangents scale exp(v) (exp(u) - 1 - u), as `at_most` takes them."""

    squares: tuple[ProofRow, ...]
    tangents: tuple[ProofRow, ...]


@lru_cache(maxsize=1024)
def positive_sum(element: ExpPoly) -> Rows | None:
    """`element` as a sum of squares and tangents with positive numbers in front; None if none is found."""
    return _searched(element, MAX_TANGENTS) if element and len(element.terms) <= MAX_SUMMANDS else None


def _searched(element: ExpPoly, tangents: int) -> Rows | None:
    squares = _squares(element)
    if squares is not None:
        return Rows(tuple(squares), ())
    for (monomial, v), value in sorted(element.terms.items()) if tangents else ():
        if len(monomial) != 1 or not _is_log_ratio(*monomial[0]):
            continue
        for u, t in _slopes(element, v, monomial):
            scale = -Fraction(value) / t
            if scale > 0:
                at, rise = ExpPoly({((), v): scale}), ExpPoly({(monomial, ()): t})
                found = _searched(element - at * (u - 1 - rise), tangents - 1)
                if found:
                    row = {"scale": _exact(scale), "v": _power(v), "u": to_sympy(rise)}
                    return Rows(found.squares, (row, *found.tangents))
    return None


def _is_log_ratio(name: str, power: int) -> bool:
    return power == 1 and parse_name(name).base in ("k1", "w", "o")


def _slopes(element: ExpPoly, v: Exponent, monomial: Any) -> list[tuple[ExpPoly, Fraction]]:
    """exp(u) and t, for each positive term exp(v + u) of the element with u = t k1 (or t w)."""
    found = []
    for (m, e), value in sorted(element.terms.items()):
        u = ExpPoly({((), e): 1}) * ExpPoly({((), v): 1}).inverse()
        [(_, exponent)] = u.terms
        if value > 0 and not m and len(exponent) == 1 and exponent[0][0] == monomial:
            found.append((u, Fraction(exponent[0][1])))
    return found


def _squares(element: ExpPoly) -> list[ProofRow] | None:
    """Exponentials times even monomials, and quadratics without real zeros in between; else None."""
    groups: dict[Exponent, ExpPoly] = {}
    for (m, e), value in element.terms.items():
        groups[e] = groups.get(e, ZERO) + ExpPoly({(m, ()): value})
    rows: list[ProofRow] = []
    for v, polynomial in groups.items():
        found = _even(polynomial) or _quadratic(polynomial)
        if found is None:
            return None
        rows += [{"scale": _exact(c), "v": _power(v), "b": to_sympy(b)} for c, b in found]
    return rows


def _even(polynomial: ExpPoly) -> list[tuple[Fraction, ExpPoly]] | None:
    found = []
    for (monomial, _), value in polynomial.terms.items():
        if value < 0 or any(power % 2 for _, power in monomial):
            return None
        half = tuple((name, power // 2) for name, power in monomial)
        found.append((Fraction(value), ExpPoly({(half, ()): 1})))
    return found


def _quadratic(polynomial: ExpPoly) -> list[tuple[Fraction, ExpPoly]] | None:
    """c2 x^2 + c1 x + c0 = c2 (x + c1/2c2)^2 + c0 - c1^2/4c2."""
    names = polynomial.names()
    if len(names) != 1:
        return None
    x = ExpPoly.variable(*names)
    c0, c1, c2 = (Fraction(polynomial.terms.get(next(iter((x**i).terms)), 0)) for i in range(3))
    if c2 <= 0 or polynomial != x**2 * c2 + x * c1 + c0 or c0 < c1**2 / (4 * c2):
        return None
    rest = c0 - c1**2 / (4 * c2)
    return [(c2, x + c1 / (2 * c2)), *([(rest, ONE)] if rest else [])]


def _power(v: Exponent) -> Any:
    return to_sympy(ExpPoly({(m, ()): value for m, value in v}))


def _exact(value: Fraction) -> Any:
    return to_sympy(ExpPoly.number(value))
