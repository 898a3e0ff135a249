"""The report as one page: it opens offline, asks for nothing from outside, and is complete without a script.

What it shows was computed by others and is handed over as `Material`; here it is only written down.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Collection, Iterator, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from klsym import __version__
from klsym.kernel import CLOSINGS as ENDINGS
from klsym.kernel import digest
from klsym.ledger import TRUSTS
from klsym.render.mathml import mathml
from klsym.render.rules import CLOSINGS, RULES
from klsym.write_up.page_checks import HOW
from klsym.write_up.page_claims import claim_html, closing_id, findings_html, rule_id
from klsym.write_up.page_glossary import GLOSSARY
from klsym.write_up.page_material import Figure, Material
from klsym.write_up.page_prose import prose_html
from klsym.write_up.page_style import SCRIPT, STYLE
from klsym.write_up.page_tables import html_table, sheets
from klsym.write_up.page_top import errata, failures, figure_counts, heading, in_short, overview, top

if TYPE_CHECKING:
    pass

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
DPI, ENLARGED = 300, 1.5  # of a figure that does not say; print size is small on a screen


def page(material: Material) -> str:
    """The whole report as HTML.

    >>> from klsym.ledger import load
    >>> from klsym.settling import settle_all
    >>> text = page(Material(settle_all([load()["gradient.k1-loss"]])))
    >>> 'id="gradient.k1-loss"' in text, "http:" in text
    (True, False)

    Raises UsageError: a formula that is none.
    """
    known = {result.settled.claim.id for result in material.results}
    sections = {
        "short": ("In short", list(in_short(material))),
        "errata": ("Errata", list(errata(material))),
        "ledger": ("Ledger", list(_ledger(material))),
        "figures": ("Figures", list(_figures(material, known))),
        "tables": ("Tables", list(sheets(material.tables, known))),
        "rules": ("Rules", [*_rules(), *_checks()]),
        "glossary": ("Glossary", list(_glossary())),
        "sources": ("Sources", list(_sources(material.sources))),
    }
    shown = {name: both for name, both in sections.items() if both[1]}
    body = [*top(material), _bar([(name, title) for name, (title, _) in shown.items()]), "<main>"]
    for name, (title, lines) in shown.items():
        body += [f'<section id="{name}"><h2>{title}</h2>', *lines, "</section>"]
    body += ["</main>", _footer(material)]
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


def _footer(material: Material) -> str:
    """What made the page; no date, so that the same run makes the same page."""
    made = [f"Made by <code>klsym report</code>, klsym {__version__}."]
    if material.cross_check is not None:
        options = material.cross_check.options
        made.append(f"Sampled with {escape(options.on.describe())}, seed {options.seed}.")
    made.append(
        "The page carries no date: the same version makes the same page again, but for the last digits of"
        " floating-point numbers on another machine."
    )
    proofs = {r.settled.claim.id: r.settled.certificate()["digest"] for r in material.results if not r.error}
    made.append(f"Digest of all certificates: <code>{digest(proofs)}</code>.")
    return f"<footer>{' '.join(made)} MIT licence.</footer>"


def _bar(links: list[tuple[str, str]]) -> str:
    shown = "".join(f'<a href="#{name}">{title}</a>' for name, title in links)
    return (
        f'<nav class="bar" aria-label="Sections"><div><span class="links">{shown}</span>'
        '<span class="tools"><span id="found" role="status"></span>'
        '<input id="search" type="search" placeholder="Search the ledger" aria-label="Search the ledger"'
        ' aria-keyshortcuts="/" title="/ leads here">'
        '<button id="open" type="button">open all</button><button id="close" type="button">close</button>'
        "</span></div></nav>"
    )


# ---------------------------------------------------------------------------- the ledger
def _ledger(material: Material) -> Iterator[str]:
    """All claims by area, those that rest on least first."""
    checks: dict[str, list[Any]] = {}
    for one in material.cross_check.checked if material.cross_check is not None else []:
        checks.setdefault(one.identity.claim.id, []).append(one)
    failed = failures(material)
    present = list(dict.fromkeys(result.settled.claim.area for result in material.results))
    areas = [*(a for a in AREAS if a in present), *(a for a in present if a not in AREAS)]
    yield "<p>A line opens to the derivation, the hypotheses and the cross-check. Printing prints what is"
    yield " open.</p>"
    yield from overview(material, {area: AREAS.get(area, area) for area in areas})
    for area in areas:
        yield f'<section class="area" id="area.{escape(area)}"><h3>{escape(AREAS.get(area, area))}</h3>'
        mine = [result.settled for result in material.results if result.settled.claim.area == area]
        for settled in sorted(mine, key=lambda settled: TRUSTS.index(settled.trust)):
            id = settled.claim.id
            link, error = material.certificates.get(id, ""), failed.get(id, "")
            yield claim_html(settled, checks.get(id, ()), link, material.sources, error)
        yield "</section>"


# ---------------------------------------------------------------------------- figures
def _figures(material: Material, known: Collection[str]) -> Iterator[str]:
    if len(material.figures) > 1:
        yield f'<ul class="contents">{"".join(figure_counts(material.figures))}</ul>'
    for figure in material.figures:
        yield from _figure(figure, known)


def _figure(figure: Figure, known: Collection[str]) -> Iterator[str]:
    data = base64.b64encode(figure.image).decode("ascii")
    told = figure.findings[0].text if figure.findings else figure.title
    title = prose_html(heading(figure.title))
    alt = escape(f"{figure.title}: {told}")
    yield f'<figure id="figure.{escape(figure.name)}"><h3>{title}</h3>'
    yield f'<img alt="{alt}"{_size(figure)} src="data:{KINDS[figure.kind]};base64,{data}">'
    yield "<figcaption>"
    if figure.setup:
        yield f'<p class="facts">{prose_html(figure.setup)}{_its_claim(figure, known)}</p>'
    said = [(f.text, f"{f.mark}: {f.paper}" if f.paper else "") for f in figure.findings]
    yield findings_html(said)
    if figure.rows:
        yield f'<details class="numbers"><summary>The numbers behind it</summary>{_numbers(figure)}</details>'
    yield "</figcaption></figure>"


def _size(figure: Figure) -> str:
    """Width and height of a PNG in CSS pixels, so that letters are as large in every figure."""
    if figure.kind != ".png" or figure.image[12:16] != b"IHDR":
        return ""
    found = figure.image.find(b"pHYs")
    metre, unit = struct.unpack(">IxxxxB", figure.image[found + 4 : found + 13]) if found > 0 else (0, 0)
    dpi = metre * 0.0254 if unit and metre else DPI
    width, height = (round(n / dpi * 96 * ENLARGED) for n in struct.unpack(">II", figure.image[16:24]))
    return f' width="{width}" height="{height}"'


def _its_claim(figure: Figure, known: Collection[str]) -> str:
    """A link to the claim that states the findings."""
    id = f"experiment.{figure.name}"
    return f'. In the ledger: <a href="#{id}">{id}</a>.' if id in known else ""


def _numbers(figure: Figure) -> str:
    rows = [[str(cell) for cell in row] for row in figure.rows]
    return html_table(figure.header, rows)


# ---------------------------------------------------------------------------- rules and words
def _rules() -> Iterator[str]:
    yield "<p>A derivation is a chain of these steps; the kernel carries out each one and records what it"
    yield " costs.</p>"
    heads = "".join(f'<th scope="col">{word}</th>' for word in ("rule", "says", "because", "assumes"))
    yield f'<div class="scroll wide"><table class="rules"><thead><tr>{heads}</tr></thead><tbody>'
    for name, rule in RULES.items():
        cite = f'<span class="quiet">{escape(rule.cite)}</span>'
        yield (
            f'<tr id="{rule_id(name)}"><th scope="row">{escape(name)}</th>'
            f'<td data-head="says">{mathml(rule.latex, breaking=True)}</td>'
            f'<td data-head="because">{prose_html(rule.why)} {cite}</td>'
            f'<td data-head="assumes">{prose_html(rule.hypotheses)}</td></tr>'
        )
    yield "</tbody></table></div><h3>How a derivation may end</h3>"
    yield '<div class="scroll wide"><table class="rules"><tbody>'
    for name, why in CLOSINGS.items():
        yield (
            f'<tr id="{closing_id(name)}"><th scope="row">{escape(name)}</th>'
            f"<td>{escape(ENDINGS[name][0])}</td>"
            f"<td>{prose_html(' '.join(why.split()))}</td></tr>"
        )
    yield "</tbody></table></div>"


def _checks() -> Iterator[str]:
    yield f'<h3 id="checks">How the numbers are checked</h3><p>{prose_html(HOW)}</p>'


def _glossary() -> Iterator[str]:
    items = "".join(f"<dt>{prose_html(term)}</dt><dd>{prose_html(words)}</dd>" for term, words in GLOSSARY)
    yield f'<dl class="glossary">{items}</dl>'


def _sources(sources: Mapping[str, str]) -> Iterator[str]:
    items = "".join(
        f'<li id="source.{escape(tag)}"><b>{escape(tag)}</b> {escape(words)}</li>'
        for tag, words in sources.items()
    )
    if items:
        yield f'<ul class="plain">{items}</ul>'
