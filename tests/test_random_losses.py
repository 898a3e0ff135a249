"""Verdicts on random losses, judged by an oracle that shares no code with klsym."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import loss_oracle as oracle
import numpy as np
import pytest
from loss_judge import DIFFER, NAMED, complaints, examine, fit_gradient
from random_losses import SETTINGS, Case, generate

import klsym

SEED = 1
COUNT = 400
BATCH = 25  # losses a test: small enough to spread over parallel workers
LOSSES = (
    "k1", "k2*rho", "sg(rho)*k3 - k1*log_mu", "k(lam)**2 - beta*R*A", "exp(-k1/2)/rho", "r**-2 + A",
    "sqrt(r)*log(1 + r)", "abs(k1)*sg(k2)", "clip(rho, 0.7, 1.3)*k1", "min(rho*A, clip(rho, 0.8, 1.2)*A)",
    "max(k1, r, sg(rho)) - -log_q**3", "3/7",
)  # fmt: skip


# ---------------------------------------------------------------------------- the oracle itself
@pytest.mark.parametrize(("sampling", "use"), SETTINGS)
@pytest.mark.parametrize("text", LOSSES)
def test_oracle_against_central_differences(text: str, sampling: str, use: str) -> None:
    for models in oracle.random_models(seed=3):
        exact = oracle.expected_gradient(text, models, sampling, use)
        differences = oracle.central_difference(text, models, sampling, use)
        np.testing.assert_allclose(exact, differences, rtol=1e-6, atol=1e-8)


def test_functionals_of_the_oracle_against_central_differences() -> None:
    step = 1e-6
    for models in oracle.random_models(seed=4):
        h = models.R**2 - models.A
        exact = (
            (oracle.grad_reverse_kl(models), oracle.reverse_kl),
            (oracle.grad_forward_kl(models), oracle.forward_kl),
            (oracle.grad_mean(h, models), lambda m, h=h: (m.q * h).sum(axis=-1)),
        )
        for gradient, functional in exact:
            for j, direction in enumerate(np.eye(models.q.shape[1])):
                moved = [np.exp(oracle.log_softmax(np.log(models.q) + s * direction)) for s in (step, -step)]
                ahead, behind = (functional(replace(models, q=q)) for q in moved)
                np.testing.assert_allclose(gradient[:, j], (ahead - behind) / (2 * step), atol=1e-8)


def test_oracle_knows_the_textbook_gradients() -> None:
    """Four well-known cases, two of them traps."""
    for models in oracle.random_models(seed=5):
        reverse, forward = oracle.grad_reverse_kl(models), oracle.grad_forward_kl(models)
        for text, sampling, use, gradient in (
            ("k1", "on-policy", "loss", 0 * reverse),
            ("k3", "on-policy", "loss", forward),
            ("rho*k3", "off-policy", "loss", reverse),
            ("k3", "on-policy", "reward", reverse - forward),
        ):
            found = oracle.expected_gradient(text, models, sampling, use)
            np.testing.assert_allclose(found, gradient, atol=1e-13)


# ---------------------------------------------------------------------------- the verdicts
@cache
def cases(count: int = COUNT) -> tuple[Case, ...]:
    return tuple(generate(SEED, number) for number in range(count))


@pytest.mark.parametrize("first", range(0, COUNT, BATCH))
def test_verdicts_on_random_losses(first: int) -> None:
    outcomes = [examine(case) for case in cases()[first : first + BATCH]]
    assert not [outcome for outcome in outcomes if outcome.complaints]


def test_the_mixture_holds_every_target() -> None:
    """Enough of each kind in each setting, by the judge's own recognition."""
    found = Counter((c.sampling, c.use, fit_gradient(c).target) for c in cases())
    for setting in SETTINGS:
        counts = {target: found[*setting, target] for target in ("zero", "reverse-kl", "forward-kl", None)}
        assert min(counts.values()) >= 3, (setting, counts)


# ---------------------------------------------------------------------------- wrong answers
OTHER = {"zero": "reverse-kl", "reverse-kl": "forward-kl", "forward-kl": "combination", "combination": "zero"}


def _scaled(meaning: Any) -> Any:
    multiples = {name: f"({value})*1.001" for name, value in meaning.multiples.items()}
    return replace(meaning, multiples=multiples or {"reverse-kl": "1"})


def _other_target(verdict: Any) -> Any:
    other = OTHER.get(verdict.target, "separable" if verdict.target == "f-divergence" else "f-divergence")
    return replace(verdict, gradient=replace(verdict.gradient, target=other))


def _other_flag(verdict: Any) -> Any:
    unbiased = {"target": "reverse-kl", "multiples": {"reverse-kl": "1"}}
    biased = {"target": "zero", "multiples": {}}
    value = replace(verdict.value, **(biased if verdict.unbiased_for("reverse-kl") else unbiased))
    return replace(verdict, value=value, value_constant="0")


def _tampered(verdict: Any) -> Any:
    """The proof of another statement under the steps of this one."""
    part = copy.deepcopy(verdict.proofs[0].part)
    part["left"], part["relation"] = part["right"], "<="
    return replace(verdict, proofs=(replace(verdict.proofs[0], part=part), *verdict.proofs[1:]))


WRONG: dict[str, Callable[[Any], Any]] = {
    "coefficient": lambda v: replace(v, coefficient=f"{v.coefficient} + k1/1000"),
    "per_sample": lambda v: replace(v, per_sample=f"{v.per_sample} + 1/1000"),
    "target": _other_target,
    "multiples": lambda v: replace(v, gradient=_scaled(v.gradient)),
    "unbiased": _other_flag,
    "trust": lambda v: replace(v, trust="sympy"),
    "proofs": _tampered,
}


@pytest.mark.parametrize("field", WRONG)
def test_the_judge_rejects_wrong_answers(field: str) -> None:
    """The verdicts pass as they are; with one field wrong, each is complained about under its name."""
    for case in cases(60):
        outcome = examine(case)
        if outcome.complaints:
            continue  # reported by the test above
        if field == "multiples" and outcome.target not in NAMED:
            continue  # what a verdict states beside a rest is not judged
        verdict = klsym.explain(case.text, sampling=case.sampling, use=case.use)
        found = complaints(case, WRONG[field](verdict))
        assert any(field in line for line in found), (case, field, found)


def test_the_judge_rejects_a_wrong_witness() -> None:
    case = Case("k3", "on-policy", "loss")
    verdict = klsym.explain(case.text)
    swapped = {**verdict.witness, "left": verdict.witness["right"]}
    assert not complaints(case, verdict)
    for witness in (swapped, None):
        assert any("witness" in line for line in complaints(case, replace(verdict, witness=witness)))


def test_the_judge_is_never_close_to_undecided() -> None:
    """Misfits are rounding or far above it: the bounds of the judge lie in a wide gap."""
    misfits = np.array([fit_gradient(case).misfit for case in cases()])
    assert not np.any((misfits > 1e-12) & (misfits < 10 * DIFFER))
