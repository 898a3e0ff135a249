"""Means and sums inside exp, as in GSPO: over the tokens of a sequence, or refused."""

from __future__ import annotations

import pytest

import klsym
from klsym.errors import UsageError
from klsym.language.parser import parse
from klsym.language.spellings import read_loss

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
