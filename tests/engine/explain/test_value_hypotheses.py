"""What "value unbiased for KL(q||p)" assumes: on models in which densities have zeros.

The third outcome may have no mass under q, p or mu.  A mean sums over the outcomes that its measure draws; a
density that is 0 there stands in a loss as its limit.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

import klsym
from support.oracle.grammar import defined, evaluate, plain

OFF = {"sampling": "off-policy"}
TINY = 1e-13
LINE = {(a, b): f"{a} << {b}: wherever {a} > 0, also {b} > 0" for a, b in product(("q", "p", "mu"), repeat=2)}


def density(*weights: float) -> np.ndarray:
    return np.array(weights) / sum(weights)


FULL = {"q": density(3, 2, 1), "p": density(1, 3, 2), "mu": density(2, 1, 4)}
ZERO = {"q": density(3, 2, 0), "p": density(1, 3, 0), "mu": density(2, 1, 0)}


def kl(a: np.ndarray, b: np.ndarray) -> float:
    here = a > 0
    return math.inf if (b[here] == 0).any() else float((a[here] * np.log(a[here] / b[here])).sum())


def mean(loss: str, world: dict[str, np.ndarray], measure: str) -> float:
    """Sum of the measure times the loss where the measure is positive."""
    logs = {f"log_{name}": np.log(np.maximum(row, TINY)) for name, row in world.items()}
    if measure == "q":
        logs["log_mu"] = logs["log_q"]
    values = np.broadcast_to(plain(evaluate(loss, defined(logs).__getitem__)), 3)
    here = world[measure] > 0
    return float((world[measure][here] * values[here]).sum())


def worlds() -> list[tuple[set[str], dict[str, np.ndarray]]]:
    """Each with the densities that are 0 at the third outcome."""
    found = []
    for zeros in product((False, True), repeat=3):
        names = {name for name, zero in zip(FULL, zeros, strict=True) if zero}
        found.append((names, {name: (ZERO if name in names else FULL)[name] for name in FULL}))
    return found


def holds(line: str, zeros: set[str]) -> bool:
    """Is a support there where these densities are 0 and the others are not?"""
    a, _, b = line.partition(":")[0].partition(" << ")
    return a in zeros or b not in zeros


def supports(lines: object) -> set[str]:
    return {line for line in LINE.values() if line in tuple(lines)}  # type: ignore[call-overload]


VALUES = [
    ("k3", {}, "reverse-kl", "q p, p q"),
    ("k1", {}, "reverse-kl", "q p"),
    ("k(1/2)", {}, "reverse-kl", "q p, p q"),
    ("rho*k1", OFF, "reverse-kl", "q p, q mu"),
    ("rho*k3", OFF, "reverse-kl", "q p, q mu, p mu"),
    ("sg(rho)*k3", OFF, "reverse-kl", "q p, q mu, p mu"),
    ("rho*k3 + rho - 1", OFF, "reverse-kl", "q p, q mu, p mu"),
    ("-r*k1", {}, "forward-kl", "p q"),
    ("max(k2, k3) + min(k2, k3) - k2", {}, "reverse-kl", "q p, p q"),
    ("sg(rho)*(max(k2, k3) + min(k2, k3) - k2)", OFF, "reverse-kl", "q p, q mu, p mu"),
    ("max(k2, k1) + min(k2, k1) - k2", {}, "reverse-kl", "q p"),
]


@pytest.mark.parametrize(("loss", "options", "target", "wanted"), VALUES)
def test_the_value_is_what_is_said_where_its_supports_hold(
    loss: str, options: dict[str, str], target: str, wanted: str
) -> None:
    """On all eight patterns of zeros; and each support is missed on some of them."""
    verdict = klsym.explain(loss, **options)
    assert verdict.value.is_unbiased_for(target)
    told = supports(verdict.to_json()["value"]["hypotheses"])
    standing = {LINE["q", "p"] if target == "reverse-kl" else LINE["p", "q"]}
    told |= standing
    assert told == {LINE[tuple(pair.split())] for pair in wanted.split(", ")}  # type: ignore[index]
    missed = set()
    for zeros, world in worlds():
        right = kl(world["q"], world["p"]) if target == "reverse-kl" else kl(world["p"], world["q"])
        value = mean(loss, world, "mu" if options else "q")
        same = math.isclose(value, right, abs_tol=1e-9)
        failing = {line for line in told if not holds(line, zeros)}
        assert same or failing, (zeros, value, right)
        missed |= set() if same else failing
    assert missed >= told - {LINE["mu", "q"]}  # the limit of mu rho k3 is p, which E_q[r] does not see


def test_the_model_of_a_third_outcome_that_only_p_draws() -> None:
    """q = mu = (1/2, 1/2, 0), p = (1/4, 1/4, 1/2): the mean of rho*k3 is log 2 - 1/2, the KL log 2."""
    q, p = density(1, 1, 0), density(1, 1, 2)
    world = {"q": q, "p": p, "mu": q}
    for loss, measure in (("rho*k3", "mu"), ("k3", "q")):
        assert math.isclose(mean(loss, world, measure), math.log(2) - 1 / 2)
    assert math.isclose(kl(q, p), math.log(2))
    assert math.isclose(mean("rho*k1", world, "mu"), math.log(2))


@pytest.mark.parametrize(
    ("loss", "options", "lines"),
    [
        ("k3", {}, ["q << p"]),
        ("k2", {}, []),
        ("rho*k3", OFF, ["p << mu"]),
        ("rho*k1", OFF, []),
        ("max(k2, k3) + min(k2, k3) - k2", {}, ["q << p"]),
        ("k3", {"level": "token"}, ["q << p"]),
        ("k3", {"level": "sequence"}, ["q << p"]),
    ],
)
def test_the_text_adds_what_the_gradient_does_not_assume(
    loss: str, options: dict[str, str], lines: list[str]
) -> None:
    text = klsym.explain(loss, **options).text(proof=True)
    found = [line for line in text.splitlines() if line.startswith("  - for the value: ")]
    shown = [line.partition("for the value: ")[2].partition(":")[0] for line in found if "<<" in line]
    assert shown == lines


@pytest.mark.parametrize(
    ("loss", "options"),
    [("k2", {}), ("k3", OFF), ("abs(k1)", {}), ("k3", {"level": "token", "aggregate": "mean"})],
)
def test_a_value_without_a_name_assumes_nothing(loss: str, options: dict[str, str]) -> None:
    verdict = klsym.explain(loss, **options)
    assert verdict.value.target in ("objective", "f-divergence", None)
    assert verdict.to_json()["value"]["hypotheses"] == []


@pytest.mark.parametrize("sampling", ["on-policy", "off-policy"])
@pytest.mark.parametrize("use", ["value", "loss", "reward"])
@pytest.mark.parametrize("target", ["reverse-kl", "forward-kl"])
@pytest.mark.share(3)
def test_a_recommendation_says_what_it_assumes(target: str, use: str, sampling: str) -> None:
    """Of the value where that is asked for: rho*k3 needs p << mu for its value, and not for its gradient."""
    found = klsym.recommend(target, sampling=sampling, use=use)
    for choice, shown in zip(found.choices, found.to_json()["choices"], strict=True):
        proof = choice.value if use == "value" else choice.verdict.proof.theorems[0]
        assert set(proof.hypotheses) <= set(shown["hypotheses"])
    text = found.text(proof=True)
    assert text.count("   assumes    ") == len(found.choices)
    if (target, sampling, use) == ("reverse-kl", "off-policy", "value"):
        assert "   assumes    q << p, p << mu, q << mu\n" in text
    if (target, sampling, use) == ("reverse-kl", "off-policy", "loss"):
        assert "   value      unbiased for KL(q||p), where p << mu" in text
