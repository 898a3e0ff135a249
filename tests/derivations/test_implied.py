"""Wrong versions of the claims about implied objectives and optima: each is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from klsym.calculus import *
from klsym.derivations import expansions, implied
from klsym.derivations.implied import g, slope
from klsym.derivations.optima import penalised
from klsym.engine.divergences.f_divergence import strength
from klsym.errors import ProofError
from klsym.study.ledger.registry import load
from klsym.study.ledger.settle_claim import recall

a, nu = parameter("a"), parameter("nu")


def descends(c: Any, f: Any) -> Any:
    return derive(expectation(c * s, under=q)).equals(grad(expectation(f, under=q)))


def field(c: Any) -> Any:
    return derive(expectation((R - beta * c) * s, under=q))


WRONG: dict[str, list[Callable[[], Any]]] = {
    "implied.score-form-unique": [
        lambda: derive(expectation((g + k1) * s, under=q)).equals(expectation(g * s, under=q)),
        lambda: derive(expectation((g + a) * s, under=p)).equals(expectation(g * s, under=p)),
        lambda: derive(expectation(g * s, under=q)).iff("g", is_=a * k1, constants=(a,)),
    ],
    "implied.potential": [
        lambda: derive(grad(expectation(g, under=q))).equals(expectation(slope * s, under=q)),
        lambda: derive(grad(expectation(g, under=q))).equals(expectation((g - slope) * s, under=q)),
        lambda: descends(k1, k2),
        lambda: descends(-r, -r),
        lambda: descends(k2, k2),
        lambda: descends(k3, k3),
    ],
    "implied.potential-general": [
        lambda: descends(rho * k1, rho * k1),
        lambda: descends(rho * k1, rho * (2 * k1 + 1) / 4),
        lambda: descends(k1 / rho, k1 / rho),
        lambda: descends(log_q, log_q**2 / 2),
    ],
    "optimum.reverse": [
        lambda: derive(penalised(KL(q, p))).at_most(
            beta * (a - 1 + expectation(exp(R / beta - a), under=q)),
            rows=[{"u": R / beta - a - k1, "at": q, "scale": beta}],
        ),
        lambda: derive(penalised(KL(p, q))).at_most(
            beta * (a - 1 + expectation(exp(R / beta - a), under=p)),
            rows=[{"u": R / beta - a - k1, "at": q, "scale": beta}],
        ),
        lambda: field(k1).equals(0),
    ],
    "optimum.objective-identity": [
        lambda: derive(penalised(KL(q, p))).equals(a - expectation(k1 - R / beta + a, under=q)),
        lambda: derive(penalised(KL(q, p))).equals(beta * a + beta * expectation(k1 - R / beta + a, under=q)),
    ],
    "optimum.forward": [
        lambda: derive(expectation(nu - beta * exp(A), under=q) - beta * KL(p, q)).at_most(
            nu - beta - beta * expectation(A, under=q),
            rows=[{"u": k1 + A, "v": -k1, "at": q, "scale": beta}],
        ),
        lambda: derive(expectation(nu - beta * exp(A), under=q) - beta * KL(q, p)).at_most(
            nu - beta - beta * expectation(A, under=p),
            rows=[{"u": k1 + A, "v": -k1, "at": q, "scale": beta}],
        ),
    ],
    "optimum.k1-loss": [
        lambda: derive(expectation(R * s, under=q) - expected_gradient(beta * k1, under=q)).equals(
            grad(penalised(KL(q, p)))
        ),
        lambda: derive(expectation(R * s, under=q)).equals(0),
    ],
    "optimum.k2-reward": [
        lambda: field(k2).equals(grad(penalised(KL(q, p)))),
        lambda: field(k2).equals(expectation((R - beta * k2 - nu * k1) * s, under=q)),
    ],
    "optimum.k3-reward": [
        lambda: field(k3).equals(grad(penalised(KL(q, p)))),
        lambda: field(k3).equals(grad(penalised(KL(p, q)))),
        lambda: derive(sample_gradient(k3)).equals(sample((r - 1) * s)),
    ],
    "optimum.rho-k2": [
        lambda: derive(expected_gradient(rho * k2, under=mu)).equals(expectation(k1 * s, under=q)),
        lambda: derive(sample_gradient(k1 + k2)).equals(sample(s)),
        lambda: derive(sample(0)).at_most(sample(k1 + k2), rows=[{"b": k1, "scale": 1, "at": "sample"}]),
    ],
}


@pytest.mark.parametrize(
    ("name", "number"), [(name, i) for name, rows in WRONG.items() for i in range(len(rows))]
)
def test_a_wrong_version_is_refused(name: str, number: int) -> None:
    assert name in load()
    with pytest.raises(ProofError):
        WRONG[name][number]()


# the multiple of the reverse KL's Fisher form at q = p, by hand: -c'(1) of the coefficient c(r)
STRENGTHS = {
    "k1 in the loss": "0", "k2 in the loss": "1", "k3 in the loss": "1", "k(lam) in the loss": "lam",
    "rho*k1 in the loss": "1", "rho*k2 in the loss": "1", "rho*k3 in the loss": "1",
    "k1 in the reward": "1", "k2 in the reward": "0", "k3 in the reward": "0",
    "k(lam) in the reward": "1 - lam",
}  # fmt: skip


def test_the_strength_of_each_placement() -> None:
    said = [part.text for part in recall("implied.fisher-table").parts]
    assert said == [f"{name}: f''(1) = {value}" for name, value in STRENGTHS.items()]


@pytest.mark.parametrize("wrong", [2, -1])
def test_a_wrong_strength_is_noticed(wrong: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The difference quotients of the field do not agree with another number."""
    monkeypatch.setattr(implied, "strength", lambda c: strength(c) + wrong)
    parts = implied.strength_of_each_placement()
    assert len(parts) == len(STRENGTHS) and not any(part.oracle()[0] for part in parts)


def test_a_wrong_third_order_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """KL(q||p) - KL(p||q) is not that of k1 + 2 r k1."""
    right = expansions.expected_expansion
    assert expansions.the_two_divergences_part_at_third_order().oracle()[0]
    monkeypatch.setattr(expansions, "expected_expansion", lambda f, order: right(f + r * k1, order))
    assert not expansions.the_two_divergences_part_at_third_order().oracle()[0]
