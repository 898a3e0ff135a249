"""explain: the JSON contract, witnesses, warnings, losses outside the ring, wrong input."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import sympy
from sympy import Function, Piecewise, Rational, Symbol

import klsym
from klsym.api import explain, losses_of
from klsym.errors import UsageError
from klsym.language.expressions import A, R, beta, clip, k, k1, k2, k3, lam, log_q, rho, s, sg
from klsym.language.parser import parse
from klsym.render.messages import sentence
from support.losses import loss_oracle as oracle
from support.losses.float_sheet import (
    FORWARD,
    PARAMETERS,
    REVERSE,
    SHEET,
    close,
    combined,
    derivative,
    evaluate,
    expected_gradient,
    same,
    score_form,
    sheet,
)
from support.losses.float_sheet import MODELS as FLOAT_MODELS

OFF = {"sampling": "off-policy"}
REWARD = {"use": "reward"}
OFF_REWARD = {**OFF, **REWARD}
PPO = "min(rho*A, clip(rho, 0.8, 1.2)*A)"


verdict_on = cache(explain)


@cache
def ask(loss: str, **options: str) -> str:
    return json.dumps(verdict_on(loss, **options).to_json())


# ---------------------------------------------------------------------------- the JSON contract
KEYS = {"loss", "sampling", "use", "level", "batch", "credit", "weights", "aggregate",
        "gradient", "value", "trust", "hypotheses", "steps",
        "witness", "warnings", "names", "expansion"}  # fmt: skip
GRADIENT = {"per_sample", "coefficient", "target", "combination", "objective", "f", "genuine_divergence",
            "fisher_strength", "cases", "inside_clamps", "terms"}  # fmt: skip
PARTS = {"reverse-kl": "k1", "forward-kl": "-r", "reward": "1"}  # what a multiple is multiplied by
VALUE = {
    "target",
    "combination",
    "constant",
    "unbiased_for_reverse_kl",
    "unbiased_for_forward_kl",
    "hypotheses",
}
TARGETS = {"zero", "reverse-kl", "forward-kl", "combination", "f-divergence", "separable", "none", "open"}
SAMPLES = [
    ("k1", {}),
    ("k3", OFF),
    ("A - beta*k3", REWARD),
    ("rho**2*k1", OFF_REWARD),
    ("k2*R", {}),
    ("clip(k3, 0, 5)", {}),
    ("abs(k1)", OFF),
    ("max(log_q, 0)", {}),
    (PPO, OFF),
]


@pytest.mark.parametrize(("loss", "options"), SAMPLES)
def test_json_has_exactly_the_keys_of_the_contract(loss: str, options: dict[str, str]) -> None:
    answer = verdict_on(loss, **options).to_json()
    assert answer == json.loads(json.dumps(answer))
    assert set(answer) == KEYS and set(answer["gradient"]) == GRADIENT and set(answer["value"]) == VALUE
    setting = {"sampling": "on-policy", "use": "loss", "level": "sample", "batch": "none", "loss": loss}
    assert {name: answer[name] for name in setting} == {**setting, **options}
    assert answer["gradient"]["target"] in TARGETS and answer["value"]["target"] in TARGETS
    assert answer["trust"] in ("kernel", "sympy", "numeric", "open")
    assert (answer["trust"] == "open") == (answer["gradient"]["target"] == "open")
    assert all(set(step) == {"rule", "latex"} and all(step.values()) for step in answer["steps"])
    for name in ("hypotheses", "warnings"):
        assert all(isinstance(line, str) and line.isprintable() for line in answer[name])
        assert len(set(answer[name])) == len(answer[name])
    combination = answer["gradient"]["combination"]
    assert combination is None or (combination and set(combination) <= {*PARTS, "rest"})
    assert {answer[name] for name in ("credit", "weights", "aggregate")} == {None}


@pytest.mark.parametrize(("loss", "options"), SAMPLES)
def test_the_combination_adds_up_to_the_coefficient(loss: str, options: dict[str, str]) -> None:
    """Up to a constant, at random samples."""
    gradient = json.loads(ask(loss, **options))["gradient"]
    at = GRID if options.get("sampling") == "off-policy" else {**GRID, "log_mu": GRID["log_q"]}
    parts = (gradient["combination"] or {}).items()
    told = sum(evaluate(text, at) * evaluate(PARTS.get(name, "1"), at) for name, text in parts)
    assert np.ptp(evaluate(gradient["coefficient"], at) - told) < 1e-6


@pytest.mark.parametrize(("loss", "sampling", "use", "row"), SHEET)
def test_strings_are_in_the_grammar(loss: str, sampling: str, use: str, row: Any) -> None:
    gradient = sheet(loss, sampling, use).to_json()["gradient"]
    combination = (gradient["combination"] or {}).values()
    for text in (gradient["per_sample"], gradient["coefficient"], *combination):
        parse(text, ["har"])
        assert "sg" not in text


@pytest.mark.parametrize(
    ("loss", "options", "objective"),
    [
        ("k2", {}, r"\mathrm{KL}(q\,\Vert\,p)"),
        ("beta*k3", {}, r"\beta\,\mathrm{KL}(p\,\Vert\,q)"),
        ("k1", {}, "0"),
        ("A - beta*k1", REWARD, None),
        ("k1**3", {}, r"\mathbb{E}_{q}\!\left[3\,k_1^{2} - 6\,k_1\right]"),
        ("rho*k2", OFF, r"\mathbb{E}_{q}\!\left[\frac{k_1^{2}}{2}\right]"),
        ("k2", OFF, r"\mathbb{E}_{\mu}\!\left[\frac{k_1^{2}}{2}\right]"),
        ("k1", OFF, r"-\mathrm{KL}(\mu\,\Vert\,q)"),
        ("k1*r**lam", {}, None),
    ],
)
def test_objective(loss: str, options: dict[str, str], objective: str | None) -> None:
    answer = verdict_on(loss, **options).to_json()["gradient"]
    if answer["target"] == "combination":
        assert r"\mathbb{E}_{q}" in answer["objective"] and r"\mathrm{KL}" in answer["objective"]
        assert "++" not in answer["objective"] and "+ -" not in answer["objective"]
    else:
        assert answer["objective"] == objective


def test_explain_is_deterministic() -> None:
    for loss, options in SAMPLES[:4]:
        assert explain(loss, **options).to_json() == verdict_on(loss, **options).to_json()


def test_the_proofs_replay_and_speak_of_the_loss() -> None:
    verdict = klsym.explain("rho*k3", sampling="off-policy")
    assert [proof.theorem.kind for proof in verdict.proofs] == ["proved"]
    assert str(verdict.proofs[0]) == "E_mu[grad(rho*k3)] = grad KL(q||p)"
    unnamed = klsym.explain("k1**3")
    assert [proof.theorem.kind for proof in unnamed.proofs] == ["proved", "independent", "proved"]
    assert str(unnamed.proofs[2]) == "E_q[3*k1**2*s] = grad E_q[3*k1**2 - 6*k1]"


# ---------------------------------------------------------------------------- input
EXPRESSIONS = [
    (k3, "k3"),
    (sg(rho) * k2, "sg(rho)*k2"),
    (k(lam), "k(lam)"),
    (beta * k2 - A * log_q, "beta*k2 - A*log_q"),
    (Rational(1, 10) * k3 + R * k1, "0.1*k3 + R*k1"),
    (clip(k3, 0, 5), "clip(k3, 0, 5)"),
    (sympy.Integer(3), "3"),
]


@pytest.mark.parametrize(("expression", "text"), EXPRESSIONS, ids=[text for _, text in EXPRESSIONS])
def test_sympy_expressions_are_taken_too(expression: Any, text: str) -> None:
    from_text, from_expression = explain(text, **OFF).to_json(), explain(expression, **OFF).to_json()
    assert same(from_text.pop("loss"), from_expression.pop("loss"))
    for answer in (from_text, from_expression):  # both quote the loss as it was written
        for part in ("witness", "warnings", "steps"):
            answer.pop(part)
    assert from_text == from_expression


def test_symbols_that_klsym_does_not_know_are_parameters() -> None:
    verdict = explain(Symbol("gamma") * k2)
    assert verdict.to_json()["gradient"]["combination"] == {"reverse-kl": "gamma"}


@pytest.mark.parametrize(
    ("loss", "options", "words"),
    [
        ("k1", {"sampling": "sometimes"}, "sampling='sometimes': one of on-policy, off-policy expected"),
        ("k1", {"use": "penalty"}, "use='penalty': one of loss, reward"),
        ("k1", {"level": "word"}, "level='word'"),
        ("k1", {"batch": "median"}, "batch='median'"),
        ("k9", {}, "unknown name 'k9' at character 1"),
        ("har*k1", {}, "--param har"),
        ("har*k1", {"parameters": "har"}, "parameters"),
        ("k1", {"parameters": [3]}, "parameter"),
        ("k1", {"parameters": ["w"]}, "parameter"),
        ("s*k1", {"parameters": ["s"], "use": "reward"}, "parameter"),
        ("", {}, "empty"),
        (None, {}, "expression expected"),
        (2.5, {}, "exact Rational"),
        (b"k1", {}, "expression expected"),
        (k1 > 0, {}, "expression expected"),
        (Symbol("k1") * k2, {}, "klsym's own"),
        (Symbol("w") * k2, {}, "klsym's own"),
        (s * k1, {}, "score"),
        (Function("g")(k1), {}, "g"),
        (sympy.nan, {}, "nan|number"),
        (sympy.oo * k1, {}, "oo|infinite"),
        (sympy.I * k1, {}, "I|real"),
        (k1 / 0, {}, "zoo|zero|infinite"),
        (sympy.Derivative(k1, log_q), {}, "Derivative"),
        ("1/k1", {}, "divi"),
        ("1/R", REWARD, "divi"),
        ("k1/(k3 - r + 1 - k1)", {}, "division by zero"),
        ("1/(min(k1, k2) + max(k1, k2) - k1 - k2)", {}, "a division by zero"),
        ("1/(sqrt(1 + 2*r + r**2) - 1 - r)", {}, "a division by zero"),
    ],
    ids=repr,
)
def test_wrong_input(loss: Any, options: dict[str, Any], words: str, at_most: Any) -> None:
    with at_most(20), pytest.raises(UsageError) as caught:
        explain(loss, **options)
    message = str(caught.value)
    assert re.search(words, message) and message.isprintable() and len(message) < 400


@pytest.mark.parametrize(
    "expression",
    [
        sympy.sin(k1),
        sympy.sign(k1),
        sympy.pi * k2,
        sympy.Heaviside(k1) * k2,
        Piecewise((k1, k1 > 0), (0, True)),
    ],
    ids=str,
)
def test_expressions_beyond_the_grammar_are_refused_or_answered_within_it(expression: Any) -> None:
    try:
        verdict = explain(expression)
    except UsageError:
        return
    parse(verdict.per_sample)
    parse(verdict.coefficient)


# ---------------------------------------------------------------------------- witnesses
def from_witness(witness: dict[str, Any]) -> tuple[Any, dict[str, float]]:
    """The model of a witness as `test_targets` writes models, and its parameters."""
    q, p, u = ([float(Fraction(x)) for x in witness[name]] for name in ("q", "p", "u"))
    mu = [float(Fraction(x)) for x in witness.get("mu", witness["q"])]
    rewards = witness.get("rewards", {})
    R, A = ([float(Fraction(x)) for x in rewards.get(name, ["0"] * len(q))] for name in ("R", "A"))
    parameters = {name: float(Fraction(v)) for name, v in witness.get("parameters", {}).items()}
    return (q, p, mu, u, R, A), parameters


def near(value: float, ends: list[str]) -> bool:
    low, high = (float(Fraction(end)) for end in ends)
    return low - 1e-7 <= value <= high + 1e-7


def check_witness(loss: str, answer: dict[str, Any]) -> None:
    """Both sides, recomputed in plain floats, lie where the witness says, and differ."""
    witness, combination = answer["witness"], answer["gradient"]["combination"] or {}
    model, parameters = from_witness(witness)
    before = dict(PARAMETERS)
    PARAMETERS.update(parameters)
    try:
        left = expected_gradient(loss, model, answer["sampling"], answer["use"])
        right = score_form("k1 + " + combination.get("reward", "0"), model, answer["sampling"])
    finally:
        PARAMETERS.update(before)
    assert near(left, witness["left"]) and near(right, witness["right"])
    assert abs(left - right) > 1e-7
    ends = [Fraction(end) for side in ("left", "right") for end in witness[side]]
    assert ends[1] < ends[2] or ends[3] < ends[0]
    measure = {"on-policy": r"E_(q|mu)\[", "off-policy": r"E_mu\["}[answer["sampling"]]
    right_side = r"(grad E_q\[.*\] \+ )?grad KL\(q\|\|p\)( \+ grad E_q\[.*\])?"
    assert re.fullmatch(rf"({measure}.*\]|0) = {right_side}", witness["refutes"])
    assert loss in witness["refutes"] or loss in ("1", "0*k1", "k1 - k1")


def check_answer(loss: str, answer: dict[str, Any]) -> None:
    """A witness exactly when the target is no multiple of grad KL(q||p), policy gradients aside."""
    target, combination = answer["gradient"]["target"], answer["gradient"]["combination"] or {}
    fine = target == "reverse-kl" or (target == "combination" and "forward-kl" not in combination)
    assert (answer["witness"] is None) == fine
    if answer["witness"]:
        check_witness(loss, answer)


@pytest.mark.parametrize(("loss", "sampling", "use", "row"), SHEET)
def test_witness(loss: str, sampling: str, use: str, row: Any) -> None:
    check_answer(loss, sheet(loss, sampling, use).to_json())


# ---------------------------------------------------------------------------- outside the ring
SIGN = {"reward": "A"}
OUTSIDE: list[tuple[str, dict[str, str], str, dict[str, str], Any]] = [
    ("abs(k1)", {}, "f-divergence", {}, None),
    ("abs(k1)", REWARD, "f-divergence", {}, None),
    ("sqrt(k2)", {}, "f-divergence", {}, None),
    ("log(1 + r)", {}, "f-divergence", {}, None),
    ("1/(1 + r)", {}, "f-divergence", {}, None),
    ("rho*sqrt(k3)", OFF, "f-divergence", {}, None),
    ("sg(1/(1 + rho))*k2", OFF, "separable", {}, None),
    # coefficients that lie in the span although the loss is no exponential polynomial
    ("log(2)*k2", {}, "reverse-kl", {"reverse-kl": "log(2)"}, None),
    ("sqrt(2)*k1", {}, "zero", {}, None),
    ("abs(lam)*k3", {}, "forward-kl", {"forward-kl": "abs(lam)"}, None),
    ("k3/(1 + beta)", {}, "forward-kl", {"forward-kl": "1/(1 + beta)"}, None),
    ("k3/(n - 1)", {}, "forward-kl", {"forward-kl": "1/(n - 1)"}, None),
    ("(k2 + k2*r)/(1 + r)", {}, "reverse-kl", REVERSE, None),
    ("log(r + r**2) - log(1 + r) + k2", {}, "reverse-kl", REVERSE, None),
    ("abs(R) - beta*k1", REWARD, "combination", {"reward": "abs(R)", "reverse-kl": "-beta"}, None),
    # clamps
    ("clip(k3, 0, 5)", {}, "f-divergence", {}, ("forward-kl", FORWARD)),
    ("clip(k1, 0.3, 0.4)", {}, "f-divergence", {}, ("zero", {})),
    ("clip(rho, 0.9997, 1.0004)*A", OFF, "separable", {}, ("combination", SIGN)),
    ("clip(k1, -1, 1)", REWARD, "f-divergence", {}, ("reverse-kl", REVERSE)),
    ("clip(k1, -5, 5)", REWARD, "f-divergence", {}, ("reverse-kl", REVERSE)),
    ("rho*clip(k1, -1, 1)", OFF_REWARD, "f-divergence", {}, ("reverse-kl", REVERSE)),
    ("beta*min(k2, lam)", {}, "f-divergence", {}, ("reverse-kl", {"reverse-kl": "beta"})),
    ("min(k1, 2)", {}, "f-divergence", {}, ("zero", {})),
    ("max(k2, 0.5)", {}, "f-divergence", {}, ("reverse-kl", REVERSE)),
    ("min(rho, 2)*k3", OFF, "separable", {}, ("reverse-kl", REVERSE)),
    ("sg(min(rho, 2))*k2", OFF, "separable", {}, ("reverse-kl", REVERSE)),
    ("sg(min(rho, 2))*k2", {}, "reverse-kl", REVERSE, ("reverse-kl", REVERSE)),
    ("min(rho, 2)*k3", {}, "reverse-kl", REVERSE, ("reverse-kl", REVERSE)),
    ("clip(rho, 0.8, 1.2)*A", OFF, "separable", {}, ("combination", SIGN)),
    ("clip(rho, 0.8, 1.2)*A", {}, "combination", SIGN, ("combination", SIGN)),
    (PPO, OFF, "separable", {}, ("combination", SIGN)),
    (PPO, {}, "combination", SIGN, ("combination", SIGN)),
    (f"-{PPO} + beta*rho*k3", {}, "combination", {"reward": "-A", "reverse-kl": "beta"},
     ("combination", {"reward": "-A", "reverse-kl": "beta"})),
    ("min(rho*A, clip(rho, 1 - eps, 1 + eps)*A)", OFF, "separable", {}, ("combination", SIGN)),
    ("clip(R, -2, 2) - beta*k1", REWARD, "combination", {"reward": "clip(R, -2, 2)", "reverse-kl": "-beta"},
     ("combination", {"reward": "R", "reverse-kl": "-beta"})),
    ("clip(A, -1, 1)*log_q", {}, "combination", {"reward": "clip(A, -1, 1)"}, ("combination", SIGN)),
]  # fmt: skip
OUTSIDE_IDS = [" ".join([row[0], *row[1].values()]) for row in OUTSIDE]
outside = pytest.mark.parametrize(
    ("loss", "options", "target", "combination", "inside"), OUTSIDE, ids=OUTSIDE_IDS
)


@outside
def test_outside_the_table_itself_holds(
    loss: str, options: dict[str, str], target: str, combination: dict[str, str], inside: Any
) -> None:
    """No klsym here: named targets against central differences."""
    if target in ("zero", "reverse-kl", "forward-kl", "combination"):
        sampling, use = options.get("sampling", "on-policy"), options.get("use", "loss")
        for model in FLOAT_MODELS:
            gradient = expected_gradient(loss, model, sampling, use)
            assert close(gradient, score_form(combined(combination), model, sampling))


@outside
def test_outside_the_ring(
    loss: str, options: dict[str, str], target: str, combination: dict[str, str], inside: Any, at_most: Any
) -> None:
    with at_most(20):
        answer = json.loads(ask(loss, **options))
    gradient = answer["gradient"]
    assert gradient["target"] == target
    got = gradient["combination"] or {}
    assert ("rest" in got) == (target in ("f-divergence", "separable"))
    got = {name: got[name] for name in got if name != "rest"}
    assert set(got) == set(combination) and all(same(got[name], combination[name]) for name in got)
    assert answer["trust"] == "kernel"
    clamps = gradient["inside_clamps"]
    named = clamps and {n: v for n, v in (clamps["combination"] or {}).items() if n != "rest"}
    assert (clamps and (clamps["target"], named)) == inside
    assert not any("outside the decidable core" in line for line in answer["warnings"])


a, b, c, d = np.array([*product((-0.4, -2.7), (-3.1, -0.9, -0.3, 0.35, 0.6, 1.3, 6.2),
                                (-1.1, -0.25, -0.05, 0.0001, 0.1, 0.45, 0.9), (-2.3, 0.7))]).T  # fmt: skip
# far enough to cross every clamp, and on no tie
GRID = {"log_q": a, "log_p": a - b, "log_mu": a - c, "R": d, "A": -d}


@outside
def test_outside_the_ring_against_numeric_differentiation(
    loss: str, options: dict[str, str], target: str, combination: dict[str, str], inside: Any, at_most: Any
) -> None:
    with at_most(20):
        gradient = json.loads(ask(loss, **options))["gradient"]
    on_policy = options.get("sampling", "on-policy") == "on-policy"
    pushed = evaluate if options.get("use") == "reward" else derivative
    at = {**GRID, "log_mu": GRID["log_q"]} if on_policy else GRID
    want = pushed(loss, at)
    assert close(evaluate(gradient["per_sample"], at), want)
    c = want if on_policy else want / evaluate("rho", at)
    constant = np.ptp(c - evaluate(gradient["coefficient"], at)) < 1e-5
    assert constant, "the coefficient is per_sample times mu/q, up to a constant"
    for text in (gradient["per_sample"], gradient["coefficient"], *(gradient["combination"] or {}).values()):
        parse(text)


@pytest.mark.parametrize(("loss", "options"), [row[:2] for row in OUTSIDE], ids=OUTSIDE_IDS)
def test_outside_the_ring_witness(loss: str, options: dict[str, str], at_most: Any) -> None:
    with at_most(20):
        answer = json.loads(ask(loss, **options))
    check_answer(loss, answer)


@pytest.mark.parametrize(
    ("loss", "options", "target", "unbiased"),
    [
        ("abs(k1)", {}, "f-divergence", False),
        ("rho*clip(k1, -1, 1)", OFF_REWARD, "f-divergence", False),
        ("k1 + abs(k2 - 1) - sg(abs(k2 - 1))", {}, "reverse-kl", True),
        ("k1 + r - 1 + abs(k1) - sg(abs(k1))", {}, "reverse-kl", True),
        ("k1 + 1 + abs(k1) - sg(abs(k1))", {}, "reverse-kl", False),
        ("log(2)*k1", {}, "reverse-kl", False),
        ("clip(R, 0, 1)", REWARD, "combination", False),
    ],
)
def test_values_outside_the_ring(loss: str, options: dict[str, str], target: str, unbiased: bool) -> None:
    value = verdict_on(loss, **options).to_json()["value"]
    assert (value["target"], value["unbiased_for_reverse_kl"]) == (target, unbiased)


@pytest.mark.parametrize(
    ("loss", "combination", "constant"),
    [
        ("3*k1", {"reverse-kl": "3"}, "0"),
        ("k1 + 1", {"reverse-kl": "1"}, "1"),
        ("1", None, "1"),
        ("2*k3 - 5", {"reverse-kl": "2"}, "-5"),
        ("k1 - r*k1", {"reverse-kl": "1", "forward-kl": "1"}, "0"),
        ("clip(1, 0, 5)*k1", {"reverse-kl": "1"}, "0"),
        ("max(log_q, 0)", {"rest": "where(log_q > 0, 1, 0)*log_q"}, "0"),
    ],
)
def test_the_value_is_given_exactly(
    loss: str, combination: dict[str, str] | None, constant: str | None
) -> None:
    value = explain(loss).to_json()["value"]
    assert (value["combination"], value["constant"]) == (combination, constant)


ODD = (
    "min(k1, k2)", "max(lam, 0)*k1", "min(R, A)*log_q", "-min(rho*A, 1.2*A)", "clip(k1, k2, k3)",
    "min(rho*A, clip(rho, 1 - eps, 1 + eps)*A)", "exp(1e9*k1)", "exp(1e99*k1)", "((k1**64)**64)**64",
    "((r**64)**64)**64", "((k1 + k2)**64)**64", "exp(1000)**64*k1", "(k1 + r)**64", "max(k2, k3, r)",
    "sqrt(1 + k2)*sqrt(1 + k3)", "r + clip(k3/A, -1, 5)", "clip(clip(k1, -1, 1), -2, 2)", "abs(k1)**lam",
    "r**(r + 1)", "(k3 + exp(0.5))**-1", "(k1 + sg(k2))**2*abs(k1)",
)  # fmt: skip


@pytest.mark.parametrize("loss", ODD)
def test_odd_losses_get_an_answer_in_the_grammar(loss: str, at_most: Any) -> None:
    """At worst one clear line, never a crash, never a minute's wait; on-policy and off-policy by turns."""
    sampling = ("on-policy", "off-policy")[ODD.index(loss) % 2]
    with at_most(20):
        try:
            answer = explain(loss, sampling=sampling).to_json()
        except UsageError:
            return
    parse(answer["gradient"]["per_sample"])
    parse(answer["gradient"]["coefficient"])


