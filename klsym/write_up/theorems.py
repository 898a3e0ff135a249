r"""A settled claim in LaTeX: statement, hypotheses, derivation with its rules, source, certificate.

The macros (\klclaim, \klstatement, \klrow, ...) are defined by the paper that includes the text, so that a
formula is broken or centred by TeX, which knows its width.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from klsym.engine.derivation import Proof
from klsym.evidence import Evidence
from klsym.kernel.derivatives import Hypothesis
from klsym.ledger import Settled
from klsym.normal_form import ExpPoly
from klsym.render import formulas
from klsym.render.claims import TRUST, VERDICTS, statement_latex
from klsym.render.latex import conclusion
from klsym.render.spelling import LATEX
from klsym.render.text import chain, show_hypothesis
from klsym.write_up.bibliography import cited
from klsym.write_up.prose import prose
from klsym.write_up.tex import breakable, escape
from klsym.write_up.witness import counterexample

Part = Proof | Evidence
LONGEST = 900  # characters of LaTeX, about six lines of print


def claim_latex(settled: Settled) -> str:
    r"""Everything about one claim.

    >>> from klsym.ledger import recall
    >>> print(claim_latex(recall("gradient.k1-loss")).splitlines()[2])
    \klstatement{\mathbb{E}_{q}[\nabla k_1] \brk= 0}
    """
    claim = settled.claim
    head = (claim.id, VERDICTS[claim.verdict], TRUST[settled.trust])
    lines = [r"\klclaim" + "".join(f"{{{escape(text)}}}" for text in head) + f"{{{cited(claim.source)}}}"]
    lines += [prose(claim.explanation)] if claim.explanation else []
    for part in settled.parts:
        lines += _evidence(part) if isinstance(part, Evidence) else _proof(part)
    assumed = list(hypotheses(settled))
    lines += [rf"\klassume{{{'; '.join(assumed)}}}"] if assumed else []
    lines += [rf"\kldigest{{{digest_of(settled)}}}"] if settled.proofs else [r"\klnodigest"]
    return "\n".join([*lines, r"\klend", ""])


def digest_of(settled: Settled) -> str:
    """The digest of the certificate that `klsym check` replays."""
    return str(settled.certificate()["digest"])


def statements(settled: Settled) -> Iterator[tuple[str, str]]:
    """(id/number, LaTeX) of each part, for the text to quote; findings are words."""
    for number, part in enumerate(settled.parts, start=1):
        shown = breakable(statement_latex(part))
        if isinstance(part, Evidence) and part.kind == "computed":
            shown = rf"\text{{{prose(part.text)}}}"
        yield f"{settled.claim.id}/{number}", shown


def _statement(part: Part) -> str:
    return rf"\klstatement{{{breakable(statement_latex(part))}}}"


def _proof(proof: Proof) -> list[str]:
    """The statement and what establishes it; a refuted one is followed by its model."""
    (first, _), *rest = chain(proof.part, proof.labels, LATEX)
    rows = [("", first, ""), *((r"{}= ", formula, rule) for formula, rule in rest)]
    ending = conclusion(proof)
    if ending:
        rows.append(("", ending, str(proof.part["close"]["by"])))
    if len(rows) == 2 and len(rows[1][1]) <= LONGEST:  # one step: its rule stands beside the statement
        lines = [rf"\klby{{{breakable(statement_latex(proof))}}}{{{escape(rows[1][2])}}}"]
    else:
        lines = [_statement(proof)]
        lines += [r"\begin{klderivation}", *_rows(rows), r"\end{klderivation}"]
    if proof.theorem.kind == "refuted":
        lines.append(rf"\klwitness{{{counterexample(proof)}}}")
    return lines


def _rows(rows: list[tuple[str, str, str]]) -> Iterator[str]:
    """The lines of a derivation; a sum that would fill a quarter of a page is left to the certificate."""
    for long, run in groupby(rows, key=lambda row: len(row[1]) > LONGEST):
        together = list(run)
        if not long:
            yield from (_row(sign + breakable(formula), rule) for sign, formula, rule in together)
            continue
        terms = ", ".join(str(_terms(breakable(formula))) for _, formula, _ in together)
        rules = ", ".join(dict.fromkeys(rule for *_, rule in together if rule))
        words = f"a sum of {terms}" if len(together) == 1 else f"sums of {terms}"
        yield _row(rf"{together[0][0]}\kllong{{{words} terms}}", rules)


def _terms(broken: str) -> int:
    """How many terms a sum has, also within its brackets."""
    return broken.count("brk+") + broken.count("brk-") + 1


def _row(shown: str, rule: str) -> str:
    return rf"\klrow{{{shown}}}{{{escape(rule)}}}" if rule else rf"\klfirst{{{shown}}}"


def _evidence(part: Evidence) -> list[str]:
    """A calculation with its lines, or a finding beside what its source says."""
    if part.kind == "computed":
        said = rf"\klsays{{{prose(part.source_says)}}}" if part.source_says else ""
        return [rf"\klfinding{{{prose(part.text)}}}{{{said}}}"]
    rows = [rf"\klrow{{{breakable(latex)}}}{{{prose(reason)}}}" for reason, latex in part.steps]
    block = [r"\begin{klderivation}", *rows, r"\end{klderivation}"] if rows else []
    return [_statement(part), *block]


def hypotheses(settled: Settled) -> Iterator[str]:
    """How the claim is to be read and what it assumes, each once, in the order of the ledger."""
    shown: dict[str, str] = {line: prose(line) for line in settled.claim.reading}
    for part in settled.parts:
        if isinstance(part, Evidence):
            shown |= {line: prose(line) for line in part.hypotheses if line not in shown}
            continue
        texts = dict.fromkeys(part.hypotheses)
        for hypothesis in part.theorem.hypotheses:
            text = show_hypothesis(hypothesis, part.theorem.statement.context, part.labels)
            if text in texts and text not in shown:
                shown[text] = _hypothesis(hypothesis, text, part)
    return iter(shown.values())


def _hypothesis(hypothesis: Hypothesis, text: str, proof: Proof) -> str:
    """Moments and premises from their formulas; the rest is a sentence."""
    context: Any = proof.theorem.statement.context
    match hypothesis:
        case ("moment", moment):
            return _inline(formulas.atom(moment, proof.labels or {}, LATEX)) + " exists"
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
