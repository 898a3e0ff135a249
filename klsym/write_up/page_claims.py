"""One claim of the ledger on the report page: its line, and what opens beneath it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from klsym.engine.derivation import Proof
from klsym.engine.explain_samples import shown_witness
from klsym.evidence import Evidence
from klsym.render.claims import TRUST, statement_latex
from klsym.render.latex import ending
from klsym.render.mathml import DISPLAYED, mathml
from klsym.render.rules import CLOSINGS, RULE_OF, RULES
from klsym.render.spelling import LATEX
from klsym.render.text import chain, show_interval, show_statement, show_theorem
from klsym.render.verdict import tree_rows
from klsym.write_up.page_checks import cross_check
from klsym.write_up.page_prose import prose_html
from klsym.write_up.page_style import mark
from klsym.write_up.page_tables import html_table

KINDS = {
    "proved": "proved",
    "refuted": "refuted by a finite model",
    "unique": "proved, for this function and no other",
    "independent": "proved to be no combination",
    "exact": "calculated",
}


def claim_html(
    settled: Any, checks: Sequence[Any] = (), certificate: str = "", sources: Any = (), error: str = ""
) -> str:
    """A claim as <details id="area.name">; one that failed is open.

    checks: its part of the cross-check (klsym.sampling.verify).  certificate: a link to its file, if any.
    sources: the tags that the bibliography explains.  error: what fails although it was settled.
    """
    claim, error = settled.claim, settled.error or error
    verdict = "failed" if error else claim.verdict
    found = f"{claim.id} {verdict} {settled.trust} {claim.source} {settled.statement} {claim.explanation}"
    opened = " open" if error else ""
    return "\n".join(
        [
            f'<details class="claim {verdict}" id="{escape(claim.id)}"{opened}'
            f' data-words="{escape(found.lower())}">',
            f"<summary>{mark(verdict)}"
            f'<span class="id">{escape(claim.id)}<small>{escape(TRUST[settled.trust])}</small></span>'
            f'<span class="lead-statement">{_lead(settled, error)}</span></summary>',
            '<div class="body">',
            *_body(settled, checks, certificate, sources, error),
            "</div></details>",
        ]
    )


def formula(latex: str, kind: str = "formula") -> str:
    """A formula in a box of its own; where it is wide, it is broken between its terms."""
    return _framed(mathml(latex, display=True, breaking=True), kind)


def stated(part: Any, kind: str = "formula") -> str:
    """The statement of a proof or of other evidence, likewise."""
    if isinstance(part, Evidence):
        return formula(statement_latex(part), kind)
    return _framed(show_theorem(part.theorem, part.labels, DISPLAYED), kind)


def _framed(markup: str, kind: str = "formula") -> str:
    return f'<div class="{kind}">{markup}</div>'


def _lead(settled: Any, error: str) -> str:
    """The first statement that is true, or the words of an experiment or of a claim that failed."""
    if error or settled.claim.verdict == "computed":
        return f'<span class="words">{prose_html(settled.claim.explanation)}</span>'
    parts = true_parts(settled)
    rest = len(settled.parts) - 1
    more = f' <span class="more">and {rest} more</span>' if rest else ""
    return stated(parts[0]) + more


def true_parts(settled: Any) -> list[Any]:
    """The parts without the printed forms that a corrected claim refutes."""
    corrected = settled.claim.verdict == "corrected"
    return [part for part in settled.parts if not (corrected and _is_refuted(part))]


def _is_refuted(part: Any) -> bool:
    return bool(part.kind == "refuted")


def _body(settled: Any, checks: Sequence[Any], certificate: str, sources: Any, error: str) -> Iterator[str]:
    claim = settled.claim
    if error:
        yield f'<p class="failure">{mark("failed")}: {escape(error)}</p>'
    if claim.explanation and claim.verdict != "computed":
        yield f"<p>{prose_html(claim.explanation)}</p>"
    link = f'<a href="#{escape(claim.id)}">Link to this claim</a>'
    yield f'<p class="facts">Source: {_linked(claim.source, sources)}. {link}.</p>'
    yield from _as_printed(settled)
    if claim.verdict == "computed":
        yield findings_html([(part.text, part.source_says) for part in settled.parts])
        yield from listed(settled.hypotheses, "Set-up")
        return
    for number, part in enumerate(settled.parts, start=1):
        yield f'<div class="part">{"".join(_part(part, number, len(settled.parts)))}</div>'
    if claim.reading:
        yield from listed(claim.reading, "How the formulas are to be read")
    yield from listed([line for line in settled.hypotheses if line not in claim.reading])
    yield from cross_check(checks)
    yield from _certificate(settled, certificate)


def _linked(source: str, tags: Any) -> str:
    """The tags of sources as links to the bibliography."""
    shown = escape(source or "none given")
    for tag in tags:
        shown = re.sub(rf"\b{re.escape(tag)}\b", f'<a href="#source.{escape(tag)}">{escape(tag)}</a>', shown)
    return shown


def _as_printed(settled: Any) -> Iterator[str]:
    """The false forms, as their source prints them."""
    printed = printed_latex(settled)
    if printed:
        yield "<h4>As printed in the source, and false</h4>"
        yield from (formula(latex) for latex in printed)


def printed_latex(settled: Any) -> list[str]:
    """What the source of a corrected claim prints, without the negation that the ledger proves."""
    if settled.claim.verdict != "corrected":
        return []
    return [
        part.latex
        if isinstance(part, Evidence)
        else show_statement(part.theorem.statement, part.labels, spell=LATEX)
        for part in settled.parts
        if _is_refuted(part)
    ]


def findings_html(findings: Sequence[tuple[str, str]]) -> str:
    """What an experiment found, each with what its source says, if anything."""
    items = (
        f"<li>{prose_html(text)}{f'<small>{prose_html(said)}</small>' if said else ''}</li>"
        for text, said in findings
    )
    return f'<ul class="findings">{"".join(items)}</ul>'


def listed(lines: Sequence[str], title: str = "Hypotheses") -> Iterator[str]:
    yield f"<h4>{title}</h4>"
    items = "".join(f"<li>{prose_html(line)}</li>" for line in lines or ["none"])
    yield f'<ul class="plain hypotheses">{items}</ul>'


def _certificate(settled: Any, link: str) -> Iterator[str]:
    if not settled.proofs:
        return
    digest = settled.certificate()["digest"]
    named = f'<a href="{escape(link)}">certificate</a>' if link else "certificate"
    yield f'<p class="facts">The {named} that the kernel replays has the digest <code>{digest}</code>.</p>'


# ---------------------------------------------------------------------------- one statement
def _part(part: Any, number: int, of: int) -> Iterator[str]:
    """A single statement stands in the line of its claim already."""
    kind = part.kind
    if of > 1:
        words = (
            "refuted by a calculation" if isinstance(part, Evidence) and kind == "refuted" else KINDS[kind]
        )
        yield f"<h4>Statement {number} of {of}: {words}</h4>"
        yield stated(part, "formula stated")
    if isinstance(part, Evidence):
        yield from _calculation(part)
    else:
        yield from derivation(part)
        yield from witness(part) if kind == "refuted" else ()


def _calculation(part: Evidence) -> Iterator[str]:
    if part.steps:
        rows = "".join(
            f'<li>{formula(latex)}<span class="rule">{prose_html(reason)}</span></li>'
            for reason, latex in part.steps
        )
        yield f'<h4>Calculation</h4><ol class="chain steps">{rows}</ol>'


def derivation(proof: Proof) -> Iterator[str]:
    """The chain of a proof: relation sign, formula, rule."""
    rows = chain(proof, DISPLAYED)
    lines = [("" if i == 0 else "=", shown, _rule_links(why)) for i, (shown, why) in enumerate(rows)]
    sign, rest = ending(proof, DISPLAYED)
    if sign:
        lines.append((sign, rest, closing_link(str(proof.part["close"]["by"]))))
    if len(lines) < 2:
        return
    yield '<h4>Derivation</h4><ol class="chain">'
    for sign, shown, rules in lines:
        yield f'<li><span class="sign">{mathml(sign) if sign else ""}</span>{_framed(shown)}'
        yield f'<span class="rule">{rules}</span></li>'
    yield "</ol>"


def rule_id(name: str) -> str:
    return "rule." + name.replace(" ", "-")


def closing_id(name: str) -> str:
    return "closing." + name.replace(" ", "-")


def _rule_links(names: str) -> str:
    return ", ".join(rule_link(name) for name in names.split(", ") if name)


def rule_link(name: str) -> str:
    """The name of a rule; its reason on hovering, all of it where the link leads."""
    rule = RULES.get(RULE_OF.get(name, name))
    if rule is None:
        return closing_link(name) if name in CLOSINGS else escape(name)
    return _link(rule_id(rule.name), name, f"{rule.why} [{rule.cite}]")


def closing_link(name: str) -> str:
    """The name of an ending, likewise; a rule may have the same name."""
    return _link(closing_id(name), name, CLOSINGS[name])


def _link(id: str, name: str, reason: str) -> str:
    return f'<a href="#{id}" title="{escape(reason)}">{escape(name)}</a>'


# ---------------------------------------------------------------------------- counterexamples
def witness(proof: Proof) -> Iterator[str]:
    """The finite model or the tree in which the two sides differ, and what they are there."""
    shown = shown_witness(proof)
    yield "<h4>Counterexample</h4>"
    if "tree" in shown:
        head, rows, caption = tree_rows(shown["tree"])
        yield html_table(head, rows, f"{caption[:1].upper()}{caption[1:]}.")
    else:
        yield _outcomes(shown)
    parameters = ", ".join(f"{name} = {value}" for name, value in shown.get("parameters", {}).items())
    left, right = show_interval(shown["left"]), show_interval(shown["right"])
    lead = f"With {escape(parameters)}: the" if parameters else "The"
    sides = f"left side is {left}, the right side {right}, both enclosed in rational intervals"
    yield f'<p class="sides">{lead} {sides}.</p>'


def _outcomes(shown: Any) -> str:
    rows = {name: shown[name] for name in ("q", "p", "mu") if name in shown}
    rows |= shown.get("rewards", {})
    rows["direction u of the logits"] = shown["u"]
    head = ["outcome", *map(str, range(len(shown["q"])))]
    return html_table(head, [[name, *row] for name, row in rows.items()], numbers=True)
