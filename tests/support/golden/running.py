"""The answers to many pairs, on all processors."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable, Iterator

from .answers import LIMIT, Answer, answer_of
from .pairs import Pair

SLOWEST = 3  # seconds of a processor for a pair of the corpus


def answers(pairs: Iterable[Pair], jobs: int | None = None) -> Iterator[tuple[Pair, Answer, float]]:
    """The pairs in order, with their answers and the CPU time in seconds that each took."""
    todo = list(pairs)
    gc.set_threshold(100_000)  # as in klsym.cli.command
    with multiprocessing.get_context("fork").Pool(jobs or os.cpu_count()) as pool:
        for done, (pair, (answer, seconds)) in enumerate(
            zip(todo, pool.imap(answered, todo, chunksize=4), strict=True)
        ):
            if sys.stderr.isatty() and done % 20 == 0:
                print(f"\r{done} of {len(todo)}", end="", file=sys.stderr, flush=True)
            yield pair, answer, seconds
    if sys.stderr.isatty():
        print("\r", end="", file=sys.stderr)


def answered(pair: Pair, limit: float = LIMIT) -> tuple[Answer, float]:
    """One answer, and the CPU time it took."""
    start = time.process_time()
    answer = answer_of(pair.text, dict(pair.options), pair.parameters, limit)
    return answer, time.process_time() - start
