"""The expected gradient of token losses and of token rewards, as it stands before it is reduced.  Untrusted.

    use loss      E_m[sum_t grad L_t]
    use reward    E_m[sum_t s_t h_t] (same-token), with sum_{u>=t} h_u (to-go) or sum_u h_u (total) for h_t

A sum over other tokens is written out where h is linear in k1, log q, R and constants; otherwise it is that
of H, whose value at each token is given: sum_t s_t sum_{u>t} H_u = sum_u H_u sum_{t<u} s_t, then H_u = h_u.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from klsym.abbreviations import Indexed
from klsym.convert import to_ring, to_sympy
from klsym.engine.derivation import Derivation, derive
from klsym.engine.explain_pieces import ADVANTAGE
from klsym.engine.explain_samples import sampled_from, uses_sampler
from klsym.engine.explain_setting import Setting
from klsym.engine.indexed import sum_over_t, token_gradient
from klsym.engine.objectives import at_policy, moves, primitive
from klsym.engine.quantities import expected_gradient
from klsym.errors import UsageError
from klsym.kernel.sums import SUMS
from klsym.language import A, H, future, length, log_q, now, past, rho, s, sg
from klsym.names import parse_name
from klsym.ring import ONE, ZERO, ExpPoly
from klsym.slots import at_slot
from klsym.unfolding import value_in

WEIGHTS = {"token": now(rho), "prefix": past(rho) * now(rho), "sequence": rho}
CREDITED = {"to-go": (now, future), "total": (past, now, future)}  # the u of the rewards at t
SCORES = {"to-go": past(log_q) + now(log_q), "total": log_q}  # the t that meet the reward of u
RANDOM_ADVANTAGE = (
    "A times something random cannot be credited to other tokens: write R for token rewards, or choose credit"
    " same-token"
)
NOTHING_OF_T = "with weights sequence this loss is the same at every token: choose level sequence"
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


def token_loss(expression: Any, setting: Setting) -> Any:
    """LOSS at token t, over T for aggregate mean: A is any theta-free function of the whole sequence."""
    at_t = now(expression).xreplace({now(A): ADVANTAGE, now(rho): WEIGHTS[setting.weights]})
    return at_t / length if setting.averaged else at_t


def field_of(loss: Any, setting: Setting) -> Field:
    """The expected gradient of a token loss, or of token rewards; raises UsageError beyond the ring."""
    element = to_ring(loss)
    under, on_policy = sampled_from(element, setting), uses_sampler(element, setting)
    if setting.use == "loss":
        _refuse_the_same_at_every_token(element)
        constant, rest = same_at_every_token(loss, moving=True) if setting.averaged else (0, loss)
        quantity = token_gradient(rest, under)
        quantity = quantity + expected_gradient(constant, under) if constant else quantity
        start = derive(quantity, on_policy=on_policy)
        return Field(start, start, rest, under, constant=constant)
    h = loss.replace(lambda e: isinstance(e, sg), lambda e: e.args[0])
    if setting.on_policy:
        h, under, on_policy = to_sympy(at_policy(to_ring(h))), "q", False
    if setting.credit == "same-token":
        start = derive(sum_over_t(h * now(s), under), on_policy=on_policy)
        found = None if setting.on_policy else primitive(to_ring(h), "now")
        return Field(start, start, sg(h) * now(log_q) if found is None else to_sympy(found), under)
    return _credited(to_ring(h), setting, under, on_policy)


def same_at_every_token(loss: Any, moving: bool = False) -> tuple[Any, Any]:
    """C and D_t with L_t = C/T + D_t, C of the whole sequence: as sum_t 1/T = 1, sum_t L_t = C + sum_t D_t.

    moving: only what has a gradient.

    >>> same_at_every_token(rho / length + now(log_q) / length)
    (rho, log_q[now]/length)
    """
    element = to_ring(loss)
    constant = ZERO
    for key, value in element.terms.items():
        term = ExpPoly({key: value})
        whole = all(parse_name(name).slot == "x" for name in term.names())
        if whole and (not moving or any(moves(name) for name in term.names())):
            constant = constant + term
    if not constant:
        return 0, loss
    return to_sympy(constant * ExpPoly.variable("length")), to_sympy(element - constant)


def _refuse_the_same_at_every_token(element: ExpPoly) -> None:
    """The weight of a sequence alone is no loss of a token."""
    names = [parse_name(name) for name in element.names()]
    if any(name.base == "w" for name in names) and all(name.slot == "x" for name in names):
        raise UsageError(NOTHING_OF_T)


def _credited(h: ExpPoly, setting: Setting, under: str, on_policy: bool) -> Field:
    front, advantage, reward = _split(h, setting)
    given: dict[str, Any] = {}
    linear, total = _is_linear(reward), setting.credit == "total"
    if linear and total:
        summed = to_sympy(_summed(reward, "x"))
    elif linear and under == "q":
        summed = to_sympy(_summed(reward, "now") + _summed(reward, "future"))
    else:
        summed = sum(place(H) for place in CREDITED[setting.credit])
        given = {"H[now]": to_sympy(reward)}
    outer = to_sympy(front)
    scored = outer * (to_sympy(advantage) + summed) * now(s)
    start = derive(sum_over_t(scored, under), given=given, on_policy=on_policy)
    attached = sg(outer * to_sympy(advantage)) * now(log_q)
    attached = attached + sg(outer * to_sympy(reward)) * SCORES[setting.credit]
    exchanged = _exchanged(start, front) if given else start
    whole = outer * summed if linear and total and not advantage else None
    return Field(start, exchanged, attached, under, whole)


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
        names = {name for name in term.names() if _is_random(name)}
        if "w" in names:
            raise UsageError(ONE_POWER)
        if not names & to_ring(ADVANTAGE).names():
            reward = reward + term
        elif (term * to_ring(ADVANTAGE).inverse()).names() & names:
            raise UsageError(RANDOM_ADVANTAGE)
        else:
            advantage = advantage + term
    return front, advantage, reward


def _is_random(name: str) -> bool:
    parsed = parse_name(name)
    return parsed.slot != "x" or parsed.base in (*SUMS, "A")


def _is_linear(reward: ExpPoly) -> bool:
    """Is each term a constant times one variable that is summed over tokens, or a constant?"""
    for monomial, exponent in reward.terms:
        inside = [name for m, _ in exponent for name, _ in m if _is_random(name)]
        powers = [power for name, power in monomial if _is_random(name)]
        if inside or powers not in ([], [1]):
            return False
    return True


def _summed(reward: ExpPoly, slot: str) -> ExpPoly:
    """The sum of a linear reward over the tokens of a slot; that of a constant is their number times it."""
    count = ONE if slot == "now" else ExpPoly.variable(at_slot("length", slot))

    def moved(name: str) -> str:
        parsed = parse_name(name)
        return name if parsed.slot == "x" else at_slot(parsed.base, slot)

    total = ZERO
    for key, value in reward.terms.items():
        term = ExpPoly({key: value})
        random = any(_is_random(name) for name in term.names())
        total = total + (term.rename(moved) if random else term * count)
    return total


def _exchanged(start: Derivation, front: ExpPoly) -> Derivation:
    """The rewards of other tokens, summed where they arise."""
    current = start
    for slot in ("future", "past"):
        rewards = ExpPoly.variable(at_slot("H", slot))
        part = value_in(front * rewards, "t", start.context)
        data: dict[str, Any] = {"now": "s", "other": "H", "slot": slot, "part": part.to_json()}
        for number, (_, (atom,)) in enumerate(current.left.terms):
            if isinstance(atom, Indexed) and rewards.names() <= atom.coefficient.names():
                current = current.step("exchange of sums", number, **data)
                break
    return current
