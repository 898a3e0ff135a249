"""Hypotheses that evidently fail, witnesses of facts, and the slots of names of expectations."""

from __future__ import annotations

from fractions import Fraction

import pytest

from klsym.errors import Refused
from klsym.kernel.assumptions import Assumptions, is_evidently_false
from klsym.kernel.definitions import Definition
from klsym.kernel.names import is_declarable
from klsym.kernel.printer import CONVENTIONS
from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import Context, Mean, Side
from klsym.kernel.witness import read_witness


def variable(name: str) -> ExpPoly:
    return ExpPoly.from_variable(name)


def number(value: int | Fraction) -> ExpPoly:
    return ExpPoly.from_number(value)


k1, R, beta, T = variable("k1"), variable("R"), variable("beta"), variable("length")
HALF = Fraction(1, 2)
WITNESSED = Context(("beta",), witness=(("beta", HALF), ("R", -1)))
DEFINED = Context(
    ("beta",),
    definitions=(
        Definition("up", "region", -k1 * k1 - 1), Definition("both", "region", k1),
        Definition("e", "let", -k1 * k1), Definition("inv", "let", beta.invert()),
    ),
)  # fmt: skip
HYPOTHESES = [
    # a mean whose samples are above a bound that none is above
    (("above", "q", -k1 * k1), Context(), True),
    (("above", "q", -k1 * k1 * T), Context(), True),  # T is positive
    (("above", "q", -k1), Context(), False),  # k1 may be negative
    (("above", "q", k1 * k1), Context(), False),
    (("above", "q", k1 * k1 * number(HALF)), Context(), False),
    (("above", "q", -k1 * k1 - k1), Context(), False),
    (("above", "q", ExpPoly.from_number(0)), Context(), True),
    (("above", "q", variable("e")), DEFINED, True),
    (("above", "q", variable("up")), DEFINED, True),  # a region of what is nowhere positive is 0
    (("above", "q", variable("both")), DEFINED, False),
    (("above", "q", variable("both") - 2), DEFINED, True),  # 1 - 2 and 0 - 2 are below 0
    (("away", "q", k1 - k1), Context(), True),
    (("away", "q", k1), Context(), False),
    (("away", "q", variable("up")), DEFINED, True),
    (("away", "q", beta - number(HALF)), WITNESSED, True),
    (("above", "q", variable("both") * variable("inv")), DEFINED, False),
    # what the witness of the facts has as a value
    (("nonzero", "beta"), WITNESSED, False),
    (("positive", "beta"), WITNESSED, False),
    (("positive", "R"), WITNESSED, True),
    (("nonzero", "R"), WITNESSED, False),
    (("nonzero", "beta"), Context(("beta",), witness=(("beta", 0),)), True),
    # premises that no setting satisfies
    (("premise", Side(((number(1), ()),)), Side()), Context(), True),
    (("equal", Side(((number(1), ()),)), Side()), Context(), True),
    (("premise", Side(((beta, ()),)), Side()), Context(("beta",)), False),
    (("premise", Side(((number(1), (Mean("", "q", k1),)),)), Side()), Context(), False),
]  # fmt: skip


@pytest.mark.parametrize(("hypothesis", "context", "fails"), HYPOTHESES)
def test_what_evidently_fails(hypothesis, context: Context, fails: bool) -> None:
    assert is_evidently_false(hypothesis, context) is fails


def test_what_cannot_be_written_out_is_not_evident() -> None:
    """1/beta has no value at beta = 0."""
    context = Context(("beta",), witness=(("beta", 0),))
    assert not is_evidently_false(("above", "q", -k1 * k1 * beta.invert()), context)


WITNESSES = [
    ({"R": 0, "R[now]": 0}, True),  # any number of steps
    ({"R": 2, "R[now]": 1}, True),
    ({"R": 1, "R[now]": 1}, True),
    ({"R": 3, "R[now]": 2}, False),  # no whole number of steps
    ({"R": 2, "R[now]": 0}, False),
    ({"R": 2, "R[now]": 1, "length": 2}, True),
    ({"R": 2, "R[now]": 1, "length": 3}, False),
    ({"n": 1, "R": 1}, False),  # a batch has at least two samples
    ({"n": 2, "R": 1}, True),
    ({"A": 3, "A[now]": 2}, True),  # A at a step may be anything
]


@pytest.mark.parametrize(("values", "fine"), WITNESSES)
def test_a_witness_is_a_sample(values: dict[str, int], fine: bool) -> None:
    facts = (sum((variable(name) for name in values), number(0)),)
    written = {name: str(value) for name, value in values.items()}
    if fine:
        assert dict(read_witness(written, facts)) == values
    else:
        with pytest.raises(Refused, match="context: witness"):
            read_witness(written, facts)


def test_an_expectation_speaks_of_no_slot() -> None:
    context = Context(definitions=(Definition("m", "E_q", k1), Definition("twice", "let", 2 * variable("m"))))
    assert context.find_slots("m") == context.find_slots("twice") == frozenset()
    assert context.find_slots("k1[now]") == {"now"}


def test_names_of_expectations_are_listed_in_order() -> None:
    names = [f"m{i}" for i in range(9)]
    context = Context(definitions=tuple(Definition(name, "E_q", k1) for name in reversed(names)))
    assert context.list_names_of_means(sum(map(variable, names), k1)) == names


def test_a_hypothesis_that_fails_is_named_briefly() -> None:
    assumed = Assumptions(Context())
    assumed.add("above", "q", sum((-(variable(f"b{i}") ** 2) for i in range(60)), number(-1)))
    with pytest.raises(Refused) as refused:
        assumed.complete()
    assert "hypotheses: ['above'" in str(refused.value) and len(str(refused.value)) < 400


def test_the_conventions_say_where_a_mean_is_taken() -> None:
    assert sum("at a fixed theta" in sentence for sentence in CONVENTIONS) == 1


@pytest.mark.parametrize("name", ["kl", "Kl", "Iff", "COUNT", "oR", "sG"])
def test_reserved_words_are_reserved_in_any_case(name: str) -> None:
    assert not is_declarable(name)


@pytest.mark.parametrize("name", ["klx", "constants", "b", "X"])
def test_other_names_are_free(name: str) -> None:
    assert is_declarable(name)
