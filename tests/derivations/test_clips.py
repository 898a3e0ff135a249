"""Claims on clamps and clipped surrogates: wrong neighbours, and the literal clip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from klsym.calculus import *
from klsym.derivations.clips import bound, outside
from klsym.errors import ProofError
from support.oracle.grammar import evaluate, plain
from support.oracle.losses import Forest, samples

# ---------------------------------------------------------------------------- the literal clip
FOREST = Forest(samples(seed=5, copies=3), ("off-policy",))
LITERAL = (  # a clamped loss, and c of its expected gradient E_mu[c s] as the claims say it
    ("clip(k3, 0.02, 0.3)", "(1 - r)*{k3}"),
    ("-min(rho*(A - beta*sg(k1)), clip(rho, 0.8, 1.2)*(A - beta*sg(k1)))", "rho*(beta*k1 - A)*{ppo}"),
    ("-min(rho*A, clip(rho, 0.8, 1.2)*A) + beta*rho*k3", "-rho*A*{ppo} + beta*rho*k1"),
)  # fmt: skip


def masks(advantage: str, names: Any) -> dict[str, Any]:
    """1 where no bound binds: of k3 in (lo, hi), of a ratio for the sign of the advantage."""

    def at(text: str) -> Any:
        return plain(evaluate(text, names))

    k3, ratio, gain = at("k3"), at("rho"), at(advantage)
    dropped = ((ratio > 1.2) & (gain > 0)) | ((ratio < 0.8) & (gain < 0))
    return {"k3": (k3 > 0.02) & (k3 < 0.3), "ppo": ~dropped}


@pytest.mark.parametrize(("loss", "coefficient"), LITERAL, ids=[row[0] for row in LITERAL])
def test_masks_are_what_the_literal_clip_does(loss: str, coefficient: str) -> None:
    """The claims speak of any mask M; with that of the region they give what autograd gives."""
    rows = FOREST.whole
    names = FOREST.names(rows)
    mask = masks("A - beta*k1" if "sg" in loss else "A", names)
    assert 0 < mask["ppo"].sum() < len(mask["ppo"]) and 0 < mask["k3"].sum() < len(mask["k3"])
    filled = coefficient.format(k3="mask_k3", ppo="mask_ppo")

    def find(name: str, slot: str | None = None) -> Any:
        return mask[name.removeprefix("mask_")] * 1.0 if name.startswith("mask_") else names(name)

    mass, score = FOREST.chance(rows).value, FOREST.atom("log_q", rows, "x").a
    stated = FOREST.mean(rows, mass * plain(evaluate(filled, find)) * score).value
    np.testing.assert_allclose(FOREST.field(loss).a, stated, atol=1e-13)


# ---------------------------------------------------------------------------- wrong neighbours
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
def test_wrong_neighbours_are_refused(build: Callable[[], Any]) -> None:
    with pytest.raises(ProofError):
        build()
