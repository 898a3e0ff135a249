"""Write a loss at one position of an index, its sums over others as variables of slots.  Untrusted.

    index   own slot   other slots             sums in the grammar
    ""      x                                  whole(x), for a sequence as one sample
    i       self       others                  others(x), loo(h), centred(h)
    t       now        past, future, x         past(x), now(x), future(x), whole(x), togo(h), T

The options weights, credit, aggregate and batch are written into the loss here, and mean nothing below.
`position_sums` reads the sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import sympy

from klsym.engine.fields.position_sums import (
    T,
    added_up,
    adds_up,
    in_slots,
    is_a_ratio,
    plain,
    shown_sum,
    summed,
)
from klsym.engine.fields.primitives import at_policy
from klsym.engine.options.settings import Setting
from klsym.engine.regions.bounds_in_order import bounds_in_order
from klsym.engine.regions.piecewise import Unfolding, only_used, unfolding
from klsym.errors import NotInRing, UsageError
from klsym.kernel.names import SAMPLE_BASES, parse_name
from klsym.kernel.ring import ZERO, ExpPoly
from klsym.kernel.slots import LENGTHS, at_slot
from klsym.kernel.statements import Context
from klsym.language.convert import to_ring, to_sympy
from klsym.language.expressions import (
    ATOMS,
    DENSITIES,
    A,
    H,
    M,
    OfRow,
    R,
    V,
    V_next,
    exp,
    k1,
    length,
    log_q,
    now,
    own,
    parameter,
    past,
    r,
    rho,
    rho_old,
    sg,
    without_sg,
)
from klsym.language.messages import Message
from klsym.language.parser import MAX_EXP, MAX_POWER
from klsym.language.sums import Centred, Here, LeftOut, OverBatch, OverVocabulary, Summed, Whole, togo
from klsym.language.unfolding import PLAIN
from klsym.notation import formulas, losses
from klsym.notation.losses import Written
from klsym.notation.printers import TEXT
from klsym.notation.tree import Name, quotient

DRAWN = M / parameter("S")  # what M q/S draws, over q; S = E_q[M]
ADVANTAGE = A  # theta-free, of the whole sequence: the same at each of its tokens
CRITIC = {V: past(A), V_next: now(A)}  # any functions of the prefix before a token, and with it
WEIGHT_OF_OPTION = {"token": now(rho), "prefix": past(rho) * now(rho), "sequence": rho}
OF_ONE_TOKEN = "a sum over the tokens before or after one: choose level token"
OF_MANY_RATIOS = (
    "would be a sum of ratios, one for each token: the ratio of them all is exp({name}(log ratio))"
)
RANDOM_ADVANTAGE = (
    "A times something random cannot be credited to other tokens: write R for token rewards, or choose credit"
    " same-token"
)


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
        typed = typed.replace(lambda e: isinstance(e, Summed), added_up)
        return Written(losses.show(typed, TEXT), typed)

    @property
    def element(self) -> ExpPoly:
        return to_ring(self.expression)

    @property
    def elements(self) -> list[ExpPoly]:
        """The loss, and the values of its sums."""
        return [self.element, *map(to_ring, self.sums.values())]


# ---------------------------------------------------------------------------- from a loss as it is written
def slot_loss(written: Written, setting: Setting, roots: bool = False) -> SlotLoss:
    """The loss at a position; raises NotInRing outside the ring, UsageError for what is not handled.

    roots: regions that zeros of functions show to be empty are left out, which no theorem follows.
    """
    found = read_loss(written.expression, setting, roots)
    return _used(written, setting, replace(found, regions=found.regions.copy()))


def slot_losses(several: Sequence[Written], setting: Setting) -> list[SlotLoss]:
    """Several losses; a bound or a log that two of them have gets one name."""
    regions = unfolding_of(sympy.Tuple(*(one.expression for one in several)), setting)
    read = [_read(one.expression, setting, regions) for one in several]
    found = [_used(one, setting, known) for one, known in zip(several, read, strict=True)]
    defined = only_used(regions.context, *(e for loss in found for e in loss.elements))
    return [replace(loss, defined=defined) for loss in found]


def _used(written: Written, setting: Setting, found: ReadLoss) -> SlotLoss:
    """As a loss or as a reward, credited to tokens and averaged over them."""
    detached, index, expression, sums = setting.use == "reward", found.index, found.expression, found.sums
    refuse_unless_moderate(to_ring(expression), written, {*LENGTHS})
    if detached and index == "t" and setting.credit in ("to-go", "total"):
        h = to_ring(without_sg(expression))
        whole = credited(at_policy(h) if setting.on_policy else h, setting.credit)
        expression, sums = in_slots(whole, index, detached, found.regions)
    label = over_length(written) if setting.averaged and index != "t" else written
    loss = sampled(expression, sums, index, setting, detached, label)
    defined = only_used(found.regions.context, *loss.elements)
    typed = found.typed if defined.definitions else None
    return replace(loss, each=found.expression, defined=defined, typed=typed)


@dataclass(frozen=True)
class ReadLoss:
    """A loss at one position: as it is typed, and with its sums and regions written out."""

    index: str
    typed: Any
    expression: Any
    sums: Mapping[str, Any]
    regions: Unfolding


@lru_cache(maxsize=64)
def read_loss(loss: Any, setting: Setting, roots: bool = False, ties: bool = False) -> ReadLoss:
    """ties: with unknown slopes at ties that every sample meets."""
    regions = unfolding_of(loss, setting)
    regions.roots, regions.ties = roots, {} if ties else None
    return _read(loss, setting, regions)


def _read(loss: Any, setting: Setting, regions: Unfolding) -> ReadLoss:
    index = index_of(loss, setting)
    typed = placed(loss, setting, index)
    expression, sums = in_slots(typed, index, setting.use == "reward", regions)
    if regions.roots or typed.has(sympy.Heaviside):  # a product of comparisons may be empty
        expression = to_sympy(regions.tidy(to_ring(expression)))
    return ReadLoss(index, typed, expression, sums, regions)


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


def index_of(loss: Any, setting: Setting) -> str:
    if setting.level == "token":
        return "t"
    return "i" if names_batches(loss) else ""


def placed(expression: Any, setting: Setting, index: str) -> Any:
    """At one position, weights, 1/T and what a cut sampler draws put in."""
    if setting.truncated and (index or setting.batch != "none"):
        raise UsageError(
            "sampling truncated: a batch of such samples is not handled: choose level sample for one token,"
            " given its prefix, token for sums of them, or sequence for a sampler that is cut off as a whole"
        )
    expression = expression * DRAWN if setting.truncated else expression
    if index == "t":
        expression = expression if setting.use == "reward" else _summed_at_tokens(expression)
        at = now(expression).xreplace(
            {now(A): ADVANTAGE, now(rho): WEIGHT_OF_OPTION[setting.weights], T: length}
        )
        at = at.xreplace({now(x): value for x, value in CRITIC.items()})
        _refuse_sums_of_ratios(at)
    else:
        at = own(expression / length if setting.averaged else expression) if index == "i" else expression
    return at / length if setting.averaged and index != "i" else at


def _summed_at_tokens(loss: Any, times: Any = T) -> Any:
    """times g x for the terms g whole(x) of a loss, g the same at each token; times/T for all others.

    So T g x and g whole(x) have one sum over the tokens.  x has no sum of its own, or times is 1 and g held.
    """
    sums = {of for of in _attached_sums(loss) if times != T or not _is_summable(of)}
    total = sympy.S.Zero
    for term in sympy.Add.make_args(sympy.expand_mul(loss, deep=False)) if sums else (loss,):
        found = sorted((of for of in sympy.Mul.make_args(term) if of in sums), key=_is_summable)
        g = term / found[0] if found else term
        alike = found and not g.has(*sums) and _is_of_the_whole(g)
        if alike and (sg(g) == g or not _is_summable(found[0])):
            term = T * g * found[0].args[0]
        total += term * times / T
    return total


def _attached_sums(e: Any) -> Iterator[Any]:
    """The sums over all tokens that are differentiated."""
    if isinstance(e, Whole):
        yield from (e,) if sg(e) != e else ()
    elif not isinstance(e, sg):
        yield from (of for part in e.args for of in _attached_sums(part))


def _is_summable(of: Summed) -> bool:
    """Is it a sum of k1, log q, R and constants?"""
    element = _at_a_token(of.args[0])
    return element is not None and adds_up(element, "now")


def _is_of_the_whole(g: Any) -> bool:
    """Is it the same at each token?"""
    bare = g.xreplace({of: sympy.Dummy() for of in g.atoms(Whole)})
    return not bare.atoms(Summed) and not bare.free_symbols & {*DENSITIES, R, M}


def _refuse_sums_of_ratios(at_t: Any) -> None:
    for of in sorted(at_t.atoms(Summed), key=str):
        if not isinstance(of, Here) and not of.args[0].has(Summed) and is_a_ratio(of.args[0]):
            raise UsageError(f"{shown_sum(of)} {OF_MANY_RATIOS.format(name=of.name)}")


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


# ---------------------------------------------------------------------------- whole sequences
def at_tokens(written: Written, setting: Setting) -> tuple[Written, Setting]:
    """A loss of whole sequences with sums that are no log ratios, or over kept tokens, as that of each token.

    A loss L of the sequence is L/T at each of its T tokens; a reward multiplies the score of each.

    >>> from klsym.language.expressions import k2
    >>> loss = Written("", Whole(M * k2) / Whole(M))
    >>> at_tokens(loss, Setting(level="sequence"))[0].text
    'M*k2/whole(M)'
    """
    e = written.expression
    divisors = {x for x in e.atoms(sympy.Pow) if x.exp.could_extract_minus_sign()}
    counted = any(of.has(M) for x in divisors for of in x.atoms(Whole))
    sums = {of: sympy.Dummy(log_q.name, real=True) for of in e.atoms(Summed)}  # so that sg(..) stays
    whole = all(isinstance(of, Whole) for of in sums) and not e.xreplace(sums).has(M)
    alone = setting.batch == "none" and not names_batches(e.xreplace(dict.fromkeys(divisors, sympy.S.One)))
    asked = setting.level == "sequence" and (counted or not all(map(_is_summable, sums)))
    if not (asked and whole and alone):
        return written, setting
    bare = e.xreplace(sums).replace(lambda x: isinstance(x, OfRow), lambda x: x.in_k1())
    at = {x: exp(Whole(x.args[0] - x.args[1])) for x in (rho, rho_old)} | {r: exp(-Whole(k1))}
    at |= {x: Whole(x) for x in (k1, *DENSITIES, R)}
    for old, new in at.items():  # r and rho before the log densities that define them
        bare = bare.xreplace({old: sums.setdefault(new, sympy.Dummy(log_q.name, real=True))})
    loss = bare.xreplace({dummy: of for of, dummy in sums.items()})
    loss = loss if setting.use == "reward" else _summed_at_tokens(loss, sympy.S.One)
    notes = (*written.notes, Message("at-each-token"))
    reading = Written(losses.show(loss, TEXT), loss, written.typed or written.text, notes)
    return reading, replace(setting, level="token", weights="token")


def of_sequence(written: Written) -> Written:
    """The loss of a whole sequence: T is its length, and a sum over all tokens is that of the sequence."""
    expression, whole = written.expression, {}
    for of in expression.atoms(Summed):
        if not isinstance(of, Whole):
            raise UsageError(f"{of} in {written.text[:60]!r}: {OF_ONE_TOKEN}")
        if not _is_summable(of):
            raise UsageError(
                f"{of} in {written.text[:60]!r} is no sum of k1, log q, R and constants, and so it is no"
                " function of the sequence as one sample: choose level token"
            )
        whole[of] = to_sympy(summed(to_ring(now(of.args[0]).xreplace({now(A): ADVANTAGE, T: length})), "x"))
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
