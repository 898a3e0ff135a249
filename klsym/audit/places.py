"""Where in the user's file something happens: the line of the innermost frame that runs it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_files: list[frozenset[str]] = []


@contextmanager
def watch_files(files: frozenset[str]) -> Iterator[None]:
    """Make `find_current_line` look for these files, within the block."""
    _files.append(files)
    try:
        yield
    finally:
        _files.pop()


class Line(int):
    """The number of a line, and the file that it stands in."""

    file: str

    def __new__(cls, number: int, file: str) -> Line:
        line = super().__new__(cls, number)
        line.file = file
        return line


def find_current_line() -> Line | None:
    """Return the line of the user's code that is being run; None where none is."""
    files = _files[-1] if _files else frozenset()
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename in files:
            return Line(frame.f_lineno, frame.f_code.co_filename)
        frame = frame.f_back  # type: ignore[assignment]
    return None


def get_watched_files() -> frozenset[str]:
    """Return the user's files."""
    return _files[-1] if _files else frozenset()
