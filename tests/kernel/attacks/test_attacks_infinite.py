"""Worlds of infinite sequences: their sums in closed form, and the false theorems that they tell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from klsym.kernel import Theorem, certify
from klsym.kernel.statements import Side
from support.attacks.infinite_worlds import FAMILIES, InfiniteWorld, Unjudged, compensated, contradicted
from support.certificates.faulty_certificates import *
from support.certificates.slot_helpers import future, lone, now, past, sum_t

STEPS = sum_t("q", ONE)


def world(
    q: str = "1/2", p: str = "4/5", mu: str = "1/3", stake: float = 2, forced: bool = True
) -> InfiniteWorld:
    return InfiniteWorld({"q": q, "p": p, "mu": mu, "old": "1/2"}, forced, stake, {"beta": 2.0})


def pathwise(side: Side, where: InfiniteWorld) -> float:
    return where.value(lone(side), absolute=False)[0]


# ---------------------------------------------------------------------------- closed forms
@pytest.mark.parametrize(
    ("side", "expected"),
    [
        (Em("q", T), 2), (Em("mu", T), 3), (sum_t("p", ONE), 5 / 4), (Em("q", r), 1), (Em("q", ONE, 1), 0),
        (Em("q", T, 1), -1), (grad(Em("q", T)), -1),  # d/dlogit 1/pi = -(1 - pi)/pi
        (sum_t("q", ONE, "now"), 0), (Em("mu", (w.exp() - 1)), 0),
    ],
)  # fmt: skip
def test_means_of_geometric_lengths(side, expected):
    value, tail = world(forced=False).value(lone(side))
    assert abs(value - expected) <= tail + 1e-9


@pytest.mark.parametrize("p", ["1/2", "1/3", "4/5"])
def test_a_player_who_doubles_wins_one_unit(p):
    """Of the bets 2^k with the ratio p/q: 2 p - 1; with the score of the bet: 1/2; of the stakes alone: 0."""
    bets, chance = world(p=p), float(FAMILIES[p][0](0.0))
    assert pathwise(sum_t("q", past(A), "now"), bets) == pytest.approx(1 / 2)
    assert pathwise(sum_t("q", past(A) * now(r)), bets) == pytest.approx(2 * chance - 1)
    assert pathwise(sum_t("q", past(A)), bets) == pytest.approx(0)


def test_large_terms_that_cancel_leave_what_is_small():
    """A quotient times what it divides by is 1, whatever both are multiplied with."""
    terms = [np.array(x) for x in (1.0, 1e60, 3.0, -5e59, -5e59)]
    assert compensated(terms) == 4.0 and sum(terms) != 4.0
    where = world("4/5", "1/3", "1/2")
    where.definitions = {"up": ("region", k1), "half": ("log", V("up") + 1)}
    noise = (-4 * k1).exp() * ((-V("half")).exp() * (V("up") + 1) - 1)
    assert pathwise(Em("mu", R + noise), where) == pytest.approx(pathwise(Em("mu", R), where))


def test_tails():
    assert world(p="endless").weight["p"].sum() == pytest.approx(1 / 2, abs=0.01)
    for heavy in (Em("mu", T), sum_t("mu", ONE), sum_t("q", past(A), "now")):
        with pytest.raises(Unjudged, match="add up"):
            world(mu="heavy").value(lone(heavy))


# ---------------------------------------------------------------------------- theorems
def proved(draft: Draft) -> Theorem:
    return certify(draft.part, {})[1]


FALSE_WITHOUT = {
    "exists": [
        (Draft(sum_t("q", past(A), "now"), NOTHING).step("score mean zero", slot="now"), world()),
        (Draft(sum_t("q", past(A) * now(r)), sum_t("q", past(A)))
            .step("ratio mean one", of="p", slot="now"), world()),
        (Draft(sum_t("q", past(A) * (-now(w)).exp()), sum_t("q", past(A)))
            .step("ratio mean one", of="mu", slot="now"), world()),
    ],
    "ends": [
        (Draft(Em("q", r + T), constant(1) + STEPS).step("ratio mean one", of="p", slot="x", part=r)
            .step("normalisation", part=ONE).step("sum over t", of="length", term=1), world(p="endless")),
        (Draft(sum_t("q", future(r)), STEPS).step("ratio mean one", of="p", slot="future"),
            world(p="endless")),
        (Draft(Em("mu", ONE) + STEPS, constant(1) + STEPS).step("normalisation"), world(mu="endless")),
    ],
}  # fmt: skip
CASES = [(kind, i) for kind, rows in FALSE_WITHOUT.items() for i in range(len(rows))]


@pytest.mark.parametrize(("kind", "number"), CASES)
def test_a_theorem_needs_each_of_its_hypotheses(kind, number):
    """With them it is not judged in a world where they fail; without them it is false there."""
    draft, where = FALSE_WITHOUT[kind][number]
    theorem = proved(draft)
    with pytest.raises(Unjudged):
        contradicted(theorem, where)
    left = tuple(h for h in theorem.hypotheses if h[0] != kind)
    assert left != theorem.hypotheses and contradicted(
        replace(theorem, hypotheses=left), where, absolute=False
    )


@pytest.mark.parametrize(("kind", "number"), CASES)
def test_and_is_true_where_they_hold(kind, number):
    theorem = proved(FALSE_WITHOUT[kind][number][0])
    assert not contradicted(theorem, world(stake=1))
