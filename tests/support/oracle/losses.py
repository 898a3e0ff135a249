"""What a loss is worth and which way it pushes: all sequences of a tree, and all batches of them.

A loss is text, walked in Python's own `ast`; every name has its definition here.  Numbers are jets: the axis
`a` is the derivative that autograd takes at a sample, along every logit, and `b` that of the world itself.
sg(.) is what `a` does not see, and so is the mass of a sample.  With m = q on-policy, detached,

    F = E_m[sum_t grad L_t]      a loss              F = E_m[sum_t (sum_u L_u) s_t]      a reward

is the part `a` of a mean, and its Jacobian, symmetric where F is the gradient of anything, the part `ab`.
A single sample is a tree of one step.  Many worlds stand side by side in one array.

>>> forest = Forest(samples(seed=1, copies=2), ("off-policy",))
>>> bool(np.allclose(forest.field("rho*k3").a, forest.slope("k1").a, rtol=1e-12))
True
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from .grammar import ATOMS, DERIVED, SLOTS, Names, derived, evaluate, jet, largest, parsed, plain, sg
from .numbers import Jet, choose, exp, power

SPREAD = 0.6  # of the logits: ratios stay within about [0.1, 10], so that powers stay moderate
CELLS = ((-1.25, 2.0), (0.75, -1.5))  # the two values of R, the two values of A
# The same in every world, so that a multiple that holds a parameter is one number; otherwise arbitrary.
PARAMETERS = {"lam": 0.371, "beta": 1.427, "eps": 0.193, "alpha": 0.613, "n": 7.0, "T": 11.0}


# ---------------------------------------------------------------------------- worlds
@dataclass(frozen=True, eq=False)
class Node:
    """A prefix: logits of q, log p, log mu, R, log old and M on its branches, and what follows each."""

    logits: Any
    log_p: Any
    log_mu: Any
    R: Any
    after: tuple[Node | None, ...]
    log_old: Any = None
    M: Any = None


@dataclass(frozen=True, eq=False)
class Tree:
    """All sequences; A is any number for each of them, and for each sequence and step what now(A) may be."""

    root: Node
    A: Any
    parameters: Mapping[str, float] = field(default_factory=dict)


def node(logits: Any, p: Any, mu: Any, R: Any, after: Any = None) -> Node:
    p, mu = np.asarray(p, float), np.asarray(mu, float)
    after = after or (None,) * len(p)
    return Node(np.asarray(logits, float), np.log(p), np.log(mu), np.asarray(R, float), tuple(after))


def sample(q: Any, p: Any, mu: Any, R: Any, A: Any, parameters: Any = None) -> Tree:
    """A single sample with these probabilities."""
    return Tree(node(np.log(np.asarray(q, float)), p, mu, R), np.asarray(A, float), parameters or {})


def samples(seed: int, copies: int = 4, rewards: str = "generic") -> list[Tree]:
    """Random worlds of one sample with 2 to 5 outcomes."""
    return [tree for size in (2, 3, 4, 5) for tree in trees(seed + size, ((),) * size, copies, rewards)]


def trees(
    seed: int, shape: Any, copies: int = 4, rewards: str = "generic", spread: float = SPREAD
) -> list[Tree]:
    """Random worlds of a shape, which is for each branch the shape of what follows, or ().

    For "cells" rewards have one of two values each: any function h(R, A) of one sample is four numbers.
    """
    stream, more = np.random.default_rng(seed), np.random.default_rng([seed, 1])

    def drawn(size: int, which: int) -> Any:
        cells = np.array(CELLS[which])
        return cells[stream.integers(2, size=size)] if rewards == "cells" else stream.normal(size=size)

    def grown(shape: Any) -> Node:
        logits, p, mu = stream.normal(scale=spread, size=(3, len(shape)))
        after = tuple(grown(branch) if branch else None for branch in shape)
        old, M = more.normal(scale=SPREAD, size=len(shape)), more.integers(2, size=len(shape)) * 1.0
        return Node(logits, p - np.log(np.exp(p).sum()), mu - np.log(np.exp(mu).sum()),
                    drawn(len(shape), 0), after, old - np.log(np.exp(old).sum()), M)  # fmt: skip

    def leaves(shape: Any) -> int:
        return sum(leaves(branch) if branch else 1 for branch in shape)

    return [Tree(grown(shape), drawn(leaves(shape), 1)) for _ in range(copies)]


@dataclass(frozen=True)
class Setting:
    """How a loss is used; n: the size of a batch that is enumerated."""

    sampling: str = "on-policy"
    use: str = "loss"
    level: str = "sample"
    batch: str = "none"
    credit: str = "to-go"
    weights: str = "token"
    aggregate: str = "sum"
    n: int = 2


class Rows:
    """Where a loss is evaluated: whole sequences, or their steps; which tokens stand in which slot."""

    def __init__(self, forest: Forest, stepwise: bool) -> None:
        steps = [
            (k, t) for k, path in enumerate(forest.paths) for t in (range(len(path)) if stepwise else [0])
        ]
        self.path, self.step = (np.array(column) for column in zip(*steps, strict=True))
        self.world = forest.world_of[self.path]
        self.length = np.array([float(len(forest.paths[k])) for k in self.path])
        self.slots, self.cache = dict[str, Any](), dict[Any, Any]()
        for slot in ("past", "now", "future", "x") if stepwise else ("x",):
            self.slots[slot] = np.zeros((len(forest.token), len(steps)))
            for row, (k, t) in enumerate(steps):
                path = forest.paths[k]
                of = {"past": path[:t], "now": path[t : t + 1], "future": path[t + 1 :], "x": path}[slot]
                self.slots[slot][of, row] = 1


class Forest:
    """Worlds side by side, under one way of sampling."""

    def __init__(self, worlds: list[Tree], sampling: Any = ("on-policy",), second: bool = False) -> None:
        self.worlds, self.sampling, self.second = worlds, sampling[0], second
        self.on_policy = self.sampling == "on-policy"
        self.paths: list[list[int]] = []
        self.token: list[tuple[Node, int, int]] = []  # its node, its branch, the first logit of the node
        owners = []
        self.logits = 0
        for number, tree in enumerate(worlds):
            before, count = len(self.paths), [0]
            self._number(tree.root, [], count)
            self.logits = max(self.logits, count[0])
            owners += [number] * (len(self.paths) - before)
        self.world_of = np.array(owners)
        self.A = np.concatenate([np.asarray(tree.A, float) for tree in worlds])
        self.log_q = self._log_q()
        self.fixed = {name: np.array([getattr(at, name)[k] for at, k, _ in self.token])
                      for name in ("log_p", "log_mu", "R", "log_old", "M")
                      if all(getattr(at, name) is not None for at, _, _ in self.token)}  # fmt: skip

    def _number(self, at: Node, prefix: list[int], count: list[int]) -> None:
        first, mine = count[0], len(self.token)
        count[0] += len(at.logits)
        self.token += [(at, k, first) for k in range(len(at.logits))]
        for k, after in enumerate(at.after):
            if after is None:
                self.paths.append([*prefix, mine + k])
            else:
                self._number(after, [*prefix, mine + k], count)

    def _log_q(self) -> Jet:
        """log softmax with its derivatives: e_k - q along the logits of the node, then -(diag q - q q')."""
        size, L = len(self.token), self.logits
        value, first, second = np.zeros(size), np.zeros((L, size)), np.zeros((L, L, size))
        for column, (at, k, start) in enumerate(self.token):
            q = np.exp(at.logits - np.log(np.exp(at.logits).sum()))
            here = slice(start, start + len(q))
            value[column] = np.log(q[k])
            first[here, column] = np.eye(len(q))[k] - q
            second[here, here, column] = np.outer(q, q) - np.diag(q)
        moved = (first[None], second) if self.second else (0.0, 0.0)
        return Jet(value, first[:, None], *moved)

    @cached_property
    def whole(self) -> Rows:
        return Rows(self, stepwise=False)

    @cached_property
    def steps(self) -> Rows:
        return Rows(self, stepwise=True)

    # ------------------------------------------------------------------ names
    def atom(self, name: str, rows: Rows, slot: str) -> Any:
        """A quantity of a slot: log densities, R and T are sums over its tokens."""
        if (name, slot) not in rows.cache:
            rows.cache[name, slot] = self._atom(name, rows, slot)
        return rows.cache[name, slot]

    def _atom(self, name: str, rows: Rows, slot: str) -> Any:
        where = rows.slots[slot]
        match name:
            case "log_q":
                return self.log_q.map(lambda part: part @ where)
            case "log_mu" if self.on_policy:
                return sg(self.atom("log_q", rows, slot))
            case "log_p" | "log_mu" | "R" | "log_old" | "M":
                return self.fixed[name] @ where
            case "T":
                return where.sum(axis=0)
            case "A":
                return self.A[rows.path]
            case "V" | "V_next":
                return self._critic(rows, 1 * (name == "V_next"))
        return derived(name, lambda other: self.atom(other, rows, slot))

    def _critic(self, rows: Rows, more: int) -> np.ndarray:
        """Any function of the tokens before a step, and of it, or a number; 0 once the sequence has ended."""
        given = self.worlds[0].parameters
        if more and "V_next" in given:
            return np.full(len(rows.path), given["V_next"])
        known = [tuple(self.paths[k][: t + more]) for k, t in zip(rows.path, rows.step, strict=True)]
        ended = [t + more == len(self.paths[k]) for k, t in zip(rows.path, rows.step, strict=True)]
        values: Any = np.sin([1.0 + sum((i + 2) * (token + 1) for i, token in enumerate(of)) for of in known])
        return np.where(ended, 0.0, given.get("V", values))

    def names(self, rows: Rows, slot: str = "x", weighted: str | None = None, **more: Any) -> Names:
        """What a name in a loss stands for; rho may be that of more tokens than the rest."""

        def find(name: str, inner: str | None = None) -> Any:
            place = inner or slot
            if name in more:
                return more[name]
            if name == "rho" and weighted and inner is None:
                return exp(self.ratio(rows, weighted))
            if name in ATOMS:
                return self.atom(name, rows, place)
            if (tree := self.worlds[0]).parameters.get(name) is not None:
                return np.array([w.parameters.get(name, tree.parameters[name]) for w in self.worlds])[
                    rows.world
                ]
            return PARAMETERS[name]

        return find

    def ratio(self, rows: Rows, weights: str) -> Any:
        """log q/mu of the token, of the prefix up to it, or of the whole sequence."""
        slots = {"token": ("now",), "prefix": ("past", "now"), "sequence": ("x",)}[weights]
        return sum((self.atom("w", rows, slot) for slot in slots), 0.0)

    # ------------------------------------------------------------------ means
    def chance(self, rows: Rows, measure: str = "m", averaged: bool = False) -> Jet:
        """The mass of the sequence of each row, which no sample sees move."""
        name = {"m": "log_mu", "mu": "log_mu", "q": "log_q", "p": "log_p"}[measure]
        mass: Jet = sg(jet(exp(self.atom(name, rows, "x"))))
        return mass * (1 / rows.length) if averaged else mass

    def mean(self, rows: Rows, values: Any) -> Any:
        """The sum over the rows of each world, beside the sum of absolute values."""
        member = (rows.world[:, None] == np.arange(len(self.worlds))) * 1.0
        return jet(values).map(
            lambda part: np.broadcast_to(part, (*part.shape[:-1], len(rows.world))) @ member
        )

    def loss(self, text: str, setting: Setting, A: float = 1.0) -> tuple[Rows, Any]:
        """The loss at each whole sequence, or at each token, A times a number."""
        if setting.level == "token":
            rows, slot, weights = self.steps, "now", setting.weights
        else:
            rows, slot, weights = self.whole, "x", None
        more = {"A": A * self.A[rows.path]} if A != 1 else {}
        if setting.batch != "none":
            more["n"] = float(setting.n)
        return rows, evaluate(text, self.names(rows, slot, weights, **more))

    def value(self, text: str, setting: Setting) -> Any:
        """E_m[L] or E_m[sum_t L_t]."""
        rows, found = self.loss(text, setting)
        return self.mean(rows, self.chance(rows, averaged=setting.aggregate == "mean") * found)

    def surrogate(self, text: str, setting: Setting) -> tuple[Rows, Any]:
        """What autograd differentiates at each row, the mass of the row in front."""
        rows, found = self.loss(text, setting)
        if setting.use == "reward":
            slot = "now" if setting.level == "token" else "x"
            found = sg(self._credited(text, setting, rows, found)) * self.atom("log_q", rows, slot)
        return rows, self.chance(rows, averaged=setting.aggregate == "mean") * found

    def _credited(self, text: str, setting: Setting, rows: Rows, found: Any) -> Any:
        """A meets each score once, what is left without it is credited to the tokens before."""
        if setting.level != "token":
            return found
        _, plain = self.loss(text, setting, A=0.0)
        same = rows.path[:, None] == rows.path
        later = rows.step[:, None] >= rows.step  # [u, t]: does the score of t meet the loss of u?
        meets = {"same-token": np.eye(len(same)), "to-go": same & later, "total": same}[setting.credit] * 1.0
        spread = jet(plain).map(lambda part: np.broadcast_to(part, (*part.shape[:-1], len(same))) @ meets)
        return found - plain + spread

    def field(self, text: str, setting: Setting | None = None) -> Any:
        """The expected gradient: `a` of shape (logits, 1, worlds), its Jacobian `ab`."""
        setting = setting or Setting()
        if setting.batch != "none":
            return self._centred_field(text, setting)
        return self.mean(*self.surrogate(text, setting))

    def size(self, text: str, setting: Setting) -> Any:
        """What rounding is measured against in each world: all that is added up, in absolute value."""
        if setting.batch != "none":
            parts, rows = self.coefficient(text, setting).value, self.whole
            mass = self.chance(rows).value
            return self.mean(rows, np.abs(parts) * mass).value
        rows, found = self.surrogate(text, setting)
        return self.mean(rows, largest(jet(found).a)).value

    def coefficient(self, text: str, setting: Setting) -> Jet:
        """h in grad L = h s, or the reward itself; over T where that is the aggregate."""
        rows, n = self.whole, {"n": float(setting.n)}
        n |= {"T": self.whole.length} if setting.level == "sequence" else {}
        if setting.use == "reward":
            found = jet(evaluate(text, self.names(rows, **n)))
        else:  # along log q of the sample alone
            log_q = self.atom("log_q", rows, "x")
            moved = Jet(log_q.value, np.ones(len(rows.path)), log_q.b, 0 * log_q.value)
            given = {
                "log_q": moved,
                "log_mu": sg(moved) if self.on_policy else self.atom("log_mu", rows, "x"),
            }

            def find(name: str, inner: str | None = None) -> Any:
                if name in given:
                    return given[name]
                return derived(name, find) if name in DERIVED else self.names(rows, **n)(name)

            loss = jet(evaluate(text, find))
            found = Jet(loss.a + 0 * log_q.value, 0.0, loss.ab, 0.0)
        found = Jet(found.value + 0 * rows.length, 0.0, found.b, 0.0)
        return found * (1 / rows.length) if setting.aggregate == "mean" else found

    def _centred_field(self, text: str, setting: Setting) -> Any:
        """E over all batches of mean_i (h_i - ..) s_i."""
        h, rows, n = self.coefficient(text, setting), self.whole, setting.n
        mass, log_q = self.chance(rows), self.atom("log_q", rows, "x")
        batches = np.array([batch for world in range(len(self.worlds))
                            for batch in product(np.flatnonzero(rows.world == world), repeat=n)])  # fmt: skip
        at = [h.map(lambda part, i=i: part[..., batches[:, i]]) for i in range(n)]
        total: Any = 0.0
        for i, left in enumerate(centred(at, setting.batch)):
            total = total + sg(left) * log_q.map(lambda part, i=i: part[..., batches[:, i]])
        for i in range(n):
            total = total * mass.map(lambda part, i=i: part[..., batches[:, i]])
        member = (rows.world[batches[:, 0]][:, None] == np.arange(len(self.worlds))) / n
        return total.map(lambda part: part @ member)

    # ------------------------------------------------------------------ objectives and printed forms
    def slope(self, text: str, measure: str = "q") -> Any:
        """grad E_measure[text] of whole sequences, measure and text moved together: T is their length."""
        rows = self.whole
        found = evaluate(text, self.names(rows, T=rows.length))
        mass: Any = exp(self.atom({"q": "log_q", "p": "log_p", "mu": "log_mu"}[measure], rows, "x"))
        return self.mean(rows, jet(mass * found))

    def form(self, text: str, measure: str = "q", **more: Any) -> Any:
        """E[c s], or E[sum_t ..] of what is written with slots: k1_now*s_now + k1_now*s_past.  In `a`."""
        names = {x.id for x in ast.walk(parsed(text)) if isinstance(x, ast.Name)}
        stepwise = any(name.rpartition("_")[2] in SLOTS or name in ("V", "V_next") for name in names)
        rows, scored = (self.steps if stepwise else self.whole), any(x.split("_")[0] == "s" for x in names)

        def find(name: str, inner: str | None = None) -> Any:
            base, _, slot = name.rpartition("_")
            base, slot = (base, slot) if slot in SLOTS else (name, "x")
            if base == "s":
                return self.atom("log_q", rows, slot).a
            if base == "T" and "T" not in more:
                return self.atom("T", rows, slot)
            return plain(self.names(rows, slot, **more)(base))

        score = 1.0 if scored else self.atom("log_q", rows, "now" if stepwise else "x").a
        values = self.chance(rows, measure).value * plain(evaluate(text, find)) * score
        return Jet(self.mean(rows, largest(values)).value, self.mean(rows, values).value)


def centred(h: list[Any], batch: str) -> list[Any]:
    """What is left of the coefficients of a batch."""
    n = len(h)
    mean = sum(h[1:], h[0]) * (1 / n)
    if batch == "mean":
        return [x - mean for x in h]
    if batch == "leave-one-out":
        return [(x - mean) * (n / (n - 1)) for x in h]
    assert batch == "std", batch
    left = [x - mean for x in h]
    squares = [x * x for x in left]
    variance = sum(squares[1:], squares[0]) * (1 / n)
    none = np.ptp([x.value for x in h], axis=0) < 1e-13  # of equal numbers, rounding leaves no spread
    safe = choose(none, variance * 0 + 1, variance)
    return [choose(none, x * 0, x * power(safe, -0.5)) for x in left]
