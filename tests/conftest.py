"""Settings shared by the tests: hypothesis is deterministic, a test that asks for it may not hang, and
nothing depends on what a shell hands down."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import json
import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest
from hypothesis import settings

from support.scale import scaled

if TYPE_CHECKING:
    from klsym.study.ledger.settle_claim import Settled

settings.register_profile("klsym", derandomize=True, deadline=None, max_examples=scaled(60, 20))
settings.load_profile("klsym")

# what changes how klsym's processes print, and how wide
HANDED_DOWN = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "MPLBACKEND", "PYTHONIOENCODING", "PYTHONUTF8",
               "PYTHONWARNINGS", "PYTHONOPTIMIZE", "PYTHONUNBUFFERED", "PYTHONVERBOSE")  # fmt: skip


# Modules that import a package at their top: --doctest-modules would import them anywhere.  They are left out
# where it is not installed, by name: a module that cannot be imported for another reason is an error.
NEEDS = {
    "klsym/measure/jax_library.py": "jax",
    "klsym/measure/networks.py": "torch",
    "klsym/measure/sampled.py": "torch",
    "klsym/measure/torch_library.py": "torch",
    "tests/support/audits/audited.py": "torch",
    "tests/support/audits/audited_jax.py": "jax",
    "tests/support/audits/measured.py": "torch",
    "tests/support/audits/measured_jax.py": "jax",
    "tests/support/audits/shapes.py": "torch",
    "tests/support/judges/autograd_trees.py": "torch",
    "tests/support/measured/losses.py": "torch",
    "tests/support/measured/typed_losses.py": "torch",
}
LEFT_OUT = {name for name, package in NEEDS.items() if importlib.util.find_spec(package) is None}


SKIPPED = "klsym/skipped"  # in pytest's cache: the tests and files that the last run of each skipped


class _LeftOut:
    """A plugin, as the hooks of this file are asked about tests/ alone."""

    def pytest_ignore_collect(self, collection_path: Path, config: pytest.Config) -> bool | None:
        """Leave out modules that cannot be imported, and with --skipped-before what earlier runs ran."""
        if not (collection_path.is_file() and collection_path.is_relative_to(config.rootpath)):
            return None
        name = collection_path.relative_to(config.rootpath).as_posix()
        is_done = config.getoption("--skipped-before") and name not in {
            node.split("::")[0] for node in config.cache.get(SKIPPED, [])
        }  # a run without pytest's cache has no option to ask for it
        return True if name in LEFT_OUT or is_done else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--skipped-before",
        action="store_true",
        help="run only what earlier runs skipped for want of a package",
    )
    parser.addoption(
        "--share",
        type=int,
        default=1,
        metavar="N",
        help="of every table run one case in N, with the first",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the cases that are for `make test-all`, and those that no earlier run skipped."""
    cases = Counter[str]()  # of each test, so far
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    of_all: int = config.getoption("--share")
    for item in items:
        test, share = item.nodeid.partition("[")[0], item.get_closest_marker("share")
        one_in = max(of_all, scaled(1, *share.args) if share else 1)
        drawn = crc32(item.nodeid.encode()) % one_in == 0
        (kept if drawn or not cases[test] else left).append(item)
        cases[test] += 1
    items[:] = kept
    config.hook.pytest_deselected(items=left)
    if config.getoption("--skipped-before"):
        skipped = set(config.cache.get(SKIPPED, []))
        items[:] = [item for item in items if {item.nodeid, item.nodeid.split("::")[0]} & skipped]


def pytest_collection_finish() -> None:
    """Leave what is there before the first test, which nothing frees, out of each collection of garbage."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Remember what was skipped, for `--skipped-before`."""
    cache, stats = getattr(terminalreporter.config, "cache", None), terminalreporter.stats
    if cache is None:
        return
    ran = {report.nodeid for kind in ("passed", "failed") for report in stats.get(kind, ())}
    now = {report.nodeid for report in stats.get("skipped", ())} | LEFT_OUT
    files = {name.split("::")[0] for name in ran}
    cache.set(SKIPPED, sorted(set(cache.get(SKIPPED, [])) - ran - files | now))


def pytest_configure(config: pytest.Config) -> None:
    """`nohup make test &` hands down an ignored SIGINT, and others block it; processes inherit both.

    What commands keep between runs is kept for this run alone, in a folder that all its processes share.
    """
    config.pluginmanager.register(_LeftOut())
    if not _is_worker():
        os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="klsym-tests-")
    for name in HANDED_DOWN:
        os.environ.pop(name, None)
    for name in (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
    ):  # one a worker: threads that wait for one another
        os.environ.setdefault(name, "1")  # take the processors from the other workers
    gc.set_threshold(100_000)  # as in klsym.cli.command
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def pytest_unconfigure() -> None:
    if not _is_worker():
        shutil.rmtree(os.environ["XDG_CACHE_HOME"], ignore_errors=True)


def _is_worker() -> bool:
    return "PYTEST_XDIST_WORKER" in os.environ


@pytest.fixture(scope="session")
def proofs_settled() -> dict[str, Settled]:
    """Every claim but the experiments, which take a minute, settled once."""
    from klsym.study.ledger.registry import (
        load,  # not at the top: most tests need neither the engine nor SymPy
    )
    from klsym.study.ledger.settle_claim import recall

    return {id: recall(id) for id, claim in load().items() if claim.verdict != "computed"}


@pytest.fixture
def without_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands answer in this process, with what earlier tests imported and computed.

    Otherwise each copies this process, which is ended at the time limit: tests/commands/test_time_limits.py.
    """
    from klsym.commands import timed

    def answer(seconds: float, work: Callable[[], int], modules: tuple[str, ...] = ()) -> Any:
        return json.loads(json.dumps(timed._make_reply(work)))

    monkeypatch.setattr(timed, "run_within", answer)


@pytest.fixture
def forked_audits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users' code runs in copies of this process, which has imported what a new one would import."""
    from support.forked import fork_processes

    fork_processes(monkeypatch)


@contextlib.contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    """Of processor time, as other work on a machine is no fault of the block; or ten times that, waited."""

    def stop(*_: Any) -> None:
        pytest.fail(f"no answer within {seconds} s", pytrace=False)

    clocks = {
        signal.SIGPROF: (signal.ITIMER_PROF, seconds),
        signal.SIGALRM: (signal.ITIMER_REAL, 10 * seconds),
    }
    before = {number: signal.signal(number, stop) for number in clocks}
    for clock, limit in clocks.values():
        signal.setitimer(clock, limit)
    try:
        yield
    finally:
        for number, (clock, _) in clocks.items():
            signal.setitimer(clock, 0)
            signal.signal(number, before[number])


@pytest.fixture(scope="session")
def at_most() -> Callable[[int], Any]:
    """`with at_most(5): ...` fails the test when the block takes more than 5 seconds of a processor."""
    return _at_most
