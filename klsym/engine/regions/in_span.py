"""Is a coefficient with regions a combination of k1, r and rewards after all?  Floats answer.  Untrusted.

Where regions stand in c = a k1 + b r + h(R, A), and no relation takes them out, c may still be such a
combination.  At samples with the same rewards it is one of k1, r and 1; if none fits, c has no name.

>>> from klsym.statements import REGION, Definition
>>> k1 = ExpPoly.variable("k1")
>>> context = Context(definitions=(Definition("b", REGION, k1), Definition("d", REGION, -k1)))
>>> b, d = ExpPoly.variable("b"), ExpPoly.variable("d")
>>> fits(k1 * (b - d), context), fits(k1 * (b + d), context)
(False, True)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from klsym.engine.regions.root_isolation import joint
from klsym.names import parse_name
from klsym.ring import ExpPoly, Monomial
from klsym.statements import LOG, REGION, Context

SAMPLES, SEED = 240, 20_26
TOLERANCE = 1e-7  # of the largest part: far above rounding
ROUNDING = 1e-9  # of the size of all terms together
BESIDE = range(6)  # samples at each place beside a bound
LOG_RATIOS = ("k1", "w", "o")
LARGEST = 300.0  # of an exponent
REWARDS = ((1.0, 1.0, 1.0), (-1.0, -0.5, 1.0), (2.0, 0.75, 0.0))  # R, A and M at all samples of a group
Values = dict[str, NDArray[Any]]


def fits(c: ExpPoly, context: Context) -> bool:
    """Is it a combination at all samples that are tried, with one constant where the rewards are the same?"""
    if (parts := _in_cells(c, context)) is not None and len(parts) > 1:
        return False
    rows = [_rows(c, context, number) for number in range(len(REWARDS))]
    table = np.concatenate(rows, axis=1)
    table = table[:, np.isfinite(table).all(axis=0)]
    table = table / np.abs(table).max(axis=0)
    basis, values = table[:-1].T, table[-1]
    found, *_ = np.linalg.lstsq(basis, values, rcond=None)
    return bool(np.abs(basis @ found - values).max() < TOLERANCE)


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
    known = _known(context, 0)
    with np.errstate(over="ignore", invalid="ignore"):
        values = value(e, known, context)
        sizes = value(ExpPoly({k: -x if x < 0 else x for k, x in e.terms.items()}), known, context)
    return bool(np.any(values > ROUNDING * np.abs(sizes)))


def _known(context: Context, number: int) -> Values:
    """What names are worth, rewards being the choice of this number."""
    known: Values = dict(_samples(context))
    size = len(known["k1"])
    known |= {name: np.full(size, x) for name, x in zip("RAMH", (*REWARDS[number], 1.0), strict=True)}
    known |= {name: np.full(size, 0.2 + 0.37 * i) for i, name in enumerate(context.parameters)}
    known["length"] = 1.0 + np.arange(size) % 4
    return known


def _rows(c: ExpPoly, context: Context, number: int) -> NDArray[Any]:
    """k1, r, a constant for each choice of rewards, and c, where they are the choice of this number."""
    known = _known(context, number)
    size = len(known["k1"])
    with np.errstate(over="ignore", invalid="ignore"):
        values, r = value(c, known, context), np.exp(-known["k1"])
    constants = [np.full(size, float(number == other)) for other in range(len(REWARDS))]
    return np.stack([known["k1"], r, *constants, values])


@lru_cache(maxsize=64)
def _samples(context: Context) -> tuple[tuple[str, NDArray[Any]], ...]:
    """Log ratios of several sizes, and on both sides of each bound on one of them."""
    stream = np.random.default_rng(SEED)
    scale = np.repeat([0.1, 0.5, 1.5, 5.0], SAMPLES // 4)
    found = {name: stream.normal(size=SAMPLES) * scale for name in LOG_RATIOS}
    for name_at, place in _beside_bounds(context):
        more = {name: stream.normal(size=len(BESIDE)) for name in LOG_RATIOS}
        more[parse_name(name_at).base] = np.full(len(BESIDE), place)
        found = {name: np.concatenate([found[name], more[name]]) for name in LOG_RATIOS}
    found["log_q"] = -np.abs(stream.normal(size=len(found["k1"]))) - 0.1
    return tuple(found.items())


def _beside_bounds(context: Context) -> Iterator[tuple[str, float]]:
    """A place on each stretch of a log ratio between the bounds on it."""
    on: dict[str, list[ExpPoly]] = {}
    for _, _, e in context.definitions:
        if len(e.names()) == 1 and parse_name(min(e.names())).base in LOG_RATIOS:
            on.setdefault(min(e.names()), []).append(e)
    for name, bounds in on.items():
        for places in (joint(tuple(bounds)) or {}).values():
            yield from ((name, float(place)) for place in places)


def value(element: ExpPoly, known: Values, context: Context) -> NDArray[Any]:
    """The value of an element where names have these values."""
    size = len(known["k1"])
    total = np.zeros(size)
    for (monomial, exponent), number in element.terms.items():
        power = sum((float(v) * _product(m, known, context) for m, v in exponent), np.zeros(size))
        term = float(number) * _product(monomial, known, context)
        total = total + np.where(term == 0, 0.0, term * np.exp(np.clip(power, -LARGEST, LARGEST)))
    return total


def _product(monomial: Monomial, known: Values, context: Context) -> NDArray[Any]:
    product = np.ones(len(known["k1"]))
    for name, power in monomial:
        e = context.defined(name)
        if e is None:
            at = known[parse_name(name).base]
        else:
            at = value(e, known, context)
            if context.defined(name, REGION) is not None:
                at = (at > 0) * 1.0
            elif context.defined(name, LOG) is not None:
                at = np.log(np.where(at > 0, at, np.nan))
        product = product * at ** float(power)
    return product
