"""Files and folders: written whole or not at all, read up to a bound; a refusal is one line."""

from __future__ import annotations

import os
import stat
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


def refuse_unless_writable(folder: Path) -> None:
    """Write an empty file of a new name, and remove it.

    Raises UsageError: nothing can be written into the folder.
    """
    write_whole(folder / f".{os.urandom(8).hex()}", "").unlink()


def write_whole(target: Path, content: str | bytes) -> Path:
    """Write a file under a name of its own, and rename it once it is complete.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_whole(Path(folder) / "a.txt", "all of it")
    ...     path.read_text(), len(list(path.parent.iterdir()))
    ('all of it', 1)

    target: in a folder that exists; a file of that name is replaced.  content: text is written as UTF-8.
    Whoever writes the same file at the same time does the same: the last one to finish is read.
    Raises UsageError: it cannot be written; then nothing has changed.
    """
    data = content.encode() if isinstance(content, str) else content
    draft = target.with_name(f".{os.urandom(8).hex()}.part")
    try:
        _write_and_rename(draft, target, data)
    except OSError as error:
        raise UsageError(f"cannot write {_shown(target)}: {error.strerror}") from None
    return target


def _write_and_rename(draft: Path, target: Path, data: bytes) -> None:
    """Nothing is left of the draft, whatever ends this, ctrl-C too."""
    try:
        with draft.open("xb") as file:
            file.write(data)
        with suppress(FileNotFoundError):
            draft.chmod(stat.S_IMODE(target.stat().st_mode))  # as the file that is replaced
        os.replace(draft, target)
    except BaseException:
        with suppress(OSError):  # the folder itself may be missing, or be none
            draft.unlink(missing_ok=True)
        raise


def read_text(path: Path, most: int) -> str:
    """The text of a regular file, as UTF-8.

    most: bytes.  A file that says it is empty or short and never ends is read no further than that.
    Raises UsageError: a folder, a device, a pipe, also behind a link; a file that is longer, no text, or
    that cannot be read.
    """
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UsageError(f"{_shown(path)}: not a regular file")
            data = file.read(most + 1)
    except OSError as error:
        raise UsageError(f"{_shown(path)}: {error.strerror or 'cannot be read'}") from None
    except UsageError:
        raise
    except ValueError:  # a zero byte in the name
        raise UsageError(f"{str(path)[:SHOWN]!a}: no name of a file") from None
    if len(data) > most:
        raise UsageError(f"{_shown(path)}: more than {most} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{_shown(path)}: not a text file") from None


def _without_waiting(path: str, flags: int) -> int:
    """What is opened is looked at only then, so that nothing can be put in its place; a pipe is no wait."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _shown(path: Path) -> str:
    """A path, or the end of a long one: the reason behind it must not be cut off."""
    text = str(path)
    return text if len(text) <= SHOWN else "..." + text[-SHOWN:]
