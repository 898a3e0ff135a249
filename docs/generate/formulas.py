r"""LaTeX as MathML, so that no page needs a script for its formulas.

>>> html_of(r"\begin{aligned} a &= b && \text{chain rule} \\ &= c \end{aligned}", display=True).count("<math")
4
"""

from __future__ import annotations

import re

from klsym.render.markup.mathml import mathml

ALIGNED = re.compile(r"^\\begin\{(align\*?|aligned|gather\*?)\}(.*)\\end\{\1\}$", re.DOTALL)
INNER = re.compile(r"\\begin\{(\w+)\}.*?\\end\{\1\}", re.DOTALL)
NEW_LINE = r"\\"
SPELLINGS = (
    (r"\displaystyle", ""), (r"\left\vert", r"\left|"), (r"\right\vert", r"\right|"), (r"\qquad", r"\quad"),
)  # fmt: skip


def html_of(latex: str, display: bool = False) -> str:
    """Return a formula as HTML: MathML in an element that scrolls where it is wide.

    Raises UsageError: a command that klsym does not write.
    """
    text = latex.strip()
    for long, short in SPELLINGS:
        text = text.replace(long, short)
    text = text.strip()
    if found := ALIGNED.match(text):
        rows = "".join(map(_row, _split(found[2].strip(), NEW_LINE)))
        return f'<div class="aligned">{rows}</div>'
    if display:
        return f'<div class="formula">{mathml(text, display=True, breaking=True)}</div>'
    return mathml(text, breaking=True)


def _row(row: str) -> str:
    """One line of a derivation: left side, relation and right side, name of the rule."""
    cells = [cell.strip() for cell in _split(row, "&")]
    left, right, *rest = [*cells, "", ""]
    rule = " ".join(cell for cell in rest if cell)
    kinds = (("left", left), ("right", right), ("rule", rule))
    return "".join(f'<div class="{kind}">{_formula(shown)}</div>' for kind, shown in kinds)


def _formula(latex: str) -> str:
    return mathml(latex, display=True, breaking=True) if latex else ""


def _split(text: str, sign: str) -> list[str]:
    """Cut at a sign that stands in no inner environment."""
    hidden: list[str] = []

    def hide(found: re.Match[str]) -> str:
        hidden.append(found[0])
        return f"\0{len(hidden) - 1}\0"

    pieces = INNER.sub(hide, text).split(sign)
    while len(pieces) > 1 and not pieces[-1].strip():
        pieces.pop()
    return [re.sub("\0(\\d+)\0", lambda found: hidden[int(found[1])], piece) for piece in pieces]
