"""The number systems in which models are evaluated, and numbers that know the size of their terms.

Derivatives in t come from a number t with t^2 = 0: `FLOAT` takes t = 1e-30 i (complex step, exact
to rounding), `EXACT` takes dual numbers over rational enclosures (exact, with an error bound), `NESTED`
two such numbers, s and t, for second derivatives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from klsym.errors import UsageError
from klsym.kernel.intervals import Interval
from klsym.worlds.numbers import Dual

H = 1e-30  # so small that h^2 is lost to rounding
ROUNDING = 1e-13  # of the size of a number's terms


def refuse_unless(condition: bool, reason: str) -> None:
    """Raise UsageError for what the oracle cannot evaluate."""
    if not condition:
        raise UsageError(f"oracle: {reason}")


@dataclass(frozen=True)
class System:
    """Numbers of the form value + slope t with t^2 = 0, as the evaluator needs them.

    lift: a rational or float, or a list of them, -> an element, or an array of shape (n,).
    step: the element t.  slope: element -> its slope, as an element.
    magnitude: element or array -> |value| in floats; 0 where rounding needs no scale.
    log_magnitude: the same of log(array).
    signs: array, sizes of its terms in floats -> 1, 0 or -1 for each value, or 2 where that is not decided.
    """

    lift: Callable[[Any], Any]
    step: Any
    slope: Callable[[Any], Any]
    magnitude: Callable[[Any], Any]
    log_magnitude: Callable[[Any], Any]
    signs: Callable[[Any, Any], list[int]]


def _make_lift(one: Any) -> Callable[[Any], Any]:
    """Return what lifts numbers, and lists of them, to exact numbers of the same kind as one."""

    def lift_values(values: Any) -> Any:
        if isinstance(values, int | Fraction):
            return one * values
        return np.array([one * value for value in values], dtype=object)

    return lift_values


def _give_zero_sizes(array: Any) -> Any:
    """Return 0 for each number: enclosures carry their own error."""
    return np.zeros(np.shape(array))


def _decide_signs_of_floats(array: Any, sizes: Any) -> list[int]:
    """Return the signs of floats; those that only rounding sets apart from 0 are 0."""
    real = np.real(array)
    return [int(x) for x in np.where(np.abs(real) <= ROUNDING * sizes, 0, np.sign(real))]


def _decide_signs_of_enclosures(array: Any, _: Any) -> list[int]:
    return [_decide_sign(x) for x in array]


def _decide_sign(x: Any) -> int:
    while isinstance(x, Dual):
        x = x.value
    if x.lower > 0 or x.upper < 0:
        return 1 if x.lower > 0 else -1
    return 0 if x.lower == x.upper else 2


FLOAT = System(
    lift=lambda values: np.asarray(values, dtype=float),
    step=1j * H,
    slope=lambda element: np.imag(element) / H,
    magnitude=lambda array: np.abs(np.real(array)),
    log_magnitude=lambda array: np.abs(np.real(np.log(array))),
    signs=_decide_signs_of_floats,
)
EXACT = System(
    lift=_make_lift(Dual.from_numbers(1)),
    step=Dual.from_numbers(0, 1),
    slope=lambda element: Dual(element.slope, Interval.from_number(0)),
    magnitude=_give_zero_sizes,
    log_magnitude=_give_zero_sizes,
    signs=_decide_signs_of_enclosures,
)


NESTED = System(
    lift=_make_lift(Dual(Dual.from_numbers(1), Dual.from_numbers(0))),
    step=Dual(EXACT.step, Dual.from_numbers(0)),
    slope=lambda x: Dual(EXACT.slope(x.value), EXACT.slope(x.slope)),
    magnitude=_give_zero_sizes,
    log_magnitude=_give_zero_sizes,
    signs=_decide_signs_of_enclosures,
)
OUTER = Dual(Dual.from_numbers(0), Dual.from_numbers(1))  # the number s


@dataclass(frozen=True, slots=True)
class Sized:
    """A number or array, and the size of the terms that it was summed from, |value| + |slope| i H.

    >>> Sized(1.0, 1.0) - Sized(1.0, 1.0)
    Sized(value=0.0, size=2.0)
    """

    value: Any
    size: Any

    def __add__(self, other: Sized) -> Sized:
        return Sized(self.value + other.value, self.size + other.size)

    def __sub__(self, other: Sized) -> Sized:
        return Sized(self.value - other.value, self.size + other.size)

    def __mul__(self, other: Sized) -> Sized:
        return Sized(self.value * other.value, self.size * other.size)

    def sum_entries(self) -> Sized:
        return Sized(np.sum(self.value), np.sum(self.size))

    def select(self, x: Any) -> Sized:
        return Sized(self.value[x], self.size[x])

    def take_slope(self, system: System) -> Sized:
        """Return the derivative in t."""
        return Sized(system.slope(self.value), FLOAT.slope(self.size))


@dataclass(frozen=True, slots=True)
class Ratio:
    """A positive array x; drift bounds |d log x|, and size is that of log x."""

    system: System
    value: Any
    size: Any
    drift: Any

    def take_log(self) -> Sized:
        return Sized(np.log(self.value), self.size + 1j * H * self.drift)

    def raise_to(self, n: int) -> Sized:
        """Return x^n, which stays rational where exp(n log x) would not."""
        value = self.value**n
        return Sized(value, self.system.magnitude(value) * (1 + 1j * H * abs(n) * self.drift))

    def divide_by(self, other: Ratio) -> Ratio:
        size, drift = self.size + other.size, self.drift + other.drift
        return Ratio(self.system, self.value / other.value, size, drift)
