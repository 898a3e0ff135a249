"""Random worlds: trees with zeros of q, p and mu in all combinations, batches, rewards, functions."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from klsym.kernel.statements import Context
from support.oracle.worlds import MEASURES, Function, Node, Path, Step, World, paths_of, square_family

VALUES = [Fraction(x) for x in ("0", "1", "-1", "2", "-2", "1/2", "-1/2", "3/2", "3", "1/3")]
ODD = [Fraction(x) for x in ("7/5", "13/11", "-9/7", "17/10", "-5/13")]
KINDS = [("q",), ("p",), ("mu",), ("q", "p"), ("q", "mu"), ("p", "mu"), ("q", "p", "mu")]


@dataclass(frozen=True)
class Wanted:
    """What a world is to have: zeros of densities or none, supports a << b, and what is special about it."""

    boundary: bool
    supports: tuple[tuple[str, str], ...]
    sequences: bool
    batch: bool
    whole_n: bool  # n is the size of a batch, at least 2
    sample: bool
    nonzero: frozenset[str] = frozenset()
    positive: frozenset[str] = frozenset()
    generic: frozenset[str] = frozenset()
    equal: bool = False  # p, mu or rewards that make rows vanish


def random_world(wanted: Wanted, context: Context, solved: Iterable[Any], rng: random.Random) -> World:
    """A world; its supports hold at every node."""
    depth = rng.choice((1, 2, 2, 3)) if wanted.sequences else rng.choice((1, 1, 1, 2))
    most = 4 if wanted.batch else 7
    while True:
        tree = _node(wanted, depth, rng)
        paths = tuple(paths_of(tree)) if not (wanted.sequences and rng.random() < 0.02) else ((),)
        if len(paths) <= most:
            break
    full = [path for path in paths if not any(step.zeros for step in path)]
    n = rng.choice((2, 2, 3) if len(paths) <= 3 else (2,))
    if wanted.batch and not wanted.whole_n and rng.random() < 0.3:
        n = 1
    sample = tuple(rng.choice(full) for _ in range(max(n, 2))) if full else ()
    parameters = {name: _parameter(name, wanted, rng) for name in context.parameters}
    if "n" in parameters and (wanted.batch or wanted.whole_n):
        parameters["n"] = Fraction(n)
    functions = {name: random_function(arguments, rng) for name, arguments in context.functions}
    pairs = tuple(solved)
    for name, _ in pairs:
        parameters.pop(name, None)
    world = World(paths, sample, n, parameters, functions, pairs, rng=random.Random(rng.random()))
    world.definitions = definitions_of(context)
    return world


def definitions_of(context: Context) -> dict[str, tuple[str, Any]]:
    """What a world must give a value to."""
    return {name: (kind, e) for name, kind, e in context.definitions}


def _parameter(name: str, wanted: Wanted, rng: random.Random) -> Fraction:
    if name in wanted.generic:
        return rng.choice(ODD)
    found = rng.choice(VALUES)
    if name in wanted.positive:
        found = abs(found)
    return found or Fraction(1, 2) if name in wanted.nonzero | wanted.positive else found


def _node(wanted: Wanted, depth: int, rng: random.Random) -> Node:
    size = rng.choice((1, 2, 2, 3, 3, 4)) if depth == 1 else rng.choice((1, 2, 2, 3))
    rows = densities(wanted, size, rng)
    reward = {name: rng.choice(VALUES) for name in ("R", "H")}
    node: Node = []
    more = random.Random(str(rows))  # a stream of its own
    gaps = [wanted.boundary and not (wanted.sample and i == 0) and more.random() < 0.2 for i in range(size)]
    olds = _weights([gap and not all(gaps) for gap in gaps], more)
    for (q, p, mu, moving), old in zip(rows, olds, strict=True):
        own = {k: rng.choice(VALUES) for k in reward} if not wanted.equal or rng.random() < 0.5 else reward
        own = {**own, "M": Fraction(more.random() < 0.6)}
        after = _node(wanted, depth - 1, rng) if depth > 1 and rng.random() < 0.6 else None
        node.append((Step(q, p, mu, moving, own, old), after))
    return node


def densities(wanted: Wanted, size: int, rng: random.Random) -> list[tuple[Any, Fraction, Fraction, bool]]:
    """q with derivatives, p, mu on the branches of a node, with zeros where they are wanted."""
    while True:
        apart = (
            rng.sample(MEASURES, 2) if wanted.boundary and rng.random() < 0.2 else []
        )  # no outcome has both
        zeros = [_zeros(wanted, i, apart, rng) for i in range(size)]
        if all(any(name not in z for z in zeros) for name in MEASURES):
            break
    rows = []
    for z in zeros:
        a = Fraction(0) if "q" in z else Fraction(rng.choice((1, 1, 2, 3)) * rng.choice((1, -1)))
        still = rng.random() < (0.35 if "q" in z else 0.1)
        u, v = (Fraction(0) if still else Fraction(rng.choice((-2, -1, 1, 2, 3)), 2) for _ in range(2))
        rows.append((a, u, v))
    if wanted.equal and rng.random() < 0.2:
        rows = [(a, Fraction(0), Fraction(0)) for a, _, _ in rows]
    q = square_family(rows)
    p, mu = (_weights([name in z for z in zeros], rng) for name in ("p", "mu"))
    if wanted.equal and all(("q" in z) == ("p" in z) for z in zeros) and rng.random() < 0.6:
        p = [x[0] for x in q]
    if wanted.equal and all(("q" in z) == ("mu" in z) for z in zeros) and rng.random() < 0.6:
        mu = [x[0] for x in q]
    moving = [not a and bool(u or v) for a, u, v in rows]
    return list(zip(q, p, mu, moving, strict=True))


def _zeros(wanted: Wanted, i: int, apart: list[str], rng: random.Random) -> set[str]:
    """Which densities vanish at a branch, closed under the supports: a << b and b = 0 give a = 0."""
    if not wanted.boundary or (wanted.sample and i == 0) or (not apart and rng.random() < 0.4):
        return set()
    found = {rng.choice(apart)} if apart else set(rng.choice(KINDS))
    for _ in MEASURES:
        for a, b in wanted.supports:
            if b in found:
                found = found - {b} if a == "count" else found | {a}
    return found


def _weights(zero: list[bool], rng: random.Random) -> list[Fraction]:
    weights = [0 if z else rng.choice((1, 1, 2, 3, 4)) for z in zero]
    return [Fraction(w, sum(weights)) for w in weights]


def random_function(arguments: tuple[str, ...], rng: random.Random) -> Function:
    """A polynomial, exponentials that grow up to exp(3 k1), or a sine."""
    kind, size = rng.choice(("polynomial", "exp", "exp", "sin")), len(arguments)
    number = lambda: rng.choice(VALUES[1:])  # noqa: E731
    rows: dict[tuple[int, ...], Fraction] = {}
    for _ in range(1 if kind == "exp" else rng.choice((1, 2))):
        powers = range(4) if kind == "polynomial" else (-2, -1, 0, 1, 2, 3)
        rows[tuple(rng.choice(powers) for _ in range(size))] = number()
    return Function(kind, arguments, tuple((c, powers) for powers, c in rows.items()))


def all_full(path: Path) -> bool:
    return not any(step.zeros for step in path)
