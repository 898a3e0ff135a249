"""Verdicts on random losses, judged by an oracle that shares no code with klsym."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

import klsym
from klsym.kernel.ring import ONE, ZERO
from support.losses.loss_judge import DIFFER, NAMED, NUMERIC, complaints, examine, fit_gradient
from support.losses.loss_worlds import options
from support.losses.random_losses import SETTINGS, Case, anywhere, generate

SEED = 1
COUNT = 400  # of the mixture
EXAMINED = 40  # a share of the 20,000 of `make random-losses`
ANYWHERE = 12  # losses in all settings
TAMPERED = 10


# ---------------------------------------------------------------------------- the verdicts
@cache
def cases() -> tuple[Case, ...]:
    return tuple(generate(SEED, number) for number in range(COUNT))


@cache
def explained(case: Case) -> Any:
    return klsym.explain(case.text, sampling=case.sampling, use=case.use)


def test_verdicts_on_random_losses() -> None:
    outcomes = [examine(case) for case in cases()[:EXAMINED]]
    assert not [outcome for outcome in outcomes if outcome.complaints]


def test_the_mixture_holds_every_target() -> None:
    """Enough of each kind in each setting, by the judge's own recognition."""
    found = Counter((c.sampling, c.use, fit_gradient(c).target) for c in cases())
    for setting in SETTINGS:
        counts = {target: found[*setting, target] for target in ("zero", "reverse-kl", "forward-kl", None)}
        assert min(counts.values()) >= 3, (setting, counts)


def test_verdicts_in_any_setting() -> None:
    """Another share of that campaign."""
    outcomes = [examine(anywhere(SEED, number)) for number in range(ANYWHERE)]
    assert not [outcome for outcome in outcomes if outcome.complaints]


# ---------------------------------------------------------------------------- wrong answers
OTHER = {"zero": "reverse-kl", "reverse-kl": "forward-kl", "forward-kl": "combination", "combination": "zero"}


def _scaled(meaning: Any) -> Any:
    multiples = {name: value * Fraction(1001, 1000) for name, value in meaning.parts.items()}
    return replace(meaning, parts=multiples or {"reverse-kl": ONE})


def _other_target(verdict: Any) -> Any:
    other = OTHER.get(verdict.target, "separable" if verdict.target == "f-divergence" else "f-divergence")
    return replace(verdict, gradient=replace(verdict.gradient, target=other))


def _other_flag(verdict: Any) -> Any:
    unbiased = {"target": "reverse-kl", "parts": {"reverse-kl": ONE}}
    biased = {"target": "zero", "parts": {}}
    value = replace(verdict.value, **(biased if verdict.unbiased_for("reverse-kl") else unbiased))
    return replace(verdict, value=value, constant=ZERO)


def _tampered(verdict: Any) -> Any:
    """The proof of another statement under the steps of this one."""
    part = copy.deepcopy(verdict.proofs[0].part)
    part["left"], part["relation"] = part["right"], "<="
    return replace(verdict, proofs=(replace(verdict.proofs[0], part=part), *verdict.proofs[1:]))


WRONG: dict[str, Callable[[Any], Any]] = {
    "coefficient": lambda v: replace(v, c=f"{v.coefficient} + k1/1000"),
    "per_sample": lambda v: replace(v, h=f"{v.per_sample} + 1/1000"),
    "target": _other_target,
    "multiples": lambda v: replace(v, gradient=_scaled(v.gradient)),
    "unbiased": _other_flag,
    "trust": lambda v: replace(v, trust="sympy"),
    "proofs": _tampered,
}


@pytest.mark.parametrize("field", WRONG)
def test_the_judge_rejects_wrong_answers(field: str) -> None:
    """The verdicts pass as they are; with one field wrong, each is complained about under its name."""
    for case in cases()[:TAMPERED]:
        verdict = explained(case)
        if field == "multiples" and verdict.to_json()["gradient"]["target"] not in NAMED:
            continue  # what a verdict states beside a rest is not judged
        found = complaints(case, WRONG[field](verdict))
        assert any(field in line for line in found), (case, field, found)


def test_the_judge_rejects_a_wrong_witness() -> None:
    case = Case("k3", "on-policy", "loss")
    verdict = klsym.explain(case.text)
    swapped = {**verdict.witness, "left": verdict.witness["right"]}
    assert not complaints(case, verdict)
    for witness in (swapped, None):
        assert any("witness" in line for line in complaints(case, replace(verdict, model=witness)))


@pytest.mark.parametrize(
    "case",
    [
        # with two values of A, A**2 is one of A and a constant; a mask is 0 in most batches
        Case("2*rho/3 + sg(A**2) - sg(sg(A**2))", "on-policy", "reward", "sequence"),
        Case("M*clip(2*rho_old, 2 + k1, 2)", "on-policy", "reward", batch="leave-one-out", ring=False),
    ],
    ids=str,
)
def test_the_judge_names_nothing_that_its_models_cannot_tell(case: Case) -> None:
    assert not list(judged(case, klsym.explain(case.text, **options(case)).to_json()))


def test_the_judge_knows_powers_of_a_reward_of_sequences() -> None:
    """R of a sequence is a sum of rewards, with more than two values: R**3 is none of 1, R and R**2."""
    case = Case("(R)**2*R", "on-policy", "loss", "sequence")
    verdict = klsym.explain(case.text, **options(case))
    assert not complaints(case, verdict)
    wrong = replace(verdict, value=replace(verdict.value, target="zero", parts={}))
    assert any("value target" in line for line in complaints(case, wrong))


def test_the_judge_is_never_close_to_undecided() -> None:
    """Misfits are rounding or far above it: the bounds of the judge lie in a wide gap."""
    misfits = np.array([fit_gradient(case).misfit for case in cases()])
    assert not np.any((misfits > 1e-12) & (misfits < 10 * DIFFER))


IN_OTHER_SETTINGS = (
    Case("rho*k3 - beta*rho*R", "off-policy", "loss", "token", weights="prefix"),
    Case("k2", "on-policy", "loss", "token"), Case("k3 - R", "on-policy", "reward", "token", credit="to-go"),
    Case("k1", "on-policy", "reward", "sequence", aggregate="mean"),
    Case("R - beta*k1", "on-policy", "reward", batch="leave-one-out"),
    Case("rho*k1", "off-policy", "reward", batch="mean"),
    Case("k3", "on-policy", "loss", "sequence", batch="mean"),
)  # fmt: skip


@pytest.mark.parametrize("case", IN_OTHER_SETTINGS, ids=str)
def test_the_judge_rejects_wrong_answers_in_other_settings(case: Case) -> None:
    answer = klsym.explain(case.text, **options(case)).to_json()
    gradient, sound = answer["gradient"], list(judged(case, answer))
    assert not sound
    other = "none" if gradient["target"] != "none" else "reverse-kl"
    more = {name: f"({text})*1.001" for name, text in (gradient["combination"] or {}).items()}
    wrong = {"coefficient": f"1.001*({gradient['coefficient']})", "target": other}
    if gradient["target"] in NAMED:
        wrong["combination"] = more
    for name, value in wrong.items():
        assert list(judged(case, {**answer, "gradient": {**gradient, name: value}})), (case, name)


def judged(case: Case, answer: dict[str, Any]) -> Iterator[str]:
    return (line for check in NUMERIC for line in check(case, answer))
