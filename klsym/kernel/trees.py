"""Finite models of sequences: trees of rational conditional probabilities.  Trusted; standard library only.

Each node holds q, p, mu on its branches, two directions u and v of the softmax logits of q, the token
rewards R, and what follows each branch: another node, or nothing, which ends the sequence.  A sequence is a
path from the root to an end; a log ratio, a reward, the length and the score function are sums over it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import Any

from klsym.errors import Refused
from klsym.kernel.derivatives import LOG_RATIOS
from klsym.kernel.intervals import Interval
from klsym.kernel.model import coefficient
from klsym.names import SAMPLE, Name
from klsym.normal_form import ExpPoly, read_number
from klsym.slots import SECOND, SEQUENCE, slot_of_score
from klsym.statements import Atom, Context, E, Indexed, Score

NODE = {"q", "p", "mu", "u", "v", "R", "next"}
LARGEST = 2000  # sequences, and steps of one
MOST_WORK = 100_000  # sum of T^2 over sequences: each step looks at all others


@dataclass(frozen=True)
class Step:
    """A token: its probability given the prefix under each measure, the scores along u and v, its reward."""

    q: Fraction
    p: Fraction
    mu: Fraction
    u: Fraction
    v: Fraction
    R: Fraction


Path = tuple[Step, ...]


@dataclass(frozen=True)
class Tree:
    """All sequences of a model, and the values of parameters."""

    sequences: tuple[Path, ...]
    parameters: Mapping[str, Fraction]

    @staticmethod
    def from_json(data: Any, context: Context) -> Tree:
        """Read and validate; raises Refused unless every node holds full-support distributions."""
        if not isinstance(data, dict) or set(data) != {"tree", "parameters"}:
            raise Refused("finite model: the keys ['parameters', 'tree'] expected")
        sequences, work = [], 0
        for path in _paths(data["tree"], (), context):
            sequences.append(path)
            work += len(path) ** 2
            if len(sequences) > LARGEST or work > MOST_WORK:
                raise Refused(f"finite model: more than {LARGEST} sequences, or too long ones")
        parameters = {name: Fraction(read_number(v)) for name, v in data["parameters"].items()}
        if set(parameters) - set(context.parameters):
            raise Refused("finite model: a value for an undeclared parameter")
        return Tree(tuple(sequences), parameters)

    def mean(self, atom: Atom) -> Interval:
        """What a mean over sequences is worth; raises Refused for other atoms."""
        match atom:
            case E(m, a, score) if m != "count":
                return self._sum(m, a, score, whole=True)
            case Indexed("t", m, a, score) if m != SAMPLE:
                return self._sum(m, a, score, whole=False)
        raise Refused(f"finite model: {type(atom).__name__} must be reduced to means over sequences first")

    def _sum(self, measure: str, a: ExpPoly, score: Score, whole: bool) -> Interval:
        """sum_y m(y) a s..s, or sum_y m(y) sum_t a s..s."""
        total = Interval.exact(0)
        for path in self.sequences:
            weight = prod((getattr(step, measure) for step in path), start=Fraction(1))
            for t in range(1 if whole else len(path)):
                at = Position(path, t, self.parameters)
                scores = prod((at.score(entry) for entry in score), start=Fraction(1))
                if scores:
                    total = total + Interval.exact(weight * scores) * coefficient(a, at)
        return total


def _paths(node: Any, prefix: Path, context: Context) -> Iterator[Path]:
    if len(prefix) >= LARGEST:
        raise Refused(f"finite model: a sequence of more than {LARGEST} steps")
    steps, following = _steps(node, context)
    for step, after in zip(steps, following, strict=True):
        if after is None:
            yield (*prefix, step)
        else:
            yield from _paths(after, (*prefix, step), context)


def _steps(node: Any, context: Context) -> tuple[list[Step], list[Any]]:
    """The branches of one node, their scores u - sum_x q u, and what follows each."""
    if not isinstance(node, dict) or set(node) != NODE:
        raise Refused(f"finite model: a node has the keys {sorted(NODE)}")
    if any(not isinstance(row, list) or len(row) != len(node["next"]) for row in node.values()):
        raise Refused("finite model: the lists of a node differ in length")
    rows = {n: [Fraction(read_number(item)) for item in node[n]] for n in NODE - {"next"}}
    for name in ("q", "p", "mu"):
        if min(rows[name], default=0) <= 0 or sum(rows[name]) != 1:
            raise Refused(f"finite model: {name} is no full-support distribution")
    if context.on_policy and rows["mu"] != rows["q"]:
        raise Refused("finite model: on-policy, mu must equal q")
    for name in ("u", "v"):
        mean = sum((a * b for a, b in zip(rows["q"], rows[name], strict=True)), Fraction(0))
        rows[name] = [value - mean for value in rows[name]]
    count = len(node["next"])
    return [Step(**{n: rows[n][i] for n in NODE - {"next"}}) for i in range(count)], node["next"]


@dataclass(frozen=True)
class Position:
    """A step of a sequence, counted from 0."""

    path: Path
    t: int
    parameters: Mapping[str, Fraction]

    @cached_property
    def _slots(self) -> dict[str, Path]:
        past, now, future = self.path[: self.t], self.path[self.t : self.t + 1], self.path[self.t + 1 :]
        return dict(zip((*SEQUENCE, "x"), (past, now, future, self.path), strict=True))

    def ratio(self, name: Name) -> Fraction | None:
        """The log ratio of a slot is the log of a product over its steps."""
        if name.base not in LOG_RATIOS:
            return None
        under = {"k1": "p", "w": "mu", "log_q": ""}[name.base]
        ratios = (step.q / (getattr(step, under) if under else 1) for step in self._slots[name.slot])
        return prod(ratios, start=Fraction(1))

    def number(self, name: Name) -> Fraction | None:
        if name.base == "length":
            return Fraction(len(self._slots[name.slot]))
        if name.base == "R":
            return sum((step.R for step in self._slots[name.slot]), Fraction(0))
        return None

    def score(self, entry: str) -> Fraction:
        """The score function of a slot along u, or along v where it is marked so."""
        along = "v" if entry.endswith(SECOND) else "u"
        steps = self._slots[slot_of_score(entry)]
        return sum((getattr(step, along) for step in steps), Fraction(0))
