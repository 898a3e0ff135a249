"""The layout that answers share: what was asked, the verdict with its trust, rows, and one line of details.

>>> print(format_rows("k3 as typed", "Not decided", "open", [("note", "a note")], "no theorem"))
k3 as typed
  Not decided                                                                                   open
  note     a note
  details  to_json(); no theorem
"""

from __future__ import annotations

from collections.abc import Sequence

from klsym.errors import choose_spelling
from klsym.render.answer import MAX_LINES, MAX_NARROW, NARROW, WIDTH, add_label, add_trust, wrap_text


def format_rows(
    title: str,
    update: str,
    trust: str,
    rows: Sequence[tuple[str, str]],
    details: str,
    more: str = "",
    width: int = WIDTH,
) -> str:
    """Format an answer of at most 12 lines, 16 on a narrow page.

    rows: labels and texts, the most important first: the last ones are left out, and counted in the details.
    more: the option that prints them; as JSON if there is none.
    """
    more = more or choose_spelling("--json", "to_json()")
    limit = MAX_LINES if width >= NARROW else MAX_NARROW
    head = [*wrap_text(title, "", "  ", width), *add_trust(update, trust, width)]
    for count in range(len(rows), -1, -1):
        hidden = len(rows) - count
        counted = f"{hidden} more line{'s' * (hidden > 1)}: {more}" if hidden else more
        labelled = [*rows[:count], ("details", f"{counted}; {details}")]
        lines = [*head, *(line for label, text in labelled for line in add_label(label, text, width))]
        if len(lines) <= limit:
            break
    return "\n".join(lines)
