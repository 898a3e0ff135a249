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
def _read_content() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(lzma.decompress(STORED.read_bytes()))
    return content


def read_date() -> str:
    """The date on which the claims were settled."""
    return str(_read_content()["date"])


def entries() -> dict[str, Any]:
    """Claim id -> answer and certificate; the certificate is None for claims without a proof."""
    stored_entries: dict[str, Any] = _read_content()["entries"]
    return stored_entries


def replay_answers(ids: Iterable[str]) -> list[Answer]:
    """Return the answers for claims or areas, after the kernel has replayed each proof.

    ids: of claims, or of areas such as `gradient`; none: all claims.
    Raises UsageError: an unknown claim.  Refused: a proof that the kernel does not accept.
    """
    stored_entries = entries()
    chosen: dict[str, Any] = {} if (names := list(ids)) else stored_entries
    for name in names:
        selected_entries = {
            id: entry for id, entry in stored_entries.items() if name in (id, id.partition(".")[0])
        }
        if not selected_entries:
            raise UsageError(f"unknown claim {name[:60]!r}: `klsym claims` lists them")
        chosen |= selected_entries
    for entry in chosen.values():
        if entry["certificate"] is not None:
            check(entry["certificate"])
    return [entry["answer"] for entry in chosen.values()]


def write() -> int:
    """Settle all claims, store them, and return how many there are."""
    from klsym.study.ledger.registry import load
    from klsym.study.ledger.settle_claim import settle

    settled = [settle(claim) for claim in load().values()]
    if failed := [settled_claim.claim.id for settled_claim in settled if settled_claim.error]:
        raise SystemExit(f"not stored, these fail: {', '.join(failed)}")
    new_entries = {settled_claim.claim.id: settled_claim.entry() for settled_claim in settled}
    content = {"date": datetime.date.today().isoformat(), "entries": new_entries}
    write_whole(STORED, lzma.compress(json.dumps(content).encode()))
    return len(new_entries)


if __name__ == "__main__":
    print(f"{write()} claims stored in {STORED.name}")
