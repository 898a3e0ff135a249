"""Tables of the report page, each in a box that scrolls where the table is wide."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def html_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "", numbers: bool = False
) -> str:
    """A table whose first column names the rows.

    >>> html_table(["a"], [["x", "1 < 2"]]).count("<th scope='row'>x</th><td>1 &lt; 2</td>")
    1

    head, rows, caption: plain texts; the caption stands in front, where it need not be as narrow.
    numbers: the cells are set to the right.
    """
    kind = " class='n'" if numbers else ""
    first, *others = head or [""]
    title = f"<p class='facts'>{escape(caption)}</p>" if caption else ""
    heads = f"<th scope='col'>{escape(first)}</th>"
    heads += "".join(f"<th scope='col'{kind}>{escape(cell)}</th>" for cell in others)
    body = []
    for name, *cells in rows:
        shown = "".join(f"<td{kind}>{escape(cell)}</td>" for cell in cells)
        body.append(f"<tr><th scope='row'>{escape(name)}</th>{shown}</tr>")
    return (
        f"{title}<div class='scroll'><table><thead><tr>{heads}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )
