"""Sums over the tokens of a sequence in a loss: past(x), now(x), future(x), whole(x), and T.  Untrusted.

    past(x) = sum_{u<t} x_u      future(x) = sum_{u>t} x_u      whole(x) = sum_u x_u      T = whole(1)
    togo(h) = now(h) + future(h)                seqmean(x) = whole(x)/T

A bare name is that of token t; A is the same at every token.  A sum of constants times k1, log q, R is
written in the variables of slots, which are such sums.  Any other one is that of H, whose value at each token
is given, and stands where nothing differentiates it: within sg(.), or in a detached reward.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from klsym.convert import to_ring, to_sympy
from klsym.engine.explain_setting import Setting
from klsym.engine.objectives import moves
from klsym.errors import NotInRing, UsageError
from klsym.kernel.sums import SUMS
from klsym.language import A, H, Slot, length, now, parameter, past, rho, sg, without_sg
from klsym.names import SAMPLE_BASES, parse_name
from klsym.render import losses
from klsym.render.losses import Written
from klsym.render.spelling import TEXT
from klsym.ring import ONE, ZERO, ExpPoly
from klsym.slots import at_slot
from klsym.sums import Here, OverBatch, OverVocabulary, Summed, Whole

T = parameter("T")
WEIGHTS = {"token": now(rho), "prefix": past(rho) * now(rho), "sequence": rho}
ADVANTAGE = A  # theta-free, of the whole sequence: the same at each of its tokens
OF_H = {"past": Slot("past")(H), "now": now(H), "future": Slot("future")(H)}
OF_ONE_TOKEN = "a sum over the tokens before or after one: choose level token"
OF_MANY_RATIOS = (
    "would be a sum of ratios, one for each token: the ratio of them all is exp({name}(log ratio))"
)
MOVES = (
    "is no sum of k1, log q, R and constants, and it is differentiated here: write the loss of each token and"
    " leave out the sum, or put sg(..) around it, which is another loss"
)
TWO_SUMS = (
    "two different sums over tokens that are none of k1, log q, R and constants are not handled together"
)


class Beyond(NotInRing):
    """In the ring, and still beyond what the theorems on sums over tokens and samples speak of."""


@dataclass(frozen=True)
class TokenLoss:
    """A loss at token t in the variables of slots; given: the value of H at a token, where it holds H."""

    expression: Any
    given: dict[str, Any] = field(default_factory=dict)


def names_slots(expression: Any) -> bool:
    """Does it hold a sum over tokens?"""
    return bool(expression.atoms(Summed))


def names_batches(expression: Any) -> bool:
    """Does it hold a sum over the other samples of a batch?"""
    return bool(expression.atoms(OverBatch))


def names_vocabulary(expression: Any) -> bool:
    """Does it hold a sum over the vocabulary?"""
    return bool(expression.atoms(OverVocabulary))


def at_token(expression: Any, setting: Setting) -> TokenLoss:
    """The loss at token t, over T for aggregate mean."""
    at_t = now(expression).xreplace({now(A): ADVANTAGE, now(rho): WEIGHTS[setting.weights], T: length})
    at_t = at_t / length if setting.averaged else at_t
    for of in at_t.atoms(Summed):
        if not isinstance(of, Here) and not of.args[0].has(Summed) and _is_a_ratio(to_ring(of.args[0])):
            raise UsageError(f"{_shown(of)} {OF_MANY_RATIOS.format(name=of.name)}")
    return written_out(at_t, detached=setting.use == "reward")


def of_sequence(written: Written) -> Written:
    """The loss of a whole sequence: T is its length, and a sum over all tokens is that of the sequence."""
    expression = written.expression
    for of in expression.atoms(Summed):
        if not isinstance(of, Whole):
            raise UsageError(f"{of} in {written.text[:60]!r}: {OF_ONE_TOKEN}")
        if not _adds_up(now(of.args[0]).xreplace({now(A): ADVANTAGE, T: length})):
            raise UsageError(
                f"{of} in {written.text[:60]!r} is no sum of k1, log q, R and constants, and so it is no"
                " function of the sequence as one sample: choose level token"
            )
    whole = {of: _of_whole(of) for of in expression.atoms(Whole)}
    return Written(written.text, expression.xreplace(whole).xreplace({T: length}))


def _adds_up(of: Any) -> bool:
    try:
        return is_additive(to_ring(of))
    except NotInRing:
        return False


def _of_whole(of: Any) -> Any:
    return to_sympy(summed(to_ring(now(of.args[0]).xreplace({now(A): ADVANTAGE, T: length})), "x"))


def written_out(expression: Any, detached: bool) -> TokenLoss:
    """The sums over tokens as variables of slots; detached: nothing is differentiated."""
    given: dict[str, Any] = {}

    def walk(e: Any, still: bool) -> Any:
        if isinstance(e, Summed):
            before = dict(given)
            inner = e.func(walk(e.args[0], still))
            if given != before:
                raise Beyond(TWO_SUMS)
            return _sum(inner, still, given)
        if not e.args or not e.has(Summed):
            return e
        return e.func(*(walk(part, still or isinstance(e, sg)) for part in e.args))

    return TokenLoss(walk(expression, detached), given)


def _sum(of: Any, still: bool, given: dict[str, Any]) -> Any:
    element = to_ring(of.args[0])
    if of.slot == "now" and not still:
        return of.args[0]
    if is_additive(element):
        return to_sympy(summed(element, of.slot))
    if not still and any(map(moves, element.names())):
        raise UsageError(f"{_shown(of)} {MOVES}")
    value = to_sympy(to_ring(without_sg(of.args[0])))
    if given.setdefault("H[now]", value) != value:
        raise Beyond(TWO_SUMS)
    return OF_H[of.slot] if of.slot != "x" else sum(OF_H.values())


def _shown(of: Any) -> str:
    return f"{of.name}({TEXT(losses.tree_of(_plain(of.args[0])))})"


def _plain(expression: Any) -> Any:
    """As it was typed: without the slot now."""
    return expression.xreplace(
        {x: type(x)(x.name.removesuffix("[now]"), **x.assumptions0) for x in expression.free_symbols}
    )


def _is_a_ratio(element: ExpPoly) -> bool:
    """Is it one power of r and rho alone?"""
    if len(element.terms) != 1:
        return False
    [(monomial, exponent)] = element.terms
    return bool(exponent) and not any(is_random(name) for name, _ in monomial)


def is_random(name: str) -> bool:
    """Does it differ from token to token?  What is said of the whole sequence does not, but for its sums."""
    parsed = parse_name(name)
    return parsed.slot != "x" or parsed.base in (*SUMS, "A")


def _at_token(name: str) -> bool:
    parsed = parse_name(name)
    return parsed.slot == "now" and parsed.base in SAMPLE_BASES


def is_additive(element: ExpPoly) -> bool:
    """Is each term one variable that is summed over tokens, or none, times what is the same at each?"""
    for monomial, exponent in element.terms:
        inside = [name for m, _ in exponent for name, _ in m if parse_name(name).slot != "x"]
        powers = [power for name, power in monomial if parse_name(name).slot != "x"]
        elsewhere = any(parse_name(n).slot != "now" for n, _ in monomial if parse_name(n).slot != "x")
        if inside or elsewhere or powers not in ([], [1]):
            return False
    return True


def summed(element: ExpPoly, slot: str) -> ExpPoly:
    """The sum over the tokens of a slot; that of a constant is their number times it."""
    count = ONE if slot == "now" else ExpPoly.variable(at_slot("length", slot))

    def moved(name: str) -> str:
        if not _at_token(name):
            return name
        bare = name.replace("[now]", "")
        return at_slot(bare, slot)

    total = ZERO
    for key, value in element.terms.items():
        term = ExpPoly({key: value})
        total = total + (term.rename(moved) if any(map(_at_token, term.names())) else term * count)
    return total
