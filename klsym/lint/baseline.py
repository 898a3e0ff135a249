"""A baseline: findings that are known and do not fail; those that are gone are removed from it.

It is committed.  A finding is recognised by its file, function, code, and a digest of the loss and
its use, so that moved lines do not matter and a changed loss is a new finding.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from klsym.errors import UsageError
from klsym.files import read_text, write_whole
from klsym.lint.findings import UNREADABLE, UNUSED, Finding

VERSION = 1
LARGEST = 10_000_000  # bytes
FIELDS = ("path", "function", "code", "digest")


def read_baseline(path: Path) -> set[tuple[str, ...]]:
    """The findings that are known; raises UsageError for a file that is none."""
    if not path.exists():
        return set()
    try:
        data = json.loads(read_text(path, LARGEST))
        rows = [tuple(row[name] for name in FIELDS) for row in data["findings"]]
    except (json.JSONDecodeError, KeyError, TypeError, RecursionError):
        raise UsageError(f"{path}: no baseline of klsym: --write-baseline makes one") from None
    if data.get("version") != VERSION or not all(isinstance(x, str) for row in rows for x in row):
        raise UsageError(f"{path}: a baseline of another version: --write-baseline makes one anew")
    return set(rows)


Audited = set[tuple[str, str]]  # file and function of the targets that were read


def write_baseline(path: Path, findings: Iterable[Finding], audited: Audited) -> int:
    """Store what is found; code that cannot be read is not: it would hide what comes after."""
    before = {key for key in read_baseline(path) if key[:2] not in audited}
    keys = before | {one.key for one in findings if one.code not in (UNREADABLE, UNUSED)}
    _write(path, keys)
    return len(keys)


def shrunk(path: Path, known: set[tuple[str, ...]], findings: Iterable[Finding], audited: Audited) -> int:
    """Take out of the file what is not found any more in the targets that were read; how many are left."""
    found = {one.key for one in findings}
    left = {key for key in known if key in found or key[:2] not in audited}
    if left != known:
        _write(path, left)
    return len(left)


def _write(path: Path, keys: Iterable[tuple[str, ...]]) -> None:
    rows = [dict(zip(FIELDS, key, strict=True)) for key in sorted(keys)]
    write_whole(path, json.dumps({"version": VERSION, "findings": rows}, indent=1) + "\n")
