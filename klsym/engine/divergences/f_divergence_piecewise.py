"""The divergence behind a c(r) that is in the ring piece by piece (abs, min, max, clip).  Untrusted.

Between the zeros of what bounds them, which are enclosed, c is an exponential polynomial of k1 = -log r.
There f = F + b r with F + dF/dk1 = c, each b from the continuity of f; a jump of c is a kink of f.  f is
given where the bounds are rational in k1, its region of convexity wherever the zeros can be told apart.

>>> from klsym.kernel.ring import ExpPoly as E
>>> from klsym.kernel.definitions import Definition
>>> up, down = Definition("up", REGION, K1), Definition("down", REGION, -K1)
>>> sign = E.from_variable("up") - E.from_variable("down")
>>> found = find_piecewise_divergence(sign, Context((), (), (), (up, down)))
>>> found.is_divergence, found.f  # of the slope of abs(k1): the total variation
(True, Abs(r - 1))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import sympy

from klsym.engine.divergences.f_divergence import (
    K1,
    Generated,
    Stretch,
    differentiate_in_log_q,
    find_limit,
    find_nonnegative_region,
)
from klsym.engine.divergences.f_divergence import R as RATIO
from klsym.engine.fields.primitives import find_objective_under
from klsym.engine.regions.relations import divide_exactly
from klsym.engine.regions.root_isolation import Zero, find_sign_intervals
from klsym.kernel.definitions import REGION
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.kernel.statements import Context
from klsym.language.convert import to_sympy
from klsym.language.expressions import k1
from klsym.records import record

HALF = Fraction(1, 2)
MOST_BOUNDS = 6


@record
class GeneratorPiece:
    """The coefficient c on an interval of k1."""

    lower: Zero | None
    upper: Zero | None
    c: ExpPoly


def find_piecewise_divergence(c: ExpPoly, context: Context) -> Generated | None:
    """Return f and its shape; None if c depends on more than r, or its pieces are not isolated."""
    regions = {name: e for name in c.names() if (e := context.find_definition(name, REGION)) is not None}
    if len({frozenset((e, -e)) for e in regions.values()}) > MOST_BOUNDS:
        return None
    coefficient_pieces = _split_into_pieces(c, regions)
    if coefficient_pieces is None or (
        not any(differentiate_in_log_q(piece.c) for piece in coefficient_pieces)
        and len(coefficient_pieces) < 2
    ):
        return None
    jumps = [_find_jump_sign(a, b, regions) for a, b in pairwise(coefficient_pieces)]
    where = None if None in jumps else _find_convex_intervals(coefficient_pieces, jumps)
    parts = _integrate_pieces(coefficient_pieces)
    if parts is None and where is None:
        return None
    if parts is None:
        return Generated(None, where, _compute_strength(coefficient_pieces), None)
    falls, f = find_limit(parts[0] * K1.exp()) == float("-inf"), _write_formula(coefficient_pieces, parts)
    pairs = zip(coefficient_pieces, parts, strict=True) if f.has(sympy.sign, sympy.Heaviside) else ()
    pieces = tuple((Stretch(piece.lower, piece.upper), part) for piece, part in pairs)
    return Generated(f, where, _compute_strength(coefficient_pieces), falls, pieces=pieces)


# ---------------------------------------------------------------------------- the pieces
def _split_into_pieces(coefficient: ExpPoly, regions: Mapping[str, ExpPoly]) -> list[GeneratorPiece] | None:
    """Return c between the zeros of its bounds; None if it depends on more than k1, or zeros overlap."""
    signs = {}
    for name, x in regions.items():
        cells = find_sign_intervals(x) if x.names() == {"k1"} else None
        if cells is None:
            return None
        signs[name] = cells
    zeros = sorted({z for cells in signs.values() for _, (_, z) in cells if z is not None})
    if any(b[0] <= a[1] for a, b in pairwise(zeros)):
        return None  # of two bounds, and perhaps the same
    pieces = []
    for lower, upper in pairwise([None, *zeros, None]):
        at = _choose_point_between(lower, upper)
        c = coefficient.substitute(
            {n: ONE if _read_sign_at(cells, at) > 0 else ZERO for n, cells in signs.items()}
        )
        if c.names() - {"k1"}:
            return None
        pieces.append(GeneratorPiece(lower, upper, c))
    return _merge_neighbours(pieces)


def _merge_neighbours(pieces: list[GeneratorPiece]) -> list[GeneratorPiece]:
    """Merge neighbouring pieces with the same formula."""
    merged: list[GeneratorPiece] = []
    for piece in pieces:
        if merged and merged[-1].c == piece.c:
            merged[-1] = GeneratorPiece(merged[-1].lower, piece.upper, piece.c)
        else:
            merged.append(piece)
    return merged


def _choose_point_between(lower: Zero | None, upper: Zero | None) -> Fraction:
    if lower is None or upper is None:
        return (upper[0] - 1) if upper else (lower[1] + 1) if lower else Fraction(1, 3)
    return (lower[1] + upper[0]) / 2


def _read_sign_at(cells: Sequence[tuple[int, tuple[Zero | None, Zero | None]]], at: Fraction) -> int:
    return next(sign for sign, (_, upper) in cells if upper is None or at < upper[0])


# ---------------------------------------------------------------------------- where it is convex
def _find_jump_sign(a: GeneratorPiece, b: GeneratorPiece, regions: Mapping[str, ExpPoly]) -> int | None:
    """Return the sign of the jump of c where two pieces meet; None if undecided."""
    assert a.upper is not None
    if any(divide_exactly(b.c - a.c, x) is not None for x in regions.values()):
        return 0  # what it gains is a multiple of what is 0 at the bound
    if a.upper[0] != a.upper[1]:
        return None
    gap = _substitute_point(b.c - a.c, a.upper[0])
    if not gap:
        return 0
    value = sympy.N(to_sympy(gap), 30)  # not 0: powers of e are independent
    return 1 if value > 0 else -1


def _substitute_point(element: ExpPoly, place: Fraction) -> ExpPoly:
    return element.substitute({"k1": ExpPoly.from_number(place)})


def _find_convex_intervals(
    pieces: list[GeneratorPiece], jumps: list[int | None]
) -> tuple[Stretch, ...] | None:
    """Return where c rises with k1 or is constant; a fall between two pieces separates intervals."""
    intervals: list[Stretch] = []
    for i, piece in enumerate(pieces):
        rising = find_nonnegative_region(differentiate_in_log_q(piece.c))
        if not isinstance(rising, tuple):
            return None
        for stretch in rising:
            common = _clip_interval(stretch, piece)
            if common is None:
                continue
            is_adjacent = i and intervals and common.lower == piece.lower == intervals[-1].upper
            if is_adjacent and (jumps[i - 1] or 0) >= 0:
                intervals[-1] = Stretch(intervals[-1].lower, common.upper)
            else:
                intervals.append(common)
    return tuple(intervals)


def _clip_interval(stretch: Stretch, piece: GeneratorPiece) -> Stretch | None:
    """Return the intersection of both; None if it is empty."""
    lower = max((z for z in (stretch.lower, piece.lower) if z is not None), default=None)
    upper = min((z for z in (stretch.upper, piece.upper) if z is not None), default=None)
    if lower is not None and upper is not None and upper[0] <= lower[1]:
        return None
    return Stretch(lower, upper)


def _compute_strength(pieces: list[GeneratorPiece]) -> Any:
    """Return dc/dk1 at k1 = 0; None at a kink of c, and where a bound may be there."""
    nearby = [
        p for p in pieces if (p.lower is None or p.lower[0] <= 0) and (p.upper is None or p.upper[1] >= 0)
    ]
    values = {_substitute_point(differentiate_in_log_q(piece.c), Fraction(0)) for piece in nearby}
    broken = len(nearby) > 1 and any(_substitute_point(b.c - a.c, Fraction(0)) for a, b in pairwise(nearby))
    return to_sympy(values.pop()) if len(values) == 1 and not broken else None


# ---------------------------------------------------------------------------- f
def _integrate_pieces(pieces: list[GeneratorPiece]) -> list[ExpPoly] | None:
    """Return continuous f on each piece, with f(1) = 0; f'(1) = 0, or as much below as above."""
    ends = [piece.upper for piece in pieces[:-1]]
    if any(end is None or end[0] != end[1] for end in ends):
        return None
    breaks = [end[0] for end in ends if end is not None]
    home = sum(b < 0 for b in breaks)
    level = _substitute_point(pieces[home].c, Fraction(0))
    if 0 in breaks:
        level = (level + _substitute_point(pieces[home + 1].c, Fraction(0))) * HALF
    primitives = [find_objective_under(piece.c - level, "q") for piece in pieces]
    if any(part is None for part in primitives):
        return None
    parts = [part for part in primitives if part is not None]
    parts[home] = _move_through_point(parts[home], Fraction(0), ExpPoly({}))
    for i in range(home, len(breaks)):
        parts[i + 1] = _move_through_point(parts[i + 1], breaks[i], _substitute_point(parts[i], breaks[i]))
    for i in range(home - 1, -1, -1):
        parts[i] = _move_through_point(parts[i], breaks[i], _substitute_point(parts[i + 1], breaks[i]))
    return parts


def _move_through_point(part: ExpPoly, place: Fraction, value: ExpPoly) -> ExpPoly:
    """Return part + b r with this value at k1 = place, where r is exp(-place)."""
    gap = value - _substitute_point(part, place)
    return part + gap * ExpPoly.from_number(place).exp() * RATIO


def _write_formula(pieces: list[GeneratorPiece], parts: list[ExpPoly]) -> Any:
    """Return f as one formula, with steps at the bounds; a change of sign is written as one."""
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
