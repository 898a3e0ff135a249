"""Warnings that say what descending does, which ratio has a tail, and what only adds noise, on models."""

from __future__ import annotations

import re

import numpy as np
import pytest

import klsym
from klsym.api import losses_of
from support.oracle.losses import Forest, Setting, sample, samples

OFF, REWARD, TOKEN = {"sampling": "off-policy"}, {"use": "reward"}, {"level": "token"}
KL = {"KL(q||p)": ("k1", "q"), "KL(p||q)": ("-k1", "p"), "KL(mu||q)": ("-w", "mu")}


def warned(loss: str, **options: str) -> str:
    return "\n".join(klsym.explain(loss, **options).warnings)


# ---------------------------------------------------------------------------- what descending does
WHOLE = [
    ("k1", OFF), ("log_q", OFF), ("-k2", {}), ("-3*k3", {}), ("R - k2", {}), ("-rho*k3", OFF),
    ("rho*r*k1", OFF), ("-sg(rho)*k3", OFF),
]  # fmt: skip
BESIDE = [
    ("k3", OFF), ("k2 + k1", OFF), ("rho*k3 + k1", OFF), ("k3 + 2*k1", OFF), ("R*log_q - k2", {}),
    ("R*log_q - k2/10", {}), ("k2 - k3", {}),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "options"), WHOLE)
def test_descending_the_whole_loss_does_what_is_said(loss: str, options: dict[str, str]) -> None:
    """d KL/dt = -(grad KL).(expected gradient) >= 0 in every world."""
    found = re.search(r"descending this loss .*increases (KL\(\w+\|\|\w+\))", warned(loss, **options))
    assert found
    assert (ascent(loss, found[1], options) > -1e-12).all()


@pytest.mark.parametrize(("loss", "options"), BESIDE)
def test_beside_other_terms_nothing_is_said_of_the_whole(loss: str, options: dict[str, str]) -> None:
    text = warned(loss, **options)
    assert "descending this loss" not in text and "a term of the objective, descended alone, " in text


def test_k3_off_policy_often_draws_q_to_mu() -> None:
    """What was said of it is false in some worlds, and true in others."""
    found = ascent("k3", "KL(mu||q)", OFF)
    assert (found < -1e-3).any() and (found > 1e-3).any()


def ascent(loss: str, name: str, options: dict[str, str]) -> np.ndarray:
    """How fast a divergence rises as the loss is descended, in each world."""
    text, measure = KL[name]
    where = Forest(samples(seed=3, copies=12), (options.get("sampling", "on-policy"),))
    field = where.field(loss, Setting(options.get("sampling", "on-policy"))).a
    return -(field * where.slope(text, measure).a).sum(axis=(0, 1))


# ---------------------------------------------------------------------------- tails
TAILS = [
    ("k3", {}, "r"), ("k3", OFF, "r"), ("sg(rho)*k3", OFF, "rho*r"), ("rho*r*k1", OFF, "rho*r"),
    ("r", OFF, "r"), ("rho*r", {**OFF, **REWARD}, "rho*r"), ("rho*r", REWARD, "r"), ("rho*r**2", OFF, "r"),
    ("rho**2*r", {**OFF, **REWARD}, "rho*r"), ("rho*k3", OFF, ""), ("k2", {}, ""), ("exp(-k2)", OFF, ""),
    ("exp(-k2)", {}, ""), ("r*exp(k1)", REWARD, ""),
    ("r**2", {**OFF, **REWARD}, "r"),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "options", "ratio"), TAILS)
def test_the_ratio_that_is_named_is_the_one_that_grows(
    loss: str, options: dict[str, str], ratio: str
) -> None:
    """r as q goes to 0; p/mu as mu does, and not as q does."""
    text = warned(loss, **options)
    assert ("r = p/q is unbounded" in text) == (ratio == "r")
    assert ("rho*r = p/mu is unbounded" in text) == (ratio == "rho*r")
    assert (pushed(loss, options, q=1e-9) > 1e6) == (ratio == "r")
    if options.get("sampling") and ratio == "rho*r":
        assert pushed(loss, options, mu=1e-9) > 1e6


def pushed(loss: str, options: dict[str, str], q: float = 0.4, mu: float = 0.3) -> float:
    """|h| at an outcome with these probabilities and p = 1/2."""
    setting = Setting(options.get("sampling", "on-policy"), options.get("use", "loss"))
    world = sample([q, 1 - q], [0.5, 0.5], [mu, 1 - mu], [1.0, 0.5], [1.0, 0.5])
    return abs(float(Forest([world], (setting.sampling,)).coefficient(loss, setting).value[0]))


# ---------------------------------------------------------------------------- noise
NOISE, NOTHING = "has zero expected gradient: it only adds noise", "has zero gradient at every sample"


