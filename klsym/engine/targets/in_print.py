"""The values of a verdict, with steps and logs in place of the names for them.  Untrusted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from klsym.engine.regions.in_steps import in_steps, scored_steps
from klsym.engine.verdicts.verdict import TargetReading, Verdict
from klsym.engine.verdicts.warnings import Sign
from klsym.messages import Message
from klsym.names import parse_name
from klsym.notation.values import LazyFormula, names
from klsym.ring import ExpPoly
from klsym.statements import Context


def _base(name: str) -> str:
    return parse_name(name).base


@dataclass(frozen=True)
class InPrint:
    """How values are shown; tokens: those of slots."""

    context: Context
    tokens: bool

    def value(self, value: Any) -> Any:
        """A coefficient, or those of slots, unless no name stands in it."""
        if isinstance(value, LazyFormula):
            return LazyFormula(value.build, tuple(map(self.value, value.of)))
        defined = {definition.name for definition in self.context.definitions}
        if not isinstance(value, Mapping | ExpPoly) or defined.isdisjoint(map(_base, names(value))):
            return value
        if isinstance(value, Mapping):
            return scored_steps(value, self.context, self.tokens)
        return in_steps(value, self.context, self.tokens)

    def reading(self, reading: TargetReading) -> TargetReading:
        """A target, with its parts in print."""
        parts = {name: self.value(part) for name, part in reading.parts.items()}
        return replace(reading, parts=parts, rest=self.value(reading.rest))

    def message(self, said: Message) -> Message:
        """A message, which holds values in tuples and signs."""
        return Message(said.code, **{key: self._within(value) for key, value in said.values.items()})

    def _within(self, value: Any) -> Any:
        if isinstance(value, tuple) and not isinstance(value, LazyFormula):
            return tuple(map(self._within, value))
        return (
            replace(value, where=self._within(value.where)) if isinstance(value, Sign) else self.value(value)
        )

    def verdict(self, verdict: Verdict) -> Verdict:
        """A verdict, h, c and its targets in print."""
        return replace(
            verdict,
            h=self.value(verdict.h),
            c=self.value(verdict.c),
            gradient=self.reading(verdict.gradient),
            value=self.reading(verdict.value),
            constant=self.value(verdict.constant),
            messages=tuple(map(self.message, verdict.messages)),
        )
