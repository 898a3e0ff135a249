"""Expectations of ring losses under Gaussians in floating point, also at complex parameters.

The closed form of `closed`, about the mean of the sampling distribution.  Every operation is
analytic, so that a parameter with an imaginary part of 1e-30 carries an exact derivative:

    d/dtheta E = Im E(theta + 1e-30 i) / 1e-30 (the complex step)
"""

from __future__ import annotations

import cmath
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Complex, Real
from typing import Any

import sympy

from klsym.errors import UsageError
from klsym.kernel.names import parse_name
from klsym.kernel.ring import ExpPoly
from klsym.study.gaussian.closed import Arithmetic, ClosedForm, Condition, Divergent, Group, Pair, Poly, add

MEASURES = ("q", "p", "mu")
ROUNDING = 16 * sys.float_info.epsilon  # D below this, over the size of its terms, counts as zero
CANCELLED = 1e-12  # coefficients below this, over the size of their terms, count as zero


@dataclass(frozen=True)
class GaussianSetting:
    """Gaussians q, p, mu of one variable x with numbers for parameters.

    expectation(measure, element, score) = E_measure[element * prod of score functions]

    >>> from klsym.language.convert import VK1
    >>> GaussianSetting((0.0, 1.0), (1.0, 1.0)).compute_expectation("q", VK1)
    0.5

    q, p, mu: (mean, variance), real or complex; x has the units of the mean.  mu defaults to q (of
        `still`, where that is given): on-policy.  p is needed where p is mentioned.
    parameters: name -> number.
    still: where sg(k1), sg(w), sg(log_q) are evaluated; this very setting when not given.  To
        differentiate, move q here and leave it in `still`.
    Raises UsageError: a variance without positive real part, or anything that is no finite number.
    """

    q: tuple[Any, Any]
    p: tuple[Any, Any] | None = None
    mu: tuple[Any, Any] | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    still: GaussianSetting | None = None

    def __post_init__(self) -> None:
        for name in MEASURES:
            if name == "q" or getattr(self, name) is not None:
                _check_pair(name, getattr(self, name))
        for name, value in self.parameters.items():
            _check_number(f"the parameter {name}", value)
        if self.still is not None and not isinstance(self.still, GaussianSetting):
            raise UsageError(f"still is a GaussianSetting, got {type(self.still).__name__}")

    @property
    def real(self) -> bool:
        """Whether every number is real, here and in `still`: expectations are then floats."""
        pairs = [pair for pair in (self.q, self.p, self.mu) if pair is not None]
        numbers = [number for pair in pairs for number in pair] + list(self.parameters.values())
        are_real = all(isinstance(number, Real) for number in numbers)
        return are_real and (self.still is None or self.still.real)

    def get_density(self, name: str) -> Pair:
        """Mean and variance of q, p or mu; of sg(q), ... in `still`."""
        if name.startswith("sg("):
            return (self.still or self).get_density(name[3:-1])
        pair: Any = {"q": self.q, "p": self.p, "mu": self.mu or (self.still or self).q}.get(name)
        if pair is None:
            is_measure = name in MEASURES
            raise UsageError(f"give the Gaussian {name}" if is_measure else f"no Gaussian is called {name!r}")
        return complex(pair[0]), complex(pair[1])

    def compute_expectation(self, measure: str, element: ExpPoly, score: tuple[int, ...] = ()) -> Any:
        """The expectation of an element of the ring times score functions of q.

        E_measure[element * s_i * s_j ...],  s_0 = (x - m)/v,  s_1 = (x - m)^2/v - 1

        >>> setting = GaussianSetting((0.0, 1.0), (1.0, 1.0))
        >>> setting.compute_expectation("q", ExpPoly.from_variable("k1"), score=(0,))
        -1.0

        measure: "q", "p" or "mu".
        element: in k1, w, log_q, their detached twins and parameters.
        score: 0 for the score of the mean (per unit of x), 1 for that of the log scale; s at this q.
        Returns a float, or a complex number where a parameter is complex.
        Raises Divergent naming D = 1 - 2 a v, D within rounding of zero included; UsageError for
        rewards, generic functions, exp of more than a quadratic, values beyond the floats.
        """
        try:
            total, _ = _Floating(self, measure, score).integrate(element)
        except OverflowError:
            total = complex(math.inf)
        if not cmath.isfinite(total):
            raise UsageError("the expectation is beyond the range of floating point")
        return total.real if self.real else total

    def is_finite(self, measure: str, element: ExpPoly) -> bool:
        """Whether the expectation exists, D > 0 for every exponential that stays.

        >>> GaussianSetting((0.0, 1.0), (0.0, 2.0)).is_finite("q", ExpPoly.from_variable("k1").exp() ** -2)
        False

        measure, element: as in `expectation`; score functions change nothing here.
        """
        try:
            _Floating(self, measure).select_finite_groups(element)
        except Divergent:
            return False
        return True


