"""A claim of the ledger as data for the report page: its line, and what opens beneath it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

from markupsafe import Markup

from klsym.engine.proof.derivation import Proof
from klsym.engine.proof.shown_counterexample import describe_counterexample
from klsym.notation.text import build_ending, format_chain, show_interval, show_statement, show_theorem
from klsym.render.listing import ModelTable, list_tree_rows
from klsym.render.markup.mathml import DISPLAYED
from klsym.render.rules import CLOSINGS, RULE_OF, RULES
from klsym.study.ledger.evidence import Evidence
from klsym.study.ledger.settle_claim import Settled
from klsym.study.ledger.view import TRUST, format_statement_latex
from klsym.study.write_up.hypothesis_groups import group_hypotheses
from klsym.study.write_up.page_checks import MINUS, format_scientific, summarise_checks

KINDS = {
    "proved": "proved",
    "refuted": "refuted by a finite model",
    "unique": "proved, for this function and no other",
    "independent": "proved to be no combination",
    "exact": "calculated",
}
LONGEST = 24  # characters of a fraction that is shown exactly
Part = Proof | Evidence


@dataclass(frozen=True)
class Entry:
    """checked: its part of the cross-check (sampling.verify).  certificate: a link to its file, if any.

    tags: of the sources that the bibliography explains.  error: what fails although it was settled.
    """

    settled: Settled
    checked: Sequence[Any] = ()
    certificate: str = ""
    tags: Collection[str] = ()
    failure: str = ""

    @property
    def error(self) -> str:
        return self.settled.error or self.failure

    @property
    def verdict(self) -> str:
        return "failed" if self.error else self.settled.claim.verdict

    @property
    def trust(self) -> str:
        return TRUST[self.settled.trust]

    @property
    def words(self) -> str:
        """What the search looks through."""
        settled_claim, claim = self.settled, self.settled.claim
        searched_words = (
            claim.id,
            self.verdict,
            settled_claim.trust,
            claim.source,
            settled_claim.statement,
            claim.explanation,
        )
        return " ".join(searched_words).lower()

    @property
    def source(self) -> list[tuple[str, str]]:
        """(text, "") or ("", tag of a source), one after the other."""
        named = "|".join(map(re.escape, self.tags)) or r"(?!)"
        pieces = re.split(rf"\b({named})\b", self.settled.claim.source or "none given")
        return [("", piece) if place % 2 else (piece, "") for place, piece in enumerate(pieces)]

    @property
    def printed(self) -> list[str]:
        """What the source of a corrected claim prints, without the negation that the ledger proves."""
        return [_as_printed(part) for part in self.settled.parts if self._is_printed(part)]

    @property
    def true(self) -> list[str]:
        """The statements without the printed forms that a corrected claim refutes."""
        return [format_statement(part) for part in self.settled.parts if not self._is_printed(part)]

    def _is_printed(self, part: Part) -> bool:
        return self.settled.claim.verdict == "corrected" and part.kind == "refuted"

    @property
    def more(self) -> int:
        return len(self.settled.parts) - 1

    @property
    def findings(self) -> list[tuple[str, str]]:
        return [(part.text, part.source_says) for part in self.settled.parts if isinstance(part, Evidence)]

    @property
    def hypotheses(self) -> dict[str, list[str]]:
        """The definitions, the assumptions, the remarks; a group without a line is left out."""
        return group_hypotheses(self.settled.hypotheses)

    @property
    def parts(self) -> Iterator[dict[str, Any]]:
        """Each with its title, where there are several, and with how it is settled."""
        part_count = len(self.settled.parts)
        for number, part in enumerate(self.settled.parts, start=1):
            calculated = isinstance(part, Evidence)
            kind = "refuted by a calculation" if calculated and part.kind == "refuted" else KINDS[part.kind]
            yield {
                "title": f"Statement {number} of {part_count}: {kind}" if part_count > 1 else "",
                "formula": format_statement(part),
                "calculation": part.steps if isinstance(part, Evidence) else (),
                "chain": list_derivation(part) if isinstance(part, Proof) else (),
                "model": describe_witness(part)
                if isinstance(part, Proof) and part.kind == "refuted"
                else None,
            }

    @property
    def digest(self) -> str:
        return str(self.settled.certificate()["digest"]) if self.settled.proofs else ""

    @property
    def verified(self) -> str:
        return self.settled.verified.sentence if self.settled.verified else ""

    @property
    def checks(self) -> dict[str, Any]:
        return summarise_checks(self.checked)


def format_statement(part: Part) -> str:
    """The statement in LaTeX where it was written by hand; of a theorem in MathML."""
    if isinstance(part, Evidence):
        return format_statement_latex(part)
    return Markup(show_theorem(part.theorem, part.labels, DISPLAYED))


def _as_printed(part: Part) -> str:
    if isinstance(part, Evidence):
        return part.latex
    return Markup(show_statement(part.theorem.statement, part.labels, spell=DISPLAYED))


# ---------------------------------------------------------------------------- derivations
class Named(NamedTuple):
    """A rule or an ending: where the page explains it, if it does, and why it holds."""

    name: str
    target: str = ""
    reason: str = ""


def list_derivation(proof: Proof) -> list[tuple[str, Markup, list[Named]]]:
    """The chain of a proof: relation sign, MathML, rules; empty where there is but one line."""
    rows = format_chain(proof, DISPLAYED)
    lines = [
        ("" if i == 0 else "=", Markup(line_markup), _find_names(why))
        for i, (line_markup, why) in enumerate(rows)
    ]
    sign, ending_text = build_ending(proof, DISPLAYED)
    if sign:
        lines.append((sign, Markup(ending_text), [find_closing(str(proof.part["close"]["by"]))]))
    return lines if len(lines) > 1 else []


def name_rule(name: str) -> str:
    return "rule." + name.replace(" ", "-")


def name_closing(name: str) -> str:
    return "closing." + name.replace(" ", "-")


def _find_names(names: str) -> list[Named]:
    return [_find_rule(name) for name in names.split(", ") if name]


def _find_rule(name: str) -> Named:
    rule = RULES.get(RULE_OF.get(name, name))
    if rule is None:
        return find_closing(name) if name in CLOSINGS else Named(name)
    return Named(name, name_rule(rule.name), f"{rule.why} [{rule.cite}]")


def find_closing(name: str) -> Named:
    """The name of an ending; a rule may have the same name."""
    return Named(name, name_closing(name), CLOSINGS[name])


# ---------------------------------------------------------------------------- counterexamples
def describe_witness(proof: Proof) -> dict[str, Any]:
    """The finite model or the tree in which the two sides differ, and what they are there."""
    counterexample = describe_counterexample(proof)
    table = (
        list_tree_rows(counterexample["tree"]) if "tree" in counterexample else _list_outcomes(counterexample)
    )
    return {
        "head": table.head, "rows": table.rows, "numbers": "tree" not in counterexample,
        "caption": f"{table.caption[:1].upper()}{table.caption[1:]}." if table.caption else "",
        "parameters": ", ".join(
            f"{name} = {value}" for name, value in counterexample.get("parameters", {}).items()
        ),
        "left": show_interval(counterexample["left"]), "right": show_interval(counterexample["right"]),
    }  # fmt: skip


def _list_outcomes(shown: Any) -> ModelTable:
    rows = {name: shown[name] for name in ("q", "p", "mu") if name in shown}
    rows |= shown.get("rewards", {})
    rows["direction u of the logits"] = shown["u"]
    head = ["outcome", *map(str, range(len(shown["q"])))]
    return ModelTable(head, [[name, *map(_shorten, row)] for name, row in rows.items()], caption="")


def _shorten(value: Any) -> str:
    """A number in few digits, where its fraction is long; the certificate has it exactly.

    >>> _shorten("1/3"), _shorten(f"1/{10**40}"), _shorten(f"{10**40 - 1}/{10**40}")
    ('1/3', Markup('about 10<sup>−40</sup>'), Markup('about 1 − 10<sup>−40</sup>'))
    """
    text = str(value)
    if len(text) <= LONGEST or not text.replace("/", "").isdigit():
        return text
    exact = Fraction(text)
    near = 0 < 1 - exact < Fraction(1, 1000)
    part = 1 - exact if near else exact
    decimal = f"{Decimal(part.numerator) / Decimal(part.denominator):.3e}"
    digits, _, power = decimal.partition("e")
    short_number = format_scientific(f"{float(digits):g}e{power}")
    return Markup("about ") + (Markup(f"1 {MINUS} ") if near else "") + short_number
