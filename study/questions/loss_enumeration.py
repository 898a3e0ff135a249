"""All losses of a small grammar by the length of their spelling, sorted by what they are.  Untrusted.

A loss is worth v at a sample and has the gradient a s there.  Both follow from those of its two parts,

    L + M: (v + v', a + a')      L M: (v v', v a' + a v')      sg(L): (v, 0)

so that parts with one pair (v, a) may stand for one another, and the pairs of each size come from those of
smaller sizes.  A size is the number of leaves and operations; a spelling is an expression as it is
written, in Polish notation with a letter each: its length is its size.

>>> small = levels(3)
>>> [len(level) for level in small]
[9, 9, 150]
>>> count, code = small[2][compute_pair("XAC")]
>>> write_infix(code), count
('rho*k1', 2)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, reduce
from typing import Any

import sympy

from klsym.kernel.derivatives import differentiate_loss
from klsym.kernel.ring import ZERO, ExpPoly
from klsym.kernel.statements import Context
from klsym.language.convert import to_ring
from klsym.language.expressions import k1, k2, k3, log_q, r, rho

ValueAndScore = tuple[ExpPoly, ExpPoly]  # the value v and the coefficient a of the score, sg(.) dropped
SpellingCount = tuple[int, str]  # how many spellings, and the first of them

# In the order of the letters: of several spellings the first one is shown, so weights and sg stand in front.
LEAVES: dict[str, Any] = {
    "0": sympy.Rational(1, 2), "1": sympy.Integer(1), "2": sympy.Integer(2),
    "A": rho, "C": k1, "D": k2, "E": k3, "F": r, "G": log_q,
}  # fmt: skip
DETACHED, TIMES, PLUS, MINUS = "BXYZ"
OPERATORS = {TIMES: "*", PLUS: " + ", MINUS: " - "}
BINDS = {PLUS: 0, MINUS: 0, TIMES: 1}


# ---------------------------------------------------------------------------- one spelling
def read_code(code: str) -> Any:
    """A spelling as a tree of tuples: (letter,), (letter, part) or (letter, part, part)."""
    tree, remaining_code = _read(code)
    if remaining_code:
        raise ValueError(f"{code!r}: {remaining_code!r} is left over")
    return tree


def _read(code: str) -> tuple[Any, str]:
    letter, remaining_code = code[:1], code[1:]
    if letter in LEAVES:
        return (letter,), remaining_code
    if letter == DETACHED:
        part, remaining_code = _read(remaining_code)
        return (letter, part), remaining_code
    if letter not in OPERATORS or not letter:
        raise ValueError(
            f"{code!r}: a spelling starts with one of {''.join((*LEAVES, DETACHED, *OPERATORS))}"
        )
    left_tree, remaining_code = _read(remaining_code)
    right, remaining_code = _read(remaining_code)
    return (letter, left_tree, right), remaining_code


def write_infix(code: str) -> str:
    """The loss in the loss grammar.

    >>> write_infix("XBAD"), write_infix("XAZE0"), write_infix("ZCZDE")
    ('sg(rho)*k2', 'rho*(k3 - 1/2)', 'k1 - (k2 - k3)')
    """
    return _write_tree(read_code(code), 0)


def negate_code(code: str) -> str:
    """The loss with a minus before it.

    >>> negate_code("XAC"), negate_code("YCF")
    ('-rho*k1', '-(k1 + r)')
    """
    return f"-{_write_tree(read_code(code), BINDS[TIMES])}"


def _write_tree(tree: Any, least: int) -> str:
    """least: what binds less than that stands in brackets."""
    letter, *parts = tree
    if letter in LEAVES:
        return str(LEAVES[letter])
    if letter == DETACHED:
        return f"sg({_write_tree(parts[0], 0)})"
    binding = BINDS[letter]
    text = (
        _write_tree(parts[0], binding)
        + OPERATORS[letter]
        + _write_tree(parts[1], binding + (letter == MINUS))
    )
    return f"({text})" if binding < least else text


@lru_cache(maxsize=2**17)
def compute_pair(code: str) -> ValueAndScore:
    """What a spelling is worth at a sample, and its derivative along log q.

    >>> compute_pair("XAE") == compute_pair("XBAD")  # rho*k3 and sg(rho)*k2
    False
    >>> compute_pair("XAE")[1] == compute_pair("XBAD")[1]
    True
    """
    return _compute_tree_pair(read_code(code))


def _compute_tree_pair(tree: Any) -> ValueAndScore:
    letter, *parts = tree
    if letter in LEAVES:
        return build_leaf(letter)
    if letter == DETACHED:
        return _compute_tree_pair(parts[0])[0], ZERO
    return JOINED[letter](_compute_tree_pair(parts[0]), _compute_tree_pair(parts[1]))


@cache
def build_leaf(letter: str) -> ValueAndScore:
    value = to_ring(LEAVES[letter])
    return value, differentiate_loss(value, "", Context()).get("x", ZERO)


JOINED: dict[str, Callable[[ValueAndScore, ValueAndScore], ValueAndScore]] = {
    TIMES: lambda x, y: (x[0] * y[0], x[0] * y[1] + x[1] * y[0]),
    PLUS: lambda x, y: (x[0] + y[0], x[1] + y[1]),
    MINUS: lambda x, y: (x[0] - y[0], x[1] - y[1]),
}


# ---------------------------------------------------------------------------- all of one size
class SizeLevel(dict[ValueAndScore, SpellingCount]):
    """The pairs (v, a) that the spellings of one size have."""

    def add(self, key: ValueAndScore, count: int, code: str) -> None:
        before = self.get(key)
        self[key] = (count, code) if before is None else (before[0] + count, min(before[1], code))

    def merge(self, other: SizeLevel) -> SizeLevel:
        """All spellings of both, in this one: sums and minima, in whatever order levels are merged."""
        for key, (count, code) in other.items():
            self.add(key, count, code)
        return self

    @property
    def rows(self) -> tuple[SpellingCount, ...]:
        """A count and a spelling for each pair, in the order of the spellings."""
        return tuple(sorted(self.values(), key=lambda row: row[1]))


@dataclass(frozen=True)
class Join:
    """Every operation on one spelling of `short` and one of `long`, in both orders where these differ."""

    short: tuple[SpellingCount, ...]
    long: tuple[SpellingCount, ...]
    equal: bool  # one level with itself: every ordered pair is met once

    def __call__(self, first: int, last: int) -> SizeLevel:
        """What the rows first <= i < last of `long` give."""
        joined_level = SizeLevel()
        short = [(compute_pair(code), count, code) for count, code in self.short]
        for count, code in self.long[first:last]:
            y = compute_pair(code)
            for x, times, short_pair in short:
                self._add_join(joined_level, x, y, count=times * count, a=short_pair, b=code)
        return joined_level

    def _add_join(
        self, found: SizeLevel, x: ValueAndScore, y: ValueAndScore, count: int, a: str, b: str
    ) -> None:
        if self.equal:
            for letter, join in JOINED.items():
                found.add(join(x, y), count, letter + a + b)
            return
        front = min(a + b, b + a)
        for letter in (TIMES, PLUS):
            found.add(JOINED[letter](x, y), 2 * count, letter + front)
        v, c = JOINED[MINUS](x, y)
        found.add((v, c), count, MINUS + a + b)
        found.add((-v, -c), count, MINUS + b + a)


Across = Callable[[Sequence[Join]], SizeLevel]


def join_here(joins: Sequence[Join]) -> SizeLevel:
    """In this process, one after the other."""
    return reduce(SizeLevel.merge, (join(0, len(join.long)) for join in joins), SizeLevel())


def levels(size: int, across: Across = join_here) -> list[SizeLevel]:
    """The pairs of each size from 1 to `size`.

    across: carries the joins out and merges what they give, here or elsewhere.
    """
    size_levels = [_list_leaves()]
    while len(size_levels) < size:
        level = SizeLevel()
        for (v, _), (count, code) in size_levels[-1].items():
            level.add((v, ZERO), count, DETACHED + code)
        joins = _list_joins([level.rows for level in size_levels])
        size_levels.append(level.merge(across(joins)) if joins else level)
    return size_levels[:size]


def _list_leaves() -> SizeLevel:
    level = SizeLevel()
    for letter in LEAVES:
        level.add(build_leaf(letter), 1, letter)
    return level


def _list_joins(rows: Sequence[tuple[SpellingCount, ...]]) -> list[Join]:
    """Of the sizes i <= j with i + j + 1 one above those that are there."""
    sizes = ((i, len(rows) - i) for i in range(1, len(rows) // 2 + 1))
    return [Join(rows[i - 1], rows[j - 1], i == j) for i, j in sizes]


def count_spellings(size: int) -> list[int]:
    """How many spellings each size has: n leaves, one operation of one part, three of two.

    >>> count_spellings(5)
    [9, 9, 252, 738, 14589]
    """
    counts = [len(LEAVES)]
    while len(counts) < size:
        counts.append(counts[-1] + len(OPERATORS) * _sum_products(counts))
    return counts[:size]


def _sum_products(counts: Iterable[int]) -> int:
    count_list = list(counts)
    return sum(x * y for x, y in zip(count_list[:-1], reversed(count_list[:-1]), strict=True))
