r"""What a claim assumes, in LaTeX: each hypothesis in full, or in the short forms that the paper explains.

Short: the exchange of gradient and integral by its measures, supports by their sign, moments by their number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from klsym.engine.proof.derivation import Proof
from klsym.kernel.assumptions import Hypothesis
from klsym.kernel.ring import ExpPoly
from klsym.ledger.evidence import Evidence
from klsym.ledger.settle_claim import Settled
from klsym.notation import formulas
from klsym.notation.hypotheses import exists, named_supports, show_hypothesis, written_out
from klsym.notation.printers import LATEX
from klsym.write_up.prose import prose
from klsym.write_up.tex import breakable

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def hypotheses(settled: Settled) -> Iterator[str]:
    """How the claim is to be read and what it assumes, each once, in the order of the ledger."""
    shown: dict[str, str] = {line: prose(line) for line in settled.claim.reading}
    for part in settled.parts:
        if isinstance(part, Evidence):
            shown |= {line: prose(line) for line in part.hypotheses if line not in shown}
            continue
        texts = {written_out(message): message.code for message in part.assumptions}
        shown |= {line: prose(line) for line, code in texts.items() if code == "means-exist"}
        for hypothesis in part.theorem.hypotheses:
            text = show_hypothesis(hypothesis, part.theorem.statement.context, part.labels)
            if text in texts and text not in shown:
                shown[text] = _in_full(hypothesis, text, part)
    return iter(shown.values())


def _in_full(hypothesis: Hypothesis, text: str, proof: Proof) -> str:
    """Moments and premises from their formulas; the rest is a sentence."""
    context: Any = proof.theorem.statement.context
    match hypothesis:
        case ("exists", atom):
            return f"{_inline(formulas.atom(atom, proof.labels or {}, LATEX))} {exists(atom)}"
        case ("exchange", mean):
            shown = _inline(formulas.atom(mean, proof.labels or {}, LATEX))
            return prose(text.partition(" in ")[0]) + f" in {shown} (dominated derivative near theta)"
        case ("premise" | "equal" as use, number):
            left, right = (formulas.side(side, proof.labels, LATEX) for side in context.premises[number])
            lead = r"for every $\theta$, " if use == "premise" else ""
            return lead + _inline(f"{left} = {right}")
        case ("given",):
            values = (
                f"{formulas.variable(name, LATEX)} = {formulas.element(value, LATEX)}"
                for name, value in context.given
            )
            place = "step" if "[" in context.given[0][0] else "sample"
            return rf"at every {place} " + ", ".join(map(_inline, values))
        case ("nonnegative", _, ExpPoly()):
            return prose(text)
    return prose(text)


def _inline(latex: str) -> str:
    return f"${breakable(latex)}$"


def in_short(settled: Settled) -> Iterator[str]:
    r"""What the claim assumes, without its reading, in few words.

    >>> from klsym.ledger.settle_claim import recall
    >>> list(in_short(recall("gradient.k2-loss")))
    ['exchange under $q$', '$q \\ll p$', 'one moment exists']
    """
    exchanged: dict[str, None] = {}
    moments: set[str] = set()
    rest: dict[str, None] = {}
    for part in settled.parts:
        if isinstance(part, Evidence):
            rest |= {prose(_abbreviated(line)): None for line in part.hypotheses}
            continue
        if part.kind != "refuted":
            rest |= {prose(f"{a} << {b}"): None for a, b in named_supports(part.theorem)}
        for hypothesis in part.theorem.hypotheses:
            text = show_hypothesis(hypothesis, part.theorem.statement.context, part.labels)
            match hypothesis:
                case ("exchange", mean):
                    exchanged[f"${LATEX.measure(mean.measure)}$"] = None
                case ("exists", _):
                    moments.add(text)
                case ("ends", measure):
                    rest[f"sequences from ${LATEX.measure(measure)}$ end"] = None
                case ("batch", measure):
                    rest[f"samples of ${LATEX.measure(measure)}$ are independent"] = None
                case ("on-policy",):
                    rest["on-policy"] = None
                case ("support", *_):
                    rest[prose(_abbreviated(text))] = None
                case _:
                    rest[_in_full(hypothesis, text, part)] = None
    if exchanged:
        yield "exchange under " + ", ".join(exchanged)
    yield from rest
    if moments:
        count = NUMBERS[len(moments)] if len(moments) < len(NUMBERS) else str(len(moments))
        yield f"{count} moment{'s' if len(moments) > 1 else ''} exist{'' if len(moments) > 1 else 's'}"


def _abbreviated(text: str) -> str:
    """A support by its sign alone, which the paper explains."""
    sign, _, words = text.partition(":")
    return sign if words.startswith(" wherever") else text
