"""Sequences and batches by enumeration: what a side means, word for word.

A `World` is a tree of tokens: q = softmax of the logits at each node, fixed p and mu, two directions u and v
of the logits, and the number n of independent samples of a batch.  Every sequence of the tree is a path to an
end, every batch a tuple of n sequences.  A row is a batch with one i (and one j != i, one step t), and a
variable in a slot is added up over the positions in the slot.  Derivatives are complex steps; a curl is an
outer central difference.  Shares no code with klsym.kernel or klsym.numeric.

Densities may be 0 in a world with gaps: a term that holds a positive power of such a density is 0 there, and
a mean that holds another power of it, or its log, has no value (`NoValue`).
"""

from __future__ import annotations

import copy
import re
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from klsym.ring import ExpPoly
from klsym.statements import Context, Curl, Gradient, Mean, MeanGradient, Side

STEP = 1e-30  # complex step: derivatives without cancellation
WIDTH = 0.01  # of the central difference of a curl, whose error is of order WIDTH**8
STENCIL = ((1, 4 / 5), (2, -1 / 5), (3, 4 / 105), (4, -1 / 280))
NAME = re.compile(r"([A-Za-z]\w*)('*)(?:\[(\w+)\])?")
HOLDS = {"k1": {"q": 1, "p": -1}, "w": {"q": 1, "mu": -1}, "log_q": {"q": 1}}  # powers in exp of it
TOKENS = ("past", "now", "future")

END: tuple[Any, ...] = ()  # a node without branches: the sequence is over
TWO, THREE = (END, END), (END, END, END)  # one token: the outcomes of a sample
DEEP = (END, (END, TWO))  # sequences of 1, 2, 3 and 3 tokens
WIDE = ((END, END, TWO), TWO)  # 2, 2, 3, 3 and 2, 2


class NoValue(Exception):
    """A mean has no value where densities are 0."""


class Row(NamedTuple):
    """Where a value at an index is taken: the sequences of a batch, one of them, another one, a step."""

    batch: tuple[int, ...]
    i: int = 0
    j: int = 0
    t: int = 0


