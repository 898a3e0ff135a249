"""Verdicts on random losses, judged by an oracle that shares no code with klsym, and its controls."""

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
from klsym.engine.targets import clamp_messages as clamps
from klsym.engine.verdicts.verdict import Counterexample
from klsym.kernel.ring import ONE, ZERO
from support.judges import bounds_judge
from support.judges.loss_fit import DIFFER, fit_gradient
from support.judges.loss_judge import NAMED, NUMERIC, complaints, examine
from support.judges.loss_worlds import on_bounds_alone, options
from support.losses.cases import case as written
from support.losses.productions import RULES
from support.losses.random_losses import SETTINGS, Case, generate
from support.scale import scaled

SEED, MIXTURE, TAMPERED = 1, 300, 8
# losses of each kind in `make test-all`, and in `make test`
KINDS = {
    "core": (400, 30),
    "anywhere": (200, 16),
    "sums": (200, 24),
    "discounted": (400, 16),
    "clamped": (40, 4),
    "methods": (300, 24),
    "detached": (300, 24),
}


@cache
def mixture() -> tuple[Case, ...]:
    return tuple(generate("core", SEED, number) for number in range(MIXTURE))


@pytest.mark.parametrize("kind", KINDS)
def test_verdicts_on_random_losses(kind: str) -> None:
    """A share of `make random-losses`."""
    one = bounds_judge.examined if kind == "clamped" else examine
    outcomes = [one(generate(kind, SEED, number)) for number in range(scaled(*KINDS[kind]))]
    assert not [outcome for outcome in outcomes if outcome.complaints]
    assert kind != "clamped" or not [outcome for outcome in outcomes if outcome.target == "refused"]


def test_the_mixtures_hold_every_target_and_setting() -> None:
    """Enough of each kind in each setting, by the judge's own recognition."""
    found = Counter((c.sampling, c.use, fit_gradient(c).target) for c in mixture())
    for setting in SETTINGS:
        counts = {target: found[*setting, target] for target in ("zero", "reverse-kl", "forward-kl", None)}
        assert min(counts.values()) >= 3, (setting, counts)
    clamped = [generate("clamped", SEED, number) for number in range(400)]
    for has in ("rho_old", "M*", "clip(", "min(", "max(", "abs(", "log_old", *RULES["of a sequence"]):
        assert sum(has in case.text for case in clamped) > (10 if len(has) < 10 else 0), has
    assert len({(case.level, case.batch, case.aggregate) for case in clamped}) == 6


# ---------------------------------------------------------------------------- wrong answers are rejected
OTHER = {"zero": "reverse-kl", "reverse-kl": "forward-kl", "forward-kl": "combination", "combination": "zero"}


def _scaled(meaning: Any) -> Any:
    multiples = {name: value * Fraction(1001, 1000) for name, value in meaning.parts.items()}
    return replace(meaning, parts=multiples or {"reverse-kl": ONE})


def _other_target(verdict: Any) -> Any:
    other = OTHER.get(verdict.target, "objective" if verdict.target == "f-divergence" else "f-divergence")
    return verdict.revise(gradient=replace(verdict.gradient, target=other))


def _other_flag(verdict: Any) -> Any:
    unbiased = {"target": "reverse-kl", "parts": {"reverse-kl": ONE}}
    biased = {"target": "zero", "parts": {}}
    value = replace(verdict.value, **(biased if verdict.value.is_unbiased_for("reverse-kl") else unbiased))
    return verdict.revise(value=value, constant=ZERO)


def _tampered(verdict: Any) -> Any:
    """The proof of another statement under the steps of this one."""
    part = copy.deepcopy(verdict.proof.theorems[0].part)
    part["left"], part["relation"] = part["right"], "<="
    return verdict.revise(
        theorems=(replace(verdict.proof.theorems[0], part=part), *verdict.proof.theorems[1:])
    )


WRONG: dict[str, Callable[[Any], Any]] = {
    "coefficient": lambda v: v.revise(canonical_coefficient=f"{v.gradient.canonical_text} + k1/1000"),
    "per_sample": lambda v: v.revise(score_coefficient=f"{v.gradient.score_text} + 1/1000"),
    "target": _other_target,
    "multiples": lambda v: v.revise(gradient=_scaled(v.gradient)),
    "unbiased": _other_flag,
    "trust": lambda v: v.revise(trust="sympy"),
    "proofs": _tampered,
}


