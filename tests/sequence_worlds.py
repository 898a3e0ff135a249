"""Sequences and batches by enumeration: what the atoms at an index mean, word for word.

A `World` is a tree of tokens: q = softmax of the logits at each node, fixed p and mu, two directions u and v
of the logits, and the number n of independent samples of a batch.  Every sequence of the tree is a path to an
end, every batch a tuple of n sequences.  A row is a batch with one i (and one j != i, one step t), and a
variable in a slot is added up over the positions in the slot.  Derivatives are complex steps; a curl is
an outer central difference.  Shares no code with klsym.kernel or klsym.numeric.
"""

from __future__ import annotations

import copy
import re
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from klsym.normal_form import ExpPoly
from klsym.statements import (
    Context,
    Curl,
    Divergence,
    E,
    ExpectedGradient,
    Gradient,
    Indexed,
    IndexedGradient,
    MeanVariance,
    Point,
    PointGradient,
    Side,
    TokenDivergence,
)

STEP = 1e-30  # complex step: derivatives without cancellation
WIDTH = 0.01  # of the central difference of a curl, whose error is of order WIDTH**8
STENCIL = ((1, 4 / 5), (2, -1 / 5), (3, 4 / 105), (4, -1 / 280))
NAME = re.compile(r"([A-Za-z]\w*)('*)(?:\[(\w+)\])?")

END: tuple[Any, ...] = ()  # a node without branches: the sequence is over
THREE = (END, END, END)  # one token: the outcomes of a sample
TWO = (END, END)
DEEP = (END, (END, TWO))  # sequences of 1, 2, 3 and 3 tokens
WIDE = ((END, END, TWO), TWO)  # 2, 2, 3, 3 and 2, 2


class Row(NamedTuple):
    """Where a value at an index is taken: the sequences of a batch, one of them, another one, a step."""

    batch: tuple[int, ...]
    i: int = 0
    j: int = 0
    t: int = 0


