"""What inequalities and premises rest on, from Python values to the data of a certificate.  Untrusted.

>>> from klsym.language.expressions import k1
>>> [row["kind"] for row in inequality([{"u": -k1, "at": "sample"}])]
['tangent']
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from klsym.engine.proof.quantities import quantity
from klsym.engine.proof.reduction import Strategy, reduction
from klsym.errors import UsageError
from klsym.kernel.closings import REGION
from klsym.kernel.names import MEASURES, SAMPLE
from klsym.kernel.ring import ZERO, ExpPoly
from klsym.kernel.statements import Context as Plain
from klsym.kernel.statements import Mean, Side
from klsym.language.abbreviations import Context, with_coefficient
from klsym.language.convert import to_ring
from klsym.language.unfolding import unfold

Data = dict[str, Any]
ROW_KINDS = {"u": "tangent", "b": "square", "variance": "variance"}  # the key that a row holds -> its kind
ROW_DEFAULTS = {"scale": 1, "factor": 1, "v": 0}


def inequality(rows: Iterable[Any]) -> list[Data]:
    """Rows as the kernel reads them.

    rows: dicts with one of u, b and variance; also at, scale, factor, v, power, and nonnegative for a square.
    Raises UsageError: an unknown name, or a value that is missing.
    """
    if isinstance(rows, str | dict) or not isinstance(rows, Iterable):
        raise UsageError("rows: a list of dicts such as {'u': -k1, 'at': 'q'} expected")
    return [_row(row) for row in rows]


def _row(row: Any) -> Data:
    kinds = [key for key in ROW_KINDS if isinstance(row, dict) and key in row]
    known = {*ROW_KINDS, *ROW_DEFAULTS, "at", "power", REGION}
    if len(kinds) != 1 or set(row) - known:
        shown = ", ".join(map(str, row)) if isinstance(row, dict) else str(row)[:60]
        raise UsageError(f"a row holds u, b or variance, and of {', '.join(sorted(known))} some; got {shown}")
    power, at = row.get("power", 0), row.get("at", "q")
    if type(power) is not int or power < 0:
        raise UsageError(f"power: 0, 1, 2 or more expected, got {str(power)[:20]}")
    if at not in (*MEASURES, SAMPLE):
        raise UsageError(f"at: one of {', '.join((*MEASURES, SAMPLE))} expected, got {str(at)[:20]!r}")
    given = {"of": row[kinds[0]], **{name: row.get(name, value) for name, value in ROW_DEFAULTS.items()}}
    given |= {REGION: row[REGION]} if REGION in row else {}
    written = {name: to_ring(value).to_json() for name, value in given.items()}
    return {"kind": ROW_KINDS[kinds[0]], "at": ["", at], "score": ["x"] * power, **written}


def premises(using: Iterable[Any], context: Context) -> list[tuple[int, Side | None]]:
    """Pairs (number of a premise F = G, multiple m): right - left holds m (F - G) besides.

    The kernel adds a multiple of G - F to the left side: that multiple is -m.
    """
    pairs = list(using) if isinstance(using, Iterable) else [using]
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise UsageError("using: pairs (number of a premise, multiple) expected")
    return [(number, None if m is None else unfold(quantity(m).side, context) * -1) for number, m in pairs]


def filled(
    uses: list[tuple[int, Side | None]], left: Side, right: Side, context: Plain, strategy: Strategy
) -> list[tuple[int, Side]]:
    """Every multiple: None is (right - left)/(G - F), where F = G is a premise between parameters."""
    if all(times is not None for _, times in uses):
        return [(number, times) for number, times in uses if times is not None]
    gap, known = _reduced(right, context, strategy) - _reduced(left, context, strategy), []
    for number, times in uses:
        if times is None and number in range(len(context.premises)):
            first, second = context.premises[number]
            times = _quotient(gap, second - first)
        known.append((number, times or Side()))
    return known


def _reduced(side: Side, context: Plain, strategy: Strategy) -> Side:
    return [side, *(reached for _, reached in reduction(side, context, strategy=strategy))][-1]


def _quotient(gap: Side, divisor: Side) -> Side:
    """The terms of a side that a difference of parameters divides, over it."""
    below = sum((c for c, atoms in divisor.terms if not atoms), ZERO)
    total = Side()
    for coefficient, atoms in gap.terms:
        inside = atoms[0] if len(atoms) == 1 and isinstance(atoms[0], Mean) else None
        quotient = _divided(inside.coefficient if inside else coefficient, below)
        if quotient is not None:
            found = Side.atom(with_coefficient(inside, quotient)) if inside else Side.of((quotient, atoms))
            total = total + found
    return total


def _divided(a: ExpPoly, b: ExpPoly) -> ExpPoly | None:
    """a/b by long division in a name x of which b = c x^d + lower powers, c a single term; else None."""
    for x in sorted(b.names()):
        by_power, rows = _by_power(b, x), _by_power(a, x)
        degree = max(by_power)
        if min(by_power) < 0 or len(by_power[degree].terms) > 1:
            continue
        quotient, rest, lowest = ZERO, a, min(rows, default=0)
        while rest and (top := max(rows)) - degree >= lowest:
            term = rows[top] * by_power[degree].inverse() * ExpPoly.variable(x) ** (top - degree)
            quotient, rest = quotient + term, rest - term * b
            rows = _by_power(rest, x)
        return None if rest else quotient
    return None


def _by_power(a: ExpPoly, x: str) -> dict[int, ExpPoly]:
    """What stands beside each power of x."""
    found: dict[int, ExpPoly] = {}
    for (monomial, exponent), value in a.terms.items():
        rest = tuple(item for item in monomial if item[0] != x)
        power = dict(monomial).get(x, 0)
        found[power] = found.get(power, ZERO) + ExpPoly({(rest, exponent): value})
    return found
