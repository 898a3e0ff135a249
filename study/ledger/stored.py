"""The answers of the ledger, stored with each version for installations without NumPy.

    python -m klsym.study.ledger.stored    settle every claim and store the answers

A test compares the file with the settled ledger.  The kernel replays a stored certificate before use.
"""

from __future__ import annotations

import datetime
import json
import lzma
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from klsym.errors import UsageError
from klsym.files import write_whole
from klsym.kernel import check

STORED = Path(__file__).with_name("stored.json.xz")
Answer = dict[str, Any]  # a claim as `klsym claims --json` shows it


@cache
def _content() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(lzma.decompress(STORED.read_bytes()))
    return content


def date() -> str:
    """The date on which the claims were settled."""
    return str(_content()["date"])


def entries() -> dict[str, Any]:
    """Claim id -> answer and certificate; the certificate is None for claims without a proof."""
    found: dict[str, Any] = _content()["entries"]
    return found


def answers(ids: Iterable[str]) -> list[Answer]:
    """Return the answers for claims or areas, after the kernel has replayed each proof.

    ids: of claims, or of areas such as `gradient`; none: all claims.
    Raises UsageError: an unknown claim.  Refused: a proof that the kernel does not accept.
    """
    known = entries()
    chosen: dict[str, Any] = {} if (names := list(ids)) else known
    for name in names:
        found = {id: entry for id, entry in known.items() if name in (id, id.partition(".")[0])}
        if not found:
            raise UsageError(f"unknown claim {name[:60]!r}: `klsym claims` lists them")
        chosen |= found
    for entry in chosen.values():
        if entry["certificate"] is not None:
            check(entry["certificate"])
    return [entry["answer"] for entry in chosen.values()]


def write() -> int:
    """Settle all claims, store them, and return how many there are."""
    from klsym.study.ledger.registry import load
    from klsym.study.ledger.settle_claim import settle

    settled = [settle(claim) for claim in load().values()]
    if failed := [one.claim.id for one in settled if one.error]:
        raise SystemExit(f"not stored, these fail: {', '.join(failed)}")
    found = {one.claim.id: one.entry() for one in settled}
    content = {"date": datetime.date.today().isoformat(), "entries": found}
    write_whole(STORED, lzma.compress(json.dumps(content).encode()))
    return len(found)


if __name__ == "__main__":
    print(f"{write()} claims stored in {STORED.name}")
