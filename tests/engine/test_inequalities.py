"""Inequalities as an author writes them: what they say, what they assume, and how misuse is refused."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy
from sympy import exp

from klsym.calculus import *
from klsym.derivations.inequalities import bias, mean_square_error, squared
from klsym.engine.proof.inequalities import _divide
from klsym.errors import KlsymError, ProofError
from klsym.kernel import check, read
from klsym.language.convert import to_ring
from klsym.notation.text import show_theorem_latex
from klsym.numeric.exact import check_theorem
from klsym.study.ledger.settle_claim import recall

Make = Callable[[], Any]
SIDES = "the two sides differ"

a, b = parameter("a"), parameter("b")

ENDINGS: dict[str, str] = {
    "derive(sample(k2)).at_most(sample(k3 + k2), rows=[{'u': -k1, 'at': 'sample'}])":
        "k2 <= k2 + k3; equality iff r = 1",
    "derive(sample(0)).at_most(KL(mu, q), rows=[{'u': log(rho), 'at': mu}])":
        "0 <= KL(mu||q); equality iff rho = 1 wherever mu > 0",
    "derive(sample(0)).at_most(expectation(r ** 2 * k3, under=q), rows=[{'u': -k1, 'v': -2 * k1, 'at': q}])":
        "0 <= E_q[k3*r**2]; equality iff r = 1 wherever q*(r**3 + r**2) > 0",
    "derive(sample(0)).at_most(expectation((k1 - a) ** 2 + beta ** 2 * r * k1 ** 2, under=q), "
    "rows=[{'b': k1 - a, 'at': q}, {'scale': beta ** 2, 'v': -k1, 'b': k1}])":
        "0 <= E_q[(k1 - a)**2 + beta**2*k1**2*r]; equality iff k1 = a wherever q > 0"
        " and r = 1 wherever q*r > 0",
    "derive(sample(0)).at_most(expectation((a - b) ** 2 * (k1 * s) ** 2, under=mu), rows=[{'at': mu, "
    "'b': k1, 'power': 1, 'factor': a - b}])":
        "0 <= E_mu[(a - b)**2*k1**2*s**2]; equality iff a = b or k1*s = 0 wherever mu > 0",
    "derive(sample(0), premises=((KL(q, p), a * chi2(p, q)),)).at_most(KL(q, p) - a * chi2(p, "
    "q) + expectation(k2, under=count), rows=[{'scale': Rational(1, 2), 'at': count, 'b': k1}], "
    "using=[(0, 1)])":
        "0 <= sum_x[k2] + KL(q||p) - a chi2(p||q); equality iff r = 1 at every outcome",
    "derive(sample(0)).at_most(expectation((1 - k1) * k1 ** 2, under=q), rows=[{'b': k1, 'at': q, "
    "'nonnegative': 1 - k1}])":
        "0 <= E_q[(1 - k1)*k1**2]; equality iff k1 = k1**2 wherever q > 0",
    "derive(expectation(k1 * s, under=mu) * expectation(k1 * s, under=mu))"
    ".at_most(expectation((k1 * s) ** 2, under=mu), rows=[{'variance': k1, 'at': mu, 'power': 1}])":
        "E_mu[k1*s] E_mu[k1*s] <= E_mu[k1**2*s**2]; equality iff k1*s is constant wherever mu > 0",
    "derive(covariance(k1, k3, under=q)).equals(covariance(k1, k1, under=q) - jeffreys(p, q), evaluate=True)":
        "Cov_q(k1, k3) = Var_q(k1) - J(p, q)",
    "derive(KL(q, p) * expectation(k1, under=q), premises=((KL(q, p), a),))"
    ".equals(a * expectation(k3, under=q), using=[(0, expectation(-k1, under=q))])":
        "E_q[k1] KL(q||p) = E_q[a*(k1 + r - 1)]",
}  # fmt: skip


def made(text: str) -> Any:
    """The value of an expression in the names of this file."""
    return eval(text, {**globals(), "Rational": sympy.Rational})


@pytest.mark.parametrize("written", ENDINGS)
@pytest.mark.share(3)
def test_ending(written: str) -> None:
    """Proved, checked in numbers, and printed in LaTeX with the same words."""
    proof, text = made(written), ENDINGS[written]
    assert isinstance(proof, Proof)
    assert (proof.theorem.kind, proof.trust, str(proof)) == ("proved", "kernel", text)
    assert check(read(json.dumps(proof.certificate()))) == (proof.theorem.proved,)
    outcome = check_theorem(proof.theorem)
    assert outcome.passed and outcome.kind == "proved", outcome.text
    shown = show_theorem_latex(proof)
    words = " ".join(" ".join(re.findall(r"\\text\{([^{}]*)\}", shown)).split())
    assert shown.count("{") == shown.count("}") and "**" not in shown
    for word in ("equality iff", "wherever", "or", "and", "at every outcome", "for every"):
        assert (f" {word} " in f" {text} ") == (f" {word} " in f" {words} "), (word, words)
    assert (r"\iff" in shown) == (" iff " in text and "equality" not in text)


HYPOTHESES: dict[str, str] = {
    "derive(KL(q, p), premises=((KL(q, p), beta),)).equals(beta, using=[(0, -1)])":
        r"^KL\(q\|\|p\) = beta$",  # at this theta
    "derive(sample(0)).at_most(expectation(k3 / beta, under=q), rows=[{'scale': 1 / beta, 'u': -k1}])":
        "^beta > 0$",
    "derive(sample(0)).at_most(sample(beta**2 * k3), rows=[{'u': -k1, 'at': 'sample', 'scale': beta**2}])":
        "^beta is not 0$",
    "derive(sample(0)).at_most(expectation((2 - k1) * s**2, under=mu),"
    " rows=[{'b': 1, 'at': mu, 'power': 1, 'nonnegative': 2 - k1}])":
        r"^2 - k1 >= 0 wherever mu > 0, that is r >= exp\(-2\)$",
    "derive(sample(0)).at_most(expectation(k1**2 / beta**2, under=q), rows=[{'b': k1, 'factor': 1 / beta}])":
        "^beta is not 0$",
}  # fmt: skip


@pytest.mark.parametrize("text", HYPOTHESES)
def test_hypotheses_are_carried(text: str) -> None:
    hypotheses = made(text).hypotheses
    assert any(re.search(HYPOTHESES[text], line) for line in hypotheses), hypotheses
    names = {line.split(" ")[0] for line in hypotheses if line.endswith("> 0")}
    assert not {f"{name} is not 0" for name in names} & set(hypotheses)


MISUSE: dict[str, str] = {
    "derive(sample(0)).at_most(sample(k1), rows=[{'u': -k1, 'at': 'sample'}])": SIDES,
    "derive(sample(0)).at_most(sample(k3), rows=[{'at': 'sample'}])":
        "a row holds u, b or variance, and of .*; got at$",
    "derive(sample(0)).at_most(sample(k3), rows=[{'u': -k1, 'b': k1}])": "got u, b$",
    "derive(sample(0)).at_most(sample(k3), rows=[{'u': -k1, 'under': q}])": "got u, under$",
    "derive(sample(0)).at_most(sample(k3), rows=-k1)": "a list of",
    "derive(sample(0)).at_most(sample(k3), rows={'u': -k1, 'at': 'sample'})": "a list of",
    "derive(sample(0)).at_most(sample(k3), rows=[-k1])": "a row holds u, b or variance",
    "derive(sample(0)).at_most(sample(k3), rows=[{'u': -k1, 'at': 'z'}])":
        "at: one of q, p, mu, count, sample expected, got 'z'",
    "derive(sample(0)).at_most(expectation(k2, under=q), rows=[{'b': k1, 'power': '1'}])": "power: 0, 1, 2",
    "derive(sample(0)).at_most(expectation(k3 * s, under=q), rows=[{'u': -k1, 'power': 1}])":
        "tangent: no score function",
    "derive(sample(0)).at_most(KL(q, p), rows=[{'u': -k1, 'nonnegative': 1 - k1}])": "nonnegative: squares",
    "derive(sample(0)).at_most(expectation(beta * k1 ** 2, under=q), rows=[{'b': k1, 'nonnegative': beta}])":
        "a function of k1 and w",
    "derive(sample(0)).at_most(expectation(-k1 ** 2 - k1 ** 4, under=q), rows=[{'b': k1, "
    "'nonnegative': -1 - k1 ** 2}])":
        "not positive at q = p = mu",
    "derive(sample(0)).at_most(sample(k1), rows=[{'variance': k1, 'at': 'sample'}])":
        "a probability measure expected",
    "derive(sample(0)).at_most(sample(-k2), rows=[{'b': k1, 'at': 'sample', 'scale': -1}])":
        "is not positive",
    "derive(sample(0)).at_most(sample(k1 ** 4), rows=[{'b': k1, 'at': 'sample', 'scale': k1 ** 2}])":
        "scale: a constant expected",
    "derive(KL(q, p)).equals(1, using=[0])": "pairs",
    "derive(KL(q, p)).equals(1, using=[(0, 1)])": "premise 0: there are 0",
    "derive(KL(q, p), premises=((KL(q, p), beta),)).equals(1, using=[(0, grad(KL(q, p)))])":
        "constants and means",
    "derive(KL(q, p), premises=((KL(q, p), beta),)).equals(beta, using=[(0, KL(q, p))])": SIDES,
    "derive(KL(q, p), premises=((KL(p, q), beta),)).equals(beta, using=[(0, -1)])": SIDES,
}  # fmt: skip


@pytest.mark.parametrize("text", MISUSE)
def test_misuse_is_refused_in_one_clear_line(text: str) -> None:
    with pytest.raises(KlsymError) as caught:
        made(text)
    message = str(caught.value)
    assert re.search(MISUSE[text], message), message
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
    "value.lambda-one-unique": (
        "0 <= k1 + r - 1; equality iff r = 1",
        "k1 + lam*(r - 1) <= (lam*r - 1)*(r - 1)/r; equality iff r = 1",
    ),
    "value.optimal-lambda": (
        "Var_q(k1 + lam*(r - 1)) = Var_q(k1) + lam**2 chi2(p||q) - 2*lam J(p, q)",
        "Var_q(k1 + lam*(r - 1)) = Var_q(k1 + lam_star*(r - 1))"
        " + (lam**2 + lam_star**2 - 2*lam*lam_star) chi2(p||q)",
        "Var_q(k1 + lam_star*(r - 1)) <= Var_q(k1 + lam*(r - 1));"
        " equality iff lam = lam_star or r = 1 wherever q > 0",
    ),
    "value.nonnegativity-is-not-the-cause": (
        "E_q[k1 + lam_star*(r - 1)] = KL(q||p)",
        "0 <= k1 + r - 1; equality iff r = 1",
        "k1 + lam_star*(r - 1) <= (lam_star*r - 1)*(r - 1)/r; equality iff r = 1",
        "Var_q(k3) - Var_q(k1 + lam_star*(r - 1)) = (lam_star**2 - 2*lam_star + 1) chi2(p||q)",
        "Var_q(k1 + lam_star*(r - 1)) <= Var_q(k3); equality iff lam_star = 1 or r = 1 wherever q > 0",
    ),
    "value.mse-crossover": (
        "E_q[(f - d)**2/n] + (1 - 1/n) E_q[f - d] E_q[f - d] = E_q[f - d] E_q[f - d] + (1/n) Var_q(f)",
        "E_q[(k1 - d)**2 - (k2 - d)**2] + (n - 1) E_q[k1 - d] E_q[k1 - d]"
        " + (1 - n) E_q[k2 - d] E_q[k2 - d] = Var_q(k1) - n E_q[k2 - d] E_q[k2 - d] - Var_q(k2)",
        "E_q[k2 - d] E_q[k2 - d] <= E_q[(k2 - d)**2/n] + (1 - 1/n) E_q[k2 - d] E_q[k2 - d];"
        " equality iff k1**2/2 is constant wherever q > 0",
    ),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_claim_settles(name: str) -> None:
    settled = recall(name)
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
    proof = recall("value.mse-crossover").proofs[1]
    difference = N * mean_square_error(k1) - N * mean_square_error(k2)
    left = Quantity(proof.theorem.statement.left)
    assert derive(difference).equals(left, evaluate=True).theorem.kind == "proved"


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
        lambda: derive(sample(0)).at_most(sample(k3 - k2), rows=[{"u": -k1, "at": "sample"}]),
        lambda: derive(sample(k3)).at_most(
            sample(k2), rows=[{"b": k1, "at": "sample"}]),
        lambda: derive(sample(0)).differs_from(sample(k3), relation="<="),
        lambda: derive(KL(q, p)).at_most(KL(p, q), rows=[{"u": -k1}]),
    ],
    "value.lambda-one-unique": [
        lambda: derive(sample(0)).at_most(sample(k(lam)), rows=[{"u": -k1, "at": "sample"}]),
        lambda: derive(sample(0)).at_most(sample(k(0)), rows=[{"u": -k1, "at": "sample"}]),
        lambda: derive(sample(0)).differs_from(sample(k(1)), relation="<="),
        lambda: derive(sample(k(lam))).at_most(
            sample((r - 1) * (lam + 1 / r)), rows=[{"u": k1, "at": "sample"}]),
        lambda: derive(sample(k(lam))).at_most(
            sample((r - 1) * (lam - 1 / r)), rows=[{"u": -k1, "at": "sample"}]),
        lambda: derive(sample((r - 1) * (lam - 1 / r))).at_most(
            sample(k(lam)), rows=[{"u": k1, "at": "sample"}]),
    ],
    "value.optimal-lambda": [
        lambda: derive(var(k(lam))).equals(
            var(k1) + 2 * lam * jeffreys(p, q) + lam**2 * chi2(p, q), evaluate=True),
        lambda: derive(var(k(lam)), premises=KNOWN).at_most(
            var(k(STAR)), rows=[{"b": r - 1, "factor": lam - STAR}],
            using=[(0, -2 * (lam - STAR))]),
        lambda: derive(var(k(lam)), premises=((jeffreys(p, q), STAR * chi2(q, p)),)).equals(
            var(k(STAR)) + (lam - STAR) ** 2 * chi2(p, q), using=[(0, 2 * (lam - STAR))]),
    ],
    "value.nonnegativity-is-not-the-cause": [
        lambda: derive(var(k3) - var(k(STAR)), premises=KNOWN).equals(
            (STAR - 1) * chi2(p, q), using=[(0, -2 * (STAR - 1))]),
        lambda: derive(var(k(STAR))).at_most(
            var(k3), rows=[{"b": r - 1, "factor": STAR - 1}]),
    ],
    "value.mse-crossover": [
        lambda: derive(mean_square_error(k2)).equals(squared(bias(k2)) + var(k2), evaluate=True),
        lambda: derive(N * (mean_square_error(k1) - mean_square_error(k2))).equals(
            var(k1) - var(k2) - squared(bias(k2)) * N, evaluate=True),  # k1 is biased for another kl
        lambda: derive(mean_square_error(k2)).at_most(
            squared(bias(k2)), rows=[{"variance": k2, "at": q, "scale": 1 / N}]),
        lambda: derive(squared(bias(k2))).at_most(
            mean_square_error(k2), rows=[{"variance": k2, "at": q}]),
    ],
}  # fmt: skip
NEIGHBOURS = [pytest.param(make, id=f"{name} {i}") for name in WRONG for i, make in enumerate(WRONG[name])]


def test_every_claim_has_a_similar_false_claim() -> None:
    assert list(WRONG) == list(CLAIMS)


@pytest.mark.parametrize("make", NEIGHBOURS)
def test_a_similar_false_claim_is_refused(make: Make) -> None:
    with pytest.raises(ProofError, match=r"the two sides differ|no finite model tells"):
        make()


# ---------------------------------------------------------------------------- multiples of a premise
n, m, lam = (parameter(name) for name in ("n", "m", "lam"))
PREMISES = (n - m - 1, n - 2, lam * m - 1, lam**2 - 3)
FACTORS = (k1, 1 / m, n * k1 - m, k1**2 / n + exp(k1) / m, 0)
BESIDE = (n, m * k1, 1 / n, exp(k1))


@pytest.mark.parametrize("divisor", PREMISES)
def test_what_a_premise_divides_is_found_and_nothing_else(divisor: Any) -> None:
    """The quotients by SymPy."""
    b = to_ring(divisor)
    for factor in FACTORS:
        whole = sympy.expand(divisor * factor)
        assert _divide(to_ring(whole), b) == to_ring(sympy.cancel(whole / divisor))
        for rest in BESIDE:
            assert _divide(to_ring(whole + rest), b) is None
    assert _divide(to_ring(n), to_ring(0)) is None
