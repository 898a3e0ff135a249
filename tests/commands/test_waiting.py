"""What a terminal is told while a command waits; a pipe is told nothing, and no line stays on the screen."""

from __future__ import annotations

import os
import pty
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from klsym.commands import console


def open_terminal(monkeypatch: pytest.MonkeyPatch, patience: float = 0.01) -> Callable[[], str]:
    """Make stderr a terminal; return a function that reads what it has been told."""
    above, below = pty.openpty()
    stream = os.fdopen(below, "w")
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(console, "PATIENCE", patience)

    def read() -> str:
        stream.close()
        told = b""
        while True:
            try:
                more = os.read(above, 4096)
            except OSError:  # Linux says so at the end
                more = b""
            if not more:
                return told.decode()
            told += more

    return read


class Process:
    is_ready = False


def test_the_terminal_is_told_and_its_line_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    read = open_terminal(monkeypatch)
    process: Any = Process()
    for item in console.iterate_shown(["a\nb", "c"], process, str):
        process.is_ready = item == "c"
        time.sleep(0.2)
    told = read()
    assert "1 of 2: loading the libraries of a b" in told and "2 of 2: running c" in told
    assert "\n" not in told and told.endswith("\r\x1b[K")


def test_an_error_leaves_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    read = open_terminal(monkeypatch)
    with pytest.raises(ValueError, match="no"), console.show_waiting(lambda: "running"):
        time.sleep(0.2)
        raise ValueError("no")
    assert read().endswith("\r\x1b[K")


def test_what_is_quick_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    read = open_terminal(monkeypatch, patience=60.0)
    with console.show_waiting(lambda: "running"):
        pass
    assert "running" not in read()


def test_a_pipe_is_told_nothing(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "PATIENCE", 0.01)
    with console.show_waiting(lambda: "running"):
        time.sleep(0.1)
    assert capsys.readouterr() == ("", "")


def test_a_step_is_a_line_in_a_pipe_and_nothing_beside_a_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    console.announce_step("checking the claims by sampling")
    line = capsys.readouterr().err
    assert line.endswith(" checking the claims by sampling\n") and line.count("\n") == 1
    read = open_terminal(monkeypatch)
    console.announce_step("checking the claims by sampling")
    assert read() == ""
