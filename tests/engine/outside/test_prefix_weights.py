"""Weights of the tokens before one that do not depend on theta (IW-OPD), judged by enumeration."""

from __future__ import annotations

import pytest

from klsym import explain
from klsym.errors import UsageError
from support.judges.loss_judge import examine
from support.losses.cases import case as written

GAP = "abs(log_p - log_mu)"
OPD = f"-log_q*sg((1 + lam*(1 - past({GAP})/max(whole({GAP}), eps)))*(log_p - log_mu))"  # IW-OPD of TRL
JUDGED = [
    (written(OPD, "off token"), "own-mean"),
    (written(OPD, "token"), "no-objective"),
    (written(f"exp(-past({GAP}))*k1", "off token"), "own-mean"),
    (written(f"exp(-past({GAP}))*full(k1)", "off token"), "own-mean"),
    (written(f"past({GAP})*k2", "token"), "no-objective"),
    (written("past((log_p - log_mu)**2)*k2", "off token"), "own-mean"),
    (written("past(where(log_p > log_mu, log_p - log_mu, 0))*rho*A", "off token"), "own-mean"),
    # weights that move with theta, be it by jumps
    (written("sg(past(abs(log_q - log_mu)))*k2", "off token"), "no-objective"),
    (written("past(where(rho > 1, log_p - log_mu, 0))*k2", "off token"), "open"),
]


@pytest.mark.parametrize(("case", "target"), JUDGED, ids=str)
def test_the_oracle_agrees(case, target: str) -> None:
    outcome = examine(case)
    assert (outcome.target, outcome.complaints) == (target, ())


@pytest.mark.parametrize(
    "x", ["abs(log_q - log_mu)", "abs(k1)", "k2", "abs(2*log_p - log_mu)*k1", "abs(log_p - log_mu)*log_q"]
)
def test_a_sum_that_has_a_gradient_is_refused(x: str) -> None:
    with pytest.raises(UsageError, match="and it is differentiated here"):
        explain(f"past({x})*A*log_q", level="token", sampling="off-policy")


def test_the_policy_of_the_reference_and_the_sampler_alone_is_detached() -> None:
    plain, held = (
        explain(f"{weight}*k2", level="token", sampling="off-policy").to_json()
        for weight in (f"past({GAP})", f"sg(past({GAP}))")
    )
    assert plain["gradient"]["per_sample"] == held["gradient"]["per_sample"]
    assert plain["trust"] == "kernel" and plain["target"] == held["target"] == "own-mean"
