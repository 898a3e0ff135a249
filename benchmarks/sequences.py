"""How the exact oracle for sequences scales: dynamic programming against enumeration.  Prints two tables.

    python benchmarks/sequences.py --repeats 5

First, the time of each programme at growing max_length, a step, in units of its time a step at the
largest: 1.0 everywhere is linear time.  Then the time of enumerating all sequences, in units of the
programme's, for as long as there are few enough.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from tqdm import tqdm

from klsym.study.sequences.autoregressive import (
    Autoregressive,
    compute_expectation,
    compute_sequence_kl,
    compute_token_log_probabilities,
    compute_token_scores,
    random_autoregressive,
)
from klsym.study.sequences.sequence_fields import (
    compute_forward_kl,
    compute_kl_variances,
    compute_length_gradients,
    compute_weighted_token_gradient,
)

LENGTHS = (10, 100, 1000, 10_000)
ENUMERATED = (4, 6, 8, 10, 12)
VOCABULARY, MEMORY = 2, 1
Models = tuple[Autoregressive, Autoregressive, Autoregressive]


def models(length: int) -> Models:
    """Three random models that rarely stop, so that all steps are reached."""
    found = [random_autoregressive(seed, VOCABULARY, MEMORY, length) for seed in range(3)]
    q, p, mu = (Autoregressive(m.logits - [0.0, 0.0, 6.0], MEMORY, length) for m in found)
    return q, p, mu


def ratios(q: Autoregressive, p: Autoregressive, y: Any) -> Any:
    return compute_token_log_probabilities(q, y) - compute_token_log_probabilities(p, y)


def inverse_lengths(q: Autoregressive, y: Any) -> Any:
    return compute_token_scores(q, y).sum(axis=1) / y.lengths[:, None, None]


PROGRAMMES: dict[str, tuple[Callable[[Models], Any], Callable[[Models], Any] | None]] = {
    "sequence_kl": (
        lambda m: compute_sequence_kl(m[0], m[1])[1],
        lambda m: compute_expectation(m[0], lambda y: np.einsum(
            "n,ntsa->nsa", ratios(m[0], m[1], y).sum(axis=1), compute_token_scores(m[0], y)
        )),
    ),
    "forward_kl": (
        lambda m: compute_forward_kl(m[0], m[1])[1],
        lambda m: -compute_expectation(m[1], lambda y: compute_token_scores(m[0], y).sum(axis=1)),
    ),
    "token_weighted_field": (
        lambda m: compute_weighted_token_gradient(*m),
        lambda m: compute_expectation(m[2], lambda y: np.einsum(
            "nt,ntsa->nsa", np.exp(ratios(m[0], m[2], y)) * ratios(m[0], m[1], y),
            compute_token_scores(m[0], y)
        )),
    ),
    "length_gradient": (
        lambda m: compute_length_gradients(m[0]).inverse_gradient,
        lambda m: compute_expectation(m[0], lambda y: inverse_lengths(m[0], y)),
    ),
    "kl_variances": (
        lambda m: compute_kl_variances(m[0], m[1]).sampled,
        lambda m: compute_expectation(
            m[0], lambda y: (ratios(m[0], m[1], y).sum(axis=1) - compute_sequence_kl(m[0], m[1])[0]) ** 2
        ),
    ),
}  # fmt: skip


def least_time(task: Callable[[], Any], repeats: int) -> float:
    """The least of several wall-clock times, seconds: what else runs here only ever adds."""
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        task()
        found.append(time.perf_counter() - start)
    return min(found)


def measured(lengths: tuple[int, ...], which: int, repeats: int) -> dict[str, list[float]]:
    names = [name for name, pair in PROGRAMMES.items() if pair[which] is not None]
    found: dict[str, list[float]] = {name: [] for name in names}
    for name in tqdm(names, disable=not sys.stderr.isatty()):
        task: Any = PROGRAMMES[name][which]
        for length in lengths:
            given = models(length)
            found[name].append(least_time(lambda task=task, given=given: task(given), repeats))
    return found


def show(title: str, lengths: tuple[int, ...], rows: dict[str, list[float]]) -> None:
    print(f"{title:<42}" + "".join(f"{length:>10}" for length in lengths))
    for name, row in rows.items():
        print(f"  {name:<40}" + "".join(f"{value:>10.3g}" for value in row))
    print()


def disagreement() -> float:
    """The largest relative difference between programme and enumeration, over what the tables time."""
    worst = 0.0
    for length in ENUMERATED:
        given = models(length)
        for programme, enumeration in PROGRAMMES.values():
            if enumeration is not None:
                found, expected = np.asarray(programme(given)), np.asarray(enumeration(given))
                worst = max(worst, float(np.abs(found - expected).max() / (1 + np.abs(expected).max())))
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=5, help="times each task is run, at least 1")
    repeats = max(1, parser.parse_args().repeats)
    print(f"vocabulary {VOCABULARY}, memory {MEMORY}\n")
    long = measured(LENGTHS, 0, repeats)
    steps = {
        n: [x / t / (row[-1] / LENGTHS[-1]) for x, t in zip(row, LENGTHS, strict=True)]
        for n, row in long.items()
    }
    show(f"time a step / time a step at {LENGTHS[-1]}", LENGTHS, steps)
    kl = {name: [x / y for x, y in zip(row, long["sequence_kl"], strict=True)] for name, row in long.items()}
    show("time / time of sequence_kl", LENGTHS, kl)
    short, every = measured(ENUMERATED, 0, repeats), measured(ENUMERATED, 1, repeats)
    ratio = {name: [x / y for x, y in zip(row, short[name], strict=True)] for name, row in every.items()}
    show("time of enumeration / time of the programme", ENUMERATED, ratio)
    worst = disagreement()
    print(f"largest difference between both, relative to 1 + the largest entry: {worst:.1e}")
    return 0 if worst < 1e-12 else 1


if __name__ == "__main__":
    raise SystemExit(main())
