"""Finite models, and the two number systems in which statements are evaluated on them.

A model holds probabilities q, p, mu on outcomes 0..n-1 and a direction u of the softmax logits of q:

    q_t(x) = q(x) exp(t u_x) / sum_y q(y) exp(t u_y),    u.s(x) = d/dt log q_t(x) at 0 = u_x - sum q u

Derivatives in t come from one more number t with t^2 = 0: `FLOAT` takes t = 1e-30 i (complex step, exact
to rounding), `EXACT` takes dual numbers over rational enclosures (exact, with an error bound).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from numbers import Rational
from typing import Any

import numpy as np

from klsym.errors import UsageError
from klsym.kernel.intervals import Interval, exp_of_interval, log_enclosure
from klsym.normal_form import ExpPoly
from klsym.statements import Context

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
    Integers, Fractions and strings such as "1/2" are exact; a model of exact numbers can be enclosed.
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
        set_(self, "mu", self.q if self.mu is None else self.mu)
        for name in ("q", "p", "mu", "u"):
            set_(self, name, _numbers(getattr(self, name), name))
        set_(self, "parameters", {n: _numbers([v], n)[0] for n, v in self.parameters.items()})
        set_(self, "rewards", {n: _numbers(v, n) for n, v in self.rewards.items()})
        rows = {name: getattr(self, name) for name in ("p", "mu", "u")} | dict(self.rewards)
        for name, row in rows.items():
            if len(row) != self.size or self.size < 2:
                raise UsageError(f"model: q has {self.size} entries (2 or more), {name} {len(row)}")
        for name in ("q", "p", "mu"):
            _refuse_unless_distribution(getattr(self, name), name)
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
        return FiniteModel(q=_softmax(z), **rest)

    @property
    def size(self) -> int:
        """The number of outcomes."""
        return len(self.q)

    @property
    def exact(self) -> bool:
        """Are all numbers rational?"""
        rows = [self.q, self.p, self.u, self.mu or (), list(self.parameters.values())]
        rows.extend(self.rewards.values())
        return all(isinstance(value, Fraction) for row in rows for value in row)

    def moved(self, t: float, context: Context) -> FiniteModel:
        """The model at theta + t u, in floats; on-policy the sampler moves along.

        >>> model = FiniteModel(q=["1/2", "1/2"], p=["1/4", "3/4"], u=[1, 0])
        >>> moved = model.moved(math.log(3), Context())
        >>> [round(float(value), 12) for value in moved.q]
        [0.75, 0.25]
        """
        q, u = (np.array([float(v) for v in row]) for row in (self.q, self.u))
        moved = _softmax(np.log(q) + t * u)
        mu = moved if context.on_policy else self.mu
        return FiniteModel(moved, self.p, self.u, mu, self.parameters, self.rewards, self.outcome)

    def check(self, context: Context) -> None:
        """Refuse a model that is none of the statement: parameters missing, or mu != q on-policy.

        >>> FiniteModel(q=["1/2", "1/2"], p=["1/4", "3/4"], u=[1, 0]).check(Context(("beta",)))
        Traceback (most recent call last):
            ...
        klsym.errors.UsageError: model: no value for the parameter beta
        """
        for name in context.parameters:
            if name not in self.parameters:
                raise UsageError(f"model: no value for the parameter {name}")
        if context.on_policy and self.mu != self.q:
            raise UsageError("model: the statement is on-policy, so mu must equal q")


def _numbers(row: Any, name: str) -> tuple[Number, ...]:
    if isinstance(row, str) or not hasattr(row, "__iter__"):
        raise UsageError(f"model: {name}: a list of numbers expected, got {str(row)[:40]!r}")
    try:
        values = tuple(_number(value) for value in row)
    except (TypeError, ValueError, ZeroDivisionError):
        raise UsageError(f"model: {name}: numbers expected, got {str(row)[:60]}") from None
    if not all(math.isfinite(value) for value in values):
        raise UsageError(f"model: {name} holds nan or infinity")
    return values


def _number(value: Any) -> Number:
    return Fraction(value) if isinstance(value, Rational | str) else float(value)


def _refuse_unless_distribution(row: tuple[Number, ...], name: str) -> None:
    for x, value in enumerate(row):
        if value <= 0:
            raise UsageError(f"model: {name}[{x}] = {value} is not positive")
    total = sum(row)
    if total != 1 and (isinstance(total, Fraction) or abs(total - 1) > SUM_TOLERANCE):
        raise UsageError(f"model: {name} sums to {total}, not to 1")


def _softmax(z: Any) -> tuple[float, ...]:
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
    Raises UsageError: size below 2.
    """
    context = context or Context()
    stream = np.random.default_rng([seed, size, int(exact)])
    if exact:
        draw = lambda: _ratios(stream.integers(1, 10, size).tolist())  # noqa: E731
        row = lambda: [Fraction(k, 4) for k in stream.integers(-8, 9, size).tolist()]  # noqa: E731
    else:
        draw = lambda: _softmax(spread * stream.normal(size=size))  # noqa: E731
        row = lambda: stream.normal(size=size).tolist()  # noqa: E731
    q, p, mu = draw(), draw(), draw()
    return FiniteModel(
        q=q, p=p, mu=q if context.on_policy else mu, u=row(),
        parameters={name: _parameter(name, stream, exact) for name in context.parameters},
        rewards={"R": row(), "A": row()}, outcome=int(stream.integers(size)),
    )  # fmt: skip


