"""Write a loss at one position of an index, its sums over others as variables of slots.  Untrusted.

    index   own slot   other slots             sums in the grammar
    ""      x                                  whole(x), for a sequence as one sample
    i       self       others                  others(x), loo(h), centred(h)
    t       now        past, future, x         past(x), now(x), future(x), whole(x), togo(h), T

The options weights, credit, aggregate and batch are written into the loss here, and mean nothing below.
A sum of constants times k1, log q and R becomes a variable of a slot.  Any other sum becomes the sum of H, a
premise gives its value at each position; such a sum must be detached: in sg(.), or in a reward.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import sympy

from klsym.convert import is_in_ring, to_ring, to_sympy
from klsym.engine.fields.primitives import at_policy, depends_on_theta
from klsym.engine.options.settings import Setting
from klsym.engine.regions.unfolding import PIECEWISE, Unfolding, bounds_in_order, only_used, unfolding
from klsym.errors import NotInRing, UsageError
from klsym.kernel.sums import SUMS
from klsym.language import (
    ATOMS,
    GIVEN,
    A,
    Estimator,
    H,
    Slot,
    length,
    now,
    others,
    own,
    parameter,
    past,
    rho,
    sg,
    without_sg,
)
from klsym.names import HELD, SAMPLE_BASES, parse_name
from klsym.notation import formulas, losses
from klsym.notation.losses import Written
from klsym.notation.spelling import TEXT
from klsym.notation.tree import Name, quotient
from klsym.parser import MAX_EXP, MAX_POWER
from klsym.ring import ONE, ZERO, ExpPoly
from klsym.slots import LENGTHS, at_slot
from klsym.statements import Context
from klsym.sums import Centred, Here, LeftOut, OverBatch, OverVocabulary, Summed, Whole, togo
from klsym.unfolding import PLAIN

FUNCTIONS = (sympy.exp, sympy.log, sympy.Pow)
T, n, m = parameter("T"), parameter("n"), parameter("m")  # m stands for n - 1, which has an inverse
ADVANTAGE = A  # theta-free, of the whole sequence: the same at each of its tokens
ADDS_UP = ("k1", "w", "o", "log_q", "R", "M", *HELD)  # what has a sum over positions; A has none
WEIGHT_OF_OPTION = {"token": now(rho), "prefix": past(rho) * now(rho), "sequence": rho}
OF_ONE_TOKEN = "a sum over the tokens before or after one: choose level token"
OF_MANY_RATIOS = (
    "would be a sum of ratios, one for each token: the ratio of them all is exp({name}(log ratio))"
)
ATTACHED_SUM = (
    "is no sum of k1, log q, R and constants, and it is differentiated here: write the loss of each token and"
    " leave out the sum, or put sg(..) around it, which is another loss"
)
MOVES_IN_BATCH = (
    "is differentiated here, and is no sum of k1, log q, R and constants: not handled; sg(..) around it makes"
    " it another loss, which is"
)
MANY_SUMS = f"it has more than {len(HELD)} different sums that are none of k1, log q, R and constants"
NESTED = "it has a sum of sums that are none of k1, log q, R and constants"
RANDOM_ADVANTAGE = (
    "A times something random cannot be credited to other tokens: write R for token rewards, or choose credit"
    " same-token"
)


class UnsupportedSum(NotInRing):
    """In the ring, and still beyond what the theorems on sums over tokens and samples speak of."""


@dataclass(frozen=True)
class SlotLoss:
    """A loss at one position.

    expression: what is differentiated; detached: what multiplies the score of the position instead.
    sums: H, H2, .. -> their values at one position.  under, copied: the measure, or a detached copy of q.
    centred: h, where it is h less its mean over the batch that is asked for, detached.
    defined: the regions and logs in it; typed: what is differentiated, before they are put in.
    label: how the loss was written; each: what it is at the position, before rewards are credited.
    """

    index: str
    expression: Any
    under: str
    copied: bool = False
    detached: bool = False
    sums: Mapping[str, Any] = field(default_factory=dict)
    label: Written | None = None
    each: Any = None
    centred: ExpPoly | None = None
    defined: Context = PLAIN
    typed: Any = None

    @property
    def own(self) -> str:
        """The slot of the position itself."""
        return {"": "x", "i": "self", "t": "now"}[self.index]

    def label_of(self, expression: Any) -> Written:
        return Written(TEXT(losses.tree_of(plain(expression))), plain(expression))

    @property
    def typed_label(self) -> Written:
        typed = self.typed.replace(lambda e: isinstance(e, OverBatch), plain)
        typed = typed.replace(lambda e: isinstance(e, Summed), _added_up)
        return Written(losses.show(typed, TEXT), typed)

    @property
    def element(self) -> ExpPoly:
        return to_ring(self.expression)


# ---------------------------------------------------------------------------- from a loss as it is written
def slot_loss(written: Written, setting: Setting, roots: bool = False) -> SlotLoss:
    """The loss at a position; raises NotInRing outside the ring, UsageError for what is not handled.

    roots: regions that zeros of functions show to be empty are left out, which no theorem follows.
    """
    index = index_of(written, setting)
    detached, regions = setting.use == "reward", unfolding_of(written.expression, setting)
    regions.roots = roots
    typed = placed(written.expression, setting, index)
    expression, sums = in_slots(typed, index, detached, regions)
    if roots or typed.has(sympy.Heaviside):  # a product of comparisons may be empty
        expression = to_sympy(regions.tidy(to_ring(expression)))
    each = expression
    refuse_unless_moderate(to_ring(expression), written, {*LENGTHS})
    if detached and index == "t" and setting.credit in ("to-go", "total"):
        h = to_ring(without_sg(expression))
        whole = credited(at_policy(h) if setting.on_policy else h, setting.credit)
        expression, sums = in_slots(whole, index, detached, regions)
    label = over_length(written) if setting.averaged and index != "t" else written
    placed_loss = sampled(expression, sums, index, setting, detached, label)
    elements = [placed_loss.element, *map(to_ring, placed_loss.sums.values())]
    defined = only_used(regions.context, *elements)
    typed = typed if defined.definitions else None
    return replace(placed_loss, each=each, defined=defined, typed=typed)


def sampled(
    expression: Any,
    sums: Mapping[str, Any],
    index: str,
    setting: Setting,
    detached: bool,
    label: Written | None,
) -> SlotLoss:
    """With its measure: on-policy what is detached is its value, where rho is 1."""
    if setting.on_policy:
        sums = {name: to_sympy(at_policy(to_ring(value))) for name, value in sums.items()}
    if detached and not index:  # one sample is shown as it was written
        expression = sg(expression)
    elif detached:
        expression = without_sg(expression)
        expression = to_sympy(at_policy(to_ring(expression))) if setting.on_policy else expression
    element = to_ring(expression)
    copied = uses_sampler(element, setting)
    return SlotLoss(index, expression, sampled_from(element, setting), copied, detached, sums, label)


def index_of(written: Written, setting: Setting) -> str:
    if setting.level == "token":
        return "t"
    return "i" if names_batches(written.expression) else ""


def placed(expression: Any, setting: Setting, index: str) -> Any:
    """At one position, weights and 1/T put in."""
    if index == "t":
        at = now(expression).xreplace(
            {now(A): ADVANTAGE, now(rho): WEIGHT_OF_OPTION[setting.weights], T: length}
        )
        _refuse_sums_of_ratios(at)
    else:
        at = own(expression / length if setting.averaged else expression) if index == "i" else expression
    return at / length if setting.averaged and index != "i" else at


def _refuse_sums_of_ratios(at_t: Any) -> None:
    for of in sorted(at_t.atoms(Summed), key=str):
        if not isinstance(of, Here) and not of.args[0].has(Summed) and _is_a_ratio(of.args[0]):
            raise UsageError(f"{_shown(of)} {OF_MANY_RATIOS.format(name=of.name)}")


def credited(h: ExpPoly, credit: str) -> Any:
    """togo(h) or whole(h); A is of the whole sequence, and each score meets it once."""
    once, each = ZERO, ZERO
    for key, value in h.terms.items():
        term = ExpPoly({key: value})
        if "A" not in term.names():
            each = each + term
        elif any(parse_name(name).slot != "x" for name in term.names()):
            raise UsageError(RANDOM_ADVANTAGE)
        else:
            once = once + term
    of = to_sympy(each)
    return to_sympy(once) + (togo(of) if credit == "to-go" else Whole(of))


def unfolding_of(expression: Any, setting: Setting) -> Unfolding:
    """Where the regions of a loss are gathered."""
    parameters = {x.name for x in expression.free_symbols} - {*ATOMS, *SAMPLE_BASES, "T"}
    return unfolding(setting.on_policy, parameters, bounds_in_order(expression))


def centred(h: ExpPoly, setting: Setting, defined: Context = PLAIN) -> SlotLoss:
    """A detached coefficient less its mean over the batch (option batch)."""
    of = {"leave-one-out": LeftOut, "mean": Centred, "std": Centred}[setting.batch]
    varies = random_names(h, defined)  # equal numbers less their mean would be 0 at once
    mine = h if varies else to_ring(H)
    mine = mine.rename(lambda name: at_slot(name, "self") if name in varies or name == "H" else name)
    expression, sums = in_slots(of(to_sympy(mine)), "i", detached=True)
    sums = sums if varies else {"H": to_sympy(h)}
    return replace(sampled(expression, sums, "i", setting, True, None), centred=h, defined=defined)


def random_names(element: ExpPoly, defined: Context) -> set[str]:
    """The names in an element of one sample that change from sample to sample."""
    return {n for n in element.names() if n in SAMPLE_BASES or (defined.defined(n) and defined.is_sample(n))}


# ---------------------------------------------------------------------------- sums as variables of slots
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
            return (_over_tokens if index == "t" else _over_samples)(inner, still, given)
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


def _added_up(of: Any) -> Any:
    """future(R) is R_future, where it is a sum of numbers of tokens."""
    if of.slot == "now":
        return of.args[0]
    each = to_ring(of.args[0]) if is_in_ring(of.args[0]) else None
    return of if each is None or not adds_up(each, "now") else to_sympy(summed(each, of.slot))


def _over_tokens(of: Any, still: bool, given: dict[str, Any]) -> Any:
    if of.slot == "now":
        return of.args[0]
    element, total = to_ring(of.args[0]), sympy.S.Zero
    if adds_up(element, "now"):
        return to_sympy(summed(element, of.slot))
    _refuse_moving(of, element, ATTACHED_SUM, still)
    slots = ("past", "now", "future") if of.slot == "x" else (of.slot,)
    for front, each in _apart(element):  # what is the same at each token stands in front of the sum
        if adds_up(each, "now"):
            total = total + to_sympy(front * summed(each, of.slot))
        else:
            held = _give(given, "now", to_ring(without_sg(to_sympy(each))))
            total = total + to_sympy(front) * sum(Slot(slot)(held) for slot in slots)
    return total


def _over_samples(of: Any, still: bool, given: dict[str, Any]) -> Any:
    element = to_ring(of.args[0])
    if adds_up(element, "self"):
        mine, rest = of.args[0], to_sympy(summed(element, "others", "self"))
    else:
        _refuse_moving(of, element, MOVES_IN_BATCH, still)
        value = to_ring(without_sg(of.args[0])).rename(lambda x: x.replace("[self]", ""))
        held = _give(given, "x", value)
        mine, rest = own(held), others(held)
    return of.of(mine, rest).subs(1 / (n - 1), 1 / m)


def _refuse_moving(of: Any, element: ExpPoly, why: str, still: bool) -> None:
    if not still and any(map(depends_on_theta, element.names())):
        raise UsageError(f"{_shown(of)} {why}")


def _give(given: dict[str, Any], slot: str, value: ExpPoly) -> Any:
    """The first of H, H2, .. that is free is this at one position."""
    for held in GIVEN:
        if given.setdefault(at_slot(held.name, slot), to_sympy(value)) == to_sympy(value):
            return held
    raise UnsupportedSum(MANY_SUMS)


def _apart(element: ExpPoly) -> Iterator[tuple[ExpPoly, ExpPoly]]:
    """The terms by the factor that is the same at each token, such as 1/T and the ratio of them all."""

    def whole(x: str) -> bool:
        return parse_name(x).slot == "x" and parse_name(x).base in SAMPLE_BASES

    found: dict[Any, ExpPoly] = {}
    for (monomial, exponent), value in element.terms.items():
        powers = tuple((x, power) for x, power in monomial if whole(x))
        inside = tuple((inner, v) for inner, v in exponent if inner and all(whole(x) for x, _ in inner))
        front = ExpPoly({(powers, inside): 1})
        found[front] = found.get(front, ZERO) + ExpPoly({(monomial, exponent): value}) * front.inverse()
    yield from found.items()


def adds_up(element: ExpPoly, mine: str) -> bool:
    """Is each term at most one variable that has a sum over positions, times what is the same at each?"""
    for monomial, exponent in element.terms:
        inside = [name for inner, _ in exponent for name, _ in inner if parse_name(name).slot != "x"]
        moving = [(parse_name(name), power) for name, power in monomial if parse_name(name).slot != "x"]
        alone = all(x.slot == mine and x.base in ADDS_UP and power == 1 for x, power in moving)
        if inside or len(moving) > 1 or not alone:
            return False
    return True


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


def _shown(of: Any) -> str:
    return f"{of.name}({TEXT(losses.tree_of(plain(of.args[0])))})"


def plain(expression: Any) -> Any:
    """As it was typed: without the slot of the position."""
    return expression.xreplace(
        {
            x: type(x)(x.name.removesuffix("[now]").removesuffix("[self]"), **x.assumptions0)
            for x in expression.free_symbols
        }
    )


def _is_a_ratio(of: Any) -> bool:
    """Is it one power of r and rho alone?"""
    if not is_in_ring(of) or len(to_ring(of).terms) != 1:
        return False
    [(monomial, exponent)] = to_ring(of).terms
    random = [parse_name(name) for name, _ in monomial]
    return bool(exponent) and not any(x.slot != "x" or x.base in (*SUMS, "A") for x in random)


# ---------------------------------------------------------------------------- whole sequences
def of_sequence(written: Written) -> Written:
    """The loss of a whole sequence: T is its length, and a sum over all tokens is that of the sequence."""
    expression, whole = written.expression, {}
    for of in expression.atoms(Summed):
        if not isinstance(of, Whole):
            raise UsageError(f"{of} in {written.text[:60]!r}: {OF_ONE_TOKEN}")
        element = _at_a_token(of.args[0])
        if element is None or not adds_up(element, "now"):
            raise UsageError(
                f"{of} in {written.text[:60]!r} is no sum of k1, log q, R and constants, and so it is no"
                " function of the sequence as one sample: choose level token"
            )
        whole[of] = to_sympy(summed(element, "x"))
    return Written(written.text, expression.xreplace(whole).xreplace({T: length}))


def _at_a_token(of: Any) -> ExpPoly | None:
    try:
        return to_ring(now(of).xreplace({now(A): ADVANTAGE, T: length}))
    except NotInRing:
        return None


# ---------------------------------------------------------------------------- what is asked of a loss
def names_slots(expression: Any) -> bool:
    """Does it hold a sum over tokens?"""
    return bool(expression.atoms(Summed))


def names_batches(expression: Any) -> bool:
    """Does it hold a sum over the other samples of a batch?"""
    return bool(expression.atoms(OverBatch))


def names_vocabulary(expression: Any) -> bool:
    """Does it hold a sum over the vocabulary?"""
    return bool(expression.atoms(OverVocabulary))


def uses_sampler(element: ExpPoly, setting: Setting) -> bool:
    """On-policy a loss without rho or log mu needs no sampler beside q."""
    return setting.on_policy and any(parse_name(n).base == "w" for n in element.names())


def sampled_from(element: ExpPoly, setting: Setting) -> str:
    """The measure under which the mean is taken."""
    return "q" if setting.on_policy and not uses_sampler(element, setting) else "mu"


def over_length(written: Written) -> Written:
    """The loss over T, which is written for the random length."""
    return Written(TEXT(quotient(losses.tree_of(written), Name("T"))), written.expression / length)


def refuse_unless_moderate(element: ExpPoly, written: Written, allowed: set[str] | None = None) -> None:
    """Random variables do not divide, and powers stay within what the grammar can write."""
    random = {n for n in element.inverted() if parse_name(n).base in SAMPLE_BASES} - (allowed or set())
    if random:
        name = formulas.variable(min(random), TEXT)
        raise UsageError(f"division by {name} in {written.text[:60]!r}: it is 0 at some samples")
    exponents = [(m, v) for _, e in element.terms for m, v in e]
    powers = [Fraction(p) for m, _ in element.terms for _, p in m]
    powers += [Fraction(v) for m, v in exponents if m]
    if any(abs(p) > MAX_POWER for p in powers):
        raise UsageError(f"a power beyond {MAX_POWER} in {written.text[:60]!r}")
    if any(abs(Fraction(v)) > MAX_EXP for m, v in exponents if not m):
        raise UsageError(f"exp of a number beyond {MAX_EXP} in {written.text[:60]!r}")
