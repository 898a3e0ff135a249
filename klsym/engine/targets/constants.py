"""Constants outside the ring, such as sqrt(2) or 1/(1 + beta): in theorems parameters stand for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from klsym.convert import to_sympy
from klsym.engine.regions.in_steps import scored_steps
from klsym.engine.verdicts.verdict import Cases, LazyCases, TargetReading, Verdict
from klsym.engine.verdicts.warnings import Sign
from klsym.errors import NotInRing
from klsym.language import parameter
from klsym.messages import Message
from klsym.notation.values import LazyFormula, names
from klsym.ring import ExpPoly
from klsym.unfolding import PLAIN


def with_constants(verdict: Verdict, constants: Mapping[str, Any]) -> Verdict:
    """The verdict with each constant where a parameter stands for it.

    A model has numbers for parameters: none speaks of sqrt(2), and none shows a curl.
    """
    if not constants:
        return verdict
    if verdict.target == "none":
        raise NotInRing("a curl at some value of a constant")
    values = {parameter(name): value for name, value in constants.items()}

    def put(value: Any) -> Any:
        if isinstance(value, Mapping) and not constants.keys() & names(value):
            return value
        if isinstance(value, Mapping):
            return scored_steps(value, PLAIN, tokens=True).xreplace(values)
        if isinstance(value, LazyFormula):
            return LazyFormula(value.build, tuple(map(put, value.of)))
        if isinstance(value, ExpPoly):
            return to_sympy(value).xreplace(values) if value.names() & constants.keys() else value
        return value.xreplace(values) if hasattr(value, "xreplace") else value

    def put_in(value: Any) -> Any:
        """What a message holds: values in tuples and signs."""
        if isinstance(value, tuple) and not isinstance(value, LazyFormula):
            return tuple(map(put_in, value))
        if isinstance(value, Sign):
            return replace(value, where=put_in(value.where))
        return put(value)

    told = tuple(Message("constant", of=name, value=value) for name, value in constants.items())
    return replace(
        verdict,
        model=None,
        h=put(verdict.h),
        c=put(verdict.c),
        gradient=_read(verdict.gradient, put),
        value=_read(verdict.value, put),
        constant=put(verdict.constant),
        per_sample_cases=_cases(verdict.per_sample_cases, put),
        coefficient_cases=_cases(verdict.coefficient_cases, put),
        bias_cases=_cases(verdict.bias_cases, put),
        assumptions=(*told, *verdict.assumptions),
        messages=tuple(
            Message(x.code, **{key: put_in(v) for key, v in x.values.items()}) for x in verdict.messages
        ),
        shown="" if any(name in verdict.shown for name in constants) else verdict.shown,
    )


def _read(reading: TargetReading, put: Callable[[Any], Any]) -> TargetReading:
    parts = {name: put(part) for name, part in reading.parts.items()}
    return replace(reading, parts=parts, rest=put(reading.rest))


def _cases(cases: Cases, put: Callable[[Any], Any]) -> Cases:
    return LazyCases(_put_into, cases, put)


def _put_into(cases: Cases, put: Callable[[Any], Any]) -> Cases:
    return tuple((tuple(replace(c, x=put(c.x)) for c in on), put(value)) for on, value in cases)
