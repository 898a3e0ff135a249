"""Means and sums inside exp, as in GSPO: over the tokens of a sequence, or refused; weights of a batch."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import klsym
from klsym.errors import UsageError
from klsym.language.parser import parse
from klsym.language.spellings import read_loss
from support.judges.refusals import check_refusal

GEOMETRIC, WHOLE = "exp(whole(log_q - log_mu)/T)", "exp(whole(log_q - log_mu))"
READ = {
    "-exp(mean(logp - old_logp))*A": f"-{GEOMETRIC}*A",
    "-torch.exp((logp - old_logp).mean(-1))*A": f"-{GEOMETRIC}*A",
    "-(logp - old_logp).mean(dim=-1).exp()*A": f"-{GEOMETRIC}*A",
    "-exp(((logp - old_logp)*mask).sum(-1)/mask.sum(-1))*A": f"-{GEOMETRIC}*A",
    "-exp(((logp - old_logp)*mask).sum(-1)/mask.sum(-1).clamp(min=1))*A": f"-{GEOMETRIC}*A",
    "-exp(masked_mean(logp - old_logp, mask))*A": f"-{GEOMETRIC}*A",
    "s = (logp - old_logp).mean(-1); w = s.exp(); (-w*A).mean()": f"-{GEOMETRIC}*A",
    "-exp(((logp - old_logp)*mask).sum(-1))*A": f"-{WHOLE}*A",
    "-exp((logp - old_logp).sum(-1))*A": f"-{WHOLE}*A",
    "-exp(2*mean(logp - old_logp))*A": "-exp(2*whole(log_q - log_mu)/T)*A",
    "logp.sum(-1).exp()": "exp(whole(log_q))",
    "x = where(adv > 0, min(logp - old_logp, 2), logp - old_logp); -exp((x*mask).sum(-1)/mask.sum(-1))*adv": (
        "-exp(whole(where(A > 0, min(log_q - log_mu, 2), log_q - log_mu))/T)*A"
    ),
    "-log_probs.sum(-1)*rewards.sum(-1)": "-R*whole(log_q)",
    "-(log_probs*mask).sum(-1)*(rewards*mask).sum(-1)": "-R*whole(log_q)",
    "-(log_probs*mask).sum(-1)*rewards.sum(-1)": "-R*whole(log_q)",
    "-torch.cat(policy.saved_log_probs).sum()*sum(policy.rewards)": "-R*whole(log_q)",
    "exp(mean(ref_logp - logp)).mean()": "exp(whole(-k1)/T)",
}


@pytest.mark.parametrize(("typed", "grammar"), READ.items())
def test_read(typed: str, grammar: str) -> None:
    reading = read_loss(typed)
    assert reading.expression == parse(grammar)
    assert "over-tokens" in [note.code for note in reading.notes]
    assert "averages-left-out" not in [note.code for note in reading.notes]


REFUSED = {
    "-exp(mean(R))*logp": "a mean or a sum inside",
    "-exp(mean(A*(logp - old_logp)))": "a mean or a sum inside",
    "-log(1 + mean(logp - old_logp)**2)*A": "a mean or a sum inside",
    "-abs(mean(logp - old_logp))*A": "a mean or a sum inside",
    "-mean(logp - old_logp)*A": "a mean or a sum inside",
    "-exp(mean(logp - old_logp)).mean()*A": "a mean or a sum inside",
    "-(k1 - k1.mean())*exp(mean(logp - old_logp))": "a mean or a sum inside",
    "-exp((logp - old_logp).mean(axis=k))*A": "axis",
    "-exp(logp - old_logp, mean)*A": "unknown name .mean",
    "-log_probs.sum(-1)*returns.sum(-1)": "a sum of rewards over the samples",  # returns from each step on
    "-log_probs.sum(-1)*rewards.sum()": "a sum of rewards over the samples",  # over two axes
    "-log_probs.sum(-1)*rewards.mean(-1)": "R for the sum of the rewards of one sequence",
}


@pytest.mark.parametrize(("typed", "words"), REFUSED.items())
def test_refused(typed: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        read_loss(typed)
    assert "\n" not in str(caught.value)


def test_gspo_as_it_is_written_is_gspo() -> None:
    code = """ratio = torch.exp(((logp - old_logp)*mask).sum(-1)/mask.sum(-1))
