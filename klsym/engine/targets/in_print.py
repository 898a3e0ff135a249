"""Rewrite the values of a verdict for print: steps, logs and sums replace their names.  Untrusted."""

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
from klsym.engine.verdicts.lazy import Cases, LazyCases
from klsym.engine.verdicts.signs import Sign
from klsym.engine.verdicts.verdict import AnyReading, Verdict
from klsym.kernel.definitions import REGION
from klsym.kernel.names import LOG_RATIOS, parse_name
from klsym.kernel.ring import ExpPoly
from klsym.kernel.slots import name_in_slot
from klsym.kernel.statements import Context
from klsym.language.abbreviations import Side, walk_elements
from klsym.language.convert import to_ring, to_sympy
from klsym.language.expressions import others, own, remove_sg
from klsym.language.messages import Message
from klsym.language.sums import After, Before, LeftOut, OfOthers
from klsym.notation import formulas, losses
from klsym.notation.formulas import Labels
from klsym.notation.tree import Formula, Name, replace_parts
from klsym.notation.values import LazyFormula, collect_names

KINDS = {"past": Before, "future": After, "others": OfOthers}


def _read_base(name: str) -> str:
    return parse_name(name).base


def rewrite_with_loo(e: Any) -> Any:
    """Replace others(x)/m by x - loo(x), if that is shorter.

    >>> from klsym.language.expressions import R, others, rho
    >>> rewrite_with_loo(own(rho) * others(R) / m - own(rho) * own(R))
    -loo(R)*rho_self
    """
    for name in (*LOG_RATIOS, "R", "M"):
        x = to_sympy(ExpPoly.from_variable(name))
        if e.has(others(x)) and e.has(m):
            shorter = sympy.factor_terms(sympy.expand(e.xreplace({others(x): m * (own(x) - LeftOut(x))})))
            e = shorter if shorter.count_ops() < e.count_ops() else e
    return e


def build_side(side: Side, labels: Labels | None, context: Context, tokens: bool) -> Formula:
    """Return a side of a statement as a formula, with a step in place of the name of each region."""

    def replace_regions(node: Formula) -> Formula:
        name = name_in_slot(node.name, node.below or "x") if isinstance(node, Name) else ""
        if name and context.find_definition(name, REGION) is not None:
            return losses.build_tree(to_steps(ExpPoly.from_variable(name), context, tokens))
        return replace_parts(node, replace_regions)

    return replace_regions(formulas.build_tree(side, labels))


def write_regions_as_steps(quantity: Quantity, context: Context) -> Quantity:
    """Label the elements with regions of a quantity as they were typed, or by steps."""
    typed_labels = {e: label for e, label in quantity.labels.items() if isinstance(label, losses.Written)}
    all_elements = {*walk_elements(quantity.side), *quantity.labels}
    with_regions = (
        e
        for e in all_elements
        if any(context.find_definition(name, REGION) is not None for name in e.names())
    )
    return replace(
        quantity,
        labels={**quantity.labels, **{e: to_steps(e, context) for e in with_regions}, **typed_labels},
    )


@dataclass(frozen=True)
class ValuePrinter:
    """Rewrites values for print; tokens: values have slots.  sums: H of a slot -> future(k3) and its like.

    batch: x_self - x_others/m is loo(x) where there are bounds.
    """

    context: Context
    tokens: bool
    sums: Mapping[Any, Any] = field(default_factory=dict)
    batch: bool = False

    @staticmethod
    def build_for_loss(loss: SlotLoss) -> ValuePrinter:
        """Return the printer for a loss with sums H, H2, ..; sums of sums keep their names."""
        sum_expressions: dict[Any, Any] = {}
        for name, value in loss.sums.items():
            base, value_in_steps = _read_base(name), to_steps(to_ring(remove_sg(value)), loss.defined)
            bare_value = remove_slots(value_in_steps.xreplace({of: name for name, of in CRITIC.items()}))
            if any("[" in x.name for x in bare_value.free_symbols):
                continue
            own_value = value_in_steps if loss.index == "t" else own(value_in_steps)
            sum_expressions |= {name_in_slot(base, z): kind(bare_value) for z, kind in KINDS.items()}
            sum_expressions[name_in_slot(base, loss.own_slot)] = own_value
        substitution = {
            to_sympy(ExpPoly.from_variable(name)): value for name, value in sum_expressions.items()
        }
        return ValuePrinter(loss.defined, loss.index == "t", substitution, loss.index == "i")

    def rewrite_value(self, value: Any) -> Any:
        """Rewrite a coefficient, or those of slots, if it contains a name of a region or a sum."""
        if isinstance(value, LazyFormula):
            return LazyFormula(value.build, tuple(map(self.rewrite_value, value.of)))
        if isinstance(value, sympy.Basic):
            return self._replace_sum_names(value)
        hidden_names = {definition.name for definition in self.context.definitions}
        hidden_names |= {_read_base(str(symbol)) for symbol in self.sums}
        if not isinstance(value, Mapping | ExpPoly) or hidden_names.isdisjoint(
            map(_read_base, collect_names(value))
        ):
            return value
        if isinstance(value, Mapping):
            return self._replace_sum_names(to_scored_steps(value, self.context, self.tokens))
        return self._replace_sum_names(to_steps(value, self.context, self.tokens))

    def _replace_sum_names(self, e: Any) -> Any:
        e = sympy.factor_terms(e.xreplace(self.sums)) if e.has(*self.sums) else e
        return rewrite_with_loo(e) if self.batch else e

    def rewrite_cases(self, rows: Cases) -> Cases:
        """Rewrite conditions and coefficients."""
        return tuple((tuple(map(self._rewrite_condition, where)), self.rewrite_value(c)) for where, c in rows)

    def _rewrite_condition(self, on: Condition) -> Condition:
        scale, x = split_leading_coefficient(sympy.expand(self.rewrite_value(on.x)))
        return Condition(x, tuple(sign if scale > 0 else -sign for sign in on.signs))

    def rewrite_reading(self, reading: AnyReading) -> AnyReading:
        """Rewrite the parts of a target."""
        parts = {name: self.rewrite_value(part) for name, part in reading.parts.items()}
        return replace(reading, parts=parts, rest=self.rewrite_value(reading.rest))

    def rewrite_message(self, message: Message) -> Message:
        """Rewrite the values in a message, in tuples and signs too."""
        return Message(
            message.code, **{key: self._rewrite_within(value) for key, value in message.values.items()}
        )

    def _rewrite_within(self, value: Any) -> Any:
        if isinstance(value, tuple) and not isinstance(value, LazyFormula):
            return tuple(map(self._rewrite_within, value))
        return (
            replace(value, where=self._rewrite_within(value.where))
            if isinstance(value, Sign)
            else self.rewrite_value(value)
        )

    def rewrite_sums(self, verdict: Verdict) -> Verdict:
        """Replace the names of sums in a verdict and its cases."""
        if not self.sums and not (self.batch and isinstance(verdict.gradient.score_coefficient, sympy.Basic)):
            return verdict
        return self.rewrite_verdict(verdict).revise(
            score_cases=self._rewrite_lazily(verdict.gradient.score_cases),
            canonical_cases=self._rewrite_lazily(verdict.gradient.canonical_cases),
            bias_cases=self._rewrite_lazily(verdict.gradient.bias_cases),
        )

    def _rewrite_lazily(self, rows: Cases) -> Cases:
        return (
            LazyCases(self.rewrite_cases, rows) if isinstance(rows, LazyCases) else self.rewrite_cases(rows)
        )

    def rewrite_verdict(self, verdict: Verdict) -> Verdict:
        """Rewrite h, c, the targets and the messages of a verdict."""
        return verdict.revise(
            score_coefficient=self.rewrite_value(verdict.gradient.score_coefficient),
            canonical_coefficient=self.rewrite_value(verdict.gradient.canonical_coefficient),
            gradient=self.rewrite_reading(verdict.gradient),
            value=replace(
                self.rewrite_reading(verdict.value), constant=self.rewrite_value(verdict.value.constant)
            ),
            messages=tuple(map(self.rewrite_message, verdict.messages)),
        )
