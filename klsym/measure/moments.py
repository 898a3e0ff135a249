"""Which combination of named gradients a sampled gradient is, with a stated error rate.

Of N independent groups, x [K] is a sketch of the loss's gradient, and X [K, names] that of the named ones.
If g = E[x] is E[X] c, then m(c) = mean(x - X c) is near 0.  With M = mean(X) and least squares,

    c = M^+ mean(x),    J = N |m(c)|^2 ~ sum_i l_i chi^2_1,    l: the eigenvalues of Q S Q,

where S = cov(x - X c) and Q = 1 - M M^+; for multiples that were given Q is 1.  The distribution of the sum
is simulated.  J is not weighted by S^-1: a direction in which only rare samples move would seem sure where
they are missing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations
from statistics import NormalDist

import numpy as np

from klsym.measure.fit import find_reward_cosine
from klsym.measure.world import Array

MOST_TERMS = 3
RIDGE = 1e-9  # of the size of the samples: the least variance, so that what never varies is tested too
DEPENDENT = 1e4  # the condition of means that are no longer told apart
SEEN = 1e-3
SIMULATED = 20_000


@dataclass(frozen=True)
class SampledFit:
    """Multiples of named gradients that the samples do not reject.

    errors: their standard errors.  p_value: of J.  unseen: an error that could have gone unnoticed, relative
    to the size of the gradient.
    """

    multiples: dict[str, float]
    errors: dict[str, float]
    p_value: float
    unseen: float

    def list_intervals(self, error_rate: float) -> dict[str, tuple[float, float]]:
        """Return an interval for each multiple, which misses it with this probability."""
        z = NormalDist().inv_cdf(1 - error_rate / 2)
        pairs = ((name, value, z * self.errors[name]) for name, value in self.multiples.items())
        return {name: (value - wide, value + wide) for name, value, wide in pairs}


@dataclass(frozen=True)
class Moments:
    """Sketches of the gradients of each group: of the loss [N, K], of the named objectives [N, K, names]."""

    loss: Array
    named: Array
    names: Sequence[str]

    def test_multiples(self, multiples: Mapping[str, float]) -> SampledFit:
        """Return the test of multiples that were given."""
        c = np.array([multiples.get(name, 0.0) for name in self.names])
        return self._test(
            multiples, self.loss - self.named @ c, np.zeros((len(multiples), self.loss.shape[1]))
        )

    def fit_names(self, names: Sequence[str]) -> SampledFit | None:
        """Return the multiples of these names with the least J; None if they are dependent."""
        columns = self.named[..., [self.names.index(name) for name in names]]
        M = columns.mean(0)
        if np.linalg.cond(M / np.linalg.norm(M, axis=0)) > DEPENDENT:
            return None
        inverse = np.linalg.pinv(M)
        c = inverse @ self.loss.mean(0)
        multiples = dict(zip(names, map(float, c), strict=True))
        return self._test(multiples, self.loss - columns @ c, inverse)

    def _test(self, multiples: Mapping[str, float], residuals: Array, inverse: Array) -> SampledFit:
        """Return the test of multiples, from what they leave; inverse: M^+, or 0 if they were given."""
        count, mean, S = len(residuals), residuals.mean(0), np.cov(residuals.T)
        errors = np.sqrt(np.diag(inverse @ S @ inverse.T) / count)
        Q = np.eye(len(S)) - np.linalg.pinv(inverse) @ inverse
        size = max(1e-300, float(np.linalg.norm(self.loss.mean(0))))
        unseen = (float(np.linalg.norm(mean)) + 3 * math.sqrt(float(np.linalg.norm(S, 2)) / count)) / size
        least = RIDGE * float((self.loss**2).mean())
        p_value = compute_p_value(count * float(mean @ mean), np.linalg.eigvalsh(Q @ S @ Q) + least)
        return SampledFit(
            dict(multiples), dict(zip(multiples, map(float, errors), strict=True)), p_value, unseen
        )

    def find_reward_cosine(self, multiples: Mapping[str, float]) -> float | None:
        """Return the cosine of the terms with the reward, together, to the gradient of E[R]."""
        return find_reward_cosine(multiples, dict(zip(self.names, self.named.mean(0).T, strict=True)))

    @cached_property
    def seen(self) -> list[str]:
        """The names whose gradients are not lost in the noise: of others no multiple is known."""
        rows = np.moveaxis(self.named, -1, 0)
        tests = [Moments(column, self.named, self.names).test_multiples({}) for column in rows]
        return [name for name, test in zip(self.names, tests, strict=True) if test.p_value < SEEN]

    def find_fits(self, error_rate: float) -> list[SampledFit]:
        """Return the smallest sets of names that are not rejected, with multiples that are not 0."""
        for size in range(1, MOST_TERMS + 1):
            fits = [self.fit_names(names) for names in combinations(self.seen, size)]
            unrejected = [
                fit for fit in fits if fit and fit.p_value >= error_rate and _has_no_zero(fit, error_rate)
            ]
            if unrejected:
                return sorted(unrejected, key=lambda fit: -fit.p_value)
        return []


def _has_no_zero(fit: SampledFit, error_rate: float) -> bool:
    return all(not low <= 0 <= high for low, high in fit.list_intervals(error_rate).values())


def compute_p_value(statistic: float, eigenvalues: Array) -> float:
    """Return the share of simulated sums l_i chi^2_1 that are larger.

    >>> abs(compute_p_value(3.841459, np.ones(1)) - 0.05) < 0.01
    True
    """
    return float((_draw_squares(len(eigenvalues)) @ eigenvalues > statistic).mean())


@cache
def _draw_squares(size: int) -> Array:
    return np.random.default_rng(3).normal(size=(SIMULATED, size)) ** 2
