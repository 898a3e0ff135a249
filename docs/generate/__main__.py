"""Write the source folder of the site: python -m generate SOURCE EXTRA."""

from __future__ import annotations

import shutil
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from generate.codes import write_codes
from generate.commands import write_commands
from generate.penalty_map import table, write_map
from generate.reference import write_reference
from generate.sources import HOME, copy_all
from generate.theorems import write_theorems

MAP = "<!-- the map -->"


def main(source: Path, extra: Path) -> None:
    """Theorems take as long as all other pages, and are written beside them."""
    for folder in (source, extra):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    with ProcessPoolExecutor(1) as pool:
        theorems = pool.submit(write_theorems, source, extra)
        copy_all(source)
        write_map(source)
        write_codes(source)
        write_commands(source)
        write_reference(source)
        front = source / "index.md"
        front.write_text(
            front.read_text(encoding="utf-8").replace(MAP, f"`````{{raw}} html\n{table()}\n`````"),
            encoding="utf-8",
        )
        _style(source / "_static")
        theorems.result()
    shutil.copy(HOME / "docs" / "conf.py", source)


def _style(into: Path) -> None:
    """The style of the report's fragments, for these alone, and that of the site."""
    fragments = (HOME / "klsym" / "templates" / "claims.css").read_text(encoding="utf-8")
    own = (HOME / "docs" / "site.css").read_text(encoding="utf-8")
    into.mkdir(parents=True)
    (into / "site.css").write_text(f".claim-page {{\n{fragments}}}\n{own}", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
