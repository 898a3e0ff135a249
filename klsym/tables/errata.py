"""Errata of the literature: what is printed, what is true, and what shows the difference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from klsym.engine.proof.derivation import Proof
from klsym.ledger.registry import load
from klsym.ledger.settle_claim import Settled, recall
from klsym.ledger.view import statement_latex
from klsym.notation.printers import LATEX
from klsym.notation.text import show_statement
from klsym.tables.writing.table import Cell, Column, Row, Table, code, listed, math, words
from klsym.tables.writing.witness import witness

CAPTION = words(
    "Errata of the literature. Each printed form is refuted, by a finite model enclosed in rational"
    " intervals or by the calculation shown. WZ1: Wang & Zhang 2025, first version; WZ2: the later"
    " version; TM: Tang & Munos 2025; RE: the notes on approximating the KL divergence; AM: Amini et al."
    " 2025."
)
COLUMNS = (
    Column("source", words("source"), 0.12),
    Column("printed", words("printed"), 0.215),
    Column("true", words("true"), 0.28),
    Column("witness", words("witness against what is printed"), 0.17),
    Column("claim", words("claim"), 0.11),
)


def table() -> Table:
    """One row for each corrected claim of the ledger.

    >>> len(table().rows) == sum(claim.verdict == "corrected" for claim in load().values())
    True
    """
    return Table("errata", CAPTION, COLUMNS, tuple(_rows()), size="scriptsize")


def _rows() -> Iterator[Row]:
    for name, claim in load().items():
        if claim.verdict == "corrected":
            yield _row(recall(name))


def _row(item: Settled) -> Row:
    name = item.claim.id
    wrong = [part for part in item.parts if part.kind == "refuted"]
    right = [part for part in item.parts if part.kind != "refuted"]
    cells = (
        words(item.claim.source, name),
        listed([_printed(part, name) for part in wrong]),
        listed([math(statement_latex(part), name) for part in right]),
        listed([witness(part, name) for part in wrong[:1]]),
        code(name, name),
    )
    return Row(cells, (name,))


def _printed(part: Any, claim: str) -> Cell:
    """The false form as it stands in the source, not its negation."""
    if isinstance(part, Proof):
        return math(show_statement(part.theorem.statement, part.labels, spell=LATEX), claim)
    return math(part.latex, claim)
