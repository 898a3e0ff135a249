"""Clamps in every setting: what is said by regions, on a screen, with a theorem about regions."""

from __future__ import annotations

import re

import klsym
from klsym.notation.printers import TEXT
from klsym.render.objective import build_objective_formula
from support.losses.cases import options

PPO = "-min(rho*{0}, clip(rho, 0.8, 1.2)*{0})"
GRPO = "-min(rho*A, clip(rho, 1 - eps, 1 + eps)*A) + beta*k3"


def test_the_bias_is_told_by_regions() -> None:
    verdict = klsym.explain(PPO.format("togo(R)"), sampling="off-policy", level="token", weights="prefix")
    text = verdict.text(full=True)
    assert "outside the clip range: E_mu[sum_t b] with b =" in text
    pushed = "rho_past*rho_now*(R_now + R_future)*(s_past + s_now)"
    rows = [line.strip() for line in text.splitlines() if line.strip().startswith(pushed)]
    assert [place for row in rows if (place := row.partition("  where ")[2])] == [
        "rho_past*rho_now > 1.2 and R_now + R_future >= 0",
        "rho_past*rho_now < 0.8 and R_now + R_future <= 0",
    ]
    inside = verdict.to_json()["gradient"]["inside_clamps"]
    assert (inside["target"], inside["combination"]["reward"]) == ("own-mean", "-R")
    assert verdict.trust == "kernel"


def test_grpo_is_answered_on_a_screen() -> None:
    verdict = klsym.explain(GRPO, level="token", sampling="off-policy")
    lines = str(verdict).splitlines()
    assert len(lines) <= 25
    assert TEXT(build_objective_formula(verdict, TEXT)) == (
        "E_mu[sum_t (beta*k3_now - min(rho_now*A, A*clip(rho_now, 1 - eps, eps + 1)))]"
    )
    assert "maximises E[A] of each token, at prefixes of mu" in re.sub(r"\s+", " ", str(verdict))
    assert any(line.startswith("  beta*k3 ") for line in lines)
    rows = verdict.to_json()["gradient"]["cases"]
    assert [row["where"] for row in rows] == [
        "rho_now > eps + 1 and A > 0", "rho_now < 1 - eps and A < 0", "otherwise",
    ]  # fmt: skip
    assert [row["per_sample"] for row in rows][:2] == ["beta - beta*r_now"] * 2  # the penalty is never masked
    inside = verdict.to_json()["gradient"]["inside_clamps"]
    assert inside["target"] == "own-mean"
    assert verdict.trust == "kernel"


def test_a_clamp_in_a_batch_is_a_theorem_about_regions() -> None:
    verdict = klsym.explain(PPO.format("A") + " + beta*k3", **options("off loo"))
    assert (
        "is_high*is_pos*rho*A" in str(verdict.proof.theorems[0])
        and verdict.proof.theorems[0].kind == "proved"
    )
    assert verdict.trust == "kernel"


def test_a_clamp_of_whole_sequences_over_T() -> None:
    """No gradient beyond the bound; within it that of k3/T."""
    clamped, plain = (klsym.explain(loss, **options("sequence /T")) for loss in ("clip(k3, 0, 5)", "k3"))
    assert clamped.gradient.inside_clamps is not None
    assert clamped.gradient.inside_clamps.complete == plain.gradient.complete == {"rest": "(1 - r)/T"}
    beyond, within = (str(value) for _, value in clamped.gradient.score_cases)
    assert (beyond, within) == ("0", "-r/length + 1/length")


def test_a_baseline_that_is_differentiated_pushes_q_to_mu() -> None:
    """E_mu[rho_i] E_mu[s_j] is left of the others' penalties."""
    attached, detached = (
        klsym.explain(loss, "off-policy") for loss in ("rho*loo(R - k1)", "rho*sg(loo(R - k1))")
    )
    assert (attached.gradient.canonical_text, detached.gradient.canonical_text) == (
        "R - k1 + 1/rho",
        "R - k1",
    )
