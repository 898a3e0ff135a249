"""Sums over the vocabulary that are divergences from a mixture: which, how strong; and other sums."""

from __future__ import annotations

from fractions import Fraction

import pytest
from sympy import Rational

import klsym
from klsym.engine.divergences.mixtures import find_mixture
from klsym.engine.regions.in_span import is_combination
from klsym.kernel.definitions import LOG, Definition
from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import Context
from klsym.language.parser import parse

TYPED = "full(0.9*r*log_p + 0.1*log_q - (0.9*r + 0.1)*log({0}*exp(log_q) + {1}*exp(log_p)))"
RIGHT, SWAPPED, OTHER = (TYPED.format(*weights) for weights in ((0.1, 0.9), (0.9, 0.1), (0.5, 0.5)))


@pytest.mark.parametrize(
    ("loss", "weight", "strength"),
    [
        ("js(q, p)", Rational(1, 2), Rational(1, 4)),
        ("js(q, p, 0.9)", Rational(9, 10), Rational(9, 100)),
        ("js(p, q, 0.9)", Rational(1, 10), Rational(9, 100)),
        ("0.5*js(q, mu, 1/3)", Rational(1, 3), Rational(1, 9)),
        (RIGHT, Rational(9, 10), Rational(9, 100)),
    ],
)
def test_the_jensen_shannon_divergence_is_recognised(loss: str, weight: Rational, strength: Rational) -> None:
    found = find_mixture(parse(loss))
    assert found is not None and found.is_jensen_shannon and not found.is_swapped
    assert (found.weight, found.strength) == (weight, strength)


@pytest.mark.parametrize(
    "loss",
    [
        "full_kl(q, p)", "full(log(1 + r))", "full(k1*log(1 + r))", "js(q, p) + k1", "k3", "-js(q, p)*A",
        "full(0.9*r*log_p + 0.2*log_q - (0.9*r + 0.1)*log(exp(log_q) + exp(log_p)))",
    ],
)  # fmt: skip
def test_other_sums_are_none(loss: str) -> None:
    assert find_mixture(parse(loss)) is None


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        (
            SWAPPED,
            "the weights are swapped: 0.9*KL(p||m) + 0.1*KL(q||m) with m = 0.1*p + 0.9*q; js(q, p, 0.9) has",
        ),
        (SWAPPED, "near q = p it is 0.09 times a KL, this loss 0.73"),
        (OTHER, "no Jensen-Shannon divergence: 0.9*KL(p||m) + 0.1*KL(q||m) with m = 0.5*p + 0.5*q"),
        (RIGHT, "near q = p it is 0.09 = w*(1 - w) times a KL, w = 0.9"),
    ],
)
def test_an_answer_says_how_the_mixture_is_weighted(loss: str, says: str) -> None:
    assert says in " ".join(str(klsym.explain(loss)).split())


def test_the_strength_is_that_of_the_generator() -> None:
    """The answer's f''(1) is calculated from the coefficient of the score, not from the weights."""
    for loss in (SWAPPED, OTHER, RIGHT, "js(q, p, 0.3)"):
        assert klsym.explain(loss).objective.generator.strength == find_mixture(parse(loss)).strength


@pytest.mark.parametrize("weight", ["0.999", "0.999999", "0.000001"])
def test_js_is_decided_for_extreme_weights(weight: str) -> None:
    verdict = klsym.explain(f"js(q, p, {weight})")
    assert (verdict.target, verdict.trust) == ("f-divergence", "kernel")


def test_a_small_multiple_has_the_answer_of_the_whole() -> None:
    k1, log = ExpPoly.from_variable("k1"), ExpPoly.from_variable("ln_1")
    context = Context(definitions=(Definition("ln_1", LOG, 1 + (-k1).exp()),))
    for multiple in (Fraction(1), Fraction(1, 10**6)):
        size = ExpPoly.from_number(multiple)
        assert not is_combination(size * log, context)
        assert is_combination(size * (log - log + k1), context)