-torch.min(ratio*A, torch.clamp(ratio, 1 - eps, 1 + eps)*A).mean()"""
    written, named = klsym.explain(code), klsym.explain("gspo")
    assert written.setting == named.setting and written.target == named.target
    assert written.gradient.score_cases == named.gradient.score_cases
    text = " ".join(written.text().split())
    assert "over the T tokens of a sequence" in text and "assumed: level='sequence'" in text


@pytest.mark.parametrize(
    ("options", "level", "assumed"),
    [
        ({}, "sequence", True),
        ({"level": "sequence"}, "sequence", False),
        ({"level": "token"}, "token", False),
    ],
)
def test_the_level_is_assumed_unless_it_is_typed(options: dict[str, str], level: str, assumed: bool) -> None:
    found = klsym.explain("-exp(mean(logp - old_logp))*A", **options)
    assert found.setting.level == level
    assert ("assumed: level=" in found.text(width=200)) == assumed
    with pytest.raises(UsageError, match="level token or sequence"):
        klsym.explain("-exp(mean(logp - old_logp))*A", level="sample")


def test_a_loss_without_such_a_mean_keeps_its_level() -> None:
    assert klsym.explain("-(logp - old_logp).exp().mean()*1").setting.level == "sample"
    both = klsym.compare("-exp(mean(logp - old_logp))*A", "-A*logp")
    assert both.setting.level == "sequence"


# ---------------------------------------------------------------------------- weights and means of a batch
BOUNDED = "-torch.min(ratio*adv.mean(), torch.clamp(ratio, 1 - eps, 1 + eps)*adv.mean())"
OF_A_BATCH = {
    BOUNDED: "-Min((A - centred(A))*rho, (A - centred(A))*clip(rho, 1 - eps, eps + 1))",
    f"({BOUNDED}).mean()": "-Min((A - centred(A))*rho, (A - centred(A))*clip(rho, 1 - eps, eps + 1))",
    "-torch.clamp(ratio, max=2)*adv.mean()": "-(A - centred(A))*Min(2, rho)",
    "w = F.softmax(adv/beta, dim=0); -(w*logp).sum()": "-log_q*scaled(exp(A/beta))",
    "w = torch.softmax(rewards, -1); -(w.detach()*logp).mean()": "-log_q*scaled(exp(R))",
    "w = torch.exp(adv/beta); w = w/w.sum(); -(w*logp).sum()": "-log_q*scaled(exp(A/beta))",
    "w = torch.exp(adv/beta); w = w/(w.sum() + 1e-8); -(w*logp).sum()": "-log_q*scaled(exp(A/beta))",
    "w = torch.exp(adv/beta); w = w/w.mean(); -(w*logp).mean()": "-log_q*scaled(exp(A/beta))",
}
NOT_OF_A_BATCH = {
    "-(ratio.mean()*adv)": r"a mean or a sum inside .*for one over the samples \(x[*]A\.mean",
    "-ratio.mean()*adv.mean()": "for a mean of x over the tokens of each response",
    "-torch.min(ratio*adv.mean()**2, ratio)": "a mean inside min, max or clip",
    "-torch.exp(adv.mean())*ratio": "a mean or a sum inside",
    "w = F.softmax(adv, dim=1); -(w*logp).mean()": r"softmax of rewards over another axis .*exp\(A/beta\)",
    "w = F.softmax(adv - logp, dim=0); -(w*logp).mean()": "softmax of rewards over another axis",
    "w = F.log_softmax(adv, dim=0); -(w*logp).mean()": "the logits of an unknown policy",
    "w = torch.exp(logp)*A; w = w/w.sum(); -(w*logp).sum()": "a sum of probabilities over the vocabulary",
}


@pytest.mark.parametrize(("code", "loss"), OF_A_BATCH.items(), ids=[code[:40] for code in OF_A_BATCH])
def test_means_and_weights_of_a_batch_are_read(code: str, loss: str) -> None:
    assert str(read_loss(code).expression) == loss


@pytest.mark.parametrize(
    ("code", "words"), NOT_OF_A_BATCH.items(), ids=[code[:40] for code in NOT_OF_A_BATCH]
)
def test_other_means_and_weights_are_refused(code: str, words: str) -> None:
    check_refusal(code, words)


def test_weights_by_softmax_are_those_over_the_mean_of_the_batch() -> None:
    advantages, logs = np.random.default_rng(5).normal(size=(2, 6))
    weights = np.exp(advantages / 0.7)
    by_softmax = -(weights / weights.sum() * logs).sum()
    assert by_softmax == pytest.approx(-(logs * weights / weights.mean()).mean())


def test_the_mean_advantage_of_a_batch_gives_a_part_of_the_policy_gradient() -> None:
    """Two samples of three outcomes: the expected gradient of -rho*A.mean() is that of -E_q[A]/2."""
    theta, values = np.array([0.3, -0.5, 0.1]), np.array([1.0, -2.0, 0.5])

    def take_probabilities(x: np.ndarray) -> np.ndarray:
        return np.exp(x) / np.exp(x).sum()

    def average_loss(x: np.ndarray) -> float:
        q, mu = take_probabilities(x), take_probabilities(theta)
        ratio = q / mu
        pairs = product(range(3), repeat=2)
        return float(
            sum(mu[a] * mu[b] * -(ratio[a] + ratio[b]) / 2 * (values[a] + values[b]) / 2 for a, b in pairs)
        )

    steps = 1e-6 * np.eye(3)
    gradient = [(average_loss(theta + d) - average_loss(theta - d)) / 2e-6 for d in steps]
    q = take_probabilities(theta)
    assert gradient == pytest.approx(-q * (values - q @ values) / 2, abs=1e-8)
    assert "maximises E_q[A/n] " in str(klsym.explain(BOUNDED))
