"""Runs here and on a Dask cluster of processes: the same bits, whatever happens on the way."""

from __future__ import annotations

import functools
import importlib
import socket
import sys
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest

from klsym.errors import Refused, UsageError
from klsym.study.sampling import cluster as module
from klsym.study.sampling.runner import run, run_all
from klsym.study.sampling.sample_means import SampleMeans
from klsym.study.sampling.streams import Plan, Stream
from support.sampling_tasks import DiesOnce, Draws, FailsOnce, Late, Order, Refuses, buggy, deadly, slow
from support.sampling_tasks import refuses_with_a_place as refuses_there

PLAN = Plan(60_000, Stream(5), chunk=5000)


def steps(count: int) -> Plan:
    """A plan of that many chunks."""
    return Plan(count, Stream(0), chunk=1)


def bits(means: SampleMeans) -> tuple[int, str]:
    return means.count, means.mean.tobytes().hex()


# ---------------------------------------------------------------------------- in this process
def test_results_are_merged_in_the_order_of_the_chunks():
    parts = [Draws()(chunk) for chunk in PLAN.list_chunks()]
    assert len(parts) == 12
    assert bits(run(Draws(), PLAN)) == bits(functools.reduce(SampleMeans.merge, parts))
    assert run(lambda chunk: Order([chunk.index]), steps(9)) == list(range(9))


def test_the_numbers_depend_on_seed_samples_and_chunk():
    reference = bits(run(Draws(), PLAN))
    assert bits(run(Draws(), Plan(60_000, Stream(5), chunk=5000))) == reference
    for other in (
        Plan(60_000, Stream(6), 5000),
        Plan(60_001, Stream(5), 5000),
        Plan(60_000, Stream(5), 4000),
    ):
        assert bits(run(Draws(), other)) != reference


def test_many_runs_keep_their_order():
    jobs = [(Draws(), PLAN), (Draws(), Plan(777, Stream(8))), (Draws(), PLAN)]
    assert [bits(found) for found in run_all(jobs)] == [bits(run(*job)) for job in jobs]
    assert run_all([]) == []


def test_progress_counts_samples_over_all_runs():
    seen = []
    jobs = [(lambda chunk: Order([chunk.index]), Plan(n, Stream(0), chunk=4)) for n in (9, 2)]
    run_all(jobs, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(4, 11), (8, 11), (9, 11), (11, 11)]


class Count:
    """Remembers that it was merged, and nothing else."""

    def __init__(self, n: int = 1) -> None:
        self.n, self.ballast = n, bytes(1000)

    def merge(self, other: Count) -> Count:
        return Count(self.n + other.n)


def test_memory_does_not_grow_with_the_number_of_chunks():
    tracemalloc.start()
    try:
        assert run(lambda chunk: Count(), steps(20_000)).n == 20_000
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("task", "error"), [(buggy, ZeroDivisionError), (refuses_there, Refused)])
def test_an_error_here_comes_as_it_is(task, error):
    with pytest.raises(error):
        run(task, steps(5))


class OutOfMemoryError(RuntimeError):
    """As torch.OutOfMemoryError."""


OUT_OF_MEMORY = [
    OutOfMemoryError("Tried to allocate 20 MiB.\nGPU 0"),
    RuntimeError("RESOURCE_EXHAUSTED: Out"),
]


@pytest.mark.parametrize("error", OUT_OF_MEMORY)
def test_a_device_without_memory_is_one_line(error):
    def full(chunk):
        raise error

    with pytest.raises(UsageError, match=r"^the device has too little free memory; .* --device cpu$"):
        run(full, steps(1))


def test_another_runtime_error_is_no_lack_of_memory():
    def broken(chunk):
        raise RuntimeError("shapes differ")

    with pytest.raises(RuntimeError, match="shapes differ"):
        run(broken, steps(1))


# ---------------------------------------------------------------------------- on a cluster
@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    distributed = pytest.importorskip("distributed")
    import dask

    settings = {
        "n_workers": 1,
        "threads_per_worker": 1,
        "processes": True,
        "dashboard_address": ":0",
        "silence_logs": 60,
        "local_directory": str(tmp_path_factory.mktemp("dask")),
    }
    with dask.config.set({"distributed.scheduler.allowed-failures": 1}):  # gives up sooner than by default
        found = distributed.LocalCluster(**settings)
    with found:
        yield found


@pytest.fixture
def address(cluster, at_most):
    with at_most(60):
        yield cluster.scheduler_address


