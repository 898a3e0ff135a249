"""Campaigns: long random searches for a mistake.  How they run, and what is stored of the last run of each.

    benchmarks/campaigns.json    name -> counts, seed, seconds, and the version that it ran on

A campaign is run for a release, at full size: a smaller run is printed and not stored.  What it found is
said of that version; nothing has to be run again because the code has changed since.
"""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from typing import Any

from tqdm import tqdm

HOME = Path(__file__).resolve().parents[3]
STORED = HOME / "benchmarks" / "campaigns.json"
CHUNK = 10  # cases sent to a process at a time
FULL = {  # how many cases a run has that may be stored; None: the caller counts them
    "mutants": None, "attacks": 20_000, "soundness": 100_000, "losses": 20_000, "clamped losses": 3_000,
    "named sums": 10_000, "discounted losses": 2_000, "shipped losses": 5_000,
    "losses of new methods": 3_000, "detached functions": 3_000, "fuzz": 1_000_000,
}  # fmt: skip
NAMES = tuple(FULL)
CODE = ("klsym/**/*.py", "study/**/*.py", "rocq/**/*.v", "tests/**/*.py")


def version(home: Path = HOME) -> str:
    """The commit that is checked out, with "-dirty" where files differ from it."""
    asked = ["git", "describe", "--always", "--dirty", "--abbrev=7", "--exclude=*"]
    found = subprocess.run(asked, cwd=home, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown: no history here"


def log_of(name: str, seed: int, kind: str = "") -> Path:
    """Where outcomes are kept, for the code as it is now: a run that was cut off goes on from them."""
    known = hashlib.sha256()
    for path in sorted({path for pattern in CODE for path in HOME.glob(pattern)}):
        known.update(path.relative_to(HOME).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return HOME / "build" / f"{name}{kind}-{seed}-{known.hexdigest()[:16]}.jsonl"


@dataclass(frozen=True)
class Campaign:
    """The last run of one.  counts: in its own words.  version: of klsym, as `version` says it.  date: of its
    end.  reasons: why so many are open or refused.  settings: the counts of each setting."""

    name: str
    counts: dict[str, int]
    seed: int
    seconds: int
    version: str
    date: str = ""
    reasons: dict[str, int] = field(default_factory=dict)
    settings: dict[str, dict[str, int]] = field(default_factory=dict)


def campaigns(stored: Path | None = None) -> list[Campaign]:
    """What is stored, in the order of NAMES."""
    stored = STORED if stored is None else stored
    found = json.loads(stored.read_text(encoding="utf-8")) if stored.exists() else {}
    return [Campaign(name, **found[name]) for name in NAMES if name in found]


def record(
    name: str,
    counts: dict[str, int],
    seed: int,
    seconds: float,
    on: str,
    stored: Path | None = None,
    full: int | None = None,
    **shares: dict[str, Any],
) -> bool:
    """Store a run of full size; return whether it was stored.  A smaller run leaves the file as it is.

    counts: the first entry says how many cases there were.  on: the `version` when it began.  full: the full
    size, where FULL does not know it; else no run may be smaller than the one that is stored.  shares: the
    reasons and the settings.
    """
    stored = STORED if stored is None else stored
    found = json.loads(stored.read_text(encoding="utf-8")) if stored.exists() else {}
    size, known = next(iter(counts.values())), FULL[name]
    if known is not None:
        full = max(known, next(iter(found[name]["counts"].values())) if name in found else 0)
    if full is None:
        raise ValueError(f"{name}: full: how many cases a full run has")
    if size < full:
        print(f"not stored: {size} of the {full} cases of a full run")
        return False
    found[name] = {"counts": counts, "seed": seed, "seconds": round(seconds), "version": on}
    found[name]["date"] = datetime.now(UTC).date().isoformat()
    found[name] |= {share: counts for share, counts in shares.items() if counts}
    stored.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n", encoding="utf-8")
    return True


# ---------------------------------------------------------------------------- running one
def run(examine: Callable[[int, int], Any], numbers: list[int], seed: int, jobs: int, each: Any) -> None:
    """All outcomes, in the order in which they come, handed to `each`."""
    # a bar on a terminal, a line every ten seconds in a log
    pause = 0.2 if sys.stderr.isatty() else 10
    with Pool(jobs, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)) as pool:
        outcomes = pool.imap_unordered(partial(examine, seed), numbers, chunksize=CHUNK)
        for outcome in tqdm(outcomes, total=len(numbers), unit="case", mininterval=pause, file=sys.stderr):
            each(outcome)


def resumed(
    log: Path,
    count: int,
    examine: Callable[[int, int], tuple[int, dict[str, Any]]],
    seed: int,
    jobs: int,
    failed: Callable[[int, dict[str, Any]], None],
) -> list[dict[str, Any]]:
    """So many outcomes by number; those that an earlier run left in the log are not found again.

    failed: told of each outcome with complaints, as soon as it is there.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    before = log.read_text(encoding="utf-8") if log.exists() else ""
    done = read(before.splitlines())
    with log.open("a", encoding="utf-8") as file:
        file.write("\n" if before and not before.endswith("\n") else "")  # behind a line that was cut off

        def keep(outcome: tuple[int, dict[str, Any]]) -> None:
            number, answer = outcome
            done[number] = answer
            file.write(json.dumps({"number": number, **answer}) + "\n")
            file.flush()
            if answer["complaints"]:
                failed(number, answer)

        run(examine, [number for number in range(count) if number not in done], seed, jobs, keep)
    return [done[number] for number in range(count)]


def read(lines: Iterable[str]) -> dict[int, dict[str, Any]]:
    """What a run before has left; a last line that was cut off is done again."""
    found = {}
    for line in lines:
        try:
            answer = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[answer.pop("number")] = answer
    return found
