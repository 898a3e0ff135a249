"""What a derivation is about: expectations, gradients and divergences, as values that add.  Untrusted.

>>> from klsym.language.expressions import k3, rho, s
>>> expected_gradient(rho * k3, under=mu) - grad(KL(q, p))
E_mu[grad(rho*k3)] - grad KL(q||p)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import sympy

from klsym.errors import ProofError, UsageError
from klsym.kernel.names import MEASURES, PROBABILITIES, SAMPLE_BASES, parse_name
from klsym.kernel.ring import ExpPoly
from klsym.language.abbreviations import (
    Bregman,
    Covariance,
    Divergence,
    E,
    ExpectedGradient,
    Gradient,
    Point,
    PointGradient,
    Score,
    Side,
    side_of,
)
from klsym.language.convert import generic_functions, split_score, to_ring
from klsym.language.expressions import as_expression, r
from klsym.language.expressions import s as score_symbol
from klsym.notation.text import show_side

q, p, mu, count = MEASURES


@dataclass(frozen=True)
class Quantity:
    """A side of a statement, the generic functions in it, and how its losses were written."""

    side: Side
    functions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    labels: Mapping[ExpPoly, Any] = field(default_factory=dict)

    def __add__(self, other: Any) -> Quantity:
        other = quantity(other)
        functions = {**self.functions, **other.functions}
        return Quantity(self.side + other.side, functions, {**self.labels, **other.labels})

    def __mul__(self, scale: Any) -> Quantity:
        if isinstance(scale, Quantity):
            product = self.side.times(scale.side)
            return Quantity(product, {**self.functions, **scale.functions}, {**self.labels, **scale.labels})
        return Quantity(self.side * _constant(scale), self.functions, self.labels)

    def __truediv__(self, scale: Any) -> Quantity:
        if as_expression(scale).is_zero:
            raise UsageError("division by zero")
        return self * (sympy.Integer(1) / scale)

    def __neg__(self) -> Quantity:
        return self * -1

    def __sub__(self, other: Any) -> Quantity:
        return self + -quantity(other)

    def __rsub__(self, other: Any) -> Quantity:
        return quantity(other) - self

    __radd__ = __add__
    __rmul__ = __mul__

    def __repr__(self) -> str:
        return show_side(self.side, self.labels)


def quantity(value: Any) -> Quantity:
    """A Quantity, or a number that is one."""
    return value if isinstance(value, Quantity) else Quantity(Side.constant(_constant(value)))


def _constant(value: Any) -> ExpPoly:
    """A number or parameter; what changes from sample to sample must stand in an expectation."""
    element = to_ring(value)
    random = bool(generic_functions(value)) or any(
        parse_name(n).base in SAMPLE_BASES for n in element.names()
    )
    if random or score_symbol.name in element.names():
        raise UsageError(f"{value} is random: write expectation({value}, under=...) or sample({value})")
    return element


def _measure(name: str, allowed: tuple[str, ...] = PROBABILITIES) -> str:
    if name not in allowed:
        raise ProofError(f"under={name!r}: one of {', '.join(allowed)} expected")
    return name


def _labelled(atom: Any, *written: tuple[ExpPoly, Any]) -> Quantity:
    functions: dict[str, tuple[str, ...]] = {}
    for _, expression in written:
        functions.update(generic_functions(expression))
    return Quantity(side_of(atom), functions, dict(written))


def expectation(of: Any, under: str) -> Quantity:
    """E_m[a], with the score function s wherever `of` holds it.

    >>> from klsym.language.expressions import k1, s, sg
    >>> expectation(s * sg(k1), under=q)
    E_q[sg(k1)*s]
    """
    _measure(under, MEASURES)
    return _scored(of, lambda a, score: E(under, a, score))


def _scored(of: Any, build: Callable[[ExpPoly, Score], Any]) -> Quantity:
    """One atom for each power of the score function s in `of`."""
    total = Quantity(Side(), generic_functions(of))
    powers = split_score(of)
    for power, part in powers.items():
        written = of
        if set(powers) != {0}:
            written = sympy.diff(of, score_symbol, power).subs(score_symbol, 0) / sympy.factorial(power)
        total = total + Quantity(side_of(build(part, ("x",) * power)), {}, {part: written})
    return total


def expected_gradient(loss: Any, under: str = q) -> Quantity:
    """E_m[grad L]: what automatic differentiation of the sample mean converges to."""
    element = _loss(loss)
    return _labelled(ExpectedGradient(_measure(under), element), (element, loss))


def _loss(loss: Any) -> ExpPoly:
    element = to_ring(loss)
    if score_symbol.name in element.names():
        raise UsageError(f"{loss}: a loss does not hold the score function s")
    return element


def sample_gradient(loss: Any) -> Quantity:
    """grad L at one sample."""
    element = _loss(loss)
    return _labelled(PointGradient(element), (element, loss))


def sample(of: Any) -> Quantity:
    """a s at one sample: a pointwise quantity."""
    return _scored(of, Point)


def grad(of: Quantity) -> Quantity:
    """The gradient of a functional of theta, such as grad(KL(q, p)) or grad(expectation(k2, under=q))."""
    return Quantity(Side.atom(Gradient(of.side)), of.functions, of.labels)


def KL(a: str, b: str) -> Quantity:
    """KL(a||b) = E_a[log a/b]; KL(q, p) is the reverse KL, KL(p, q) the forward KL."""
    return Quantity(side_of(Divergence("KL", _measure(a), _measure(b))))


def chi2(a: str, b: str) -> Quantity:
    """chi^2(a||b) = E_b[(a/b - 1)^2]."""
    return Quantity(side_of(Divergence("chi2", _measure(a), _measure(b))))


def jeffreys(a: str, b: str) -> Quantity:
    """J(a, b) = KL(a||b) + KL(b||a)."""
    return Quantity(side_of(Divergence("J", _measure(a), _measure(b))))


def covariance(a: Any, b: Any, under: str) -> Quantity:
    """Cov_m(a, b); the variance when a and b are the same."""
    first, second = to_ring(a), to_ring(b)
    return _labelled(Covariance(_measure(under), first, second), (first, a), (second, b))


def bregman(phi: Any) -> Quantity:
    """phi(r) - phi(1) - phi'(1)(r - 1) at one sample, for phi an expression in r.

    >>> from klsym.language.expressions import log
    >>> bregman(-log(r))
    D_phi(r, 1) with phi = k1
    """
    if as_expression(phi).free_symbols - r.free_symbols:
        raise ProofError("bregman: an expression in r alone expected")
    return Quantity(side_of(Bregman(to_ring(phi))))
