"""Values of the names in a statement: regions (1 where e > 0, else 0), log(e), e, and E[e].

A region is looked up where theta is not moved, and stays what it is there.  Differentiated that is right as
long as no sample lies where e = 0 and e moves: the gradient of a mean is refused there, and `are_clear` tells
which models have no such sample.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from klsym.kernel.definitions import LET, LOG, REGION
from klsym.kernel.ring import ExpPoly
from klsym.kernel.slots import SLOTS
from klsym.language.abbreviations import Context
from klsym.numeric.number_systems import FLOAT, Sized, System, refuse_unless

if TYPE_CHECKING:
    from klsym.numeric.model_variables import Frame, Scope

UNDECIDED = 2  # in place of a sign
MARGIN = 1e-9  # from a bound, of the size of e: nearer floats are not judged


def find_defined_value(name: str, scope: Scope, origin: Scope, at: Frame) -> Sized | None:
    """Return the value of a name that the statement defines; None for others.

    origin: the same positions where theta is not moved.
    """
    if (mean := at.context.find_mean(name)) is not None:
        rows = at.get_rows(mean.index)
        return rows.compute_mean(mean.measure, rows.evaluate_element(mean.coefficient))
    if (e := at.context.find_definition(name, LET)) is not None:
        return scope.evaluate_element(e)
    if (e := at.context.find_definition(name, LOG)) is not None:
        return _compute_log(name, scope.evaluate_element(e), at.system)
    if (e := at.context.find_definition(name, REGION)) is None:
        return None
    if at.kinks_refused:
        _refuse_kinks(name, scope.evaluate_element(e), at.system)
    if origin is not scope:
        return scope.make_constant([int(b) for b in _list_bits(origin.get_variable(name), origin.system)])
    signs = _decide_signs(scope.evaluate_element(e), at.system)
    refuse_unless(UNDECIDED not in signs, f"the sign of what defines {name} is not decided")
    return scope.make_constant([int(sign > 0) for sign in signs])


def _list_bits(region: Sized, system: System) -> list[int]:
    return system.signs(region.value, np.zeros(len(region.value)))


def _decide_signs(e: Sized, system: System) -> list[int]:
    """Return 1, 0 or -1 for each value of e, or that its sign is not decided."""
    return system.signs(e.value, np.real(e.size))


def _compute_log(name: str, e: Sized, system: System) -> Sized:
    """Return log(e) with the slope e'/e; its error is that of e, over e, besides that of a log."""
    positive = set(_decide_signs(e, system)) <= {1}
    refuse_unless(positive, f"{name} is log(e), and e <= 0 or not decided at some sample")
    return Sized(np.log(e.value), e.size * system.magnitude(1 / e.value) + system.log_magnitude(e.value))


def _refuse_kinks(name: str, e: Sized, system: System) -> None:
    """Refuse samples at which e = 0 and e moves: a mean has no derivative there that is told by e alone."""
    slopes = Sized(np.array([system.slope(x) for x in e.value]), FLOAT.slope(e.size))
    pairs = zip(_decide_signs(e, system), _decide_signs(slopes, system), strict=True)
    has_kink = any(sign == 0 and slope != 0 for sign, slope in pairs)
    refuse_unless(not has_kink, f"a sample lies where {name} changes as theta moves")


# ---------------------------------------------------------------------------- models without bounds
def are_clear(elements: Iterable[ExpPoly], at: Frame) -> bool:
    """Is e away from 0 at every sample, batch and step, for each of some elements?"""
    return all(_is_clear(e, at) for e in elements)


def are_positive(elements: Iterable[ExpPoly], at: Frame) -> bool:
    """Is e > 0 at every sample, batch and step, for each of some elements?"""
    signs_of_elements = (
        _decide_signs(at.get_rows(choose_index(e, at.context)).evaluate_element(e), at.system)
        for e in elements
    )
    return all({*signs} <= {1} for signs in signs_of_elements)


def _is_clear(e: ExpPoly, at: Frame) -> bool:
    values = at.get_rows(choose_index(e, at.context)).evaluate_element(e)
    if at.system is FLOAT:
        return bool(np.all(np.abs(np.real(values.value)) > MARGIN * np.real(values.size)))
    return not {0, UNDECIDED} & {*_decide_signs(values, at.system)}


def are_at_least_0(elements: Iterable[ExpPoly], at: Frame) -> bool:
    """Is e at least 0 at every sample, batch and step, for each of some elements?"""
    signs_of_elements = (
        _decide_signs(at.get_rows(choose_index(e, at.context)).evaluate_element(e), at.system)
        for e in elements
    )
    return all({*signs} <= {0, 1} for signs in signs_of_elements)


def choose_index(e: ExpPoly, context: Context) -> str:
    """Return the first index that has all slots of which an element speaks.

    >>> choose_index(ExpPoly.from_variable("k1[past]") + ExpPoly.from_variable("R"), Context())
    't'
    """
    indices = [index for index, slots in SLOTS.items() if context.collect_slots(e) <= {*slots}]
    refuse_unless(bool(indices), "what is defined speaks of slots that no mean has")
    return indices[0]
