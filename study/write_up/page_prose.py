r"""Sentences with formulas in them, on the report page: set by the same rules as in the paper.

>>> prose_html("where q > 0 see `k1`")
'where <math><mi>q</mi><mo>&gt;</mo><mn>0</mn></math> see <code>k1</code>'
"""

from __future__ import annotations

import re
from functools import cache
from html import escape

from klsym.notation.reading import read
from klsym.render.mathml import Mathml
from klsym.study.write_up.prose import CODE, FORMULA, WORDS, pieces

QUOTED = re.compile(r"`([^`]+)`")
SENTENCE = Mathml(breaking=True, slashed=True)
AFTER = re.compile(r"(?<=</math>)(?=[,.;:!?)\]])")


def glued(markup: str) -> str:
    """A line must not begin with the comma behind a formula, which browsers would let it."""
    return AFTER.sub("&NoBreak;", markup)


@cache
def prose_html(text: str) -> str:
    """A sentence as HTML: its formulas as MathML, names of quantities and what is quoted as code.

    Raises UsageError: a formula that cannot be shown.
    """
    found = []
    for position, piece in enumerate(QUOTED.split(text)):
        found.append(f"<code>{escape(piece)}</code>" if position % 2 else _sentence(piece))
    return glued("".join(found))


def _sentence(text: str) -> str:
    inner = text.strip(" ")  # spaces at the ends are not for `pieces` to keep
    before, _, after = text.partition(inner) if inner else (text, "", "")
    shown = {
        WORDS: lambda piece: escape(piece, quote=False),
        CODE: lambda piece: f"<code>{escape(piece, quote=False)}</code>",
        FORMULA: lambda piece: SENTENCE(read(piece)),
    }
    return before + "".join(shown[kind](piece) for kind, piece in pieces(inner)) + after
