"""Name the expected value of a loss: E_m[L], E_m[mean_i L_i] or E_m[sum_t L_t].  Untrusted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from klsym.engine.fields.field import rewrite_in_n, split_sequence_loss
from klsym.engine.fields.named_terms import (
    NamedParts,
    find_whole_reward,
    recognise_token_term,
    recognise_value,
    sort_random_names,
    split_terms,
)
from klsym.engine.fields.primitives import substitute_on_policy
from klsym.engine.fields.slot_loss import (
    choose_measure,
    needs_sampler,
    read_loss,
)
from klsym.engine.options.settings import Setting
from klsym.engine.proof.derivation import Derivation, derive
from klsym.engine.proof.quantities import Quantity, expectation
from klsym.engine.proof.sequence_quantities import mean_over_i, sum_over_t
from klsym.engine.regions.piecewise import keep_used_regions
from klsym.engine.targets.in_print import InPrint
from klsym.engine.verdicts.verdict import Search, TargetReading
from klsym.kernel.derivatives import attach
from klsym.kernel.ring import ZERO, ExpPoly
from klsym.kernel.statements import Context
from klsym.language.abbreviations import E, Indexed
from klsym.language.convert import to_ring, to_sympy
from klsym.language.messages import Message
from klsym.language.sums import Centred, LeftOut
from klsym.notation.losses import Written

FINITE = {"reverse-kl": ("q", "p"), "forward-kl": ("p", "q")}  # a << b, without which the KL is infinite


def value_of(written: Written, setting: Setting, roots: bool = False) -> tuple[TargetReading, ExpPoly | None]:
    """What E_m[L], E_m[mean_i L_i] or E_m[sum_t L_t] is: a target, and a constant beside it."""
    centred = isinstance(written.expression, LeftOut | Centred) and not setting.averaged
    if setting.use == "reward" and centred:
        return TargetReading("zero"), ZERO  # what is centred has mean 0
    read = read_loss(written.expression, setting, roots)
    if read.sums:
        return TargetReading(None), None
    e, index = read.expression, read.index
    if setting.on_policy and index == "t":
        e = to_sympy(substitute_on_policy(to_ring(e)))
    under, copied = choose_measure(to_ring(e), setting), needs_sampler(to_ring(e), setting)
    defined = keep_used_regions(read.regions.context, to_ring(e))
    start = derive(_mean(e, index, under, defined), on_policy=copied, defined=defined)
    names = sort_random_names(defined)
    whole, tokens, constant = ZERO, NamedParts(ZERO, ZERO, ZERO, ZERO, ZERO), ZERO
    for scale, atoms in start.reduce().left.terms:
        match atoms:
            case ():
                constant = constant + scale
            case (E("q", a, ()),):
                whole = whole + a * scale
            case (Indexed("t", "q", a, ()),):
                tokens = _with_terms(tokens, a * scale)
            case _:
                return TargetReading("separable"), ZERO
    constant, whole = rewrite_in_n(constant), rewrite_in_n(whole)
    found = _meaning_of_value(recognise_value(whole, names), tokens, start)
    shown = InPrint(defined, tokens=False)
    return shown.reading(found), shown.value(constant)


def _mean(e: Any, index: str, under: str, defined: Context) -> Quantity:
    if index == "i":
        return mean_over_i(e, under)
    if not index:
        return expectation(e, under)
    constant, each = split_sequence_loss(to_sympy(attach(to_ring(e))), defined)  # a value, detached or not
    return sum_over_t(each, under) + (expectation(constant, under) if constant else 0)


def _with_terms(found: NamedParts, element: ExpPoly) -> NamedParts:
    for term in split_terms(element):
        name, multiple = recognise_token_term(term)
        found = replace(found, **{name: getattr(found, name) + multiple})
    return found


def _meaning_of_value(one: NamedParts, tokens: NamedParts, start: Derivation) -> TargetReading:
    both = NamedParts(
        *(
            getattr(one, x) + getattr(tokens, x)
            for x in ("reverse", "forward", "reward", "constant", "remainder")
        )
    )
    if both.remainder and (reward := find_whole_reward(tokens.remainder)) is not None:
        both = replace(both, reward=both.reward + reward, remainder=both.remainder - tokens.remainder)
    elif tokens.remainder:
        return TargetReading("separable")
    assumed = Search(assumed_of_value, start, tuple(both.multiples))
    return TargetReading.of(both, both.unnamed_value, assumed)


def assumed_of_value(start: Derivation, names: tuple[str, ...]) -> tuple[Message, ...]:
    """The hypotheses of a mean in canonical form; names: the divergences that stand for terms of it."""
    proof = start.equals(Quantity(start.reduce().left))
    supports = (Message("support", first=a, second=b) for a, b in (FINITE[x] for x in names if x in FINITE))
    return tuple(dict.fromkeys((*proof.assumptions, *supports)))
