"""docs/trust.md and docs/benchmarks.md say what is stored, and nothing else."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from klsym.study.ledger.registry import load
from support.campaigns import stored as campaigns
from support.scripts import script

HOME = Path(__file__).parents[2]


pages, ratios, losses = script("pages"), script("ratios"), script("random_losses")


def test_both_pages_are_what_is_stored(proofs_settled):
    computed = sum(claim.verdict == "computed" for claim in load().values())
    for name, text in pages.pages(proofs_settled.values(), computed).items():
        assert (HOME / name).read_text(encoding="utf-8") == text, f"{name}: run `make pages`"


def test_claims_add_up(proofs_settled):
    rows = re.findall(
        r"^\| (?:kernel|SymPy|experiments [^|]*) \|.*$",
        "\n".join(pages.claims([*proofs_settled.values()], 11)),
        re.M,
    )
    counts = [
        [int(cell or 0) for cell in row.strip("| ").split(" | ")[1:] or ()] for row in map(_filled, rows)
    ]
    assert len(counts) == 3 and all(row[0] == sum(row[1:]) for row in counts)
    assert sum(row[0] for row in counts) == len(proofs_settled) + 11


def _filled(row: str) -> str:
    """An empty cell is 0."""
    while "|  |" in row:
        row = row.replace("|  |", "| 0 |")
    return row


def test_a_campaign_says_on_which_version_it_ran():
    """And it goes on saying so when the code has changed since."""
    one = replace(campaigns.campaigns()[0], version="0123abc")
    told = "\n".join(pages.tried([one]))
    assert "commit `0123abc`" in told and pages.WHAT[one.name] in told and "stale" not in told.lower()


def test_a_campaign_that_is_not_stored_is_named():
    names = "mutants, attacks, soundness, losses, clamped losses, named sums, discounted losses,"
    names += " shipped losses, losses of new methods, detached functions, fuzz"
    assert f"Not stored: {names}." in "\n".join(pages.tried([]))


def test_releases_stand_beside_one_another(tmp_path):
    file = tmp_path / "releases.json"
    ratios.record({"a": 1.2345, "one verdict over import sympy": 1.1}, "0.1", file)
    ratios.record({"a": 2}, "0.2", file)
    ratios.record({"a": 3}, "0.2", file)
    found = json.loads(file.read_text())
    assert found == {"0.1": {"a": 1.23, "one verdict over import sympy": 1.1}, "0.2": {"a": 3.0}}
    page = pages.benchmarks(found)
    assert "| measured | 0.2 | 0.1 | aim |" in page and "| a | 3 | 1.23 |  |" in page
    assert "| one verdict over import sympy |  | 1.1 | at most 1.05 |" in page


def test_the_release_before_stands_beside_what_is_printed():
    released = json.loads(ratios.STORED.read_text(encoding="utf-8"))
    measured = "one verdict over import sympy"
    assert ratios.previous("0.2.0", measured) == f"0.1.0: {released['0.1.0'][measured]:g}"
    assert ratios.previous("0.2.0", "never measured") == ""


def test_what_has_an_aim_is_measured():
    measured = {
        name for row in json.loads(ratios.STORED.read_text(encoding="utf-8")).values() for name in row
    }
    assert all(any(name.startswith(start) for name in measured) for start in pages.AIMS)
    assert {f"{name} over import sympy" for name in ratios.ASKED} <= measured


@pytest.mark.parametrize("exponent", [0.5, 1, 2])
def test_the_growth_exponent_is_that_of_a_power(exponent):
    from math import log

    points = [(log(n), exponent * log(n) + 3) for n in ratios.SIZES]
    assert ratios.slope(points) == pytest.approx(exponent)


def test_nobody_is_sent_to_an_invented_address():
    text = (HOME / "SECURITY.md").read_text(encoding="utf-8")
    assert "issue tracker" in text and "@" not in text and "http" not in text


# ---------------------------------------------------------------------------- a campaign by setting
def judged(room: str, target: str = "zero", *complaints: str) -> dict[str, Any]:
    return {"text": "k1", "room": room, "target": target, "complaints": complaints, "seconds": 1.0}


def test_losses_are_counted_by_level_batch_and_sampling():
    """However they are used: the use, the credit and what follows are not told apart."""
    found = losses.by_setting([
        judged("sample, loss, on-policy"),
        judged("sample, reward, on-policy", "open"),
        judged("sample, loss, off-policy", "refused"),
        judged("token, loss, on-policy, to-go, prefix, sum", "zero", "wrong"),
        judged("batch std, sequence, reward, off-policy, mean"),
    ])  # fmt: skip
    assert {name: tuple(counts.values()) for name, counts in found.items()} == {
        "batch std, sequence, off-policy": (1, 0, 0, 0),
        "sample, off-policy": (1, 0, 1, 0),
        "sample, on-policy": (2, 1, 0, 0),
        "token, on-policy": (1, 0, 0, 1),
    }
