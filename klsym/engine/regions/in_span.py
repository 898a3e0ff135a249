"""Test with floats if a coefficient with regions is a combination of k1, r and rewards.  Untrusted.

Where regions occur in c = a k1 + b r + h(R, A), and no relation removes them, c may still be such a
combination.  At samples with the same rewards it is one of k1, r and 1; if none fits, c has no name.

>>> from klsym.kernel.definitions import REGION, Definition
>>> k1 = ExpPoly.from_variable("k1")
>>> context = Context(definitions=(Definition("b", REGION, k1), Definition("d", REGION, -k1)))
>>> b, d = ExpPoly.from_variable("b"), ExpPoly.from_variable("d")
>>> is_combination(k1 * (b - d), context), is_combination(k1 * (b + d), context)
(False, True)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from operator import mul
from random import Random

from klsym.engine.regions.root_isolation import find_joint_signs
from klsym.kernel.definitions import LOG, REGION
from klsym.kernel.names import HELD, parse_name
from klsym.kernel.ring import ExpPoly, Monomial
from klsym.kernel.statements import Context

SIZES = (0.1, 0.5, 1.5, 5.0)  # of the log ratios at the samples
SAMPLES, SEED = 12, 20_26  # of each size
TOLERANCE = 1e-7  # of the largest part of c: far above rounding
ROUNDING = 1e-9  # of the size of all terms together
SAMPLES_AT_BOUND = 6  # samples at each place beside a bound
LOG_RATIOS = ("k1", "w", "o")
LARGEST = 300.0  # of an exponent
REWARDS = ((1.0, 1.0, 1.0), (-1.0, -0.5, 1.0), (2.0, 0.75, 0.0))  # R, A and M at all samples of a group
Sample = Mapping[str, float]
Row = list[float]


def is_combination(c: ExpPoly, context: Context) -> bool:
    """Is c a combination at all samples, with one constant where the rewards are the same?"""
    if (parts := _collect_cell_values(c, context)) is not None and len(parts) > 1:
        return False
    rows = [row for number in range(len(REWARDS)) for row in _iterate_rows(c, context, number)]
    scales = [max(map(abs, row)) for row in rows]
    scaled = [[x / scale for x in row] for row, scale in zip(rows, scales, strict=True)]
    return _is_last_in_span(_enlarge_last(scaled))


def _enlarge_last(rows: list[Row]) -> list[Row]:
    """Divide the last column by its largest part, so that a small multiple of c has the answer of c.

    A column that could be rounding is left as it is.
    """
    largest = max((abs(row[-1]) for row in rows), default=0.0)
    return [[*row[:-1], row[-1] / largest] for row in rows] if largest > TOLERANCE else rows


def _is_last_in_span(rows: list[Row]) -> bool:
    """Is the last column a combination of the others?  Two passes of Gram-Schmidt."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    basis: list[Row] = []
    for column in columns:
        residual = column
        for direction in (*basis, *basis):
            share = _multiply_vectors(direction, residual)
            residual = [x - share * d for x, d in zip(residual, direction, strict=True)]
        size = math.sqrt(_multiply_vectors(residual, residual))
        if column is columns[-1]:
            return max(map(abs, residual)) < TOLERANCE
        if size > ROUNDING:
            basis.append([x / size for x in residual])
    raise AssertionError("no column")


def _multiply_vectors(a: Row, b: Row) -> float:
    return sum(map(mul, a, b))


def _collect_cell_values(c: ExpPoly, context: Context) -> set[ExpPoly] | None:
    """Return c in each cell of regions of one log ratio; None for other regions."""
    regions = {name: context.find_definition(name, REGION) for name in sorted(c.names())}
    bounds = {name: e for name, e in regions.items() if e is not None}
    of_log_ratios = all(e.names() <= {*LOG_RATIOS} for e in bounds.values())
    cells = find_joint_signs(tuple(bounds.values())) if bounds and of_log_ratios else None
    if cells is None:
        return None
    cell_values = set()
    for signs in cells:
        indicators = {
            name: ExpPoly.from_number(int(sign > 0)) for name, sign in zip(bounds, signs, strict=True)
        }
        cell_values |= {c.substitute(indicators)} if 0 not in signs else set()
    return cell_values


def is_positive_somewhere(e: ExpPoly, context: Context) -> bool:
    """Is the element positive at one of the samples, by more than rounding?"""
    sizes = ExpPoly({key: max(x, -x) for key, x in e.terms.items()})
    samples = _iterate_samples(context, 0)
    return any(
        compute_value(e, sample, context) > ROUNDING * abs(compute_value(sizes, sample, context))
        for sample in samples
    )


