"""Claims about batches and sequences: no similar false claim is proved."""

from __future__ import annotations

from typing import Any

import pytest

from klsym.calculus import *
from klsym.derivations.batches import SIZE, leave_one_out
from klsym.derivations.variances import CENTRED, CROSS, PLAIN, SPREAD
from klsym.errors import KlsymError
from klsym.study.ledger.settle_claim import recall


def test_rao_blackwell_is_refuted_as_printed_and_the_mean_is_proved() -> None:
    settled = recall("neighbour.rao-blackwell")
    assert (settled.claim.verdict, settled.trust, settled.error) == ("corrected", "sympy", "")
    kinds = [getattr(part, "kind", None) or part.theorem.kind for part in settled.parts]
    assert kinds == ["proved", "exact", "refuted"]
    assert all(part.oracle()[0] for part in settled.parts[1:])


# ---------------------------------------------------------------------------- similar false claims
n, m = parameter("n"), parameter("m")
REVERSE, FORWARD = grad(KL(q, p)), grad(KL(p, q))
MEAN = (own(k1) + others(k1)) / n
TO_GO = now(k1) + future(k1)
PREFIX = past(rho) * now(rho)
G, SQUARES = expectation(k1 * s, under=q), expectation(s**2, under=q)


def batch(h: Any, under: str = q) -> Any:
    return derive(mean_over_i(h * own(s), under=under))


def steps(h: Any, under: str = q) -> Any:
    return derive(sum_over_t(h, under=under))


def tokens(loss: Any, under: str = q, **setting: Any) -> Any:
    return derive(token_gradient(loss, under=under), **setting)


