"""The catalogue on a Dask cluster: one worker, two workers and this process give the same.

The workers are threads that speak TCP; what becomes of those in processes is tested with the runner.
"""

from __future__ import annotations

import pytest

from klsym.study.questions.catalogue import catalogue, write_catalogue
from klsym.study.questions.loss_enumeration import levels
from klsym.study.sampling.cluster import open_client
from klsym.study.sampling.enumeration import build_joiner

SIZE = 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    distributed = pytest.importorskip("distributed")
    folder = str(tmp_path_factory.mktemp("dask"))
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=":0",
        silence_logs=60, local_directory=folder,
    ) as found:  # fmt: skip
        yield found


def test_the_number_of_workers_changes_nothing(cluster, at_most):
    reference = levels(SIZE)
    text = write_catalogue(catalogue(reference))
    with at_most(90):
        for count in (1, 2):
            cluster.scale(count)
            with open_client(cluster.scheduler_address) as client:
                client.wait_for_workers(count, timeout=30)
            found = levels(SIZE, build_joiner(cluster.scheduler_address, pairs=400))
            assert found == reference
            assert write_catalogue(catalogue(found)) == text


@pytest.mark.parametrize("pairs", [1, 333, 10**6])
def test_how_it_is_cut_changes_nothing(pairs):
    seen = []
    found = levels(SIZE, build_joiner(progress=lambda done, total: seen.append((done, total)), pairs=pairs))
    assert found == levels(SIZE) and [level.rows for level in found] == [level.rows for level in levels(SIZE)]
    assert seen[-1][0] == seen[-1][1]
