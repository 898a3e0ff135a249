"""Baselines that weigh a group by its lengths (OPO), against all groups of two of a world."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import klsym

OPO = "-sg(R - groupsum(T*R)/groupsum(T))*log_q"


@pytest.mark.parametrize(
    ("loss", "multiple"),
    [(OPO, "-R"), ("2*(R - groupsum(T*R)/groupsum(T))*log_q", "2*R"),
     ("-beta*sg(A - groupsum(T*A)/groupsum(T))*log_q", "-beta*A"),
     ("-sg(2*R + A - groupsum(T*(2*R + A))/groupsum(T))*log_q", "-2*R - A")],
)  # fmt: skip
def test_it_is_open_with_its_limit(loss: str, multiple: str) -> None:
    answer = klsym.explain(loss, level="sequence")
    text = " ".join(str(answer).split())
    assert answer.target is None and "methods.length-weighted-baseline" in text
    assert f"that of E_q[{multiple}]" in text


@pytest.mark.parametrize(
    ("loss", "options"),
    [(OPO, {"sampling": "off-policy"}), ("-sg(R - groupsum(T*R)/(groupsum(T) + 1))*log_q", {}),
     ("-sg(R - groupsum(T*A)/groupsum(T))*log_q", {}), ("-(R - groupsum(T*R)/groupsum(T))*k2", {}),
     ("-sg(R - 2*groupsum(T*R)/groupsum(T))*log_q", {})],
)  # fmt: skip
def test_others_are_refused(loss: str, options: dict[str, str]) -> None:
    with pytest.raises(klsym.KlsymError, match="lengths of other samples"):
        klsym.explain(loss, level="sequence", **options)


def test_what_the_answer_says_is_so_in_a_world() -> None:
    """For n = 2 it is no multiple of grad E_q[R]; with the limit of b it is that."""
    q, lengths, rewards = np.array([0.5, 0.3, 0.2]), np.array([1, 2, 2]), np.array([1.0, -1.0, 2.0])
    scores = np.eye(3) - q
    slope = q @ (rewards[:, None] * scores)
    of_two = np.zeros(3)
    for i, j in itertools.product(range(3), repeat=2):
        b = (lengths[i] * rewards[i] + lengths[j] * rewards[j]) / (lengths[i] + lengths[j])
        of_two += q[i] * q[j] * (rewards[i] - b) * scores[i]
    assert abs(np.cross(of_two, slope)).max() > 1e-3
    limit = (q @ (lengths * rewards)) / (q @ lengths)
    assert np.allclose(q @ ((rewards - limit)[:, None] * scores), slope)
