"""Expectations of ring losses under Gaussians in floating point, also at complex parameters.

The closed form of `klsym.numeric.gaussian` with numbers for symbols.  With z = x - m about the mean of
the sampling distribution N(m, v), D = 1 - 2 a v, v' = v/D and z' = b v/D:

    E[P(z) exp(a z^2 + b z + c)] = exp(c + b^2 v/(2 D)) / sqrt(D) * E_{N(z', v')}[P],   finite iff D > 0

Every operation is analytic, so that a parameter with an imaginary part of 1e-30 carries an exact
derivative: d/dtheta E = Im E(theta + 1e-30 i) / 1e-30 (the complex step).
"""

from __future__ import annotations

import cmath
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from numbers import Complex, Real
from typing import Any

import sympy

from klsym.errors import UsageError
from klsym.names import SAMPLE_BASES, parse_name
from klsym.numeric.gaussian import DENSITIES, MAX_DEGREE, Condition, Divergent
from klsym.ring import Exponent, ExpPoly, Monomial

Pair = tuple[complex, complex]  # mean, variance
Poly = list[complex]  # coefficients of 1, z, z^2, ...
MEASURES = ("q", "p", "mu")
ROUNDING = 16 * sys.float_info.epsilon  # D below this, over the size of its terms, counts as zero
CANCELLED = 1e-12  # coefficients below this, over the size of their terms, count as zero


