"""Sums over the vocabulary in a loss: abbreviations, the check, the variance, what top-k leaves out."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import sympy

from klsym import explain
from klsym.calculus import KL, M, derive, expectation, expected_gradient, grad, k1, k3, mu, p, q, rho
from klsym.errors import ProofError, UsageError
from klsym.kernel import check, read
from klsym.language.expressions import r
from klsym.language.parser import parse
from klsym.numeric.checks.cross_check import with_check
from klsym.study.api import optimum
from support.losses.cases import options
from support.oracle.grammar import jet
from support.oracle.losses import Node, Setting, Tree, node, sample
from support.oracle.slots import Slotted

STRONG = "full(-log((r + 9)/10)*(r + 9)/10 - r*k1/10)"
SYMBOLIC = "full(-log(beta*r + 1 - beta)*(beta*r + 1 - beta) - beta*r*k1)"
JS = "full(-log((1 + r)/2)*(1 + r)/2 - r*k1/2)"


# written one way or the other: the abbreviation, and a neighbour with another answer
WORDS = (
    ("full_kl(q, p)", "full(k1)", "full_kl(p, q)"), ("full_kl(p, q)", "full(-r*k1)", "full(r*k1)"),
    ("H(q)", "-full(log_q)", "H(p)"), ("js(q, p)", JS, "js(q, mu)"), ("js(p, q)", JS, "H(q)"),
    ("full_kl(q, mu)", "full(log_q - log_mu)", "full_kl(mu, q)"),
    ("js(q, p, 1/10)", STRONG, "js(q, p, 9/10)"), ("js(p, q, 9/10)", STRONG, "js(p, q, 1/10)"),
    ("js(q, p, 1/2)", JS, "js(q, p, 1/3)"),
    ("js(q, p, beta)", SYMBOLIC, "js(q, p, lam)"), ("js(p, q, 1 - 1/10)", STRONG, "js(q, p, beta)"),
)  # fmt: skip


@pytest.mark.parametrize(("short", "long", "neighbour"), WORDS)
def test_abbreviations(short: str, long: str, neighbour: str) -> None:
    assert parse(short) == parse(long) != parse(neighbour)


def test_what_a_loss_reads() -> None:
    one, other = (explain(loss, level="token") for loss in ("full_kl(p, q)", "full(-r*k1)"))
    assert (one.loss.text, one.loss.expansion, other.loss.expansion) == ("full_kl(p, q)", "full(-k1*r)", None)


def test_the_value_is_that_of_the_loss_and_not_of_what_scores_meet() -> None:
    paid = explain("R - beta*full_kl(q, p)", level="token", use="reward")
    assert paid.value.multiples == {"reverse-kl": "-beta", "reward": "R"}
    assert explain("sg(full_kl(q, p))*log_q", level="token").value.target is None


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        ("js(q, p)", "off token"),
        ("js(q, p, 1/10)", "token"),
        ("js(q, p, beta)", "token"),
        ("js(p, q, lam)", "off"),
        ("R - beta*full_kl(q, p)", "token reward to-go"),
        ("full(M*k3) - beta*H(q)", "off"),
    ],
)
@pytest.mark.share(3)
def test_the_check_adds_the_vocabulary_up(loss: str, words: str) -> None:
    verdict = explain(loss, **options(words))
    done = with_check(verdict, parse(loss))
    assert done.proof.check is not None and done.proof.check["passed"]
    assert "literal loss on 4" in " ".join(str(done).split())
    wrong = with_check(verdict.revise(theorems=()), parse(f"2*({loss})"))
    assert wrong.proof.check is not None and not wrong.proof.check["passed"]
    assert "the coefficient" in " ".join(str(wrong).split())
    assert json.loads(json.dumps(done.to_json()))["names"]["full"].startswith("full(x) is the sum")
    proofs = (proof.certificate() for proof in verdict.proof.theorems)
    assert all(check(read(json.dumps(certificate))) for certificate in proofs)


@pytest.mark.parametrize(
    ("loss", "numbers"), [("js(q, p, beta)", ("1/10", "2/3")), ("js(p, q, beta)", ("1/4",))]
)
def test_a_strength_without_a_number_is_that_of_each_number(loss: str, numbers: tuple[str, ...]) -> None:
    """f and f''(1), with the number put in, against the divergence by its definition at some ratios."""
    found = explain(loss).objective.generator
    assert found is not None and found.is_divergence and explain(loss).trust == "kernel"
    hypotheses = explain(loss).hypotheses
    assert "beta > 0" in hypotheses and "1 - beta > 0" in hypotheses
    for number in numbers:
        b, x = sympy.Rational(number), sympy.Rational(7, 3)
        put = {symbol: b for symbol in found.f.free_symbols if symbol.name == "beta"} | {r: x}
        a, c = (1, x) if loss.startswith("js(q") else (x, 1)
        middle = (1 - b) * a + b * c
        wanted = (1 - b) * a * sympy.log(a / middle) + b * c * sympy.log(c / middle)
        assert abs(sympy.N(found.f.xreplace(put) - wanted)) < 1e-12
        assert found.strength.subs("beta", b) != 0


def test_training_ends_where_the_sampled_loss_ends() -> None:
    ends = [optimum(loss, "1/2", ["1", "0"]) for loss in ("full_kl(q, p)", "k2")]
    assert len({round(found.optimum.stationary[0].policy[0], 12) for found in ends}) == 1


def test_what_a_kl_over_words_kept_leaves_out() -> None:
    """KL(q||p) = Q KL(q|S || p|S) + (1 - Q) KL(q|S^c || p|S^c) + that of the masses Q and P of S."""
    q, p = np.random.default_rng(3).dirichlet(np.ones(7), size=2)
    kept = np.arange(7) < 4

    def kl(a: np.ndarray, b: np.ndarray) -> float:
        return float((a * np.log(a / b)).sum())

    def within(words: np.ndarray) -> float:
        return kl(q[words] / q[words].sum(), p[words] / p[words].sum())

    masses = [np.array([x[kept].sum(), x[~kept].sum()]) for x in (q, p)]
    rest = masses[0][1] * within(~kept) + kl(*masses)
    assert math.isclose(kl(q, p), masses[0][0] * within(kept) + rest)
    verdict = explain("full(M*k1)/full(M) - log(full(M)) + log(full(M*r))")
    assert "full(M) > 0" in verdict.hypotheses and verdict.trust == "kernel"


BUCKET = "full(M*k1) + (1 - full(M))*(log(1 - full(M)) - log(1 - full(M*r)))"
BUCKET_OF_REST = "full(M*k1) + full(1 - M)*(log(full(1 - M)) - log(full((1 - M)*r)))"


@pytest.mark.parametrize("loss", [BUCKET, BUCKET_OF_REST])
def test_one_bucket_for_the_rest_is_the_kl_of_fewer_words(loss: str) -> None:
    """The gradient of KL(q||p) over the words kept and one more word, by differences."""
    verdict = explain(loss)
    assert (verdict.target, verdict.trust) == ("objective", "kernel")
    fact = "full(M) is the mass of the words kept: 0 <= full(M) <= 1"
    assert (fact in verdict.hypotheses) == (loss == BUCKET)
    masses = ("1 - full(r*M)", "1 - full(M)") if loss == BUCKET else ("full(r - r*M)", "full(1 - M)")
    assert {f"{mass} > 0" for mass in masses} <= {*verdict.hypotheses}
    assert "only their common mass moves" in " ".join(str(verdict).split())
    stream = np.random.default_rng(5)
    p, z, u = stream.dirichlet(np.ones(6)), stream.normal(size=6), stream.normal(size=6)
    kept = np.arange(6) < 3

    def coarse(t: float) -> float:
        q = np.exp(z + t * u) / np.exp(z + t * u).sum()
        a, b = (np.append(x[kept], x[~kept].sum()) for x in (q, p))
        return float((a * np.log(a / b)).sum())

    q = np.exp(z) / np.exp(z).sum()
    names = {"M": kept * 1.0, "k1": np.log(q / p), "r": p / q, "log": np.log, "full": lambda x: (q * x).sum()}
    c = eval(verdict.gradient.canonical_text, {"__builtins__": {}}, names)
    assert math.isclose(
        (q * c * (u - (q * u).sum())).sum(), (coarse(1e-5) - coarse(-1e-5)) / 2e-5, rel_tol=1e-7
    )


@pytest.mark.parametrize(
    "of", ["full(k1)", "1 - full(k1)", "1 - full(2*M)", "2 - full(M)", "1 - full(M*rho)"]
)
def test_only_masses_have_a_log(of: str) -> None:
    with pytest.raises(UsageError, match="which need not be positive"):
        explain(f"log({of})")


# ---------------------------------------------------------------------------- the variance
def pushes(tree: Tree, loss: str) -> tuple[np.ndarray, np.ndarray, Any]:
    """The gradient at each token along each logit, the mass of its sequence, and where it stands."""
    forest = Slotted([tree])
    rows, found = forest.loss(loss, Setting(level="token"))
    a = np.broadcast_to(jet(found).a, (forest.logits, 1, len(rows.path)))[:, 0]
    return a, forest.chance(rows).value, rows


def covariance(tree: Tree, loss: str) -> np.ndarray:
    """Of the gradient of a sequence, the sum over its tokens."""
    a, mass, rows = pushes(tree, loss)
    whole = np.stack([a[:, rows.path == k].sum(axis=1) for k in range(rows.path.max() + 1)], axis=1)
    weight = np.array([mass[rows.path == k][0] for k in range(rows.path.max() + 1)])
    centred = whole - (whole @ weight)[:, None]
    return (centred * weight) @ centred.T


def offset(a: float) -> Tree:
    """One token or stop, then one more: q(token) is a at the start and 1 - a after, p(token) 1/2 and a."""
    after = node(np.log([1 - a, a]), [a, 1 - a], [0.5, 0.5], [0, 0])
    start = node(np.log([a, 1 - a]), [0.5, 0.5], [0.5, 0.5], [0, 0])
    return Tree(Node(start.logits, start.log_p, start.log_mu, start.R, (after, None)), np.zeros(3))


@pytest.mark.parametrize("sampled", ["rho*k1", "rho*k3", "k2"])
def test_no_more_noise_at_a_prefix_and_more_of_it_in_a_sum(sampled: str) -> None:
    """E[G_t^2] <= E[g_t^2] at each token (Rao-Blackwell); along a direction that prefixes share, the variance
    of sum_t G_t exceeds that of sum_t g_t, though both have one mean."""
    tree = offset(0.2)
    (exact, mass, rows), (drawn, _, _) = pushes(tree, "full(k1)"), pushes(tree, sampled)
    assert np.abs((exact - drawn) @ mass).max() < 1e-12
    for t in (0, 1):
        at = rows.step == t
        assert ((exact[:, at] ** 2) @ mass[at] <= (drawn[:, at] ** 2) @ mass[at] + 1e-12).all()
    more = np.linalg.eigvalsh(covariance(tree, "full(k1)") - covariance(tree, sampled))
    assert more.max() > 0.01 and more.min() < -0.01  # neither order holds for all directions


def test_what_is_said_of_the_noise() -> None:
    assert any("no variance at all" in note for note in explain("full_kl(q, p)").notes)
    a, _, _ = pushes(sample([0.2, 0.3, 0.5], [0.4, 0.4, 0.2], [1, 1, 1], [0] * 3, [0] * 3), "full(k1)")
    assert np.ptp(a, axis=1).max() < 1e-15
    assert any("that of the sum over t can be" in n for n in explain("full_kl(q, p)", level="token").notes)
    assert not any("variance" in note for note in explain("rho*full_kl(q, p)").notes)


# ---------------------------------------------------------------------------- top-k
def test_what_a_truncation_leaves_out() -> None:
    """The bias of the value and of the gradient is the mean over the words left out: proved."""
    left_out = expectation((1 - M) * k1, "q")
    whole = derive(expected_gradient(rho * M * k1, under=mu), on_policy=True)
    assert whole.equals(grad(KL(q, p)) - grad(left_out)).kind == "proved"
    with pytest.raises(ProofError):
        whole.equals(grad(KL(q, p)))
    with pytest.raises(ProofError):  # what is kept has no plain gradient of a KL either
        whole.equals(grad(KL(q, p)) - grad(expectation((1 - M) * k3, "q")))


def truncated(q: list[float], loss: str) -> tuple[float, np.ndarray]:
    """Value and gradient, the first two of three words kept, p = (1/2, 1/4, 1/4)."""
    p, kept = [0.5, 0.25, 0.25], [1.0, 1.0, 0.0]
    tree = sample(q, p, [1 / 3] * 3, [0.0] * 3, [0.0] * 3)
    root = Node(*[getattr(tree.root, x) for x in ("logits", "log_p", "log_mu", "R", "after", "log_p")], kept)
    forest = Slotted([Tree(root, tree.A)])
    found = forest.value(loss, Setting()).value[0]
    return float(found), np.asarray(forest.field(loss, Setting()).a)[:, 0, 0]


def test_a_truncated_kl_is_not_least_at_the_reference() -> None:
    """At q = p its gradient is that of E_q[M], p_j (M_j - 3/4); it is least at q = p/e on what is kept."""
    at_p = truncated([0.5, 0.25, 0.25], "full(M*k1)")[1]
    assert np.abs(at_p - [0.5 / 4, 0.25 / 4, -0.75 / 4]).max() < 1e-12
    low = [0.5 / math.e, 0.25 / math.e, 1 - 0.75 / math.e]
    value, gradient = truncated(low, "full(M*k1)")
    assert np.abs(gradient).max() < 1e-12 and abs(value + 0.75 / math.e) < 1e-12
    value, gradient = truncated([0.5, 0.25, 0.25], "full(M*k3)")
    assert np.abs(gradient).max() < 1e-12 and abs(value) < 1e-12


@pytest.mark.parametrize(
    ("loss", "words", "shown"),
    [
        (f"{JS} + sg(future({JS}))*log_q", "", True),
        (f"2*{JS} + sg(future(2*{JS}))*log_q", "", True),
        (f"{JS} + sg(togo({JS}))*log_q", "", True),
        (f"full(abs(k1)) + sg(future({JS}))*log_q", "", False),
        (f"{JS} + 2*sg(future({JS}))*log_q", "", False),
        (f"{JS} + sg(past({JS}))*log_q", "", False),
        (f"{JS} + sg(future({JS}))*k1**2", "", False),
        (f"{JS} + sg(future({JS}))*log_q", "off", False),
        (JS, "", False),
    ],
)
@pytest.mark.share(3)
def test_exact_means_and_what_comes_later_are_one_objective(loss: str, words: str, shown: bool) -> None:
    try:
        verdict = explain(loss, **options(f"token {words}"))
    except UsageError:
        assert not shown
        return
    assert verdict.gradient.quantities_text.startswith("grad E_q[sum_t ") == shown
    assert not shown or (verdict.trust == "sympy" and not any("open" in line for line in verdict.notes))


@pytest.mark.parametrize("batch", ["mean", "loo", "std"])
def test_centring_takes_off_what_is_the_same_for_all_samples(batch: str) -> None:
    one = explain("R - beta*full(k1) + full(k3)**2", **options(f"off reward {batch}"))
    assert one.gradient.score_text == explain("R", **options(f"off reward {batch}")).gradient.score_text
    assert any("does not distinguish them" in note for note in one.notes)
