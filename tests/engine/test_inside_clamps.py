"""Where no bound binds, a clamped loss is the loss without its bounds, in the same setting."""

from __future__ import annotations

from itertools import product

import pytest

import klsym
from klsym.api import Verdict
from klsym.language.expressions import unfold

WEIGHTS, SAMPLING = ("token", "prefix", "sequence"), ("on-policy", "off-policy")
LOSSES = ("rho*k3", "rho*sg(k1)")
REWARDS = [("rho*k1", weights) for weights in WEIGHTS] + [
    ("R - beta*k1", "token"), ("k3", "token"),
]  # fmt: skip
CREDITS = ("to-go", "total", "same-token")


def same(clamped: Verdict, free: Verdict) -> None:
    inside = clamped.inside_clamps
    assert inside is not None
    if inside.target is None and free.target is not None:
        return  # open is honest; that it is rare is asserted below
    assert (inside.target, inside.complete) == (free.target, free.gradient.complete)


def meets(condition: object) -> bool:
    """Does a condition hold where all ratios are near 1, so that no bound of 10 binds?"""
    symbols = sorted(condition.x.free_symbols, key=str)  # type: ignore[attr-defined]
    at = {x: -0.3 - 0.01 * i for i, x in enumerate(symbols)}
    value = float(unfold(condition.x).subs(at))  # type: ignore[attr-defined]
    return (value > 0) - (value < 0) in condition.signs  # type: ignore[attr-defined]


def unbiased_inside(clamped: Verdict) -> bool:
    """Is the bias 0 in the region that holds q = p?  The first case that is met is that of the region."""
    found = (value for where, value in clamped.bias_cases if all(map(meets, where)))
    return bool(next(found, 0) == 0)


@pytest.mark.parametrize("sampling", SAMPLING)
@pytest.mark.parametrize(("loss", "weights"), list(product(LOSSES, WEIGHTS)))
def test_a_loss_of_tokens_keeps_the_scores_of_its_weights(loss: str, weights: str, sampling: str) -> None:
    """rho of a prefix meets s_past, that of a sequence s_future too."""
    options = {"level": "token", "weights": weights, "sampling": sampling}
    clamped = klsym.explain(f"clip({loss}, -10, 10)", **options)
    free = klsym.explain(loss, **options)
    same(clamped, free)
    assert clamped.inside_clamps.target is not None or free.target is None  # type: ignore[union-attr]
    assert unbiased_inside(clamped)


@pytest.mark.parametrize("sampling", SAMPLING)
@pytest.mark.parametrize("credit", CREDITS)
@pytest.mark.parametrize(("reward", "weights"), REWARDS)
def test_a_reward_of_tokens_keeps_its_credit(reward: str, weights: str, credit: str, sampling: str) -> None:
    options = {"level": "token", "use": "reward", "weights": weights, "credit": credit, "sampling": sampling}
    clamped = klsym.explain(f"clip({reward}, -10, 10)", **options)
    free = klsym.explain(reward, **options)
    same(clamped, free)
    assert clamped.inside_clamps.target is not None or free.target is None  # type: ignore[union-attr]
    assert unbiased_inside(clamped)


@pytest.mark.parametrize("target", ["reverse-kl", "forward-kl"])
@pytest.mark.parametrize("use", ["loss", "reward"])
@pytest.mark.parametrize("sampling", SAMPLING)
def test_the_choices_of_tokens_are_what_was_asked_for_inside_their_bounds(
    target: str, use: str, sampling: str
) -> None:
    found = klsym.recommend(target, sampling=sampling, use=use, level="token")
    for choice in found.choices:
        for one in choice.clamps:
            assert one.inside in (target, None), (choice.loss, choice.setting, one.loss)


def test_user_sums_beside_weights_are_kept() -> None:
    """What is typed as a sum stays one: no rho is made of it."""
    typed = "exp(past(log_q - log_mu))*rho*k3"
    options = {"level": "token", "sampling": "off-policy"}
    clamped = klsym.explain(f"clip({typed}, -10, 10)", **options)
    same(clamped, klsym.explain(typed, **options))
    doubled = klsym.explain(f"clip({typed}, -10, 10)", weights="prefix", **options)
    same(doubled, klsym.explain(typed, weights="prefix", **options))
