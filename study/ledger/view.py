"""A settled claim for a page: what is established, what is refuted, on which hypotheses.

The same statements serve notebooks, the report and the paper; each comes from its proof object.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from klsym.notation.text import show_theorem_latex
from klsym.study.ledger.evidence import Evidence
from klsym.study.ledger.registry import Claim

VERDICTS = {
    "proved": "proved",
    "refuted": "refuted",
    "corrected": "corrected",
    "exact": "calculated exactly",
    "computed": "found by experiment",
}
TRUST = {
    "kernel": "replayed by the kernel",
    "sympy": "by SymPy alone",
    "numeric": "supported by numbers only",
}
MARKUP = re.compile(r"([\\`*_\[\]<>#|$&~!])")
STARTS_A_BLOCK = re.compile(r"^(\d*)([.)](?=\s|$)|[-+=])")  # a list, a rule, a heading


class SettledView:
    """What a settled claim shows, and how it shows itself: as text, and in Jupyter."""

    def __repr__(self) -> str:
        return format_claim(self)

    def _repr_markdown_(self) -> str:
        return format_claim_markdown(self)


def format_claim(settled: Any) -> str:
    """The heading and, line by line, what each part says; or why the claim failed."""
    return "\n".join(
        [
            format_heading(settled),
            *(f"  {line}" for line in [settled.error] if line),
            *(f"  {format_statement(part)}" for part in settled.parts),
        ]
    )


def format_statement(part: Any) -> str:
    """The statement of a part; what a calculation refutes is printed with its negation."""
    false = isinstance(part, Evidence) and part.kind == "refuted"
    return f"not: {part!r}" if false else repr(part)


def format_heading(settled: Any) -> str:
    """The id, the verdict and the trust in one line.

    >>> from klsym.study.ledger.settle_claim import recall
    >>> format_heading(recall("value.k2-biased"))
    'value.k2-biased: refutes E_q[k2] = KL(q||p) (replayed by the kernel)'
    """
    words = describe_verdict(settled.claim)
    if settled.claim.verdict == "refuted" and not settled.error:  # its parts are printed with their negation
        words = f"refutes {settled.statement}"
    return f"{settled.claim.id}: {words} ({TRUST[settled.trust]})"


def describe_verdict(claim: Claim) -> str:
    """The verdict; of a corrected claim also what the refuted form is to its source."""
    words = VERDICTS[claim.verdict]
    return f"{words} ({claim.false_form})" if claim.verdict == "corrected" else words


def format_statement_latex(part: Any) -> str:
    """The statement of a proof or of other evidence; what is refuted is printed with its negation."""
    if not isinstance(part, Evidence):
        return show_theorem_latex(part)
    return rf"\text{{not: }}{part.latex}" if part.kind == "refuted" else part.latex


def format_claim_markdown(settled: Any) -> str:
    """The claim with its statements and its hypotheses."""
    claim = settled.claim
    source = escape_markdown(claim.source)
    lines = [f"**`{claim.id}`** *{describe_verdict(claim)}; {TRUST[settled.trust]}; {source}*"]
    lines += [f"\n{escape_markdown(claim.explanation)}"] if claim.explanation else []
    if claim.verdict == "refuted" and not settled.error:
        lines.append(f"\nRefuted: {escape_markdown(settled.statement)}")
    for part in settled.parts:
        words = isinstance(part, Evidence) and part.kind == "computed"
        lines.append(
            f"\n- {escape_markdown(part.text)}" if words else f"\n$$ {format_statement_latex(part)} $$"
        )
    return "\n".join([*lines, *_list_hypotheses(settled)])


def _list_hypotheses(settled: Any) -> Iterator[str]:
    """A folded list."""
    if settled.hypotheses:
        noun = "hypothesis" if len(settled.hypotheses) == 1 else "hypotheses"
        yield f"\n<details><summary>{len(settled.hypotheses)} {noun}</summary>\n"
        yield from (f"- {escape_markdown(line)}" for line in settled.hypotheses)
        yield "\n</details>"


def escape_markdown(text: str) -> str:
    r"""Text with formulas in it as Markdown that shows every character, and no other.

    >>> print(escape_markdown("g* = E_q[k1**2], y_<t & $5"))
    g\* = E\_q\[k1\*\*2\], y\_\<t \& \$5

    In Jupyter, as on GitHub, a sign that can begin markup, HTML or a formula stands for itself after a
    backslash.  Text is one paragraph: other space becomes a blank, and what would begin a list or a rule is
    escaped.
    """
    escaped = MARKUP.sub(r"\\\1", " ".join(text.split()))
    return STARTS_A_BLOCK.sub(r"\1\\\2", escaped)
