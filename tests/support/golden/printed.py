"""What klsym prints of 300 answers, word for word: text with its proof, JSON, digests of certificates.

    PYTHONPATH=tests python -m support.golden.printed           # compare; exit code 1 if anything differs
    PYTHONPATH=tests python -m support.golden.printed --write   # store anew

The values of an answer are compared by `support.golden`; here a changed comma is a difference.

>>> len(read())
300
"""

from __future__ import annotations

import argparse
import difflib
import json
import lzma
import multiprocessing
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from klsym.api import explain
from klsym.errors import speak_of_flags
from klsym.files import write_whole

from . import stored
from .pairs import Pair

FILE = Path(__file__).with_name("printed.json.xz")
COUNT = 300
LINES = 12  # lines of a difference that are shown

Printed = dict[str, Any]


def choose_pairs(rows: Sequence[stored.Row]) -> list[Pair]:
    """Return COUNT answered pairs: one of each setting in turn, those with the lowest keys first."""
    by_setting: dict[tuple[tuple[str, str], ...], list[Pair]] = defaultdict(list)
    for pair, answer in sorted(rows, key=lambda row: row[0].key):
        if "refusal" not in answer:
            by_setting[tuple(sorted(pair.options))].append(pair)
    chosen: list[Pair] = []
    for turn in range(COUNT):
        chosen += [pairs[turn] for _, pairs in sorted(by_setting.items()) if turn < len(pairs)]
        if len(chosen) >= COUNT:
            break
    return chosen[:COUNT]


def print_answer(pair: Pair) -> Printed:
    """Return what klsym prints of one loss on the command line."""
    with speak_of_flags():
        verdict = explain(pair.text, parameters=pair.parameters, **dict(pair.options))  # type: ignore[arg-type]
        return {
            "text": verdict.text(proof=True),
            "json": verdict.to_json(),
            "certificates": [proof.certificate()["digest"] for proof in verdict.proof.theorems],
        }


def answer_all(pairs: Sequence[Pair]) -> list[Printed]:
    """Return what klsym prints of many losses, on all processors."""
    with multiprocessing.get_context("fork").Pool() as pool:
        return pool.map(print_answer, pairs, chunksize=4)


@cache
def read() -> dict[str, Printed]:
    """Return what is stored, by the key of its pair."""
    found: dict[str, Printed] = json.loads(lzma.decompress(FILE.read_bytes()))
    return found


def stored_pairs() -> list[Pair]:
    """Return the pairs whose printed answers are stored."""
    return [pair for pair, _ in stored.read() if pair.key in read()]


def write() -> None:
    """Choose the pairs, and store what klsym prints of them."""
    pairs = choose_pairs(stored.read())
    printed = {pair.key: answer for pair, answer in zip(pairs, answer_all(pairs), strict=True)}
    text = json.dumps(printed, separators=(",", ":"), sort_keys=True)
    write_whole(FILE, lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    read.cache_clear()


def compare_printed(pair: Pair, now: Printed) -> Iterator[str]:
    """Yield each part that differs from what is stored, with the lines that differ."""
    for part, was in read()[pair.key].items():
        if now[part] != was:
            lines = difflib.unified_diff(
                as_lines(was), as_lines(now[part]), "stored", "now", n=0, lineterm=""
            )
            yield "\n    ".join([f"{pair}: {part}", *list(lines)[2:][:LINES]])


def as_lines(part: Any) -> list[str]:
    """Return a part of an answer as lines of text."""
    return (part if isinstance(part, str) else json.dumps(part, indent=1)).splitlines()


def main() -> int:
    parser = argparse.ArgumentParser(prog="printed", description="Compare what is printed of 300 answers.")
    parser.add_argument("--write", action="store_true", help="choose the pairs and store their answers anew")
    if parser.parse_args().write:
        write()
        print(f"{len(read())} answers, {FILE.stat().st_size:,} bytes")
        return 0
    pairs = stored_pairs()
    changed = [
        line
        for pair, now in zip(pairs, answer_all(pairs), strict=True)
        for line in compare_printed(pair, now)
    ]
    print(*changed, f"{len(pairs)} answers, {len(changed)} differences", sep="\n")
    return 1 if changed else 0


if __name__ == "__main__":
    raise SystemExit(main())
