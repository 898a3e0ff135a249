"""A short answer: what the loss does, diagnostics, the facts, what to write instead; at most 25 lines.

>>> from klsym.api import explain
>>> print(format_answer(build_answer(explain("k2"))))
k2: on-policy loss
  minimises KL(q||p), the reverse KL                                      proved
  gradient     E_q[k1*s]
  value        not an unbiased estimate of either KL
  more         --proof (4 hypotheses)
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from klsym.diagnostics.conditions import select_notes
from klsym.language.expressions import log_p
from klsym.notation.printers import is_sum
from klsym.notation.values import format_lines as case_lines
from klsym.notation.values import show_value
from klsym.render.details import describe_value
from klsym.render.diagnoses import format_message
from klsym.render.headline import TRUST, describe_update, format_title, name_trust
from klsym.render.sentences import write_sentences

if TYPE_CHECKING:
    from klsym.render.verdict import PrintedVerdict

MAX_LINES = 25
WIDTH = 100
LABEL = 12  # columns of a label
MAX_DIAGNOSTICS, MAX_NOTES, MAX_CASES, MAX_TERMS = 3, 2, 3, 3
LONG_FACT = 5  # lines; where an answer is too long, a longer one is left out before all else


WEAKEST = (*TRUST.values(), "open")  # the strongest trust first


@dataclass(frozen=True)
class Section:
    """Some lines; those with the highest rank are left out first where an answer is too long."""

    rank: int
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """The content of a short answer, before it is laid out.

    reading: the loss in the grammar, and how it was read, where it was typed in another spelling.
    terms: what each term of a sum does, and how far that is known.  diagnostics: code, name and sentence.
    """

    title: str
    reading: tuple[str, ...]
    update: str
    trust: str
    terms: tuple[tuple[str, str, str], ...]
    diagnostics: tuple[tuple[str, str, str], ...]
    facts: tuple[tuple[str, str], ...]
    suggestion: str
    notes: tuple[str, ...]
    proof_contents: str

    def join_commands(self, proof: bool, hidden: bool) -> str:
        """Return the commands and options that print more."""
        codes = [f"klsym rule {code}" for code, *_ in self.diagnostics[:1]]
        flags = [
            *([] if proof else [f"--proof ({self.proof_contents})"]),
            *codes,
            *(["--full"] if hidden else []),
        ]
        return "   ".join(flags)


def build_answer(verdict: PrintedVerdict) -> Answer:
    """Build the short answer of a printed verdict."""
    terms = tuple(_iterate_terms(verdict))
    trusts = (
        [trust for *_, trust in terms] if _is_described_by_terms(verdict, terms) else [name_trust(verdict)]
    )
    return Answer(
        format_title(verdict), reading=_list_readings(verdict), update=_describe_whole(verdict, terms),
        trust=max(trusts, key=WEAKEST.index), terms=terms,
        diagnostics=tuple((d.code.code, d.code.name, format_message(d)) for d in verdict.diagnostics),
        facts=tuple(_iterate_facts(verdict)), suggestion=_describe_suggestion(verdict.fix),
        notes=write_sentences(select_notes(verdict.messages)),
        proof_contents=_describe_proof(verdict),
    )  # fmt: skip


def write_summary(verdict: PrintedVerdict) -> str:
    """Say in one sentence what minimising the loss does."""
    return _describe_whole(verdict, tuple(_iterate_terms(verdict)))


def _describe_whole(verdict: PrintedVerdict, terms: tuple[tuple[str, str, str], ...]) -> str:
    """Describe the update; for a sum of few terms whose objective has no name, term by term."""
    if not _is_described_by_terms(verdict, terms):
        return describe_update(verdict)
    return f"term by term: {', and '.join(text.partition(';')[0] for _, text, _ in terms)}"


def _is_described_by_terms(verdict: PrintedVerdict, terms: tuple[tuple[str, str, str], ...]) -> bool:
    """Is it a clipped sum, whose objective is only its own mean under mu, so that its terms say more?"""
    return bool(
        verdict.target == "separable" and verdict.gradient.score_cases and 1 < len(terms) <= MAX_TERMS
    )


def _list_readings(verdict: PrintedVerdict) -> tuple[str, ...]:
    written = verdict.loss.written
    if written is None or not verdict.loss.read_as:
        return ()
    return verdict.loss.read_as, *write_sentences(written.notes)


def _iterate_terms(verdict: PrintedVerdict) -> Iterator[tuple[str, str, str]]:
    """Iterate over the terms of a sum as (loss, update, trust); an estimator of a KL counts as one term."""
    is_estimator = verdict.value.target in ("reverse-kl", "forward-kl")
    if verdict.target == "zero" or is_estimator:
        return
    for term in verdict.gradient.terms:
        missing = write_sentences(m for m in term.messages if m.code in ("no-weight", "old-weight"))
        yield (
            term.loss,
            "; ".join([describe_update(term.verdict, verdict.is_ascended), *missing]),
            name_trust(term.verdict),
        )


def _iterate_facts(verdict: PrintedVerdict) -> Iterator[tuple[str, str]]:
    if verdict.gradient.score_coefficient is not None:
        yield "gradient", _write_gradient(verdict)
    if verdict.target == "none" and verdict.gradient.quantities_text:
        yield "equals", verdict.gradient.quantities_text
    if not verdict.loss.written or verdict.loss.written.expression.has(log_p) or verdict.value.multiples:
        yield "value", describe_value(verdict)
    if verdict.proof.check:
        yield "check", verdict.proof.check["text"]


def _write_gradient(verdict: PrintedVerdict) -> str:
    """Write the expected gradient E_mu[h s], with h by cases outside the clip range."""
    setting = verdict.setting
    mean = f"E_{'q' if setting.on_policy else 'mu'}"
    sums, slot = ("sum_t ", "_now") if setting.is_per_token else ("", "")
    if setting.is_centred or verdict.gradient.scores_named[0]:
        return (
            f"{mean}[{sums}{_add_brackets(verdict.gradient.score_text, bool(sums))}]"
            if verdict.gradient.scores_named[0]
            else _write_batch_gradient(verdict, mean)
        )
    cases = verdict.gradient.score_cases
    if cases:
        if len(cases) > MAX_CASES:
            return f"{mean}[{sums}h*s{slot}] with h in {len(cases)} regions (--full lists them)"
        cases_text = "; ".join(" ".join(line.split()) for line in case_lines(cases))
        return f"{mean}[{sums}h*s{slot}] with h = {cases_text}"
    h = verdict.gradient.score_text
    score = {"1": f"s{slot}", "-1": f"-s{slot}"}.get(h, f"{_add_brackets(h)}*s{slot}")
    return f"{mean}[{sums}{score}]" if h != "0" else "0 at every sample"


def _write_batch_gradient(verdict: PrintedVerdict, mean: str) -> str:
    """Write E_m[h s_self]; H in h is the coefficient of a sample before its baseline is subtracted."""
    h = verdict.gradient.score_text
    if not verdict.gradient.is_nonzero:
        return "0 at every sample"
    has_symbol = verdict.gradient.centred is not None and re.search(r"\bH_", h)
    return f"{mean}[{_add_brackets(h)}*s_self]" + (
        f" with H = {show_value(verdict.gradient.centred)}" if has_symbol else ""
    )


def _add_brackets(h: str, always: bool = True) -> str:
    return f"({h})" if always and is_sum(h) else h


def _describe_suggestion(instead: Any) -> str:
    """Return the suggested loss, its options, and what it minimises."""
    if instead is None:
        return ""
    where = " in place of the penalty" * instead.beside
    options = "".join(f" --{change}" for change in instead.changed)
    a, b = instead.kl
    name = {("q", "p"): ", the reverse KL", ("p", "q"): ", the forward KL"}.get(instead.kl, "")
    return f"{instead.loss}{options}{where}: minimises KL({a}||{b}){name}"


def _describe_proof(verdict: PrintedVerdict) -> str:
    """Count what --proof prints: the hypotheses, and a counterexample if there is one."""
    count = len(verdict.hypotheses)
    parts = [f"{count} hypothes{'i' if count == 1 else 'e'}s"] if count else ["no hypotheses"]
    return ", ".join([*parts, *(["a counterexample"] if verdict.counterexample.model is not None else [])])


# ---------------------------------------------------------------------------- text
def format_answer(answer: Answer, width: int = WIDTH, proof: bool = False, whole: bool = False) -> str:
    """Format an answer for a terminal.  proof: the proof is printed below it; whole: leave nothing out."""
    sections = _build_sections(answer, width, whole)
    if whole:
        return "\n".join(line for section in sections for line in section.lines)
    left_out, room = (
        False,
        MAX_LINES - len(_add_label("more", answer.join_commands(proof, hidden=True), width)),
    )
    while sum(len(s.lines) for s in sections) > room and any(s.rank for s in sections):
        least = max(s.rank for s in sections)
        position = max(i for i, s in enumerate(sections) if s.rank == least)
        del sections[position]
        left_out = True
    lines = [line for section in sections for line in section.lines]
    hidden = left_out or len(answer.diagnostics) > MAX_DIAGNOSTICS or len(answer.notes) > MAX_NOTES
    commands = answer.join_commands(proof, hidden)
    return "\n".join([*lines, *(_add_label("more", commands, width) if commands else [])])


def _build_sections(answer: Answer, width: int, whole: bool) -> list[Section]:
    sections = [
        Section(
            0, (*_wrap_text(answer.title, "", "  ", width), *_add_trust(answer.update, answer.trust, width))
        )
    ]
    readings = [("read as" if i == 0 else "", line) for i, line in enumerate(answer.reading)]
    sections += [Section(0, tuple(_add_label(name, line, width))) for name, line in readings]
    pad = min(max((len(name) for name, *_ in answer.terms), default=0), 24)
    sections += [Section(1, tuple(_format_term(*term, pad, width))) for term in answer.terms]
    for i, (code, name, text) in enumerate(answer.diagnostics):
        if whole or i < MAX_DIAGNOSTICS:
            sections.append(
                Section(0 if i < 2 else 3, tuple(_wrap_text(f"{code} {name}  {text}", "  ", "    ", width)))
            )
    facts = (tuple(_add_label(name, text, width)) for name, text in answer.facts)
    sections += [Section(2 if len(lines) <= LONG_FACT else 5, lines) for lines in facts]
    if answer.suggestion:
        sections.append(Section(0, tuple(_add_label_and_trust("write", answer.suggestion, "proved", width))))
    notes = () if whole else answer.notes[:MAX_NOTES]
    sections += [Section(4, tuple(_add_label("note", note, width))) for note in notes]
    return sections


def _wrap_text(text: str, first_indent: str, next_indent: str, width: int) -> list[str]:
    return textwrap.wrap(
        text, max(width, 30), initial_indent=first_indent, subsequent_indent=next_indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _add_label(label: str, text: str, width: int) -> list[str]:
    return _wrap_text(f"{label:<{LABEL}} {text}", "  ", " " * (LABEL + 3), width)


def _add_trust(
    text: str, trust: str, width: int, first_indent: str = "  ", next_indent: str = "    "
) -> list[str]:
    """Wrap a sentence and put its trust at the right, or after its last line."""
    lines = _wrap_text(text, first_indent, next_indent, width - len(trust) - 2)
    column = min(72, width - len(trust))
    lines[-1] = f"{lines[-1]:<{column - 1}} {trust}" if len(lines[-1]) < column else f"{lines[-1]}  {trust}"
    return lines


def _add_label_and_trust(label: str, text: str, trust: str, width: int) -> list[str]:
    return _add_trust(f"{label:<{LABEL}} {text}", trust, width, next_indent=" " * (LABEL + 3))


def _format_term(name: str, text: str, trust: str, pad: int, width: int) -> list[str]:
    return _add_trust(f"{name:<{pad}}  {text}", trust, width, next_indent=" " * 6)


# ---------------------------------------------------------------------------- Markdown
def format_answer_markdown(answer: Answer) -> str:
    """Format an answer as Markdown."""
    lines = [
        f"**{escape_markdown(answer.title)}**",
        "",
        f"{escape_markdown(answer.update)} ({answer.trust})",
        "",
    ]
    lines += [f"- read as {escape_markdown('; '.join(answer.reading))}"] if answer.reading else []
    lines += [f"- `{name}`: {escape_markdown(text)} ({trust})" for name, text, trust in answer.terms]
    lines += [f"- {code} {name}: {escape_markdown(text)}" for code, name, text in answer.diagnostics]
    lines += [f"- {name}: `{text}`" for name, text in answer.facts]
    lines += [f"- write: {escape_markdown(answer.suggestion)} (proved)"] if answer.suggestion else []
    return "\n".join([*lines, *(f"- note: {escape_markdown(note)}" for note in answer.notes)])


def escape_markdown(text: str) -> str:
    """Escape the signs that Markdown would interpret."""
    for sign in ("*", "_", "|", "<"):
        text = text.replace(sign, "\\" + sign)
    return text
