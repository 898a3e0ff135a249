"""Claims on clamps and clipped surrogates: similar false claims are rejected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from klsym.calculus import *
from klsym.derivations.clips import bound, outside
from klsym.errors import ProofError

# ---------------------------------------------------------------------------- similar false claims
MODEL = finite_model(q=["1/2", "1/2"], p=["1/4", "3/4"], mu=["1/3", "2/3"], u=[1, 0], M=[1, 0])
weight = M * rho + outside * bound
INSIDE = expected_gradient(-weight * (A - beta * sg(k1)), under=mu)
BESIDE = expected_gradient(-weight * A + beta * rho * k3, under=mu)
SURROGATES = expectation(M * A * s, under=q)
WRONG: list[Callable[[], Any]] = [
    # the mask moved, kept, forgotten, or on the wrong side
    lambda: derive(expected_gradient(M * k3 + outside * bound, under=q)).equals(grad(KL(p, q))),
    lambda: derive(expected_gradient(M * k3 + outside * bound, under=q)).equals(
        grad(KL(p, q)) - expectation(M * (1 - r) * s, under=q)
    ),
    lambda: derive(expected_gradient(M * k3 + outside * k3, under=q)).equals(
        expectation(M * (1 - r) * s, under=q)
    ),
    lambda: derive(expected_gradient(M * k3, under=q)).equals(grad(expectation(M * k3, under=q))),
    lambda: derive(expected_gradient(M * k3, under=q)).equals(
        grad(KL(q, p)) - expectation(outside * k1 * s, under=q)),
    lambda: derive(INSIDE).equals(beta * grad(KL(q, p)) - SURROGATES),
    lambda: derive(INSIDE).equals(BESIDE),
    lambda: derive(BESIDE).equals(beta * expectation(M * k1 * s, under=q) - SURROGATES),
    lambda: derive(BESIDE).equals(beta * grad(KL(p, q)) - SURROGATES),
    lambda: derive(expectation(M * s, under=q)).equals(0),  # a mask is a random variable, no constant
    lambda: derive(expectation(M * M * s, under=q)).equals(expectation(M * s, under=q)),  # any M, not 0 or 1
    lambda: derive(expectation(M * k1 * s, under=q)).differs_from(
        grad(KL(q, p)), model={**MODEL, "tree": {**MODEL["tree"], "rewards": {"M": ["1", "1"]}}}
    ),
]  # fmt: skip


@pytest.mark.parametrize("build", WRONG)
def test_similar_false_claims_are_refused(build: Callable[[], Any]) -> None:
    with pytest.raises(ProofError):
        build()
