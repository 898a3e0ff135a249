"""Sampling batches and sequences by the counts of whole batches, or of whole sequences of a tree.

A sample is what training code draws at once, a batch (x_1..x_n) or a sequence y.  At a sample an estimate is

    E_m[a]              a at y, or at x_1
    E_m[mean_i a s..s]  a at i = 1, all i being alike
    E_m[sum_t a s..s]   the sum of a over the steps of y

with each slot's variables summed over its positions by `numeric.indices`; the coefficients are evaluated by
`evaluate`, which the exact oracle does not use.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from klsym.abbreviations import Context
from klsym.errors import UsageError
from klsym.kernel.derivatives import attach
from klsym.names import parse_name
from klsym.numeric.exact import default_function
from klsym.numeric.indices import PREFIX, Index, batch_size, index_of
from klsym.numeric.models import FLOAT, FiniteModel
from klsym.numeric.positions import Places
from klsym.numeric.trees import Model, TreeModel
from klsym.ring import ExpPoly
from klsym.sampling.backends import Backend, backend
from klsym.sampling.counted import SMALLEST, CountedSampler
from klsym.sampling.evaluate import Variables
from klsym.sampling.means import Mean
from klsym.sampling.sampler import Averages, Products
from klsym.slots import SECOND, slot_of_score

ONE_SAMPLE = ("self", "other", "x")  # slots in which A is that of one whole sample


class IndexedSampler(CountedSampler):
    """A tree of sequences, or batches of a finite model, sampled by multinomial counts.

    >>> from klsym.engine.indexed import sum_over_t
    >>> from klsym.language import k1, now, s
    >>> from klsym.numeric.trees import random_tree
    >>> from klsym.sampling.means import means_of
    >>> from klsym.sampling.streams import Stream
    >>> sampler = IndexedSampler(random_tree(0), Context(), batches=False)
    >>> products = means_of(sum_over_t(now(k1), under="q").side, Context())
    >>> spread, seen = sampler.spread(products), sampler.averages([products[0][1][0]], 10**12, Stream(7))
    >>> bool(abs(sampler.combine(products, seen) - spread.value)[0] < 6e-6 * spread.deviation[0])
    True

    model: with a value for each parameter of the context, n too where a sample is a batch of n.
    batches: is a sample a batch?  directions: of theta, shape (d, entries of the model's u), its own u when
    not given; a second direction is the model's v.  functions: as the exact oracle takes them.
    Raises UsageError: a name without a value, probabilities below 1e-200, more than 2^53 samples.
    """

    def __init__(
        self,
        model: Model,
        context: Context,
        functions: Mapping[str, Any] | None = None,
        directions: Any = None,
        on: Backend | None = None,
        batches: bool = True,
    ) -> None:
        model.check(context)
        self.model, self.context, self.backend = model, context, on or backend("numpy")
        self.functions = dict(functions or {})
        self.parameters = {name: float(value) for name, value in model.parameters.items()}
        size = batch_size(model) if batches else 1
        self.batches = np.stack(np.meshgrid(*[np.arange(model.size)] * size, indexing="ij"), axis=-1).reshape(
            -1, size
        )
        self.tables = _Tables(model)
        whole = {m: np.exp(self.tables.log(m, True)) for m in ("q", "p", "mu")}
        self.probabilities = {m: row[self.batches].prod(axis=1) for m, row in whole.items()}
        if not all(row.min() > SMALLEST for row in self.probabilities.values()):
            raise UsageError("sampling: the model holds probabilities beyond the range of floats")
        self.directions = (
            np.array([[float(x) for x in model.u]]) if directions is None else np.asarray(directions, float)
        )
        self._rows: dict[Mean, Any] = {}
        self._at: dict[str, _Rows] = {}

    # -- values at the samples -------------------------------------------------------------
    def rows(self, mean: Mean) -> Any:
        """The integrand at each sample, along each direction, shape (d, samples)."""
        if mean not in self._rows:
            value = self._values(mean, mean.element)
            for entry in mean.score or ("x",) * mean.power:
                value = value * self._score(mean, entry)
            self._rows[mean] = self._gathered(
                mean, np.broadcast_to(value, (len(self.directions), value.shape[-1]))
            )
        return self._rows[mean]

    def _values(self, mean: Mean, element: ExpPoly, sized: bool = False) -> Any:
        at = self._at.setdefault(mean.index, _Rows(self, mean.index))
        value = at.variables.size(element) if sized else at.variables.ring(element)
        on_host = value if isinstance(value, float) else self.backend.to_numpy(value)
        return np.broadcast_to(on_host, (len(at.batches),))

    def _score(self, mean: Mean, entry: str) -> Any:
        at = self._at.setdefault(mean.index, _Rows(self, mean.index))
        along = (
            self.directions if not entry.endswith(SECOND) else np.array([[float(x) for x in self._second]])
        )
        places = at.places(slot_of_score(entry) if mean.index else "x")
        return np.stack([places.total(self.tables.score(row, places.whole)) for row in along])

    @property
    def _second(self) -> Sequence[Any]:
        if not isinstance(self.model, TreeModel):
            raise UsageError("sampling: a second direction needs a tree")
        return self.model.v

    def _gathered(self, mean: Mean, values: Any) -> Any:
        """The rows of one sample summed, shape (d, samples)."""
        drawn = self._at[mean.index].batches
        if not mean.index and self.batches.shape[1] > 1:
            return values[:, self.batches[:, 0]]
        keys = np.zeros(len(drawn), dtype=np.intp)
        for column in drawn.T:
            keys = keys * self.model.size + column
        if drawn.shape[1] < self.batches.shape[1]:  # a sum over t of x_1 alone
            keys, values = self._repeated(keys, values)
        return np.stack([np.bincount(keys, row, len(self.batches)) for row in values])

    def _repeated(self, keys: Any, values: Any) -> tuple[Any, Any]:
        first = self.batches[:, 0]
        rows = [np.flatnonzero(keys == x) for x in range(self.model.size)]
        picked = [(sample, row) for sample, x in enumerate(first) for row in rows[x]]
        samples, chosen = (np.array(column) for column in zip(*picked, strict=True))
        return samples, values[:, chosen]

    def along(self, directions: Any) -> IndexedSampler:
        """The same sampler with other directions."""
        other = copy.copy(self)
        other.directions, other._rows = np.asarray(directions, float), {}
        return other

    def size(self, products: Products, exact: Averages) -> Any:
        total: Any = 0.0
        for coefficient, means in products:
            term: Any = abs(self.constant(coefficient))
            for mean in means:
                size = self._values(mean, mean.element, sized=True)
                for entry in mean.score or ("x",) * mean.power:
                    size = size * np.abs(self._score(mean, entry))
                rows = np.broadcast_to(size, (len(self.directions), np.shape(size)[-1]))
                term = term * (self._gathered(mean, rows) @ self.probabilities[mean.measure])
            total = total + term
        return total


# ---------------------------------------------------------------------------- variables
class _Tables:
    """Log probabilities and scores of a model's positions: tokens, or whole samples."""

    def __init__(self, model: Model) -> None:
        self.model = model
        rows = {"q": model.q, "p": model.p, "mu": model.mu or model.q}
        self.logs = {m: np.log(np.array([float(x) for x in row])) for m, row in rows.items()}
        tree = isinstance(model, TreeModel)
        self.paths = Places.of(model.layout.paths, whole=False) if isinstance(model, TreeModel) else None
        self.starts = model.layout.starts if isinstance(model, TreeModel) else (0,)
        self.count = {False: len(model.q), True: model.size if tree else len(model.q)}

    def log(self, measure: str, whole: bool) -> Any:
        return self.summed(self.logs[measure], whole)

    def score(self, direction: Any, whole: bool) -> Any:
        """direction - E_q[direction] at each softmax, summed over the tokens of whole sequences."""
        q, sizes = np.exp(self.logs["q"]), np.diff([*self.starts, len(direction)])
        mean = np.repeat(np.add.reduceat(q * direction, self.starts), sizes)
        return self.summed(direction - mean, whole)

    def summed(self, tokens: Any, whole: bool) -> Any:
        return self.paths.total(tokens) if whole and self.paths else tokens


class _Rows:
    """The variables at the rows of an index; the empty index is that of single samples."""

    def __init__(self, sampler: IndexedSampler, index: str) -> None:
        self.sampler, self.index = sampler, index
        self.where: Index | None = index_of(sampler.model, index) if index else None
        size = sampler.model.size
        self.batches = self.where.batches if self.where else np.arange(size)[:, None]
        self._whole = Places.of([[x] for x in range(size)], whole=True)
        self.variables = Variables(sampler.backend.xp, self._lookup)

    def places(self, slot: str) -> Places:
        if self.where is None:
            return self._whole
        if slot not in self.where.slots:
            raise UsageError(f"sampling: the index {self.index!r} has no slot {slot!r}")
        return self.where.slots[slot]

    def _lookup(self, name: str) -> Any:
        if name in self.sampler.parameters:
            return self.sampler.parameters[name]
        return self.sampler.backend.asarray(self.host(name))

    def host(self, name: str) -> Any:
        """A variable: a sum over the positions of its slot, of A alone none."""
        parsed = parse_name(name)
        if parsed.base == "A" and parsed.slot not in ONE_SAMPLE:
            assert self.where is not None
            keys = self.where.known[parsed.slot]
            return np.array([float(self.sampler.model.advantage_at(parsed.slot, key)) for key in keys])  # type: ignore[union-attr]
        places = self.places(parsed.slot)
        return places.total(self._position(parsed.base, parsed.primes, places.whole))

    def _position(self, base: str, primes: int, whole: bool) -> Any:
        """A one-sample variable at every position."""
        sampler, tables = self.sampler, self.sampler.tables
        below = {"k1": "p", "w": "mu", "log_q": None}
        if base in below:
            under = below[base]
            return tables.log("q", whole) - (tables.log(under, whole) if under else 0.0)
        given = dict(sampler.context.given)
        if base in given or f"{base}[now]" in given:
            return self._given(base, given, whole)
        if base in sampler.context.function_arguments and primes <= 1:
            return self._function(base, primes, whole)
        if base == "length" and isinstance(sampler.model, TreeModel):
            return tables.summed(np.ones(tables.count[False]), whole)
        return self._reward(base, whole)

    def _reward(self, base: str, whole: bool) -> Any:
        model = self.sampler.model
        if isinstance(model, FiniteModel) and base in model.rewards:
            return np.array([float(x) for x in model.rewards[base]])
        if isinstance(model, TreeModel) and base == "R":
            return self.sampler.tables.summed(np.array([float(x) for x in model.R]), whole)
        if isinstance(model, TreeModel) and base == "A" and whole:
            return np.array([float(model.advantage_at("x", (leaf,))) for leaf in range(model.size)])
        raise UsageError(f"sampling: no value for {base!r}")

    def _given(self, base: str, given: Mapping[str, ExpPoly], whole: bool) -> Any:
        """What the statement gives, at whole samples or at each token and its prefix."""
        index, name = ("", base) if base in given else (PREFIX, f"{base}[now]")
        at = _Rows(self.sampler, index)
        value = at.variables.ring(attach(given[name]))
        on_host = value if isinstance(value, float) else self.sampler.backend.to_numpy(value)
        found = np.broadcast_to(on_host, (len(at.batches),))
        return found if index == "" else self.sampler.tables.summed(found, whole)

    def _function(self, name: str, primes: int, whole: bool) -> Any:
        """f, or f' = df/dlog q: every argument moves with log q, so a complex step moves them all."""
        instance = self.sampler.functions.get(name) or default_function(name)
        arguments = [self._position(a, 0, whole) for a in self.sampler.context.function_arguments[name]]
        if isinstance(instance, ExpPoly):
            known = dict(zip(self.sampler.context.function_arguments[name], arguments, strict=True))
            slope = instance.derive(lambda n: ExpPoly.number(int(n in known)))
            values = {**known, **self.sampler.parameters}
            found = Variables(np, values.__getitem__).ring(slope if primes else instance)
            return np.broadcast_to(found, arguments[0].shape)
        value = instance(*(a + FLOAT.step for a in arguments)) if primes else instance(*arguments)
        return np.broadcast_to(FLOAT.slope(value) if primes else np.real(value), arguments[0].shape)
