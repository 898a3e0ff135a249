"""Sides of theorems on models, as the figures draw them, against literal sums."""

from __future__ import annotations

import numpy as np
import pytest

from klsym.errors import KlsymError
from klsym.figures.models import along_logits, along_odds, left, right, tilted
from klsym.ledger import recall
from klsym.numeric.models import FiniteModel

MODEL = FiniteModel(q=["1/2", "1/4", "1/4"], p=["1/4", "1/4", "1/2"], u=[1, 0, 0])


def test_a_gradient_along_each_logit() -> None:
    q, p = (np.array([float(x) for x in row]) for row in (MODEL.q, MODEL.p))
    proof = recall("gradient.k2-loss").proofs[0]
    literal = (q * np.log(q / p)) @ (np.eye(3) - q)
    for side in (left(proof), right(proof)):
        assert along_logits(side, MODEL) == pytest.approx(literal, abs=1e-12)
    assert np.abs(along_logits(left(recall("gradient.k3-loss").proofs[0]), MODEL) - literal).max() > 0.01


def test_m_is_one_less_than_n() -> None:
    """Otherwise the sides of variance.loo differ: m = n - 1 is put in with n."""
    loo = recall("variance.loo").proofs[0]
    found = [along_logits(side, MODEL, 3) for side in (left(loo), right(loo))]
    assert found[0] == pytest.approx(found[1], rel=1e-10)
    assert along_logits(left(loo), MODEL, 2) != pytest.approx(found[0], rel=1e-2)
    with pytest.raises(KlsymError):
        along_logits(left(loo), MODEL)


def test_the_path_starts_at_p() -> None:
    assert tilted([0.25, 0.75], 0.0).q == pytest.approx([0.25, 0.75])
    q = tilted([0.25, 0.75], 1.0).q
    assert np.log(float(q[0]) / float(q[1])) - np.log(1 / 3) == pytest.approx(1)


def test_a_gradient_along_the_path_is_its_slope() -> None:
    """d/dt KL(q_t||p) = q_0 (1 - q_0) t on two outcomes."""
    ts, p = [-2.0, 0.0, 3.0], [0.25, 0.75]
    first = np.array([float(tilted(p, t).q[0]) for t in ts])
    found = along_odds(right(recall("gradient.k2-loss").proofs[0]), p, ts)
    assert found == pytest.approx(first * (1 - first) * np.array(ts), abs=1e-12)
