"""Centred batches of piecewise losses: verdicts judged by the literal oracle over all batches."""

from __future__ import annotations

import mpmath
import pytest

import klsym
from klsym.engine.proof.numeric_curl import across
from klsym.errors import UsageError
from klsym.language.parser import parse
from klsym.numeric.checks.cross_check import with_check
from support.losses.loss_judge import examine
from support.losses.piecewise_losses import generate
from support.losses.random_losses import Case

PPO = "-min(rho*A, clip(rho, 0.8, 1.2)*A) + beta*k3"
ROWS = (  # a loss, what it targets on-policy and off-policy
    (PPO, "combination", "none"),
    ("clip(k3, 0, 0.2)", "f-divergence", "none"),
    ("max(A, 0)*log_q", "combination", "separable"),  # what is taken off is free of theta
    ("abs(k1 - sg(k1))", "zero", "zero"),
    ("min(sg(rho_old), 1.3)*A*log_q", "separable", "none"),
)
BATCHES: tuple[dict[str, str], ...] = (
    {"batch": "mean"}, {"batch": "leave-one-out"}, {"level": "sequence", "batch": "leave-one-out"},
)  # fmt: skip


@pytest.mark.parametrize(("loss", "on", "off"), ROWS)
def test_verdicts(loss: str, on: str, off: str) -> None:
    for sampling, target in (("on-policy", on), ("off-policy", off)):
        for batch in BATCHES[: 1 if loss == PPO else 3]:
            outcome = examine(Case(loss, sampling, "loss", ring=False, **batch))
            assert not outcome.complaints and outcome.target == target, outcome


def test_random_losses() -> None:
    for number in range(3):
        case = generate(13, number)
        outcome = examine(Case(case.text, case.sampling, case.use, ring=False, **BATCHES[number % 3]))
        assert not outcome.complaints and outcome.target != "refused", outcome


def test_a_jump_of_h_is_no_slope() -> None:
    """h is 0 or 1/2: E_mu[h] does not move, as no sample lies where it jumps, at any theta nearby."""
    loss = "clip(log_p - log_mu, -0.21, -0.21 + k1)/2"
    outcome = examine(Case(loss, "off-policy", "loss", batch="leave-one-out", ring=False))
    assert not outcome.complaints and outcome.target == "separable", outcome


def test_what_is_proved_and_what_is_said() -> None:
    """The identity of the batch is a theorem about regions."""
    verdict = klsym.explain(PPO, sampling="off-policy", batch="leave-one-out")
    identity, *_ = verdict.proofs
    assert "is_high*is_pos*rho*A" in str(identity) and identity.kind == "proved"
    assert verdict.trust == "kernel"
    checked = with_check(verdict, parse(PPO)).check
    assert checked is not None and checked["passed"]
    assert "is_high is 1 where rho > 6/5, and 0 elsewhere" in verdict.hypotheses
    with pytest.raises(UsageError, match="batch std takes exponential polynomials alone"):
        klsym.explain(PPO, sampling="off-policy", batch="std")


@pytest.mark.parametrize("digits", [15, 50])
def test_the_digits_that_are_set_elsewhere_change_nothing(digits: int) -> None:
    """Fifteen is what mpmath has when nobody asks for more."""
    with mpmath.workdps(digits):
        verdict = klsym.explain("M*(clip(rho*A, A + k1, A)*R)", sampling="off-policy", batch="leave-one-out")
    assert verdict.target == "none"


@pytest.mark.parametrize(
    "u", [["1", "0"], ["0", "1"], ["1", "0", "0"], ["0", "1", "0"], ["0", "0", "0", "1"]]
)
def test_the_two_directions_of_a_curl_differ(u: list[str]) -> None:
    """Along one direction twice every curl is 0, so that a model would be tried in vain."""
    v = across(u)
    assert v != u and len(v) == len(u) and sorted(v) == sorted(u)


@pytest.mark.parametrize(
    ("loss", "target"),
    [
        ("M*(clip(rho*A, A + k1, A)*R)", "none"), ("clip(k1, -1, 1)*R", "none"), ("abs(k1)", "none"),
        ("max(rho, 1)*k1", "none"), ("clip(log_q, -1, 0)*A", "none"), ("abs(R)", "separable"),
        ("max(log_p, log_mu)", "separable"), ("M*abs(A)", "separable"),
    ],
)  # fmt: skip
def test_the_curl_of_a_centred_batch(loss: str, target: str) -> None:
    for batch in ("leave-one-out", "mean"):
        found = klsym.explain(loss, sampling="off-policy", use="reward", batch=batch)
        assert found.target == target
