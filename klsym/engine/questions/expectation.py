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
from dataclasses import replace
from typing import Any

import sympy

from klsym.engine.answers.dispatch import explain_written
from klsym.engine.answers.is_correct import NEXT_TOKENS, is_next_token_kl
from klsym.engine.answers.objectives import KLS, WantedObjective
from klsym.engine.fields.named_terms import split_terms
from klsym.engine.options.expand_options import expand_options
from klsym.engine.options.settings import Setting
from klsym.engine.questions.compare import compare_losses
from klsym.engine.questions.wanted_loss import T, Unwritten, build_wanted_loss
from klsym.engine.verdicts.verdict import TargetReading, Verdict
from klsym.errors import KlsymError
from klsym.kernel.names import SAMPLE_BASES, parse_name
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.language.convert import to_sympy
from klsym.language.expressions import ATOMS, PARAMETERS, REWARDS, A, R, log_q, sg
from klsym.language.parser import parse
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
        return reading.target == name and not reading.multiples.get(name, "").startswith("-")
    if {*wanted.multiples} <= {*KLS, "reward", "policy-gradient"}:
        return reading.target is not None and not reading.rest and _has_multiples(reading, wanted)
    if wanted.inside:
        return _is_same_reading(verdict, reading, wanted)
    return _compare_gradients(verdict, wanted)


def _is_same_reading(verdict: Verdict, reading: TargetReading, wanted: WantedObjective) -> bool | None:
    """Has a loss with this objective the same reading as another one has inside its bounds?"""
    setting, written = verdict.setting, verdict.loss.written
    if written is None or setting.is_centred or setting.is_reward or setting.divisor.over_batch:
        return None
    with suppress(KlsymError, Unwritten):
        right = build_wanted_loss(wanted, setting, _choose_reward(written.expression))
        right = right * T if setting.averaged else right
        other = explain_written(_write(right), setting).gradient
        return bool(other.rest) and (other.parts, other.rest) == (reading.parts, reading.rest)
    return None


def _has_multiples(reading: TargetReading, wanted: WantedObjective) -> bool:
    """Has a combination of the KLs and a reward these multiples?  A policy gradient is that of R or of A."""
    values = {name: to_sympy(x) if isinstance(x, ExpPoly) else x for name, x in reading.parts.items()}
    multiples, reward = dict(wanted.multiples), values.get("reward", sympy.S.Zero)
    times = multiples.pop("policy-gradient", 0)
    if wanted.word and set(values) == {"reward"}:
        times = sympy.cancel(reward / _choose_reward(reward))
        if times.has(*REWARDS) or times.could_extract_minus_sign():
            return False
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
            written, setting = _write_as_loss(written, setting)
        right = right * T if setting.averaged else right
        scale = _find_scale(verdict, explain_written(_write(right), setting)) if wanted.word else ONE
        if to_sympy(scale).could_extract_minus_sign():
            return False
        return compare_losses((written, _write(right * to_sympy(scale))), setting).gradient.same
    return None


def _write(e: Any) -> Written:
    return Written(losses.show(e, TEXT), e)


def _write_as_loss(reward: Written, setting: Setting) -> tuple[Written, Setting]:
    """Return the loss sg(L) log q with the expected gradient of a reward L, with its credit and weights."""
    e, names = reward.expression, {x.name for x in reward.expression.free_symbols}
    expanded = expand_options(reward, replace(setting, aggregate=setting.aggregate and "sum"))
    if expanded is not None:
        e = parse(expanded, names - {*ATOMS, *PARAMETERS})
    return _write(sg(e) * log_q), replace(setting, use="loss", credit="", weights=setting.weights and "token")


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
