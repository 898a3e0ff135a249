"""Sampling by counts: one multinomial draw stands for any number of samples.

How often each sample is drawn is sufficient for every average, (1/N) sum_x count_x f(x), so that N = 10^12
samples cost what 10^3 do.  The counts are drawn on the host: one seed gives the same ones with every backend.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from klsym.errors import UsageError
from klsym.sampling.means import Mean
from klsym.sampling.moments import Moments
from klsym.sampling.sampler import Averages, Parts, Sampler
from klsym.sampling.streams import Stream

SMALLEST = 1e-200  # a probability whose powers stay within the floats
LARGEST_SAMPLES = 2**53  # counts are exact in float64 up to here


class CountedSampler(Sampler):
    """A finite set of samples with their probabilities: outcomes, batches, or sequences.

    probabilities: measure -> shape (samples,).
    Source: Owen 2013, Monte Carlo theory, methods and examples, ch. 2.
    """

    probabilities: Mapping[str, Any]

    @abstractmethod
    def rows(self, mean: Mean) -> Any:
        """The integrand at each sample, along each direction, shape (d, samples), on the host."""

    def counts(self, measure: str, samples: int, stream: Stream) -> Any:
        """How often each sample is drawn; raises UsageError beyond 2^53 samples."""
        if not 0 < samples <= LARGEST_SAMPLES:
            raise UsageError(f"{samples} samples: from 1 to 2^53 expected")
        key = ("q", "p", "mu").index(measure)
        return stream.child(key).generator().multinomial(samples, _normalised(self.probabilities[measure]))

    def averages(
        self, means: Sequence[Mean], samples: int, stream: Stream, results: Sequence[Moments] = ()
    ) -> Averages:
        measures = dict.fromkeys(mean.measure for mean in means)
        shares = {m: self.counts(m, samples, stream) / samples for m in measures}
        return {mean: self.rows(mean) @ shares[mean.measure] for mean in means}

    def exact_mean(self, mean: Mean) -> Any:
        return self.rows(mean) @ self.probabilities[mean.measure]

    def central_moment(self, factors: Sequence[Parts]) -> Any:
        weights, product = self.probabilities[factors[0][0][0].measure], 1.0
        for parts in factors:
            h = sum(_column(weight) * self.rows(mean) for mean, weight in parts)
            product = product * (h - (h @ weights)[:, None])
        return product @ weights


def _column(weight: Any) -> Any:
    """One weight for each direction, shape (d, 1)."""
    return np.reshape(weight, (-1, 1))


def _normalised(probabilities: Any) -> Any:
    """Probabilities whose sum a multinomial draw accepts: rounding may put it above one."""
    return probabilities / probabilities.sum()
