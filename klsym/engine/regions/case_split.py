"""Coefficients that hold regions as cases: conditions, and what they are where those hold.  Untrusted.

Each region asks for the sign of an element.  The signs are asked for one after the other, and only where
what is known leaves them open, so that the coefficients become a tree; equal branches are one.

>>> from klsym.kernel.ring import ExpPoly as E
>>> from klsym.kernel.statements import Definition
>>> k1, up, down = map(E.variable, ("k1", "is_up", "is_down"))
>>> context = Context(definitions=(Definition("is_up", REGION, k1), Definition("is_down", REGION, -k1)))
>>> show = lambda slots, context: in_steps(slots["x"], context)
>>> for row in cases({"x": (up - down) * k1}, context, show): print(row)
((Condition(x=k1, signs=(1, 0)),), k1)
((Condition(x=k1, signs=(-1,)),), -k1)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from klsym.engine.regions.in_steps import in_steps, led_by_one
from klsym.engine.regions.relations import contradiction
from klsym.engine.regions.root_isolation import LOG_RATIOS, joint, signs
from klsym.errors import NotInRing
from klsym.kernel.names import parse_name
from klsym.kernel.ring import ONE, ZERO, ExpPoly, Number
from klsym.kernel.slots import LENGTHS, at_slot
from klsym.kernel.statements import REGION, Context, Definition
from klsym.language.expressions import DENSITIES, REWARDS

ALL_SIGNS = (1, 0, -1)
FEW_CASES, MAX_CASES = 4, 12  # beyond the first another order may say it in fewer; at most as many are shown
MAX_REGIONS = 16  # that ask for signs
MAX_ASKED = 240  # signs that are asked for, in all branches and orders
RANDOM = {x.name for x in (*DENSITIES, *REWARDS)}
Slots = Mapping[str, ExpPoly]
Leaf = tuple[tuple[str, ExpPoly], ...]
Known = tuple[tuple[ExpPoly, tuple[int, ...]], ...]  # elements, and the signs that they may have
Rows = list[tuple[Known, Leaf]]


@dataclass(frozen=True)
class Condition:
    """x has one of these signs."""

    x: Any
    signs: tuple[int, ...]


@dataclass(frozen=True)
class Split:
    """The coefficients for each sign that x may have."""

    x: ExpPoly
    branches: tuple[tuple[int, Any], ...]


class TooMany(Exception):
    """More signs than can be shown."""


def cases(
    slots: Slots,
    context: Context,
    show: Callable[[Slots, Context], Any],
    otherwise: Any = None,
    tokens: bool = False,
) -> tuple[tuple[tuple[Condition, ...], Any], ...]:
    """Conditions and values; none if no region stands in them, or if there are too many to be shown.

    show: the value of coefficients without regions.  otherwise: the value that stands last, without
    conditions; else the one with the most cases and the most in it.
    """
    slots, context = opened(slots, context)
    leaf = tuple(sorted(slots.items()))
    rows = [(where, show(dict(c), context)) for where, c in _fewest(leaf, _Asking(context))]
    if not rows:
        return ()
    values = [value for _, value in rows]
    most = max(values, key=lambda x: (x == otherwise, values.count(x), x.count_ops()))
    if values.count(most) > 1 or most == otherwise:
        rows = [*(row for row in rows if row[1] != most), ((), most)]
    if len(rows) > MAX_CASES:
        return ()
    return tuple((in_order([_shown(x, on, context, tokens) for x, on in where]), c) for where, c in rows)


def opened(slots: Slots, context: Context) -> tuple[Slots, Context]:
    """Logs of what holds regions, by cases: f(l) = B f(l of B = 1) + (1 - B) f(l of B = 0)."""
    used = {name for c in slots.values() for name in c.names()}
    for log in (definition for definition in context.definitions if definition.kind != REGION):
        inside = sorted(name for name in log.e.names() if context.defined(name, REGION) is not None)
        places = {parse_name(name).slot for name in used if parse_name(name).base == log.name}
        if not inside or not places:
            continue
        ends = [
            Definition(f"{log.name}{n}", log.kind, log.e.substitute({inside[0]: ONE * n})) for n in (1, 0)
        ]
        context = replace(context, definitions=(*context.definitions, *ends))
        for z in places:
            held = ExpPoly.variable(at_slot(inside[0], z))
            slots = {slot: _by_region(c, held, at_slot(log.name, z), ends, z) for slot, c in slots.items()}
        return opened(slots, context)
    return slots, context


def _by_region(c: ExpPoly, held: ExpPoly, log: str, ends: list[Definition], z: str) -> ExpPoly:
    there, elsewhere = (c.substitute({log: ExpPoly.variable(at_slot(end.name, z))}) for end in ends)
    return held * there + (1 - held) * elsewhere


def in_order(conditions: list[Condition]) -> tuple[Condition, ...]:
    """A lower bound of something stands before an upper bound of it."""
    for i in range(len(conditions) - 1):
        one, other = conditions[i : i + 2]
        same = not {parse_name(x.name).base for x in (one.x - other.x).free_symbols} & RANDOM
        if same and 1 not in one.signs and -1 not in other.signs:
            conditions[i : i + 2] = other, one
    return tuple(conditions)


def _fewest(leaf: Leaf, asking: _Asking) -> Rows:
    """Conditions and coefficients; of many, those of the order of questions that says it in the fewest."""
    regions, found = asking.regions_in(leaf), Rows()
    if not 0 < len(regions) <= MAX_REGIONS:
        return found
    with suppress(TooMany):
        for first in (None, *dict.fromkeys(regions.values())):
            rows = list(asking.paths(asking.tree(leaf, (), first), ()))
            found = min((found or rows, rows), key=_said)
            if _said(found) <= FEW_CASES:
                break
    return found


def _said(rows: Rows) -> int:
    """How many of them are said: those of the most frequent value are the others."""
    values = [value for _, value in rows]
    return len(rows) - max(map(values.count, values)) + 1


def _shown(x: ExpPoly, on: tuple[int, ...], context: Context, tokens: bool) -> Condition:
    scale, led = led_by_one(in_steps(x, context, tokens))
    return Condition(led, on if scale > 0 else tuple(-sign for sign in on))


class _Asking:
    """The tree, and how often a sign was asked for."""

    def __init__(self, context: Context) -> None:
        self.context, self.asked = context, 0

    def regions_in(self, leaf: Leaf) -> dict[str, ExpPoly]:
        """The regions in coefficients and what defines them, those of policies first."""
        names = {name for _, c in leaf for name in c.names()}
        found = {name: e for name in names if (e := self.context.defined(name, REGION)) is not None}
        order = [definition.name for definition in self.context.definitions]
        rank = {name: (not _of_policies(e), order.index(parse_name(name).base)) for name, e in found.items()}
        return {name: found[name] for name in sorted(found, key=lambda name: (rank[name], name))}

    def tree(self, leaf: Leaf, known: Known, first: ExpPoly | None = None) -> Any:
        """The coefficients where the known signs hold; first: what is asked for before all else."""
        leaf, asked = self._settled(leaf, known)
        if not asked:
            return leaf
        self.asked += 1
        if self.asked > MAX_ASKED:
            raise TooMany
        x = first or next(iter(asked.values()))
        found = {s: self.tree(leaf, (*known, (x, (s,)))) for s in ALL_SIGNS if self._may_be(x, s, known)}
        return self._joined(x, found, known)

    def _settled(self, leaf: Leaf, known: Known) -> tuple[Leaf, dict[str, ExpPoly]]:
        """The coefficients with every region that is known put in, and those that are open."""
        open_, put = {}, {}
        for name, e in self.regions_in(leaf).items():
            possible = [s for s in ALL_SIGNS if self._may_be(e, s, known)]
            if 1 in possible and len(possible) > 1:
                open_[name] = e
            else:
                put[name] = ONE if possible == [1] else ZERO
        return (tuple((slot, c.substitute(put)) for slot, c in leaf) if put else leaf), open_

    # -- ties --------------------------------------------------------------------------
    def _joined(self, x: ExpPoly, found: dict[int, Any], known: Known) -> Any:
        """One branch if all agree; a tie is counted with a neighbour of its value, the one that says more."""
        if 0 in found:
            tie, at_tie = (*known, (x, (0,))), found[0]
            beside = [found[s] for s in (1, -1) if s in found and self._agrees(found[s], at_tie, tie)]
            alone = at_zero(at_tie, x) if isinstance(at_tie, tuple) else at_tie
            found[0] = max(beside, key=_size, default=alone)
        first, *rest = found.values()
        return first if all(branch == first for branch in rest) else Split(x, tuple(found.items()))

    def _agrees(self, neighbour: Any, at_tie: Any, tie: Known) -> bool:
        if isinstance(neighbour, Split):
            same = isinstance(at_tie, Split) and at_tie.x == neighbour.x
            there = dict(at_tie.branches) if same else {}
            return all(
                self._agrees(branch, there.get(s, at_tie), (*tie, (neighbour.x, (s,))))
                for s, branch in neighbour.branches
                if self._may_be(neighbour.x, s, tie)
            )
        if isinstance(at_tie, Split):
            return all(self._agrees(neighbour, branch, tie) for _, branch in at_tie.branches)
        zeros = [x for x, on in tie if on == (0,)]
        for x in zeros:
            neighbour, at_tie = at_zero(neighbour, x), at_zero(at_tie, x)
        return bool(neighbour == at_tie)

    def paths(self, tree: Any, above: Known) -> Iterator[tuple[Known, Leaf]]:
        """Conditions and coefficients of each leaf, the signs with equal branches together."""
        if not isinstance(tree, Split):
            kept = above
            for condition in above:
                others = tuple(y for y in kept if y != condition)
                x, on = condition
                if not any(self._may_be(x, s, others) for s in ALL_SIGNS if s not in on):
                    kept = others
            yield kept, tree
            return
        for branch in dict.fromkeys(branch for _, branch in tree.branches):
            on = tuple(sign for sign, other in tree.branches if other == branch)
            yield from self.paths(branch, (*above, (tree.x, on)))

    # -- one question ------------------------------------------------------------------
    def _may_be(self, x: ExpPoly, sign: int, known: Known) -> bool:
        """May x have that sign, where each of these elements has one of its signs?"""
        if contradiction(_literals(x, sign)[:1], self.context) is not None or sign not in _taken(x):
            return False
        return all(any(self._together(x, sign, y, other) for other in on) for y, on in known)

    def _together(self, x: ExpPoly, a: int, y: ExpPoly, b: int) -> bool:
        """May x have the sign a where y has the sign b?"""
        if x in (y, -y):
            return a == (b if x == y else -b)
        pairs = set(joint((x, y)) or ()) if x.names() | y.names() <= {*LOG_RATIOS} else set()
        if pairs:
            if a and b:
                return (a, b) in pairs
            if a or b:  # beside a zero of one of them the other one keeps its sign
                return {(a, 1), (a, -1)} <= pairs if a else {(1, b), (-1, b)} <= pairs
            return len(pairs) == 2
        both = ((one, other) for one in _literals(x, a) for other in _literals(y, b))
        return all(contradiction(pair, self.context) is None for pair in both)


def _size(tree: Any) -> int:
    """How many terms it says."""
    if isinstance(tree, Split):
        return sum(_size(branch) for _, branch in tree.branches)
    return sum(len(c.terms) for _, c in tree)


def _literals(x: ExpPoly, sign: int) -> tuple[tuple[ExpPoly, bool], ...]:
    """What is above 0 (or at least 0) where x has that sign."""
    return ((x * sign, True),) if sign else ((x, False), (-x, False))


def _taken(x: ExpPoly) -> tuple[int, ...]:
    """The signs that x may take: T has one; a function of one log ratio that takes one alone is 0 nowhere."""
    if x.names() <= LENGTHS and len(x.terms) == 1:
        return (1,) if min(x.terms.values()) > 0 else (-1,)
    taken = signs(x)
    return taken if taken is not None and len(taken) == 1 else ALL_SIGNS


def _of_policies(e: ExpPoly) -> bool:
    return any(parse_name(name).base in (*LOG_RATIOS, "log_q") for name in e.names())


def at_zero(leaf: Leaf, x: ExpPoly) -> Leaf:
    """The coefficients where x = 0: A = 0, rho = 6/5, k1 = -1; as they are, where the ring cannot say it."""
    with suppress(NotInRing):
        return tuple((slot, _at_zero(c, x)) for slot, c in leaf)
    return leaf


def _at_zero(c: ExpPoly, x: ExpPoly) -> ExpPoly:
    for key, value in sorted(x.terms.items()):
        term = ExpPoly({key: value})
        rest, names = (term - x) * (Fraction(1) / value), term.names()
        if len(names) != 1 or names & (rest.names() | c.inverted()):
            continue
        [name] = names
        if key == (((name, 1),), ()):
            return c.substitute({name: rest})
        if not key[0] and len(key[1]) == 1 and key[1][0][0] == ((name, 1),):
            return _at_ratio(c, key[1][0], rest)
    return c


def _at_ratio(c: ExpPoly, power: tuple[Any, Number], value: ExpPoly) -> ExpPoly:
    """c where exp(power) has this value: its whole powers are known, too."""
    of, rate = power
    total = ZERO
    for (monomial, exponent), number in c.terms.items():
        times = Fraction(dict(exponent).get(of, 0)) / rate
        whole = times.denominator == 1 and (times >= 0 or len(value.terms) == 1)
        left = tuple(row for row in exponent if row[0] != of) if whole else exponent
        term = ExpPoly({(monomial, left): number})
        size = abs(int(times)) if whole else 0
        total = total + term * (value if times >= 0 else value.inverse()) ** size if size else total + term
    return total
