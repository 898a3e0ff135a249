"""The picture of notebook 11: three ends on a tree, against formulas written by hand."""

from __future__ import annotations

import math

import pytest

from klsym.experiments.pictures.token_ends import PENALTIES, REFERENCE, REWARDS, compute_end, draw

R = [1.0, -0.5, 0.3, 0.8]
P = [0.18, 0.12, 0.14, 0.56]


def value(q: list[float], beta: float) -> float:
    return sum(x * (reward - beta * math.log(x / p)) for x, reward, p in zip(q, R, P, strict=True))


@pytest.mark.parametrize("beta", ["0.1", "0.7", "3"])
def test_the_gap_is_that_to_the_tilted_reference(beta: str) -> None:
    b = float(beta)
    weights = [p * math.exp(reward / b) for p, reward in zip(P, R, strict=True)]
    best = [w / sum(weights) for w in weights]
    assert max(abs(x - y) for x, y in zip(compute_end("k1 to-go", beta)[0], best, strict=True)) < 1e-12
    for name in PENALTIES:
        policy, gap = compute_end(name, beta)
        assert abs(gap - (value(best, b) - value(policy, b))) < 1e-12
        assert gap > 1e-5 or name == "k1 to-go"


def test_the_picture_shows_every_sequence_and_every_penalty() -> None:
    left, right = draw(betas=(0.5, 1.0)).axes
    heights = [bar.get_height() for bar in left.patches]
    assert len(heights) == len(REWARDS) * len(PENALTIES) == len(REFERENCE) * 3
    assert abs(sum(heights) - 3) < 1e-9 and len(right.lines) == 3
    assert right.lines[0].get_color() != right.lines[1].get_color()
