"""Comparisons and where(condition, x, y) in losses: read, proved and printed, or refused."""

from __future__ import annotations

import numpy as np
import pytest

import klsym
from klsym.errors import UsageError
from klsym.language.expressions import Rational, above, k1, k2, log_q, r, rho, where
from klsym.language.parser import parse

SAMPLES = np.random.default_rng(7).normal(size=(40, 3))


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("where(rho > 2, 2, rho)", lambda rho, A, k1: np.where(rho > 2, 2, rho)),
        ("(rho < 1.5)*A", lambda rho, A, k1: (rho < 1.5) * A),
        ("(0.5 <= rho <= 2)*k1", lambda rho, A, k1: ((rho >= 0.5) & (rho <= 2)) * k1),
        ("where(A > 0 and rho > 1, 1, 0)", lambda rho, A, k1: ((A > 0) & (rho > 1)) * 1.0),
        ("where((A > 0) | (rho > 1), k1, A)", lambda rho, A, k1: np.where((A > 0) | (rho > 1), k1, A)),
        ("where(not A > 0, k1, A)", lambda rho, A, k1: np.where(A > 0, A, k1)),
        ("where(~(A > 0) & (k1 < 1), k1, A)", lambda rho, A, k1: np.where(~(A > 0) & (k1 < 1), k1, A)),
    ],
)
def test_what_is_read_is_what_numpy_makes_of_it(text: str, meant: object) -> None:
    """The value of a reward that is printed, at random samples off every bound."""
    verdict = klsym.explain(text, use="reward", sampling="off-policy")
    assert verdict.trust == "kernel"
    rows = verdict.gradient.score_cases
    for w, A, x in SAMPLES:
        at = {"rho": float(np.exp(w)), "A": float(A), "k1": float(x)}
        found = (
            next(h for on, h in rows if all(_holds(c, at) for c in on))
            if rows
            else verdict.gradient.score_coefficient
        )
        assert np.isclose(_number(found, at), meant(np.exp(w), A, x)), (text, at)  # type: ignore[operator]


def _number(e: object, at: dict[str, float]) -> float:
    values = {x: at[x.name] for x in e.free_symbols if x.name in at}  # type: ignore[attr-defined]
    values |= {rho: at["rho"], k1: at["k1"]}
    return float(e.xreplace(values))  # type: ignore[attr-defined]


def _holds(condition: object, at: dict[str, float]) -> bool:
    return int(np.sign(_number(condition.x, at))) in condition.signs  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("loss", "same"),
    [
        ("where(rho > 2, 2, rho)*A", "min(rho, 2)*A"),
        ("where(k1 > 0, k1, -k1)", "abs(k1)"),
        ("where(rho < 0.8, 0.8, where(rho > 1.2, 1.2, rho))*A", "clip(rho, 0.8, 1.2)*A"),
    ],
)
def test_a_bound_written_with_where_is_that_bound(loss: str, same: str) -> None:
    """Apart from the slope at the bound itself."""
    one, other = (klsym.explain(text, sampling="off-policy") for text in (loss, same))
    assert one.target == other.target == "own-mean" and one.trust == other.trust == "kernel"
    for w, A, x in SAMPLES:
        at = {"rho": float(np.exp(w)), "A": float(A), "k1": float(x)}
        found = [
            _number(next(h for on, h in v.gradient.score_cases if all(_holds(c, at) for c in on)), at)
            for v in (one, other)
        ]
        assert np.isclose(*found)
    assert not any("boundary term" in line for line in one.warnings)


def test_a_mask_that_jumps_drops_a_boundary_term() -> None:
    verdict = klsym.explain("(rho < 2)*rho*A", sampling="off-policy")
    assert verdict.trust == "kernel" and any("boundary term" in line for line in verdict.warnings)
    assert any("at any theta nearby" in line for line in verdict.hypotheses)
    still = klsym.explain("sg(rho < 2)*rho*A", sampling="off-policy")
    reward = klsym.explain("(R > 1)*rho*A", sampling="off-policy")
    for other in (still, reward):
        assert other.trust == "kernel"
    assert not any("boundary term" in line for line in reward.warnings)


def test_a_mask_of_rewards_names_what_is_left() -> None:
    assert klsym.explain("where(R > 1, 1, 0)", use="reward").target == "combination"
    assert klsym.explain("where(k1 > 0 and R > 1, k1, 0)").target == "objective"
    assert klsym.explain("where(k1 > 0, k1, 0)").target == "f-divergence"


@pytest.mark.parametrize("level", ["sample", "token", "sequence"])
def test_every_level_reads_it(level: str) -> None:
    verdict = klsym.explain("-where(rho > 1.2, 1.2, rho)*A", sampling="off-policy", level=level)
    assert verdict.trust == "kernel" and verdict.target == "own-mean"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("where(rho, 1, 2)", "a comparison such as rho > 2 expected at character 7"),
        ("(A == 0)*k1", "a comparison such as rho > 2 expected"),
        ("(A != 0)*k1", "a comparison such as rho > 2 expected"),
        ("not k1", "a comparison such as rho > 2 expected"),
        ("k1 and k2", "a comparison such as rho > 2 expected"),
        ("k1 & 2", "a comparison such as rho > 2 expected"),
        ("where(rho > 1, 2)", "unknown function 'where'"),
        ("rho > k", "unknown name 'k'"),
        ("k1 if A > 0 else k2", "if and else"),
    ],
)
def test_what_is_no_comparison_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse(text)
    assert says in str(refused.value)


def test_the_same_from_python() -> None:
    assert where(above(rho, 2), 2, rho) == parse("where(rho > 2, 2, rho)")
    assert above(k1, k2, or_equal=True) == parse("k1 >= k2") and above(Rational(1), 1) == 0
    assert above(r, 1).diff(log_q) == 0
