"""Chains: each method does its one step, refuses misuse in one clear line, and ends as a theorem."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from sympy import Function, exp, log

from klsym.calculus import (
    KL,
    A,
    Derivation,
    Proof,
    Quantity,
    R,
    beta,
    bregman,
    chi2,
    count,
    covariance,
    derive,
    expectation,
    expected_gradient,
    finite_model,
    grad,
    jeffreys,
    k,
    k1,
    k2,
    k3,
    lam,
    log_q,
    mu,
    p,
    parameter,
    q,
    r,
    rho,
    s,
    sample,
    sample_gradient,
    sg,
)
from klsym.errors import KlsymError, ProofError, UsageError
from klsym.kernel import check_part

a, b, nu = (parameter(name) for name in ("a", "b", "nu"))
f, g = Function("f")(k1), Function("g")(k1)
HALVES = finite_model(q=["1/2", "1/2"], p=["1/4", "3/4"], mu=["1/3", "2/3"], u=[1, 0])
REVERSE, FORWARD = grad(KL(q, p)), grad(KL(p, q))
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
    "unfold KL": (lambda: derive(KL(q, p)).unfold(), "E_q[k1]"),
    "unfold the forward KL": (lambda: derive(KL(p, q)).unfold(), "E_p[-k1]"),
    "unfold KL to the sampler": (lambda: derive(KL(q, mu)).unfold(), "E_q[log(rho)]"),
    "unfold chi2": (lambda: derive(chi2(p, q)).unfold(), "E_q[r**2 - 2*r + 1]"),
    "unfold Jeffreys": (lambda: derive(jeffreys(p, q)).unfold(), "KL(p||q) + KL(q||p)"),
    "unfold a covariance": (
        lambda: derive(covariance(k1, r, under=q)).unfold(),
        "E_q[r*k1] - E_q[k1] E_q[r]",
    ),
    "unfold a Bregman divergence": (lambda: derive(bregman(-log(r))).unfold(), "k1 + r - 1"),
    "unfold under grad": (lambda: derive(REVERSE).unfold(), "grad E_q[k1]"),
    "unfold the second term": (lambda: derive(KL(p, q) + KL(q, p)).unfold(term=1), "E_q[k1] + KL(p||q)"),
    "log-derivative": (
        lambda: derive(grad(expectation(k2, under=q))).log_derivative(),
        "E_q[k2*s] + E_q[grad k2]",
    ),
    "log-derivative off-policy": (
        lambda: derive(grad(expectation(k3, under=mu))).log_derivative(),
        "E_mu[grad k3]",
    ),
    "change of measure": (
        lambda: derive(expectation(rho * k1 * s, under=mu)).change_measure(to=q),
        "E_q[k1*s]",
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
    "ratio mean one": (lambda: derive(expectation(2 * r, under=q)).ratio_mean_one(of=p), "2"),
    "ratio mean one, a part": (
        lambda: derive(expectation(k1 + r, under=q)).ratio_mean_one(of=p, part=r),
        "1 + E_q[k1]",
    ),
    "on-policy": (
        lambda: derive(expected_gradient(rho * k1, under=mu), on_policy=True).differentiate().on_policy(),
        "E_q[(k1 + 1)*s]",
    ),
    "given": (
        lambda: derive(expectation(R * s, under=q), given={"R": nu + beta * k1}).put_in_given(),
        "E_q[(beta*k1 + nu)*s]",
    ),
    "premise": (
        lambda: derive(
            grad(expectation(f, under=q)), premises=((expectation(f, under=q), KL(q, p)),)
        ).use_premise(),
        "grad KL(q||p)",
    ),
    "reduce": (lambda: derive(FORWARD).reduce(), "E_q[-r*s]"),
    "step by its rule's name": (lambda: derive(KL(q, p)).step("definition"), "E_q[k1]"),
}


@pytest.mark.parametrize("name", STEPS)
def test_step(name: str) -> None:
    make, shown = STEPS[name]
    done = make()
    assert isinstance(done, Derivation)
    assert parts_of(done.left_text) == parts_of(shown)
    assert done.steps, "a step leaves a record"


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
            0, by="tangent", terms=((1, q, 0, -k1), (1, q, -k1, k1))
        ),
        "proved",
        "Cov_q(k1, r - 1) <= 0; equality iff r = 1 wherever q > 0",
    ),
    "at most, square": (
        lambda: derive(expectation(k1, under=q) * expectation(k1, under=q)).at_most(
            expectation(k1**2, under=q), by="square", b=k1, measure=q, power=0
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
    again = check_part(json.loads(json.dumps(proof.part)))
    assert again.kind == kind and again.statement == proof.theorem.statement


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
    "nothing to unfold": (lambda: derive(expectation(k1, under=q)).unfold(), "nothing to unfold"),
    "no such term": (lambda: derive(KL(q, p)).unfold(term=5), "term 5"),
    "negative factor": (lambda: derive(KL(q, p)).unfold(factor=-1), "factor -1"),
    "log-derivative of a value": (lambda: derive(KL(q, p)).log_derivative(), "gradient"),
    "log-derivative of a sum": (
        lambda: derive(grad(KL(q, p) + KL(p, q))).log_derivative(),
        "one expectation",
    ),
    "log-derivative of a score": (
        lambda: derive(grad(expectation(k1 * s, under=q))).equals(0),
        "gradient|score",
    ),
    "second derivative": (lambda: derive(grad(REVERSE)).equals(0), "gradient"),
    "change of KL": (lambda: derive(KL(q, p)).change_measure(to=p), "an expectation expected"),
    "change to nowhere": (lambda: derive(expectation(k1, under=q)).change_measure(to="z"), "'z'"),
    "score mean under p": (
        lambda: derive(expectation(s, under=p)).drop_score_mean(),
        "needs m = q, got m = p",
    ),
    "score mean of k1": (
        lambda: derive(expectation(k1 * s, under=q)).drop_score_mean(),
        "depends on the sample",
    ),
    "score mean without a score": (
        lambda: derive(expectation(1, under=q)).drop_score_mean(),
        "one score function",
    ),
    "normalise k1": (lambda: derive(expectation(k1, under=q)).normalise(), "depends on the sample"),
    "normalise a score": (lambda: derive(expectation(s, under=q)).normalise(), "no score function"),
    "wrong ratio": (lambda: derive(expectation(r, under=q)).ratio_mean_one(of=mu), "mu/q"),
    "ratio of nothing": (lambda: derive(expectation(r, under=q)).ratio_mean_one(of="z"), "'z'"),
    "off-policy": (
        lambda: derive(expectation(rho, under=mu)).on_policy(),
        "does not say that the sampler is q",
    ),
    "w = 0 too early": (
        lambda: derive(expected_gradient(rho * k1, under=mu), on_policy=True).on_policy(),
        "once differentiated|an expectation",
    ),
    "nothing given": (lambda: derive(expectation(R * s, under=q)).put_in_given(), "given no values"),
    "k1 cannot be given": (
        lambda: derive(expectation(k1 * s, under=q), given={"k1": R}).equals(expectation(R * s, under=q)),
        "given",
    ),
    "no premise": (lambda: derive(REVERSE).use_premise(), "premise"),
    "unknown rule": (lambda: derive(KL(q, p)).step("magic"), "unknown rule 'magic'"),
    "unknown data": (lambda: derive(KL(q, p)).step("definition", to=p), "data"),
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
    "unknown inequality": (lambda: derive(KL(q, p)).at_most(0, by="magic"), "magic|tangent"),
    "square without data": (lambda: derive(KL(q, p)).at_most(0, by="square"), "square|b"),
    "wrong tangent": (lambda: derive(KL(q, p)).at_most(0, by="tangent", terms=((1, q, 0, -k1),)), SIDES),
    "negative tangent": (
        lambda: derive(KL(q, p)).at_most(0, by="tangent", terms=((-1, q, 0, -k1),)),
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
