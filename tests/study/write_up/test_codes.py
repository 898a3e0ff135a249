"""docs/codes.md has the pages of codes.toml, and what it says of releases is what the formulas trigger."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klsym.api import explain
from klsym.study.tables.survey import list_parameters, stored
from klsym.study.write_up import codes

DOCS = (Path(__file__).parents[3] / "docs" / "codes.md").read_text(encoding="utf-8")
SEEN = re.compile(
    r"^\*\*Seen in released code\.\*\*\n\n(?:\|.*\n)+|^Not among the surveyed releases\.\n", re.MULTILINE
)


def test_the_pages_are_those_of_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codes, "collect_uses", dict)
    assert SEEN.sub("", DOCS) == SEEN.sub("", codes.write_page())


@pytest.mark.parametrize("number", [0, 11, 30, 50])
def test_what_is_said_of_a_release_is_what_its_formula_triggers(number: int) -> None:
    row = [row for row in stored() if "expression" in row][number]
    for use in codes.USES[row["place"]]:
        found = explain(row["expression"], "on-policy", use, parameters=list_parameters(row)).diagnostics
        assert {one.code.code for one in found} <= set(list_codes_told(row, f"{use} on"))


def list_codes_told(row: dict[str, Any], use: str) -> Iterator[str]:
    """The codes whose tables have the formula of a release with this use."""
    release = f"{row['package']} {row['version']}"
    for section in re.split(r"^## ", DOCS, flags=re.MULTILINE)[1:]:
        for line in section.splitlines():
            cells = [cell.strip(" |") for cell in line.split(" | ")]
            if cells[0] == f"`{row['expression']}`" and len(cells) == 3 and use in cells[1].split(", "):
                yield from [section.split()[0]] * (release in cells[2].split(", "))
