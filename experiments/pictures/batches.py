"""Centring in a batch: how much of the penalty is left, and whether leave-one-out pays.

Both are the two sides of theorems, evaluated by the exact oracle along every logit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from klsym.engine.proof.derivation import Proof
from klsym.experiments.pictures.models import along_logits, left, right
from klsym.numeric.models import FiniteModel
from klsym.study.figures.style import BLACK, COLOURS, GREY, ORANGE, PAGE, SKY, open_panels


def share_left(proof: Proof, unshrunk: Proof, model: FiniteModel, n: int) -> float:
    """The multiple of grad KL(q||p) that the left side of a theorem is, by enumeration of all batches."""
    found = along_logits(left(proof), model, n)
    whole = along_logits(right(unshrunk), model, n)
    return float(found @ whole / (whole @ whole))


def variance_ratio(loo: Proof, gain: Proof, model: FiniteModel, n: int) -> float:
    """Total variance with leave-one-out over that without centring.

    loo: Var(centred) = right side.  gain: n (Var(plain) - Var(centred)) = right side.
    """
    centred = along_logits(right(loo), model, n).sum()
    gained = along_logits(right(gain), model, n).sum() / n
    return float(centred / (centred + gained))


def draw(
    proofs: dict[str, Proof], loo: Proof, gain: Proof, small: FiniteModel, models: Sequence[FiniteModel]
) -> Any:
    """Left: the share of the penalty that is left, enumerated.  Right: the ratio of total variances.

    proofs: "none", "mean" and "leave-one-out" -> theorem.  small: enumerated; models: two of the right panel.
    """
    with open_panels(PAGE, 2.6, 1, 2) as (figure, (shares, ratios)):
        _shares(shares, proofs, small)
        _ratios(ratios, loo, gain, models)
    return figure


def _shares(ax: Any, proofs: dict[str, Proof], model: FiniteModel) -> None:
    sizes = range(2, 9)
    shown = {
        "none": ("no centring", COLOURS["vanilla"], "o", 8),
        "leave-one-out": ("leave-one-out", COLOURS["leave-one-out"], "x", 5),
        "mean": ("batch mean, $1-1/n$", ORANGE, "s", 4),
    }
    places = {"none": (2, 1.05, "left"), "leave-one-out": (8, 1.05, "right"), "mean": (4.4, 0.7, "left")}
    for name, (label, colour, mark, size) in shown.items():
        shares = [share_left(proofs[name], proofs["none"], model, n) for n in sizes]
        filled = "none" if mark == "o" else colour
        ax.plot(sizes, shares, mark, color=colour, ms=size, mfc=filled)
        x, y, side = places[name]
        ax.text(x, y, label, color=colour, fontsize=8, ha=side, va="center")
    n = np.linspace(2, 8, 200)
    ax.plot(n, 1 - 1 / n, color=ORANGE, lw=0.8, zorder=0)
    ax.set(xlabel="batch size $n$", ylabel=r"multiple of $\nabla\mathrm{KL}(q\,\Vert\,p)$", ylim=(0.4, 1.1))
    ax.set_title("(a) The mean of the batch shrinks the penalty", loc="left")


def _ratios(ax: Any, loo: Proof, gain: Proof, models: Sequence[FiniteModel]) -> None:
    sizes = [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]
    for model, colour, mark in zip(models, (SKY, BLACK), "s^", strict=True):
        ratios = [variance_ratio(loo, gain, model, n) for n in sizes]
        p = ", ".join(str(value) for value in model.p)
        ax.plot(sizes, ratios, mark + "-", color=colour, ms=4, lw=0.8)
        at = 2 if mark == "s" else 5
        ax.annotate(
            f"$p$ = ({p})", (sizes[at], ratios[at]), (8, 4), textcoords="offset points", color=colour,
            fontsize=8,
        )  # fmt: skip
    ax.axhline(1, color=GREY, lw=0.6, ls=":")
    ax.set(
        xscale="log", xlabel="batch size $n$, $q$ uniform", ylabel="total variance, leave-one-out / none",
        xticks=[2, 4, 8, 16, 32, 64], xticklabels=["2", "4", "8", "16", "32", "64"],
    )  # fmt: skip
    ax.minorticks_off()
    ax.set_title("(b) In small batches leave-one-out adds noise", loc="left")
