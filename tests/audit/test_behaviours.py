"""Behaviours of real code that an audit tells apart; each verdict is confirmed against `explain` by hand."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sympy

import klsym
from klsym.audit import audits
from klsym.audit.terms import Disagreement
from klsym.audit.tracing import operations
from klsym.errors import UsageError
from klsym.language.expressions import sg

pytest.importorskip("torch")
from support.audits import audited

SOURCE = Path(audited.__file__).read_text(encoding="utf-8").splitlines()
ON, OFF = "on-policy", "off-policy"
# function -> sampling, the loss of one token, the target (None: open), how tokens meet, words of a finding
BEHAVIOURS = {
    "k1_loss": (ON, "k1", "zero", "by itself", "KL001"),
    "k3_loss": (ON, "k3", "forward-kl", "by itself", "infinite, first at exp"),
    "k3_careful": (ON, "k3", "forward-kl", "by itself", "first at expm1"),
    "ratio_k3": (OFF, "rho*k3", "reverse-kl", "by itself", ""),
    "detached_ratio_k3": (OFF, "sg(rho)*k3", "forward-kl", "by itself", "KL003"),
    "no_grad_ratio_k3": (OFF, "sg(rho)*k3", "forward-kl", "by itself", "KL003"),
    "value_one_k3": (ON, "exp(log_q - sg(log_q))*k3", "reverse-kl", "by itself", "carries a gradient only"),
    "truncated_ratio_k3": (OFF, "min(2, rho)*k3", "own-mean", "by itself", "where min(2, rho) binds"),
    "truncated_detached_ratio_k2": (OFF, "k2*sg(min(2, rho))", "objective", "by itself", ""),
    "attached_ratio_k2": (OFF, "rho*k2", "f-divergence", "by itself", "KL015"),
    "straight_through": (ON, "k2 + sg(k3 - k2)", "reverse-kl", "by itself", "the value is that of k3, the"),
    "minus_k3": (ON, "-k3", "forward-kl", "by itself", ""),
    "minus_k2": (ON, "-k2", "reverse-kl", "by itself", "KL008"),
    "upside_down_k3": (OFF, "", "f-divergence", "by itself", "KL016"),
    "upside_down_weight": (OFF, "k3/rho", "own-mean", "by itself", "KL016"),
    "clamp_before_exp": (ON, "exp(clip(-k1, -10, 10)) - clip(-k1, -10, 10) - 1", "f-divergence", "by itself",
                         "get no gradient at all"),
    "clamp_after_exp": (ON, "clip(k3, -5, 5)", "f-divergence", "by itself", "get no gradient at all"),
    "clamp_exponent_only": (ON, "exp(min(5, -k1)) + k1 - 1", "f-divergence", "by itself", "keep a gradient"),
    "clamp_before_and_after": (ON, "min(5, exp(clip(-k1, -10, 10)) - clip(-k1, -10, 10) - 1)", "f-divergence",
                               "by itself", "get no gradient at all"),
    "in_place": (ON, "k3", "forward-kl", "by itself", ""),
    "masked_where": (ON, "k3", "forward-kl", "by itself", ""),
    "token_mean": (ON, "k3", "no-objective", "all tokens of the batch", ""),
    "token_mean_by_index": (ON, "k3", "no-objective", "all tokens of the batch", ""),
    "sequence_mean": (ON, "k3", "no-objective", "averaged over the tokens of each sequence, then", ""),
    "grid_mean": (ON, "k3", "no-objective", "averaged over the padded grid", ""),
    "fixed_length": (ON, "k3/512", "no-objective", "summed over the tokens of each sequence, then", ""),
    "mask_forgotten": (ON, "k3", "no-objective", "all tokens of the batch", "padding counts"),
    "sequence_ratio_token_k3": (OFF, "rho*k3", "reverse-kl", "summed over the tokens", ""),
    "geometric": (OFF, "-T*A*exp(whole(log_q - log_mu)/T)", "own-mean", "summed over", "first at exp"),
    "geometric_k3": (OFF, "exp(whole(log_q - log_mu)/T)*k3", "own-mean", "averaged over the tokens", ""),
    "gspo": (OFF, "", "own-mean", "averaged over sequences", "binds, its gradient is lost"),
    "sequence_k2": (ON, "k2", "reverse-kl", "each sequence by itself", ""),
    "full_vocabulary": (ON, "full(k1)", None, "all tokens", "an exact expectation"),
    "full_vocabulary_forward": (ON, "", "forward-kl", "by itself", "an exact expectation"),
    "top_words": (ON, "full(M*k1)", "objective", "by itself", "words where log_p[v] is largest"),
    "top_words_forward": (ON, "full(-M*k1*r)", None, "all tokens", "the others are left out"),
    "top_words_by_mask": (ON, "full(M*k1)", "objective", "by itself", "M marks the 5 words"),
    "top_words_of_policy": (ON, "full(M*k1)", "objective", "by itself", "no gradient passes through it"),
    "top_words_renormalised": (ON, "full(M*k1)/full(M) + log(full(M*r)) - log(full(M))", "objective",
                               "by itself", "M marks the 5 words"),
    "top_words_divided": (ON, "full(-M*k1*r)/full(M*r) + log(full(M)) - log(full(M*r))", "objective",
                          "by itself", "M marks the 5 words"),
    "picked_tokens": (ON, "k2", "reverse-kl", "by itself", ""),
    "policy_and_penalty": (OFF, "beta*rho*k3 - rho*A", "combination", "by itself", ""),
    "cast": (ON, "k3", "forward-kl", "by itself", ""),
    "near_the_reference": (ON, "", "f-divergence", "by itself", ""),
    "empty_batches_apart": (ON, "k3", "no-objective", "all tokens of the batch", ""),
    "whole_vocabulary_in_float32": (ON, "", None, "all tokens of the batch", "an exact expectation"),
    "count_with_a_number": (ON, "k3", "no-objective", "all tokens of the batch", ""),
    "all_but_the_first": (ON, "k1", "zero", "by itself", ""),
    "next_words": (ON, "k2", "reverse-kl", "by itself", ""),
    "number_mask": (ON, "k2", "reverse-kl", "by itself", ""),
}  # fmt: skip


OPTIONS = {"fixed_length": {"set": {"length": 512}}}


@cache
def found_in(name: str) -> Any:
    return audits.audit(getattr(audited, name), sampling=BEHAVIOURS[name][0], **OPTIONS.get(name, {}))


@pytest.mark.parametrize("name", BEHAVIOURS)
@pytest.mark.share(3)
def test_each_behaviour_is_told_apart(name):
    """Code that sums over one token keeps its level, all other code is asked at level token."""
    _, expression, target, tokens, finding = BEHAVIOURS[name]
    found = found_in(name)
    assert expression in ("", found.expression)
    assert found.target == target and tokens in found.tokens.words
    said = [*map(str, found.findings), *(one.code.code for one in found.verdict.diagnostics)]
    assert any(finding in line for line in said)
    if tokens.endswith("by itself"):
        assert found.verdict.setting.level != "token" and not any("level" in note for note in found.notes)


# function that aggregates over tokens -> the target of a single token
AGGREGATED = {
    "token_mean": "forward-kl", "sequence_mean": "forward-kl", "grid_mean": "forward-kl",
    "fixed_length": "forward-kl", "full_vocabulary": "reverse-kl", "top_words_forward": "objective",
    "sequence_ratio_token_k3": "",
}  # fmt: skip


@pytest.mark.parametrize("name", AGGREGATED)
def test_code_that_aggregates_over_tokens_is_asked_at_level_token(name):
    """The target of a single token is not that of the sum; the answer says which level it is for."""
    found = found_in(name)
    assert found.to_json()["level"] == found.verdict.setting.level == "token"
    assert found.verdict.setting.aggregate == found.tokens.aggregate
    [note] = [note for note in found.notes if note.startswith("level token, since the loss is ")]
    assert f"note {note}" in " ".join(found.text(full=True).split()) and "--level sample" in note
    if AGGREGATED[name]:
        options = {"sampling": BEHAVIOURS[name][0], **OPTIONS.get(name, {})}
        single = audits.audit(getattr(audited, name), level="sample", **options)
        assert (single.target, single.to_json()["level"]) == (AGGREGATED[name], "sample")
        assert any(note.startswith("level sample, as asked: that the loss is") for note in single.notes)
        assert not single.meets(found.target or "open")


# function -> the operation that is named, and a piece of the line of the file that it stands in
REFUSED = {
    "custom": ("a custom autograd function", "Identity.apply"),
    "branch_on_data": ("a branch on data", "if d.mean() > 0"),
    "branch_on_item": ("a number that .item() takes", "d.mean().item() > 0"),
    "unknown": ("the operation erf is not read", "torch.erf"),
    "running": ("the operation cumsum is not read", "cumsum"),
    "part": ("indexing that takes out a part", "logp[:, 2:]"),
    "beside": ("neighbouring tokens are combined", "logp[:, 1:]"),
    "largest": ("max over tokens is not read", ".max()"),
    "geometric_of_the_batch": (
        "a mean over all tokens of the batch inside a function that is not linear",
        "",
    ),
    "least_words": ("topk with largest=False is not read", "largest=False"),
    "two_choices": ("different masks, or topk, have selected", "q.topk(5).values - p"),
    "two_sums": ("two choices of words: M marks those of one topk", ""),
    "words_as_numbers": ("gather by what is not bound to token", "index + 1"),
    "too_many_words": (
        "topk of 64 words: code is run on 13 words, so k is to be 2 to 6",
        "torch.topk(p, k",
    ),
    "least_of_the_top": ("indexing that takes out a part", "[..., -1:]"),
    "two_ways": ("put together in different ways", ""),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_read_is_refused_by_name_and_line(name):
    words, piece = REFUSED[name]
    with pytest.raises(UsageError) as refused:
        audits.audit(getattr(audited, name))
    message = str(refused.value)
    assert words in message and "\n" not in message
    if piece:
        [line] = re.findall(r"audited\.py, line (\d+): ", message)
        assert piece in SOURCE[int(line) - 1]


def test_a_trace_that_the_code_contradicts_is_not_reported():
    """A view that shares memory: the trace has not seen the change."""
    with pytest.raises(Disagreement, match=r"value: .* in the trace, .* in the code"):
        audits.audit(audited.hidden_hook)


def test_slopes_on_a_bound_are_conventions():
    """On-policy the ratio is 1 at every sample: there torch.clamp has slope 1, and min(1, rho) 1/2."""
    with pytest.raises(
        Disagreement, match=r"samples stand on the bound of min\(1, rho\): klsym's slope there is"
    ):
        audits.audit(audited.bound_at_one, sampling="on-policy")
    assert audits.audit(audited.bound_at_one, sampling=OFF).expression == "A*min(1, rho)"
    found = audits.audit(audited.bounds_at_nought_and_one, sampling="on-policy")
    assert found.verdict.gradient.multiples == {"reward": "A"}  # clip has slope 1 on its bounds, as in torch


@pytest.mark.parametrize("name", ["k3_loss", "sequence_mean", "ratio_k3"])
def test_a_wrong_trace_is_noticed(name, monkeypatch):
    """Each of these changes to the table of operations is found out before a word is said."""
    for operation, wrong in WRONG.items():
        with monkeypatch.context() as changed, pytest.raises(Disagreement):
            changed.setitem(operations.ELEMENTWISE, operation, wrong)
            audits.audit(getattr(audited, name), map={"logp": "log_q", "ref_logp": "log_p"}, sampling=OFF)


WRONG = {
    "exp": lambda x: sg(sympy.exp(x)),
    "sub": lambda a, b, alpha=1: (a - b) * sympy.Rational(10**8 + 1, 10**8),
}


def test_sequences_get_their_setting_from_the_code():
    """A ratio of whole sequences on a token's k3 is rho with weights of sequences, and 1/T is a mean."""
    found = audits.audit(audited.sequence_ratio_token_k3, sampling=OFF)
    assert (found.verdict.setting.level, found.verdict.setting.weights) == ("token", "sequence")
    meant = audits.audit(audited.sequence_mean, level="token")
    assert meant.verdict.setting.aggregate == "mean"
    assert meant.verdict.to_json() == klsym.explain("k3", level="token", aggregate="mean").to_json()
    with pytest.raises(UsageError, match="aggregate sum: the loss is averaged over the tokens"):
        audits.audit(audited.sequence_mean, level="token", aggregate="sum")


