"""Count and sums of samples: computed block by block, added up.

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
from klsym.sampling.backends import Backend


@dataclass(frozen=True, eq=False)
class Totals:
    """The sums of k quantities over n samples.

    >>> totals = Totals.of(np.array([[1.0, 2.0, 6.0]]), Backend("numpy"))
    >>> totals.count, totals.mean.tolist(), totals.merge(totals).sums.tolist()
    (3, [3.0], [18.0])

    count: n.  sums: shape (k,), float64, on the host.  A value that is infinite or nan shows in its row.
    """

    count: int
    sums: Any

    @staticmethod
    def of(rows: Sequence[Any], backend: Backend) -> Totals:
        """The totals of a block; float32 values are summed in float64.

        rows: k arrays of the backend, shape (n,) each.  On the CPU equal values give equal bits, whatever
        the backend and the number of threads.  Summed in pairs, so that the error of a sum is a few eps
        of the sum of |x|.
        Raises UsageError: no row, rows of several dimensions or lengths, or of no sample.
        """
        shapes = {tuple(row.shape) for row in rows}
        if [len(shape) for shape in shapes] != [1] or (0,) in shapes:
            raise UsageError("totals: rows of one length, 1 or more, expected")
        with np.errstate(invalid="ignore", over="ignore"):
            if backend.device == "cpu":
                sums = np.array([np.sum(backend.to_host(row), dtype=np.float64) for row in rows])
            else:
                sums = _sums_on_device(rows, backend)
        return Totals(len(rows[0]), sums)

    def merge(self, other: Totals) -> Totals:
        """The totals of both samples; merging in one fixed order gives the same bits.

        Raises UsageError: different numbers of rows.
        """
        if self.sums.shape != other.sums.shape:
            raise UsageError(f"totals: {len(self.sums)} and {len(other.sums)} rows do not merge")
        with np.errstate(invalid="ignore", over="ignore"):
            return Totals(self.count + other.count, self.sums + other.sums)

    @property
    def mean(self) -> Any:
        """The sample averages, shape (k,)."""
        return self.sums / self.count


def _sums_on_device(rows: Sequence[Any], backend: Backend) -> Any:
    """The sums taken on the device, in float64: they alone travel to the host."""
    xp = backend.xp
    with _float64(backend):
        return backend.to_numpy(xp.stack([xp.sum(xp.astype(row, xp.float64)) for row in rows]))


def _float64(backend: Backend) -> contextlib.AbstractContextManager[Any]:
    """Where JAX has float64, for this thread and this block only."""
    if backend.name == "jax":
        import jax

        return jax.enable_x64(True)
    return contextlib.nullcontext()
