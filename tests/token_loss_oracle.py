"""An independent oracle for losses over sequences of random length, given as text.

It imports nothing of klsym.  A model is a tree of tokens: at each node a softmax over two or three tokens,
after which the sequence ends or goes on at another node.  All sequences y of T steps are enumerated, and a
loss has, along each logit of each node, the expected gradient

    sum_y m(y) sum_t dL_t(y)/dtheta_j            m = q or mu, held fixed

A loss is walked in Python's own `ast`.  now(.), past(.) and future(.) speak of step t and of the sums over
the steps before and after it, bare names of the sum over all steps; A alone is no sum but any number that
is known there.  The derivative is a complex step, f'(t) = Im f(t + ih)/h; sg(.) has the unmoved q.

>>> trees = random_trees(seed=1, copies=2)
>>> token = expected_gradient("token", "past(rho)*now(rho*k3)", trees, "mu")
>>> whole = expected_gradient("sequence", "rho*k1", trees, "mu")
>>> bool(np.allclose(token.value, whole.value, rtol=1e-12))
True
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

STEP = 1e-40  # of the complex step; its square is far below the smallest relative rounding error
SPREAD = 0.5  # of the logits: the ratio of a whole sequence stays within about [1/30, 30]
LONGEST = 4  # steps
SEQUENCES = (6, 14)  # in a tree, at least and at most
GOES_ON = 0.55  # the probability that a token is not the last one
SLOTS = ("past", "now", "future", "x")  # x: the whole sequence
PARAMETERS = {"beta": 1.427, "lam": 0.371}


# ---------------------------------------------------------------------------- trees
@dataclass(frozen=True)
class Node:
    """A prefix y_<t, and what is known of it and of each token that may follow."""

    logits: np.ndarray  # (3, tokens): of q, p and mu
    before: float  # A[past], of y_<t
    after: np.ndarray  # (3, tokens): A[now] of y_<=t, R of step t, A of a sequence that ends here
    following: tuple[Node | None, ...]  # None: the sequence ends with this token

    @property
    def size(self) -> int:
        return len(self.following)

    def nodes(self) -> Iterator[Node]:
        yield self
        for after in self.following:
            if after:
                yield from after.nodes()

    def paths(self) -> Iterator[tuple[tuple[Node, int], ...]]:
        """Every sequence from here on, as its nodes and tokens."""
        for token, after in enumerate(self.following):
            for rest in after.paths() if after else [()]:
                yield ((self, token), *rest)


def random_tree(stream: np.random.Generator) -> Node:
    """A tree with a few sequences, of three different lengths or more."""
    while True:
        root = _grow(stream, 1)
        lengths = [len(path) for path in root.paths()]
        if SEQUENCES[0] <= len(lengths) <= SEQUENCES[1] and len(set(lengths)) >= 3:
            return root


def _grow(stream: np.random.Generator, depth: int) -> Node:
    size = int(stream.integers(2, 4))
    goes_on = (stream.random(size) < GOES_ON) & (depth < LONGEST)
    following = tuple(_grow(stream, depth + 1) if on else None for on in goes_on)
    logits, after = stream.normal(scale=(SPREAD, 1), size=(3, size, 2)).T
    return Node(logits.T, float(stream.normal()), after.T, following)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """No shift by the maximum: logits are small, and complex numbers have none."""
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


@dataclass(frozen=True, eq=False)
class Trees:
    """A stack of trees, on-policy with mu a frozen copy of q.

    Arrays have the shape (trees, logits, sequences, steps), with 1 in place of logits for what no logit
    moves.  Beyond the end of a sequence or a tree there are zeros.
    """

    roots: tuple[Node, ...]
    on_policy: bool = False

    @cached_property
    def steps(self) -> list[tuple[tuple[int, int, int], Node, int, int]]:
        """Every step of every sequence: (tree, sequence, step), the node, its token, its first logit."""
        found = []
        for tree, root in enumerate(self.roots):
            first, total = dict[int, int](), 0
            for node in root.nodes():
                first[id(node)], total = total, total + node.size
            for row, path in enumerate(root.paths()):
                for step, (node, token) in enumerate(path):
                    found.append(((tree, row, step), node, token, first[id(node)]))
        return found

    def _table(self, value: Callable[[Node, int], Any]) -> np.ndarray:
        rows = max(sum(1 for _ in root.paths()) for root in self.roots)
        table = np.zeros((len(self.roots), 1, rows, LONGEST))
        for (tree, row, step), node, token, _ in self.steps:
            table[tree, 0, row, step] = value(node, token)
        return table

    def moved(self, step: complex) -> np.ndarray:
        """log q of each token, each logit of its tree in turn moved by the step."""
        logits = max(sum(node.size for node in root.nodes()) for root in self.roots)
        table = np.repeat(self.logs["q"] + 0 * step, logits, axis=1)
        for (tree, row, place), node, token, first in self.steps:
            ahead = log_softmax(node.logits[0] + step * np.eye(node.size))
            table[tree, first : first + node.size, row, place] = ahead[:, token]
        return table

    @cached_property
    def logs(self) -> dict[str, np.ndarray]:
        """log q, log p and log mu of each token."""
        tables = [self._table(lambda node, token, i=i: log_softmax(node.logits[i])[token]) for i in range(3)]
        return {"q": tables[0], "p": tables[1], "mu": tables[0 if self.on_policy else 2]}

    @cached_property
    def here(self) -> np.ndarray:
        """1 where a sequence has a step."""
        return self._table(lambda node, token: 1)

    @cached_property
    def R(self) -> np.ndarray:
        return self._table(lambda node, token: node.after[1, token])

    @cached_property
    def A(self) -> dict[str, np.ndarray]:
        """By slot: any number that is known there."""
        last = self._table(lambda node, token: 0 if node.following[token] else node.after[2, token])
        return {
            "past": self._table(lambda node, token: node.before),
            "now": self._table(lambda node, token: node.after[0, token]),
            "x": in_slot(last, "x"),
        }

    @cached_property
    def live(self) -> Names:
        """By a complex step, which leaves the real part alone to the last digit: on-policy, w is 0."""
        return Names(self, self.logs["q"] + 1j * self.moved(1j * STEP).imag)

    @cached_property
    def frozen(self) -> Names:
        return Names(self, self.logs["q"])

    @cached_property
    def sizes(self) -> Names:
        return Sizes(self, self.logs["q"])

    @cached_property
    def scores(self) -> dict[str, np.ndarray]:
        """By slot: the gradient of log q."""
        return {slot: self.live("log_q", slot).imag / STEP for slot in SLOTS}

    def weights(self, measure: str) -> np.ndarray:
        """The probability of each sequence: (trees, 1, sequences, 1)."""
        return np.exp(in_slot(self.logs[measure], "x")) * self.here[..., :1]


def random_trees(seed: int, copies: int = 4, on_policy: bool = False) -> Trees:
    """Trees of differing shapes, the same on-policy and off-policy but for mu."""
    stream = np.random.default_rng(seed)
    return Trees(tuple(random_tree(stream) for _ in range(copies)), on_policy)


def in_slot(steps: np.ndarray, slot: str) -> np.ndarray:
    """At each step the sum over the slot; for x the sum over the sequence.

    `cumsum` adds in one order whether numbers are complex or not, so that equal sums are equal.
    """
    match slot:
        case "now":
            return steps
        case "past":
            return np.cumsum(steps, axis=-1) - steps
        case "future":
            return np.flip(in_slot(np.flip(steps, axis=-1), "past"), axis=-1)
    return np.cumsum(steps, axis=-1)[..., -1:]


# ---------------------------------------------------------------------------- the loss grammar
class Names:
    """The atoms of a loss in each slot, at a log q."""

    def __init__(self, trees: Trees, log_q: np.ndarray) -> None:
        self.trees = trees
        self.steps = {"log_q": log_q, "log_p": trees.logs["p"], "log_mu": trees.logs["mu"]}
        self.steps |= {"R": trees.R, "length": trees.here}
        self.found: dict[tuple[str, str], Any] = {}

    def __call__(self, name: str, slot: str) -> Any:
        if name in PARAMETERS:
            return PARAMETERS[name]
        if (name, slot) not in self.found:
            self.found[name, slot] = self._value(name, slot)
        return self.found[name, slot]

    def _value(self, name: str, slot: str) -> Any:
        if (name, slot) == ("length", "x"):
            return np.maximum(in_slot(self.trees.here, "x"), 1)  # 1 beyond the end of a tree
        if name in self.steps:
            return in_slot(self.steps[name], slot)
        if name == "A":
            return self.trees.A[slot]
        if name in ("w", "rho"):
            w = self("log_q", slot) - self("log_mu", slot)
            return w if name == "w" else np.exp(w)
        k1 = self("log_q", slot) - self("log_p", slot)
        r = np.exp(-k1)
        return {"k1": k1, "k2": k1 * k1 / 2, "k3": r - 1 + k1, "r": r}[name]


class Sizes(Names):
    """Their absolute values and steepest slopes: what adds up to a loss and its gradient."""

    def _value(self, name: str, slot: str) -> Any:
        live = self.trees.live(name, slot)
        return np.abs(live.real) + np.abs(live.imag).max(axis=1, keepdims=True) / STEP


def evaluate(text: str, live: Names, frozen: Names) -> Any:
    """The value of a loss at every step of every sequence; inside sg(.) names have their frozen values."""
    return _walk(_parsed(text), "x", live, frozen)


@lru_cache(maxsize=256)
def _parsed(text: str) -> ast.expr:
    return ast.parse(text.strip(), mode="eval").body


BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
}


def _walk(node: ast.expr, slot: str, live: Names, frozen: Names) -> Any:
    match node:
        case ast.Constant(int() as value):
            return value
        case ast.Name(name):
            return live(name, slot)
        case ast.UnaryOp(ast.USub(), operand):
            return -_walk(operand, slot, live, frozen)
        case ast.UnaryOp(ast.UAdd(), operand):
            return _walk(operand, slot, live, frozen)
        case ast.BinOp(base, ast.Pow(), ast.Constant(int() as power)):
            return _walk(base, slot, live, frozen) ** power
        case ast.BinOp(left, operator, right) if type(operator) in BINARY:
            both = (_walk(item, slot, live, frozen) for item in (left, right))
            return BINARY[type(operator)](*both)
        case ast.Call(ast.Name("sg"), [argument]):
            return _walk(argument, slot, frozen, frozen)
        case ast.Call(ast.Name("past" | "now" | "future" as inner), [argument]) if slot == "x":
            return _walk(argument, inner, live, frozen)
    raise ValueError(f"not in the loss grammar: {ast.dump(node)}")


# ---------------------------------------------------------------------------- exact gradients
@dataclass(frozen=True)
class Vector:
    """A gradient along each logit of each tree, and the size of what was added up: (trees, logits)."""

    value: np.ndarray
    size: np.ndarray

    def __add__(self, other: Vector) -> Vector:
        return Vector(self.value + other.value, self.size + other.size)


def expected_gradient(kind: str, text: str, trees: Trees, measure: str) -> Vector:
    """E_m[sum_t grad L_t], E_m[sum_t h_t s_t] or E_m[grad L] for the kinds token, reward and sequence.

    h is held constant whatever it holds; a token loss that does not speak of t is the same at each step.
    The size holds that of all parts of L, for a loss such as k1 - log_q + log_p leaves rounding alone.
    """
    size = evaluate(text.replace("-", "+"), trees.sizes, trees.sizes)
    if kind == "reward":
        parts = evaluate(text, trees.frozen, trees.frozen) * trees.scores["now"]
        size = size * np.abs(trees.scores["now"])
    else:
        parts = np.imag(evaluate(text, trees.live, trees.frozen)) / STEP
    return Vector(*(_mean(rows, kind, trees, measure) for rows in (parts, size + np.abs(parts))))


def central_difference(kind: str, text: str, trees: Trees, measure: str, step: float = 1e-5) -> np.ndarray:
    """The same gradient by plain differences: what the complex step is checked against."""
    means = []
    for sign in (1, -1):
        live = Names(trees, trees.moved(sign * step))
        if kind == "reward":
            loss = evaluate(text, trees.frozen, trees.frozen) * live("log_q", "now")
        else:
            loss = evaluate(text, live, trees.frozen)
        means.append(_mean(loss, kind, trees, measure))
    return (means[0] - means[1]) / (2 * step)


def _mean(rows: Any, kind: str, trees: Trees, measure: str) -> np.ndarray:
    """sum_y m(y) of a value, or of its sum over the steps: (trees, logits)."""
    weights = trees.weights(measure) * (1 if kind == "sequence" else trees.here)
    total = (rows * weights).sum(axis=(-2, -1))
    return np.broadcast_to(total, trees.scores["x"].shape[:2])


# ---------------------------------------------------------------------------- canonical forms
VARIABLE = re.compile(r"(?:sg\()?(\w+)(?:\[(\w+)\])?\)?")


def score_form(side: list[Any], trees: Trees) -> Vector:
    """The value of a side of a statement given as JSON, which is a sum of E_m[a s..s] and E_m[sum_t a s..s].

    side: rows [[["1", {}]], [atom]] with the atom ["Mean", "", m, a, slots of the scores] or
    ["Mean", "t", m, a, slots], and a a list of terms [number, {variable: power}], or, with an exponent,
    [number, {variable: power}, [[number, {variable: power}], ...]].  The size is that of the single terms.
    """
    total = Vector(*np.zeros((2, *trees.scores["x"].shape[:2])))
    for row in side:
        match row:
            case [[["1", outer]], [["Mean", "", measure, a, [slot]]]] if not outer:
                kind = "sequence"
            case [[["1", outer]], [["Mean", "t", measure, a, [slot]]]] if not outer:
                kind = "token"
            case _:
                raise ValueError(f"no gradient: {row}"[:200])
        terms = [_term(term, trees) for term in a]
        score = trees.scores[slot]
        rows = (sum(terms) * score, sum(map(np.abs, terms)) * np.abs(score))
        total = total + Vector(*(_mean(values, kind, trees, measure) for values in rows))
    return total


def _term(term: list[Any], trees: Trees) -> Any:
    number, powers, *exponent = term
    inside = [float(Fraction(c)) * _monomial(inner, trees) for c, inner in exponent[0]] if exponent else []
    return float(Fraction(number)) * _monomial(powers, trees) * np.exp(sum(inside))


def _monomial(powers: dict[str, int], trees: Trees) -> Any:
    product: Any = 1.0
    for variable, power in powers.items():
        found = VARIABLE.fullmatch(variable)
        if not found:
            raise ValueError(f"no variable: {variable}")
        product = product * trees.frozen(found[1], found[2] or "x") ** power
    return product