# ---------------------------------------------------------------------------- warnings
KINDS = {
    "nothing": r"zero gradient at every sample",
    "noise": r"zero expected gradient",
    "value": r"the value is unbiased for KL\(q\|\|p\), but",
    "weight": r"no importance weight",
    "literal": r"on-policy rho has the value 1",
    "mean zero": r"has mean zero",
    "sign": r"increases .*KL\((?!mu)",
    "away": r"pushes q away from mu: it increases KL\(mu\|\|q\)",
    "lowers": r"lowers E_q",
    "tail": r"heavy tails",
    "core": r"outside the decidable core",
    "flat": r"no restoring force at q = p",
    "unless": r"pushes q away from p unless r <= ",
    "unbounded": r"unbounded below",
    "away from p": r"pushes q away from p unless beta\*",
    "bends": r"the objective is convex in q (only where|nowhere)",
}
WARNINGS: list[tuple[str, dict[str, str], set[str]]] = [
    ("k1", {}, {"noise", "value"}),
    ("k2", {}, set()),
    ("k3", {}, {"value", "mean zero", "tail"}),
    ("k(lam)", {}, {"value", "mean zero", "tail"}),
    ("k(-1)", {}, {"value", "mean zero", "tail", "sign", "unbounded"}),
    ("-k2", {}, {"sign"}),
    ("-k3", {}, {"mean zero", "tail", "sign", "unbounded"}),
    ("sg(k1)", {}, {"nothing", "value"}),
    ("R", {}, {"nothing"}),
    ("beta*k2 - A*log_q", {}, set()),
    ("rho*k1", {}, {"literal", "mean zero"}),
    ("rho*k2", {}, {"literal", "unless"}),
    ("rho*k3", {}, {"literal"}),
    ("sg(rho)*k2", {}, set()),
    ("sg(rho)*k3", {}, {"value", "mean zero", "tail"}),
    ("k2 + log_mu", {}, set()),
    ("k2 + lam*k1", {}, {"mean zero"}),
    ("k1", OFF, {"weight", "away", "bends"}),
    ("-k1", OFF, {"weight"}),
    ("k2", OFF, {"weight", "bends"}),
    ("k3", OFF, {"weight", "tail", "away", "bends"}),
    ("k2 + log_mu", OFF, {"weight", "bends"}),
    ("rho*k1", OFF, {"mean zero"}),
    ("rho*k3", OFF, set()),
    ("sg(rho)*k2", OFF, set()),
    ("sg(rho)*k1", OFF, {"noise", "value"}),
    ("sg(rho)*k3", OFF, {"value", "mean zero", "tail"}),
    ("k3", REWARD, {"value", "mean zero", "tail", "flat", "unless", "unbounded"}),
    ("k1 + 5", REWARD, {"mean zero"}),
    ("rho*k1", REWARD, set()),
    ("k1", OFF_REWARD, {"weight", "bends"}),
    ("R - beta*k1", OFF_REWARD, {"weight"}),
    ("rho*(R - beta*k1)", OFF_REWARD, set()),
    ("rho**2*k1", OFF_REWARD, {"bends"}),
    ("abs(k1)", {}, set()),
    ("abs(k1)", OFF, {"weight"}),
    ("clip(k1, -1, 1)", OFF_REWARD, {"weight"}),
    ("rho*clip(k1, -1, 1)", OFF_REWARD, set()),
    ("rho*abs(k1)", {}, {"literal", "unless"}),
    ("sqrt(2)*k1", {}, {"noise"}),
    ("rho", {}, {"noise"}),
    ("1/rho", {}, {"noise"}),
    ("sqrt(2)*rho", {}, {"noise"}),
    ("A*log_q", {}, {"lowers"}),
    ("-A*log_q", {}, set()),
    ("(A - R)*log_q", {}, set()),
    ("-lam*k2", {}, {"sign"}),
    ("(lam - 2)*k2", {}, {"sign"}),
    ("lam*k2", {}, set()),
    ("-rho*A + beta*k3", OFF, {"weight", "tail", "away", "bends"}),
    ("-rho*A + beta*rho*k3", OFF, set()),
    ("-rho*A + beta*abs(k1)", OFF, {"weight"}),
    ("rho*R - beta*k1", OFF_REWARD, {"weight", "bends"}),
    ("R - beta*k3", REWARD, {"mean zero", "tail", "flat", "away from p", "unbounded"}),
    ("R - beta*k1", REWARD, set()),
]


