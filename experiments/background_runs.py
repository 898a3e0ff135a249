"""Experiments in processes of their own, while this one settles what does not rest on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from klsym.experiments.catalogue import ELSEWHERE, EXPERIMENTS, result
from klsym.study.ledger.processes import count_cores, open_workers
from klsym.study.ledger.registry import Claim

# Begun first, so that nothing long is left to the end.
LONGEST = ("tm-fig3", "tm-fig4", "tm-fig8", "reward-collapse")


def of_claims(claims: Iterable[Claim]) -> list[str]:
    """The experiments that these claims rest on."""
    names = [claim.id.removeprefix("experiment.") for claim in claims if claim.verdict == "computed"]
    return [name for name in names if name in EXPERIMENTS]


def run(name: str) -> tuple[Any, None]:
    """The data of an experiment, and nothing made of it."""
    return result(name), None


@contextmanager
def ahead(
    names: list[str], work: Callable[[str], tuple[Any, Any]] = run, here: bool = False
) -> Iterator[Callable[[str], Any]]:
    """Within the block `result` waits for what other processes run; yields what waits for what they made.

    names: of experiments.  work: gives the data and what is made of it; both, and the function, must be
    possible to pickle.  here: in this process after all, which also does where there is nothing to share.
    """
    if here or len(names) < 2 or count_cores() < 2:
        yield lambda name: work(name)[1]
        return
    with open_workers() as pool:
        running = {name: pool.submit(work, name) for name in sorted(names, key=[*LONGEST, *names].index)}
        ELSEWHERE.update({name: partial(_data, future) for name, future in running.items()})
        try:
            yield lambda name: running[name].result()[1]
        finally:
            for name in running:
                ELSEWHERE.pop(name, None)


def _data(future: Any) -> Any:
    return future.result()[0]
