"""Is a coefficient with regions a combination of k1, r and rewards after all?  Floats answer.  Untrusted.

Where regions stand in c = a k1 + b r + h(R, A), and no relation takes them out, c may still be such a
combination.  At samples with the same rewards it is one of k1, r and 1; if none fits, c has no name.

>>> from klsym.kernel.statements import REGION, Definition
>>> k1 = ExpPoly.variable("k1")
>>> context = Context(definitions=(Definition("b", REGION, k1), Definition("d", REGION, -k1)))
>>> b, d = ExpPoly.variable("b"), ExpPoly.variable("d")
>>> fits(k1 * (b - d), context), fits(k1 * (b + d), context)
(False, True)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from operator import mul
from random import Random

from klsym.engine.regions.root_isolation import joint
from klsym.kernel.names import HELD, parse_name
from klsym.kernel.ring import ExpPoly, Monomial
from klsym.kernel.statements import LOG, REGION, Context

SIZES = (0.1, 0.5, 1.5, 5.0)  # of the log ratios at the samples
SAMPLES, SEED = 12, 20_26  # of each size
TOLERANCE = 1e-7  # of the largest part: far above rounding
ROUNDING = 1e-9  # of the size of all terms together
BESIDE = 6  # samples at each place beside a bound
LOG_RATIOS = ("k1", "w", "o")
LARGEST = 300.0  # of an exponent
REWARDS = ((1.0, 1.0, 1.0), (-1.0, -0.5, 1.0), (2.0, 0.75, 0.0))  # R, A and M at all samples of a group
Sample = Mapping[str, float]
Row = list[float]


def fits(c: ExpPoly, context: Context) -> bool:
    """Is it a combination at all samples that are tried, with one constant where the rewards are the same?"""
    if (parts := _in_cells(c, context)) is not None and len(parts) > 1:
        return False
    rows = [row for number in range(len(REWARDS)) for row in _rows(c, context, number)]
    scales = [max(map(abs, row)) for row in rows]
    return _in_span([[x / scale for x in row] for row, scale in zip(rows, scales, strict=True)])


def _in_span(rows: list[Row]) -> bool:
    """Is the last column a combination of the others?  Two passes of Gram-Schmidt."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    basis: list[Row] = []
    for column in columns:
        rest = column
        for direction in (*basis, *basis):
            share = _dot(direction, rest)
            rest = [x - share * d for x, d in zip(rest, direction, strict=True)]
        size = math.sqrt(_dot(rest, rest))
        if column is columns[-1]:
            return max(map(abs, rest)) < TOLERANCE
        if size > ROUNDING:
            basis.append([x / size for x in rest])
    raise AssertionError("no column")


def _dot(a: Row, b: Row) -> float:
    return sum(map(mul, a, b))


def _in_cells(c: ExpPoly, context: Context) -> set[ExpPoly] | None:
    """What it is in each cell of regions of one log ratio; None of others."""
    regions = {name: context.defined(name, REGION) for name in sorted(c.names())}
    bounds = {name: e for name, e in regions.items() if e is not None}
    one = all(e.names() <= {*LOG_RATIOS} for e in bounds.values())
    cells = joint(tuple(bounds.values())) if bounds and one else None
    if cells is None:
        return None
    found = set()
    for signs in cells:
        held = {name: ExpPoly.number(int(sign > 0)) for name, sign in zip(bounds, signs, strict=True)}
        found |= {c.substitute(held)} if 0 not in signs else set()
    return found


def positive_somewhere(e: ExpPoly, context: Context) -> bool:
    """Is it positive at a sample that is tried, and by more than rounding?"""
    sizes = ExpPoly({key: max(x, -x) for key, x in e.terms.items()})
    samples = _known(context, 0)
    return any(value(e, at, context) > ROUNDING * abs(value(sizes, at, context)) for at in samples)


def _known(context: Context, number: int) -> Iterator[Sample]:
    """Yield the values of all names at each sample; `number` selects the rewards."""
    fixed = dict.fromkeys(HELD, 1.0) | dict(zip("RAM", REWARDS[number], strict=True))
    fixed |= {name: 0.2 + 0.37 * i for i, name in enumerate(context.parameters)}
    fixed.setdefault("n", 3.0)
    fixed.setdefault("m", fixed["n"] - 1)
    for place, sample in enumerate(_samples(context)):
        yield {**sample, **fixed, "length": 1.0 + place % 4}


def _rows(c: ExpPoly, context: Context, number: int) -> Iterator[Row]:
    """k1, r, a constant for each choice of rewards, and c, where they are the choice of this number."""
    constants = [float(number == other) for other in range(len(REWARDS))]
    for at in _known(context, number):
        found = value(c, at, context)
        if math.isfinite(found):
            yield [at["k1"], math.exp(-at["k1"]), *constants, found]


@lru_cache(maxsize=64)
def _samples(context: Context) -> tuple[Sample, ...]:
    """Log ratios of several sizes, and on both sides of each bound on one of them."""
    stream = Random(SEED)
    found = [_drawn(stream, size) for size in SIZES for _ in range(SAMPLES)]
    for name, place in _beside_bounds(context):
        found += [{**_drawn(stream, 1.0), parse_name(name).base: place} for _ in range(BESIDE)]
    return tuple(found)


def _drawn(stream: Random, size: float) -> dict[str, float]:
    ratios = {name: size * stream.gauss() for name in LOG_RATIOS}
    return {**ratios, "log_q": -abs(stream.gauss()) - 0.1}


def _beside_bounds(context: Context) -> Iterator[tuple[str, float]]:
    """A place on each stretch of a log ratio between the bounds on it."""
    on: dict[str, list[ExpPoly]] = {}
    for _, _, e in context.definitions:
        if len(e.names()) == 1 and parse_name(min(e.names())).base in LOG_RATIOS:
            on.setdefault(min(e.names()), []).append(e)
    for name, bounds in on.items():
        for places in (joint(tuple(bounds)) or {}).values():
            yield from ((name, float(place)) for place in places)


def value(element: ExpPoly, at: Sample, context: Context) -> float:
    """The value of an element at a sample; nan where a log has none, infinite beyond floats."""
    total = 0.0
    for (monomial, exponent), number in element.terms.items():
        term = float(number) * _product(monomial, at, context)
        power = sum(float(v) * _product(m, at, context) for m, v in exponent)
        if term:
            total += term * math.exp(min(max(power, -LARGEST), LARGEST))
    return total


def _product(monomial: Monomial, at: Sample, context: Context) -> float:
    product = 1.0
    for name, power in monomial:
        base = _named(name, at, context)
        try:
            product *= base**power if base >= 0 or power == int(power) else math.nan
        except (OverflowError, ZeroDivisionError):
            product = math.nan
    return product


def _named(name: str, at: Sample, context: Context) -> float:
    """The value of a name; a region is 0 or 1."""
    if (e := context.defined(name)) is None:
        return at[parse_name(name).base]
    found = value(e, at, context)
    if context.defined(name, REGION) is not None:
        return float(found > 0)
    if context.defined(name, LOG) is not None:
        return math.log(found) if found > 0 else math.nan
    return found
