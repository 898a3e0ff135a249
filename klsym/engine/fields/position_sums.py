"""Replace sums over other positions by variables of slots.  Untrusted.

A sum of constants times k1, log q and R becomes a variable of a slot.  Any other sum becomes the sum of H, a
premise gives its value at each position; such a sum must be detached: in sg(.), or in a reward.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy

from klsym.engine.fields.primitives import has_slope
from klsym.engine.regions.piecewise import PIECEWISE, Unfolding
from klsym.errors import NotInRing, UsageError
from klsym.kernel.names import HELD, SAMPLE_BASES, parse_name
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.kernel.slots import name_in_slot
from klsym.kernel.statements import Context
from klsym.kernel.sums import SUMS
from klsym.language.convert import is_in_ring, to_ring, to_sympy
from klsym.language.expressions import GIVEN, Estimator, Slot, others, own, parameter, remove_sg, sg
from klsym.language.sums import Divided, OverBatch, Summed
from klsym.notation import losses
from klsym.notation.printers import TEXT

PLAIN = Context()
FUNCTIONS = (sympy.exp, sympy.log, sympy.Pow)
T, n, m = parameter("T"), parameter("n"), parameter("m")  # m stands for n - 1, which has an inverse
SUMMABLE_NAMES = ("k1", "w", "o", "log_q", "R", "M", *HELD)  # what has a sum over positions; A has none
ATTACHED_SUM = (
    "is no sum of k1, log q, R and constants, and it is differentiated here: write the loss of each token and"
    " leave out the sum, or put sg(..) around it, which is another loss"
)
ATTACHED_BATCH_SUM = (
    "is differentiated here, and is no sum of k1, log q, R and constants: not handled; sg(..) around it makes"
    " it another loss, which is"
)
MANY_SUMS = f"it has more than {len(HELD)} different sums that are none of k1, log q, R and constants"
DEPENDS_ON_LATER_TOKENS = (
    "it has a sum over tokens of what depends on later tokens too, as future(..), T, seqmean(..) and rho with"
    " weights sequence do, and is no sum of k1, log q, R and constants"
)
NESTED_SUMS = "it has a sum of sums that are none of k1, log q, R and constants"


class UnsupportedSum(NotInRing):
    """A loss in the ring with a sum that no theorem on sums over tokens or samples covers."""


def replace_sums(
    expression: Any, index: str, detached: bool, regions: Unfolding | None = None
) -> tuple[Any, dict[str, Any]]:
    """Return the expression with variables of slots for its sums over other positions, and the values of H.

    detached: no sum depends on theta.  regions: collects the regions of min, max, clip and abs, and logs.
    """
    sum_values: dict[str, Any] = {}
    kind = {"t": (Summed,), "i": (OverBatch,), "": ()}[index]

    def walk(e: Any, in_sg: bool) -> Any:
        if isinstance(e, kind):
            previous_values = dict(sum_values)
            inner = e.func(walk(e.args[0], in_sg))
            if sum_values != previous_values:
                raise UnsupportedSum(NESTED_SUMS)
            context = PLAIN if regions is None else regions.context
            replace_sum = _replace_token_sum if index == "t" else _replace_batch_sum
            return replace_sum(inner, in_sg, sum_values, context, typed=e)
        if isinstance(e, PIECEWISE) and regions is not None:
            return to_sympy(regions(e, [to_ring(walk(part, in_sg)) for part in e.args], in_sg))
        if index == "i" and e.is_Pow and e.exp.is_negative and e.base == n - 1:
            return m**e.exp
        whole = e.is_Pow and e.exp.is_Integer and e.exp > 0
        if regions is not None and isinstance(e, FUNCTIONS) and not (whole or is_in_ring(e)):
            return to_sympy(regions.apply_smooth(e.func, *(to_ring(walk(part, in_sg)) for part in e.args)))
        if not e.args or isinstance(e, Estimator):
            return e
        return e.func(*(walk(part, in_sg or isinstance(e, sg)) for part in e.args))

    return walk(expression, detached), sum_values


def simplify_sum(token_sum: Any) -> Any:
    """Return R_future for future(R) and its like; other sums stay as they are."""
    if token_sum.slot == "now":
        return token_sum.args[0]
    summand = to_ring(token_sum.args[0]) if is_in_ring(token_sum.args[0]) else None
    return (
        token_sum
        if summand is None or not is_summable(summand, "now")
        else to_sympy(sum_over_slot(summand, token_sum.slot))
    )


def _replace_token_sum(
    token_sum: Any, in_sg: bool, sum_values: dict[str, Any], context: Context, typed: Any
) -> Any:
    if token_sum.slot == "now":
        return token_sum.args[0]
    element, total = to_ring(token_sum.args[0]), sympy.S.Zero
    if is_summable(element, "now", context):
        return to_sympy(sum_over_slot(element, token_sum.slot))
    _refuse_attached_sum(typed, element, ATTACHED_SUM, in_sg)
    slots = ("past", "now", "future") if token_sum.slot == "x" else (token_sum.slot,)
    for common_factor, summand in _split_common_factors(
        element, context
    ):  # what is the same at each token stands in front of the sum
        if is_summable(summand, "now", context):
            total = total + to_sympy(common_factor * sum_over_slot(summand, token_sum.slot))
        elif not context.collect_slots(summand) <= {
            "past",
            "now",
        }:  # the kernel's H[now] is known once now is drawn
            raise UnsupportedSum(DEPENDS_ON_LATER_TOKENS)
        else:
            sum_name = _name_detached_sum(sum_values, "now", to_ring(remove_sg(to_sympy(summand))))
            total = total + to_sympy(common_factor) * sum(Slot(slot)(sum_name) for slot in slots)
    return total


def _replace_batch_sum(
    batch_sum: Any, in_sg: bool, sum_values: dict[str, Any], context: Context, typed: Any
) -> Any:
    if isinstance(batch_sum, Divided):
        raise NotInRing(f"{losses.show(batch_sum, TEXT)} divides by a value of the batch")
    element = to_ring(batch_sum.args[0])
    if is_summable(element, "self", context):
        own_term, other_terms = batch_sum.args[0], to_sympy(sum_over_slot(element, "others", "self"))
    else:
        _refuse_attached_sum(typed, element, ATTACHED_BATCH_SUM, in_sg)
        value = to_ring(remove_sg(batch_sum.args[0])).rename(lambda x: x.replace("[self]", ""))
        sum_name = _name_detached_sum(sum_values, "x", value)
        own_term, other_terms = own(sum_name), others(sum_name)
    return batch_sum.combine(own_term, other_terms).subs(1 / (n - 1), 1 / m)


def _refuse_attached_sum(typed_sum: Any, element: ExpPoly, reason: str, in_sg: bool) -> None:
    if not in_sg and has_slope(element):
        raise UsageError(f"{format_sum(typed_sum)} {reason}")


def _name_detached_sum(sum_values: dict[str, Any], slot: str, value: ExpPoly) -> Any:
    """Return the first of H, H2, .. that is unused, or has this value already, and record the value."""
    for sum_name in GIVEN:
        if sum_values.setdefault(name_in_slot(sum_name.name, slot), to_sympy(value)) == to_sympy(value):
            return sum_name
    raise UnsupportedSum(MANY_SUMS)


def _split_common_factors(element: ExpPoly, context: Context) -> Iterator[tuple[ExpPoly, ExpPoly]]:
    """Yield pairs (factor that is the same at each token, such as 1/T; sum of the terms over it)."""

    def is_common(x: str) -> bool:
        known = parse_name(x).base in SAMPLE_BASES or context.find_definition(x) is not None
        return known and not _is_token_dependent(x, context)

    groups: dict[Any, ExpPoly] = {}
    for (monomial, exponent), value in element.terms.items():
        powers = tuple((x, power) for x, power in monomial if is_common(x))
        inside = tuple((inner, v) for inner, v in exponent if inner and all(is_common(x) for x, _ in inner))
        common_factor = ExpPoly({(powers, inside): 1})
        groups[common_factor] = (
            groups.get(common_factor, ZERO) + ExpPoly({(monomial, exponent): value}) * common_factor.invert()
        )
    yield from groups.items()


def is_summable(element: ExpPoly, own_slot: str, context: Context = PLAIN) -> bool:
    """Is each term at most one variable that has a sum over positions, times what is the same at each?

    context: defines names such as a region of rho_past*rho_now, which differs from token to token.
    """
    for monomial, exponent in element.terms:
        inside = [name for inner, _ in exponent for name, _ in inner if _is_token_dependent(name, context)]
        varying = [
            (parse_name(name), power) for name, power in monomial if _is_token_dependent(name, context)
        ]
        all_summable = all(
            x.slot == own_slot and x.base in SUMMABLE_NAMES and power == 1 for x, power in varying
        )
        if inside or len(varying) > 1 or not all_summable:
            return False
    return True


def _is_token_dependent(name: str, context: Context) -> bool:
    """Does it differ from token to token?"""
    if context.find_definition(name) is None:
        return parse_name(name).slot != "x"
    return not context.collect_slots(ExpPoly.from_variable(name)) <= {"x"}


def sum_over_slot(element: ExpPoly, slot: str, own_slot: str = "now") -> ExpPoly:
    """Sum an element over the positions of a slot; a constant is multiplied by their number."""
    number = {"now": ONE, "others": to_ring(n) - 1}.get(slot) or ExpPoly.from_variable(
        name_in_slot("length", slot)
    )

    def shift_name(name: str) -> str:
        suffix = f"[{own_slot}]"
        return name_in_slot(name.replace(suffix, ""), slot) if suffix in name else name

    total = ZERO
    for key, value in element.terms.items():
        term, shifted = ExpPoly({key: value}), ExpPoly({key: value}).rename(shift_name)
        total = total + (shifted if shifted != term or slot == own_slot else term * number)
    return total


def format_sum(typed_sum: Any) -> str:
    """Return a sum as text, such as future(k3)."""
    return f"{typed_sum.name}({TEXT(losses.build_tree(remove_slots(typed_sum.args[0])))})"


def remove_slots(expression: Any) -> Any:
    """Return the expression as it was typed: k1 for k1_now and k1_self."""
    return expression.xreplace(
        {
            x: type(x)(x.name.removesuffix("[now]").removesuffix("[self]"), **x.assumptions0)
            for x in expression.free_symbols
            if "[" in x.name
        }
    )


def is_a_ratio(expression: Any) -> bool:
    """Is it one power of r and rho alone?"""
    if not is_in_ring(expression) or len(to_ring(expression).terms) != 1:
        return False
    [(monomial, exponent)] = to_ring(expression).terms
    random = [parse_name(name) for name, _ in monomial]
    return bool(exponent) and not any(x.slot != "x" or x.base in (*SUMS, "A") for x in random)
