"""Trees: finite models of sequences of random length, and of whole sequences as single samples.

A node holds a distribution of the next token; each branch leads to another node or ends the sequence:

    q(y) = prod_t q(y_t | y_<t)        R(y) = sum_t R(y_t | y_<t)        length(y) = number of steps

theta are the softmax logits of q at every node, and u, v two directions of them: the score of a token
along u is u_branch - sum_b q_b u_b, and that of a sequence is the sum over its tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from klsym.abbreviations import Context
from klsym.errors import UsageError
from klsym.numeric.models import (
    FiniteModel,
    checked_numbers,
    from_certificate,
    noise,
    random_direction,
    random_distribution,
    random_parameter,
    refuse_unless_distribution,
    refuse_unless_suited,
    softmax,
)
from klsym.numeric.positions import Moves, Places, Positions, Table
from klsym.numeric.systems import System

ROWS = ("q", "p", "mu", "u", "v", "R")
LARGEST, DEEPEST = 2000, 200  # sequences, steps

Shape = tuple[Any, ...]  # a node: for each branch the shape of the next node, or None


def _refuse_unless(condition: bool, reason: str) -> None:
    if not condition:
        raise UsageError(f"tree: {reason}")


# ---------------------------------------------------------------------------- shapes
@dataclass(frozen=True)
class Layout:
    """A shape with its branches numbered: node by node, a node before those that follow it.

    starts: the first branch of each node.  paths: the branches of each sequence.
    before: for each branch, those that lead to its node.
    """

    starts: tuple[int, ...]
    paths: tuple[tuple[int, ...], ...]
    before: tuple[tuple[int, ...], ...]


@lru_cache(maxsize=512)
def layout_of(shape: Shape) -> Layout:
    """The branches of a shape; raises UsageError where it is too deep or too wide.

    >>> layout_of((None, (None, None)))
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


