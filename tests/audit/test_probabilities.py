"""Losses in probabilities, such as ref_probs, with bounds that keep them from 0."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from klsym.api import explain
from klsym.audit.audits import audit
from klsym.errors import UsageError
from klsym.language.training_names import find_density

FLOOR = Fraction(1, 10**8)
HEADER = "import torch\nimport torch.nn.functional as F\n"
READ = [  # the body of a function of probabilities, its formula, the target, how many floors are left out
    ("return (torch.log(probs.clamp(min=1e-8)) - torch.log(ref_probs.clamp(min=1e-8))) ** 2 / 2",
     "k2", "reverse-kl", 2),
    ("return (probs.clamp_min(1e-8).log() - ref_probs.log()) ** 2 / 2", "k2", "reverse-kl", 1),
    ("return (probs * (probs.clamp(1e-8, 1).log() - ref_probs.clamp(1e-8, 1).log())).sum(-1)",
     "full(k1)", "reverse-kl", 2),
    ("p = ref_probs.clamp(min=1e-8)\n    return (p * (p.log() - probs.clamp(min=1e-8).log())).sum(-1)",
     "full(-k1*r)", "forward-kl", 2),
    ("return F.kl_div(torch.log(ref_probs.clamp(min=1e-8)), probs, reduction='none').sum(-1).mean()",
     "full(k1)", "no-objective", 1),
    ("return (torch.log(probs) - torch.log(ref_probs)) ** 2 / 2", "k2", "reverse-kl", 0),
]  # fmt: skip
KEPT = [  # bounds that are no floors
    ("return (torch.log(probs.clamp(min=0.05)) - torch.log(ref_probs)) ** 2 / 2", "max(0.05, exp(log_q))"),
    ("return (torch.log(probs.clamp(max=0.5)) - torch.log(ref_probs)) ** 2 / 2", "min(0.5, exp(log_q))"),
    ("return (torch.log(probs + 1e-8) - torch.log(ref_probs)) ** 2 / 2", "1e-8"),
]


def write_loss(folder: Path, body: str) -> str:
    (folder / "loss.py").write_text(f"{HEADER}def loss(probs, ref_probs):\n    {body}\n")
    return f"{folder / 'loss.py'}:loss"


@pytest.mark.parametrize(("body", "formula", "target", "floors"), READ)
def test_a_loss_in_probabilities_is_read_with_its_floors_assumed(
    body: str, formula: str, target: str, floors: int, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    found = audit(write_loss(tmp_path, body))
    assert (found.expression, found.target) == (formula, target)
    assert [floor for _, floor in found.tokens.floors] == [FLOOR] * floors
    said = "so that the clamp has no effect"
    assert (said in " ".join(found.text().split())) == (said in str(found.to_json()["notes"])) == bool(floors)


@pytest.mark.parametrize(("body", "part"), KEPT)
def test_a_bound_that_probabilities_meet_stays_in_the_formula(body: str, part: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    found = audit(write_loss(tmp_path, body))
    assert not found.tokens.floors and part in str(found)


def test_a_probability_that_multiplies_and_is_not_summed_is_no_sampled_one(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with pytest.raises(UsageError):
        audit(write_loss(tmp_path, "return probs * (probs.log() - ref_probs.log())"), level="sample")


@pytest.mark.parametrize(
    ("typed", "target", "is_floored"),
    [
        (
            "(torch.log(probs.clamp(min=1e-8)) - torch.log(ref_probs.clamp(min=1e-8)))**2/2",
            "reverse-kl",
            True,
        ),
        ("-A*torch.log(probs.clamp_min(1e-8))", "combination", True),
        ("p = probs.clamp(1e-8, 1); -A*p.log()", "combination", True),
        ("-A*torch.log(probs)", "combination", False),
        ("(logp.exp().clamp(min=1e-8).log() - ref_logp)**2/2", "reverse-kl", True),
        ("-A*torch.log(probs.clamp(min=0.05))", None, False),
    ],
)
def test_pasted_lines_have_the_target_of_the_log_probability(
    typed: str, target: str | None, is_floored: bool
) -> None:
    verdict = explain(typed)
    assert target is None or verdict.target == target
    said = "so that the clamp has no effect"
    assert (said in " ".join(verdict.text().split())) == is_floored
    assert any(said in hypothesis for hypothesis in verdict.hypotheses) == is_floored
    assert target is not None or "where exp(log_q) > 0.05" in verdict.text()


@pytest.mark.parametrize("typed", ["-probs*A/old_probs", "-(probs/old_probs).clamp(max=2)*A"])
def test_a_ratio_of_probabilities_is_rho_and_its_samples_are_old(typed: str) -> None:
    verdict = explain(typed)
    assert "rho" in str(verdict) and verdict.setting.sampling == "off-policy"


@pytest.mark.parametrize(
    ("typed", "instead"),
    [
        ("probs*A", r"full_kl\(q, p\) or H\(q\)"),
        ("(probs*(logp - ref_logp)).mean()", r"full_kl\(q, p\) or H\(q\)"),
        ("probs", r"full_kl\(q, p\) or H\(q\)"),
    ],
)
def test_a_probability_that_multiplies_is_refused_with_what_to_type(typed: str, instead: str) -> None:
    with pytest.raises(UsageError, match=f"is a probability .*type {instead}"):
        explain(typed)


@pytest.mark.parametrize("name", ["log_probs", "prob_ratio", "probs_of_words", "logits", "problem"])
def test_other_names_are_no_probabilities(name: str) -> None:
    assert find_density(name) is None
