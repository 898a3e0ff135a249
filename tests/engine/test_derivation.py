"""Chains: each method does its one step, refuses misuse in one clear line, and ends as a theorem."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import sympy
from sympy import Function

from klsym.calculus import *
from klsym.errors import KlsymError, ProofError, Refused, UsageError
from klsym.kernel import check, digest, read
from klsym.kernel.ring import ONE
from klsym.kernel.statements import MeanGradient
from klsym.language.abbreviations import walk_elements
from klsym.language.expressions import H
from klsym.notation.printers import TEXT
from klsym.notation.text import format_chain

a, b, nu = (parameter(name) for name in ("a", "b", "nu"))
f, g = Function("f")(k1), Function("g")(k1)
HALVES = finite_model(q=["1/2", "1/2"], p=["1/4", "3/4"], mu=["1/3", "2/3"], u=[1, 0])
REVERSE, FORWARD = grad(KL(q, p)), grad(KL(p, q))
F_IS_KL = ((expectation(f, under=q), KL(q, p)),)
Make = Callable[[], Any]

# ---------------------------------------------------------------------------- single steps
STEPS: dict[str, str] = {
    "derive(expected_gradient(k3, under=q)).differentiate()": "E_q[(1 - r)*s]",
    "derive(expected_gradient(sg(rho) * k2, under=mu)).differentiate()": "E_mu[rho*k1*s]",
    "derive(sample_gradient(rho * k1)).differentiate()": "rho*(k1 + 1)*s",
    "derive(expected_gradient(k2, under=q) + expected_gradient(k3, under=mu)).differentiate()":
        "E_mu[(1 - r)*s] + E_q[k1*s]",
    "derive(expectation(sg(k1) * s, under=q)).drop_stop_gradients()": "E_q[k1*s]",
    "derive(grad(expectation(k2, under=q))).log_derivative()": "E_q[k2*s] + E_q[grad k2]",
    "derive(grad(expectation(k3, under=mu))).log_derivative()": "E_mu[grad k3]",
    "derive(grad(KL(q, p) + 2 * KL(p, q))).log_derivative()": "E_q[k1*s] + E_q[grad k1] + E_p[grad(-2*k1)]",
    "derive(expectation(rho * k1 * s, under=mu)).change_measure(to=q)": "E_q[k1*s]",
    "derive(KL(q, p)).change_measure(to=mu)": "E_mu[rho*k1]",
    "derive(expectation(k1, under=q)).change_measure(to=mu)": "E_mu[rho*k1]",
    "derive(expectation(k1, under=q)).change_measure(to=count)": "sum_x[exp(log_q)*k1]",
    "derive(expectation(k1 + r, under=q)).change_measure(to=p, part=r)": "E_p[1] + E_q[k1]",
    "derive(expectation((k1 + beta) * s, under=q)).drop_score_mean(part=beta)": "E_q[k1*s]",
    "derive(expectation(beta * s, under=q)).drop_score_mean()": "0",
    "derive(expectation(beta, under=p)).normalise()": "beta",
    "derive(expectation(2 * r, under=q)).ratio_mean_one(of=p)": "E_q[2]",
    "derive(expectation(k1 + r, under=q)).ratio_mean_one(of=p, part=r)": "E_q[k1 + 1]",
    "derive(expected_gradient(rho * k1, under=mu), on_policy=True).differentiate()": "E_q[(k1 + 1)*s]",
    "derive(expected_gradient(R * log_q, under=q), given={'R': nu + beta * k1}).differentiate()":
        "E_q[(beta*k1 + nu)*s]",
    "derive(grad(expectation(f, under=q)), premises=F_IS_KL).use_premise(gradient=True)": "grad E_q[k1]",
    "derive(2 * expectation(f, under=q), premises=F_IS_KL).use_premise(times=2)": "E_q[2*k1]",
    "derive(FORWARD).reduce()": "E_q[-r*s]",
    "derive(REVERSE).step('log-derivative')": "E_q[k1*s] + E_q[grad k1]",
    "derive(grad(KL(q, p) * KL(q, p))).step('product rule')": "2 grad E_q[k1] E_q[k1]",
    "derive(grad(KL(q, p) * KL(p, q))).reduce()": "-E_q[r*k1] E_q[k1*s] - E_q[k1] E_q[r*s]",
    "derive(grad(expectation(rho * k1, under=mu) * expectation(k1, under=mu)), on_policy=True).reduce()":
        "E_q[k1*s] E_q[k1]",
    "derive(grad(expectation(k1, under=mu) * KL(q, p)), on_policy=True).reduce()": "E_q[k1*s] E_q[k1]",
}  # fmt: skip
WRITTEN_OUT: dict[str, str] = {
    "KL(q, p)": "E_q[k1]",
    "KL(p, q)": "E_p[-k1]",
    "KL(q, mu)": "E_q[log(rho)]",
    "chi2(p, q)": "E_q[r**2 - 2*r + 1]",
    "jeffreys(p, q)": "E_p[-k1] + E_q[k1]",
    "covariance(k1, r, under=q)": "E_q[r*k1] - E_q[k1] E_q[r]",
    "bregman(-log(r))": "k1 + r - 1",
    "REVERSE": "grad E_q[k1]",
    "KL(p, q) + 2 * KL(q, p)": "E_p[-k1] + E_q[2*k1]",
}  # fmt: skip


def made(text: str) -> Any:
    """The value of an expression in the names of this file."""
    return eval(text, {**globals(), "exp": sympy.exp, "log": sympy.log})


@pytest.mark.parametrize("text", STEPS)
def test_step(text: str) -> None:
    """Any chain so far may be closed by equals(its own left side)."""
    done = made(text)
    assert isinstance(done, Derivation)
    assert parts_of(done.left_text) == parts_of(STEPS[text])
    assert done.steps, "a step leaves a record"
    assert done.equals(Quantity(done.left, labels=done.labels)).theorem.kind == "proved"


@pytest.mark.parametrize("text", WRITTEN_OUT)
def test_abbreviations_are_written_out_at_once(text: str) -> None:
    shown, start = WRITTEN_OUT[text], derive(made(text))
    assert parts_of(str(Quantity(start.left))) == parts_of(shown)
    assert start.left_text == str(made(text)) and start.steps == ()
    rows = [row for row in format_chain(start.equals(Quantity(start.left)), TEXT) if row[1] == "definition"]
    assert [parts_of(formula) for formula, _ in rows] == [parts_of(shown)]


def parts_of(text: str) -> list[str]:
    """The terms of a sum, so that their order is free."""
    return sorted(text.replace(" - ", " + -").split(" + "))


def test_a_derivation_is_a_value() -> None:
    start = derive(expected_gradient(k3, under=q))
    before = start.left_text
    start.differentiate().drop_score_mean(part=1)
    assert start.left_text == before and start.steps == ()


# ---------------------------------------------------------------------------- endings
ENDINGS: dict[str, tuple[str, str]] = {
    "derive(expected_gradient(k3, under=q)).differentiate().equals(FORWARD)":
        ("proved", "E_q[grad k3] = grad KL(p||q)"),
    "derive(expectation(r, under=q)).equals(1)": ("proved", "E_q[r] = 1"),
    "derive(expectation(k(lam), under=q)).equals(KL(q, p))": ("proved", "E_q[k1 + lam*(r - 1)] = KL(q||p)"),
    "derive(covariance(k1, r - 1, under=q)).at_most(0, rows=[{'u': -k1, 'at': q}, {'u': k1, "
    "'v': -k1, 'at': q}])":
        ("proved", "Cov_q(k1, r - 1) <= 0; equality iff r = 1 wherever q > 0"),
    "derive(expectation(k1, under=q) * expectation(k1, under=q)).at_most(expectation(k1 ** 2, "
    "under=q), rows=[{'variance': k1, 'at': q}])":
        ("proved", "E_q[k1] E_q[k1] <= E_q[k1**2]; equality iff k1 is constant wherever q > 0"),
    "derive(expectation(k2, under=q)).differs_from(KL(q, p))": ("refuted", "E_q[k2] != KL(q||p) in general"),
    "derive(expectation(k2, under=q)).differs_from(KL(q, p), model=HALVES)":
        ("refuted", "E_q[k2] != KL(q||p) in general"),
    "derive(KL(q, p)).differs_from(0, relation='<=')": ("refuted", "KL(q||p) <= 0 fails in a model"),
    "derive(expected_gradient(g, under=q) - REVERSE).iff('g', is_=k2 + a * k1 + b, constants=(b, a))":
        ("unique", "E_q[grad g(k1)] - grad KL(q||p) = 0 iff g = k1**2/2 + a*k1 + b (any a, b)"),
    "derive(expected_gradient(k1 * k2, under=q)).is_no_combination()":
        ("independent",
         "E_q[grad(k1*k2)] is no combination of grad KL(q||p), grad KL(p||q) and grad E_q[h(R, A)]"),
}  # fmt: skip


@pytest.mark.parametrize("text", ENDINGS)
def test_ending(text: str) -> None:
    proof = made(text)
    assert isinstance(proof, Proof)
    assert (proof.theorem.kind, str(proof), proof.trust) == (*ENDINGS[text], "kernel")
    assert check(read(json.dumps(proof.certificate()))) == (proof.theorem.proved,)


def test_quantities_add_and_scale() -> None:
    total = 2 * KL(q, p) - KL(p, q) / 2 + 3 - lam * REVERSE
    assert parts_of(str(total)) == parts_of("3 + 2 KL(q||p) - 1/2 KL(p||q) - lam grad KL(q||p)")
    assert derive(KL(q, p) + KL(p, q)).equals(jeffreys(q, p)).theorem.kind == "proved"
    assert derive(5 - KL(q, p)).equals(-(KL(q, p) - 5)).theorem.kind == "proved"
    assert str(KL(q, p) - KL(q, p)) == "0"
    assert str(covariance(k1, k1, under=q)) == "Var_q(k1)"


HYPOTHESES: dict[str, str] = {  # a proof, what its hypotheses hold
    "derive(expectation(r, under=q)).equals(1)": "p << q",
    "derive(expectation(s, under=q)).equals(0)": "exchanged",
    "derive(expectation(k1 + k2, under=q)).change_measure(to=p, part=k1)"
    ".equals(expectation(k1 + k2, under=q))":
        r"E_q\[k1\] exists",
    "derive(expectation(k1 / beta, under=q)).equals(KL(q, p) / beta)": "beta is not 0",
    "derive(expectation(R * s, under=q), given={'R': k1}).equals(REVERSE)": "at every sample R = k1",
    "derive(expectation(rho * k1 * s, under=mu), on_policy=True).equals(REVERSE)": "on-policy",
    "derive(grad(expectation(f, under=q)), premises=F_IS_KL).equals(REVERSE)":
        r"for every theta E_q\[f\(k1\)\] = KL\(q\|\|p\)|for every theta E_q\[f\] = KL",
}  # fmt: skip


@pytest.mark.parametrize("text", HYPOTHESES)
def test_hypotheses_are_carried(text: str) -> None:
    hypotheses = made(text).hypotheses
    assert any(re.search(HYPOTHESES[text], line) for line in hypotheses), hypotheses


# ---------------------------------------------------------------------------- misuse
SIDES = "the two sides differ"
# a wrong use, what is said
MISUSE: dict[str, str] = {
    "derive('k1')": "quantity|expectation|str",
    "derive(k1)": "quantity|expectation",
    "derive(KL(q, p), onpolicy=True)": "unknown setting.*onpolicy",
    "expectation(k1, under='z')": "'z'.*q, p, mu",
    "derive(KL(q, p)).differentiate()": r"no gradient of a loss in KL\(q\|\|p\)",
    "derive(KL(q, p)).normalise(term=5)": "term 5",
    "derive(KL(q, p)).normalise(factor=-1)": "factor -1",
    "derive(KL(q, p)).log_derivative()": "Gradient expected, got Mean",
    "derive(grad(KL(q, p) * KL(p, q))).log_derivative()": "and of no product",
    "derive(grad(expectation(k1 * s, under=q))).equals(0)": "gradient|score",
    "derive(grad(REVERSE)).equals(0)": "gradient",
    "derive(REVERSE).change_measure(to=p)": "Mean expected, got Gradient",
    "derive(expectation(s, under=p)).drop_score_mean()": "needs m = q, got m = p",
    "derive(expectation(k1 * s, under=q)).drop_score_mean()": "may depend on the slot",
    "derive(expectation(1, under=q)).drop_score_mean()": "one score function",
    "derive(expectation(k1, under=q)).normalise()": "depends on the sample",
    "derive(expectation(s, under=q)).normalise()": "no score function",
    "derive(expectation(r, under=q)).ratio_mean_one(of=mu)": "may depend on the slot",
    "derive(expected_gradient(rho * k1, under=mu)).equals(FORWARD)": SIDES,
    "derive(expectation(R * s, under=q)).equals(expectation(k1 * s, under=q))": SIDES,
    "derive(KL(q, p), given={'k1': R})": "given: R, A or H.*'k1'",
    "derive(KL(q, p), given={'sg(R)': k1})": r"'sg\(R\)'",
    "derive(KL(q, p), given={'R[past]': k1})": r"'R\[past\]'",
    "derive(KL(q, p), given={'R': R + 2 * A})": "names what is given",
    "derive(KL(q, p), given={'R': A, 'A': R})": "names what is given",
    "derive(KL(q, p), given={'H': k1, 'H[now]': now(k1)})": "given twice",
    "derive(KL(q, p), given={'H[now]': future(k1)})": "slot 'future'",
    "derive(KL(q, p), given={'R': k1}, premises=((expectation(R ** 2, under=q), KL(q, p)),))":
        "given at one theta only",
    "derive(KL(q, p), on_policy=True, premises=((expectation(k1, under=mu), KL(p, q)),))":
        "on-policy mu is a detached copy",
    "derive(KL(q, p), on_policy=True, premises=((expectation(rho, under=q), KL(p, q)),))":
        "on-policy mu is a detached copy",
    "derive(grad(expectation(k1, under=q)), premises=((expectation(k1, under=q), expectation(sg(k1), "
    "under=q)),)).use_premise(gradient=True)":
        "detached",
    "derive(KL(q, p)).step('product rule')": "Gradient expected, got Mean",
    "derive(grad(KL(q, p) * REVERSE)).step('product rule')": "products of expectations",
    "derive(grad(KL(q, p) * KL(p, q))).equals(KL(q, p) * FORWARD)": SIDES,
    "derive(REVERSE).use_premise()": "premise",
    "derive(KL(q, p)).step('magic')": "unknown rule 'magic'",
    "derive(REVERSE).step('log-derivative', to=p)": "data",
    "derive(KL(q, p)).equals(KL(p, q))": f"{SIDES}.*E_q.k1..*-r\\*k1",
    "derive(KL(q, p)).equals(REVERSE)": SIDES,
    "derive(KL(q, p)).equals('k1')": "expected",
    "derive(KL(q, p)).equals(derive(KL(q, p)))": "expected",
    "derive(sample(k1)).equals(k1)": "sample|random",
    "derive(KL(q, p)).differs_from(expectation(k1, under=q))": "no finite model",
    "derive(KL(q, p)).differs_from(0, relation='<')": "relation",
    "derive(KL(q, p)).differs_from(0, model={'q': 1})": "finite model",
    "derive(KL(q, p)).differs_from(0, model=finite_model(q=['1/2', '1/4'], p=['1/2', '1/2'], "
    "mu=['1/2', '1/2'], u=[1, 0]))":
        "no full-support distribution",
    "derive(lam * KL(q, p)).differs_from(0, model=HALVES)": "no value for lam",
    "finite_model(q=['x', 'y'], p=[1, 1], mu=[1, 1], u=[1, 0])": "number|exact",
    "finite_model(q=[0.1, 0.9], p=[0.5, 0.5], mu=[0.5, 0.5], u=[1, 0])": "exact",
    "derive(KL(q, p)).differs_from(0, model=finite_model(q=['1/2', '1/2'], p=['1/2', '1/2'], "
    "mu=['1/2', '1/2'], u=[1, 0]))":
        "no finite model|does not|apart",
    "derive(KL(q, p)).at_most(0, rows=[{'magic': k1}])": "u, b or variance",
    "derive(KL(q, p)).at_most(0, rows=[{'power': 1}])": "u, b or variance",
    "derive(KL(q, p)).at_most(0, rows=[{'u': -k1}])": SIDES,
    "derive(KL(q, p)).at_most(0, rows=[{'u': -k1, 'scale': -1}])": "positive",
    "derive(expected_gradient(g, under=q) - REVERSE).iff('g', is_=k3 + b, constants=(b,))": "iff|g",
    "derive(expected_gradient(g, under=q) - REVERSE).iff('g', is_=k2 + b, constants=(b,))": "iff|g",
    "derive(expected_gradient(g, under=q) - REVERSE).iff('h', is_=k2 + b, constants=(b, a))": "h",
    "derive(expected_gradient(k3, under=q)).is_no_combination()": "is a combination",
    "derive(expectation(k2, under=q)).is_no_combination()": r"E_q\[c s\]",
    "KL(q, p) * float('nan')": "nan is no exponential polynomial",
    "KL(q, p) / 0": "zero",
    "bregman(R * log(r))": "in r alone",
    "expectation(abs(k1), under=q)": "no exponential polynomial",
    "expectation(k1 / s, under=q)": "s",
    "expectation(exp(s), under=q)": "s",
    "expected_gradient(s * k1, under=q)": "s",
    "derive(k1 * KL(q, p)).equals(0)": "random|sample",
}  # fmt: skip


@pytest.mark.parametrize("text", MISUSE)
def test_misuse_is_refused_in_one_clear_line(text: str) -> None:
    with pytest.raises(KlsymError) as caught:
        made(text)
    message = str(caught.value)
    assert re.search(MISUSE[text], message), message
    assert message.isprintable() and len(message) < 400
    assert "[[" not in message, "terms are shown as text, not as data"


def test_a_false_chain_fails_where_it_is_written() -> None:
    start = derive(expected_gradient(k3, under=q)).differentiate()
    with pytest.raises(ProofError) as caught:
        start.equals(REVERSE)
    assert str(caught.value) == "the two sides differ: the left one is E_q[-r*s], the right one E_q[k1*s]"


def test_premises_do_not_refute_or_determine() -> None:
    """A model need not satisfy the premises, and uniqueness quantifies over every q and p."""
    premises = ((expectation(f, under=q), KL(q, p)),)
    start = derive(expected_gradient(k2, under=q), premises=premises)
    for make in (lambda: start.differs_from(0).theorem, lambda: start.is_no_combination().theorem):
        with pytest.raises(ProofError, match=r"premises|combination"):
            make()


def test_a_parameter_may_not_be_called_like_a_random_variable() -> None:
    with pytest.raises(UsageError, match=r"klsym's own"):
        expectation(parameter("w") * A, under=q)
    with pytest.raises(KlsymError):
        derive(expected_gradient(Function("w")(k1), under=q)).differentiate().equals(0)


def test_a_chain_shows_itself() -> None:
    chain = derive(expected_gradient(k3, under=q)).differentiate()
    assert repr(chain) in ("E_q[(1 - r)*s]", "E_q[grad k3] = E_q[(1 - r)*s]")
    assert str(derive(expectation(log_q, under=q)).left_text) == "E_q[log_q]"


# ---------------------------------------------------------------------------- waypoints
def test_a_waypoint_is_shown_in_the_words_of_its_author() -> None:
    start = derive(expected_gradient(rho * k3, under=mu))
    proof = start.to(expectation(k1 * s, under=q), by="the weight undoes mu").equals(REVERSE)
    assert format_chain(proof, TEXT) == [
        ("E_mu[grad(rho*k3)]", ""),
        ("E_q[k1*s]", "the weight undoes mu"),
        ("grad E_q[k1]", "theorem"),
        ("grad KL(q||p)", "definition"),
    ]
    plain = start.equals(REVERSE)
    assert (proof.part, proof.theorem) == (plain.part, plain.theorem), "words change no step"
    assert ("E_mu[rho*k1*s]", "chain rule") in format_chain(plain, TEXT)


def test_waypoints_one_after_the_other() -> None:
    proof = (
        derive(FORWARD)
        .to(grad(expectation(-k1, under=p)), by="written out")
        .to(expectation(-r * s, under=q), by="p does not move")
        .equals(expected_gradient(k3, under=q))
    )
    rows = format_chain(proof, TEXT)
    assert rows[:3] == [
        ("grad KL(p||q)", ""),
        ("grad E_p[-k1]", "definition, written out"),
        ("E_q[-r*s]", "p does not move"),
    ]
    assert check(read(json.dumps(proof.certificate()))) == (proof.theorem.proved,)


def test_a_waypoint_may_follow_a_step() -> None:
    chosen = derive(expected_gradient(rho * k1, under=mu)).differentiate()
    proof = chosen.to(expectation(k1 * s, under=q), by="as before").equals(REVERSE)
    assert ("E_mu[rho*(k1 + 1)*s]", "chain rule") in format_chain(proof, TEXT)
    assert ("E_q[k1*s]", "as before") in format_chain(proof, TEXT)


@pytest.mark.parametrize(
    ("start", "waypoint", "way"),
    [
        (lambda: REVERSE, lambda: expectation(k2 * s, under=q), "grad E_q[k1]; E_q[k1*s]"),
        (lambda: expectation(k1, under=q), lambda: expectation(-k1, under=q), "E_q[k1]"),
        (lambda: expectation(k1 * s, under=q), lambda: REVERSE, "E_q[k1*s]"),  # on the way back
    ],
)
def test_a_waypoint_that_is_not_on_the_way_is_refused(start: Make, waypoint: Make, way: str) -> None:
    with pytest.raises(ProofError) as caught:
        derive(start()).to(waypoint(), by="magic")
    shown = Quantity(derive(waypoint()).left)
    assert str(caught.value) == f"to: {shown} is not on the way: {way}"


# ---------------------------------------------------------------------------- what is assumed or known
PREMISED = {  # a proof by a premise, what is assumed
    "derive(2 * expectation(f, under=q), premises=F_IS_KL).use_premise(times=2).equals(2 * KL(q, p))":
        "E_q[f(k1)] = KL(q||p)",
    "derive(grad(expectation(f, under=q)), premises=F_IS_KL).use_premise(gradient=True).equals(REVERSE)":
        "for every theta E_q[f(k1)] = KL(q||p)",
    "derive(expectation(f, under=q) * expectation(r * s, under=q), premises=F_IS_KL)"
    ".use_premise(times=expectation(r * s, under=q)).equals(KL(q, p) * expectation(r * s, under=q))":
        "E_q[f(k1)] = KL(q||p)",
}  # fmt: skip


@pytest.mark.parametrize("text", PREMISED)
def test_a_premise_is_used_and_stands_among_the_hypotheses(text: str) -> None:
    proof = made(text)
    assert proof.theorem.kind == "proved" and "equation" in proof.theorem.rules
    assert PREMISED[text] in proof.hypotheses
    assert "premise" in [why for _, why in format_chain(proof, TEXT)]
    assert check(read(json.dumps(proof.certificate()))) == (proof.theorem.proved,)
    statement = proof.theorem.statement
    with pytest.raises(ProofError, match=SIDES):
        derive(Quantity(statement.left, dict(statement.context.functions))).equals(Quantity(statement.right))


def test_a_cited_lemma_is_carried_and_the_certificate_replays_alone() -> None:
    proof = derive(expected_gradient(k2, under=q)).equals(REVERSE)
    text = json.dumps(proof.certificate())
    of = [step["data"]["of"] for step in proof.part["steps"] if step["rule"] == "equation"]
    assert len(proof.cites) == 1 and [name for name, _ in of] == [digest(proof.cites[0])]
    assert check(read(text)) == (proof.theorem.proved,)
    code = "import sys, klsym.kernel as k; print(k.check(k.read(sys.stdin.read()))[0].kind)"
    alone = subprocess.run([sys.executable, "-c", code], input=text, capture_output=True, text=True)
    assert alone.stdout == "proved\n", alone.stderr
    without = {**proof.certificate(), "cites": []}
    with pytest.raises(Refused, match=r"no theorem .* is carried"):
        check(without)


def test_each_cited_lemma_is_carried_once_and_none_that_is_not_cited() -> None:
    both = derive(2 * REVERSE + FORWARD).equals(expectation((2 * k1 - r) * s, under=q))
    assert len(both.cites) == 2
    again = derive(expected_gradient(2 * k2, under=q) + REVERSE).equals(3 * REVERSE)
    assert len(again.cites) == 1
    assert derive(expectation(r, under=q)).equals(1).cites == []


# ---------------------------------------------------------------------------- given values
@pytest.mark.parametrize("of", [H * s, H**2 * s, sg(H) * s, H * k1 * s, r * H])
def test_means_of_h_are_those_of_its_value_by_premises(of: Any) -> None:
    value = k1**2 + beta
    put_in = of.xreplace({H: value, sg(H): value})
    proof = derive(expectation(of, under=q), given={"H": value}).equals(expectation(put_in, under=q))
    assert "at every sample H = k1**2 + beta" in proof.hypotheses
    [(left, right)] = proof.theorem.proved.statement.context.premises
    assert any(line.startswith("E_q[") and "H" in line for line in proof.hypotheses)
    assert {n for e in walk_elements(left) for n in e.names()} >= {"H"}
    assert "H" not in {n for e in walk_elements(right) for n in e.names()}
    with pytest.raises(ProofError, match=SIDES):
        derive(expectation(of, under=q), given={"H": 2 * value}).equals(expectation(put_in, under=q))


def test_h_is_given_at_one_theta_and_does_not_move() -> None:
    start = derive(grad(expectation(H, under=q)) + expectation(H, under=q), given={"H": k2})
    proof = start.equals(expectation(k2 * s, under=q) + KL(q, p) - KL(q, p) + expectation(k2, under=q))
    assert not any(line.startswith("for every theta") for line in proof.hypotheses)
    with pytest.raises(ProofError, match=SIDES):
        start.equals(grad(expectation(k2, under=q)) + expectation(k2, under=q))


def test_a_given_reward_is_detached_in_a_loss_and_under_a_gradient() -> None:
    given = {"R": nu + beta * k1}
    loss = derive(expected_gradient(beta * g - (R - nu) * log_q, under=mu), given=given)
    assert loss.equals(expected_gradient(beta * g - beta * sg(k1) * log_q, under=mu)).theorem.kind == "proved"
    mean = derive(grad(expectation(R, under=q)), given=given)
    assert mean.equals(beta * REVERSE).theorem.kind == "proved"
    square = derive(grad(expectation(R**2, under=q)), given={"R": k1})
    assert square.equals(expectation(k1**2 * s, under=q)).theorem.kind == "proved"
    with pytest.raises(ProofError, match=SIDES):
        square.equals(grad(expectation(k1**2, under=q)))


# ---------------------------------------------------------------------------- on-policy
@pytest.mark.parametrize(("of", "value"), [(k1, 0), (k1 + 2 * k3, 2 * FORWARD), (rho * k3, REVERSE),
                                           (sg(rho) * k2, REVERSE)])  # fmt: skip
def test_on_policy_the_gradient_of_a_mean_is_the_mean_of_the_gradient(of: Any, value: Any) -> None:
    """The sampler is detached: grad E_mu[a] holds no score term, and w moves as log q does."""
    start = derive(grad(expectation(of, under=mu)), on_policy=True)
    [[(one, [atom])]] = [start.left.terms]
    assert one == ONE and isinstance(atom, MeanGradient) and atom.measure == "q"
    assert start.left == derive(expected_gradient(of, under=mu), on_policy=True).left
    proof = start.equals(value)
    assert any(line.startswith("on-policy") for line in proof.hypotheses)
    assert start.equals(expected_gradient(of, under=mu)).theorem.kind == "proved"
    assert "on-policy" in [why for _, why in format_chain(proof, TEXT)]
    if value is not REVERSE:  # where the sampler moves, the score term is there
        with pytest.raises(ProofError, match=SIDES):
            derive(grad(expectation(of, under=q)), on_policy=True).equals(value)


def test_on_policy_divergences_to_the_sampler_move_along_q_alone() -> None:
    """KL(q||mu) is 0 there, and so is its gradient; KL(mu||q) is the mean under a detached sampler."""
    assert derive(KL(q, mu), on_policy=True).equals(0).theorem.kind == "proved"
    for divergence in (KL(q, mu), KL(mu, q), KL(mu, p)):
        assert derive(grad(divergence), on_policy=True).equals(0).theorem.kind == "proved"
    with pytest.raises(ProofError, match=SIDES):
        derive(grad(KL(mu, p))).equals(REVERSE)
