"""Finite models, the two number systems in which they are evaluated, and the values of variables.

A model holds probabilities q, p, mu on outcomes 0..n-1 and a direction u of the logits of q:

    q_t(x) = q(x) exp(t u_x) / sum_y q(y) exp(t u_y)
    u.s(x) = d/dt log q_t(x) at t = 0 = u_x - sum_y q(y) u_y

Derivatives in t come from a number t with t^2 = 0: `FLOAT` takes t = 1e-30 i (complex step, exact
to rounding), `EXACT` takes dual numbers over rational enclosures (exact, with an error bound).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from fractions import Fraction
from numbers import Rational
from typing import Any

import numpy as np

from klsym.errors import UsageError
from klsym.kernel.intervals import Interval
from klsym.normal_form import Exponent, ExpPoly, Monomial
from klsym.numeric.dual import Dual
from klsym.statements import MEASURES, THETA_FREE, Context, parse_name

Number = Fraction | float
SUM_TOLERANCE = 1e-12  # of float probabilities; rational ones must sum to one exactly
BELOW = {"k1": "p", "w": "mu", "log_q": "count"}  # each is the log of q over this density
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
        rows = [self.q, self.p, self.u, self.mu or (), *self.rewards.values(), [*self.parameters.values()]]
        return all(isinstance(value, Fraction) for row in rows for value in row)

    def moved(self, t: float, context: Context) -> FiniteModel:
        """The model at theta + t u, in floats; on-policy the sampler moves along."""
        q, u = (np.array([float(v) for v in row]) for row in (self.q, self.u))
        moved = _softmax(np.log(q) + t * u)
        mu = moved if context.on_policy else self.mu
        return FiniteModel(moved, self.p, self.u, mu, self.parameters, self.rewards, self.outcome)

    def check(self, context: Context) -> None:
        """Raise UsageError: a parameter of the statement is missing, or mu != q on-policy."""
        for name in context.parameters:
            if name not in self.parameters:
                raise UsageError(f"model: no value for the parameter {name}")
        if context.on_policy and self.mu != self.q:
            raise UsageError("model: the statement is on-policy, so mu must equal q")


def _numbers(row: Any, name: str) -> tuple[Number, ...]:
    if isinstance(row, str) or not hasattr(row, "__iter__"):
        raise UsageError(f"model: {name}: a list of numbers expected, got {str(row)[:40]!r}")
    try:
        values = tuple(Fraction(v) if isinstance(v, Rational | str) else float(v) for v in row)
    except (TypeError, ValueError, ZeroDivisionError):
        raise UsageError(f"model: {name}: numbers expected, got {str(row)[:60]}") from None
    if not all(math.isfinite(value) for value in values):
        raise UsageError(f"model: {name} holds nan or infinity")
    return values


def _refuse_unless_distribution(row: tuple[Number, ...], name: str) -> None:
    for x, value in enumerate(row):
        if value <= 0:
            raise UsageError(f"model: {name}[{x}] = {value} is not positive")
    exact = all(isinstance(value, Fraction) for value in row)
    total: Any = sum(row) if exact else math.fsum(row)
    if abs(total - 1) > (0 if exact else SUM_TOLERANCE):
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
    Raises UsageError: size below 2, seed below 0.
    """
    if size < 2 or seed < 0:
        raise UsageError(f"model: seed {seed} and size {size}: at least 0 and 2 expected")
    context = context or Context()
    stream = np.random.default_rng([seed, size, int(exact)])
    q, p, mu = (_distribution(stream, size, exact, spread) for _ in range(3))
    return FiniteModel(
        q=q, p=p, mu=q if context.on_policy else mu, u=_row(stream, size, exact),
        parameters={name: _parameter(name, stream, exact) for name in context.parameters},
        rewards={name: _row(stream, size, exact) for name in ("R", "A")},
        outcome=int(stream.integers(size)),
    )  # fmt: skip


def _distribution(stream: Any, size: int, exact: bool, spread: float) -> Sequence[Number]:
    if not exact:
        return _softmax(spread * stream.normal(size=size))
    weights = stream.integers(1, 10, size).tolist()
    return [Fraction(weight, sum(weights)) for weight in weights]


def _row(stream: Any, size: int, exact: bool) -> Sequence[Number]:
    """Never constant: a constant direction moves nothing, so every gradient along it is 0."""
    if not exact:
        return stream.normal(size=size).tolist()
    return [Fraction(2 * k - size, 4) for k in stream.permutation(size).tolist()]


def _parameter(name: str, stream: Any, exact: bool) -> Number:
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


