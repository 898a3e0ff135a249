"""Where the losses of `trainers` stand in public code, and what their documentation calls the KL term."""

from __future__ import annotations

from klsym.study.tables.trainers import Trainer, tags, titled, trainers
from klsym.study.tables.writing.table import NONE, Cell, Column, Row, Table, cited, code, text, words

CAPTION = text(
    "Where the losses of table trainers stand. Repository, the first digits of the commit, file and function,"
    " or the paper; what its own documentation calls the term that stands for"
    " $\\mathrm{KL}(q\\,\\Vert\\,p)$, in our words; what the line in the grammar leaves out."
)
COLUMNS = (
    Column("trainer", words("trainer"), 0.15),
    Column("source", words("source"), 0.32),
    Column("calls", words("calls the KL term"), 0.13),
    Column("beside", words("beside"), 0.15),
    Column("claim", words("claim"), 0.15),
)


def table() -> Table:
    """One row for each loss of `trainers`.

    >>> len(table().rows) == len(trainers())
    True
    """
    return Table("trainer-sources", CAPTION, COLUMNS, tuple(map(_row, trainers())), size="scriptsize")


def _row(one: Trainer) -> Row:
    cells = (
        titled(one),
        code(one.source),
        _said(one.calls),
        _said(one.beside or one.cannot),
        cited(one.claims),
    )
    return Row(cells, tags(one), one.group)


def _said(sentence: str) -> Cell:
    return words(sentence) if sentence else NONE
