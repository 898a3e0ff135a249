"""Each false derivation of the tables is refused for the right reason."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from klsym.errors import Refused
from klsym.kernel import CLOSINGS, EQUATION, FORMAT, RULES, check, digest, read
from support.faulty.derivations import TABLE

STORED = Path(__file__).parents[1] / "support" / "faulty" / "stored"
ROWS = ("tangent", "square", "variance")  # with which an inequality begins
OF_THE_FILE = ("digest", "certificate", "json")  # mistakes beside the derivation


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.file_name.removesuffix(".json"))
def test_a_false_derivation_is_refused(row):
    with pytest.raises(Refused) as refusal:
        check(read(row.text()))
    assert refusal.value.where == row.where
    assert re.search(row.message, str(refusal.value))
    assert "\n" not in str(refusal.value) and "malformed" not in str(refusal.value)


def test_the_format_of_stored_files_is_that_of_the_table():
    """A handful is stored, so that no change of the format passes unseen."""
    expected = {row.file_name: row.text() for row in TABLE}
    assert len(expected) == len(TABLE), "two rows share a file name"
    stored = {path.name: path.read_text() for path in STORED.iterdir()}
    assert len(stored) == 6 and stored.items() <= expected.items()


def test_each_rule_each_closing_and_each_kind_of_row_has_three():
    counts = Counter(row.rule for row in TABLE)
    names = (*RULES, EQUATION, *CLOSINGS, *ROWS, *OF_THE_FILE, "name", "citation", "hypotheses")
    assert {name: counts[name] for name in names if counts[name] < 3} == {}


def test_a_false_derivation_is_complete():
    """Nothing but the mistake stands in the way: the format, the keys and the digest are in order."""
    for row in TABLE:
        if row.rule in OF_THE_FILE:
            continue
        certificate = read(row.text())
        assert set(certificate) == {"format", "cites", "parts", "digest"}, row
        assert certificate["format"] == FORMAT and certificate["digest"] == digest(certificate["parts"]), row


def test_no_two_files_make_the_same_mistake():
    texts = Counter(json.dumps(read(row.text()), sort_keys=True) for row in TABLE if _is_json(row))
    assert [text[:300] for text, count in texts.items() if count > 1] == []


def _is_json(row) -> bool:
    try:
        read(row.text())
    except Refused:
        return False
    return True
