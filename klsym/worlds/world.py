"""A world: a tree of tokens with numbers of one system at its branches; its sequences and batches enumerated.

    q(y) = prod_t q(y_t | y_<t)        R(y) = sum_t R_t        u.s(x) = u_x - sum_y q(y) u_y at each node
    log q_t(x) = log q(x) + t u.s(x)   at theta + t u, with t^2 = 0

A single sample is a tree of one node: its outcomes are the branches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import combinations_with_replacement, product
from typing import Any, Self

from klsym.worlds.numbers import DIGITS, Dual, System, build_duals
from klsym.worlds.tree import Layout, Shape, build_layout

DENSITIES = ("q", "p", "mu", "old")


@dataclass(frozen=True)
class Place:
    """Token t of sequence i of a batch, or the whole sequence.

    word: another branch that replaces the token.  alone: differentiate in log q of this sequence.
    """

    batch: tuple[int, ...]
    i: int = 0
    t: int | None = None
    word: int | None = None
    alone: bool = False


@dataclass
class World:
    """All sequences of a tree, and all batches of them.

    >>> from klsym.worlds.numbers import FLOATS
    >>> from klsym.worlds.tree import build_layout
    >>> half = [FLOATS.log(0.5)] * 2
    >>> world = World(build_layout((None, None)), {"log_q": half, "R": [0.0, 1.0]}, {"u": [1.0, 0.0]}, FLOATS)
    >>> [(batch, round(mass, 3)) for batch, mass in world.enumerate_batches(2, "q")][:2]
    [((0, 0), 0.25), ((0, 1), 0.25)]
    >>> [round(x, 3) for x in world.list_scores("u")]
    [0.5, -0.5]
    >>> world.move("u").rows["log_q"][0].slope
    0.5

    rows: log_q, log_p, log_mu, log_old, R, M, .. -> one number a branch, in the order of the layout.
    directions: u, v -> directions of the logits of q, likewise.
    system: that of all these numbers.
    on_policy: log mu is log q.
    """

    layout: Layout
    rows: Mapping[str, Sequence[Any]]
    directions: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    system: System = DIGITS
    on_policy: bool = False

    def __post_init__(self) -> None:
        if self.on_policy:
            self.rows = {**self.rows, "log_mu": self.rows["log_q"]}
        self._scores: dict[str, list[Any]] = {}

    @property
    def paths(self) -> tuple[tuple[int, ...], ...]:
        """The branches of each sequence."""
        return self.layout.paths

    def list_scores(self, along: str = "u") -> list[Any]:
        """Return the score of each branch along a direction."""
        if along not in self._scores:
            self._scores[along] = self._compute_scores(self.directions[along])
        return self._scores[along]

    def _compute_scores(self, direction: Sequence[Any]) -> list[Any]:
        scores = []
        for node in self.layout.nodes:
            u, log_q = direction[node], self.rows["log_q"][node]
            mean = self.system.add(self.system.exp(q) * x for q, x in zip(log_q, u, strict=True))
            scores += [x - mean for x in u]
        return scores

    def compute_score(self, place: Place, along: str = "u") -> Any:
        """Return the score of the token along a direction, or of the sequence."""
        scores = self.list_scores(along)
        return self.system.add(scores[b] for b in self.list_branches(place, ""))

    def enumerate_batches(
        self, n: int, measure: str, multisets: bool = False
    ) -> Iterator[tuple[tuple[int, ...], Any]]:
        """Yield all batches of n sequences with their probability under q, p, mu or old.

        multisets: a batch once, with the probability of all its orders together.
        """
        log = self.rows[f"log_{measure}"]
        masses = [self.system.exp(self.system.add(log[b] for b in path)) for path in self.paths]
        for batch, times in list_multisets(range(len(self.paths)), n, multisets):
            mass = self.system.multiply(masses[k] for k in batch)
            yield batch, mass if times == 1 else mass * self.system.lift(times)

    def list_branches(self, place: Place, slot: str) -> tuple[int, ...]:
        """Return the branches of a slot; without a slot, the token or the whole sequence."""
        path, t = self.paths[place.batch[place.i]], place.t
        if slot in ("x", "self") or (t is None and not slot and place.word is None):
            return path
        t = t or 0
        branches_of_token = path[t : t + 1] if place.word is None else (place.word,)
        return {"past": path[:t], "future": path[t + 1 :]}.get(slot, branches_of_token)

    def move(self, along: str) -> Self:
        """Return the world at theta + t u, in dual numbers with slopes in t; on-policy mu moves along."""
        system = build_duals(self.system)
        zero = self.system.zero
        rows = {name: [Dual(x, zero) for x in row] for name, row in self.rows.items()}
        scores = self.list_scores(along)
        rows["log_q"] = [Dual(x, s) for x, s in zip(self.rows["log_q"], scores, strict=True)]
        directions = {name: [Dual(x, zero) for x in row] for name, row in self.directions.items()}
        return replace(self, rows=rows, directions=directions, system=system)


def list_multisets(
    numbers: Sequence[int], size: int, multisets: bool = True
) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield tuples of numbers, each multiset once with the number of its orders, or all tuples.

    >>> [*list_multisets(range(2), 2)]
    [((0, 0), 1), ((0, 1), 2), ((1, 1), 1)]
    """
    if not multisets:
        yield from ((batch, 1) for batch in product(numbers, repeat=size))
        return
    for batch in combinations_with_replacement(numbers, size):
        times = math.factorial(size)
        for number in {*batch}:
            times //= math.factorial(batch.count(number))
        yield batch, times


