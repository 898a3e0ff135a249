"""The message of a diagnostic for one loss, and the page of a code.

>>> from klsym.diagnostics.codes import find_code
>>> format_page(find_code("KL001"), 60).splitlines()[0]
'KL001 zero-gradient (error): the expected gradient is zero'
"""

from __future__ import annotations

import textwrap

from klsym.diagnostics.codes import Code
from klsym.diagnostics.conditions import Diagnostic
from klsym.render.printing import WIDTH
from klsym.render.sentences import write_sentences


class PrintedCode(Code):
    """A diagnostic code that prints its page."""

    def __str__(self) -> str:
        return format_page(self, WIDTH)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from html import escape

        from klsym.render.markup.parts import format_for_notebook
        from klsym.render.markup.questions import format_code_html

        title = f"<p><b>{escape(f'{self.code} {self.name}')}</b> ({self.level}): {escape(self.says)}</p>"
        return format_for_notebook(title + format_code_html(self))


def format_message(diagnostic: Diagnostic) -> str:
    """Format the messages of a diagnostic as one line."""
    return "; ".join(dict.fromkeys(write_sentences(diagnostic.messages)))


def format_page(code: Code, width: int) -> str:
    """Format the page of a code for a terminal."""
    theorem = f"klsym claims {code.theorem}" if code.theorem else "none: this is arithmetic in float32"
    rows = (
        ("What it means", code.means), ("Why it matters", code.matters),
        ("Example", f"klsym explain {code.example.words}"),
        ("Write instead", f"klsym explain {code.write.words}"), ("Theorem", theorem),
    )  # fmt: skip
    lines = [f"{code.code} {code.name} ({code.level}): {code.says}"]
    for title, text in rows:
        lines += ["", title, *textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="  ")]
    return "\n".join(lines)
