"""Chunks computed by the workers of a Dask cluster, given back in order.

At most a window of chunks is handed out at any time, so that memory does not grow with their number.
Dask computes a chunk again when its worker dies; the chunk's own stream makes that harmless.
"""

from __future__ import annotations

import asyncio
import contextlib
import pkgutil
import re
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from klsym.errors import KlsymError, UsageError
from klsym.study.sampling.streams import Chunk, Plan

CONNECT = 5  # seconds until a scheduler must answer, and have a worker
LOST = 60  # seconds that a run waits for new workers once it has lost all
AHEAD = 4  # chunks handed out for each thread of the cluster
RETRIES = 2  # of a chunk whose task failed; those lost with a worker are not counted
ADDRESS = re.compile(r"(tcp|tls)://(\[[0-9a-fA-F:.]+\]|[\w.-]+):(?P<port>\d{1,5})", re.ASCII)
SAME = ("klsym:__version__", "numpy:__version__")  # NumPy may change a generator's numbers

Jobs = Sequence[tuple[Callable[[Chunk], Any], Plan]]
Part = tuple[int, Chunk, Any]  # number of the job, chunk, result


@dataclass(frozen=True)
class _Failed:
    """A KlsymError on its way home: returned, not raised, so that Dask neither retries nor reports it."""

    error: KlsymError


def _try_task(task: bytes, chunk: Chunk) -> Any:
    """Runs on a worker.  Given the task itself, a worker that cannot load it would be lost."""
    from distributed.protocol import pickle

    try:
        function = pickle.loads(task)
    except (ImportError, AttributeError) as error:
        return _Failed(UsageError(f"a worker cannot load the task: {_join_lines(error)}"))
    try:
        return function(chunk)
    except KlsymError as error:
        return _Failed(error)


def on_cluster(jobs: Jobs, address: str) -> Generator[Part]:
    """The results of all chunks of all jobs, in order.  Closing it cancels what is handed out.

    address: "tcp://host:port" of a Dask scheduler.  Errors: see `klsym.study.sampling.runner.run`.
    """
    client = open_client(address)
    name = f"klsym-{uuid.uuid4().hex}"  # a new one each time: Dask takes equal names for the same result
    waiting: deque[Part] = deque()
    window = renewal = 0
    try:
        for order, (number, task, chunk) in enumerate(_list_chunks(jobs)):
            if order >= renewal:  # workers may have come or gone
                window = max(8, AHEAD * sum(client.nthreads().values()))
                renewal = order + window
            key = f"{name}-{order}"
            future = client.submit(_try_task, task, chunk, key=key, pure=False, retries=RETRIES)
            waiting.append((number, chunk, future))
            if len(waiting) >= window:
                yield from _wait_for_results(client, waiting, address)
        while waiting:
            yield from _wait_for_results(client, waiting, address)
    finally:
        with contextlib.suppress(Exception):  # the cluster may be gone
            client.cancel([future for _, _, future in waiting], force=True)
        with contextlib.suppress(Exception):
            client.close(timeout=CONNECT)


def _list_chunks(jobs: Jobs) -> Iterator[tuple[int, bytes, Chunk]]:
    from distributed.protocol import pickle

    for number, (task, plan) in enumerate(jobs):
        packed = pickle.dumps(task)
        for chunk in plan.list_chunks():
            yield number, packed, chunk


def _wait_for_results(client: Any, waiting: deque[Part], address: str) -> Iterator[Part]:
    """The oldest result, waited for, and those right behind it that are there too, in one transfer."""
    oldest = waiting[0][1]
    try:
        _wait(client, waiting[0][2], address)
        ready = [waiting.popleft()]
        while ready[-1][2].status == "finished" and waiting and waiting[0][2].status == "finished":
            ready.append(waiting.popleft())
        results = client.gather([future for _, _, future in ready])
    except Exception as error:
        raise _explain_error(error, oldest, address) from None
    for (number, chunk, _), result in zip(ready, results, strict=True):
        if isinstance(result, _Failed):
            raise result.error
        yield number, chunk, result


