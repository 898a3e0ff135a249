"""Gaussian expectations by quadrature, from the densities alone: the check on closed forms.

The trapezoid rule on the whole line converges faster than any power of the step for analytic integrands
that fall off like Gaussians, so that doubles are exhausted at a step of 1/32 deviation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Pair = tuple[float, float]  # mean, variance
Value = Callable[[Any], Any]  # of k1, an array

REACH = 37.0  # deviations: beyond them a normal density underflows
STEP = 1 / 32

ESTIMATORS: dict[str, Value] = {
    "k1": lambda k: k,
    "k2": lambda k: k * k / 2,
    "k3": lambda k: np.expm1(-k) + k,
}


def mean(value: Value, q: Pair, p: Pair, reach: float = REACH) -> float:
    """The integral of value(k1(x)) q(x) over |x - mean| <= reach deviations of q.

    >>> round(mean(ESTIMATORS["k1"], (0.0, 1.0), (1.0, 1.0)), 12)
    0.5

    value: a function of an array of k1 = log q - log p.
    q, p: (mean, variance).
    reach: where the integral is cut off; a divergent one grows with it.
    """
    (m, v), (n, u) = q, p
    z = np.arange(-reach, reach + STEP / 2, STEP)
    x = m + z * math.sqrt(v)
    k = (x - n) ** 2 / (2 * u) - z**2 / 2 + math.log(u / v) / 2
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    return float(np.trapezoid(value(k) * density, dx=STEP))


def mean_and_sd(value: Value, q: Pair, p: Pair) -> tuple[float, float]:
    """E_q[value] and the standard deviation of one sample.

    >>> mean_and_sd(ESTIMATORS["k1"], (0.0, 1.0), (2.0, 1.0))
    (2.0, 2.0)

    value, q, p: as in `mean`.
    """
    centre = mean(value, q, p)
    return centre, math.sqrt(mean(lambda k: (value(k) - centre) ** 2, q, p))
