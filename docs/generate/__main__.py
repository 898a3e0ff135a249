"""Write the source folder of the site: python -m generate SOURCE EXTRA."""

from __future__ import annotations

import shutil
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from generate import social
from generate.cheat_sheet import write_cheat_sheet
from generate.codes import write_codes
from generate.commands import write_commands
from generate.grammar import write_words
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
        announce("checking the claims, and writing the other pages beside")
        outcomes = {id: pool.submit(judged, id) for id, one in load().items() if one.verdict != "computed"}
        others = pool.submit(write_others, source, extra)
        announce("writing the pages of the theorems")
        write_theorems(source, extra, outcomes)
        announce("waiting for the other pages")
        others.result()
    announce(f"{sum(1 for _ in source.rglob('*.md'))} pages in {source}")
    shutil.copy(HOME / "docs" / "conf.py", source)


def announce(text: str) -> None:
    """Print one line on a step."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def write_others(source: Path, extra: Path) -> None:
    """All pages but those of the theorems."""
    copy_all(source)
    steps = {
        "map": write_map,
        "codes": write_codes,
        "commands": write_commands,
        "reference": write_reference,
        "grammar": write_words,
    }
    for name, write_pages in steps.items():
        write_pages(source)
        announce(f"written: {name}")
    write_cheat_sheet(source, extra)
    announce("written: cheat sheet")
    front = (source / "index.md").read_text(encoding="utf-8")
    write(source / "index.md", front.replace(MAP, f"`````{{raw}} html\n{table()}\n`````"))
    _style(source / "_static")


def _style(into: Path) -> None:
    """The style of the report's fragments, for these alone, and that of the site."""
    fragments = (HOME / "study" / "templates" / "claims.css").read_text(encoding="utf-8")
    own = (HOME / "docs" / "site.css").read_text(encoding="utf-8")
    into.mkdir(parents=True)
    (into / "site.css").write_text(f".claim-page {{\n{fragments}}}\n{own}", encoding="utf-8")
    for name in ("favicon.svg", "instant.js"):
        shutil.copy(HOME / "docs" / name, into)
    social.draw(into / "social.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
