r"""Plain words in LaTeX: in the running text of a page, and within \text{...} of a formula."""

from __future__ import annotations

SPECIAL = {c: "\\" + c for c in "%#&_${}"} | {
    "\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
}  # fmt: skip
# Other signs in the oldest fonts, or none that every TeX can read; MathJax knows no names for them.
ON_A_PAGE = {
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''", "\N{EN DASH}": "--",
    "é": r"\'e",
}  # fmt: skip


def escape(text: str) -> str:
    r"""Plain text for a page of LaTeX.

    >>> escape("5% of p_x < 1")
    '5\\% of p\\_x \\textless{} 1'
    """
    return "".join(ON_A_PAGE.get(c, c) for c in escape_inside(text))


def escape_inside(text: str) -> str:
    r"""Plain text for \text{...} in a formula; a bare % would comment out the rest of the line.

    >>> escape_inside("5% of p_x < 1")
    '5\\% of p\\_x < 1'
    """
    return "".join(SPECIAL.get(c, c) for c in text)