class World:
    """A tree of sequences with everything that a statement speaks of."""

    def __init__(
        self, seed: int, context: Context | None = None, shape: Any = DEEP, n: int = 2, gaps: float = 0
    ) -> None:
        stream = np.random.default_rng(seed)
        self.paths: list[list[int]] = []
        self.node_of: list[int] = []  # of each token
        self.n = n
        self._grow(shape, [], [0])
        tokens = len(self.node_of)
        self.theta, p, mu, self.u, self.v, reward, other = stream.normal(size=(7, tokens)) * 0.7
        self.full = np.ones((3, tokens))  # where q, p and mu are not 0
        if gaps:
            self._thin(stream, gaps)
        self.p, self.mu = self._normed(np.exp(p) * self.full[1]), self._normed(np.exp(mu) * self.full[2])
        self.token = {"R": reward, "H": other, "length": np.ones(tokens)}
        names = context.parameters if context else ()
        self.parameters = dict(zip(names, stream.uniform(0.4, 1.6, len(names)), strict=True)) | {
            "n": float(n)
        }
        self.within = np.array([[float(s in path) for s in range(tokens)] for path in self.paths])
        self.steps = [(y, t) for y, path in enumerate(self.paths) for t in range(len(path))]
        nodes = max(self.node_of) + 1
        sizes = {"past": nodes, "now": tokens, "future": len(self.steps), "x": len(self.paths)}
        self.known = {slot: stream.normal(size=size) for slot, size in sizes.items()}  # A, where it is known
        possible = [y for y, path in enumerate(self.paths) if self.full[:, path].all()]
        chosen = stream.integers(len(possible), size=n) if possible else ()
        self.here = tuple(possible[k] for k in chosen)  # the batch "sample", where it can be drawn
        self.rows: dict[str, list[Row]] = {}
        self.counts: dict[tuple[str, str], Any] = {}

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

    def _thin(self, stream: Any, gaps: float) -> None:
        """Set densities to 0, at each node all but one at most."""
        nodes = np.array(self.node_of)
        for row in self.full:
            row[:] = stream.uniform(size=len(row)) >= gaps
            for k in range(nodes.max() + 1):
                (mine,) = np.nonzero(nodes == k)
                row[stream.choice(mine)] = 1

    # ------------------------------------------------------------------ densities
    def _normed(self, weights: Any) -> Any:
        nodes = np.array(self.node_of)
        return weights / np.array([weights[nodes == k].sum() for k in nodes])

    def density(self, measure: str, theta: Any) -> Any:
        """Of each token given its prefix."""
        if measure == "count":
            return np.ones(len(self.node_of))
        return {"p": self.p, "mu": self.mu}[measure] if measure != "q" else self._normed(
            np.exp(theta) * self.full[0])  # fmt: skip

    def within_support(self, over: str, under: str) -> bool:
        """over << under, after any prefix."""
        lies_in = dict(zip(("q", "p", "mu"), self.full, strict=True)) | {"count": self.full[0] * 0 + 1}
        return bool((lies_in[over] <= lies_in[under]).all())

    def score(self, direction: Any, theta: Any) -> Any:
        """Of each token: u - sum_x q u over its node."""
        nodes, mean = np.array(self.node_of), self.density("q", theta) * direction
        return direction - np.array([mean[nodes == k].sum() for k in nodes])

    def slope(self, function: Any, direction: Any = None) -> Any:
        """d/de function(theta + e u) at e = 0."""
        direction = self.u if direction is None else direction
        return np.imag(function(self.theta + 1j * STEP * direction)) / STEP

    def at(self, theta: Any) -> World:
        """The same world elsewhere: rewards, p and mu stay."""
        other = copy.copy(self)
        other.theta = theta
        return other

    # ------------------------------------------------------------------ rows and slots
    def rows_at(self, index: str) -> list[Row]:
        if index not in self.rows:
            self.rows[index] = list(self._rows(index))
        return self.rows[index]

    def _rows(self, index: str) -> Any:
        numbers, n = range(len(self.paths)), self.n
        if index == "":
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
        left = [k for k in everyone if k not in taken]
        whole = {"x": [row.i], "self": [row.i], "other": [row.j], "others": left, "rest": left}
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
        base, primes, slot = parsed(name)
        rows = self.rows_at(index)
        if base == "A" and slot in TOKENS:
            return self.known[slot][[self._place(slot, row.batch[row.i], row.t) for row in rows]]
        if base == "A":  # any function of the samples in the slot, here of their order as well
            taken = [self.in_slot(row, index, slot)[1] for row in rows]
            return np.array([sum(np.sin((k + 1) * self.known["x"][y]) + k for k, y in enumerate(of)) ** 3
                             for of in taken])  # fmt: skip
        if base in self.token:
            return self.add_up(index, slot, self.token[base])
        live = self._logs(theta)
        if base in live:
            return self.add_up(index, slot, live[base])
        wholes = {key: self.within @ of for key, of in live.items()}
        return self.add_up(index, slot, (function(base, primes, live), function(base, primes, wholes)))

    def _logs(self, theta: Any) -> dict[str, Any]:
        """log 0 is 0 here: where it would matter there is no value."""
        log = {m: np.log(np.where(full, self.density(m, theta), 1))
               for m, full in zip(("q", "p", "mu"), self.full, strict=True)}  # fmt: skip
        return {"log_q": log["q"], "k1": log["q"] - log["p"], "w": log["q"] - log["mu"]}

    def value(self, element: ExpPoly, theta: Any, index: str, entries: tuple[str, ...] = ()) -> Any:
        """A coefficient at every row; where it has no value, not a number."""
        one = np.ones(len(self.rows_at(index)))

        def power_product(powers: Any) -> Any:
            total = one
            for name, power in powers:
                total = total * self.variable(name, theta, index) ** float(power)
            return total

        total = 0 * one
        for (powers, exponent), factor in element.terms.items():
            inside = sum((float(c) * power_product(m) for m, c in exponent), 0 * one)
            term = float(factor) * power_product(powers) * np.exp(inside)
            total = total + (
                term if self.full.all() else self._mended(term, powers, exponent, entries, index)
            )
        return total

    def _mended(self, term: Any, powers: Any, exponent: Any, entries: tuple[str, ...], index: str) -> Any:
        """One term where densities are 0: 0 for a positive power of one of them, else without value."""
        vanishes, lost = np.zeros(len(term), bool), np.zeros(len(term), bool)
        for part in PARTS[index]:
            for density, full in zip(("q", "p", "mu"), self.full, strict=True):
                power, known = self._power(density, part, exponent)
                beside = [name for name, _ in powers if self._speaks(name, part, density)]
                beside += [z for z in entries if density == "q" and covers(z.removesuffix("'"), part)]
                here = self.add_up(index, part, 1 - full) > 0
                vanishes |= here & (known and power > 1e-9)
                lost |= here & (not known or power < -1e-9 or bool(beside))
        return np.where(vanishes, 0, np.where(lost, np.nan, term))

    def _power(self, density: str, part: str, exponent: Any) -> tuple[float, bool]:
        """The power of a density in exp of an exponent, if it is a number."""
        total = 0.0
        for monomial, coefficient in exponent:
            held = [name for name, _ in monomial if self._speaks(name, part, density)]
            constants = [self.parameters[n] ** power for n, power in monomial if n in self.parameters]
            if held and (len(constants) + 1 != len(monomial) or dict(monomial)[held[0]] != 1):
                return 0.0, False
            for name in held:
                if name.startswith(("f", "g", "sg(f", "sg(g")):
                    return 0.0, False
                base = parsed(name.removeprefix("sg(").removesuffix(")"))[0]
                total += float(coefficient) * float(np.prod(constants)) * HOLDS[base][density]
        return total, True

    def _speaks(self, name: str, part: str, density: str) -> bool:
        if name in self.parameters:
            return False
        base, _, slot = parsed(name.removeprefix("sg(").removesuffix(")"))
        return covers(slot, part) and (base in ("f", "g") or density in HOLDS.get(base, ()))

    def scores(self, entries: tuple[str, ...], theta: Any, index: str) -> Any:
        total = np.ones(len(self.rows_at(index)))
        for entry in entries:
            direction = self.v if entry.endswith("'") else self.u
            total = total * self.add_up(index, entry.removesuffix("'"), self.score(direction, theta))
        return total

    # ------------------------------------------------------------------ atoms
    def mean(self, index: str, measure: str, values: Any, theta: Any) -> Any:
        """E[value], E[mean_i ..], E[mean_{j != i} ..] or E[sum_t ..]; at one sample, the value there."""
        rows, each = self.rows_at(index), {"i": self.n, "ij": self.n * (self.n - 1), "it": self.n}
        if measure == "sample":
            if not self.here:
                raise NoValue
            chosen = self.here if index in each else self.here[:1]
            last = self.n - 1 if index == "ij" else 0
            weights = np.array([float(row[:3] == (chosen, 0, last)) for row in rows])
        else:
            density = self.density(measure, theta)
            mass = np.array([np.prod(density[path]) for path in self.paths])
            weights = mass[np.array([row.batch for row in rows])].prod(axis=1) / each.get(index, 1)
        values = values[weights != 0]
        if np.isnan(values).any():
            raise NoValue
        return weights[weights != 0] @ values

    def atom(self, atom: Any, theta: Any) -> Any:
        match atom:
            case Mean(index, m, of, score):
                values = self.value(of, theta, index, score) * self.scores(score, theta, index)
                return self.mean(index, m, values, theta)
            case MeanGradient(index, m, loss):
                return self.mean(index, m, self.slope(lambda t: self.value(loss, t, index)), self.theta)
            case Curl(index, m, loss):
                return self.curl(index, m, loss)
            case Gradient(side):
                return self.slope(lambda t: self.side(side, t))
        raise AssertionError(atom)

    def field(self, index: str, measure: str, loss: ExpPoly, direction: Any) -> float:
        """F.u = E_m[grad L].u"""
        slope = self.slope(lambda t: self.value(loss, t, index), direction)
        return float(self.mean(index, measure, slope, self.theta))

    def curl(self, index: str, measure: str, loss: ExpPoly) -> float:
        """d_v F.u - d_u F.v"""
        total = 0.0
        for (along, component), sign in (((self.v, self.u), 1), ((self.u, self.v), -1)):
            for k, weight in STENCIL:
                ends = [self.at(self.theta + e * k * WIDTH * along) for e in (1, -1)]
                after, before = (world.field(index, measure, loss, component) for world in ends)
                total += sign * weight * (after - before) / WIDTH
        return total

    def side(self, side: Side, theta: Any = None) -> Any:
        theta, total = self.theta if theta is None else theta, 0.0
        for factor, atoms in side.terms:
            assert factor.names() <= set(self.parameters), "a random coefficient outside its mean"
            total = total + self.value(factor, theta, "")[0] * np.prod([self.atom(x, theta) for x in atoms])
        return total


