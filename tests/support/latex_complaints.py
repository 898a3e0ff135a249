"""What is wrong with a piece of LaTeX, in words."""

from __future__ import annotations

import re

from support.latex_judge import balanced

WORDS = re.compile(r"\\(?:text|mathrm|mathit|mathbb|mathbf|begin|end|operatorname)\{[^{}]*\}|\\[A-Za-z]+")


def complaints(latex: str) -> list[str]:
    """Signs that a formula would not compile, or was written by Python."""
    bare = WORDS.sub(" ", latex)
    checks = {
        "braces": balanced(latex),
        "left and right": latex.count(r"\left") == latex.count(r"\right"),
        "no star": "*" not in latex,
        "no word": not re.search(r"[A-Za-z]{2}|[A-Za-z]\d", bare),
        "no double sign": not re.search(r"\+ [+-]|- [+-]|--|\+\+|\\,\\,", latex),
        "no empty group": "{}" not in latex,
        "no double script": not re.search(r"\^\{[^{}]*\}\^|_\{[^{}]*\}_", latex),
        "ascii": latex.isascii(),
    }
    return [name for name, fine in checks.items() if not fine]
