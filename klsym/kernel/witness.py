"""A witness: values of a sample at which the facts of a context all hold.  Trusted; standard library only.

A fact e >= 0 holds at every sample and at every step.  The witness describes samples that are all alike, each
a sequence of T equal steps: V = V[self] = V[other], V = T V[now] for what is a sum over the steps, and
length[now] = 1.  A[now] may be anything beside A.  So the facts do not exclude one another.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from klsym.errors import Refused
from klsym.kernel.names import parse_name
from klsym.kernel.ring import ExpPoly, Number, read_number

BATCH_SIZE = "n"  # a parameter, and no function


def read_witness(data: Any, facts: tuple[ExpPoly, ...]) -> tuple[tuple[str, Number], ...]:
    """Return a value of each name in the facts, at which each of them is a number that is at least 0."""
    if not isinstance(data, dict) or set(data) != {name for e in facts for name in e.names()}:
        raise Refused("context: witness: a value for each name in the facts expected")
    witness = {name: read_number(value) for name, value in sorted(data.items())}
    values = {name: ExpPoly.from_number(value) for name, value in witness.items()}
    for e in facts:
        numbers = e.substitute(values).terms
        if set(numbers) - {((), ())} or numbers.get(((), ()), 0) < 0:
            raise Refused("context: witness: a fact fails there, or its value is no rational number")
    _refuse_unless_sampled(witness)
    return tuple(witness.items())


def _refuse_unless_sampled(found: dict[str, Number]) -> None:
    """Are these the values of samples and steps that are all alike?"""
    if not _is_whole(found.get(BATCH_SIZE, 2), 2):
        raise Refused("context: witness: n is the size of a batch: a whole number, at least 2")
    of_samples: dict[str, Number] = {}
    of_steps: dict[str, Number] = {"length": 1}
    for name, value in found.items():
        parsed = parse_name(name)
        recorded = of_steps if parsed.slot == "now" else of_samples
        if recorded.setdefault(parsed.base, value) != value:
            raise Refused(f"context: witness: no sample has {name} = {value}")
    steps = of_samples.get("length")
    for base, value_of_step in of_steps.items():
        total = of_samples.get(base)
        if total is None or base == "A" or total == value_of_step == 0:
            continue
        count = Fraction(total) / value_of_step if value_of_step else 0
        steps = count if steps is None else steps
        if count != steps or not _is_whole(count, 1):
            raise Refused(
                f"context: witness: no sequence has {base} = {total} and {base}[now] = {value_of_step}"
            )


def _is_whole(value: Number, least: int) -> bool:
    return value >= least and value == int(value)
