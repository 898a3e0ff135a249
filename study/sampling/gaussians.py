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
from klsym.study.sampling.backends import Backend, backend
from klsym.study.sampling.evaluate import Variables, product
from klsym.study.sampling.runner import run
from klsym.study.sampling.sample_means import SampleMeans
from klsym.study.sampling.sampler import Averages, Parts, Sampler
from klsym.study.sampling.streams import Chunk, Plan, Stream

BLOCK = 2**17  # samples evaluated at once on a processor: an array is 1 MiB
DEVICE_BLOCK = 2**22  # and on an accelerator
Quadratic = tuple[float, float, float]  # coefficients of 1, z, z^2
Scored = dict[int, ExpPoly]  # a sum over powers of the score function: power -> its coefficient
Row = tuple[ExpPoly, tuple[int, ...]]  # an element, times one score function for each direction listed


def log_density(mean: float, variance: float, centre: float = 0.0, width: float = 1.0) -> Quadratic:
    """log N(x; mean, variance) as a quadratic in z, x = centre + width z.

    -(h + width z)^2 / (2 variance) - log(2 pi variance)/2,  h = centre - mean

    >>> log_density(1.0, 2.0)[1:], log_density(1.0, 4.0, centre=1.0, width=2.0)[1:]
    ((0.5, -0.25), (0.0, -0.5))
    """
    h = centre - mean
    constant = -(h**2) / (2 * variance) - math.log(2 * math.pi * variance) / 2
    return constant, -h * width / variance + 0.0, -(width**2) / (2 * variance)


