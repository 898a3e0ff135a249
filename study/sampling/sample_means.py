"""Sample means: computed block by block, merged.

    mean = sum x / n

How far a mean may lie from its expectation is known exactly (`Sampler.spread`), not estimated from samples.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from klsym.errors import UsageError
from klsym.study.sampling.backends import Backend


@dataclass(frozen=True, eq=False)
class SampleMeans:
    """The means of k quantities over n samples.

    >>> means = SampleMeans.from_rows(np.array([[1.0, 2.0, 6.0]]), Backend("numpy"))
    >>> means.count, means.mean.tolist(), means.merge(means).count
    (3, [3.0], 6)

    count: n.  mean: shape (k,), float64, on the host.  A value that is infinite or nan shows in its row.
    """

    count: int
    mean: Any

    @staticmethod
    def from_rows(rows: Sequence[Any], backend: Backend) -> SampleMeans:
        """The means of a block; float32 values are summed in float64.

        rows: k arrays of the backend, shape (n,) each.  On the CPU equal values give equal bits, whatever
        the backend and the number of threads.  Summed in pairs, so that the error of a sum is a few eps
        of the sum of |x|.
        Raises UsageError: no row, rows of several dimensions or lengths, or of no sample.
        """
        shapes = {tuple(row.shape) for row in rows}
        if [len(shape) for shape in shapes] != [1] or (0,) in shapes:
            raise UsageError("sample means: rows of one length, 1 or more, expected")
        with np.errstate(invalid="ignore", over="ignore"):
            if backend.device == "cpu":
                sums = np.array([np.sum(backend.to_host(row), dtype=np.float64) for row in rows])
            else:
                sums = _sum_on_device(rows, backend)
        return SampleMeans(len(rows[0]), sums / len(rows[0]))

    def merge(self, other: SampleMeans) -> SampleMeans:
        """The means of both samples together; merging in one fixed order gives the same bits.

            mean = mean_a + (n_b/n) (mean_b - mean_a)

        Sums would not do: the sum of many equal blocks drifts by an eps each time, always to one side.  Here
        equal means stay what they are, and others are rounded by eps |mean| a merge, to either side.
        Raises UsageError: different numbers of rows.
        Source: Chan, Golub & LeVeque 1983, Algorithms for computing the sample variance, (2.1).
        """
        if self.mean.shape != other.mean.shape:
            raise UsageError(f"sample means: {len(self.mean)} and {len(other.mean)} rows do not merge")
        count = self.count + other.count
        with np.errstate(invalid="ignore", over="ignore"):
            return SampleMeans(count, self.mean + (other.count / count) * (other.mean - self.mean))


def _sum_on_device(rows: Sequence[Any], backend: Backend) -> Any:
    """The sums taken on the device, in float64: they alone travel to the host."""
    xp = backend.xp
    with _enable_float64(backend):
        return backend.to_numpy(xp.stack([xp.sum(xp.astype(row, xp.float64)) for row in rows]))


def _enable_float64(backend: Backend) -> contextlib.AbstractContextManager[Any]:
    """Where JAX has float64, for this thread and this block only."""
    if backend.name == "jax":
        import jax

        return jax.enable_x64(True)
    return contextlib.nullcontext()
