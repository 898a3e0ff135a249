"""Both sides of a refuted equation, as numbers in its model."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from klsym.engine.proof.derivation import Proof
from klsym.study.figures.style import BLACK, COLOURS, PAGE, open_panels


def sides(proof: Proof) -> tuple[float, float]:
    """Both sides of a refuted statement in its finite model, from the certificate's enclosures.

    >>> from klsym.study.ledger.settle_claim import recall
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


def list_refuted() -> list[tuple[str, float, float]]:
    """Each refuted printed form, with both of its sides in the model that refutes it."""
    from klsym.study.ledger import registry
    from klsym.study.ledger.settle_claim import recall

    rows = []
    for claim in registry.corrected():
        settled = recall(claim.id)
        for number, part in enumerate(settled.parts, start=1):
            if part in settled.proofs and part.theorem.kind == "refuted":
                rows.append((f"{claim.id} ({number})", *sides(part)))
    return rows


def draw() -> Any:
    """A line a form, from its left side to its right side: a true one would be a point."""
    rows = list_refuted()
    with open_panels(PAGE, 0.2 * len(rows) + 0.9) as (figure, ax):
        for place, (_, left, right) in enumerate(rows):
            ax.plot([left, right], [place, place], color=BLACK, lw=0.8, zorder=1)
        places = range(len(rows))
        ax.plot([left for _, left, _ in rows], places, "o", color=COLOURS["k3"], label="left side")
        ax.plot([right for _, _, right in rows], places, "s", color=COLOURS["k1"], label="right side")
        ax.set_yticks(places, [name for name, _, _ in rows])
        ax.invert_yaxis()
        ax.legend(loc="lower right")
        ax.set(xlabel="value in the model that refutes the printed form")
        ax.set_title(f"The sides of {len(rows)} printed forms differ", loc="left")
    return figure
