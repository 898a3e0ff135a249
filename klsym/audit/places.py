"""Where in the user's file something happens: the line of the innermost frame that runs it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_files: list[frozenset[str]] = []


@contextmanager
def watching(files: frozenset[str]) -> Iterator[None]:
    """Within the block, `here` looks for these files."""
    _files.append(files)
    try:
        yield
    finally:
        _files.pop()


class Line(int):
    """The number of a line, and the file that it stands in."""

    file: str

    def __new__(cls, number: int, file: str) -> Line:
        found = super().__new__(cls, number)
        found.file = file
        return found


def here() -> Line | None:
    """The line of the user's code that is being run; None where none is."""
    files = _files[-1] if _files else frozenset()
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename in files:
            return Line(frame.f_lineno, frame.f_code.co_filename)
        frame = frame.f_back  # type: ignore[assignment]
    return None


def files_watched() -> frozenset[str]:
    """The user's files."""
    return _files[-1] if _files else frozenset()
