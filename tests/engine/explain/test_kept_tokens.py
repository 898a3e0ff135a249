"""Means over the tokens that a mask keeps, whole(M*x)/whole(M), of tokens and of whole sequences."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from klsym.api import explain
from klsym.errors import UsageError
from klsym.language.parser import parse
from klsym.numeric.checks.cross_check import with_check
from support.judges.loss_judge import complaints, examine
from support.judges.loss_worlds import options
from support.losses.random_losses import Case
from support.scale import scaled

KEPT = "has at least one token with M_now = 1, almost surely"
MEANS = (
    "whole(M*{x})/whole(M)",
    "whole(M*{x})/max(whole(M), 1)",
    "whole(M*{x})/(1 + whole(M))",
    "seqmean(M*{x})",
)
TERMS = ("k1", "k2", "k3", "rho*k3", "R", "sg(rho)*k2", "min(rho, 1.2)*A", "beta*k3 - R")


def drawn(number: int) -> Case:
    """Loss `number`: a mean over kept tokens, alone or beside another one, in any setting."""
    stream = random.Random(f"kept {number}")
    level, use = stream.choice(("token", "sequence")), stream.choice(("loss", "reward"))
    sampling = stream.choice(("on-policy", "off-policy"))
    text = stream.choice(MEANS).format(x=stream.choice(TERMS))
    if use == "loss" and stream.random() < 0.3:
        text = f"sg({text})*log_q"
    if stream.random() < 0.4:
        text += f" + {stream.choice(('k1', '0.1*k2', 'A*log_q'))}"
    weights = {"weights": "token"} if level == "token" else {}
    return Case(text, sampling, use, level=level, aggregate=stream.choice(("sum", "mean")), **weights)


def test_random_means_over_kept_tokens_agree_with_the_oracle() -> None:
    outcomes = [examine(drawn(number)) for number in range(scaled(200, 24))]
    assert not [outcome for outcome in outcomes if outcome.complaints]
    assert not [outcome for outcome in outcomes if outcome.target == "refused"]
    assert sum(outcome.target == "open" for outcome in outcomes) <= len(outcomes) / 20


def test_the_judge_of_values_knows_a_reward_over_the_number_of_kept_tokens() -> None:
    case = Case("whole(M*A)/(1 + whole(M))", "on-policy", "loss", level="token", aggregate="mean")
    verdict = explain(case.text, **options(case))
    assert not complaints(case, verdict)
    value = verdict.value
    other = replace(value, parts={"reward": value.parts["reward"] * 2})
    for wrong in (replace(value, target="zero", parts={}), replace(value, target="objective"), other):
        assert any("value" in line for line in complaints(case, verdict.revise(value=wrong)))


@pytest.mark.parametrize("mean", MEANS[:3])
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_a_mean_over_kept_tokens_has_no_objective_on_policy(mean: str, level: str) -> None:
    found = explain(mean.format(x="k2"), level=level)
    assert (found.target, found.trust) == (
        "no-objective",
        "kernel",
    ) and found.counterexample.model is not None
    assert any(KEPT in line for line in found.hypotheses) == ("/whole(M)" in mean)


@pytest.mark.parametrize("mean", MEANS[:3])
def test_it_has_one_under_mu_and_for_rewards(mean: str) -> None:
    under = explain(mean.format(x="k2"), level="sequence", sampling="off-policy")
    assert (under.target, under.trust) == ("own-mean", "kernel")
    assert "minimises E_mu[sum_t M_now*k2_now/" in under.summary
    rewarded = explain(mean.format(x="R"), level="sequence", use="reward")
    assert (rewarded.target, rewarded.trust) == ("objective", "kernel")
    assert "maximises E_q[" in str(rewarded)


def test_the_mean_of_a_sequence_is_a_sum_over_its_tokens() -> None:
    """Both levels ask the same question, in two ways."""
    of_sequence = explain("whole(M*k3)/whole(M)", level="sequence")
    assert of_sequence.loss.read_as == "M*k3/whole(M)" and "written for each token" in str(of_sequence)
    at_tokens = explain("M*k3/whole(M)", level="token")
    assert (
        of_sequence.gradient.score_text == at_tokens.gradient.score_text
        and of_sequence.target == at_tokens.target
    )
    averaged = explain("whole(M*k3)/whole(M)", level="token", aggregate="mean")
    assert averaged.gradient.score_text == at_tokens.gradient.score_text
    counted = explain("whole(M*k3)/whole(M)", level="token")  # once for each token
    assert counted.gradient.score_text != at_tokens.gradient.score_text


@pytest.mark.parametrize("loss", ["whole(M*k2)/whole(M)", "rho*whole(M*k3)/max(whole(M), 1)"])
def test_the_check_reads_it_literally(loss: str) -> None:
    verdict = explain(loss, level="sequence")
    assert verdict.loss.written is not None
    done = with_check(verdict, verdict.loss.written.expression)
    assert done.proof.check is not None and done.proof.check["passed"]
    wrong = with_check(verdict, parse("M*k1/whole(M)"))
    assert wrong.proof.check is not None and not wrong.proof.check["passed"]


@pytest.mark.parametrize(
    ("loss", "level", "why"),
    [
        ("k2/M", "sample", "division by M"),
        ("k2/M", "token", "division by M_now"),
        ("k2/past(M)", "token", "division by"),
        ("whole(M*k3)**2/whole(M)", "token", "is differentiated here"),
        ("whole(M*k3)*k1/whole(M)", "token", "is differentiated here"),
        ("min(whole(M*k3), 1)/whole(M)", "sequence", "is differentiated here"),
        ("M*whole(M*k3)/whole(M)", "sequence", "is no sum of k1"),
        ("whole(M*k3)/past(M)", "sequence", "choose level token"),
    ],
)
def test_other_divisions_and_products_are_refused(loss: str, level: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        explain(loss, level=level)


def test_a_centred_mean_is_refused_with_what_to_type() -> None:
    with pytest.raises(UsageError, match="choose level token"):
        explain("whole(M*k3)/whole(M)", level="sequence", use="reward", batch="leave-one-out")


def test_settings_are_those_of_the_level() -> None:
    case = drawn(3)
    assert explain(case.text, **options(case)).setting.level == "token"