# ---------------------------------------------------------------------------- models
@dataclass(frozen=True)
class TreeModel:
    """A finite model of sequences; as a model of single samples, its outcomes are the whole sequences.

    >>> node = {"q": ["1/2", "1/2"], "p": ["1/4", "3/4"], "mu": ["1/3", "2/3"], "u": [1, 0], "v": [0, 1],
    ...         "R": [0, 1], "next": [None, None]}
    >>> model = TreeModel.from_json({"tree": {**node, "next": [None, node]}, "parameters": {}})
    >>> model.size, model.lengths, model.exact
    (3, (1, 2, 2), True)

    shape: a node is a tuple with the next node of each branch, or None.
    q, p, mu, u, v, R: one entry a branch, shape (branches,), in the order of `layout_of`: distributions
    at each node, two directions of the logits of q, the reward of the token; mu defaults to q.
    parameters: name -> number.  outcome: the sequence where pointwise quantities are evaluated.
    advantage: (a, b), and A = a + b z with fixed pseudo-random numbers z; without it A has no value.
    Raises UsageError: sizes that differ, nan, no full-support distribution, unknown outcome.
    """

    shape: Shape
    q: Sequence[Any]
    p: Sequence[Any]
    u: Sequence[Any]
    v: Sequence[Any]
    R: Sequence[Any]
    mu: Sequence[Any] | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    advantage: tuple[Any, Any] | None = None
    outcome: int = 0

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        _refuse_unless(isinstance(self.parameters, Mapping), "parameters: name -> value expected")
        set_(self, "mu", self.q if self.mu is None else self.mu)
        branches = len(self.layout.before)
        for name in ROWS:
            set_(self, name, checked_numbers(getattr(self, name), name))
            found = len(getattr(self, name))
            _refuse_unless(found == branches, f"{name} has {found} entries, the tree {branches} branches")
        for name in ("q", "p", "mu"):
            for node in self.nodes:
                refuse_unless_distribution(getattr(self, name)[node], name)
        set_(self, "parameters", {n: checked_numbers([v], n)[0] for n, v in self.parameters.items()})
        if self.advantage is not None:
            set_(self, "advantage", checked_numbers(self.advantage, "advantage"))
        known = type(self.outcome) is int and 0 <= self.outcome < self.size
        _refuse_unless(known, f"outcome {self.outcome!r} is not one of 0..{self.size - 1}")

    @staticmethod
    def from_json(data: Any, advantage: tuple[Any, Any] | None = None) -> TreeModel:
        """A tree written as {"tree": node, "path": [..], "parameters": {name: number}}, where

            node = {"q": [..], "p": [..], "mu": [..], "u": [..], "v": [..], "R": [..], "next": [..]}

        next: for each branch another node, or None.  path: the branches to the sequence where pointwise
        quantities are evaluated; without it the first one.  Raises UsageError as TreeModel does.
        """
        keys = {"tree", "parameters"}
        known = isinstance(data, dict) and set(data) - {"path"} == keys
        _refuse_unless(known, f"the keys {sorted(keys)} expected")
        rows: dict[str, list[Any]] = {name: [] for name in ROWS}
        shape = _read(data["tree"], rows, 0)
        q, p, mu, u, v, R = (rows[name] for name in ROWS)
        outcome = _number(shape, data["path"]) if data.get("path") else 0
        return TreeModel(shape, q, p, u, v, R, mu, data["parameters"], advantage, outcome)

    @cached_property
    def layout(self) -> Layout:
        """The branches, numbered."""
        return layout_of(self.shape)

    @property
    def size(self) -> int:
        """The number of sequences."""
        return len(self.layout.paths)

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """The length of each sequence, in steps."""
        return tuple(map(len, self.layout.paths))

    @cached_property
    def nodes(self) -> tuple[slice, ...]:
        """The branches of each node."""
        starts = self.layout.starts
        ends = (*starts[1:], len(self.layout.before))
        return tuple(slice(a, b) for a, b in zip(starts, ends, strict=True))

    @property
    def exact(self) -> bool:
        """Are all numbers rational?"""
        rows = [getattr(self, name) for name in ROWS] + [[*self.parameters.values()], self.advantage or ()]
        return all(isinstance(value, Fraction) for row in rows for value in row)

    def moved(self, t: float, context: Context, along: str = "u") -> TreeModel:
        """The model at theta + t u, in floats; on-policy the sampler moves along."""
        q, step = (np.array([float(x) for x in row]) for row in (self.q, getattr(self, along)))
        moved = [x for node in self.nodes for x in softmax(np.log(q[node]) + t * step[node])]
        return replace(self, q=moved, mu=moved if context.on_policy else self.mu)

    def check(self, context: Context) -> None:
        """Raise UsageError: a parameter of the statement is missing, or mu != q on-policy."""
        refuse_unless_suited(self, context)

    def positions(self, system: System, tilt: Moves, step: Moves, on_policy: bool) -> Positions:
        """What is known at each sequence, and at its tokens, see Table.positions."""
        rows = {"q": self.q, "p": self.p, "mu": self.mu or self.q}
        rewards = {"R": self.R, "length": [Fraction(1)] * len(self.R)}
        table = Table(rows, {"u": self.u, "v": self.v}, self.layout.starts, rewards)
        tokens = table.positions(system, tilt, step, on_policy)
        return tokens.joined(_whole(self.shape), system, self._rewards)

    @cached_property
    def _rewards(self) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {
            "R": [sum(self.R[branch] for branch in path) for path in self.layout.paths],
            "length": [Fraction(length) for length in self.lengths],
        }
        if self.advantage is not None:
            found["A"] = [self.advantage_at("x", (leaf,)) for leaf in range(self.size)]
        return found

    def advantage_at(self, slot: str, key: tuple[int, ...]) -> Any:
        """A where the key says what is known: branches of a prefix, or sequences."""
        if self.advantage is None:
            raise UsageError("oracle: the model has no value for A")
        level, spread = self.advantage
        return level + spread * noise(slot, key)


@lru_cache(maxsize=512)
def _whole(shape: Shape) -> Places:
    return Places.of(layout_of(shape).paths, whole=False)


