"""The ledger: every claim is settled by the kernel, and no claim's wrong neighbour can be proved."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from sympy import Function, log

from klsym.calculus import *
from klsym.errors import ProofError, UsageError
from klsym.kernel import check, read
from klsym.kernel.statements import Curl, Gradient, Mean, MeanGradient
from klsym.language.abbreviations import NAMED, atoms_of
from klsym.language.unfolding import unfold, written_out
from klsym.ledger import registry as ledger
from klsym.ledger import stored
from klsym.ledger.evidence import Evidence
from klsym.ledger.registry import Claim, Settled, load, select, settle
from support.ledger_table import BATCHES_AND_SEQUENCES

Ledger = dict[str, Settled]
# id: verdict, and theorems that its statement must hold
EXPECTED: dict[str, tuple[str, ...]] = {
    "gradient.score-mean-zero": ("proved", "E_q[s] = 0", "E_q[b*s] = 0"),
    "gradient.reverse-kl": ("proved", "grad KL(q||p) = E_q[k1*s]", "grad KL(q||p) = E_q[-log(r)*s]"),
    "gradient.forward-kl": ("proved", "grad KL(p||q) = E_p[-s]", "grad KL(p||q) = E_q[(1 - r)*s]"),
    "gradient.per-sample": ("proved", "grad k1 = s", "grad k2 = k1*s", "grad k3 = (1 - r)*s"),
    "gradient.k1-loss": ("proved", "E_q[grad k1] = 0"),
    "gradient.k2-loss": ("proved", "E_q[grad k2] = grad KL(q||p)"),
    "gradient.k3-loss": ("proved", "E_q[grad k3] = grad KL(p||q)"),
    "gradient.k3-loss-not-reverse": ("refuted", "E_q[grad k3] = grad KL(q||p)"),
    "gradient.k-lambda-loss": ("corrected", "E_q[grad(k1 + lam*(r - 1))] = lam grad KL(p||q)"),
    "gradient.orders-differ": ("proved", "grad E_q[k1] = grad KL(q||p)", "E_q[grad k1] = 0"),
    "gradient.two-parts": ("proved", "grad E_q[f] = E_q[f*s] + E_q[grad f]"),
    "gradient.surrogate": ("proved", "grad(log_q*sg(k1)) = grad k2"),
    "gradient.k2-unique": (
        "proved", "E_q[grad g(k1)] - grad KL(q||p) = 0 iff g = k1**2/2 + a*k1 + b (any a, b)"),
    "gradient.straight-through": ("proved", "E_q[grad(k2 - sg(k2) + sg(k3))] = grad KL(q||p)"),
    "gradient.explicit-rho": ("proved", "E_mu[grad(rho*k3)] = grad KL(q||p)", "E_q[grad k1] = 0"),
    "gradient.appendix-a-sign": ("corrected", "E_q[-r*s] = E_p[-s]", "E_p[-s] = grad KL(p||q)"),
    "gradient.analytic": ("proved", "E_q[k1*s] E_q[k1*s] <= E_q[k1**2*s**2]"),
    "offpolicy.weight-gradient": ("proved", "grad rho = rho*s"),
    "offpolicy.per-sample": ("proved", "grad(rho*k1) = rho*(k1 + 1)*s", "grad(rho*k3) = rho*k1*s"),
    "offpolicy.rho-k1": ("proved", "E_mu[grad(rho*k1)] = grad KL(q||p)"),
    "offpolicy.rho-k2": ("proved", "E_mu[grad(rho*k2)] = grad E_q[k2]"),
    "offpolicy.rho-k2-not-reverse": ("refuted", "E_mu[grad(rho*k2)] = grad KL(q||p)"),
    "offpolicy.sg-rho-k2": ("proved", "E_mu[grad(sg(rho)*k2)] = grad KL(q||p)"),
    "offpolicy.rho-k3": ("proved", "E_mu[grad(rho*k3)] = grad KL(q||p)", "E_mu[rho*k3] = KL(q||p)"),
    "offpolicy.samplewise-equal": ("proved", "grad(sg(rho)*k2) = grad(rho*k3)", "grad(rho*k3) = rho*k1*s"),
    "offpolicy.orders-agree": ("proved", "grad E_mu[f] = E_mu[grad f]"),
    "offpolicy.detach-trap": (
        "proved", "E_mu[grad(sg(rho)*k1)] = 0", "E_mu[grad(sg(rho)*k3)] = grad KL(p||q)"),
    "offpolicy.unweighted": ("proved", "E_mu[grad k1] = -grad KL(mu||q)", "E_mu[grad k3] = grad E_mu[k3]"),
    "offpolicy.squared-keeps-optimum": ("proved",),
    "offpolicy.truncated-weight": ("proved",),
    "reward.k1": ("proved", "E_q[sg(k1)*s] = grad KL(q||p)"),
    "reward.k2": ("proved", "E_q[sg(k2)*s] = grad E_q[k2] - grad KL(q||p)"),
    "reward.k3": ("proved", "E_q[sg(k3)*s] = grad KL(q||p) - grad KL(p||q)"),
    "reward.k-lambda": ("proved", "E_q[sg(k1 + lam*(r - 1))*s] = grad KL(q||p) - lam grad KL(p||q)"),
    "reward.k1-unique": ("proved", "E_q[sg(h(k1))*s] - grad KL(q||p) = 0 iff h = k1 + b (any b)"),
    "reward.offpolicy": ("proved", "E_mu[rho*sg(k1)*s] = grad KL(q||p)"),
    "reward.double-weight": ("refuted", "E_mu[rho*sg(rho*k1)*s] = grad KL(q||p)"),
    "reward.samplewise-loss-equivalence": ("proved", "-beta grad(rho*k3) = -beta*rho*sg(k1)*s"),
    "value.ratio-mean-one": ("proved", "E_q[r] = 1", "E_mu[rho] = 1"),
    "value.k1-unbiased": ("proved", "E_q[k1] = KL(q||p)"),
    "value.k3-unbiased": ("proved", "E_q[k3] = KL(q||p)"),
    "value.k2-biased": ("refuted", "E_q[k2] = KL(q||p)"),
    "value.k-lambda-unbiased": ("proved", "E_q[k1 + lam*(r - 1)] = KL(q||p)"),
    "value.forward-by-importance": ("proved", "E_q[log(r)*r] = KL(p||q)"),
    "value.offpolicy-weighted": (
        "proved", "E_mu[rho*k1] = KL(q||p)", "E_mu[rho*k3] = KL(q||p)", "E_mu[rho*k2] = E_q[k2]"),
    "value.offpolicy-unweighted": ("proved", "E_mu[k1] = KL(mu||p) - KL(mu||q)"),
    "value.control-variate-covariance": ("proved", "Cov_q(k1, r - 1) = -J(p, q)", "Cov_q(k1, r - 1) <= 0"),
    "value.ratio-direction": ("corrected", "E_q[1/r - 1] = chi2(q||p)"),
    "value.zero-mean-variable": ("corrected", "E_q[r - 1] = 0", "E_q[1 - 1/r] = -chi2(q||p)"),
    "value.k3-bregman": ("proved", "D_phi(r, 1) with phi = k1 = k3"),
}  # fmt: skip
# Tested in files of their own: id -> verdict, trust.
ELSEWHERE: dict[str, tuple[str, str]] = {
    "implied.score-form-unique": ("proved", "kernel"),
    "implied.potential": ("proved", "kernel"),
    "implied.potential-general": ("proved", "kernel"),
    "implied.fisher-table": ("exact", "sympy"),
    "implied.third-order": ("exact", "sympy"),
    "optimum.reverse": ("proved", "kernel"),
    "optimum.objective-identity": ("corrected", "kernel"),
    "optimum.forward": ("proved", "kernel"),
    "optimum.k1-loss": ("proved", "kernel"),
    "optimum.k2-reward": ("proved", "sympy"),
    "optimum.k3-reward": ("proved", "sympy"),
    "optimum.rho-k2": ("proved", "kernel"),
    "practice.reward-k3-advised": ("corrected", "kernel"),
    "practice.reward-forward": ("corrected", "kernel"),
    "practice.quick-table-k1": ("corrected", "kernel"),
    "practice.token-ratio-log": ("corrected", "sympy"),
    "practice.loss-against-reward": ("proved", "kernel"),
    "practice.constant-weight": ("proved", "kernel"),
    "value.k3-nonnegative": ("proved", "kernel"),
    "value.lambda-one-unique": ("proved", "kernel"),
    "value.optimal-lambda": ("proved", "sympy"),  # the limit of lam* is an expansion
    "value.nonnegativity-is-not-the-cause": ("proved", "kernel"),
    "value.mse-crossover": ("proved", "kernel"),
    "value.k2-bias-order": ("exact", "sympy"),
    "value.variance-small-kl": ("exact", "sympy"),
    "value.k2-not-csiszar": ("corrected", "sympy"),
    "value.gaussian-table-near": ("exact", "sympy"),
    "value.gaussian-table-far": ("exact", "sympy"),
    "value.gaussian-crossover": ("exact", "sympy"),
    "value.heavy-tail": ("exact", "sympy"),
    "neighbour.loss-as-reward": ("proved", "kernel"),
    "neighbour.chi2": ("proved", "kernel"),
    "neighbour.in-reward-and-in-loss": ("proved", "kernel"),
    "neighbour.rpg-forward": ("proved", "kernel"),
    "neighbour.rpg-reverse": ("proved", "kernel"),
    "neighbour.k3-is-unnormalised-kl": ("proved", "kernel"),
    "neighbour.grpo-missing-weight": ("refuted", "kernel"),
    "neighbour.grpo-success-recurrence": ("proved", "kernel"),
    "neighbour.k3-loss-first-order": ("exact", "sympy"),
    "neighbour.gaussian-k3-reward-vanishes": ("exact", "sympy"),
    "variance.difference": ("proved", "kernel"),
    "variance.noise-term": ("proved", "kernel"),
    "variance.sufficient-region": ("proved", "kernel"),
    "variance.no-universal-order": ("refuted", "kernel"),
    "variance.optimal-baseline": ("proved", "kernel"),
    "variance.orders": ("exact", "sympy"),
    "neighbour.rao-blackwell": ("corrected", "sympy"),
    "catalogue.one-family": ("proved", "kernel"),
    "catalogue.weighted-k-lambda": ("proved", "kernel"),
    "catalogue.shortest": ("proved", "kernel"),
    "catalogue.order": ("proved", "kernel"),
    "catalogue.no-best-constant": ("refuted", "kernel"),
    "catalogue.near-the-reference": ("proved", "kernel"),
    "catalogue.counts": ("exact", "sympy"),
    "catalogue.unweighted-none": ("proved", "kernel"),
    "catalogue.forward-family": ("proved", "kernel"),
    "catalogue.value-beside": ("proved", "kernel"),
    "catalogue.forward-tokens": ("proved", "kernel"),
    "clip.clamped-k3-loss": ("proved", "kernel"),
    "clip.ppo-reward": ("proved", "kernel"),
    **{name: (verdict, "kernel") for name, verdict in BATCHES_AND_SEQUENCES.items()},
}
EXPERIMENTS = (*(f"experiment.tm-fig{i}" for i in (1, 2, 3, 4, 5, 6, 8)), "experiment.reward-collapse")
COMPUTED = ("practice.wz1-crib-sheet", "practice.wz2-ratings", "practice.per-token-sum")  # no experiments
JSON_KEYS = {"id", "verdict", "status", "trust", "source", "statement", "hypotheses", "printed", "verified"}


def test_the_ledger_holds_exactly_these_claims() -> None:
    assert sorted(load()) == sorted([*EXPECTED, *ELSEWHERE, *EXPERIMENTS, *COMPUTED])
    assert (len(EXPECTED), len(ELSEWHERE), len(EXPERIMENTS)) == (50, 86, 8)
    assert {load()[name].verdict for name in (*EXPERIMENTS, *COMPUTED)} == {"computed"}


@pytest.mark.parametrize("name", [*EXPECTED, *ELSEWHERE])
def test_claim_settles(name: str, proofs_settled: Ledger) -> None:
    verdict, *theorems = EXPECTED.get(name, ELSEWHERE.get(name, ())[:1])
    settled, trust = proofs_settled[name], ELSEWHERE.get(name, ("", "kernel"))[1]
    assert (settled.status, settled.trust, settled.error) == ("settled", trust, "")
    assert settled.claim.verdict == verdict and settled.claim.area == name.partition(".")[0]
    assert settled.claim.source and settled.claim.explanation.endswith(".")
    assert set(theorems) <= set(settled.statement.split("; ")), settled.statement
    answer = settled.to_json()
    assert set(answer) == JSON_KEYS and answer == json.loads(json.dumps(answer)) and answer["id"] == name
    assert (answer["printed"] is not None) == (verdict == "corrected")
    for text in (answer["statement"], answer["printed"] or "-", *answer["hypotheses"]):
        assert text and text.isprintable()


@pytest.mark.parametrize("name", EXPECTED)
def test_certificate_is_replayed_from_its_json(name: str, proofs_settled: Ledger) -> None:
    settled = proofs_settled[name]
    certificate = json.loads(json.dumps(settled.certificate()))
    assert set(certificate) == {"format", "cites", "parts", "digest"}
    assert check(read(json.dumps(certificate))) == tuple(theorem.proved for theorem in settled.theorems)


@pytest.mark.parametrize("name", [*EXPECTED, *ELSEWHERE])
def test_the_folded_statement_unfolds_to_what_the_kernel_proved(name: str, proofs_settled: Ledger) -> None:
    """What is printed is an abbreviation of the theorem: written out, it is that of the certificate."""
    settled = proofs_settled[name]
    theorems = check(read(json.dumps(settled.certificate()))) if settled.proofs else ()
    assert len(theorems) == len(settled.proofs)
    for folded, proved in zip((theorem.statement for theorem in settled.theorems), theorems, strict=True):
        plain = proved.statement
        assert (unfold(folded.left, folded.context), folded.relation) == (plain.left, plain.relation)
        assert unfold(folded.right, folded.context) == plain.right
        assert written_out(folded.context) == plain.context
        atoms = {type(atom) for atom in atoms_of(plain.left, plain.right)}
        assert atoms <= {Mean, MeanGradient, Gradient, Curl}


def test_an_abbreviation_is_there_to_unfold(proofs_settled: Ledger) -> None:
    statements = [
        theorem.statement for name in (*EXPECTED, *ELSEWHERE) for theorem in proofs_settled[name].theorems
    ]
    kinds = {type(atom) for s in statements for atom in atoms_of(s.left, s.right)}
    assert set(NAMED) <= kinds
    assert any(s.context.on_policy for s in statements) and any(s.context.given for s in statements)


def test_what_is_printed_in_the_sources_is_what_was_refuted(proofs_settled: Ledger) -> None:
    corrected = [name for name, row in EXPECTED.items() if row[0] == "corrected"]
    printed = {name: proofs_settled[name].printed for name in corrected}
    assert printed["gradient.k-lambda-loss"] == "E_q[grad(k1 + lam*(r - 1))] = lam KL(p||q)"
    assert printed["value.zero-mean-variable"] == "E_q[1 - 1/r] = 0"
    assert "KL(q||p)" in str(printed["value.ratio-direction"])
    assert "= grad KL(p||q)" in str(printed["gradient.appendix-a-sign"])


# ---------------------------------------------------------------------------- selection
@pytest.mark.parametrize(
    ("ids", "count_"),
    [
        ([], 147),
        (["catalogue"], 11),
        (["clip"], 2),
        (["implied"], 5),
        (["optimum"], 7),
        (["gradient"], 17),
        (["offpolicy"], 13),
        (["reward"], 8),
        (["value"], 24),
        (["variance"], 8),
        (["neighbour"], 15),
        (["batch"], 6),
        (["sequence"], 14),
        (["experiment"], 8),
        (["reward", "value"], 32),
        (["value.k2-biased"], 1),
        (["reward", "reward.k1", "reward"], 8),
        (["value.k2-biased", "reward.k1"], 2),
    ],
)
def test_select(ids: list[str], count_: int) -> None:
    chosen = [claim.id for claim in select(ids)]
    assert len(chosen) == len(set(chosen)) == count_
    assert all(any(name in (i, i.partition(".")[0]) for name in ids or [i]) for i in chosen)


@pytest.mark.parametrize(
    "name", ["", "gradient.", "k3", "gradient.k3", "GRADIENT", "x" * 10_000, "a\nb", "*"]
)
def test_unknown_claim(name: str) -> None:
    with pytest.raises(UsageError, match="unknown claim") as caught:
        select(["value.k2-biased", name])
    assert str(caught.value).isprintable() and len(str(caught.value)) < 200


# ---------------------------------------------------------------------------- registration and failure
def truth() -> Proof:
    return derive(expectation(r, under=q)).equals(1)


def refutation() -> Proof:
    return derive(expectation(k2, under=q)).differs_from(KL(q, p))


def falsehood() -> Proof:
    return derive(expectation(k2, under=q)).equals(KL(q, p))


def evidence(kind: str, holds: bool = True) -> Evidence:
    return Evidence(kind, "1 = 1", "1 = 1", "sympy", holds=holds)


def entry(build: Callable[[], Any], verdict: str = "proved") -> Claim:
    return Claim("test.claim", verdict, "test", "A test.", build)


@pytest.mark.parametrize(
    ("build", "verdict", "reason"),
    [
        (refutation, "proved", "the ledger says proved, the proofs are refuted"),
        (truth, "refuted", "the ledger says refuted, the proofs are proved"),
        (truth, "corrected", "the ledger says corrected"),
        (refutation, "corrected", "the ledger says corrected"),
        (lambda: (truth(), refutation()), "refuted", "the proofs are proved, refuted"),
        (lambda: (), "proved", "the proofs are none"),
        (falsehood, "proved", "SidesDiffer: the two sides differ: the left one is E_q"),
        (lambda: (truth(), falsehood()), "proved", "the two sides differ"),
        (lambda: derive(REVERSE).change_measure(to=p), "proved", "Mean expected, got Gradient"),
        (lambda: derive(KL(q, p)).reduce(), "proved", "Derivation"),
        (lambda: None, "proved", "None"),
        (lambda: 1 // 0, "proved", "ZeroDivisionError"),
        (truth, "exact", "the ledger says exact"),
        (truth, "computed", "the ledger says computed"),
        (lambda: evidence("exact"), "proved", "the ledger says proved, the proofs are exact"),
        (lambda: evidence("exact"), "corrected", "the ledger says corrected"),
        (lambda: evidence("refuted"), "exact", "the ledger says exact"),
        (lambda: (evidence("computed"), evidence("exact")), "computed", "the ledger says computed"),
        (lambda: evidence("exact", holds=False), "exact", "not what was computed: 1 = 1"),
        (lambda: (truth(), evidence("computed", holds=False)), "proved", "not what was computed"),
        (lambda: evidence("maybe"), "exact", "ValueError: evidence: kind 'maybe'"),
    ],
)
def test_a_claim_that_is_not_what_it_says_has_failed(build: Any, verdict: str, reason: str) -> None:
    settled = settle(entry(build, verdict))
    assert settled.status == "failed" and reason in settled.error
    assert settled.error.isprintable() and len(settled.error) < 400
    answer = settled.to_json()
    assert set(answer) == JSON_KEYS and answer["status"] == "failed"


@pytest.mark.parametrize(
    ("build", "verdict"),
    [(truth, "proved"), (refutation, "refuted"), (lambda: (truth(), refutation()), "corrected")],
)
def test_a_claim_that_is_what_it_says_is_settled(build: Any, verdict: str) -> None:
    settled = settle(entry(build, verdict))
    assert (settled.status, settled.error, settled.trust) == ("settled", "", "kernel")


def test_registration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "REGISTRY", {})
    ledger.claim("test.one", source="here")(truth)
    assert ledger.REGISTRY["test.one"].verdict == "proved"
    ledger.claim("test.one", source="there")(truth)  # the same function again: a reloaded module
    with pytest.raises(ValueError, match=r"test.one: already registered by truth"):
        ledger.claim("test.one")(refutation)
    with pytest.raises(ValueError, match="'maybe' is not one of"):
        ledger.claim("test.two", verdict="maybe")
    assert list(ledger.REGISTRY) == ["test.one"]


# ---------------------------------------------------------------------------- wrong neighbours
a, b, nu, C = (parameter(name) for name in ("a", "b", "nu", "C"))
f = Function("f")(log_q, log_p, log_mu)
g, h = Function("g")(k1), Function("h")(k1)
above = Function("I")(log_q, log_p, log_mu)
REVERSE, FORWARD = grad(KL(q, p)), grad(KL(p, q))
HALVES = finite_model(q=["1/2", "1/2"], p=["1/4", "3/4"], mu=["1/3", "2/3"], u=[1, 0])


def E(of: Any, m: str = q) -> Any:
    return derive(expectation(of, under=m))


def loss(of: Any, m: str = q, **setting: Any) -> Any:
    return derive(expected_gradient(of, under=m), **setting)


def point(of: Any) -> Any:
    return derive(sample_gradient(of))


def unique(excess: Any, name: str, family: Any, *constants: Any, along: str = "k1", **setting: Any) -> Any:
    return derive(excess, **setting).reduce().iff(name, is_=family, constants=constants, coordinate=along)


EXCESS, REWARD_EXCESS = expected_gradient(g, under=q) - REVERSE, expectation(s * sg(h), under=q) - REVERSE
SQUARED = expected_gradient(beta * g - (R - nu) * log_q, under=mu)
OPTIMUM = {"R": nu + beta * k1}
WRONG: dict[str, list[Callable[[], Proof]]] = {
    "gradient.score-mean-zero": [
        lambda: E(s, p).equals(0), lambda: E(s, mu).equals(0), lambda: E(k1 * s).equals(0)],
    "gradient.reverse-kl": [
        lambda: derive(REVERSE).equals(expectation(log(r) * s, under=q)),
        lambda: derive(REVERSE).equals(expectation(k1 * s, under=p))],
    "gradient.forward-kl": [
        lambda: derive(FORWARD).equals(expectation(s, under=p)),
        lambda: derive(FORWARD).equals(expectation(r * s, under=q))],
    "gradient.per-sample": [
        lambda: point(k1).equals(sample(k1 * s)), lambda: point(k2).equals(sample(k2 * s)),
        lambda: point(k3).equals(sample(-r * s))],  # the constant drops on average only
    "gradient.k1-loss": [lambda: loss(k1).equals(REVERSE), lambda: loss(k1, mu).equals(0)],
    "gradient.k2-loss": [lambda: loss(k2).equals(FORWARD), lambda: loss(k2, mu).equals(REVERSE)],
    "gradient.k3-loss": [lambda: loss(k3).equals(REVERSE), lambda: loss(k3).equals(-FORWARD)],
    "gradient.k3-loss-not-reverse": [
        lambda: loss(k3).equals(REVERSE), lambda: loss(k3).differs_from(FORWARD)],
    "gradient.k-lambda-loss": [
        lambda: loss(k(lam)).equals(FORWARD), lambda: loss(k(lam)).equals(lam * REVERSE),
        lambda: loss(k(lam)).equals(lam * KL(p, q)), lambda: loss(k(lam)).differs_from(lam * FORWARD)],
    "gradient.orders-differ": [
        lambda: derive(grad(expectation(k1, under=q))).equals(0),
        lambda: derive(grad(expectation(k3, under=q))).equals(FORWARD)],
    "gradient.two-parts": [
        lambda: derive(grad(expectation(f, under=q))).equals(expected_gradient(f, under=q)),
        lambda: derive(grad(expectation(f, under=q)), premises=((expectation(f, under=q), KL(p, q)),)).equals(
            REVERSE),
        lambda: derive(grad(expectation(f, under=q))).equals(REVERSE)],
    "gradient.surrogate": [
        lambda: point(k1 * log_q).equals(sample_gradient(k2)),
        lambda: point(k1 * sg(log_q)).equals(sample_gradient(k2))],
    "gradient.k2-unique": [
        lambda: unique(EXCESS, "g", k2 + b, b), lambda: unique(EXCESS, "g", k3 + a * k1 + b, b, a),
        lambda: unique(EXCESS, "g", 2 * k2 + a * k1 + b, b, a)],
    "gradient.straight-through": [
        lambda: loss(k2 - sg(k2) + k3).equals(REVERSE), lambda: loss(k3 - sg(k3) + sg(k2)).equals(REVERSE),
        lambda: derive(sample(k2 - sg(k2) + sg(k3))).equals(sample(k2))],
    "gradient.explicit-rho": [
        lambda: loss(rho * k2, mu, on_policy=True).equals(REVERSE),
        lambda: loss(sg(rho) * k1, mu, on_policy=True).equals(REVERSE),
        lambda: loss(sg(rho) * k3, mu, on_policy=True).equals(REVERSE),
        lambda: loss(k3, mu, on_policy=True).equals(REVERSE)],
    "gradient.appendix-a-sign": [
        lambda: E(r * s).equals(FORWARD), lambda: E(-r * s).equals(expectation(s, under=p))],
    "gradient.analytic": [
        lambda: E(k1 * s, count).equals(REVERSE),
        lambda: derive(expectation((k1 * s) ** 2, under=q)).at_most(
            expectation(k1 * s, under=q) * expectation(k1 * s, under=q),
            rows=[{"variance": k1, "at": q, "power": 1}]),
        lambda: derive(expectation(k1 * s, under=q) * expectation(k1 * s, under=q)).at_most(
            expectation(k1**2, under=q), rows=[{"variance": k1, "at": q, "power": 1}])],
    "offpolicy.weight-gradient": [
        lambda: point(rho).equals(sample(s)), lambda: point(sg(rho)).equals(sample(rho * s))],
    "offpolicy.per-sample": [
        lambda: point(rho * k1).equals(sample(rho * k1 * s)),
        lambda: point(rho * k3).equals(sample(rho * (1 - r) * s)),
        lambda: point(rho * k2).equals(sample(rho * k1 * s))],
    "offpolicy.rho-k1": [lambda: loss(k1, mu).equals(REVERSE), lambda: loss(rho * k1, mu).equals(FORWARD)],
    "offpolicy.rho-k2": [
        lambda: loss(sg(rho) * k2, mu).equals(grad(expectation(k2, under=q))),
        lambda: loss(rho * k2, mu).equals(grad(expectation(k2, under=mu)))],
    "offpolicy.rho-k2-not-reverse": [
        lambda: loss(rho * k2, mu).equals(REVERSE), lambda: loss(sg(rho) * k2, mu).differs_from(REVERSE)],
    "offpolicy.sg-rho-k2": [
        lambda: loss(rho * k2, mu).equals(REVERSE), lambda: loss(sg(rho * k2), mu).equals(REVERSE)],
    "offpolicy.rho-k3": [
        lambda: loss(sg(rho) * k3, mu).equals(REVERSE), lambda: loss(k3, mu).equals(REVERSE),
        lambda: E(k3, mu).equals(KL(q, p))],
    "offpolicy.samplewise-equal": [
        lambda: point(sg(rho) * k2).equals(sample_gradient(rho * k1)),
        lambda: point(sg(rho) * k2).equals(sample_gradient(rho * k2))],
    "offpolicy.orders-agree": [
        lambda: derive(grad(expectation(f, under=q))).equals(expected_gradient(f, under=q))],
    "offpolicy.detach-trap": [
        lambda: loss(sg(rho) * k1, mu).equals(REVERSE), lambda: loss(sg(rho) * k3, mu).equals(REVERSE)],
    "offpolicy.unweighted": [
        lambda: loss(k1, mu).equals(grad(KL(mu, q))), lambda: loss(k2, mu).equals(REVERSE),
        lambda: loss(k3, mu).equals(FORWARD),
        lambda: loss(k3, mu).differs_from(grad(expectation(k3, under=mu))),
        lambda: E(-k1, mu).differs_from(1000, relation="<=", model=HALVES)],
    "offpolicy.squared-keeps-optimum": [
        lambda: unique(SQUARED, "g", k3 + b, b, along="w", given=OPTIMUM),
        lambda: unique(SQUARED, "g", k2 + a * k1 + b, b, along="w", given=OPTIMUM),
        lambda: unique(SQUARED, "g", k2 + b, b, along="w")],  # away from the optimum
    "offpolicy.truncated-weight": [
        lambda: loss(sg(rho - above * (rho - C)) * k2, mu).equals(REVERSE),
        lambda: loss((rho - above * (rho - C)) * k2, mu).equals(
            REVERSE - expectation(above * (1 - C / rho) * k1 * s, under=q))],
    "reward.k1": [lambda: E(sg(k1) * s).equals(FORWARD), lambda: E(sg(k1) * s, mu).equals(REVERSE)],
    "reward.k2": [
        lambda: E(sg(k2) * s).equals(REVERSE), lambda: E(sg(k2) * s).equals(grad(expectation(k2, under=q)))],
    "reward.k3": [lambda: E(sg(k3) * s).equals(REVERSE), lambda: E(sg(k3) * s).equals(REVERSE + FORWARD)],
    "reward.k-lambda": [
        lambda: E(sg(k(lam)) * s).equals(REVERSE), lambda: E(sg(k(lam)) * s).equals(REVERSE - FORWARD)],
    "reward.k1-unique": [
        lambda: unique(REWARD_EXCESS, "h", k2 + b, b), lambda: unique(REWARD_EXCESS, "h", 2 * k1 + b, b),
        lambda: unique(REWARD_EXCESS, "h", k1 + a * k1 + b, b, a)],
    "reward.offpolicy": [
        lambda: E(sg(k1) * s, mu).equals(REVERSE), lambda: E(rho**2 * sg(k1) * s, mu).equals(REVERSE)],
    "reward.double-weight": [
        lambda: E(rho * s * sg(rho * k1), mu).equals(REVERSE),
        lambda: E(rho * s * sg(k1), mu).differs_from(REVERSE)],
    "reward.samplewise-loss-equivalence": [
        lambda: point(beta * rho * k3).equals(sample(-beta * rho * s * sg(k1))),
        lambda: point(-beta * rho * k1).equals(sample(-beta * rho * s * sg(k1))),
        lambda: point(-beta * rho * k3).equals(sample(-beta * s * sg(k1)))],
    "value.ratio-mean-one": [
        lambda: E(r, p).equals(1), lambda: E(rho).equals(1), lambda: E(1 / r).equals(1)],
    "value.k1-unbiased": [lambda: E(k1).equals(KL(p, q)), lambda: E(k1, p).equals(KL(q, p))],
    "value.k3-unbiased": [lambda: E(k3 + 1).equals(KL(q, p)), lambda: E(k3, p).equals(KL(q, p))],
    "value.k2-biased": [lambda: E(k2).equals(KL(q, p)), lambda: E(k3).differs_from(KL(q, p))],
    "value.k-lambda-unbiased": [
        lambda: E(k(lam)).equals(lam * KL(q, p)), lambda: E(k1 + lam * r).equals(KL(q, p))],
    "value.forward-by-importance": [
        lambda: E(r * k1).equals(KL(p, q)), lambda: E(log(r)).equals(KL(p, q))],
    "value.offpolicy-weighted": [
        lambda: E(k1, mu).equals(KL(q, p)), lambda: E(rho * k2, mu).equals(KL(q, p)),
        lambda: E(rho * k1).equals(KL(q, p))],
    "value.offpolicy-unweighted": [
        lambda: E(k1, mu).equals(KL(mu, q) - KL(mu, p)), lambda: E(k1, mu).equals(KL(mu, p))],
    "value.control-variate-covariance": [
        lambda: derive(covariance(k1, r - 1, under=q)).equals(jeffreys(p, q)),
        lambda: derive(covariance(k1, r - 1, under=q)).equals(0),
        lambda: derive(covariance(k1, r - 1, under=q)).at_most(0, rows=[{"u": -k1, "at": q}]),
        lambda: derive(-covariance(k1, r - 1, under=q)).at_most(
            0, rows=[{"u": -k1, "at": q, "scale": -1}, {"u": k1, "v": -k1, "at": q, "scale": -1}])],
    "value.ratio-direction": [
        lambda: E(-log(1 / r)).equals(KL(q, p)), lambda: E(1 / r - 1).equals(chi2(p, q)),
        lambda: E(-log(1 / r)).differs_from(-KL(q, p))],
    "value.zero-mean-variable": [
        lambda: E(1 - 1 / r).equals(0), lambda: E(1 - 1 / r).equals(chi2(q, p)),
        lambda: E(r - 1).differs_from(0)],
    "value.k3-bregman": [
        lambda: derive(bregman(log(r))).equals(sample(k3)),
        lambda: derive(bregman(-log(r))).equals(sample(k2)),
        lambda: derive(bregman(r**2)).equals(sample(k3)),
        lambda: derive(bregman(exp(k1))).equals(sample(k3))],
}  # fmt: skip
NEIGHBOURS = [pytest.param(make, id=f"{name} {i}") for name in WRONG for i, make in enumerate(WRONG[name])]
# the mistake itself, not a slip in how it is written down
REASONS = (
    r"the two sides differ|no finite model tells|family does not (solve|make)|holds no single term"
    r"|is not positive|the condition is not"
)


def test_every_claim_has_a_wrong_neighbour() -> None:
    assert list(WRONG) == list(EXPECTED)


@pytest.mark.parametrize("make", NEIGHBOURS)
def test_a_wrong_neighbour_is_refused(make: Callable[[], Proof]) -> None:
    with pytest.raises(ProofError, match=REASONS) as caught:
        make().theorem  # noqa: B018
    assert "\n" not in str(caught.value)


def test_the_order_of_the_ledger_does_not_depend_on_what_was_imported_first():
    code = (
        "import sys, importlib; [importlib.import_module(f'klsym.derivations.{n}') for n in sys.argv[1:]];"
        "from klsym.ledger.registry import load; print(*load())"
    )
    orders = {
        subprocess.run([sys.executable, "-c", code, *first], capture_output=True, text=True).stdout
        for first in ([], ["variances", "values"], ["neighbours"])
    }
    assert len(orders) == 1 and orders.pop().split()[0].startswith("batch.")


def test_what_is_stored_is_what_settles(proofs_settled: dict[str, Any]) -> None:
    """For those without NumPy; `python -m klsym.ledger.stored` stores it again."""
    known = stored.entries()
    assert set(known) == set(load())
    for name, settled in proofs_settled.items():
        certificate = settled.certificate() if settled.proofs else None
        assert known[name]["answer"] == json.loads(json.dumps(settled.to_json())), name
        assert known[name]["certificate"] == json.loads(json.dumps(certificate)), name