def polynomial(z: Any, coefficients: Sequence[float]) -> Any:
    """c0 + c1 z + c2 z^2 + ... by Horner's rule, in place: a pass over memory costs as much as the sums.

    >>> z = np.array([2.0, 3.0])
    >>> polynomial(z, (-1.0, 0.0, 1.0)), polynomial(z, (0.0, 1.0)) is z, polynomial(z, (5.0, 0.0))
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
        def lookup(name: str) -> Any:  # holds no self: a cycle would keep a block until it is collected
            if name in numbers:
                return numbers[name]
            if name not in coordinates:
                raise UsageError(f"sampling: {name!r} has no value on Gaussians")
            return polynomial(z, coordinates[name])

        super().__init__(xp, lookup)
        self.z, self.coordinates = z, coordinates

    def _inside(self, exponent: Exponent) -> Any:
        total = (0.0, 0.0, 0.0)
        for monomial, value in exponent:
            if len(monomial) != 1 or monomial[0][1] != 1 or monomial[0][0] not in self.coordinates:
                return super()._inside(exponent)
            (c, b, a), weight = self.coordinates[monomial[0][0]], float(value)
            total = (total[0] + weight * c, total[1] + weight * b, total[2] + weight * a)
        return polynomial(self.z, total)


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
            self._block(chunk.stream.child(number), min(self.block, chunk.size - start))
            for number, start in enumerate(range(0, chunk.size, self.block))
        )
        return functools.reduce(SampleMeans.merge, blocks)

    def _block(self, stream: Stream, size: int) -> SampleMeans:
        return SampleMeans.of(self.values(self.backend.normals(stream, (size,))), self.backend)

    def values(self, z: Any) -> list[Any]:
        """The rows at samples z, shape (n,) each."""
        variables = OnNormals(self.backend.xp, z, dict(self.coordinates), dict(self.parameters))
        known = {e: variables.ring(e) for e in dict.fromkeys(element for element, _ in self.rows)}
        del variables  # what the elements were made of: the rows below take its place in the cache
        u = polynomial(z, self.standard)
        rows = [times(known[e], scores(directions, self.deviation), u) for e, directions in self.rows]
        return [row if not isinstance(row, float) else self.backend.xp.zeros_like(z) + row for row in rows]


@functools.cache
def scores(directions: tuple[int, ...], deviation: float) -> tuple[float, ...]:
    """The product of the score functions as a polynomial in u = (x - m)/sd, its constant first.

    s_mean = u/sd,  s_log_scale = u^2 - 1

    >>> scores((0, 1), 2.0), scores((), 2.0)
    ((0.0, -0.5, 0.0, 0.5), (1.0,))
    """
    total: Any = [1.0]
    for direction in directions:
        total = polymul(total, [0.0, 1 / deviation] if direction == 0 else [-1.0, 0.0, 1.0])
    return tuple(map(float, total))


def times(value: Any, coefficients: Sequence[float], u: Any) -> Any:
    """The value times a polynomial in u.

    >>> times(np.array([2.0]), [-1.0, 0.0, 1.0], np.array([3.0]))
    array([16.])
    """
    row = polynomial(u, coefficients)
    if isinstance(row, float) or row is u:
        return product(row, value)
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
    >>> from klsym.study.sampling.means import means_of
    >>> from klsym.language.abbreviations import Context
    >>> sampler = GaussianSampler(GaussianModel((0.0, 1.0), (1.0, 1.0)))
    >>> products = means_of(KL("q", "p").side, Context())
    >>> sampler.spread(products).value.tolist(), sampler.spread(products).deviation.tolist()
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
        self.setting = model.setting(self.parameters)
        self.model, self.backend = model, on or backend("numpy")
        self._exact: dict[Any, float] = {}

    # -- sampling --------------------------------------------------------------------------
    def task(self, measure: str, rows: tuple[Row, ...]) -> GaussianTask:
        """The work on one chunk of samples of a measure."""
        pairs = {name: (p.real, v.real) for name in MEASURES for p, v in [self._density(name)]}
        mean, width = pairs[measure][0], math.sqrt(pairs[measure][1])
        q, p, mu = (np.array(log_density(*pairs[name], mean, width)) for name in MEASURES)
        coordinates = {"k1": q - p, "w": q - mu, "log_q": q}
        m, deviation = pairs["q"][0], math.sqrt(pairs["q"][1])
        return GaussianTask(
            self.backend, ((mean - m) / deviation, width / deviation), deviation,
            tuple((name, tuple(c.tolist())) for name, c in coordinates.items()),
            tuple(sorted(self.parameters.items())), rows,
            BLOCK if self.backend.device == "cpu" else DEVICE_BLOCK,
        )  # fmt: skip

    def _density(self, name: str) -> tuple[complex, complex]:
        return self.setting.density(name)

    def requests(self, means: Sequence[Mean], samples: int, stream: Stream) -> list[tuple[Any, Plan]]:
        return [
            (self.task(measure, _rows(chosen)), Plan(samples, stream.child(MEASURES.index(measure))))
            for measure, chosen in _by_measure(means).items()
        ]

    def averages(
        self, means: Sequence[Mean], samples: int, stream: Stream, results: Sequence[SampleMeans] = ()
    ) -> Averages:
        merged = results or [run(task, plan) for task, plan in self.requests(means, samples, stream)]
        found: dict[Mean, Any] = {}
        for chosen, result in zip(_by_measure(means).values(), merged, strict=True):
            found |= _unpacked(chosen, result.mean)
        return found

    # -- exact -----------------------------------------------------------------------------
    def exact_mean(self, mean: Mean) -> Any:
        each = range(len(DIRECTIONS))
        return np.array([self._expect(mean.measure, mean.coefficient, (i,) * len(mean.score)) for i in each])

    def central_moment(self, factors: Sequence[Parts]) -> Any:
        measure, found = factors[0][0][0].measure, []
        for i in range(len(DIRECTIONS)):
            product = {0: ExpPoly.from_number(1)}
            for parts in factors:
                product = _times(product, self._centred(parts, i))
            try:
                found.append(sum(self._expect(measure, e, (i,) * power) for power, e in product.items()))
            except Divergent as error:
                raise Unsound(MISSING[len(factors)], error.condition) from None
        return np.array(found)

    def _centred(self, parts: Parts, i: int) -> Scored:
        """h - E h for h = sum weight f along direction i."""
        h: Scored = {}
        for mean, weights in parts:
            weight = float(np.broadcast_to(weights, (len(DIRECTIONS),))[i])
            centre = weight * self._expect(mean.measure, mean.coefficient, (i,) * len(mean.score))
            scored = len(mean.score), mean.coefficient * Fraction(weight)
            for power, element in (scored, (0, ExpPoly.from_number(-Fraction(centre)))):
                h[power] = h.get(power, ExpPoly({})) + element
        return h

    def _expect(self, measure: str, element: ExpPoly, score: tuple[int, ...]) -> float:
        key = (measure, element, score)
        if key not in self._exact:
            try:
                self._exact[key] = float(np.real(self.setting.expectation(measure, element, score)))
            except Divergent as error:
                raise Divergent(self._condition(measure, element) or error.condition) from None
        return self._exact[key]

    def _condition(self, measure: str, element: ExpPoly) -> Condition | None:
        """The condition that fails most: sum weight/sigma^2 > 0 over the densities in an exponential."""
        each = [precisions(measure, exponent) for _, exponent in element.terms]
        worst = min((weights for weights in each if weights), key=self._precision, default={})
        fails = bool(worst) and self._precision(worst) <= 0
        return Condition(condition_text(worst), False) if fails else None

    def _precision(self, weights: Mapping[str, Fraction]) -> float:
        return sum(float(w) / self.setting.density(name)[1].real for name, w in weights.items())


def _by_measure(means: Sequence[Mean]) -> dict[str, list[Mean]]:
    return {m: chosen for m in MEASURES if (chosen := [mean for mean in means if mean.measure == m])}


def precisions(measure: str, exponent: Exponent) -> dict[str, Fraction]:
    """The integrand m exp(exponent) as exp(-x^2/2 sum weight/sigma^2 + ...): the weights.

    >>> [((_, exponent), _)] = (ExpPoly.from_variable("k1") * -4).exp().terms.items()
    >>> condition_text(precisions("q", exponent))
    'sigma_q^2 > 3/4 sigma_p^2'

    Empty where the exponent is not linear in k1, w and log q with rational coefficients.
    """
    weights = {measure: Fraction(1)}
    for monomial, value in exponent:
        if len(monomial) != 1 or monomial[0][1] != 1 or monomial[0][0] not in DENSITIES:
            return {}
        over, *below = DENSITIES[monomial[0][0]]
        weights[over] = weights.get(over, Fraction(0)) + value
        for other in below:
            weights[other] = weights.get(other, Fraction(0)) - value
    return {name: weight for name, weight in weights.items() if weight}


def condition_text(weights: Mapping[str, Fraction]) -> str:
    """sum weight/sigma^2 > 0, solved for one variance where there are two."""
    high = [name for name, weight in weights.items() if weight > 0]
    if len(weights) == 2 and len(high) == 1:
        [low] = weights.keys() - set(high)
        return f"sigma_{low}^2 > {-weights[low] / weights[high[0]]} sigma_{high[0]}^2"
    return " + ".join(f"({weight})/sigma_{name}^2" for name, weight in sorted(weights.items())) + " > 0"


def _times(a: Scored, b: Scored) -> Scored:
    product: Scored = {}
    for j, x in a.items():
        for k, y in b.items():
            product[j + k] = product.get(j + k, ExpPoly({})) + x * y
    return product


def _rows(means: Sequence[Mean]) -> tuple[Row, ...]:
    rows: list[Row] = []
    for mean in means:
        directions = range(len(DIRECTIONS)) if mean.score else (0,)
        rows += [(mean.coefficient, (i,) * len(mean.score)) for i in directions]
    return tuple(rows)


def _unpacked(means: Sequence[Mean], values: Any) -> dict[Mean, Any]:
    """The averages of `_rows`, back along every direction."""
    found, at = {}, 0
    for mean in means:
        width = len(DIRECTIONS) if mean.score else 1
        found[mean] = np.broadcast_to(values[at : at + width], (len(DIRECTIONS),))
        at += width
    return found
