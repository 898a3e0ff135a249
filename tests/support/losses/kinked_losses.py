"""Piecewise losses as they are written, on trees of tokens, with the slopes that torch has where pieces meet.

Numbers carry their derivative along one direction of theta; they are exact where no logarithm stands, so that
a sample on a bound is known to be on it.  Nothing here knows of regions, and no code is shared with klsym.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from support.oracle.numbers import LONG
from support.oracle.worlds import Path, Step, World, paths_of, square_family

Loss = Callable[["Sequence", int, dict[str, Fraction]], "Dual"]


# ---------------------------------------------------------------------------- numbers
def _alike(x: Any, y: Any) -> tuple[Any, Any]:
    """Two exact numbers, or two of fifty digits."""
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        return x, y
    return long(x), long(y)


def long(x: Any) -> Any:
    return LONG.mpf(x.numerator) / x.denominator if isinstance(x, Fraction) else x


class Dual:
    """A number and its derivative."""

    def __init__(self, value: Any, slope: Any = 0) -> None:
        self.value = Fraction(value) if isinstance(value, int) else value
        self.slope = Fraction(slope) if isinstance(slope, int) else slope

    def __add__(self, other: Any) -> Dual:
        other = dual(other)
        (a, b), (c, d) = _alike(self.value, other.value), _alike(self.slope, other.slope)
        return Dual(a + b, c + d)

    def __mul__(self, other: Any) -> Dual:
        other = dual(other)
        (a, b), (c, d) = _alike(self.value, other.slope), _alike(self.slope, other.value)
        x, y = _alike(self.value, other.value)
        first, second = _alike(a * b, c * d)
        return Dual(x * y, first + second)

    def __neg__(self) -> Dual:
        return self * -1

    def __sub__(self, other: Any) -> Dual:
        return self + dual(other) * -1

    def __rsub__(self, other: Any) -> Dual:
        return dual(other) - self

    __radd__, __rmul__ = __add__, __mul__


def dual(x: Any) -> Dual:
    return x if isinstance(x, Dual) else Dual(x)


def detach(x: Dual) -> Dual:
    return Dual(x.value)


def minimum(x: Any, y: Any) -> Dual:
    """torch.minimum: at a tie, half of each slope."""
    x, y = dual(x), dual(y)
    a, b = _alike(x.value, y.value)
    return x if a < b else y if b < a else Dual(x.value, ((x + y) * Fraction(1, 2)).slope)


def maximum(x: Any, y: Any) -> Dual:
    return -minimum(-dual(x), -dual(y))


def clamp(x: Dual, low: Any, high: Any) -> Dual:
    """torch.clamp: its slope is 1 at the ends too."""
    (a, least), (b, most) = _alike(x.value, dual(low).value), _alike(x.value, dual(high).value)
    return dual(low) if a < least else dual(high) if b > most else x


def absolute(x: Dual) -> Dual:
    """torch.abs: its slope is 0 at 0."""
    return x if x.value > 0 else -x if x.value < 0 else Dual(0)


def exponential(x: Dual) -> Dual:
    value = LONG.exp(long(x.value))
    return Dual(value, value * long(x.slope))


# ---------------------------------------------------------------------------- tokens and sequences
@dataclass(frozen=True, eq=False)
class Token:
    """A branch of a node: q is proportional to (a + u theta)^2."""

    a: Fraction
    u: Fraction
    p: Fraction
    mu: Fraction
    old: Fraction
    rewards: dict[str, Fraction]


@dataclass(frozen=True)
class Sequence:
    """A path at some theta: q of each token with its derivative, and what is fixed."""

    q: tuple[Dual, ...]
    tokens: tuple[Token, ...]
    A: Fraction

    def mass(self, m: str) -> Dual:
        total = Dual(1)
        for q, token in zip(self.q, self.tokens, strict=True):
            total = total * (q if m == "q" else getattr(token, m))
        return total

    def ratio(self, under: str, *steps: int) -> Dual:
        """q over another density, on some steps or all."""
        total = Dual(1)
        for t in steps or range(len(self.q)):
            total = total * self.q[t] * (1 / getattr(self.tokens[t], under))
        return total

    def log(self, under: str, *steps: int) -> Dual:
        """The logarithm of that ratio, or of q; exactly 0 where the ratio is 1."""
        steps = steps or tuple(range(len(self.q)))
        ratio = self.ratio(under, *steps) if under else self.ratio_of_q(steps)
        value = LONG.log(long(ratio.value)) if ratio.value != 1 else Fraction(0)
        return Dual(value, sum((self.q[t].slope / self.q[t].value for t in steps), Fraction(0)))

    def ratio_of_q(self, steps: tuple[int, ...]) -> Dual:
        total = Dual(1)
        for t in steps:
            total = total * self.q[t]
        return total


class Literal:
    """A random tree, evaluated at theta = 0 with derivatives, or at another theta."""

    def __init__(self, rng: random.Random, depth: int = 1, zeros: bool = False) -> None:
        self.rng, self.zeros = rng, zeros
        self.tree = self._node(depth)
        self.A = {path: Fraction(rng.choice((-2, -1, 0, 0, 1, 3))) for path in self._paths(self.tree)}

    def _node(self, depth: int) -> list[tuple[Token, Any]]:
        rng, size = self.rng, self.rng.choice((2, 3))
        least = 0 if self.zeros else 1
        while True:
            columns = [[rng.randint(least, 4) for _ in range(size)] for _ in range(4)]
            if all(map(any, columns)):
                break
        if rng.random() < 0.2:  # far from one another: clamps are met
            columns[1] = [x * rng.choice((1, 30)) for x in columns[1]]
        if rng.random() < 0.3:  # alike, so that log ratios are 0
            columns[1] = columns[2] = [x * x for x in columns[0]]
        node = []
        for a, p, mu, old in zip(*columns, strict=True):
            rewards = {"R": Fraction(rng.randint(-2, 2)), "M": Fraction(rng.randint(0, 1)), "H": Fraction(0)}
            shares = [Fraction(x, sum(column)) for x, column in zip((p, mu, old), columns[1:], strict=True)]
            u = Fraction(rng.randint(-2, 2), 2) if a else Fraction(0)
            after = self._node(depth - 1) if depth > 1 and rng.random() < 0.6 else None
            node.append((Token(Fraction(a), u, *shares, rewards), after))
        return node

    def _paths(self, node: Any, prefix: tuple[Token, ...] = ()) -> Iterator[tuple[Token, ...]]:
        for token, after in node:
            if after is None:
                yield (*prefix, token)
            else:
                yield from self._paths(after, (*prefix, token))

    def sequences(self, theta: Any = 0) -> list[Sequence]:
        """All paths, with q at theta."""
        q: dict[Token, Dual] = {}

        def visit(node: Any) -> None:
            weights = {token: token.a + token.u * theta for token, _ in node}
            total = sum(w * w for w in weights.values())
            slope = sum(2 * w * token.u for token, w in weights.items())
            for token, w in weights.items():
                value = w * w / total
                q[token] = Dual(value, (2 * w * token.u - value * slope) / total)
            for _, after in node:
                if after is not None:
                    visit(after)

        visit(self.tree)
        return [Sequence(tuple(q[t] for t in path), path, self.A[path]) for path in self._paths(self.tree)]

    def world(self, parameters: dict[str, Fraction], definitions: Any) -> World:
        """The same for the oracle of statements."""
        steps: dict[Token, Step] = {}

        def visit(node: Any) -> Any:
            family = square_family([(token.a, token.u, Fraction(0)) for token, _ in node])
            for (token, _), q in zip(node, family, strict=True):
                steps[token] = Step(q, token.p, token.mu, False, token.rewards, token.old)
            return [(steps[token], visit(after) if after is not None else None) for token, after in node]

        paths = tuple(paths_of(visit(self.tree)))
        full = [path for path in paths if not any(step.zeros for step in path)]
        world = World(paths, (full[0],) * 2 if full else (), 2, {**parameters, "n": Fraction(2)}, {})
        world.definitions = {name: (kind, e) for name, kind, e in definitions}
        for tokens, value in self.A.items():
            path: Path = tuple(steps[token] for token in tokens)
            world.table["x", path] = value
        return world


def expected_gradient(
    m: str, loss: Loss, literal: Literal, parameters: dict[str, Fraction], steps: bool
) -> Any:
    """E_m[grad L], or E_m[sum_t grad L_t]."""
    total = LONG.mpf(0)
    for sequence in literal.sequences():
        mass = sequence.mass(m).value
        if mass:
            for t in range(len(sequence.q)) if steps else (0,):
                total = total + long(mass) * long(loss(sequence, t, parameters).slope)
    return total


def objective(m: str, loss: Loss, literal: Literal, parameters: Any, steps: bool, theta: Any = 0) -> Any:
    """E_m[L] at a theta."""
    total = LONG.mpf(0)
    for sequence in literal.sequences(theta):
        mass = sequence.mass(m).value
        for t in range(len(sequence.q)) if steps else (0,):
            total = total + long(mass) * long(loss(sequence, t, parameters).value)
    return total
