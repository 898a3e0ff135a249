"""Wrong versions of what the sources advise are refused, and the computed tables notice wrong cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from klsym import compare
from klsym.calculus import *
from klsym.derivations import crib_sheets, exact_tokens, practice
from klsym.derivations.batches import batch_mean, penalty
from klsym.derivations.crib_sheets import ADVICE, OFF, ON, RATED, SHEET, Cell
from klsym.derivations.rewards import rewarded
from klsym.errors import ProofError
from klsym.study.ledger.registry import load
from klsym.study.ledger.settle_all import check_settled
from klsym.study.ledger.settle_claim import recall, settle

b, n = parameter("b"), parameter("n")


def forward_rewards(h: Any) -> Any:
    excess = expectation(s * sg(practice.h), under=q) - grad(KL(p, q))
    return derive(excess).drop_stop_gradients().iff("h", is_=h, constants=(b,))


def to_go(ratio: Any) -> Any:
    return derive(sum_over_t(ratio * now(s), under=q)).equals(grad(KL(q, p)))


WRONG: dict[str, list[Callable[[], Any]]] = {
    "practice.reward-k3-advised": [
        lambda: rewarded(k3).equals(grad(KL(q, p))),
        lambda: rewarded(k3).equals(grad(KL(q, p)) + grad(KL(p, q))),
        lambda: rewarded(k1).differs_from(grad(KL(q, p))),
    ],
    "practice.reward-forward": [
        lambda: rewarded(r * log(r)).equals(grad(KL(p, q))),
        lambda: rewarded(b + r).equals(grad(KL(p, q))),
        lambda: forward_rewards(b + r),
        lambda: forward_rewards(b - r * k1),
        lambda: rewarded(-r).is_no_combination(),
    ],
    "practice.quick-table-k1": [
        lambda: derive(sample(k1)).equals(sample(log(r))),
        lambda: derive(expectation(log(r), under=q)).equals(KL(q, p)),
        lambda: derive(expectation(log(r), under=q)).equals(-KL(p, q)),
        lambda: derive(expectation(-log(r), under=q)).differs_from(KL(q, p)),
    ],
    "practice.token-ratio-log": [
        lambda: to_go(log(now(r)) + log(future(r))),
        lambda: to_go(-log(now(r))),
        lambda: to_go(-log(future(r))),
        lambda: to_go(-log(past(r))),
    ],
    "practice.loss-against-reward": [
        lambda: derive(sample_gradient(rho * k1)).differentiate().equals(sample(rho * k1 * s)),
        lambda: derive(sample_gradient(rho * k2)).differentiate().equals(sample(rho * k1 * s)),
        lambda: derive(sample(sg(k1) * s)).equals(sample(rho * k1 * s)),
        lambda: penalty(own(k1) - batch_mean(k1)).equals(grad(KL(q, p))),
        lambda: penalty(own(k1) - batch_mean(k1)).equals((1 + 1 / n) * grad(KL(q, p))),
    ],
    "practice.constant-weight": [
        lambda: derive(sample_gradient(rho), on_policy=True).equals(0),
        lambda: derive(sample(rho), on_policy=True).equals(0),
        lambda: derive(sample(rho)).equals(sample(1)),  # off-policy
        lambda: derive(expected_gradient(rho * k3, under=mu), on_policy=True).equals(grad(KL(p, q))),
        lambda: derive(expected_gradient(k3, under=q)).equals(grad(KL(q, p))),
    ],
}


@pytest.mark.parametrize(
    ("name", "number"), [(name, i) for name, rows in WRONG.items() for i in range(len(rows))]
)
def test_a_wrong_version_is_refused(name: str, number: int) -> None:
    assert name in load()
    with pytest.raises(ProofError):
        WRONG[name][number]()


@pytest.mark.parametrize(
    "name", ["practice.wz1-crib-sheet", "practice.wz2-ratings", "practice.per-token-sum"]
)
def test_computed_claims_settle_and_their_checks_agree(name: str) -> None:
    judged = check_settled(recall(name))
    assert not judged.error and judged.settled.status == "settled"
    assert all(agrees for agrees, _ in judged.judged)


# ---------------------------------------------------------------------------- cells
def test_the_sheet_is_right_and_two_pieces_of_advice_on_rewards_are_not() -> None:
    assert all(cell.right for cell in SHEET)
    wrong = [(cell.kl, cell.use, str(cell.loss)) for cell in ADVICE if not cell.right]
    assert wrong == [("reverse", "reward", "k3"), ("forward", "reward", "-k1*r")]


def test_the_ratings_come_out_as_they_are_given() -> None:
    assert [cell.right for cell in RATED] == [cell.advised for cell in RATED]


@pytest.mark.parametrize(
    "cell",
    [
        Cell("reverse", ON, "loss", k3, "gradient.k2-loss"),  # a claim that does not speak of it
        Cell("reverse", OFF, "loss", k2, "gradient.k2-loss"),  # nor of this sampling
        Cell("forward", ON, "value", k3, "gradient.k3-loss"),  # nor of the value
    ],
)
def test_a_cell_quotes_a_claim_that_speaks_of_it(cell: Cell) -> None:
    with pytest.raises(ProofError, match="says nothing of"):
        _ = cell.right


@pytest.mark.parametrize(
    "cell",
    [
        Cell("forward", ON, "loss", k2, "gradient.k2-loss"),
        Cell("reverse", ON, "loss", k3, "gradient.k3-loss"),
        Cell("forward", ON, "value", k1, "value.k1-unbiased"),
        Cell("forward", OFF, "loss", rho * k3, "offpolicy.rho-k3"),
    ],
)
def test_a_wrong_target_is_wrong_by_the_theorem_and_by_the_definitions(cell: Cell) -> None:
    assert not cell.right
    agrees, text = crib_sheets._counted((cell,))
    assert agrees and "wrong ones off by" in text


def test_a_theorem_that_says_otherwise_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were cells judged the wrong way round, the definitions would not agree."""
    right = Cell.right
    monkeypatch.setattr(Cell, "right", property(lambda self: not right.fget(self)))
    assert not any(crib_sheets._counted((cell,))[0] for cell in (*SHEET, *ADVICE, *RATED))