@pytest.mark.parametrize(
    ("loss", "options", "kinds"), WARNINGS, ids=[" ".join([w[0], *w[1].values()]) for w in WARNINGS]
)
def test_warnings(loss: str, options: dict[str, str], kinds: set[str]) -> None:
    lines = verdict_on(loss, **options).warnings
    found = {kind for kind, words in KINDS.items() if any(re.search(words, line) for line in lines)}
    assert found == kinds
    assert len(lines) == len(kinds), "a warning that the table does not know"


WRONG_WAYS: list[tuple[str, str, str]] = [  # loss, what it may move the wrong way, where ("1": everywhere)
    ("-lam*k2", "increases KL(q||p)", "lam"),
    ("(lam - 2)*k2", "increases KL(q||p)", "2 - lam"),
    ("-exp(lam)*k2", "increases KL(q||p)", "1"),
    ("k2 - 2*lam*k3", "increases KL(p||q)", "lam"),
    ("(sqrt(2) - lam)*k2", "increases KL(q||p)", "lam - sqrt(2)"),
    ("A*log_q", "lowers E_q[A]", "1"),
    ("lam*A*log_q", "lowers E_q[A]", "lam"),
    ("rho*A*(1 - lam)", "lowers E_q[A]", "1 - lam"),
    ("log_q*exp(A)", "lowers E_q[exp(A)]", "1"),
]