# ---------------------------------------------------------------------------- number systems
H = 1e-30  # so small that h^2 is lost to rounding


@dataclass(frozen=True)
class System:
    """Numbers of the form value + slope t with t^2 = 0, as the evaluator needs them.

    lift: a rational or float, or a list of them, -> an element, or an array of shape (n,).
    step: the element t.  slope: element -> its slope, as an element.
    magnitude: element or array -> |value| in floats; 0 where rounding needs no scale.
    """

    lift: Callable[[Any], Any]
    step: Any
    slope: Callable[[Any], Any]
    magnitude: Callable[[Any], Any]


def _lift_dual(values: Any) -> Any:
    if isinstance(values, int | Fraction):
        return Dual.of(values)
    return np.array([Dual.of(value) for value in values], dtype=object)


FLOAT = System(
    lift=lambda values: np.asarray(values, dtype=float),
    step=1j * H,
    slope=lambda element: np.imag(element) / H,
    magnitude=lambda array: np.abs(np.real(array)),
)
EXACT = System(
    lift=_lift_dual,
    step=Dual.of(0, 1),
    slope=lambda element: Dual(element.slope, Interval.exact(0)),
    magnitude=lambda array: np.zeros(np.shape(array)),
)


@dataclass(frozen=True, slots=True)
class Sized:
    """A number or array, and the size of the terms that it was summed from, |value| + |slope| i H.

    >>> Sized(1.0, 1.0) - Sized(1.0, 1.0)
    Sized(value=0.0, size=2.0)
    """

    value: Any
    size: Any

    def __add__(self, other: Sized) -> Sized:
        return Sized(self.value + other.value, self.size + other.size)

    def __sub__(self, other: Sized) -> Sized:
        return Sized(self.value - other.value, self.size + other.size)

    def __mul__(self, other: Sized) -> Sized:
        return Sized(self.value * other.value, self.size * other.size)

    def sum(self) -> Sized:
        return Sized(np.sum(self.value), np.sum(self.size))

    def at(self, x: int) -> Sized:
        return Sized(self.value[x], self.size[x])


@dataclass(frozen=True, slots=True)
class Ratio:
    """A positive array x; drift bounds |d log x|, and size is that of log x."""

    system: System
    value: Any
    size: Any
    drift: Any

    def log(self) -> Sized:
        return Sized(np.log(self.value), self.size + 1j * H * self.drift)

    def power(self, n: int) -> Sized:
        """x^n, which stays rational where exp(n log x) would not."""
        value = self.value**n
        return Sized(value, self.system.magnitude(value) * (1 + 1j * H * abs(n) * self.drift))

    def over(self, other: Ratio) -> Ratio:
        size, drift = self.size + other.size, self.drift + other.drift
        return Ratio(self.system, self.value / other.value, size, drift)


def refuse_unless(condition: bool, reason: str) -> None:
    """Raise UsageError for what the oracle cannot evaluate."""
    if not condition:
        raise UsageError(f"oracle: {reason}")


# ---------------------------------------------------------------------------- variables
Instance = Callable[..., Any] | ExpPoly  # what a generic function may be
Functions = Mapping[str, Instance]


class Scope:
    """Variables that are logs of given ratios, and parameters."""

    def __init__(self, model: FiniteModel, system: System, ratios: Mapping[str, Ratio]) -> None:
        self.model, self.system, self.ratios = model, system, ratios
        self.known: dict[str, Sized] = {}

    def variable(self, name: str) -> Sized:
        if name not in self.known:
            self.known[name] = self._find(name)
        return self.known[name]

    def _find(self, name: str) -> Sized:
        if name in self.model.parameters:
            return self.constant(self.model.parameters[name])
        refuse_unless(name in self.ratios, f"no value for {name!r}")
        return self.ratios[name].log()

    def constant(self, value: Any) -> Sized:
        lifted = self.system.lift(value)
        return Sized(lifted, self.system.magnitude(lifted))

    def polynomial(self, a: ExpPoly) -> Sized:
        """An exponential polynomial at each outcome, shape (n,)."""
        total = self.constant([0] * len(next(iter(self.ratios.values())).value))
        for (monomial, exponent), value in a.terms.items():
            scale = self.constant(Fraction(value))
            total = total + scale * self._monomial(monomial) * self._exponential(exponent)
        return total

    def _monomial(self, monomial: Monomial) -> Sized:
        product = self.constant(1)
        for name, power in monomial:
            nonzero = power > 0 or bool(self.model.parameters.get(name))
            refuse_unless(nonzero, f"division by {name}, which is zero or random")
            factor = self.variable(name)
            product = product * Sized(factor.value**power, factor.size**power)
        return product

    def _exponential(self, exponent: Exponent) -> Sized:
        product, rest = self.constant(1), self.constant(0)
        for monomial, value in exponent:
            name, power = monomial[0] if len(monomial) == 1 else ("", 0)
            if name in self.ratios and power == 1 and value.denominator == 1:
                product = product * self.ratios[name].power(int(value))
            else:
                rest = rest + self.constant(Fraction(value)) * self._monomial(monomial)
        value = np.exp(rest.value)
        return product * Sized(value, self.system.magnitude(value) * (1 + 1j * np.imag(rest.size)))