@pytest.mark.parametrize("field", WRONG)
def test_the_judge_rejects_wrong_answers(field: str) -> None:
    """With one field wrong, each verdict is complained about under the name of that field."""
    for case in mixture()[:TAMPERED]:
        verdict = klsym.explain(case.text, sampling=case.sampling, use=case.use)
        if field == "multiples" and verdict.to_json()["gradient"]["target"] not in NAMED:
            continue  # what a verdict states beside a rest is not judged
        found = complaints(case, WRONG[field](verdict))
        assert any(field in line for line in found), (case, field, found)


IN_OTHER_SETTINGS = (
    written("rho*k3 - beta*rho*R", "off token prefix"), written("k2", "token"),
    written("k3 - R", "token reward to-go"), written("k1", "sequence reward /T"),
    written("R - beta*k1", "reward loo"), written("rho*k1", "off reward mean"), written("k3",
    "sequence mean"),
    written("clip(rho, 1, 2)*A"), written("min(rho, 1)*A"), written("abs(rho - 1)*A + rho*R"),  # at a tie
    written("max(min(r, 2*k3), 2*k3 - 1/5)"),  # one of few samples lies between the bounds
    written("M*clip(k1, -1/3, -1/3)", "token reward total"),  # of one value: a mean of M
    written("M*clip(k1 + A, 1/5, 1/5)", "off mean"), written("clip(k2, 1/9, 1/9)*(k1 + R) + r/2"),
    written("seqmean(log_q) + whole(R - beta*k1)", "sequence /T"), written("whole(R)*R + rho*k1", "token"),
    written("clip(rho, 0, 2)*k1*R", "off token reward whole"),  # the same bound at each token
    written("log_q*future(sg(abs(whole(k1))*k2))", "token"),
)  # fmt: skip


@pytest.mark.parametrize("case", IN_OTHER_SETTINGS, ids=str)
@pytest.mark.share(3)
def test_the_judge_rejects_wrong_answers_in_other_settings(case: Case) -> None:
    answer = klsym.explain(case.text, **options(case)).to_json()
    gradient = answer["gradient"]
    assert not list(judged(case, answer))
    other = "no-objective" if gradient["target"] != "no-objective" else "reverse-kl"
    more = {name: f"({text})*1.001" for name, text in (gradient["combination"] or {}).items()}
    wrong = {"coefficient": f"1.001*({gradient['coefficient']}) + k1/500", "target": other}
    if gradient["target"] in NAMED:
        wrong["combination"] = more
    for name, value in wrong.items():
        assert list(judged(case, {**answer, "gradient": {**gradient, name: value}})), (case, name)


def test_the_judge_reads_where_a_reward_is_said_to_fall() -> None:
    case = written("lam*(rho*R) - R*k1/2", "loo")
    answer = klsym.explain(case.text, **options(case)).to_json()
    assert not list(judged(case, answer))
    turned = [line.replace("1/2 - lam < 0", "1/2 - lam > 0") for line in answer["warnings"]]
    assert turned != answer["warnings"]
    assert any("moves E_q[R] otherwise" in line for line in judged(case, {**answer, "warnings": turned}))


NOWHERE = "descending this loss lowers the mean of a reward whose slope in A is nowhere negative"


@pytest.mark.parametrize(
    ("loss", "wrong"),
    [
        ("clip(A, -1, 1)*log_q", []), ("clip(A, -1, 1)*log_q", [NOWHERE.replace("A", "R")]),
        ("abs(A)*log_q", [NOWHERE]), ("-max(A, 0)*log_q", [NOWHERE]), ("k1*A*log_q", [NOWHERE]),
        ("lam*max(A, 0)*log_q", [f"{NOWHERE} where lam < 0"]),
        ("A*log_q + clip(k1, -1, 1)*log_q", ["descending this loss lowers E_q[A]"]),  # and moves the rest
    ],
)  # fmt: skip
def test_the_judge_reads_of_which_rewards_it_is_said_that_they_fall(loss: str, wrong: list[str]) -> None:
    case = written(loss)
    answer = klsym.explain(loss).to_json()
    assert not list(judged(case, answer))
    assert list(judged(case, {**answer, "warnings": wrong}))


