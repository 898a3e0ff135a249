"""Processes beside this one, for work that does not wait for other work."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager


def count_cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def open_workers() -> Iterator[Executor]:
    """As many processes as there are cores, ended with the block, whatever ends it.

    >>> with open_workers() as pool:
    ...     print(pool.submit(abs, -3).result())
    3

    They start afresh (spawn), so that a program that asks for them needs its `if __name__ == "__main__"`.
    """
    before = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(count_cores(), mp_context=context, initializer=_end_silently)
    try:
        yield pool
    except BaseException:
        for process in set(multiprocessing.active_children()) - before:
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _end_silently() -> None:
    """Ctrl-C reaches every process of a terminal; one of them says so."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
