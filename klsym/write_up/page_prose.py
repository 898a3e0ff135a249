r"""Sentences with formulas in them, on the report page: set by the same rules as in the paper.

>>> prose_html("where q > 0 see `k1`")
'where <math><mi>q</mi><mo>&gt;</mo><mn>0</mn></math> see <code>k1</code>'
"""

from __future__ import annotations

import re
from functools import cache
from html import escape

from klsym.render.mathml import mathml
from klsym.write_up.prose import prose
from klsym.write_up.tex import escape as tex_escape

QUOTED = re.compile(r"`([^`]+)`")
BREAKS = re.compile(r"\\(?:s?brk|cut)(?![A-Za-z]) ?")  # MathML is broken by rules of its own
CODE = re.compile(r"\\texttt\{((?:[^{}\\]|\\.|\{\})*)\}")
SIGNS = {tex_escape(c): c for c in map(chr, range(32, 127)) if tex_escape(c) not in (c, "")}
SIGNS |= {tex_escape(c): c for c in "\N{EN DASH}é"}
SIGN = re.compile("|".join(re.escape(latex) for latex in sorted(SIGNS, key=len, reverse=True)))

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
    inner = text.strip(" ")  # spaces at the ends are not for `prose` to keep
    if not inner:
        return text
    before, _, after = text.partition(inner)
    shown = []
    for position, piece in enumerate(re.split(r"(?<!\\)\$", prose(inner))):
        latex = BREAKS.sub("", piece)
        shown.append(mathml(latex, breaking=True) if position % 2 else _words(piece))
    return before + "".join(shown) + after


def _words(latex: str) -> str:
    parts = CODE.split(latex)
    return "".join(f"<code>{_plain(part)}</code>" if i % 2 else _plain(part) for i, part in enumerate(parts))


def _plain(latex: str) -> str:
    return escape(SIGN.sub(lambda found: SIGNS[found[0]], latex), quote=False)
