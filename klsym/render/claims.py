"""A settled claim for a page: what is established, what is refuted, on which hypotheses.

The same statements serve notebooks, the report and the paper; each comes from its proof object.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from klsym.evidence import Evidence
from klsym.render.latex import theorem_latex

VERDICTS = {
    "proved": "proved",
    "refuted": "refuted",
    "corrected": "corrected: not as its source prints it",
    "exact": "calculated exactly",
    "computed": "found by experiment",
}
TRUST = {
    "kernel": "replayed by the kernel",
    "sympy": "rests on SymPy",
    "numeric": "rests on numbers",
}


class SettledView:
    """What a settled claim shows, and how it shows itself: as text, and in Jupyter."""

    def __repr__(self) -> str:
        return claim_text(self)

    def _repr_markdown_(self) -> str:
        return claim_markdown(self)


def claim_text(settled: Any) -> str:
    """The heading and, line by line, what each part says; or why the claim failed."""
    return "\n".join(
        [
            heading(settled),
            *(f"  {line}" for line in [settled.error] if line),
            *(f"  {statement_text(part)}" for part in settled.parts),
        ]
    )


def statement_text(part: Any) -> str:
    """The statement of a part; what a calculation refutes is printed with its negation."""
    false = isinstance(part, Evidence) and part.kind == "refuted"
    return f"not: {part!r}" if false else repr(part)


def heading(settled: Any) -> str:
    """The id, the verdict and the trust in one line.

    >>> from klsym.ledger import recall
    >>> heading(recall("value.k2-biased"))
    'value.k2-biased: refuted (replayed by the kernel)'
    """
    return f"{settled.claim.id}: {VERDICTS[settled.claim.verdict]} ({TRUST[settled.trust]})"


def statement_latex(part: Any) -> str:
    """The statement of a proof or of other evidence; what is refuted is printed with its negation."""
    if not isinstance(part, Evidence):
        return theorem_latex(part)
    return rf"\text{{not: }}{part.latex}" if part.kind == "refuted" else part.latex


def claim_markdown(settled: Any) -> str:
    """The claim with its statements and its hypotheses."""
    claim = settled.claim
    lines = [f"**`{claim.id}`** *{VERDICTS[claim.verdict]}; {TRUST[settled.trust]}; {claim.source}*"]
    lines += [f"\n{claim.explanation}"] if claim.explanation else []
    for part in settled.parts:
        words = isinstance(part, Evidence) and part.kind == "computed"
        lines.append(f"\n- {part.text}" if words else f"\n$$ {statement_latex(part)} $$")
    return "\n".join([*lines, *_hypotheses(settled)])


def _hypotheses(settled: Any) -> Iterator[str]:
    if settled.hypotheses:
        yield "\nHypotheses:\n"
        yield from (f"- {_escaped(line)}" for line in settled.hypotheses)


def _escaped(text: str) -> str:
    for sign in ("*", "_", "<"):
        text = text.replace(sign, "\\" + sign)
    return text
