"""What an audit prints: what was read, what it was checked with, the verdict, and what only code shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from klsym.api import Verdict
from klsym.audit.aggregation import Tokens
from klsym.audit.binding import Bindings
from klsym.audit.code import Code
from klsym.audit.findings import Finding
from klsym.engine.answers.objectives import read_objective
from klsym.engine.questions.expectation import decide_expectation
from klsym.errors import spell_option
from klsym.escaping import printable
from klsym.notation import losses
from klsym.notation.printers import TEXT
from klsym.render.answer import WIDTH, build_answer, format_answer, wrap_text
from klsym.render.headline import describe_update, describe_use, name_trust
from klsym.render.questions.sentences import describe_floors

ALONE = "each token by itself"
INDENT = " " * 12  # of further lines of a row
MAX_SHOWN = 2  # findings in the code of a short answer


@dataclass(frozen=True, repr=False)
class Audit:
    """The answer of `audit`: the verdict on what the code computes, and what only the code shows."""

    verdict: Verdict
    code: Code
    bindings: Bindings
    tokens: Tokens
    findings: tuple[Finding, ...]
    points: int
    crossed: bool
    map: Mapping[str, str]
    set: Mapping[str, Any]
    notes: tuple[str, ...]
    framework: str
    ran: tuple[tuple[str, str], ...] = ()  # rows on what running the code on small worlds gave

    @property
    def target(self) -> str | None:
        return self.verdict.target

    def meets(self, expected: str) -> bool:
        """Is this the objective: a target by its name, or a sum such as "-E[A] + 0.04*reverse-kl"?"""
        return self.decide(expected) is True

    def decide(self, expected: str) -> bool | None:
        """Return whether this is the objective; None where what was read does not decide it."""
        return decide_expectation(self.verdict, read_objective(expected))

    @property
    def expression(self) -> str:
        """The loss of one token as text, in the loss grammar."""
        return str(losses.show(self.tokens.loss, TEXT))

    @property
    def floors(self) -> list[str]:
        """The assumption that no probability is below its floor in the code; [] if the code has no floor."""
        return [f"assumed: {describe_floors(self.tokens.floors)}"] if self.tokens.floors else []

    @property
    def temperatures(self) -> list[str]:
        """The note that q and p have a temperature; [] if the code does not divide logits by one."""
        return ["q and p are the policies at the temperature of the code"] if self.bindings.tempered else []

    @property
    def place(self) -> str:
        first, last = self.code.lines
        return f"{self.code.file}:{first}-{last}" if self.code.file else "a function without a file"

    def to_json(self, proof: bool = True) -> dict[str, Any]:
        """Return the object of `explain`, with what was read and how."""
        return {
            **self.verdict.to_json(proof),
            "function": self.code.name, "file": self.code.file, "lines": list(self.code.lines),
            "map": dict(self.bindings.texts), "set": {k: _to_plain(v) for k, v in self.set.items()},
            "expression": self.expression, "guessed": list(self.bindings.guessed),
            "free": {k: str(x) for k, x in self.bindings.free.items()}, "aggregation": self.tokens.words,
            "findings": [{"line": f.line, "text": f.text} for f in self.findings],
            "notes": [*self.notes, *self.temperatures, *self.floors],
            "confirmed": {"points": self.points, "framework": self.framework},
        }  # fmt: skip

    def text(self, full: bool = False, width: int = WIDTH) -> str:
        """Return the answer for a terminal; full: with all that was read, checked and found."""
        if not full:
            name = f"{self.code.name} ({self.place}{self._show_options()}): "
            answer = build_answer(self.verdict, name, self._list_short_rows())
            return "\n".join(map(printable, format_answer(answer, width, proof=True).splitlines()))
        lines = [f"{self.code.name}  ({self.place}{self._show_options()})", ""]
        lines += [
            x for name, text in self._list_rows() for x in wrap_text(f"{name:<9} {text}", "  ", INDENT, width)
        ]
        lines += ["", "What the code shows"]
        lines += [x for finding in self.findings for x in wrap_text(f"- {finding}", "  ", "    ", width)]
        return "\n".join([*map(printable, lines), "", self.verdict.text(full=True, width=width)])

    def _list_short_rows(self) -> list[tuple[str, str]]:
        """Return rows on what was read, assumed and checked, and the first findings in the code."""
        rows = dict(reversed(self._list_rows()))
        guessed = f" (guessed from the names; change with {spell_option('map')})"
        names = [*self.bindings.texts] == [*self.bindings.guessed]
        read = [rows["reads"] + guessed * names] + ([] if names else [rows.get("guessed", "")])
        read += [rows.get("left", ""), rows.get("free", ""), rows["tokens"] * (rows["tokens"] != ALONE)]
        read.append(rows.get("floors", ""))
        tempered = [rows[label] for label in ("tempered", "untempered") if label in rows]
        confirmed = [rows["confirmed"], f"run on small worlds: {rows.get('measured', '')}"]
        labelled = [
            ("policies", "; ".join(tempered)),
            ("read", "; ".join(filter(None, read))),
            ("checked", "; ".join(confirmed[: 1 + ("measured" in rows)])),
            ("assumed", "; ".join(self.notes)),
            *(("code", str(finding)) for finding in self.findings[:MAX_SHOWN]),
        ]
        return [(label, text) for label, text in labelled if text]

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    def _show_options(self) -> str:
        return "".join(f", {name}={value}" for name, value in self.set.items())

    def _list_rows(self) -> list[tuple[str, str]]:
        read = ", ".join(f"{name} = {text}" for name, text in self.bindings.texts.items())
        rows = [("reads", read or "nothing of the sample")]
        if self.bindings.guessed:
            guessed = ", ".join(self.bindings.guessed)
            rows.append(("guessed", f"{guessed} guessed from the names; change with {spell_option('map')}"))
        if self.bindings.defaulted:
            rows.append(
                (
                    "left",
                    f"{', '.join(self.bindings.defaulted)} as by default; change with {spell_option('map')}",
                )
            )
        if self.bindings.free:
            free = ", ".join(k if k == str(x) else f"{k} (here {x})" for k, x in self.bindings.free.items())
            rows.append(("free", f"{free}: any number; {spell_option('set')} gives one"))
        rows += [("loss", f"{self.expression} at each {self.tokens.level}"), ("tokens", self.tokens.words)]
        rows += [("tempered", text) for text in self.temperatures]
        rows += [("floors", floors) for floors in self.floors]
        by = "running it" if self.framework == "numpy" else "autograd"
        crossed = ", on both sides of every bound" if self.crossed else ""
        rows.append(("confirmed", f"by {by}: {self.points} numbers agree{crossed}"))
        return [*rows, *self.ran, *(("note", note) for note in self.notes)]

    def to_row(self) -> tuple[str, str, str, str]:
        """Return one row of a table of audits: code, options, loss, target."""
        options = ", ".join(f"{k}={v}" for k, v in self.set.items()) or "-"
        update = f"{describe_update(self.verdict)} ({name_trust(self.verdict)})"
        words = f"({describe_use(self.verdict.setting)}) {update}"
        return self.code.name, options, self.expression, words

    def _repr_html_(self) -> str:
        from klsym.render.markup.parts import format_folded, format_items, format_rows

        title = escape(f"{self.code.name} ({self.place}{self._show_options()})")
        rows = format_rows((name, escape(text)) for name, text in self._list_rows())
        findings = format_items(map(str, self.findings), "code")
        read = format_folded("What was read, assumed and checked", rows)
        return f"<p>{title}</p>{self.verdict._repr_html_()}{findings}{read}"


def _to_plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
