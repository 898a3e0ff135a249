"""Estimating a polynomial in means from samples, with its exact standard error and the shape of its law.

For F = sum c prod m_j of means m_j = E_{m}[f_j], the estimate puts sample averages in place of the
means.  Its error is that of the linear part (the delta method), one influence function a measure:

    h_m = sum_j F_j f_j  over the means under m, F_j = dF/dm_j      Var F = sum_m Var_m(h_m) / N = V / N

Products bend: to the next order the estimate has a bias, and is skewed by more than h is,

    bias      sum_jk F_jk Cov(f_j, f_k) / (2 N)
    skewness  (sum_m E[(h_m - E h_m)^3] + 3 sum_jk F_jk Cov(h, f_j) Cov(h, f_k)) / (V^(3/2) sqrt(N))

Lone means are exactly linear.  Every array runs over directions u: s^k stands for (u.s)^k.
Source: Bhattacharya & Ghosh 1978, On the validity of the formal Edgeworth expansion; Hall 1992, The
bootstrap and Edgeworth expansion, 2.4.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from klsym.errors import UsageError
from klsym.kernel.ring import ExpPoly
from klsym.language.abbreviations import Mean
from klsym.study.sampling.evaluate import Variables
from klsym.study.sampling.means import Product
from klsym.study.sampling.sample_means import SampleMeans
from klsym.study.sampling.statistics import LARGEST_SHAPE
from klsym.study.sampling.streams import Plan, Stream

ROUNDING = 1e-13  # of a sum of some tens of terms in float64, relative to their sizes
Products = Sequence[Product]
Averages = Mapping[Mean, Any]  # mean -> its value along each direction, shape (d,)
Parts = Sequence[tuple[Mean, Any]]  # sum of weight * integrand; the weights of shape (d,) or ()


@dataclass(frozen=True)
class Spread:
    """What sampling a quantity would give: its exact value, and the law of one sample.

    Every field has shape (d,).  The standard error of N samples is deviation / sqrt(N), their bias
    bias / N; skewness and kurtosis (its excess) are those of one sample, / sqrt(N) and / N of N.
    rounding: how far rounding may move a value, however many samples there are.
    """

    value: Any
    deviation: Any
    skewness: Any
    kurtosis: Any
    bias: Any
    rounding: Any


class Curvature(NamedTuple):
    """What the second derivatives F_jk of the estimate add, sums over pairs of means j < k.

    bias: of F_jk Cov(f_j, f_k).  third_moment: of 6 F_jk Cov(h, f_j) Cov(h, f_k), h the influence.
    size: of |F_jk| sd(f_j) sd(f_k), which is 0 only where the estimate is linear.
    """

    bias: Any
    third_moment: Any
    size: Any


class Sampler(ABC):
    """A model that can be sampled, with what is needed to judge the samples."""

    parameters: Mapping[str, float]

    @abstractmethod
    def draw_averages(
        self, means: Sequence[Mean], samples: int, stream: Stream, results: Sequence[SampleMeans] = ()
    ) -> Averages:
        """Sample averages of each mean from `samples` draws of each measure.

        results: what `list_requests` gave, when that was run already.
        """

    def list_requests(self, means: Sequence[Mean], samples: int, stream: Stream) -> list[tuple[Any, Plan]]:
        """The work behind `averages` that is worth sending elsewhere: (task, plan), in order."""
        return []

    @abstractmethod
    def compute_exact_mean(self, mean: Mean) -> Any:
        """The exact mean along each direction, shape (d,)."""

    @abstractmethod
    def compute_central_moment(self, factors: Sequence[Parts]) -> Any:
        """E[prod_j (h_j - E h_j)] of sums h_j of integrands, all under one measure, shape (d,)."""

    def combine(self, products: Products, averages: Averages) -> Any:
        """sum c prod m_j, shape (d,)."""
        total: Any = 0.0
        for coefficient, means in products:
            term: Any = self.evaluate_constant(coefficient)
            for mean in means:
                term = term * averages[mean]
            total = total + term
        return np.asarray(total)

    def evaluate_constant(self, coefficient: ExpPoly) -> float:
        """The value of a coefficient made of parameters."""
        lookup = self.parameters.__getitem__
        return float(Variables(np, lookup).evaluate_element(coefficient))

    def measure_spread(self, products: Products) -> Spread:
        """The exact value of a polynomial in means, and the spread of its estimate.

        Raises Divergent: a moment up to the fourth is infinite.  UsageError: one beyond the range of
        floats, or an estimate whose linear part vanishes, so that its law is no normal one.
        """
        with np.errstate(all="ignore"):  # what is not finite is refused
            spread = self._measure_spread(products)
        if not all((np.abs(row) < LARGEST_SHAPE).all() for row in vars(spread).values()):
            raise UsageError("sampling: a moment that the judgement needs is beyond the range of floats")
        return spread

    def _measure_spread(self, products: Products) -> Spread:
        exact = {mean: self.compute_exact_mean(mean) for mean in list_means(products)}
        influence = self._differentiate_products(products, exact)
        variance, third, fourth = 0.0, 0.0, 0.0
        for h in influence.values():
            second, cubed, power = (self.compute_central_moment([h] * order) for order in (2, 3, 4))
            variance, third = variance + second, third + cubed
            fourth = fourth + power - 3 * second**2  # cumulants of independent measures add
        variance = np.maximum(variance, 0.0)
        curvature = self._measure_curvature(products, exact, influence)
        if np.any((variance == 0) & (curvature.size > 0)):
            raise UsageError("sampling: the linear part of the estimate vanishes: its law is no normal one")
        safe = np.where(variance > 0, variance, 1.0)
        skewness = np.where(variance > 0, (third + curvature.third_moment) / safe**1.5, 0.0)
        kurtosis = np.where(variance > 0, fourth / safe**2, 0.0)
        value, deviation = self.combine(products, exact), np.sqrt(variance)
        rounding = ROUNDING * (np.abs(value) + deviation + self.estimate_size(products, exact))
        bias = curvature.bias + 0 * value
        return Spread(value, deviation, skewness, kurtosis, bias=bias, rounding=rounding)

    def estimate_size(self, products: Products, exact: Averages) -> Any:
        """What the integrands are summed from, where terms may cancel at every sample."""
        return 0.0

    def _differentiate_products(
        self, products: Products, exact: Averages
    ) -> dict[str, list[tuple[Mean, Any]]]:
        """measure -> (mean, dF/dmean), one entry for each place where the mean stands."""
        derivatives: dict[str, list[tuple[Mean, Any]]] = {}
        for coefficient, means in products:
            for j, mean in enumerate(means):
                weight = self._weigh_mean(coefficient, means[:j] + means[j + 1 :], exact)
                derivatives.setdefault(mean.measure, []).append((mean, weight))
        return derivatives

    def _measure_curvature(
        self, products: Products, exact: Averages, influence: Mapping[str, Parts]
    ) -> Curvature:
        bias, bend, rough = 0.0, 0.0, 0.0
        for coefficient, means in products:
            for j, k in combinations(range(len(means)), 2):
                weight = self._weigh_mean(coefficient, means[:j] + means[j + 1 : k] + means[k + 1 :], exact)
                f, g = (((mean, 1.0),) for mean in (means[j], means[k]))
                if means[j].measure == means[k].measure:
                    bias = bias + weight * self.compute_central_moment([f, g])
                along = (self.compute_central_moment([influence[x[0][0].measure], x]) for x in (f, g))
                bend = bend + 6 * weight * next(along) * next(along)
                spread = self.compute_central_moment([f, f]) * self.compute_central_moment([g, g])
                rough = rough + np.abs(weight) * np.sqrt(np.maximum(spread, 0.0))
        return Curvature(bias, bend, rough)

    def _weigh_mean(self, coefficient: ExpPoly, others: Sequence[Mean], exact: Averages) -> Any:
        """The coefficient times the exact values of the other means."""
        weight: Any = self.evaluate_constant(coefficient)
        for factor_mean in others:
            weight = weight * exact[factor_mean]
        return weight


def list_means(products: Products) -> list[Mean]:
    """Every mean that occurs, once."""
    return list(dict.fromkeys(mean for _, means in products for mean in means))
