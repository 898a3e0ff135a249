"""Whether a verdict has the objective that a user expects.

>>> from klsym.engine.answers.objectives import read_objective
>>> from klsym.engine.explain import explain
>>> [is_met(explain("-A*log_q + 0.04*k2"), read_objective(text))
...  for text in ("-E[A] + 0.04*reverse-kl", "-E[A] + 0.05*reverse-kl", "combination")]
[True, False, True]
>>> is_met(explain("k1", sampling="off-policy"), read_objective("-sampler-kl"))
True
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import sympy

from klsym.engine.answers.dispatch import explain_written
from klsym.engine.answers.is_correct import NEXT_TOKENS, is_next_token_kl
from klsym.engine.answers.objectives import KLS, WantedObjective
from klsym.engine.fields.named_terms import split_terms
from klsym.engine.questions.compare import compare_losses
from klsym.engine.questions.reward_as_loss import write_as_loss
from klsym.engine.questions.wanted_loss import T, Unwritten, build_wanted_loss
from klsym.engine.verdicts.verdict import TargetReading, Verdict
from klsym.errors import KlsymError
from klsym.kernel.names import SAMPLE_BASES, parse_name
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.language.convert import to_sympy
from klsym.language.expressions import REWARDS, A, R
from klsym.notation import losses
from klsym.notation.losses import Written
from klsym.notation.printers import TEXT


def is_met(verdict: Verdict, wanted: WantedObjective) -> bool:
    """Does the verdict say that this is the objective?"""
    return decide_expectation(verdict, wanted) is True


def decide_expectation(verdict: Verdict, wanted: WantedObjective) -> bool | None:
    """Has the loss this objective?  None: it is not decided.  A word alone may have any positive multiple."""
    reading: TargetReading = verdict.gradient
    if wanted.inside and verdict.gradient.inside_clamps:
        reading = verdict.gradient.inside_clamps
    if wanted.is_kind:
        return (reading.target or "open") == wanted.word
    if wanted.word in NEXT_TOKENS and not verdict.setting.is_of_sample:
        return is_next_token_kl(verdict, wanted.word)
    name = NEXT_TOKENS.get(wanted.word, wanted.word)  # of one sample, the next token is all of it
    if name in KLS:
        return reading.target == name and _is_positive(_read_multiple(reading.parts.get(name, ONE)))
    if {*wanted.multiples} <= {*KLS, "reward", "policy-gradient"}:
        if reading.target is None or reading.rest:
            return False
        return _has_multiples(reading, wanted)
    if wanted.inside:
        return _is_same_reading(verdict, reading, wanted)
    return _compare_gradients(verdict, wanted)


def _is_same_reading(verdict: Verdict, reading: TargetReading, wanted: WantedObjective) -> bool | None:
    """Has a loss with this objective the same gradient as another one has inside its bounds?

    Where the two are a number times each other they are told apart; else it is not decided.
    """
    setting, written = verdict.setting, verdict.loss.written
    if written is None or setting.is_centred or setting.is_reward or setting.divisor.over_batch:
        return None
    with suppress(KlsymError, Unwritten):
        right = build_wanted_loss(wanted, setting, _choose_reward(written.expression))
        right = right * T if setting.averaged else right
        scale = _find_factor(reading, explain_written(_write(right), setting).gradient)
        if scale is not None:
            return bool(scale > 0) if wanted.word else bool(scale == 1)
    return None


def _find_factor(reading: TargetReading, unit: TargetReading) -> Any:
    """Return the number that one reading is times another; None if it is none."""
    pairs = [(x, unit.rest.get(slot)) for slot, x in reading.rest.items()]
    pairs += [(x, unit.parts.get(name)) for name, x in reading.parts.items()]
    if len(pairs) != len(unit.rest) + len(unit.parts) or any(y is None for _, y in pairs):
        return None
    factors = {sympy.cancel(_read_multiple(x) / _read_multiple(y)) for x, y in pairs}
    factor = factors.pop() if len(factors) == 1 else None
    return factor if factor is not None and factor.is_Rational else None


def _read_multiple(value: Any) -> Any:
    return to_sympy(value) if isinstance(value, ExpPoly) else value


def _is_positive(multiple: Any) -> bool | None:
    """Is a multiple positive for all positive values of its parameters, and n >= 2?  None: not decided.

    >>> beta = sympy.Symbol("beta")
    >>> _is_positive(beta), _is_positive(-beta), _is_positive(beta - 1)
    (True, False, None)
    """
    positive = {x: sympy.Dummy(positive=True) + int(x.name == "n") for x in multiple.free_symbols}
    value = sympy.factor(sympy.together(multiple.subs(positive)))
    return True if value.is_positive else False if value.is_nonpositive else None


def _has_multiples(reading: TargetReading, wanted: WantedObjective) -> bool | None:
    """Has a combination of the KLs and a reward these multiples?  A policy gradient is that of R or of A."""
    values = {name: _read_multiple(x) for name, x in reading.parts.items()}
    multiples, reward = dict(wanted.multiples), values.get("reward", sympy.S.Zero)
    times = multiples.pop("policy-gradient", 0)
    if wanted.word and set(values) == {"reward"}:
        times = sympy.cancel(reward / _choose_reward(reward))
        if times.has(*REWARDS):
            return False
        if (sign := _is_positive(times)) is not True:
            return sign
    if times:
        multiples["reward"] = multiples.get("reward", 0) + times * _choose_reward(reward)
    if set(values) != set(multiples):
        return False
    return all(sympy.expand(values[name] - multiples[name]) == 0 for name in multiples)


def _choose_reward(e: Any) -> Any:
    """Return A for what is written in advantages, else R."""
    return A if e.has(A) else R


def _compare_gradients(verdict: Verdict, wanted: WantedObjective) -> bool | None:
    """Compare the expected gradient with that of a loss that has the objective; None if it is not decided."""
    setting, written = verdict.setting, verdict.loss.written
    if written is None or setting.is_centred or setting.divisor.over_batch or verdict.is_truncated:
        return None
    with suppress(KlsymError, Unwritten):
        right = build_wanted_loss(wanted, setting, _choose_reward(written.expression))
        if setting.is_reward:
            written, setting = write_as_loss(written, setting)
        right = right * T if setting.averaged else right
        scale = _find_scale(verdict, explain_written(_write(right), setting)) if wanted.word else ONE
        if (sign := _is_positive(to_sympy(scale))) is not True:
            return sign
        return compare_losses((written, _write(right * to_sympy(scale))), setting).gradient.same
    return None


def _write(e: Any) -> Written:
    return Written(losses.show(e, TEXT), e)


def _find_scale(verdict: Verdict, unit: Verdict) -> ExpPoly:
    """Return the constant that one coefficient under q is of another, by their first terms; 1 if none is."""
    slots, slots_of_unit = (_list_slots(one.gradient.canonical_coefficient) for one in (verdict, unit))
    for slot, c in slots_of_unit.items():
        if terms := [term for term in split_terms(c) if _is_random(term)]:
            inverse = terms[0].invert()
            scales = (term * inverse for term in split_terms(slots.get(slot, ZERO)))
            return next((scale for scale in scales if not _is_random(scale)), ONE)
    return ONE


def _list_slots(c: Any) -> Mapping[str, ExpPoly]:
    """Return a coefficient by the slots of its scores; empty if it is not in the ring."""
    slots = c if isinstance(c, Mapping) else {"x": c}
    return {slot: x for slot, x in slots.items() if isinstance(x, ExpPoly)}


def _is_random(e: ExpPoly) -> bool:
    """Does it depend on the sample?"""
    return any(parse_name(name).base in {*SAMPLE_BASES, "length"} for name in e.names())