PARTS = {
    "": ("x",), "i": ("self", "others"), "ij": ("self", "other", "rest"),
    "t": TOKENS, "it": (*TOKENS, "others"),
}  # fmt: skip


def parsed(name: str) -> tuple[str, int, str]:
    """The base, the primes and the slot of a variable."""
    match = NAME.fullmatch(name)
    assert match, name
    return match[1], len(match[2]), match[3] or "x"


def covers(slot: str, part: str) -> bool:
    """The whole of a sequence holds its past, now and future."""
    return slot == part or (slot == "x" and part in TOKENS)


def function(base: str, primes: int, live: dict[str, Any]) -> Any:
    """f = sin(z), z = 0.7 k1 - 0.4 w + 0.3 log q, so dz/dlog q = 0.6; g = sin(0.9 k1 + 0.2)."""
    if base == "f":
        z, rate = 0.7 * live["k1"] - 0.4 * live["w"] + 0.3 * live["log_q"], 0.6
    else:
        assert base == "g", base
        z, rate = 0.9 * live["k1"] + 0.2, 0.9
    return rate**primes * np.sin(z + primes * np.pi / 2)


def same(before: Any, after: Any, slack: float = 1e-8) -> bool:
    return bool(abs(before - after) <= slack * (1 + abs(before) + abs(after)))


