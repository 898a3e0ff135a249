"""Abbreviations that are written out for the kernel, and those that have no written form."""

from __future__ import annotations

import pytest

from klsym.errors import Refused
from klsym.kernel.definitions import LOG, REGION, Definition
from klsym.kernel.ring import ExpPoly
from klsym.language.abbreviations import Context, MeanVariance, Side
from klsym.language.unfolding import unfold

W = ExpPoly.from_variable("w")
CONTEXT = Context(
    ("n",), definitions=(Definition("high", REGION, W.exp() - 1), Definition("inv", LOG, W.exp() + 1))
)


def variance(name: str) -> Side:
    """The variance of a batch's average of one variable."""
    return unfold(Side.from_atom(MeanVariance("mu", ExpPoly.from_variable(name), ())), CONTEXT)


@pytest.mark.parametrize("name", ["w[others]", "R[others]", "high[self]", "inv[self]", "A[self]"])
def test_a_variance_of_sums_is_written_out(name: str) -> None:
    assert len(variance(name).terms) == 3  # squares, pairs, the squared expectation


@pytest.mark.parametrize("name", ["high[others]", "inv[others]", "A[others]"])
def test_functions_of_all_others_are_no_sums(name: str) -> None:
    """A region of the others is not the region of one sample plus that of the rest."""
    with pytest.raises(Refused, match="no sum over positions"):
        variance(name)
