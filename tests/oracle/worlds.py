"""Worlds: token trees of exact conditional probabilities in which a statement is evaluated literally.

Each branch of a node has q_theta proportional to (a + b.theta)^2, so that q may vanish at theta = 0 and still
be differentiable there, and p and mu that are fixed and may vanish too.  A sample is a path to an end.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from .numbers import exp, sine

MEASURES = ("q", "p", "mu")
ARGUMENTS = ("k1", "w", "log_q")


@dataclass(frozen=True, eq=False)
class Step:
    """A branch: q with derivatives along u, v and both; p, mu, rewards.  moving: q leaves 0 near theta."""

    q: tuple[Fraction, Fraction, Fraction, Fraction]
    p: Fraction
    mu: Fraction
    moving: bool
    rewards: dict[str, Fraction]

    def density(self, name: str) -> Fraction:
        return self.q[0] if name == "q" else self.p if name == "p" else self.mu

    @property
    def zeros(self) -> tuple[str, ...]:
        return tuple(name for name in MEASURES if not self.density(name))


Path = tuple[Step, ...]
Node = list[tuple[Step, Any]]  # branches and what follows each: a node or nothing


@dataclass(frozen=True)
class Function:
    """A generic function made concrete: sum of c * monomial, or c exp(line), or a sum of c sin(line)."""

    kind: str
    arguments: tuple[str, ...]
    rows: tuple[tuple[Fraction, tuple[int, ...]], ...]

    def __call__(self, values: dict[str, Any], order: int, of: Any) -> Any:
        """The derivative of this order along log q, of which all arguments have slope 1."""
        if self.kind == "polynomial":
            return self._polynomial(values, order, of)
        total = 0 * of(Fraction(1))
        for c, slopes in self.rows:
            line = of(Fraction(0))
            for name, slope in zip(self.arguments, slopes, strict=True):
                line = line + values[name] * slope if slope else line
            factor = of(c * sum(slopes) ** order)
            total = total + (exp(line) if self.kind == "exp" else sine(line, order)) * factor
        return total

    def _polynomial(self, values: dict[str, Any], order: int, of: Any) -> Any:
        rows = {powers: c for c, powers in self.rows}
        for _ in range(order):
            derived: dict[tuple[int, ...], Fraction] = {}
            for powers, c in rows.items():
                for i, power in enumerate(powers):
                    if power:
                        lower = (*powers[:i], power - 1, *powers[i + 1 :])
                        derived[lower] = derived.get(lower, Fraction(0)) + c * power
            rows = derived
        total = of(Fraction(0))
        for powers, c in rows.items():
            term = of(c)
            for name, power in zip(self.arguments, powers, strict=True):
                term = term * values[name] ** power if power else term
            total = total + term
        return total


@dataclass
class World:
    """A tree as its paths, with all that a statement needs a value for."""

    paths: tuple[Path, ...]
    sample: tuple[Path, ...]  # the batch at which "sample" is taken
    n: int
    parameters: dict[str, Fraction]
    functions: dict[str, Function]
    solved: tuple[tuple[str, Any], ...] = ()  # parameters that a premise gives as a side
    table: dict[Any, Fraction] = field(default_factory=dict)  # of A
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    def free_value(self, key: Any) -> Fraction:
        """A: an arbitrary number for each thing that it may depend on."""
        if key not in self.table:
            self.table[key] = Fraction(self.rng.choice((-2, -1, 0, 1, 2, 3)), self.rng.choice((1, 2)))
        return self.table[key]

    @property
    def zero_kinds(self) -> set[str]:
        return {"=".join(step.zeros) + "=0" for path in self.paths for step in path if step.zeros}

    def describe(self) -> dict[str, Any]:
        """The world as data, for a report."""
        ids = {step: i for i, step in enumerate(dict.fromkeys(s for path in self.paths for s in path))}
        return {
            "steps": [
                {"q, dq/du, dq/dv, d2q/dudv": [str(x) for x in s.q], "p": str(s.p), "mu": str(s.mu),
                 "moving": s.moving, **{k: str(v) for k, v in s.rewards.items()}} for s in ids
            ],
            "paths": [[ids[s] for s in path] for path in self.paths],
            "sample": [[ids[s] for s in path] for path in self.sample],
            "n": self.n,
            "parameters": {k: str(v) for k, v in self.parameters.items()},
            "functions": {k: str(v) for k, v in self.functions.items()},
            "A": {str(_ids(k, ids)): str(v) for k, v in self.table.items()},
        }  # fmt: skip


def _ids(key: Any, ids: dict[Step, int]) -> Any:
    return [_ids(k, ids) for k in key] if isinstance(key, tuple) else ids.get(key, key)


# ---------------------------------------------------------------------------- branches
def square_family(rows: list[tuple[Fraction, Fraction, Fraction]]) -> list[tuple[Fraction, ...]]:
    """q proportional to (a + b_u theta_u + b_v theta_v)^2, with its derivatives at theta = 0."""
    weights = [(a * a, 2 * a * u, 2 * a * v, 2 * u * v) for a, u, v in rows]
    return _normalised(weights)


def softmax_family(q: list[Fraction], u: list[Fraction], v: list[Fraction]) -> list[tuple[Fraction, ...]]:
    """q proportional to q_0 exp(u theta_u + v theta_v)."""
    return _normalised([(x, x * a, x * b, x * a * b) for x, a, b in zip(q, u, v, strict=True)])


def _normalised(weights: list[tuple[Fraction, ...]]) -> list[tuple[Fraction, ...]]:
    total, du, dv, duv = (sum(column) for column in zip(*weights, strict=True))
    rows = []
    for w, a, b, ab in weights:
        q = w / total
        qu, qv = (a - q * du) / total, (b - q * dv) / total
        rows.append((q, qu, qv, (ab - qu * dv - qv * du - q * duv) / total))
    return rows


def paths_of(node: Node | None, prefix: Path = ()) -> Iterable[Path]:
    if node is None:
        yield prefix
        return
    for step, after in node:
        yield from paths_of(after, (*prefix, step))
