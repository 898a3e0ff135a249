"""One page for each diagnostic code: the sections of docs/codes.md, with the answers of their commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from generate.sources import HOME, markdown, write
from klsym.cli import main

FOLDER = "reference/codes"
COMMAND = re.compile(r"^```console\n\$ klsym (explain .*)\n```$", re.MULTILINE)


def write_codes(into: Path) -> None:
    """The list of codes and their pages."""
    text = (HOME / "docs" / "codes.md").read_text(encoding="utf-8")
    lead, *sections = re.split(r'^<a id="kl\d+"></a>$', text, flags=re.MULTILINE)
    lead = re.sub(r"\(#(kl\d+)\)", lambda found: f"({found[1].upper()}.md)", lead)
    pages = dict(_pages(sections))
    listed = "\n".join(["```{toctree}", ":hidden:", *pages, "```"])
    write(into / FOLDER / "index.md", f"{lead}\n{listed}")
    for name, page in pages.items():
        write(into / FOLDER / f"{name}.md", page)


def _pages(sections: list[str]) -> Iterator[tuple[str, str]]:
    for section in sections:
        head, _, rest = section.strip().partition("\n")
        name = head.split()[1]
        answered = COMMAND.sub(lambda found: f"```console\n$ klsym {found[1]}\n{printed(found[1])}```", rest)
        linked = markdown(answered, "docs/codes.md", f"{FOLDER}/{name}.md")
        yield name, f"{head.removeprefix('#')}\n{linked}"


def printed(command: str) -> str:
    """Return the output of a klsym command; raises ValueError if it fails."""
    out = StringIO()
    with redirect_stdout(out):
        if main(shlex.split(command)):
            raise ValueError(f"klsym {command} fails")
    return out.getvalue()
