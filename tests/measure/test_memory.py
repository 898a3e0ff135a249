"""The memory limit of `klsym measure` under load: commands at once, code that takes more than it may."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from klsym.cli import main

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="Linux limits addresses")

CODE = """
import torch

def honest(b):
    return -((b.logp * b.mask).sum(-1) * b.rewards).mean()

TAKEN = []

def takes(b):
    if not TAKEN:
        TAKEN.append(bytearray(600_000_000))
    return honest(b)

def grows(b):
    blocks = []
    while True:
        blocks.append(bytearray(20_000_000))

def fills(b):
    tensors = []
    while True:
        tensors.append(torch.ones(5_000_000))
"""
RIGHT = "maximises E[R]"


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    (tmp_path / "losses.py").write_text(CODE, encoding="utf-8")

    def run(name: str, gigabytes: float) -> subprocess.Popen[str]:
        words = ["measure", f"losses.py:{name}", "--memory-limit", str(gigabytes)]
        command = [sys.executable, "-m", "klsym", *words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, text=True, cwd=tmp_path, **pipes)  # type: ignore[call-overload]

    return run


def test_each_of_several_commands_at_once_has_a_limit_of_its_own(
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    """What takes more is refused in one line; beside it, others have their answer, and no less memory."""
    asked = {
        ("grows", 0.1): "losses.py:grows: running it needs more than --memory-limit",
        ("fills", 0.1): "allocate memory",
        ("takes", 0.3): "losses.py:takes: running it needs more than --memory-limit",
        ("takes", 1.5): None,
        ("honest", 0.5): None,
    }
    running = {key: start(*key) for key in asked}
    for key, refusal in asked.items():
        out, err = running[key].communicate(timeout=300)
        if refusal is None:
            assert (running[key].returncode, err) == (0, "") and RIGHT in out, key
        else:
            assert (running[key].returncode, out) == (2, "") and refusal in err, key
            assert err.startswith("klsym: ") and err.count("\n") == 1


@pytest.mark.parametrize("command", ["measure", "audit"])
@pytest.mark.parametrize("text", ["nan", "inf", "-1", "0", "much", "1e400"])
def test_a_limit_is_a_positive_number(command: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Not a number would have been no limit."""
    code = main([command, "losses.py:honest", f"--memory-limit={text}"])
    err = capsys.readouterr().err
    assert code == 2 and f"argument --memory-limit: '{text}': gigabytes above 0" in err
