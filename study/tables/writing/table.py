"""A table before it has a format: cells of words, code and formulas, each with the claims behind it.

>>> row = Row((words("k3"), math("-r", "gradient.k3-loss")), ("k3",))
>>> row.claims
('gradient.k3-loss',)
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from klsym.errors import UsageError

WORDS, CODE, MATH = "words", "code", "math"


@dataclass(frozen=True)
class Cell:
    """Pieces of (kind, text), set one after the other; a formula is LaTeX without dollar signs.

    >>> words("for ", "value.a") + math("r < 1", "value.b")
    Cell(pieces=(('words', 'for '), ('math', 'r < 1')), claims=('value.a', 'value.b'))
    """

    pieces: tuple[tuple[str, str], ...] = ()
    claims: tuple[str, ...] = ()

    def __add__(self, other: Cell) -> Cell:
        return Cell(self.pieces + other.pieces, tuple(dict.fromkeys(self.claims + other.claims)))


def words(text: str, *claims: str) -> Cell:
    """Plain text; claims: the ids of those behind it."""
    return Cell(((WORDS, text),) if text else (), claims)


def code(text: str, *claims: str) -> Cell:
    """What a user types: a loss, an id."""
    return Cell(((CODE, text),), claims)


def math(latex: str, *claims: str) -> Cell:
    """A formula, in LaTeX for amsmath."""
    return Cell(((MATH, latex),), claims)


NONE = words("–")


def build_text(sentence: str, *claims: str, **cells: Cell) -> Cell:
    """Words, with $formulas$ and <names> of cells in them; claims: the ids of those behind it.

    >>> build_text("for $r < 1$ see <loss>", loss=code("k3")).pieces
    (('words', 'for '), ('math', 'r < 1'), ('words', ' see '), ('code', 'k3'))
    """
    joined_cell = Cell((), claims)
    for place, piece in enumerate(re.split(r"\$([^$]*)\$|<(\w+)>", sentence)):
        if piece:
            joined_cell = joined_cell + (words, math, cells.__getitem__)[place % 3](piece)
    return joined_cell


def join_cells(cells: list[Cell], sign: str = "; ") -> Cell:
    """Cells one after the other.

    >>> [build_text for _, build_text in join_cells([math("q"), math("p")], " and ").pieces]
    ['q', ' and ', 'p']
    """
    joined_cell = Cell()
    for cell in cells:
        joined_cell = joined_cell + words(sign) + cell if joined_cell.pieces else cell
    return joined_cell


def collect_claims(cells: Iterable[Cell]) -> tuple[str, ...]:
    """The claims behind these cells, each once.

    >>> collect_claims([math("r", "value.a"), words("so"), math("k_3", "value.b", "value.a")])
    ('value.a', 'value.b')
    """
    return tuple(dict.fromkeys(claim for cell in cells for claim in cell.claims))


def cite_claims(claims: Collection[str]) -> Cell:
    """The last cell of a row: its claims, each once; a dash where there are none.

    >>> cite_claims(["value.a", "value.a"]).pieces, cite_claims([]) == NONE
    ((('code', 'value.a'),), True)
    """
    return join_cells([code(claim, claim) for claim in dict.fromkeys(claims)], ", ") if claims else NONE


@dataclass(frozen=True)
class Column:
    """key: the name for `--columns`.  width: of a column that breaks lines, as a share of the line.

    over: what stands above the heads of neighbouring columns.
    """

    key: str
    head: Cell
    width: float = 0.0
    align: str = "l"
    over: Cell = Cell()


@dataclass(frozen=True)
class Row:
    """One cell for each column; `--only` chooses it by a tag or by a claim behind it."""

    cells: tuple[Cell, ...]
    tags: tuple[str, ...] = ()
    group: str = ""

    @property
    def claims(self) -> tuple[str, ...]:
        """Those behind its cells, each once."""
        return collect_claims(self.cells)

    def is_asked_for(self, names: tuple[str, ...]) -> bool:
        """Is the row asked for by one of these names: a tag, a claim, an area?"""
        areas = {claim.partition(".")[0] for claim in self.claims}
        return bool({*self.tags, *self.claims, *areas} & set(names))


@dataclass(frozen=True)
class Table:
    """caption: a title and what the letters mean.  Rows of one group stand together, under its name.

    Raises ValueError: a row with too few or too many cells.
    """

    name: str
    caption: Cell
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    options: str = ""  # what was chosen, as typed
    size: str = "footnotesize"  # of the LaTeX font

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                raise ValueError(f"table {self.name}: {len(row.cells)} cells in {row.tags}")

    def select_rows(self, names: tuple[str, ...]) -> Table:
        """The rows that answer to one of the names; all of them where none is given."""
        chosen = tuple(row for row in self.rows if not names or row.is_asked_for(names))
        return replace(self, rows=chosen)

    def with_columns(self, keys: tuple[str, ...]) -> Table:
        """The columns of these keys, in this order; all of them where none is given.

        Raises UsageError: none of the keys is a column of this table.
        """
        known_keys = [column.key for column in self.columns]
        places = [known_keys.index(key) for key in keys if key in known_keys]
        if not keys:
            return self
        if not places:
            raise UsageError(
                f"table {self.name} has no column {keys[0][:40]!r}: it has {', '.join(known_keys)}"
            )
        columns = tuple(self.columns[place] for place in places)
        rows = (replace(row, cells=tuple(row.cells[place] for place in places)) for row in self.rows)
        return replace(self, columns=columns, rows=tuple(rows))
