"""Schulman's two tables, each printed figure beside the exact one.

Source: J. Schulman, "Approximating KL divergence" (2020), as Wang & Zhang 2025 quote it, in the section
"Bias and variance for KL values".
"""

from __future__ import annotations

from collections.abc import Iterator

import sympy

from klsym.language import k1, k2, k3
from klsym.tables.gaussian import PLACES, Printed, claim_of, figures
from klsym.tables.losses import written
from klsym.tables.table import Column, Row, Table, code, math, words

PRINTED = {  # (bias/true, stdev/true), as printed
    ("near", k1): ("0", "20"), ("near", k2): ("0.002", "1.42"), ("near", k3): ("0", "1.42"),
    ("far", k1): ("0", "2"), ("far", k2): ("0.25", "1.73"), ("far", k3): ("0", "1.7"),
}  # fmt: skip
CAPTION = (
    words("Schulman's tables of bias and spread, exactly. ")
    + words("Bias and standard deviation of one sample over the true KL, for ")
    + math(r"q = \mathcal{N}(0, 1)") + words(" and ") + math(r"p = \mathcal{N}(d, 1)")
    + words("; each printed figure beside the exact one, and how far it is off.")
)  # fmt: skip
COLUMNS = (
    Column("estimator", words("estimator")),
    *(
        Column(f"{key}-{what}", words(head), align="r", over=words(over))
        for key, over in (("bias", "bias/KL"), ("sd", "sd/KL"))
        for what, head in (("printed", "printed"), ("exact", "exact"), ("off", "off by, %"))
    ),
    Column("claim", words("claim"), 0.13),
)


def table() -> Table:
    """The table.

    >>> [(row.tags[0], row.cells[3].pieces[0][1]) for row in table().rows if "near" in row.tags]
    [('k1', '0'), ('k2', '-20.0'), ('k3', '0')]
    """
    return Table("schulman", CAPTION, COLUMNS, tuple(_rows()))


def _rows() -> Iterator[Row]:
    for (place, estimator), texts in PRINTED.items():
        claim = claim_of(place)
        bias, sd = map(Printed, texts, figures(estimator, place))
        figures_ = (
            cell for one in (bias, sd)
            for cell in (math(one.printed), math(sympy.latex(one.exact), claim), math(one.shown, claim))
        )  # fmt: skip
        cells = (written(estimator), *figures_, code(claim, claim))
        group = (
            f"{'Small' if place == 'near' else 'Large'} divergence, d = {PLACES[place]}, KL = {_kl(place)}"
        )
        yield Row(cells, (str(estimator), place), group)


def _kl(place: str) -> sympy.Expr:
    return PLACES[place] ** 2 / 2
