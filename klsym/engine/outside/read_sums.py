"""Sums over other tokens or samples in losses outside the ring: a symbol stands for each.  Untrusted.

    V = sum of x over the slots of other positions,  E(log q, .., V) the loss at one position

    grad E = (dE/dlog q) s_own + sum_z (dE/dV) x' s_z        x' = dx/dlog q, z a slot that V sums over

On-policy a sum of log q - log mu has the value 0, and still its slope.  In a detached reward nothing moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import sympy

from klsym.convert import to_ring, to_sympy
from klsym.engine.fields.slot_loss import ADVANTAGE, ATTACHED_SUM, T, adds_up, summed
from klsym.engine.options.expand_options import weight_of
from klsym.engine.options.settings import Setting
from klsym.engine.outside.differentiate import Differentiated, differentiated
from klsym.engine.outside.position_sums import CREDITED, LossWithSums, PositionSum
from klsym.engine.regions import subgradients
from klsym.engine.regions.case_split import cases
from klsym.engine.regions.piecewise import DENSITIES, OWN
from klsym.errors import NotInRing, UsageError
from klsym.language import (
    REWARDS,
    A,
    OverPositions,
    length,
    log_mu,
    log_q,
    now,
    own,
    rho,
    sg,
    unfold,
    without_sg,
)
from klsym.notation.losses import Written
from klsym.sums import After, Before, Here, Normalised, OfOthers, OverBatch, Summed, Whole

W = log_q - log_mu
WEIGHTED = {"prefix": ("past",), "sequence": ("past", "future")}
OTHERS = {"past": ("past",), "future": ("future",), "x": ("past", "future")}
NESTED = "sums of sums over tokens or samples are not read inside clamps and other functions"
NORMALISED = "normalised(h) of what is differentiated stands inside a clamp: put sg(..) around it"


# ---------------------------------------------------------------------------- reading
def standing(written: Written, setting: Setting) -> LossWithSums:
    """The loss with symbols for its sums; raises UsageError for what is not read."""
    expression = written.expression.xreplace({rho: weight_of(setting.weights), T: length})
    found: dict[Any, PositionSum] = {}

    def walk(e: Any, still: bool) -> Any:
        if isinstance(e, OverPositions):
            return _stand(e, still, setting, found)
        if not e.args or not e.has(OverPositions):
            return e
        return e.func(*(walk(part, still or isinstance(e, sg)) for part in e.args))

    read = walk(expression, setting.use == "reward")
    return LossWithSums(read, tuple(found.values()), setting)


def _stand(e: Any, still: bool, setting: Setting, found: dict[Any, PositionSum]) -> Any:
    """The value at the position itself, and the symbol for the rest."""
    of = e.args[0]
    if of.has(OverPositions):
        raise UsageError(f"{e}: {NESTED}")
    if isinstance(e, Here):
        return of
    if isinstance(e, OverBatch) and (still or not of.has(log_q)):
        return _known(e, of, (), found, setting).symbol
    if isinstance(e, Normalised):
        raise UsageError(f"{e}: {NORMALISED}")
    stand = _known(e, of, OTHERS[e.slot] if isinstance(e, Summed) else ("others",), found, setting)
    if stand.slope is None and not still:
        raise UsageError(f"{e} {ATTACHED_SUM}")
    if isinstance(e, OverBatch):
        return e.of(of, stand.symbol)
    return of + stand.symbol if isinstance(e, Whole) else stand.symbol


def _known(
    e: Any, of: Any, slots: tuple[str, ...], found: dict[Any, PositionSum], setting: Setting
) -> PositionSum:
    """The same sum has the same symbol, whatever it stands in."""
    key = (slots, of) if slots else e
    if key not in found:
        base = "log_q" if of.has(log_q) else "R"  # sg(..) keeps what moves
        symbol = sympy.Symbol(f"{base}[{'other' + 'r' * len(found)}{OWN}]", real=True)
        sampled = sympy.expand(unfold(subgradients.at_sampling(of, setting.on_policy)))
        vanishes = bool(slots) and sampled == 0
        found[key] = PositionSum(
            symbol, slots, of, _slope(of), vanishes, _typed(e, of, slots), _shown(e, of, slots)
        )
    return found[key]


def _slope(of: Any) -> Any:
    """d of/dlog q where that is a constant."""
    slope = sympy.expand(unfold(subgradients.at_sampling(sympy.diff(of, log_q), on_policy=False)))
    return None if slope.has(*DENSITIES, *REWARDS, length) else slope


def _typed(e: Any, of: Any, slots: tuple[str, ...]) -> Any:
    """The sum over others alone, in the grammar."""
    kinds = {"past": Before, "future": After, "others": OfOthers}
    return sum((kinds[slot](of) for slot in slots), sympy.S.Zero) if slots else e


def _shown(e: Any, of: Any, slots: tuple[str, ...]) -> Any:
    """In variables of slots where it is a sum of k1, log q, R and constants, as it was typed elsewhere."""
    with_A = now(without_sg(of)).xreplace({now(A): ADVANTAGE, now(length): length})
    try:
        if slots == ("others",) and adds_up(to_ring(own(without_sg(of))), "self"):
            return to_sympy(summed(to_ring(own(without_sg(of))), "others", "self"))
        if slots and slots != ("others",) and adds_up(to_ring(with_A), "now"):
            return sum((to_sympy(summed(to_ring(with_A), slot)) for slot in slots), sympy.S.Zero)
    except NotInRing:
        pass
    return _typed(e, of, slots)


def in_grammar(at: LossWithSums) -> tuple[Any, Setting]:
    """The loss as it may be typed: rho for the weights that it stands for, or those written out."""
    weight = next(
        (x.symbol for x in at.stands if x.slots == WEIGHTED.get(at.setting.weights) and x.of == W), None
    )
    if weight is not None:
        typed = _with_rho(at.expression, weight, at.setting.weights)
        if not typed.has(weight):
            return at.back(typed), at.setting
    weights = "token" if at.setting.weights else ""
    return at.back(at.expression), replace(at.setting, weights=weights)


def _with_rho(e: Any, past: Any, weights: str) -> Any:
    """The inverse of `weight_of`: rho for exp(past)*rho, or for exp(log q - log mu + past) of a sequence."""
    if weights == "prefix":
        return e.xreplace({rho: rho * sympy.exp(-past)})

    def of_sequence(x: Any) -> Any:
        power = sympy.expand(x.args[0]).coeff(past)
        return rho**power * sympy.exp(sympy.expand(x.args[0] - power * (W + past)))

    return e.replace(lambda x: isinstance(x, sympy.exp) and x.has(past), of_sequence)


# ---------------------------------------------------------------------------- the gradient
@dataclass(frozen=True)
class FieldCoefficients:
    """h of each slot: the gradient at one position is the sum of h s over the slots.

    part: the loss where only the position itself moves, differentiated.
    """

    of: Mapping[str, Any]
    part: Differentiated


def pushes_of(at: LossWithSums, text: str) -> FieldCoefficients:
    """By SymPy, for each slot that moves; rewards meet the scores that they are credited to."""
    still = {stand.symbol: sympy.S.Zero for stand in at.stands if stand.vanishes}
    part = differentiated(Written(text, at.expression.xreplace(still)), at.setting)
    found = {at.own: part.h}
    if at.setting.use == "reward":
        found |= dict.fromkeys(CREDITED.get(at.setting.credit, ()), part.h.xreplace({A: sympy.S.Zero}))
        return FieldCoefficients({slot: h for slot, h in found.items() if h != 0}, part)
    for stand in at.stands:
        if stand.slope in (None, 0) or not at.expression.has(stand.symbol):
            continue
        fixed = at.expression.xreplace({log_q: sg(log_q)})
        moved = (0 if stand.vanishes else stand.symbol) + stand.slope * (log_q - sg(log_q))
        moved = fixed.xreplace({stand.symbol: moved, **{k: v for k, v in still.items() if k != stand.symbol}})
        h = differentiated(Written(text, moved), at.setting).h
        for slot in stand.slots:
            found[slot] = found.get(slot, sympy.S.Zero) + h
    return FieldCoefficients({slot: h for slot, h in found.items() if h != 0}, part)


def without_empty_branches(pushes: FieldCoefficients) -> FieldCoefficients:
    """The same where a single branch of h is ever taken: h is what it is there."""
    rows = {slot: cases(h) for slot, h in pushes.of.items()}
    settled = {
        slot: rows[slot][0].coefficient if len(rows[slot]) == 1 else h for slot, h in pushes.of.items()
    }
    return replace(pushes, of={slot: h for slot, h in settled.items() if h != 0})