def workers(cluster, count: int) -> None:
    cluster.scale(count)
    with module.open_client(cluster.scheduler_address) as client:
        client.wait_for_workers(count, timeout=30)
        while len(client.nthreads()) > count:
            time.sleep(0.05)


@pytest.fixture
def three(cluster, address):
    workers(cluster, 3)
    return address


def left(address: str) -> list[str]:
    """The chunks that the scheduler still knows."""
    with module.open_client(address) as client:
        return client.run_on_scheduler(lambda dask_scheduler: [str(key) for key in dask_scheduler.tasks])


def test_one_worker_and_three_give_the_bits_of_this_process(cluster, address):
    reference = bits(run(Draws(), PLAN))
    for count in (1, 3):
        workers(cluster, count)
        assert bits(run(Draws(), PLAN, scheduler=address)) == reference
        assert bits(run(Draws(), PLAN, scheduler=address)) == reference  # names do not collide


def test_equal_tasks_run_as_often_as_they_are_asked_for(three, tmp_path):
    jobs = [(Draws(), PLAN), (Late(), steps(7)), (Draws(), PLAN), (Late(), steps(3))]
    seen = []
    found = run_all(jobs, scheduler=three, progress=lambda done, total: seen.append((done, total)))
    assert bits(found[0]) == bits(found[2]) == bits(run(Draws(), PLAN))
    assert [found[1], found[3]] == [list(range(7)), list(range(3))]
    assert len(seen) == 12 + 7 + 12 + 3 and seen[-1] == (120_010, 120_010)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})


def test_two_runs_at_once_do_not_mix(three):
    def shifted(by: int):
        return lambda chunk: Order([*Late()(chunk), by])

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda by: run(shifted(by), steps(30), scheduler=three), (100, 200)))
    assert found == [[x for i in range(30) for x in (i, by)] for by in (100, 200)]


def test_only_a_window_is_handed_out(three, tmp_path):
    ahead = []

    def look(done: int, total: int) -> None:
        if done == 1:
            time.sleep(1)  # long enough for all 100 to start, were they all handed out
        ahead.append(len(list(tmp_path.iterdir())) - done)

    assert run(Late(tmp_path), steps(100), scheduler=three, progress=look) == list(range(100))
    # The results in one transfer are counted one by one: up to a window more.
    assert 0 < max(ahead) <= 2 * max(8, module.AHEAD * 3) and len(ahead) == 100


def test_a_worker_killed_in_the_middle_changes_no_bit(three, tmp_path):
    marker = tmp_path / "killed"
    assert bits(run(DiesOnce(marker), PLAN, scheduler=three)) == bits(run(Draws(), PLAN))
    assert marker.exists()


def test_a_chunk_that_fails_once_is_tried_again(three, tmp_path):
    marker = tmp_path / "failed"
    assert bits(run(FailsOnce(marker), PLAN, scheduler=three)) == bits(run(Draws(), PLAN))
    assert marker.exists()
    with pytest.raises(OSError, match="no space left"):
        run(FailsOnce(tmp_path / "here"), PLAN)


def test_a_chunk_that_kills_every_worker_is_named(three):
    with pytest.raises(UsageError) as refused:
        run(deadly, PLAN, scheduler=three)
    reason = "chunk 1 ended every worker that took it, perhaps for want of memory"
    assert str(refused.value) == f"scheduler {three}: {reason}"


def test_a_refusal_comes_through_in_one_line_for_the_first_chunk(three, tmp_path):
    with pytest.raises(UsageError) as refused:
        run(Refuses(tmp_path), steps(30), scheduler=three)
    assert str(refused.value) == "chunk 3: nothing to average"
    assert refused.value.__cause__ is None and refused.value.__context__ is None
    marks = sorted(path.name[0] for path in tmp_path.iterdir())
    assert marks == ["3", "4"]  # a refusal is not tried again


def test_a_refusal_keeps_what_it_carries(three):
    with pytest.raises(Refused) as refused:
        run(refuses_there, steps(3), scheduler=three)
    assert (refused.value.reason, refused.value.where) == ("no such rule", "chunk 0")
    assert str(refused.value) == "chunk 0: no such rule"


def test_another_error_keeps_its_kind(three):
    with pytest.raises(ZeroDivisionError, match="division"):
        run(buggy, steps(5), scheduler=three)


