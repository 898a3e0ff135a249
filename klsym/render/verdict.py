"""The verdict in the class that prints itself: as text, Markdown, LaTeX, HTML and JSON.

>>> from klsym.api import explain
>>> print(str(explain("k3")).splitlines()[1].split("  ")[1])
minimises KL(p||q), the forward KL
"""

from __future__ import annotations

from functools import cached_property
from html import escape
from typing import Any

from klsym.diagnostics.conditions import Diagnostic, find_diagnostics
from klsym.engine.answers.suggestion import Suggestion
from klsym.engine.verdicts.verdict import Verdict
from klsym.notation.printers import LATEX
from klsym.notation.values import collect_names, show_value
from klsym.render.answer import (
    WIDTH,
    build_answer,
    escape_markdown,
    format_answer,
    format_answer_markdown,
    write_summary,
)
from klsym.render.declared import describe_names
from klsym.render.details import (
    derivation_latex,
    format_all_facts,
    format_proof,
    hypotheses_of,
    list_counterexample_lines,
    list_gradient_rows,
)  # fmt: skip
from klsym.render.effects import describe_effects
from klsym.render.printing import as_printed
from klsym.render.sentences import describe_suggestion, write_sentence, write_sentences
from klsym.render.verdict_json import build_verdict_json


class PrintedSuggestion(Suggestion):
    """A suggested loss that prints itself."""

    def __str__(self) -> str:
        return describe_suggestion(self)


class PrintedVerdict(Verdict):
    """A verdict that prints itself as text, shows itself in Jupyter, and has a JSON form."""

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
        return find_diagnostics(self, self.written) if self.written is not None else ()

    @property
    def has_model(self) -> bool:
        """Is there a counterexample?"""
        return self.witness is not None

    @property
    def hypotheses(self) -> tuple[str, ...]:
        """The assumptions of the answer as sentences."""
        return tuple(dict.fromkeys(write_sentences(self.assumptions)))

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the expected gradient as sentences."""
        return write_sentences(self.remarks)

    @property
    def coefficient_latex(self) -> str:
        return "" if self.c is None else show_value(self.c, LATEX)

    @property
    def advice(self) -> tuple[str, ...]:
        """The suggested loss, if there is one, as a sentence."""
        return (f"instead: {self.instead}",) if self.instead else ()

    def cases_json(self) -> list[dict[str, str]] | None:
        """Return the score coefficient of each region as text, or None if it has no cases."""
        from klsym.notation.cases import describe_conditions, show_coefficient

        both = zip(self.per_sample_cases, self.coefficient_cases, strict=False)
        rows = [
            {
                "where": describe_conditions(on),
                "per_sample": show_coefficient(h),
                "coefficient": show_coefficient(c),
            }
            for (on, h), (_, c) in both
        ]
        return rows or None

    @property
    def names(self) -> dict[str, str]:
        """The meaning of each name in the answer that the loss grammar does not define."""
        inside = self.inside_clamps.complete.values() if self.inside_clamps else ()
        parts = (
            *self.gradient.complete.values(),
            *self.value.complete.values(),
            self.value_constant,
            *inside,
        )
        cases = (row[of] for row in self.cases_json() or () for of in ("per_sample", "coefficient"))
        in_batch = self.setting.batch != "none" or any(x.endswith("[self]") for x in collect_names(self.h))
        level = "batch" if in_batch else self.setting.level
        main_texts = (self.per_sample, self.coefficient or "", self.value_constant, self.expansion or "")
        given = next((write_sentence(x) for x in self.assumptions if x.code in ("given", "given-std")), "")
        texts, typed = (*main_texts, *parts, *cases), self.read_as or self.loss
        return describe_names(texts, self.hypotheses, level, typed, given, self.truncated)

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as JSON data, as `klsym explain --json` prints it."""
        return build_verdict_json(self)

    def text(self, proof: bool = False, full: bool = False, width: int = WIDTH) -> str:
        """Format the answer for a terminal: at most 25 lines; with proof, or with all facts, on request."""
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
        return f"$$\n{derivation_latex(self)}\n$$" if self.steps else None


def printed(verdict: Verdict) -> PrintedVerdict:
    """Return the same verdict as one that prints itself."""
    printed_verdict = as_printed(PrintedVerdict, verdict)
    if printed_verdict.instead is not None:
        vars(printed_verdict)["instead"] = as_printed(PrintedSuggestion, printed_verdict.instead)
    return printed_verdict


def format_verdict_markdown(verdict: PrintedVerdict) -> str:
    """Format answer, derivation, counterexample and hypotheses as Markdown."""
    lines = [format_answer_markdown(build_answer(verdict))]
    if verdict.steps:
        lines += ["", "$$", derivation_latex(verdict), "$$"]
    if verdict.witness:
        lines += ["", "```", *list_counterexample_lines(verdict.witness, verdict.setting.level)[1:], "```"]
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
        f"<li><code>{escape(t)}</code> {escape(says)} <i>{trust}</i></li>" for t, says, trust in answer.terms
    ]
    items += [f"<li><b>{code} {name}</b> {escape(text)}</li>" for code, name, text in answer.diagnostics]
    items += [f"<li>{escape(note)}</li>" for note in answer.notes]
    readings = [("read as", "; ".join(answer.reading))] if answer.reading else []
    rows = [
        *readings,
        *answer.facts,
        *([("write", f"{answer.suggestion} (proved)")] if answer.suggestion else []),
    ]
    model = "\n".join(list_counterexample_lines(verdict.witness, verdict.setting.level)[1:])
    derivation = f"<div>$$\n{escape(derivation_latex(verdict))}\n$$</div>" if verdict.steps else ""
    facts = (*list_gradient_rows(verdict), *(("effect", line) for line in describe_effects(verdict.effects)))
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
