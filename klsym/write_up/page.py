"""The report as one page: it opens offline, asks for nothing from outside, and is complete without a script.

What it shows was computed by others and is handed over as `Material`; here it is only written down.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from klsym import __version__
from klsym.finding import Finding
from klsym.kernel import RULES
from klsym.kernel.closing import CLOSINGS
from klsym.ledger import TRUSTS, VERDICTS
from klsym.render.mathml import mathml
from klsym.write_up.page_claims import claim_html, closing_id, findings_html, rule_id, verdict_mark
from klsym.write_up.page_glossary import GLOSSARY
from klsym.write_up.page_style import SCRIPT, STYLE
from klsym.write_up.page_tables import html_table

if TYPE_CHECKING:
    from klsym.sampling.verify import Report
    from klsym.settling import Result

# The areas in the order in which the notebooks tell the story.
AREAS = {
    "value": "Values",
    "gradient": "On-policy gradients",
    "offpolicy": "Off-policy weighting",
    "variance": "Variance",
    "reward": "KL as a reward",
    "batch": "Batches and centring",
    "sequence": "Sequences and tokens",
    "neighbour": "Near p, and near other policies",
    "experiment": "Experiments",
}
# Nothing may be fetched, whatever stands on the page.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
KINDS = {".png": "image/png", ".svg": "image/svg+xml"}
TRUSTED = {
    "kernel": "replayed by the kernel, which needs the standard library alone",
    "sympy": "resting on SymPy",
    "numeric": "resting on numbers",
}


@dataclass(frozen=True)
class Figure:
    """An experiment, drawn.

    image: the bytes of a PNG or SVG.  kind: its suffix.  header, rows: the numbers behind it.
    """

    name: str
    title: str
    image: bytes
    kind: str = ".png"
    setup: str = ""
    findings: Sequence[Finding] = ()
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


@dataclass(frozen=True)
class Material:
    """What a report is made from.

    results: the settled claims.  cross_check: the run of klsym.sampling.verify on them, if there was one.
    tables: HTML fragments.  sources: tag -> full reference.  certificates: claim id -> link to its file.
    """

    results: Sequence[Result]
    cross_check: Report | None = None
    figures: Sequence[Figure] = ()
    tables: Sequence[str] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    certificates: Mapping[str, str] = field(default_factory=dict)


def page(material: Material) -> str:
    """The whole report as HTML.

    >>> from klsym.ledger import load
    >>> from klsym.settling import settle_all
    >>> text = page(Material(settle_all([load()["gradient.k1-loss"]])))
    >>> 'id="gradient.k1-loss"' in text, "http:" in text
    (True, False)

    Raises UsageError: a formula that is none, no latex2mathml.
    """
    sections = {
        "ledger": ("Ledger", list(_ledger(material))),
        "figures": ("Figures", [line for f in material.figures for line in _figure(f, material)]),
        "tables": ("Tables", [_sheet(table, material) for table in material.tables]),
        "rules": ("Rules", list(_rules())),
        "glossary": ("Glossary", list(_glossary())),
        "sources": ("Sources", list(_sources(material.sources))),
    }
    shown = {name: both for name, both in sections.items() if both[1]}
    body = [*_top(material), _bar([(name, title) for name, (title, _) in shown.items()]), "<main>"]
    for name, (title, lines) in shown.items():
        body += [f'<section id="{name}"><h2>{title}</h2>', *lines, "</section>"]
    body += ["</main>", f"<footer>Made by klsym {__version__}. MIT licence.</footer>"]
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>klsym: what a KL penalty optimises</title>\n<style>{STYLE}</style>\n</head>\n<body>",
            *body,
            f"<script>{SCRIPT}</script>\n</body>\n</html>\n",
        ]
    )


# ---------------------------------------------------------------------------- the top
def _top(material: Material) -> Iterator[str]:
    yield '<header class="top"><h1>What a KL penalty optimises</h1>'
    yield f'<p class="lead">{escape(" ".join(summary(material)))}</p>'
    failed = [result for result in material.results if result.error]
    for result in failed:
        yield f'<p class="failure">{escape(result.settled.claim.id)} failed: {escape(result.error)}</p>'
    if material.cross_check is not None and material.cross_check.failed:
        names = ", ".join(material.cross_check.failed)
        yield f'<p class="failure">The cross-check failed for {escape(names)}.</p>'
    yield _counts(material.results)
    yield "</header>"


def summary(material: Material) -> list[str]:
    """What the run found, in a few sentences; every count is of this run."""
    results = material.results
    settled = [result.settled for result in results if not result.error]
    trusts = [(sum(s.trust == trust for s in settled), TRUSTED[trust]) for trust in TRUSTS]
    by_trust = ", ".join(f"{count} {words}" for count, words in trusts if count)
    lines = [
        f"{len(settled)} of {len(results)} claims about KL penalties in reinforcement learning are settled"
    ]
    lines[0] += f": {by_trust}." if by_trust else "."
    if material.cross_check is not None:
        lines += list(_cross_checked(material.cross_check))
    return lines


def _cross_checked(report: Report) -> Iterator[str]:
    agreeing = sum(one.passed for one in report.checked)
    outcomes = report.outcomes
    yield (
        f"{agreeing} of {len(report.checked)} identities agree with an exact numeric oracle that shares no"
        " code with the proofs."
    )
    if outcomes and report.level is not None:
        sampled = sum(bool(one.outcomes) for one in report.checked)
        rejected = sum(outcome.rejected for outcome in outcomes)
        yield (
            f"{sampled} of them were sampled as well, in {report.level.comparisons} comparisons that share"
            f" a false-alarm rate of 1 in {1 / report.level.false_alarm:,.0f}; {rejected} of {len(outcomes)}"
            " deliberately wrong controls were told apart."
        )


def _counts(results: Sequence[Any]) -> str:
    """How many claims of each verdict, which is also what the marks mean."""
    counts = {v: sum(r.settled.claim.verdict == v and not r.error for r in results) for v in VERDICTS}
    words = {
        "proved": "proved",
        "refuted": "refuted: false in an explicit model",
        "corrected": "corrected: printed wrongly in its source",
        "exact": "exact: calculated",
        "computed": "computed: found by experiment",
    }
    items = "".join(
        f"<li>{verdict_mark(v, str(count))} {escape(words[v])}</li>" for v, count in counts.items() if count
    )
    return f'<ul class="legend">{items}</ul>'


def _bar(links: list[tuple[str, str]]) -> str:
    shown = "".join(f'<a href="#{name}">{title}</a>' for name, title in links)
    return (
        f'<nav class="bar"><div>{shown}<span class="tools"><span id="found" role="status"></span>'
        '<input id="search" type="search" placeholder="Search the ledger" aria-label="Search the ledger">'
        '<button id="open" type="button">open all</button><button id="close" type="button">close</button>'
        "</span></div></nav>"
    )


# ---------------------------------------------------------------------------- the ledger
def _ledger(material: Material) -> Iterator[str]:
    checks: dict[str, list[Any]] = {}
    for one in material.cross_check.checked if material.cross_check is not None else []:
        checks.setdefault(one.identity.claim.id, []).append(one)
    present = list(dict.fromkeys(result.settled.claim.area for result in material.results))
    for area in [*(a for a in AREAS if a in present), *(a for a in present if a not in AREAS)]:
        yield f'<section class="area" id="area.{escape(area)}"><h3>{escape(AREAS.get(area, area))}</h3>'
        for result in material.results:
            claim = result.settled.claim
            if claim.area == area:
                link = material.certificates.get(claim.id, "")
                yield claim_html(result.settled, checks.get(claim.id, ()), link, material.sources)
        yield "</section>"


# ---------------------------------------------------------------------------- figures
def _figure(figure: Figure, material: Material) -> Iterator[str]:
    data = base64.b64encode(figure.image).decode("ascii")
    told = figure.findings[0].text if figure.findings else figure.title
    title = escape(figure.title[:1].upper() + figure.title[1:])
    yield f'<figure id="figure.{escape(figure.name)}"><h3>{title}</h3>'
    yield f'<img alt="{escape(figure.title)}: {escape(told)}" src="data:{KINDS[figure.kind]};base64,{data}">'
    yield "<figcaption>"
    if figure.setup:
        yield f'<p class="facts">{escape(figure.setup)}{_its_claim(figure, material)}</p>'
    said = [(f.text, f"{f.mark}: {f.paper}" if f.paper else "") for f in figure.findings]
    yield findings_html(said)
    if figure.rows:
        yield f'<details class="numbers"><summary>The numbers behind it</summary>{_numbers(figure)}</details>'
    yield "</figcaption></figure>"


def _its_claim(figure: Figure, material: Material) -> str:
    """A link to the claim that states the findings."""
    id = f"experiment.{figure.name}"
    known = any(result.settled.claim.id == id for result in material.results)
    return f'. In the ledger: <a href="#{id}">{id}</a>.' if known else ""


def _numbers(figure: Figure) -> str:
    rows = [[str(cell) for cell in row] for row in figure.rows]
    return html_table(figure.header, rows)


def _sheet(table: str, material: Material) -> str:
    """A table whose claim ids lead to the claims."""
    known = {result.settled.claim.id for result in material.results}

    def linked(found: re.Match[str]) -> str:
        return f'<a href="#{found[1]}">{found[0]}</a>' if found[1] in known else found[0]

    shown = re.sub(r"<code>([a-z0-9.-]+)</code>", linked, table)
    return f'<div class="sheet scroll">{shown}</div>'


# ---------------------------------------------------------------------------- rules and words
def _rules() -> Iterator[str]:
    yield "<p>A derivation is a chain of these steps; the kernel carries out each one and records what it"
    yield " costs.</p>"
    heads = "".join(f'<th scope="col">{word}</th>' for word in ("rule", "says", "because", "assumes"))
    yield f'<div class="scroll"><table class="rules"><thead><tr>{heads}</tr></thead><tbody>'
    for name, rule in RULES.items():
        yield (
            f'<tr id="{rule_id(name)}"><th scope="row">{escape(name)}</th><td>{mathml(rule.latex)}</td>'
            f'<td>{escape(rule.why)} <span class="quiet">{escape(rule.cite)}</span></td>'
            f"<td>{escape(rule.hypotheses)}</td></tr>"
        )
    yield "</tbody></table></div><h3>How a derivation may end</h3>"
    yield '<div class="scroll"><table class="rules"><tbody>'
    for name, closing in CLOSINGS.items():
        yield (
            f'<tr id="{closing_id(name)}"><th scope="row">{escape(name)}</th><td>{escape(closing.kind)}</td>'
            f"<td>{escape(closing.why)}</td></tr>"
        )
    yield "</tbody></table></div>"


def _glossary() -> Iterator[str]:
    items = "".join(f"<dt>{escape(term)}</dt><dd>{escape(words)}</dd>" for term, words in GLOSSARY)
    yield f'<dl class="glossary">{items}</dl>'


def _sources(sources: Mapping[str, str]) -> Iterator[str]:
    items = "".join(
        f'<li id="source.{escape(tag)}"><b>{escape(tag)}</b> {escape(words)}</li>'
        for tag, words in sources.items()
    )
    if items:
        yield f'<ul class="plain">{items}</ul>'
