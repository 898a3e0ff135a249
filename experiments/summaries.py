"""Summaries over repeats, and numbers as they are printed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from klsym.experiments.softmax import Array, Counted

MARGIN = 3.0  # standard errors by which one mean must lie below another to be called smaller
NumberTable = tuple[tuple[str, ...], list[tuple[str, ...]]]


def mean(values: Array) -> Array:
    """Mean over repeats, the last axis."""
    return np.asarray(values.mean(-1))


def error(values: Array) -> Array:
    """Standard error of the mean over repeats; nan for a single repeat."""
    repeats = values.shape[-1]
    if repeats < 2:
        return np.full(values.shape[:-1], np.nan)
    return np.asarray(values.std(-1, ddof=1) / np.sqrt(repeats))


def below(a: Array, b: Array) -> bool:
    """Is the mean of a below that of b by MARGIN standard errors of the paired difference?

    >>> below(np.array([1.0, 2.0, 3.0]), np.array([2.0, 3.1, 4.0]))
    True
    >>> below(np.array([1.0, 2.0, 3.0]), np.array([0.0, 9.0, 1.0]))
    False
    """
    difference = np.asarray(b - a)
    return bool(mean(difference) > MARGIN * error(difference))


def mostly_below(a: Array, b: Array) -> bool:
    """Is a below b on average and in more than half of the bandits?  For values without sampling noise."""
    return bool(mean(a) < mean(b) and (a < b).mean() > 0.5)


def slope(x: Sequence[float] | Array, y: Array) -> float:
    """Least-squares slope of log y against log x.

    >>> round(slope([1, 2, 4], np.array([1.0, 0.5, 0.25])), 6)
    -1.0
    """
    return float(np.polyfit(np.log(np.asarray(x, float)), np.log(y), 1)[0])


def converged(times: Any, curves: Array) -> Array:
    """Mean over the last quarter of the run, shape (..., K, repeats) -> (..., repeats), evenly in time.

    The curves are recorded more densely at the start, so each value counts for the time around it.
    """
    return _window(times, curves, 0.75, 1.0)


def drift(times: Any, curves: Array) -> Array:
    """Mean over the last quarter over that of the quarter before, averaged over repeats first: 1 at rest."""
    return mean(_window(times, curves, 0.75, 1.0)) / mean(_window(times, curves, 0.5, 0.75))


def _window(times: Any, curves: Array, start: float, stop: float) -> Array:
    times = np.asarray(times, float) / times[-1]
    inside = (times >= start) & (times <= stop)
    # the trapezoidal rule, normalised
    gaps = np.diff(times[inside], prepend=times[inside][0], append=times[inside][-1])
    weights = (gaps[:-1] + gaps[1:]) / 2 if inside.sum() > 1 else np.ones(1)
    return np.asarray(np.einsum("k,...kr->...r", weights / weights.sum(), curves[..., inside, :]))


def show(number: Any, digits: int = 2) -> str:
    """A number with so many significant digits, without an exponent from 0.0001 to a million.

    >>> show(0.0410), show(1234.5), show(0.00001234)
    ('0.041', '1200', '1.2e-05')
    """
    number = float(f"{float(number):.{digits}g}")
    if number != 0 and not 1e-4 <= abs(number) < 1e6:
        return f"{number:.{digits - 1}e}"
    return np.format_float_positional(number, trim="-", min_digits=None)


def shows(numbers: Any, digits: int = 2) -> str:
    """Numbers separated by commas."""
    return ", ".join(show(x, digits) for x in numbers)


class Ticker:
    """Adds up the work done and hands it to a progress callback.

    >>> seen = []
    >>> tick = Ticker(lambda done, total: seen.append((done, total)), total=3)
    >>> tick(1), tick(2)
    (None, None)
    >>> seen
    [(1, 3), (3, 3)]
    """

    def __init__(self, progress: Counted, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0

    def __call__(self, more: int) -> None:
        self.done += more
        if self.progress is not None:
            self.progress(self.done, self.total)

    def after(self, value: Any) -> Any:
        """Counts one piece of work, and hands on what came of it."""
        self(1)
        return value
