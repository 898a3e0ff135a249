"""The verdict in the class that prints itself: as text, Markdown, LaTeX, HTML and JSON.

>>> from klsym.api import explain
>>> print(str(explain("k3")).splitlines()[1].split("  ")[1])
A penalty on KL(reference || policy): minimises KL(p||q), the forward KL
"""

from __future__ import annotations

from functools import cached_property
from html import escape
from typing import Any

from klsym.diagnostics.conditions import Diagnostic, find_diagnostics
from klsym.engine.answers.suggestion import Suggestion
from klsym.engine.verdicts.verdict import Verdict
from klsym.render.answer import (
    WIDTH,
    build_answer,
    escape_markdown,
    format_answer,
    format_answer_markdown,
    write_summary,
)
from klsym.render.details import (
    derivation_latex,
    format_all_facts,
    format_proof,
    hypotheses_of,
    list_counterexample_lines,
    list_gradient_rows,
)  # fmt: skip
from klsym.render.divergences import describe_effects
from klsym.render.printing import as_printed
from klsym.render.sentences import describe_suggestion, write_sentences
from klsym.render.verdict_json import build_verdict_json


class PrintedSuggestion(Suggestion):
    """A suggested loss that prints itself."""

    def __str__(self) -> str:
        return describe_suggestion(self)


class PrintedVerdict(Verdict):
    """A verdict that prints itself as text, shows itself in Jupyter, and has a JSON form."""

    @cached_property
    def fix(self) -> PrintedSuggestion | None:
        """What to write instead; None if there is nothing."""
        suggestion = super().fix
        return None if suggestion is None else as_printed(PrintedSuggestion, suggestion)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of the verdict as sentences."""
        return write_sentences(self.messages)

    @property
    def summary(self) -> str:
        """One sentence on what minimising the loss does."""
        return write_summary(self)

    @cached_property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """The codes that apply, the most important first."""
        return find_diagnostics(self, self.loss.written) if self.loss.written is not None else ()

    @property
    def hypotheses(self) -> tuple[str, ...]:
        """The assumptions of the answer as sentences."""
        return tuple(dict.fromkeys(write_sentences(self.assumptions)))

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the expected gradient as sentences."""
        return write_sentences(self.gradient.remarks)

    def to_json(self, proof: bool = True) -> dict[str, Any]:
        """Return the verdict as JSON data, as `--json` prints it; proof: with its steps and the model."""
        return build_verdict_json(self, proof)

    def text(self, proof: bool = False, full: bool = False, width: int = WIDTH) -> str:
        """Format the answer for a terminal: at most 12 lines; with proof, or with all facts, on request."""
        short = format_answer(build_answer(self), width, proof, whole=full)
        behind = format_all_facts(self) if full else format_proof(self) if proof else ""
        return short + ("\n" + behind if behind else "")

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    @property
    def markdown(self) -> str:
        """The answer for a page or an issue, with the derivation."""
        return format_verdict_markdown(self)

    def _repr_html_(self) -> str:
        return format_verdict_html(self)

    def _repr_latex_(self) -> str | None:
        return f"$$\n{derivation_latex(self)}\n$$" if self.proof.steps else None


def printed(verdict: Verdict) -> PrintedVerdict:
    """Return the same verdict as one that prints itself."""
    return as_printed(PrintedVerdict, verdict)


def format_verdict_markdown(verdict: PrintedVerdict) -> str:
    """Format answer, derivation, counterexample and hypotheses as Markdown."""
    lines = [format_answer_markdown(build_answer(verdict))]
    if verdict.proof.steps:
        lines += ["", "$$", derivation_latex(verdict), "$$"]
    if verdict.counterexample.model:
        lines += [
            "",
            "```",
            *list_counterexample_lines(verdict.counterexample.model, verdict.setting.level)[1:],
            "```",
        ]
    hypotheses = hypotheses_of(verdict)
    return "\n".join(
        [
            *lines,
            *(["", "Hypotheses:", ""] if hypotheses else []),
            *(f"- {escape_markdown(h)}" for h in hypotheses),
        ]
    )


def format_verdict_html(verdict: PrintedVerdict) -> str:
    """Format a verdict for Jupyter: the answer; derivation, counterexample and facts can be unfolded."""
    answer = build_answer(verdict)
    items = [
        f"<li><code>{escape(term.loss)}</code> {escape(term.text)} <i>{term.trust}</i></li>"
        for term in answer.terms
    ]
    items += [f"<li><b>{code} {name}</b> {escape(text)}</li>" for code, name, text in answer.findings]
    notes = [answer.remark, *answer.notes] if answer.remark else answer.notes
    items += [f"<li>{escape(note)}</li>" for note in notes]
    readings = [("read as", "; ".join(answer.whole_reading))] if answer.whole_reading else []
    rows = [
        *readings,
        *answer.facts,
        *(("fix", f"{text} ({trust})") for text, trust in answer.fixes),
    ]
    model = "\n".join(list_counterexample_lines(verdict.counterexample.model, verdict.setting.level)[1:])
    derivation = f"<div>$$\n{escape(derivation_latex(verdict))}\n$$</div>" if verdict.proof.steps else ""
    facts = (
        *list_gradient_rows(verdict),
        *(("effect", line) for line in describe_effects(verdict.objective.effects)),
    )
    parts = {
        "derivation": derivation, "counterexample": f"<pre>{escape(model)}</pre>" if model else "",
        "hypotheses": _format_list(hypotheses_of(verdict)), "gradient": _format_table(facts),
        "parts": _format_list(verdict.notes),
    }  # fmt: skip
    return (
        f"<p><b>{escape(answer.title)}</b><br/>{escape(answer.update)} <i>{answer.trust}</i></p>"
        + (f"<ul>{''.join(items)}</ul>" if items else "")
        + _format_table(rows)
        + "".join(
            f"<details><summary>{name}</summary>{inner}</details>" for name, inner in parts.items() if inner
        )
    )


def _format_table(rows: Any) -> str:
    cells = (f"<tr><th style='text-align:left'>{escape(a)}</th><td>{escape(b)}</td></tr>" for a, b in rows)
    return f"<table>{''.join(cells)}</table>"


def _format_list(items: tuple[str, ...]) -> str:
    return f"<ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul>" if items else ""
