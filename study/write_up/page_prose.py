r"""Sentences with formulas in them, on the report page: set by the same rules as in the paper.

>>> render_prose("where q > 0 see `k1`")
'where <math><mi>q</mi><mo>&gt;</mo><mn>0</mn></math> see <code>k1</code>'
"""

from __future__ import annotations

import re
from functools import cache
from html import escape

from klsym.notation.reading import read
from klsym.render.markup.mathml import Mathml
from klsym.study.write_up.prose import CODE, FORMULA, WORDS, split_pieces

QUOTED = re.compile(r"`([^`]+)`")
SENTENCE = Mathml(breaking=True, slashed=True)
AFTER = re.compile(r"(?<=</math>)(?=[,.;:!?)\]])")


def glue_commas(markup: str) -> str:
    """A line must not begin with the comma behind a formula, which browsers would let it."""
    return AFTER.sub("&NoBreak;", markup)


@cache
def render_prose(text: str) -> str:
    """A sentence as HTML: its formulas as MathML, names of quantities and what is quoted as code.

    Raises UsageError: a formula that cannot be shown.
    """
    rendered_pieces = []
    for position, piece in enumerate(QUOTED.split(text)):
        rendered_pieces.append(f"<code>{escape(piece)}</code>" if position % 2 else _render_sentence(piece))
    return glue_commas("".join(rendered_pieces))


def _render_sentence(text: str) -> str:
    inner = text.strip(" ")  # spaces at the ends are not for `split_pieces` to keep
    before, _, after = text.partition(inner) if inner else (text, "", "")
    rendered_kinds = {
        WORDS: lambda piece: escape(piece, quote=False),
        CODE: lambda piece: f"<code>{escape(piece, quote=False)}</code>",
        FORMULA: lambda piece: SENTENCE(read(piece)),
    }
    return before + "".join(rendered_kinds[kind](piece) for kind, piece in split_pieces(inner)) + after
