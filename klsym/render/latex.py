"""LaTeX of proofs: an aligned block with the rule names in the right margin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klsym.render.spelling import LATEX
from klsym.render.text import chain, show_theorem

if TYPE_CHECKING:
    from klsym.engine.derivation import Proof


def theorem_latex(proof: Proof) -> str:
    """The statement alone."""
    return show_theorem(proof.theorem, proof.labels, LATEX)


def derivation_block(proof: Proof) -> str:
    """The chain, for a notebook or a paper (needs amsmath)."""
    rows = []
    for position, (formula, rule) in enumerate(chain(proof.part, proof.labels, LATEX)):
        why = rf" && \text{{{rule}}}" if rule else " &&"
        rows.append((formula + " &" if position == 0 else rf"&= {formula}") + why)
    if proof.theorem.kind != "proved" or proof.theorem.statement.relation == "<=":
        rows.append(rf"\Rightarrow\quad & {theorem_latex(proof)} && \text{{{proof.part['close']['by']}}}")
    body = " \\\\\n".join(rows)
    return "$\\displaystyle \\begin{aligned}\n" + body + "\n\\end{aligned}$"
