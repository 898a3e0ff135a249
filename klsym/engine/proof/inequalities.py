"""Convert the rows of inequalities and the multiples of premises to data of a certificate.  Untrusted.

>>> from klsym.language.expressions import k1
>>> [row["kind"] for row in read_rows([{"u": -k1, "at": "sample"}])]
['tangent']
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from klsym.engine.proof.quantities import to_quantity
from klsym.engine.proof.reduction import Strategy, reduce_side
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


def read_rows(rows: Iterable[Any]) -> list[Data]:
    """Return rows as the kernel reads them.

    rows: dicts with one of u, b and variance; also at, scale, factor, v, power, and nonnegative for a square.
    Raises UsageError: an unknown name, or a value that is missing.
    """
    if isinstance(rows, str | dict) or not isinstance(rows, Iterable):
        raise UsageError("rows: a list of dicts such as {'u': -k1, 'at': 'q'} expected")
    return [_read_row(row) for row in rows]


def _read_row(row: Any) -> Data:
    kinds = [key for key in ROW_KINDS if isinstance(row, dict) and key in row]
    known_keys = {*ROW_KINDS, *ROW_DEFAULTS, "at", "power", REGION}
    if len(kinds) != 1 or set(row) - known_keys:
        row_text = ", ".join(map(str, row)) if isinstance(row, dict) else str(row)[:60]
        raise UsageError(
            f"a row holds u, b or variance, and of {', '.join(sorted(known_keys))} some; got {row_text}"
        )
    power, at = row.get("power", 0), row.get("at", "q")
    if type(power) is not int or power < 0:
        raise UsageError(f"power: 0, 1, 2 or more expected, got {str(power)[:20]}")
    if at not in (*MEASURES, SAMPLE):
        raise UsageError(f"at: one of {', '.join((*MEASURES, SAMPLE))} expected, got {str(at)[:20]!r}")
    values = {"of": row[kinds[0]], **{name: row.get(name, value) for name, value in ROW_DEFAULTS.items()}}
    values |= {REGION: row[REGION]} if REGION in row else {}
    json_values = {name: to_ring(value).to_json() for name, value in values.items()}
    return {"kind": ROW_KINDS[kinds[0]], "at": ["", at], "score": ["x"] * power, **json_values}


def collect_row_elements(rows: Iterable[Data]) -> list[ExpPoly]:
    """Return the elements in rows as the kernel reads them."""
    names = ("scale", "factor", "v", "of", "nonnegative")
    return [ExpPoly.from_json(row[name]) for row in rows for name in names if name in row]


def read_premise_multiples(using: Iterable[Any], context: Context) -> list[tuple[int, Side | None]]:
    """Read pairs (number of a premise F = G, multiple m): right - left contains the term m (F - G).

    The kernel adds a multiple of G - F to the left side: that multiple is -m.
    """
    pairs = list(using) if isinstance(using, Iterable) else [using]
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise UsageError("using: pairs (number of a premise, multiple) expected")
    return [(number, None if m is None else unfold(to_quantity(m).side, context) * -1) for number, m in pairs]


def fill_multiples(
    uses: list[tuple[int, Side | None]], left: Side, right: Side, context: Plain, strategy: Strategy
) -> list[tuple[int, Side]]:
    """Compute multiples that are None: (right - left)/(G - F), F = G a premise between parameters."""
    if all(times is not None for _, times in uses):
        return [(number, times) for number, times in uses if times is not None]
    difference, multiples = _reduce_side(right, context, strategy) - _reduce_side(left, context, strategy), []
    for number, times in uses:
        if times is None and number in range(len(context.premises)):
            first, second = context.premises[number]
            times = _divide_side(difference, second - first)
        multiples.append((number, times or Side()))
    return multiples


def _reduce_side(side: Side, context: Plain, strategy: Strategy) -> Side:
    return [side, *(reached for _, reached in reduce_side(side, context, strategy=strategy))][-1]


def _divide_side(difference: Side, divisor: Side) -> Side:
    """Divide a side by a difference of parameters; terms that it does not divide are left out."""
    denominator = sum((c for c, atoms in divisor.terms if not atoms), ZERO)
    total = Side()
    for coefficient, atoms in difference.terms:
        mean = atoms[0] if len(atoms) == 1 and isinstance(atoms[0], Mean) else None
        quotient = _divide(mean.coefficient if mean else coefficient, denominator)
        if quotient is not None:
            quotient_side = (
                Side.from_atom(with_coefficient(mean, quotient)) if mean else Side.combine((quotient, atoms))
            )
            total = total + quotient_side
    return total


def _divide(a: ExpPoly, b: ExpPoly) -> ExpPoly | None:
    """Return a/b by long division in a name x with b = c x^d + lower powers, c a single term; else None."""
    for x in sorted(b.names()):
        divisor_by_power, rows = _group_by_power(b, x), _group_by_power(a, x)
        degree = max(divisor_by_power)
        if min(divisor_by_power) < 0 or len(divisor_by_power[degree].terms) > 1:
            continue
        quotient, remainder, lowest = ZERO, a, min(rows, default=0)
        while remainder and (top := max(rows)) - degree >= lowest:
            term = rows[top] * divisor_by_power[degree].invert() * ExpPoly.from_variable(x) ** (top - degree)
            quotient, remainder = quotient + term, remainder - term * b
            rows = _group_by_power(remainder, x)
        return None if remainder else quotient
    return None


def _group_by_power(a: ExpPoly, x: str) -> dict[int, ExpPoly]:
    """Return the coefficient of each power of x."""
    coefficients: dict[int, ExpPoly] = {}
    for (monomial, exponent), value in a.terms.items():
        factors = tuple(item for item in monomial if item[0] != x)
        power = dict(monomial).get(x, 0)
        coefficients[power] = coefficients.get(power, ZERO) + ExpPoly({(factors, exponent): value})
    return coefficients
