"""Sampling finite models by the counts of whole batches, of sequences of a tree, or of single samples.

A sample is what training code draws at once, a batch (x_1..x_n) or a sequence y.  At a sample an estimate is

    E_m[a]              a at y, or at x_1
    E_m[mean_i a s..s]  a at i = 1, all i being alike
    E_m[sum_t a s..s]   the sum of a over the steps of y

How often each sample is drawn is sufficient for every average, (1/N) sum_x count_x f(x), so that one
multinomial draw stands for N = 10^12 samples.  The counts are drawn on the host: one seed gives the same
ones with every backend.  Where slots lie is enumerated by `numeric.indices`, as for the exact oracle; what
stands in them is evaluated here, on the backend.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from klsym.errors import UsageError
from klsym.kernel.derivatives import attach
from klsym.kernel.names import parse_name
from klsym.kernel.ring import ExpPoly
from klsym.kernel.slots import SECOND, find_slot
from klsym.language.abbreviations import Context, Mean
from klsym.numeric.indices import ONE_SAMPLE, PREFIX, build_index, read_batch_size
from klsym.numeric.models import FiniteModel
from klsym.numeric.number_systems import FLOAT
from klsym.numeric.positions import Places, list_sequence_tokens
from klsym.numeric.sides import build_default_function
from klsym.study.sampling.backends import Backend, choose_backend
from klsym.study.sampling.evaluate import Variables
from klsym.study.sampling.sample_means import SampleMeans
from klsym.study.sampling.sampler import Averages, Parts, Products, Sampler
from klsym.study.sampling.streams import Stream

SMALLEST = 1e-200  # a probability whose powers stay within the floats
LARGEST_SAMPLES = 2**53  # counts are exact in float64 up to here
BELOW = {"k1": "p", "w": "mu", "o": "old"}  # log q less the log of this density


class FiniteSampler(Sampler):
    """A finite model, sampled by multinomial counts.

    >>> from klsym.numeric.models import random_model, random_tree
    >>> from klsym.study.sampling.means import expand_side
    >>> from klsym.engine.proof.sequence_quantities import sum_over_t
    >>> from klsym.engine.proof.quantities import KL
    >>> from klsym.language.expressions import k1, now
    >>> cases = ((random_model(0, 4), KL("q", "p")), (random_tree(0), sum_over_t(now(k1), under="q")))
    >>> for model, quantity in cases:
    ...     sampler, products = FiniteSampler(model), expand_side(quantity.side, Context())
    ...     spread = sampler.measure_spread(products)
    ...     seen = sampler.draw_averages(products[0][1], 10**12, Stream(7))
    ...     print(bool(abs(sampler.combine(products, seen) - spread.value)[0] < 6e-6 * spread.deviation[0]))
    True
    True

    model: with a value for each parameter of the context, n too where a sample is a batch of n.
    functions: generic function -> callable or ExpPoly, as the exact oracle takes them.
    directions: of theta, shape (d, branches), the model's own u when not given; a second one is its v.
    on: the backend of the integrands.  batches: is a sample a batch?
    probabilities: measure -> that of each sample, shape (samples,).
    Raises UsageError: a name without a value, probabilities below 1e-200, more than 2^53 samples.
    Source: Owen 2013, Monte Carlo theory, methods and examples, ch. 2.
    """

    def __init__(
        self,
        model: FiniteModel,
        context: Context | None = None,
        functions: Mapping[str, Any] | None = None,
        directions: Any = None,
        on: Backend | None = None,
        batches: bool = False,
    ) -> None:
        self.context, self.model = context or Context(), model
        model.check_context(self.context)
        self.backend, self.functions = on or choose_backend("numpy"), dict(functions or {})
        self.parameters = {name: float(value) for name, value in model.parameters.items()}
        self.tokens = {m: np.array([float(x) for x in row]) for m, row in model.rows.items()}
        self.paths = list_sequence_tokens(model.layout.paths)
        size = read_batch_size(model) if batches else 1
        self.batches = np.array(list(product(range(model.size), repeat=size)))
        whole = {
            m: np.where(self.paths.mask, row[self.paths.index], 1.0).prod(axis=1)
            for m, row in self.tokens.items()
        }
        self.probabilities = {m: row[self.batches].prod(axis=1) for m, row in whole.items()}
        if not all(row.min() > SMALLEST for row in self.probabilities.values()):
            raise UsageError("sampling: the model holds probabilities beyond the range of floats")
        self.directions = _to_floats(model.u)[None] if directions is None else np.asarray(directions, float)
        self._known: dict[Mean, Any] = {}
        self._at: dict[str, _Rows] = {}

    def replace_directions(self, directions: Any) -> FiniteSampler:
        """The same sampler with other directions."""
        copied_sampler = copy.copy(self)
        copied_sampler.directions, copied_sampler._known, copied_sampler._at = (
            np.asarray(directions, float),
            {},
            {},
        )
        return copied_sampler

    # -- sampling and exact moments --------------------------------------------------------
    def draw_counts(self, measure: str, samples: int, stream: Stream) -> Any:
        """How often each sample is drawn; raises UsageError beyond 2^53 samples."""
        if not 0 < samples <= LARGEST_SAMPLES:
            raise UsageError(f"{samples} samples: from 1 to 2^53 expected")
        key, law = ("q", "p", "mu").index(measure), self.probabilities[measure]
        # divided by its sum, which rounding may put above what a multinomial draw accepts
        return stream.derive_child(key).build_generator().multinomial(samples, law / law.sum())

    def draw_averages(
        self, means: Sequence[Mean], samples: int, stream: Stream, results: Sequence[SampleMeans] = ()
    ) -> Averages:
        measures = dict.fromkeys(mean.measure for mean in means)
        shares = {m: self.draw_counts(m, samples, stream) / samples for m in measures}
        return {mean: self.compute_rows(mean) @ shares[mean.measure] for mean in means}

    def compute_exact_mean(self, mean: Mean) -> Any:
        return self.compute_rows(mean) @ self.probabilities[mean.measure]

    def compute_central_moment(self, factors: Sequence[Parts]) -> Any:
        weights, moment = self.probabilities[factors[0][0][0].measure], 1.0
        for parts in factors:
            h = sum(np.reshape(weight, (-1, 1)) * self.compute_rows(mean) for mean, weight in parts)
            moment = moment * (h - (h @ weights)[:, None])
        return moment @ weights

    def estimate_size(self, products: Products, exact: Averages) -> Any:
        total: Any = 0.0
        for coefficient, means in products:
            term: Any = abs(self.evaluate_constant(coefficient))
            for mean in means:
                sizes = self._get_rows(mean.index).compute_sizes(mean)
                term = term * (self._gather_rows(mean.index, sizes) @ self.probabilities[mean.measure])
            total = total + term
        return total

    # -- values at the samples -------------------------------------------------------------
    def compute_rows(self, mean: Mean) -> Any:
        """The integrand at each sample, along each direction, shape (d, samples), on the host."""
        if mean not in self._known:
            self._known[mean] = self._gather_rows(mean.index, self._get_rows(mean.index).compute_values(mean))
        values = self._known[mean]
        return np.broadcast_to(values, (len(self.directions), values.shape[-1]))

    def _get_rows(self, index: str) -> _Rows:
        if index not in self._at:
            self._at[index] = _Rows(self, index)
        return self._at[index]

    def _gather_rows(self, index: str, values: Any) -> Any:
        """What the rows of each sample sum to; a row of x_1 alone belongs to every batch that x_1 begins."""
        drawn = self._at[index].where.batches
        keys, size = self._number_batches(drawn), self.model.size ** drawn.shape[1]
        totals = np.stack([np.bincount(keys, row, size) for row in np.atleast_2d(values)])
        return totals[:, self._number_batches(self.batches[:, : drawn.shape[1]])]

    def _number_batches(self, batches: Any) -> Any:
        """A number for each batch, its samples being the digits."""
        keys = np.zeros(len(batches), dtype=np.intp)
        for column in batches.T:
            keys = keys * self.model.size + column
        return keys


class _Rows:
    """The variables at the rows of an index, as arrays of the backend."""

    def __init__(self, sampler: FiniteSampler, index: str) -> None:
        self.sampler, self.index, self.where = sampler, index, build_index(sampler.model, index)
        self.variables = Variables(sampler.backend.xp, self._look_up)

    def compute_values(self, mean: Mean) -> Any:
        """a s..s at each row, along each direction."""
        value = self._on_host(self.variables.evaluate_element(mean.coefficient))
        for entry in mean.score:
            value = value * self._compute_score(entry)
        return value

    def compute_sizes(self, mean: Mean) -> Any:
        """The same, every term by its absolute value."""
        value = self._on_host(self.variables.evaluate_size(mean.coefficient))
        for entry in mean.score:
            value = value * np.abs(self._compute_score(entry))
        return value

    def _on_host(self, value: Any) -> Any:
        on_host = value if isinstance(value, float) else self.sampler.backend.to_numpy(value)
        return np.broadcast_to(on_host, (self.where.count,))

    def _compute_score(self, entry: str) -> Any:
        """direction - E_q[direction] at each node, summed over the positions of the slot."""
        sampler, places = self.sampler, self._get_places(find_slot(entry))
        second = sampler.model.v
        if entry.endswith(SECOND) and second is None:
            raise UsageError("sampling: the model has no second direction")
        along = _to_floats(second)[None] if entry.endswith(SECOND) else sampler.directions
        return np.stack(
            [places.sum_values(self._sum_tokens(self._centre_direction(row), places.whole)) for row in along]
        )

    def _centre_direction(self, direction: Any) -> Any:
        starts = self.sampler.model.layout.starts
        mean = np.add.reduceat(self.sampler.tokens["q"] * direction, starts)
        return direction - np.repeat(mean, np.diff([*starts, len(direction)]))

    def _sum_tokens(self, tokens: Any, whole: bool) -> Any:
        return self.sampler.paths.sum_values(tokens) if whole else tokens

    def _get_places(self, slot: str) -> Places:
        if slot not in self.where.slots:
            raise UsageError(f"sampling: the index {self.index!r} has no slot {slot!r}")
        return self.where.slots[slot]

    # -- variables -------------------------------------------------------------------------
    def _look_up(self, name: str) -> Any:
        if name in self.sampler.parameters:
            return self.sampler.parameters[name]
        return self.sampler.backend.asarray(self._evaluate_variable(name))

    def _evaluate_variable(self, name: str) -> Any:
        """A sum over the positions of its slot; A alone is none."""
        parsed, model = parse_name(name), self.sampler.model
        if parsed.base == "A" and parsed.slot not in ONE_SAMPLE:
            return _to_floats(
                [model.compute_advantage(parsed.slot, key) for key in self.where.known[parsed.slot]]
            )
        places = self._get_places(parsed.slot)
        return places.sum_values(self._evaluate_token_variable(parsed.base, parsed.primes, places.whole))

    def _evaluate_token_variable(self, base: str, primes: int, whole: bool) -> Any:
        """A one-sample variable at every token, or at every sequence."""
        context, logs = self.sampler.context, self.sampler.tokens
        if base in (*BELOW, "log_q"):
            below = np.log(logs[BELOW[base]]) if base in BELOW else 0.0
            return self._sum_tokens(np.log(logs["q"]) - below, whole)
        given_values = dict(context.given)
        if base in given_values or f"{base}[now]" in given_values:
            return self._evaluate_given(base, given_values, whole)
        if base in context.function_arguments and primes <= 1:
            return self._evaluate_function(base, primes, whole)
        rewards = self.sampler.model.list_token_rewards()
        if base in rewards and not primes:
            return self._sum_tokens(_to_floats(rewards[base]), whole)
        if base == "A" and whole and base in self.sampler.model.rewards:
            return _to_floats(self.sampler.model.rewards[base])
        raise UsageError(f"sampling: no value for {base!r}")

    def _evaluate_given(self, base: str, given: Mapping[str, ExpPoly], whole: bool) -> Any:
        """What the statement gives, at whole samples or at each token and its prefix."""
        index, name = ("", base) if base in given else (PREFIX, f"{base}[now]")
        at = _Rows(self.sampler, index)
        element_values = at._on_host(at.variables.evaluate_element(attach(given[name])))
        return element_values if index == "" else self._sum_tokens(element_values, whole)

    def _evaluate_function(self, name: str, primes: int, whole: bool) -> Any:
        """f, or f' = df/dlog q: every argument moves with log q, so a complex step moves them all."""
        names = self.sampler.context.function_arguments[name]
        instance = self.sampler.functions.get(name) or build_default_function(name)
        arguments = [self._evaluate_token_variable(argument, 0, whole) for argument in names]
        if isinstance(instance, ExpPoly):
            values_by_name = dict(zip(names, arguments, strict=True))
            slope = instance.derive(lambda n: ExpPoly.from_number(int(n in values_by_name)))
            values = {**values_by_name, **self.sampler.parameters}
            function_values = Variables(np, values.__getitem__).evaluate_element(
                slope if primes else instance
            )
            return np.broadcast_to(function_values, arguments[0].shape)
        value = instance(*(a + FLOAT.step for a in arguments)) if primes else instance(*arguments)
        return np.broadcast_to(FLOAT.slope(value) if primes else np.real(value), arguments[0].shape)


def _to_floats(row: Any) -> Any:
    return np.array([float(x) for x in row])