@pytest.mark.parametrize(("loss", "words", "where"), WRONG_WAYS, ids=[row[0] for row in WRONG_WAYS])
@pytest.mark.parametrize("size", [-3.0, -0.5, 0.5, 1.5, 3.0])
def test_where_a_loss_moves_the_wrong_way(loss: str, words: str, where: str, size: float) -> None:
    """The multiple of grad KL or of -grad E_q[h] is measured on finite models: negative where it is said."""
    told = [line for line in verdict_on(loss).warnings if words in line]
    assert len(told) == 1
    condition = re.search(r" where (.*) ([<>]) 0$", told[0])
    meant = {"lam": size}
    for models in oracle.random_models(3):
        models = replace(models, parameters={**models.parameters, **meant})
        found = oracle.expected_gradient(loss, models, "on-policy", "loss")
        moved = {"KL(q||p)": oracle.grad_reverse_kl, "KL(p||q)": oracle.grad_forward_kl}
        name = words.split()[-1]
        if name in moved:
            wanted = moved[name](models)
        else:
            wanted = -oracle.grad_mean(oracle.evaluate(name[4:-1], {"A": models.A}), models)
        others = oracle.grad_reverse_kl(models) if loss.startswith("k2 -") else 0
        multiple = ((found - others) * wanted).sum(axis=-1) / (wanted * wanted).sum(axis=-1)
        wrong = oracle.evaluate(where, meant) > 0
        assert ((multiple < 0) == wrong).all()
        if condition:
            value = oracle.evaluate(condition[1], meant)
            assert (value > 0 if condition[2] == ">" else value < 0) == wrong
        else:
            assert where == "1"


