"""The pictures of notebooks 18 and 19: slopes against differences, and ratios counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from klsym.experiments.pictures import distillation as pictures
from klsym.experiments.pictures.masks import LOSSES, cut, left_of

P = np.array([0.4, 0.3, 0.2, 0.1])
Q = np.array([0.1, 0.2, 0.3, 0.4])
M = np.array([1.0, 1.0, 0.0, 0.0])


def with_a_bucket(q: np.ndarray) -> float:
    a, b = M @ q, M @ P
    return float(np.sum(M * q * np.log(q / P)) + (1 - a) * np.log((1 - a) / (1 - b)))


VALUES = {
    pictures.truncated: lambda q: np.sum(M * q * np.log(q / P)),
    pictures.bucket: with_a_bucket,
    pictures.lower_variance: lambda q: np.sum(M * (P - q - q * np.log(P / q))),
}


@pytest.mark.parametrize("slope", VALUES)
def test_a_slope_is_that_of_its_sum(slope: pictures.Loss) -> None:
    value, step = VALUES[slope], 1e-6
    found = [(value(Q + step * e) - value(Q - step * e)) / (2 * step) for e in np.eye(4)]
    assert np.allclose(slope(Q, P, M), found, atol=1e-8)


def test_from_the_teacher_only_the_truncated_sum_moves() -> None:
    ends = [pictures.descent(slope, P, M)[-1] for slope in VALUES]
    assert ends[0] > 0.1 and max(map(abs, ends[1:])) < 1e-12


def test_the_strength_is_measured() -> None:
    move = np.array([1.0, -2.0, 0.5, 0.3])
    assert [round(pictures.strength(b, P, move), 2) for b in (0.1, 0.5)] == [0.09, 0.25]


@pytest.mark.parametrize(
    ("name", "ratio", "good", "bad"),
    [("weight alone", 3, 1, 1), ("PPO clip", 1.1, 1, 1), ("PPO clip", 1.3, 0, 1), ("PPO clip", 0.7, 1, 0),
     ("cut weight", 3, 1 / 2, 1 / 2), ("cut weight", 1.4, 1, 1), ("mask", 3, 0, 0), ("mask", 0.4, 0, 0),
     ("mask", 1.9, 1, 1)],
)  # fmt: skip
def test_what_a_sample_counts(name: str, ratio: float, good: float, bad: float) -> None:
    assert [left_of(LOSSES[name], ratio, sign) for sign in (1.0, -1.0)] == pytest.approx([good, bad])


def test_top_p_keeps_the_fewest_words() -> None:
    q, kept = cut(0.8, 14, 3)
    n = int(kept.sum())
    assert kept.tolist() == [1.0] * n + [0.0] * (14 - n) and q[: n - 1].sum() < 0.8 <= q[:n].sum()
