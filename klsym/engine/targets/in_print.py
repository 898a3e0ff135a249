"""The values of a verdict, with steps, logs and sums in place of the names for them.  Untrusted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import sympy

from klsym.engine.fields.position_sums import m, remove_slots
from klsym.engine.fields.slot_loss import CRITIC, SlotLoss
from klsym.engine.proof.quantities import Quantity
from klsym.engine.regions.case_split import Condition
from klsym.engine.regions.in_steps import split_leading_coefficient, to_scored_steps, to_steps
from klsym.engine.verdicts.verdict import Cases, LazyCases, TargetReading, Verdict
from klsym.engine.verdicts.warnings import Sign
from klsym.kernel.names import LOG_RATIOS, parse_name
from klsym.kernel.ring import ExpPoly
from klsym.kernel.slots import at_slot
from klsym.kernel.statements import REGION, Context
from klsym.language.abbreviations import Side, elements
from klsym.language.convert import to_ring, to_sympy
from klsym.language.expressions import others, own, without_sg
from klsym.language.messages import Message
from klsym.language.sums import After, Before, LeftOut, OfOthers
from klsym.notation import formulas, losses
from klsym.notation.formulas import Labels
from klsym.notation.printers import TEXT
from klsym.notation.tree import Formula, Name, rebuilt
from klsym.notation.values import LazyFormula, names

KINDS = {"past": Before, "future": After, "others": OfOthers}


def _base(name: str) -> str:
    return parse_name(name).base


def in_loo(e: Any) -> Any:
    """With x - loo(x) for others(x)/m, where that says it in fewer words.

    >>> from klsym.language.expressions import R, others, rho
    >>> in_loo(own(rho) * others(R) / m - own(rho) * own(R))
    -loo(R)*rho_self
    """
    for name in (*LOG_RATIOS, "R", "M"):
        x = to_sympy(ExpPoly.variable(name))
        if e.has(others(x)) and e.has(m):
            shorter = sympy.factor_terms(sympy.expand(e.xreplace({others(x): m * (own(x) - LeftOut(x))})))
            e = shorter if shorter.count_ops() < e.count_ops() else e
    return e


def shown_side(side: Side, labels: Labels | None, context: Context, tokens: bool) -> str:
    """A side of a statement, with a step in place of the name of each region."""

    def with_steps(node: Formula) -> Formula:
        name = at_slot(node.name, node.below or "x") if isinstance(node, Name) else ""
        if name and context.defined(name, REGION) is not None:
            return losses.tree_of(to_steps(ExpPoly.variable(name), context, tokens))
        return rebuilt(node, with_steps)

    return TEXT(with_steps(formulas.tree_of(side, labels)))


def implied_in_steps(of: Quantity, context: Context) -> Quantity:
    """The same quantity, with what holds regions as it was written, or in steps."""
    written = {e: label for e, label in of.labels.items() if isinstance(label, losses.Written)}
    known = {*elements(of.side), *of.labels}
    held = (e for e in known if any(context.defined(name, REGION) is not None for name in e.names()))
    return replace(of, labels={**of.labels, **{e: to_steps(e, context) for e in held}, **written})


@dataclass(frozen=True)
class InPrint:
    """How values are shown; tokens: those of slots.  sums: H of a slot -> future(k3) and its like.

    batch: x_self - x_others/m is loo(x) where there are bounds.
    """

    context: Context
    tokens: bool
    sums: Mapping[Any, Any] = field(default_factory=dict)
    batch: bool = False

    @staticmethod
    def of_sums(loss: SlotLoss) -> InPrint:
        """That of a loss with H, H2, .. in it; sums of what speaks of other tokens have no other name."""
        found: dict[Any, Any] = {}
        for name, value in loss.sums.items():
            base, shown = _base(name), to_steps(to_ring(without_sg(value)), loss.defined)
            each = remove_slots(shown.xreplace({of: name for name, of in CRITIC.items()}))
            if any("[" in x.name for x in each.free_symbols):
                continue
            mine = shown if loss.index == "t" else own(shown)
            found |= {at_slot(base, z): kind(each) for z, kind in KINDS.items()}
            found[at_slot(base, loss.own_slot)] = mine
        put = {to_sympy(ExpPoly.variable(name)): value for name, value in found.items()}
        return InPrint(loss.defined, loss.index == "t", put, loss.index == "i")

    def value(self, value: Any) -> Any:
        """A coefficient, or those of slots, unless no name stands in it."""
        if isinstance(value, LazyFormula):
            return LazyFormula(value.build, tuple(map(self.value, value.of)))
        if isinstance(value, sympy.Basic):
            return self._summed(value)
        known = {definition.name for definition in self.context.definitions}
        known |= {_base(str(symbol)) for symbol in self.sums}
        if not isinstance(value, Mapping | ExpPoly) or known.isdisjoint(map(_base, names(value))):
            return value
        if isinstance(value, Mapping):
            return self._summed(to_scored_steps(value, self.context, self.tokens))
        return self._summed(to_steps(value, self.context, self.tokens))

    def _summed(self, e: Any) -> Any:
        e = sympy.factor_terms(e.xreplace(self.sums)) if e.has(*self.sums) else e
        return in_loo(e) if self.batch else e

    def cases(self, rows: Cases) -> Cases:
        """Conditions and coefficients."""
        return tuple((tuple(map(self._condition, where)), self.value(c)) for where, c in rows)

    def _condition(self, on: Condition) -> Condition:
        scale, x = split_leading_coefficient(sympy.expand(self.value(on.x)))
        return Condition(x, tuple(sign if scale > 0 else -sign for sign in on.signs))

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

    def with_sums(self, verdict: Verdict) -> Verdict:
        """A verdict without the names of sums, by cases too."""
        if not self.sums and not (self.batch and isinstance(verdict.h, sympy.Basic)):
            return verdict
        return replace(
            self.verdict(verdict),
            per_sample_cases=self._later(verdict.per_sample_cases),
            coefficient_cases=self._later(verdict.coefficient_cases),
            bias_cases=self._later(verdict.bias_cases),
        )

    def _later(self, rows: Cases) -> Cases:
        return LazyCases(self.cases, rows) if isinstance(rows, LazyCases) else self.cases(rows)

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
