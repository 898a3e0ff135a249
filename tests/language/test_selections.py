"""Selections by a quantile of the batch (Clip-Cov, KL-Cov, tokens of high entropy): the mask M, held."""

from __future__ import annotations

import numpy as np
import pytest

from klsym import compare, explain
from klsym.errors import UsageError
from klsym.language.parser import parse
from klsym.language.spellings import read_loss
from support.judges.loss_worlds import forest, settings
from support.losses.cases import case as written
from support.oracle.grammar import evaluate

OFF = {"sampling": "off-policy", "level": "token"}
COV = "cov = (advantages - advantages.mean())*(logp - logp.mean()); "
READ = {
    "-(entropy >= quantile(entropy, 0.8))*rho*A": "-M*rho*A",
    "-A*logp*(H(q) > torch.quantile(H(q), 0.8)).float()": "-M*A*log_q",
    "t = np.percentile(ents, 80); keep = ents >= t; -(keep*A*logp)": "-M*A*log_q",
    "keep = R >= R.median(); -torch.where(keep, A, 0)*logp": "-M*A*log_q",
    "-(R < quantile(R, 0.1))*A*logp": "-(1 - M)*A*log_q",
    "-~(R >= quantile(R, 0.1))*A*logp": "-(1 - M)*A*log_q",
    "k3*(x > quantile(x, 0.5)) + k2*(x <= quantile(x, 0.5))": "M*k3 + (1 - M)*k2",
    COV + "torch.where(cov > torch.quantile(cov, 0.998), 0.0, -ratio*advantages)": "-(1 - M)*rho*A",
    COV + "s = cov >= cov.quantile(0.9); pg = -ratio*advantages; where(s, pg + 0.1*abs(k1), pg)":
        "-rho*A + 0.1*M*abs(k1)",
    "keep = (ents >= torch.quantile(ents, 0.8)) & mask.bool(); -(keep*A*logp).sum()": "-M*A*log_q",
    "t = torch.kthvalue(ents.flatten(), 5).values.item(); -(ents > t).float()*A*logp": "-M*A*log_q",
}  # fmt: skip


@pytest.mark.parametrize("typed", READ)
def test_a_comparison_with_a_quantile_is_a_mask(typed: str) -> None:
    reading = read_loss(typed)
    difference = reading.expression - parse(READ[typed])
    assert difference.expand() == 0
    [note] = [note for note in reading.notes if note.code == "selection-held"]
    assert (
        "quantile" in note.values["of"]
        or "median" in note.values["of"]
        or "80" in note.values["of"]
        or ("kthvalue" in note.values["of"])
    )
    unused = [note for note in reading.notes if note.code == "names-unused"]
    assert not unused  # what the selection alone reads is left out


def test_the_answer_says_that_the_selection_is_held() -> None:
    answer = explain("-(entropy >= quantile(entropy, 0.8))*rho*A", **OFF)
    text = " ".join(str(answer).split())
    assert "with M held, minimises its own mean under mu, -E_mu[sum_t rho_now*A*M_now]" in text
    assert "H(q) >= quantile(H(q), 0.8) is read as a mask M that is held" in text and "klsym measure" in text
    assert any("is read as a mask M that is held" in line for line in answer.to_json()["hypotheses"])
    assert answer.to_json()["summary"].startswith("with M held, ")
    same = explain("-M*rho*A", **OFF)
    assert (answer.target, answer.trust) == (same.target, same.trust) == ("own-mean", "kernel")
    assert "with M held" not in same.text(full=True)