class Frame(Scope):
    """All variables at theta + t u; `still` is the frame at theta, where what is detached lives."""

    def __init__(
        self, model: FiniteModel, system: System, context: Context, functions: Functions,
        still: Frame | None = None,
    ) -> None:  # fmt: skip
        self.context, self.functions = context, functions
        self.still, self.moving = still or self, still is not None
        u, start = system.lift(model.u), system.lift(model.q)
        weights = start * np.exp((system.step if still else system.lift(0)) * u)
        values = {"q": weights / weights.sum(), "count": system.lift([1] * model.size)}
        values |= {"p": system.lift(model.p), "mu": system.lift(model.mu)}
        mean = Sized((start * u).sum(), np.sum(system.magnitude(start) * system.magnitude(u)))
        self.scores = Sized(u, system.magnitude(u)) - mean
        self.densities = {}
        for name, value in values.items():
            drift = self.scores.size * (self.moving and name == "q")
            self.densities[name] = Ratio(system, value, system.magnitude(np.log(value)), drift)
        q = self.densities["q"]
        live = {name: q.over(self.densities[m]) for name, m in BELOW.items()}
        detached = {f"sg({name})": (still.ratios if still else live)[name] for name in live}
        super().__init__(model, system, live | detached)

    def moved(self) -> Frame:
        """The frame whose q, k1, w, log_q move along u."""
        refuse_unless(not self.moving, "a gradient inside a gradient is not evaluated")
        return Frame(self.model, self.system, self.context, self.functions, self)

    def density(self, measure: str) -> Ratio:
        refuse_unless(measure in MEASURES, f"unknown measure {measure!r}")
        return self.densities[measure]

    def score(self) -> Sized:
        """u.s(x) = u_x - sum q u."""
        refuse_unless(not self.moving, "the gradient of a score function is not evaluated")
        return self.scores

    def _find(self, name: str) -> Sized:
        if name in self.context.parameters or name in self.ratios:
            return super()._find(name)
        parsed, given = parse_name(name), dict(self.context.given)
        refuse_unless(parsed.slot == "x", f"{name!r}: only single samples are evaluated")
        if parsed.detached:
            return self.still.variable(name[3:-1])
        if parsed.primes:
            refuse_unless(parsed.primes == 1 and not self.moving, f"{name!r} is differentiated once more")
            return self._slope(parsed.base)
        if name in given:  # the value at theta, a constant from then on
            refuse_unless(not given[name].names() & set(given), "given values name one another")
            return self.still.polynomial(given[name])
        if name in self.context.function_arguments:
            return self._call(name)
        known = name in THETA_FREE and name in self.model.rewards
        refuse_unless(known, f"no value for {name!r}")
        return self.constant(self.model.rewards[name])

    def _slope(self, name: str) -> Sized:
        """df/dlog q, along which k1, w and log q all move by t."""
        moved, one = copy(self), self.system.lift(1) + self.system.step
        ratios = {n: Ratio(r.system, r.value * one, r.size, 1.0) for n, r in self.ratios.items()}
        moved.ratios, moved.known = ratios, {}
        value = moved._call(name)
        return Sized(np.array([self.system.slope(v) for v in value.value]), FLOAT.slope(value.size))

    def _call(self, name: str) -> Sized:
        names = self.context.function_arguments[name]
        instance = self.functions[name]
        if isinstance(instance, ExpPoly):
            foreign = instance.names() - {*names, *self.context.parameters}
            refuse_unless(not foreign, f"function {name}: may depend on {', '.join(names)} only")
            return self.polynomial(instance)
        refuse_unless(self.system is FLOAT, f"function {name} is a callable, known in floats only")
        arguments = [self.variable(argument).value for argument in names]
        value = np.broadcast_to(instance(*arguments), arguments[0].shape)
        return Sized(value, np.abs(np.real(value)) + 1j * np.abs(np.imag(value)))
