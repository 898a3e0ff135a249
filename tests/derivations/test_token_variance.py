"""Variances of gradients summed over tokens: wrong versions of the three claims are refused."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from klsym.calculus import derive, future, k1, mu, now, s, sum_over_t
from klsym.derivations.recipes import token_variance as claims
from klsym.derivations.recipes.token_variance import PREFIX, TERM, WHOLE
from klsym.errors import ProofError

WRONG = {
    "later rewards": (WHOLE * future(k1) * now(s), PREFIX * future(k1) * now(s)),
    "the ratio of the token alone": (WHOLE * TERM, WHOLE / PREFIX * TERM),
    "equal second moments": (WHOLE**2 * TERM**2, PREFIX**2 * TERM**2),
    "half of the square": (WHOLE**2 * TERM**2 - PREFIX**2 * TERM**2, (WHOLE - PREFIX) ** 2 * TERM**2 / 2),
}


@pytest.mark.parametrize("name", WRONG)
def test_other_weights_of_a_token_are_refused(name: str) -> None:
    left, right = (sum_over_t(side, under=mu) for side in WRONG[name])
    with pytest.raises(ProofError):
        derive(left).equals(right)


def test_the_order_of_the_variances_depends_on_the_advantages(monkeypatch: Any) -> None:
    """With the other sign of the second advantage the prefix ratio has the lower variance."""
    assert claims.prefix_ratio_variance().holds
    monkeypatch.setattr(claims, "SIGN", {"a": -1, "b": 1})
    assert not claims.prefix_ratio_variance().holds


@pytest.mark.parametrize(
    "wrong",
    [
        lambda weighted, best: weighted,
        lambda weighted, best: (best[0], best[1] + Fraction(1, 100)),
        lambda weighted, best: (0, 0),
    ],
    ids=["the weighted mean", "another number", "no baseline"],
)
def test_another_baseline_is_not_the_least_point(wrong: Any, monkeypatch: Any) -> None:
    right = claims._baselines
    assert claims._gap() == 0 and all(part.holds for part in claims.optimal_token_baseline())

    def baselines(tree: Any, rewards: Any) -> Any:
        weighted, best = right(tree, rewards)
        return weighted, wrong(weighted, best)

    monkeypatch.setattr(claims, "_baselines", baselines)
    assert claims._gap() != 0
    assert not claims.optimal_token_baseline()[0].holds


def test_a_number_that_knows_the_token_has_mixed_terms(monkeypatch: Any) -> None:
    """Scores without mean zero: the quadratic in b then has mixed terms."""
    assert not any(claims._mixed_terms())
    monkeypatch.setattr(claims, "_scores", lambda chances, up: {"a": up, "b": -up * chances})
    assert any(claims._mixed_terms())