WRONG: dict[str, Any] = {
    "mean centring is not unbiased": lambda: batch(own(k1) - MEAN).equals(REVERSE),
    "nor shrunk by 1 + 1/n": lambda: batch(own(k1) - MEAN).equals((1 + 1 / n) * REVERSE),
    "nor by 1/n": lambda: batch(own(k1) - MEAN).equals(REVERSE / n),
    "leave-one-out does not shrink": lambda: batch(own(k1) - leave_one_out(k1)).equals(
        (1 - 1 / n) * REVERSE
    ),
    "no centring does not shrink": lambda: batch(own(k1)).equals((1 - 1 / n) * REVERSE),
    "the others of k3 are not k1": lambda: batch(own(k3) - leave_one_out(k1)).equals(REVERSE),
    "off-policy the others do not drop out": lambda: batch(own(rho * k1) - leave_one_out(k1), mu).equals(
        REVERSE
    ),
    "the sum of the others is not their mean": lambda: derive(
        mean_over_i(own(k1) - MEAN, under="sample"), premises=SIZE
    ).equals((1 - 1 / n) * mean_over_i(own(k1) - others(k1), under="sample"), using=[(0, None)]),
    "the identity needs n = m + 1": lambda: derive(mean_over_i(own(k1) - MEAN, under="sample")).equals(
        (1 - 1 / n) * mean_over_i(own(k1) - leave_one_out(k1), under="sample")
    ),
    "the penalty outside is not shrunk": lambda: batch(
        own(R) - (own(R) + others(R)) / n - beta * own(k1)
    ).equals((1 - 1 / n) * (grad(expectation(R, under=q)) - beta * REVERSE)),
    "the reward inside is": lambda: batch(own(R) - (own(R) + others(R)) / n - beta * own(k1)).equals(
        grad(expectation(R, under=q)) - beta * REVERSE
    ),
    "a pair keeps its sign": lambda: derive(mean_over_i((own(k1) - others(k1)) / 2, under="sample")).equals(
        mean_over_i((others(k1) - own(k1)) / 2, under="sample")
    ),
    "the variance of leave-one-out has its last term": lambda: derive(
        variance_of_mean((own(k1) - leave_one_out(k1)) * own(s), under=q), premises=SIZE
    ).equals(
        (expectation((k1**2) * s**2, under=q) - 2 * KL(q, p) * expectation(k1 * s**2, under=q)
         + KL(q, p) * KL(q, p) * SQUARES - G * G) / n,
        using=[(0, None)],
    ),
    "and is over n m, not n^2": lambda: derive(
        variance_of_mean((own(k1) - leave_one_out(k1)) * own(s), under=q), premises=SIZE
    ).equals(
        (expectation((k1**2) * s**2, under=q) - 2 * KL(q, p) * expectation(k1 * s**2, under=q)
         + KL(q, p) * KL(q, p) * SQUARES - G * G) / n
        + (covariance(k1, k1, under=q) * SQUARES + G * G) / n**2,
        using=[(0, None)],
    ),
    "the chain rule draws prefixes from q": lambda: derive(KL(q, p)).equals(token_KL(q, p, prefixes=p)),
    "not the forward divergences": lambda: derive(KL(q, p)).equals(token_KL(p, q)),
    "the reverse of causality": lambda: steps(future(k1) * now(s)).equals(0),
    "a baseline that sees its token": lambda: steps(now(A) * now(s)).equals(0),
    "a baseline that sees the end": lambda: steps(A * now(s)).equals(0),
    "past scores have no mean zero": lambda: steps(past(s)).equals(0),
    "later terms alone are not the gradient": lambda: steps(future(k1) * now(s)).equals(REVERSE),
    "same-token terms alone neither": lambda: steps(now(k1 * s)).equals(REVERSE),
    "the dropped pairs are T(T - 1)/2": lambda: steps(past(length), "sample").equals(
        sample(length * (length + 1) / 2)
    ),
    "the token loss is partial": lambda: tokens(now(k2)).equals(REVERSE),
    "what it drops has a sign": lambda: tokens(now(k2)).equals(
        REVERSE + sum_over_t(now(s) * future(k1), under=q)
    ),
    "token k3 is forward at each step": lambda: tokens(now(k3)).equals(token_KL_gradient(q, p)),
    "with prefixes from q": lambda: tokens(now(k3)).equals(token_KL_gradient(p, q, prefixes=p)),
    "not of whole sequences": lambda: tokens(now(k3)).equals(FORWARD),
    "token k3 is no gradient": lambda: derive(curl(now(k3), under=q)).equals(0),
    "whole k3 is one": lambda: derive(curl(k3, under=q)).differs_from(0),
    "whole k3 is not reverse": lambda: derive(expected_gradient(k3, under=q)).equals(REVERSE),
    "1/T does not vanish": lambda: tokens(now(k1) / length).equals(0),
    "it is not the gradient of E[T]": lambda: tokens(now(k1) / length).equals(
        grad(expectation(length, under=q))
    ),
    "the reward-to-go has later terms": lambda: steps(sg(-beta * now(k1)) * now(s)).equals(-beta * REVERSE),
    "token weights leave the prefix": lambda: steps(now(rho * k1) * (past(s) + now(s)), mu).equals(REVERSE),
    "prefix weights without the last": lambda: steps(past(rho) * now(k1) * (past(s) + now(s)), mu).equals(
        REVERSE
    ),
    "detached prefix weights": lambda: tokens(sg(PREFIX) * now(k3), mu).equals(REVERSE),
    "prefix weights on a reward-to-go": lambda: steps(PREFIX * TO_GO * now(s), mu).equals(REVERSE),
    "prefix-weighted k2": lambda: tokens(PREFIX * now(k2), mu).equals(REVERSE),
    "the whole weight, detached": lambda: tokens(sg(rho) * now(k3), mu).equals(REVERSE),
    "token weights attached": lambda: tokens(now(rho * k3), mu).equals(REVERSE),
    "token weights at a sample": lambda: tokens(now(rho * k2), "sample").equals(
        tokens_at_a_sample(now(rho * k3))
    ),
    "the spread of a pair needs n = 2": lambda: derive(
        mean_over_i((own(k1) - MEAN) ** 2, under="sample")
    ).equals(mean_over_i(((own(k1) - MEAN) ** 2 + (others(k1) - MEAN) ** 2) / n, under="sample")),
    "what leave-one-out gains has a sign": lambda: derive(n * (CENTRED - PLAIN), premises=SIZE).equals(
        CROSS - SPREAD / m, using=[(0, None)]
    ),
    "the batch mean of sequences shrinks": lambda: derive(
        mean_over_i((TO_GO - (k1 + others(k1)) / n) * now(s), under=q, steps=True)
    ).equals(REVERSE),
    "whole weights on token k2": lambda: tokens(rho * now(k2), mu).equals(REVERSE),
    "the length-normalised ratio": lambda: derive(expectation(rho ** (1 / length), under=mu)).equals(1),
}  # fmt: skip


def tokens_at_a_sample(loss: Any) -> Any:
    return token_gradient(loss, under="sample")


@pytest.mark.parametrize("build", WRONG.values(), ids=list(WRONG))
def test_a_similar_false_claim_is_not_proved(build: Any) -> None:
    with pytest.raises(KlsymError):
        build()
