"""What tests ask of the oracle of statements: the value of a side in floats, and functions of k1."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import Atom, Side

from .numbers import Unsupported, as_float
from .statements import Oracle
from .terms import terms_of
from .worlds import OfK1, World


def of_k1(element: ExpPoly, parameters: dict[str, Fraction]) -> OfK1:
    rows = []
    for term in terms_of(element, frozenset(parameters)):
        if term.wild or any(v.base != "k1" for v, _ in term.factors):
            raise Unsupported("a family beyond k1^m exp(slope k1)")
        c, slope = term.scale, Fraction(0)
        for name, power in term.constants:
            c *= parameters[name] ** power
        for scale, constants, _ in term.lines:
            for name, power in constants:
                scale *= parameters[name] ** power
            slope += scale
        rows.append((c, sum(power for _, power in term.factors), slope))
    return OfK1(tuple(rows))


def worth(what: Side | Atom, world: World) -> float:
    """The value of a side or an atom in a world."""
    oracle = world.__dict__.setdefault("oracle", Oracle(world, as_float))  # it keeps what it has computed
    return float(oracle.side(what) if isinstance(what, Side) else oracle.atom(what))


def same(before: Any, after: Any, slack: float = 1e-8) -> bool:
    return bool(abs(before - after) <= slack * (1 + abs(before) + abs(after)))
