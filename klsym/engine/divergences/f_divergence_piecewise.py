"""The divergence behind a c(r) that is in the ring piece by piece (abs, min, max, clip).  Untrusted.

Between the zeros of what bounds them, which are enclosed, c is an exponential polynomial of k1 = -log r.
There f = F + b r with F + dF/dk1 = c, each b from the continuity of f; a jump of c is a kink of f.  f is
given where the bounds are rational in k1, its region of convexity wherever the zeros can be told apart.

>>> from klsym.kernel.ring import ExpPoly as E
>>> from klsym.kernel.statements import Definition
>>> up, down = Definition("up", REGION, K1), Definition("down", REGION, -K1)
>>> found = generated_pieces(E.variable("up") - E.variable("down"), Context((), (), (), (up, down)))
>>> found.is_divergence, found.f  # of the slope of abs(k1): the total variation
(True, Abs(r - 1))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import sympy

from klsym.engine.divergences.f_divergence import K1, Generated, Stretch, limit, nonnegative_where, slope
from klsym.engine.divergences.f_divergence import R as RATIO
from klsym.engine.fields.primitives import find_objective_under
from klsym.engine.regions.relations import divide_exactly
from klsym.engine.regions.root_isolation import Zero, find_sign_intervals
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.kernel.statements import REGION, Context
from klsym.language.convert import to_sympy
from klsym.language.expressions import k1

HALF = Fraction(1, 2)
MOST_BOUNDS = 6


@dataclass(frozen=True)
class GeneratorPiece:
    """c on an interval of k1."""

    lower: Zero | None
    upper: Zero | None
    c: ExpPoly


def generated_pieces(c: ExpPoly, context: Context) -> Generated | None:
    """f and its shape; None where c is no function of r, or its pieces cannot be told apart."""
    regions = {name: e for name in c.names() if (e := context.defined(name, REGION)) is not None}
    if len({frozenset((e, -e)) for e in regions.values()}) > MOST_BOUNDS:
        return None
    found = _pieces(c, regions)
    if found is None or (not any(slope(piece.c) for piece in found) and len(found) < 2):
        return None
    jumps = [_jump(a, b, regions) for a, b in pairwise(found)]
    where = None if None in jumps else _where(found, jumps)
    parts = _parts(found)
    if parts is None and where is None:
        return None
    if parts is None:
        return Generated(None, where, _strength(found), None)
    falls, f = limit(parts[0] * K1.exp()) == float("-inf"), _written(found, parts)
    told = zip(found, parts, strict=True) if f.has(sympy.sign, sympy.Heaviside) else ()
    pieces = tuple((Stretch(piece.lower, piece.upper), part) for piece, part in told)
    return Generated(f, where, _strength(found), falls, pieces=pieces)


# ---------------------------------------------------------------------------- the pieces
def _pieces(of: ExpPoly, regions: Mapping[str, ExpPoly]) -> list[GeneratorPiece] | None:
    signs = {}
    for name, x in regions.items():
        cells = find_sign_intervals(x) if x.names() == {"k1"} else None
        if cells is None:
            return None
        signs[name] = cells
    zeros = sorted({z for cells in signs.values() for _, (_, z) in cells if z is not None})
    if any(b[0] <= a[1] for a, b in pairwise(zeros)):
        return None  # of two bounds, and perhaps the same
    found = []
    for lower, upper in pairwise([None, *zeros, None]):
        at = _between(lower, upper)
        c = of.substitute({n: ONE if _sign_at(cells, at) > 0 else ZERO for n, cells in signs.items()})
        if c.names() - {"k1"}:
            return None
        found.append(GeneratorPiece(lower, upper, c))
    return _joined(found)


def _joined(pieces: list[GeneratorPiece]) -> list[GeneratorPiece]:
    """Neighbours with one formula are one."""
    kept: list[GeneratorPiece] = []
    for piece in pieces:
        if kept and kept[-1].c == piece.c:
            kept[-1] = GeneratorPiece(kept[-1].lower, piece.upper, piece.c)
        else:
            kept.append(piece)
    return kept


def _between(lower: Zero | None, upper: Zero | None) -> Fraction:
    if lower is None or upper is None:
        return (upper[0] - 1) if upper else (lower[1] + 1) if lower else Fraction(1, 3)
    return (lower[1] + upper[0]) / 2


def _sign_at(cells: Sequence[tuple[int, tuple[Zero | None, Zero | None]]], at: Fraction) -> int:
    return next(sign for sign, (_, upper) in cells if upper is None or at < upper[0])


# ---------------------------------------------------------------------------- where it is convex
def _jump(a: GeneratorPiece, b: GeneratorPiece, regions: Mapping[str, ExpPoly]) -> int | None:
    """The sign of what c gains where two pieces meet; None where it is open."""
    assert a.upper is not None
    if any(divide_exactly(b.c - a.c, x) is not None for x in regions.values()):
        return 0  # what it gains is a multiple of what is 0 at the bound
    if a.upper[0] != a.upper[1]:
        return None
    gap = _at(b.c - a.c, a.upper[0])
    if not gap:
        return 0
    value = sympy.N(to_sympy(gap), 30)  # not 0: powers of e are independent
    return 1 if value > 0 else -1


def _at(element: ExpPoly, place: Fraction) -> ExpPoly:
    return element.substitute({"k1": ExpPoly.number(place)})


def _where(pieces: list[GeneratorPiece], jumps: list[int | None]) -> tuple[Stretch, ...] | None:
    """Where c rises with k1, or stays; a fall from one piece to the next parts two intervals."""
    kept: list[Stretch] = []
    for i, piece in enumerate(pieces):
        rising = nonnegative_where(slope(piece.c))
        if not isinstance(rising, tuple):
            return None
        for stretch in rising:
            cut = _cut(stretch, piece)
            if cut is None:
                continue
            meets = i and kept and cut.lower == piece.lower == kept[-1].upper
            if meets and (jumps[i - 1] or 0) >= 0:
                kept[-1] = Stretch(kept[-1].lower, cut.upper)
            else:
                kept.append(cut)
    return tuple(kept)


def _cut(stretch: Stretch, piece: GeneratorPiece) -> Stretch | None:
    """What both have in common; None if it is empty."""
    lower = max((z for z in (stretch.lower, piece.lower) if z is not None), default=None)
    upper = min((z for z in (stretch.upper, piece.upper) if z is not None), default=None)
    if lower is not None and upper is not None and upper[0] <= lower[1]:
        return None
    return Stretch(lower, upper)


def _strength(pieces: list[GeneratorPiece]) -> Any:
    """dc/dk1 at k1 = 0; None at a kink of c, and where a bound may be there."""
    here = [
        p for p in pieces if (p.lower is None or p.lower[0] <= 0) and (p.upper is None or p.upper[1] >= 0)
    ]
    values = {_at(slope(piece.c), Fraction(0)) for piece in here}
    broken = len(here) > 1 and any(_at(b.c - a.c, Fraction(0)) for a, b in pairwise(here))
    return to_sympy(values.pop()) if len(values) == 1 and not broken else None


# ---------------------------------------------------------------------------- f
def _parts(pieces: list[GeneratorPiece]) -> list[ExpPoly] | None:
    """f on each piece, with f(1) = 0, continuous; f'(1) = 0, or as much below as above."""
    ends = [piece.upper for piece in pieces[:-1]]
    if any(end is None or end[0] != end[1] for end in ends):
        return None
    breaks = [end[0] for end in ends if end is not None]
    home = sum(b < 0 for b in breaks)
    level = _at(pieces[home].c, Fraction(0))
    if 0 in breaks:
        level = (level + _at(pieces[home + 1].c, Fraction(0))) * HALF
    own = [find_objective_under(piece.c - level, "q") for piece in pieces]
    if any(part is None for part in own):
        return None
    found = [part for part in own if part is not None]
    found[home] = _through(found[home], Fraction(0), ExpPoly({}))
    for i in range(home, len(breaks)):
        found[i + 1] = _through(found[i + 1], breaks[i], _at(found[i], breaks[i]))
    for i in range(home - 1, -1, -1):
        found[i] = _through(found[i], breaks[i], _at(found[i + 1], breaks[i]))
    return found


def _through(part: ExpPoly, place: Fraction, value: ExpPoly) -> ExpPoly:
    """part + b r with this value at k1 = place, where r is exp(-place)."""
    gap = value - _at(part, place)
    return part + gap * ExpPoly.number(place).exp() * RATIO


def _written(pieces: list[GeneratorPiece], parts: list[ExpPoly]) -> Any:
    """As one formula, with steps at the bounds; a change of sign is written as one."""
    breaks = [sympy.Rational(p.upper[0].numerator, p.upper[0].denominator) for p in pieces[:-1] if p.upper]
    if len(parts) == 2 and parts[0] == -parts[1]:
        signs = [sign for sign, _ in find_sign_intervals(parts[1]) or ()]
        whole = to_sympy(parts[1])
        if signs in ([-1, 1], [1, -1]):  # -|.| where it falls through 0
            return sympy.Abs(whole) * signs[1]
        return whole * sympy.sign(k1 - breaks[0])
    total = to_sympy(parts[0])
    for b, before, after in zip(breaks, parts[:-1], parts[1:], strict=True):
        total += to_sympy(after - before) * sympy.Heaviside(k1 - b)
    return total