def _number(shape: Shape, path: list[int]) -> int:
    """The number of the sequence to which the branches lead."""
    ends = [*_ends(shape)]
    _refuse_unless(tuple(path) in ends, f"there is no sequence {str(path)[:40]}")
    return ends.index(tuple(path))


def _ends(node: Shape, prefix: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    for branch, after in enumerate(node):
        way = (*prefix, branch)
        yield from (way,) if after is None else _ends(after, way)


def _read(node: Any, rows: dict[str, list[Any]], depth: int) -> Shape:
    """The shape of a node; its numbers are added to the rows, before those of the next nodes."""
    keys = {*ROWS, "next"}
    _refuse_unless(isinstance(node, dict) and set(node) == keys, f"a node has the keys {sorted(keys)}")
    fitting = all(isinstance(row, list) for row in node.values()) and len({*map(len, node.values())}) == 1
    _refuse_unless(fitting, "the lists of a node differ in length")
    _refuse_unless(depth < DEEPEST and len(rows["q"]) < LARGEST, "too many branches, or too deep")
    for name in ROWS:
        rows[name] += node[name]
    return tuple(None if after is None else _read(after, rows, depth + 1) for after in node["next"])


# ---------------------------------------------------------------------------- random trees
def random_tree(
    seed: int, context: Context | None = None, exact: bool = False, tokens: int = 3, depth: int = 3
) -> TreeModel:
    """A random tree for statements in `context`, the same for the same arguments.

    Lengths are random, from 1 to depth: one sequence is of each.  Numbers as in `random_model`; A has
    pseudo-random values.

    >>> model = random_tree(3, exact=True)
    >>> model == random_tree(3, exact=True), {1, 2, 3} == set(model.lengths)
    (True, True)

    seed: 0 or more.  tokens: the most branches of a node.  depth: the most steps.
    Raises UsageError: tokens or depth below 2, seed below 0.
    """
    _refuse_unless(min(tokens, depth) >= 2 and seed >= 0, f"seed {seed}, tokens {tokens}, depth {depth}")
    context = context or Context()
    stream = np.random.default_rng([seed, tokens, depth, int(exact), 1])
    shape = _random_shape(stream, tokens, depth, trunk=True)
    sizes = [len(node) for node in _nodes(shape)]

    def distributions() -> list[Any]:
        return [x for size in sizes for x in random_distribution(stream, size, exact, 1.0)]

    def directions() -> list[Any]:
        return [x for size in sizes for x in random_direction(stream, size, exact)]

    q, p, mu = distributions(), distributions(), distributions()
    level = random_parameter("level", stream, exact)
    return TreeModel(
        shape, q=q, p=p, mu=q if context.on_policy else mu, u=directions(), v=directions(), R=directions(),
        parameters={name: random_parameter(name, stream, exact) for name in context.parameters},
        advantage=(level, Fraction(2)), outcome=int(stream.integers(len(layout_of(shape).paths))),
    )  # fmt: skip


def _random_shape(stream: Any, tokens: int, depth: int, trunk: bool) -> Shape:
    """The trunk branches at every node, ends at one branch, and goes on at another while it can."""
    count = int(stream.integers(2, tokens + 1)) if trunk or stream.random() < 0.8 else 1
    ends, goes_on = stream.permutation(count)[:2] if trunk else (-1, -1)
    after: list[Any] = []
    for branch in range(count):
        grows = depth > 1 and branch != ends and (branch == goes_on or stream.random() < 0.4)
        after.append(_random_shape(stream, tokens, depth - 1, branch == goes_on) if grows else None)
    return tuple(after)


def _nodes(shape: Shape) -> Iterator[Shape]:
    yield shape
    for after in shape:
        if after is not None:
            yield from _nodes(after)


# ---------------------------------------------------------------------------- certificates
Model = FiniteModel | TreeModel


def model_from_certificate(data: Any) -> Model:
    """The exact model of a refutation: a tree where its JSON has the key "tree".

    Raises UsageError as `from_certificate` and `TreeModel.from_json` do.
    """
    if isinstance(data, dict) and "tree" in data:
        return TreeModel.from_json(data)
    return from_certificate(data)
