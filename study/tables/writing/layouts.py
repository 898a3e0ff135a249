r"""A table as LaTeX (booktabs and amsmath only), Markdown or HTML; the same table gives the same bytes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from html import escape
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any

from markupsafe import Markup

from klsym import __version__
from klsym.escaping import escape as in_text
from klsym.files import write_whole
from klsym.study import templates
from klsym.study.tables.writing.notation import USUAL, rewrite_letters, rewrite_words
from klsym.study.tables.writing.table import CODE, MATH, WORDS, Cell, Column, Row, Table, join_cells, words

Piece = Callable[[str, str], str]
SHORT = re.compile(r"\\left\(((?:(?!\\left|\\right).){1,24})\\right\)")  # brackets not worth breaking
PAGE = 590  # points of a float with its caption, by the estimate of `_count_lines`, which errs upwards
FONTS = {"footnotesize": (10.5, 80), "scriptsize": (9.2, 90)}  # points a line, characters in 345 points
SIZES = {"footnotesize": (8, 9.5), "scriptsize": (7, 8)}  # points, whatever the size of the document
SYMBOLS = {name: f"$k_{name[1]}$" for name in ("k1", "k2", "k3")}
SYMBOLS |= {"mu": r"$\mu$", "rho": r"$\rho$", "beta": r"$\beta$", "pi*": r"$\pi^\star$"}
SYMBOLS |= {"pi": r"$\pi$", r"pi\_ref": r"$\pi_{\mathrm{ref}}$", r"pi*\_rev": r"$\pi^\star_{\mathrm{rev}}$"}
NAMES = re.compile(
    "|".join(rf"(?<![\w-]){re.escape(name)}(?![\w\\*-])" for name in sorted(SYMBOLS, key=len, reverse=True))
)
SILENT = re.compile(r"\\(?:left|right|mathrm|mathbb|operatorname|frac|tfrac|text|[!,])|[{}_^]")


def write_command(table: Table, form: str, notation: str = USUAL) -> str:
    """What makes this table again.

    >>> write_command(Table("x", Cell(), (), (), options="--only k3"), "html", "tang-munos")
    'klsym tables x --format html --notation tang-munos --only k3'
    """
    letters = f"--notation {notation}" if notation != USUAL else ""
    parts = ("klsym tables", table.name, "--format", form, letters, table.options)
    return " ".join(part for part in parts if part)


def _describe_origin(table: Table, form: str, notation: str) -> str:
    return f"Made by `{write_command(table, form, notation)}`, klsym {__version__}: do not edit."


def _fill_template(template: str, **data: Any) -> str:
    return templates.build_plain_environment({}).get_template(template).render(data).rstrip("\n")


# ---------------------------------------------------------------------------- LaTeX
def write_latex(table: Table, notation: str = USUAL) -> str:
    r"""Floats for \input, one row a line; a long table goes on in further floats between its groups.

    >>> from klsym.study.tables.writing.table import Column, Row, Table, math, words
    >>> columns = (Column("loss", words("loss")), Column("c", words("c")))
    >>> small = Table("x", words("5% of all."), columns, (Row((math("k_3"), math("-r"))),))
    >>> print(write_latex(small))
    % Made by `klsym tables x --format latex`, klsym 0.2.0: do not edit.
    % Needs \usepackage{booktabs,amsmath}.
    \begin{table*}[tbp]
      \centering\fontsize{8}{9.5}\selectfont\setlength{\tabcolsep}{4pt}\renewcommand{\arraystretch}{1.12}
      \setlength{\belowcaptionskip}{5pt}
      \caption{5\% of all.}
      \label{tab:klsym-x}
      \begin{tabular}{@{}ll@{}}
        \toprule
        loss & c \\
        \midrule
        $k_3$ & $-r$ \\
        \bottomrule
      \end{tabular}
    \end{table*}
    """

    over = [
        (_join_pieces(cell, render_latex_piece, notation), *place)
        for cell, *place in _list_runs(table.columns)
    ]
    airy = any(column.width for column in table.columns)
    return _fill_template(
        "table.tex.j2",
        made=_describe_origin(table, "latex", notation),
        name=table.name,
        size=SIZES[table.size],
        airy=airy,
        ending=r"\tabularnewline" if airy else r"\\",
        caption=_join_pieces(table.caption, render_latex_piece, notation),
        columns="".join(rf"p{{{c.width:g}\linewidth}}" if c.width else c.align for c in table.columns),
        above=over if any(column_heading for column_heading, *_ in over) else [],
        heads=_render_latex_row(table, (column.head for column in table.columns), notation),
        floats=[_render_latex_groups(table, part, notation) for part in _split_floats(table)],
    )


def _render_latex_row(table: Table, cells: Iterable[Cell], notation: str) -> list[str]:
    return [_set(cell, column, notation) for cell, column in zip(cells, table.columns, strict=True)]


def _render_latex_groups(table: Table, part: list[Row], notation: str) -> list[tuple[str, list[list[str]]]]:
    """The rows of one float, group by group, under the group's name."""
    return [
        (
            render_latex_piece(WORDS, rewrite_words(group, notation)),
            [_with_room(_render_latex_row(table, row.cells, notation)) for row in rows],
        )
        for group, rows in _group_rows(part)
    ]


