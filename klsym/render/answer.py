"""A short answer: what the loss does, diagnostics, the facts, what to write instead; at most 25 lines.

>>> from klsym.api import explain
>>> print(answer_text(answer_of(explain("k2"))))
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
from typing import Any

from klsym.diagnostics.conditions import select_notes
from klsym.language.expressions import log_p
from klsym.notation.cases import lines as case_lines
from klsym.notation.printers import is_sum
from klsym.notation.values import shown
from klsym.render.details import value_line
from klsym.render.diagnoses import message_text
from klsym.render.headline import TRUST, does, title, trust_word
from klsym.render.sentences import sentences

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
    """What a short answer says, before it is laid out.

    reading: the loss in the grammar, and how it was read, where it was typed in another spelling.
    terms: what each term of a sum does, and how far that is known.  diagnostics: code, name and sentence.
    """

    title: str
    reading: tuple[str, ...]
    does: str
    trust: str
    terms: tuple[tuple[str, str, str], ...]
    diagnostics: tuple[tuple[str, str, str], ...]
    facts: tuple[tuple[str, str], ...]
    write: str
    notes: tuple[str, ...]
    behind: str

    def more(self, proof: bool, hidden: bool) -> str:
        """Where more is said."""
        codes = [f"klsym rule {code}" for code, *_ in self.diagnostics[:1]]
        flags = [*([] if proof else [f"--proof ({self.behind})"]), *codes, *(["--full"] if hidden else [])]
        return "   ".join(flags)


def answer_of(verdict: Any) -> Answer:
    """The answer of a printed verdict."""
    terms = tuple(_terms(verdict))
    told = [trust for *_, trust in terms] if _is_told_by_terms(verdict, terms) else [trust_word(verdict)]
    return Answer(
        title(verdict), _reading(verdict), _whole(verdict, terms), max(told, key=WEAKEST.index), terms,
        tuple((d.code.code, d.code.name, message_text(d)) for d in verdict.diagnostics),
        tuple(_facts(verdict)), _write(verdict.instead), sentences(select_notes(verdict.messages)),
        _behind(verdict),
    )  # fmt: skip


def summary(verdict: Any) -> str:
    """What minimising the loss does, in one sentence."""
    return _whole(verdict, tuple(_terms(verdict)))


def _whole(verdict: Any, terms: tuple[tuple[str, str, str], ...]) -> str:
    """Of a sum without a name what each term does, where they are few."""
    if not _is_told_by_terms(verdict, terms):
        return does(verdict)
    return f"term by term: {', and '.join(text.partition(';')[0] for _, text, _ in terms)}"


def _is_told_by_terms(verdict: Any, terms: tuple[tuple[str, str, str], ...]) -> bool:
    """Where bounds stand in it, the objective of the whole is its own mean under mu, which says little."""
    return bool(verdict.target == "separable" and verdict.per_sample_cases and 1 < len(terms) <= MAX_TERMS)


def _reading(verdict: Any) -> tuple[str, ...]:
    if not verdict.read_as:
        return ()
    return verdict.read_as, *sentences(verdict.written.notes)


def _terms(verdict: Any) -> Iterator[tuple[str, str, str]]:
    """Each term of a sum; an estimator of a KL that is itself a sum is one term."""
    is_estimator = verdict.value.target in ("reverse-kl", "forward-kl")
    if verdict.target == "zero" or is_estimator:
        return
    for term in verdict.terms:
        missing = sentences(m for m in term.messages if m.code in ("no-weight", "old-weight"))
        yield term.loss, "; ".join([does(term.verdict, verdict.ascends), *missing]), trust_word(term.verdict)


def _facts(verdict: Any) -> Iterator[tuple[str, str]]:
    if verdict.h is not None:
        yield "gradient", _gradient(verdict)
    if verdict.target == "none" and verdict.shown:
        yield "equals", verdict.shown
    if not verdict.written or verdict.written.expression.has(log_p) or verdict.value.multiples:
        yield "value", value_line(verdict)
    if verdict.check:
        yield "check", verdict.check["text"]


def _gradient(verdict: Any) -> str:
    """E_mu[h s], with h by cases where bounds bind."""
    setting = verdict.setting
    mean = f"E_{'q' if setting.on_policy else 'mu'}"
    sums, slot = ("sum_t ", "_now") if setting.level == "token" else ("", "")
    if setting.batch != "none" or verdict.scores_named[0]:
        return (
            f"{mean}[{sums}{_bracket(verdict.per_sample, bool(sums))}]"
            if verdict.scores_named[0]
            else _batched(verdict, mean)
        )
    cases = verdict.per_sample_cases
    if cases:
        if len(cases) > MAX_CASES:
            return f"{mean}[{sums}h*s{slot}] with h in {len(cases)} regions (--full lists them)"
        said = "; ".join(" ".join(line.split()) for line in case_lines(cases))
        return f"{mean}[{sums}h*s{slot}] with h = {said}"
    h = verdict.per_sample
    score = {"1": f"s{slot}", "-1": f"-s{slot}"}.get(h, f"{_bracket(h)}*s{slot}")
    return f"{mean}[{sums}{score}]" if h != "0" else "0 at every sample"


def _batched(verdict: Any, mean: str) -> str:
    h = verdict.per_sample
    if not verdict.pushes:
        return "0 at every sample"
    told = verdict.centred is not None and re.search(r"\bH_", h)
    return f"{mean}[{_bracket(h)}*s_self]" + (f" with H = {shown(verdict.centred)}" if told else "")


def _bracket(h: str, always: bool = True) -> str:
    return f"({h})" if always and is_sum(h) else h


def _write(instead: Any) -> str:
    """The loss to write, its options, and what it does."""
    if instead is None:
        return ""
    where = " in place of the penalty" * instead.beside
    options = "".join(f" --{change}" for change in instead.changed)
    a, b = instead.kl
    name = {("q", "p"): ", the reverse KL", ("p", "q"): ", the forward KL"}.get(instead.kl, "")
    return f"{instead.loss}{options}{where}: minimises KL({a}||{b}){name}"


def _behind(verdict: Any) -> str:
    """What --proof shows."""
    count = len(verdict.hypotheses)
    parts = [f"{count} hypothes{'i' if count == 1 else 'e'}s"] if count else ["no hypotheses"]
    return ", ".join([*parts, *(["a counterexample"] if verdict.has_model else [])])


# ---------------------------------------------------------------------------- text
def answer_text(answer: Answer, width: int = WIDTH, proof: bool = False, whole: bool = False) -> str:
    """For a terminal of this width; proof: more follows; whole: nothing is left out."""
    sections = _sections(answer, width, whole)
    if whole:
        return "\n".join(line for section in sections for line in section.lines)
    left_out, room = False, MAX_LINES - len(_labelled("more", answer.more(proof, hidden=True), width))
    while sum(len(s.lines) for s in sections) > room and any(s.rank for s in sections):
        least = max(s.rank for s in sections)
        last = max(i for i, s in enumerate(sections) if s.rank == least)
        del sections[last]
        left_out = True
    lines = [line for section in sections for line in section.lines]
    hidden = left_out or len(answer.diagnostics) > MAX_DIAGNOSTICS or len(answer.notes) > MAX_NOTES
    more = answer.more(proof, hidden)
    return "\n".join([*lines, *(_labelled("more", more, width) if more else [])])


def _sections(answer: Answer, width: int, whole: bool) -> list[Section]:
    found = [
        Section(0, (*_wrapped(answer.title, "", "  ", width), *_trusted(answer.does, answer.trust, width)))
    ]
    read = [("read as" if i == 0 else "", line) for i, line in enumerate(answer.reading)]
    found += [Section(0, tuple(_labelled(name, line, width))) for name, line in read]
    pad = min(max((len(name) for name, *_ in answer.terms), default=0), 24)
    found += [Section(1, tuple(_term_lines(*term, pad, width))) for term in answer.terms]
    for i, (code, name, text) in enumerate(answer.diagnostics):
        if whole or i < MAX_DIAGNOSTICS:
            found.append(
                Section(0 if i < 2 else 3, tuple(_wrapped(f"{code} {name}  {text}", "  ", "    ", width)))
            )
    facts = (tuple(_labelled(name, text, width)) for name, text in answer.facts)
    found += [Section(2 if len(lines) <= LONG_FACT else 5, lines) for lines in facts]
    if answer.write:
        found.append(Section(0, tuple(_trusted_label("write", answer.write, "proved", width))))
    shown = () if whole else answer.notes[:MAX_NOTES]
    found += [Section(4, tuple(_labelled("note", note, width))) for note in shown]
    return found


def _wrapped(text: str, first: str, rest: str, width: int) -> list[str]:
    return textwrap.wrap(
        text, max(width, 30), initial_indent=first, subsequent_indent=rest, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def _labelled(label: str, text: str, width: int) -> list[str]:
    return _wrapped(f"{label:<{LABEL}} {text}", "  ", " " * (LABEL + 3), width)


def _trusted(text: str, trust: str, width: int, first: str = "  ", rest: str = "    ") -> list[str]:
    """A sentence with its trust at the right, or behind its last line."""
    lines = _wrapped(text, first, rest, width - len(trust) - 2)
    column = min(72, width - len(trust))
    lines[-1] = f"{lines[-1]:<{column - 1}} {trust}" if len(lines[-1]) < column else f"{lines[-1]}  {trust}"
    return lines


def _trusted_label(label: str, text: str, trust: str, width: int) -> list[str]:
    return _trusted(f"{label:<{LABEL}} {text}", trust, width, rest=" " * (LABEL + 3))


def _term_lines(name: str, text: str, trust: str, pad: int, width: int) -> list[str]:
    return _trusted(f"{name:<{pad}}  {text}", trust, width, rest=" " * 6)


# ---------------------------------------------------------------------------- Markdown
def answer_markdown(answer: Answer) -> str:
    """For a page or an issue."""
    lines = [f"**{escaped(answer.title)}**", "", f"{escaped(answer.does)} ({answer.trust})", ""]
    lines += [f"- read as {escaped('; '.join(answer.reading))}"] if answer.reading else []
    lines += [f"- `{name}`: {escaped(text)} ({trust})" for name, text, trust in answer.terms]
    lines += [f"- {code} {name}: {escaped(text)}" for code, name, text in answer.diagnostics]
    lines += [f"- {name}: `{text}`" for name, text in answer.facts]
    lines += [f"- write: {escaped(answer.write)} (proved)"] if answer.write else []
    return "\n".join([*lines, *(f"- note: {escaped(note)}" for note in answer.notes)])


def escaped(text: str) -> str:
    """Text that Markdown prints as it is."""
    for sign in ("*", "_", "|", "<"):
        text = text.replace(sign, "\\" + sign)
    return text