def test_a_task_that_workers_cannot_load_costs_no_worker(three, monkeypatch, tmp_path):
    (tmp_path / "only_here.py").write_text("def task(chunk): return [chunk.index]\n")
    monkeypatch.syspath_prepend(tmp_path)
    here = importlib.import_module("only_here")
    with pytest.raises(UsageError, match=r"^a worker cannot load the task: No module named 'only_here'$"):
        run(here.task, steps(5), scheduler=three)
    assert run(Late(), steps(3), scheduler=three) == [0, 1, 2]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, RuntimeError])
def test_what_is_handed_out_is_cancelled_when_the_run_stops(three, stop):
    def interrupt(done: int, total: int) -> None:
        raise stop

    start = time.monotonic()
    with pytest.raises(stop):
        run(slow, steps(1000), scheduler=three, progress=interrupt)
    names = [key for key in left(three) if key.startswith("klsym-")]
    assert names == [] and time.monotonic() - start < 1000 * 0.3 / 3


# ---------------------------------------------------------------------------- no cluster
@pytest.mark.parametrize(
    "bad",
    [
        *("", "localhost:8786", "tcp://host", "tcp://:8786", "tcp://host:0", "tcp://host:65536"),
        *("tcp://host:x", "http://host:8786", "tcp://a b:1", "tcp://host:8786/", "tcp://host:8786\n"),
        *("tcp://[::1:8786", "tcp://host:8786 tcp://host:8787"),
    ],
)
def test_a_malformed_address_is_refused(bad):
    with pytest.raises(UsageError, match=r'an address such as "tcp://host:8786" expected$') as refused:
        run(Late(), steps(1), scheduler=bad)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "good", ["tcp://host:8786", "tls://10.0.0.1:1", "tcp://[::1]:65535", "tcp://a-b.c:80"]
)
def test_an_address_is_read(good):
    assert module.ADDRESS.fullmatch(good)


@pytest.fixture
def hasty(monkeypatch, at_most):
    pytest.importorskip("distributed")
    monkeypatch.setattr(module, "CONNECT", 1)
    with at_most(20):
        yield


@pytest.fixture
def server():
    """An address at which something answers that is no scheduler; or nobody."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening, f"tcp://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("answer", [None, b"", b"HTTP/1.1 400 Bad Request\r\n\r\nsome more bytes"])
def test_where_no_scheduler_answers_the_run_is_refused(hasty, server, answer):
    listening, address = server
    kept = []

    def serve() -> None:
        kept.append(listening.accept()[0])
        kept[0].sendall(answer)

    if answer is None:
        listening.close()
    else:
        threading.Thread(target=serve, daemon=True).start()
    with pytest.raises(UsageError) as refused:
        run(Late(), steps(1), scheduler=address)
    assert str(refused.value) == f"scheduler {address}: no Dask scheduler answers there"


def test_a_worker_is_no_scheduler(cluster, three):
    worker = next(iter(cluster.scheduler_info["workers"]))
    with pytest.raises(UsageError, match=r"a Dask Worker answers there, no scheduler$"):
        run(Late(), steps(1), scheduler=worker)


@pytest.mark.parametrize("package", ["klsym", "numpy"])
def test_workers_with_another_version_are_refused(three, monkeypatch, package):
    there = sys.modules[package].__version__
    monkeypatch.setattr(sys.modules[package], "__version__", "0.0.1")
    with pytest.raises(UsageError, match=rf"a worker has {package} {there}; here it is 0\.0\.1$"):
        run(Late(), steps(1), scheduler=three)


def test_without_dask_its_name_is_given(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError) as refused:
        run(Late(), steps(1), scheduler="tcp://127.0.0.1:8786")
    assert str(refused.value) == 'scheduler: Dask is not installed; try: pip install "klsym[dask]"'


# Last, because they take the workers away.
def test_a_run_that_loses_all_workers_says_so(cluster, address, monkeypatch):
    """One worker only: a chunk that outlives two of them is given up for another reason."""
    workers(cluster, 1)
    monkeypatch.setattr(module, "LOST", 1)
    monkeypatch.setattr(module, "CONNECT", 1)
    with pytest.raises(UsageError, match=r"it lost all its workers and got no new ones$"):
        run(slow, steps(1000), scheduler=address, progress=lambda done, total: cluster.scale(0))


def test_a_scheduler_without_workers_is_refused(cluster, hasty):
    cluster.scale(0)
    with pytest.raises(UsageError) as refused:
        run(Late(), steps(1), scheduler=cluster.scheduler_address)
    hint = f"start one: dask worker {cluster.scheduler_address}"
    assert str(refused.value) == f"scheduler {cluster.scheduler_address}: it has no workers; {hint}"