def is_positive_multiple(x: ExpPoly, of: ExpPoly) -> bool:
    """Is x an exponential times a positive number times another element, so that both have the same sign?

    >>> w = ExpPoly.from_variable("w")
    >>> is_positive_multiple(5 - (-w).exp() * 6, w.exp() - Fraction(6, 5))
    True
    >>> is_positive_multiple((-w).exp() * 6 - 5, w.exp() - Fraction(6, 5))
    False
    """
    if len(x.terms) != len(of.terms) or not x:
        return False
    (monomial, exponent), value = next(iter(x.terms.items()))
    for (other_monomial, other_exponent), other_value in of.terms.items():
        if other_monomial == monomial and Fraction(value) / other_value > 0:
            unit = ExpPoly({((), exponent): 1}) * ExpPoly({((), other_exponent): 1}).invert()
            if of * unit * (Fraction(value) / other_value) == x:
                return True
    return False


def _iterate_samples(context: Context, number: int) -> Iterator[Sample]:
    """Yield the values of all names at each sample; `number` selects the rewards."""
    fixed = dict.fromkeys(HELD, 1.0) | dict(zip("RAM", REWARDS[number], strict=True))
    fixed |= {name: 0.2 + 0.37 * i for i, name in enumerate(context.parameters)}
    fixed.setdefault("n", 3.0)
    fixed.setdefault("m", fixed["n"] - 1)
    for index, sample in enumerate(_draw_samples(context)):
        yield {**sample, **fixed, "length": 1.0 + index % 4}


def _iterate_rows(c: ExpPoly, context: Context, number: int) -> Iterator[Row]:
    """Yield k1, r, a constant for each choice of rewards, and c, at samples with the rewards `number`."""
    constants = [float(number == group) for group in range(len(REWARDS))]
    for sample in _iterate_samples(context, number):
        value_of_c = compute_value(c, sample, context)
        if math.isfinite(value_of_c):
            yield [sample["k1"], math.exp(-sample["k1"]), *constants, value_of_c]


@lru_cache(maxsize=64)
def _draw_samples(context: Context) -> tuple[Sample, ...]:
    """Draw log ratios of several sizes, and on both sides of each bound on one of them."""
    stream = Random(SEED)
    samples = [_draw_sample(stream, size) for size in SIZES for _ in range(SAMPLES)]
    for name, point in _iterate_points_near_bounds(context):
        samples += [
            {**_draw_sample(stream, 1.0), parse_name(name).base: point} for _ in range(SAMPLES_AT_BOUND)
        ]
    return tuple(samples)


def _draw_sample(stream: Random, size: float) -> dict[str, float]:
    ratios = {name: size * stream.gauss() for name in LOG_RATIOS}
    return {**ratios, "log_q": -abs(stream.gauss()) - 0.1}


def _iterate_points_near_bounds(context: Context) -> Iterator[tuple[str, float]]:
    """Yield a point in each interval of a log ratio between the bounds on it."""
    bounds_of_name: dict[str, list[ExpPoly]] = {}
    for _, _, e in context.definitions:
        if len(e.names()) == 1 and parse_name(min(e.names())).base in LOG_RATIOS:
            bounds_of_name.setdefault(min(e.names()), []).append(e)
    for name, bounds in bounds_of_name.items():
        for points in (find_joint_signs(tuple(bounds)) or {}).values():
            yield from ((name, float(point)) for point in points)


def compute_value(element: ExpPoly, sample: Sample, context: Context) -> float:
    """Return the value of an element at a sample; nan where a log has none, infinite beyond floats."""
    total = 0.0
    for (monomial, exponent), number in element.terms.items():
        term = float(number) * _compute_monomial(monomial, sample, context)
        power = sum(float(v) * _compute_monomial(m, sample, context) for m, v in exponent)
        if term:
            total += term * math.exp(min(max(power, -LARGEST), LARGEST))
    return total


def _compute_monomial(monomial: Monomial, sample: Sample, context: Context) -> float:
    product = 1.0
    for name, power in monomial:
        base = _compute_name(name, sample, context)
        try:
            product *= base**power if base >= 0 or power == int(power) else math.nan
        except (OverflowError, ZeroDivisionError):
            product = math.nan
    return product


def _compute_name(name: str, sample: Sample, context: Context) -> float:
    """Return the value of a name; a region is 0 or 1."""
    if (e := context.find_definition(name)) is None:
        return sample[parse_name(name).base]
    value_of_e = compute_value(e, sample, context)
    if context.find_definition(name, REGION) is not None:
        return float(value_of_e > 0)
    if context.find_definition(name, LOG) is not None:
        return math.log(value_of_e) if value_of_e > 0 else math.nan
    return value_of_e
