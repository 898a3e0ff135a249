"""Wrong versions of the claims about the catalogue: each is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from klsym.calculus import *
from klsym.derivations import catalogue as module
from klsym.derivations.catalogue import (
    FORWARD,
    SQUARES,
    TARGET,
    a,
    b,
    b_star,
    c,
    g,
    noise,
    weighed,
)
from klsym.errors import ProofError
from klsym.numeric.exact import check_theorem
from klsym.study.ledger.registry import load
from klsym.study.ledger.settle_claim import recall


def beyond(way: int, scale: Any, premise: Any = None, mean: Any = None) -> Any:
    """The order of two constants, b_star being on the side of a + c (way 1) or of a (-1)."""
    place = premise or (2 * b_star, 2 * a + c * (1 + way * alpha))
    return derive(noise(k1 + a + c), premises=(mean or weighed(k1), place)).at_most(
        noise(k1 + a),
        rows=[{"b": rho, "scale": scale, "at": mu, "power": 1}],
        using=[(0, -2 * c), (1, c * SQUARES)],
    )


def near(number: Fraction, region: Any) -> Any:
    return derive(noise(k1)).at_most(
        noise(k1 + number),
        rows=[
            {"at": mu, "b": 1, "power": 1, "v": 2 * log(rho), "scale": abs(number), "nonnegative": region}
        ],
    )  # fmt: skip


HALF = Fraction(1, 2)
UNWEIGHTED = (expectation(b_star * s**2, under=q), expectation(-k1 * s**2, under=q))
WRONG: dict[str, list[Callable[[], Any]]] = {
    "catalogue.one-family": [
        lambda: derive(expectation(rho * g * s, under=mu) - TARGET).iff("g", is_=k1, constants=()),
        lambda: derive(expectation(rho * g * s, under=mu) - TARGET).iff("g", is_=b * k1, constants=(b,)),
        lambda: derive(expectation(g * s, under=mu) - TARGET).iff("g", is_=k1 + b, constants=(b,)),
        lambda: derive(expected_gradient(sg(rho) * g, under=mu) - TARGET).iff(
            "g", is_=k3 + b * k1 + a, constants=(a, b)
        ),
        lambda: derive(expected_gradient(rho * g, under=mu) - TARGET).iff(
            "g", is_=k2 + b * k1 + a, constants=(a, b)
        ),
        lambda: derive(expected_gradient(rho * (k2 + b), under=mu)).equals(TARGET),
        lambda: derive(sample_gradient(rho * (k3 + b))).equals(sample(rho * k1 * s)),
    ],
    "catalogue.weighted-k-lambda": [
        lambda: derive(expectation(rho * (k(lam) + 1 - lam), under=mu)).equals(KL(q, "p")),
        lambda: derive(expectation(k(lam), under=mu)).equals(KL(q, "p")),
        lambda: derive(expected_gradient(sg(rho) * k(lam), under=mu)).equals(TARGET),
        lambda: derive(sample_gradient(rho * k(lam))).equals(sample(rho * (k1 + lam) * s)),
    ],
    "catalogue.shortest": [
        lambda: derive(expected_gradient(sg(rho) * k3, under=mu)).equals(TARGET),
        lambda: derive(expected_gradient(rho * k2, under=mu)).equals(TARGET),
        lambda: derive(sample_gradient(rho * (k3 - HALF))).equals(sample(rho * (k1 + HALF) * s)),
    ],
    "catalogue.unweighted-none": [
        lambda: derive(expectation(g * s, under=mu) - TARGET).iff("g", is_=k1 + b, constants=(b,)),
        lambda: derive(expectation(g * s, under=q) - FORWARD).iff("g", is_=b - k1, constants=(b,)),
        lambda: derive(expectation((k1 + b) * s, under=q)).is_no_combination(),
        lambda: derive(expectation(rho * (b - r) * s, under=mu)).is_no_combination(),
    ],
    "catalogue.forward-family": [
        lambda: derive(expectation(rho * g * s, under=mu) - FORWARD).iff("g", is_=b + r, constants=(b,)),
        lambda: derive(expectation(rho * (1 - r + r * k1), under=mu)).equals(KL(p, q)),
        lambda: derive(expected_gradient(rho * k3, under=mu)).equals(FORWARD),
        lambda: derive(expected_gradient(-rho * sg(r * k1), under=mu)).equals(FORWARD),
        lambda: derive(expected_gradient(-sg(r) * k1, under=mu)).equals(FORWARD),
    ],
    "catalogue.value-beside": [
        lambda: derive(expectation(k2 + sg(k1), under=q)).drop_stop_gradients().equals(KL(q, p)),
        lambda: derive(expected_gradient(k2 + k1 - k2, under=q)).equals(TARGET),
        lambda: derive(expected_gradient(sg(k2) + k1 - k2, under=q)).equals(TARGET),
        lambda: derive(expected_gradient(sg(k3) - k1 - k1 * r, under=q)).equals(FORWARD),
    ],
    "catalogue.forward-tokens": [
        lambda: derive(token_gradient(past(r) * now(k3), under=q)).equals(FORWARD),  # attached
        lambda: derive(token_gradient(now(k3), under=q)).equals(FORWARD),
        lambda: derive(token_gradient(sg(now(rho) * past(r)) * now(k3), under=mu)).equals(FORWARD),
        lambda: derive(sum_over_t(now(1 - r) * now(s), under=q)).equals(FORWARD),
        lambda: derive(sum_over_t(past(r) * -now(k1), under=q)).equals(KL(p, q)),
    ],
    "catalogue.order": [
        lambda: beyond(-1, c**2 * alpha),  # the nearer one is a
        lambda: beyond(1, 2 * c**2 * alpha),
        lambda: beyond(1, c**2 * alpha, premise=(b_star, 2 * a + c * (1 + alpha))),
        lambda: beyond(1, c**2 * alpha, mean=weighed(k2)),
        lambda: beyond(1, c**2 * alpha, mean=UNWEIGHTED),
        lambda: derive(noise(k1 - b_star), premises=(weighed(k1),)).at_most(
            noise(k1 + b),
            rows=[{"b": rho, "factor": b + b_star, "at": mu, "power": 1}],
            using=[(0, 2 * (b - b_star))],
        ),
        lambda: derive(noise(k1 + b) - noise(k1 + a), premises=(weighed(k1),)).equals(
            expectation((b - a) * (a + b + 2 * b_star) * rho**2 * s**2, under=mu), using=[(0, 2 * (a - b))]
        ),
    ],
    "catalogue.no-best-constant": [
        lambda: derive(noise(0 * k1)).differs_from(noise(k1), relation="<="),
    ],
    "catalogue.near-the-reference": [
        lambda: near(HALF, 2 * k1 - HALF),
        lambda: near(HALF, 2 * k1 + 1),
        lambda: near(-HALF, 2 * k1 + HALF),
        lambda: near(-HALF, -2 * k1 + 1),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "number"), [(name, i) for name, rows in WRONG.items() for i in range(len(rows))]
)
def test_a_wrong_version_is_refused(name: str, number: int) -> None:
    assert name in load()
    with pytest.raises(ProofError):
        WRONG[name][number]()


def test_the_right_versions_of_these_are_proved() -> None:
    assert beyond(1, c**2 * alpha).theorem.kind == "proved"
    assert near(HALF, 2 * k1 + HALF).theorem.kind == near(-HALF, HALF - 2 * k1).theorem.kind == "proved"


def test_the_order_holds_where_its_premises_do() -> None:
    """The oracle chooses b_star and c as the premises say; the order asks that alpha > 0 and c is not 0."""
    part = recall("catalogue.order").theorems[1]
    assert part.statement.relation == "<=" and len(part.statement.context.premises) == 2
    assert {h[1] for h in part.hypotheses if h[0] in ("positive", "nonzero")} == {"alpha", "c"}
    assert check_theorem(part, range(3)).passed


def test_a_wrong_count_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COUNTED", 4)
    parts = module.how_many_losses()
    assert len(parts) == 4 and all(part.kind == "exact" for part in parts)
    assert parts[0].oracle()[0]
    found = module.catalogue(module.levels(module.COUNTED))
    first = found.settings[0]
    counts = {**first.counts, "gradients": [*first.counts["gradients"][:-1], 64]}
    wrong = replace(found, settings=(replace(first, counts=counts), *found.settings[1:]))
    monkeypatch.setattr(module, "catalogue", lambda levels: wrong)
    assert not module.how_many_losses()[0].oracle()[0]
