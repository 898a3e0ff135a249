"""Schulman's two tables, each printed figure beside the exact one.

Source: see `klsym.experiments.gaussians.schulman`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy

from klsym.experiments.gaussians.schulman import PRINTED, agrees
from klsym.study.tables.gaussian import NAMES, PLACES, claim_of, figures
from klsym.study.tables.losses import written
from klsym.study.tables.writing.table import Cell, Column, Row, Table, code, math, text, words

CAPTION = text(
    "Schulman's tables of bias and spread, exactly. Bias and standard deviation of one sample over the"
    r" true KL, for $q = \mathcal{N}(0, 1)$ and $p = \mathcal{N}(d, 1)$; each printed figure beside the"
    " exact one, and whether it is right to the digits given, that is within half a unit in the last"
    " one."
)
COLUMNS = (
    Column("estimator", words("estimator")),
    *(
        Column(f"{key}-{what}", words(head), align="r", over=words(over))
        for key, over in (("bias", "bias/KL"), ("sd", "sd/KL"))
        for what, head in (("printed", "printed"), ("exact", "exact"), ("right", "right"))
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
        claim = claim_of(place)
        pairs = zip(PRINTED[place][NAMES[estimator]], figures(estimator, place), strict=True)
        figures_ = (cell for pair in pairs for cell in _beside(*pair, claim))
        cells = (written(estimator), *figures_, code(claim, claim))
        group = (
            f"{'Small' if place == 'near' else 'Large'} divergence, d = {PLACES[place]}, KL = {_kl(place)}"
        )
        yield Row(cells, (str(estimator), place), group)


def _beside(printed: str, exact: Any, claim: str) -> tuple[Cell, Cell, Cell]:
    right = "yes" if agrees(printed, exact) else "no"
    return math(printed), math(sympy.latex(exact), claim), words(right, claim)


def _kl(place: str) -> sympy.Expr:
    return PLACES[place] ** 2 / 2