class World:
    """A tree of sequences with everything that a statement speaks of."""

    def __init__(self, seed: int, context: Context | None = None, shape: Any = DEEP, n: int = 2) -> None:
        context, stream = context or Context(), np.random.default_rng(seed)
        self.paths: list[list[int]] = []
        self.node_of: list[int] = []  # of each token
        self.n, self.on_policy = n, context.on_policy
        self._grow(shape, [], [0])
        tokens = len(self.node_of)
        self.theta, p, mu, self.u, self.v, reward, other = stream.normal(size=(7, tokens)) * 0.7
        self.p = self.softmax(p)
        self.mu = self.softmax(self.theta if self.on_policy else mu)
        self.token = {"R": reward, "H": other, "length": np.ones(tokens)}
        self.parameters = dict(zip(("a", "beta", "nu"), stream.uniform(0.4, 1.6, 3), strict=True))
        self.parameters["n"] = float(n)
        self.within = np.array([[float(s in path) for s in range(tokens)] for path in self.paths])
        self.steps = [(y, t) for y, path in enumerate(self.paths) for t in range(len(path))]
        nodes = max(self.node_of) + 1
        sizes = {"past": nodes, "now": tokens, "future": len(self.steps), "x": len(self.paths)}
        self.known = {slot: stream.normal(size=size) for slot, size in sizes.items()}  # A, where it is known
        self.here = tuple(int(k) for k in stream.integers(len(self.paths), size=n))  # the batch "sample"
        self.rows: dict[str, list[Row]] = {}
        self.batches: dict[str, Any] = {}
        self.counts: dict[tuple[str, str], Any] = {}
        self._give(context, stream)

    def _grow(self, node: Any, path: list[int], count: list[int]) -> None:
        """Number the tokens of a tree and list its paths."""
        mine, count[0] = count[0], count[0] + 1
        first = len(self.node_of)
        self.node_of += [mine] * len(node)
        for k, after in enumerate(node):
            here = [*path, first + k]
            if after:
                self._grow(after, here, count)
            else:
                self.paths.append(here)

    def _give(self, context: Context, stream: Any) -> None:
        """Put in the values that the context gives at this theta."""
        for name, value in context.given:
            base, at_step = name.partition("[")[0], name.endswith("[now]")
            values = np.real(self.value(value, self.theta, "t" if at_step else "x"))
            if base == "A":
                slot = "now" if at_step else "x"
                self.known[slot][[self._place(slot, *s) for s in self.steps] if at_step else ...] = values
            elif at_step:
                self.token[base][[self.paths[y][t] for y, t in self.steps]] = values
            else:  # the last token brings the sum to the value
                last = [path[-1] for path in self.paths]
                self.token[base][last] += values - self.within @ self.token[base]

    # ------------------------------------------------------------------ densities
    def softmax(self, logits: Any) -> Any:
        weights, nodes = np.exp(logits), np.array(self.node_of)
        return weights / np.array([weights[nodes == k].sum() for k in nodes])

    def density(self, measure: str, theta: Any) -> Any:
        """Of each token given its prefix."""
        return {"q": self.softmax(theta), "p": self.p, "mu": self.mu}[measure]

    def mass(self, measure: str, theta: Any) -> Any:
        """Of each sequence."""
        density = self.density(measure, theta)
        return np.array([np.prod(density[path]) for path in self.paths])

    def score(self, direction: Any, theta: Any) -> Any:
        """Of each token: u - sum_x q u over its node."""
        nodes, mean = np.array(self.node_of), self.softmax(theta) * direction
        return direction - np.array([mean[nodes == k].sum() for k in nodes])

    def slope(self, function: Any, direction: Any = None) -> Any:
        """d/de function(theta + e u) at e = 0."""
        direction = self.u if direction is None else direction
        return np.imag(function(self.theta + 1j * STEP * direction)) / STEP

    def at(self, theta: Any) -> World:
        """The same world elsewhere: rewards stay, a sampler that is q moves along."""
        other = copy.copy(self)
        other.theta = theta
        if self.on_policy:
            other.mu = self.softmax(theta)
        return other

    # ------------------------------------------------------------------ rows and slots
    def rows_at(self, index: str) -> list[Row]:
        if index not in self.rows:
            self.rows[index] = list(self._rows(index))
        return self.rows[index]

    def _rows(self, index: str) -> Any:
        numbers, n = range(len(self.paths)), self.n
        if index == "x":
            yield from (Row((y,)) for y in numbers)
        elif index == "t":
            yield from (Row((y,), t=t) for y, t in self.steps)
        else:
            for batch in product(numbers, repeat=n):
                for i, j in product(range(n), repeat=2):
                    if index == "ij" and i != j:
                        yield Row(batch, i, j)
                    elif index == "i" and j == 0:
                        yield Row(batch, i)
                    elif index == "it" and j == 0:
                        yield from (Row(batch, i, t=t) for t in range(len(self.paths[batch[i]])))

    def in_slot(self, row: Row, index: str, slot: str) -> tuple[bool, list[int]]:
        """The positions in a slot: (False, tokens) or (True, whole sequences)."""
        path, everyone = self.paths[row.batch[row.i]], range(len(row.batch))
        tokens = {"past": path[: row.t], "now": [path[row.t]], "future": path[row.t + 1 :]}
        taken = (row.i, row.j) if index == "ij" else (row.i,)
        whole = {
            "x": [row.i], "self": [row.i], "other": [row.j],
            "others": [k for k in everyone if k not in taken],
            "rest": [k for k in everyone if k not in taken],
        }  # fmt: skip
        if slot in tokens:
            return False, tokens[slot]
        return True, [row.batch[k] for k in whole[slot]]

    def add_up(self, index: str, slot: str, tokens: Any) -> Any:
        """The sums over the positions in a slot, at every row; `tokens` may be (of tokens, of sequences)."""
        if (index, slot) not in self.counts:
            found = [self.in_slot(row, index, slot) for row in self.rows_at(index)]
            size = len(self.paths) if found[0][0] else len(self.node_of)
            counts = np.array([np.bincount(of, minlength=size)[:size] for _, of in found], dtype=float)
            self.counts[index, slot] = found[0][0], counts
        whole, counts = self.counts[index, slot]
        of_tokens, of_sequences = tokens if isinstance(tokens, tuple) else (tokens, self.within @ tokens)
        return counts @ (of_sequences if whole else of_tokens)

    def _place(self, slot: str, y: int, t: int) -> int:
        """Where A is looked up: it knows y_<t, y_<=t, or everything at step t."""
        token = self.paths[y][t]
        return {"past": self.node_of[token], "now": token, "future": self.steps.index((y, t))}[slot]

    # ------------------------------------------------------------------ variables
    def variable(self, name: str, theta: Any, index: str) -> Any:
        """A variable at every row; sg(.) looks at the logits that are not varied."""
        if name in self.parameters:
            return self.parameters[name]
        if name.startswith("sg("):
            name, theta = name[3:-1], self.theta
        match = NAME.fullmatch(name)
        assert match, name
        base, primes, slot = match[1], len(match[2]), match[3] or "x"
        if base == "A" and slot in ("past", "now", "future"):
            rows = self.rows_at(index)
            return self.known[slot][[self._place(slot, row.batch[row.i], row.t) for row in rows]]
        if base == "A":  # of one sample, or any function of all the others
            total = self.add_up(index, slot, (None, self.known["x"]))
            return np.cos(total) if slot in ("others", "rest") else total
        if base in self.token:
            return self.add_up(index, slot, self.token[base])
        log_q = np.log(self.softmax(theta))
        live = {"log_q": log_q, "k1": log_q - np.log(self.p), "w": log_q - np.log(self.mu)}
        if base in live:
            return self.add_up(index, slot, live[base])
        wholes = {key: self.within @ of for key, of in live.items()}
        return self.add_up(index, slot, (function(base, primes, live), function(base, primes, wholes)))

    def value(self, element: ExpPoly, theta: Any, index: str) -> Any:
        one = np.ones(len(self.rows_at(index)))

        def power_product(powers: Any) -> Any:
            total = one
            for name, power in powers:
                total = total * self.variable(name, theta, index) ** float(power)
            return total

        total = 0 * one
        for (powers, exponent), factor in element.terms.items():
            inside = sum((float(c) * power_product(m) for m, c in exponent), 0 * one)
            total = total + float(factor) * power_product(powers) * np.exp(inside)
        return total

    def scores(self, entries: tuple[str, ...], theta: Any, index: str) -> Any:
        total = np.ones(len(self.rows_at(index)))
        for entry in entries:
            direction = self.v if entry.endswith("'") else self.u
            total = total * self.add_up(index, entry.removesuffix("'"), self.score(direction, theta))
        return total

    # ------------------------------------------------------------------ atoms
    def mean(self, index: str, measure: str, values: Any, theta: Any) -> Any:
        """E[value], E[mean_i ..], E[mean_{j != i} ..] or E[sum_t ..]; at one sample, the value there."""
        rows = self.rows_at(index)
        if measure == "sample":
            chosen = self.here if index in ("i", "ij", "it") else self.here[:1]
            last = self.n - 1 if index == "ij" else 0
            return sum(values[k] for k, row in enumerate(rows) if row[:3] == (chosen, 0, last))
        if index not in self.batches:
            self.batches[index] = np.array([row.batch for row in rows])
        each = {"i": self.n, "ij": self.n * (self.n - 1), "it": self.n}.get(index, 1)
        return self.mass(measure, theta)[self.batches[index]].prod(axis=1) @ values / each

    def atom(self, atom: Any, theta: Any) -> Any:
        match atom:
            case Point(of, score):
                return self.atom(Indexed("x", "sample", of, score), theta)
            case E(m, of, score):
                return self.atom(Indexed("x", m, of, score), theta)
            case Indexed(index, m, of, score):
                values = self.value(of, theta, index) * self.scores(score, theta, index)
                return self.mean(index, m, values, theta)
            case TokenDivergence(m, a, b, False):
                return self.mean("t", m, self.next_token(a, b, theta), theta)
            case Divergence("KL", a, b):
                log_a, log_b = (np.log(self.mass(m, theta)) for m in (a, b))
                return (np.exp(log_a) * (log_a - log_b)).sum()
            case MeanVariance(m, of, score):
                return self.variance(m, self.value(of, theta, "i") * self.scores(score, theta, "i"), theta)
        assert not np.iscomplexobj(theta), "a gradient of a gradient"
        return self.derivative(atom, theta)

    def derivative(self, atom: Any, theta: Any) -> Any:
        match atom:
            case ExpectedGradient(m, loss):
                return self.mean("x", m, self.slope(lambda t: self.value(loss, t, "x")), theta)
            case PointGradient(loss):
                return self.mean("x", "sample", self.slope(lambda t: self.value(loss, t, "x")), theta)
            case IndexedGradient(index, m, loss):
                return self.mean(index, m, self.slope(lambda t: self.value(loss, t, index)), theta)
            case TokenDivergence(m, a, b, True):
                return self.mean("t", m, self.slope(lambda t: self.next_token(a, b, t)), theta)
            case Curl(m, loss):
                return self.curl(m, loss)
            case Gradient(side):
                return self.slope(lambda t: self.side(side, t))
        raise AssertionError(atom)

    def next_token(self, a: str, b: str, theta: Any) -> Any:
        """KL(a(.|y_<t)||b(.|y_<t)) at every step of every sequence."""
        nodes, over, under = np.array(self.node_of), self.density(a, theta), self.density(b, theta)
        part = over * np.log(over / under)
        at_node = [part[nodes == k].sum() for k in range(nodes.max() + 1)]
        return np.array([at_node[self._place("past", y, t)] for y, t in self.steps])

    def variance(self, measure: str, values: Any, theta: Any) -> Any:
        """Var(mean_i X_i) over all batches."""
        means = values.reshape(-1, self.n).mean(axis=1)
        batches = np.array([row.batch for row in self.rows_at("i")[:: self.n]])
        weights = self.mass(measure, theta)[batches].prod(axis=1)
        return (weights * means**2).sum() - (weights * means).sum() ** 2

    def field(self, measure: str, loss: ExpPoly, direction: Any) -> float:
        """F.u = E_m[sum_t grad L].u"""
        slope = self.slope(lambda t: self.value(loss, t, "t"), direction)
        return float(self.mean("t", measure, slope, self.theta))

    def curl(self, measure: str, loss: ExpPoly) -> float:
        """d_v F.u - d_u F.v"""
        total = 0.0
        for (along, component), sign in (((self.v, self.u), 1), ((self.u, self.v), -1)):
            for k, weight in STENCIL:
                ends = [self.at(self.theta + e * k * WIDTH * along) for e in (1, -1)]
                after, before = (world.field(measure, loss, component) for world in ends)
                total += sign * weight * (after - before) / WIDTH
        return total

    def side(self, side: Side, theta: Any = None) -> Any:
        theta = self.theta if theta is None else theta
        total = 0.0
        for factor, atoms in side.terms:
            scale = self.value(factor, theta, "x")
            assert np.ptp(scale.real) == 0, "a random coefficient outside its mean"
            total = total + scale[0] * np.prod([self.atom(atom, theta) for atom in atoms])
        return total


