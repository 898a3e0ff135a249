"""Floats in SymPy expressions as exact decimals, as they are read in text.

>>> from sympy import Symbol
>>> with_exact_decimals(0.1 * Symbol("x"))
x/10
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from sympy import Float, Rational

from klsym.errors import UsageError

BITS_OF_FLOAT = 53


def with_exact_decimals(expression: Any) -> Any:
    """Return the expression with an exact number in place of each float."""
    return expression.xreplace({x: _to_decimal(x) for x in _find_floats(expression)})


@lru_cache(maxsize=16384)
def _find_floats(expression: Any) -> set[Any]:
    return expression.atoms(Float)


def refuse_floats(formula: Any) -> Any:
    """Return the same formula; raises UsageError if it holds a float."""
    if isinstance(formula, float) or (hasattr(formula, "atoms") and formula.atoms(Float)):
        raise UsageError(f"{str(formula)[:60]} holds a float: write an exact Rational instead")
    return formula


def _to_decimal(number: Float) -> Rational:
    """Return the decimal that is printed: of a Python float the shortest one that rounds to it."""
    return Rational(repr(float(number)) if number._prec == BITS_OF_FLOAT else str(number))
