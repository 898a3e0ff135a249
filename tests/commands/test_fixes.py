"""`klsym audit --diff` and `--fix`: what is printed, what is written, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klsym.cli import main
from support.forked import enter_folder

TRAINER = """import torch


def wrong(logps, ref_logps):  # é
    kl = torch.exp(ref_logps - logps) - (ref_logps - logps) - 1
    return kl


def weighed(logps, old_logps, ref_logps):
    w = torch.exp(logps - old_logps).detach()
    return w * (torch.expm1(ref_logps - logps) - (ref_logps - logps))


def right(logps, ref_logps):
    return 0.5 * (logps - ref_logps) ** 2


def two(logps, ref_logps, advantages):
    kl = (logps - ref_logps).abs()
    policy = logps * advantages
    return policy + kl
"""
CHANGES = {
    "torch.exp(ref_logps - logps) - (ref_logps - logps) - 1": "0.5 * (logps - ref_logps) ** 2",
    "torch.exp(logps - old_logps).detach()": "torch.exp(logps - old_logps)",
}
CONFIG = """[[target]]
code = "trainer.py:wrong"
expect = "reverse-kl"
[[target]]
code = "trainer.py:weighed"
[[target]]
code = "trainer.py:right"
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    enter_folder(tmp_path, monkeypatch)
    path = tmp_path / "trainer.py"
    path.write_bytes(TRAINER.replace("\n", "\r\n").encode())
    path.chmod(0o755)
    return path


def change(text: str) -> str:
    for old, new in CHANGES.items():
        text = text.replace(old, new)
    return text


def test_targets_of_a_project(file: Path, capfdbinary: Any) -> None:
    """A diff of all changes of a file, and the same changes written: no other byte is another."""
    Path("klsym.toml").write_text(CONFIG)
    before = file.read_bytes()
    assert main(["audit", "--diff"]) == 1
    printed = capfdbinary.readouterr()
    assert printed.out.startswith(b"--- a/trainer.py\n+++ b/trainer.py\n") and printed.out.count(b"@@") == 2
    assert b"+    kl = 0.5 * (logps - ref_logps) ** 2\r\n" in printed.out
    said = printed.err.decode().splitlines()
    start = "klsym: trainer.py:wrong: with this change: minimises KL(q||p), the reverse KL (proved)"
    assert len(said) == 3 and said[0].startswith(start) and "measured: minimises reverse-kl" in said[0]
    assert said[2] == "klsym: trainer.py:right: the loss is right: nothing is changed"
    assert file.read_bytes() == before
    assert main(["audit", "--fix"]) == 0
    assert file.read_bytes() == change(TRAINER).replace("\n", "\r\n").encode()
    assert file.stat().st_mode & 0o777 == 0o755
    assert sorted(path.name for path in file.parent.iterdir()) == ["klsym.toml", "trainer.py"]


def test_no_change_of_one_statement(file: Path, capsys: Any) -> None:
    before = file.read_bytes()
    assert main(["audit", "trainer.py:two", "--fix"]) == 1
    printed = capsys.readouterr()
    assert "no change of one statement was found" in printed.err
    assert printed.out.startswith("two (trainer.py:18-21): ") and file.read_bytes() == before


def test_lines_of_a_file(file: Path, capsys: Any) -> None:
    assert main(["audit", "trainer.py:5-5", "--result", "kl", "--fix"]) == 0
    assert b"    kl = 0.5 * (logps - ref_logps) ** 2\r\n    return kl" in file.read_bytes()


def test_a_file_that_cannot_be_written(file: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = file.read_bytes()
    monkeypatch.setattr("os.access", lambda *_: False)
    assert main(["audit", "trainer.py:wrong", "--fix"]) == 2
    assert capsys.readouterr().err == "klsym: cannot write trainer.py: permission denied\n"
    assert file.read_bytes() == before


REFUSED = [
    (["trainer.py:wrong", "--fix", "--diff"], "not allowed with argument"),
    (["trainer.py:wrong", "--fix", "--json"], "--fix: neither a format nor a baseline"),
    (["trainer.py:wrong", "--diff", "--write-baseline"], "--diff: neither a format nor a baseline"),
    (["trainer.py:wrong", "--diff", "--set", "a=1", "--set", "a=2"], "given twice"),
    (["klsym.measure:measure", "--fix"], "a change is made in a file: name FILE.py:FUNC"),
    (["trainer.py:none", "--fix"], "no function none"),
    (["--fix"], "nothing to audit, and no klsym.toml"),
    (["--scan", ".", "--fix"], "--scan PATH runs nothing"),
]


@pytest.mark.parametrize(("words", "said"), REFUSED)
def test_what_is_refused(file: Path, capsys: Any, words: list[str], said: str) -> None:
    assert main(["audit", *words]) == 2
    assert said in capsys.readouterr().err
