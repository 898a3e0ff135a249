"""klsym audit FILE.py: the functions of a file that are losses, and what is said of the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.commands import Out, run
from support.forked import enter_folder

HELPER = "def pad(x):\n    return x\n"
K2 = "def k2(logp, ref_logp):\n    return 0.5 * (logp - ref_logp) ** 2\n"
K3 = "def k3(logp, ref_logp):\n    d = ref_logp - logp\n    return d.exp() - d - 1\n"
UNREAD = "def unread(logp, ref_logp, model):\n    return model(logp - ref_logp).exp()\n"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    enter_folder(tmp_path, monkeypatch)
    return Path("losses.py")


def test_the_losses_of_a_file_are_audited_and_its_other_functions_are_named(file: Path, capsys: Out) -> None:
    file.write_text(HELPER + K2 + K3)
    code, out, err = run(capsys, "audit", "losses.py")
    assert [line.split()[0] for line in out.splitlines()] == ["code", "k2", "k3"] and code == 1
    assert "losses.py:pad (line 1) computes no KL and no policy loss" in err
    assert "to audit it all the same: klsym audit losses.py:pad" in err


def test_a_file_with_one_loss_has_its_answer(file: Path, capsys: Out) -> None:
    file.write_text(K2)
    code, out, err = run(capsys, "audit", "losses.py")
    assert (code, err) == (0, "") and out == run(capsys, "audit", "losses.py:k2")[1]
    assert "minimises KL(q||p)" in out


def test_a_function_that_cannot_be_read_has_a_line_and_does_not_hide_the_others(
    file: Path, capsys: Out
) -> None:
    file.write_text(K2 + UNREAD)
    code, out, err = run(capsys, "audit", "losses.py", "--json")
    assert code == 0 and [json.loads(line)["target"] for line in out.splitlines()] == ["reverse-kl"]
    assert "losses.py:unread is not read: losses.py" in err and err.count("\n") == 1


def test_a_function_that_is_typed_and_cannot_be_read_is_an_error(file: Path, capsys: Out) -> None:
    file.write_text(K2 + UNREAD)
    code, out, _ = run(capsys, "audit", "losses.py:k2", "losses.py:unread")
    assert code == 2 and "not read" in out


def test_options_hold_for_each_loss_of_a_file(file: Path, capsys: Out) -> None:
    file.write_text(K2 + K3)
    code, out, _ = run(capsys, "audit", "losses.py", "--expect", "reverse-kl")
    assert code == 1 and len(out.splitlines()) == 3
    code, _, err = run(capsys, "audit", "losses.py", "--format", "sarif")
    assert code == 1 and err == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HELPER, "no function that computes a KL or a policy loss; to audit one all the same: klsym audit"),
        ("x = 1\n", "lines are audited, too: klsym audit losses.py:120-128"),
        ("def f(:\n", "losses.py, line 1: "),
        (UNREAD, "losses.py"),
    ],
)
def test_a_file_without_a_loss_that_can_be_read_is_refused_in_one_line(
    text: str, said: str, file: Path, capsys: Out
) -> None:
    file.write_text(text)
    code, out, err = run(capsys, "audit", "losses.py")
    assert (code, out) == (2, "") and said in err and err.count("\n") == 1


@pytest.mark.parametrize("name", ["missing.py", "losses", "."])
def test_what_is_no_file_of_python_is_refused_as_before(name: str, file: Path, capsys: Out) -> None:
    code, out, err = run(capsys, "audit", name)
    assert (code, out) == (2, "") and "FILE.py:FUNC, FILE.py:120-128 or MODULE:FUNC expected" in err


@pytest.mark.parametrize(
    ("options", "is_said"),
    [(["--expect", "reverse-kl"], True), (["--expect", "forward-kl"], False), ([], False),
     (["--expect", "reverse-kl", "--json"], False)],
)  # fmt: skip
def test_an_expectation_that_is_met_has_a_line(
    options: list[str], is_said: bool, file: Path, capsys: Out
) -> None:
    file.write_text(K2)
    code, out, _ = run(capsys, "audit", "losses.py:k2", *options)
    assert (out.splitlines()[-1] == "  expected reverse-kl: yes") == is_said
    assert code == int("forward-kl" in options)
