"""Sampling finite models by the counts of their outcomes.

The integrands are evaluated on the backend, a few numbers for each outcome.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from klsym.abbreviations import Context
from klsym.errors import UsageError
from klsym.kernel.derivatives import attach
from klsym.names import parse_name
from klsym.numeric.exact import default_function
from klsym.numeric.models import FLOAT, FiniteModel
from klsym.ring import ExpPoly
from klsym.sampling.backends import Backend, backend
from klsym.sampling.counted import SMALLEST, CountedSampler
from klsym.sampling.evaluate import Variables
from klsym.sampling.means import Mean
from klsym.sampling.sampler import Averages, Products


class FiniteSampler(CountedSampler):
    """A finite model, sampled by multinomial counts.

    s_u(x) = u.s(x) = u_x - sum_y q(y) u_y for each direction u of the logits

    >>> from klsym.numeric.models import random_model
    >>> from klsym.sampling.means import means_of
    >>> from klsym.engine.quantities import KL
    >>> from klsym.sampling.streams import Stream
    >>> sampler = FiniteSampler(random_model(0, 4), Context())
    >>> products = means_of(KL("q", "p").side, Context())
    >>> spread, seen = sampler.spread(products), sampler.averages([products[0][1][0]], 10**12, Stream(7))
    >>> bool(abs(sampler.combine(products, seen) - spread.value)[0] < 6e-6 * spread.deviation[0])
    True

    model: the model, with a value for each parameter of the context.  directions: shape (d, n), the
    model's own u when not given.  functions: generic function -> callable or ExpPoly, as the exact
    oracle takes them.  on: the backend of the integrands.
    Raises UsageError: a name without a value, probabilities below 1e-200.
    """

    def __init__(
        self,
        model: FiniteModel,
        context: Context,
        functions: Mapping[str, Any] | None = None,
        directions: Any = None,
        on: Backend | None = None,
    ) -> None:
        model.check(context)
        self.context, self.backend = context, on or backend("numpy")
        self.functions = dict(functions or {})
        self.rewards = {name: np.array([float(v) for v in row]) for name, row in model.rewards.items()}
        self.parameters = {name: float(value) for name, value in model.parameters.items()}
        rows = {"q": model.q, "p": model.p, "mu": model.mu}
        self.probabilities = {m: np.array([float(v) for v in row]) for m, row in rows.items() if row}
        if not all(row.min() > SMALLEST for row in self.probabilities.values()):
            raise UsageError("sampling: the model holds probabilities beyond the range of floats")
        u = np.array([[float(v) for v in model.u]]) if directions is None else np.asarray(directions, float)
        self.scores = u - (u @ self.probabilities["q"])[:, None]
        self._rows: dict[Mean, Any] = {}
        self._variables = Variables(self.backend.xp, self._lookup)

    # -- values at the outcomes ------------------------------------------------------------
    def rows(self, mean: Mean) -> Any:
        """The integrand at each outcome, along each direction, shape (d, n), on the host."""
        if mean not in self._rows:
            value = self._variables.ring(mean.element)
            on_host = value if isinstance(value, float) else self.backend.to_numpy(value)
            row = np.broadcast_to(on_host, self.scores.shape[1:])
            self._rows[mean] = row * self.scores**mean.power
        return self._rows[mean]

    def _lookup(self, name: str) -> Any:
        if name in self.parameters:
            return self.parameters[name]
        return self.backend.asarray(self._on_host(name))

    def _on_host(self, name: str) -> Any:
        p = self.probabilities
        match name:
            case "k1":
                return np.log(p["q"]) - np.log(p["p"])
            case "w":
                return np.log(p["q"]) - np.log(p["mu"])
            case "log_q":
                return np.log(p["q"])
        given = dict(self.context.given)
        if name in given:
            return np.broadcast_to(self._host_ring(attach(given[name])), p["q"].shape)
        if name in self.rewards:
            return self.rewards[name]
        parsed = parse_name(name)
        if parsed.base in self.context.function_arguments and parsed.primes <= 1:
            return self._generic(parsed.base, parsed.primes)
        raise UsageError(f"sampling: no value for {name!r}")

    def _host_ring(self, element: ExpPoly) -> Any:
        host = dict(self.parameters)
        return Variables(np, lambda n: host[n] if n in host else self._on_host(n)).ring(element)

    def _generic(self, name: str, primes: int) -> Any:
        """f, or f' = df/dlog q: every argument moves with log q, so a complex step moves them all."""
        instance = self.functions.get(name) or default_function(name)
        if isinstance(instance, ExpPoly):
            slope = instance.derive(lambda n: ExpPoly.number(int(n in ("k1", "w", "log_q"))))
            return np.broadcast_to(
                self._host_ring(slope if primes else instance), self.probabilities["q"].shape
            )
        names = self.context.function_arguments[name]
        arguments = [self._on_host(argument) + (FLOAT.step if primes else 0) for argument in names]
        value = instance(*arguments)
        return np.broadcast_to(FLOAT.slope(value) if primes else np.real(value), arguments[0].shape)

    def along_logits(self) -> FiniteSampler:
        """The same sampler with one direction a logit."""
        other = copy.copy(self)
        q = self.probabilities["q"]
        other.scores = np.eye(len(q)) - q[:, None]
        other._rows = {}
        return other

    def size(self, products: Products, exact: Averages) -> Any:
        total: Any = 0.0
        for coefficient, means in products:
            term: Any = abs(self.constant(coefficient))
            for mean in means:
                size = self._variables.size(mean.element)
                on_host = size if isinstance(size, float) else self.backend.to_numpy(size)
                term = term * (
                    (on_host * np.abs(self.scores) ** mean.power) @ self.probabilities[mean.measure]
                )
            total = total + term
        return total
