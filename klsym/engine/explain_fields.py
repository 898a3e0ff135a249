"""The expected gradient of token losses and of token rewards, as it stands before it is reduced.  Untrusted.

    use loss      E_m[sum_t grad L_t]
    use reward    E_m[sum_t s_t h_t]

The credit of a reward is written as a sum over tokens (explain_slots.py): h_t for same-token, togo(h) for
to-go, whole(h) for total.  Where such a sum is one of H, whose value at each token is given, it is exchanged,
sum_t s_t sum_{u>t} H_u = sum_u H_u sum_{t<u} s_t, and then H_u = h_u.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from klsym.convert import to_ring, to_sympy
from klsym.engine.derivation import Derivation, derive
from klsym.engine.explain_samples import sampled_from, uses_sampler
from klsym.engine.explain_setting import Setting
from klsym.engine.explain_slots import (
    ADVANTAGE,
    Beyond,
    TokenLoss,
    is_additive,
    is_random,
    summed,
    written_out,
)
from klsym.engine.indexed import sum_over_t, token_gradient
from klsym.engine.objectives import at_policy, moves, primitive
from klsym.engine.quantities import expected_gradient
from klsym.errors import ProofError, UsageError
from klsym.kernel.derivatives import attach, slopes
from klsym.language import Slot, log_q, now, s, sg, without_sg
from klsym.names import LOG_RATIOS, parse_name
from klsym.ring import ONE, ZERO, ExpPoly
from klsym.slots import at_slot
from klsym.sums import Whole, togo
from klsym.unfolding import d_log_q

RANDOM_ADVANTAGE = (
    "A times something random cannot be credited to other tokens: write R for token rewards, or choose credit"
    " same-token"
)
TIMES_ANOTHER = (
    "a sum over other tokens stands beside something that changes from token to token, and is none of k1,"
    " log q, R and constants: this is not handled"
)
ONE_POWER = "with weights sequence the reward of a token is one power of rho times what holds no rho"


@dataclass(frozen=True)
class Field:
    """An expected gradient.

    start: as it is written.  exchanged: the same with later rewards summed where they arise.
    attached: a loss with this gradient, sum_u sg(h_u) sum_{t<=u} log q_t for rewards-to-go.
    whole: h where the field is E_m[h s] for the whole sequence as one sample.
    constant: what `attached` leaves out, a loss of the whole sequence.
    """

    start: Derivation
    exchanged: Derivation
    attached: Any
    under: str
    whole: Any = None
    constant: Any = 0


def field_of(loss: TokenLoss, setting: Setting) -> Field:
    """The expected gradient of a token loss, or of token rewards; raises UsageError beyond the ring."""
    element = to_ring(loss.expression)
    under, on_policy = sampled_from(element, setting), uses_sampler(element, setting)
    given = dict(loss.given)
    if setting.on_policy:  # what is given stands in sg(..) or in a reward: its value alone counts
        given = {name: to_sympy(at_policy(to_ring(value))) for name, value in given.items()}
    if setting.use == "loss":
        return _of_loss(loss, under, on_policy, given)
    h = without_sg(loss.expression)
    if setting.on_policy:
        h, under, on_policy = to_sympy(at_policy(to_ring(h))), "q", False
    if setting.credit in ("to-go", "total"):
        credited = written_out(_credited(to_ring(h), setting), detached=True)
        h, given = credited.expression, credited.given
    start = derive(sum_over_t(h * now(s), under), given=given, on_policy=on_policy)
    element = to_ring(h)
    if given:
        return Field(start, _exchanged(start), _detached({"now": element}, given), under)
    whole = h if all(parse_name(name).slot == "x" for name in element.names()) else None
    found = None if setting.on_policy or whole is not None else primitive(element, "now")
    attached = sg(h) * now(log_q) if found is None else to_sympy(found)
    return Field(start, start, attached, under, whole)


def _of_loss(loss: TokenLoss, under: str, on_policy: bool, given: dict[str, Any]) -> Field:
    constant, rest = same_at_every_token(loss.expression, moving=True)
    quantity = token_gradient(rest, under)
    quantity = quantity + expected_gradient(constant, under) if constant else quantity
    start = derive(quantity, on_policy=on_policy, given=given)
    if not given:
        return Field(start, start, rest, under, _of_the_whole(start, loss.expression), constant)
    moved = derive(token_gradient(rest, under), on_policy=on_policy, given=given).differentiate()
    slots = {atoms[0].score[0]: atoms[0].coefficient * c for c, atoms in moved.left.terms}  # type: ignore[attr-defined]
    return Field(start, _exchanged(start.differentiate()), _detached(slots, given), under, constant=constant)


def _of_the_whole(start: Derivation, loss: Any) -> Any:
    """h with E_m[sum_t grad L_t] = E_m[h s], where L_t adds up to a loss of the sequence."""
    terms = (ExpPoly({key: value}) for key, value in to_ring(loss).terms.items())
    element = sum((term for term in terms if any(map(moves, term.names()))), ZERO)
    of_sequence = {parse_name(n).base for n in element.names() if parse_name(n).slot == "x"}
    if not of_sequence & {*LOG_RATIOS}:
        return None
    if is_additive(element):
        return to_sympy(attach(d_log_q(summed(element, "x"), start.context)))
    moved = {slot: attach(slope) for slot, slope in slopes(element, "t", start.context).items()}
    same = {*moved} == {"now"} and all(parse_name(name).slot == "x" for name in moved["now"].names())
    return to_sympy(moved["now"]) if same else None  # sum_t h s_t = h s


def same_at_every_token(loss: Any, moving: bool = False) -> tuple[Any, Any]:
    """C and D_t with L_t = C/T + D_t, C of the whole sequence: as sum_t 1/T = 1, sum_t L_t = C + sum_t D_t.

    A loss that is the same at every token, and not over T, is C/T for C = T L.
    moving: only what has a gradient.

    >>> from klsym.language import length, log_q, now, rho
    >>> same_at_every_token(rho / length + now(log_q) / length)
    (rho, log_q[now]/length)
    >>> same_at_every_token(rho, moving=True)
    (length*rho, 0)
    """
    element = to_ring(loss)
    constant, times_T = ZERO, moving and is_the_same(element)
    for key, value in element.terms.items():
        term = ExpPoly({key: value})
        whole = all(parse_name(name).slot == "x" for name in term.names())
        if (
            whole
            and (times_T or ("length", -1) in key[0])
            and (not moving or any(moves(name) for name in term.names()))
        ):
            constant = constant + term
    if not constant:
        return 0, loss
    return to_sympy(constant * ExpPoly.variable("length")), to_sympy(element - constant)


def is_the_same(element: ExpPoly) -> bool:
    """Is a loss of tokens that of the sequence at each token, and no sum of terms over T?"""
    names = [parse_name(name) for name in element.names()]
    of_sequence = bool(names) and all(name.slot == "x" for name in names)
    over_T = all(("length", -1) in monomial for monomial, _ in element.terms)
    return of_sequence and not over_T and any(name.base in LOG_RATIOS for name in names)


def _credited(h: ExpPoly, setting: Setting) -> Any:
    """front (advantage + togo(reward)), or whole(reward)."""
    front, advantage, reward = _split(h, setting)
    of = to_sympy(reward)
    credited = Whole(of) if setting.credit == "total" else togo(of)
    return to_sympy(front) * (to_sympy(advantage) + credited)


def _split(h: ExpPoly, setting: Setting) -> tuple[ExpPoly, ExpPoly, ExpPoly]:
    """h = front (advantage + reward): 1/T and the weight of the whole sequence stand in front of the sum."""
    front = ExpPoly.variable("length").inverse() if setting.averaged else ONE
    if setting.weights == "sequence":
        powers = {dict(exponent).get((("w", 1),), 0) for _, exponent in h.terms}
        if len(powers) > 1:
            raise UsageError(ONE_POWER)
        front = front * (ExpPoly.variable("w") * (powers or {0}).pop()).exp()
    advantage, reward = ZERO, ZERO
    for key, value in h.terms.items():
        term = ExpPoly({key: value}) * front.inverse()
        names = {name for name in term.names() if is_random(name)}
        if "w" in names:
            raise UsageError(ONE_POWER)
        if not names & to_ring(ADVANTAGE).names():
            reward = reward + term
        elif (term * to_ring(ADVANTAGE).inverse()).names() & names:
            raise UsageError(RANDOM_ADVANTAGE)
        else:
            advantage = advantage + term
    return front, advantage, reward


def _exchanged(start: Derivation) -> Derivation:
    """The rewards of other tokens, summed where they arise."""
    current = start
    for slot in ("future", "past"):
        for number, (_, atoms) in enumerate(current.left.terms):
            held = _holding(at_slot("H", slot), atoms[0].coefficient)  # type: ignore[attr-defined]
            if not held:
                continue
            data: dict[str, Any] = {"now": "s", "other": "H", "slot": slot, "part": held.to_json()}
            try:
                current = current.step("exchange of sums", number, **data)
            except ProofError:
                raise Beyond(TIMES_ANOTHER) from None
            break
    return current


def _holding(name: str, element: ExpPoly) -> ExpPoly:
    return sum((ExpPoly({k: v}) for k, v in element.terms.items() if name in ExpPoly({k: v}).names()), ZERO)


def _detached(slots: Mapping[str, ExpPoly], given: dict[str, Any]) -> Any:
    """A loss with the gradient sum_z c_z s_z, H_u put where it arises: sum_u sg(h_u) sum_{t<u} log q_t."""
    total: Any = 0
    for slot, c in slots.items():
        for key, value in c.terms.items():
            term = ExpPoly({key: value})
            held = [name for name, _ in key[0] if parse_name(name).base == "H"]
            if not held:
                total = total + sg(to_sympy(term)) * _log_q(slot)
                continue
            if len(held) > 1 or slot != "now":
                raise Beyond(TIMES_ANOTHER)
            factor = to_sympy(term * ExpPoly.variable(held[0]).inverse())
            meets = {"future": "past", "now": "now", "past": "future"}[parse_name(held[0]).slot]
            total = total + sg(factor * given["H[now]"]) * _log_q(meets)
    return total


def _log_q(slot: str) -> Any:
    return log_q if slot == "x" else Slot(slot)(log_q)
