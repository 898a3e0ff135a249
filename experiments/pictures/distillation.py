"""Distillation: the strength of the generalised JSD, and where descent goes from q = p on some words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from klsym.study.figures.style import BLACK, COLOURS, GREY, ORANGE, PAGE, open_panels

WORDS, KEPT, STEPS, RATE = 12, 6, 400, 0.5
STRENGTHS = np.linspace(0.05, 0.95, 19)
Loss = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]  # q, p, M -> dL/dq at each word


def kl(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.sum(x * np.log(x / y)))


def strength(b: float, p: np.ndarray, move: np.ndarray, size: float = 1e-3) -> float:
    """2 JSD_b(q, p)/chi2 for q = p (1 + size move): f''(1), by the two KLs."""
    q = p * (1 + size * (move - p @ move))
    mixed = b * p + (1 - b) * q
    return 2 * (b * kl(p, mixed) + (1 - b) * kl(q, mixed)) / float(np.sum((q - p) ** 2 / p))


def truncated(q: np.ndarray, p: np.ndarray, M: np.ndarray) -> np.ndarray:
    """full(M k1) = sum_y M q log q/p"""
    return np.asarray(M * (np.log(q / p) + 1))


def bucket(q: np.ndarray, p: np.ndarray, M: np.ndarray) -> np.ndarray:
    """The same with one bucket for the rest: (1 - a) log((1 - a)/(1 - b)), a = full(M) and b = full(M r)."""
    rest = np.log((1 - M @ q) / (1 - M @ p)) + 1
    return np.asarray(truncated(q, p, M) - M * rest)


def lower_variance(q: np.ndarray, p: np.ndarray, M: np.ndarray) -> np.ndarray:
    """full(M k3) = sum_y M (p - q - q log p/q)"""
    return np.asarray(M * np.log(q / p))


def descent(slope: Loss, p: np.ndarray, M: np.ndarray) -> np.ndarray:
    """KL(q||p) after each step of gradient descent in the logits of q, from q = p."""
    z, found = np.log(p), []
    for _ in range(STEPS + 1):
        q = np.exp(z - z.max())
        q /= q.sum()
        found.append(kl(q, p))
        push = slope(q, p, M)
        z = z - RATE * q * (push - q @ push)
    return np.array(found)


def draw(seed: int = 0) -> Any:
    """Left: f''(1) of JSD_b by its definition, beside b (1 - b).  Right: descent from q = p on some words."""
    rng = np.random.default_rng(seed)
    p, M = np.sort(rng.dirichlet(np.ones(WORDS)))[::-1], 1.0 * (np.arange(WORDS) < KEPT)
    with open_panels(PAGE, 2.6, 1, 2) as (figure, (left, right)):
        grid = np.linspace(0, 1, 200)
        left.plot(grid, grid * (1 - grid), color=BLACK, lw=1, label="$b(1-b)$, the theorem")
        points = [strength(b, p, rng.normal(size=WORDS)) for b in STRENGTHS]
        left.plot(STRENGTHS, points, "o", color=ORANGE, label="measured near $q = p$")
        left.axhline(1, color=GREY, lw=0.8, ls="--")
        left.annotate("either KL", (0.5, 1), (0.5, 0.93), ha="center", va="top", color=GREY)
        left.set(xlabel="$b$, the weight of $p$ in the mixture", ylabel="$f''(1)$", ylim=(0, 1.1))
        left.set_title("(a) The JSD is weaker than either KL", loc="left")
        left.legend(loc="center", bbox_to_anchor=(0.5, 0.55))
        rows = (("full(M*k1)", truncated, COLOURS["k1"], "-"), ("with a bucket", bucket, BLACK, "--"),
                ("full(M*k3)", lower_variance, COLOURS["k3"], ":"))  # fmt: skip
        for label, slope, colour, dash in rows:
            right.plot(descent(slope, p, M), color=colour, ls=dash, label=label)
        right.set(xlabel="steps of descent, from $q = p$", ylabel=r"$\mathrm{KL}(q\,\Vert\,p)$")
        right.set_title(f"(b) The reverse KL on {KEPT} of {WORDS} words leaves $q=p$", loc="left")
        right.legend(loc="center right")
    return figure
