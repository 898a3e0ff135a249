"""KL008 of penalties without a name: is a token less likely after a step the likelier the reference finds it?

The slope of a loss in log q, at one token, is written by hand; it is the coefficient h of the token's score.
KL008 is said where h rises with log p at every value tried.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

import klsym

Slope = Callable[[float, float, float, float], float]  # of log q, log p, log mu, A

ON = {"level": "token", "aggregate": "batch"}
OFF = {**ON, "sampling": "off-policy"}
OPTIONS = {
    "on": ON, "off": OFF, "sum": {"level": "token"}, "sample": {}, "sample off": {"sampling": "off-policy"},
    "reward": {"level": "token", "use": "reward"},
}  # fmt: skip
LOSSES: dict[tuple[str, str], Slope] = {  # the slopes leave out positive factors that do not depend on p
    ("-beta*k3", "on"): lambda q, p, mu, a: np.exp(p - q) - 1,
    ("beta*k3", "on"): lambda q, p, mu, a: 1 - np.exp(p - q),
    ("-beta*k3", "sum"): lambda q, p, mu, a: np.exp(p - q) - 1,
    ("-k2", "sample off"): lambda q, p, mu, a: p - q,
    ("k2", "sample off"): lambda q, p, mu, a: q - p,
    ("-A*rho - beta*k3", "off"): lambda q, p, mu, a: -a * np.exp(q - mu) + np.exp(p - q) - 1,
    ("-A*rho + beta*k3", "off"): lambda q, p, mu, a: -a * np.exp(q - mu) + 1 - np.exp(p - q),
    ("-rho*k1", "off"): lambda q, p, mu, a: -np.exp(q - mu) * (q - p + 1),
    ("rho*k1", "off"): lambda q, p, mu, a: np.exp(q - mu) * (q - p + 1),
    ("-rho*k2", "off"): lambda q, p, mu, a: -np.exp(q - mu) * ((q - p) ** 2 / 2 + q - p),
    ("-log_q*sg(R + k1)", "off"): lambda q, p, mu, a: -(a + q - p),
    ("-log_q*sg(R - k1)", "off"): lambda q, p, mu, a: -(a - q + p),
    ("k3 + 2*r", "off"): lambda q, p, mu, a: 1 - np.exp(p - q) - 2 * np.exp(p - q),
    ("k1 + k2*A", "off"): lambda q, p, mu, a: 1 + (q - p) * a,
}  # fmt: skip


def rises_with_log_p(h: Slope) -> bool:
    grid = (-3.0, -1.0, -0.2, 0.0)
    pairs = [(x, y) for x, y in itertools.product(grid, grid) if x < y]
    values = itertools.product(grid, pairs, grid, (-2.0, -0.5, 0.0, 1.0))
    return all(h(q, high, mu, a) > h(q, low, mu, a) for q, (low, high), mu, a in values)


def find_opposed(loss: str, words: str) -> bool:
    told = [one for one in klsym.explain(loss, **OPTIONS[words]).diagnostics if one.code.code == "KL008"]
    return any(message.code == "against-reference" for one in told for message in one.messages)


@pytest.mark.parametrize(("loss", "words"), LOSSES)
def test_a_reference_that_lowers_is_told_where_the_slope_rises(loss: str, words: str) -> None:
    assert find_opposed(loss, words) == rises_with_log_p(LOSSES[loss, words])


def test_both_kinds_are_in_the_table() -> None:
    assert {rises_with_log_p(h) for h in LOSSES.values()} == {True, False}


@pytest.mark.parametrize(
    ("loss", "words"),
    [("-k2", "sample"), ("-min(k3, 10)", "on"), ("-R + beta*k3", "reward"), ("-k3*A", "off"), ("k1", "on")],
)  # fmt: skip
def test_where_nothing_is_said_of_the_reference(loss: str, words: str) -> None:
    """A named KL with a negative multiple, a bound that p crosses, a reward, the sign of A, no slope in p."""
    assert not find_opposed(loss, words)
