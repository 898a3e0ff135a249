"""Finite models: probabilities q, p, mu on outcomes 0..n-1, and a direction u of the logits of q.

    q_t(x) = q(x) exp(t u_x) / sum_y q(y) exp(t u_y)
    u.s(x) = d/dt log q_t(x) at t = 0 = u_x - sum_y q(y) u_y

They are evaluated in one of two number systems, `FLOAT` and `EXACT`.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from numbers import Rational
from typing import Any

import numpy as np

from klsym.abbreviations import Context
from klsym.errors import UsageError
from klsym.numeric.positions import Moves, Positions, Table
from klsym.numeric.systems import EXACT, FLOAT, System

__all__ = [
    "EXACT", "FLOAT", "FiniteModel", "checked_numbers", "from_certificate", "noise",
    "random_direction", "random_distribution", "random_model", "random_parameter",
    "refuse_unless_distribution", "refuse_unless_suited", "softmax",
]  # fmt: skip

Number = Fraction | float
SUM_TOLERANCE = 1e-12  # of float probabilities; rational ones must sum to one exactly
COUNTS = ("n", "T")  # parameters that stand for a batch size and a length


# ---------------------------------------------------------------------------- models
@dataclass(frozen=True)
class FiniteModel:
    """A finite model: what every variable of a statement is, at each of n outcomes.

    >>> model = FiniteModel(q=["1/2", "1/2"], p=["1/4", "3/4"], mu=["1/3", "2/3"], u=[1, 0])
    >>> model.size, model.exact
    (2, True)

    q, p, mu: probabilities, shape (n,), positive; mu defaults to q (on-policy).
    u: direction of the logits, shape (n,).
    parameters: name -> number.  rewards: "R" and "A" -> numbers, shape (n,).
    outcome: where pointwise quantities are evaluated.
    Integers, Fractions and strings such as "1/2" are exact; exact models can be enclosed.
    Raises UsageError: sizes that differ, nan, no full-support distribution, unknown outcome.
    """

    q: Sequence[Any]
    p: Sequence[Any]
    u: Sequence[Any]
    mu: Sequence[Any] | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    rewards: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    outcome: int = 0

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        if not (isinstance(self.parameters, Mapping) and isinstance(self.rewards, Mapping)):
            raise UsageError("model: parameters and rewards: name -> value expected")
        set_(self, "mu", self.q if self.mu is None else self.mu)
        for name in ("q", "p", "mu", "u"):
            set_(self, name, checked_numbers(getattr(self, name), name))
        set_(self, "parameters", {n: checked_numbers([v], n)[0] for n, v in self.parameters.items()})
        set_(self, "rewards", {n: checked_numbers(v, n) for n, v in self.rewards.items()})
        rows = {name: getattr(self, name) for name in ("p", "mu", "u")} | dict(self.rewards)
        for name, row in rows.items():
            if len(row) != self.size or self.size < 2:
                raise UsageError(f"model: q has {self.size} entries (2 or more), {name} {len(row)}")
        for name in ("q", "p", "mu"):
            refuse_unless_distribution(getattr(self, name), name)
        if type(self.outcome) is not int or not 0 <= self.outcome < self.size:
            raise UsageError(f"model: outcome {self.outcome!r} is not one of 0..{self.size - 1}")

    @staticmethod
    def from_logits(logits: Sequence[float], **rest: Any) -> FiniteModel:
        """The model whose q is the softmax of logits, q(x) = exp(z_x) / sum exp(z).

        >>> FiniteModel.from_logits([0.0, 0.0], p=[0.25, 0.75], u=[1, 0]).q
        (0.5, 0.5)

        logits: shape (n,).  rest: the other fields of FiniteModel.
        Raises UsageError: logits that are nan or infinite.
        """
        z = np.asarray(logits, dtype=float)
        if z.ndim != 1 or not np.isfinite(z).all():
            raise UsageError(f"model: logits: a list of finite numbers expected, got {z.tolist()}")
        return FiniteModel(q=softmax(z), **rest)

    @property
    def size(self) -> int:
        """The number of outcomes."""
        return len(self.q)

    @property
    def exact(self) -> bool:
        """Are all numbers rational?"""
        rows = [self.q, self.p, self.u, self.mu or (), *self.rewards.values(), [*self.parameters.values()]]
        return all(isinstance(value, Fraction) for row in rows for value in row)

    def moved(self, t: float, context: Context) -> FiniteModel:
        """The model at theta + t u, in floats; on-policy the sampler moves along."""
        q, u = (np.array([float(v) for v in row]) for row in (self.q, self.u))
        moved = softmax(np.log(q) + t * u)
        mu = moved if context.on_policy else self.mu
        return FiniteModel(moved, self.p, self.u, mu, self.parameters, self.rewards, self.outcome)

    def check(self, context: Context) -> None:
        """Raise UsageError: a parameter of the statement is missing, or mu != q on-policy."""
        refuse_unless_suited(self, context)

    def positions(self, system: System, tilt: Moves, step: Moves, on_policy: bool) -> Positions:
        """What is known at each outcome, see Table.positions."""
        rows = {"q": self.q, "p": self.p, "mu": self.mu or self.q}
        return Table(rows, {"u": self.u}, [0], self.rewards).positions(system, tilt, step, on_policy)

    def advantage_at(self, slot: str, key: tuple[int, ...]) -> Number:
        """A of several samples of a batch, within the range that A has at one."""
        if "A" not in self.rewards:
            raise UsageError("oracle: the model has no value for A")
        low, high = min(self.rewards["A"]), max(self.rewards["A"])
        return low + (high - low) * (1 + noise(slot, key)) / 2


def refuse_unless_suited(model: Any, context: Context) -> None:
    """Raise UsageError: a parameter of the statement is missing, or mu != q on-policy."""
    for name in context.parameters:
        if name not in model.parameters:
            raise UsageError(f"model: no value for the parameter {name}")
    if context.on_policy and model.mu != model.q:
        raise UsageError("model: the statement is on-policy, so mu must equal q")


def noise(slot: str, key: tuple[int, ...]) -> Fraction:
    """A number in [-1, 1] that looks random, the same for the same arguments.

    >>> noise("now", (1, 2)) == noise("now", (1, 2)) != noise("now", (2, 1))
    True
    """
    return Fraction(zlib.crc32(repr((slot, key)).encode()) % 2001 - 1000, 1000)


def checked_numbers(row: Any, name: str) -> tuple[Number, ...]:
    if isinstance(row, str) or not hasattr(row, "__iter__"):
        raise UsageError(f"model: {name}: a list of numbers expected, got {str(row)[:40]!r}")
    try:
        values = tuple(Fraction(v) if isinstance(v, Rational | str) else float(v) for v in row)
    except (TypeError, ValueError, ZeroDivisionError):
        raise UsageError(f"model: {name}: numbers expected, got {str(row)[:60]}") from None
    if not all(math.isfinite(value) for value in values):
        raise UsageError(f"model: {name} holds nan or infinity")
    return values


def refuse_unless_distribution(row: tuple[Number, ...], name: str) -> None:
    for x, value in enumerate(row):
        if value <= 0:
            raise UsageError(f"model: {name}[{x}] = {value} is not positive")
    exact = all(isinstance(value, Fraction) for value in row)
    total: Any = sum(row) if exact else math.fsum(row)
    if abs(total - 1) > (0 if exact else SUM_TOLERANCE):
        raise UsageError(f"model: {name} sums to {total}, not to 1")


def softmax(z: Any) -> tuple[float, ...]:
    weights = np.exp(z - z.max())
    return tuple((weights / weights.sum()).tolist())


def random_model(
    seed: int, size: int, context: Context | None = None, exact: bool = False, spread: float = 1.0
) -> FiniteModel:
    """A random model for statements in `context`, the same for the same arguments.

    Logits of q, p, mu are spread * N(0, 1); exact models have weights 1..9 over their sum.

    >>> random_model(3, 2, exact=True) == random_model(3, 2, exact=True)
    True

    seed: 0 or more.  size: number of outcomes.  spread: standard deviation of the logits.
    Parameters are nonzero, of both signs; n and T are integers from 2 to 6.
    Raises UsageError: size below 2, seed below 0.
    """
    if size < 2 or seed < 0:
        raise UsageError(f"model: seed {seed} and size {size}: at least 0 and 2 expected")
    context = context or Context()
    stream = np.random.default_rng([seed, size, int(exact)])
    q, p, mu = (random_distribution(stream, size, exact, spread) for _ in range(3))
    return FiniteModel(
        q=q, p=p, mu=q if context.on_policy else mu, u=random_direction(stream, size, exact),
        parameters={name: random_parameter(name, stream, exact) for name in context.parameters},
        rewards={name: random_direction(stream, size, exact) for name in ("R", "A")},
        outcome=int(stream.integers(size)),
    )  # fmt: skip


def random_distribution(stream: Any, size: int, exact: bool, spread: float) -> Sequence[Number]:
    if not exact:
        return softmax(spread * stream.normal(size=size))
    weights = stream.integers(1, 10, size).tolist()
    return [Fraction(weight, sum(weights)) for weight in weights]


def random_direction(stream: Any, size: int, exact: bool) -> Sequence[Number]:
    """Never constant: a constant direction moves nothing, so every gradient along it is 0."""
    if not exact:
        return stream.normal(size=size).tolist()
    return [Fraction(2 * k - size, 4) for k in stream.permutation(size).tolist()]


def random_parameter(name: str, stream: Any, exact: bool) -> Number:
    if name in COUNTS:
        return Fraction(int(stream.integers(2, 7)))
    sign, size = int(stream.choice([-1, 1])), int(stream.integers(3, 18))
    return Fraction(sign * size, 10) if exact else sign * stream.uniform(0.3, 1.7)


def from_certificate(data: Any) -> FiniteModel:
    """The exact model of a refutation, from the JSON of its certificate.

    >>> data = {"q": ["1/2", "1/2"], "p": ["1/4", "3/4"], "mu": ["1/3", "2/3"], "u": ["1", "0"],
    ...         "parameters": {}, "rewards": {}, "outcome": 0}
    >>> from_certificate(data).p
    (Fraction(1, 4), Fraction(3, 4))

    data: an object with the seven fields of FiniteModel, numbers written as strings.
    Raises UsageError: other fields, or what FiniteModel refuses.
    """
    if not isinstance(data, dict) or data.keys() != FiniteModel.__dataclass_fields__.keys():
        raise UsageError(f"model: the keys {', '.join(FiniteModel.__dataclass_fields__)} expected")
    return FiniteModel(**data)
