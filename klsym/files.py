"""Files and folders that are written: whole or not at all, and a refusal is one line."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from klsym.errors import UsageError

SHOWN = 120  # characters of a path in a message


def make_folder(folder: Path) -> Path:
    """The folder, made with those above it where it is missing.

    >>> make_folder(Path(".")).is_dir()
    True

    Raises UsageError: it cannot be made, or a file has its name.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write into {_shown(folder)}: {error.strerror}") from None
    return folder


def write_whole(target: Path, text: str) -> Path:
    """Write a text file under another name, and rename it once it is complete.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_whole(Path(folder) / "a.txt", "all of it")
    ...     path.read_text(), len(list(path.parent.iterdir()))
    ('all of it', 1)

    target: in a folder that exists; a file of that name is replaced.
    Raises UsageError: it cannot be written; then nothing has changed.
    """
    draft = target.with_name(target.name + ".part")
    try:
        draft.write_text(text, encoding="utf-8")
        os.replace(draft, target)
    except OSError as error:
        with suppress(OSError):  # the folder itself may be missing, or be none
            draft.unlink(missing_ok=True)
        raise UsageError(f"cannot write {_shown(target)}: {error.strerror}") from None
    return target


def _shown(path: Path) -> str:
    """A path, or the end of a long one: the reason behind it must not be cut off."""
    text = str(path)
    return text if len(text) <= SHOWN else "..." + text[-SHOWN:]
