"""Chains: each method does its one step, refuses misuse in one clear line, and ends as a theorem."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from sympy import Function, exp, log

from klsym.calculus import *
from klsym.errors import KlsymError, ProofError, Refused, UsageError
from klsym.kernel import check, digest, read
from klsym.kernel.ring import ONE
from klsym.kernel.statements import MeanGradient
from klsym.language.abbreviations import elements
from klsym.language.expressions import H
from klsym.notation.spelling import TEXT
from klsym.notation.text import chain

a, b, nu = (parameter(name) for name in ("a", "b", "nu"))
f, g = Function("f")(k1), Function("g")(k1)
HALVES = finite_model(q=["1/2", "1/2"], p=["1/4", "3/4"], mu=["1/3", "2/3"], u=[1, 0])
REVERSE, FORWARD = grad(KL(q, p)), grad(KL(p, q))
F_IS_KL = ((expectation(f, under=q), KL(q, p)),)
Make = Callable[[], Any]

# ---------------------------------------------------------------------------- single steps
STEPS: dict[str, tuple[Make, str]] = {
    "differentiate a loss": (
        lambda: derive(expected_gradient(k3, under=q)).differentiate(),
        "E_q[(1 - r)*s]",
    ),
    "differentiate drops sg": (
        lambda: derive(expected_gradient(sg(rho) * k2, under=mu)).differentiate(),
        "E_mu[rho*k1*s]",
    ),
    "differentiate at one sample": (
        lambda: derive(sample_gradient(rho * k1)).differentiate(),
        "rho*(k1 + 1)*s",
    ),
    "differentiate every term": (
        lambda: derive(expected_gradient(k2, under=q) + expected_gradient(k3, under=mu)).differentiate(),
        "E_mu[(1 - r)*s] + E_q[k1*s]",
    ),
    "drop sg": (lambda: derive(expectation(sg(k1) * s, under=q)).drop_stop_gradients(), "E_q[k1*s]"),
    "log-derivative": (
        lambda: derive(grad(expectation(k2, under=q))).log_derivative(),
        "E_q[k2*s] + E_q[grad k2]",
    ),
    "log-derivative off-policy": (
        lambda: derive(grad(expectation(k3, under=mu))).log_derivative(),
        "E_mu[grad k3]",
    ),
    "log-derivative of a sum": (
        lambda: derive(grad(KL(q, p) + 2 * KL(p, q))).log_derivative(),
        "E_q[k1*s] + E_q[grad k1] + E_p[grad(-2*k1)]",
    ),
    "change of measure": (
        lambda: derive(expectation(rho * k1 * s, under=mu)).change_measure(to=q),
        "E_q[k1*s]",
    ),
    "change of measure of a divergence": (
        lambda: derive(KL(q, p)).change_measure(to=mu),
        "E_mu[rho*k1]",
    ),
    "change back": (lambda: derive(expectation(k1, under=q)).change_measure(to=mu), "E_mu[rho*k1]"),
    "change to the sum": (
        lambda: derive(expectation(k1, under=q)).change_measure(to=count),
        "sum_x[exp(log_q)*k1]",
    ),
    "change a part": (
        lambda: derive(expectation(k1 + r, under=q)).change_measure(to=p, part=r),
        "E_p[1] + E_q[k1]",
    ),
    "drop a constant times s": (
        lambda: derive(expectation((k1 + beta) * s, under=q)).drop_score_mean(part=beta),
        "E_q[k1*s]",
    ),
    "drop all": (lambda: derive(expectation(beta * s, under=q)).drop_score_mean(), "0"),
    "normalise": (lambda: derive(expectation(beta, under=p)).normalise(), "beta"),
    "ratio mean one": (lambda: derive(expectation(2 * r, under=q)).ratio_mean_one(of=p), "E_q[2]"),
    "ratio mean one, a part": (
        lambda: derive(expectation(k1 + r, under=q)).ratio_mean_one(of=p, part=r),
        "E_q[k1 + 1]",
    ),
    "on-policy": (
        lambda: derive(expected_gradient(rho * k1, under=mu), on_policy=True).differentiate(),
        "E_q[(k1 + 1)*s]",
    ),
    "given": (
        lambda: derive(expected_gradient(R * log_q, under=q), given={"R": nu + beta * k1}).differentiate(),
        "E_q[(beta*k1 + nu)*s]",
    ),
    "premise": (
        lambda: derive(grad(expectation(f, under=q)), premises=F_IS_KL).use_premise(gradient=True),
        "grad E_q[k1]",
    ),
    "premise at this theta": (
        lambda: derive(2 * expectation(f, under=q), premises=F_IS_KL).use_premise(times=2),
        "E_q[2*k1]",
    ),
    "reduce": (lambda: derive(FORWARD).reduce(), "E_q[-r*s]"),
    "step by its rule's name": (lambda: derive(REVERSE).step("log-derivative"), "E_q[k1*s] + E_q[grad k1]"),
}
WRITTEN_OUT: dict[str, tuple[Make, str]] = {
    "KL": (lambda: KL(q, p), "E_q[k1]"),
    "the forward KL": (lambda: KL(p, q), "E_p[-k1]"),
    "KL to the sampler": (lambda: KL(q, mu), "E_q[log(rho)]"),
    "chi2": (lambda: chi2(p, q), "E_q[r**2 - 2*r + 1]"),
    "Jeffreys": (lambda: jeffreys(p, q), "E_p[-k1] + E_q[k1]"),
    "a covariance": (lambda: covariance(k1, r, under=q), "E_q[r*k1] - E_q[k1] E_q[r]"),
    "a Bregman divergence": (lambda: bregman(-log(r)), "k1 + r - 1"),
    "under grad": (lambda: REVERSE, "grad E_q[k1]"),
    "each term": (lambda: KL(p, q) + 2 * KL(q, p), "E_p[-k1] + E_q[2*k1]"),
}


@pytest.mark.parametrize("name", STEPS)
def test_step(name: str) -> None:
    make, shown = STEPS[name]
    done = make()
    assert isinstance(done, Derivation)
    assert parts_of(done.left_text) == parts_of(shown)
    assert done.steps, "a step leaves a record"


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_abbreviations_are_written_out_at_once(name: str) -> None:
    make, shown = WRITTEN_OUT[name]
    start = derive(make())
    assert parts_of(str(Quantity(start.left))) == parts_of(shown)
    assert start.left_text == str(make()) and start.steps == ()
    rows = [row for row in chain(start.equals(Quantity(start.left)), TEXT) if row[1] == "definition"]
    assert [parts_of(formula) for formula, _ in rows] == [parts_of(shown)]


def parts_of(text: str) -> list[str]:
    """The terms of a sum, so that their order is free."""
    return sorted(text.replace(" - ", " + -").split(" + "))


@pytest.mark.parametrize("name", STEPS)
def test_what_a_step_leaves_equals_what_it_began_with(name: str) -> None:
    """Any chain so far may be closed by equals(its own left side)."""
    done = STEPS[name][0]()
    assert done.equals(Quantity(done.left, labels=done.labels)).theorem.kind == "proved"


def test_a_derivation_is_a_value() -> None:
    start = derive(expected_gradient(k3, under=q))
    before = start.left_text
    start.differentiate().drop_score_mean(part=1)
    assert start.left_text == before and start.steps == ()


# ---------------------------------------------------------------------------- endings
ENDINGS: dict[str, tuple[Make, str, str]] = {
    "equals": (
        lambda: derive(expected_gradient(k3, under=q)).differentiate().equals(FORWARD),
        "proved",
        "E_q[grad k3] = grad KL(p||q)",
    ),
    "equals a number": (lambda: derive(expectation(r, under=q)).equals(1), "proved", "E_q[r] = 1"),
    "equals with a parameter": (
        lambda: derive(expectation(k(lam), under=q)).equals(KL(q, p)),
        "proved",
        "E_q[k1 + lam*(r - 1)] = KL(q||p)",
    ),
    "at most, tangent": (
        lambda: derive(covariance(k1, r - 1, under=q)).at_most(
            0, rows=[{"u": -k1, "at": q}, {"u": k1, "v": -k1, "at": q}]
        ),
        "proved",
        "Cov_q(k1, r - 1) <= 0; equality iff r = 1 wherever q > 0",
    ),
    "at most, variance": (
        lambda: derive(expectation(k1, under=q) * expectation(k1, under=q)).at_most(
            expectation(k1**2, under=q), rows=[{"variance": k1, "at": q}]
        ),
        "proved",
        "E_q[k1] E_q[k1] <= E_q[k1**2]; equality iff k1 is constant wherever q > 0",
    ),
    "differs": (
        lambda: derive(expectation(k2, under=q)).differs_from(KL(q, p)),
        "refuted",
        "E_q[k2] != KL(q||p) in general",
    ),
    "differs in a model of one's own": (
        lambda: derive(expectation(k2, under=q)).differs_from(KL(q, p), model=HALVES),
        "refuted",
        "E_q[k2] != KL(q||p) in general",
    ),
    "not at most": (
        lambda: derive(KL(q, p)).differs_from(0, relation="<="),
        "refuted",
        "KL(q||p) <= 0 fails in a model",
    ),
    "iff": (
        lambda: derive(expected_gradient(g, under=q) - REVERSE).iff(
            "g", is_=k2 + a * k1 + b, constants=(b, a)
        ),
        "unique",
        "E_q[grad g(k1)] - grad KL(q||p) = 0 iff g = k1**2/2 + a*k1 + b (any a, b)",
    ),
    "no combination": (
        lambda: derive(expected_gradient(k1 * k2, under=q)).is_no_combination(),
        "independent",
        "E_q[grad(k1*k2)] is no combination of grad KL(q||p), grad KL(p||q) and grad E_q[h(R, A)]",
    ),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_ending(name: str) -> None:
    make, kind, text = ENDINGS[name]
    proof = make()
    assert isinstance(proof, Proof)
    assert (proof.theorem.kind, proof.trust, str(proof)) == (kind, "kernel", text)
    assert check(read(json.dumps(proof.certificate()))) == (proof.theorem.proved,)


def test_quantities_add_and_scale() -> None:
    total = 2 * KL(q, p) - KL(p, q) / 2 + 3 - lam * REVERSE
    assert parts_of(str(total)) == parts_of("3 + 2 KL(q||p) - 1/2 KL(p||q) - lam grad KL(q||p)")
    assert derive(KL(q, p) + KL(p, q)).equals(jeffreys(q, p)).theorem.kind == "proved"
    assert derive(5 - KL(q, p)).equals(-(KL(q, p) - 5)).theorem.kind == "proved"
    assert str(KL(q, p) - KL(q, p)) == "0"
    assert str(covariance(k1, k1, under=q)) == "Var_q(k1)"


@pytest.mark.parametrize(
    ("make", "lines"),
    [
        (lambda: derive(expectation(r, under=q)).equals(1), ["p << q"]),
        (lambda: derive(expectation(s, under=q)).equals(0), ["exchanged"]),
        (
            lambda: (
                derive(expectation(k1 + k2, under=q))
                .change_measure(to=p, part=k1)
                .equals(expectation(k1 + k2, under=q))
            ),
            [r"E_q\[k1\] exists", "q << p"],
        ),
        (lambda: derive(expectation(k1 / beta, under=q)).equals(KL(q, p) / beta), ["beta is not 0"]),
        (
            lambda: derive(expectation(R * s, under=q), given={"R": k1}).equals(REVERSE),
            ["at every sample R = k1"],
        ),
        (lambda: derive(expectation(rho * k1 * s, under=mu), on_policy=True).equals(REVERSE), ["on-policy"]),
        (
            lambda: derive(
                grad(expectation(f, under=q)), premises=((expectation(f, under=q), KL(q, p)),)
            ).equals(REVERSE),
            [r"for every theta E_q\[f\(k1\)\] = KL\(q\|\|p\)|for every theta E_q\[f\] = KL"],
        ),
    ],
)
def test_hypotheses_are_carried(make: Make, lines: list[str]) -> None:
    hypotheses = make().hypotheses
    for words in lines:
        assert any(re.search(words, line) for line in hypotheses), hypotheses


# ---------------------------------------------------------------------------- misuse
SIDES = "the two sides differ"
MISUSE: dict[str, tuple[Make, str]] = {
    "derive text": (lambda: derive("k1"), "quantity|expectation|str"),
    "derive a loss": (lambda: derive(k1), "quantity|expectation"),
    "derive a number": (lambda: derive(3), "quantity|expectation|int"),
    "unknown setting": (lambda: derive(KL(q, p), onpolicy=True), "unknown setting.*onpolicy"),
    "unknown measure": (lambda: expectation(k1, under="z"), "'z'.*q, p, mu"),
    "unknown measure of KL": (lambda: KL(q, "z"), "'z'"),
    "no gradient here": (lambda: derive(KL(q, p)).differentiate(), r"no gradient of a loss in KL\(q\|\|p\)"),
    "no such term": (lambda: derive(KL(q, p)).normalise(term=5), "term 5"),
    "negative factor": (lambda: derive(KL(q, p)).normalise(factor=-1), "factor -1"),
    "log-derivative of a value": (lambda: derive(KL(q, p)).log_derivative(), "Gradient expected, got Mean"),
    "log-derivative of a product": (
        lambda: derive(grad(KL(q, p) * KL(p, q))).log_derivative(),
        "and of no product",
    ),
    "log-derivative of a score": (
        lambda: derive(grad(expectation(k1 * s, under=q))).equals(0),
        "gradient|score",
    ),
    "second derivative": (lambda: derive(grad(REVERSE)).equals(0), "gradient"),
    "change of a gradient": (lambda: derive(REVERSE).change_measure(to=p), "Mean expected, got Gradient"),
    "change to nowhere": (lambda: derive(expectation(k1, under=q)).change_measure(to="z"), "'z'"),
    "score mean under p": (
        lambda: derive(expectation(s, under=p)).drop_score_mean(),
        "needs m = q, got m = p",
    ),
    "score mean of k1": (
        lambda: derive(expectation(k1 * s, under=q)).drop_score_mean(),
        "may depend on the slot",
    ),
    "score mean without a score": (
        lambda: derive(expectation(1, under=q)).drop_score_mean(),
        "one score function",
    ),
    "normalise k1": (lambda: derive(expectation(k1, under=q)).normalise(), "depends on the sample"),
    "normalise a score": (lambda: derive(expectation(s, under=q)).normalise(), "no score function"),
    "wrong ratio": (lambda: derive(expectation(r, under=q)).ratio_mean_one(of=mu), "may depend on the slot"),
    "ratio of nothing": (lambda: derive(expectation(r, under=q)).ratio_mean_one(of="z"), "'z'"),
    "w is 0 on-policy alone": (
        lambda: derive(expected_gradient(rho * k1, under=mu)).equals(FORWARD),
        SIDES,
    ),
    "nothing given": (
        lambda: derive(expectation(R * s, under=q)).equals(expectation(k1 * s, under=q)),
        SIDES,
    ),
    "k1 cannot be given": (lambda: derive(KL(q, p), given={"k1": R}), "given: R, A or H.*'k1'"),
    "a detached reward cannot be given": (lambda: derive(KL(q, p), given={"sg(R)": k1}), r"'sg\(R\)'"),
    "R of the past cannot be given": (lambda: derive(KL(q, p), given={"R[past]": k1}), r"'R\[past\]'"),
    "R in terms of itself": (lambda: derive(KL(q, p), given={"R": R + 2 * A}), "names what is given"),
    "R and A in terms of each other": (
        lambda: derive(KL(q, p), given={"R": A, "A": R}),
        "names what is given",
    ),
    "H twice": (lambda: derive(KL(q, p), given={"H": k1, "H[now]": now(k1)}), "given twice"),
    "H of what comes later": (lambda: derive(KL(q, p), given={"H[now]": future(k1)}), "slot 'future'"),
    "a premise about what is given": (
        lambda: derive(KL(q, p), given={"R": k1}, premises=((expectation(R**2, under=q), KL(q, p)),)),
        "given at one theta only",
    ),
    "a premise about the sampler on-policy": (
        lambda: derive(KL(q, p), on_policy=True, premises=((expectation(k1, under=mu), KL(p, q)),)),
        "on-policy mu is a detached copy",
    ),
    "a premise about the weight on-policy": (
        lambda: derive(KL(q, p), on_policy=True, premises=((expectation(rho, under=q), KL(p, q)),)),
        "on-policy mu is a detached copy",
    ),
    "a premise that holds sg": (
        lambda: derive(
            grad(expectation(k1, under=q)),
            premises=((expectation(k1, under=q), expectation(sg(k1), under=q)),),
        ).use_premise(gradient=True),
        "detached",
    ),
    "no premise": (lambda: derive(REVERSE).use_premise(), "premise"),
    "unknown rule": (lambda: derive(KL(q, p)).step("magic"), "unknown rule 'magic'"),
    "unknown data": (lambda: derive(REVERSE).step("log-derivative", to=p), "data"),
    "wrong equation": (lambda: derive(KL(q, p)).equals(KL(p, q)), f"{SIDES}.*E_q.k1..*-r\\*k1"),
    "value and gradient": (lambda: derive(KL(q, p)).equals(REVERSE), SIDES),
    "equals text": (lambda: derive(KL(q, p)).equals("k1"), "expected"),
    "equals nothing": (lambda: derive(KL(q, p)).equals(None), "expected"),
    "equals a chain": (lambda: derive(KL(q, p)).equals(derive(KL(q, p))), "expected"),
    "equals a bare loss": (lambda: derive(sample(k1)).equals(k1), "sample|random"),
    "no difference": (lambda: derive(KL(q, p)).differs_from(expectation(k1, under=q)), "no finite model"),
    "unknown relation": (lambda: derive(KL(q, p)).differs_from(0, relation="<"), "relation"),
    "half a model": (lambda: derive(KL(q, p)).differs_from(0, model={"q": 1}), "finite model"),
    "no distribution": (
        lambda: derive(KL(q, p)).differs_from(
            0, model=finite_model(q=["1/2", "1/4"], p=["1/2", "1/2"], mu=["1/2", "1/2"], u=[1, 0])
        ),
        "no full-support distribution",
    ),
    "no value for a parameter": (
        lambda: derive(lam * KL(q, p)).differs_from(0, model=HALVES),
        "no value for lam",
    ),
    "a model in words": (lambda: finite_model(q=["x", "y"], p=[1, 1], mu=[1, 1], u=[1, 0]), "number|exact"),
    "a model in floats": (lambda: finite_model(q=[0.1, 0.9], p=[0.5, 0.5], mu=[0.5, 0.5], u=[1, 0]), "exact"),
    "a model that shows nothing": (
        lambda: derive(KL(q, p)).differs_from(
            0, model=finite_model(q=["1/2", "1/2"], p=["1/2", "1/2"], mu=["1/2", "1/2"], u=[1, 0])
        ),
        "no finite model|does not|apart",
    ),
    "unknown inequality": (lambda: derive(KL(q, p)).at_most(0, rows=[{"magic": k1}]), "u, b or variance"),
    "square without data": (lambda: derive(KL(q, p)).at_most(0, rows=[{"power": 1}]), "u, b or variance"),
    "wrong tangent": (lambda: derive(KL(q, p)).at_most(0, rows=[{"u": -k1}]), SIDES),
    "negative tangent": (
        lambda: derive(KL(q, p)).at_most(0, rows=[{"u": -k1, "scale": -1}]),
        "positive",
    ),
    "iff k3": (
        lambda: derive(expected_gradient(g, under=q) - REVERSE).iff("g", is_=k3 + b, constants=(b,)),
        "iff|g",
    ),
    "iff without a constant": (
        lambda: derive(expected_gradient(g, under=q) - REVERSE).iff("g", is_=k2 + b, constants=(b,)),
        "iff|g",
    ),
    "iff another function": (
        lambda: derive(expected_gradient(g, under=q) - REVERSE).iff("h", is_=k2 + b, constants=(b, a)),
        "h",
    ),
    "k3 is a combination": (
        lambda: derive(expected_gradient(k3, under=q)).is_no_combination(),
        "is a combination",
    ),
    "a value is no gradient": (lambda: derive(expectation(k2, under=q)).is_no_combination(), r"E_q\[c s\]"),
    "a float": (lambda: KL(q, p) * 0.5, "exact Rational"),
    "division by zero": (lambda: KL(q, p) / 0, "zero"),
    "Bregman of a reward": (lambda: bregman(R * log(r)), "in r alone"),
    "outside the ring": (lambda: expectation(abs(k1), under=q), "no exponential polynomial"),
    "the score inverted": (lambda: expectation(k1 / s, under=q), "s"),
    "the score in an exponent": (lambda: expectation(exp(s), under=q), "s"),
    "the score in a loss": (lambda: expected_gradient(s * k1, under=q), "s"),
    "a random factor outside": (lambda: derive(k1 * KL(q, p)).equals(0), "random|sample"),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_is_refused_in_one_clear_line(name: str) -> None:
    make, words = MISUSE[name]
    with pytest.raises(KlsymError) as caught:
        make()
    message = str(caught.value)
    assert re.search(words, message), message
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
    assert chain(proof, TEXT) == [
        ("E_mu[grad(rho*k3)]", ""),
        ("E_q[k1*s]", "the weight undoes mu"),
        ("grad E_q[k1]", "theorem"),
        ("grad KL(q||p)", "definition"),
    ]
    plain = start.equals(REVERSE)
    assert (proof.part, proof.theorem) == (plain.part, plain.theorem), "words change no step"
    assert ("E_mu[rho*k1*s]", "chain rule") in chain(plain, TEXT)


def test_waypoints_one_after_the_other() -> None:
    proof = (
        derive(FORWARD)
        .to(grad(expectation(-k1, under=p)), by="written out")
        .to(expectation(-r * s, under=q), by="p does not move")
        .equals(expected_gradient(k3, under=q))
    )
    rows = chain(proof, TEXT)
    assert rows[:3] == [
        ("grad KL(p||q)", ""),
        ("grad E_p[-k1]", "definition, written out"),
        ("E_q[-r*s]", "p does not move"),
    ]
    assert check(read(json.dumps(proof.certificate()))) == (proof.theorem.proved,)


def test_a_waypoint_may_follow_a_step() -> None:
    chosen = derive(expected_gradient(rho * k1, under=mu)).differentiate()
    proof = chosen.to(expectation(k1 * s, under=q), by="as before").equals(REVERSE)
    assert ("E_mu[rho*(k1 + 1)*s]", "chain rule") in chain(proof, TEXT)
    assert ("E_q[k1*s]", "as before") in chain(proof, TEXT)


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
@pytest.mark.parametrize(
    ("make", "line"),
    [
        (
            lambda: (
                derive(2 * expectation(f, under=q), premises=F_IS_KL)
                .use_premise(times=2)
                .equals(2 * KL(q, p))
            ),
            "E_q[f(k1)] = KL(q||p)",
        ),
        (
            lambda: (
                derive(grad(expectation(f, under=q)), premises=F_IS_KL)
                .use_premise(gradient=True)
                .equals(REVERSE)
            ),
            "for every theta E_q[f(k1)] = KL(q||p)",
        ),
        (
            lambda: (
                derive(expectation(f, under=q) * expectation(r * s, under=q), premises=F_IS_KL)
                .use_premise(times=expectation(r * s, under=q))
                .equals(KL(q, p) * expectation(r * s, under=q))
            ),
            "E_q[f(k1)] = KL(q||p)",
        ),
    ],
)
def test_a_premise_is_used_and_stands_among_the_hypotheses(make: Make, line: str) -> None:
    proof = make()
    assert proof.theorem.kind == "proved" and "equation" in proof.theorem.rules
    assert line in proof.hypotheses
    assert "premise" in [why for _, why in chain(proof, TEXT)]
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
    assert {n for e in elements(left) for n in e.names()} >= {"H"}
    assert "H" not in {n for e in elements(right) for n in e.names()}
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
@pytest.mark.parametrize(
    ("of", "value"),
    [
        (k1, 0),
        (k3, FORWARD),
        (k1 + 2 * k3, 2 * FORWARD),
        (rho * k1, REVERSE),
        (rho * k3, REVERSE),
        (sg(rho) * k2, REVERSE),
    ],
)
def test_on_policy_the_gradient_of_a_mean_is_the_mean_of_the_gradient(of: Any, value: Any) -> None:
    """The sampler is detached: grad E_mu[a] holds no score term, and w moves as log q does."""
    start = derive(grad(expectation(of, under=mu)), on_policy=True)
    [[(one, [atom])]] = [start.left.terms]
    assert one == ONE and isinstance(atom, MeanGradient) and atom.measure == "q"
    assert start.left == derive(expected_gradient(of, under=mu), on_policy=True).left
    proof = start.equals(value)
    assert any(line.startswith("on-policy") for line in proof.hypotheses)
    assert start.equals(expected_gradient(of, under=mu)).theorem.kind == "proved"
    assert "on-policy" in [why for _, why in chain(proof, TEXT)]
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
