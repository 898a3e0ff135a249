"""The text of the user's files; to try a change, a text is replaced in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from klsym.files import read_text

LARGEST = 5_000_000  # bytes of a file
_replaced: list[dict[Path, str]] = []


@contextmanager
def replace_sources(texts: Mapping[str, str]) -> Iterator[None]:
    """Read these texts, by the paths of the files, in place of the files within the block."""
    _replaced.append({Path(path).resolve(): text for path, text in texts.items()})
    try:
        yield
    finally:
        _replaced.pop()


def read_source(path: Path) -> str:
    """Return the text of a file, or what replaces it; raises UsageError as `read_text` does."""
    for texts in reversed(_replaced):
        if (text := texts.get(path.resolve())) is not None:
            return text
    return read_text(path, LARGEST)