def test_terms_with_the_selection_say_so_too() -> None:
    answer = explain("-(entropy >= quantile(entropy, 0.8))*rho*A + beta*rho*k3", **OFF)
    said = {term["loss"]: term["summary"] for term in answer.to_json()["gradient"]["terms"]}
    assert said["-rho*A*M"].startswith("with M held, ") and "held" not in said["beta*rho*k3"]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("-clip(A, -quantile(A, 0.9), 1)*log_q", "it is read in comparisons"),
        ("-A/torch.quantile(A, 0.9)*log_q", "it is read in comparisons"),
        ("t = torch.quantile(A, 0.9); -clip(A, -t, t)*log_q", "it is read in comparisons"),
        ("-(x >= quantile(x, 0.8))*(A >= quantile(A, 0.5))*A*log_q", "two masks"),
        ("-(x >= quantile(x, 0.8))*A*log_q + (x >= quantile(x, 0.5))*k3", "two masks"),
        ("-M*(x >= quantile(x, 0.8))*A*log_q", "two masks"),
        ("-(x >= threshold)*A*log_q", "unknown name"),
        ("torch.where(R, k3, k2)", "a comparison such as"),
        ("c = 2*(R > 0); torch.where(c, k3, k2)", "a comparison such as"),
        ("c = M - (rho > 2); torch.where(c, k3, k2)", "a comparison such as"),
    ],
)
def test_other_uses_are_refused(typed: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        explain(typed)


def test_a_truncated_sampler_has_a_mask_of_its_own() -> None:
    with pytest.raises(UsageError, match="the mask of the sampler"):
        explain("-(x >= quantile(x, 0.8))*rho*A", sampling="truncated", level="token")


@pytest.mark.parametrize(
    ("typed", "loss"),
    [
        ("c = ratio > 2; torch.where(c, 0, -ratio*advantages)", "where(rho > 2, 0, -rho*A)"),
        ("c = (A > 0) & (ratio < 2); torch.where(c, k3, k2)", "where((A > 0) & (rho < 2), k3, k2)"),
        ("where(M, k3, k2)", "M*k3 + (1 - M)*k2"),
    ],
)
def test_a_condition_may_have_a_name(typed: str, loss: str) -> None:
    assert (read_loss(typed).expression - parse(loss)).expand() == 0


def test_compared_losses_have_the_same_selection() -> None:
    """M is one mask: with two thresholds, or beside a mask that is typed, nothing would be compared."""
    kept = "-({} > quantile({}, {}))*rho*A"
    loss = kept.format("x", "x", 0.8)
    for other in (kept.format("x", "x", 0.5), kept.format("y", "y", 0.8), "-M*rho*A"):
        with pytest.raises(UsageError, match="M would be two masks"):
            compare(loss, other, **OFF)
    plain = compare(loss, "-rho*A", **OFF)
    assert "is read as a mask M that is held" in " ".join(str(plain).split())
    assert plain.gradient.same is False
    same = compare(loss, loss.replace("rho*A", "A*rho"), **OFF)
    assert same.gradient.same is True


THRESHOLD = "(full(-1*log_q) > 0.8)"


@pytest.mark.parametrize("loss", ["-{}*rho*A", "-{}*rho*A + 0.1*k3", "where({}, k2, k3)"])
def test_a_threshold_of_an_exact_mean_is_a_mask_too(loss: str) -> None:
    """The gradient with the comparison in place of M is that of the loss, in every world of the oracle."""
    text = loss.format(THRESHOLD)
    answer = explain(loss.format("(entropy > 0.8)"), **OFF)
    [note] = [note for note in answer.loss.written.notes if note.code == "selection-held"]
    assert answer.target == "own-mean" and "full(log_q) < -4/5" in note.values["of"]
    case = written(text, "off token")
    where, [setting] = forest(case), settings(case)
    per_sample = answer.to_json()["gradient"]["per_sample"]
    assert "M_now" in per_sample
    shown = per_sample.replace("M_now", THRESHOLD)
    shown = shown if "s_now" in shown else f"({shown})*s_now"
    exact, said = where.field(text, setting).a, where.form(shown, "m").a
    assert np.allclose(exact, said, rtol=1e-9, atol=1e-12) and np.abs(exact).max() > 0.01
    kept = evaluate(THRESHOLD, where.finder(where.steps, setting))
    assert 0 < np.mean(kept) < 1


@pytest.mark.parametrize("loss", ["(H(q) > 1)*(H(q) < 2)*rho*A", "M*(H(q) > 1)*rho*A"])
def test_two_masks_of_exact_means_stay_open(loss: str) -> None:
    answer = explain(loss, **OFF)
    assert answer.target is None and "held" not in str(answer)


def test_losses_with_different_thresholds_are_not_compared() -> None:
    with pytest.raises(UsageError, match="M would be two masks"):
        compare("-(H(q) > 1)*rho*A", "-(H(q) > 2)*rho*A", **OFF)
