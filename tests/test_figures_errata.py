"""The picture of the errata draws the enclosures of the certificates, and nothing that was not refuted."""

import pytest

from klsym.figures.errata import draw, sides
from klsym.ledger import load, recall


def refuted():
    for name, claim in load().items():
        if claim.verdict == "corrected":
            yield from ((name, proof) for proof in recall(name).proofs if proof.theorem.kind == "refuted")


def test_the_sides_of_the_zero_mean_variable_by_hand():
    # E_q[1 - q/p] at q = (1/2, 1/2), p = (1/4, 3/4): 1 - (2 + 2/3)/2
    (proof,) = (proof for name, proof in refuted() if name == "value.zero-mean-variable")
    assert sides(proof) == pytest.approx((1 - (2 + 2 / 3) / 2, 0))


def test_a_proved_theorem_has_no_refuting_model():
    with pytest.raises(ValueError, match="no model refutes it"):
        sides(recall("gradient.k3-loss").proofs[0])


def test_each_row_holds_the_two_sides():
    rows = list(refuted())
    (ax,) = draw(rows).axes
    drawn = [line.get_xdata() for line in ax.lines if len(line.get_xdata()) == len(rows)]
    assert [list(x) for x in drawn] == [list(x) for x in zip(*(sides(p) for _, p in rows), strict=True)]
