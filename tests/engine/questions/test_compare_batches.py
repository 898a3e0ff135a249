"""Losses over a batch, compared; against sums over all batches of 2 and 3 samples, in floats."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import klsym
from klsym.cli import main
from klsym.errors import UsageError

pytestmark = pytest.mark.usefixtures("without_copies")

Gradient = Callable[[Any, Any, float], Any]  # R and k1 of a batch, beta -> a_i of each sample


def centred(h: Any) -> Any:
    return h - h.mean()


def loo(h: Any) -> Any:
    return h - (h.sum() - h) / (len(h) - 1)


GRADIENTS: dict[str, Gradient] = {
    "-log_q*sg(centred(R - beta*k1))": lambda R, k, b: -centred(R - b * k),
    "-log_q*sg(loo(R - beta*k1))": lambda R, k, b: -loo(R - b * k),
    "-log_q*sg(centred(R)) + beta*k1": lambda R, k, b: -centred(R) + b,
    "-log_q*sg(centred(R)) + beta*k2": lambda R, k, b: -centred(R) + b * k,
    "-log_q*sg(loo(R)) + beta*k2": lambda R, k, b: -loo(R) + b * k,
    "-log_q*sg(loo(R)) + beta*k3": lambda R, k, b: -loo(R) + b * (1 - np.exp(-k)),
    "-log_q*sg(R - beta*k1)": lambda R, k, b: -(R - b * k),
    "-log_q*sg(R - loo(beta*k1))": lambda R, k, b: -(R - loo(b * k)),
    "-(1 - 1/n)*log_q*sg(loo(R - beta*k1))": lambda R, k, b: -(1 - 1 / len(R)) * loo(R - b * k),
    "-log_q*sg(centred(R)) + (1 - 1/n)*beta*k2": lambda R, k, b: -centred(R) + (1 - 1 / len(R)) * b * k,
}
NAMES = list(GRADIENTS)
Q, P = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3])
REWARDS, BETA = np.array([1.0, -0.5, 0.4]), 0.7


def compute_moments(a: Gradient, q: Any, rewards: Any, n: int, power: int = 1) -> Any:
    """E of mean_i a_i s_i, or of its square, along each logit, over all batches of n."""
    k, total = np.log(q / P), np.zeros(3)
    for batch in product(range(3), repeat=n):
        j = list(batch)
        scores = np.eye(3)[j] - q
        mean = (np.broadcast_to(a(rewards[j], k[j], BETA), n)[:, None] * scores).mean(axis=0)
        total += q[j].prod() * mean**power
    return total


@pytest.mark.parametrize("a", NAMES)
@pytest.mark.parametrize("b", NAMES)
@pytest.mark.share(3)
def test_objectives_and_gradients_agree_where_sums_over_batches_do(a: str, b: str) -> None:
    answer = klsym.compare(a, b)
    gaps, at_samples = [], []
    for n in (2, 3):
        means = [compute_moments(GRADIENTS[x], Q, REWARDS, n) for x in (a, b)]
        gaps.append(np.abs(means[0] - means[1]).max())
        for j in map(list, product(range(3), repeat=n)):
            rows = [GRADIENTS[x](REWARDS[j], np.log(Q / P)[j], BETA) for x in (a, b)]
            at_samples.append(np.abs(np.broadcast_to(rows[0] - rows[1], n)).max())
    assert answer.gradient.same is bool(max(gaps) < 1e-12)
    assert answer.per_sample.same is bool(max(at_samples) < 1e-12)
    assert answer.gradient.trust == answer.per_sample.trust == "kernel"


# loss -> R/k1 at its optimum as a function of n, and whether its gradient is 0 there at every batch
ENDS: dict[str, tuple[Callable[[int], float], bool]] = {
    "-log_q*sg(centred(R - beta*k1))": (lambda n: BETA, True),
    "-log_q*sg(loo(R - beta*k1))": (lambda n: BETA, True),
    "-(1 - 1/n)*log_q*sg(loo(R - beta*k1))": (lambda n: BETA, True),
    "-log_q*sg(centred(R)) + beta*k2": (lambda n: BETA * n / (n - 1), False),
    "-log_q*sg(centred(R)) + (1 - 1/n)*beta*k2": (lambda n: BETA, False),
    "-log_q*sg(loo(R)) + beta*k2": (lambda n: BETA, False),
    "-log_q*sg(R - beta*k1)": (lambda n: BETA, False),
    "-log_q*sg(R - loo(beta*k1))": (lambda n: BETA, False),
}


@pytest.mark.parametrize("name", ENDS)
def test_the_noise_at_the_optimum(name: str) -> None:
    end = klsym.compare(name, "-log_q*sg(loo(R)) + beta*k3").at_optimum[0]
    slope, quiet = ENDS[name]
    assert end is not None and end.is_noiseless is quiet
    for n in (2, 3):
        q = P * np.exp(REWARDS / slope(n))
        q = q / q.sum()
        assert np.abs(compute_moments(GRADIENTS[name], q, REWARDS, n)).max() < 1e-12
        noise = compute_moments(GRADIENTS[name], q, REWARDS, n, power=2).max()
        assert bool(noise < 1e-25) is quiet and (quiet or noise > 1e-4)


def test_the_variance_of_the_claim() -> None:
    """beyond.centred-reward-optimum: beta^2 [E s^2 (d^2 + Var k1/m)/n + |g|^2/(n m)]."""
    q = P * np.exp(REWARDS / BETA)
    q = q / q.sum()
    k, scores = np.log(q / P), np.eye(3) - q
    d, spread = q @ k, q @ k**2 - (q @ k) ** 2
    squares, g = q @ scores**2, q @ (k[:, None] * scores)
    for n in (2, 3):
        noise = compute_moments(GRADIENTS["-log_q*sg(loo(R)) + beta*k2"], q, REWARDS, n, power=2)
        m = n - 1
        assert np.allclose(noise, BETA**2 * (squares * (d**2 + spread / m) / n + g**2 / (n * m)), atol=1e-14)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("-log_q*sg(loo(R)) + beta*k3", "-log_q*sg(loo(R)) - log_q"),  # not of R and k1; no penalty
        ("log_q*sg(loo(k1))", "log_q*sg(centred(k1))"),  # no reward
    ],
)
def test_without_such_an_optimum_nothing_is_said_of_it(a: str, b: str) -> None:
    answer = klsym.compare(a, b)
    assert answer.at_optimum == (None, None) and answer.to_json()["at_optimum"] is None
    assert "  optimum  " not in answer.text()


# ---------------------------------------------------------------------------- the option batch, and printing
@pytest.mark.parametrize(("batch", "word"), [("mean", "centred"), ("leave-one-out", "loo")])
def test_the_option_is_the_word_of_the_grammar(batch: Any, word: str) -> None:
    a, b = "R - beta*k1", "R - 2*beta*k1"
    by_option = klsym.compare(a, b, use="reward", batch=batch)
    by_word = klsym.compare(f"{word}({a})", f"{word}({b})", use="reward")
    for name in ("value", "per_sample", "gradient"):
        assert getattr(by_option, name).same is getattr(by_word, name).same
    assert (
        [x.is_noiseless for x in by_option.at_optimum]
        == [x.is_noiseless for x in by_word.at_optimum]
        == [True] * 2
    )
    assert by_option.to_json()["batch"] == batch and f"batch {batch}" in by_option.text()


def test_whole_sequences_are_compared_as_samples_are() -> None:
    for b in NAMES[:6]:
        sample, sequence = (klsym.compare(NAMES[1], b, level=level) for level in ("sample", "sequence"))
        for name in ("value", "per_sample", "gradient"):
            assert getattr(sample, name).same is getattr(sequence, name).same
        assert [x and x.is_noiseless for x in sample.at_optimum] == [
            x and x.is_noiseless for x in sequence.at_optimum
        ]


def test_losses_of_trainers() -> None:
    answer = klsym.compare("rloo", "dr_grpo")
    assert answer.gradient.same is False and answer.at_optimum[0].is_noiseless
    assert answer.at_optimum[1] is None and "losses of whole sequences" in answer.text()


def test_off_policy() -> None:
    """The weight outside, the centring inside: still the objective, and still quiet at the optimum."""
    answer = klsym.compare(
        "-rho*sg(loo(R - beta*k1))", "-rho*sg(loo(R)) + beta*rho*k3", sampling="off-policy"
    )
    assert answer.gradient.same and [end.is_noiseless for end in answer.at_optimum] == [True, False]
    assert any("after the first step on a batch theta does" in line for line in answer.hypotheses)


def test_the_answer_as_text(capsys: Any) -> None:
    losses = ["-log_q*sg(loo(R - beta*k1))", "-log_q*sg(loo(R)) + beta*k2"]
    assert main(["compare", *losses]) == 0
    said = capsys.readouterr().out
    row = (
        "  optimum  at R = beta*k1 + nu: A has the gradient 0 at every batch and B is noisy (nu is a number)"
    )
    assert row in said.splitlines() and "Training goes to the same policy" in said
    assert main(["compare", *losses, "--proof"]) == 0
    said = capsys.readouterr().out
    assert "B: Var_q(mean_i beta*k1_others*s_self/m) != 0 in general" in said and "n = m + 1" in said
    assert main(["compare", *losses, "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["at_optimum"]
    assert (first["noiseless"], second["noiseless"], first["reward"]) == (True, False, "beta*k1 + nu")
    assert second["witness"] and second["trust"] == "kernel"


@pytest.mark.parametrize("width", [100, 60])
@pytest.mark.parametrize("b", NAMES)
def test_the_answer_fits(width: int, b: str) -> None:
    lines = klsym.compare(NAMES[0], b).text(width=width).splitlines()
    assert len(lines) <= (12 if width == 100 else 16) and max(map(len, lines)) <= width


def test_in_a_notebook() -> None:
    shown = klsym.compare(NAMES[1], NAMES[4])._repr_html_()
    assert "A has the gradient 0 at every batch and B is noisy" in shown


REFUSED = {
    "tokens": (("log_q*sg(loo(k1))", "k2"), {"level": "token"}, "choose level sequence or sample"),
    "a mean over tokens": (
        ("loo(R - k1)", "loo(R)"), {"level": "sequence", "use": "reward", "aggregate": "mean"},
        r"over a whole sequence; type klsym explain 'loo\(R - k1\)'"),
    "a centred loss": (("k1", "k2"), {"batch": "mean"}, "choose use reward"),
    "a standard deviation": (("R - k1", "R"), {"use": "reward", "batch": "std"}, "standard deviation"),
    "one in the loss": (("log_q*sg(normalised(R))", "k2"), {}, "standard deviation"),
    "nonlinear sums": (("R - k1", "R - k3"), {"use": "reward", "batch": "leave-one-out"}, "only sums of k1"),
    "bounds": (("log_q*sg(loo(k1))", "clip(k1, 0, 1)"), {}, "without bounds"),
    "a batch that is cut": (("log_q*sg(loo(k1))", "k2"), {"sampling": "truncated"}, "compare M"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_compared(name: str) -> None:
    losses, options, words = REFUSED[name]
    with pytest.raises(UsageError, match=words) as raised:
        klsym.compare(*losses, **options)
    assert "\n" not in str(raised.value)
