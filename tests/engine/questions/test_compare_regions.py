"""Two spellings of one loss with bounds are the same: the regions of both meet in the difference."""

from __future__ import annotations

import json

import pytest

import klsym
from klsym.kernel import check, read

OFF = {"sampling": "off-policy"}
PPO = "-torch.min(ratio*adv, torch.clamp(ratio, 1-eps, 1+eps)*adv)"
BY_SIGN = "-torch.where(adv > 0, torch.clamp(ratio, max=1+eps), torch.clamp(ratio, min=1-eps))*adv"
WEIGHT = "exp(log_old - log_mu)"
SAME = [
    (PPO, BY_SIGN),
    ("-min(rho*A, clip(rho, 0.8, 1.2)*A)", "-where(A > 0, min(rho, 1.2), max(rho, 0.8))*A"),
    ("-min(rho, 1.2)", "-where(rho < 1.2, rho, 1.2)"),
    (f"-{WEIGHT}*min(rho_old, 1.2)", f"-min(rho, 1.2*{WEIGHT})"),
    (f"-{WEIGHT}*min(rho_old*A, clip(rho_old, 1-eps, 1+eps)*A)",
     f"-min(rho*A, clip(rho_old, 1-eps, 1+eps)*{WEIGHT}*A)"),
    ("-max(rho*A, clip(rho, 0.8, 1.2)*A)", "min(-rho*A, -clip(rho, 0.8, 1.2)*A)"),
]  # fmt: skip
OTHER = [
    ("-min(rho*A, clip(rho, 0.8, 1.2)*A)", "-where(A > 0, max(rho, 1.2), min(rho, 0.8))*A"),
    ("-min(rho*A, clip(rho, 0.8, 1.2)*A)", "-where(A > 0, min(rho, 1.2), max(rho, 0.7))*A"),
    ("-min(rho, 1.2)", "-where(rho < 1.3, rho, 1.2)"),
    (f"-{WEIGHT}*min(rho_old, 1.2)", f"-min(rho, 1.3*{WEIGHT})"),
    ("-min(rho, 1.2)", "-max(rho, 1.2)"),
    ("-min(rho*A, clip(rho, 0.8, 1.2)*A)", "-clip(rho, 0.8, 1.2)*A"),
]


@pytest.mark.parametrize(("first", "second"), SAME)
def test_the_same_loss_in_another_spelling_is_proved_to_be(first: str, second: str) -> None:
    answer = klsym.compare(first, second, **OFF)
    assert (answer.value.same, answer.per_sample.same, answer.gradient.same) == (True, True, True)
    assert all(part.trust == "kernel" and part.proof for part in (answer.value, answer.gradient))
    assert str(answer).splitlines()[1].strip().startswith("Training goes to the same policy")


@pytest.mark.parametrize(("first", "second"), OTHER)
def test_another_loss_is_proved_to_be_another(first: str, second: str) -> None:
    answer = klsym.compare(first, second, **OFF)
    assert answer.gradient.same is False and answer.gradient.witness


@pytest.mark.parametrize(
    ("first", "second", "bound"),
    [
        ("-min(rho, 1.2)", "-where(rho < 1.2, rho, 1.2)", "rho = 6/5"), (PPO, BY_SIGN, "rho = eps + 1"),
        ("k1", "k1", ""),
    ],
)  # fmt: skip
def test_slopes_at_a_tie_are_told(first: str, second: str, bound: str) -> None:
    """min and max share the slope at a tie, and where(..) does not: it is assumed that there is no tie."""
    answer, is_off_bounds = klsym.compare(first, second, **OFF), bool(bound)
    assert answer.per_sample.same and answer.per_sample.is_off_bounds is is_off_bounds
    assert ("at each sample that lies on no bound" in str(answer)) is is_off_bounds
    assert any(f"does not lie where {bound or 'rho'}" in text for text in answer.hypotheses) is is_off_bounds


def test_the_certificates_of_differences_are_replayed() -> None:
    answer = klsym.compare("-min(rho, 1.2)", "-where(rho < 1.2, rho, 1.2)", **OFF)
    assert len(answer.proofs) == 3
    for proof in answer.proofs:
        assert check(read(json.dumps(proof.certificate()))) == (proof.theorem.proved,)
