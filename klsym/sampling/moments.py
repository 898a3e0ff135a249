"""Count, mean and comoment of samples: computed block by block, merged without loss.

    mean = sum x / n        comoment = sum (x - mean)(x - mean)^T

Sums are taken about a shift c near the data, in float64, so that nothing large cancels:

    mean = c + s/n        comoment = sum d d^T - s s^T / n        d = x - c,  s = sum d
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from klsym.errors import UsageError
from klsym.sampling.backends import Backend

# Tiles are summed one by one, for two reasons: rounding errors grow with the tile and with the number
# of tiles, not with their product, and BLAS never splits a product of this length over threads, which
# would let the last bits depend on their number.
TILE = 1024  # samples
ONES = np.ones(TILE)
PIECE = 128 * TILE  # samples in one pass


@dataclass(frozen=True, eq=False)
class Moments:
    """The first two moments of n samples of k quantities.

        mean = sum x / n        comoment = sum (x - mean)(x - mean)^T

    >>> moments = Moments.of(np.array([[1.0, 2.0, 6.0]]), Backend("numpy"))
    >>> moments.count, moments.mean.tolist(), moments.covariance.tolist()
    (3, [3.0], [[7.0]])

    count: n.  mean: shape (k,).  comoment: shape (k, k), symmetric.  Both float64, on the host.
    A value that is infinite or nan makes the moments of its row nan.
    """

    count: int
    mean: Any
    comoment: Any

    @staticmethod
    def of(values: Any, backend: Backend) -> Moments:
        """The moments of a block, about a shift near its mean; float32 values are summed in float64.

            mean = c + s/n        comoment = sum d d^T - s s^T / n        d = x - c,  s = sum d

        values: shape (k, n), n >= 1, an array of the backend.  On the CPU equal values give equal bits,
        whatever the backend and the number of threads.  The rounding error of the comoment is a few
        eps relative to its diagonal where the first 1024 samples are like the others, n eps in any case.
        A constant row has its value as mean and comoment 0, exactly.
        Raises UsageError: another shape.
        """
        if len(values.shape) != 2 or 0 in values.shape:
            raise UsageError(f"moments: values of shape (k, n) expected, got {tuple(values.shape)}")
        sums = Accumulator(backend)
        sums.add([values[i, :] for i in range(values.shape[0])])
        return sums.moments()

    def merge(self, other: Moments) -> Moments:
        """The moments of both samples together; merging in one fixed order gives one result.

            mean = mean_a + (n_b/n) delta        comoment = C_a + C_b + (n_a n_b/n) delta delta^T

        delta = mean_b - mean_a.  Each merge rounds the mean, by eps |mean|: felt only where |mean| is
        very many deviations.
        Raises UsageError: different numbers of rows.
        Source: Chan, Golub & LeVeque 1983, Algorithms for computing the sample variance, (2.1).
        """
        if self.mean.shape != other.mean.shape:
            raise UsageError(f"moments: {len(self.mean)} and {len(other.mean)} rows do not merge")
        count = self.count + other.count
        with np.errstate(invalid="ignore", over="ignore"):
            delta = other.mean - self.mean
            between = (self.count * other.count / count) * np.outer(delta, delta)
            mean = self.mean + (other.count / count) * delta
            return Moments(count, mean, self.comoment + other.comoment + between)

    @property
    def covariance(self) -> Any:
        """The unbiased covariance, comoment / (n - 1), shape (k, k); UsageError when n = 1."""
        if self.count < 2:
            raise UsageError("moments: a covariance needs at least 2 samples, got 1")
        return self.comoment / (self.count - 1)

    @property
    def standard_error(self) -> Any:
        """The standard error of the mean, sqrt(diag(covariance) / n), shape (k,); UsageError when n = 1."""
        return np.sqrt(np.diagonal(self.covariance) / self.count)


class Accumulator:
    """Blocks of samples summed about one shift: 0, or the mean of the first 1024 where that is far from 0.

    >>> sums = Accumulator(Backend("numpy"))
    >>> for block in ([1.0, 2.0], [6.0]):
    ...     sums.add([np.array(block)])
    >>> sums.moments().mean.tolist(), sums.moments().covariance.tolist()
    ([3.0], [[7.0]])

    For blocks of one law, such as those of one chunk: merging moments is for what may differ.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend, self.count = backend, 0
        self._shift: Any = None
        self._total: Any = 0.0

    def add(self, rows: Sequence[Any]) -> None:
        """One block: k arrays of the backend, shape (n,) each, n >= 1."""
        with np.errstate(invalid="ignore", over="ignore"):
            if self.backend.device == "cpu":
                sums = self._sums([self.backend.to_host(row) for row in rows])
            else:
                sums = self._sums_on_device(rows)
        self.count += int(rows[0].shape[0])
        self._total = self._total + sums

    def moments(self) -> Moments:
        """The moments of all blocks so far; UsageError when there is none."""
        if not self.count:
            raise UsageError("moments: no samples")
        with np.errstate(invalid="ignore", over="ignore"):
            return _about_the_mean(self.count, self._shift, self._total)

    def _sums(self, rows: Sequence[Any]) -> Any:
        """sum (1, d)(1, d)^T about the shift, on the host: its lower triangle after the first entry."""
        if self._shift is None:
            self._shift = np.array([_start(row) for row in rows])
        sums: Any = 0.0
        for first, last, tile in _pieces(len(rows[0])):
            pairs = zip(rows, self._shift, strict=True)
            d = [_less(row[first:last], c).reshape(-1, tile) for row, c in pairs]
            # Few rows: a matrix product is slower, and so is a sum than a product with 1.
            products = [np.vecdot(x, y) for i, x in enumerate(d) for y in (ONES[:tile], *d[: i + 1])]
            sums = sums + np.array(products).sum(axis=1)
        return sums

    def _sums_on_device(self, rows: Sequence[Any]) -> Any:
        """The same on the device, in float64; only the sums travel to the host.

        Rows of products, not a matrix product: GPUs may round the factors of the latter to 10 bits.
        """
        xp, backend = self.backend.xp, self.backend
        with _float64(backend):
            x = xp.astype(xp.stack(list(rows)), xp.float64)
            if self._shift is None:
                self._shift = backend.to_numpy(x[:, 0] + xp.mean(x[:, :TILE] - x[:, :1], axis=1))
            d = xp.stack([x[i, :] - float(self._shift[i]) for i in range(x.shape[0])])
            total = xp.sum(d, axis=1)
            products = xp.stack([xp.sum(d[i, :] * d, axis=1) for i in range(d.shape[0])])
            total, products = backend.to_numpy(total), backend.to_numpy(products)
        return np.column_stack([total, products])[np.tril_indices(len(total), 1, len(total) + 1)]


