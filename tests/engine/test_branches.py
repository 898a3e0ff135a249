"""Bounds that are never active, and similar ones that narrowly are: each answer by hand and by the oracle."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import klsym
from klsym.engine.regions.root_isolation import find_joint_signs, find_signs
from klsym.language.convert import to_ring
from klsym.language.parser import parse
from support.judges.loss_fit import fit_gradient
from support.judges.loss_judge import complaints
from support.judges.loss_worlds import at_points
from support.losses.cases import case, options
from support.oracle.losses import Forest, Setting, sample
from support.scale import scaled

NEVER = [  # a loss, how it is used, its target
    ("max(k2, k1 - 0.5)", "", "reverse-kl"),  # k2 - k1 + 1/2 = (k1 - 1)^2/2
    ("max(-k1, r/2)", "", "forward-kl"),  # r/2 + k1 >= 1 - log 2
    ("max(k1, -2*r)", "", "zero"),
    ("max(k1*r, 1)", "", "zero"),  # k1 r <= 1/e
    ("max((r*k1), sg(k1))*rho", "", "reverse-kl"),  # k1 (1 - r) >= 0
    ("min((r*k1), sg(k1))*rho", "", "forward-kl"),
    ("min(-k1, r**2)", "reward", "reverse-kl"),  # r^2 + k1 >= (1 + log 2)/2
    ("max(k3, k1 - 3)", "", "forward-kl"),  # k3 - k1 + 3 = r + 2
    ("min(k2, k1**4 + 0.1)", "", "reverse-kl"),  # x^2 - x/2 + 1/10 has no real zero
    ("abs(k2 - k1 + 1)", "", "reverse-kl"),
    ("clip(k2, k1 - 1, k2 + 1)", "", "reverse-kl"),
    ("max(rho - 1, log_q - log_mu)", "off", "zero"),  # exp(w) >= 1 + w
    ("max(rho*k3, -rho/5)", "off", "reverse-kl"),
    ("max(rho*k1, rho*(k1 - 1))", "off", "reverse-kl"),
    ("max(k1, 0)*max(r - 1, 0)", "", "zero"),  # k1 > 0 and r > 1 exclude one another
    ("max(k1, 0)*min(r - 1, 0) - k1*(r - 1) + k2 - max(-k1, 0)*max(r - 1, 0)", "", "reverse-kl"),
    ("min(k1, exp(k1)/2)", "", "zero"),  # exp(k1)/2 - k1 >= 1 - log 2
    ("max(k3, -eps**2)", "", "forward-kl"),
    ("max(2*r + k1, 0)", "", "forward-kl"),
    ("max(k1**4*r - 2*k1**2*r + r, 0) - k1**4*r + 2*k1**2*r - r + k3", "", "forward-kl"),
]
NARROW = [  # a loss, how it is used, the multiples of both gradients without its bound, a k1 where it binds
    ("max(k2, k1 - 0.4999)", "", (1, 0), 1.01),
    ("max(-k1, r/2.72)", "", (0, 25 / 68), -1.02),
    ("max(k1, -r/3)", "", (0, 0), -1.1),
    ("max(k1*r, 0.36787)", "", (0, 0), 1.004),
    ("max((r*k1), sg(k1) - 0.001)*rho", "", (1, 0), 0.01),
    ("min(-k1, r**2 - 0.847)", "reward", (-1, 0), 0.3466),
    ("min(k2, k1**4 + 0.06)", "", (1, 0), 0.52),
    ("abs(k2 - k1 + 0.499)", "", (1, 0), 1.02),
    ("max(k1, 0)*max(r - 0.99, 0)", "", (0, 0), 0.005),
    ("min(k1, exp(k1)/2.72)", "", (0, 0), 1.01),
    ("max(k3, 0.00001)", "", (0, 1), 0.001),
    ("clip(k2, k1 - 0.4999, k2 + 1)", "", (1, 0), 1.01),
]


@pytest.mark.parametrize(("loss", "words", "target"), NEVER)
@pytest.mark.share(3)
def test_a_bound_that_never_binds(loss: str, words: str, target: str) -> None:
    one, verdict = case(loss, words), klsym.explain(loss, **options(words))
    assert (verdict.target, fit_gradient(one).target) == (target, target)
    assert verdict.trust in ("sympy", "kernel") and not complaints(one, verdict)


@pytest.mark.parametrize(("loss", "words", "mistaken", "at"), NARROW)
@pytest.mark.share(3)
def test_a_bound_that_binds_narrowly(loss: str, words: str, mistaken: tuple[float, float], at: float) -> None:
    """On a model with an outcome at this log ratio the mistaken name is refuted."""
    q, p = 0.05, 0.05 * math.exp(-at)
    where = Forest([sample([q, 1 - q], [p, 1 - p], [q, 1 - q], [0, 0], [0, 0])])
    stated = mistaken[0] * where.slope("k1").a + mistaken[1] * where.slope("-k1", "p").a
    assert np.abs(where.field(loss, Setting(**options(words))).a - stated).max() > 1e-6
    verdict = klsym.explain(loss, **options(words))
    assert (verdict.target, verdict.gradient.multiples, verdict.trust) == ("f-divergence", {}, "kernel")


# x^2 - 2 is squared: a zero that is no rational is touched, and no proof is found; log q is no log ratio
OPEN = (
    "max(k1**4 - 4*k1**2 + 4, 0) - k1**4 + 4*k1**2 + k2", "max(log_q, 0)", "max(k1 - 500, 0)*max(log_q, 0)",
)  # fmt: skip


@pytest.mark.parametrize("loss", OPEN)
def test_what_is_not_known_is_open(loss: str) -> None:
    verdict = klsym.explain(loss)
    answer = json.loads(json.dumps(verdict.to_json()))
    assert verdict.target is None and not verdict.gradient.multiples and answer["trust"] == "open"
    assert "open" in str(verdict) and "supported by numbers" not in str(verdict)


# ---------------------------------------------------------------------------- signs
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("k2 - k1 + 0.5", (1,)), ("k2 - k1 + 0.4999", (-1, 1)), ("k1*r - exp(-1)", (-1,)),
        ("r - exp(1)*k1*0 + k1 - 1", (1,)), ("r + k1 - 1 - 1e-12", (-1, 1)), ("rho*(2*r + k1)", (1,)),
        ("k1*r - 0.36787944117144232", (-1, 1)), ("k1*r - 0.36787944117144233", (-1,)),
        ("k1**3 - k1", (-1, 1)), ("(k1**2 - 1)**2*r", (1,)), ("exp(k1) + r - 2 - k1**2", (1,)),
        ("exp(k1) + r - 2 - 1.0001*k1**2", (-1, 1)), ("k1**4 - 4*k1**2 + 4", None), ("log_q", None),
        ("A*(rho - 1)", None), ("-rho**2*k3 - 1", (-1,)), ("k1 - k1*r", (1,)), ("exp(k1**2) - 1", None),
    ],
)  # fmt: skip
def test_signs(text: str, expected: tuple[int, ...] | None) -> None:
    assert find_signs(to_ring(parse(text))) == expected


def test_signs_agree_with_values_on_a_grid() -> None:
    stream = np.random.default_rng(3)
    x, decided = np.linspace(-9, 9, 4001), 0
    for _ in range(scaled(100, 16)):
        terms = stream.integers(-4, 5, size=(4, 3))
        text = " + ".join(f"({c})*k1**{abs(n)}*exp({a}*k1)" for c, n, a in terms)
        if not to_ring(parse(text)):
            continue
        found = find_signs(to_ring(parse(text)))
        with np.errstate(all="ignore"):
            values = sum(c * x ** abs(int(n)) * np.exp(float(a) * x) for c, n, a in terms)
            size = sum(np.abs(c * x ** abs(int(n)) * np.exp(float(a) * x)) for c, n, a in terms)
        seen = {int(np.sign(v)) for v in values[np.abs(values) > 1e-9 * size]}
        assert found is None or seen <= set(found)
        decided += found is not None
    assert decided > scaled(60, 10)


def test_signs_that_occur_together() -> None:
    def pairs(*texts: str) -> set[tuple[int, ...]] | None:
        found = find_joint_signs(tuple(to_ring(parse(text)) for text in texts))
        return None if found is None else set(found)

    assert pairs("k1", "1 - r") == {(1, 1), (-1, -1)}
    assert pairs("k1", "k1 - 0.5") == {(-1, -1), (1, -1), (1, 1)}
    assert pairs("k1", "rho - 1") is None  # of two variables


# ---------------------------------------------------------------------------- at a kink
KINKS = [
    # loss, the slope in log q at q = p = mu, where every sample meets the kink
    ("abs(k1)", 0.0), ("rho*abs(k1)", 0.0), ("clip(k1, 0, 1)", 1.0), ("clip(k1, -1, 0)", 1.0),
    ("max(k1, 0)", 0.5), ("min(k1, 0)", 0.5), ("clip(k1, -1, 1)", 1.0), ("abs(k1) + k1", 1.0),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "slope"), KINKS)
def test_what_is_printed_has_the_slope_of_pytorch_at_a_kink(loss: str, slope: float) -> None:
    """A number, not 0/0, where training starts; and the printed coefficient is the same one."""
    torch = pytest.importorskip("torch")
    same = np.full(4, -1.3)
    verdict = klsym.explain(loss)
    for text in (verdict.gradient.score_text, verdict.gradient.canonical_text):
        found = at_points(text, log_q=same, log_p=same, log_mu=same, R=np.ones(4), A=np.ones(4))
        assert np.array_equal(found, np.full(4, slope)), text
    x = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    if "clip" not in loss:  # torch.clamp has other slopes from 2.14 on
        zero = torch.zeros(1, dtype=torch.float64)
        calls = {
            "abs(k1)": lambda: torch.abs(x), "rho*abs(k1)": lambda: torch.exp(x) * torch.abs(x),
            "max(k1, 0)": lambda: torch.maximum(x, zero), "min(k1, 0)": lambda: torch.minimum(x, zero),
            "abs(k1) + k1": lambda: torch.abs(x) + x,
        }  # fmt: skip
        calls[loss]().sum().backward()
        assert float(x.grad) == slope
