"""The levels of the catalogue, joined here or on a Dask cluster, to the same result.

A join is cut by the rows of its longer level.  What the parts give is added up, and of two spellings the
first is kept: neither depends on who joined which part, or when.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from klsym.study.questions.loss_enumeration import Across, Join, SizeLevel
from klsym.study.sampling.runner import Heard, run_all
from klsym.study.sampling.streams import Chunk, Plan, Stream

PAIRS = 20_000  # of spellings that one task joins: about a second


@dataclass(frozen=True)
class Part:
    """A join of those rows of its longer level that a chunk stands for."""

    join: Join
    rows: int

    def __call__(self, chunk: Chunk) -> SizeLevel:
        first = chunk.index * self.rows
        return self.join(first, first + chunk.size)


def build_joiner(scheduler: str | None = None, progress: Heard | None = None, pairs: int = PAIRS) -> Across:
    """Joins levels in this process, or on the workers of a Dask scheduler.

    >>> from klsym.study.questions.loss_enumeration import levels
    >>> levels(5, build_joiner(pairs=100)) == levels(5)
    True

    Errors: see `klsym.study.sampling.runner.run`.
    """

    def run_joins(joins: Sequence[Join]) -> SizeLevel:
        jobs = [_build_job(join, max(1, pairs // len(join.short))) for join in joins]
        return reduce(SizeLevel.merge, run_all(jobs, scheduler=scheduler, progress=progress), SizeLevel())

    return run_joins


def _build_job(join: Join, rows: int) -> tuple[Part, Plan]:
    return Part(join, rows), Plan(len(join.long), Stream(0), chunk=rows)
