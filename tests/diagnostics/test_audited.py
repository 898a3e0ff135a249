"""Codes of audited functions: of values that nothing calls a loss, and of code that was run in float32."""

from __future__ import annotations

from pathlib import Path

import pytest

from klsym.audit import audits

pytest.importorskip("torch")

CODE = """
import torch

def penalty(logp, ref_logp):
    return logp - ref_logp

def log_probability_loss(logp):
    return 2*logp

def kl_and_loss(logp, ref_logp):
    kl = logp - ref_logp
    return kl

def statistics(logp, ref_logp):
    d = ref_logp - logp
    return logp, torch.exp(d) - d - 1, d

def two_values(logp, ref_logp):
    return logp - ref_logp, (logp - ref_logp)**2

def compute_advantages(rewards, logp, ref_logp):
    return rewards - 0.1*(logp - ref_logp)

def shaped_rewards(rewards, logp, ref_logp):
    return rewards - 0.1*(logp - ref_logp)

def policy_advantage(advantages):
    return 2*advantages

def plain_k3(logp, ref_logp):
    d = ref_logp - logp
    return torch.exp(d) - d - 1

def accurate_k3(logp, ref_logp):
    d = ref_logp - logp
    return torch.expm1(d) - d

def clamped_ratio(logp, ref_logp):
    d = (ref_logp - logp).clamp(-20, 20)
    return torch.expm1(d) - d

def clamped_value(logp, ref_logp):
    d = ref_logp - logp
    return (torch.exp(d) - d - 1).clamp(-10, 10)

def replaced(logp, ref_logp):
    d = ref_logp - logp
    return torch.where(d > 20, 1.0 * d, torch.expm1(d.clamp(max=20)) - d)

def squared(logp, ref_logp):
    return 0.5*(logp - ref_logp)**2
"""


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("code") / "trainer.py"
    file.write_text(CODE)
    return file


def codes(trainer: Path, name: str, **options: object) -> set[str]:
    found = audits.audit(f"{trainer}:{name}", **options)  # type: ignore[arg-type]
    return {one.code.code for one in found.verdict.diagnostics}


@pytest.mark.parametrize(
    ("name", "result"),
    [("penalty", None), ("log_probability_loss", None), ("kl_and_loss", None), ("statistics", 0),
     ("two_values", 0)],
)  # fmt: skip
def test_a_loss_without_a_gradient_is_told(trainer: Path, name: str, result: str | int | None) -> None:
    """A value that is chosen is taken at its word."""
    options = {} if result is None else {"result": result}
    assert "KL001" in codes(trainer, name, **options)


@pytest.mark.parametrize(
    "name", ["statistics", "two_values", "compute_advantages", "shaped_rewards", "policy_advantage"]
)
def test_a_value_that_nothing_calls_a_loss_is_not(trainer: Path, name: str) -> None:
    assert "KL001" not in codes(trainer, name)


FLOATS = ["plain_k3", "accurate_k3", "clamped_ratio", "clamped_value", "replaced", "squared", "penalty"]


@pytest.mark.parametrize("name", FLOATS)
def test_one_answer_says_one_thing_of_float32(trainer: Path, name: str) -> None:
    """The code is run in float32: KL014 speaks just where the run is not finite."""
    found = audits.audit(f"{trainer}:{name}")
    told = {one.code.code for one in found.verdict.diagnostics}
    texts = [finding.text for finding in found.findings]
    finite = any(text.startswith("finite in float32") for text in texts)
    overflowed = any("in float32" in text and not text.startswith("finite") for text in texts)
    assert finite != overflowed and ("KL014" in told) == overflowed


def test_both_outcomes_are_met(trainer: Path) -> None:
    assert [name for name in FLOATS if "KL014" in codes(trainer, name)] == [
        "plain_k3", "accurate_k3", "clamped_value",
    ]  # fmt: skip
