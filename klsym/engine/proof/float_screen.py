"""Screen an inequality on a finite model in floats, before exact enclosure.  Untrusted.

In a search for a model with left > right, left is plainly smaller in most models; enclosing those in rational
intervals would take most of the time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

from klsym.errors import Refused
from klsym.kernel.models import Model, Position
from klsym.kernel.ring import ExpPoly, Monomial
from klsym.kernel.statements import Atom, Mean, Side

RELATIVE_MARGIN = 1e-6  # of the sizes that are added up; rounding is below 1e-12 of them
MAX_EXPONENT = 600.0  # what may stand in an exponential


def is_plainly_at_most(left: Side, right: Side, model: Model) -> bool:
    """Is right - left far above rounding errors?  False if floats overflow, or a side has no value."""
    difference = size = 0.0
    try:
        for sign, side in ((-1, left), (1, right)):
            for value, term_size in _iterate_terms(side, model):
                difference, size = difference + sign * value, size + term_size
    except (Refused, ArithmeticError):
        return False
    return difference > RELATIVE_MARGIN * size


def _iterate_terms(side: Side, model: Model) -> Iterator[tuple[float, float]]:
    """Yield each term in floats, and the sum of the absolute values of its summands."""
    for scale, atoms in side.terms:
        value, size = _compute_coefficient(scale, Position((), 0, model.parameters, model.context))
        for atom in atoms:
            mean, term_size = _compute_mean(atom, model)
            value, size = value * mean, size * term_size
        yield value, size


def _compute_mean(atom: Atom, model: Model) -> tuple[float, float]:
    if not isinstance(atom, Mean) or atom.index or atom.measure not in ("q", "p", "mu"):
        raise Refused("a mean over single samples expected")
    value = size = 0.0
    for path in model.sequences:
        at = Position(path, 0, model.parameters, model.context)
        weight = float(math.prod(step.values[atom.measure] for step in path))
        weight *= math.prod(float(at.compute_score(entry)) for entry in atom.score)
        coefficient, term_size = _compute_coefficient(atom.coefficient, at)
        value, size = value + weight * coefficient, size + abs(weight) * term_size
    return value, size


def _compute_coefficient(a: ExpPoly, at: Position) -> tuple[float, float]:
    value = size = 0.0
    for (monomial, exponent), number in a.terms.items():
        powers = [float(times) * _compute_monomial(inside, at)[0] for inside, times in exponent]
        if sum(map(abs, powers)) > MAX_EXPONENT:
            raise OverflowError("an exponential that floats do not hold")
        product, term_size = _compute_monomial(monomial, at)
        scale = float(number) * math.exp(sum(powers))
        value, size = value + scale * product, size + abs(scale) * term_size
    return value, size


def _compute_monomial(monomial: Monomial, at: Position) -> tuple[float, float]:
    """Return a product of powers, and its size: at least 1 for a logarithm, whose rounding is absolute."""
    value = size = 1.0
    for name, power in monomial:
        inside = at.find_argument(name)
        factor = float(at.compute_number(name)) if inside is None else _compute_log(inside.lower)
        value *= factor**power
        size *= max(abs(factor), 1.0) ** power if power > 0 else abs(factor) ** power
    return value, size


@lru_cache(maxsize=4096)
def _compute_log(ratio: Fraction) -> float:
    return math.log(ratio.numerator) - math.log(ratio.denominator)
