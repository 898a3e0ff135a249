"""A record is what a frozen dataclass is."""

from __future__ import annotations

import pickle
from copy import deepcopy
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace

import pytest

from klsym.records import record


class Named:
    """Checks its name."""

    name: str

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a name expected")


@record
class Record(Named):
    name: str
    parts: dict[str, int] = field(default_factory=dict)
    note: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True)
class Data(Named):
    name: str
    parts: dict[str, int] = field(default_factory=dict)
    note: str = field(default="", compare=False, repr=False)


@record
class Larger(Record):
    size: int = 0


@record
class Point:
    x: int
    y: int = 0


def test_it_is_made_shown_and_compared_as_a_dataclass_is():
    for kind in (Record, Data):
        one = kind("a", {"k1": 1}, note="first")
        assert repr(one) == f"{kind.__name__}(name='a', parts={{'k1': 1}})"
        assert (
            one == kind("a", {"k1": 1}) and one != kind("b", {"k1": 1}) and one != ("a", {"k1": 1}, "first")
        )
        assert kind("a").parts == {} and kind("a").parts is not kind("a").parts
    assert [row.name for row in fields(Record)] == [row.name for row in fields(Data)]
    assert Record.__match_args__ == Data.__match_args__


def test_records_of_two_kinds_differ_and_one_may_extend_another():
    assert Larger("a", size=2) == Larger("a", {}, "", 2) and Larger("a") != Record("a")
    assert hash(Point(1)) == hash(Point(1, 0)) and {Point(1), Point(1, 0)} == {Point(1)}


@pytest.mark.parametrize("change", [lambda x: setattr(x, "x", 2), lambda x: delattr(x, "x")])
def test_it_is_frozen(change):
    with pytest.raises(FrozenInstanceError):
        change(Point(1))


@pytest.mark.parametrize("make", [Point, lambda: Point(1, 2, 3), lambda: Point(1, z=2)])
def test_wrong_arguments_are_refused(make):
    with pytest.raises(TypeError):
        make()


def test_it_is_checked_when_it_is_made_and_when_it_is_replaced():
    with pytest.raises(ValueError, match="a name expected"):
        Record("")
    with pytest.raises(ValueError, match="a name expected"):
        replace(Record("a"), name="")


def test_it_is_copied_and_pickled():
    one = Record("a", {"k1": 1}, "note")
    assert deepcopy(one) == one and pickle.loads(pickle.dumps(one)) == one
