"""Runs of a task over the chunks of a plan, here or on a Dask cluster, to the same bits.

    result = task(chunk_0).merge(task(chunk_1)).merge(task(chunk_2))...

Results are merged in the order of the chunks whatever order they arrive in, and a chunk's numbers depend
on its own stream only.  So the result has the same bits here and on any number of workers that have the
same versions and the same kind of processor, also when workers die on the way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, Self, TypeVar, cast

from klsym.errors import UsageError
from klsym.study.sampling.cluster import on_cluster
from klsym.study.sampling.streams import Chunk, Plan


class Mergeable(Protocol):
    """What a task returns: anything that can be merged with what the next chunk gave."""

    def merge(self, other: Self, /) -> Self: ...


Result = TypeVar("Result", bound=Mergeable)
Task = Callable[[Chunk], Result]
Heard = Callable[[int, int], Any]  # how far a run is: samples done, of all


def run(
    task: Task[Result], plan: Plan, *, scheduler: str | None = None, progress: Heard | None = None
) -> Result:
    """The merged results of a task over all chunks of a plan, in constant memory.

        task(chunk_0).merge(task(chunk_1)).merge(task(chunk_2))...

    >>> import math
    >>> from klsym.study.sampling.backends import choose_backend
    >>> from klsym.study.sampling.streams import Stream
    >>> from klsym.study.sampling.sample_means import SampleMeans
    >>> def squares(chunk):
    ...     z = choose_backend().draw_normals(chunk.stream, (1, chunk.size))
    ...     return SampleMeans.from_rows(z**2, choose_backend())
    >>> found = run(squares, Plan(100_000, Stream(0), chunk=10_000))
    >>> found.count, bool(abs(found.mean[0] - 1) < 5 * math.sqrt(2 / found.count))
    (100000, True)

    task: its result depends on the chunk alone.  For a cluster it must be possible to pickle it.
    scheduler: None for this process, or the address of a running Dask scheduler, "tcp://host:8786"; its
    workers run the task, so take one you trust.
    progress: called as progress(done, total), in samples, after each chunk.
    Raises whatever the task raises, for the first such chunk; UsageError: Dask not installed, a malformed
    address, no scheduler or no worker within seconds, workers that cannot load or survive a chunk.
    """
    return run_all([(task, plan)], scheduler=scheduler, progress=progress)[0]


def run_all(
    jobs: Sequence[tuple[Task[Result], Plan]],
    *,
    scheduler: str | None = None,
    progress: Heard | None = None,
) -> list[Result]:
    """Many runs at once: the chunks of all jobs go to the cluster together, and the results keep order.

    >>> from klsym.study.sampling.streams import Stream
    >>> class Sizes(list):
    ...     merge = list.__add__
    >>> run_all([(lambda chunk: Sizes([chunk.size]), Plan(n, Stream(0), chunk=4)) for n in (3, 7)])
    [[3], [4, 3]]

    jobs: pairs (task, plan).  Everything else is as for `run`.
    """
    merged: list[Result | None] = [None] * len(jobs)
    finished_samples, total = 0, sum(plan.samples for _, plan in jobs)
    # Closed at once when anything fails here, Ctrl-C included: that cancels what is still running.
    with contextlib.closing(_run_here(jobs) if scheduler is None else on_cluster(jobs, scheduler)) as parts:
        for number, chunk, result in parts:
            before = merged[number]
            merged[number] = result if before is None else before.merge(result)
            finished_samples += chunk.size
            if progress is not None:
                progress(finished_samples, total)
    return cast(list[Result], merged)


def _run_here(jobs: Sequence[tuple[Task[Any], Plan]]) -> Generator[tuple[int, Chunk, Any]]:
    """(number of the job, chunk, result), in order."""
    for number, (task, plan) in enumerate(jobs):
        for chunk in plan.list_chunks():
            yield number, chunk, _with_memory(task, chunk)


def _with_memory(task: Task[Any], chunk: Chunk) -> Any:
    """Return task(chunk); a device without enough memory is a UsageError, whichever package says so."""
    try:
        return task(chunk)
    except RuntimeError as error:  # torch.OutOfMemoryError; JAX's starts with RESOURCE_EXHAUSTED
        if type(error).__name__ != "OutOfMemoryError" and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise UsageError(
            "the device has too little free memory; end what else runs on it, or take --device cpu"
        ) from error