def test_an_order_the_wrong_way_round_is_noticed() -> None:
    found = compare("rho*k3", "rho*k1", sampling="off-policy").variance
    outside = found.witness(found.b_less)
    assert crib_sheets._ordered(OFF, "rho*k3", "rho*k1", outside)[0]
    assert not crib_sheets._ordered(OFF, "rho*k1", "rho*k3", outside)[0]


def test_a_wider_region_is_noticed() -> None:
    """Beyond the root of r - 1 = 2 log r the value k3 varies more in some models."""
    assert crib_sheets._values_in_the_region(3.5129)[0]
    assert not crib_sheets._values_in_the_region(30.0)[0]


# ---------------------------------------------------------------------------- exact tokens
def test_what_was_timed_is_the_divergence(monkeypatch: pytest.MonkeyPatch) -> None:
    assert exact_tokens._timed()[0]
    monkeypatch.setattr(exact_tokens, "next_token_kl", lambda a, b: exact_next(a, b) * 1.001)
    assert not exact_tokens._timed()[0]


def exact_next(log_q: Any, log_p: Any) -> Any:
    from numpy import exp

    return (exp(log_q) * (log_q - log_p)).sum(axis=-1)


def test_a_cost_that_is_too_high_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_tokens, "_measured", lambda: 6.0)
    assert settle(load()["practice.per-token-sum"]).status == "failed"


def test_a_sum_that_is_another_mean_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = exact_tokens.exact_at_each_step
    monkeypatch.setattr(exact_tokens, "exact_at_each_step", lambda *of: 1.01 * right(*of))
    assert not exact_tokens._by_enumeration()[0]
