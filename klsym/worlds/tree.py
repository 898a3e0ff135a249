"""Token trees: the shape of a finite model, with its branches numbered, and what it is written as.

A node is a tuple that holds, for each branch, the node that follows it, or None where the sequence ends.
A single sample is a tree of one node: its outcomes are the branches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

from klsym.errors import UsageError

ROWS = ("q", "p", "mu", "u", "v", "R")  # what is written at a node, for each branch
OPTIONAL = ("old", "M")  # at each node or at none
LARGEST, DEEPEST = 2000, 200  # branches, steps

Shape = tuple[Any, ...]


def _refuse_unless(condition: bool, reason: str) -> None:
    if not condition:
        raise UsageError(f"tree: {reason}")


@dataclass(frozen=True)
class Layout:
    """A shape with its branches numbered: node by node, a node before those that follow it.

    starts: the first branch of each node.  paths: the branches of each sequence.
    before: for each branch, those that lead to its node.
    """

    starts: tuple[int, ...]
    paths: tuple[tuple[int, ...], ...]
    before: tuple[tuple[int, ...], ...]

    @property
    def nodes(self) -> tuple[slice, ...]:
        """The branches of each node."""
        return tuple(slice(a, b) for a, b in pairwise((*self.starts, len(self.before))))


@lru_cache(maxsize=512)
def build_layout(shape: Shape) -> Layout:
    """Return the branches of a shape; raises UsageError where it is too deep or too wide.

    >>> build_layout((None, (None, None)))
    Layout(starts=(0, 2), paths=((0,), (1, 2), (1, 3)), before=((), (), (1,), (1,)))
    """
    starts: list[int] = []
    paths: list[tuple[int, ...]] = []
    before: list[tuple[int, ...]] = []

    def visit(node: Any, prefix: tuple[int, ...]) -> None:
        if node is None:
            paths.append(prefix)
            return
        _refuse_unless(bool(node), "a node without branches")
        _refuse_unless(len(prefix) < DEEPEST, f"a sequence of more than {DEEPEST} steps")
        _refuse_unless(len(before) < LARGEST, f"more than {LARGEST} branches")
        first = len(before)
        starts.append(first)
        before.extend([prefix] * len(node))
        for branch, after in enumerate(node, start=first):
            visit(after, (*prefix, branch))

    visit(shape, ())
    return Layout(tuple(starts), tuple(paths), tuple(before))


def read_tree(node: Any) -> tuple[Shape, dict[str, list[Any]]]:
    """Return the shape of a tree in JSON, and its rows, an entry a branch in the order of `build_layout`.

        node = {"q": [..], "p": [..], "mu": [..], "u": [..], "v": [..], "R": [..], "next": [..]}

    next: for each branch another node, or None.

    >>> end = {**dict.fromkeys(ROWS, [1]), "next": [None]}
    >>> read_tree({**end, "next": [end]})[0]
    ((None,),)
    """
    written = [name for name in OPTIONAL if isinstance(node, dict) and name in node]
    rows: dict[str, list[Any]] = {name: [] for name in (*ROWS, *written)}
    return _read_node(node, rows, 0), rows


def _read_node(node: Any, rows: dict[str, list[Any]], depth: int) -> Shape:
    """Return the shape of a node; its numbers are added to the rows, before those of the next nodes."""
    keys = {*rows, "next"}
    _refuse_unless(isinstance(node, dict) and set(node) == keys, f"a node has the keys {sorted(keys)}")
    fitting = all(isinstance(row, list) for row in node.values()) and len({*map(len, node.values())}) == 1
    _refuse_unless(fitting, "the lists of a node differ in length")
    _refuse_unless(depth < DEEPEST and len(rows["q"]) < LARGEST, "too many branches, or too deep")
    for name in rows:
        rows[name] += node[name]
    return tuple(None if after is None else _read_node(after, rows, depth + 1) for after in node["next"])


def find_sequence(shape: Shape, choices: list[int]) -> int:
    """Return the number of the sequence that these choices, one a node, lead to.

    >>> find_sequence((None, (None, None)), [1, 0])
    1
    """
    ends = [*_list_ends(shape)]
    _refuse_unless(tuple(choices) in ends, f"there is no sequence {str(choices)[:40]}")
    return ends.index(tuple(choices))


def _list_ends(node: Shape, prefix: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    for branch, after in enumerate(node):
        path = (*prefix, branch)
        yield from (path,) if after is None else _list_ends(after, path)


def walk_nodes(shape: Shape) -> Iterator[Shape]:
    """Yield every node, in the order of `build_layout`."""
    yield shape
    for after in shape:
        if after is not None:
            yield from walk_nodes(after)
