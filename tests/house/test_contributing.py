"""The examples of CONTRIBUTING.md are run as they stand."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from klsym import calculus
from klsym.errors import ProofError
from klsym.language.estimators import TABLE, Row
from klsym.study.tables.writing.table import Table

HOME = Path(__file__).parents[2]
GUIDE = (HOME / "CONTRIBUTING.md").read_text(encoding="utf-8")
ROW, CLAIM, OF_TABLE = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


def run(code: str, **names: Any) -> dict[str, Any]:
    """The names that a part of the guide defines."""
    exec(code, names)
    return names


def claimed(code: str) -> Any:
    """The function of the claim."""
    names = {**vars(calculus), "claim": lambda name, **_: lambda function: function}
    found = run(code, **names)
    return found["k4_mean"]


def test_the_row_is_an_estimator() -> None:
    [row] = run(f"rows = ({ROW.strip()})", Row=Row)["rows"]
    assert row.formula(Fraction(2), Fraction(3)) == -4
    assert {type(known) for known in TABLE} == {type(row)}


def test_the_claim_is_proved_and_another_one_is_not() -> None:
    assert claimed(CLAIM)().trust == "kernel"
    with pytest.raises(ProofError, match="the two sides differ"):
        claimed(CLAIM.replace("jeffreys(q, p)", "KL(q, p)"))()


def test_the_table_is_one() -> None:
    table = run(OF_TABLE, Table=Table)["table"]()
    assert isinstance(table, Table)
    assert [row.claims for row in table.rows] == [("value.k1-unbiased",), ("value.k3-unbiased",)]


def test_the_files_and_targets_that_it_names_are_there() -> None:
    makefile = (HOME / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"\bmake ([a-z-]+)", GUIDE))
    assert targets and all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
    files = set(re.findall(r"`((?:klsym|tests|docs|derivations)/[\w/.]*)`", GUIDE))
    assert files and all((HOME / name).exists() for name in files)