def test_a_detached_penalty_is_read_as_a_reward():
    found = audits.audit(audited.reward_penalty, use="reward")
    assert found.target == "reverse-kl" and found.to_json()["use"] == "reward"
    assert audits.audit(audited.reward_penalty).target == "zero"  # as a loss it has no gradient
    found = audits.audit(audited.summed_reward, use="reward")
    assert found.verdict.gradient.multiples == {"reverse-kl": "-kl_coef"}
    assert found.tokens.words == "summed over the tokens of each sequence"


def test_a_sum_over_the_vocabulary_is_no_reward_of_a_word():
    """Its mean gradient at the token is E_q[KL s] = KL E_q[s] = 0, not that of the KL."""
    with pytest.raises(UsageError, match="the same whatever word is sampled"):
        audits.audit(audited.full_vocabulary, use="reward")


def test_an_argument_left_at_its_default_is_named():
    found = audits.audit(audited.ratio_by_default)
    assert found.expression == "k3" and "left      old_logp as by default" in found.text(full=True)
    mapped = audits.audit(audited.ratio_by_default, map={"old_logp": "log_mu"}, sampling=OFF)
    assert mapped.expression == "rho*k3" and "left" not in [name for name, _ in mapped._list_rows()]


def test_the_object_is_that_of_explain_with_what_was_read():
    found = audits.audit(audited.ratio_k3, sampling=OFF)
    told = klsym.explain("rho*k3", sampling=OFF).to_json()
    mine = found.to_json()
    assert {key: mine[key] for key in told} == told
    assert mine["map"] == {"logp": "log_q", "ref_logp": "log_p", "old_logp": "log_mu"}
    assert (mine["function"], mine["expression"], mine["set"]) == ("ratio_k3", "rho*k3", {})
    first, last = mine["lines"]
    assert mine["file"].endswith("audited.py") and SOURCE[first - 1].startswith("def ratio_k3")
    assert "return ratio * k3_loss" in SOURCE[last - 1]


def test_minus_a_divergence_does_not_meet_an_expectation():
    found = audits.audit(audited.ratio_k3, sampling=OFF)
    assert found.meets("reverse-kl") and found.meets("1*reverse-kl") and not found.meets("0.5*reverse-kl")
    found = audits.audit(audited.minus_k2)
    assert found.target == "reverse-kl" and not found.meets("reverse-kl")


def test_the_helper_for_test_suites():
    from klsym.testing import assert_targets

    assert_targets(audited.ratio_k3, "reverse-kl", sampling=OFF)
    first = r"\Aminus_k2 minimises -KL\(q\|\|p\); expected reverse-kl\n"
    with pytest.raises(AssertionError, match=first + r"(.|\n)*KL008 wrong-sign"):
        assert_targets(audited.minus_k2, "reverse-kl")
    with pytest.raises(UsageError, match="reverse-kl"):
        assert_targets(lambda: 1 / 0, "reversed-kl")  # the word is refused before the code is run
