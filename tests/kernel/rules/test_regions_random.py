"""Random uses of the rule `region`: what it takes off is 0 at every point of a grid, on the bounds as well.

The values of elements are computed from their JSON, in exact fractions: exp(w) is a positive number.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest

from klsym.errors import NotInRing, Refused
from klsym.kernel.assumptions import Assumptions
from klsym.kernel.definitions import Definition
from klsym.kernel.regions import apply_definition
from klsym.kernel.regions import apply_region as compare
from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import Context, Mean
from support.certificates.faulty_certificates import *
from support.certificates.region_words import bound, cell, log, region
from support.scale import scaled

M, F = V("M"), Fraction
BASE = (A, R, rho, ONE, M, A * R, rho * A, rho - 1, A - 1, R + 1, 2 - rho, lam)
FACTS = (M, 1 - M, M - M * M, 2 - A)
SQUARES = (ONE, ONE, ONE, A, R, rho - 1)
WEIGHTS = (ONE, ONE, number(2), rho, number(F(1, 2)), lam, rho.invert(), lam**2, lam.invert())
GRID = [
    {"A": F(a), "R": F(b), "M": F(m), "w": x, "lam": weight}
    for a, b, m, x, weight in itertools.product(
        range(-2, 3), range(-1, 3), (0, 1), (F(1, 2), F(1), F(2), F(3)), (F(-1), F(0), F(1, 2), F(2))
    )
]
Point = dict[str, Fraction]


# ---------------------------------------------------------------------------- exact values
def value(element: Any, point: Point, defined: dict[str, Definition]) -> Fraction:
    """An element from its JSON; exp(n w) is the n-th power of the ratio, exp(n l) of e where l = log(e)."""
    total = F(0)
    for scale, powers, *exponent in element:
        term = F(scale)
        for number_of, inside in exponent[0] if exponent else ():
            [(name, one)] = inside.items()
            assert one == 1
            term *= (point["w"] if name == "w" else _named(name, point, defined)) ** int(number_of)
        for name, power in powers.items():
            term *= _named(name, point, defined) ** power
        total += term
    return total


def _named(name: str, point: Point, defined: dict[str, Definition]) -> Fraction:
    if name not in defined:
        return point[name]
    e = value(defined[name].e.to_json(), point, defined)
    if defined[name].kind == "log":
        return e if e > 0 else F(7)  # exp of any number
    return F(e > 0)


def satisfied(h: tuple[Any, ...], point: Point, defined: dict[str, Definition]) -> bool:
    match h:
        case ("positive", name):
            return point[name] > 0
        case ("nonzero", name):
            return point[name] != 0
        case ("above", _, e):
            return value(e.to_json(), point, defined) > 0
        case ("away", _, e):
            return value(e.to_json(), point, defined) != 0
        case ("fact", e):
            return value(e.to_json(), point, defined) >= 0
    return True  # densities are positive at these points


# ---------------------------------------------------------------------------- random uses
def element(rng: random.Random) -> ExpPoly:
    return sum((rng.choice(BASE) * rng.choice((-2, -1, -1, 1, 1, 2)) for _ in range(rng.randint(1, 3))), ZERO)


def proposal(rng: random.Random) -> tuple[Context, dict[str, Any]] | None:
    """Regions and rows such that the last region makes the sum what it has to be, or nearly."""
    facts = tuple(fact for fact in FACTS if rng.random() < 0.5)
    names = [f"b{i}" for i in range(rng.randint(1, 3))]
    bounds, values = [element(rng) for _ in names], {name: rng.randint(0, 1) for name in names}
    if rng.random() < 0.2:  # nested
        bounds[-1] = bounds[-1] + V(names[0]) * rng.choice(BASE) if len(names) > 1 else bounds[-1]
    signs = {n: e if values[n] else -e for n, e in zip(names, bounds, strict=True)}
    rows, total = [], ZERO
    for _ in range(rng.randint(0, 2)):
        weight, square = rng.choice(WEIGHTS), rng.choice(SQUARES)
        factors: list[Any] = [rng.choice(names) for _ in range(rng.choice((0, 1, 1, 2)))]
        factors += [rng.randrange(len(facts))] if facts and rng.random() < 0.4 else []
        row = weight * square * square
        for factor in factors:
            row = row * (signs[factor] if isinstance(factor, str) else facts[factor])
        rows.append(bound(*factors, weight=weight, square=square))
        total = total + row
    x = rng.choice((ONE, A, rho - 1, R, A * R))
    target = -total - (x * x if rng.random() < 0.6 else ZERO)
    target = target + rng.choice((ONE, A, -ONE, rho)) if rng.random() < 0.15 else target
    last = rng.randint(0, 1)
    names, bounds = [*names, "bz"], [*bounds, target if last else -target]
    values["bz"], rows = last, [*rows, bound("bz")]
    if rng.random() < 0.1:
        name = rng.choice(names)
        values[name] = 1 - values[name]
    apart = [name for name in names if not values[name] and rng.random() < 0.2]
    context = Context(("lam",), (), (), tuple(map(region, names, bounds)), facts)
    times = rng.choice((ONE, A, R * rho, lam.invert()))
    return context, cell(values, *rows, of=x, times=times, apart=apart)


def test_what_a_comparison_takes_off_is_0():
    """At points that satisfy what is assumed; at others it is not always 0."""
    rng, counts, rounds = random.Random(1), Counter[str](), scaled(1000, 250)
    for _ in range(rounds):
        context, data = proposal(rng)
        assumed, mean = Assumptions(context), Mean("", "q", A)
        try:
            side = compare(mean, data, assumed)
        except (Refused, NotInRing):
            counts["refused"] += 1
            continue
        counts["accepted"] += 1
        gap = (A - side.terms[0][1][0].coefficient if side.terms else A).to_json()
        defined = {d.name: d for d in context.definitions}
        for point in rng.sample(GRID, 12):
            try:
                taken, fine = (
                    value(gap, point, defined),
                    all(satisfied(h, point, defined) for h in assumed.found),
                )
            except ZeroDivisionError:  # 1/lam at lam = 0
                assert ("nonzero", "lam") in assumed.found
                continue
            assert not taken or not fine, (context, data, point)
            counts["0 where it must be"] += fine and bool(gap)
            counts["on a bound"] += fine and any(
                not value(d.e.to_json(), point, defined) for d in context.definitions
            )
            counts["not 0 elsewhere"] += bool(taken)
    assert counts["accepted"] >= 0.3 * rounds and counts["refused"] >= 0.1 * rounds, counts
    assert counts["0 where it must be"] >= 1.5 * rounds and counts["on a bound"] >= 0.7 * rounds, counts
    assert counts["not 0 elsewhere"] >= 0.01 * rounds, counts


def test_what_a_definition_takes_off_is_0():
    rng, counts, rounds = random.Random(2), Counter[str](), scaled(300, 100)
    for _ in range(rounds):
        b0 = region("b0", element(rng))
        context = Context(("lam",), (), (), (b0, log("inv", element(rng) + V("b0") * rng.randint(0, 2))))
        assumed = Assumptions(context)
        times = rng.choice((ONE, A, R * rho, (-V("inv")).exp(), V("b0")))
        side = apply_definition(Mean("", "q", A), {"name": "inv", "times": times.to_json()}, assumed)
        gap = (A - side.terms[0][1][0].coefficient if side.terms else A).to_json()
        defined = {d.name: d for d in context.definitions}
        for point in rng.sample(GRID, 10):
            taken = value(gap, point, defined)
            fine = all(satisfied(h, point, defined) for h in assumed.found)
            assert not taken or not fine, (context, point)
            counts["fine"] += fine
            counts["not 0 elsewhere"] += bool(taken)
    assert counts["fine"] >= 3.3 * rounds and counts["not 0 elsewhere"] >= 0.16 * rounds, counts


@pytest.mark.parametrize(
    ("e", "point", "expected"),
    [(A - 1, 2, 1), (A - 1, 1, 0), (A * A * -1, 0, 0), (rho - 2, 5, 1), (rho * 2 - 4, 5, 0), (ONE, 0, 1)],
)
def test_values_by_hand(e, point, expected):
    """exp(w) is 3, or 2 where it is compared with 4."""
    at = {"A": F(point), "R": F(0), "M": F(0), "w": F(3 if expected else 2), "lam": F(1)}
    assert value(V("b").to_json(), at, {"b": region("b", e)}) == expected
