"""Campaigns: what is stored of them, a share of two of them, and that they notice what they are for."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from klsym.errors import UsageError
from support.campaigns import fuzzing, random_statements
from support.campaigns import stored as campaigns
from support.campaigns.stored import FULL, NAMES, log_of, read, record, resumed, version

SEED = 5
FUZZED = 150  # inputs of the campaign that are tried here
STATEMENTS = (0, 3, 5, 8, 9, 16, 17, 23)


# ---------------------------------------------------------------------------- what is stored
def test_the_version_is_a_commit_or_says_that_it_is_none(tmp_path):
    unknown = "unknown: no history here"
    assert re.fullmatch(f"[0-9a-f]{{7,}}(-dirty)?|{unknown}", version())
    assert version(tmp_path) == unknown


def test_a_run_goes_on_only_while_the_code_is_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(campaigns, "HOME", tmp_path)
    (tmp_path / "klsym" / "kernel").mkdir(parents=True)
    (tmp_path / "klsym" / "kernel" / "means.py").write_text("one")
    before = log_of("attacks", 1)
    (tmp_path / "README.md").write_text("no code")
    assert log_of("attacks", 1) == before != log_of("attacks", 2)
    (tmp_path / "klsym" / "kernel" / "means.py").write_text("two")
    assert log_of("attacks", 1) != before


@pytest.mark.parametrize("name", [name for name, full in FULL.items() if full])
def test_only_a_run_of_full_size_is_stored(name, tmp_path):
    file, full = tmp_path / "campaigns.json", FULL[name]
    assert not record(name, {"cases": 20}, 1, 2.4, "a", file) and not file.exists()
    assert record(name, {"cases": full}, 1, 2.4, "a", file)
    before = file.read_bytes()
    for size, on in ((20, "b"), (full - 1, "a"), (full - 1, "b"), (0, "b")):
        assert not record(name, {"cases": size}, 2, 1, on, file)
    assert file.read_bytes() == before
    assert record(name, {"cases": full}, 3, 1, "b", file)
    [found] = campaigns.campaigns(file)
    assert (found.counts, found.seed, found.seconds, found.version) == ({"cases": full}, 3, 1, "b")
    assert record(name, {"cases": full + 1}, 3, 1, "c", file)
    assert not record(name, {"cases": full}, 3, 1, "d", file)
    assert campaigns.campaigns(file)[0].version == "c"


def test_there_are_as_many_mutants_as_the_code_has(tmp_path):
    """Their number changes with the code, so that the caller says it."""
    file = tmp_path / "campaigns.json"
    assert record("mutants", {"mutants": 9}, 0, 1, "a", file, full=9)
    assert not record("mutants", {"mutants": 7}, 0, 1, "b", file, full=8)
    assert record("mutants", {"mutants": 8}, 0, 1, "b", file, full=8)
    with pytest.raises(ValueError, match="how many cases"):
        record("mutants", {"mutants": 8}, 0, 1, "b", file)
    assert campaigns.campaigns(file)[0].counts == {"mutants": 8}


@pytest.mark.parametrize("one", campaigns.campaigns(), ids=lambda one: one.name)
def test_what_is_stored_was_a_full_run(one):
    assert FULL[one.name] is None or next(iter(one.counts.values())) >= FULL[one.name]


def test_what_is_stored_is_in_the_form_that_is_read():
    found = campaigns.campaigns()
    assert found and {one.name for one in found} <= set(NAMES)
    for one in found:
        assert all(isinstance(count, int) and count >= 0 for count in one.counts.values())


def _one(seed: int, number: int) -> tuple[int, dict[str, Any]]:
    return number, {"complaints": ["odd"] if number % 2 else [], "seconds": 0}


def test_a_run_goes_on_where_it_was_cut_off(tmp_path):
    log, told = tmp_path / "build" / "log.jsonl", list[int]()
    resumed(log, 3, _one, 0, 1, lambda number, _: told.append(number))
    with log.open("a") as file:
        file.write('{"number": 3, "comp')  # cut off
    answers = resumed(log, 5, _one, 0, 1, lambda number, _: told.append(number))
    assert [bool(a["complaints"]) for a in answers] == [False, True, False, True, False]
    assert told == [1, 3] and len(read(log.read_text().splitlines())) == 5


# ---------------------------------------------------------------------------- fuzzing
def test_a_share_of_the_fuzzing():
    answers = [fuzzing.examine(SEED, number)[1] for number in range(FUZZED)]
    assert [(n, a) for n, a in enumerate(answers) if a["complaints"]] == []
    counts = fuzzing.counted(answers)
    assert all(counts[name] for name in fuzzing.READERS) and counts["read"] and counts["refused in one line"]


@pytest.mark.parametrize(
    "raised", [ValueError("x"), RecursionError(), UsageError("two\nlines"), UsageError("")]
)
def test_whatever_else_a_reader_does_is_noticed(raised, monkeypatch):
    def broken(*_: Any) -> Any:
        raise raised

    monkeypatch.setattr(fuzzing, "parse", broken)
    assert fuzzing.examine(SEED, 0)[1]["complaints"]


def test_a_reader_that_does_not_end_is_noticed(monkeypatch):
    def endless(_: str) -> Any:
        while True:
            pass

    monkeypatch.setattr(fuzzing, "parse", endless)
    monkeypatch.setattr(fuzzing, "SECONDS", 0.2)
    found = fuzzing.examine(SEED, 0)[1]
    assert found["kind"] == "broken" and "more than" in found["complaints"][0]


# ---------------------------------------------------------------------------- soundness
@pytest.fixture(scope="module")
def outcomes():
    return [random_statements.examine(0, number) for number in STATEMENTS]


def test_a_share_of_the_soundness_campaign(outcomes):
    assert [one for one in outcomes if one.complaints] == []
    assert {(one.said, one.holds) for one in outcomes} >= {("proved", True), ("refuted", False)}
    assert all(one.certificate for one in outcomes if one.said in ("proved", "refuted"))


def test_a_falsehood_that_is_proved_and_a_truth_that_is_refuted_are_noticed(outcomes):
    for one in outcomes:
        if one.said in ("proved", "refuted"):
            other = replace(one, said={"proved": "refuted", "refuted": "proved"}[one.said])
            assert any("UNSOUND" in line for line in random_statements._contradictions(other))
        if one.core:
            undecided = replace(one, said="open")
            assert any("INCOMPLETE" in line for line in random_statements._contradictions(undecided))


def test_neighbours_are_mostly_false():
    """The oracle tells a statement from its neighbour."""
    case = random_statements.Case("rho*k3", "off-policy", "loss")
    told = {"reverse-kl": "1"}, {"reverse-kl": "(1 + 1/1000)*(1)"}, {"forward-kl": "1"}, {}
    found = [random_statements.holds(random_statements.Statement(case, "gradient", one)) for one in told]
    assert found == [True, False, False, False]