def _with_room(cells: list[str]) -> list[str]:
    r"""A row with room for fractions, which would touch those above and below.

    >>> _with_room(["k_1", r"$\frac{1}{2}$"])[0]
    '\\rule[-1.1ex]{0pt}{3.6ex}k_1'
    """
    tall = any(r"\frac" in cell for cell in cells)
    return [r"\rule[-1.1ex]{0pt}{3.6ex}" + cells[0], *cells[1:]] if tall else cells


def _set(cell: Cell, column: Column, notation: str) -> str:
    cell_latex = _join_pieces(cell, render_breaking_piece if column.width else render_latex_piece, notation)
    return rf"\raggedright {cell_latex}" if column.width and cell_latex else cell_latex


def _list_runs(columns: tuple[Column, ...]) -> Iterator[tuple[Cell, int, int]]:
    """What stands above the heads: (cell, first, last column, counted from 1)."""
    start = 1
    for over, run in groupby(columns, key=lambda column: column.over):
        end = start + len(list(run))
        yield over, start, end - 1
        start = end


def render_latex_piece(kind: str, text: str) -> str:
    r"""One piece; blackboard letters would need amssymb, and names of variables are set as such.

    >>> render_latex_piece("code", "a_b"), render_latex_piece("math", r"\mathbb{E}_q")
    ('\\texttt{a\\_b}', '$\\mathrm{E}_q$')
    >>> render_latex_piece("words", "k3 at samples from mu")
    '$k_3$ at samples from $\\mu$'
    """
    if kind == MATH:
        return "$" + text.replace("mathbb", "mathrm") + "$"
    piece_latex = in_text(text)
    return (
        rf"\texttt{{{piece_latex}}}"
        if kind == CODE
        else NAMES.sub(lambda found: SYMBOLS[found.group()], piece_latex)
    )


def render_breaking_piece(kind: str, text: str) -> str:
    r"""In a column that breaks lines: an id may break behind its stops, a formula at brackets and scores."""
    piece_latex = render_latex_piece(kind, text)
    if kind == CODE:
        piece_latex = re.sub(r"([.\-*/@(])(?=\w)", r"\1\\allowbreak{}", piece_latex)
        return (
            r"{\fontsize{7}{8}\selectfont " + re.sub(r"(\\_)(?=\w{3})", r"\1\\penalty900 ", piece_latex) + "}"
        )
    if kind == MATH:
        piece_latex = SHORT.sub(r"\\bigl({\1}\\bigr)", piece_latex)
        piece_latex = piece_latex.replace(r"\left", r"\bigl").replace(r"\right", r"\bigr")
        piece_latex = re.sub(r"([,;:])\\(?:quad|qquad| )\s*", r"\1$ $", piece_latex)
        piece_latex = re.sub(
            r"\\,(?=\\(?:mathrm\{(?:E|Var|KL)\}|nabla|chi))|(?<=\\bigr\))\\,(?=s_i)",
            r"\\,\\penalty900 ",
            piece_latex,
        )
        return re.sub(r", (?=\S)", r",\\allowbreak ", piece_latex)
    return re.sub(r"\*(?=[a-zA-Z(])", r"*\\allowbreak{}", piece_latex)


def _split_floats(table: Table) -> Iterator[list[Row]]:
    """The rows of each float: as many blocks as fit, by an estimate of their heights."""
    line = FONTS[table.size][0]
    room = PAGE - 12 * math.ceil(sum(len(text) for _, text in table.caption.pieces) / 80)
    rows: list[Row] = []
    height = 0.0
    for block, lines in _list_blocks(table, room / line):
        if rows and height + line * lines > room:
            yield rows
            rows, height = [], 0
        rows, height = rows + block, height + line * lines
    if rows:
        yield rows


def _list_blocks(table: Table, room: float) -> Iterator[tuple[list[Row], float]]:
    """What should stay together, with its lines: a group; single rows where there is none, or a tall one."""
    for name, group in _group_rows(table.rows):
        heading = 1.5 * bool(name)
        lines = [_count_lines(row, table) for row in group]
        if name and sum(lines) + heading <= room:
            yield group, sum(lines) + heading
        else:
            yield from (([row], height) for row, height in zip(group, lines, strict=True))


