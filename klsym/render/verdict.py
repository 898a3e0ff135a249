"""The verdict in the class that prints itself: as text, Markdown, LaTeX, HTML and JSON.

>>> from klsym.api import explain
>>> print(str(explain("k3")).splitlines()[1].split("  ")[1])
A penalty on KL(reference || policy): minimises KL(p||q), the forward KL
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from klsym.diagnostics.conditions import Diagnostic, find_diagnostics
from klsym.engine.answers.suggestion import Suggestion
from klsym.engine.verdicts.verdict import Verdict
from klsym.render.answer import WIDTH, Answer, build_answer, format_answer, write_summary
from klsym.render.details import (
    derivation_latex,
    format_all_facts,
    format_proof,
    hypotheses_of,
    list_counterexample_lines,
)  # fmt: skip
from klsym.render.printing import as_printed
from klsym.render.sentences import describe_suggestion, write_sentences


class PrintedSuggestion(Suggestion):
    """A suggested loss that prints itself."""

    def __str__(self) -> str:
        return describe_suggestion(self)


ATTRIBUTES = (
    "counterexample", "diagnostics", "fix", "gradient", "hypotheses", "loss", "markdown", "objective",
    "proof", "setting", "summary", "target", "text", "to_json", "trust", "value",
)  # fmt: skip


class PrintedVerdict(Verdict):
    """The answer of `klsym.explain`: it prints itself, shows itself in Jupyter, and compares by value.

    Attributes
    ----------
    loss : AnalysedLoss
        The loss as it was typed and read.
    setting : Setting
        How it is used: sampling, level, use, and the other options.
    target : str or None
        The name of what is minimised; None where that is open.
    summary : str
        One sentence on what minimising the loss does.
    objective : Objective
        What the expected gradient is the gradient of.
    gradient, value : ExpectedGradient, ExpectedValue
        E_m[grad L] and E_m[L], their coefficients and named parts.
    trust : str
        "kernel" (proved), "sympy", "numeric" or "open".
    hypotheses : tuple of str
        What the answer assumes.
    diagnostics : tuple of Diagnostic
        Codes such as KL004, the most important first.
    fix : PrintedSuggestion or None
        What to write instead.
    proof, counterexample : VerdictProof, Counterexample
        The theorems that the kernel replayed, and a finite model against what the loss seems to be.

    Examples
    --------
    >>> from klsym.api import explain
    >>> verdict = explain("k3")
    >>> verdict.target, verdict.fix.loss, [d.code.code for d in verdict.diagnostics]
    ('forward-kl', 'k2', ['KL002', 'KL014'])
    """

    def __dir__(self) -> list[str]:
        """The attributes that a reader is told of, without those that klsym uses inside."""
        return [*ATTRIBUTES]

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
        from klsym.render.verdict_json import build_verdict_json

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
        from klsym.render.markup.parts import format_for_notebook
        from klsym.render.markup.verdict import format_verdict_html

        return format_for_notebook(format_verdict_html(self))

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


def format_answer_markdown(answer: Answer) -> str:
    """Format an answer as Markdown."""
    lines = [
        f"**{escape_markdown(answer.title)}**",
        "",
        f"{escape_markdown(answer.update)} ({answer.trust})",
        "",
    ]
    reading = escape_markdown("; ".join(answer.whole_reading))
    lines += [f"- read as {reading}"] if reading else []
    lines += [f"- `{term.loss}`: {escape_markdown(term.text)} ({term.trust})" for term in answer.terms]
    lines += [f"- {code} {name}: {escape_markdown(text)}" for code, name, text in answer.findings]
    lines += [f"- fix: {escape_markdown(text)} ({trust})" for text, trust in answer.fixes]
    lines += [f"- {name}: `{text}`" for name, text in answer.facts]
    notes = [answer.remark, *answer.notes] if answer.remark else answer.notes
    return "\n".join([*lines, *(f"- note: {escape_markdown(note)}" for note in notes)])


def escape_markdown(text: str) -> str:
    """Escape the signs that Markdown would interpret."""
    return text.translate({ord(sign): f"\\{sign}" for sign in "*_|<"})
