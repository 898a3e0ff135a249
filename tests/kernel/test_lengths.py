"""Lengths of single sequences divide, in a batch too; several names have values at one theta."""

from __future__ import annotations

import pytest

from klsym.engine.proof.derivation import derive
from klsym.engine.proof.quantities import expectation, grad
from klsym.engine.proof.sequence_quantities import mean_over_i, sum_over_t
from klsym.errors import KlsymError, Refused
from klsym.kernel.names import HELD
from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import Context
from klsym.language.expressions import GIVEN, R, future, k1, length, log_q, now, own, past, s, sg
from klsym.numeric.checks.cross_check import check_theorem

H, H2, *_ = GIVEN


def test_a_length_of_one_sequence_of_a_batch_divides() -> None:
    apart = derive(mean_over_i(own(R) * own(s) / own(length), "q")).equals(expectation(R * s / length, "q"))
    assert check_theorem(apart.theorem).passed
    assert "ends" in {message.code for message in apart.assumptions}


@pytest.mark.parametrize(
    "name", ["length[others]", "length[past]", "length[future]", "length[rest]", "R[self]"]
)
def test_what_may_be_0_does_not_divide(name: str) -> None:
    slots = ("past", "now", "future", "self", "others", "other", "rest", "x")
    with pytest.raises(Refused, match="division by the random variable"):
        Context().check(ExpPoly.from_variable(name).invert(), slots)


@pytest.mark.parametrize("name", ["length", "length[self]", "length[other]"])
def test_lengths_of_whole_sequences_divide(name: str) -> None:
    Context().check(ExpPoly.from_variable(name).invert(), ("self", "other", "x"))


@pytest.mark.parametrize("held", GIVEN)
def test_a_premise_on_what_is_known_at_one_theta_says_nothing_of_gradients(held: object) -> None:
    premises = ((expectation(held, "q"), expectation(k1, "q")),)
    assert derive(expectation(held, "q"), premises=premises).equals(expectation(k1, "q"), using=[(0, None)])
    with pytest.raises(KlsymError):
        derive(grad(expectation(held, "q")), premises=premises).equals(grad(expectation(k1, "q")))


def test_sums_of_two_names_have_their_values() -> None:
    start = sum_over_t((future(H) + past(H2)) * now(s), "q")
    given = {"H[now]": now(k1), "H2[now]": now(k1) ** 2}
    proof = derive(start, given=given).equals(sum_over_t(past(s) * now(k1), "q"))
    assert check_theorem(proof.theorem).passed
    with pytest.raises(KlsymError):
        derive(start, given=given).equals(sum_over_t(past(s) * now(k1) ** 2, "q"))
    with pytest.raises(KlsymError):
        derive(sum_over_t(sg(now(log_q)) * now(s), "q"), given={"k1[now]": now(R)})


def test_the_names_are_free_of_theta() -> None:
    assert [symbol.name for symbol in GIVEN] == [*HELD]
    zero = derive(sum_over_t(past(H2) * now(s), "q")).equals(0)
    assert check_theorem(zero.theorem).passed
