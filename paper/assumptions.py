r"""The hypotheses of a claim in LaTeX, without those that the paper states once for all claims.

On a finite space with softmax logits expectations exist, and gradient and expectation can be exchanged; the
claims leave these hypotheses out, and the derivations list the expectations that they concern.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from klsym.engine.proof.derivation import Proof
from klsym.kernel.assumptions import Hypothesis
from klsym.kernel.ring import ExpPoly
from klsym.notation import formulas
from klsym.notation.hypotheses import list_supports, show_hypothesis
from klsym.notation.printers import LATEX
from klsym.study.ledger.evidence import Evidence
from klsym.study.ledger.settle_claim import Settled
from klsym.study.write_up.prose import render_prose
from klsym.study.write_up.tex import allow_breaks

AUTOMATIC = {
    "exchange": r"$\nabla$ exchanged in ",
    "lipschitz": r"$\nabla$ exchanged, the terms being Lipschitz, in ",
    "exists": "existence of ",
}


def in_short(settled: Settled) -> Iterator[str]:
    r"""Return the hypotheses of a claim, each once, without its reading and the automatic ones.

    >>> from klsym.study.ledger.settle_claim import recall
    >>> list(in_short(recall("gradient.k2-loss")))
    ['$q \\ll p$']
    """
    shown: dict[str, None] = {}
    for part in settled.parts:
        if isinstance(part, Evidence):
            shown |= {render_prose(_abbreviated(line)): None for line in part.hypotheses}
            continue
        if part.kind != "refuted":
            shown |= {render_prose(f"{a} << {b}"): None for a, b in list_supports(part.theorem)}
        for hypothesis in part.theorem.hypotheses:
            if hypothesis[0] not in AUTOMATIC:
                shown[_shown(hypothesis, part)] = None
    return iter(shown)


def in_full(settled: Settled) -> Iterator[str]:
    r"""The same, then the expectations that are automatic on finite spaces, in the order of the proofs.

    >>> from klsym.study.ledger.settle_claim import recall
    >>> list(in_full(recall("gradient.k1-loss")))
    ['$\\nabla$ exchanged in $\\mathbb{E}_{q}[1]$']
    """
    yield from in_short(settled)
    for kind, words in AUTOMATIC.items():
        found = {
            _inline(formulas.show_atom(hypothesis[1], proof.labels or {}, LATEX)): None
            for proof in settled.proofs
            for hypothesis in proof.theorem.hypotheses
            if hypothesis[0] == kind
        }
        if found:
            yield words + ", ".join(found)


def _shown(hypothesis: Hypothesis, proof: Proof) -> str:
    """Premises and given values from their formulas; the rest is a sentence."""
    context: Any = proof.theorem.statement.context
    match hypothesis:
        case ("ends", measure):
            return f"sequences from ${LATEX.measure(measure)}$ end"
        case ("batch", measure):
            return f"samples of ${LATEX.measure(measure)}$ are independent"
        case ("on-policy",):
            return "on-policy"
        case ("premise" | "equal" as use, number):
            left, right = (formulas.show_side(side, proof.labels, LATEX) for side in context.premises[number])
            return (r"for every $\theta$, " if use == "premise" else "") + _inline(f"{left} = {right}")
        case ("given",):
            values = (
                f"{formulas.show_variable(name, LATEX)} = {formulas.show_element(value, LATEX)}"
                for name, value in context.given
            )
            place = "step" if "[" in context.given[0][0] else "sample"
            return rf"at every {place} " + ", ".join(map(_inline, values))
    text = show_hypothesis(hypothesis, context, proof.labels)
    whole = isinstance(hypothesis[-1], ExpPoly)
    return render_prose(text if whole else _abbreviated(text))


def _inline(latex: str) -> str:
    return f"${allow_breaks(latex)}$"


def _abbreviated(text: str) -> str:
    """A support by its sign alone, which the paper explains."""
    sign, _, words = text.partition(":")
    return sign if words.startswith(" wherever") else text
