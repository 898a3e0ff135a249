r"""A settled claim in LaTeX: what it states, for the text, and its derivation, for the appendix.

The macros (\klclaim, \klpart, \klrow, ...) are defined by the paper that includes the text, so that a
formula is broken or centred by TeX, which knows its width.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from klsym.engine.proof.derivation import Proof
from klsym.notation import formulas
from klsym.notation.printers import LATEX
from klsym.notation.text import format_chain, format_conclusion
from klsym.paper.assumptions import in_full, in_short
from klsym.paper.witness import counterexample
from klsym.study.ledger.evidence import Evidence
from klsym.study.ledger.settle_claim import Settled
from klsym.study.ledger.view import format_statement_latex
from klsym.study.write_up.bibliography import cite_tags
from klsym.study.write_up.prose import render_prose
from klsym.study.write_up.tex import allow_breaks, escape

Part = Proof | Evidence
LONGEST = 900  # characters of LaTeX, about six lines of print
VERDICT_WORDS = {verdict: verdict for verdict in ("proved", "refuted", "corrected")}
VERDICT_WORDS |= {"exact": "calculated", "computed": "found by experiment"}
TRUST = {"kernel": "kernel", "sympy": "SymPy", "numeric": "numbers"}


def claim_latex(settled: Settled, known: Iterable[str] = ()) -> str:
    r"""What a claim states and assumes, its verdict, its trust and its source.

    known: lines of its reading that the text has said before.

    >>> from klsym.study.ledger.settle_claim import recall
    >>> print(claim_latex(recall("gradient.k1-loss")).splitlines()[1])
    \klparts{\klpart{\mathbb{E}_{q}[\nabla k_1] \brk= 0}}
    """
    claim = settled.claim
    explained = render_prose(claim.explanation) if claim.explanation else ""
    lines = [_head(r"\klclaim", settled) + f"{{{cite_tags(claim.source)}}}{{{explained}}}"]
    found = [part for part in settled.parts if part.kind == "computed"]
    shown = [
        rf"\klpart{{{allow_breaks(format_statement_latex(part))}}}"
        for part in settled.parts
        if part not in found
    ]
    lines += [rf"\klparts{{{''.join(shown)}}}"] if shown else []
    lines += [line for part in found for line in _evidence(part)]
    said = [render_prose(line) for line in claim.reading if line not in known]
    assumed = list(in_short(settled))
    lines += [rf"\klreading{{{'; '.join(said)}}}"] if said else []
    lines += [rf"\klassume{{{'; '.join(assumed)}}}"] if assumed else []
    return "\n".join([*lines, r"\klend", ""])


def derivation_latex(settled: Settled) -> str:
    """How each part of a claim is derived, with its rules, models and hypotheses, and the certificate."""
    lines = [_head(r"\klderived", settled)]
    for part in settled.parts:
        lines += _evidence(part) if isinstance(part, Evidence) else _proof(part)
    assumed = list(in_full(settled))
    lines += [rf"\klassume{{{'; '.join(assumed)}}}"] if assumed else []
    lines += [rf"\kldigest{{{digest_of(settled)}}}"] if settled.proofs else [r"\klnodigest"]
    lines += [rf"\klverified{{{escape(settled.verified.sentence)}}}"] if settled.verified else []
    return "\n".join([*lines, r"\klend", ""])


def _head(macro: str, settled: Settled) -> str:
    claim = settled.claim
    texts = (claim.id, VERDICT_WORDS[claim.verdict], TRUST[settled.trust])
    return macro + "".join(f"{{{escape(text)}}}" for text in texts)


def digest_of(settled: Settled) -> str:
    """The digest of the certificate that `klsym check` replays."""
    return str(settled.certificate()["digest"])


def statements(settled: Settled) -> Iterator[tuple[str, str]]:
    """(id/number, LaTeX) of each part, for the text to quote; findings are words."""
    for number, part in enumerate(settled.parts, start=1):
        shown = allow_breaks(format_statement_latex(part))
        if isinstance(part, Evidence) and part.kind == "computed":
            shown = rf"\text{{{render_prose(part.text)}}}"
        yield f"{settled.claim.id}/{number}", shown


def models(settled: Settled) -> Iterator[tuple[str, str]]:
    """(model/id/number, LaTeX) of each counterexample, for the text to quote."""
    for number, part in enumerate(settled.parts, start=1):
        if isinstance(part, Proof) and part.theorem.kind == "refuted":
            yield f"model/{settled.claim.id}/{number}", counterexample(part)


def premises(settled: Settled) -> Iterator[tuple[str, str]]:
    """(premise/id/number, LaTeX) of the first premise of each part that has one, for the text to quote."""
    for number, part in enumerate(settled.parts, start=1):
        if isinstance(part, Proof) and part.theorem.statement.context.premises:
            sides = part.theorem.statement.context.premises[0]
            left, right = (formulas.show_side(side, part.labels, LATEX) for side in sides)
            yield f"premise/{settled.claim.id}/{number}", allow_breaks(f"{left} = {right}")


def _proof(proof: Proof) -> list[str]:
    """The chain from the left side to the right one; a refuted statement is followed by its model."""
    (first, _), *rest = format_chain(proof, LATEX)
    rows = [("", first, ""), *((r"{}= ", formula, rule) for formula, rule in rest)]
    ending = format_conclusion(proof)
    if ending:
        rows.append(("", ending, str(proof.part["close"]["by"])))
    if len(rows) == 2 and len(rows[1][1]) <= LONGEST:  # one step: its rule stands beside the statement
        lines = [rf"\klby{{{allow_breaks(format_statement_latex(proof))}}}{{{escape(rows[1][2])}}}"]
    else:
        lines = [r"\begin{klderivation}", *_rows(rows), r"\end{klderivation}"]
    if proof.theorem.kind == "refuted":
        lines.append(rf"\klwitness{{{counterexample(proof)}}}")
    return lines


def _rows(rows: list[tuple[str, str, str]]) -> Iterator[str]:
    """The lines of a derivation; a sum that would fill a quarter of a page is left to the certificate."""
    for long, run in groupby(rows, key=lambda row: len(row[1]) > LONGEST):
        together = list(run)
        if not long:
            yield from (_row(sign + allow_breaks(formula), rule) for sign, formula, rule in together)
            continue
        terms = ", ".join(str(_terms(allow_breaks(formula))) for _, formula, _ in together)
        rules = ", ".join(dict.fromkeys(rule for *_, rule in together if rule))
        words = f"a sum of {terms}" if len(together) == 1 else f"sums of {terms}"
        yield rf"\kllong{{{words} terms}}{{{escape(rules)}}}"


def _terms(broken: str) -> int:
    """How many terms a sum has, also within its brackets."""
    return broken.count("brk+") + broken.count("brk-") + 1


def _row(shown: str, rule: str) -> str:
    return rf"\klrow{{{shown}}}{{{escape(rule)}}}" if rule else rf"\klfirst{{{shown}}}"


def _evidence(part: Part) -> list[str]:
    """A calculation with its lines, or a finding beside what its source says."""
    assert isinstance(part, Evidence)
    if part.kind == "computed":
        said = rf"\klsays{{{render_prose(part.source_says)}}}" if part.source_says else ""
        return [rf"\klfinding{{{render_prose(part.text)}}}{{{said}}}"]
    rows = [rf"\klrow{{{allow_breaks(latex)}}}{{{render_prose(reason)}}}" for reason, latex in part.steps]
    block = [r"\begin{klderivation}", *rows, r"\end{klderivation}"] if rows else []
    return [rf"\klby{{{allow_breaks(format_statement_latex(part))}}}{{}}", *block]
