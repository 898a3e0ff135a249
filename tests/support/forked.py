"""Processes of audits that are forked from the tests, where PyTorch, if there is one, is imported already.

A process of its own imports PyTorch and klsym, which takes longer than most questions.  Limits, signals and
pipes are those of such a process; what differs is what was imported before.  The tests of the process itself
start it as users do.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest

from klsym.worker_process import LOADING, Asked

MODULES = ("klsym.confirmed.child", "klsym.fixing.child", "klsym.measure.child")


class Forked:
    """A process that was forked, with what `subprocess.Popen` has of it."""

    def __init__(self, module: str) -> None:
        (its_input, questions), (replies, its_output) = os.pipe(), os.pipe()
        self.code: int | None = None
        self.pid = os.fork()
        if not self.pid:
            _run(module, its_input, its_output)
        os.close(its_input)
        os.close(its_output)
        self.stdin, self.stdout = os.fdopen(questions, "wb", 0), os.fdopen(replies, "rb", 0)

    def poll(self) -> int | None:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code

    def wait(self, timeout: float | None = None) -> int:
        if self.code is None:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code

    def kill(self) -> None:
        if self.code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


def _run(module: str, its_input: int, its_output: int) -> NoReturn:
    """Become the process of a module: a session, standard input and output of its own."""
    code = 1
    try:
        os.setsid()
        for source, number in ((its_input, 0), (its_output, 1), (os.open(os.devnull, os.O_WRONLY), 2)):
            os.dup2(source, number)
        os.closerange(3, 256)
        sys.argv[:] = [module]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def fork_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the processes that run users' code."""
    with suppress(ImportError):
        import torch  # noqa: F401

    import klsym.audit.audits
    import klsym.confirmed.both
    import klsym.measure.measuring  # noqa: F401

    start = Asked._started

    def start_forked(self: Any) -> Any:
        if self.module not in MODULES:
            return start(self)
        self.process = process = Forked(self.module)
        for pipe in (process.stdin, process.stdout):
            os.set_blocking(pipe.fileno(), False)
        self._say(self.options, LOADING)
        return process

    monkeypatch.setattr(Asked, "_started", start_forked)


def enter_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder, with audits in forked processes; skip the test where PyTorch is missing."""
    pytest.importorskip("torch")
    monkeypatch.chdir(folder)
    fork_processes(monkeypatch)
