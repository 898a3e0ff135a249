"""Pasted text as Python's parser takes it: without comments and indentation, with ** for ^ and KL(q, p).

>>> as_python("KL(q||p)  # exact\\n  + k1^2")
'KL(q, p)\\n+ k1**2'
"""

from __future__ import annotations

import re

QUOTED_OR_COMMENT = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|#[^\n]*")
DIVERGENCE = re.compile(r"\b(KL|kl)\(\s*(\w+)\s*\|\|\s*(\w+)\s*\)")


def as_python(text: str) -> str:
    """Return statements, one a line; a backslash at the end of a line joins it to the next."""
    lines = _remove_comments(text.replace("\r\n", "\n").replace("\t", " ")).split("\n")
    source = "\n".join(line.strip() for line in lines).strip().replace("\\\n", " ")
    return DIVERGENCE.sub(r"\1(\2, \3)", source).replace("^", "**")


def join_lines(text: str) -> str:
    """Return a text of several lines in one.

    >>> join_lines("d = (log_q  # of tokens\\n  - log_p)\\nloss = d**2")
    'd = (log_q - log_p); loss = d**2'
    """
    line, is_open = "", False
    for part in filter(None, (part.strip() for part in _remove_comments(text).splitlines())):
        line += (" " if is_open else "; ") * bool(line) + (part if is_open else part.rstrip("; "))
        is_open = line.count("(") + line.count("[") > line.count(")") + line.count("]")
    return line


def _remove_comments(text: str) -> str:
    return QUOTED_OR_COMMENT.sub(lambda found: "" if found[0][0] == "#" else found[0], text)


def suggest_statements(text: str) -> str:
    """Return what to type in place of a formula with a definition behind a comma; empty for others.

    >>> suggest_statements("r*k2, r = pi/pi_old"), suggest_statements("k1 +")
    ('; type what a name is first: r = ..; the formula', '')
    """
    match = re.search(r",\s*(?:where\s+)?(\w+)\s*=(?!=)", text)
    return f"; type what a name is first: {match[1][:60]} = ..; the formula" if match else ""
