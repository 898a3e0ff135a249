"""The table of estimators: k1, k2, k3.  A new estimator is a new row.

The parser, the conversion to the ring, all printers, `klsym audit`, the code snippets, sampling and the names
of `klsym` and `klsym.calculus` read this table.  `expressions.py` checks each row when it is imported.

>>> [row.name for row in TABLE]
['k1', 'k2', 'k3']
>>> from fractions import Fraction
>>> TABLE[1].formula(Fraction(3), None)
Fraction(9, 2)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klsym.records import record


@record
class Row:
    """An estimator of the KL, or of another f-divergence, at one sample.

    name: k and a number.  formula: a function of k1 = log q - log p and r = p/q, made of integers, + - * /
    and **.  Its coefficients are exact: x/2, not 0.5*x.
    """

    name: str
    latex: str
    formula: Callable[[Any, Any], Any]


TABLE = (
    Row("k1", "k_1", lambda k1, r: k1),
    Row("k2", "k_2", lambda k1, r: k1**2 / 2),
    Row("k3", "k_3", lambda k1, r: r - 1 + k1),
)
NAMES = tuple(row.name for row in TABLE)
