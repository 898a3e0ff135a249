"""Every answer has at most 12 lines at 100 columns and 16 at 60, and no line is wider than the terminal."""

from __future__ import annotations

import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from klsym.commands.console import TERMINAL, explain_letters, wrap_for_terminal
from support.commands import Out, run

pytestmark = pytest.mark.usefixtures("without_copies", "forked_audits")

AUDITED = Path(__file__).parents[1] / "support" / "audits" / "audited.py"
MEASURED = Path(__file__).parents[1] / "support" / "measured" / "losses.py"
ANSWERS = (
    "compare k1 k3", "compare k2 k3 --sampling off-policy", "compare ppo '-clip(rho, 0.8, 1.2)*A'",
    "compare 'grpo' 'grpo + 0.1*k2'", "optimum k3 --use reward --beta 0.5 --rewards 0,0.4,1",
    "optimum k1 --beta 1/2 --rewards 1,0", "divergence jeffreys", "divergence jensen-shannon",
    "divergence r**3",
)  # fmt: skip
CODE = (
    *(f"audit {AUDITED}:{name}" for name in ("k3_loss", "policy_and_penalty", "clamp_before_exp")),
    f"measure {MEASURED}:grpo --expect reverse-kl", f"measure {MEASURED}:whole_batch --group 2",
)  # fmt: skip
TABLE = f"audit {AUDITED}:k1_loss {AUDITED}:k3_loss"


@pytest.mark.parametrize(("width", "most"), [(100, 12), (60, 16)])
@pytest.mark.parametrize("line", ANSWERS + CODE)
def test_an_answer_fits_the_page(
    line: str, width: int, most: int, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    if line in CODE:
        pytest.importorskip("torch")
    monkeypatch.setenv("COLUMNS", str(width))
    lines = run(capsys, *shlex.split(line))[1].splitlines()
    assert 3 <= len(lines) <= most and not lines[0].startswith(" ")
    assert all(len(shown) <= width or str(AUDITED.parent) in shown for shown in lines)
    assert sum(shown.startswith("  details ") for shown in lines) == 1


def test_a_report_has_one_line_a_finding_in_a_pipe_and_wraps_it_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    finding = "a.py:1: KL014 overflow  " + "in float32 the value is inf " * 6
    assert wrap_for_terminal(finding) == finding
    monkeypatch.setitem(TERMINAL, "stdout", True)
    monkeypatch.setenv("COLUMNS", "60")
    lines = wrap_for_terminal(finding).splitlines()
    assert len(lines) > 2 and max(map(len, lines)) <= 60 and lines[1].startswith("    float32")


def test_a_table_of_targets_is_a_row_each_in_a_pipe(capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("COLUMNS", "60")
    head, *rows = run(capsys, *shlex.split(TABLE))[1].splitlines()
    assert head.split() == ["code", "options", "loss", "target"] and len(rows) == 2


def run_on_terminal(columns: int, *argv: str) -> list[str]:
    """Run a command whose output is a terminal of so many columns."""
    leader, follower = pty.openpty()
    command = ["stty", "cols", str(columns), "rows", "40"]
    subprocess.run(command, stdin=follower, check=True)
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(
        [sys.executable, "-m", "klsym", *argv], stdin=follower, stdout=follower, stderr=subprocess.PIPE,
        env=environment, timeout=60,
    )  # fmt: skip
    os.close(follower)
    text = b""
    try:
        while part := os.read(leader, 65536):
            text += part
    except OSError:  # all is read
        pass
    os.close(leader)
    assert done.returncode == 0, done.stderr
    return text.decode().splitlines()


@pytest.mark.skipif(sys.platform == "win32", reason="a pseudo-terminal")
def test_on_a_terminal_explain_has_its_width_and_says_what_the_letters_are() -> None:
    lines = run_on_terminal(60, "explain", "k3", "--sampling", "off-policy")
    assert max(map(len, lines)) <= 60 and len(lines) <= 16
    names = " ".join(" ".join(lines).partition("  names ")[2].split())
    assert names == "q is the policy, p the reference, mu the old policy, which sampled"


def test_letters_are_explained_on_terminals_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = "minimises E_mu[r], r = p/q; mask"
    assert explain_letters(answer) == ""
    monkeypatch.setitem(TERMINAL, "stdout", True)
    said = " ".join(explain_letters(answer).split())
    assert said == "names q is the policy, p the reference, mu the old policy, which sampled"
    assert explain_letters("no letters here") == ""