def list_other_places(place: Place) -> Iterator[Place]:
    """Yield the whole sequences of the rest of a batch."""
    return (replace(place, i=j, t=None) for j in range(len(place.batch)) if j != place.i)


def read_model(node: Mapping[str, Any], on_policy: bool = False, system: System = DIGITS) -> World:
    """Return the world of a tree in the JSON of `kernel.models`, whose numbers are written as text.

    >>> from klsym.worlds.numbers import FLOATS
    >>> half = {name: ["1/2", "1/2"] for name in ("q", "p", "mu")}
    >>> node = {**half, "u": ["1", "0"], "v": ["0", "1"], "rewards": {"R": ["0", "2"]}, "next": [None, None]}
    >>> world = read_model(node, system=FLOATS)
    >>> world.paths, world.rows["R"], world.directions["v"]
    (((0,), (1,)), [0.0, 2.0], [0.0, 1.0])

    R and M are 0 where they are not given, and A is R.
    """
    columns: dict[str, list[Fraction]] = {}
    layout = build_layout(_read_node(node, columns))
    numbers = {name: [system.lift(x) for x in column] for name, column in columns.items()}
    rows = {name: numbers[name] for name in ("R", "M", "A")}
    rows |= {f"log_{n}": take_logs(columns[n], layout, system) for n in DENSITIES if n in columns}
    return World(
        layout, rows, {name: numbers[name] for name in ("u", "v")}, system=system, on_policy=on_policy
    )


def _read_node(node: Mapping[str, Any], columns: dict[str, list[Fraction]]) -> Shape:
    """Return the shape of a node; its numbers are added to the columns, before those of the next nodes."""
    rewards = {"R": ["0"] * len(node["q"]), "M": ["0"] * len(node["q"]), **node["rewards"]}
    rewards.setdefault("A", rewards["R"])
    lists = {name: row for name, row in node.items() if name not in ("rewards", "next")}
    for name, row in (lists | rewards).items():
        columns.setdefault(name, []).extend(map(Fraction, row))
    return tuple(None if after is None else _read_node(after, columns) for after in node["next"])


def take_logs(row: Sequence[Any], layout: Layout, system: System = DIGITS) -> list[Any]:
    """Return the logs of probabilities, made to add up to 1 at each node in all digits of the system.

    >>> from klsym.worlds.numbers import FLOATS
    >>> from klsym.worlds.tree import build_layout
    >>> [round(x, 3) for x in take_logs([1, 3], build_layout((None, None)), FLOATS)]
    [-1.386, -0.288]
    """
    logs = []
    for node in layout.nodes:
        numbers = [system.lift(x) for x in row[node]]
        total = system.add(numbers)
        logs += [system.log(system.divide(x, total)) for x in numbers]
    return logs
