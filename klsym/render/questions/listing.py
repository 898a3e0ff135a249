"""Rows with names that print themselves as a table.

>>> listing = build_listing({"k1": 1, "k10": 10}, ("name", "number"), lambda n: (f"k{n}", str(n)))
>>> listing
k1   1
k10  10
>>> listing["k10"]
10
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from klsym.render.listing import align_columns

Row = TypeVar("Row")


class Listing(dict[str, Row]):
    """Rows by their names, in the order in which they are printed."""

    head: tuple[str, ...] = ()
    cells: tuple[tuple[str, ...], ...] = ()

    def __str__(self) -> str:
        return "\n".join(line.rstrip() for line in align_columns(self.cells))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from html import escape

        from klsym.render.markup.parts import format_for_notebook, format_table

        return format_for_notebook(format_table(self.head, (map(escape, row) for row in self.cells)))


def build_listing(
    rows: Mapping[str, Row], head: Iterable[str], describe: Callable[[Row], tuple[str, ...]]
) -> Listing[Row]:
    """Return the rows as a listing.  head: of its columns.  describe: the cells of a row, as text."""
    listing = Listing(rows)
    listing.head, listing.cells = tuple(head), tuple(map(describe, rows.values()))
    return listing
