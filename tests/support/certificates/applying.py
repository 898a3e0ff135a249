"""One rule applied to a side, and whether what it puts in place of an atom has the value of that atom."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings

from klsym.kernel import apply_step
from klsym.kernel.slots import SLOTS
from klsym.kernel.statements import Atom, Context, Gradient, Side
from support.oracle.values import same, worth
from support.oracle.worlds import DEEP, END, THREE, TWO, WIDE, kept_world

CHECK = settings(
    derandomize=True, database=None, deadline=None, max_examples=60,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
SHAPES = {  # index -> tree and batch size of a few worlds
    "": ((DEEP, 2), (THREE, 2), (WIDE, 2)),
    "t": ((DEEP, 2), (WIDE, 2)),
    "i": ((THREE, 3), (TWO, 4), (DEEP, 2)),
    "ij": ((THREE, 2), (TWO, 3), (TWO, 4)),
    "it": ((DEEP, 2), ((TWO, END), 3), (WIDE, 2)),
}


def apply(rule: str, side: Side, data: dict[str, Any], context: Context, term: int = 0) -> tuple[Side, Any]:
    """What a rule makes of a side, and what it assumes."""
    step = {"rule": rule, "side": "left", "term": term, "factor": 0, "data": data, "result": None}
    return apply_step({"left": side}, step, context, {})


def index_of(atom: Atom) -> str:
    """The index of an atom; of a gradient that of most slots."""
    if isinstance(atom, Gradient):
        inside = [index_of(inner) for _, found in atom.of.terms for inner in found]
        return max(inside, key=lambda index: len(SLOTS[index]), default="")
    return atom.index


def assert_preserved(rule: str, atom: Atom, after: Side, context: Context, count: int = 2) -> None:
    for seed, (shape, size) in enumerate(SHAPES[index_of(atom)][:count]):
        world = kept_world(seed, shape, size)
        values = worth(atom, world), worth(after, world)
        assert same(*values), f"{rule}: {atom} is {values[0]}, got {values[1]} from {after.to_json()}"