@pytest.mark.parametrize(
    ("coefficient", "alone"),
    [
        ("M - M*where(k1 < 1/5, 1, 0) - M*where(k1 > 1/5, 1, 0)", True),
        ("M - M*where(k1 < 1/5, 1, 0)", False), ("where(k1 < 1/5, 1, 0)", False), ("k1", False), ("0", False),
    ],
)  # fmt: skip
def test_a_gradient_on_bounds_alone(coefficient: str, alone: bool) -> None:
    assert on_bounds_alone({"gradient": {"cases": None, "coefficient": coefficient}}) is alone


def judged(case: Case, answer: dict[str, Any]) -> Iterator[str]:
    return (line for check in NUMERIC for line in check(case, answer))


def test_the_judge_rejects_a_wrong_witness() -> None:
    case, verdict = Case("k3", "on-policy", "loss"), klsym.explain("k3")
    assert not complaints(case, verdict)
    for witness in ({**verdict.counterexample.model, "left": verdict.counterexample.model["right"]}, None):
        assert any(
            "witness" in line
            for line in complaints(case, verdict.revise(counterexample=Counterexample(witness)))
        )


def test_the_judge_rejects_a_wrong_slope_at_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """clip passes the slope on at its bounds: a loss that does not is another one there, and only there."""
    case = written("clip(rho_old, 1, 2)*A", "off")
    answer = klsym.explain(case.text, sampling=case.sampling).to_json()
    assert not list(bounds_judge.on_the_bounds(case, answer))
    honest = bounds_judge.evaluate
    monkeypatch.setattr(bounds_judge, "evaluate", lambda text, names: honest(
        text.replace("clip(rho_old, 1, 2)", "max(rho_old, 1)"), names))  # fmt: skip
    assert list(bounds_judge.on_the_bounds(case, answer))


def test_the_judge_sees_scores_that_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scores of the prefix."""
    honest = clamps._find_score_coefficients
    monkeypatch.setattr(clamps, "_find_score_coefficients", lambda *given: {
        slot: h for slot, h in honest(*given).items() if slot != "past"})  # fmt: skip
    case = written("-min(rho*A, clip(rho, 0.8, 1.2)*A) + k3", "off token prefix")
    assert any("off by" in line for line in examine(case).complaints)


# ---------------------------------------------------------------------------- the judge's own limits
HARD = (
    # with two values of A, A**2 is one of A and a constant; a mask is 0 in most batches
    Case("2*rho/3 + sg(A**2) - sg(sg(A**2))", "on-policy", "reward", "sequence"),
    Case("M*clip(2*rho_old, 2 + k1, 2)", "on-policy", "reward", batch="leave-one-out", ring=False),
    # a model in which a sequence stands exactly at the bound rho = 2 is passed over
    written("min(exp(past(log_q - log_mu))*rho*A, 2*A)", "off token reward whole /T"),
)


@pytest.mark.parametrize("case", HARD, ids=str)
def test_the_judge_names_nothing_that_its_models_cannot_tell(case: Case) -> None:
    assert not list(judged(case, klsym.explain(case.text, **options(case)).to_json()))


def test_the_judge_knows_powers_of_a_reward_of_sequences() -> None:
    """R of a sequence is a sum of rewards, with more than two values: R**3 is none of 1, R and R**2."""
    case = Case("(R)**2*R", "on-policy", "loss", "sequence")
    verdict = klsym.explain(case.text, **options(case))
    assert not complaints(case, verdict)
    wrong = verdict.revise(value=replace(verdict.value, target="zero", parts={}))
    assert any("value target" in line for line in complaints(case, wrong))


def test_the_judge_is_never_close_to_undecided() -> None:
    """Misfits are rounding or far above it: the bounds of the judge lie in a wide gap."""
    misfits = np.array([fit_gradient(case).misfit for case in mixture()])
    assert not np.any((misfits > 1e-12) & (misfits < 10 * DIFFER))


@pytest.mark.parametrize(
    ("text", "sense"),
    [
        ("clip(log_q - log_mu, 0, 0)*R + rho*k1", "minimised"),
        ("max(k1, 0)*min(k1, 0)*R + k2", "minimised"),
        ("max(k1, 0)*min(k1, 1)*R + k2", "maximised"),
        ("R - sg(R) + k2", "minimised"),
        ("clip(rho, 0, 0)*A + k1", "minimised"),
        ("clip(rho, 0, 1)*A + k1", "maximised"),
    ],
)  # fmt: skip
def test_a_reward_that_drops_out_is_none(text: str, sense: str) -> None:
    """A penalty is subtracted from the reward, so that an update lowers its mean."""
    assert klsym.explain(text, use="reward").is_ascended == (sense == "maximised")
