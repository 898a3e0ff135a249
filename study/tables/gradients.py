"""The cheat sheet: what each loss descends, by estimator, placement, weight and sampling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from klsym.language.expressions import k, k1, k2, k3, lam, rho, sg
from klsym.study.tables.losses import (
    ESTIMATORS,
    OFF,
    ON,
    cite_quote,
    find_gradient_quote,
    find_verdict,
    list_tags,
    write_loss,
)
from klsym.study.tables.writing.table import Cell, Column, Row, Table, build_text, math, words

CAPTION = build_text(
    "The expected gradient of each KL penalty, and its score coefficient $c$ in"
    r" $\mathbb{E}_q[c\,s]$ up to constants; $r = p/q$, $\rho = q/\mu$, sg stops gradients; in the"
    " reward, a penalty multiplies $s$. A dash: no claim of the ledger, proved for this table."
)
COLUMNS = (
    Column("loss", words("penalty")),
    Column("gradient", words("expected gradient"), 0.305),
    Column("coefficient", math("c")),
    Column("reverse", words("reverse KL?")),
    Column("claim", words("claim"), 0.23),
)
CASES: tuple[tuple[str, str, str, tuple[Any, ...]], ...] = (
    ("On-policy, as a loss", ON, "loss", ESTIMATORS),
    ("Off-policy, as a loss, no weight", OFF, "loss", (k1, k2, k3)),
    ("Off-policy, as a loss, weight attached", OFF, "loss", tuple(rho * e for e in ESTIMATORS)),
    ("Off-policy, as a loss, weight detached", OFF, "loss", tuple(sg(rho) * e for e in ESTIMATORS)),
    ("On-policy, in the reward", ON, "reward", (k1, k2, k3, k(lam))),
    ("Off-policy, in the reward, weighted", OFF, "reward", (rho * k1, rho * k2, rho * k3)),
    ("Off-policy, in the reward, no weight", OFF, "reward", (k1, k2, k3)),
)


def table() -> Table:
    """The cheat sheet.

    >>> rows = table().select_rows(("k3",)).rows
    >>> [row.claims[:2] for row in rows if "loss" in row.tags and "on-policy" in row.tags]
    [('gradient.k3-loss', 'sequence.whole-k3')]
    """
    return Table("gradients", CAPTION, COLUMNS, tuple(_list_rows()))


def _list_rows() -> Iterator[Row]:
    for group, sampling, use, losses in CASES:
        for loss in losses:
            found, answer = find_gradient_quote(loss, sampling, use), find_verdict(loss, sampling, use)
            right = words("yes" if answer.target == "reverse-kl" else "no")
            coefficient = math(answer.gradient.canonical_latex, *found.claims)
            cells: tuple[Cell, ...] = (write_loss(loss), found.right, coefficient, right, cite_quote(found))
            yield Row(cells, list_tags(loss, sampling, use), group)