@dataclass(frozen=True)
class GaussianSetting:
    """Gaussians q, p, mu of one variable x with numbers for parameters.

    expectation(measure, element, score) = E_measure[element * prod of score functions]

    >>> from klsym.convert import VK1
    >>> GaussianSetting((0.0, 1.0), (1.0, 1.0)).expectation("q", VK1)
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
        own = all(isinstance(number, Real) for number in numbers)
        return own and (self.still is None or self.still.real)

    def density(self, name: str) -> Pair:
        """Mean and variance of q, p or mu; of sg(q), ... in `still`."""
        if name.startswith("sg("):
            return (self.still or self).density(name[3:-1])
        pair: Any = {"q": self.q, "p": self.p, "mu": self.mu or (self.still or self).q}.get(name)
        if pair is None:
            known = name in MEASURES
            raise UsageError(f"give the Gaussian {name}" if known else f"no Gaussian is called {name!r}")
        return complex(pair[0]), complex(pair[1])

    def expectation(self, measure: str, element: ExpPoly, score: tuple[int, ...] = ()) -> Any:
        """The expectation of an element of the ring times score functions of q.

        E_measure[element * s_i * s_j ...],  s_0 = (x - m)/v,  s_1 = (x - m)^2/v - 1

        >>> GaussianSetting((0.0, 1.0), (1.0, 1.0)).expectation("q", ExpPoly.variable("k1"), score=(0,))
        -1.0

        measure: "q", "p" or "mu".
        element: in k1, w, log_q, their detached twins and parameters.
        score: 0 for the score of the mean (per unit of x), 1 for that of the log scale; s at this q.
        Returns a float, or a complex number where a parameter is complex.
        Raises Divergent naming D = 1 - 2 a v, D within rounding of zero included; UsageError for
        rewards, generic functions, exp of more than a quadratic, values beyond the floats.
        """
        integral = _Integral(self, measure, score)
        integral.check_finite(element)
        try:
            total = sum((integral.group(e, terms) for e, terms in _groups(element)), 0j)
        except OverflowError:
            total = complex(math.inf)
        if not cmath.isfinite(total):
            raise UsageError("the expectation is beyond the range of floating point")
        return total.real if self.real else total

    def finite(self, measure: str, element: ExpPoly) -> bool:
        """Whether the expectation exists, D > 0 for every exponential that stays.

        >>> GaussianSetting((0.0, 1.0), (0.0, 2.0)).finite("q", ExpPoly.variable("k1").exp() ** -2)
        False

        measure, element: as in `expectation`; score functions change nothing here.
        """
        try:
            _Integral(self, measure, ()).check_finite(element)
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


def _groups(element: ExpPoly) -> Iterator[tuple[Exponent, list[tuple[Monomial, float]]]]:
    """The terms of an element under their exponents: P_i(...) exp(Q_i)."""
    groups: dict[Exponent, list[tuple[Monomial, float]]] = {}
    for (monomial, exponent), value in element.terms.items():
        groups.setdefault(exponent, []).append((monomial, float(value)))
    yield from groups.items()


class _Integral:
    """An expectation under one measure: every coordinate is a polynomial in the distance from a centre."""

    def __init__(self, setting: GaussianSetting, measure: str, score: tuple[int, ...]) -> None:
        if any(slot not in (0, 1) for slot in score):
            raise UsageError(f"score is 0 (mean) or 1 (log scale), got {score}")
        self.setting, self.score = setting, score
        self.mean, self.variance = setting.density(measure)
        self._cache: dict[tuple[str, complex], Poly] = {}

    def group(self, exponent: Exponent, terms: list[tuple[Monomial, float]]) -> complex:
        """E[P exp(Q)] by completing the square; a group that diverges has been found to cancel."""
        c, b, a = self.quadratic(exponent)
        d, sure = self.discriminant(exponent, a)
        if not sure:
            return 0j
        factor = cmath.exp(c + b * b * self.variance / (2 * d)) / cmath.sqrt(d)
        centre, spread = self.mean + b * self.variance / d, self.variance / d
        return factor * _central_mean(self.polynomial(terms, centre), spread)

    def polynomial(self, terms: list[tuple[Monomial, float]], centre: complex) -> Poly:
        """P times the score functions, in powers of x - centre."""
        total: Poly = []
        for monomial, value in terms:
            total = _add(total, self.monomial(monomial, value, centre))
        m, v = self.setting.density("q")
        for slot in self.score if total else ():
            h = centre - m
            score = [h / v, 1 / v] if slot == 0 else [h * h / v - 1, 2 * h / v, 1 / v]
            total = _multiply(total, score)
        return total

    def monomial(self, monomial: Monomial, value: float, centre: complex) -> Poly:
        product: Poly = [complex(value)]
        for name, power in monomial:
            base = self.variable(name, centre)
            if power < 0:
                if len(base) != 1:
                    raise UsageError(f"1/{name} has no closed expectation: positive powers of {name} only")
                if base[0] == 0:
                    raise UsageError(f"1/{name}: {name} is zero here")
                base = [1 / base[0]]
            if abs(power) * (len(base) - 1) + len(product) > MAX_DEGREE:
                raise UsageError(f"{name}^{power}: a degree above the limit of {MAX_DEGREE} in x")
            for _ in range(abs(power)):
                product = _multiply(product, base)
        return product

    def variable(self, name: str, centre: complex) -> Poly:
        """A coordinate as a quadratic in x - centre, a parameter as a constant."""
        key = (name, centre)
        if key not in self._cache:
            self._cache[key] = self._variable(name, centre)
        return self._cache[key]

    def _variable(self, name: str, centre: complex) -> Poly:
        parsed = parse_name(name)
        setting = (self.setting.still or self.setting) if parsed.detached else self.setting
        if parsed.base in DENSITIES and parsed.slot == "x" and not parsed.primes:
            over, *below = (_log_density(setting.density(d), centre) for d in DENSITIES[parsed.base])
            return _trim(_add(over, [-c for c in below[0]]) if below else over)
        if parsed.base in SAMPLE_BASES or parsed.base == "s":
            raise UsageError(f"{name} is no function of k1, w and log_q: it has no Gaussian expectation")
        if parsed.base not in setting.parameters:
            raise UsageError(f"give a number for {name}: it is no parameter of this setting")
        return [complex(setting.parameters[parsed.base])]

    # -- the exponent --------------------------------------------------------------------
    def quadratic(self, exponent: Exponent) -> tuple[complex, complex, complex]:
        """The exponent as c + b z + a z^2, z = x - mean."""
        total: Poly = []
        for monomial, value in exponent:
            total = _add(total, self.monomial(monomial, float(value), self.mean))
        total = _trim(total)
        if len(total) > 3:
            raise UsageError(f"exp of a polynomial of degree {len(total) - 1} in x has no closed expectation")
        c, b, a = (*total, 0j, 0j, 0j)[:3]
        return c, b, a

    def discriminant(self, exponent: Exponent, a: complex) -> tuple[complex, bool]:
        """D = 1 - 2 a v, and whether its real part is positive beyond rounding."""
        d = 1 - 2 * a * self.variance
        parts = [self.monomial(monomial, float(value), self.mean) for monomial, value in exponent]
        size = 1 + sum(2 * abs(part[2] * self.variance) for part in parts if len(part) > 2)
        return d, d.real > ROUNDING * size

    def check_finite(self, element: ExpPoly) -> None:
        """Raise Divergent unless the exponentials with D <= 0 cancel among themselves."""
        growing: list[tuple[complex, complex, complex, Poly]] = []
        for exponent, terms in _groups(element):
            c, b, a = self.quadratic(exponent)
            if not self.discriminant(exponent, a)[1]:
                growing.append((a, b, c, self.polynomial(terms, self.mean)))
        while growing:
            a, b, c, _ = growing[0]
            alike = [item for item in growing if _close(item[0], a) and _close(item[1], b)]
            growing = [item for item in growing if not any(item is other for other in alike)]
            largest = max((item[2] for item in alike), key=lambda value: value.real)
            scaled = [[x * cmath.exp(item[2] - largest) for x in item[3]] for item in alike]
            if not _vanishes(scaled):
                d = (1 - 2 * a * self.variance).real
                text = f"1 - 2 a v > 0 (a = {a.real:.6g}, v = {self.variance.real:.6g}, 1 - 2 a v = {d:.6g})"
                raise Divergent(Condition(text, sympy.false))


def _vanishes(polynomials: list[Poly]) -> bool:
    """Whether a sum of polynomials is zero up to rounding, real and imaginary parts each by itself."""
    total: Poly = []
    for polynomial in polynomials:
        total = _add(total, polynomial)
    every = [c for polynomial in polynomials for c in polynomial]
    real, imaginary = max(abs(c.real) for c in every), max(abs(c.imag) for c in every)
    return all(abs(c.real) <= CANCELLED * real and abs(c.imag) <= CANCELLED * imaginary for c in total)


def _close(a: complex, b: complex) -> bool:
    """Equal up to rounding; a derivative (the imaginary part) is compared by itself."""
    tiny = abs(a.imag) + abs(b.imag)
    return math.isclose(a.real, b.real, rel_tol=CANCELLED, abs_tol=CANCELLED) and (
        abs(a.imag - b.imag) <= CANCELLED * tiny
    )


# ---------------------------------------------------------------------------- polynomials
def _log_density(pair: Pair, centre: complex) -> Poly:
    """log density in powers of x - centre: -(z + h)^2/(2 v) - log(2 pi v)/2, h = centre - m."""
    m, v = pair
    h = centre - m
    return [-h * h / (2 * v) - cmath.log(2 * math.pi * v) / 2, -h / v, -1 / (2 * v)]


def _central_mean(polynomial: Poly, spread: complex) -> complex:
    """E[P(z)] for z of mean 0: E[z^(2j)] = (2j - 1)!! spread^j, odd moments are zero."""
    total, moment = 0j, 1 + 0j
    for j, coefficient in enumerate(polynomial[::2]):
        total += coefficient * moment
        moment *= (2 * j + 1) * spread
    return total


def _add(a: Poly, b: Poly) -> Poly:
    if len(a) < len(b):
        a, b = b, a
    return [x + y for x, y in zip(a, b, strict=False)] + a[len(b) :]


def _multiply(a: Poly, b: Poly) -> Poly:
    product = [0j] * (len(a) + len(b) - 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            product[i + j] += x * y
    return product


def _trim(polynomial: Poly) -> Poly:
    while len(polynomial) > 1 and polynomial[-1] == 0:
        polynomial = polynomial[:-1]
    return polynomial
