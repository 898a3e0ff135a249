"""Values by cases, \\begin{cases} x & A > 0 \\\\ y & \\text{otherwise} \\end{cases}, as where(A > 0, x, y).

>>> spell_cases(r"-\\begin{cases} x, & A \\ge 0 \\\\ y, & A < 0 \\end{cases} c")
'-where(A \\\\ge 0, x, y) c'
"""

from __future__ import annotations

import re

from klsym.language.typeset.tokens import make_refusal

CASES = re.compile(r"\\begin\{cases\}(.*?)\\end\{cases\}", re.DOTALL)
ROW = re.compile(r"\\\\(?:\[[^\]]*\])?")
WORDS = re.compile(r"\\(?:text|mathrm|textrm|mbox)\{\s*(?:if|for|when)?\s*\}|^\s*(?:if|for|when)\b")
OTHERWISE = re.compile(
    r"(?:\\(?:text|mathrm|textrm|mbox)\{)?\s*(?:otherwise|else)\.?\s*\}?\.?", re.IGNORECASE
)
SIGN = re.compile(r"\\(?:leq?|geq?|lt|gt)(?![A-Za-z])|[<>]")
SPELLINGS = {r"\leq": r"\le", r"\geq": r"\ge", r"\lt": "<", r"\gt": ">"}
OPPOSITE = {"<": r"\ge", r"\ge": "<", ">": r"\le", r"\le": ">"}
INSTEAD = r"type two rows, x & A > 0 and y & \text{otherwise}"


def spell_cases(text: str) -> str:
    """Return a formula with where(..) for values by cases; raises UsageError: rows that are not two cases."""
    return CASES.sub(lambda found: _spell_where(found[1]), text)


def _spell_where(rows_typed: str) -> str:
    rows = [row.split("&") for row in ROW.split(rows_typed) if row.strip()]
    if len(rows) != 2 or any(len(row) != 2 for row in rows):
        raise make_refusal(r"\begin{cases} of other than two rows x & condition", INSTEAD)
    values = [_strip(row[0]) for row in rows]
    conditions = [_strip(WORDS.sub(" ", row[1])) for row in rows]
    if not OTHERWISE.fullmatch(conditions[1]) and _write_opposite(conditions[0]) != _normalise(conditions[1]):
        raise make_refusal(r"\begin{cases} whose second condition is not the opposite of the first", INSTEAD)
    return f"where({conditions[0]}, {values[0]}, {values[1]})"


def _strip(cell: str) -> str:
    return cell.strip().rstrip(",.;").strip()


def _normalise(condition: str) -> str:
    spelled = SIGN.sub(lambda sign: SPELLINGS.get(sign[0], sign[0]) + " ", condition)
    return re.sub(r"\s", "", spelled)


def _write_opposite(condition: str) -> str:
    """Return the condition that holds where another does not; "" for what is no comparison.

    >>> _write_opposite(r"A_t \\geq 0"), _write_opposite("A")
    ('A_t<0', '')
    """
    plain = _normalise(condition)
    signs = SIGN.findall(plain)
    return SIGN.sub(lambda sign: OPPOSITE[sign[0]], plain) if len(signs) == 1 else ""
