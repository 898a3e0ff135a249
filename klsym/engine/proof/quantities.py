"""Expectations, gradients and divergences as values that add: the sides of derivations.  Untrusted.

>>> from klsym.language.expressions import k3, rho, s
>>> expected_gradient(rho * k3, under=mu) - grad(KL(q, p))
E_mu[grad(rho*k3)] - grad KL(q||p)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

import sympy

from klsym.errors import ProofError, UsageError
from klsym.kernel.names import MEASURES, PROBABILITIES, SAMPLE_BASES, parse_name
from klsym.kernel.ring import ExpPoly
from klsym.language.abbreviations import (
    Bregman,
    Context,
    Covariance,
    Divergence,
    E,
    ExpectedGradient,
    Gradient,
    Point,
    PointGradient,
    Score,
    Side,
    as_side,
)
from klsym.language.convert import find_generic_functions, split_score, to_ring
from klsym.language.expressions import as_expression, r
from klsym.language.expressions import s as score_symbol
from klsym.language.unfolding import substitute_detached
from klsym.notation.formulas import SidedLabels
from klsym.notation.text import show_side
from klsym.records import record

q, p, mu, count = MEASURES


@record
class Quantity:
    """A side of a statement, the generic functions in it, and how its losses were written."""

    side: Side
    functions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    labels: Mapping[ExpPoly, Any] = field(default_factory=dict)

    def __add__(self, other: Any) -> Quantity:
        other = to_quantity(other)
        functions = {**self.functions, **other.functions}
        return Quantity(self.side + other.side, functions, {**self.labels, **other.labels})

    def __mul__(self, scale: Any) -> Quantity:
        if isinstance(scale, Quantity):
            product = self.side.multiply(scale.side)
            return Quantity(product, {**self.functions, **scale.functions}, {**self.labels, **scale.labels})
        return Quantity(self.side * _read_constant(scale), self.functions, self.labels)

    def __truediv__(self, scale: Any) -> Quantity:
        if as_expression(scale).is_zero:
            raise UsageError("division by zero")
        return self * (sympy.Integer(1) / scale)

    def __neg__(self) -> Quantity:
        return self * -1

    def __sub__(self, other: Any) -> Quantity:
        return self + -to_quantity(other)

    def __rsub__(self, other: Any) -> Quantity:
        return to_quantity(other) - self

    __radd__ = __add__
    __rmul__ = __mul__

    def __repr__(self) -> str:
        return show_side(self.side, self.labels)


def to_quantity(value: Any) -> Quantity:
    """Convert a number to a Quantity; a Quantity stays as it is."""
    return value if isinstance(value, Quantity) else Quantity(Side.from_constant(_read_constant(value)))


def _read_constant(value: Any) -> ExpPoly:
    """Convert a number or parameter; raises UsageError for random variables outside an expectation."""
    element = to_ring(value)
    random = bool(find_generic_functions(value)) or any(
        parse_name(n).base in SAMPLE_BASES for n in element.names()
    )
    if random or score_symbol.name in element.names():
        raise UsageError(f"{value} is random: write expectation({value}, under=...) or sample({value})")
    return element


def _require_measure(name: str, allowed: tuple[str, ...] = PROBABILITIES) -> str:
    if name not in allowed:
        raise ProofError(f"under={name!r}: one of {', '.join(allowed)} expected")
    return name


def _build_labelled(atom: Any, *labels: tuple[ExpPoly, Any]) -> Quantity:
    functions: dict[str, tuple[str, ...]] = {}
    for _, expression in labels:
        functions.update(find_generic_functions(expression))
    return Quantity(as_side(atom), functions, dict(labels))


def expectation(of: Any, under: str) -> Quantity:
    """E_m[a], with the score function s wherever `of` holds it.

    >>> from klsym.language.expressions import k1, s, sg
    >>> expectation(s * sg(k1), under=q)
    E_q[sg(k1)*s]
    """
    _require_measure(under, MEASURES)
    return _build_scored(of, lambda a, score: E(under, a, score))


def _build_scored(of: Any, build: Callable[[ExpPoly, Score], Any]) -> Quantity:
    """Build one atom for each power of the score function s in `of`."""
    total = Quantity(Side(), find_generic_functions(of))
    powers = split_score(of)
    for power, part in powers.items():
        label = of
        if set(powers) != {0}:
            label = sympy.diff(of, score_symbol, power).subs(score_symbol, 0) / sympy.factorial(power)
        total = total + Quantity(as_side(build(part, ("x",) * power)), {}, {part: label})
    return total


def expected_gradient(loss: Any, under: str = q) -> Quantity:
    """E_m[grad L]: what automatic differentiation of the sample mean converges to."""
    element = _read_loss(loss)
    return _build_labelled(ExpectedGradient(_require_measure(under), element), (element, loss))


def _read_loss(loss: Any) -> ExpPoly:
    element = to_ring(loss)
    if score_symbol.name in element.names():
        raise UsageError(f"{loss}: a loss does not hold the score function s")
    return element


def sample_gradient(loss: Any) -> Quantity:
    """grad L at one sample."""
    element = _read_loss(loss)
    return _build_labelled(PointGradient(element), (element, loss))


def sample(of: Any) -> Quantity:
    """a s at one sample: a pointwise quantity."""
    return _build_scored(of, Point)


def grad(of: Quantity) -> Quantity:
    """The gradient of a functional of theta, such as grad(KL(q, p)) or grad(expectation(k2, under=q))."""
    return Quantity(Side.from_atom(Gradient(of.side)), of.functions, of.labels)


def KL(a: str, b: str) -> Quantity:
    """KL(a||b) = E_a[log a/b]; KL(q, p) is the reverse KL, KL(p, q) the forward KL."""
    return Quantity(as_side(Divergence("KL", _require_measure(a), _require_measure(b))))


def chi2(a: str, b: str) -> Quantity:
    """chi^2(a||b) = E_b[(a/b - 1)^2]."""
    return Quantity(as_side(Divergence("chi2", _require_measure(a), _require_measure(b))))


def jeffreys(a: str, b: str) -> Quantity:
    """J(a, b) = KL(a||b) + KL(b||a)."""
    return Quantity(as_side(Divergence("J", _require_measure(a), _require_measure(b))))


def covariance(a: Any, b: Any, under: str) -> Quantity:
    """Cov_m(a, b); the variance when a and b are the same."""
    first, second = to_ring(a), to_ring(b)
    return _build_labelled(Covariance(_require_measure(under), first, second), (first, a), (second, b))


def bregman(phi: Any) -> Quantity:
    """phi(r) - phi(1) - phi'(1)(r - 1) at one sample, for phi an expression in r.

    >>> from klsym.language.expressions import log
    >>> bregman(-log(r))
    D_phi(r, 1) with phi = k1
    """
    if as_expression(phi).free_symbols - r.free_symbols:
        raise ProofError("bregman: an expression in r alone expected")
    return Quantity(as_side(Bregman(to_ring(phi))))


def choose_labels(
    start: Side, labels: dict[ExpPoly, Any], right: Quantity, context: Context
) -> dict[ExpPoly, Any]:
    """Return the labels of losses: those of the right side first.

    Where both sides are the same function, each side keeps its own labels.
    """
    of_right = _expand_labels({**labels, **right.labels}, context)
    if start != right.side or not labels:
        return of_right
    return SidedLabels(_expand_labels({**right.labels, **labels}, context), of_right)


def _expand_labels(labels: dict[ExpPoly, Any], context: Context) -> dict[ExpPoly, Any]:
    """Label a loss in the same way after the setting is substituted."""
    if not (context.on_policy or context.given):
        return labels
    pairs = (
        (substitute_detached(loss, index, context), label)
        for loss, label in labels.items()
        for index in ("", "t")
    )
    return dict(pairs) | labels