def _wait(client: Any, future: Any, address: str) -> None:
    """Until a future is done, or cannot become so: the scheduler is gone, or stays without workers."""
    from distributed import wait

    alone = 0
    while not future.done():
        with contextlib.suppress(TimeoutError), client.as_current():
            wait(future, timeout=CONNECT)
            return
        if client.status != "running":
            raise UsageError(f"scheduler {address}: it stopped during the run")
        alone = 0 if client.nthreads() else alone + CONNECT
        if alone >= LOST:
            raise UsageError(f"scheduler {address}: it lost all its workers and got no new ones")


def _explain_error(error: Exception, chunk: Chunk, address: str) -> Exception:
    """What failed on the cluster itself, in one line; errors of the task stay as they are."""
    from distributed import CancelledError, KilledWorker

    if isinstance(error, KilledWorker):
        reason = f"chunk {chunk.index} ended every worker that took it, perhaps for want of memory"
        return UsageError(f"scheduler {address}: {reason}")
    if isinstance(error, CancelledError):
        return UsageError(f"scheduler {address}: the run was cancelled there, or the scheduler stopped")
    return error


# ---------------------------------------------------------------------------- connecting
def open_client(address: str) -> Any:
    """A Dask client of a scheduler that answers and whose workers have the same versions as this process.

    Raises UsageError: Dask not installed, a malformed address, no scheduler or no worker within seconds.
    """
    matched_address = ADDRESS.fullmatch(address)
    if not matched_address or not 0 < int(matched_address["port"]) < 2**16:
        raise UsageError(f'scheduler {address!r}: an address such as "tcp://host:8786" expected')
    try:
        from distributed import Client
    except ImportError:
        raise UsageError('scheduler: Dask is not installed; try: pip install "klsym[dask]"') from None
    _refuse_unless_scheduler(address)
    client = Client(address, timeout=CONNECT, set_as_default=False)
    try:
        client.wait_for_workers(1, timeout=CONNECT)
        _refuse_other_versions(client, address)
    except TimeoutError:
        client.close()
        hint = f"start one: dask worker {address}"
        raise UsageError(f"scheduler {address}: it has no workers; {hint}") from None
    except BaseException:
        client.close()
        raise
    return client


def _refuse_unless_scheduler(address: str) -> None:
    """Ask who answers: Client would wait forever for a server that takes a call and says nothing."""
    with ThreadPoolExecutor(1) as pool:  # a notebook has a running event loop in its main thread
        try:
            who = pool.submit(asyncio.run, _identity(address)).result()
        except Exception:  # what another kind of server says can fail in any way
            raise UsageError(f"scheduler {address}: no Dask scheduler answers there") from None
    if who.get("type") != "Scheduler":
        raise UsageError(f"scheduler {address}: a Dask {who.get('type')} answers there, no scheduler")


async def _identity(address: str) -> Any:
    from distributed import Security, rpc

    async def ask() -> Any:
        async with rpc(address, connection_args=Security().get_connection_args("client")) as server:
            return await server.identity()

    return await asyncio.wait_for(ask(), CONNECT)


def _refuse_other_versions(client: Any, address: str) -> None:
    for name in SAME:
        package, local_version = name.partition(":")[0], pkgutil.resolve_name(name)
        # A function of the standard library: a worker without klsym could not load one of ours.
        for worker_versions in client.run(pkgutil.resolve_name, name, on_error="return").values():
            if isinstance(worker_versions, Exception):
                raise UsageError(
                    f"scheduler {address}: a worker cannot load {package}: {_join_lines(worker_versions)}"
                )
            if worker_versions != local_version:
                raise UsageError(
                    f"scheduler {address}: a worker has {package} {worker_versions}; "
                    f"here it is {local_version}"
                )


def _join_lines(error: Exception) -> str:
    return " ".join(str(error).split())
