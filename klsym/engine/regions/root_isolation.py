"""Which signs an expression takes: where it is a function of one log ratio, decided exactly.  Untrusted.

A sum f of terms c x^n exp(a x) has finitely many zeros.  The derivative of g = f exp(-b x) has a term less
if b is the rate of a term of f.  So its zeros can be found first; between two of them g is monotone, and
the signs of g there say where g has a zero.  Zeros are enclosed by rationals and signs by intervals.
A zero that is no rational and that f touches without crossing is left open.

>>> from klsym.language.convert import to_ring
>>> from klsym.language.expressions import k1, k2, r
>>> signs(to_ring(2 * k2 - 2 * k1 + 1)), signs(to_ring(k1 + 2 * r))
((1,), (1,))
>>> signs(to_ring(k1 + r / 3)), signs(to_ring(k1 - k1 * r))
((-1, 1), (1,))
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

from mpmath import iv

from klsym.engine.regions.positivity import positive_sum, without_positive_factors
from klsym.kernel.ring import ExpPoly

Zero = tuple[Fraction, Fraction]  # a rational interval that holds one zero; its ends are equal if that is it
ExponentialTerms = dict[
    tuple[Fraction, int], dict[Fraction, Fraction]
]  # (a, n) -> {b: c}: c exp(b) x^n exp(a x)
MAX_DERIVATIVES = 12  # derivatives taken
BITS, HALVINGS = 240, 160
CLEAR = 1e-9  # of the sum of all terms, what rounding never reaches
MIN_SIZE = 1e-200  # what underflow never reaches
ZERO_WIDTH = Fraction(1, 2**30)  # width of what encloses a zero
LOG_RATIOS = ("k1", "w", "o")  # log ratios: any real number at some sample
SIGNS = (-1, 1)


# ---------------------------------------------------------------------------- what is known of an element
def signs(element: ExpPoly) -> tuple[int, ...] | None:
    """The signs that an element takes, apart from zeros of probability zero; None where it is open."""
    core = without_positive_factors(element)
    for sign in SIGNS:
        if positive_sum(core * sign):
            return (sign,)
    found = joint((core,))
    if found is None:
        return None
    taken = tuple(sorted({sign for (sign,) in found}))
    return taken if len(taken) == 1 or core.names() <= {*LOG_RATIOS} else None


@lru_cache(maxsize=1024)
def joint(elements: tuple[ExpPoly, ...]) -> dict[tuple[int, ...], tuple[Fraction, ...]] | None:
    """The signs that functions of one variable take together, each with places; None where it is open."""
    names = {name for element in elements for name in element.names()}
    terms = [_terms(element) for element in elements]
    if len(names) != 1 or any(t is None or len(t) > MAX_DERIVATIVES for t in terms):
        return None
    with_bits, iv.prec = iv.prec, BITS
    try:
        found: dict[tuple[int, ...], tuple[Fraction, ...]] = {}
        for x in _places([zero for t in terms if t for zero in _zeros(t)]):
            taken = tuple(_sign_at(t, x) for t in terms if t)
            found[taken] = (*found.get(taken, ()), x)
        return found
    except Undecided:
        return None
    finally:
        iv.prec = with_bits


@lru_cache(maxsize=1024)
def stretches(element: ExpPoly) -> list[tuple[int, tuple[Zero | None, Zero | None]]] | None:
    """The sign of a function of one log ratio between each two of its zeros; None where it is open."""
    terms = _terms(element)
    if (
        len(element.names()) != 1
        or not element.names() <= {*LOG_RATIOS}
        or terms is None
        or len(terms) > MAX_DERIVATIVES
    ):
        return None
    with_bits, iv.prec = iv.prec, BITS
    try:
        zeros = sorted(set(_zeros(terms)))
        places = _places(zeros)[::2]
        ends = list(pairwise([None, *zeros, None])) if zeros else [(None, None)]
        return [(_sign_at(terms, x), end) for x, end in zip(places, ends, strict=True)]
    except Undecided:
        return None
    finally:
        iv.prec = with_bits


class Undecided(Exception):
    """A sign that the intervals do not decide."""


def _places(zeros: Sequence[Zero]) -> list[Fraction]:
    """Two numbers below, between and above zeros."""
    found = sorted(set(zeros))
    pairs = list(pairwise(found))
    if any(b[0] <= a[1] for a, b in pairs):
        raise Undecided  # of two functions, and perhaps the same
    if not found:
        return [Fraction(-1), Fraction(1, 3)]
    low, high = found[0][0], found[-1][1]
    cells = [(low - 3, low), *((a[1], b[0]) for a, b in pairs), (high, high + 3)]
    return [a + (b - a) * share for a, b in cells for share in (Fraction(1, 3), Fraction(3, 5))]


# ---------------------------------------------------------------------------- zeros of one function
def _terms(element: ExpPoly) -> ExponentialTerms | None:
    found: ExponentialTerms = {}
    for (monomial, exponent), value in element.terms.items():
        rate = shift = Fraction(0)
        for powers, scale in exponent:
            if sum(power for _, power in powers) > 1:
                return None
            rate, shift = (rate + Fraction(scale), shift) if powers else (rate, shift + Fraction(scale))
        degree = sum(power for _, power in monomial)
        if degree < 0:
            return None
        found.setdefault((rate, degree), {})[shift] = Fraction(value)
    return found


def _zeros(f: ExponentialTerms) -> list[Zero]:
    degrees: dict[Fraction, int] = {}
    for rate, degree in f:
        degrees[rate] = max(degree, degrees.get(rate, 0))
    lowest = min(degrees, key=lambda rate: degrees[rate])
    if len(degrees) == 1 and degrees[lowest] == 0:
        return []
    g = {(rate - lowest, degree): c for (rate, degree), c in f.items()}
    slope = _derivative(g)
    turns = [_signed(g, slope, zero) for zero in _zeros(slope)]
    ends = [(None, _sign_far(g, -1)), *turns, (None, _sign_far(g, 1))]
    found: list[Zero] = []
    for (left, before), (right, after) in pairwise(ends):
        if before * after < 0:
            found.append(_crossing(g, left, right, before, after))
        if after == 0:
            assert right is not None
            found.append(right)
    return found


def _derivative(f: ExponentialTerms) -> ExponentialTerms:
    """d/dx c x^n exp(a x) = c (n x^(n-1) + a x^n) exp(a x)."""
    found: ExponentialTerms = {}
    for (rate, degree), constants in f.items():
        for key, factor in (((rate, degree - 1), Fraction(degree)), ((rate, degree), rate)):
            for shift, c in constants.items() if factor else ():
                row = found.setdefault(key, {})
                row[shift] = row.get(shift, Fraction(0)) + c * factor
    kept = {key: {shift: c for shift, c in row.items() if c} for key, row in found.items()}
    return {key: row for key, row in kept.items() if row}


def _signed(g: ExponentialTerms, slope: ExponentialTerms, zero: Zero) -> tuple[Zero, int]:
    """A zero of the slope, enclosed so tightly that g has one sign there."""
    for _ in range(HALVINGS):
        sign = _sign_over(g, zero)
        if sign is not None:
            return zero, sign
        zero = _halved(slope, zero)
    raise Undecided


def _crossing(g: ExponentialTerms, left: Zero | None, right: Zero | None, before: int, after: int) -> Zero:
    low = left[1] if left else _far(g, right[0] if right else Fraction(0), -1, before)
    high = right[0] if right else _far(g, left[1] if left else Fraction(0), 1, after)
    for whole in (Fraction(0), Fraction(1), Fraction(-1)):
        if low < whole < high and _sign_over(g, (whole, whole)) == 0:
            return whole, whole
    zero = low, high
    while zero[1] - zero[0] > ZERO_WIDTH:
        zero = _halved(g, zero)
    simple = ((zero[0] + zero[1]) / 2).limit_denominator(1000)
    return (simple, simple) if _sign_over(g, (simple, simple)) == 0 else zero


def _halved(g: ExponentialTerms, zero: Zero) -> Zero:
    low, high = zero
    middle = (low + high) / 2
    sign = _sign_at(g, middle)
    if sign == 0:
        return middle, middle
    return (middle, high) if sign == _sign_at(g, low) else (low, middle)


def _far(g: ExponentialTerms, start: Fraction, way: int, sign: int) -> Fraction:
    """A place beyond `start` where g has the sign that it has at infinity."""
    for power in range(64):
        x = start + way * 2**power
        if _sign_over(g, (x, x)) == sign:
            return x
    raise Undecided


# ---------------------------------------------------------------------------- signs
def _sign_at(f: ExponentialTerms, x: Fraction) -> int:
    sign = _sign_over(f, (x, x))
    if sign is None:
        raise Undecided
    return sign


def _sign_over(f: ExponentialTerms, where: Zero) -> int | None:
    """The sign of f over an interval.  At a rational x the powers of e are independent over the rationals."""
    low, high = where
    if low == high:
        if clear := _clear_sign(f, low):
            return clear
        powers: dict[Fraction, Fraction] = {}
        for (rate, degree), constants in f.items():
            for shift, c in constants.items():
                key = rate * low + shift
                powers[key] = powers.get(key, Fraction(0)) + c * low**degree
        if not any(powers.values()):
            return 0
    x = iv.mpf([_number(low).a, _number(high).b])
    total = iv.mpf(0)
    for (rate, degree), constants in f.items():
        for shift, c in constants.items():
            total += _number(c) * x**degree * iv.exp(_number(rate) * x + _number(shift))
    return _sign_of(total)


def _clear_sign(f: ExponentialTerms, x: Fraction) -> int:
    """The sign at x where floats decide it, else 0: exp(y), |y| < 300, errs by less than 1e-12 of itself."""
    at, total, size = float(x), 0.0, 0.0
    try:
        for (rate, degree), constants in f.items():
            for shift, c in constants.items():
                grows, moves = float(rate) * at, float(shift)
                term = float(c) * at**degree * math.exp(grows + moves)
                total, size = total + term, size + abs(term)
                if abs(grows) + abs(moves) > 300:
                    return 0
    except OverflowError:
        return 0
    return (total > 0) - (total < 0) if abs(total) > max(CLEAR * size, MIN_SIZE) else 0


def _sign_far(f: ExponentialTerms, way: int) -> int:
    """The sign towards infinity: that of the term that grows most."""
    rate, degree = max(f, key=lambda key: (way * key[0], key[1]))
    total = iv.mpf(0)
    for shift, c in f[rate, degree].items():
        total += _number(c) * iv.exp(_number(shift))
    sign = _sign_of(total)
    if sign is None:
        raise Undecided
    return sign * way**degree


def _sign_of(value: Any) -> int | None:
    return 1 if value.a > 0 else -1 if value.b < 0 else None


def _number(value: Fraction) -> Any:
    return iv.mpf(value.numerator) / value.denominator
