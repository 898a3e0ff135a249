"""An experiment in a folder: its pictures as PDF and PNG, and the numbers behind it as CSV."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from klsym.experiments.catalogue import drawer, pictures, result
from klsym.files import write_whole
from klsym.study.figures.style import save


def draw(name: str, folder: Path) -> list[Path]:
    """Run an experiment, unless this process has, and write what came of it; the files.

    name: one of the catalogue.  folder: made where it is missing.
    Raises UsageError: a folder that cannot be written.
    """
    data = result(name)
    paths = [path for one in pictures(name) for path in save(drawer(one)(data), folder, one)]
    header, rows = data.table()
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return [*paths, write_whole(folder / f"{name}.csv", text.getvalue())]
