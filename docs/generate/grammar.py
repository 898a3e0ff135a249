"""The words of the grammar: each with its meaning, a command that uses it, and what that prints."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import klsym
from generate.commands import escaped

WORDS = Path(__file__).with_suffix(".toml")
WIDE = 1000  # columns, so that a verdict is one line
MARK = "<!-- words -->"


def write_words(into: Path) -> None:
    """Put the table into the page of the grammar."""
    page = into / "reference" / "grammar.md"
    text = page.read_text(encoding="utf-8")
    if MARK not in text:
        raise ValueError(f"reference/grammar.md has no {MARK}")
    page.write_text(text.replace(MARK, "\n".join(_write_table())), encoding="utf-8")


def _write_table() -> Iterator[str]:
    yield from ("| word | meaning | example | what it prints |", "| --- | --- | --- | --- |")
    for row in tomllib.loads(WORDS.read_text(encoding="utf-8"))["word"]:
        options = row.get("options", {})
        flags = [word for name, value in options.items() for word in (f"--{name}", value)]
        command = shlex.join(["klsym", "explain", row["loss"], *flags]).replace("|", "\\|")
        verdict = klsym.explain(row["loss"], **options).text(width=WIDE).splitlines()[1]
        words, trust = re.split(r"\s{2,}", verdict.strip())
        yield f"| `{row['name']}` | {escaped(row['means'])} | `{command}` | {escaped(words)} ({trust}) |"
