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
from klsym.notation.values import names, shown
from klsym.render.answer import WIDTH, answer_markdown, answer_of, answer_text, escaped, summary
from klsym.render.declared import declared
from klsym.render.details import (
    counterexample_lines,
    derivation_latex,
    full_text,
    gradient_rows,
    hypotheses_of,
    proof_text,
)  # fmt: skip
from klsym.render.effects import effects_lines
from klsym.render.printing import as_printed
from klsym.render.sentences import sentence, sentences, suggested
from klsym.render.verdict_json import verdict_json


class PrintedSuggestion(Suggestion):
    """What to write instead, which prints itself."""

    def __str__(self) -> str:
        return suggested(self)


class PrintedVerdict(Verdict):
    """A verdict that prints itself as text, shows itself in Jupyter, and has a JSON form."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What an engineer should know before using the loss."""
        return sentences(self.messages)

    @property
    def summary(self) -> str:
        """What minimising the loss does, in one sentence."""
        return summary(self)

    @cached_property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """The codes that apply, the most important first."""
        return find_diagnostics(self, self.written) if self.written is not None else ()

    @property
    def has_model(self) -> bool:
        """Is there a model to be shown, or to be looked for?"""
        return self.witness is not None

    @property
    def hypotheses(self) -> tuple[str, ...]:
        """What the answer assumes."""
        return tuple(dict.fromkeys(sentences(self.assumptions)))

    @property
    def notes(self) -> tuple[str, ...]:
        """What the expected gradient keeps and drops."""
        return sentences(self.remarks)

    @property
    def coefficient_latex(self) -> str:
        return "" if self.c is None else shown(self.c, LATEX)

    @property
    def advice(self) -> tuple[str, ...]:
        """What to write in place of a loss that is no KL penalty."""
        return (f"instead: {self.instead}",) if self.instead else ()

    def cases_json(self) -> list[dict[str, str]] | None:
        """What multiplies the score where, as text; None for a coefficient that has no cases."""
        from klsym.notation.cases import value, where

        both = zip(self.per_sample_cases, self.coefficient_cases, strict=False)
        rows = [
            {"where": where(on), "per_sample": value(h), "coefficient": value(c)} for (on, h), (_, c) in both
        ]
        return rows or None

    @property
    def names(self) -> dict[str, str]:
        """What the names of slots and of given quantities in the answer stand for."""
        inside = self.inside_clamps.complete.values() if self.inside_clamps else ()
        parts = (
            *self.gradient.complete.values(),
            *self.value.complete.values(),
            self.value_constant,
            *inside,
        )
        cases = (row[of] for row in self.cases_json() or () for of in ("per_sample", "coefficient"))
        in_batch = self.setting.batch != "none" or any(x.endswith("[self]") for x in names(self.h))
        level = "batch" if in_batch else self.setting.level
        own = (self.per_sample, self.coefficient or "", self.value_constant, self.expansion or "")
        given = next((sentence(x) for x in self.assumptions if x.code in ("given", "given-std")), "")
        texts, typed = (*own, *parts, *cases), self.read_as or self.loss
        return declared(texts, self.hypotheses, level, typed, given, self.truncated)

    def to_json(self) -> dict[str, Any]:
        """The object of the command-line contract."""
        return verdict_json(self)

    def text(self, proof: bool = False, full: bool = False, width: int = WIDTH) -> str:
        """The answer for a terminal: 25 lines at most, the proof behind it, or all that is known."""
        short = answer_text(answer_of(self), width, proof, whole=full)
        behind = full_text(self) if full else proof_text(self) if proof else ""
        return short + ("\n" + behind if behind else "")

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    @property
    def markdown(self) -> str:
        """The answer for a page or an issue, with the derivation."""
        return verdict_markdown(self)

    def _repr_html_(self) -> str:
        return verdict_html(self)

    def _repr_latex_(self) -> str | None:
        return f"$$\n{derivation_latex(self)}\n$$" if self.steps else None


def printed(verdict: Verdict) -> PrintedVerdict:
    """The same verdict, which prints itself."""
    shown = as_printed(PrintedVerdict, verdict)
    if shown.instead is not None:
        vars(shown)["instead"] = as_printed(PrintedSuggestion, shown.instead)
    return shown


def verdict_markdown(verdict: PrintedVerdict) -> str:
    """For a page or an issue: the answer, the derivation, the counterexample, the hypotheses."""
    lines = [answer_markdown(answer_of(verdict))]
    if verdict.steps:
        lines += ["", "$$", derivation_latex(verdict), "$$"]
    if verdict.witness:
        lines += ["", "```", *counterexample_lines(verdict.witness, verdict.setting.level)[1:], "```"]
    hypotheses = hypotheses_of(verdict)
    return "\n".join(
        [*lines, *(["", "Hypotheses:", ""] if hypotheses else []), *(f"- {escaped(h)}" for h in hypotheses)]
    )


def verdict_html(verdict: PrintedVerdict) -> str:
    """For Jupyter: the answer; the derivation, the counterexample and the facts in folded parts."""
    answer = answer_of(verdict)
    items = [
        f"<li><code>{escape(t)}</code> {escape(says)} <i>{trust}</i></li>" for t, says, trust in answer.terms
    ]
    items += [f"<li><b>{code} {name}</b> {escape(text)}</li>" for code, name, text in answer.diagnostics]
    items += [f"<li>{escape(note)}</li>" for note in answer.notes]
    read = [("read as", "; ".join(answer.reading))] if answer.reading else []
    rows = [*read, *answer.facts, *([("write", f"{answer.write} (proved)")] if answer.write else [])]
    model = "\n".join(counterexample_lines(verdict.witness, verdict.setting.level)[1:])
    derivation = f"<div>$$\n{escape(derivation_latex(verdict))}\n$$</div>" if verdict.steps else ""
    facts = (*gradient_rows(verdict), *(("effect", line) for line in effects_lines(verdict.effects)))
    parts = {
        "derivation": derivation, "counterexample": f"<pre>{escape(model)}</pre>" if model else "",
        "hypotheses": _list(hypotheses_of(verdict)), "gradient": _table(facts), "parts": _list(verdict.notes),
    }  # fmt: skip
    return (
        f"<p><b>{escape(answer.title)}</b><br/>{escape(answer.does)} <i>{answer.trust}</i></p>"
        + (f"<ul>{''.join(items)}</ul>" if items else "")
        + _table(rows)
        + "".join(
            f"<details><summary>{name}</summary>{inner}</details>" for name, inner in parts.items() if inner
        )
    )


def _table(rows: Any) -> str:
    cells = (f"<tr><th style='text-align:left'>{escape(a)}</th><td>{escape(b)}</td></tr>" for a, b in rows)
    return f"<table>{''.join(cells)}</table>"


def _list(items: tuple[str, ...]) -> str:
    return f"<ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul>" if items else ""
