"""Settled claims, kept between runs, so that listing the ledger need not settle it again.

One JSON file in the user's cache folder, under the digest of all that the answers depend on: klsym's sources
and derivations, the machine, the versions of Python and of the packages that compute.  A file that is
missing, damaged or of another version is as good as none.  A proof that is kept is shown only after the
kernel has replayed its certificate.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import platform
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from klsym.errors import Refused, UsageError
from klsym.files import make_folder, read_text, write_whole
from klsym.kernel import check, digest
from klsym.study.ledger.registry import Claim
from klsym.study.ledger.settle_claim import Settled

MOST = 20_000_000  # bytes of a file that is read
VERSIONS = 3  # as many files stay, the newest: those of other versions are of use to nobody
COMPUTES = ("sympy", "mpmath", "numpy")
DERIVATIONS = "klsym.derivations"
SOURCES = ("klsym", "klsym.study", DERIVATIONS, "klsym.experiments")
Answer = dict[str, Any]  # a claim as `klsym claims --json` shows it


class Kept:
    """What earlier runs of the same sources settled.

    Made before anything is settled: while that lasts, sources may change.
    """

    def __init__(self) -> None:
        self.name = f"ledger-{_compute_state()}.json"
        self.entries = _read_entries(self.name)

    def replay_answers(self, claims: list[Claim]) -> dict[str, Answer]:
        """Claim id -> what was kept of it; where it has proofs, the kernel has replayed them just now."""
        kept_answers = {
            claim.id: self.entries[claim.id]
            for claim in claims
            if claim.id in self.entries and _is_ours(claim)
        }
        return {id: entry["answer"] for id, entry in kept_answers.items() if _replays(entry)}

    def add(self, settled: Iterable[Settled]) -> None:
        """Keep these too, but for those that failed; where nothing can be written, nothing is kept."""
        self.entries |= {
            settled_claim.claim.id: settled_claim.entry()
            for settled_claim in settled
            if not settled_claim.error and _is_ours(settled_claim.claim)
        }
        with suppress(UsageError, OSError, RuntimeError):  # RuntimeError: no home
            folder = make_folder(_find_folder())
            content = {"digest": digest(self.entries), "entries": self.entries}
            write_whole(folder / self.name, json.dumps(content))
            files = sorted(folder.glob("ledger-*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
            for path in files[VERSIONS:]:
                path.unlink(missing_ok=True)


def _is_ours(claim: Claim) -> bool:
    """Is it one of the derivations that the name of the file speaks for?"""
    return claim.build.__module__.startswith(f"{DERIVATIONS}.")


def _read_entries(name: str) -> dict[str, Any]:
    try:
        stored_entries = json.loads(read_text(_find_folder() / name, MOST))
        entries: dict[str, Any] = stored_entries["entries"]
        return entries if stored_entries["digest"] == digest(entries) else {}
    except (UsageError, OSError, RuntimeError, ValueError, KeyError, TypeError):
        return {}


def _replays(entry: Any) -> bool:
    """Does the kernel still accept the proofs?  Calculations by SymPy and numbers have none."""
    try:
        return entry["certificate"] is None or bool(check(entry["certificate"]))
    except Refused:
        return False


def _find_folder() -> Path:
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(chosen) if os.path.isabs(chosen) else Path.home() / ".cache") / "klsym"


def _compute_state() -> str:
    """The digest of what the answers depend on."""
    state_digest = hashlib.sha256()
    for part in (sys.version, platform.machine(), *map(version, COMPUTES)):
        state_digest.update(f"{part}\n".encode())
    content = [importlib.import_module(name).__path__ for name in SOURCES]
    for folder in (Path(path) for paths in content for path in paths):
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".py", ".toml", ".json"):
                state_digest.update(f"{path.relative_to(folder)}\n".encode() + path.read_bytes())
    return state_digest.hexdigest()
