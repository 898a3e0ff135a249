"""Plain text: statements, theorems, derivations.

>>> from klsym.language.abbreviations import Divergence, Gradient
>>> show_side(Side.atom(Gradient(Side.atom(Divergence("KL", "q", "p")))))
'grad KL(q||p)'
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

from klsym.kernel import EQUATION
from klsym.kernel.closings import Zero
from klsym.kernel.names import SAMPLE
from klsym.kernel.ring import ONE, ExpPoly
from klsym.language.abbreviations import (
    NAMED,
    Context,
    Side,
    Statement,
    atoms_of,
)
from klsym.language.unfolding import Theorem, unfold
from klsym.notation import formulas
from klsym.notation.coefficients import coefficient
from klsym.notation.formulas import Labels
from klsym.notation.printers import TEXT, Text
from klsym.notation.tree import Formula, Name, Number, Phrase, Relation, Words, product


def show_side(side: Side, labels: Labels | None = None) -> str:
    return formulas.side(side, labels, TEXT)


def show_statement(
    statement: Statement, labels: Labels | None = None, kind: str = "proved", spell: Text = TEXT
) -> str:
    """The equation or inequality; a refuted one is printed with its negation."""
    return spell(_stated(statement, labels, kind, spell.positions))


def _stated(statement: Statement, labels: Labels | None, kind: str, sums: bool) -> Formula:
    left = formulas.tree_of(statement.left, labels, sums)
    right = formulas.tree_of(statement.right, formulas.on_the_right(labels), sums)
    relation = statement.relation
    if kind == "refuted" and (relation == "=" or sums):
        relation = {"=": "!=", "<=": "not <="}[relation]
    return Relation(left, relation, right)


SPAN = r"\mathrm{span}\{\nabla\mathrm{KL}(q\Vert p),\ \nabla\mathrm{KL}(p\Vert q)\}"


def show_theorem(theorem: Theorem, labels: Labels | None = None, spell: Text = TEXT) -> str:
    """What a part establishes, in one line."""
    sums = spell.positions
    shown = _stated(theorem.statement, labels, theorem.kind, sums)
    if theorem.kind == "unique":
        return spell(Relation(shown, "iff", family(theorem, sums)))
    if theorem.kind == "independent":
        left = formulas.tree_of(theorem.statement.left, labels, sums)
        none = " is no combination of grad KL(q||p), grad KL(p||q) and grad E_q[h(R, A)]"
        return spell(Phrase((left, Words(none, rf" \notin {SPAN}"))))
    if theorem.kind == "refuted" and not sums:
        fails = " in general" if theorem.statement.relation == "=" else " fails in a model"
        return spell(Phrase((shown, Words(fails))))
    return spell(Phrase((shown, *condition(theorem, sums))))


def condition(theorem: Theorem, sums: bool) -> tuple[Formula, ...]:
    """When an inequality is an equality, with the words before it; nothing for what is none."""
    equal = equality(theorem, sums)
    return (Words("; equality iff ", r"\quad\text{with equality iff }"), equal) if equal else ()


def equality(theorem: Theorem, sums: bool) -> Formula | None:
    """When an inequality is an equality."""
    zeros = dict.fromkeys(_zero(zero, sums) for zero in theorem.zeros)
    return Phrase(_joined(" and ", *zeros)) if zeros else None


def _joined(word: str, *parts: Formula) -> tuple[Formula, ...]:
    return tuple(item for part in parts for item in (Words(word), part))[1:]


def _zero(zero: Zero, sums: bool) -> Formula:
    """lam = 1 or r = 1 wherever q > 0."""
    scored = formulas.scored("", zero.element, zero.score, {}, sums)
    if zero.constant:
        shown: tuple[Formula, ...] = (scored, Words(" is constant"))
    else:
        shown = (Relation(scored, "=", Number(0)) if zero.score else formulas.equation(zero.element, sums),)
    mass: list[Formula] = [Name(zero.measure)] if zero.measure not in ("count", SAMPLE) else []
    mass += [coefficient(zero.weight, sums)] if zero.weight != ONE else []
    if mass:
        shown += (Words(" wherever "), Relation(product(*mass), ">", Number(0)))
    elif zero.measure == "count":
        shown += (Words(" at every outcome"),)
    free = (formulas.equation(zero.factor, sums), Words(" or ")) if zero.factor.names() else ()
    return Phrase((*free, *shown))


def family(theorem: Theorem, sums: bool) -> Formula:
    """The solutions of a uniqueness theorem, with their free constants."""
    found = coefficient(ExpPoly.from_json(theorem.close["family"]), sums)
    shown = Relation(Name(theorem.close["function"]), "=", found)
    constants = _joined(", ", *map(Name, sorted(theorem.close["constants"])))
    comma = tuple(Words(", ", ", ") if isinstance(part, Words) else part for part in constants)
    return Phrase((shown, Words(" (any ", r"\quad("), *comma, Words(")", r"\in\mathbb{R})")))


def show_interval(ends: list[str]) -> str:
    """An enclosure as the decimal digits on which both ends agree."""
    low, high = (_decimal(Fraction(end)) for end in ends)
    return f"{low:.10g}" if f"{low:.10g}" == f"{high:.10g}" else f"{low:.6g}..{high:.6g}"


def _decimal(value: Fraction) -> float | Decimal:
    """Floats end at 1.8e308, decimals do not."""
    if abs(value) < 10**300:
        return float(value)
    return Decimal(value.numerator) / value.denominator


def chain(proof: Any, spell: Text) -> list[tuple[str, str]]:
    """The chain as (formula, reason) rows: down the left side, then up the right side."""
    return [(printed(spell), why) for printed, why in printed_chain(proof, spell)]


class Printed:
    """A side in print: each spelling is made when it is asked for, once."""

    def __init__(self, side: Side, labels: Labels | None) -> None:
        self.side, self.labels = side, labels
        self.made: dict[Text, str] = {}

    def __call__(self, spell: Text) -> str:
        if spell not in self.made:
            self.made[spell] = formulas.side(self.side, self.labels, spell)
        return self.made[spell]


def printed_chain(proof: Any, *spells: Text) -> list[tuple[Printed, str]]:
    """The chain, where each row differs from the one before in one of these spellings."""
    statement, labels = proof.theorem.statement, proof.labels
    if proof.brief:
        ends = [(statement.left, "")] + [(statement.right, "evaluation")] * (statement.relation == "=")
        return _merged([(Printed(side, labels), why) for side, why in ends], spells)
    left, right = _path(proof, "left"), _path(proof, "right")
    if [side for side, _ in left] == [side for side, _ in right] and isinstance(labels, formulas.SidedLabels):
        # one function, written in two ways
        by = proof.part["close"]["by"]
        return [(Printed(statement.left, labels), ""), (Printed(statement.left, labels.right), by)]
    rows = list(left)
    if proof.part["close"]["by"] == "equality":
        rows += [(right[i - 1][0], right[i][1]) for i in range(len(right) - 1, 0, -1)]
    return _merged([(Printed(side, labels), why) for side, why in rows], spells)


def _path(proof: Any, which: str) -> list[tuple[Side, str]]:
    """From one side as written, over what it abbreviates, to where its steps lead, by its waypoints."""
    statement = proof.theorem.statement
    written = statement.left if which == "left" else statement.right
    start = unfold(written, statement.context)
    rows = [(start, "")] + [(side, _reason(step)) for step, side in proof.moves if step["side"] == which]
    for begin, end, by in reversed(proof.notes if which == "left" else ()):
        rows[begin + 1 : end + 1] = [(rows[end][0], by)]
    if written != start:
        rows[:1] = [(written, ""), (start, _abbreviated(written, statement.context))]
    return rows


def _reason(step: dict[str, Any]) -> str:
    """The rule; an equation is a premise, or a theorem that is cited."""
    if step["rule"] != EQUATION:
        return str(step["rule"])
    return "theorem" if isinstance(step["data"]["of"], list) else "premise"


def _abbreviated(side: Side, context: Context) -> str:
    """What is put in when a side is written out."""
    written = unfold(side, context)
    reasons = {
        "definition": any(isinstance(atom, NAMED) for atom in atoms_of(side)),
        "on-policy": unfold(side, replace(context, on_policy=False)) != written,
        "given": unfold(side, replace(context, given=())) != written,
    }
    return ", ".join(reason for reason, holds in reasons.items() if holds)


def _merged(rows: list[tuple[Printed, str]], spells: tuple[Text, ...]) -> list[tuple[Printed, str]]:
    """A step that changes nothing in print joins the next one's reasons."""
    shown: list[tuple[Printed, str]] = []
    for printed, why in rows:
        if shown and all(shown[-1][0](spell) == printed(spell) for spell in spells):
            reasons = [r for r in (shown[-1][1], why) if r]
            shown[-1] = (shown[-1][0], ", ".join(dict.fromkeys(reasons)))
        else:
            shown.append((printed, why))
    return shown
