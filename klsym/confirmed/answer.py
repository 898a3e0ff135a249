"""The answer of an audit: what was read, what was measured, and whether they are the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

from klsym.api import Verdict
from klsym.audit.report import Audit
from klsym.confirmed.printed import Agreement
from klsym.engine.answers.objectives import NAMES, read_objective
from klsym.errors import KlsymError
from klsym.measure.measurement import Measurement
from klsym.render.answer import WIDTH, add_label
from klsym.render.markup.parts import format_rows

GAP = 1e-6  # relative; a printed gradient further from the measured one is another one


@dataclass(frozen=True, repr=False)
class Confirmed:
    """The reading of some code, and its measurement.

    read: the audit; None where the code could not be read, unread says why.  measured: None where it could
    not be run, unmeasured says why.  agreements: of the gradient that is printed and the one that the code
    has, by the size of a group; empty where one of them is not there, or the printed one has no numbers here.
    Of one sample, the mean over a sequence and that over a batch are the same, of two they are not.
    untempered: the measurement of the policy at temperature 1, for code that divides its logits.
    """

    read: Audit | None
    unread: str = ""
    measured: Measurement | None = None
    unmeasured: str = ""
    agreements: Mapping[int, Agreement] = field(default_factory=dict)
    untempered: Measurement | None = None
    assumed: tuple[str, ...] = ()  # of code that was run and not read
    error: KlsymError | None = None  # why it was not read

    @property
    def answer(self) -> Audit | None:
        """The reading, with rows on what was measured; None if the code could not be read."""
        return None if self.read is None else replace(self.read, ran=tuple(self.list_rows()))

    @property
    def expression(self) -> str | None:
        """The loss of one token as it was read, in the loss grammar; None if it was not."""
        return None if self.read is None else self.read.expression

    @property
    def verdict(self) -> Verdict | None:
        """What `klsym.explain` says of what was read; None if nothing was."""
        return None if self.read is None else self.read.verdict

    @property
    def target(self) -> str | None:
        """The name of what the code minimises, as read, else as measured; None if there is no such name."""
        if self.read is not None:
            return self.read.target
        if self.measured is None:
            return None
        if self.measured.has_objective is False:
            return "no-objective"
        if self.measured.kind in ("zero", "own-mean", "objective"):
            return self.measured.kind
        multiples = self.measured.multiples
        return next(iter(multiples)) if len(multiples) == 1 and min(multiples.values()) > 0 else None

    def meets(self, expected: str) -> bool:
        """Is this the objective: by what was read, or what was measured where that does not decide it?"""
        decided = None if self.read is None else self.read.decide(expected)
        return self.is_measured_as(expected) if decided is None else decided

    def __str__(self) -> str:
        return str(self.answer or self.describe_measured() or self.error)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        if (answer := self.answer) is not None:
            return answer._repr_html_()
        rows = [("assumed", escape(note)) for note in self.assumed]
        measured = "" if self.measured is None else self.measured._repr_html_()
        return measured + format_rows([*rows, ("not read", escape(self.unread))])

    @property
    def differs(self) -> bool:
        """Is the printed gradient another one than the code has?"""
        return any(not self._is_same(size, agreement) for size, agreement in self.agreements.items())

    def _is_same(self, group: int, agreement: Agreement) -> bool:
        """Is a gradient the printed one, up to the constant that the words on the batch name?"""
        assert self.read is not None
        tokens = self.read.tokens
        factors = {"averaged over sequences": [1], "summed over sequences": [group]}
        allowed = next((x for words, x in factors.items() if tokens.words.endswith(words)), [1, group])
        is_known = tokens.is_scaled or any(abs(agreement.factor - x) < GAP * x for x in allowed)
        return agreement.gap < GAP and agreement.factor > 0 and is_known

    @property
    def agrees(self) -> bool | None:
        """Is the printed gradient that of the code?  None: they were not compared."""
        return not self.differs if self.agreements else None

    def is_measured_as(self, expected: str) -> bool:
        """Is the measured gradient that of an objective?  A word alone may have any positive multiple."""
        if self.measured is None:
            return False
        word = read_objective(expected).word
        if word in NAMES:
            multiples = self.measured.multiples
            return [*multiples] == [word] and multiples[word] > 0
        return self.measured.meets(expected)

    def list_rows(self) -> list[tuple[str, str]]:
        """Return what running the code gave, as rows of an answer."""
        if self.measured is None:
            return [("measured", f"no: {self.unmeasured}")]
        rows = [("measured", self.measured.summary), ("", self.measured.setting.describe())]
        if self.agreements:
            factor = self.agreements[self.measured.setting.group].factor
            times = "" if abs(factor - 1) < GAP else f", times {factor:.6g} here"
            gap = max(1e-16, *(agreement.gap for agreement in self.agreements.values()))
            sizes = " and ".join(map(str, sorted(self.agreements)))
            rows.append(("", f"its gradient is the one that is printed below, to {gap:.0e}{times}"))
            rows.append(("", f"in groups of {sizes}"))
        if self.untempered is not None:
            rows.append(("untempered", f"measured of those at temperature 1: {self.untempered.summary}"))
        return rows

    def describe_difference(self) -> str:
        """Return the message for code whose measured gradient is not the one that was read."""
        assert self.read is not None and self.measured is not None
        assumed = "; ".join(self.read.notes) or "nothing"
        size, worst = next(pair for pair in self.agreements.items() if not self._is_same(*pair))
        apart = f"{worst.gap:.1g} apart, relative, with the factor {worst.factor:.6g}, in groups of {size}"
        return (
            f"{self.read.code.name}: read as {self.read.expression}, whose gradient is not the one that the"
            f" code has on small worlds ({apart}), so that klsym gives no verdict; measured:"
            f" {self.measured.summary}; assumed: {assumed}"
        )

    def describe_measured(self, width: int = WIDTH) -> str | None:
        """Return what was measured of code that could not be read, as text; None where it was not run."""
        if self.measured is None:
            return None
        rows = [*(("assumed", note) for note in self.assumed), ("not read", self.unread)]
        lines = [line for label, text in rows for line in add_label(label, text, width)]
        return "\n".join([self.measured.text(width=width), *lines])

    def to_json(self) -> dict[str, Any]:
        """Return what was read and what was measured as JSON data."""
        measured = untempered = None
        if self.untempered is not None:
            untempered = {
                name: self.untempered.to_json()[name] for name in ("kind", "multiples", "has_objective")
            }
        if self.measured is not None:
            whole = self.measured.to_json()
            names = ("kind", "multiples", "curl", "has_objective", "setting", "notes")
            measured = {**{name: whole[name] for name in names}, "agrees": self.agrees}
        return {
            "read": None if self.read is None else self.read.expression,
            "unread": self.unread,
            "measured": measured,
            "unmeasured": self.unmeasured,
            "untempered": untempered,
            "assumed": [*self.assumed] if self.read is None else [*self.read.notes],
        }