def _ratios(weights: list[int]) -> list[Fraction]:
    return [Fraction(weight, sum(weights)) for weight in weights]


def _parameter(name: str, stream: np.random.Generator, exact: bool) -> Number:
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
    fields = set(FiniteModel.__dataclass_fields__)
    if not isinstance(data, dict) or set(data) != fields:
        raise UsageError(f"model: the keys {sorted(fields)} expected")
    return FiniteModel(**data)


# ---------------------------------------------------------------------------- dual numbers
@dataclass(frozen=True, slots=True)
class Dual:
    """value + slope t with t^2 = 0, both enclosed in rational intervals.

    >>> x = Dual.of(Fraction(2), Fraction(1))
    >>> (x ** 3 / x).slope == Interval.exact(4)
    True
    """

    value: Interval
    slope: Interval

    @staticmethod
    def of(value: int | Fraction, slope: int | Fraction = 0) -> Dual:
        return Dual(Interval.exact(value), Interval.exact(slope))

    def __add__(self, other: Any) -> Dual:
        other = _dual(other)
        if other is NotImplemented:
            return NotImplemented
        return Dual(self.value + other.value, self.slope + other.slope)

    def __mul__(self, other: Any) -> Dual:
        other = _dual(other)
        if other is NotImplemented:
            return NotImplemented
        slope = self.slope * other.value + self.value * other.slope
        return Dual(_tidy(self.value * other.value), _tidy(slope))

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Dual:
        return self * -1

    def __sub__(self, other: Any) -> Dual:
        return self + other * -1

    def __rsub__(self, other: Any) -> Dual:
        return -self + other

    def __pow__(self, power: int) -> Dual:
        """d x^n = n x^(n-1) dx."""
        if power == 0:
            return Dual.of(1)
        slope = Interval.exact(power) * self.value ** (power - 1) * self.slope
        return Dual(_tidy(self.value**power), _tidy(slope))

    def __truediv__(self, other: Any) -> Dual:
        other = _dual(other)
        return NotImplemented if other is NotImplemented else self * other**-1

    def __rtruediv__(self, other: Any) -> Dual:
        return self**-1 * other

    def exp(self) -> Dual:
        """d exp x = exp x dx; NumPy's exp calls this on object arrays."""
        value = exp_of_interval(self.value)
        return Dual(value, _tidy(value * self.slope))

    def log(self) -> Dual:
        """d log x = dx / x; NumPy's log calls this on object arrays."""
        ends = (log_enclosure(end) for end in (self.value.lower, self.value.upper))
        low, high = ends
        return Dual(Interval(low.lower, high.upper), _tidy(self.value**-1 * self.slope))


def _dual(value: Any) -> Any:
    if isinstance(value, Dual):
        return value
    return Dual.of(value) if isinstance(value, int | Fraction) else NotImplemented


def _tidy(interval: Interval) -> Interval:
    """Points stay exact; what has a width is rounded outwards, so that its ends stay short."""
    return interval if interval.lower == interval.upper else interval.rounded()


# ---------------------------------------------------------------------------- number systems
@dataclass(frozen=True)
class System:
    """Numbers of the form value + slope t with t^2 = 0, as the evaluator needs them.

    lift: a rational or float, or a list of them, -> an element, or an array of shape (n,).
    step: the element t.  slope: element -> its slope, as an element.
    majorant: array -> |value| + |slope| t, from which the size of the terms is summed.
    """

    name: str
    lift: Callable[[Any], Any]
    step: Any
    slope: Callable[[Any], Any]
    majorant: Callable[[Any], Any]


H = 1e-30  # so small that h^2 is lost to rounding


def _lift_dual(values: Any) -> Any:
    if isinstance(values, int | Fraction):
        return Dual.of(values)
    lifted = np.empty(len(values), dtype=object)
    lifted[:] = [Dual.of(value) for value in values]
    return lifted


FLOAT = System(
    "float",
    lift=lambda values: np.asarray(values, dtype=float),
    step=1j * H,
    slope=lambda element: np.imag(element) / H,
    majorant=lambda array: np.abs(np.real(array)) + 1j * np.abs(np.imag(array)),
)
EXACT = System(
    "exact",
    lift=_lift_dual,
    step=Dual.of(0, 1),
    slope=lambda element: Dual(element.slope, Interval.exact(0)),
    majorant=lambda array: Dual.of(0),  # an enclosure knows its own error
)

Instance = Callable[..., Any] | ExpPoly  # what a generic function may be
