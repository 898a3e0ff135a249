"""A sampler that is cut off to where M = 1: printed gradients against sums over what it draws."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import klsym
from klsym.errors import UsageError
from klsym.study.api import optimum
from support.judges.cut_judge import (
    KEPT,
    agree,
    complaints_at_tokens,
    cut_trees,
    examined,
    literal,
    printed,
    world,
)
from support.judges.loss_judge import written_out
from support.losses.random_losses import Case, generate
from support.oracle.losses import Setting
from support.scale import scaled

PARTS = ("k1", "k2", "k3", "-A", "R*log_q", "sg(k1)*log_q", "rho*k1", "-rho*A", "S*rho*k3", "r", "k1*k2",
         "sg(r)*k1", "M*k2", "1", "beta*k1", "S*sg(k3)*log_q", "exp(k1/2)")  # fmt: skip
SUMS = [f"{a} + {b}" for a, b in product(PARTS, repeat=2)]


@pytest.mark.parametrize("use", ["loss", "reward"])
def test_the_printed_gradient_is_the_mean_over_what_is_drawn(use: str) -> None:
    for loss in [*PARTS, *SUMS[:: scaled(1, 12)]]:
        answer = klsym.explain(loss, use=use, sampling="truncated").to_json()
        coefficient = answer["gradient"]["coefficient"] or "0"
        assert agree(loss, use, coefficient), (loss, coefficient)


def test_random_losses_with_bounds_comparisons_and_masks() -> None:
    """Full size: 5,000; what is refused is said, and rare."""
    outcomes = [examined(generate("shipped", 0, number)) for number in range(scaled(5000, 48))]
    assert not [outcome for outcome in outcomes if outcome.complaints]
    assert sum(outcome.target == "refused" for outcome in outcomes) <= len(outcomes) // 20


@pytest.mark.parametrize("loss", ["k2", "k1 + k3", "-A*log_q"])
def test_the_gradient_of_all_samples_is_another(loss: str) -> None:
    whole = klsym.explain(loss).to_json()["gradient"]["coefficient"]
    assert agree(loss, "loss", klsym.explain(loss, sampling="truncated").to_json()["gradient"]["coefficient"])
    assert not agree(loss, "loss", whole)


def test_what_is_lost_makes_up_the_gradient_of_all_samples() -> None:
    """S times what is drawn and E_q[(1 - M) c s] add up to E_q[c s]."""
    known = world(9)
    mass = float(np.exp(known["log_q"]) @ KEPT)
    assert "E_q[(1 - M)*k1*s]" in klsym.explain("k2", sampling="truncated").text(full=True)
    whole = printed("k1", known)
    assert np.allclose(mass * literal("k2", "loss", known) + printed("(1 - M)*k1", known), whole)
    assert not np.allclose(mass * literal("k2", "loss", known), whole)


def test_no_objective_is_told_without_saying_what_is_held() -> None:
    for loss, use in (("k2", "loss"), ("R - beta*k1", "reward"), ("-A*log_q", "loss"), ("k1", "reward")):
        verdict = klsym.explain(loss, use=use, sampling="truncated")
        shown = " ".join(" ".join(str(verdict).splitlines()[1:3]).split())
        assert "with M and S held as they are at theta, " in shown
        assert "with M and S held as they are at theta, " in verdict.summary
        assert "KL(q||p)" not in verdict.summary


@pytest.mark.parametrize(
    ("loss", "options"),
    [("k1", {"use": "reward", "batch": "leave-one-out"}), ("loo(k1)*log_q", {}), ("k2", {"batch": "mean"})],
)
def test_batches_are_refused(loss: str, options: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"sampling truncated: .* not handled"):
        klsym.explain(loss, sampling="truncated", **options)


@pytest.mark.parametrize("loss", ["full(k1)", "full_kl(q, p) - A*log_q", "js(q, p)"])
def test_exact_means_are_asked_for_without_it(loss: str) -> None:
    with pytest.raises(UsageError, match="needs no sample and is not cut off"):
        klsym.explain(loss, sampling="truncated")


def test_what_ranks_losses_says_what_to_write_instead() -> None:
    with pytest.raises(UsageError, match="optimum has no model"):
        optimum("k2", "1/2", [1, 0], sampling="truncated")
    with pytest.raises(UsageError, match=r"compare M\*LOSS"):
        klsym.compare("k2", "k3", sampling="truncated")


def test_s_is_a_name_of_this_sampler_alone() -> None:
    assert klsym.explain("S*k2", sampling="truncated").target == "objective"
    with pytest.raises(UsageError, match="unknown name 'S'"):
        klsym.explain("S*k2")


# ---------------------------------------------------------------------------- sums over tokens
OF_TOKENS = [  # use, a loss, its target: the same for every sampler that is cut off
    *(("loss", loss, "own-mean") for loss in (  # under the sampler, held as it is at theta
        "k1", "k2", "k3", "-A*log_q + 0.1*k2", "M*k3 - R*log_q", "min(k3, 1)", "whole(k3)/T",
    )),
    ("loss", "sg(k1)*log_q", "objective"), ("loss", "rho*k3", "objective"),
    ("reward", "R", "objective"), ("reward", "A*k1", "objective"), ("reward", "R - beta*k1", "open"),
]  # fmt: skip


@pytest.mark.parametrize(("use", "loss", "target"), OF_TOKENS)
def test_sums_over_tokens_of_a_sampler_that_is_cut_off(use: str, loss: str, target: str) -> None:
    """The printed gradient is that of the loss under M q/S, and it has no curl where it has an objective."""
    credit = {"credit": "same-token" if "A" in loss else "to-go"} if use == "reward" else {}
    verdict = klsym.explain(loss, sampling="truncated", level="token", use=use, **credit)
    answer = verdict.to_json()
    assert answer["gradient"]["target"] == target and verdict.fix is None
    assert "mu is the sampler that is cut off at each token" in " ".join(str(verdict).split())
    assert not [line for line in verdict.hypotheses if line.startswith("q << mu")]
    assert not complaints_at_tokens(Case(loss, "truncated", use, level="token", **credit), answer)
    wrong = {**answer["gradient"], "per_sample": "1.001*k1_now + 1/10"}
    told = complaints_at_tokens(
        Case(loss, "truncated", use, level="token", **credit), {**answer, "gradient": wrong}
    )
    assert "gradient" in told[0]


def test_a_curl_is_shown_where_all_words_are_kept() -> None:
    found = klsym.explain("rho*k3", sampling="truncated", level="token", weights="prefix")
    assert (found.target, found.trust) == (
        "no-objective",
        "kernel",
    ) and found.counterexample.model is not None
    field = cut_trees(3, keeps_all=True).field(
        "exp(log_q - sg(log_q))*exp(past(log_q - sg(log_q)))*k3",
        Setting(level="token", sampling="off-policy"),
    )
    assert np.abs(field.ab - field.ab.transpose(1, 0, 2)).max() > 1e-3


@pytest.mark.parametrize("loss", ["disc(9/10, sg(k1))", "disc(1/2, sg(k2)) - R"])
def test_what_asks_for_words_that_are_not_drawn_is_open(loss: str) -> None:
    found = klsym.explain(loss, sampling="truncated", level="token", use="reward")
    assert (found.target, found.trust, found.proof.theorems) == (None, "open", ())
    assert "assume q << mu, but no word with M = 0 is drawn" in " ".join(str(found).split())
    case = Case(loss, "truncated", "reward", level="token")
    assert not complaints_at_tokens(case, written_out(found.to_json()))


def test_an_objective_under_mu_needs_no_support() -> None:
    """What is theta-free beside log q has a mean under any sampler."""
    found = klsym.explain("-sg(disc(9/10, R))*log_q", sampling="truncated", level="token")
    assert (found.target, found.trust) == ("own-mean", "kernel") and len(found.proof.theorems) == 1
    assert not [line for line in found.hypotheses if "q << mu" in line]
