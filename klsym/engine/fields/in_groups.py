"""A loss that is a function of sums over the group, written as one of each sample.  Untrusted.

Let the loss of all n samples be F(W_1, .., W_m), with W_k = x_k + others(x_k) the sum of x_k over the group.
Its gradient is the sum over all samples of sum_k (dF/dW_k) grad x_k.  The samples are independent, and have
one distribution, so that in expectation each adds the same:

    E[grad F] = E[n sum_k sg(dF/dW_k) grad x_k]  at one sample
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import sympy

from klsym.engine.fields.position_sums import T, is_summable, n
from klsym.engine.options.settings import Setting
from klsym.engine.regions.piecewise import PIECEWISE
from klsym.language.convert import is_in_ring, to_ring
from klsym.language.expressions import SLOTTED, OverPositions, log_q, own, remove_sg, sg, unfold
from klsym.language.messages import Message
from klsym.language.sums import OfOthers
from klsym.notation import losses
from klsym.notation.losses import Written
from klsym.notation.printers import TEXT


def rewrite_in_group(written: Written, setting: Setting) -> Written:
    """Replace each term that is a function of sums over the group by its first order at one sample.

    >>> from klsym.language.expressions import k3, rho
    >>> loss = Written("", k3 + sympy.log(1 + rho + OfOthers(rho)))
    >>> rewrite_in_group(loss, Setting("off-policy")).text
    'k3 + n*rho*sg(1/(others(rho) + rho + 1))'
    """
    is_plain = setting.is_differentiated and not (setting.is_per_token or setting.is_centred)
    if not is_plain or setting.averaged or setting.truncated:
        return written
    order = sorted(written.expression.atoms(OfOthers), key=str)
    totals = {x: sympy.Dummy(log_q.name, real=True) for x in order}  # a name for which sg(..) stays
    moving = {x: totals[x] for x in _list_moving_sums(written.expression)}
    if all(map(_is_of_log_ratios, moving)):
        return written
    named = written.expression.xreplace({x: w - x.args[0] for x, w in totals.items()})
    back = {w: x.args[0] + x for x, w in totals.items()}
    terms = sympy.Add.make_args(sympy.expand_mul(named, deep=False))
    in_sums = [term for term in terms if term.has(*moving.values())]
    if not all(_is_of_sums(term, moving.values()) for term in in_sums):
        return written
    function = sympy.Add(*in_sums)
    pairs = tuple((_find_slope(function, w, back), x.args[0]) for x, w in moving.items())
    plain = sympy.Add(*(term.xreplace(back) for term in terms if term not in in_sums))
    loss = plain + sympy.Add(*(n * sg(slope) * x for slope, x in pairs))
    note = Message("first-order-in-group", slopes=pairs)
    return Written(losses.show(loss, TEXT), loss, written.typed or written.text, (*written.notes, note))


def _list_moving_sums(e: Any) -> list[Any]:
    """Return the sums over the other samples that are differentiated."""
    opened, held = _hold(e)
    totals = (x.xreplace(held) for x in opened.atoms(OfOthers) if unfold(x.args[0]).has(log_q))
    return sorted(totals, key=str)


def _is_of_log_ratios(total: Any) -> bool:
    """Is it a sum of k1, log q, R and constants, which needs no first order?"""
    x = own(total.args[0])
    return is_in_ring(x) and is_summable(to_ring(x), "self")


def _is_of_sums(term: Any, moving: Iterable[Any]) -> bool:
    """Is it a function of sums over the group alone, and a smooth one of those that move?"""
    kinks = sympy.Tuple(*_hold(term)[0].atoms(*PIECEWISE))
    return not unfold(term).has(*SLOTTED, T, OverPositions) and not kinks.has(*moving)


def _hold(e: Any) -> tuple[Any, dict[Any, Any]]:
    """Return an expression with a name for each detached part, and the part for each name."""
    names = {x: sympy.Dummy(real=True) for x in e.atoms(sg)}
    return e.xreplace(names), {dummy: detached for detached, dummy in names.items()}


def _find_slope(function: Any, total: Any, back: Mapping[Any, Any]) -> Any:
    """Return dF/dW, with the sums over the group written out."""
    opened, held = _hold(function)
    return remove_sg(sympy.diff(opened, total).xreplace(held).xreplace(back))