def _check_pair(name: str, pair: Any) -> None:
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise UsageError(f"{name} is a pair (mean, variance), got {str(pair)[:40]}")
    for part, value in zip(("mean", "variance"), pair, strict=True):
        _check_number(f"the {part} of {name}", value)
    if complex(pair[1]).real <= 0:
        raise UsageError(f"the variance of {name} is positive, got {pair[1]}")


def _check_number(what: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, Complex) or not cmath.isfinite(complex(value)):
        raise UsageError(f"{what} is a finite number, got {str(value)[:40]}")


def _is_alike(a: Any, b: Any) -> bool:
    """Equal up to rounding; a derivative (the imaginary part) is compared by itself."""
    a, b = complex(a), complex(b)
    near = math.isclose(a.real, b.real, rel_tol=CANCELLED, abs_tol=CANCELLED)
    return near and abs(a.imag - b.imag) <= CANCELLED * (abs(a.imag) + abs(b.imag))


def _has_cancelled(parts: list[tuple[Any, Poly]]) -> bool:
    """Up to rounding, real and imaginary parts each by itself."""
    largest = max((complex(c) for c, _ in parts), key=lambda value: value.real)
    scaled = [[x * cmath.exp(c - largest) for x in polynomial] for c, polynomial in parts]
    total: Poly = []
    for polynomial in scaled:
        total = add(total, polynomial)
    every = [c for polynomial in scaled for c in polynomial]
    real, imaginary = max(abs(c.real) for c in every), max(abs(c.imag) for c in every)
    return all(abs(c.real) <= CANCELLED * real and abs(c.imag) <= CANCELLED * imaginary for c in total)


_FLOATS = Arithmetic(
    number=lambda value: complex(float(value)), exp=cmath.exp, sqrt=cmath.sqrt, log=cmath.log,
    two_pi=2 * math.pi, alike=_is_alike, cancel=_has_cancelled, tilts=True,
)  # fmt: skip


class _Floating(ClosedForm):
    """The closed form under one measure of a setting, times score functions of q."""

    numbers = _FLOATS

    def __init__(self, setting: GaussianSetting, measure: str, score: tuple[int, ...] = ()) -> None:
        super().__init__()
        if any(slot not in (0, 1) for slot in score):
            raise UsageError(f"score is 0 (mean) or 1 (log scale), got {score}")
        self.setting, self.score, self.under = setting, score, setting.get_density(measure)
        self.origin = self.under[0]

    def get_density(self, name: str, detached: bool = False) -> Pair:
        return self.setting.get_density(f"sg({name})" if detached else name)

    def evaluate_constant(self, name: str) -> complex:
        parsed = parse_name(name)
        setting = (self.setting.still or self.setting) if parsed.detached else self.setting
        if parsed.base not in setting.parameters:
            raise UsageError(f"give a number for {name}: it is no parameter of this setting")
        return complex(setting.parameters[parsed.base])

    def need(self, group: Group) -> Condition | None:
        """D = 1 - 2 a v, where its real part is not positive beyond rounding."""
        a, v = complex(group.a), self.under[1]
        d = 1 - 2 * a * v
        parts = [self.expand_monomial(monomial, value, self.origin) for monomial, value in group.exponent]
        size = 1 + sum(2 * abs(part[2] * v) for part in parts if len(part) > 2)
        if d.real > ROUNDING * size:
            return None
        text = f"1 - 2 a v > 0 (a = {a.real:.6g}, v = {v.real:.6g}, 1 - 2 a v = {d.real:.6g})"
        return Condition(text, sympy.false)
