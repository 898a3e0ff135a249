"""Write coefficients that hold regions as cases: conditions, and the value where they hold.  Untrusted.

Each region depends on the sign of an element.  The signs are determined one after the other, and only where
the signs before leave them open, so that the coefficients become a tree; equal branches are merged.

>>> from klsym.kernel.ring import ExpPoly as E
>>> from klsym.kernel.definitions import Definition
>>> k1, up, down = map(E.from_variable, ("k1", "is_up", "is_down"))
>>> context = Context(definitions=(Definition("is_up", REGION, k1), Definition("is_down", REGION, -k1)))
>>> show = lambda slots, context: to_steps(slots["x"], context)
>>> for row in split_into_cases({"x": (up - down) * k1}, context, show): print(row)
((Condition(x=k1, signs=(1, 0)),), k1)
((Condition(x=k1, signs=(-1,)),), -k1)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any

from klsym.engine.regions.in_steps import split_leading_coefficient, to_steps
from klsym.engine.regions.relations import find_contradiction
from klsym.engine.regions.root_isolation import LOG_RATIOS, find_joint_signs, find_signs
from klsym.errors import NotInRing
from klsym.kernel.definitions import REGION, Definition
from klsym.kernel.names import parse_name
from klsym.kernel.ring import ONE, ZERO, ExpPoly, Number
from klsym.kernel.slots import LENGTHS, name_in_slot
from klsym.kernel.statements import Context
from klsym.language.expressions import DENSITIES, REWARDS
from klsym.records import record

ALL_SIGNS = (1, 0, -1)
FEW_CASES, MAX_CASES = 4, 12  # beyond the first another order may say it in fewer; at most as many are shown
MAX_REGIONS = 16  # that ask for signs
MAX_QUESTIONS = 240  # signs that are asked for, in all branches and orders
RANDOM = {x.name for x in (*DENSITIES, *REWARDS)}
Slots = Mapping[str, ExpPoly]
Leaf = tuple[tuple[str, ExpPoly], ...]
KnownSigns = tuple[tuple[ExpPoly, tuple[int, ...]], ...]  # elements, and the signs that they may have
Rows = list[tuple[KnownSigns, Leaf]]


@record
class Condition:
    """x has one of these signs."""

    x: Any
    signs: tuple[int, ...]


@record
class Split:
    """The coefficients for each sign that x may have."""

    x: ExpPoly
    branches: tuple[tuple[int, Any], ...]


class TooManySigns(Exception):
    """Raised where more signs have to be distinguished than can be shown."""


def split_into_cases(
    slots: Slots,
    context: Context,
    show: Callable[[Slots, Context], Any],
    otherwise: Any = None,
    tokens: bool = False,
) -> tuple[tuple[tuple[Condition, ...], Any], ...]:
    """Return conditions and values; none without regions, or if there are too many to be shown.

    show: the value of coefficients without regions.  otherwise: the value that comes last, without
    conditions; else the one that has most cases and most operations.
    """
    slots, context = split_logs_by_region(slots, context)
    leaf = tuple(sorted(slots.items()))
    rows = [
        (conditions, show(dict(c), context))
        for conditions, c in _choose_fewest_rows(leaf, _TreeBuilder(context))
    ]
    if not rows:
        return ()
    values = [value for _, value in rows]
    default = max(values, key=lambda x: (x == otherwise, values.count(x), x.count_ops()))
    if values.count(default) > 1 or default == otherwise:
        rows = [*(row for row in rows if row[1] != default), ((), default)]
    if len(rows) > MAX_CASES:
        return ()
    return tuple(
        (order_conditions([_make_condition(x, signs, context, tokens) for x, signs in conditions]), c)
        for conditions, c in rows
    )


def split_logs_by_region(slots: Slots, context: Context) -> tuple[Slots, Context]:
    """Split logs of elements with regions B: f(l) = B f(l at B = 1) + (1 - B) f(l at B = 0)."""
    used = {name for c in slots.values() for name in c.names()}
    for log in (definition for definition in context.definitions if definition.kind != REGION):
        inside = sorted(name for name in log.e.names() if context.find_definition(name, REGION) is not None)
        slots_of_log = {parse_name(name).slot for name in used if parse_name(name).base == log.name}
        if not inside or not slots_of_log:
            continue
        ends = [
            Definition(f"{log.name}{n}", log.kind, log.e.substitute({inside[0]: ONE * n})) for n in (1, 0)
        ]
        context = replace(context, definitions=(*context.definitions, *ends))
        for z in slots_of_log:
            region = ExpPoly.from_variable(name_in_slot(inside[0], z))
            slots = {
                slot: _split_by_region(c, region, log=name_in_slot(log.name, z), ends=ends, z=z)
                for slot, c in slots.items()
            }
        return split_logs_by_region(slots, context)
    return slots, context


def _split_by_region(c: ExpPoly, region: ExpPoly, log: str, ends: list[Definition], z: str) -> ExpPoly:
    inside, outside = (c.substitute({log: ExpPoly.from_variable(name_in_slot(end.name, z))}) for end in ends)
    return region * inside + (1 - region) * outside


def order_conditions(conditions: list[Condition]) -> tuple[Condition, ...]:
    """Put a lower bound of an expression before an upper bound of it."""
    for i in range(len(conditions) - 1):
        first, second = conditions[i : i + 2]
        comparable = not {parse_name(x.name).base for x in (first.x - second.x).free_symbols} & RANDOM
        if comparable and 1 not in first.signs and -1 not in second.signs:
            conditions[i : i + 2] = second, first
    return tuple(conditions)


def _choose_fewest_rows(leaf: Leaf, builder: _TreeBuilder) -> Rows:
    """Return conditions and coefficients, by the order of signs that gives the fewest rows."""
    regions, fewest = builder.find_regions(leaf), Rows()
    if not 0 < len(regions) <= MAX_REGIONS:
        return fewest
    with suppress(TooManySigns):
        for first in (None, *dict.fromkeys(regions.values())):
            rows = list(builder.iterate_paths(builder.build_tree(leaf, (), first), ()))
            fewest = min((fewest or rows, rows), key=_count_shown_rows)
            if _count_shown_rows(fewest) <= FEW_CASES:
                break
    return fewest


def _count_shown_rows(rows: Rows) -> int:
    """Return how many rows are shown: those of the most frequent value are merged into one."""
    values = [value for _, value in rows]
    return len(rows) - max(map(values.count, values)) + 1


def _make_condition(x: ExpPoly, signs: tuple[int, ...], context: Context, tokens: bool) -> Condition:
    """Return the condition that x has one of these signs, its leading coefficient made 1."""
    scale, normalised = split_leading_coefficient(to_steps(x, context, tokens))
    return Condition(normalised, signs if scale > 0 else tuple(-sign for sign in signs))


class _TreeBuilder:
    """Builds the tree of signs, and counts how often a sign had to be determined."""

    def __init__(self, context: Context) -> None:
        self.context, self.questions = context, 0

    def find_regions(self, leaf: Leaf) -> dict[str, ExpPoly]:
        """Return the regions in coefficients with their definitions, those of policies first."""
        names = {name for _, c in leaf for name in c.names()}
        regions = {name: e for name in names if (e := self.context.find_definition(name, REGION)) is not None}
        order = [definition.name for definition in self.context.definitions]
        rank = {name: (not _has_policy(e), order.index(parse_name(name).base)) for name, e in regions.items()}
        return {name: regions[name] for name in sorted(regions, key=lambda name: (rank[name], name))}

    def build_tree(self, leaf: Leaf, known: KnownSigns, first: ExpPoly | None = None) -> Any:
        """Return the coefficients where the known signs hold; first: the element split on first."""
        leaf, open_regions = self._settle_regions(leaf, known)
        if not open_regions:
            return leaf
        self.questions += 1
        if self.questions > MAX_QUESTIONS:
            raise TooManySigns
        x = first or next(iter(open_regions.values()))
        branches = {
            s: self.build_tree(leaf, (*known, (x, (s,))))
            for s in ALL_SIGNS
            if self._can_have_sign(x, s, known)
        }
        return self._join_branches(x, branches, known)

    def _settle_regions(self, leaf: Leaf, known: KnownSigns) -> tuple[Leaf, dict[str, ExpPoly]]:
        """Substitute the regions that the known signs decide; return those that are open, too."""
        open_, values = {}, {}
        for name, e in self.find_regions(leaf).items():
            possible = [s for s in ALL_SIGNS if self._can_have_sign(e, s, known)]
            if 1 in possible and len(possible) > 1:
                open_[name] = e
            else:
                values[name] = ONE if possible == [1] else ZERO
        return (tuple((slot, c.substitute(values)) for slot, c in leaf) if values else leaf), open_

    # -- ties --------------------------------------------------------------------------
    def _join_branches(self, x: ExpPoly, branches: dict[int, Any], known: KnownSigns) -> Any:
        """Return one branch if all agree; a tie is merged into a neighbour that has its value there."""
        if 0 in branches:
            tie, at_tie = (*known, (x, (0,))), branches[0]
            neighbours = [
                branches[s]
                for s in (1, -1)
                if s in branches and self._is_equal_at_tie(branches[s], at_tie, tie)
            ]
            value_at_tie = substitute_zero(at_tie, x) if isinstance(at_tie, tuple) else at_tie
            branches[0] = max(neighbours, key=_count_terms, default=value_at_tie)
        first, *remaining = branches.values()
        return first if all(branch == first for branch in remaining) else Split(x, tuple(branches.items()))

    def _is_equal_at_tie(self, neighbour: Any, at_tie: Any, tie: KnownSigns) -> bool:
        """Do two branches agree where the elements with sign 0 vanish?"""
        if isinstance(neighbour, Split):
            comparable = isinstance(at_tie, Split) and at_tie.x == neighbour.x
            branches_at_tie = dict(at_tie.branches) if comparable else {}
            return all(
                self._is_equal_at_tie(branch, branches_at_tie.get(s, at_tie), (*tie, (neighbour.x, (s,))))
                for s, branch in neighbour.branches
                if self._can_have_sign(neighbour.x, s, tie)
            )
        if isinstance(at_tie, Split):
            return all(self._is_equal_at_tie(neighbour, branch, tie) for _, branch in at_tie.branches)
        zeros = [x for x, signs in tie if signs == (0,)]
        for x in zeros:
            neighbour, at_tie = substitute_zero(neighbour, x), substitute_zero(at_tie, x)
        return bool(neighbour == at_tie)

    def iterate_paths(self, tree: Any, conditions: KnownSigns) -> Iterator[tuple[KnownSigns, Leaf]]:
        """Yield the conditions and coefficients of each leaf, merging signs with equal branches."""
        if not isinstance(tree, Split):
            needed = conditions
            for condition in conditions:
                others = tuple(y for y in needed if y != condition)
                x, signs = condition
                if not any(self._can_have_sign(x, s, others) for s in ALL_SIGNS if s not in signs):
                    needed = others
            yield needed, tree
            return
        for branch in dict.fromkeys(branch for _, branch in tree.branches):
            signs = tuple(sign for sign, branch_of_sign in tree.branches if branch_of_sign == branch)
            yield from self.iterate_paths(branch, (*conditions, (tree.x, signs)))

    # -- one question ------------------------------------------------------------------
    def _can_have_sign(self, x: ExpPoly, sign: int, known: KnownSigns) -> bool:
        """May x have that sign, where each of these elements has one of its signs?"""
        if find_contradiction(
            _list_inequalities(x, sign)[:1], self.context
        ) is not None or sign not in _find_possible_signs(x):
            return False
        return all(
            any(self._can_have_both_signs(x, sign, y, known_sign) for known_sign in signs)
            for y, signs in known
        )

    def _can_have_both_signs(self, x: ExpPoly, a: int, y: ExpPoly, b: int) -> bool:
        """May x have the sign a where y has the sign b?"""
        if x in (y, -y):
            return a == (b if x == y else -b)
        pairs = set(find_joint_signs((x, y)) or ()) if x.names() | y.names() <= {*LOG_RATIOS} else set()
        if pairs:
            if a and b:
                return (a, b) in pairs
            if a or b:  # beside a zero of one of them the other one keeps its sign
                return {(a, 1), (a, -1)} <= pairs if a else {(1, b), (-1, b)} <= pairs
            return len(pairs) == 2
        both = ((first, second) for first in _list_inequalities(x, a) for second in _list_inequalities(y, b))
        return all(find_contradiction(pair, self.context) is None for pair in both)


def _count_terms(tree: Any) -> int:
    """Return the number of terms in all leaves."""
    if isinstance(tree, Split):
        return sum(_count_terms(branch) for _, branch in tree.branches)
    return sum(len(c.terms) for _, c in tree)


def _list_inequalities(x: ExpPoly, sign: int) -> tuple[tuple[ExpPoly, bool], ...]:
    """Return elements that are above 0 (True) or at least 0 (False) where x has that sign."""
    return ((x * sign, True),) if sign else ((x, False), (-x, False))


def _find_possible_signs(x: ExpPoly) -> tuple[int, ...]:
    """Return the signs that x may take.

    A length is positive; a function of one log ratio that takes one sign alone is 0 nowhere.
    """
    if x.names() <= LENGTHS and len(x.terms) == 1:
        return (1,) if min(x.terms.values()) > 0 else (-1,)
    possible = find_signs(x)
    return possible if possible is not None and len(possible) == 1 else ALL_SIGNS


def _has_policy(e: ExpPoly) -> bool:
    return any(parse_name(name).base in (*LOG_RATIOS, "log_q") for name in e.names())


def substitute_zero(leaf: Leaf, x: ExpPoly) -> Leaf:
    """Return the coefficients where x = 0 (A = 0, rho = 6/5, k1 = -1); unchanged if the ring cannot do it."""
    with suppress(NotInRing):
        return tuple((slot, _solve_and_substitute(c, x)) for slot, c in leaf)
    return leaf


def _solve_and_substitute(c: ExpPoly, x: ExpPoly) -> ExpPoly:
    """Solve x = 0 for a variable or an exponential, and substitute it in c."""
    for key, value in sorted(x.terms.items()):
        term = ExpPoly({key: value})
        solution, names = (term - x) * (Fraction(1) / value), term.names()
        if len(names) != 1 or names & (solution.names() | c.collect_divisors()):
            continue
        [name] = names
        if key == (((name, 1),), ()):
            return c.substitute({name: solution})
        if not key[0] and len(key[1]) == 1 and key[1][0][0] == ((name, 1),):
            return _substitute_power(c, key[1][0], solution)
    return c


def _substitute_power(c: ExpPoly, power: tuple[Any, Number], value: ExpPoly) -> ExpPoly:
    """Return c where exp(power) has this value; its integer powers are substituted, too."""
    base, rate = power
    total = ZERO
    for (monomial, exponent), number in c.terms.items():
        multiple = Fraction(dict(exponent).get(base, 0)) / rate
        whole = multiple.denominator == 1 and (multiple >= 0 or len(value.terms) == 1)
        remaining = tuple(row for row in exponent if row[0] != base) if whole else exponent
        term = ExpPoly({(monomial, remaining): number})
        size = abs(int(multiple)) if whole else 0
        total = total + term * (value if multiple >= 0 else value.invert()) ** size if size else total + term
    return total
