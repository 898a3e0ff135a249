"""explain: the JSON contract, its input, and values, objectives, counterexamples, hypotheses as printed."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import sympy
from sympy import Rational, Symbol

import klsym
from klsym.api import explain
from klsym.kernel import check, read
from klsym.language.expressions import A, R, beta, clip, k, k1, k2, k3, lam, log_q, rho, sg
from klsym.language.parser import parse
from klsym.render.objective import write_objective_latex
from klsym.render.sentences import write_sentence
from support.judges.loss_worlds import at_points
from support.losses.cases import options

ask = cache(lambda loss, words="": explain(loss, **options(words)))
PPO = "min(rho*A, clip(rho, 0.8, 1.2)*A)"


# ---------------------------------------------------------------------------- the JSON contract
SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "explain.schema.json").read_text(encoding="utf-8"))
PARTS = {"reverse-kl": "k1", "forward-kl": "-r", "reward": "1"}  # what a multiple is multiplied by
SAMPLES = [
    ("k1", ""), ("k3", "off"), ("A - beta*k3", "reward"), ("rho**2*k1", "off reward"), ("k2*R", ""),
    ("clip(k3, 0, 5)", ""), ("abs(k1)", "off"), ("max(log_q, 0)", ""), (PPO, "off"), ("abs(lam)*k3", ""),
]  # fmt: skip
OTHERS = [("k2", "token"), ("rho*(R - beta*k1)", "off token reward whole"), ("k1", "token /T"),
          ("rho*k1", "off reward mean"), ("k3", "sequence loo"), ("full(k1)", "token")]  # fmt: skip


@pytest.mark.parametrize(("loss", "words"), SAMPLES + OTHERS)
@pytest.mark.share(3)
def test_json_has_exactly_the_keys_of_the_contract(loss: str, words: str) -> None:
    answer, given = ask(loss, words).to_json(), options(words)
    assert answer == json.loads(json.dumps(answer))
    jsonschema.validate(answer, SCHEMA)
    assert list(answer)[:8] == list(SCHEMA["properties"])[:8]
    setting = {"sampling": "on-policy", "use": "loss", "level": "sample", "batch": "none", "loss": loss}
    token, whole = given.get("level") == "token", given.get("level", "sample") != "sample"
    setting |= {"weights": "token" if token else None, "aggregate": "sum" if whole else None}
    setting |= {"credit": "to-go" if token and given.get("use") == "reward" else None}
    assert {name: answer[name] for name in setting} == {**setting, **given}
    assert (answer["trust"] == "open") == (answer["gradient"]["target"] == "open")
    assert all(line.isprintable() for name in ("hypotheses", "warnings") for line in answer[name])
    tree = answer["witness"] and answer["witness"].get("tree")
    assert tree is None or {"q", "u", "next"} <= set(tree)


PLACES = [["schema"], ["gradient", "terms"], ["remedy", "snippet"], ["trust"]]


@pytest.mark.parametrize("path", PLACES, ids=str)
def test_the_schema_refuses_an_answer_that_lacks_a_key_or_has_another_value(path: list[str]) -> None:
    for spoil in (lambda of, name: of.pop(name), lambda of, name: of.update({name: 7})):
        answer = ask("k3").to_json()
        of = answer if len(path) == 1 else answer[path[0]]
        spoil(of, path[-1])
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(answer, SCHEMA)


AT = dict(zip(("log_q", "log_p", "log_mu", "R", "A", "log_old", "M"),
              np.random.default_rng(2).normal(scale=2, size=(7, 60)), strict=True))  # fmt: skip


@pytest.mark.parametrize(("loss", "words"), SAMPLES)
def test_the_combination_adds_up_to_the_coefficient(loss: str, words: str) -> None:
    """Up to a constant, at random samples; all strings are in the grammar, and none holds sg."""
    gradient = ask(loss, words).to_json()["gradient"]
    at = AT if "off" in words else {**AT, "log_mu": AT["log_q"]}
    parts = (gradient["combination"] or {}).items()
    told = sum(at_points(text, **at) * at_points(PARTS.get(name, "1"), **at) for name, text in parts)
    assert np.ptp(at_points(gradient["coefficient"], **at) - told) < 1e-6
    for text in (gradient["per_sample"], gradient["coefficient"], *(text for _, text in parts)):
        parse(text)
        assert "sg" not in text


def test_explain_is_deterministic() -> None:
    for loss, words in SAMPLES[:3]:
        assert explain(loss, **options(words)).to_json() == ask(loss, words).to_json()


def test_the_proofs_replay_and_speak_of_the_loss() -> None:
    verdict = klsym.explain("rho*k3", sampling="off-policy")
    assert [proof.theorem.kind for proof in verdict.proof.theorems] == ["proved"]
    assert str(verdict.proof.theorems[0]) == "E_mu[grad(rho*k3)] = grad KL(q||p)"
    unnamed = klsym.explain("k1**3")
    assert [proof.theorem.kind for proof in unnamed.proof.theorems] == ["proved", "independent", "proved"]
    assert str(unnamed.proof.theorems[2]) == "E_q[3*k1**2*s] = grad E_q[3*k1**2 - 6*k1]"


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
    answers = [explain(loss, sampling="off-policy").to_json() for loss in (text, expression)]
    assert parse(answers[0].pop("loss")) == parse(answers[1].pop("loss"))
    for answer in answers:  # both quote the loss as it was written
        for part in ("witness", "warnings", "steps", "summary"):
            answer.pop(part)
        for term in answer["gradient"].pop("terms") or ():
            assert parse(term.pop("loss"))
    assert answers[0] == answers[1]


def test_symbols_that_klsym_does_not_know_are_parameters() -> None:
    verdict = explain(Symbol("gamma") * k2)
    assert verdict.to_json()["gradient"]["combination"] == {"reverse-kl": "gamma"}


# ---------------------------------------------------------------------------- objectives and headlines
OBJECTIVES = {  # a loss, how it is used, the objective in LaTeX
    ("k2", ""): r"\mathrm{KL}(q\,\Vert\,p)", ("beta*k3", ""): r"\beta\,\mathrm{KL}(p\,\Vert\,q)", ("k1",
    ""): "0",
    ("k1**3", ""): r"\mathbb{E}_{q}\!\left[3\,k_1^{2} - 6\,k_1\right]", ("k1*r**lam", ""): None,
    ("rho*k2", "off"): r"\mathbb{E}_{q}\!\left[\frac{k_1^{2}}{2}\right]",
    ("k2", "off"): r"\mathbb{E}_{\mu}\!\left[\frac{k_1^{2}}{2}\right]",
    ("k1", "off"): r"-\mathrm{KL}(\mu\,\Vert\,q)", ("k1", "token"): "0", ("k3", "token"): None,
    ("k1", "token /T"): r"\mathbb{E}_{q}\!\left[\frac{1}{T}\right]",
    ("1", "token reward"): r"\mathbb{E}_{q}\!\left[T\right]", ("-rho*A",
    "on token"): r"-\mathbb{E}_{q}\!\left[A\right]",
    ("k3", "sequence /T"): r"\mathbb{E}_{q}\!\left[\frac{1 - r\,k_1}{T}\right]",
    ("log_q", "sequence reward /T"): r"\mathbb{E}_{q}\!\left[\frac{\log q - 1}{T}\right]",
    ("R - beta*k1", "reward"): r"\mathbb{E}_{q}\!\left[R\right] - \beta\,\mathrm{KL}(q\,\Vert\,p)",
}  # fmt: skip
HEADLINES = [  # and what the second line says
    (
        "k3",
        "token",
        "descends the forward KL of each next token, at prefixes of q; the sum has no objective",
    ),
    ("k1", "token /T", "minimises E_q[1/T]"),
    ("rho*k3", "off token", "minimises the reverse KL of each next token, at prefixes of mu"),
    ("rho*k3", "off token prefix", "minimises KL(q||p), the reverse KL"),
    ("R - beta*k1", "token reward", "maximises E_q[R] - beta*KL(q||p)"),
    ("k1", "off reward loo", "minimises 1/2 Var_mu(k1)"),
    (
        "R - beta*k1",
        "off reward mean",
        "maximises (1 - 1/n) Cov_mu(R, log_q) + beta*(1/(2*n) - 1/2) Var_mu(k1)",
    ),
    ("k1", "off reward std", "minimises E_mu[std]"),
    ("R - beta*k1", "off reward std", "maximises (-1/beta)*E_mu[std]"),
    ("A + 3", "off reward std", "/std*log_q_self]"),
    ("clip(A, -1, 1)*log_q", "off mean", "minimises (1 - 1/n) Cov_mu(A*where(A <= 1, 1, 0) + "),
    ("where(rho < 6/5, R, beta*k1)", "off token reward total whole", "E_mu[R*where(rho < 6/5, 1, 0)*log_q"),
    ("max(R, 0)*k1", "off token", "minimises E_mu[sum_t "),  # nothing is detached: its own objective
    ("k1*R", "off token reward same", "maximises E_mu[sum_t R_now*k1_now**2/2]"),
    ("R", "off token reward", "maximises E_mu[sum_t (R_now*log_q_now + R_future*log_q_now)]"),
]


@pytest.mark.parametrize(("loss", "words"), OBJECTIVES)
def test_objective(loss: str, words: str) -> None:
    assert write_objective_latex(ask(loss, words)) == OBJECTIVES[loss, words]


@pytest.mark.parametrize(("loss", "words", "line"), HEADLINES)
def test_headline(loss: str, words: str, line: str) -> None:
    assert line in ask(loss, words).to_json()["summary"]


CENTRED = [("k3*k1", "mean", "2*k1 - r*k1 + r - 1"), ("k3", "reward std", "k1 + r - 1"),
           ("clip(k1, 0, 1)*k1", "loo", "2*where(k1 <= 1, 1, 0)*k1 + where")]  # fmt: skip


@pytest.mark.parametrize(("loss", "words", "h"), CENTRED)
def test_a_short_answer_says_what_is_centred(loss: str, words: str, h: str) -> None:
    assert f" with H = {h}" in " ".join(ask(loss, words).text(full=True).split())


@pytest.mark.parametrize(("loss", "words"), [("R - beta*k1", "reward mean"), ("k1", "mean"), ("k3", "")])
def test_what_is_written_out_has_no_other_name(loss: str, words: str) -> None:
    assert "with H" not in str(ask(loss, words))


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        ("(k3 < 1)*k1", "token prefix"), ("where(k1 < 1/5, k2, k3)", "token"),
        ("clip(k1, 0, 1)*k1", "off loo"), ("where(rho < 6/5, R, beta*k1)", "off token reward total whole"),
        ("max(A, 0)*log_q", ""),
        ("2*sg((k3 < 1)*k1)*log_q", "off token"), ("where(rho > 1, k1, 0)", "off reward mean"),
    ],
)  # fmt: skip
def test_a_short_answer_names_no_region(loss: str, words: str) -> None:
    assert not re.search(r"\bis_\w", str(ask(loss, words)))


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        ("min(loo(log_p), max(1, n))", ""),
        ("clip(others(log_old), 1 + eps, -1/2)", ""),
        ("log(1 + others(full(1))**2)", "reward"),
        ("log_old/centred(log_p)", ""),
    ],
)
def test_bounds_and_logs_of_a_batch_are_answered(loss: str, words: str) -> None:
    """No finite model is one of a batch, and n may be named by loo(..) alone."""
    assert ask(loss, words).to_json()["target"] == "zero"


INFINITE = [  # inside the clip range, and where q = p
    ("clip(0, eps, -1/2)**-1", "sequence", "has zero gradient at every sample"),
    ("clip((T/k(lam))**3, -2, -1/2)", "sequence", "at q = p, where training starts, the loss is 0/0"),
]


@pytest.mark.parametrize(("loss", "words", "said"), INFINITE)
def test_bounds_on_what_is_infinite(loss: str, words: str, said: str) -> None:
    found = ask(loss, words)
    assert said in " ".join(f"{found.summary} {found.text(full=True)}".split())


def test_a_long_fact_is_left_out_before_a_diagnostic() -> None:
    reward = "sg(togo(R - beta*k1))"  # of Reinforce++
    said = str(ask(f"-min(rho*{reward}, clip(rho, 4/5, 6/5)*{reward})", "off token"))
    assert "KL010" in said and "  equals " not in said and "full=True" in said
    assert len(said.splitlines()) <= 12


DETACHED = [("sg(clip(R, -1, 1)*rho)*log_q", "off token"), ("sg(rho)*max(A, 0)*k1", "off token"),
            ("clip(k1, -1, 1)*R", "off reward mean"), ("abs(k1)", "off mean"), ("log(1 + r)",
            "mean")]  # fmt: skip


@pytest.mark.parametrize(("loss", "words"), DETACHED)
def test_what_is_detached_or_centred_is_no_objective_of_its_own(loss: str, words: str) -> None:
    verdict = ask(loss, words)
    assert not verdict.gradient.quantities_text.startswith("grad E_mu")
    assert verdict.objective.generator is None


# ---------------------------------------------------------------------------- values
VALUES = [  # a loss, how it is used, the target of its value, is it unbiased for KL(q||p)?
    ("abs(k1)", "", "f-divergence", False), ("rho*clip(k1, -1, 1)", "off reward", "f-divergence", False),
    ("k1 + abs(k2 - 1) - sg(abs(k2 - 1))", "", "reverse-kl", True),
    ("k1 + 1 + abs(k1) - sg(abs(k1))", "", "reverse-kl", False), ("log(2)*k1", "", "reverse-kl", False),
    ("clip(R, 0, 1)", "reward", "combination", False), ("k1", "token", "reverse-kl", True),
    ("2*k1", "token", "reverse-kl", False), ("k2", "token", "objective", False), ("r - 1", "token", "zero",
    False),
    ("k1*exp(seqmean(1)/5)", "token", "reverse-kl", False),  # a constant exponent
    ("k1", "token /T", "objective", False), ("rho*k1", "off token", "objective", False),
    ("rho*k3", "off token prefix", "reverse-kl", True), ("rho*k3", "off token whole", "reverse-kl", True),
    *((loss, words, "zero", False) for loss, words in (
        ("loo(M*R)", ""), ("2*normalised(R)/beta", ""), ("-loo(M*R)", "off"), ("loo(A*R)", "sequence"))),
    *((loss, words, "not zero",
    False) for loss, words in (  # over T, or times what is drawn, it need not vanish
        ("loo(M*R)", "sequence /T"), ("loo(M*R)*k1", ""), ("M*normalised(R)", ""), ("1 + normalised(R)",
        ""))),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "words", "target", "unbiased"), VALUES)
def test_values(loss: str, words: str, target: str, unbiased: bool) -> None:
    """The judge of random losses holds the flags and parts against enumeration."""
    value = ask(loss, words).to_json()["value"]
    assert value["target"] != "zero" if target == "not zero" else value["target"] == target
    assert value["unbiased_for_reverse_kl"] == unbiased
    assert value["unbiased_for_forward_kl"] is False


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
def test_the_value_is_given_exactly(loss: str, combination: Any, constant: str) -> None:
    value = explain(loss).to_json()["value"]
    assert (value["combination"], value["constant"]) == (combination, constant)


# ---------------------------------------------------------------------------- counterexamples
REFUTED = [  # a loss, how it is used, what its counterexample refutes, as a regular expression
    ("k3", "", r"E_\(q\|mu\)\[.*k3.*\]|E_q\[grad k3\] = grad KL\(q\|\|p\)"),
    ("abs(k1)", "off", r"E_mu\[.*abs\(k1\).*\] = grad KL\(q\|\|p\)"),
    ("k3", "loo", r"grad KL\(p\|\|q\) = grad KL\(q\|\|p\)"),
    ("k3", "mean", r"\(1 - 1/n\) grad KL\(p\|\|q\) = grad KL\(q\|\|p\)"),
    ("k2", "reward loo", r"E_q\[k1\*\*2\*s/2\] = grad KL\(q\|\|p\)"),  # H is given: nothing is said of H
    ("log_q**2", "loo", r".*"),
    ("log_q", "reward loo", r".*"),
    ("log_q", "off reward loo", r".*"),
    ("k2", "token", r"curl .*"),
    ("rho*k2", "off token", r"E_mu\[sum_t.*"),
    ("abs(k1)", "sequence /T", r".*\(abs\(k1\)/T\).*"),
    ("min(k1, 2)", "sequence /T", r".*\(min\(k1, 2\)/T\).*"),
    ("rho*max(k1, -60)", "off", r".*"),
    ("rho*min(k1, 200)", "off", r".*"),
    ("rho*clip(k1, -40, 40)", "off", r".*"),
]


@pytest.mark.parametrize(("loss", "words", "refuted"), REFUTED)
def test_a_counterexample_has_two_sides_that_differ(loss: str, words: str, refuted: str) -> None:
    witness = ask(loss, words).counterexample.model
    assert witness is not None and re.fullmatch(refuted, witness["refutes"]), witness
    left, right = ([Fraction(end) for end in witness[side]] for side in ("left", "right"))
    assert left[1] < right[0] or right[1] < left[0]
    numbers = witness.get("parameters", {})
    assert "m" not in numbers or int(numbers["n"]) == int(numbers["m"]) + 1
    assert "m" in numbers or not loss.startswith("log_q")
    if "rho*" in loss and loss != "rho*k2":  # the model has a sample beyond the far bound
        ratios = [Fraction(q) / Fraction(p) for q, p in zip(witness["q"], witness["p"], strict=True)]
        bound = max(int(n) for n in re.findall(r"\d{2,}", loss))
        assert max(abs(float(sympy.log(x))) for x in ratios) > bound


# ---------------------------------------------------------------------------- hypotheses
HYPOTHESES = [  # a loss, how it is used, what its hypotheses hold, as regular expressions
    ("k2", "", [r"E_q may be exchanged in E_q\[k1\]", r"E_q\[k1\*s\] exists"]),
    ("k3", "", ["p << q", "E_q may be exchanged", "E_p may be exchanged"]),
    ("rho*k3", "off", [r"E_q may be exchanged in E_q\[k1\]", "q << mu"]),
    ("rho*k3", "", ["on-policy"]),
    ("k2/beta", "", ["beta is not 0"]),
    ("abs(k1)", "", ["at a kink the slope is that of PyTorch: abs has slope 0 at 0"]),
    ("clip(k1, -1, 1)", "off", [r"grad and E_mu may be exchanged in E_mu\[clip\(k1, -1, 1\)\]"]),
    ("k3", "loo", ["at every sample H = 1 - r"]),
    ("rho*k1", "off token reward prefix", [r"at every step H_now = rho_past\*rho_now\*k1_now"]),
    ("rho*k3", "off token reward whole", ["at every step H_now = k1_now"]),
    ("rho + R", "token whole /T", ["sum_t 1/T = 1"]),
    (PPO, "off loo", ["is_high is 1 where rho > 6/5, and 0 elsewhere"]),
]


@pytest.mark.parametrize(("loss", "words", "lines"), HYPOTHESES)
def test_hypotheses(loss: str, words: str, lines: list[str]) -> None:
    hypotheses = ask(loss, words).hypotheses
    for said in lines:
        assert any(re.search(said, line) for line in hypotheses), hypotheses


def test_hypotheses_that_are_not_needed_are_not_made() -> None:
    """E_q[f(r)] has a derivative where no outcome stands at a kink of f, of whatever use the loss is."""
    for loss, words, said in (("abs(k1)", "reward", "at a kink the slope"), ("abs(k1)", "reward",
    "slope of PyTorch"),
                              ("rho + R", "token whole", "sum_t 1/T = 1")):  # fmt: skip
        assert not any(said in line for line in ask(loss, words).hypotheses)


def test_many_hypotheses_on_means_are_one_line_each_in_text_and_whole_in_json() -> None:
    """The line asks for no less: as many means as it stands for, and all others are listed as they are."""
    verdict = explain("R - beta*k3", use="reward", level="token")
    text, whole = verdict.text(proof=True), verdict.to_json()["hypotheses"]
    kinds = {write_sentence(x): x.code for x in verdict.assumptions if x.code in ("exchange", "exists")}
    for kind, told in (("exchange", "in the {} means whose gradient"), ("exists", "the {} other means")):
        these = [line for line in whole if kinds.get(line) == kind]
        assert len(these) > 4
        assert told.format(len(these)) in text
        assert not any(line in text for line in these)
    assert all(told_in(text, line) for line in whole if line not in kinds)
    few = explain("k1", use="reward")
    assert all(told_in(few.text(proof=True), line) for line in few.hypotheses)


def told_in(text: str, line: str) -> bool:
    """As it is, or where a line says the same of several: a << b, means that exist, sequences that end."""
    subjects = [line.partition(verb)[0] for verb in (": wherever", " exists")]
    ends = "sequences from p and q end with" in text and line.startswith("after any prefix, sequences from ")
    return f"  - {line}" in text or any(f"{subject} " in text for subject in subjects) or ends


# ---------------------------------------------------------------------------- proofs and forms
PRINTED = [  # a loss, how it is used, its gradient at a sample as it is printed
    ("k1", "reward loo", "k1_self - k1_others/(n - 1)"),
    ("k1", "reward mean", "k1_self - (k1_self + k1_others)/n"),
    ("R - beta*k1", "reward loo", "R_self - beta*k1_self - (R_others - beta*k1_others)/(n - 1)"),
    ("k3", "loo", "H_self - H_others/(n - 1)"),
    ("k1", "mean", "0"),
    ("rho*k1", "off token reward prefix", "H_future + rho_past*rho_now*k1_now"),
    ("rho*k3", "off token reward whole", "rho*(k3_now + future(k3))"),
]


@pytest.mark.parametrize(("loss", "words", "per_sample"), PRINTED)
def test_per_sample(loss: str, words: str, per_sample: str) -> None:
    assert ask(loss, words).gradient.score_text == per_sample


@pytest.mark.parametrize(("loss", "words"), [("rho*k1", "off loo"), ("k2", "token"), ("R",
"off token reward"),
                                             ("k3", "sequence /T"), ("k1", "reward std")])  # fmt: skip
def test_every_proof_replays_from_its_text(loss: str, words: str) -> None:
    proofs = ask(loss, words).proof.theorems
    assert proofs and all(check(read(json.dumps(p.certificate()))) == (p.theorem.proved,) for p in proofs)


@pytest.mark.parametrize(("loss", "words"), [("abs(k1)", "sequence /T"), ("min(k1, 2)", "off sequence /T")])
def test_the_derivation_starts_with_1_over_T_in_front(loss: str, words: str) -> None:
    first = ask(loss, words).proof.steps[0]
    assert re.fullmatch(rf"E_\w+\[grad\({re.escape(loss)}/T\)\]", first[1])
    assert r"{T}" in first[2] or "/T" in first[2]
