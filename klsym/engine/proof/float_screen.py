"""What floats say of an inequality on a finite model before it is enclosed exactly.  Untrusted.

A search for a model with left > right meets many in which left is plainly smaller; to enclose those in
rational intervals is most of its work.
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

PLAIN = 1e-6  # of the sizes that are added up; rounding is below 1e-12 of them
MAX_EXPONENT = 600.0  # what may stand in an exponential


def is_plainly_at_most(left: Side, right: Side, model: Model) -> bool:
    """Is right - left far above what rounding can do?  False where floats do not say."""
    gap = size = 0.0
    try:
        for sign, side in ((-1, left), (1, right)):
            for value, large in _terms(side, model):
                gap, size = gap + sign * value, size + large
    except (Refused, ArithmeticError):
        return False
    return gap > PLAIN * size


def _terms(side: Side, model: Model) -> Iterator[tuple[float, float]]:
    """Each term in floats, and the size of what it is added up from."""
    for scale, atoms in side.terms:
        value, size = _coefficient(scale, Position((), 0, model.parameters, model.context))
        for atom in atoms:
            mean, large = _mean(atom, model)
            value, size = value * mean, size * large
        yield value, size


def _mean(atom: Atom, model: Model) -> tuple[float, float]:
    if not isinstance(atom, Mean) or atom.index or atom.measure not in ("q", "p", "mu"):
        raise Refused("a mean over single samples expected")
    value = size = 0.0
    for path in model.sequences:
        at = Position(path, 0, model.parameters, model.context)
        weight = float(math.prod(step.values[atom.measure] for step in path))
        weight *= math.prod(float(at.score(entry)) for entry in atom.score)
        found, large = _coefficient(atom.coefficient, at)
        value, size = value + weight * found, size + abs(weight) * large
    return value, size


def _coefficient(a: ExpPoly, at: Position) -> tuple[float, float]:
    value = size = 0.0
    for (monomial, exponent), number in a.terms.items():
        powers = [float(times) * _monomial(inside, at)[0] for inside, times in exponent]
        if sum(map(abs, powers)) > MAX_EXPONENT:
            raise OverflowError("an exponential that floats do not hold")
        found, large = _monomial(monomial, at)
        scale = float(number) * math.exp(sum(powers))
        value, size = value + scale * found, size + abs(scale) * large
    return value, size


def _monomial(monomial: Monomial, at: Position) -> tuple[float, float]:
    """A product of powers, and its size: at least 1 for a logarithm, whose rounding is absolute."""
    value = size = 1.0
    for name, power in monomial:
        inside = at.inside(name)
        factor = float(at.number(name)) if inside is None else _log(inside.lower)
        value *= factor**power
        size *= max(abs(factor), 1.0) ** power if power > 0 else abs(factor) ** power
    return value, size


@lru_cache(maxsize=4096)
def _log(ratio: Fraction) -> float:
    return math.log(ratio.numerator) - math.log(ratio.denominator)
