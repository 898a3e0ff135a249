"""The cheat sheet of the literature: what each placement of each estimator targets.

Every row is judged twice: against what the papers say, and against the gradient of the loss itself,
which `expected_gradient` computes on finite models with the literal oracle, sharing no code with klsym.
"""

from __future__ import annotations

from typing import Any

import pytest

from klsym.engine.fields.named_terms import recognise, recognise_value
from klsym.language.convert import to_ring
from klsym.language.parser import parse
from support.losses.float_sheet import (
    MODELS,
    SHEET,
    close,
    combined,
    derivative,
    evaluate,
    expected_gradient,
    expected_value,
    mean,
    same,
    samples,
    score_form,
    sheet,
)


@pytest.mark.parametrize(("loss", "sampling", "use", "row"), SHEET)
def test_the_cheat_sheet_itself_holds(loss: str, sampling: str, use: str, row: Any) -> None:
    """No klsym here: the table against the plain gradients and values."""
    target, combination, per_sample, coefficient, value = row
    for model in MODELS:
        gradient = expected_gradient(loss, model, sampling, use)
        assert close(gradient, score_form(coefficient, model, sampling))
        if target in ("zero", "reverse-kl", "forward-kl", "combination"):
            assert close(gradient, score_form(combined(combination), model, sampling))
    for name, divergence in (("reverse-kl!", "k1"), ("forward-kl!", "-r*k1")):
        values = [(expected_value(loss, m, sampling), mean(divergence, m, sampling)) for m in MODELS]
        assert all(close(a, b) for a, b in values) == (value == name)
    pushed = derivative if use == "loss" else evaluate
    points = [samples(model, sampling)[2] for model in MODELS]
    assert all(close(pushed(loss, at), evaluate(per_sample, at)) for at in points)


@pytest.mark.parametrize(("loss", "sampling", "use", "row"), SHEET)
def test_cheat_sheet(loss: str, sampling: str, use: str, row: Any) -> None:
    target, combination, per_sample, coefficient, value = row
    verdict = sheet(loss, sampling, use)
    answer = verdict.to_json()
    gradient = answer["gradient"]
    assert (gradient["target"], verdict.trust) == (target, "kernel")
    assert same(gradient["per_sample"], per_sample, sampling)
    assert same(gradient["coefficient"], coefficient, sampling)
    got = dict(gradient["combination"] or {})
    named = {name: text for name, text in got.items() if name != "rest"}
    assert set(named) == set(combination)
    assert all(same(named[name], combination[name]) for name in named)
    whole = " + ".join(f"({text})*{COEFFICIENTS[name]}" for name, text in got.items()) or "0"
    assert same(whole, coefficient, sampling)  # complete, up to a constant
    found = answer["value"]
    assert found["target"] == value.rstrip("!")
    assert found["unbiased_for_reverse_kl"] == (value == "reverse-kl!")
    assert found["unbiased_for_forward_kl"] == (value == "forward-kl!")
    parts = found["combination"] or {}
    if found["target"] not in ("f-divergence", "separable") and set(parts) <= {"reverse-kl", "forward-kl"}:
        told = [f"({factor})*{DIVERGENCES[name]}" for name, factor in parts.items()] + [found["constant"]]
        for m in MODELS:
            assert close(sum(mean(term, m, sampling) for term in told), expected_value(loss, m, sampling))


DIVERGENCES = {"reverse-kl": "k1", "forward-kl": "(-r*k1)"}
COEFFICIENTS = {"reverse-kl": "k1", "forward-kl": "(-r)", "reward": "1", "rest": "1"}


# ---------------------------------------------------------------------------- recognition by itself
RECOGNISED = {
    "0": ("zero", set()),
    "5": ("zero", set()),
    "beta": ("zero", set()),
    "k1": ("reverse-kl", {"reverse-kl"}),
    "-k1/3": ("reverse-kl", {"reverse-kl"}),
    "r": ("forward-kl", {"forward-kl"}),
    "exp(lam)*r": ("forward-kl", {"forward-kl"}),
    "beta*k1 - r + 1": ("combination", {"reverse-kl", "forward-kl"}),
    "R**2": ("combination", {"reward"}),
    "exp(R/beta) + k1": ("combination", {"reward", "reverse-kl"}),
    "k1**2": ("f-divergence", set()),
    "r*k1": ("f-divergence", set()),
    "r**2 + k1": ("f-divergence", {"reverse-kl"}),
    "log_q": ("separable", set()),
    "k1*rho": ("separable", set()),
    "k1*R": ("separable", set()),
    "r*R": ("separable", set()),
    "k1**2 + R": ("separable", {"reward"}),
    "log(rho)": ("separable", set()),
}


@pytest.mark.parametrize("c", RECOGNISED)
def test_recognise(c: str) -> None:
    found = recognise(to_ring(parse(c)))
    assert (found.target, set(found.multiples)) == RECOGNISED[c]


@pytest.mark.parametrize("c", RECOGNISED)
def test_the_parts_add_up(c: str) -> None:
    element = to_ring(parse(c))
    k1, r = to_ring(parse("k1")), to_ring(parse("r"))
    found, value = recognise(element), recognise_value(element)
    whole = found.reverse * k1 - found.forward * r + found.reward + found.constant + found.rest
    assert whole == element
    whole = value.reverse * k1 - value.forward * r * k1 + value.reward + value.constant + value.rest
    assert whole == element


@pytest.mark.parametrize(
    ("v", "target"),
    [
        *(("k1", "reverse-kl"), ("-r*k1", "forward-kl"), ("r*k1/2", "forward-kl"), ("3", "zero")),
        *(("k1 - lam*r*k1", "combination"), ("R", "combination"), ("k1**2", "f-divergence")),
        *(("log_q", "separable"), ("rho*k1", "separable"), ("r**2", "f-divergence")),
    ],
)
def test_recognise_value(v: str, target: str) -> None:
    assert recognise_value(to_ring(parse(v))).target == target
