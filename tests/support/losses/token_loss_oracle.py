"""Losses over sequences in which slots are named, such as now(k1)*past(rho), under the literal oracle.

now(.), past(.) and future(.) speak of step t and of the sums over the steps before and after it, bare names
of the sum over all steps; A alone is no sum but any number that is known there.

>>> trees = random_trees(seed=1, copies=2)
>>> token = expected_gradient("token", "past(rho)*now(rho*k3)", trees, "mu")
>>> whole = expected_gradient("sequence", "rho*k1", trees, "mu")
>>> bool(np.allclose(token.value, whole.value, rtol=1e-12))
True
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from support.oracle import grammar, losses
from support.oracle.grammar import evaluate, jet, largest, plain
from support.oracle.losses import Forest, Rows

LONGEST = 4  # steps
SEQUENCES = (6, 14)  # in a tree, at least and at most
GOES_ON = 0.55  # the probability that a token is not the last one
Find = Callable[..., Any]


class Trees(Forest):
    """Trees of tokens, and numbers for A that are known with a prefix and with a token."""

    def known(self, rows: Rows, slot: str) -> Any:
        """A, of y_<t, of y_<=t or of the whole sequence."""
        stream = np.random.default_rng(len(self.token))
        after, before = stream.normal(size=(2, len(self.token)))
        first = {id(node): k for k, (node, branch, _) in enumerate(self.token) if branch == 0}
        of = [self.paths[path][step] for path, step in zip(rows.path, rows.step, strict=True)]
        tables = {"now": after[of], "past": before[[first[id(self.token[k][0])] for k in of]]}
        return (tables | {"x": self.A[rows.path]})[slot]

    def finder(self, rows: Rows) -> Find:
        names = self.names(rows)

        def find(name: str, slot: str | None = None) -> Any:
            if name == "A":
                return self.known(rows, slot or "x")
            return (
                self.atom("T" if name == "length" else name, rows, slot or "x")
                if name in STEPS
                else names(name)
            )

        return find


STEPS = ("length", *grammar.ATOMS)


def random_trees(seed: int, copies: int = 4, on_policy: bool = False) -> Trees:
    """Trees with a few sequences of three lengths or more, the same on-policy and off-policy but for mu."""
    stream = np.random.default_rng(seed)
    shapes: list[Any] = []
    while len(shapes) < copies:
        shape = _grown(stream, 1)
        lengths = _lengths(shape)
        if SEQUENCES[0] <= len(lengths) <= SEQUENCES[1] and len(set(lengths)) >= 3:
            shapes.append(shape)
    found = [tree for k, shape in enumerate(shapes) for tree in losses.trees(seed + k, shape, 1)]
    return Trees(found, ("on-policy" if on_policy else "off-policy",))


def _grown(stream: np.random.Generator, depth: int) -> Any:
    size = int(stream.integers(2, 4))
    goes_on = (stream.random(size) < GOES_ON) & (depth < LONGEST)
    return tuple(_grown(stream, depth + 1) if on else () for on in goes_on)


def _lengths(shape: Any) -> list[int]:
    return [1 + more for branch in shape for more in (_lengths(branch) if branch else [0])]


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
    rows = trees.whole if kind == "sequence" else trees.steps
    find = trees.finder(rows)

    def size_of(name: str, slot: str | None = None) -> Any:
        found = jet(find(name, slot))
        return np.abs(found.value) + largest(found.a)

    loss, size = evaluate(text, find), plain(evaluate(text.replace("-", "+"), size_of))
    if kind == "reward":
        score = trees.atom("log_q", rows, "now").a
        parts, size = plain(loss) * score, size * np.abs(score)
    else:
        parts = jet(loss).a
    return Vector(*(_mean(values, rows, trees, measure) for values in (parts, size + np.abs(parts))))


def _mean(values: Any, rows: Rows, trees: Trees, measure: str) -> np.ndarray:
    """sum_y m(y) of a value at a sequence, or at each of its steps: (trees, logits)."""
    total = trees.mean(rows, trees.chance(rows, measure).value * values).value
    return np.broadcast_to(total, (trees.logits, 1, len(trees.worlds)))[:, 0].T


# ---------------------------------------------------------------------------- canonical forms
VARIABLE = re.compile(r"(?:sg\()?(\w+)(?:\[(\w+)\])?\)?")


def score_form(side: list[Any], trees: Trees) -> Vector:
    """The value of a side of a statement given as JSON, which is a sum of E_m[a s..s] and E_m[sum_t a s..s].

    side: rows [[["1", {}]], [atom]] with the atom ["Mean", "", m, a, slots of the scores] or
    ["Mean", "t", m, a, slots], and a a list of terms [number, {variable: power}], or, with an exponent,
    [number, {variable: power}, [[number, {variable: power}], ...]].  The size is that of the single terms.
    """
    total = Vector(*np.zeros((2, len(trees.worlds), trees.logits)))
    for row in side:
        match row:
            case [[["1", outer]], [["Mean", "" | "t" as index, measure, a, [slot]]]] if not outer:
                rows = trees.steps if index else trees.whole
            case _:
                raise ValueError(f"no gradient: {row}"[:200])
        terms = [_term(term, trees.finder(rows)) for term in a]
        score = trees.atom("log_q", rows, slot).a
        values = (sum(terms) * score, sum(map(np.abs, terms)) * np.abs(score))
        total = total + Vector(*(_mean(x, rows, trees, measure) for x in values))
    return total


def _term(term: list[Any], find: Find) -> Any:
    number, powers, *exponent = term
    inside = [float(Fraction(c)) * _monomial(inner, find) for c, inner in exponent[0]] if exponent else []
    return float(Fraction(number)) * _monomial(powers, find) * np.exp(sum(inside))


def _monomial(powers: dict[str, int], find: Find) -> Any:
    product: Any = 1.0
    for variable, power in powers.items():
        found = VARIABLE.fullmatch(variable)
        if not found:
            raise ValueError(f"no variable: {variable}")
        product = product * plain(find(found[1], found[2] or "x")) ** float(power)
    return product
