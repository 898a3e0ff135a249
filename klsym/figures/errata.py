"""Errata as pictures: both sides of each refuted equation in its model, a printed bias beside the exact."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from klsym.engine.derivation import Proof
from klsym.figures.style import BLACK, BLUE, GREY, PAGE, VERMILION, styled


def sides(proof: Proof) -> tuple[float, float]:
    """Both sides of a refuted statement in its finite model, from the certificate's enclosures.

    >>> from klsym.ledger import recall
    >>> left, right = sides(recall("gradient.appendix-a-sign").parts[-1])
    >>> (left, right)
    (-0.25, 0.25)

    Raises ValueError: a theorem that refutes nothing.
    """
    close = proof.theorem.close
    if "left" not in close:
        raise ValueError(f"{proof!r}: no model refutes it")
    left, right = (
        float((Fraction(low) + Fraction(high)) / 2) for low, high in (close["left"], close["right"])
    )
    return left, right


def draw(refuted: Sequence[tuple[str, Proof]], bias: Any, printed: Sequence[tuple[float, float]]) -> Any:
    """Left: the sides of each printed form.  Right: bias/KL of k2 between N(0, 1) and N(d, 1).

    refuted: (name, refuted theorem).  bias: d -> exact bias/KL.  printed: (d, printed bias/KL).
    """
    with styled() as Figure:
        figure = Figure(figsize=(PAGE, 0.32 * len(refuted) + 0.9), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1.5, 1))
        _sides(left, refuted)
        _bias(right, bias, printed)
    return figure


def _sides(ax: Any, refuted: Sequence[tuple[str, Proof]]) -> None:
    values = np.array([sides(proof) for _, proof in refuted])
    rows = np.arange(len(values))[::-1]
    ax.hlines(rows, values.min(axis=1), values.max(axis=1), color=GREY, linewidth=0.8)
    ax.plot(values[:, 0], rows, "o", color=BLUE, markersize=5, label="left side")
    ax.plot(values[:, 1], rows, "D", color=VERMILION, markersize=4.5, label="right side")
    ax.set_yticks(rows, [name for name, _ in refuted])
    ax.axvline(0, color=GREY, linewidth=0.5, linestyle=":")
    ax.set_xlabel("value in the model")
    ax.set_title("(a) both sides of what is printed", loc="left")
    ax.legend(loc="upper right", handletextpad=0.2)
    ax.set_ylim(-0.6, len(values) + 0.6)
    ax.tick_params(axis="y", length=0)


def _bias(ax: Any, bias: Any, printed: Sequence[tuple[float, float]]) -> None:
    at = np.geomspace(0.05, 2.0, 60)
    ax.loglog(at, [bias(d) for d in at], color=BLUE)
    for d, shown in printed:
        ax.plot([d], [shown], "x", color=VERMILION, markersize=6, markeredgewidth=1.5)
        ax.annotate(f"{shown:g}", (d, shown), (6, -9), textcoords="offset points", color=VERMILION)
    ax.annotate("exact", (1.4, bias(1.4)), (-28, 4), textcoords="offset points", color=BLUE)
    ax.set_xlabel(r"$d$, with $q = \mathcal{N}(0, 1)$, $p = \mathcal{N}(d, 1)$")
    ax.set_ylabel(r"bias of $k_2$ / KL", color=BLACK)
    ax.set_title(r"(b) bias of $k_2$: printed ($\times$), exact", loc="left")
