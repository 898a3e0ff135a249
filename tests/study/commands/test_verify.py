"""`klsym verify`: exit codes, one clear line for bad input, reasons, columns, backends."""

from __future__ import annotations

from typing import Any

import pytest

from klsym.calculus import KL, derive, expectation, k2, p, q
from klsym.numeric.number_systems import Sized
from klsym.study.ledger import registry as ledger
from klsym.study.ledger.registry import Claim, select
from klsym.study.ledger.settle_claim import settle
from klsym.study.sampling import identities
from klsym.study.sampling.backends import choose_backend
from klsym.study.sampling.identities import Options
from klsym.study.sampling.verify import build_table, verify
from support.commands import Out, one_line_of_complaint
from support.commands import run as run_any

QUICK = ("--samples", "1e6")


def run(capsys: Out, *argv: str) -> tuple[int, str, str]:
    return run_any(capsys, "verify", *argv)


# ---------------------------------------------------------------------------- what is not there
def test_a_scheduler_that_is_not_there(capsys: Out, at_most: Any) -> None:
    with at_most(30):
        code, out, err = run(capsys, "reward.k1", "--scheduler", "tcp://127.0.0.1:1")
    assert (code, out) == (2, "")
    one_line_of_complaint(err)
    assert "no Dask scheduler answers there" in err or "klsym[dask]" in err


# ---------------------------------------------------------------------------- exit codes and output
def test_what_a_run_prints(capsys: Out) -> None:
    code, out, err = run(capsys, "reward.k1", "gradient.per-sample", *QUICK, "--seed", "7")
    assert (code, err) == (0, "")
    assert "reward.k1 " in out and "sampled with numpy" in out and "seed 7" in out
    assert "family-wise false-alarm rate 1e-06" in out and "4 of 4 rejected" in out
    assert "a quantity at one sample: there is nothing to average" in out
    assert out.rstrip().endswith("all 5 identities agree")


def test_the_seed_changes_the_numbers_and_repeats_them(capsys: Out) -> None:
    runs = [run(capsys, "reward.k1", *QUICK, "--seed", seed)[1] for seed in ("1", "1", "1e1")]
    assert runs[0] == runs[1] != runs[2]


def put(monkeypatch: pytest.MonkeyPatch, *claims: Claim) -> None:
    ledger.load()
    monkeypatch.setattr(ledger, "REGISTRY", {claim.id: claim for claim in claims})


def entry(name: str, build: Any, verdict: str = "proved") -> Claim:
    return Claim(name, verdict, "test", "A test.", build)


def true() -> Any:
    return derive(expectation(k2, under=q)).equals(expectation(k2, under=q))


def false() -> Any:
    return derive(expectation(k2, under=q)).equals(KL(q, p))


def test_a_claim_that_does_not_settle_fails_the_run(capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, entry("test.true", true), entry("test.false", false), entry("test.none", lambda: 1 // 0))
    code, out, err = run(capsys, *QUICK)
    assert (code, err) == (1, "")
    assert "test.false is not settled: SidesDiffer: the two sides differ" in out
    assert out.rstrip().endswith("FAILED: test.false, test.none")
    assert run(capsys, "test.true", *QUICK)[0] == 0
    assert run(capsys, "test.false", *QUICK)[0] == 1


def test_a_wrong_verdict_fails_the_run(capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, entry("test.true", true, "refuted"))
    code, out, _ = run(capsys, *QUICK)
    assert code == 1 and "the ledger says refuted" in out and out.rstrip().endswith("FAILED: test.true")


def test_a_sample_that_disagrees_fails_the_run(capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    correct = identities.evaluate_sides

    def wrong(*arguments: Any, **named: Any) -> tuple[Sized, Sized]:
        left, right = correct(*arguments, **named)
        return Sized(1.1 * left.value, left.size), Sized(1.1 * right.value, right.size)

    monkeypatch.setattr(identities, "evaluate_sides", wrong)
    code, out, _ = run(capsys, "reward.k1", *QUICK)
    assert code == 1 and "<-- FAILED" in out and out.rstrip().endswith("FAILED: reward.k1")


# ---------------------------------------------------------------------------- the table
def test_columns_line_up() -> None:
    ids = ["gradient.appendix-a-sign", "gradient.k3-loss-not-reverse", "gradient.per-sample", "reward.k3"]
    lines = build_table(
        verify([settle(claim) for claim in select(ids)], Options(choose_backend(), drawn=2 * 10**5))
    ).split("\n")
    head, rule, rows = lines[0], lines[1], lines[2:]
    end, start = head.index("controls") + len("controls"), head.index("exact oracle")
    assert set(rule) == {"-"} and len(rule) >= len(head) and len(rows) == 9
    for row in rows:
        assert row[end - 1] != " " and row[end:start] == "  " and row[start] != " "
    assert any("e+" in row and "z " in row for row in rows) and any(" - " in row for row in rows)
