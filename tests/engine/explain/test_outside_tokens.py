"""Clamps at each token: verdicts judged by the literal oracle, and what they say."""

from __future__ import annotations

import time

import pytest

import klsym
from klsym.language.parser import parse
from klsym.numeric.checks.cross_check import with_check
from support.losses.loss_judge import examine
from support.losses.piecewise_losses import generate
from support.losses.random_losses import Case

GRPO = "-min(rho*A, clip(rho, 1 - eps, 1 + eps)*A) + beta*k3"
OLD = "-min(rho_old*A, clip(rho_old, 0.8, 1.2)*A)"
ROWS = (  # a loss, what it targets as a loss on-policy and off-policy
    (GRPO, "none", "separable"),
    (f"min(exp(log_old - log_mu), 1.3)*{OLD}", "none", "separable"),  # truncated importance weights
    ("-sg(min(rho, 1.2))*A*log_q", "combination", "separable"),  # CISPO; on-policy rho is 1
    ("clip(k3, 0, 0.1)", "none", "separable"),
    ("M*abs(k1)", "none", "separable"),
    ("max(k1, 0) + min(k1, 0)", "zero", "separable"),  # k1
    ("max(A, 0)*k1", "combination", "separable"),
    ("max(R, 0)*k1", "none", "separable"),
    ("sqrt(1 + k1**2)", "none", "separable"),
    ("min(k2, k3) + rho*A*log_q", "none", "separable"),
)  # fmt: skip
SLOW = (GRPO, ROWS[1][0])
USES: tuple[dict[str, str], ...] = (
    {"use": "loss"}, {"use": "loss", "aggregate": "mean"}, {"use": "reward", "credit": "same-token"},
)  # fmt: skip


@pytest.mark.parametrize(("loss", "on", "off"), ROWS)
def test_verdicts(loss: str, on: str, off: str) -> None:
    """As a loss in both settings; in the other uses where that is quick, each in one of them."""
    for sampling, target in (("on-policy", on), ("off-policy", off)):
        for use in USES[:1] if loss in SLOW else (USES[0], USES[1 + (sampling == "off-policy")]):
            outcome = examine(Case(loss, sampling, level="token", ring=False, **use))
            assert not outcome.complaints, outcome
            assert use != {"use": "loss"} or outcome.target == target, outcome


def test_random_losses() -> None:
    """A share of `make random-losses`; none is refused but for what is no clamp's fault."""
    for number in range(4):
        case = generate(11, number)
        credit = {"credit": "same-token"} if case.use == "reward" else {}
        outcome = examine(Case(case.text, case.sampling, case.use, "token", ring=False, **credit))
        assert not outcome.complaints, outcome
        assert outcome.target != "refused" or "no value" in outcome.reason, outcome


def test_grpo_is_answered_on_a_screen() -> None:
    start = time.process_time()
    verdict = klsym.explain(GRPO, level="token", sampling="off-policy")
    text = str(verdict)
    assert time.process_time() - start < 5
    assert len(text.splitlines()) <= 50  # a screen, with the counterexample, the hypotheses and what to write
    assert text.splitlines()[0].endswith(
        "targets grad E_mu[sum_t (beta*k3_now - min(rho_now*A, A*clip(rho_now, 1 - eps, eps + 1)))]"
    )
    rows = verdict.to_json()["gradient"]["cases"]
    assert [row["where"] for row in rows] == [
        "rho_now > eps + 1 and A > 0", "rho_now < 1 - eps and A < 0", "otherwise",
    ]  # fmt: skip
    assert [row["per_sample"] for row in rows][:2] == ["beta - beta*r_now"] * 2  # the penalty is never masked
    inside = verdict.to_json()["gradient"]["inside_clamps"]
    assert inside["target"] == "separable"
    assert verdict.trust == "kernel"


def test_the_check_knows_tokens_outside_the_ring() -> None:
    verdict = klsym.explain(GRPO, level="token", sampling="off-policy")
    assert with_check(verdict, parse(GRPO)).check is not None
