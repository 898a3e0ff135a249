r"""Text made safe for where it is shown: a terminal, a page of LaTeX, \text{...} in a formula."""

from __future__ import annotations

SPECIAL = {c: "\\" + c for c in "%#&_${}"} | {
    "\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
}  # fmt: skip
# Other signs in the oldest fonts, or none that every TeX can read; MathJax knows no names for them.
ON_A_PAGE = {
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''", "\N{EN DASH}": "--",
    "é": r"\'e",
}  # fmt: skip


def printable(text: str, keep: str = "") -> str:
    r"""Text with its control characters, and all others that cannot be printed, as escapes.

    >>> printable("\x1b[2Jok\n\ud800 p\u202eq"), printable("two\nlines", keep="\n")
    ('\\x1b[2Jok\\n\\ud800 p\\u202eq', 'two\nlines')

    keep: characters that stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in text)


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
