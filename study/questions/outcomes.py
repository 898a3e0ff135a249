"""One outcome: level(k) = R - beta c(k) in k = log q/p, and enclosures of its inverse.  Untrusted.

c is cut into pieces on which it is monotone (`find_sign_intervals` encloses the zeros of its slope), so that
a level fixes k on each piece.  All floats come with a bound of their rounding error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from klsym.engine.divergences.f_divergence import LeadingTerm, differentiate_in_log_q, find_leading_term
from klsym.engine.regions.root_isolation import find_sign_intervals
from klsym.errors import UsageError
from klsym.kernel.ring import ExpPoly

ROUNDING = 4e-16  # relative error of a product; exp(x) adds |x| times as much
LOWEST = -1e100  # log q/p below it is minus infinity
MAX_BISECTIONS = 200
FloatTerms = list[tuple[float, int, float]]  # c k^n exp(a k)
Interval = tuple[float, float]
Number = float | Fraction


@dataclass(frozen=True)
class MonotonePiece:
    """An interval of k = log q/p on which the level is monotone; its lower end may be minus infinity."""

    lower: float
    upper: float
    level_rises: bool


def to_floats(c: ExpPoly) -> FloatTerms:
    """The terms of a function of k1."""
    terms: FloatTerms = []
    for (monomial, exponent), value in c.terms.items():
        shift = float(dict(exponent).get((), 0))
        rate = float(dict(exponent).get((("k1", 1),), 0))
        if abs(shift) > 600:
            raise UsageError("optimum: a coefficient beyond floats: smaller powers of rho expected")
        terms.append((float(value) * math.exp(shift), dict(monomial).get("k1", 0), rate))
    return terms


def compute_value(terms: FloatTerms, k: float) -> tuple[float, float]:
    """The sum of the terms, and a bound of its rounding error; infinite beyond floats."""
    total = error = 0.0
    try:
        for c, n, a in terms:
            term = c * k**n * math.exp(a * k)
            total += term
            error += abs(term) * (4 + len(terms) + n + 2 * abs(a * k)) * ROUNDING
    except OverflowError:
        total = math.nan
    if math.isfinite(total) and math.isfinite(error):
        return total, error
    sizes = [math.log(abs(c)) + n * math.log(abs(k)) + a * k for c, n, a in terms]
    largest = max(sizes)
    total = sum(
        math.copysign(math.exp(size - largest), c * (-1 if k < 0 and n % 2 else 1))
        for size, (c, n, _) in zip(sizes, terms, strict=True)
    )
    return (0.0, math.inf) if abs(total) < 1e-6 else (math.copysign(math.inf, total), 0.0)


def bound_terms(terms: FloatTerms, low: float, high: float) -> Interval:
    """Bounds of the sum of the terms over an interval of k, term by term."""
    lower = upper = 0.0
    for c, n, a in terms:
        powers = [low**n, high**n, *([0.0] if n and low < 0 < high else [])]
        rates = sorted(_compute_exp(a * k) for k in (low, high))
        ends = [c * x * y if x and y else 0.0 for x in (min(powers), max(powers)) for y in rates]
        lower, upper = lower + min(ends), upper + max(ends)
    margin = 1e-12 * max(abs(lower), abs(upper))
    return (lower - margin, upper + margin) if math.isfinite(margin) else (-math.inf, math.inf)


def _compute_exp(x: float) -> float:
    return math.exp(x) if x < 700 else math.inf


class Outcome:
    """level(k) = R - beta c(k) of one outcome with the probability p under the reference.

    reward_error: a bound of the error of R, for a reward that was computed; every enclosure allows for it.
    """

    def __init__(
        self, c: ExpPoly, beta: Number, reward: Number, p: Number, *, reward_error: float = 0.0
    ) -> None:
        self.reward_error = reward_error
        self.exact = (c, Fraction(beta), Fraction(reward))
        self.c, self.beta, self.reward, self.p = c, float(beta), float(reward), float(p)
        self.log_p = math.log(self.p)
        self.terms, self.slopes = to_floats(c), to_floats(differentiate_in_log_q(c))
        self.pieces = tuple(self._iterate_pieces()) if beta else ()
        self._known: dict[tuple[MonotonePiece, float], Interval] = {}

    def _iterate_pieces(self) -> Iterator[MonotonePiece]:
        """Between the zeros of dc/dk, up to q = 1."""
        rising, top = differentiate_in_log_q(self.c), -self.log_p
        if not rising:
            return
        intervals: Any = [(next(iter(rising.terms.values())), (None, None))]
        if rising.names():
            intervals = find_sign_intervals(rising)
        if intervals is None:
            raise UsageError("the zeros of the slope of the coefficient cannot be enclosed")
        for sign, (lower, upper) in intervals:
            low = -math.inf if lower is None else float((lower[0] + lower[1]) / 2)
            high = top if upper is None else min(top, float((upper[0] + upper[1]) / 2))
            if low < high:
                yield MonotonePiece(low, high, (sign > 0) == (self.beta < 0))

    def compute_level(self, k: float) -> tuple[float, float]:
        """R - beta c, and a bound of its error."""
        if k == -math.inf:
            return self.far, ROUNDING * (abs(self.reward) + abs(self.far)) + self.reward_error
        value, error = compute_value(self.terms, k)
        value_of_level = self.reward - self.beta * value
        rounding = abs(self.beta) * (error + 2 * ROUNDING * abs(value)) + 2 * ROUNDING * abs(self.reward)
        return value_of_level, rounding + self.reward_error

    @cached_property
    def _leading_term(self) -> LeadingTerm:
        return find_leading_term(self.c)

    @cached_property
    def far(self) -> float:
        """The level as k goes to minus infinity."""
        rate, power, factor = self._leading_term
        if not self.beta or rate > 0 or not factor:
            return self.reward
        if rate == power == 0:
            return self.reward - self.beta * factor
        return math.copysign(math.inf, -self.beta * factor * (-1) ** power)

    @cached_property
    def push(self) -> float:
        """The limit of -q level as q goes to 0: at this rate its own logit falls."""
        rate, power, factor = self._leading_term
        if not self.beta or rate > -1 or not factor:
            return 0.0
        if rate == -1 and power == 0:
            return self.beta * factor * self.p
        return math.copysign(math.inf, self.beta * factor * (-1) ** power)

    @property
    def level_at_one(self) -> float:
        """The level at q = 1."""
        return self.compute_level(-self.log_p)[0]

    def compare_levels(self, other: Outcome) -> float | None:
        """This level less that of the other, both constant: 0 only where that is exact; None: not certain."""
        error = self.reward_error + other.reward_error
        if not self.exact[1] or self.c == other.c:
            difference = float(self.exact[2] - other.exact[2])
            return difference if not error or abs(difference) > error else None
        difference = self.far - other.far
        scale = 1e-12 * (1 + abs(self.reward) + abs(other.reward)) + error
        return difference if abs(difference) > scale else None

    def add_drift(self, rate: float) -> Outcome:
        """The outcome with the level R - beta c - rate/q."""
        r = (-ExpPoly.from_variable("k1")).exp()
        c = self.c + r * Fraction(rate / (self.beta * self.p))
        return Outcome(c, *self.exact[1:], self.p, reward_error=self.reward_error)

    def list_ends(self, piece: MonotonePiece) -> Interval:
        """The levels at the two ends of a piece, the lower one first."""
        a, b = self.compute_level(piece.lower)[0], self.compute_level(piece.upper)[0]
        return min(a, b), max(a, b)

    def bound_rate(self, low: float, high: float) -> Interval:
        """Bounds of d level/dk over an interval of k."""
        if low < LOWEST:
            return -math.inf, math.inf
        ends = [-self.beta * x for x in bound_terms(self.slopes, low, high)]
        return min(ends), max(ends)

    def compute_mass(self, k: float) -> float:
        return math.exp(min(self.log_p + k, 1.0))

    def enclose_inverse(self, piece: MonotonePiece, nu: float) -> Interval:
        """An interval of k, within the piece, that holds the k with level(k) = nu."""
        if (piece, nu) not in self._known:
            self._known[piece, nu] = self._enclose(piece, nu)
        return self._known[piece, nu]

    def _enclose(self, piece: MonotonePiece, nu: float) -> Interval:
        direction = 1 if piece.level_rises else -1

        def find_side(k: float) -> int:
            """-1: k is certainly too low, 1: too high, 0: too near to say."""
            value, error = self.compute_level(k)
            return (
                0
                if not abs(value - nu) > error + ROUNDING * abs(nu)
                else direction * (1 if value > nu else -1)
            )

        low, high, step = piece.lower, piece.upper, 1.0
        if low == -math.inf:
            low = high - step
            while find_side(low) >= 0 and low > LOWEST:
                step *= 2
                low = high - step
            if low <= LOWEST:
                return -math.inf, self._find_high_point(piece, find_side)
        k = self._solve_level(low, high, nu, direction)
        return self._widen(k, -1, low, find_side), self._widen(k, 1, high, find_side)

    def _find_high_point(self, piece: MonotonePiece, side: Callable[[float], int]) -> float:
        """Of a level that is reached nowhere above minus infinity: k that is certainly too high."""
        k = min(piece.upper, -1.0)
        while k > LOWEST and side(2 * k) > 0:
            k *= 2
        return k if side(k) > 0 else piece.upper

    def _solve_level(self, low: float, high: float, nu: float, way: int) -> float:
        """By bisection, with Newton's steps where they stay inside, until rounding decides the sign."""
        k = (low + high) / 2
        for _ in range(MAX_BISECTIONS):
            level, error = self.compute_level(k)
            gap = way * (level - nu)
            if abs(gap) <= error < math.inf:
                return k
            low, high = (low, k) if gap > 0 else (k, high)
            rate = -way * self.beta * compute_value(self.slopes, k)[0]
            step = k - gap / rate if rate > 0 and math.isfinite(gap / rate) else low
            following = step if low < step < high and abs(step - k) < (high - low) / 3 else (low + high) / 2
            if abs(following - k) <= 2 * ROUNDING * abs(k) or following in (low, high):
                return following
            k = following
        return k

    @staticmethod
    def _widen(k: float, way: int, end: float, side: Callable[[float], int]) -> float:
        width = ROUNDING * (1 + abs(k))
        while way * (end - k) > width:
            if side(k + way * width) == way:
                return k + way * width
            width *= 4
        return end
