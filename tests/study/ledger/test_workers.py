"""Work in other processes: the same answers, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from klsym.experiments import background_runs as ahead
from klsym.experiments import catalogue
from klsym.study.ledger.processes import open_workers
from klsym.study.ledger.registry import Claim
from klsym.study.ledger.settle_all import settle_all
from support.sampling_tasks import fails

NAMES = ["tm-fig1", "tm-fig2"]  # the quick ones


def test_experiments_run_elsewhere_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "count_cores", lambda: 2)
    here = {name: catalogue.result(name).table() for name in NAMES}
    catalogue.result.cache_clear()
    with ahead.ahead(NAMES) as made:
        monkeypatch.setattr(catalogue, "_function", lambda place: pytest.fail("run here"))
        assert {name: catalogue.result(name).table() for name in NAMES} == here
        assert made(NAMES[0]) is None
    assert catalogue.ELSEWHERE == {}


def test_what_waits_for_others_is_settled_last_and_listed_in_its_place() -> None:
    begun: list[str] = []
    claims = [Claim(f"x.{n}", verdict, "", "", lambda n=n: begun.append(n)) for n, verdict in
              (("a", "computed"), ("b", "proved"), ("c", "computed"), ("d", "exact"))]  # fmt: skip
    assert [one.settled.claim.id for one in settle_all(claims)] == ["x.a", "x.b", "x.c", "x.d"]
    assert begun == ["b", "d", "a", "c"]


def test_a_failure_elsewhere_is_raised_where_it_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "count_cores", lambda: 2)
    with ahead.ahead(NAMES, fails) as made, pytest.raises(ValueError, match="no tm-fig2"):
        made("tm-fig2")
    with ahead.ahead(["tm-fig1"], fails) as made, pytest.raises(ValueError, match="no tm-fig1"):
        made("tm-fig1")


def test_what_ends_the_block_ends_the_work() -> None:
    before = time.monotonic()
    with pytest.raises(KeyError), open_workers() as pool:
        future = pool.submit(os.getpid)
        for _ in range(8):
            pool.submit(time.sleep, 300)
        assert future.result() != os.getpid()
        raise KeyError
    assert time.monotonic() - before < 100


def test_ctrl_c_ends_all_of_it_in_one_line() -> None:
    """As a terminal sends it: to every process of the group."""
    process = subprocess.Popen(
        [sys.executable, "-m", "klsym", "prove", "experiment.tm-fig3", "experiment.tm-fig4"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    time.sleep(5)
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "klsym: interrupted\n")
