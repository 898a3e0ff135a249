"""How many loss functions of released packages are read, how many are measured, and whether both agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from klsym.study.tables.measured_data import Rows, read_functions
from klsym.study.tables.writing.table import Column, Row, Table, build_text, words

CAPTION = build_text(
    "Loss functions of released packages: read as a formula by klsym audit, and measured: their expected"
    r" gradient $\mathrm{E}_\mu[\nabla L]$ on small worlds, which is no theorem. Both: agree, the formula has"
    " the measured gradient; not compared, the two were not set side by side. Differ: the formula has another"
    " gradient than was measured, so that klsym answers with the measurement alone. Of those with neither,"
    " some were read only after their inputs were named, and had another gradient than was measured then;"
    " these are refused, and the measurement is not stored."
)
DIFFERS = "whose gradient is not the one that the code has"  # in the reason of a refusal
COLUMNS = (
    Column("kind", words("kind of function")),
    Column("functions", words("functions"), align="r"),
    Column("read", words("read"), align="r"),
    Column("measured", words("measured"), align="r"),
    Column("either", words("either"), align="r"),
    Column("agree", words("agree"), align="r", over=words("both")),
    Column("apart", words("not compared"), align="r", over=words("both")),
    Column("differ", words("differ"), align="r"),
    Column("neither", words("all"), align="r", over=words("neither")),
    Column("unstored", words("differ"), align="r", over=words("neither")),
)


def table() -> Table:
    """One row for each kind of function, and one for all."""
    return build_table(read_functions())


def build_table(rows: Rows) -> Table:
    """Return the counts of these rows."""
    known = [*rows]
    kinds = sorted({row["kind"] for row in known})
    groups = [(kind, [row for row in known if row["kind"] == kind]) for kind in kinds] + [("all", known)]
    return Table(
        "measured-survey", CAPTION, COLUMNS, tuple(_build_row(*group) for group in groups), size="scriptsize"
    )


def _build_row(kind: str, rows: list[Mapping[str, Any]]) -> Row:
    counts = count_functions(rows)
    cells = [words(kind.replace("-", " ")), *(words(str(counts[c.key])) for c in COLUMNS[1:])]
    return Row(tuple(cells), (kind,))


def count_functions(rows: Rows) -> Mapping[str, int]:
    """Count functions by what reading and measuring gave.

    >>> found = count_functions(read_functions())
    >>> found["either"] + found["neither"] == found["functions"]
    True
    """
    known = [*rows]
    outcomes = [(row["second"] == "read", row["measured"]) for row in known]
    unanswered = [row for row in known if row["second"] != "read" and not row["measured"]]
    agreement = [(is_read, measured["as read"]) for is_read, measured in outcomes if measured]
    return {
        "functions": len(outcomes),
        "read": sum(is_read for is_read, _ in outcomes),
        "measured": len(agreement),
        "either": sum(is_read or measured is not None for is_read, measured in outcomes),
        "agree": agreement.count((True, "yes")),
        "apart": agreement.count((True, "not compared")),
        "differ": sum(same == "no" for _, same in agreement),
        "neither": len(unanswered),
        "unstored": sum(DIFFERS in row["reason"] for row in unanswered),
    }
