"""What an inequality rests on, from Python values to the data of a certificate.  Untrusted.

>>> from klsym.language import k1
>>> written = inequality("tangent", {"terms": [(1, "sample", 0, -k1)]})
>>> [row["at"] for row in written["terms"]], written["premises"]
(['sample'], [])
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import sympy

from klsym.convert import to_ring, to_sympy
from klsym.engine.quantities import quantity
from klsym.errors import NotInRing, UsageError
from klsym.kernel.evaluation import evaluated
from klsym.kernel.inequalities import REGION
from klsym.normal_form import ExpPoly
from klsym.statements import Context, Linear, Side, elements, with_coefficient

Data = dict[str, Any]
SQUARES = "sum of squares"
# what a term may hold, in the order of a tuple; None must be given
TERMS: dict[str, Data] = {
    "tangent": {"scale": 1, "at": "q", "v": 0, "u": None},
    SQUARES: {"scale": 1, "at": "q", "v": 0, "b": None, "factor": 1, "power": 0},
}
SQUARE: Data = {"b": None, "measure": None, "power": None, "scale": 1}


def inequality(by: str, data: Data) -> Data:
    """The data of `tangent`, `sum of squares` or `square`, as the kernel reads it.

    data: `terms`, or for `square` b, measure, power and scale; `using` as in `premises`.
    Raises UsageError: an unknown name, or a value that is missing.
    """
    data = dict(data)
    using = premises(data.pop("using", ()))
    if by in TERMS and set(data) == {"terms"}:
        return {"by": by, "terms": terms(by, data["terms"]), "premises": using}
    if by == "square":
        return {"by": by, **_written(_filled(data, SQUARE, by)), "premises": using}
    known = ", ".join(f"{name} with terms" for name in TERMS)
    raise UsageError(f"at_most by={by!r}: known are {known}, and square with b, measure, power")


def terms(by: str, rows: Iterable[Any]) -> list[Data]:
    """Each term as a tuple or a dict; `by` is "tangent" or "sum of squares", which may name a region."""
    defaults = TERMS[by]
    if isinstance(rows, str | dict) or not isinstance(rows, Iterable):
        raise UsageError(f"{by}: terms: a list of ({', '.join(defaults)}) expected")
    return [_written(_filled(_named(row, defaults, by), defaults, by)) for row in rows]


def _named(row: Any, defaults: Data, by: str) -> Data:
    if isinstance(row, dict):
        return row
    if not isinstance(row, tuple) or len(row) > len(defaults):
        raise UsageError(f"{by}: a term ({', '.join(defaults)}) expected, got {str(row)[:60]}")
    return dict(zip(defaults, row, strict=False))


def positive_terms(rows: Iterable[Data]) -> list[Data]:
    """Dicts that hold u (a tangent) or b (a square), at one sample."""
    rows = list(rows)
    if not all(isinstance(row, dict) for row in rows):
        raise UsageError("terms: a list of dicts such as {'u': -k1} expected")
    kinds = [SQUARES if "b" in row else "tangent" for row in rows]
    return [terms(by, [{"at": "sample", **row}])[0] for by, row in zip(kinds, rows, strict=True)]


def premises(using: Iterable[Any]) -> list[Data]:
    """Pairs (number of a premise F = G, multiple m): right - left holds m (F - G) besides.

    >>> premises([(0, -2)])
    [{'number': 0, 'times': [[[['-2', {}]], []]]}]
    """
    return [
        {"number": number, "times": None if m is None else quantity(m).side.to_json()}
        for number, m in _pairs(using)
    ]


def filled(written: Data, left: Side, right: Side, context: Context) -> Data:
    """The data with every multiple: None is (right - left)/(F - G), F = G a premise between parameters."""
    rows = written.get("premises", [])
    if not any(row["times"] is None for row in rows):
        return written
    gap, known = evaluated(right - left, context)[0], []
    for row in rows:
        times = row["times"]
        if times is None and row["number"] in range(len(context.premises)):
            first, second = context.premises[row["number"]]
            times = _quotient(gap, first - second).to_json()
        known.append({**row, "times": times})
    return {**written, "premises": known}


def _quotient(gap: Side, divisor: Side) -> Side:
    """The terms of a side that a difference of parameters divides, over it."""
    below = sum((to_sympy(c) for c, atoms in divisor.terms if not atoms), sympy.S.Zero)
    total = Side()
    for coefficient, atoms in gap.terms:
        inside = atoms[0] if len(atoms) == 1 and isinstance(atoms[0], Linear) else None
        divided = inside.coefficient if inside else coefficient
        try:
            quotient = to_ring(sympy.cancel(to_sympy(divided) / below))
        except NotInRing:
            continue
        found = Side.atom(with_coefficient(inside, quotient)) if inside else Side.of((quotient, atoms))
        total = total + found
    return total


def _pairs(using: Any) -> list[Any]:
    pairs = list(using) if isinstance(using, Iterable) else [using]
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise UsageError("using: pairs (number of a premise, multiple) expected")
    return pairs


def _filled(row: Data, defaults: Data, by: str) -> Data:
    missing = [name for name, value in defaults.items() if value is None and name not in row]
    unknown = [str(name) for name in row if name not in defaults and (name, by) != (REGION, SQUARES)]
    if missing or unknown:
        names = ", ".join(defaults)
        raise UsageError(f"{by}: a term holds {names}; got {', '.join(map(str, row)) or 'nothing'}")
    return {**defaults, **row}


def _written(row: Data) -> Data:
    plain = {name: value for name, value in row.items() if name in ("at", "measure")}
    if "power" in row:
        power = row.pop("power")
        if type(power) is not int or power < 0:
            raise UsageError(f"power: 0, 1, 2 or more expected, got {str(power)[:20]}")
        plain["score"] = ["x"] * power
    return plain | {name: to_ring(row[name]).to_json() for name in row if name not in plain}


def data_elements(data: Any) -> Iterator[ExpPoly]:
    """The coefficients in the data of an inequality, for the parameters that they name."""
    for row in [data, *data.get("terms", [])]:
        for name in ("scale", "factor", "v", "u", "b", "value", REGION):
            if name in row:
                yield ExpPoly.from_json(row[name])
    for row in data.get("premises", []):
        if row["times"] is not None:
            yield from elements(Side.from_json(row["times"]))
