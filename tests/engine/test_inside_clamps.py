"""Inside the clip range, a clamped loss is the loss without its bounds, in the same setting."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import klsym
from klsym.errors import UsageError
from klsym.language.expressions import unfold
from support.losses.cases import options
from support.oracle.losses import Forest, Setting, samples
from support.scale import scaled

LOSSES = [(loss, f"{on} token {weights}") for loss, on, weights in product(
    ("rho*k3", "rho*sg(k1)", "exp(past(log_q - log_mu))*rho*k3"), ("", "off"), ("own", "prefix",
    "whole"))]  # fmt: skip
REWARDS = [(loss, f"{on} token reward {weights} {credit}") for on, (loss, weights), credit in product(
    ("", "off"), (*product(("rho*k1",), ("own", "prefix", "whole")), ("R - beta*k1", "own"), ("k3", "own")),
    ("to-go", "total", "same"))]  # fmt: skip
# Bounds that hold all of rho, and differ from token to token.
PER_TOKEN = [f"off token reward whole {credit}" for credit in ("to-go", "total")]
REWARDS = [(loss, words) for loss, words in REWARDS if words not in PER_TOKEN]
CASES = [*LOSSES, *REWARDS] if scaled(1, 0) else [*LOSSES[::2], *REWARDS[1::4]]


def meets(condition: Any) -> bool:
    """Does a condition hold where all ratios are near 1, so that no bound of 10 binds?"""
    symbols = sorted(condition.x.free_symbols, key=str)
    value = float(unfold(condition.x).subs({x: -0.3 - 0.01 * i for i, x in enumerate(symbols)}))
    return (value > 0) - (value < 0) in condition.signs


@pytest.mark.parametrize(("loss", "words"), CASES)
@pytest.mark.share(3)
def test_tokens_keep_their_scores_and_credit(loss: str, words: str) -> None:
    """rho of a prefix meets s_past, that of a sequence s_future too; the bias is 0 in the region of q = p."""
    clamped, free = (klsym.explain(text, **options(words)) for text in (f"clip({loss}, -10, 10)", loss))
    inside = clamped.gradient.inside_clamps
    assert inside is not None and (inside.target is not None or free.target is None)
    assert (inside.target, inside.complete) == (free.target, free.gradient.complete)
    assert next((value for where, value in clamped.gradient.bias_cases if all(map(meets, where))), 0) == 0


@pytest.mark.parametrize("words", PER_TOKEN)
def test_bounds_on_a_token_and_on_the_whole_ratio_are_not_summed(words: str) -> None:
    """Each token has a bound of its own, and no sum of H may speak of the whole sequence."""
    with pytest.raises(UsageError, match="is not handled"):
        klsym.explain("clip(rho*k1, -10, 10)", **options(words))


NAMED = [  # a loss of samples, how it is used, what it targets inside its clamps, with which multiples
    ("clip(k3, 0, 5)", "", "forward-kl", {"forward-kl": "1"}), ("clip(k1, 0.3, 0.4)", "", "zero", {}),
    ("clip(k1, -5, 5)", "reward", "reverse-kl", {"reverse-kl": "1"}),
    ("beta*min(k2, lam)", "", "reverse-kl", {"reverse-kl": "beta"}), ("min(k1, 2)", "", "zero", {}),
    ("sg(min(rho, 2))*k2", "off", "reverse-kl", {"reverse-kl": "1"}),
    ("clip(rho, 0.9997, 1.0004)*A", "off", "combination", {"reward": "A"}),
    ("min(rho*A, clip(rho, 1 - eps, 1 + eps)*A)", "off", "combination", {"reward": "A"}),
    ("-min(rho*A, clip(rho, 0.8, 1.2)*A) + beta*rho*k3", "off", "combination",
     {"reward": "-A", "reverse-kl": "beta"}),
    ("clip(R, -2, 2) - beta*k1", "reward", "combination", {"reward": "R", "reverse-kl": "-beta"}),
    ("clip(A, -1, 1)*log_q", "", "combination", {"reward": "A"}),
    ("clip(k2, -1, 1)*rho", "off", "f-divergence", {}),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "words", "target", "multiples"), NAMED)
def test_inside_its_clamps_a_loss_has_a_name(loss: str, words: str, target: str, multiples: Any) -> None:
    inside = klsym.explain(loss, **options(words)).gradient.inside_clamps
    assert inside is not None and (inside.target, inside.multiples) == (target, multiples)


CLAMPED = [  # a loss off-policy; without its bounds; the rest of c beside -grad E_q[A]
    ("-min(rho*A, clip(rho, 1 - eps, 1 + eps)*A) + beta*k3", "-rho*A + beta*k3", "beta*(1 - r)/rho"),
    ("-sg(min(rho, 2))*A*log_q + beta*k3", "-sg(rho)*A*log_q + beta*k3", "beta*(1 - r)/rho"),
    ("-clip(rho, 0.8, 1.2)*A + k2", "-rho*A + k2", "k1/rho"),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "free", "rest"), CLAMPED)
def test_inside_the_clamps_nothing_is_lost(loss: str, free: str, rest: str) -> None:
    """The named part and the rest add up to c = mu/q dL/dlog q of the loss without its bounds."""
    verdict, where = klsym.explain(loss, sampling="off-policy"), Forest(samples(11), ("off-policy",))
    assert verdict.gradient.inside_clamps is not None
    assert verdict.gradient.inside_clamps.complete == {"reward": "-A", "rest": rest}
    place = "where rho < 2" if "min(rho, 2)" in loss else "inside the clip range"
    assert f"{place}: -grad E_q[A] + E_q[{rest}*s]" in verdict.text(full=True)
    assert verdict.to_json()["gradient"]["inside_clamps"]["combination"]["rest"] == rest
    exact, form = where.field(free, Setting("off-policy")).a, where.form(f"-A + {rest}").a
    assert np.abs(exact - form).max() < 1e-9


def test_a_bound_that_always_binds_leaves_nothing_inside() -> None:
    assert klsym.explain("max(k1*r, 1)").gradient.inside_clamps is None
    assert klsym.explain("max(k1*r, 0.3)").gradient.inside_clamps is not None


@pytest.mark.parametrize("target", ["reverse-kl", "forward-kl"])
def test_recommended_losses_of_tokens_are_what_was_asked_for_inside_their_bounds(target: str) -> None:
    cases = [*product(("on-policy", "off-policy"), ("loss", "reward"))]
    for sampling, use in cases if scaled(1, 0) else cases[target == "reverse-kl" :: 3]:
        for choice in klsym.recommend(target, sampling=sampling, use=use, level="token").choices:
            for one in choice.clamps:
                assert one.inside in (target, None), (choice.loss, choice.setting, one.loss)
