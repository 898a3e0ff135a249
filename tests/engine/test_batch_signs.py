"""A penalty in a reward that is centred by the mean of its batch keeps its sign."""

from __future__ import annotations

import pytest

import klsym

RIGHT = "A policy gradient with a penalty on KL(policy || reference)"


@pytest.mark.parametrize("level", ["sample", "sequence"])
@pytest.mark.parametrize("batch", ["mean", "leave-one-out"])
@pytest.mark.parametrize("reward", ["R - beta*k1", "R - 0.04*k1", "R - k1"])
def test_the_penalty_is_a_penalty(reward: str, batch: str, level: str) -> None:
    said = klsym.explain(reward, use="reward", batch=batch, level=level).text()
    assert RIGHT in said and "wrong sign" not in said


@pytest.mark.parametrize("batch", ["mean", "leave-one-out"])
@pytest.mark.parametrize("reward", ["R + beta*k1", "R + k1"])
def test_a_penalty_that_is_added_is_not(reward: str, batch: str) -> None:
    assert "wrong sign for a penalty" in klsym.explain(reward, use="reward", batch=batch).text()
