"""All sequences over a few words, as tables of integers, and random tables of numbers for them.

A sequence has at most T words out of V; the word `end` ends it, and counts.  A policy is a table of logits
with one row a prefix; it may belong to any tensor library, since the tree only says where it is read:

    log q(y) = sum_t log_softmax(theta)[rows[y][t], tokens[y][t]]    over t < lengths[y]
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from klsym.errors import UsageError
from klsym.worlds.numbers import FLOATS, System
from klsym.worlds.tree import Layout, Shape, build_layout
from klsym.worlds.world import World, list_multisets

Table = list[list[float]]  # one row a prefix, one column a word
PADDING = 0  # the word at places beyond the end of a sequence


@dataclass(frozen=True)
class WordTree:
    """All sequences of at most `longest` words out of `vocabulary`, after each of some prompts.

    >>> tree = WordTree(vocabulary=2, longest=2)
    >>> tree.prefixes, tree.sequences
    (((), (1,)), ((0,), (1, 0), (1, 1)))
    >>> tree.tokens, tree.mask
    ([[0, 0], [1, 0], [1, 1]], [[1, 0], [1, 1], [1, 1]])
    >>> tree.rows  # where nothing is drawn, the row is that of another prefix
    [[0, 1], [0, 1], [0, 1]]
    >>> len(WordTree(3, 2, end=None).sequences), len(WordTree(3, 2, prompts=(1, 2)).tokens)
    (9, 14)

    end: the word that ends a sequence; None: all sequences have `longest` words.
    prompts: their weights.  Each has rows of its own; sequences are numbered prompt by prompt.
    tool: a word that calls a tool: the environment draws the next word, whose mask is 0.
    Raises UsageError: numbers out of range, or a tree that is too large.
    """

    vocabulary: int
    longest: int
    end: int | None = 0
    prompts: tuple[float, ...] = (1.0,)
    tool: int | None = None

    def __post_init__(self) -> None:
        words = range(self.vocabulary)
        fine = len(words) > 1 and self.longest > 0 and self.prompts and min(self.prompts) > 0
        fine = fine and (self.end is None or self.end in words)
        if not fine or (self.tool is not None and (self.tool not in words or self.tool == self.end)):
            raise UsageError(f"words: {self}: 2 words, 1 step and positive weights of prompts expected")

    @cached_property
    def shape(self) -> Shape:
        """The tree of one prompt: its branches are the words."""
        return self._build_node(1)

    def _build_node(self, step: int) -> Shape:
        after = None if step == self.longest else self._build_node(step + 1)
        return tuple(None if word == self.end else after for word in range(self.vocabulary))

    @cached_property
    def layout(self) -> Layout:
        """The branches of one prompt: word `w` after prefix `k` is branch `k * vocabulary + w`."""
        return build_layout(self.shape)

    @cached_property
    def prefixes(self) -> tuple[tuple[int, ...], ...]:
        """What precedes each row of a prompt, in order: a prefix before those that go on from it."""
        before = (self.layout.before[start] for start in self.layout.starts)
        return tuple(tuple(branch % self.vocabulary for branch in path) for path in before)

    @cached_property
    def sequences(self) -> tuple[tuple[int, ...], ...]:
        """The words of each sequence of a prompt."""
        return tuple(tuple(b % self.vocabulary for b in path) for path in self.layout.paths)

    @property
    def height(self) -> int:
        """The number of rows of a table, all prompts together."""
        return len(self.prefixes) * len(self.prompts)

    @property
    def prompt_of(self) -> list[int]:
        """The prompt of each sequence."""
        return [prompt for prompt in range(len(self.prompts)) for _ in self.sequences]

    @property
    def lengths(self) -> list[int]:
        """The number of words of each sequence, the end word included."""
        return [len(words) for _ in self.prompts for words in self.sequences]

    @property
    def tokens(self) -> list[list[int]]:
        """The words of each sequence, padded to `longest`."""
        padded = [[*words, *[PADDING] * (self.longest - len(words))] for words in self.sequences]
        return [[*words] for _ in self.prompts for words in padded]

    @property
    def mask(self) -> list[list[int]]:
        """1 at each word of the policy, the end word included, 0 at words of a tool and beyond the end."""
        rows = [
            [1, *(int(word != self.tool) for word in words[:-1]), *[0] * (self.longest - len(words))]
            for words in self.sequences
        ]
        return [[*row] for _ in self.prompts for row in rows]

    @property
    def rows(self) -> list[list[int]]:
        """The row of the prefix before each word; beyond the end another one, so that padding shows."""
        return [
            [offset * len(self.prefixes) + row for row in self._list_rows(path)]
            for offset in range(len(self.prompts))
            for path in self.layout.paths
        ]

    def _list_rows(self, path: Sequence[int]) -> list[int]:
        """Return the rows before each word of a sequence, and the last row of the table beyond its end."""
        before = [branch // self.vocabulary for branch in path]
        return [*before, *[len(self.prefixes) - 1] * (self.longest - len(path))]

    def build_world(
        self, tables: Mapping[str, Table], prompt: int = 0, system: System = FLOATS, on_policy: bool = False
    ) -> World:
        """Return the sequences of one prompt with the log-softmax of tables q, p, mu, .. at its branches.

        >>> tree, tables = WordTree(2, 2), {"q": [[0.0, 0.0], [0.0, 0.0]]}
        >>> [mass for _, mass in tree.build_world(tables).enumerate_batches(1, "q")]
        [0.5, 0.25, 0.25]

        R, if it is among the tables, is the reward of each word.
        """
        first = prompt * len(self.prefixes)
        chosen = {name: table[first : first + len(self.prefixes)] for name, table in tables.items()}
        rows = {
            "R" if name == "R" else f"log_{name}": [x for row in table for x in _read_row(name, row, system)]
            for name, table in chosen.items()
        }
        return World(self.layout, rows, system=system, on_policy=on_policy)

    def list_groups(
        self, size: int, multisets: bool = True, first: int | None = None
    ) -> Iterator[tuple[tuple[int, ...], int]]:
        """Yield the groups of sequences of one prompt, and how many orders of each they stand for.

        >>> tree = WordTree(2, 2)
        >>> [*tree.list_groups(2)][:3]
        [((0, 0), 1), ((0, 1), 2), ((0, 2), 2)]
        >>> sum(times for _, times in tree.list_groups(4)) == 3**4
        True

        multisets: each group once, whatever its order.  first: the first sample of every group; all others
        are then multisets.
        """
        for prompt in range(len(self.prompts)) if first is None else (self.prompt_of[first],):
            offset = prompt * len(self.sequences)
            numbers = range(offset, offset + len(self.sequences))
            fixed = () if first is None else (first,)
            for group, times in list_multisets(numbers, size - len(fixed), multisets):
                yield (*fixed, *group), times


def _read_row(name: str, row: Sequence[float], system: System) -> list[Any]:
    """Return rewards as numbers of a system, or the log-softmax of logits."""
    numbers = [system.lift(x) for x in row]
    if name == "R":
        return numbers
    largest = system.lift(max(row))
    total = system.log(system.add(system.exp(x - largest) for x in numbers))
    return [x - largest - total for x in numbers]


# ---------------------------------------------------------------------------- random tables
@dataclass(frozen=True)
class Tables:
    """Numbers for a tree of words: logits of policies, rewards of sequences and of words.

    q, p, mu, old: one row a prefix, one column a word.  token_rewards: likewise.  rewards: one a sequence.
    environment: logits of the words of tools.
    """

    q: Table
    p: Table
    mu: Table
    old: Table
    token_rewards: Table
    environment: Table = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)

    @property
    def by_name(self) -> dict[str, Table]:
        """The tables as a world takes them."""
        return {"q": self.q, "p": self.p, "mu": self.mu, "old": self.old, "R": self.token_rewards}


def draw_tables(tree: WordTree, seed: int, near: float | None = 0.5, binary: bool = False) -> Tables:
    """Return random tables, the same for the same arguments.

    The logits of q are N(0, 1); those of p, mu and old are q + near * N(0, 1), as in training, so that bounds
    of a clip are met by few samples.  near = None: they are N(0, 1) of their own.

    >>> tree = WordTree(3, 2)
    >>> draw_tables(tree, 1) == draw_tables(tree, 1) != draw_tables(tree, 2)
    True
    >>> draw_tables(tree, 1, near=None).q == draw_tables(tree, 1).q
    True
    >>> sorted({*draw_tables(tree, 1, binary=True).rewards})
    [0.0, 1.0]

    binary: rewards of sequences are 1 above their median, 0 below.
    """

    def draw(name: str) -> Table:
        stream = random.Random(f"{seed} {name}")
        return [[stream.gauss(0, 1) for _ in range(tree.vocabulary)] for _ in range(tree.height)]

    q = draw("q")

    def draw_policy(name: str) -> Table:
        noise = draw(name)
        if near is None:
            return noise
        return [[x + near * e for x, e in zip(*pair, strict=True)] for pair in zip(q, noise, strict=True)]

    stream = random.Random(f"{seed} rewards")
    rewards = [stream.gauss(0, 1) for _ in tree.prompt_of]
    if binary:
        median = sorted(rewards)[len(rewards) // 2]
        rewards = [float(x >= median) for x in rewards]
    return Tables(
        q=q, p=draw_policy("p"), mu=draw_policy("mu"), old=draw_policy("old"), rewards=rewards,
        token_rewards=draw("token rewards"), environment=draw("environment") if tree.tool is not None else [],
    )  # fmt: skip
