"""The report in a folder: report.html, written whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from klsym.errors import UsageError
from klsym.write_up.page import Material, page

NAME = "report.html"


def write_report(folder: Path, material: Material) -> Path:
    """Write the page and say where it is.

    folder: must exist.  material: what was settled, checked and drawn; nothing is computed here.
    Raises UsageError: a folder that cannot be written, a formula that cannot be shown.
    """
    text = page(material)  # before anything is touched
    target = folder / NAME
    write_whole(target, text)
    return target


def write_whole(target: Path, text: str) -> None:
    """A text file that is never half written.  Raises UsageError: it cannot be written."""
    draft = target.with_name(target.name + ".part")
    try:
        draft.write_text(text, encoding="utf-8")
        os.replace(draft, target)
    except OSError as error:
        with suppress(OSError):  # the folder itself may be missing, or be none
            draft.unlink(missing_ok=True)
        raise UsageError(f"cannot write {target}: {error.strerror}") from None
