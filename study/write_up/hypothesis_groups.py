"""The hypotheses of a claim in three groups: definitions, assumptions, remarks.

>>> lines = ["m stands for n - 1", "E_q[k1*s] exists", "beta is not 0", "printed: the loss for every k >= 1"]
>>> group_hypotheses(lines)
{'Definitions': ['m stands for n - 1'], 'Assumptions': ['E_q[k1*s] exists', 'beta is not 0'], \
'Remarks': ['printed: the loss for every k >= 1']}
"""

from __future__ import annotations

import re
from collections.abc import Iterable

GROUPS = DEFINITION, ASSUMPTION, REMARK = "Definitions", "Assumptions", "Remarks"
NAME = r"(?:on-policy )?[A-Za-z_][\w*-]*(?:\([^)]*\))?(?: (?:a|\([^)]*\)) s)?"
IS = r"(?:is|stands for)\b(?! not\b)"
DEFINED = re.compile(rf"^(?:the )?{NAME}(?:, [^:]*,)? {IS}|^{NAME} = .* (?:with|says)\b")
ASSUMED = re.compile(
    r"\bexist|\bfinite\b|\bis not\b|may be exchanged|^(?:the )?(?:uniqueness|n samples|loss)\b"
)
REMARKED = re.compile(
    r"^(?:printed|refuted|so that|by the|at k =|at each step|descending|with|where|token rewards|a shifts)\b"
)


def group_hypotheses(lines: Iterable[str]) -> dict[str, list[str]]:
    """Return the lines of each group that has one, in the order of GROUPS."""
    lines_by_group: dict[str, list[str]] = {name: [] for name in GROUPS}
    for line in lines:
        lines_by_group[_group(line)].append(line)
    return {name: group for name, group in lines_by_group.items() if group}


def _group(line: str) -> str:
    """Return the group of a line; a line that no pattern knows is an assumption."""
    if REMARKED.match(line):
        return REMARK
    return DEFINITION if DEFINED.match(line) and not ASSUMED.search(line) else ASSUMPTION
