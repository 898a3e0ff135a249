"""Plain text: statements, theorems, hypotheses, derivations.

>>> from klsym.statements import Divergence, Gradient, Side
>>> show_side(Side.atom(Gradient(Side.atom(Divergence("KL", "q", "p")))))
'grad KL(q||p)'
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

from klsym.kernel import Theorem
from klsym.kernel.derivatives import Hypothesis
from klsym.kernel.inequalities import SAMPLE, Zero, equality
from klsym.normal_form import ExpPoly
from klsym.render import formulas
from klsym.render.formulas import Labels
from klsym.render.spelling import TEXT, Text
from klsym.statements import Context, Side, Statement


def show_side(side: Side, labels: Labels | None = None) -> str:
    return formulas.side(side, labels, TEXT)


def show_statement(
    statement: Statement, labels: Labels | None = None, kind: str = "proved", spell: Text = TEXT
) -> str:
    """The equation or inequality; a refuted one is printed with its negation."""
    left = formulas.side(statement.left, labels, spell)
    right = formulas.side(statement.right, formulas.on_the_right(labels), spell)
    relation = statement.relation
    if kind == "refuted" and (relation == "=" or spell is not TEXT):
        relation = {"=": "!=", "<=": "not <="}[relation]
    return f"{left} {spell.relation[relation]} {right}"


SPAN = r"\mathrm{span}\{\nabla\mathrm{KL}(q\Vert p),\ \nabla\mathrm{KL}(p\Vert q)\}"


def show_theorem(theorem: Theorem, labels: Labels | None = None, spell: Text = TEXT) -> str:
    """What a part establishes, in one line."""
    shown = show_statement(theorem.statement, labels, theorem.kind, spell)
    if theorem.kind == "unique":
        return shown + _iff(spell) + solution(theorem, spell)
    if theorem.kind == "independent":
        left = formulas.side(theorem.statement.left, labels, spell)
        if spell is TEXT:
            return f"{left} is no combination of grad KL(q||p), grad KL(p||q) and grad E_q[h(R, A)]"
        return rf"{left} \notin {SPAN}"
    if theorem.kind == "refuted" and spell is TEXT:
        return shown + (" in general" if theorem.statement.relation == "=" else " fails in a model")
    return shown + condition(theorem, spell)


def condition(theorem: Theorem, spell: Text) -> str:
    """When an inequality holds, or when it is an equality; empty for what is neither."""
    if theorem.kind == "iff":
        name, value = theorem.close["parameter"], ExpPoly.from_json(theorem.close["value"])
        words = _words(" for every ", spell, f"{spell.name('r')} > 0")
        return f"{words}{_iff(spell)}{spell.name(name)} = {formulas.element(value, spell)}"
    zeros = dict.fromkeys(_zero(zero, spell) for zero in equality(theorem.close))
    if theorem.kind != "proved" or not zeros:
        return ""
    lead = "; equality iff " if spell is TEXT else r"\quad\text{with equality iff }"
    return lead + _words(" and ", spell).join(zeros)


def _zero(zero: Zero, spell: Text) -> str:
    """lam = 1 or r = 1 wherever q > 0."""
    if zero.constant:
        shown = formulas.scored(zero.element, zero.score, {}, spell) + _words(" is constant", spell)
    else:
        shown = _equation(zero.element, spell)
        shown = formulas.scored(zero.element, zero.score, {}, spell) + " = 0" if zero.score else shown
    if zero.at == "count":
        shown += _words(" at every outcome", spell)
    elif zero.at != SAMPLE:
        shown += _words(" wherever ", spell, f"{spell.name(zero.at)} > 0")
    free = _equation(zero.factor, spell) + _words(" or ", spell) if zero.factor.names() else ""
    return free + shown


def _equation(element: ExpPoly, spell: Text) -> str:
    """element = 0 with its negative terms on the right; k1 = 0 is r = 1."""
    for name, ratio in (("k1", "r"), ("w", "rho")):
        if set(element.terms) == {(((name, 1),), ())}:
            return f"{spell.name(ratio)} = 1"
    above = ExpPoly({key: value for key, value in element.terms.items() if value > 0})
    sides = (above, above - element) if above else (-element, above)
    return " = ".join(formulas.element(side, spell) for side in sides)


def _words(words: str, spell: Text, formula: str = "") -> str:
    """Words before a formula."""
    return (words if spell is TEXT else rf"\text{{{words}}}") + formula


def _iff(spell: Text) -> str:
    return " iff " if spell is TEXT else r" \iff "


def solution(theorem: Theorem, spell: Text) -> str:
    """The family of a uniqueness theorem, with its free constants."""
    family = formulas.element(ExpPoly.from_json(theorem.close["family"]), spell)
    constants = ", ".join(spell.name(a) for a in sorted(theorem.close["constants"]))
    free = f" (any {constants})" if spell is TEXT else rf"\quad({constants}\in\mathbb{{R}})"
    return f"{spell.name(theorem.close['function'])} = {family}{free}"


def show_hypothesis(hypothesis: Hypothesis, context: Context, labels: Labels | None = None) -> str:
    """One hypothesis in words."""
    match hypothesis:
        case ("support", "count", b):
            return f"{b} > 0 at every outcome"
        case ("support", a, b):
            return f"{a} << {b}: wherever {a} > 0, also {b} > 0"
        case ("exchange", m):
            return f"grad and E_{m} may be exchanged (dominated derivative near theta)"
        case ("batch", m):
            return f"the n samples of a batch are independent draws from {m}"
        case ("ends", m):
            return f"after any prefix, sequences from {m} end with probability 1, and sums over t have means"
        case ("moment", moment):
            return f"{formulas.atom(moment, labels or {}, TEXT)} exists"
        case ("nonzero", name):
            return f"{name} is not 0"
        case ("positive", name):
            return f"{name} > 0"
        case ("nonnegative", at, ExpPoly() as element):
            return _region(str(at), element)
        case ("generic", name):
            return f"{name} takes none of the isolated values at which terms merge or vanish"
        case ("on-policy",):
            return "on-policy: samples come from q itself, and the sampler is not differentiated (mu = sg(q))"
        case ("given",):
            values = ", ".join(
                f"{formulas.variable(n, TEXT)} = {formulas.element(v)}" for n, v in context.given
            )
            return f"at every {'step' if '[' in context.given[0][0] else 'sample'} {values}"
        case ("premise" | "equal" as use, number):
            left, right = context.premises[number]
            lead = "for every theta " if use == "premise" else ""
            return f"{lead}{show_side(left, labels)} = {show_side(right, labels)}"
    raise ValueError(f"unknown hypothesis {hypothesis!r}")


def _region(at: str, element: ExpPoly) -> str:
    """2*k1 + 1 >= 0 wherever mu > 0, that is r <= exp(1/2); c + d k1 >= 0 just if log r <= c/d (d > 0)."""
    place = " at every outcome" if at == "count" else "" if at == SAMPLE else f" wherever {at} > 0"
    shown = f"{formulas.element(element)} >= 0{place}"
    for name, ratio, sign in (("k1", "r", 1), ("w", "rho", -1)):
        slope, rest = element.terms.get((((name, 1),), ()), 0), element.terms.get(((), ()), 0)
        if slope and element == ExpPoly.variable(name) * slope + rest:
            edge = formulas.element(ExpPoly.number(Fraction(rest) / slope * sign).exp())
            shown += f", that is {ratio} {'<=' if slope * sign > 0 else '>='} {edge}"
    return shown


def show_hypotheses(theorem: Theorem, labels: Labels | None = None) -> list[str]:
    """In words; that a positive parameter is not 0 goes without saying."""
    positive = {("nonzero", h[1]) for h in theorem.hypotheses if h[0] == "positive"}
    shown = [h for h in theorem.hypotheses if h not in positive]
    return [show_hypothesis(h, theorem.statement.context, labels) for h in shown]


def show_interval(ends: list[str]) -> str:
    """An enclosure as the decimal digits on which both ends agree."""
    low, high = (_decimal(Fraction(end)) for end in ends)
    return f"{low:.10g}" if f"{low:.10g}" == f"{high:.10g}" else f"{low:.6g}..{high:.6g}"


def _decimal(value: Fraction) -> float | Decimal:
    """Floats end at 1.8e308, decimals do not."""
    if abs(value) < 10**300:
        return float(value)
    return Decimal(value.numerator) / value.denominator


def chain(part: dict[str, Any], labels: Labels | None, spell: Text) -> list[tuple[str, str]]:
    """The chain as (formula, reason) rows: down the left side, then up the right side."""
    return [(shown, why) for (shown,), why in chain_in(part, labels, spell)]


def chain_in(part: dict[str, Any], labels: Labels | None, *spells: Text) -> list[tuple[tuple[str, ...], str]]:
    """The chain with each formula in several spellings."""
    left = [(part["left"], "")] + [(s["result"], s["rule"]) for s in part["steps"] if s["side"] == "left"]
    right = [(part["right"], "")] + [(s["result"], s["rule"]) for s in part["steps"] if s["side"] == "right"]
    rows = list(left)
    by = part["close"]["by"]
    if left == right and isinstance(labels, formulas.SidedLabels):  # one function, written in two ways
        start = Side.from_json(part["left"])
        return [(_spelled(start, labels, spells), ""), (_spelled(start, labels.right, spells), by)]
    if by == "evaluation":
        rows.append((right[-1][0], by))
    if by in ("ring equality", "evaluation"):
        for position in range(len(right) - 1, 0, -1):
            rows.append((right[position - 1][0], right[position][1]))
        if by == "ring equality" and len(right) == 1 and right[0][0] != left[-1][0]:
            rows.append((right[0][0], by))
    return _merged([(_spelled(Side.from_json(data), labels, spells), why) for data, why in rows])


def _spelled(side: Side, labels: Labels | None, spells: tuple[Text, ...]) -> tuple[str, ...]:
    return tuple(formulas.side(side, labels, spell) for spell in spells)


def _merged(rows: list[tuple[tuple[str, ...], str]]) -> list[tuple[tuple[str, ...], str]]:
    """A step that changes nothing in print joins the next one's reasons."""
    shown: list[tuple[tuple[str, ...], str]] = []
    for formula, why in rows:
        if shown and shown[-1][0] == formula:
            reasons = [r for r in (shown[-1][1], why) if r]
            shown[-1] = (formula, ", ".join(dict.fromkeys(reasons)))
        else:
            shown.append((formula, why))
    return shown