@pytest.mark.parametrize(
    ("loss", "differs"),
    [("rho", False), ("1/rho", False), ("rho*(k1 - sg(k1))", False), ("rho*k1", True), ("k2/rho", True),
     ("rho*A", True), ("rho + k2", False), ("sqrt(2)*rho + k3", False), ("sqrt(2)*rho*k3", True)],
)  # fmt: skip
def test_the_literal_1_is_warned_of_where_it_gives_another_gradient(loss: str, differs: bool) -> None:
    assert any("literal 1" in line for line in explain(loss).warnings) == differs
    models = oracle.random_models(5)[1]
    pair = [oracle.expected_gradient(text, models, "on-policy", "loss")
            for text in (loss, loss.replace("rho", "(1 + 0*rho)"))]  # fmt: skip
    assert (abs(pair[0] - pair[1]).max() > 1e-9) == differs


@pytest.mark.parametrize(
    ("loss", "warned"),
    [
        ("sg(min(rho, 2))*A*log_q", False),
        ("sg(min(rho, 1))*k2", False),
        ("sg(clip(rho, 1, 6/5))*k2", False),
        ("where(rho < 2, rho, 0)*A", False),
        ("where(rho < 2, 1, 0)*A*log_q", True),
        ("clip(log_q - log_mu, -1, 1)*sg(k3)", True),
        ("max(k1, 0)", True),
        ("sg(rho)*max(k1, 0)", False),
    ],
)
def test_a_truncated_weight_is_one_and_a_mask_is_none(loss: str, warned: bool) -> None:
    assert any("no importance weight" in line for line in explain(loss, **OFF).warnings) == warned