def _start(row: Any) -> float:
    """The mean of the first samples, where it is further from 0 than they are spread; else 0.

    About 0 nothing large cancels then, and the samples are summed as they are.  A constant is its own mean,
    without rounding.
    """
    head = row[:TILE].astype(np.float64)
    beyond = head - head[0]
    mean = float(head[0] + beyond.mean())
    return 0.0 if abs(mean) <= beyond.std() else mean


def _less(row: Any, shift: float) -> Any:
    """row - shift in float64: the row itself where that changes nothing."""
    return np.subtract(row, shift, dtype=np.float64) if shift else row.astype(np.float64, copy=False)


def _pieces(n: int) -> Iterator[tuple[int, int, int]]:
    """From where to where n samples are summed at a time, and in tiles of which length."""
    whole = n - n % TILE
    for first in range(0, whole, PIECE):
        yield first, min(first + PIECE, whole), TILE
    if whole < n:
        yield whole, n, n - whole


def _about_the_mean(count: int, shift: Any, sums: Any) -> Moments:
    """From sums about a shift to the moments.  Rounding never leaves a negative variance."""
    k = len(shift)
    found = np.zeros((k, k + 1))
    found[np.tril_indices(k, 1, k + 1)] = sums
    total, products = found[:, 0], found[:, 1:]
    comoment = products + np.tril(products, -1).T - np.outer(total, total) / count
    diagonal = np.einsum("ii->i", comoment)
    diagonal[diagonal < 0] = 0.0
    return Moments(count, shift + total / count, comoment)


def _float64(backend: Backend) -> contextlib.AbstractContextManager[Any]:
    """Where JAX has float64, for this thread and this block only."""
    if backend.name == "jax":
        import jax

        return jax.enable_x64(True)
    return contextlib.nullcontext()
