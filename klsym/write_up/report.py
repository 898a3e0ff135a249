"""The report in a folder: report.html, written whole or not at all."""

from __future__ import annotations

from pathlib import Path

from klsym.files import write_whole
from klsym.write_up.page import page
from klsym.write_up.page_material import Material

NAME = "report.html"


def write_report(folder: Path, material: Material) -> Path:
    """Write the page and say where it is.

    folder: must exist.  material: what was settled, checked and drawn; nothing is computed here.
    Raises UsageError: a folder that cannot be written, a formula that cannot be shown.
    """
    text = page(material)  # before anything is touched
    return write_whole(folder / NAME, text)