def test_the_terms_without_a_weight_are_named() -> None:
    [line] = [x for x in explain("-rho*A + beta*k3", **OFF).warnings if "no importance weight" in x]
    assert "at beta*(1 - r) in the gradient" in line
    [line] = [x for x in explain("rho*R + clip(k3, -10, 10)", **OFF).warnings if "no importance weight" in x]
    assert "at the gradient of clip(k3, -10, 10): samples" in line


def test_many_hypotheses_on_means_are_one_line_each_in_text_and_whole_in_json() -> None:
    """The line asks for no less: as many means as it stands for, and all others are listed as they are."""
    verdict = explain("R - beta*k3", use="reward", level="token")
    text, whole = str(verdict), verdict.to_json()["hypotheses"]
    kinds = {sentence(x): x.code for x in verdict.assumptions if x.code in ("exchange", "exists")}
    for kind, told in (("exchange", "in the {} means whose gradient"), ("exists", "the {} other means")):
        these = [line for line in whole if kinds.get(line) == kind]
        assert len(these) > 4
        assert told.format(len(these)) in text
        assert not any(line in text for line in these)
    assert all(told_in(text, line) for line in whole if line not in kinds)
    few = explain("k1", use="reward")
    assert all(told_in(str(few), line) for line in few.hypotheses)


