"""Clamps that hold sums over other tokens or samples: verdicts judged by the literal oracle, refusals."""

from __future__ import annotations

import pytest

import klsym
from klsym.engine.fields.field import Field
from klsym.engine.fields.named_terms import Slots
from klsym.engine.options.settings import Setting
from klsym.engine.targets import clamps
from klsym.errors import UsageError
from klsym.language.parser import parse
from klsym.numeric.checks.cross_check import with_check
from support.losses.loss_judge import examine
from support.losses.random_losses import Case

TOKEN, PREFIX, WHOLE = ({"level": "token", "weights": w} for w in ("token", "prefix", "sequence"))
SEQUENCE = {"level": "sequence"}
TO_GO, TOTAL = ({**TOKEN, "use": "reward", "credit": credit} for credit in ("to-go", "total"))
PPO = "-min(rho*{0}, clip(rho, 0.8, 1.2)*{0})"
GSPO = PPO.replace("rho", "exp(whole(log_q - log_mu)/T)")
ROWS: tuple[tuple[str, dict[str, str], str, str], ...] = (  # what each targets on-policy and off-policy
    (PPO.format("togo(R)") + " + beta*k3", TOKEN, "none", "separable"),
    (PPO.format("togo(R)"), PREFIX, "none", "separable"),
    (PPO.format("A"), WHOLE, "combination", "separable"),
    (PPO.format("sg(togo(R - beta*k1))"), TOKEN, "combination", "none"),
    ("-sg(clip(rho, 0.8, 1.2))*A*log_q", PREFIX, "combination", "none"),
    ("max(future(k1), 0)*sg(k1)", TOKEN, "none", "none"),
    ("clip(k1/T, -0.2, 0.2)", TOKEN, "none", "separable"),
    ("clip(rho, 0.8, 1.2)*R + k1", TO_GO, "combination", "none"),
    ("abs(k1)", TOTAL, "none", "none"),
    (PPO.format("loo(R)") + " + beta*k3", {}, "combination", "separable"),
    (PPO.format("normalised(R)"), {}, "none", "separable"),
    (GSPO.format("loo(R)"), SEQUENCE, "none", "separable"),
    ("abs(loo(k1))", {}, "none", "separable"),
    ("-rho*normalised(R) + beta*k2", {}, "none", "separable"),
    # a batch of two is a pair of signs, which jump where two values meet: no curl may be read off that
    ("normalised(clip(k2, -1, 1))", {"use": "reward"}, "none", "none"),
    ("min(T, 2)*k2", {**SEQUENCE, "batch": "mean"}, "separable", "none"),
    # exponential polynomials of which no theorem speaks
    ("rho*loo(R)/T", SEQUENCE, "none", "separable"),
    ("loo(R)/T", SEQUENCE, "zero", "zero"),
    ("exp(others(k1)/n)", {"use": "reward"}, "open", "none"),
    ("others(R)*others(k2)", {"use": "reward"}, "zero", "none"),
    ("sg(future(k3)*past(k2))*log_q", TOKEN, "none", "none"),
    ("sg(future(k3))*k2 + 2*sg(past(k2))*k3", TOKEN, "none", "none"),
    ("sg(future(k3)) + past(r - k1)*k1", {**TOKEN, "use": "reward"}, "none", "none"),
    ("max(sg(future(k3)), 0)*log_q", TOKEN, "none", "none"),  # the bound, too, moves with theta
    ("clip(sg(past(k2)), 0, 1)*k1", TOKEN, "zero", "none"),
    ("others(R/T)*log_q", {**SEQUENCE, "aggregate": "mean"}, "none", "separable"),
    ("loo(k1)/T", SEQUENCE, "separable", "separable"),
    # H is free of theta, and what it stands for is not
    ("sg(others(k3))*log_q", {}, "zero", "none"),
    ("sg(others(k3))*rho*k1", {}, "separable", "none"),
    ("sg(others(A))*rho*k1", {}, "none", "separable"),
    ("rho*sg(loo(k3))*clip(r, 0, 2)", {}, "none", "none"),
    ("others(A)*A*log_q + sg(others(k2))*k3", {}, "none", "none"),
    ("-sg(normalised(R))*loo(R)*log_q + k3", {}, "none", "separable"),
    ("-rho*sg(normalised(R - beta*k1))", {}, "none", "none"),
    ("-log_q*normalised(R) + normalised(A)*k2", {}, "none", "separable"),
    (PPO.format("sg(normalised(R - k1))"), {}, "none", "none"),
    ("where(sg(normalised(k1)) > 0, log_q, 0)", {}, "none", "open"),  # H stands in a bound alone
    ("normalised(R)*others(k1)", {}, "none", "separable"),
    ("sg(min(whole(k3), 1))*log_q", TOKEN, "none", "none"),
)  # fmt: skip


