"""A short answer, at most 12 lines: the question, the verdict, findings, what to write instead, details.

>>> from klsym.api import explain
>>> print(format_answer(build_answer(explain("k2"))))
k2 in the loss, on-policy
  A penalty on KL(policy || reference): minimises KL(q||p), the reverse KL                    proved
  details  gradient E_q[k1*s], s = grad log q; value biased for either KL; full=True; proof=True
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from klsym.diagnostics.conditions import Diagnostic, select_notes
from klsym.engine.verdicts.verdict import WITHOUT_NAME, Verdict
from klsym.errors import spell_command, spell_switch
from klsym.language.expressions import log_p
from klsym.notation.decimals import choose_decimals
from klsym.notation.printers import is_sum
from klsym.notation.values import collect_names, describe_conditions, show_value
from klsym.notation.values import format_lines as case_lines
from klsym.render.details import describe_value, name_old_kl
from klsym.render.diagnoses import format_message
from klsym.render.headline import NO_FUNCTION, TRUST, describe_update, find_update, name_trust, says_push
from klsym.render.objective import aim_at_sampler_kl
from klsym.render.printing import WIDTH as WIDTH
from klsym.render.question import (
    describe_answer,
    describe_kind,
    describe_kinds,
    describe_question,
    describe_term,
    name_sampler_penalty,
)
from klsym.render.questions.fixes import list_fixes
from klsym.render.remarks import describe_terms_apart, write_remark
from klsym.render.sentences import write_sentences
from klsym.render.words import describe_place, list_open_cases

if TYPE_CHECKING:
    from klsym.render.verdict import PrintedVerdict

MAX_LINES, MAX_NARROW = 12, 16  # lines of an answer; those of a narrow page
NARROW = 80  # columns
LABEL = 8  # columns of a label
MAX_FINDINGS, MAX_TERMS, MAX_CASES, MAX_NAME = 3, 3, 3, 24
MAX_FORMULA = 110  # characters of an objective; a longer one is shown with full=True
WEAKEST = (*TRUST.values(), "open")  # the strongest trust first
SHORT_VALUES = {"not an unbiased estimate of either KL": "biased for either KL"}
HARD_SPACE, MIN_HARD = "\xa0", 45  # where a line is not broken; the least columns for it
DEFINITIONS = {"r": "r = p/q", "rho": "rho = q/mu", "s": "s = grad log q"}


@dataclass(frozen=True)
class TermLine:
    """A term of a sum; update: what it does, kind: the same in a few words; missing: a weight."""

    loss: str
    update: str
    kind: str
    missing: tuple[str, ...]
    trust: str

    @property
    def text(self) -> str:
        """What the term does, and what is missing."""
        return "; ".join([self.update, *self.missing])


@dataclass(frozen=True)
class Answer:
    """The content of a short answer, before it is laid out.

    whole_update, update: the verdict, and the same without a formula that is long.
    whole_reading: the loss in the grammar, and how it was read, where it was typed in another spelling;
    reading: in short.  findings: code, name and sentences; implied: those that the verdict says already.
    fixes: what to write, and how far that is known.  facts: gradient, value and a check; gradient: inside the
    clip range; given: what H in it is.  rows: further ones, of code that was read, the most important first.
    """

    title: str
    whole_update: str
    whole_reading: tuple[str, ...]
    reading: str
    update: str
    trust: str
    terms: tuple[TermLine, ...]
    findings: tuple[tuple[str, str, str], ...]
    implied: tuple[str, ...]
    fixes: tuple[tuple[str, str], ...]
    facts: tuple[tuple[str, str], ...]
    gradient: str
    given: tuple[str, ...]
    remark: str
    notes: tuple[str, ...]
    rows: tuple[tuple[str, str], ...] = ()

    @property
    def listed(self) -> tuple[tuple[str, str, str], ...]:
        """The findings that the verdict does not say already."""
        return tuple(finding for finding in self.findings if finding[0] not in self.implied)


def build_answer(verdict: PrintedVerdict, name: str = "", rows: Sequence[tuple[str, str]] = ()) -> Answer:
    """Build the short answer of a printed verdict; name, rows: of the code in which the loss was read."""
    write = choose_decimals(verdict.loss.texts, always=bool(name))
    terms = tuple(_iterate_terms(verdict, write, is_typed=not (name or verdict.loss.read_as)))
    of_terms = _is_described_by_terms(verdict)
    trusts = [term.trust for term in terms] if of_terms else [name_trust(verdict)]
    findings = verdict.diagnostics
    unweighted = any(d.code.code == "KL004" for d in findings)
    question, update = describe_question(verdict, unweighted and not of_terms), describe_verdict(verdict)
    short = describe_verdict(verdict, MAX_FORMULA)
    return Answer(
        name + write(question) if name or verdict.loss.read_as else question, whole_update=write(update),
        whole_reading=tuple(map(write, _list_readings(verdict))), reading=write(_shorten_reading(verdict)),
        update=write(short), trust=max(trusts, key=WEAKEST.index), terms=terms,
        findings=tuple((d.code.code, d.code.name, write(format_message(d))) for d in findings),
        implied=tuple(d.code.code for d in findings if _is_said(d, update)),
        fixes=tuple((write(text), trust) for text, trust in list_fixes(verdict)),
        facts=tuple((name, write(text)) for name, text in _iterate_facts(verdict)),
        gradient=write(write_gradient(verdict, inside=True)), given=tuple(map(write, _define_given(verdict))),
        remark=write(write_remark(verdict)),
        notes=tuple(map(write, write_sentences(select_notes(verdict.messages)))),
        rows=tuple((label, write(text)) for label, text in rows),
    )  # fmt: skip


def write_summary(verdict: PrintedVerdict) -> str:
    """Say in one sentence what minimising the loss does; for a clipped sum of few terms, term by term."""
    if not (verdict.gradient.score_cases and _is_described_by_terms(verdict)):
        return describe_update(verdict)
    parts = (describe_update(t.verdict, verdict.is_ascended, regions=False) for t in verdict.gradient.terms)
    return f"term by term: {', and '.join(parts)}"


def describe_verdict(verdict: Verdict, most: int | None = None) -> str:
    """Describe the update in words and symbols; for a sum that its terms describe, in words.

    most: characters of a formula; of a longer one it is said what it is.
    """
    if not _is_described_by_terms(verdict):
        return describe_answer(verdict, most=most)
    kinds = [describe_kind(term.verdict, verdict.is_ascended) for term in verdict.gradient.terms]
    text = describe_kinds(kinds)
    return f"{text[0].upper()}{text[1:]}"


def _is_described_by_terms(verdict: Verdict) -> bool:
    """Has a sum of few terms an objective without a name, so that its terms say more?"""
    terms, ascends = verdict.gradient.terms, verdict.is_ascended
    named = name_sampler_penalty(verdict, ascends) or aim_at_sampler_kl(verdict, ascends)
    is_unnamed = verdict.target in WITHOUT_NAME or bool(describe_terms_apart(verdict))
    unnamed = is_unnamed and 1 < len(terms) <= MAX_TERMS and not named
    return unnamed and not verdict.is_truncated and not _is_estimator(verdict)


def _is_estimator(verdict: Verdict) -> bool:
    return verdict.value.target in ("reverse-kl", "forward-kl")


def _is_said(diagnostic: Diagnostic, update: str) -> bool:
    """Does the verdict say it already?"""
    is_curl = all(message.code == "has-a-curl" for message in diagnostic.messages)
    return all(map(says_push, diagnostic.messages)) or (is_curl and NO_FUNCTION in update)


def _list_readings(verdict: PrintedVerdict) -> tuple[str, ...]:
    written = verdict.loss.written
    if written is None:
        return ()
    return *filter(None, [verdict.loss.read_as]), *write_sentences(written.notes)


def _shorten_reading(verdict: PrintedVerdict) -> str:
    """Return how the loss was read in a line; of a name, where it is explained."""
    written = verdict.loss.written
    if written is None:
        return ""
    names = [note.values["name"] for note in written.notes if note.code == "named-loss"]
    explained = "".join(f" ({spell_command('examples', name).replace(' ', HARD_SPACE)})" for name in names)
    notes = write_sentences(note for note in written.notes if note.code != "named-loss")
    return "; ".join(filter(None, [verdict.loss.read_as + explained, *notes]))


def _iterate_terms(
    verdict: PrintedVerdict, write: Callable[[str], str], is_typed: bool
) -> Iterator[TermLine]:
    """Iterate over the terms of a sum, as typed or as read; an estimator of a KL counts as one term."""
    if verdict.target == "zero" or _is_estimator(verdict):
        return
    for term in verdict.gradient.terms:
        missing = write_sentences(m for m in term.messages if m.code in ("no-weight", "old-weight"))
        update = replace(find_update(term.verdict, verdict.is_ascended), remark="", beyond="").write()
        yield TermLine(
            term.loss if is_typed else write(term.loss),
            update=write(update),
            kind=write(describe_term(term.verdict, verdict.is_ascended)),
            missing=tuple(missing),
            trust=name_trust(term.verdict),
        )


def _iterate_facts(verdict: PrintedVerdict) -> Iterator[tuple[str, str]]:
    if verdict.gradient.score_coefficient is not None:
        yield "gradient", write_gradient(verdict)
    written, value = verdict.loss.written, verdict.value
    if not written or written.expression.has(log_p) or value.multiples or name_old_kl(verdict):
        yield "value", describe_value(verdict)
    if verdict.target == "no-objective" and verdict.gradient.quantities_text:
        yield "equals", verdict.gradient.quantities_text
    if verdict.proof.check:
        yield "check", verdict.proof.check["text"]


def write_gradient(verdict: Verdict, inside: bool = False) -> str:
    """Write the expected gradient E_mu[h s], with h by cases; inside: with that of the clip range alone."""
    if verdict.gradient.score_coefficient is None:
        return ""
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
        kept, start = list_open_cases(cases), f"{mean}[{sums}h*s{slot}] with h"
        if inside and len(kept) == 1:
            on, h = kept[0]
            place = f"where {describe_conditions(on)}" if on else describe_place(verdict)
            return f"{start} = {show_value(h)} {place}"
        if len(cases) > MAX_CASES:
            return f"{start} in {len(cases)} regions (explain {spell_switch('full')} lists them)"
        cases_text = "; ".join(" ".join(line.split()) for line in case_lines(cases))
        return f"{start} = {cases_text}"
    h = verdict.gradient.score_text
    score = {"1": f"s{slot}", "-1": f"-s{slot}"}.get(h, f"{_add_brackets(h)}*s{slot}")
    return f"{mean}[{sums}{score}]" if h != "0" else "0 at every sample"


def _write_batch_gradient(verdict: Verdict, mean: str) -> str:
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


# ---------------------------------------------------------------------------- text
def format_answer(answer: Answer, width: int = WIDTH, proof: bool = False, whole: bool = False) -> str:
    """Format an answer for a terminal.  proof: the proof is printed below it; whole: leave nothing out."""
    page = Page(answer, width, proof)
    return "\n".join(page.format_whole() if whole else page.format_short())


@dataclass(frozen=True)
class Page:
    """An answer laid out for a terminal of so many columns; proof: the proof is printed below it."""

    answer: Answer
    width: int
    proof: bool

    @property
    def limit(self) -> int:
        """The most lines of a short answer."""
        return MAX_LINES if self.width >= NARROW else MAX_NARROW

    def format_whole(self) -> list[str]:
        """Return all lines of the answer."""
        answer = self.answer
        findings = [line for finding in answer.findings for line in _format_finding(finding, self.width)]
        facts = [*answer.rows, *answer.facts, *(("note", note) for note in answer.notes)]
        facts_text = [line for label, text in facts for line in add_label(label, text, self.width)]
        return [*self._format_head(whole=True), *findings, *self._format_fixes(), *facts_text]

    def format_short(self) -> list[str]:
        """Return at most `limit` lines; rows on code and findings are left out first, the last one first."""
        check = dict(self.answer.facts).get("check", "")
        checked = add_label("check", check, self.width) if check else []
        fixes = self._format_fixes()
        terms, rows = len(self.answer.terms), len(self.answer.rows)
        lengths = [
            *((terms, count) for count in range(rows, -1, -1)),
            *((n, 0) for n in range(terms - 2, 0, -1)),  # the line that counts takes the place of one
        ]
        for count, count_of_rows in lengths:
            shown = self.answer.rows[:count_of_rows]
            code = [x for label, text in shown for x in add_label(label, text, self.width)]
            head = self._format_head(count)
            lines = [*head, *self._format_end([*fixes, *code, *checked], self.limit - len(head))]
            if len(lines) <= self.limit:
                break
        return lines

    def _format_head(self, count: int = 0, whole: bool = False) -> list[str]:
        """Return the question, the verdict, how the loss was read, and the first terms, so many or all."""
        answer, width = self.answer, self.width
        update = answer.whole_update if whole else answer.update
        lines = [*wrap_text(answer.title, "", "  ", width), *add_trust(update, answer.trust, width)]
        readings = answer.whole_reading if whole else (answer.reading,) if answer.reading else ()
        for i, reading in enumerate(readings):
            lines += add_label("" if i else "read as", reading, width)
        terms = answer.terms if whole else answer.terms[:count]
        names = [term.loss if whole else shorten_formula(term.loss, MAX_NAME) for term in terms]
        pad = min(max(map(len, names), default=0), MAX_NAME)
        for name, term in zip(names, terms, strict=True):
            lines += self._format_term(f"{name:<{pad}}", term, whole)
        hidden = len(answer.terms) - len(terms)
        return [*lines, *([f"  {hidden} more terms: {spell_switch('full')}"] if hidden else [])]

    def _format_term(self, name: str, term: TermLine, whole: bool) -> list[str]:
        """Return a term in one line, or two of a narrow page; whole: with all that is known of it."""
        most = 1 if self.width >= NARROW else 2
        for text in (term.text, term.update, term.kind):
            lines = add_trust(f"{name}  {text}", term.trust, self.width, next_indent=" " * 6)
            if whole or len(lines) <= most:
                break
        return lines

    def _format_fixes(self) -> list[str]:
        """Return what to write instead, and what a moving reference does."""
        indent = " " * (LABEL + 3)
        fixes = (
            add_trust(f"{'fix':<{LABEL}} {loss}", trust, self.width, indent)
            for loss, trust in self.answer.fixes
        )
        remark = add_label("note", self.answer.remark, self.width) if self.answer.remark else []
        return [*(line for lines in fixes for line in lines), *remark]

    def _format_end(self, fixes: Sequence[str], room: int) -> list[str]:
        """Return the findings for which there is room, the fixes, and the details."""
        answer = self.answer
        findings = [
            _format_finding(finding, self.width, whole=False) for finding in answer.listed[:MAX_FINDINGS]
        ]
        while True:
            hidden = len(answer.listed) - len(findings)
            counted = f"{hidden} more finding{'s' * (hidden > 1)}: " * bool(hidden) + spell_switch("full")
            for with_formula in (True, False):
                details = add_label("details", self._write_details(counted, with_formula), self.width)
                lines = [*(line for finding in findings for line in finding), *fixes, *details]
                if len(lines) <= room:
                    return lines
            if len(findings) < 2:
                return lines
            findings.pop()

    def _write_details(self, counted: str, with_formula: bool) -> str:
        """Write the gradient if it is short, the value, and what prints more; a rule where there is room."""
        gradient, value = self.answer.gradient, dict(self.answer.facts).get("value", "")
        parts = []
        if gradient and with_formula and len(gradient) <= self.width // 2:
            parts.append(", ".join([f"gradient {gradient}", *self.answer.given, *_define_names(gradient)]))
        if value not in ("", "open") and not (value in SHORT_VALUES and self.answer.terms):
            parts.append(f"value {SHORT_VALUES.get(value, value)}")
        commands = [counted] if self.proof else [counted, spell_switch("proof")]
        rules = [spell_command("rule", code) for code, *_ in self.answer.listed[:1]]
        texts = [
            "; ".join([*parts, *(x.replace(" ", HARD_SPACE) for x in commands + rules[:n])]) for n in (0, 1)
        ]
        short, longer = (len(add_label("details", details, self.width)) for details in texts)
        return texts[0] if longer > short else texts[1]


def shorten_formula(text: str, most: int) -> str:
    """Leave out the arguments of a call but the first, or the end, of a formula that is longer.

    >>> shorten_formula("-min(rho*A, clip(rho, 1 - eps, 1 + eps)*A)", 24), shorten_formula("beta*k3", 24)
    ('-min(rho*A, ..)', 'beta*k3')
    """
    if len(text) <= most:
        return text
    first, comma, _ = text.partition(", ")
    return f"{first}, ..)" if comma and len(first) < most - 4 else f"{text[: most - 3].rstrip()} .."


def _define_given(verdict: PrintedVerdict) -> tuple[str, ...]:
    """Return what H of a gradient is, if an assumption says so: H = relative(R)."""
    rows = [row for m in verdict.assumptions if m.code == "given" for row in m.values["rows"]]
    rows += [("H", show_value(m.values["of"])) for m in verdict.assumptions if m.code == "given-std"]
    used = {name.partition("[")[0] for name in collect_names(verdict.gradient.score_coefficient)}
    return tuple(f"{name} = {value}" for name, value in rows if name.partition("_")[0] in used)


def _define_names(formula: str) -> list[str]:
    """Define r, rho and s where a formula of one sample has them."""
    names = set(re.findall(r"[A-Za-z_]+", formula))
    return [meaning for name, meaning in DEFINITIONS.items() if name in names]


def _format_finding(finding: tuple[str, str, str], width: int, whole: bool = True) -> list[str]:
    """Wrap a finding; of several sentences, those for which two lines are enough."""
    code, name, text = finding
    lines = wrap_text(f"{code} {name}  {text}", "  ", "    ", width)
    while not whole and len(lines) > 2 and "; " in text:
        text = text.rpartition("; ")[0]
        lines = wrap_text(f"{code} {name}  {text}", "  ", "    ", width)
    return lines


def wrap_text(text: str, first_indent: str, next_indent: str, width: int) -> list[str]:
    """Wrap a text; words for a divergence stay on one line."""
    text = re.sub(r"KL\(\w[^|()]* \|\| [^()]*\)", lambda kl: kl[0].replace(" ", HARD_SPACE), text)
    text = text if width >= MIN_HARD else text.replace(HARD_SPACE, " ")
    lines = textwrap.wrap(
        text, max(width, 30), initial_indent=first_indent, subsequent_indent=next_indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return [line.replace(HARD_SPACE, " ") for line in lines]


def add_label(label: str, text: str, width: int) -> list[str]:
    """Return the lines of a labelled row."""
    return wrap_text(f"{label:<{LABEL}} {text}", "  ", " " * (LABEL + 3), width)


def add_trust(text: str, trust: str, width: int, next_indent: str = "    ") -> list[str]:
    """Wrap a sentence and put its trust at the right of its last line."""
    lines = wrap_text(text, "  ", next_indent, width - len(trust) - 2)
    lines[-1] = f"{lines[-1]:<{max(width, 30) - len(trust) - 2}}  {trust}"
    return lines


# ---------------------------------------------------------------------------- Markdown
