"""What trainers minimise, measured, for a paper: the defaults, and what differs from a documentation."""

from __future__ import annotations

from klsym.study.tables.measured import COLUMNS, LETTERS, build_rows
from klsym.study.tables.measured_data import find_defaults, read_trainers
from klsym.study.tables.writing.table import Table, build_text

CAPTION = build_text(
    "What the losses of released trainers minimise by default, and where another gradient was measured than"
    " the documentation names. All settings: table measured." + LETTERS
)


def table() -> Table:
    """The rows of table measured that are defaults, or differ from a documentation.

    >>> 0 < len(table().rows) < len(read_trainers())
    True
    """
    rows = read_trainers()
    defaults = find_defaults(rows)
    chosen = [r for r in rows if r["function"] == defaults[r["recipe"]] or r["kept"] is False]
    return Table("measured-short", CAPTION, COLUMNS, build_rows(chosen), size="scriptsize")
