"""LaTeX of proofs: an aligned block with the rule names in the right margin."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from klsym.language.messages import Message
from klsym.language.unfolding import Theorem
from klsym.notation import formulas
from klsym.notation.formulas import Labels
from klsym.notation.hypotheses import list_assumptions, write_hypothesis
from klsym.notation.printers import LATEX, Text
from klsym.notation.text import (
    SPAN,
    build_equality_condition,
    build_family,
    format_chain,
    show_statement,
    show_theorem,
)
from klsym.notation.tree import Phrase, Words


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