@pytest.mark.parametrize(
    ("loss", "options", "said"),
    [
        ("k1", {}, NOISE),
        ("rho", OFF, NOISE),
        ("3", REWARD, NOISE),
        ("sg(k1)", {}, NOTHING),
        ("log_q - log_mu", REWARD, NOTHING),
        ("(log_q - log_mu)**2", {}, NOTHING),
        ("(log_q - log_mu)*k1 - sg(k1)*log_q", {}, NOTHING),
        ("min(rho, 1) - 1", REWARD, NOTHING),
        ("loo(1)*log_q", {}, NOTHING),
        ("loo(1)*log_q + log_q", {}, NOISE),
        ("centred(1)*log_q", {}, NOTHING),
        ("1", {**REWARD, "batch": "mean"}, NOTHING),
        ("full(1)", {}, NOTHING),
        ("full(1)", TOKEN, NOTHING),
        ("full(sg(k1))*log_q", {}, ""),
        ("full(k1)", REWARD, NOISE),
        ("log_q - log_mu", {**REWARD, **TOKEN, "credit": "same-token"}, NOTHING),
        ("log_q", TOKEN, NOISE),
    ],
)
def test_what_is_identically_zero_adds_no_noise(loss: str, options: dict[str, str], said: str) -> None:
    text = warned(loss, **options)
    assert [NOISE in text, NOTHING in text] == [said == NOISE, said == NOTHING], text


# ---------------------------------------------------------------------------- weights of prefixes
PREFIX, TYPED = "choose weights prefix", "multiply by exp(past(log_q - log_mu))"


@pytest.mark.parametrize(
    ("loss", "options", "said"),
    [
        ("rho*k3", {}, PREFIX),
        ("rho*k1", REWARD, PREFIX),
        ("exp(log_q - log_mu)*k3", {}, TYPED),
        ("q_over_mu*k3".replace("q_over_mu", "exp(log_q - log_mu)"), {"weights": "token"}, TYPED),
        ("rho", {}, ""),
        ("rho*log_p", {}, PREFIX),
        ("sg(rho)*log_q", {}, ""),
        ("rho*k3", {"weights": "prefix"}, ""),
        ("rho*k3", {"weights": "sequence"}, ""),
        ("k3", {}, ""),
    ],
)
def test_weights_are_advised_where_they_change_something(
    loss: str, options: dict[str, str], said: str
) -> None:
    text = warned(loss, **{**OFF, **TOKEN, **options})
    assert [PREFIX in text, TYPED in text] == [said == PREFIX, said == TYPED], text
    if said == PREFIX:
        other = klsym.explain(loss, **{**OFF, **TOKEN, **options, "weights": "prefix"})
        assert other.c != klsym.explain(loss, **{**OFF, **TOKEN, **options}).c


# ---------------------------------------------------------------------------- values of a divergence's losses
@pytest.mark.parametrize("name", ["reverse-kl", "forward-kl", "(r - 1)**2", "jeffreys", "k2", "r*log(r)"])
def test_a_value_is_unbiased_where_it_is_said_to_be(name: str) -> None:
    """Of each loss that descends E_q[f(r)], on random worlds."""
    found = losses_of(name)
    where = {on: Forest(samples(seed=7, copies=6), (on,)) for on in ("on-policy", "off-policy")}
    f = found.to_json()["f"]
    for row in found.gradients:
        forest = where[row.sampling]
        value = forest.value(row.loss, Setting(row.sampling)).value
        right = forest.value(f if row.sampling == "on-policy" else f"rho*({f})", Setting(row.sampling)).value
        assert row.unbiased is not None
        assert bool(np.allclose(value, right)) == row.unbiased, row.loss


def test_the_rewards_of_the_reverse_kl_have_its_value() -> None:
    rows = {(row.loss, row.use): row.unbiased for row in losses_of("reverse-kl").gradients}
    assert rows["k1", "reward"] is True and rows["rho*k1", "reward"] is True and rows["k2", "loss"] is False


@pytest.mark.parametrize(
    ("loss", "options", "ratio"),
    [
        ("r**lam", {**OFF, **REWARD}, "r = p/q"),
        ("seqmean(k3)", {**OFF, **REWARD, **TOKEN}, "r = p/q"),
        ("seqmean(k3)", {**REWARD, **TOKEN}, "r = p/q"),
        ("rho*k3", {**OFF, **TOKEN}, ""),
        ("sg(rho)*k3", {**OFF, **TOKEN}, "rho*r = p/mu"),
    ],
)
def test_tails_with_parameters_and_of_tokens(loss: str, options: dict[str, str], ratio: str) -> None:
    text = warned(loss, **options)
    assert f"{ratio} is unbounded" in text if ratio else "is unbounded" not in text
