"""The pictures of centring and of sequences: their numbers against literal sums."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from klsym.experiments.pictures import batches, sequences
from klsym.numeric.models import FiniteModel
from klsym.study.ledger.settle_claim import recall
from klsym.study.sequences.autoregressive import Autoregressive, random_autoregressive

NAMES = {"none": "no-centering", "mean": "mean-centering", "leave-one-out": "leave-one-out"}
SMALL = FiniteModel(q=["1/2", "1/4", "1/4"], p=["1/4", "1/4", "1/2"], u=[1, 0, 0])


def proof(name: str, part: int = 0) -> Any:
    return recall(name).proofs[part]


def estimates(name: str, size: int) -> tuple[Any, Any]:
    """The estimate for every batch, shape (batches, outcomes), and the probability of the batch."""
    q, p = (np.array([float(x) for x in row]) for row in (SMALL.q, SMALL.p))
    k, scores, rows, weights = np.log(q / p), np.eye(3) - q, [], []
    for batch in product(range(3), repeat=size):
        values = k[list(batch)]
        centre = {"none": 0 * values, "mean": 0 * values + values.mean()}.get(name)
        if centre is None:
            centre = (values.sum() - values) / (size - 1)
        rows.append(((values - centre)[:, None] * scores[list(batch)]).mean(axis=0))
        weights.append(q[list(batch)].prod())
    return np.array(rows), np.array(weights)


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("name", NAMES)
def test_the_share_that_is_left(name: str, size: int) -> None:
    rows, weights = estimates(name, size)
    q, p = (np.array([float(x) for x in row]) for row in (SMALL.q, SMALL.p))
    gradient = (q * np.log(q / p)) @ (np.eye(3) - q)
    expected = (weights @ rows) @ gradient / (gradient @ gradient)
    found = batches.share_left(proof(f"batch.{NAMES[name]}"), proof("batch.no-centering"), SMALL, size)
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_ratio_of_variances(size: int) -> None:
    total = {}
    for name in ("none", "leave-one-out"):
        rows, weights = estimates(name, size)
        total[name] = (weights @ (rows - weights @ rows) ** 2).sum()
    gain = proof("variance.loo-not-always-better")
    found = batches.variance_ratio(proof("variance.loo"), gain, SMALL, size)
    assert found == pytest.approx(total["leave-one-out"] / total["none"], rel=1e-10)


def test_products_of_log_ratios_and_scores() -> None:
    """One token or stop, at most two steps that are drawn: every E_q[l_u s_t] by hand."""
    q, p = (Autoregressive([[a, 0.0], [b, 0.0]], 1, 3) for a, b in ((0.3, -0.4), (-0.2, 0.5)))
    (first, stop), (second, _) = q.probabilities
    (one, none), (two, nought) = q.log_probabilities - p.log_probabilities
    s1 = np.array([[stop, -stop], [0, 0]])  # after the token; after stop it is its negative, by first/stop
    last = first * (second * two + (1 - second) * nought)  # E[l_2 | token] P(token)
    expected = {
        (0, 0): first * one * s1 - stop * none * s1 * first / stop,
        (0, 1): last * s1,
        (1, 0): 0 * s1,
        (1, 1): first * second * (1 - second) * (two - nought) * np.array([[0, 0], [1, -1]]),
    }
    found = sequences.products(q, p)
    for (t, u), value in expected.items():
        assert found[t, u] == pytest.approx(np.sqrt((value**2).sum()), abs=1e-15)


def test_lengths_grow_under_the_length_normalised_loss() -> None:
    for seed in range(3):
        found = sequences.mean_lengths(random_autoregressive(seed, 2, 1, 6), rate=0.5, steps=20)
        assert found.shape == (21,) and (np.diff(found) > 0).all() and found[-1] < 6
    still = sequences.mean_lengths(random_autoregressive(0, 2, 1, 6), rate=0.0, steps=3)
    assert (still == still[0]).all()
