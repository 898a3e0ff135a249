"""The ledger as it was settled for this version, for those who have not installed what settles it.

    python -m klsym.ledger.stored    settle every claim and store the answers; a test compares them

Proofs are stored with their certificates, which the kernel replays before they are shown.
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
    """When they were settled."""
    return str(_content()["date"])


def entries() -> dict[str, Any]:
    """Claim id -> its answer and its certificate, None where it has no proof."""
    found: dict[str, Any] = _content()["entries"]
    return found


def answers(ids: Iterable[str]) -> list[Answer]:
    """The claims with these ids, an id being that of an area too; the kernel replays each proof.

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
    """Settle all claims and store them; how many."""
    from klsym.ledger.registry import load, settle

    settled = [settle(claim) for claim in load().values()]
    if failed := [one.claim.id for one in settled if one.error]:
        raise SystemExit(f"not stored, these fail: {', '.join(failed)}")
    found = {
        one.claim.id: {"answer": one.to_json(), "certificate": one.certificate() if one.proofs else None}
        for one in settled
    }
    content = {"date": datetime.date.today().isoformat(), "entries": found}
    write_whole(STORED, lzma.compress(json.dumps(content, sort_keys=True).encode()))
    return len(found)


if __name__ == "__main__":
    print(f"{write()} claims stored in {STORED.name}")
