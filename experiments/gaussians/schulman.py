"""The two tables that Schulman printed, and when a printed number is right.

Source: J. Schulman, "Approximating KL divergence" (2020), as Wang & Zhang 2025 quote it, in the section
"Bias and variance for KL values".
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import sympy

# (bias/true, sd/true) of each estimator at p = N(1/10, 1), near, and at p = N(1, 1), far.
PRINTED = {
    "near": {"k1": ("0", "20"), "k2": ("0.002", "1.42"), "k3": ("0", "1.42")},
    "far": {"k1": ("0", "2"), "k2": ("0.25", "1.73"), "k3": ("0", "1.7")},
}


def agrees(printed: str, exact: Any) -> bool:
    """Is a printed decimal right to the digits given: within half a unit in its last digit?

        |printed - exact| <= 10^-d / 2, d the number of digits behind the point

    >>> agrees("0.002", sympy.Rational(1, 400)), agrees("0.0020", sympy.Rational(1, 400))
    (True, False)
    """
    half_a_unit = sympy.Rational(1, 2 * 10 ** len(printed.partition(".")[2]))
    fraction = Fraction(printed)
    return bool(abs(sympy.Rational(fraction.numerator, fraction.denominator) - exact) <= half_a_unit)
