"""A piecewise coefficient as cases: conditions, and what it is where they hold.  Untrusted.

Each min, max, clip, abs and step asks for the sign of some x.  The signs are asked for one after the other,
of a product those of its factors, and only where what is known leaves them open; at x = 0 a step has the
value that it is given there (`engine.slopes`).  So the coefficient becomes a tree; equal branches are one.

>>> from klsym.language import k1
>>> for case in cases(k1 * sympy.sign(k1 - 1)): print(case.conditions, case.coefficient)
(Condition(x=k1 - 1, signs=(1,)),) k1
(Condition(x=k1 - 1, signs=(0,)),) 0
(Condition(x=k1 - 1, signs=(-1,)),) -k1
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import sympy
from sympy import Heaviside

from klsym.convert import canonical
from klsym.engine.regions.piecewise import DENSITIES, joint_signs, led_by_one, signs_of
from klsym.language import (
    REWARDS,
    A,
    Estimator,
    M,
    OfRow,
    R,
    clip,
    k1,
    log_mu,
    log_old,
    log_p,
    log_q,
    r,
    rho,
    rho_old,
)

ALL_SIGNS = (1, 0, -1)
MAX_CASES = 12  # that are shown
MAX_NODES = 12  # that ask for signs
MAX_ASKED = 120  # signs that are asked for, in all branches
RING_ATOMS = (A, R, M, k1, rho, rho_old, r, log_q, log_p, log_mu, log_old)
ASKING = (Heaviside, sympy.sign, sympy.Abs, sympy.Min, sympy.Max, clip)


@dataclass(frozen=True)
class Condition:
    """x has one of these signs."""

    x: Any
    signs: tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """What the coefficient is where all conditions hold; without conditions: everywhere else."""

    conditions: tuple[Condition, ...]
    coefficient: Any


@dataclass(frozen=True)
class SplitCases:
    """The coefficient for each sign that x may have there."""

    x: Any
    branches: tuple[tuple[int, Any], ...]


Known = tuple[Condition, ...]


class TooMany(Exception):
    """More signs than can be shown."""


@lru_cache(maxsize=256)
@lru_cache(maxsize=256)
def cases(c: Any, otherwise: Any = None) -> tuple[Case, ...]:
    """The cases of a coefficient; none if it is not piecewise, or if there are too many to be shown.

    otherwise: the value that stands last, without conditions; else the one with the most cases and the most
    in it.
    """
    if not 0 < len(c.atoms(*ASKING)) <= MAX_NODES:
        return ()
    try:
        rows = list(_paths(_Asking().tree(_plain(c), ()), ()))
    except (TooMany, sympy.PolynomialError):
        return ()
    values = [value for _, value in rows]
    most = max(values, key=lambda x: (x == otherwise, values.count(x), x.count_ops()))
    if values.count(most) > 1 or most == otherwise:
        rows = [*(row for row in rows if row[1] != most), ((), most)]
    if len(rows) > MAX_CASES:
        return ()
    return tuple(Case(tuple(replace(x, x=_named(x.x)) for x in where), _named(c)) for where, c in rows)


def _named(e: Any) -> Any:
    """exp of log densities as powers of r, rho and rho_old, where that can be."""
    return canonical(e) if any(x.has(*DENSITIES) for x in e.atoms(sympy.exp)) else e


def _plain(e: Any) -> Any:
    """In k1, r and rho alone."""
    return e.replace(lambda x: isinstance(x, OfRow), lambda x: x.in_k1())


# ---------------------------------------------------------------------------- the tree
class _Asking:
    """The tree, and how often a sign was asked for."""

    def __init__(self) -> None:
        self.asked = 0

    def tree(self, e: Any, known: Known) -> Any:
        """The coefficient where the known signs hold."""
        e, x = _settled(e, known)
        if x is None:
            return _tidy(e, known)
        self.asked += 1
        if self.asked > MAX_ASKED:
            raise TooMany
        found = {}
        for sign in ALL_SIGNS:
            here = Condition(x, (sign,))
            if not any(_excludes(y, here) for y in known):
                found[sign] = self.tree(e, (*known, here))
        return _joined(x, found, known)


def _joined(x: Any, found: dict[int, Any], known: Known) -> Any:
    """One branch if all agree; a tie is counted with a neighbour that has its value there."""
    tie = (*known, Condition(x, (0,)))
    for sign in (1, -1):
        if 0 in found and sign in found and _agrees(found[sign], found[0], tie):
            found[0] = found[sign]
    first, *rest = found.values()
    return first if all(branch == first for branch in rest) else SplitCases(x, tuple(found.items()))


def _agrees(neighbour: Any, at_tie: Any, tie: Known) -> bool:
    if isinstance(neighbour, SplitCases):
        same = isinstance(at_tie, SplitCases) and at_tie.x == neighbour.x
        there = dict(at_tie.branches) if same else {}
        return all(
            _agrees(branch, there.get(s, at_tie), tie)
            for s, branch in neighbour.branches
            if not any(_excludes(y, Condition(neighbour.x, (s,))) for y in tie)
        )
    if isinstance(at_tie, SplitCases):
        return all(_agrees(neighbour, branch, tie) for _, branch in at_tie.branches)
    return bool(_tidy(neighbour, tie) == at_tie)


def _paths(tree: Any, above: Known) -> Iterator[tuple[Known, Any]]:
    """Conditions and value of each leaf, the signs with equal branches together."""
    if not isinstance(tree, SplitCases):
        kept = above
        for condition in above:
            others = tuple(y for y in kept if y != condition)
            if _implied(condition, others):
                kept = others
        yield kept, tree
        return
    branches = list(dict.fromkeys(branch for _, branch in tree.branches))
    for branch in branches:
        signs = tuple(sign for sign, other in tree.branches if other == branch)
        yield from _paths(branch, (*above, Condition(tree.x, signs)))


# ---------------------------------------------------------------------------- one question
def _settled(e: Any, known: Known) -> tuple[Any, Any]:
    """e with every sign that is known put in, and the first x whose sign is open."""
    while True:
        open_ = [x for x in sympy.postorder_traversal(e) if isinstance(x, ASKING)]
        if not open_:
            return e, None
        first = min(open_, key=lambda x: not x.has(*DENSITIES))  # of ratios before those of rewards
        sign, x = _sign(_difference(first), known)
        if sign is None:
            return e, x
        e = e.xreplace({first: _taken(first, sign)})


def _difference(node: Any) -> Any:
    """The x whose sign is asked for; min and max by pairs, clip as min(max(x, lo), hi)."""
    return node.args[0] - node.args[1] if isinstance(node, sympy.Min | sympy.Max | clip) else node.args[0]


def _taken(node: Any, sign: int) -> Any:
    """The node where that sign is known."""
    match node:
        case sympy.Abs():
            return sign * node.args[0]
        case sympy.sign():
            return sympy.Integer(sign)
        case Heaviside():
            return node.args[1] if sign == 0 else sympy.Integer(sign > 0)
        case clip():
            return sympy.Min(node.args[0 if sign >= 0 else 1], node.args[2])
    first, second, *rest = node.args
    kept = first if (sign >= 0) == isinstance(node, sympy.Max) else second
    return node.func(kept, *rest) if rest else kept


def _sign(x: Any, known: Known) -> tuple[int | None, Any]:
    """The sign of x, or the factor of it whose sign is to be asked for."""
    x = _tidy(x, known)
    if x.is_number:
        return int(sympy.sign(x)), None
    opaque = {e: sympy.Dummy(real=True) for e in x.atoms(Estimator, sympy.exp, sympy.log, sympy.Pow)}
    opaque = {e: d for e, d in opaque.items() if not (e.is_Pow and e.exp.is_Integer and e.exp > 0)}
    back = {d: e for e, d in opaque.items()}
    number, factors = sympy.factor_list(x.xreplace(opaque))
    total = int(sympy.sign(number))
    for factor, power in factors:
        scale, y = led_by_one(factor.xreplace(back))
        sign = _known_sign(y, known)
        if sign is None:
            return None, y
        total *= (sign * int(sympy.sign(scale))) ** power
    return int(total), None


def _known_sign(x: Any, known: Known) -> int | None:
    for sign, holds in ((1, x.is_positive), (-1, x.is_negative), (0, x.is_zero)):
        if holds:
            return sign
    taken = signs_of(x) if x.has(Estimator, *DENSITIES) else None
    if taken and len(taken) == 1:
        return taken[0]
    left = [s for s in ALL_SIGNS if not any(_excludes(y, Condition(x, (s,))) for y in known)]
    return left[0] if len(left) == 1 else None


def _implied(condition: Condition, known: Known) -> bool:
    others = (Condition(condition.x, (sign,)) for sign in ALL_SIGNS if sign not in condition.signs)
    return all(any(_excludes(y, other) for y in known) for other in others)


def _excludes(known: Condition, asked: Condition) -> bool:
    """Can x not have that sign where y has one of its signs?"""
    [sign] = asked.signs
    return all(not _together(asked.x, sign, known.x, other) for other in known.signs)


def _together(x: Any, a: int, y: Any, b: int) -> bool:
    """May x have the sign a where y has the sign b?"""
    if x == y:
        return a == b
    pairs = set(joint_signs(x, y) or ())
    if pairs:
        if a and b:
            return (a, b) in pairs
        if a or b:  # beside a zero of one of them the other one keeps its sign
            return {(a, 1), (a, -1)} <= pairs if a else {(1, b), (-1, b)} <= pairs
        return len(pairs) == 2
    gap, total = sympy.expand(x - y), sympy.expand(x + y)
    if (gap.is_positive and a <= 0 <= b) or (gap.is_negative and b <= 0 <= a):
        return False
    return not ((total.is_positive and a <= 0 and b <= 0) or (total.is_negative and a >= 0 and b >= 0))


def _tidy(e: Any, known: Known) -> Any:
    """e where it is known what vanishes: A = 0, rho = 6/5, k1 = -1."""
    for y in (condition.x for condition in known if condition.signs == (0,)):
        for g in (*RING_ATOMS, *sorted((x for x in y.free_symbols if "[" in x.name), key=str)):  # sums
            value = sympy.expand(g - y)
            if not value.has(g, *(x for x in RING_ATOMS if x not in REWARDS)) and y.has(g):
                more = {r: sympy.exp(-value)} if g == k1 else {k1: -sympy.log(value)} if g == r else {}
                e = e.xreplace({g: value, **more})
                break
    return sympy.expand(e)
