"""Find the target of the expected value of a loss: E_m[L], E_m[mean_i L_i] or E_m[sum_t L_t].  Untrusted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from klsym.engine.fields.field import rewrite_in_n, split_sequence_loss
from klsym.engine.fields.named_terms import (
    NamedParts,
    RandomNames,
    find_whole_reward,
    recognise_token_term,
    recognise_value,
    sort_random_names,
    split_terms,
)
from klsym.engine.fields.primitives import WEIGHT, select_constant_terms
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
from klsym.engine.targets.in_print import ValuePrinter
from klsym.engine.verdicts.lazy import Search
from klsym.engine.verdicts.verdict import ExpectedValue, TargetReading
from klsym.kernel.densities import build_density_ratio
from klsym.kernel.derivatives import attach
from klsym.kernel.names import PROBABILITIES
from klsym.kernel.ring import ZERO, ExpPoly
from klsym.kernel.statements import Context
from klsym.language.abbreviations import E, Indexed, Side
from klsym.language.convert import substitute_on_policy, to_ring, to_sympy
from klsym.language.messages import Message
from klsym.language.sums import Centred, LeftOut
from klsym.notation.losses import Written

FINITE = {"reverse-kl": ("q", "p"), "forward-kl": ("p", "q")}  # a << b, without which the KL is infinite


def find_expected_value(written: Written, setting: Setting, roots: bool = False) -> ExpectedValue:
    """Return the target of E_m[L], E_m[mean_i L_i] or E_m[sum_t L_t], with the constant added to it."""
    is_centred = isinstance(written.expression, LeftOut | Centred) and not setting.averaged
    if setting.is_reward and is_centred:
        return ExpectedValue("zero", constant=ZERO)  # what is centred has mean 0
    loss = read_loss(written.expression, setting, roots)
    if loss.sums:
        return ExpectedValue()
    e, index = loss.expression, loss.index
    if setting.on_policy and index == "t":
        e = to_sympy(substitute_on_policy(to_ring(e)))
    measure, detached_q = choose_measure(to_ring(e), setting), needs_sampler(to_ring(e), setting)
    defined = keep_used_regions(loss.regions.context, to_ring(e))

    def start() -> Derivation:
        return derive(_build_mean(e, index, measure, defined), on_policy=detached_q, defined=defined)

    names = sort_random_names(defined)
    sequence_terms = constant = ZERO
    token_parts = NamedParts(ZERO, forward=ZERO, reward=ZERO, constant=ZERO, remainder=ZERO)
    is_plain = not (index or defined.definitions)
    reduced = _reduce_sample_mean(to_ring(e), setting) if is_plain else start().reduce().left
    for scale, atoms in reduced.terms:
        match atoms:
            case ():
                constant = constant + scale
            case (E("q", a, ()),):
                sequence_terms = sequence_terms + a * scale
            case (Indexed("t", "q", a, ()),):
                token_parts = _add_terms(token_parts, a * scale, names)
            case _:
                return ExpectedValue("objective", constant=ZERO)
    constant, sequence_terms = rewrite_in_n(constant), rewrite_in_n(sequence_terms)
    value = _name_value(recognise_value(sequence_terms, names), token_parts, start, names)
    printer = ValuePrinter(defined, tokens=False)
    return replace(printer.rewrite_reading(value), constant=printer.rewrite_value(constant))


def _reduce_sample_mean(element: ExpPoly, setting: Setting) -> Side:
    """Return E_m[L] at one sample as c + E_q[v], without a derivation: densities have the mean 1."""
    value, constant = attach(element), ZERO
    value = substitute_on_policy(value) if setting.on_policy else value * WEIGHT.invert()
    for measure in PROBABILITIES:
        ratio = build_density_ratio(measure, "q")
        part = select_constant_terms(value * ratio.invert()) * ratio
        value, constant = value - part, constant + part * ratio.invert()
    return Side.from_atom(E("q", value)) + Side.from_constant(constant)


def _build_mean(e: Any, index: str, measure: str, defined: Context) -> Quantity:
    if index == "i":
        return mean_over_i(e, measure)
    if not index:
        return expectation(e, measure)
    sequence_part, token_part = split_sequence_loss(
        to_sympy(attach(to_ring(e))), defined
    )  # a value, detached or not
    return sum_over_t(token_part, measure) + (expectation(sequence_part, measure) if sequence_part else 0)


def _add_terms(parts: NamedParts, element: ExpPoly, names: RandomNames) -> NamedParts:
    for term in split_terms(element):
        name, multiple = recognise_token_term(term, names)
        parts = replace(parts, **{name: getattr(parts, name) + multiple})
    return parts


def _name_value(
    sequence_parts: NamedParts,
    token_parts: NamedParts,
    start: Callable[[], Derivation],
    names: RandomNames,
) -> ExpectedValue:
    parts = NamedParts(
        *(
            getattr(sequence_parts, x) + getattr(token_parts, x)
            for x in ("reverse", "forward", "reward", "constant", "remainder")
        )
    )
    if parts.remainder and (reward := find_whole_reward(token_parts.remainder, names)) is not None:
        parts = replace(
            parts, reward=parts.reward + reward, remainder=parts.remainder - token_parts.remainder
        )
    elif token_parts.remainder:
        return ExpectedValue("objective")
    assumptions = Search(collect_value_assumptions, start, tuple(parts.multiples))
    reading = TargetReading.read_parts(parts, parts.unnamed_value)
    return ExpectedValue(reading.target, reading.parts, reading.rest, assumed_messages=assumptions)


def collect_value_assumptions(start: Callable[[], Derivation], names: tuple[str, ...]) -> tuple[Message, ...]:
    """Return the hypotheses of a mean in canonical form; names: the divergences that replace its terms."""
    mean = start().reduce()
    proof = mean.equals(Quantity(mean.left))
    supports = (Message("support", first=a, second=b) for a, b in (FINITE[x] for x in names if x in FINITE))
    return tuple(dict.fromkeys((*proof.assumptions, *supports)))
