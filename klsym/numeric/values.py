"""The values of variables at positions: at theta + t u, or detached at theta."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from fractions import Fraction
from typing import Any

import numpy as np

from klsym.abbreviations import Context
from klsym.names import MEASURES, THETA_FREE, parse_name
from klsym.numeric.positions import Positions
from klsym.numeric.systems import FLOAT, Ratio, Sized, System, refuse_unless
from klsym.numeric.trees import Model
from klsym.ring import Exponent, ExpPoly, Monomial

BELOW = {"k1": "p", "w": "mu", "log_q": "count"}  # each is the log of q over this density

Instance = Callable[..., Any] | ExpPoly  # what a generic function may be
Functions = Mapping[str, Instance]


class Scope:
    """Variables that are logs of given ratios, and parameters."""

    def __init__(self, model: Model, system: System, ratios: Mapping[str, Ratio]) -> None:
        self.model, self.system, self.ratios = model, system, ratios
        self.known: dict[str, Sized] = {}

    @property
    def count(self) -> int:
        """How many values a variable has."""
        return len(next(iter(self.ratios.values())).value)

    def ratio(self, name: str) -> Ratio | None:
        """What a variable is the log of."""
        return self.ratios.get(name)

    def variable(self, name: str) -> Sized:
        if name not in self.known:
            self.known[name] = self._find(name)
        return self.known[name]

    def _find(self, name: str) -> Sized:
        if name in self.model.parameters:
            return self.constant(self.model.parameters[name])
        ratio = self.ratio(name)
        refuse_unless(ratio is not None, f"no value for {name!r}")
        assert ratio is not None
        return ratio.log()

    def constant(self, value: Any) -> Sized:
        lifted = self.system.lift(value)
        return Sized(lifted, self.system.magnitude(lifted))

    def polynomial(self, a: ExpPoly) -> Sized:
        """An exponential polynomial at each position, shape (count,)."""
        total = self.constant([0] * self.count)
        for (monomial, exponent), value in a.terms.items():
            scale = self.constant(Fraction(value))
            total = total + scale * self._monomial(monomial) * self._exponential(exponent)
        return total

    def _monomial(self, monomial: Monomial) -> Sized:
        product = self.constant(1)
        for name, power in monomial:
            positive = power > 0 or name in ("length", "sg(length)")
            nonzero = positive or bool(self.model.parameters.get(name))
            refuse_unless(nonzero, f"division by {name}, which is zero or random")
            factor = self.variable(name)
            product = product * Sized(factor.value**power, factor.size**power)
        return product

    def _exponential(self, exponent: Exponent) -> Sized:
        product, rest = self.constant(1), self.constant(0)
        for monomial, value in exponent:
            name, power = monomial[0] if len(monomial) == 1 else ("", 0)
            ratio = self.ratio(name) if power == 1 and value.denominator == 1 else None
            if ratio is not None:
                product = product * ratio.power(int(value))
            else:
                rest = rest + self.constant(Fraction(value)) * self._monomial(monomial)
        value = np.exp(rest.value)
        return product * Sized(value, self.system.magnitude(value) * (1 + 1j * np.imag(rest.size)))


class Values(Scope):
    """All variables at positions; `still` is where what is detached lives, moving: is it elsewhere?"""

    def __init__(
        self, model: Model, system: System, context: Context, functions: Functions,
        positions: Positions, still: Values | None = None,
    ) -> None:  # fmt: skip
        self.context, self.functions, self.positions = context, functions, positions
        self.still, self.moving = still or self, still is not None
        q = positions.densities["q"]
        live = {name: q.over(positions.densities[m]) for name, m in BELOW.items()}
        detached = {f"sg({name})": (still.ratios if still else live)[name] for name in live}
        super().__init__(model, system, live | detached)

    def density(self, measure: str) -> Ratio:
        refuse_unless(measure in MEASURES, f"unknown measure {measure!r}")
        return self.positions.densities[measure]

    def score(self, along: str = "u") -> Sized:
        """u.s(x) = u_x - sum q u."""
        refuse_unless(not self.moving, "the gradient of a score function is not evaluated")
        refuse_unless(along in self.positions.scores, f"the model has no direction {along!r}")
        return self.positions.scores[along]

    def _find(self, name: str) -> Sized:
        if name in self.context.parameters or name in self.ratios:
            return super()._find(name)
        parsed = parse_name(name)
        refuse_unless(parsed.slot == "x", f"{name!r}: only single samples are evaluated")
        if parsed.detached:
            return self.still.variable(name[3:-1])
        if parsed.primes:
            refuse_unless(parsed.primes == 1 and not self.moving, f"{name!r} is differentiated once more")
            return self._slope(parsed.base)
        if name in self.context.function_arguments:
            return self._call(name)
        given = self._given(name)
        if given is not None:
            return given
        known = name in THETA_FREE and name in self.positions.rewards
        refuse_unless(known, f"no value for {name!r}")
        return self.constant(self.positions.rewards[name])

    def _given(self, name: str) -> Sized | None:
        """What the statement says that a reward is."""
        return None

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
