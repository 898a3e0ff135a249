"""The report as one page: it opens offline, asks for nothing from outside, and is complete without a script.

What it shows was computed by others and is handed over as `Material`.  Here it becomes plain data, which the
templates write down.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Collection, Iterable
from functools import cache
from itertools import dropwhile, takewhile
from typing import Any

from markupsafe import Markup, escape

from klsym import __version__
from klsym.kernel import CLOSINGS as ENDINGS
from klsym.kernel import digest
from klsym.render.mathml import mathml
from klsym.render.rules import CLOSINGS, RULES
from klsym.study import templates
from klsym.study.ledger.evidence import against_sources
from klsym.study.ledger.experiment_result import MARKS
from klsym.study.ledger.registry import ERRATA, TRUSTS, VERDICTS
from klsym.study.rocq.accepted import MEANS, MEANS_NOT, summary
from klsym.study.tables.writing.layouts import html_piece, in_html
from klsym.study.tables.writing.table import CODE, WORDS, Cell, Table
from klsym.study.write_up.page_checks import number, scientific
from klsym.study.write_up.page_claims import Entry, closing_id, rule_id
from klsym.study.write_up.page_glossary import GLOSSARY
from klsym.study.write_up.page_material import Figure, Material
from klsym.study.write_up.page_prose import glued, prose_html

# The areas in the order in which the notebooks tell the story.
AREAS = {
    "value": "Values",
    "gradient": "On-policy gradients",
    "offpolicy": "Off-policy weighting",
    "variance": "Variance",
    "reward": "KL as a reward",
    "implied": "Objectives without a name",
    "optimum": "Where training ends",
    "catalogue": "All losses of a small grammar",
    "clip": "Clamps and masks",
    "batch": "Batches and centring",
    "sequence": "Sequences and tokens",
    "neighbour": "Near p, and near other policies",
    "shipped": "What trainers ship",
    "distill": "Distillation",
    "discount": "Discounts and critics",
    "practice": "Advice for code",
    "experiment": "Experiments",
}
# What most people come for; the words and formulas are those of the claims.
HEADLINES = (
    "gradient.k1-loss", "gradient.k2-loss", "gradient.k3-loss", "reward.k1", "reward.k3", "offpolicy.rho-k3",
    "offpolicy.detach-trap", "sequence.token-loss-partial", "neighbour.rao-blackwell",
)  # fmt: skip
KINDS = {".png": "image/png", ".svg": "image/svg+xml"}
DPI, ENLARGED = 300, 1.5  # of a figure that does not say; print size is small on a screen
TITLE = re.compile(r"(.*?\.)(?=\s|$)", re.DOTALL)


def page(material: Material) -> str:
    """The whole report as HTML.

    >>> from klsym.study.ledger.registry import load
    >>> from klsym.study.ledger.settle_all import settle_all
    >>> text = page(Material(settle_all([load()["gradient.k1-loss"]])))
    >>> 'id="gradient.k1-loss"' in text, "http:" in text
    (True, False)

    Raises UsageError: a formula that is none.
    """
    return str(environment().get_template("page.html.j2").render(data(material))) + "\n"


@cache
def environment() -> Any:
    """The templates with what sets formulas, sentences and numbers."""
    return templates.html(
        {
            "prose": _prose,
            "sentence": lambda text: _prose(" ".join(str(text).split())),
            "inline": lambda shown: _set(shown),
            "breaking": lambda shown: _set(shown, breaking=True),
            "display": lambda shown: _set(shown, display=True, breaking=True),
            "number": lambda value, digits=1: Markup(number(value, digits)),
            "scientific": scientific,
        }
    )


def _set(shown: str, **style: bool) -> Markup:
    """A formula that is MathML already, or is written in LaTeX."""
    return shown if isinstance(shown, Markup) else Markup(mathml(shown, **style))


def _prose(text: str) -> Markup:
    return Markup(prose_html(str(text)))


# ---------------------------------------------------------------------------- the data
def data(material: Material) -> dict[str, Any]:
    """What the templates write down: words, LaTeX, counts."""
    entries = ledger(material)
    by_id = {entry.settled.claim.id: entry for entry in entries}
    failed = {id: entry.error for id, entry in by_id.items() if entry.error}
    good = [entry for entry in entries if not entry.error]
    compared, differing = against_sources(part for entry in good for part in entry.settled.parts)
    proofs = {r.settled.claim.id: r.settled.certificate()["digest"] for r in material.results if not r.error}
    options = material.cross_check.options if material.cross_check is not None else None
    return {
        "style": templates.source("claims.css") + templates.source("style.css"),
        "script": templates.source("page.js"),
        "version": __version__,
        "digest": digest(proofs),
        "sampled": options and f"{options.on.describe()}, seed {options.seed}",
        "count": len(entries),
        "failed": failed,
        **_counted(good),
        "checked": _checked(material),
        "means": MEANS,
        "means_not": MEANS_NOT,
        "compared": compared,
        "differing": differing,
        "headlines": [by_id[id] for id in HEADLINES if id in by_id and id not in failed],
        "errata": _errata(good),
        "heads": [v for v in (*VERDICTS, "failed") if any(one.verdict == v for one in entries)],
        "areas": _by_area(entries),
        "figures": [_figure(figure, by_id) for figure in material.figures],
        "otherwise": MARKS[False],
        "tables": [_sheet(table, by_id) for table in material.tables],
        **_grounds(),
        "glossary": GLOSSARY,
        "sources": material.sources,
    }


def _errata(good: list[Entry]) -> list[tuple[str, list[Entry]]]:
    """The corrected claims of each kind that there is."""
    wrong = [entry for entry in good if entry.verdict == "corrected"]
    kinds = ((kind, [one for one in wrong if one.settled.claim.erratum == kind]) for kind in ERRATA)
    return [(kind, entries) for kind, entries in kinds if entries]


def _counted(good: list[Entry]) -> dict[str, Any]:
    """How many claims there are of each verdict and of each trust."""
    return {
        "verdicts": {v: sum(one.verdict == v for one in good) for v in VERDICTS},
        "trusts": {trust: sum(one.settled.trust == trust for one in good) for trust in TRUSTS},
        "verified": summary(one.settled.verified for one in good),
    }


def _by_area(entries: list[Entry]) -> list[dict[str, Any]]:
    present = {entry.settled.claim.area: "" for entry in entries}
    return [
        {
            "name": area,
            "title": AREAS.get(area, area),
            "claims": _by_trust(one for one in entries if one.settled.claim.area == area),
        }
        for area in (AREAS | present)
        if area in present
    ]


def _grounds() -> dict[str, Any]:
    """The rules and the ways in which a proof may end."""
    return {
        "rules": [
            {"id": rule_id(name), "name": name, "latex": rule.latex, "why": rule.why, "cite": rule.cite,
             "hypotheses": rule.hypotheses}
            for name, rule in RULES.items()
        ],
        "closings": [
            {"id": closing_id(name), "name": name, "says": ENDINGS[name][0], "why": why}
            for name, why in CLOSINGS.items()
        ],
    }  # fmt: skip


def ledger(material: Material) -> list[Entry]:
    """The claims; failed where they did not settle, or where the oracle or samples do not bear them out."""
    checks: dict[str, list[Any]] = {}
    for one in material.cross_check.checked if material.cross_check is not None else []:
        checks.setdefault(one.identity.claim.id, []).append(one)
    entries = []
    for result in material.results:
        id, error = result.settled.claim.id, " ".join(result.error.split())
        mine = checks.get(id, [])
        if not error and not all(one.passed for one in mine):
            error = "the cross-check with numbers does not agree"
        link = material.certificates.get(id, "")
        entries.append(Entry(result.settled, mine, link, material.sources.keys(), error))
    return entries


def _by_trust(entries: Iterable[Entry]) -> list[Entry]:
    """Those that rest on least come first."""
    return sorted(entries, key=lambda entry: TRUSTS.index(entry.settled.trust))


def _checked(material: Material) -> dict[str, Any] | None:
    """What the cross-check came to in all."""
    report = material.cross_check
    if report is None:
        return None
    return {
        "agreeing": sum(one.passed for one in report.checked),
        "statements": len(report.checked),
        "sampled": sum(bool(one.outcomes) for one in report.checked),
        "rejected": sum(outcome.rejected for outcome in report.outcomes),
        "outcomes": len(report.outcomes),
        "level": report.level if report.outcomes else None,
    }


# ---------------------------------------------------------------------------- figures and tables
def _figure(figure: Figure, known: Collection[str]) -> dict[str, Any]:
    title, claim = figure.title, f"experiment.{figure.name}"
    told = figure.findings[0].text if figure.findings else title
    return {
        "name": figure.name,
        # with a capital, unless it begins with a name such as k1
        "title": title if title[1:2].isdigit() else title[:1].upper() + title[1:],
        "told": f"{title}: {told}",
        "size": size(figure),
        "data": f"data:{KINDS[figure.kind]};base64,{base64.b64encode(figure.image).decode('ascii')}",
        "setup": figure.setup,
        "claim": claim if claim in known else "",
        "findings": [(f.text, f"{f.mark}: {f.paper}" if f.paper else "") for f in figure.findings],
        "differing": sum(finding.compared is False for finding in figure.findings),
        "header": figure.header,
        "rows": figure.rows,
    }


def size(figure: Figure) -> tuple[int, ...]:
    """Width and height of a PNG in CSS pixels, so that letters are as large in every figure."""
    if figure.kind != ".png" or figure.image[12:16] != b"IHDR":
        return ()
    found = figure.image.find(b"pHYs")
    metre, unit = struct.unpack(">IxxxxB", figure.image[found + 4 : found + 13]) if found > 0 else (0, 0)
    dpi = metre * 0.0254 if unit and metre else DPI
    return tuple(round(n / dpi * 96 * ENLARGED) for n in struct.unpack(">II", figure.image[16:24]))


def _sheet(table: Table, known: Collection[str]) -> dict[str, Any]:
    """A table under its title; the ids of claims lead to them."""

    def piece(kind: str, text: str) -> str:
        if kind == CODE and text in known:
            return f'<a class="claim-id" href="#{escape(text)}"><code>{escape(text)}</code></a>'
        return html_piece(kind, text)

    def cell(one: Cell) -> Markup:
        return Markup(glued("".join(piece(kind, text) for kind, text in one.pieces)))

    title, rest = _titled(table.caption)
    shown = in_html(table, cell)
    cells = [one for _, rows in shown["groups"] for row in rows for one in row]
    return shown | {
        "title": title,
        "caption": cell(rest),
        "breaks": any("<wbr/>" in one for one in cells),  # a formula that may be broken
        "labels": [head.striptags() for head in shown["heads"]],
    }


def _titled(caption: Cell) -> tuple[str, Cell]:
    """The first sentence of a caption, as far as it is of words alone, and the rest."""
    lead = "".join(text for _, text in takewhile(_is_words, caption.pieces))
    found = TITLE.match(lead)
    title = found[1] if found else ""
    rest = ((WORDS, lead[len(title) :]), *dropwhile(_is_words, caption.pieces))
    return title, Cell(rest, caption.claims)


def _is_words(piece: tuple[str, str]) -> bool:
    return piece[0] == WORDS