@pytest.mark.parametrize(("loss", "options", "on", "off"), ROWS)
def test_verdicts(loss: str, options: dict[str, str], on: str, off: str) -> None:
    for sampling, target in (("on-policy", on), ("off-policy", off)):
        given = {"use": "loss", "level": "sample"} | options
        outcome = examine(Case(loss, sampling, ring=False, **given))
        assert (outcome.target, outcome.complaints) == (target, ()), outcome


def test_a_wrong_gradient_is_not_let_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """The prefix's own scores left out: the judge sees it."""
    honest = clamps._pushes

    def forgetful(field: Field, setting: Setting, off_bounds: bool = False) -> Slots:
        return {slot: h for slot, h in honest(field, setting, off_bounds).items() if slot != "past"}

    monkeypatch.setattr(clamps, "_pushes", forgetful)
    case = Case(PPO.format("A") + " + k3", "off-policy", "loss", "token", weights="prefix", ring=False)
    assert any("off by" in line for line in examine(case).complaints)


def test_no_curl_is_taken_at_a_kink() -> None:
    """A model in which a sequence stands exactly at the bound rho = 2 is passed over."""
    loss = "min(exp(past(log_q - log_mu))*rho*A, 2*A)"
    case = Case(loss, "off-policy", "reward", "token", weights="sequence", aggregate="mean", ring=False)
    assert examine(case).complaints == ()


def test_the_bias_is_told_by_regions() -> None:
    verdict = klsym.explain(PPO.format("togo(R)"), sampling="off-policy", level="token", weights="prefix")
    text = str(verdict)
    assert "outside the clamps: E_mu[sum_t b] with b =" in text
    pushed = "rho_past*rho_now*(R_now + R_future)*(s_past + s_now)"
    rows = [line.strip() for line in text.splitlines() if line.strip().startswith(pushed)]
    assert [row.partition("  where ")[2] for row in rows] == [
        "rho_past*rho_now > 6/5 and R_now + R_future >= 0",
        "rho_past*rho_now < 4/5 and R_now + R_future <= 0",
    ]
    inside = verdict.to_json()["gradient"]["inside_clamps"]
    assert (inside["target"], inside["combination"]["reward"]) == ("separable", "-R")
    assert verdict.trust == "kernel"


def test_the_check_knows_prefixes() -> None:
    """On sequences of one token nothing is past: sums are 0 there, ratios 1."""
    for reward, options in (("A", PREFIX), ("A", WHOLE), ("R", {**TO_GO, "sampling": "off-policy"})):
        loss = PPO.format(reward) + " + k3"
        checked = with_check(klsym.explain(loss, **{"sampling": "off-policy", **options}), parse(loss)).check
        assert checked is not None and checked["passed"], checked


@pytest.mark.parametrize(
    ("loss", "options", "words"),
    [
        ("min(future(k3), 1)", {"level": "token"}, "is differentiated here: write the loss of each token"),
        ("clip(normalised(R - k1), 0, 1)", {}, "of what is differentiated is not read"),
        ("min(others(k3), 1)", {}, "is differentiated here"),
    ],
)
def test_what_is_refused_is_said(loss: str, options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        klsym.explain(loss, **options)
    assert words in str(caught.value) and "\n" not in str(caught.value)
