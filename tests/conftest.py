"""Settings shared by the tests: hypothesis is deterministic, a test that asks for it may not hang, and
nothing depends on what a shell hands down."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("klsym", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("klsym")

# what changes how klsym's processes print, and how wide
HANDED_DOWN = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "MPLBACKEND", "PYTHONIOENCODING", "PYTHONUTF8",
               "PYTHONWARNINGS", "PYTHONOPTIMIZE", "PYTHONUNBUFFERED", "PYTHONVERBOSE")  # fmt: skip


def pytest_configure() -> None:
    """`nohup make test &` hands down an ignored SIGINT, and others block it; processes inherit both."""
    for name in HANDED_DOWN:
        os.environ.pop(name, None)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


@contextlib.contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    def stop(*_: Any) -> None:
        pytest.fail(f"no answer within {seconds} s", pytrace=False)

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="session")
def at_most() -> Callable[[int], Any]:
    """`with at_most(5): ...` fails the test when the block is not done within 5 seconds."""
    return _at_most


def labelled(value: object) -> str:
    """A test id that is the same in every process: functions have addresses in their text."""
    return "" if callable(value) else str(value)[:60]
