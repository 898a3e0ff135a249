"""Statements, theorems and derivations as plain text, and derivations as a block of LaTeX.

>>> from klsym.language.abbreviations import Divergence, Gradient
>>> show_side(Side.from_atom(Gradient(Side.from_atom(Divergence("KL", "q", "p")))))
'grad KL(q||p)'

In LaTeX the rule names stand in the right margin.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
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
    walk_atoms,
)
from klsym.language.messages import Message
from klsym.language.unfolding import Theorem, unfold
from klsym.notation import formulas
from klsym.notation.coefficients import build_coefficient
from klsym.notation.formulas import Labels
from klsym.notation.hypotheses import list_assumptions, write_hypothesis
from klsym.notation.printers import LATEX, TEXT, Text
from klsym.notation.tree import Formula, Name, Number, Phrase, Relation, Words, multiply


def show_side(side: Side, labels: Labels | None = None) -> str:
    return formulas.show_side(side, labels, TEXT)


def show_statement(
    statement: Statement, labels: Labels | None = None, kind: str = "proved", spell: Text = TEXT
) -> str:
    """Return the equation or inequality; a refuted one with the negated relation."""
    return spell(_build_relation(statement, labels, kind, spell.positions))


def _build_relation(statement: Statement, labels: Labels | None, kind: str, sums: bool) -> Formula:
    left = formulas.build_tree(statement.left, labels, sums)
    right = formulas.build_tree(statement.right, formulas.choose_right_labels(labels), sums)
    relation = statement.relation
    if kind == "refuted" and (relation == "=" or sums):
        relation = {"=": "!=", "<=": "not <="}[relation]
    return Relation(left, relation, right)


SPAN = r"\mathrm{span}\{\nabla\mathrm{KL}(q\Vert p),\ \nabla\mathrm{KL}(p\Vert q)\}"


def show_theorem(theorem: Theorem, labels: Labels | None = None, spell: Text = TEXT) -> str:
    """Return a theorem in one line."""
    sums = spell.positions
    shown = _build_relation(theorem.statement, labels, theorem.kind, sums)
    if theorem.kind == "unique":
        return spell(Relation(shown, "iff", build_family(theorem, sums)))
    if theorem.kind == "independent":
        left = formulas.build_tree(theorem.statement.left, labels, sums)
        none = " is no combination of grad KL(q||p), grad KL(p||q) and grad E_q[h(R, A)]"
        return spell(Phrase((left, Words(none, rf" \notin {SPAN}"))))
    if theorem.kind == "refuted" and not sums:
        fails = " in general" if theorem.statement.relation == "=" else " fails in a model"
        return spell(Phrase((shown, Words(fails))))
    return spell(Phrase((shown, *build_equality_condition(theorem, sums))))


def build_equality_condition(theorem: Theorem, sums: bool) -> tuple[Formula, ...]:
    """Build the condition for equality in an inequality, with the words before it; empty if none is known."""
    equal = find_equality(theorem, sums)
    return (Words("; equality iff ", r"\quad\text{with equality iff }"), equal) if equal else ()


def find_equality(theorem: Theorem, sums: bool) -> Formula | None:
    """Find the condition under which an inequality is an equality."""
    zeros = dict.fromkeys(_build_zero_condition(zero, sums) for zero in theorem.zeros)
    return Phrase(_join_parts(" and ", *zeros)) if zeros else None


def _join_parts(word: str, *parts: Formula) -> tuple[Formula, ...]:
    return tuple(item for part in parts for item in (Words(word), part))[1:]


def _build_zero_condition(zero: Zero, sums: bool) -> Formula:
    """Build a condition such as "lam = 1 or r = 1 wherever q > 0"."""
    scored = formulas.build_scored("", a=zero.element, score=zero.score, labels={}, sums=sums)
    if zero.constant:
        shown: tuple[Formula, ...] = (scored, Words(" is constant"))
    else:
        shown = (
            Relation(scored, "=", Number(0)) if zero.score else formulas.build_equation(zero.element, sums),
        )
    mass: list[Formula] = [Name(zero.measure)] if zero.measure not in ("count", SAMPLE) else []
    mass += [build_coefficient(zero.weight, sums)] if zero.weight != ONE else []
    if mass:
        shown += (Words(" wherever "), Relation(multiply(*mass), ">", Number(0)))
    elif zero.measure == "count":
        shown += (Words(" at every outcome"),)
    free = (formulas.build_equation(zero.factor, sums), Words(" or ")) if zero.factor.names() else ()
    return Phrase((*free, *shown))


def build_family(theorem: Theorem, sums: bool) -> Formula:
    """Build the solutions of a uniqueness theorem, with their free constants."""
    solution = build_coefficient(ExpPoly.from_json(theorem.close["family"]), sums)
    shown = Relation(Name(theorem.close["function"]), "=", solution)
    constants = _join_parts(", ", *map(Name, sorted(theorem.close["constants"])))
    comma = tuple(Words(", ", ", ") if isinstance(part, Words) else part for part in constants)
    return Phrase((shown, Words(" (any ", r"\quad("), *comma, Words(")", r"\in\mathbb{R})")))


def show_interval(ends: list[str]) -> str:
    """Return an interval as the decimal digits on which both ends agree."""
    low, high = (_to_number(Fraction(end)) for end in ends)
    return f"{low:.10g}" if f"{low:.10g}" == f"{high:.10g}" else f"{low:.6g}..{high:.6g}"


def _to_number(value: Fraction) -> float | Decimal:
    """Convert to a float, or beyond 1e300 to a decimal, since floats end at 1.8e308."""
    if abs(value) < 10**300:
        return float(value)
    return Decimal(value.numerator) / value.denominator


def format_chain(proof: Any, spell: Text) -> list[tuple[str, str]]:
    """Return the derivation as (formula, reason) rows: down the left side, then up the right side."""
    return [(printed(spell), why) for printed, why in build_printed_chain(proof, spell)]


class PrintedSide:
    """A printed side; each spelling is made on demand, once."""

    def __init__(self, side: Side, labels: Labels | None) -> None:
        self.side, self.labels = side, labels
        self.spellings: dict[Text, str] = {}

    def __call__(self, spell: Text) -> str:
        if spell not in self.spellings:
            self.spellings[spell] = formulas.show_side(self.side, self.labels, spell)
        return self.spellings[spell]


def build_printed_chain(proof: Any, *spells: Text) -> list[tuple[PrintedSide, str]]:
    """Build the derivation; each row differs from the one before in one of these spellings."""
    statement, labels = proof.theorem.statement, proof.labels
    if proof.brief:
        ends = [(statement.left, "")] + [(statement.right, "evaluation")] * (statement.relation == "=")
        return _merge_rows([(PrintedSide(side, labels), why) for side, why in ends], spells)
    left, right = _list_steps(proof, "left"), _list_steps(proof, "right")
    if [side for side, _ in left] == [side for side, _ in right] and isinstance(labels, formulas.SidedLabels):
        # one function, written in two ways
        by = proof.part["close"]["by"]
        return [(PrintedSide(statement.left, labels), ""), (PrintedSide(statement.left, labels.right), by)]
    rows = list(left)
    if proof.part["close"]["by"] == "equality":
        rows += [(right[i - 1][0], right[i][1]) for i in range(len(right) - 1, 0, -1)]
    return _merge_rows([(PrintedSide(side, labels), why) for side, why in rows], spells)


def _list_steps(proof: Any, which: str) -> list[tuple[Side, str]]:
    """List the steps from one side as written, with its abbreviations expanded, to its last form."""
    statement = proof.theorem.statement
    written = statement.left if which == "left" else statement.right
    start = unfold(written, statement.context)
    rows = [(start, "")] + [(side, _name_rule(step)) for step, side in proof.moves if step["side"] == which]
    for begin, end, by in reversed(proof.notes if which == "left" else ()):
        rows[begin + 1 : end + 1] = [(rows[end][0], by)]
    if written != start:
        rows[:1] = [(written, ""), (start, _explain_expansion(written, statement.context))]
    return rows


def _name_rule(step: dict[str, Any]) -> str:
    """Name the rule of a step; an equation is a premise, or a theorem that is cited."""
    if step["rule"] != EQUATION:
        return str(step["rule"])
    return "theorem" if isinstance(step["data"]["of"], list) else "premise"


def _explain_expansion(side: Side, context: Context) -> str:
    """Name what is inserted when the abbreviations of a side are expanded."""
    written = unfold(side, context)
    reasons = {
        "definition": any(isinstance(atom, NAMED) for atom in walk_atoms(side)),
        "on-policy": unfold(side, replace(context, on_policy=False)) != written,
        "given": unfold(side, replace(context, given=())) != written,
    }
    return ", ".join(reason for reason, holds in reasons.items() if holds)


def _merge_rows(
    rows: list[tuple[PrintedSide, str]], spells: tuple[Text, ...]
) -> list[tuple[PrintedSide, str]]:
    """Merge a step that changes nothing in print with the step before it."""
    shown: list[tuple[PrintedSide, str]] = []
    for printed, why in rows:
        if shown and all(shown[-1][0](spell) == printed(spell) for spell in spells):
            reasons = [r for r in (shown[-1][1], why) if r]
            shown[-1] = (shown[-1][0], ", ".join(dict.fromkeys(reasons)))
        else:
            shown.append((printed, why))
    return shown


class ProofView:
    """A proof that prints itself, as text and in Jupyter."""

    part: dict[str, Any]
    labels: Labels
    theorem: Theorem

    @property
    def kind(self) -> str:
        """The kind of the theorem: proved, refuted, unique, independent or iff."""
        return self.theorem.kind

    @cached_property
    def assumptions(self) -> tuple[Message, ...]:
        """The hypotheses of the theorem as messages."""
        return list_assumptions(self.theorem, self.labels)

    @property
    def hypotheses(self) -> list[str]:
        """The hypotheses as sentences."""
        return [write_hypothesis(message) for message in self.assumptions]

    @property
    def stated(self) -> str:
        """The statement itself, true or refuted."""
        return show_statement(self.theorem.statement, self.labels)

    def __repr__(self) -> str:
        return show_theorem(self.theorem, self.labels)

    def _repr_latex_(self) -> str:
        return format_derivation(self)


def show_theorem_latex(proof: ProofView) -> str:
    """Return the statement in LaTeX."""
    return show_theorem(proof.theorem, proof.labels, LATEX)


def align_rows(rows: list[tuple[str, str]], last_row: tuple[str, str] | None = None) -> str:
    """Return (formula, rule) rows as one aligned block, with the rule names in the right margin.

    last_row: a last row with its own relation sign.
    """
    (first, _), *further_rows = rows
    lines = [rf"= {formula} && \text{{{rule}}}" for formula, rule in further_rows]
    if last_row and last_row[0]:
        lines.append(rf"{last_row[0]} && \text{{{last_row[1]}}}")
    body = " \\\\\n".join(f"&{line}" for line in lines)
    return "\\begin{aligned}\n" + f"{first} {body}" + "\n\\end{aligned}"


def format_derivation(proof: ProofView) -> str:
    """Return the derivation in LaTeX for a notebook or a paper (needs amsmath)."""
    last_row = (format_conclusion(proof), str(proof.part["close"]["by"]))
    return f"$$\n{align_rows(format_chain(proof, LATEX), last_row)}\n$$"


def format_conclusion(proof: ProofView) -> str:
    """Return the end of a derivation that does not end in an equality; else empty."""
    return " ".join(part for part in build_ending(proof) if part)


def build_ending(proof: ProofView, spell: Text = LATEX) -> tuple[str, str]:
    """Return that end as a sign in LaTeX and the formula after it; empty for an equality."""
    theorem = proof.theorem
    right = formulas.build_tree(theorem.statement.right, proof.labels, sums=True)
    if theorem.kind == "unique":
        always = Words("", r"0\ \forall q, p, \mu \iff ")
        return "=", spell(Phrase((always, build_family(theorem, sums=True))))
    if theorem.kind == "independent":
        return r"\notin", spell(Words("", SPAN))
    if theorem.kind == "refuted":
        return r"\ne" if theorem.statement.relation == "=" else r"\not\le", spell(right)
    if theorem.statement.relation == "<=":
        return r"\le", spell(Phrase((right, *build_equality_condition(theorem, sums=True))))
    return "", ""
