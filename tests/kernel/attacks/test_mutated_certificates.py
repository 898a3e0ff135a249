"""Some certificates changed at random; many more by `make attacks`."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from klsym.errors import Refused
from klsym.kernel import check, show
from klsym.kernel.statements import Statement
from support.attacks.judge_closings import FALSE, TRUE, judged
from support.campaigns import mutated_certificates
from support.campaigns.mutated_certificates import MEGABYTES, SECONDS, originals, survey, verdict

COUNT = 1600


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return survey(seed=11, count=COUNT)


def test_each_is_refused_in_one_line_or_accepted(found):
    assert found["broken"] == []
    assert found["kinds"]["refused"] + found["kinds"]["accepted"] == COUNT
    assert min(found["kinds"].values()) > COUNT / 20, found["kinds"]


def test_what_is_accepted_and_says_something_else_is_true(found):
    """A statement that differs from the original's is judged in numbers."""
    known = {show(theorem, full=True) for one in originals().values() for theorem in check(one)}
    counts: Counter[str] = Counter()
    for number, name, changed in found["accepted"]:
        for theorem in check(changed):
            said = show(theorem, full=True)
            if said not in known and len(said) < 20_000:
                known.add(said)
                counts[judged(theorem)] += 1
                assert judged(theorem) != FALSE, (number, name, said)
    assert counts[TRUE] >= 6, counts


def test_the_originals_are_true():
    counts = Counter(judged(theorem) for one in originals().values() for theorem in check(one))
    assert not counts[FALSE] and counts[TRUE] >= len(originals()) - 2, counts  # two have premises


def test_an_accepted_falsehood_would_be_noticed():
    """The judge refutes a theorem whose right side is another one."""
    (theorem,) = check(originals()["prefix"])
    (wrong,) = check(originals()["exchanged"])
    assert (
        judged(replace(theorem, statement=Statement(theorem.statement.left, wrong.statement.right))) == FALSE
    )


@pytest.mark.parametrize(
    "raised", [ValueError("x"), MemoryError(), RecursionError(), Refused(""), KeyError(1)]
)
def test_whatever_else_comes_out_counts_as_broken(monkeypatch, raised):
    def broken(certificate: Any) -> Any:
        raise raised

    monkeypatch.setattr(mutated_certificates, "check", broken)
    assert verdict(originals()["reverse"])[0] == "broken"
    assert verdict(json.loads("[]"))[0] == "broken"


def test_a_worker_that_does_not_end_is_reported(monkeypatch, tmp_path):
    """By a worker that spins at its second mutant, and one that asks for too much memory at its fourth."""
    text = (
        "import json, resource, signal\n"
        f"resource.setrlimit(resource.RLIMIT_AS, ({MEGABYTES} << 20, {MEGABYTES} << 20))\n"
        "import sys\n"
        "for number in range(int(sys.argv[2].split(',')[1]), 6):\n"
        "    print(json.dumps(['start', number]), flush=True)\n"
        "    signal.setitimer(signal.ITIMER_PROF, 0.2)\n"
        "    while number == 1: pass\n"
        "    if number == 3: bytes(1 << 30)\n"
        "    print(json.dumps(['refused', number, 'x', 0.0]), flush=True)\n"
    )
    (tmp_path / "worker.py").write_text(text)
    monkeypatch.setattr(mutated_certificates, "__file__", str(tmp_path / "worker.py"))
    found = survey(seed=0, count=6)
    assert [number for number, *_ in found["broken"]] == [1, 3] and found["kinds"]["refused"] == 4
    assert found["slowest"][0] == SECONDS
