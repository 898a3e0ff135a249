"""Nodes of formulas: made like dataclasses, frozen, equal by value."""

from __future__ import annotations

import copy
import pickle

import pytest

from klsym.notation.tree import Formula, Minus, Name, Number, Power, Quotient, Sum, list_parts

HALF = Quotient(Number(1), Number(2), small=True)


def test_fields_come_by_position_by_name_or_from_their_defaults():
    assert Quotient(Number(1), under=Number(2)) == Quotient(Number(1), Number(2), False) != HALF
    assert vars(Name("k1")) == {"name": "k1", "below": "", "primes": 0}
    assert list(vars(Quotient(small=True, under=Number(2), over=Number(1)))) == ["over", "under", "small"]


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Minus(Number(1), Number(2)), ValueError),
        (lambda: Minus(of=Number(1), by=Number(2)), TypeError),
        (lambda: Power(Number(1)), AttributeError),
        (lambda: setattr(HALF, "small", False), AttributeError),
    ],
)
def test_other_uses_are_refused(make, error):
    with pytest.raises(error):
        make()


def test_equal_trees_are_one_key():
    again = Quotient(Number(1), Number(2), small=True)
    assert again == HALF and hash(again) == hash(HALF) and len({again, HALF, Minus(HALF)}) == 2
    assert Minus(Number(1)) != Number(1) and Name("r") != "r"


def test_copies_are_equal_and_print_their_fields():
    tree = Sum((Name("k1", "t"), Minus(HALF)))
    assert copy.deepcopy(tree) == pickle.loads(pickle.dumps(tree)) == tree
    assert repr(HALF) == "Quotient(over=Number(value=1), under=Number(value=2), small=True)"


def test_the_parts_of_a_node_are_formulas():
    assert list_parts(Sum((Name("k1"), HALF))) == [Name("k1"), HALF]
    assert all(isinstance(part, Formula) for part in list_parts(HALF)) and len(list_parts(HALF)) == 2
