"""Both sides of a refuted equation, as numbers in its model."""

from __future__ import annotations

from fractions import Fraction

from klsym.engine.proof.derivation import Proof


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
