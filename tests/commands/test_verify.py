"""`klsym verify`: exit codes, one clear line for bad input, reasons, columns, backends."""

from __future__ import annotations

import math
from typing import Any

import pytest

from klsym.calculus import KL, derive, expectation, k2, p, q
from klsym.errors import UsageError
from klsym.ledger import registry as ledger
from klsym.ledger.registry import Claim
from klsym.numeric.number_systems import Sized
from klsym.sampling import identities
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


@pytest.mark.parametrize("name", ["torch", "jax"])
@pytest.mark.parametrize("device", ["cuda:99", "tpu", "cpu:1"])
def test_a_device_that_is_not_there(capsys: Out, name: str, device: str) -> None:
    pytest.importorskip(name)
    code, out, err = run(capsys, "reward.k1", "--backend", name, "--device", device)
    assert (code, out) == (2, "")
    one_line_of_complaint(err)
    assert f"no device '{device}'" in err and "this machine has cpu" in err


def test_a_package_that_is_not_there(capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "array_api_compat.torch", None)
    code, out, err = run(capsys, "reward.k1", "--backend", "torch")
    assert (code, out) == (2, "")
    one_line_of_complaint(err)
    assert 'pip install "klsym[torch]"' in err


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_nan_logits_have_no_gradient(name: str) -> None:
    pytest.importorskip(name)
    from klsym.sampling.autograd import expected_gradient

    with pytest.raises(UsageError, match="logits: finite numbers expected"):
        expected_gradient(k2, [math.nan, 0.0], [0.5, 0.5], {"log_p": [-0.5, -1.0]}, backend=name)


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


@pytest.mark.parametrize("samples", ["1", "1000", "3e4"])
def test_few_samples_are_told_and_are_no_failure(capsys: Out, samples: str) -> None:
    code, out, err = run(capsys, "value.control-variate-covariance", "reward.k3", "--samples", samples)
    assert (code, err) == (0, "") and "FAILED" not in out
    assert "too few samples" in out and "would do" in out


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
    correct = identities.both_sides

    def wrong(*arguments: Any) -> tuple[Sized, Sized]:
        left, right = correct(*arguments)
        return Sized(1.1 * left.value, left.size), Sized(1.1 * right.value, right.size)

    monkeypatch.setattr(identities, "both_sides", wrong)
    code, out, _ = run(capsys, "reward.k1", *QUICK)
    assert code == 1 and "<-- FAILED" in out and out.rstrip().endswith("FAILED: reward.k1")


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_other_backends_and_their_autograd(capsys: Out, name: str) -> None:
    pytest.importorskip(name)
    argv = ("gradient.k3-loss", "offpolicy.rho-k3", *QUICK)
    code, out, err = run(capsys, *argv, "--backend", name, "--device", "cpu")
    assert (code, err) == (0, "") and f"sampled with {name}" in out and "float64" in out
    rows = out.split("\n\n")[0].split("\n")
    column = rows[0].index("autograd")
    differences = [row[column : column + 8].strip() for row in rows[2:]]
    assert differences[0] != "-" and all(float(d) < 1e-13 for d in differences if d != "-")
    here = run(capsys, *argv)[1].split("\n\n")[0].split("\n")
    width = rows[0].index("Gaussians")
    assert [row[:width] for row in here[2:]] == [
        row[:width] for row in rows[2:]
    ]  # the same counts, the same z
