"""The Gaussian columns: q = N(0, 1), p = N(d, 1), where KL = d^2/2.

>>> compute_figures(k2, "far"), show_closed_forms(k1)[1].pieces
((1/4, sqrt(3)), (('math', 'd^{2}'),))
"""

from __future__ import annotations

from functools import cache
from typing import Any

import sympy

from klsym.language.expressions import k1, k2, k3
from klsym.study.gaussian.models import Gaussian
from klsym.study.gaussian.models import build_table as gaussian_table
from klsym.study.tables.writing.table import NONE, Cell, math

PLACES = {"near": sympy.Rational(1, 10), "far": sympy.Integer(1)}  # d
NAMES = {k1: "k1", k2: "k2", k3: "k3"}


@cache
def _list_rows(place: str) -> dict[str, Any]:
    return gaussian_table(Gaussian(0, 1), Gaussian(PLACES[place], 1))


def name_claim(place: str) -> str:
    """The claim that settles a place of the table."""
    return f"value.gaussian-table-{place}"


def compute_figures(estimator: Any, place: str) -> tuple[Any, Any]:
    """Exact bias and standard deviation over the true KL, as SymPy numbers."""
    row = _list_rows(place)[NAMES[estimator]]
    return row.bias_over_true, row.sd_over_true


def compute_closed_form(estimator: Any) -> tuple[Any, Any]:
    """Bias over the true KL and variance, in closed form in d > 0."""
    d = sympy.Symbol("d", positive=True)
    row = gaussian_table(Gaussian(0, 1), Gaussian(d, 1))[NAMES[estimator]]
    return sympy.simplify(row.bias_over_true), sympy.expand(sympy.simplify(row.sd**2))


def show_closed_forms(estimator: Any) -> tuple[Cell, Cell]:
    """The closed forms as cells; dashes for what is no estimator of the table."""
    if estimator not in NAMES:
        return NONE, NONE
    behind = (*map(name_claim, PLACES), "value.gaussian-crossover")
    bias, spread = compute_closed_form(estimator)
    return math(sympy.latex(bias), *behind), math(sympy.latex(spread), *behind)
