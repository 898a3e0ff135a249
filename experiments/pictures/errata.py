"""Errata as a picture: both sides of each refuted equation in its model."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from klsym.engine.proof.derivation import Proof
from klsym.figures.style import BLACK, GREY, ORANGE, PAGE, panels


def sides(proof: Proof) -> tuple[float, float]:
    """Both sides of a refuted statement in its finite model, from the certificate's enclosures.

    >>> from klsym.ledger.settle_claim import recall
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


def draw(refuted: Sequence[tuple[str, Proof]]) -> Any:
    """The sides of each printed form.  refuted: (name, refuted theorem)."""
    with panels(PAGE, 0.24 * len(refuted) + 0.9) as (figure, ax):
        _sides(ax, refuted)
    return figure


def _sides(ax: Any, refuted: Sequence[tuple[str, Proof]]) -> None:
    values = np.array([sides(proof) for _, proof in refuted])
    rows = np.arange(len(values))[::-1]
    ax.hlines(rows, values.min(axis=1), values.max(axis=1), color=GREY, linewidth=0.8)
    ax.plot(values[:, 0], rows, "o", color=BLACK, markersize=5, label="left side")
    ax.plot(values[:, 1], rows, "D", color=ORANGE, markersize=4.5, label="right side")
    ax.set_yticks(rows, [name for name, _ in refuted])
    ax.axvline(0, color=GREY, linewidth=0.5, linestyle=":")
    ax.set(xlabel="value in the model", ylim=(-0.6, len(values) + 0.6))
    ax.legend(loc="upper right", handletextpad=0.2)
    ax.tick_params(axis="y", length=0)
