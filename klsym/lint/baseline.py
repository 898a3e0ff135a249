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
STORED = "klsym-baseline.json"
LARGEST = 10_000_000  # bytes
FIELDS = ("path", "function", "code", "digest")


def find_baseline(named: str | None) -> Path | None:
    """Return the baseline that was named, or the one that the folder has."""
    if named:
        return Path(named)
    return Path(STORED) if Path(STORED).exists() else None


def read_baseline(path: Path) -> set[tuple[str, ...]]:
    """Return the findings of a baseline; raises UsageError for another kind of file."""
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
    """Store the findings and return their number.

    Unreadable code is left out: in a baseline it would hide all findings that come once it can be read.
    """
    before = {key for key in read_baseline(path) if key[:2] not in audited}
    keys = before | {finding.key for finding in findings if finding.code not in (UNREADABLE, UNUSED)}
    _write_keys(path, keys)
    return len(keys)


def shrink_baseline(
    path: Path, known: set[tuple[str, ...]], findings: Iterable[Finding], audited: Audited
) -> int:
    """Remove findings that the audited targets no longer have; return how many remain."""
    current = {one.key for one in findings}
    remaining = {key for key in known if key in current or key[:2] not in audited}
    if remaining != known:
        _write_keys(path, remaining)
    return len(remaining)


def _write_keys(path: Path, keys: Iterable[tuple[str, ...]]) -> None:
    rows = [dict(zip(FIELDS, key, strict=True)) for key in sorted(keys)]
    write_whole(path, json.dumps({"version": VERSION, "findings": rows}, indent=1) + "\n")