def world_of(model: dict[str, Any]) -> World:
    """The world that the numbers of a finite model describe."""

    def shape(node: Any) -> Any:
        return tuple(END if after is None else shape(after) for after in node["next"])

    def nodes(node: Any) -> Any:
        yield node
        for after in node["next"]:
            if after is not None:
                yield from nodes(after)

    def rows(name: str) -> Any:
        return np.array([number(x) for node in nodes(model["tree"]) for x in node[name]])

    parameters = {name: number(x) for name, x in model["parameters"].items()}
    world = World(0, None, shape(model["tree"]), int(parameters.get("n", 2)))
    world.theta = np.log(rows("q"))
    world.p, world.mu, world.u, world.v = (rows(name) for name in ("p", "mu", "u", "v"))
    for name in {name for node in nodes(model["tree"]) for name in node["rewards"]}:
        rewards = [node["rewards"].get(name, ["0"] * len(node["q"])) for node in nodes(model["tree"])]
        world.token[name] = np.array([number(x) for paid in rewards for x in paid])
    world.known["now"] = world.token.get("A", world.known["now"])
    world.parameters |= parameters
    if model["path"]:
        world.here = (_number_of(world, model["path"], model["tree"]),) * world.n
    return world


def _number_of(world: World, path: list[int], tree: Any) -> int:
    """The sequence that a list of branches leads to, counted as the enumeration does."""
    before = 0
    for branch in path:
        before += sum(_leaves(after) for after in tree["next"][:branch])
        tree = tree["next"][branch]
    return before


def _leaves(node: Any) -> int:
    return 1 if node is None else sum(_leaves(after) for after in node["next"])


def number(text: str) -> float:
    return float(Fraction(text))
