"""The supports that a verdict outside the ring needs, on models in which a density goes to 0.

    E_mu[h s] = sum mu h s where mu > 0        E_q[h s/rho] = sum mu h s where q > 0

An outcome with q = 0 counts on the left alone, one with mu = 0 on the right alone.  q goes to 0 as the square
of a distance, so that s is 2/distance.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import klsym
from klsym.errors import UsageError
from support.losses.productions import RULES
from support.losses.random_losses import generate
from support.oracle.losses import Forest, Setting, sample
from support.scale import scaled

OFF = {"sampling": "off-policy"}
NEAR = 1e-9
SMALL = 1e-3
LINES = {
    "mu << q": "mu << q: wherever mu > 0, also q > 0",
    "q << mu": "q << mu: wherever q > 0, also mu > 0",
    "q << p": "q << p: wherever q > 0, also p > 0",
    "p << q": "p << q: wherever p > 0, also q > 0",
}
BOTH = "mu << q, q << mu"


def needed(loss: str, use: str = "loss") -> str:
    """The supports of the change of measure, by what vanishes at an outcome in limits."""
    found = []
    for density, name in (("q", "mu << q"), ("mu", "q << mu")):
        if max(left_out(loss, use, density, NEAR)) > SMALL:
            found.append(name)
    return ", ".join(found)


def left_out(loss: str, use: str, density: str, near: float) -> list[float]:
    """|mu h s| at the outcome where the density is almost 0, for several values of all else."""
    terms = []
    for p, other, old, (R, A) in product(
        (0.13, 0.61), (0.21, 0.47), (0.3,), ((1.7, -1.3), (-0.6, 0.9), (1.1, 2.3))
    ):
        tiny = near**2 if density == "q" else near
        q, mu = (tiny, other) if density == "q" else (other, tiny)
        world = sample([q, 1 - q], [p, 1 - p], [mu, 1 - mu], [R, 0.4], [A, 0.2])
        world.root.__dict__.update(log_old=np.log([old, 1 - old]), M=np.array([1.0, 1.0]))
        h = Forest([world], ("off-policy",)).coefficient(loss, Setting("off-policy", use))
        score = 2 / near if density == "q" else 1.0
        terms.append(abs(float(mu * h.value[0] * score)))
    return terms


def told(hypotheses: tuple[str, ...], *names: str) -> str:
    names = names or ("mu << q", "q << mu")
    return ", ".join(name for name in names if LINES[name] in hypotheses)


@pytest.mark.parametrize(
    ("loss", "use", "supports"),
    [
        ("rho/(1 + r)", "loss", "q << mu"),
        ("rho*max(0, k1)", "loss", "q << mu"),
        ("rho*abs(r - 1)/2", "loss", "q << mu"),
        ("min(rho*A, clip(rho, 0.8, 1.2)*A)", "loss", "q << mu"),
        ("min(rho*A, A)", "loss", "q << mu"),
        ("rho*log(1 + r)", "loss", "q << mu"),
        ("rho*sqrt(1 + r)", "loss", "mu << q, q << mu"),
        ("rho*sqrt(1 + sqrt(r))", "loss", "q << mu"),
        ("abs(k1)", "loss", "mu << q"),
        ("sqrt(1 + k1**2)", "loss", "mu << q"),
        ("max(k1, r)", "loss", "mu << q"),
        ("log(1 + r)", "loss", "mu << q"),
        ("clip(rho, 0.8, 1.2)*A", "loss", ""),
        ("clip(k1, -1, 1)", "loss", ""),
        ("1/(1 + r)", "loss", ""),
        ("max(rho, 2)*A", "loss", "q << mu"),
        ("min(rho_old*A, clip(rho_old, 0.8, 1.2)*A)", "loss", ""),
        ("sg(rho)*abs(k1)", "loss", "q << mu"),
        ("sg(min(rho, 2))*k3", "loss", "mu << q"),
        ("sg(rho)*max(k3, k2)", "loss", BOTH),
        ("abs(rho - 1)*rho", "loss", "q << mu"),
        ("min(rho, 2)*clip(k3, 0, 5)", "loss", ""),
        ("max(rho, k1)*k1", "loss", "q << mu"),
        ("clip(k1, -1, 1)", "reward", "mu << q"),
        ("rho*abs(k1)", "reward", "q << mu"),
        ("min(rho, 1)*A", "reward", ""),
        ("abs(A)", "reward", "mu << q"),
        ("rho*max(r, 1)", "reward", BOTH),
    ],
)
@pytest.mark.share(3)
def test_supports_are_those_of_the_limits(loss: str, use: str, supports: str) -> None:
    """Printed where they are needed; a theorem about regions asks for what its terms need one by one."""
    assert needed(loss, use) == supports
    verdict = klsym.explain(loss, use=use, **OFF)
    found = told(verdict.hypotheses)
    assert found == supports or (verdict.trust == "kernel" and covers(found, supports))


def covers(found: str, wanted: str) -> bool:
    return set(filter(None, wanted.split(", "))) <= set(found.split(", "))


def test_no_support_is_forgotten_on_random_losses() -> None:
    """What is printed covers what the limits need; few are printed that they do not need."""
    counts = {"asked": 0, "more": 0}
    losses = [(text, use) for text in RULES["smooth"] for use in ("loss", "reward")]
    random = [generate("ties", 17, n) for n in range(scaled(120, 24)) if n % 4 in (2, 3)]  # those off-policy
    losses = losses[:: scaled(1, 4)] + [(case.text, case.use) for case in random]
    for loss, use in losses:
        try:
            verdict = klsym.explain(loss, use=use, parameters=["lam"], **OFF)
        except UsageError:
            continue
        if "beta" in loss or "lam" in loss:
            continue
        counts["asked"] += 1
        found, wanted = told(verdict.hypotheses), needed(loss, use)
        assert covers(found, wanted), loss
        counts["more"] += found != wanted and verdict.trust != "kernel"
    assert counts["asked"] > scaled(60, 12)
    assert counts["more"] <= counts["asked"] // 10, counts


@pytest.mark.parametrize(
    ("loss", "options", "supports"),
    [
        ("max(k2, k3) + min(k2, k3) - k3", {}, "q << p"),
        ("max(k2, k3) + min(k2, k3) - k2", {}, "p << q"),
        ("abs(k1)", {}, ""),
        ("clip(k1, -1, 1)", {"use": "reward"}, ""),
    ],
)
def test_a_divergence_that_is_named_is_finite(loss: str, options: dict[str, str], supports: str) -> None:
    hypotheses = klsym.explain(loss, **options).hypotheses
    said = " ".join(hypotheses)  # as a line of its own, or beside the means that exist
    assert [name for name in ("q << p", "p << q") if name in said] == [supports] * bool(supports)
    assert not told(hypotheses)


@pytest.mark.parametrize(
    ("loss", "weights", "supports"),
    [
        ("clip(rho, 0.8, 1.2)*A", "token", "mu << q"),  # the prefix is left to mu
        ("clip(rho, 0.8, 1.2)*A", "prefix", "mu << q"),  # the tokens to come are
        ("clip(rho, 0.8, 1.2)*A", "sequence", ""),
        ("min(rho*A, clip(rho, 0.8, 1.2)*A)", "token", BOTH),
        ("min(rho*A, clip(rho, 0.8, 1.2)*A)", "sequence", "q << mu"),
        ("rho*abs(k1)", "prefix", BOTH),
        ("abs(k1)", "token", "mu << q"),
    ],
)
def test_supports_of_tokens_are_those_of_each_slot(loss: str, weights: str, supports: str) -> None:
    verdict = klsym.explain(loss, level="token", weights=weights, **OFF)
    assert verdict.trust == "kernel" and covers(told(verdict.hypotheses), supports)


@pytest.mark.parametrize("batch", ["mean", "leave-one-out"])
@pytest.mark.parametrize(("loss", "supports"), [("clip(k1, -1, 1)", "mu << q"), ("rho*abs(k1)", BOTH)])
def test_the_mean_that_is_taken_off_asks_for_its_support(loss: str, supports: str, batch: str) -> None:
    """E_mu[h] E_mu[s] sums mu s, which does not vanish with q."""
    assert covers(told(klsym.explain(loss, batch=batch, **OFF).hypotheses), supports)
