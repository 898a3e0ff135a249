"""The KL of whole sequences to the sampler, from losses at each token; the mean over one episode's steps."""

from __future__ import annotations

import pytest

import klsym
from klsym.errors import UsageError

TOKEN = {"level": "token", "sampling": "off-policy"}


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        ("full_kl(mu, q)", "A penalty on KL(old policy mu || policy): minimises KL(mu||q)"),
        ("0.1*full_kl(mu, q)", "A penalty on KL(old policy mu || policy): minimises 0.1*KL(mu||q)"),
        ("-log_q", "A penalty on KL(old policy mu || policy): minimises KL(mu||q)"),
        ("k1", "minimises -KL(mu||q), which pushes the policy away from mu"),
    ],
)
def test_the_sum_over_tokens_is_the_kl_of_sequences(loss: str, words: str) -> None:
    verdict = klsym.explain(loss, **TOKEN)
    assert words in " ".join(str(verdict).split()) and verdict.trust == "kernel"
    assert verdict.objective.is_sampler_kl and "KL006" not in str(verdict)


@pytest.mark.parametrize("loss", ["full_kl(q, p)", "full_kl(p, q)", "k2", "k3", "-A*log_q", "full_kl(q, mu)"])
def test_other_sums_are_no_kl_to_the_sampler(loss: str) -> None:
    assert not klsym.explain(loss, **TOKEN).objective.is_sampler_kl


@pytest.mark.parametrize(
    ("loss", "expression"),
    [
        ("-(log_probs.mean() * (reward - 0.5))", "-seqmean(log_q)*(R - 0.5)"),
        ("-(reward * log_probs.mean())", "-seqmean(log_q)*R"),
        ("-(log_probs.sum() * reward)", "-whole(log_q)*R"),
        ("-(log_probs.mean() * adv).mean()", "-seqmean(log_q)*A"),
    ],
)
def test_a_mean_that_a_reward_multiplies_is_over_tokens(loss: str, expression: str) -> None:
    verdict = klsym.explain(loss)
    assert verdict.setting.level == "sequence" and "assumed" in verdict.text(full=True)
    same = klsym.compare(loss, expression, level="sequence")
    assert same.gradient.same and same.value.same


@pytest.mark.parametrize(
    "loss",
    ["-(log_probs.mean() * rewards.mean())", "-(log_probs.mean() * log_probs)", "log_probs.mean()**2"],
)
def test_other_means_in_products_are_refused(loss: str) -> None:
    with pytest.raises(UsageError, match=r"seqmean|over the tokens of each response"):
        klsym.explain(loss)
