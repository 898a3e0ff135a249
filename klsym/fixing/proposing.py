"""The change that mends a loss: the smallest one whose audit says so, and whose measurement agrees.

The objective that is wanted is the one that is expected, or else the KL that the loss is likely to mean, with
its reward.  Each change is tried on the text of the file: the file itself is not touched.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from klsym.api import ask
from klsym.audit.aggregation import Tokens
from klsym.audit.audits import AuditRun, audit
from klsym.audit.binding import bind
from klsym.audit.compiled.sources import replace_sources
from klsym.audit.reading import LINES, read
from klsym.audit.report import Audit
from klsym.confirmed.both import Confirmed, audit_and_measure
from klsym.engine.answers.objectives import read_objective
from klsym.engine.options.option_table import CHOICES
from klsym.engine.questions.expectation import is_met
from klsym.errors import KlsymError, spell_option
from klsym.fixing.candidates import list_accurate, list_edits
from klsym.fixing.edits import Edit
from klsym.fixing.judging import Judgement, judge
from klsym.fixing.scale import find_scale_of_penalty
from klsym.fixing.traced import TracedCode, trace_code

MOST = 200  # changes that are tried
OF_SUMS = {"KL006", "KL007", "KL012", "KL014"}  # of sums over tokens, and of floats, whatever is summed
FOUND_RIGHT = "the loss is right: nothing is changed"
NO_CHANGE = "no change of one statement was found with which the loss is right, proved and measured"


@dataclass(frozen=True)
class Question:
    """Code with the arguments of its audit; expect: its objective, or None."""

    target: str
    map: Mapping[str, str] = field(default_factory=dict)
    set: Mapping[str, Any] = field(default_factory=dict)
    result: str | None = None
    setting: Mapping[str, Any] = field(default_factory=dict)
    expect: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        return {"sampling": None, "use": None, "level": None, **self.setting}

    def trace(self, target: str) -> Tokens:
        """Return what the code gives each token, as its trace alone says."""
        code = read(target, self.result)
        run = AuditRun(code, bind(code, self.map, self.set), self.result, self.options)
        return run.trace_without_misfits().tokens

    def trace_all(self) -> TracedCode:
        """Return the code with the formulas of its expressions."""
        return trace_code(self.target, self.map, self.set, result=self.result, setting=self.options)

    def audit(self, target: str) -> Audit:
        return audit(target, dict(self.map), dict(self.set), self.result, **self.setting)

    def measure(self, target: str) -> Confirmed:
        return audit_and_measure(target, dict(self.map), dict(self.set), self.result, **self.setting)


@dataclass(frozen=True)
class Proposal:
    """An edit of a file, or the reason why there is none.

    both: the code as it is.  is_wrong: is its loss wrong?  after: the code with the edit.
    """

    both: Confirmed
    is_wrong: bool
    reason: str = ""
    edit: Edit | None = None
    after: Confirmed | None = None


def propose_change(question: Question, seconds: float = 60.0) -> Proposal:
    """Return the smallest change with which the code has its objective, proved and measured.

    question: of code in a file.  seconds: how long changes are tried.
    """
    end = time.monotonic() + seconds
    both = question.measure(question.target)
    if both.read is None or both.differs:
        reason = both.describe_difference() if both.differs else f"not read: {both.unread}"
        return Proposal(both, True, reason)
    search = _Search(question, both)
    is_wrong = search.is_wrong
    if is_wrong is None:
        return Proposal(both, True, search.refusal)
    try:
        traced = question.trace_all()
        edits = list_edits(traced) if is_wrong else list_accurate(traced)
    except KlsymError as refusal:
        return Proposal(both, is_wrong, f"{NO_CHANGE}: {refusal}" if is_wrong else FOUND_RIGHT)
    for edit, after in search.try_edits(traced, edits[:MOST], end):
        return Proposal(both, is_wrong, edit=edit, after=after)
    return Proposal(both, is_wrong, NO_CHANGE if is_wrong else FOUND_RIGHT)


class _Search:
    """The search for a change of code that was read."""

    def __init__(self, question: Question, both: Confirmed) -> None:
        assert both.read is not None
        self.question, self.answer = question, both.read
        self.setting = self.answer.verdict.setting
        self.judgement = self.judge(self.answer.tokens.loss)
        self.refusal = ""
        self.losses: dict[Any, bool] = {}  # of changes that were tried: are they right?

    def judge(self, loss: Any) -> Judgement | None:
        return judge(loss, self.setting.sampling, self.setting.use)

    @cached_property
    def is_wrong(self) -> bool | None:
        """Is the loss wrong?  None where this is not known."""
        if self.question.expect is not None:
            return not self.answer.meets(self.question.expect)
        written = self.answer.verdict.loss.written
        expect = spell_option("expect")
        if written is not None and written.is_guess:
            self.refusal = f"it is a guess that the value is a loss: {expect} says what it is to minimise"
            return None
        if self.judgement is None:
            self.refusal = f"what the loss means at one sample is not decided: {expect} says what is wanted"
            return None
        return not self.judgement.is_right(self.judgement.wanted)

    def is_promising(self, target: str) -> bool:
        """Is the loss of changed code the one that is wanted, as far as its trace alone says?"""
        tokens = self.question.trace(target)
        if tokens.words != self.answer.tokens.words:
            return False
        if tokens.loss not in self.losses:
            self.losses[tokens.loss] = self.is_right_loss(tokens.loss)
        return self.losses[tokens.loss]

    def is_right_loss(self, loss: Any) -> bool:
        if not self.is_wrong:
            return bool(loss == self.answer.tokens.loss)
        if self.question.expect is not None:
            options = {name: choice for name in CHOICES if (choice := getattr(self.setting, name))}
            return is_met(ask(loss, **options), read_objective(self.question.expect))
        before, after = self.judgement, self.judge(loss)
        if before is None or after is None or before.has_reward != after.has_reward:
            return False
        is_as_large = find_scale_of_penalty(loss) == find_scale_of_penalty(self.answer.tokens.loss)
        return is_as_large and after.is_right(before.wanted)

    def is_met(self, answer: Audit) -> bool:
        """Is this the answer that is wanted, in the same setting, with no code that was not there before?"""
        verdict = answer.verdict
        is_alike = verdict.setting == self.setting and answer.tokens.words == self.answer.tokens.words
        is_proved = verdict.trust in ("kernel", self.answer.verdict.trust)
        if not is_proved or not is_alike or not self.is_right_loss(answer.tokens.loss):
            return False
        return self.question.expect is not None or _list_codes(answer) <= _list_codes(self.answer)

    def try_edits(
        self, traced: TracedCode, edits: list[Edit], end: float
    ) -> Iterator[tuple[Edit, Confirmed]]:
        """Yield the changes with which the answer is the one that is wanted, and is measured."""
        file, text = traced.source.file, traced.source.text
        for edit in edits:
            if time.monotonic() > end:
                return
            with replace_sources({file: edit.apply(text)}), suppress(KlsymError, SyntaxError):
                target = _move_lines(self.question.target, edit)
                if not self.is_promising(target) or not self.is_met(self.question.audit(target)):
                    continue
                after = self.question.measure(target)
                if after.read is not None and after.agrees and self.is_met(after.read):
                    yield edit, after


def _list_codes(answer: Audit) -> set[str]:
    """Return the diagnostic codes of an answer, without those that say nothing of its loss."""
    return {diagnostic.code.code for diagnostic in answer.verdict.diagnostics} - OF_SUMS


def _move_lines(target: str, edit: Edit) -> str:
    """Return FILE.py:120-128 with the lines that a change adds or takes away; other targets stay."""
    place, _, name = target.rpartition(":")
    if not LINES.fullmatch(name):
        return target
    first, _, last = name.partition("-")
    return f"{place}:{first}-{int(last or first) + edit.new.count(chr(10)) - edit.old.count(chr(10))}"
