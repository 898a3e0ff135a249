"""Sampling Gaussians: a stream of blocks, each evaluated on the backend and averaged.

x = m + sqrt(v) z with z standard normal; k1, w and log q are quadratics in z, and so are the score
functions.  A block is small enough for a processor's cache; memory does not grow with the samples.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.polynomial.polynomial import polymul

from klsym.errors import UsageError
from klsym.kernel.ring import Exponent, ExpPoly
from klsym.language.abbreviations import Mean
from klsym.study.gaussian.closed import DENSITIES, Condition, Divergent
from klsym.study.gaussian.exact import DIRECTIONS, GaussianModel
from klsym.study.gaussian.floats import MEASURES
from klsym.study.sampling.backends import Backend, choose_backend
from klsym.study.sampling.evaluate import Variables, multiply_values
from klsym.study.sampling.runner import run
from klsym.study.sampling.sample_means import SampleMeans
from klsym.study.sampling.sampler import Averages, Parts, Sampler
from klsym.study.sampling.streams import Chunk, Plan, Stream

BLOCK = 2**17  # samples evaluated at once on a processor: an array is 1 MiB
DEVICE_BLOCK = 2**22  # and on an accelerator
Quadratic = tuple[float, float, float]  # coefficients of 1, z, z^2
Scored = dict[int, ExpPoly]  # a sum over powers of the score function: power -> its coefficient
Row = tuple[ExpPoly, tuple[int, ...]]  # an element, times one score function for each direction listed


def expand_log_density(mean: float, variance: float, centre: float = 0.0, width: float = 1.0) -> Quadratic:
    """log N(x; mean, variance) as a quadratic in z, x = centre + width z.

    -(h + width z)^2 / (2 variance) - log(2 pi variance)/2,  h = centre - mean

    >>> expand_log_density(1.0, 2.0)[1:], expand_log_density(1.0, 4.0, centre=1.0, width=2.0)[1:]
    ((0.5, -0.25), (0.0, -0.5))
    """
    h = centre - mean
    constant = -(h**2) / (2 * variance) - math.log(2 * math.pi * variance) / 2
    return constant, -h * width / variance + 0.0, -(width**2) / (2 * variance)


def evaluate_polynomial(z: Any, coefficients: Sequence[float]) -> Any:
    """c0 + c1 z + c2 z^2 + ... by Horner's rule, in place: a pass over memory costs as much as the sums.

    >>> z = np.array([2.0, 3.0])
    >>> coefficients = (-1.0, 0.0, 1.0), (0.0, 1.0), (5.0, 0.0)
    >>> square, same, constant = [evaluate_polynomial(z, row) for row in coefficients]
    >>> square, same is z, constant
    (array([3., 8.]), True, 5.0)
    """
    x: Any = 0.0
    for c in reversed(coefficients):
        if isinstance(x, float):
            x = z if x == 1 else x and x * z
        elif x is z:
            x = z * z
        else:
            x *= z
        if c and x is z:
            x = z + c
        elif c:
            x += c
    return x


class OnNormals(Variables):
    """Variables that are quadratics in standard normal numbers, as a linear combination of them is one.

    coordinates: variable -> quadratic in z.  numbers: parameter -> float.
    """

    def __init__(
        self, xp: Any, z: Any, coordinates: Mapping[str, Quadratic], numbers: Mapping[str, float]
    ) -> None:
        def look_up(name: str) -> Any:  # holds no self: a cycle would keep a block until it is collected
            if name in numbers:
                return numbers[name]
            if name not in coordinates:
                raise UsageError(f"sampling: {name!r} has no value on Gaussians")
            return evaluate_polynomial(z, coordinates[name])

        super().__init__(xp, look_up)
        self.z, self.coordinates = z, coordinates

    def _evaluate_exponent(self, exponent: Exponent) -> Any:
        total = (0.0, 0.0, 0.0)
        for monomial, value in exponent:
            if len(monomial) != 1 or monomial[0][1] != 1 or monomial[0][0] not in self.coordinates:
                return super()._evaluate_exponent(exponent)
            (c, b, a), weight = self.coordinates[monomial[0][0]], float(value)
            total = (total[0] + weight * c, total[1] + weight * b, total[2] + weight * a)
        return evaluate_polynomial(self.z, total)


@dataclass(frozen=True)
class GaussianTask:
    """One chunk of standard normal numbers z folded into the means of some rows.

    rows: (element, directions): the element times a score function of q for each direction, 0 for the
    mean and 1 for the log scale.  coordinates: variable -> quadratic in z.  parameters: name -> float.
    standard: (x - m_q)/sd_q as a + b z.  deviation: sd_q.
    """

    backend: Backend
    standard: tuple[float, float]
    deviation: float
    coordinates: tuple[tuple[str, Quadratic], ...]
    parameters: tuple[tuple[str, float], ...]
    rows: tuple[Row, ...]
    block: int

    def __call__(self, chunk: Chunk) -> SampleMeans:
        # The C library hands freed memory back above a threshold, which it raises to the largest block
        # freed so far: after this one, not touched, the arrays of a block cost no page faults.
        np.empty(2**21)
        blocks = (
            self._draw_block(chunk.stream.derive_child(number), min(self.block, chunk.size - start))
            for number, start in enumerate(range(0, chunk.size, self.block))
        )
        return functools.reduce(SampleMeans.merge, blocks)

    def _draw_block(self, stream: Stream, size: int) -> SampleMeans:
        return SampleMeans.from_rows(
            self.evaluate_rows(self.backend.draw_normals(stream, (size,))), self.backend
        )

    def evaluate_rows(self, z: Any) -> list[Any]:
        """The rows at samples z, shape (n,) each."""
        variables = OnNormals(self.backend.xp, z, dict(self.coordinates), dict(self.parameters))
        element_values = {
            e: variables.evaluate_element(e) for e in dict.fromkeys(element for element, _ in self.rows)
        }
        del variables  # what the elements were made of: the rows below take its place in the cache
        u = evaluate_polynomial(z, self.standard)
        rows = [
            multiply_by_polynomial(element_values[e], multiply_scores(directions, self.deviation), u)
            for e, directions in self.rows
        ]
        return [row if not isinstance(row, float) else self.backend.xp.zeros_like(z) + row for row in rows]


@functools.cache
def multiply_scores(directions: tuple[int, ...], deviation: float) -> tuple[float, ...]:
    """The product of the score functions as a polynomial in u = (x - m)/sd, its constant first.

    s_mean = u/sd,  s_log_scale = u^2 - 1

    >>> multiply_scores((0, 1), 2.0), multiply_scores((), 2.0)
    ((0.0, -0.5, 0.0, 0.5), (1.0,))
    """
    total: Any = [1.0]
    for direction in directions:
        total = polymul(total, [0.0, 1 / deviation] if direction == 0 else [-1.0, 0.0, 1.0])
    return tuple(map(float, total))


def multiply_by_polynomial(value: Any, coefficients: Sequence[float], u: Any) -> Any:
    """The value times a polynomial in u.

    >>> multiply_by_polynomial(np.array([2.0]), [-1.0, 0.0, 1.0], np.array([3.0]))
    array([16.])
    """
    row = evaluate_polynomial(u, coefficients)
    if isinstance(row, float) or row is u:
        return multiply_values(row, value)
    row *= value  # in place: the row is nobody else's
    return row


MISSING = {  # moments of this order are infinite
    2: "the standard error is infinite",
    3: "no error rate can be stated without a third moment",
    4: "no error rate can be stated without a fourth moment",
}


class Unsound(Divergent):
    """A moment that the judgement of an estimate needs is infinite: it is not sampled."""

    def __init__(self, reason: str, condition: Condition) -> None:
        super().__init__(condition)
        self.reason = f"{reason}: that needs {condition.text}"


class GaussianSampler(Sampler):
    """Gaussians q, p, mu in one variable, with the score functions of q's mean and log scale.

    s_mean = (x - m)/v,  s_log_scale = (x - m)^2/v - 1

    >>> from klsym.engine.proof.quantities import KL
    >>> from klsym.study.sampling.means import expand_side
    >>> from klsym.language.abbreviations import Context
    >>> sampler = GaussianSampler(GaussianModel((0.0, 1.0), (1.0, 1.0)))
    >>> products = expand_side(KL("q", "p").side, Context())
    >>> sampler.measure_spread(products).value.tolist(), sampler.measure_spread(products).deviation.tolist()
    ([0.5, 0.5], [1.0, 1.0])

    parameters: name -> number.  on: the backend.
    Raises UsageError: variables other than k1, w, log_q and parameters; Unsound where a moment that the
    judgement needs is infinite.
    """

    def __init__(
        self,
        model: GaussianModel,
        parameters: Mapping[str, Any] | None = None,
        on: Backend | None = None,
    ) -> None:
        self.parameters = {name: float(value) for name, value in (parameters or {}).items()}
        self.setting = model.build_setting(self.parameters)
        self.model, self.backend = model, on or choose_backend("numpy")
        self._exact: dict[Any, float] = {}

    # -- sampling --------------------------------------------------------------------------
    def build_task(self, measure: str, rows: tuple[Row, ...]) -> GaussianTask:
        """The work on one chunk of samples of a measure."""
        pairs = {name: (p.real, v.real) for name in MEASURES for p, v in [self._get_density(name)]}
        mean, width = pairs[measure][0], math.sqrt(pairs[measure][1])
        q, p, mu = (np.array(expand_log_density(*pairs[name], mean, width)) for name in MEASURES)
        coordinates = {"k1": q - p, "w": q - mu, "log_q": q}
        m, deviation = pairs["q"][0], math.sqrt(pairs["q"][1])
        return GaussianTask(
            self.backend, standard=((mean - m) / deviation, width / deviation), deviation=deviation,
            coordinates=tuple((name, tuple(c.tolist())) for name, c in coordinates.items()),
            parameters=tuple(sorted(self.parameters.items())), rows=rows,
            block=BLOCK if self.backend.device == "cpu" else DEVICE_BLOCK,
        )  # fmt: skip

    def _get_density(self, name: str) -> tuple[complex, complex]:
        return self.setting.get_density(name)

    def list_requests(self, means: Sequence[Mean], samples: int, stream: Stream) -> list[tuple[Any, Plan]]:
        return [
            (
                self.build_task(measure, _list_rows(chosen)),
                Plan(samples, stream.derive_child(MEASURES.index(measure))),
            )
            for measure, chosen in _group_by_measure(means).items()
        ]

    def draw_averages(
        self, means: Sequence[Mean], samples: int, stream: Stream, results: Sequence[SampleMeans] = ()
    ) -> Averages:
        merged = results or [run(task, plan) for task, plan in self.list_requests(means, samples, stream)]
        averages_of_means: dict[Mean, Any] = {}
        for chosen, result in zip(_group_by_measure(means).values(), merged, strict=True):
            averages_of_means |= _unpack_rows(chosen, result.mean)
        return averages_of_means

    # -- exact -----------------------------------------------------------------------------
    def compute_exact_mean(self, mean: Mean) -> Any:
        axis_range = range(len(DIRECTIONS))
        return np.array(
            [
                self._compute_expectation(mean.measure, mean.coefficient, (i,) * len(mean.score))
                for i in axis_range
            ]
        )

    def compute_central_moment(self, factors: Sequence[Parts]) -> Any:
        measure, moments = factors[0][0][0].measure, []
        for i in range(len(DIRECTIONS)):
            product = {0: ExpPoly.from_number(1)}
            for parts in factors:
                product = _multiply_scored(product, self._centre_parts(parts, i))
            try:
                moments.append(
                    sum(self._compute_expectation(measure, e, (i,) * power) for power, e in product.items())
                )
            except Divergent as error:
                raise Unsound(MISSING[len(factors)], error.condition) from None
        return np.array(moments)

    def _centre_parts(self, parts: Parts, i: int) -> Scored:
        """h - E h for h = sum weight f along direction i."""
        h: Scored = {}
        for mean, weights in parts:
            weight = float(np.broadcast_to(weights, (len(DIRECTIONS),))[i])
            centre = weight * self._compute_expectation(
                mean.measure, mean.coefficient, (i,) * len(mean.score)
            )
            scored = len(mean.score), mean.coefficient * Fraction(weight)
            for power, element in (scored, (0, ExpPoly.from_number(-Fraction(centre)))):
                h[power] = h.get(power, ExpPoly({})) + element
        return h

    def _compute_expectation(self, measure: str, element: ExpPoly, score: tuple[int, ...]) -> float:
        key = (measure, element, score)
        if key not in self._exact:
            try:
                self._exact[key] = float(np.real(self.setting.compute_expectation(measure, element, score)))
            except Divergent as error:
                raise Divergent(self._find_failing_condition(measure, element) or error.condition) from None
        return self._exact[key]

    def _find_failing_condition(self, measure: str, element: ExpPoly) -> Condition | None:
        """The condition that fails most: sum weight/sigma^2 > 0 over the densities in an exponential."""
        weights_by_term = [collect_precisions(measure, exponent) for _, exponent in element.terms]
        worst = min(
            (weights for weights in weights_by_term if weights), key=self._compute_precision, default={}
        )
        fails = bool(worst) and self._compute_precision(worst) <= 0
        return Condition(describe_condition(worst), False) if fails else None

    def _compute_precision(self, weights: Mapping[str, Fraction]) -> float:
        return sum(float(w) / self.setting.get_density(name)[1].real for name, w in weights.items())


def _group_by_measure(means: Sequence[Mean]) -> dict[str, list[Mean]]:
    return {m: chosen for m in MEASURES if (chosen := [mean for mean in means if mean.measure == m])}


def collect_precisions(measure: str, exponent: Exponent) -> dict[str, Fraction]:
    """The integrand m exp(exponent) as exp(-x^2/2 sum weight/sigma^2 + ...): the weights.

    >>> [((_, exponent), _)] = (ExpPoly.from_variable("k1") * -4).exp().terms.items()
    >>> describe_condition(collect_precisions("q", exponent))
    'sigma_q^2 > 3/4 sigma_p^2'

    Empty where the exponent is not linear in k1, w and log q with rational coefficients.
    """
    weights = {measure: Fraction(1)}
    for monomial, value in exponent:
        if len(monomial) != 1 or monomial[0][1] != 1 or monomial[0][0] not in DENSITIES:
            return {}
        over, *below = DENSITIES[monomial[0][0]]
        weights[over] = weights.get(over, Fraction(0)) + value
        for denominator in below:
            weights[denominator] = weights.get(denominator, Fraction(0)) - value
    return {name: weight for name, weight in weights.items() if weight}


def describe_condition(weights: Mapping[str, Fraction]) -> str:
    """sum weight/sigma^2 > 0, solved for one variance where there are two."""
    high = [name for name, weight in weights.items() if weight > 0]
    if len(weights) == 2 and len(high) == 1:
        [low] = weights.keys() - set(high)
        return f"sigma_{low}^2 > {-weights[low] / weights[high[0]]} sigma_{high[0]}^2"
    return " + ".join(f"({weight})/sigma_{name}^2" for name, weight in sorted(weights.items())) + " > 0"


def _multiply_scored(a: Scored, b: Scored) -> Scored:
    product: Scored = {}
    for j, x in a.items():
        for k, y in b.items():
            product[j + k] = product.get(j + k, ExpPoly({})) + x * y
    return product


def _list_rows(means: Sequence[Mean]) -> tuple[Row, ...]:
    rows: list[Row] = []
    for mean in means:
        directions = range(len(DIRECTIONS)) if mean.score else (0,)
        rows += [(mean.coefficient, (i,) * len(mean.score)) for i in directions]
    return tuple(rows)


def _unpack_rows(means: Sequence[Mean], values: Any) -> dict[Mean, Any]:
    """The averages of `_list_rows`, back along every direction."""
    unpacked_means, at = {}, 0
    for mean in means:
        width = len(DIRECTIONS) if mean.score else 1
        unpacked_means[mean] = np.broadcast_to(values[at : at + width], (len(DIRECTIONS),))
        at += width
    return unpacked_means