def told_in(text: str, line: str) -> bool:
    """As it is, or where a line says the same of several: a << b, means that exist, sequences that end."""
    subjects = [line.partition(verb)[0] for verb in (": wherever", " exists")]
    ends = "sequences from p and q end with" in text and line.startswith("after any prefix, sequences from ")
    return f"  - {line}" in text or any(f"{subject} " in text for subject in subjects) or ends


@pytest.mark.parametrize(
    ("loss", "options", "lines"),
    [
        ("k2", {}, [r"E_q may be exchanged in E_q\[k1\]", r"E_q\[k1\*s\] exists"]),
        ("k3", {}, ["p << q", "E_q may be exchanged", "E_p may be exchanged"]),
        ("rho*k3", OFF, [r"E_q may be exchanged in E_q\[k1\]", "q << mu"]),
        ("rho*k3", {}, ["on-policy"]),
        ("k2/beta", {}, ["beta is not 0"]),
        ("abs(k1)", {}, ["at a kink the slope is that of PyTorch: abs has slope 0 at 0"]),
    ],
)
def test_hypotheses(loss: str, options: dict[str, str], lines: list[str]) -> None:
    hypotheses = verdict_on(loss, **options).hypotheses
    for words in lines:
        assert any(re.search(words, line) for line in hypotheses), hypotheses


def test_a_detached_reward_need_not_be_differentiable() -> None:
    """E_q[f(r)] has a derivative where no outcome stands at a kink of f, of whatever use the loss is."""
    taken = ("slope of PyTorch", "at a kink the slope")
    assert not any(word in line for line in explain("abs(k1)", use="reward").hypotheses for word in taken)
    assert any(word in line for line in explain("abs(k1)").hypotheses for word in taken)


@pytest.mark.parametrize("name", ["h", "std", "f", "Phi", "k1_now", "q"])
def test_symbols_have_no_names_that_answers_use(name: str) -> None:
    """A loss as an expression, and f of a divergence, are held to what text is."""
    for ask in (
        lambda: klsym.explain(Symbol(name, real=True) * klsym.k1),
        lambda: klsym.compare(Symbol(name, real=True) * klsym.k1, klsym.k2),
        lambda: klsym.explain(f"{name}*k1", parameters=[name]),
        lambda: losses_of(f"{name}*r*log(r)", [name]),
    ):
        with pytest.raises(UsageError, match=r"expected|smooth function"):
            ask()
