"""A verdict as HTML: the short answer with its formulas as MathML, and what stands behind it, folded.

>>> from klsym.api import explain
>>> "<math" in format_verdict_html(explain("k3"))
True
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Any

from klsym.notation.losses import show
from klsym.render.answer import Answer, build_answer
from klsym.render.details import hypotheses_of, list_counterexample_lines, list_gradient_rows
from klsym.render.divergences import describe_effects
from klsym.render.markup.mathml import DISPLAYED
from klsym.render.markup.parts import (
    Link,
    format_badge,
    format_code,
    format_folded,
    format_formula,
    format_items,
    format_markup_items,
    format_rows,
    format_wide,
    typeset_latex,
    typeset_loss,
    write_formula_alone,
)
from klsym.render.sentences import write_sentence
from klsym.render.verdict_json import build_remedy

if TYPE_CHECKING:
    from klsym.render.verdict import PrintedVerdict

CODE = "<b>{code} {name}</b>"  # of a finding; a page may put a button there


def format_verdict_html(
    verdict: PrintedVerdict, link: Link = write_formula_alone, finding: str = CODE
) -> str:
    """Return the short answer, then the derivation, the counterexample, the hypotheses, code and all facts.

    link: what is made of a loss that is suggested.  finding: how a code and its name are shown.
    """
    answer = build_answer(verdict)
    findings = (
        f"{finding.format(code=code, name=escape(name))} {escape(text)}" for code, name, text in answer.listed
    )
    terms = (
        f"{typeset_loss(term.loss)} {escape(term.text)} {format_badge(term.trust)}" for term in answer.terms
    )
    parts = [
        _format_head(verdict, answer),
        format_markup_items(terms, "terms"),
        format_markup_items(findings, "diagnostics"),
        format_rows(_iterate_facts(verdict, answer, link)),
        format_items((answer.remark, *answer.notes) if answer.remark else answer.notes, "notes"),
        *(format_folded(name, inner) for name, inner in _iterate_proof(verdict)),
    ]
    return "\n".join(part for part in parts if part)


def _format_head(verdict: PrintedVerdict, answer: Answer) -> str:
    assert verdict.loss.written is not None
    loss = format_formula(show(verdict.loss.written.expression, DISPLAYED), "loss")
    title = f'<p class="use">{escape(answer.title)}</p>'
    verdict_line = f'<p class="does"><b>{escape(answer.update)}</b> {format_badge(answer.trust)}</p>'
    return f"<header>{loss}{title}{verdict_line}{format_formula(_write_equation(verdict))}</header>"


def _write_equation(verdict: PrintedVerdict) -> str:
    """The expected gradient of the loss = what it is the gradient of, if the derivation ends there."""
    steps = list(verdict.proof.steps)
    if len(steps) < 2 or verdict.target in (None, "no-objective"):
        return ""
    return typeset_latex(f"{steps[0][2]} = {steps[-1][2]}")


def _iterate_facts(verdict: PrintedVerdict, answer: Answer, link: Link) -> Iterator[tuple[str, str]]:
    if answer.whole_reading:
        yield "read as", f"<code>{escape(answer.whole_reading[0])}</code>"
        assert verdict.loss.written is not None
        notes = (note for note in verdict.loss.written.notes if note.code != "names-read")
        yield "", "<br>".join(escape(write_sentence(note)) for note in notes)
    formulas = {text: shown for _, text, shown in verdict.proof.steps}
    for name, text in answer.facts:
        shown = f"<code>{escape(text)}</code>" if name == "gradient" else escape(text)
        yield name, typeset_latex(formulas[text]) if text in formulas else shown
    for text, trust in answer.fixes:
        fix, shown = verdict.fix, escape(text)
        if fix is not None and text.startswith(fix.loss):
            options = (build_remedy(verdict) or {}).get("options", {})
            loss = link(fix.loss, options, typeset_loss(fix.loss))
            shown = f"{loss}{escape(text.removeprefix(fix.loss))}"
        yield "fix", f"{shown} {format_badge(trust)}"


def _iterate_proof(verdict: PrintedVerdict) -> Iterator[tuple[str, str]]:
    yield "Derivation", _format_derivation(verdict)
    model = list_counterexample_lines(verdict.counterexample.model, verdict.setting.level)[1:]
    yield "Counterexample", format_code("\n".join(model))
    hypotheses = hypotheses_of(verdict)
    yield f"Hypotheses ({len(hypotheses)})", format_items(hypotheses)
    if verdict.fix is not None:
        yield "Code to write instead", format_code((build_remedy(verdict) or {}).get("snippet") or "")
    facts: list[tuple[str, Any]] = [
        *list_gradient_rows(verdict),
        *(("effect", line) for line in describe_effects(verdict.objective.effects)),
    ]
    listed = format_rows((name, f"<code>{escape(text)}</code>") for name, text in facts)
    yield "All facts", listed + format_items(verdict.notes)


def _format_derivation(verdict: PrintedVerdict) -> str:
    lines = (
        f"<tr><td>{'=' if position else ''}</td><td>{typeset_latex(text)}</td>"
        f"<td class='rule'>{escape(rule)}</td></tr>"
        for position, (rule, _, text) in enumerate(verdict.proof.steps)
    )
    return format_wide("".join(lines), "derivation")
