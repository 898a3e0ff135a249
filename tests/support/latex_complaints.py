"""What is wrong with a piece of LaTeX, in words."""

from __future__ import annotations

import re

WORDS = re.compile(r"\\(?:text|mathrm|mathit|mathbb|mathbf|begin|end|operatorname)\{[^{}]*\}|\\[A-Za-z]+")
ENVIRONMENT = re.compile(r"\\(begin|end)\{aligned\}")


def complaints(latex: str) -> list[str]:
    """Signs that a formula would not compile, or was written by Python."""
    bare = WORDS.sub(" ", latex)
    checks = {
        "braces": balanced(latex.replace(r"\{", "").replace(r"\}", ""), "{", "}"),
        "left and right": latex.count(r"\left") == latex.count(r"\right"),
        "environments": [m[1] for m in ENVIRONMENT.finditer(latex)] in ([], ["begin", "end"]),
        "no star": "*" not in latex,
        "no word": not re.search(r"[A-Za-z]{2}|[A-Za-z]\d", bare),
        "no double sign": not re.search(r"\+ [+-]|- [+-]|--|\+\+|\\,\\,", latex),
        "no empty group": "{}" not in latex,
        "no double script": not re.search(r"\^\{[^{}]*\}\^|_\{[^{}]*\}_", latex),
        "ascii": latex.isascii(),
    }
    return [name for name, fine in checks.items() if not fine]


def balanced(text: str, opening: str, closing: str) -> bool:
    depth = 0
    for character in text:
        depth += (character == opening) - (character == closing)
        if depth < 0:
            return False
    return depth == 0