def _group_rows(rows: Iterable[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Neighbouring rows of one group, under its name."""
    for name, group in groupby(rows, key=lambda row: row.group):
        yield name, list(group)


def _count_lines(row: Row, table: Table) -> float:
    """Lines of the tallest cell; fractions make each of them taller."""
    lines = [1.0]
    for cell, column in zip(row.cells, table.columns, strict=True):
        length = sum(len(SILENT.sub("", text) if kind == MATH else text) for kind, text in cell.pieces)
        tall = 1.2 if any(r"\frac" in text for _, text in cell.pieces) else 1.0
        ragged = 0.8 if column.width < 0.35 and length > 24 else 1.0  # narrow columns break early
        room = FONTS[table.size][1] * column.width * ragged if column.width else length + 1
        lines.append(tall * math.ceil(length / room))
    return max(lines)


# ---------------------------------------------------------------------------- Markdown, HTML
def markdown(table: Table, notation: str = USUAL) -> str:
    """A pipe table with formulas between dollar signs, under its caption.

    >>> from klsym.study.tables.writing.table import math, words
    >>> small = Table("x", words("All."), (Column("c", words("c")),), (Row((math("-r"),)),))
    >>> print(markdown(small).partition("\\n\\n")[2])
    **All.**
    <BLANKLINE>
    | c |
    | --- |
    | $-r$ |
    """

    def render_cells(cells: Iterable[Cell]) -> list[str]:
        return [_join_pieces(cell, render_markdown_piece, notation) for cell in cells]

    heads = [join_cells([c.over, c.head], ": ") if c.over.pieces else c.head for c in table.columns]
    grouped = any(row.group for row in table.rows)
    cases = [words(row.group) for row in table.rows] if grouped else []
    rows = [(*([case] if grouped else []), *row.cells) for case, row in zip_longest(cases, table.rows)]
    return _fill_template(
        "table.md.j2",
        made=_describe_origin(table, "markdown", notation),
        caption=_join_pieces(table.caption, render_markdown_piece, notation),
        heads=render_cells([words("case"), *heads] if grouped else heads),
        rows=list(map(render_cells, rows)),
    )


def render_markdown_piece(kind: str, text: str) -> str:
    r"""One piece; a bar would end the cell.

    >>> render_markdown_piece("math", r"\left|x\right|"), render_markdown_piece("words", "a*b | c")
    ('$\\left\\vert x\\right\\vert $', 'a\\*b \\| c')
    """
    if kind == MATH:
        return "$" + text.replace("|", r"\vert ") + "$"
    if kind == CODE:
        return f"`{text}`".replace("|", r"\|")
    return re.sub(r"([*_|<`\\])", r"\\\1", text)


def write_html(table: Table, notation: str = USUAL) -> str:
    """A table with its caption; formulas are MathML, which browsers show without a script."""
    origin_comment = f"<!-- {_describe_origin(table, 'html', notation)} -->\n"
    template_data = build_html_data(
        table, lambda cell: Markup(_join_pieces(cell, render_html_piece, notation)), notation
    )
    template: Any = templates.build_html_environment({}).get_template("table.html.j2").module
    return origin_comment + str(template.rows(template_data))


def build_html_data(table: Table, cell: Callable[[Cell], Markup], notation: str = USUAL) -> dict[str, Any]:
    """What the template of tables in HTML is filled with.  cell: sets one."""
    over = [(cell(above), last - first + 1) for above, first, last in _list_runs(table.columns)]
    return {
        "name": table.name,
        "title": "",
        "caption": cell(table.caption),
        "above": over if any(column_heading for column_heading, _ in over) else [],
        "heads": [cell(column.head) for column in table.columns],
        "groups": [
            (rewrite_words(group, notation), [[cell(row_cell) for row_cell in row.cells] for row in rows])
            for group, rows in _group_rows(table.rows)
        ],
    }


def render_html_piece(kind: str, text: str) -> str:
    """One piece.

    >>> render_html_piece("words", "p << q")
    'p &lt;&lt; q'
    """
    if kind == MATH:
        from klsym.render.markup.mathml import mathml

        return mathml(text, breaking=True)
    return f"<code>{escape(text)}</code>" if kind == CODE else escape(text)


def _join_pieces(cell: Cell, piece: Piece, notation: str) -> str:
    return "".join(
        piece(kind, rewrite_letters(text, notation) if kind == MATH else rewrite_words(text, notation))
        if kind != CODE
        else piece(kind, text)
        for kind, text in cell.pieces
    )


LAYOUTS = {"latex": (write_latex, "tex"), "markdown": (markdown, "md"), "html": (write_html, "html")}


def write(tables: list[Table], folder: Path, form: str, notation: str = USUAL) -> list[Path]:
    """One file a table, each whole or not at all; the files.

    folder: must exist.  form: latex, markdown or html.

    Raises UsageError: a folder that cannot be written.
    """
    layout, ending = LAYOUTS[form]
    paths = []
    for table in tables:
        target = folder / f"{table.name}.{ending}"
        paths.append(write_whole(target, layout(table, notation) + "\n"))
    return paths
