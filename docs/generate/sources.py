"""Copy the pages and notebooks of the repository into the source folder of Sphinx, with their links.

A link to a file that is no page of the site becomes the file's name.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from klsym.study.ledger.stored import entries

HOME = Path(__file__).resolve().parents[2]
FOLDERS = ("tutorials", "tasks", "guides", "explanation", "reference")
MOVED = {
    "README.md": "index.md", "docs/codes.md": "reference/codes/index.md",
    "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md", "CHANGELOG.md": "changelog.md",
    "rocq/README.md": "explanation/verified-checker.md",
}  # fmt: skip
SPLIT = ("README.md", "docs/codes.md")  # parts of them are on several pages
FENCE = re.compile(r"^(`{3,})[^\n]*\n.*?^\1`*[ ]*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
CLAIM = re.compile(r"(?<!\[)`([a-z]+\.[\w-]+)`")
ANCHOR = re.compile(r'^<a id="([\w.-]+)"></a>$', re.MULTILINE)
INCLUDE = re.compile(r"^```\{include\} (\S+)\n:start-after: (.+)\n:end-before: (.+)\n```$", re.MULTILINE)


def copy_all(into: Path) -> None:
    """Write every page that stands in the repository; the generated ones come on top."""
    pages = [*(HOME / "docs").glob("*.md"), *(p for f in FOLDERS for p in (HOME / "docs" / f).glob("*.md"))]
    for path in [*pages, *(HOME / name for name in MOVED)]:
        name = path.relative_to(HOME).as_posix()
        if name not in SPLIT:
            write(into / str(place(name)), markdown(path.read_text(encoding="utf-8"), name))
    for path in [*(HOME / "docs").glob("*.png"), *(HOME / "docs").glob("*.json")]:
        shutil.copy(path, into / path.name)
    (into / "notebooks").mkdir(exist_ok=True)
    for path in (HOME / "notebooks").glob("*.ipynb"):
        shutil.copy(path, into / "notebooks" / path.name)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.rstrip("\n") + "\n", encoding="utf-8")


def place(name: str) -> str | None:
    """Return where a file of the repository is on the site; None if it is no page.

    >>> place("docs/guides/off-policy.md"), place("notebooks/01-values.ipynb"), place("LICENSE")
    ('guides/off-policy.md', 'notebooks/01-values.ipynb', None)
    """
    if name in MOVED:
        return MOVED[name]
    known = name.startswith("docs/") or (name.startswith("notebooks/") and name.endswith(".ipynb"))
    if not known or not (HOME / name).is_file():
        return None
    return name.removeprefix("docs/")


def find_source(page: str) -> str | None:
    """Return the file of the repository that is written on a page; None if the page is generated.

    >>> find_source("guides/off-policy"), find_source("contributing"), find_source("reference/rules")
    ('docs/guides/off-policy.md', 'CONTRIBUTING.md', None)
    """
    moved = {place.removesuffix(".md"): name for name, place in MOVED.items()}
    names = (f"docs/{page}.md", moved.get(page, ""), f"{page}.ipynb")
    return next((name for name in names if name and (HOME / name).is_file()), None)


def markdown(text: str, name: str, shown_at: str = "") -> str:
    """Return a page of the repository as a source of Sphinx.

    name: its path in the repository.  shown_at: the page of the site that it goes into (its own place).
    """
    here = shown_at or str(place(name))
    text = INCLUDE.sub(lambda found: _included(found, name, here), text)
    changes = ((LINK, _relink(name, here)), (ANCHOR, r"(\1)="), (CLAIM, _claim(here)))
    for pattern, change in changes:
        text = outside_code(text, partial(pattern.sub, change))
    return text


def _claim(here: str) -> Callable[[re.Match[str]], str]:
    """The id of a claim leads to its page."""
    folder = posixpath.relpath("reference/theorems", posixpath.dirname(here) or ".")
    return lambda found: f"[{found[0]}]({folder}/{found[1]}.md)" if found[1] in entries() else found[0]


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """Change a text of Markdown, but not its blocks of code."""
    done, pieces = 0, []
    for found in FENCE.finditer(text):
        pieces += [change(text[done : found.start()]), found[0]]
        done = found.end()
    return "".join([*pieces, change(text[done:])])


def _included(found: re.Match[str], name: str, here: str) -> str:
    """The part of another page between two markers."""
    source = posixpath.normpath(posixpath.join(posixpath.dirname(name), found[1]))
    whole = (HOME / source).read_text(encoding="utf-8")
    _, start, rest = whole.partition(found[2])
    part, end, _ = rest.partition(found[3])
    if not (start and end):
        raise ValueError(f"{name}: {source} has no part between {found[2]} and {found[3]}")
    # links that are right in the other page; afterwards they are outside of what `markdown` reads as its own
    return outside_code(part.strip(), lambda prose: LINK.sub(_relink(source, here, name), prose))


def _relink(name: str, here: str, into: str = "") -> Callable[[re.Match[str]], str]:
    """Links of a file as they are on the site; into: as they are in another file of the repository."""

    def change(found: re.Match[str]) -> str:
        image, words, target = found.groups()
        path, sign, anchor = target.partition("#")
        if not path or re.match(r"[a-z]+:", target):
            return found[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
        if into:
            return (
                f"{image}[{words}]({posixpath.relpath(file, posixpath.dirname(into) or '.')}{sign}{anchor})"
            )
        page = place(file)
        if file == "docs/codes.md" and anchor:  # each code has a page of its own
            page, sign, anchor = f"reference/codes/{anchor.upper()}.md", "", ""
        if page is None:
            return words if words.startswith("`") else f"{words} (`{file}`)" if words != file else f"`{file}`"
        if page == here and anchor:
            return f"{image}[{words}](#{anchor})"
        return f"{image}[{words}]({posixpath.relpath(page, posixpath.dirname(here) or '.')}{sign}{anchor})"

    return change
