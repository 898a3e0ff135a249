"""Errata of the literature: what a source says, what is true, and what shows the difference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from klsym.engine.proof.derivation import Proof
from klsym.notation.printers import LATEX
from klsym.notation.text import show_statement
from klsym.study.ledger.registry import corrected
from klsym.study.ledger.settle_claim import Settled, recall
from klsym.study.ledger.view import format_statement_latex
from klsym.study.tables.writing.table import Cell, Column, Row, Table, code, join_cells, math, words
from klsym.study.tables.writing.witness import show_witness

CAPTION = words(
    "Errata of the literature. Each form is refuted, by a finite model enclosed in rational intervals or by"
    " the calculation shown. Where a source uses words alone, the formula is our reading of them. WZ1: Wang &"
    " Zhang 2025, first version; WZ2: the later version; TM: Tang & Munos 2025; RE: the notes on"
    " approximating the KL divergence; AM: Amini et al. 2025."
)
COLUMNS = (
    Column("source", words("source"), 0.12),
    Column("printed", words("printed, or our reading"), 0.215),
    Column("true", words("true"), 0.28),
    Column("witness", words("witness against it"), 0.17),
    Column("claim", words("claim"), 0.11),
)


def table() -> Table:
    """One row for each corrected claim of the ledger; slips of the pen stand last.

    >>> len(table().rows) == len(corrected())
    True
    """
    return Table("errata", CAPTION, COLUMNS, tuple(_list_rows()), size="scriptsize")


def _list_rows() -> Iterator[Row]:
    yield from (_build_row(recall(claim.id)) for claim in corrected())


def _build_row(item: Settled) -> Row:
    name, claim_words = item.claim.id, item.claim.words
    wrong = [part for part in item.parts if part.kind == "refuted"]
    right = [part for part in item.parts if part.kind != "refuted"]
    cells = (
        words("; ".join(filter(None, (item.claim.source, item.claim.later))), name),
        words(f"our reading of: {claim_words}: " if claim_words else "")
        + join_cells([_show_printed(part, name) for part in wrong]),
        join_cells([math(format_statement_latex(part), name) for part in right]),
        join_cells([show_witness(part, name) for part in wrong[:1]]),
        code(name, name),
    )
    return Row(cells, (name,), item.claim.erratum)


def _show_printed(part: Any, claim: str) -> Cell:
    """The false form as it stands in the source, not its negation."""
    if isinstance(part, Proof):
        return math(show_statement(part.theorem.statement, part.labels, spell=LATEX), claim)
    return math(part.latex, claim)