def function(base: str, primes: int, live: dict[str, Any]) -> Any:
    """f = sin(z), z = 0.7 k1 - 0.4 w + 0.3 log q, so dz/dlog q = 0.6; g = sin(0.9 k1 + 0.2)."""
    if base == "f":
        z, rate = 0.7 * live["k1"] - 0.4 * live["w"] + 0.3 * live["log_q"], 0.6
    else:
        z, rate = 0.9 * live["k1"] + 0.2, 0.9
    return rate**primes * np.sin(z + primes * np.pi / 2)


def same(before: Any, after: Any, slack: float = 1e-8) -> bool:
    return bool(abs(before - after) <= slack * (1 + abs(before) + abs(after)))


def world_of(tree: dict[str, Any], parameters: dict[str, str], n: int = 2) -> World:
    """The world that the numbers of a finite model of sequences describe."""

    def shape(node: Any) -> Any:
        return tuple(END if after is None else shape(after) for after in node["next"])

    def nodes(node: Any) -> Any:
        yield node
        for after in node["next"]:
            if after is not None:
                yield from nodes(after)

    def rows(name: str) -> Any:
        return np.array([float(Fraction(x)) for node in nodes(tree) for x in node[name]])

    world = World(0, None, shape(tree), n)
    world.theta = np.log(rows("q"))
    world.p, world.mu, world.u, world.v = (rows(name) for name in ("p", "mu", "u", "v"))
    world.token["R"] = rows("R")
    world.parameters |= {name: float(Fraction(x)) for name, x in parameters.items()}
    return world
