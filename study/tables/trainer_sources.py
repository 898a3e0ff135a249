"""Where the losses of `trainers` stand in public code, and what their documentation calls the KL term."""

from __future__ import annotations

from klsym.study.tables.trainers import Trainer, build_title_cell, list_tags, trainers
from klsym.study.tables.writing.table import (
    NONE,
    Cell,
    Column,
    Row,
    Table,
    build_text,
    cite_claims,
    code,
    words,
)

CAPTION = build_text(
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
    return Table("trainer-sources", CAPTION, COLUMNS, tuple(map(_build_row, trainers())), size="scriptsize")


def _build_row(one: Trainer) -> Row:
    cells = (
        build_title_cell(one),
        code(one.source),
        _show_sentence(one.calls),
        _show_sentence(one.beside),
        cite_claims(one.claims),
    )
    return Row(cells, list_tags(one), one.group)


def _show_sentence(sentence: str) -> Cell:
    return words(sentence) if sentence else NONE
