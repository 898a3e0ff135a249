"""Find the signs that an expression takes; exactly, if it is a function of one log ratio.  Untrusted.

A sum f of terms c x^n exp(a x) has finitely many zeros.  The derivative of g = f exp(-b x) has a term less
if b is the rate of a term of f.  So its zeros can be found first; between two of them g is monotone, and
the signs of g there say where g has a zero.  Zeros are enclosed by rationals and signs by intervals.
A zero that is no rational and that f touches without crossing is left open.

>>> from klsym.language.convert import to_ring
>>> from klsym.language.expressions import k1, k2, r
>>> find_signs(to_ring(2 * k2 - 2 * k1 + 1)), find_signs(to_ring(k1 + 2 * r))
((1,), (1,))
>>> find_signs(to_ring(k1 + r / 3)), find_signs(to_ring(k1 - k1 * r))
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

from klsym.engine.regions.positivity import drop_positive_factors, find_positive_sum
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
@lru_cache(maxsize=4096)
def find_signs(element: ExpPoly) -> tuple[int, ...] | None:
    """Return the signs that an element takes, apart from zeros of probability zero; None if undecided."""
    core = drop_positive_factors(element)
    for sign in SIGNS:
        if find_positive_sum(core * sign):
            return (sign,)
    joint_signs = find_joint_signs((core,))
    if joint_signs is None:
        return None
    signs = tuple(sorted({sign for (sign,) in joint_signs}))
    return signs if len(signs) == 1 or core.names() <= {*LOG_RATIOS} else None


@lru_cache(maxsize=1024)
def find_joint_signs(elements: tuple[ExpPoly, ...]) -> dict[tuple[int, ...], tuple[Fraction, ...]] | None:
    """Return the signs that functions of one variable take together, each with points; None if undecided."""
    names = {name for element in elements for name in element.names()}
    terms = [_collect_terms(element) for element in elements]
    if len(names) != 1 or any(t is None or len(t) > MAX_DERIVATIVES for t in terms):
        return None
    precision, iv.prec = iv.prec, BITS
    try:
        points_of_signs: dict[tuple[int, ...], tuple[Fraction, ...]] = {}
        for x in _choose_points([zero for t in terms if t for zero in _isolate_zeros(t)]):
            signs = tuple(_find_sign_at(t, x) for t in terms if t)
            points_of_signs[signs] = (*points_of_signs.get(signs, ()), x)
        return points_of_signs
    except Undecided:
        return None
    finally:
        iv.prec = precision


@lru_cache(maxsize=1024)
def find_sign_intervals(element: ExpPoly) -> list[tuple[int, tuple[Zero | None, Zero | None]]] | None:
    """Return the sign of a function of one log ratio between its zeros; None if undecided."""
    terms = _collect_terms(element)
    if (
        len(element.names()) != 1
        or not element.names() <= {*LOG_RATIOS}
        or terms is None
        or len(terms) > MAX_DERIVATIVES
    ):
        return None
    precision, iv.prec = iv.prec, BITS
    try:
        zeros = sorted(set(_isolate_zeros(terms)))
        points = _choose_points(zeros)[::2]
        ends = list(pairwise([None, *zeros, None])) if zeros else [(None, None)]
        return [(_find_sign_at(terms, x), end) for x, end in zip(points, ends, strict=True)]
    except Undecided:
        return None
    finally:
        iv.prec = precision


class Undecided(Exception):
    """Raised where the intervals do not decide a sign."""


def _choose_points(zeros: Sequence[Zero]) -> list[Fraction]:
    """Return two numbers below, between and above zeros."""
    ordered = sorted(set(zeros))
    pairs = list(pairwise(ordered))
    if any(b[0] <= a[1] for a, b in pairs):
        raise Undecided  # of two functions, and perhaps the same
    if not ordered:
        return [Fraction(-1), Fraction(1, 3)]
    low, high = ordered[0][0], ordered[-1][1]
    cells = [(low - 3, low), *((a[1], b[0]) for a, b in pairs), (high, high + 3)]
    return [a + (b - a) * share for a, b in cells for share in (Fraction(1, 3), Fraction(3, 5))]


# ---------------------------------------------------------------------------- zeros of one function
def _collect_terms(element: ExpPoly) -> ExponentialTerms | None:
    """Return the element as terms c x^n exp(a x); None if it has any other term."""
    terms: ExponentialTerms = {}
    for (monomial, exponent), value in element.terms.items():
        rate = shift = Fraction(0)
        for powers, scale in exponent:
            if sum(power for _, power in powers) > 1:
                return None
            rate, shift = (rate + Fraction(scale), shift) if powers else (rate, shift + Fraction(scale))
        degree = sum(power for _, power in monomial)
        if degree < 0:
            return None
        terms.setdefault((rate, degree), {})[shift] = Fraction(value)
    return terms


def _isolate_zeros(f: ExponentialTerms) -> list[Zero]:
    """Return intervals that enclose the zeros of f, each a single one."""
    degrees: dict[Fraction, int] = {}
    for rate, degree in f:
        degrees[rate] = max(degree, degrees.get(rate, 0))
    lowest = min(degrees, key=lambda rate: degrees[rate])
    if len(degrees) == 1 and degrees[lowest] == 0:
        return []
    g = {(rate - lowest, degree): c for (rate, degree), c in f.items()}
    slope = _differentiate(g)
    turns = [_enclose_zero(g, slope, zero) for zero in _isolate_zeros(slope)]
    ends = [(None, _find_sign_at_infinity(g, -1)), *turns, (None, _find_sign_at_infinity(g, 1))]
    zeros: list[Zero] = []
    for (lower, before), (upper, after) in pairwise(ends):
        if before * after < 0:
            zeros.append(_enclose_crossing(g, lower, upper, before, after=after))
        if after == 0:
            assert upper is not None
            zeros.append(upper)
    return zeros


def _differentiate(f: ExponentialTerms) -> ExponentialTerms:
    """Return d/dx c x^n exp(a x) = c (n x^(n-1) + a x^n) exp(a x)."""
    derivative: ExponentialTerms = {}
    for (rate, degree), constants in f.items():
        for key, factor in (((rate, degree - 1), Fraction(degree)), ((rate, degree), rate)):
            for shift, c in constants.items() if factor else ():
                row = derivative.setdefault(key, {})
                row[shift] = row.get(shift, Fraction(0)) + c * factor
    nonzero = {key: {shift: c for shift, c in row.items() if c} for key, row in derivative.items()}
    return {key: row for key, row in nonzero.items() if row}


def _enclose_zero(g: ExponentialTerms, slope: ExponentialTerms, zero: Zero) -> tuple[Zero, int]:
    """Enclose a zero of the slope so tightly that g has one sign there; return it with the sign."""
    for _ in range(HALVINGS):
        sign = _find_sign_over(g, zero)
        if sign is not None:
            return zero, sign
        zero = _halve_interval(slope, zero, _find_sign_at(slope, zero[0]))
    raise Undecided


def _enclose_crossing(
    g: ExponentialTerms, lower: Zero | None, upper: Zero | None, before: int, after: int
) -> Zero:
    """Return an interval that encloses the zero of g between two points of opposite signs."""
    low = lower[1] if lower else _find_far_point(g, upper[0] if upper else Fraction(0), -1, before)
    high = upper[0] if upper else _find_far_point(g, lower[1] if lower else Fraction(0), 1, after)
    for integer in (Fraction(0), Fraction(1), Fraction(-1)):
        if low < integer < high and _find_sign_over(g, (integer, integer)) == 0:
            return integer, integer
    zero = low, high
    while zero[1] - zero[0] > ZERO_WIDTH:
        zero = _halve_interval(g, zero, before)
    simple = ((zero[0] + zero[1]) / 2).limit_denominator(1000)
    return (simple, simple) if _find_sign_over(g, (simple, simple)) == 0 else zero


def _halve_interval(g: ExponentialTerms, zero: Zero, sign_below: int) -> Zero:
    low, high = zero
    middle = (low + high) / 2
    sign = _find_sign_at(g, middle)
    if sign == 0:
        return middle, middle
    return (middle, high) if sign == sign_below else (low, middle)


def _find_far_point(g: ExponentialTerms, start: Fraction, direction: int, sign: int) -> Fraction:
    """Return a point beyond `start` where g has the sign that it has at infinity."""
    for power in range(64):
        x = start + direction * 2**power
        if _find_sign_over(g, (x, x)) == sign:
            return x
    raise Undecided


# ---------------------------------------------------------------------------- signs
def _find_sign_at(f: ExponentialTerms, x: Fraction) -> int:
    sign = _find_sign_over(f, (x, x))
    if sign is None:
        raise Undecided
    return sign


def _find_sign_over(f: ExponentialTerms, interval: Zero) -> int | None:
    """Return the sign of f over an interval; at a rational x, powers of e are linearly independent."""
    low, high = interval
    if low == high:
        if clear := _find_clear_sign(f, low):
            return clear
        powers: dict[Fraction, Fraction] = {}
        for (rate, degree), constants in f.items():
            for shift, c in constants.items():
                key = rate * low + shift
                powers[key] = powers.get(key, Fraction(0)) + c * low**degree
        if not any(powers.values()):
            return 0
    x = iv.mpf([_to_interval(low).a, _to_interval(high).b])
    total = iv.mpf(0)
    for (rate, degree), constants in f.items():
        for shift, c in constants.items():
            total += _to_interval(c) * x**degree * iv.exp(_to_interval(rate) * x + _to_interval(shift))
    return _read_sign(total)


def _find_clear_sign(f: ExponentialTerms, x: Fraction) -> int:
    """Return the sign at x where floats decide it, else 0.

    exp(y) with |y| < 300 has a relative error below 1e-12.
    """
    point, total, size = float(x), 0.0, 0.0
    try:
        for (rate, degree), constants in f.items():
            for shift, c in constants.items():
                growth, offset = float(rate) * point, float(shift)
                term = float(c) * point**degree * math.exp(growth + offset)
                total, size = total + term, size + abs(term)
                if abs(growth) + abs(offset) > 300:
                    return 0
    except OverflowError:
        return 0
    return (total > 0) - (total < 0) if abs(total) > max(CLEAR * size, MIN_SIZE) else 0


def _find_sign_at_infinity(f: ExponentialTerms, direction: int) -> int:
    """Return the sign towards infinity: that of the term that grows most."""
    rate, degree = max(f, key=lambda key: (direction * key[0], key[1]))
    total = iv.mpf(0)
    for shift, c in f[rate, degree].items():
        total += _to_interval(c) * iv.exp(_to_interval(shift))
    sign = _read_sign(total)
    if sign is None:
        raise Undecided
    return sign * direction**degree


def _read_sign(value: Any) -> int | None:
    return 1 if value.a > 0 else -1 if value.b < 0 else None


def _to_interval(value: Fraction) -> Any:
    return iv.mpf(value.numerator) / value.denominator
