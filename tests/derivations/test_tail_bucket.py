"""The KL with one bucket for the other words: wrong versions are refused, and numbers agree with the claim.

The numbers share no code with the proofs: q and p with all words that are not kept as one, by NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from klsym.calculus import KL, derive, exp, expectation, grad, k1, p, q, s
from klsym.derivations.recipes.distill import BUCKET, KEPT, STUDENT, TEACHER
from klsym.errors import ProofError

A, REST = STUDENT[2], STUDENT[3] - TEACHER[3]
LOSS, RATIO = KEPT * k1 + (1 - A) * REST, KEPT * k1 + (1 - KEPT) * REST


def gradient() -> Any:
    return derive(grad(expectation(LOSS, under=q)), defined=BUCKET)


WRONG: dict[str, Callable[[], Any]] = {
    "the sign of the ratio of the rest": lambda: gradient().equals(
        expectation(KEPT * (k1 + REST) * s, under=q)
    ),
    "a mass that does not move": lambda: gradient().equals(expectation(KEPT * k1 * s, under=q)),
    "above the KL of all words": lambda: derive(KL(q, p), defined=BUCKET).at_most(
        expectation(RATIO, under=q), rows=[{"u": k1 - RATIO, "at": q}]
    ),
    "below the other KL": lambda: derive(
        expectation(RATIO + 1 - exp(RATIO - k1), under=q), defined=BUCKET
    ).at_most(KL(p, q), rows=[{"u": RATIO - k1, "at": q}]),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_version_is_refused(name: str) -> None:
    with pytest.raises(ProofError):
        WRONG[name]()


def test_the_right_gradient_is_proved() -> None:
    assert gradient().equals(expectation(KEPT * (k1 - REST) * s, under=q)).trust == "kernel"


def of_all(x: np.ndarray, y: np.ndarray) -> float:
    return float((x * np.log(x / y)).sum())


def with_a_bucket(x: np.ndarray, y: np.ndarray, kept: np.ndarray) -> float:
    return of_all(np.append(x[kept], x[~kept].sum()), np.append(y[kept], y[~kept].sum()))


@pytest.mark.parametrize("seed", range(20))
def test_numbers_agree_with_the_claim(seed: int) -> None:
    stream = np.random.default_rng(seed)
    logits, u, y = stream.normal(size=6), stream.normal(size=6), stream.dirichlet(np.ones(6))
    kept = np.arange(6) < stream.integers(1, 6)

    def policy(t: float) -> np.ndarray:
        weights = np.exp(logits + t * u)
        return weights / weights.sum()

    x = policy(0.0)
    assert 0 <= with_a_bucket(x, y, kept) <= of_all(x, y)
    rest = np.log(x[~kept].sum() / y[~kept].sum())
    pushed = float((x * kept * (np.log(x / y) - rest) * (u - (x * u).sum())).sum())
    slope = (with_a_bucket(policy(1e-5), y, kept) - with_a_bucket(policy(-1e-5), y, kept)) / 2e-5
    assert pushed == pytest.approx(slope, rel=1e-6, abs=1e-9)
    assert with_a_bucket(y, y, kept) == pytest.approx(0, abs=1e-15)
