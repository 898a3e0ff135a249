"""Schulman's two tables, each printed figure beside the exact one.

Source: see `klsym.experiments.gaussians.schulman`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy

from klsym.experiments.gaussians.schulman import PRINTED, agrees
from klsym.study.tables.gaussian import NAMES, PLACES, compute_figures, name_claim
from klsym.study.tables.losses import write_loss
from klsym.study.tables.writing.table import Cell, Column, Row, Table, build_text, code, math, words

CAPTION = build_text(
    "Schulman's tables of bias and spread, exactly. Bias and standard deviation of one sample over the"
    r" true KL, for $q = \mathcal{N}(0, 1)$ and $p = \mathcal{N}(d, 1)$; each printed figure beside the"
    " exact one, and whether it is right to the digits given, that is within half a unit in the last"
    " one."
)
COLUMNS = (
    Column("estimator", words("estimator")),
    *(
        Column(f"{key}-{column_key}", words(head), align="r", over=words(over))
        for key, over in (("bias", "bias/KL"), ("sd", "sd/KL"))
        for column_key, head in (("printed", "printed"), ("exact", "exact"), ("right", "right"))
    ),
    Column("claim", words("claim"), 0.13),
)


def table() -> Table:
    """The table.

    >>> [(row.tags[0], row.cells[3].pieces[0][1]) for row in table().rows if "near" in row.tags]
    [('k1', 'yes'), ('k2', 'yes'), ('k3', 'yes')]
    """
    return Table("schulman", CAPTION, COLUMNS, tuple(_rows()))


def _rows() -> Iterator[Row]:
    for place, estimator in ((place, estimator) for place in PRINTED for estimator in NAMES):
        claim = name_claim(place)
        pairs = zip(PRINTED[place][NAMES[estimator]], compute_figures(estimator, place), strict=True)
        figures_ = (cell for pair in pairs for cell in _compare_cells(*pair, claim))
        cells = (write_loss(estimator), *figures_, code(claim, claim))
        size = "Small" if place == "near" else "Large"
        group = f"{size} divergence, d = {PLACES[place]}, KL = {_compute_kl(place)}"
        yield Row(cells, (str(estimator), place), group)


def _compare_cells(printed: str, exact: Any, claim: str) -> tuple[Cell, ...]:
    """The printed figure, the exact one, and whether they agree."""
    right = "yes" if agrees(printed, exact) else "no"
    return math(printed), math(sympy.latex(exact), claim), words(right, claim)


def _compute_kl(place: str) -> sympy.Expr:
    return PLACES[place] ** 2 / 2
