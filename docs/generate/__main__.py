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
from generate.sources import HOME, copy_all, write
from generate.theorems import judged, write_theorems
from klsym.study.ledger.registry import load

MAP = "<!-- the map -->"


def main(source: Path, extra: Path) -> None:
    """This process samples the theorems; others ask the exact oracle and write all other pages."""
    for folder in (source, extra):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    with ProcessPoolExecutor(2) as pool:
        outcomes = {id: pool.submit(judged, id) for id, one in load().items() if one.verdict != "computed"}
        others = pool.submit(write_others, source)
        write_theorems(source, extra, outcomes)
        others.result()
    shutil.copy(HOME / "docs" / "conf.py", source)


def write_others(source: Path) -> None:
    """All pages but those of the theorems."""
    copy_all(source)
    write_map(source)
    write_codes(source)
    write_commands(source)
    write_reference(source)
    front = (source / "index.md").read_text(encoding="utf-8")
    write(source / "index.md", front.replace(MAP, f"`````{{raw}} html\n{table()}\n`````"))
    _style(source / "_static")


def _style(into: Path) -> None:
    """The style of the report's fragments, for these alone, and that of the site."""
    fragments = (HOME / "study" / "templates" / "claims.css").read_text(encoding="utf-8")
    own = (HOME / "docs" / "site.css").read_text(encoding="utf-8")
    into.mkdir(parents=True)
    (into / "site.css").write_text(f".claim-page {{\n{fragments}}}\n{own}", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
