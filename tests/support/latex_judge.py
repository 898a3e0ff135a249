"""Reads printed LaTeX as a person would, and evaluates it on a given batch or sequence.

A sum or product sign takes all that follows it in its term.  The judge knows the notation only: nothing of
exponential polynomials, slots or the printer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from math import exp, prod
from typing import Any

TOKEN = re.compile(r"\\[A-Za-z]+|\\[,!]|\d+|[A-Za-z]|[{}()\[\]_^+\-<>,]")
LETTERS = {"k": "k1", "s": "s", "R": "R", "r": "k1", r"\rho": "w"}
RATIOS = {"r": -1, r"\rho": 1}
ORDERS: dict[str, Callable[[int, int], bool]] = {
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    r"\le": lambda a, b: a <= b,
    r"\ge": lambda a, b: a >= b,
}


def balanced(latex: str) -> bool:
    """Do braces and environments close in order?"""
    stack: list[str] = []
    for found in re.finditer(r"\\begin\{(\w+\*?)\}|\\end\{(\w+\*?)\}|\\.|[{}]", latex, re.DOTALL):
        opened, closed, sign = found.group(1), found.group(2), found.group()
        if opened or sign == "{":
            stack.append(opened or "}")
        elif (closed or sign == "}") and (not stack or stack.pop() != (closed or "}")):
            return False
    return not stack


@dataclass(frozen=True)
class World:
    """Sequences of steps (a sample is a sequence of one step), parameters, and where the indices stand."""

    sequences: tuple[tuple[dict[str, float], ...], ...]
    parameters: dict[str, float]
    at: tuple[tuple[str, int], ...] = ()

    def put(self, index: str, value: int) -> World:
        return replace(self, at=(*self.at, (index, value)))

    def sequence(self, index: str | None = None) -> tuple[dict[str, float], ...]:
        return self.sequences[dict(self.at).get(index or "i", 0)]


Value = Callable[[World], float]


class Reader:
    """A recursive descent: each method reads one kind of formula and gives its value as a function."""

    def __init__(self, latex: str) -> None:
        left_over = re.sub(r"\s", "", TOKEN.sub("", latex))
        assert not left_over, left_over
        skipped = (r"\,", r"\!", r"\left", r"\right")
        self.tokens = [token for token in TOKEN.findall(latex) if token not in skipped]

    def read(self) -> Value:
        value = self.sum()
        assert not self.tokens, self.tokens
        return value

    def next(self, expected: str | None = None) -> str:
        token = self.tokens.pop(0)
        assert expected in (None, token), (expected, token)
        return token

    def peek(self) -> str:
        return self.tokens[0] if self.tokens else ""

    def sum(self) -> Value:
        terms: list[tuple[int, Value]] = []
        while self.peek() not in ("", ")", "}", "]"):
            sign = {"+": 1, "-": -1}.get(self.peek(), 0)
            assert sign or not terms, self.tokens
            if sign:
                self.next()
            terms.append((sign or 1, self.product()))
        return lambda world: sum(sign * term(world) for sign, term in terms)

    def product(self) -> Value:
        factors: list[Value] = []
        while self.peek() not in ("", ")", "}", "]", "+", "-"):
            factors.append(self.factor())
        assert factors
        return lambda world: prod(factor(world) for factor in factors)

    def factor(self) -> Value:
        token = self.next()
        if token in (r"\sum", r"\prod"):
            return self.over_positions(token)
        if token in (r"\frac", r"\tfrac"):
            top, bottom = self.argument(), self.argument()
            base: Value = lambda world: top(world) / bottom(world)  # noqa: E731
        elif token == "(":
            base = self.bracket(")")
        elif token == r"\mathrm":  # sg(...), whose value is that of its argument
            assert [self.next() for _ in range(5)] == ["{", "s", "g", "}", "("]
            base = self.bracket(")")
        elif token == r"\mathbb":
            assert [self.next() for _ in range(8)] == ["{", "E", "}", "_", "{", "q", "}", "["]
            base = self.bracket("]")
        elif token.isdigit():
            base = lambda world: float(token)  # noqa: E731
        else:
            base = self.letter(token)
        return self.powered(base)

    def bracket(self, closing: str) -> Value:
        inner = self.sum()
        self.next(closing)
        return inner

    def argument(self) -> Value:
        if self.peek() != "{":
            return Reader(self.next()).read()
        self.next("{")
        return self.bracket("}")

    def powered(self, base: Value) -> Value:
        if self.peek() != "^":
            return base
        self.next("^")
        power = self.argument()
        return lambda world: base(world) ** power(world)

    def subscript(self) -> list[str]:
        if self.peek() != "_":
            return []
        self.next("_")
        if self.peek() != "{":
            return [self.next()]
        self.next("{")
        found = []
        while self.peek() != "}":
            found.append(self.next())
        self.next("}")
        return found

    def over_positions(self, sign: str) -> Value:
        names = self.subscript()
        body = self.product()
        fold = sum if sign == r"\sum" else prod
        return lambda world: fold(body(inner) for inner in bound(names, world))

    def letter(self, token: str) -> Value:
        below = self.subscript()
        if token == "T":
            return lambda world: len(world.sequence(below[0] if below else None))
        if token not in LETTERS:
            assert not below
            return lambda world: dict(world.at)[token] + 1 if token == "t" else world.parameters[token]
        if token == "k":
            assert below.pop(0) == "1"
        name, sign = LETTERS[token], RATIOS.get(token)

        def value(world: World) -> float:
            total = sum(step[name] for step in steps(below, world))
            return total if sign is None else exp(sign * total)

        return value


def bound(names: list[str], world: World) -> list[World]:
    """The worlds over which a sum runs: u < t, j != i, i != j for both, t, ..."""
    index, *rest = names
    if index in ("t", "u"):
        found = [world.put(index, v) for v in range(len(world.sequence()))]
        keep = (lambda w: ORDERS[rest[0]](dict(w.at)[index], dict(w.at)[rest[1]])) if rest else None
        return [w for w in found if keep is None or keep(w)]
    indices = range(len(world.sequences))
    others = [name for name in rest if name not in (r"\ne", ",")]
    if "j" in others and "j" not in dict(world.at):  # i != j binds both
        return [world.put("i", a).put("j", b) for a in indices for b in indices if a != b]
    taken = [dict(world.at)[name] for name in others]
    return [world.put(index, v) for v in indices if v not in taken]


def steps(below: list[str], world: World) -> list[dict[str, float]]:
    """The steps that a subscript speaks of: (1,)t, (i,)<t, j, or none for a whole sequence."""
    parts = [part for part in below if part != ","]
    sample = parts.pop(0) if parts and parts[0] in ("i", "j", "l") else None
    sequence = world.sequence(sample)
    if not parts:
        return list(sequence)
    if len(parts) == 1:
        return [sequence[dict(world.at)[parts[0]]]]
    order, index = parts
    return [step for u, step in enumerate(sequence) if ORDERS[order](u, dict(world.at)[index])]


def value_of(latex: str, world: World) -> float:
    """The number that a formula stands for."""
    return Reader(latex).read()(world)


# ---------------------------------------------------------------------------- what it should be
def rows_of(index: str, world: World) -> list[tuple[float, dict[str, list[dict[str, float]]]]]:
    """The weight of each position in the mean or sum, and the steps in each of its slots."""
    n = len(world.sequences)
    whole = [list(sequence) for sequence in world.sequences]

    def others(*taken: int) -> list[dict[str, float]]:
        return [step for k, sequence in enumerate(whole) if k not in taken for step in sequence]

    def tokens(i: int, t: int) -> dict[str, list[dict[str, float]]]:
        x = whole[i]
        return {"past": x[:t], "now": x[t : t + 1], "future": x[t + 1 :], "x": x, "others": others(i)}

    if index == "t":
        return [(1.0, tokens(0, t)) for t in range(len(whole[0]))]
    if index == "it":
        return [(1 / n, tokens(i, t)) for i in range(n) for t in range(len(whole[i]))]
    if index == "i":
        return [(1 / n, {"self": whole[i], "others": others(i)}) for i in range(n)]
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    return [
        (1 / (n * (n - 1)), {"self": whole[i], "other": whole[j], "rest": others(i, j)}) for i, j in pairs
    ]


NAME = re.compile(r"(?:sg\()?([A-Za-z]\w*)(?:\[([a-z]+)\])?\)?")


def total(index: str, element: Any, score: tuple[str, ...], world: World) -> tuple[float, float]:
    """The sum or mean over the positions straight from the definition, and the size of its terms."""
    value = size = 0.0
    for weight, slots in rows_of(index, world):

        def number(name: str, slots: Any = slots) -> float:
            base, slot = NAME.fullmatch(name).groups()  # type: ignore[union-attr]
            if base in world.parameters:
                return world.parameters[base]
            found = slots[slot or "x"]
            return float(len(found)) if base == "length" else sum(step[base] for step in found)

        def monomial(powers: Any, number: Any = number) -> float:
            return prod(number(name) ** power for name, power in powers)

        scores = prod(sum(step["s"] for step in slots[slot]) for slot in score)
        for (powers, exponent), coefficient in element.terms.items():
            term = float(Fraction(coefficient)) * monomial(powers)
            term *= exp(sum(float(v) * monomial(m) for m, v in exponent)) * scores * weight
            value, size = value + term, size + abs(term)
    return value, size
