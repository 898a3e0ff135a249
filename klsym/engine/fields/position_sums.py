"""Sums over other positions as variables of slots, and what is written out inside them.  Untrusted.

A sum of constants times k1, log q and R becomes a variable of a slot.  Any other sum becomes the sum of H, a
premise gives its value at each position; such a sum must be detached: in sg(.), or in a reward.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy

from klsym.engine.fields.primitives import depends_on_theta
from klsym.engine.regions.piecewise import PIECEWISE, Unfolding
from klsym.errors import NotInRing, UsageError
from klsym.kernel.names import HELD, SAMPLE_BASES, parse_name
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.kernel.slots import at_slot
from klsym.kernel.statements import Context
from klsym.kernel.sums import SUMS
from klsym.language.convert import is_in_ring, to_ring, to_sympy
from klsym.language.expressions import GIVEN, Estimator, Slot, others, own, parameter, sg, without_sg
from klsym.language.sums import OverBatch, Summed
from klsym.notation import losses
from klsym.notation.printers import TEXT

PLAIN = Context()
FUNCTIONS = (sympy.exp, sympy.log, sympy.Pow)
T, n, m = parameter("T"), parameter("n"), parameter("m")  # m stands for n - 1, which has an inverse
ADDS_UP = ("k1", "w", "o", "log_q", "R", "M", *HELD)  # what has a sum over positions; A has none
ATTACHED_SUM = (
    "is no sum of k1, log q, R and constants, and it is differentiated here: write the loss of each token and"
    " leave out the sum, or put sg(..) around it, which is another loss"
)
MOVES_IN_BATCH = (
    "is differentiated here, and is no sum of k1, log q, R and constants: not handled; sg(..) around it makes"
    " it another loss, which is"
)
MANY_SUMS = f"it has more than {len(HELD)} different sums that are none of k1, log q, R and constants"
LATER = (
    "it has a sum over tokens of what depends on later tokens too, as future(..), T, seqmean(..) and rho with"
    " weights sequence do, and is no sum of k1, log q, R and constants"
)
NESTED = "it has a sum of sums that are none of k1, log q, R and constants"


class UnsupportedSum(NotInRing):
    """In the ring, and still beyond what the theorems on sums over tokens and samples speak of."""


def in_slots(
    expression: Any, index: str, detached: bool, regions: Unfolding | None = None
) -> tuple[Any, dict[str, Any]]:
    """The sums over other positions as variables of slots, and what H is; detached: nothing moves.

    regions: where min, max, clip, abs, logs and powers are written out.
    """
    given: dict[str, Any] = {}
    kind = {"t": (Summed,), "i": (OverBatch,), "": ()}[index]

    def walk(e: Any, still: bool) -> Any:
        if isinstance(e, kind):
            before = dict(given)
            inner = e.func(walk(e.args[0], still))
            if given != before:
                raise UnsupportedSum(NESTED)
            context = PLAIN if regions is None else regions.context
            return (_over_tokens if index == "t" else _over_samples)(inner, still, given, context)
        if isinstance(e, PIECEWISE) and regions is not None:
            return to_sympy(regions(e, [to_ring(walk(part, still)) for part in e.args], still))
        if index == "i" and e.is_Pow and e.exp.is_negative and e.base == n - 1:
            return m**e.exp
        whole = e.is_Pow and e.exp.is_Integer and e.exp > 0
        if regions is not None and isinstance(e, FUNCTIONS) and not (whole or is_in_ring(e)):
            return to_sympy(regions.smooth(e.func, *(to_ring(walk(part, still)) for part in e.args)))
        if not e.args or isinstance(e, Estimator):
            return e
        return e.func(*(walk(part, still or isinstance(e, sg)) for part in e.args))

    return walk(expression, detached), given


def added_up(of: Any) -> Any:
    """future(R) is R_future, where it is a sum of numbers of tokens."""
    if of.slot == "now":
        return of.args[0]
    each = to_ring(of.args[0]) if is_in_ring(of.args[0]) else None
    return of if each is None or not adds_up(each, "now") else to_sympy(summed(each, of.slot))


def _over_tokens(of: Any, still: bool, given: dict[str, Any], context: Context) -> Any:
    if of.slot == "now":
        return of.args[0]
    element, total = to_ring(of.args[0]), sympy.S.Zero
    if adds_up(element, "now", context):
        return to_sympy(summed(element, of.slot))
    _refuse_moving(of, element, ATTACHED_SUM, still)
    slots = ("past", "now", "future") if of.slot == "x" else (of.slot,)
    for front, each in _apart(element, context):  # what is the same at each token stands in front of the sum
        if adds_up(each, "now", context):
            total = total + to_sympy(front * summed(each, of.slot))
        elif not context.speaks_of(each) <= {"past", "now"}:  # the kernel's H[now] is known once now is drawn
            raise UnsupportedSum(LATER)
        else:
            held = _give(given, "now", to_ring(without_sg(to_sympy(each))))
            total = total + to_sympy(front) * sum(Slot(slot)(held) for slot in slots)
    return total


def _over_samples(of: Any, still: bool, given: dict[str, Any], context: Context) -> Any:
    element = to_ring(of.args[0])
    if adds_up(element, "self", context):
        mine, rest = of.args[0], to_sympy(summed(element, "others", "self"))
    else:
        _refuse_moving(of, element, MOVES_IN_BATCH, still)
        value = to_ring(without_sg(of.args[0])).rename(lambda x: x.replace("[self]", ""))
        held = _give(given, "x", value)
        mine, rest = own(held), others(held)
    return of.of(mine, rest).subs(1 / (n - 1), 1 / m)


def _refuse_moving(of: Any, element: ExpPoly, why: str, still: bool) -> None:
    if not still and any(map(depends_on_theta, element.names())):
        raise UsageError(f"{shown_sum(of)} {why}")


def _give(given: dict[str, Any], slot: str, value: ExpPoly) -> Any:
    """The first of H, H2, .. that is free is this at one position."""
    for held in GIVEN:
        if given.setdefault(at_slot(held.name, slot), to_sympy(value)) == to_sympy(value):
            return held
    raise UnsupportedSum(MANY_SUMS)


def _apart(element: ExpPoly, context: Context) -> Iterator[tuple[ExpPoly, ExpPoly]]:
    """The terms by the factor that is the same at each token, such as 1/T and the ratio of them all."""

    def whole(x: str) -> bool:
        known = parse_name(x).base in SAMPLE_BASES or context.defined(x) is not None
        return known and not _varies(x, context)

    found: dict[Any, ExpPoly] = {}
    for (monomial, exponent), value in element.terms.items():
        powers = tuple((x, power) for x, power in monomial if whole(x))
        inside = tuple((inner, v) for inner, v in exponent if inner and all(whole(x) for x, _ in inner))
        front = ExpPoly({(powers, inside): 1})
        found[front] = found.get(front, ZERO) + ExpPoly({(monomial, exponent): value}) * front.inverse()
    yield from found.items()


def adds_up(element: ExpPoly, mine: str, context: Context = PLAIN) -> bool:
    """Is each term at most one variable that has a sum over positions, times what is the same at each?

    context: defines names such as a region of rho_past*rho_now, which differs from token to token.
    """
    for monomial, exponent in element.terms:
        inside = [name for inner, _ in exponent for name, _ in inner if _varies(name, context)]
        moving = [(parse_name(name), power) for name, power in monomial if _varies(name, context)]
        alone = all(x.slot == mine and x.base in ADDS_UP and power == 1 for x, power in moving)
        if inside or len(moving) > 1 or not alone:
            return False
    return True


def _varies(name: str, context: Context) -> bool:
    """Does it differ from token to token?"""
    if context.defined(name) is None:
        return parse_name(name).slot != "x"
    return not context.speaks_of(ExpPoly.variable(name)) <= {"x"}


def summed(element: ExpPoly, slot: str, mine: str = "now") -> ExpPoly:
    """The sum over the positions of a slot; that of a constant is their number times it."""
    number = {"now": ONE, "others": to_ring(n) - 1}.get(slot) or ExpPoly.variable(at_slot("length", slot))

    def moved(name: str) -> str:
        at = f"[{mine}]"
        return at_slot(name.replace(at, ""), slot) if at in name else name

    total = ZERO
    for key, value in element.terms.items():
        term, there = ExpPoly({key: value}), ExpPoly({key: value}).rename(moved)
        total = total + (there if there != term or slot == mine else term * number)
    return total


def shown_sum(of: Any) -> str:
    return f"{of.name}({TEXT(losses.tree_of(plain(of.args[0])))})"


def plain(expression: Any) -> Any:
    """As it was typed: without the slot of the position."""
    return expression.xreplace(
        {
            x: type(x)(x.name.removesuffix("[now]").removesuffix("[self]"), **x.assumptions0)
            for x in expression.free_symbols
        }
    )


def is_a_ratio(of: Any) -> bool:
    """Is it one power of r and rho alone?"""
    if not is_in_ring(of) or len(to_ring(of).terms) != 1:
        return False
    [(monomial, exponent)] = to_ring(of).terms
    random = [parse_name(name) for name, _ in monomial]
    return bool(exponent) and not any(x.slot != "x" or x.base in (*SUMS, "A") for x in random)
