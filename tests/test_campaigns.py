"""Campaigns: what is stored of them, a share of two of them, and that they notice what they are for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import campaigns
import fuzzing
import pytest
import random_statements
from campaigns import COVERS, Campaign, digest_of, read, record, resumed

from klsym.errors import UsageError

SEED = 5
FUZZED = 150  # inputs of the campaign that are tried here
STATEMENTS = (0, 3, 5, 8, 9, 16, 17, 23)


# ---------------------------------------------------------------------------- what is stored
def test_a_campaign_is_stale_once_what_it_searched_has_changed(tmp_path):
    (tmp_path / "klsym" / "kernel").mkdir(parents=True)
    for name in ("klsym/ring.py", "klsym/kernel/means.py"):
        (tmp_path / name).write_text("one")
    before = digest_of("attacks", tmp_path)
    assert digest_of("attacks", tmp_path) == before
    (tmp_path / "klsym" / "parser.py").write_text("not searched")
    assert digest_of("attacks", tmp_path) == before
    (tmp_path / "klsym" / "kernel" / "means.py").write_text("two")
    assert digest_of("attacks", tmp_path) != before
    assert not Campaign("attacks", {}, 0, 0, digest_of("attacks")).stale
    assert Campaign("attacks", {}, 0, 0, before).stale


def test_random_statements_are_decided_by_the_engine_too_but_not_by_what_prints(tmp_path):
    for name in ("engine/reduce", "render/text", "tables/trainers"):
        path = tmp_path / "klsym" / f"{name}.py"
        path.parent.mkdir(parents=True)
        path.write_text("one")
    before = digest_of("soundness", tmp_path)
    (tmp_path / "klsym/render/text.py").write_text("two")
    (tmp_path / "klsym/tables/trainers.py").write_text("two")
    assert digest_of("soundness", tmp_path) == before
    (tmp_path / "klsym/engine/reduce.py").write_text("two")
    assert digest_of("soundness", tmp_path) != before


def test_every_campaign_searches_files_that_there_are():
    for patterns in COVERS.values():
        assert [pattern for pattern in patterns if not list(campaigns.HOME.glob(pattern))] == []


def test_a_shorter_run_on_the_same_sources_is_not_stored(tmp_path):
    file = tmp_path / "campaigns.json"
    base = digest_of("attacks")
    assert record("attacks", {"theorems": 10}, 1, 2.4, base, file)
    assert not record("attacks", {"theorems": 9}, 2, 1, base, file)
    assert record("attacks", {"theorems": 10}, 3, 1, base, file)
    [found] = campaigns.campaigns(file)
    assert (found.counts, found.seed, found.seconds, found.stale) == ({"theorems": 10}, 3, 1, False)
    assert record("attacks", {"theorems": 9}, 2, 1, "0" * 16, file)
    assert campaigns.campaigns(file)[0].stale


def test_what_is_stored_is_in_the_form_that_is_read():
    found = campaigns.campaigns()
    assert found and {one.name for one in found} <= set(COVERS)
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
