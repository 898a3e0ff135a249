"""How many losses there are, counted one by one: every expression, at random points modulo a prime.

k1, r, rho and log_q are algebraically independent, so that two different losses have the same numbers at
random points with a chance of about their degree over the prime.  Values come with their derivative along
log q, as dual numbers; nothing is merged on the way.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

PRIME = 2**61 - 1
POINTS = 5
HALF = pow(2, -1, PRIME)
Dual = tuple[int, int]
Expression = tuple[Dual, ...]  # one dual number a point


def counts_by_hand(size: int, on_policy: bool, detached: bool) -> tuple[int, ...]:
    """Expressions up to a size, and how many losses, values, mean values, gradients, expected ones they are.

    >>> counts_by_hand(3, on_policy=False, detached=False)
    (270, 150, 144, 115, 65, 48)

    size: leaves and operations.  detached: the loss multiplies the score function.
    """
    points = _points(on_policy)
    every = [x for level in _levels(size, points) for x in level]
    pairs = [_at_a_sample(x, detached) for x in every]
    weights = [pow(rho, -1, PRIME) for _, _, rho, _ in points]
    ones = [[(r - 1) % PRIME for _, r, _, _ in points]]
    ones += [] if on_policy else [[(w - 1) % PRIME for w in weights]]
    kinds = (
        pairs,
        [v for v, _ in pairs],
        [_modulo(_times(v, weights), ones) for v, _ in pairs],
        [a for _, a in pairs],
        [_modulo(_times(a, weights), [[1] * POINTS]) for _, a in pairs],
    )
    return (len(every), *(len(set(kind)) for kind in kinds))


def _points(on_policy: bool) -> list[tuple[int, int, int, int]]:
    """k1, r, rho and log_q at each point; on-policy rho is 1, though it has a derivative."""
    draw = random.Random(20).randrange
    rows = [[draw(2, PRIME) for _ in range(4)] for _ in range(POINTS)]
    return [(k1, r, 1 if on_policy else rho, log_q) for k1, r, rho, log_q in rows]


def _leaves(points: Sequence[tuple[int, int, int, int]]) -> list[Expression]:
    rows: list[list[Dual]] = [
        [(k1, 1), (k1 * k1 * HALF, k1), (r - 1 + k1, 1 - r), (r, -r), (rho, rho), (log_q, 1),
         (HALF, 0), (1, 0), (2, 0)]
        for k1, r, rho, log_q in points
    ]  # fmt: skip
    return [tuple((v % PRIME, a % PRIME) for v, a in column) for column in zip(*rows, strict=True)]


def _levels(size: int, points: Sequence[tuple[int, int, int, int]]) -> list[list[Expression]]:
    levels = [_leaves(points)]
    for n in range(2, size + 1):
        level = [tuple((v, 0) for v, _ in x) for x in levels[-1]]
        for i in range(1, n - 1):
            for x in levels[i - 1]:
                for y in levels[n - 2 - i]:
                    level += _joined(x, y)
        levels.append(level)
    return levels


def _joined(x: Expression, y: Expression) -> list[Expression]:
    both = list(zip(x, y, strict=True))
    return [
        tuple(((v + z) % PRIME, (a + b) % PRIME) for (v, a), (z, b) in both),
        tuple(((v - z) % PRIME, (a - b) % PRIME) for (v, a), (z, b) in both),
        tuple((v * z % PRIME, (v * b + a * z) % PRIME) for (v, a), (z, b) in both),
    ]


def _at_a_sample(x: Expression, detached: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    values = tuple(v for v, _ in x)
    return values, values if detached else tuple(a for _, a in x)


def _times(values: Sequence[int], weights: Sequence[int]) -> list[int]:
    return [v * w % PRIME for v, w in zip(values, weights, strict=True)]


def _modulo(values: Sequence[int], rows: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The values less the combination of the rows that makes them 0 at the first points."""
    left: list[Any] = [list(row) for row in rows]
    found = list(values)
    for i, row in enumerate(left):
        scale = pow(row[i], -1, PRIME)
        for other in (*left[i + 1 :], found):
            factor = other[i] * scale
            other[:] = [(x - factor * y) % PRIME for x, y in zip(other, row, strict=True)]
    return tuple(found)
