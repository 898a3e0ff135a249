"""Inequalities as an author writes them: what they say, what they assume, and how misuse is refused."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import numpy as np
import pytest
from sympy import Rational, log
from test_derivation import SIDES, Make

from klsym.calculus import (
    KL,
    Proof,
    Quantity,
    beta,
    chi2,
    count,
    covariance,
    derive,
    expectation,
    jeffreys,
    k,
    k1,
    k2,
    k3,
    lam,
    mu,
    p,
    parameter,
    q,
    r,
    rho,
    s,
    sample,
)
from klsym.derivations.inequalities import bias, mean_square_error, squared
from klsym.errors import KlsymError, ProofError
from klsym.kernel import check, check_part
from klsym.ledger import load, settle
from klsym.numeric.exact import check_theorem
from klsym.render.latex import theorem_latex

a, b = parameter("a"), parameter("b")

ENDINGS: dict[str, tuple[Make, str, str]] = {
    "at most, at a sample": (
        lambda: derive(sample(k2)).at_most(sample(k3 + k2), by="tangent", terms=[{"u": -k1, "at": "sample"}]),
        "proved",
        "k2 <= k2 + k3; equality iff r = 1",
    ),
    "at most, a divergence": (
        lambda: derive(sample(0)).at_most(KL(mu, q), by="tangent", terms=((1, mu, 0, log(rho)),)),
        "proved",
        "0 <= KL(mu||q); equality iff rho = 1 wherever mu > 0",
    ),
    "at most, squares": (
        lambda: derive(sample(0)).at_most(
            expectation((k1 - a) ** 2 + beta**2 * r * k1**2, under=q),
            by="sum of squares",
            terms=((1, q, 0, k1 - a), {"scale": beta**2, "v": -k1, "b": k1}),
        ),
        "proved",
        "0 <= E_q[(k1 - a)**2 + beta**2*k1**2*r]; equality iff k1 = a wherever q > 0"
        " and r = 1 wherever q > 0",
    ),
    "at most, a square with a score and a factor": (
        lambda: derive(sample(0)).at_most(
            expectation((a - b) ** 2 * (k1 * s) ** 2, under=mu),
            by="sum of squares",
            terms=[{"at": mu, "b": k1, "power": 1, "factor": a - b}],
        ),
        "proved",
        "0 <= E_mu[(a - b)**2*k1**2*s**2]; equality iff a = b or k1*s = 0 wherever mu > 0",
    ),
    "at most, by a premise": (
        lambda: derive(sample(0), premises=((KL(q, p), a * chi2(p, q)),)).at_most(
            KL(q, p) - a * chi2(p, q) + expectation(k2, under=count),
            by="sum of squares",
            terms=[{"scale": Rational(1, 2), "at": count, "b": k1}],
            using=[(0, 1)],
        ),
        "proved",
        "0 <= sum_x[k2] + KL(q||p) - a chi2(p||q); equality iff r = 1 at every outcome",
    ),
    "at most iff": (
        lambda: derive(sample(-k1)).at_most_iff(sample(beta * (r - 1)), beta, is_=1, terms=[{"u": -k1}]),
        "iff",
        "-k1 <= beta*(r - 1) for every r > 0 iff beta = 1",
    ),
    "at most iff, a square": (
        lambda: derive(sample(0)).at_most_iff(
            sample(k2 + (a - b / 2) * k1), a, is_=b / 2, terms=[{"b": k1, "scale": Rational(1, 2)}]
        ),
        "iff",
        "0 <= (2*a - b)*k1/2 + k2 for every r > 0 iff a = b/2",
    ),
    "equals, by evaluation": (
        lambda: derive(covariance(k1, k3, under=q)).equals(
            covariance(k1, k1, under=q) - jeffreys(p, q), by="evaluation"
        ),
        "proved",
        "Cov_q(k1, k3) = Var_q(k1) - J(p, q)",
    ),
    "equals, by a premise": (
        lambda: derive(KL(q, p) * expectation(k1, under=q), premises=((KL(q, p), a),)).equals(
            a * expectation(k3, under=q), using=[(0, expectation(-k1, under=q))]
        ),
        "proved",
        "E_q[k1] KL(q||p) = E_q[a*(k1 + r - 1)]",
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
    outcome = check_theorem(proof.theorem)
    assert outcome.passed and outcome.kind == kind, outcome.text


@pytest.mark.parametrize("name", ENDINGS)
def test_latex(name: str) -> None:
    """Words stand in text, formulas do not, and what the text says is said."""
    make, _, text = ENDINGS[name]
    shown = theorem_latex(make())
    words = " ".join(" ".join(re.findall(r"\\text\{([^{}]*)\}", shown)).split())
    assert shown.count("{") == shown.count("}") and "**" not in shown
    for word in ("equality iff", "wherever", "or", "and", "at every outcome", "for every"):
        assert (f" {word} " in f" {text} ") == (f" {word} " in f" {words} "), (word, words)
    assert (r"\iff" in shown) == (" iff " in text and "equality" not in text)


@pytest.mark.parametrize(
    ("make", "lines"),
    [
        (
            lambda: derive(KL(q, p), premises=((KL(q, p), beta),)).equals(beta, using=[(0, -1)]),
            [r"^KL\(q\|\|p\) = beta$"],  # at this theta
        ),
        (
            lambda: derive(sample(0)).at_most(
                expectation(k3 / beta, under=q), by="tangent", terms=((1 / beta, q, 0, -k1),)
            ),
            ["^beta > 0$"],
        ),
        (
            lambda: derive(sample(0)).at_most_iff(
                sample(beta * k(lam)), lam, is_=1, terms=[{"u": -k1, "scale": beta}]
            ),
            ["^beta > 0$"],
        ),
        (
            lambda: derive(sample(0)).at_most_iff(
                sample(k3 + beta * (lam - 1) * k1), lam, is_=1, terms=[{"u": -k1}]
            ),
            ["^beta is not 0$"],
        ),
    ],
)
def test_hypotheses_are_carried(make: Make, lines: list[str]) -> None:
    hypotheses = make().hypotheses
    for words in lines:
        assert any(re.search(words, line) for line in hypotheses), hypotheses
    names = {line.split(" ")[0] for line in hypotheses if line.endswith("> 0")}
    assert not {f"{name} is not 0" for name in names} & set(hypotheses)


MISUSE: dict[str, tuple[Make, str]] = {
    "tangent of a sample": (
        lambda: derive(sample(0)).at_most(sample(k1), by="tangent", terms=[{"u": -k1, "at": "sample"}]),
        SIDES,
    ),
    "a term that lacks u": (
        lambda: derive(sample(0)).at_most(sample(k3), by="tangent", terms=[{"at": "sample"}]),
        "tangent: a term holds scale, at, v, u; got at",
    ),
    "a term with a name too many": (
        lambda: derive(sample(0)).at_most(sample(k3), by="tangent", terms=[{"u": -k1, "under": q}]),
        "got u, under",
    ),
    "terms that are none": (
        lambda: derive(sample(0)).at_most(sample(k3), by="tangent", terms=-k1),
        "a list of",
    ),
    "a term that is no row": (
        lambda: derive(sample(0)).at_most(sample(k3), by="tangent", terms=[-k1]),
        "tangent: a term",
    ),
    "a place that is none": (
        lambda: derive(sample(0)).at_most(sample(k3), by="tangent", terms=((1, "z", 0, -k1),)),
        "'sample' or one of",
    ),
    "a power that is no number": (
        lambda: derive(sample(0)).at_most(
            expectation(k2, under=q), by="sum of squares", terms=[{"b": k1, "power": "1"}]
        ),
        "power: 0, 1, 2",
    ),
    "using nothing": (lambda: derive(KL(q, p)).equals(1, using=[0]), "pairs"),
    "using no premise": (lambda: derive(KL(q, p)).equals(1, using=[(0, 1)]), "no such premise"),
    "a premise times a divergence": (
        lambda: derive(KL(q, p), premises=((KL(q, p), beta),)).equals(1, using=[(0, KL(q, p))]),
        "constants and means",
    ),
    "equals by magic": (lambda: derive(KL(q, p)).equals(KL(q, p), by="magic"), "magic.*evaluation"),
    "equals by the wrong premise": (
        lambda: derive(KL(q, p), premises=((KL(p, q), beta),)).equals(beta, using=[(0, -1)]),
        SIDES,
    ),
    "iff another value": (
        lambda: derive(sample(0)).at_most_iff(sample(k(lam)), lam, is_=2, terms=[{"u": -k1}]),
        "slope|differ",
    ),
    "iff a parameter that is not there": (
        lambda: derive(sample(0)).at_most_iff(sample(k(lam)), "alpha", is_=1, terms=[{"u": -k1}]),
        "not declared",
    ),
    "iff a mean": (
        lambda: derive(sample(0)).at_most_iff(expectation(k(lam), under=q), lam, is_=1, terms=[{"u": -k1}]),
        "k1 alone at one sample",
    ),
    "iff with tuples": (
        lambda: derive(sample(0)).at_most_iff(sample(k(lam)), lam, is_=1, terms=((1, "sample", 0, -k1),)),
        "a list of dicts",
    ),
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


# ---------------------------------------------------------------------------- the claims
STAR, N = parameter("lam_star"), parameter("n")
KNOWN = ((jeffreys(p, q), STAR * chi2(p, q)),)
CLAIMS: dict[str, tuple[str, ...]] = {
    "value.k3-nonnegative": (
        "0 <= k3; equality iff r = 1",
        "0 <= k2; equality iff r = 1",
        "0 <= k1 fails in a model",
        "k1 <= 0 fails in a model",
        "0 <= KL(q||p); equality iff r = 1 wherever q > 0",
        "0 <= KL(p||q); equality iff r = 1 wherever q > 0",
        "0 <= chi2(p||q); equality iff r = 1 wherever q > 0",
    ),
    "value.lambda-one-unique": ("0 <= k1 + lam*(r - 1) for every r > 0 iff lam = 1",),
    "value.optimal-lambda": (
        "Var_q(k1 + lam*(r - 1)) = Var_q(k1) + lam**2 chi2(p||q) - 2*lam J(p, q)",
        "Var_q(k1 + lam*(r - 1)) = Var_q(k1 + lam_star*(r - 1))"
        " + (lam**2 + lam_star**2 - 2*lam*lam_star) chi2(p||q)",
        "Var_q(k1 + lam_star*(r - 1)) <= Var_q(k1 + lam*(r - 1));"
        " equality iff lam = lam_star or r = 1 wherever q > 0",
    ),
    "value.nonnegativity-is-not-the-cause": (
        "E_q[k1 + lam_star*(r - 1)] = KL(q||p)",
        "0 <= k1 + lam_star*(r - 1) for every r > 0 iff lam_star = 1",
        "Var_q(k3) - Var_q(k1 + lam_star*(r - 1)) = (lam_star**2 - 2*lam_star + 1) chi2(p||q)",
        "Var_q(k1 + lam_star*(r - 1)) <= Var_q(k3); equality iff lam_star = 1 or r = 1 wherever q > 0",
    ),
    "value.mse-crossover": (
        "E_q[(f - kl)**2/n] + (1 - 1/n) E_q[f - kl] E_q[f - kl] = E_q[f - kl] E_q[f - kl] + (1/n) Var_q(f)",
        "E_q[(k1 - kl)**2 - (k2 - kl)**2] + (n - 1) E_q[k1 - kl] E_q[k1 - kl]"
        " + (1 - n) E_q[k2 - kl] E_q[k2 - kl] = Var_q(k1) - n E_q[k2 - kl] E_q[k2 - kl] - Var_q(k2)",
        "E_q[k2 - kl] E_q[k2 - kl] <= E_q[(k2 - kl)**2/n] + (1 - 1/n) E_q[k2 - kl] E_q[k2 - kl];"
        " equality iff k1**2/2 is constant wherever q > 0",
    ),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_claim_settles(name: str) -> None:
    settled = settle(load()[name])
    trust = "sympy" if name == "value.optimal-lambda" else "kernel"  # its limit is an expansion
    assert (settled.status, settled.trust, settled.error) == ("settled", trust, "")
    assert {proof.trust for proof in settled.proofs} == {"kernel"}
    assert tuple(str(proof) for proof in settled.proofs) == CLAIMS[name]
    assert [theorem.kind for theorem in check(settled.certificate())] == [t.kind for t in settled.theorems]
    for theorem in settled.theorems:
        outcome = check_theorem(theorem)
        assert outcome.passed, outcome.text


def test_n_times_the_difference_of_the_errors_is_what_the_claim_writes() -> None:
    """The claim writes n MSE_n(k1) - n MSE_n(k2) as one mean and two products."""
    proof = settle(load()["value.mse-crossover"]).proofs[1]
    difference = N * mean_square_error(k1) - N * mean_square_error(k2)
    left = Quantity(proof.theorem.statement.left)
    assert derive(difference).equals(left, by="evaluation").theorem.kind == "proved"


@pytest.mark.parametrize(("n", "trials"), [(1, 4), (2, 4), (5, 6)])
def test_the_error_of_a_mean_of_n_is_that_of_all_tuples(n: int, trials: int) -> None:
    """E (mean of a(x_1), ..., a(x_n) - kl)^2 over all n-tuples, by enumeration."""
    for seed in range(trials):
        stream = np.random.default_rng(seed)
        weights, a_of_x, kl = stream.dirichlet(np.ones(3)), stream.normal(size=3), stream.normal()
        literal = sum(
            np.prod(weights[list(x)]) * (np.mean(a_of_x[list(x)]) - kl) ** 2
            for x in itertools.product(range(3), repeat=n)
        )
        bias = weights @ (a_of_x - kl)
        written = weights @ (a_of_x - kl) ** 2 / n + (1 - 1 / n) * bias**2
        assert abs(literal - written) < 1e-12


def var(of: Any) -> Any:
    return covariance(of, of, under=q)


WRONG: dict[str, list[Make]] = {
    "value.k3-nonnegative": [
        lambda: derive(sample(0)).at_most(sample(k3 - k2), by="tangent", terms=[{"u": -k1, "at": "sample"}]),
        lambda: derive(sample(k3)).at_most(
            sample(k2), by="sum of squares", terms=[{"b": k1, "at": "sample"}]),
        lambda: derive(sample(0)).differs_from(sample(k3), relation="<="),
        lambda: derive(KL(q, p)).at_most(KL(p, q), by="tangent", terms=[{"u": -k1}]),
    ],
    "value.lambda-one-unique": [
        lambda: derive(sample(0)).at_most_iff(sample(k(lam)), lam, is_=0, terms=[{"u": -k1}]),
        lambda: derive(sample(0)).at_most_iff(sample(k(lam) + k2), lam, is_=1, terms=[{"u": -k1}]),
        lambda: derive(sample(0)).at_most_iff(sample(lam * k3), lam, is_=1, terms=[{"u": -k1}]),
    ],
    "value.optimal-lambda": [
        lambda: derive(var(k(lam))).equals(
            var(k1) + 2 * lam * jeffreys(p, q) + lam**2 * chi2(p, q), by="evaluation"),
        lambda: derive(var(k(lam)), premises=KNOWN).at_most(
            var(k(STAR)), "sum of squares", terms=[{"b": r - 1, "factor": lam - STAR}],
            using=[(0, -2 * (lam - STAR))]),
        lambda: derive(var(k(lam)), premises=((jeffreys(p, q), STAR * chi2(q, p)),)).equals(
            var(k(STAR)) + (lam - STAR) ** 2 * chi2(p, q), using=[(0, 2 * (lam - STAR))]),
    ],
    "value.nonnegativity-is-not-the-cause": [
        lambda: derive(var(k3) - var(k(STAR)), premises=KNOWN).equals(
            (STAR - 1) * chi2(p, q), using=[(0, -2 * (STAR - 1))]),
        lambda: derive(var(k(STAR))).at_most(
            var(k3), "sum of squares", terms=[{"b": r - 1, "factor": STAR - 1}]),
    ],
    "value.mse-crossover": [
        lambda: derive(mean_square_error(k2)).equals(squared(bias(k2)) + var(k2), by="evaluation"),
        lambda: derive(N * (mean_square_error(k1) - mean_square_error(k2))).equals(
            var(k1) - var(k2) - squared(bias(k2)) * N, by="evaluation"),  # k1 is biased for another kl
        lambda: derive(mean_square_error(k2)).at_most(
            squared(bias(k2)), by="square", b=k2, measure=q, power=0, scale=1 / N),
        lambda: derive(squared(bias(k2))).at_most(
            mean_square_error(k2), by="square", b=k2, measure=q, power=0, scale=1),
    ],
}  # fmt: skip
NEIGHBOURS = [pytest.param(make, id=f"{name} {i}") for name in WRONG for i, make in enumerate(WRONG[name])]


def test_every_claim_has_a_wrong_neighbour() -> None:
    assert list(WRONG) == list(CLAIMS)


@pytest.mark.parametrize("make", NEIGHBOURS)
def test_a_wrong_neighbour_is_refused(make: Make) -> None:
    with pytest.raises(
        ProofError, match=r"the two sides differ|no finite model tells|slope at r = 1|not linear"
    ):
        make()
