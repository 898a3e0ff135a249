"""Tables of the report page, each in a box that scrolls where the table is wide."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from html import escape

from klsym.write_up.page_prose import glued

CAPTION = re.compile(r"<caption>([^<]*?\.)(?=[\s<])")
NAMED = re.compile(r'<table class="klsym" id="([\w.-]+)"')
ID = re.compile(r"<code>([a-z0-9.-]+)</code>")


def claim_link(id: str) -> str:
    """The id of a claim, leading to it."""
    return f'<a class="claim-id" href="#{escape(id)}"><code>{escape(id)}</code></a>'


def sheets(tables: Sequence[str], known: Collection[str]) -> Iterator[str]:
    """Tables made elsewhere, under a list of them; ids of claims lead to the claims.

    tables: HTML fragments of klsym.tables.layouts.  known: the ids of the claims on the page.
    """
    titles = [(NAMED.search(table), CAPTION.search(table)) for table in tables]
    items = [f'<li><a href="#{named[1]}">{title[1]}</a></li>' for named, title in titles if named and title]
    if len(items) > 1:
        yield f'<ul class="contents">{"".join(items)}</ul>'

    def linked(found: re.Match[str]) -> str:
        return claim_link(found[1]) if found[1] in known else found[0]

    for table in tables:
        shown = glued(CAPTION.sub(r"<caption><b>\1</b>", ID.sub(linked, table)))
        if "<wbr/>" in table:  # a formula that may be broken
            yield f'<div class="sheet scroll wide">{_labelled(shown)}</div>'
        else:
            yield f'<div class="sheet scroll">{shown}</div>'


def _labelled(table: str) -> str:
    """Each cell with the head of its column, under which it stands on a phone.

    >>> _labelled("<th scope='col'><b>a</b></th><tr><td>1</td></tr>").partition("<tr>")[2]
    '<td data-head="a">1</td></tr>'
    """
    heads = [re.sub("<[^>]*>", "", head) for head in re.findall(r"<th scope='col'>(.*?)</th>", table)]

    def row(found: re.Match[str]) -> str:
        names = iter(heads)
        return re.sub("<td>", lambda _: f'<td data-head="{next(names, "")}">', found[0])

    return re.sub(r"<tr>.*?</tr>", row, table, flags=re.DOTALL)


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
