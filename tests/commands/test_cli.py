"""The command line: options, formats, streams, the ledger, pipes and signals."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from klsym import __version__
from klsym.calculus import KL, derive, expectation, k2, p, q
from klsym.cli import main
from klsym.commands.option_groups import FORMATS
from klsym.study.ledger import registry as ledger
from klsym.study.ledger.registry import Claim
from support.commands import Out, run, shell, start

COMMANDS = ("explain", "compare", "prove", "check", "claims", "axioms")
COMMON = ("--sampling", "--use", "--level", "--format", "--json", "--param")


@pytest.mark.parametrize(
    ("option", "beside"),
    [
        (["--level", "token"], []),
        (["--level", "sequence"], []),
        (["--batch", "mean"], []),
        (["--batch", "leave-one-out"], ["--use", "reward"]),
        (["--batch", "std"], []),
        (["--credit", "total"], ["--level", "token", "--use", "reward"]),
        (["--weights", "prefix"], ["--level", "token"]),
        (["--aggregate", "mean"], ["--level", "sequence"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_an_option_is_not_ignored(option: list[str], beside: list[str], capsys: Out) -> None:
    code, out, err = run(capsys, "explain", "k1", *beside, *option, "--json")
    assert (code, err) == (0, "") and json.loads(out)[option[0].strip("-")] == option[1]


@pytest.mark.parametrize(
    "argv",
    [
        ["k3", "--level", "token"],
        ["rho*k1", "--level", "token", "--use", "reward", "--sampling", "off-policy", "--weights", "prefix"],
        ["k1", "--level", "sequence", "--aggregate", "mean"],
        ["rho*k1", "--batch", "leave-one-out", "--use", "reward", "--sampling", "off-policy"],
        ["k1", "--batch", "std"],
    ],
    ids=lambda value: " ".join(value),
)
def test_check_of_tokens_and_batches(argv: list[str], capsys: Out) -> None:
    code, out, err = run(capsys, "explain", *argv, "--check", "--json")
    assert (code, err) == (0, "") and json.loads(out)["check"]["passed"] is True


def test_a_stream_takes_the_options_of_tokens(monkeypatch: pytest.MonkeyPatch, capsys: Out) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("k1\nmin(future(k3), 1)\nrho*k1\n"))
    code, out, _ = run(capsys, "explain", "-", "--level", "token", "--weights", "prefix")
    answers = [json.loads(line) for line in out.splitlines()]
    assert code == 2 and "error" in answers[1]
    assert [answers[i]["gradient"]["target"] for i in (0, 2)] == ["zero", "reverse-kl"]


# ---------------------------------------------------------------------------- help and version
@pytest.mark.parametrize(
    ("command", "mentioned"),
    [
        ("", [*COMMANDS, "--version"]),
        ("explain", ["LOSS", "--batch", "--credit", "--weights", "--aggregate", "--check", *COMMON]),
        ("compare", ["LOSS_A", "LOSS_B", *COMMON]),
        ("prove", ["ID", "--certificates"]),
        ("check", ["FILE"]),
        ("claims", ["ID", "--json"]),
        ("catalogue", ["--size", "--scheduler", "--output", "--json"]),
        ("axioms", ["ID"]),
    ],
)
def test_help(command: str, mentioned: list[str], capsys: Out) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*filter(None, [command]), "--help"])
    out, err = capsys.readouterr()
    assert (caught.value.code, err) == (0, "")
    assert "usage: klsym" in out and all(word in out for word in mentioned)


def test_version(capsys: Out) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0 and capsys.readouterr().out == f"klsym {__version__}\n"


# ---------------------------------------------------------------------------- explain
ASKED = [
    ("k3",), ("k1**3",), ("clip(k3, 0, 5)",), ("k3", "--level", "token"), ("k3", "--batch", "mean"),
    ("k3", "--level", "sequence", "--aggregate", "mean"), ("k3", "--batch", "std"),
]  # fmt: skip


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("asked", ASKED, ids=" ".join)
@pytest.mark.share(3)
def test_formats(asked: tuple[str, ...], form: str, capsys: Out) -> None:
    code, out, err = run(capsys, "explain", *asked, "--format", form)
    assert (code, err) == (0, "") and "ExpPoly" not in out
    sign = {
        "text": f"{asked[0]} in the loss",
        "latex": r"\begin{aligned}",
        "markdown": "**" + asked[0].replace("*", r"\*"),
        "json": '{"schema": 4, "target": "',
    }
    assert sign[form] in out
    if form == "json":
        assert out.count("\n") == 1 and json.loads(out)["loss"] == asked[0]


def test_an_open_answer_without_a_derivation_is_a_comment_in_latex(capsys: Out) -> None:
    asked = ("full_kl(q, p)", "--level", "token", "--aggregate", "mean")
    code, out, err = run(capsys, "explain", *asked, "--format", "latex")
    assert (code, err) == (0, "") and out.startswith("% no derivation: open: ") and out.count("\n") == 1


def test_numbers_beyond_floats_are_printed(capsys: Out) -> None:
    code, out, err = run(capsys, "explain", "exp(1000)*k3", "--proof")
    assert (code, err) == (0, "") and re.search(r"left side \d\.\d+e\+43\d", out)


@pytest.mark.parametrize(
    ("argv", "loss"),
    [
        (["-k1"], "-k1"),
        (["-k1", "--json"], "-k1"),
        (["--json", "-k1"], "-k1"),
        (["--sampling", "off-policy", "-rho*k3"], "-rho*k3"),
        (["-0.5*k1"], "-0.5*k1"),
        (["-.5*k1"], "-.5*k1"),
        (["-(k1 + k2)"], "-(k1 + k2)"),
        (["--", "-k1"], "-k1"),
        (["--k1"], "--k1"),
        (["-har*k1", "--param", "har"], "-har*k1"),
        (["-sg(rho)*k2", "--use", "reward"], "-sg(rho)*k2"),
        (["- k1"], "- k1"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_loss_may_start_with_a_minus(argv: list[str], loss: str, capsys: Out) -> None:
    code, out, err = run(capsys, "explain", "--format", "json", *argv)
    assert (code, err) == (0, ""), err
    assert json.loads(out)["loss"] == loss


def test_options_reach_the_answer(capsys: Out) -> None:
    options = ("--param", "har", "--sampling", "off-policy", "--use", "reward", "--json")
    code, out, _ = run(capsys, "explain", "har*rho*k1", *options)
    answer = json.loads(out)
    assert (code, answer["sampling"], answer["use"]) == (0, "off-policy", "reward")
    assert answer["gradient"]["combination"] == {"reverse-kl": "har"}


@pytest.mark.parametrize(("loss", "passed"), [("k3", True), ("rho*k2", True), ("abs(k1)", True)])
def test_check_adds_the_cross_check(loss: str, passed: bool, capsys: Out) -> None:
    code, out, _ = run(capsys, "explain", loss, "--check", "--json")
    answer = json.loads(out)
    assert code == 0 and answer["check"]["text"]
    assert answer["check"]["passed"] is passed
    assert "check" not in json.loads(run(capsys, "explain", loss, "--json")[1])


# ---------------------------------------------------------------------------- the ledger
# no experiments
PROOFS = ("batch", "gradient", "neighbour", "offpolicy", "reward", "sequence", "value", "variance")


def test_axioms_name_the_closing_that_was_used(capsys: Out) -> None:
    """The rule and the closing that are both called independence are told apart."""
    _, out, _ = run(capsys, "axioms", "variance.loo")
    rules, closed = out.split("\nClosed by\n")
    assert "  independence: E_m[a(self) b(others)]" in rules
    assert closed.startswith("  equality: ") and "independence" not in closed.split("\n\n")[0]


def test_claims(capsys: Out) -> None:
    code, out, err = run(capsys, "claims", *PROOFS)
    lines = out.splitlines()
    assert (code, err, len(lines)) == (0, "", 107)
    row = r"[a-z]+\.[a-z0-9-]+ +(proved|refuted|corrected|exact) +settled +(kernel|sympy) +\S"
    assert all(re.match(row, line) for line in lines)
    assert len(run(capsys, "claims", "reward", "value.k2-biased")[1].splitlines()) == 9


def test_claims_json(capsys: Out) -> None:
    code, out, err = run(capsys, "claims", "--json", *PROOFS)
    rows = json.loads(out)
    assert (code, err, len(rows), len({row["id"] for row in rows})) == (0, "", 107, 107)
    text, listed = (str, type(None)), ("hypotheses", "verified")
    for row in rows:
        assert list(row) == [
            "id", "verdict", "status", "trust", "source", "statement", "hypotheses", "printed", "verified"
        ]  # fmt: skip
        assert all(isinstance(row[key], text) for key in row if key not in listed)
        if row["trust"] == "kernel":  # then each part has a certificate, which may be outside Rocq's reach
            assert "no certificate" not in row["verified"]["outside"].values()
        assert all(isinstance(line, str) for line in row["hypotheses"])
        assert row["verdict"] in ("proved", "refuted", "corrected", "exact") and row["status"] == "settled"


def test_axioms(capsys: Out) -> None:
    code, out, err = run(capsys, "axioms", "gradient.k3-loss")
    assert (code, err) == (0, "")
    parts = ["E_q[grad k3] = grad KL(p||q)", "Rules", "score mean zero: E_q[c s_z] = 0", "Closed by"]
    assert [part for part in (*parts, "Hypotheses") if part not in out] == []
    assert "p << q" in out and "[Williams 1992]" in out
    assert run(capsys, "axioms", "gradient.per-sample")[1].rstrip().endswith("- none")


def test_prove(capsys: Out) -> None:
    code, out, _ = run(capsys, "prove", "reward", "value.k2-biased")
    assert code == 0 and "FAILED" not in out
    rows = {
        line.split()[0]: line.split()[1:]
        for line in out.splitlines()
        if re.match(r"(reward|value|all) ", line)
    }
    assert rows["reward"][:3] == ["8", "8", "8"] and rows["value"][:3] == ["1", "1", "1"]
    assert rows["all"][:3] == ["9", "9", "9"] and rows["all"][3] == rows["all"][4]


@pytest.fixture
def false_claim(monkeypatch: pytest.MonkeyPatch) -> str:
    def build() -> Any:
        return derive(expectation(k2, under=q)).equals(KL(q, p))

    ledger.load()
    monkeypatch.setitem(ledger.REGISTRY, "test.false", Claim("test.false", "proved", "test", "False.", build))
    return "test.false"


@pytest.mark.parametrize("command", ["prove", "claims", "axioms"])
def test_a_false_claim_ends_with_1(command: str, false_claim: str, capsys: Out, tmp_path: Path) -> None:
    extra = ["--certificates", str(tmp_path)] if command == "prove" else []
    code, out, _ = run(capsys, command, false_claim, *extra)
    assert code == 1 and list(tmp_path.iterdir()) == []
    assert (
        "failed" in out
        if command == "claims"
        else "FAILED test.false: SidesDiffer: the two sides differ" in out
    )


# ---------------------------------------------------------------------------- as a process
def test_both_ways_to_start() -> None:
    script = Path(sys.executable).with_name("klsym")
    done = subprocess.run([script, "explain", "k2", "--json"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == shell("explain", "k2", "--json")
    assert json.loads(done.stdout)["gradient"]["target"] == "reverse-kl"


def test_no_progress_bar_into_a_file() -> None:
    code, out, err = shell("prove", "value.k1-unbiased", "value.k2-biased")
    assert (code, err) == (0, "") and "%" not in out


@pytest.mark.parametrize("strictness", ["strict", "surrogateescape"])
def test_stream_with_bytes_that_are_no_text(strictness: str) -> None:
    code, out, err = shell("explain", "-", text=b"k1\n\xff\xfe\nk3\n", PYTHONIOENCODING=f"utf-8:{strictness}")
    answers = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (2, "") and [("error" in a) for a in answers] == [False, True, False]


def test_plain_ascii_output_in_any_locale() -> None:
    code, out, err = shell("explain", "k3", LC_ALL="C", PYTHONIOENCODING="ascii")
    assert (code, err) == (0, "") and out.isascii()


def test_a_reader_that_goes_away() -> None:
    """klsym explain - | head -1."""
    process = start("explain", "-")
    assert process.stdin and process.stdout and process.stderr
    process.stdin.write(b"k3\n" * 400)
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["loss"] == "k3"
    process.stdout.close()
    process.stdin.close()
    assert process.stderr.read() == b"" and process.wait(60) == 0


def test_interrupt() -> None:
    process = start("explain", "-")
    assert process.stdin and process.stdout and process.stderr
    process.stdin.write(b"k3\n")
    process.stdin.flush()
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130 and process.stderr.read() == b"klsym: interrupted\n"


def test_interrupt_where_a_shell_ignores_it() -> None:
    """What `nohup make test &` hands to the tests, and a narrow screen with other letters beside it."""
    code = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN);"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT});"
        "os.execv(sys.executable, [sys.executable, '-m', 'pytest', '-q', '-p', 'no:nbval', *sys.argv[1:]])"
    )
    tests = [f"{__file__}::{name}" for name in ("test_interrupt", "test_help")]
    odd = {"COLUMNS": "20", "PYTHONIOENCODING": "latin-1", "LC_ALL": "C"}
    done = subprocess.run(
        [sys.executable, "-c", code, *tests], env={**os.environ, **odd}, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout
