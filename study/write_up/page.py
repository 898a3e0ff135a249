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
from klsym.render.markup.mathml import mathml
from klsym.render.rules import CLOSINGS, RULES
from klsym.study import templates
from klsym.study.ledger.evidence import count_evidence
from klsym.study.ledger.experiment_result import MARKS, OUTCOMES, describe_outcomes
from klsym.study.ledger.registry import ERRATA, TRUSTS, VERDICTS
from klsym.study.rocq.accepted import MEANS, MEANS_NOT, summarise_marks
from klsym.study.tables.writing.layouts import build_html_data, render_html_piece
from klsym.study.tables.writing.table import CODE, WORDS, Cell, Table
from klsym.study.write_up.page_checks import format_number, format_scientific
from klsym.study.write_up.page_claims import Entry, name_closing, name_rule
from klsym.study.write_up.page_glossary import GLOSSARY
from klsym.study.write_up.page_material import Figure, Material
from klsym.study.write_up.page_prose import glue_commas, render_prose

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


def write_page(material: Material) -> str:
    """The whole report as HTML.

    >>> from klsym.study.ledger.registry import load
    >>> from klsym.study.ledger.settle_all import settle_all
    >>> text = write_page(Material(settle_all([load()["gradient.k1-loss"]])))
    >>> 'id="gradient.k1-loss"' in text, "http:" in text
    (True, False)

    Raises UsageError: a formula that is none.
    """
    return str(build_environment().get_template("page.html.j2").render(collect_data(material))) + "\n"


@cache
def build_environment() -> Any:
    """The templates with what sets formulas, sentences and numbers."""
    return templates.build_html_environment(
        {
            "prose": _render_prose,
            "sentence": lambda text: _render_prose(" ".join(str(text).split())),
            "inline": lambda shown: _set(shown),
            "breaking": lambda shown: _set(shown, breaking=True),
            "display": lambda shown: _set(shown, display=True, breaking=True),
            "number": lambda value, digits=1: Markup(format_number(value, digits)),
            "scientific": format_scientific,
        }
    )


def _set(shown: str, **style: bool) -> Markup:
    """A formula that is MathML already, or is written in LaTeX."""
    return shown if isinstance(shown, Markup) else Markup(mathml(shown, **style))


def _render_prose(text: str) -> Markup:
    return Markup(render_prose(str(text)))


# ---------------------------------------------------------------------------- the data
def collect_data(material: Material) -> dict[str, Any]:
    """What the templates write down: words, LaTeX, counts."""
    entries = list_entries(material)
    by_id = {entry.settled.claim.id: entry for entry in entries}
    failed = {id: entry.error for id, entry in by_id.items() if entry.error}
    good = [entry for entry in entries if not entry.error]
    found = count_evidence(part for entry in good for part in entry.settled.parts)
    proofs = {r.settled.claim.id: r.settled.certificate()["digest"] for r in material.results if not r.error}
    options = material.cross_check.options if material.cross_check is not None else None
    return {
        "style": templates.read_source("claims.css") + templates.read_source("style.css"),
        "script": templates.read_source("page.js"),
        "version": __version__,
        "digest": digest(proofs),
        "sampled": options and f"{options.on.describe()}, seed {options.seed}",
        "count": len(entries),
        "failed": failed,
        **_count_claims(good),
        "checked": _summarise_checks(material),
        "means": MEANS,
        "means_not": MEANS_NOT,
        "outcomes": describe_outcomes(found) if any(found[name] for name in OUTCOMES) else "",
        "advice": (found["advice-right"], found["advice-right"] + found["advice-wrong"]),
        "headlines": [by_id[id] for id in HEADLINES if id in by_id and id not in failed],
        "errata": _group_errata(good),
        "heads": [
            v for v in (*VERDICTS, "failed") if any(listed_entry.verdict == v for listed_entry in entries)
        ],
        "areas": _group_by_area(entries),
        "figures": [_describe_figure(figure, by_id) for figure in material.figures],
        "otherwise": MARKS[False],
        "tables": [_render_sheet(table, by_id) for table in material.tables],
        **_collect_grounds(),
        "glossary": GLOSSARY,
        "sources": material.sources,
    }


def _group_errata(good: list[Entry]) -> list[tuple[str, list[Entry]]]:
    """The corrected claims of each kind that there is."""
    wrong = [entry for entry in good if entry.verdict == "corrected"]
    kinds = (
        (kind, [wrong_entry for wrong_entry in wrong if wrong_entry.settled.claim.erratum == kind])
        for kind in ERRATA
    )
    return [(kind, entries) for kind, entries in kinds if entries]


def _count_claims(good: list[Entry]) -> dict[str, Any]:
    """How many claims there are of each verdict and of each trust."""
    return {
        "verdicts": {v: sum(good_entry.verdict == v for good_entry in good) for v in VERDICTS},
        "trusts": {trust: sum(good_entry.settled.trust == trust for good_entry in good) for trust in TRUSTS},
        "verified": summarise_marks(good_entry.settled.verified for good_entry in good),
    }


def _group_by_area(entries: list[Entry]) -> list[dict[str, Any]]:
    present = {entry.settled.claim.area: "" for entry in entries}
    return [
        {
            "name": area,
            "title": AREAS.get(area, area),
            "claims": _sort_by_trust(
                area_entry for area_entry in entries if area_entry.settled.claim.area == area
            ),
        }
        for area in (AREAS | present)
        if area in present
    ]


def _collect_grounds() -> dict[str, Any]:
    """The rules and the ways in which a proof may end."""
    return {
        "rules": [
            {"id": name_rule(name), "name": name, "latex": rule.latex, "why": rule.why, "cite": rule.cite,
             "hypotheses": rule.hypotheses}
            for name, rule in RULES.items()
        ],
        "closings": [
            {"id": name_closing(name), "name": name, "says": ENDINGS[name][0], "why": why}
            for name, why in CLOSINGS.items()
        ],
    }  # fmt: skip


def list_entries(material: Material) -> list[Entry]:
    """The claims; failed where they did not settle, or where the oracle or samples do not bear them out."""
    checks: dict[str, list[Any]] = {}
    for checked_identity in material.cross_check.checked if material.cross_check is not None else []:
        checks.setdefault(checked_identity.identity.claim.id, []).append(checked_identity)
    entries = []
    for result in material.results:
        id, error = result.settled.claim.id, " ".join(result.error.split())
        mine = checks.get(id, [])
        if not error and not all(checked_identity.passed for checked_identity in mine):
            error = "the cross-check with numbers does not agree"
        link = material.certificates.get(id, "")
        entries.append(
            Entry(result.settled, checked=mine, certificate=link, tags=material.sources.keys(), failure=error)
        )
    return entries


def _sort_by_trust(entries: Iterable[Entry]) -> list[Entry]:
    """Those that rest on least come first."""
    return sorted(entries, key=lambda entry: TRUSTS.index(entry.settled.trust))


def _summarise_checks(material: Material) -> dict[str, Any] | None:
    """What the cross-check came to in all."""
    report = material.cross_check
    if report is None:
        return None
    return {
        "agreeing": sum(checked_identity.passed for checked_identity in report.checked),
        "statements": len(report.checked),
        "sampled": sum(bool(checked_identity.outcomes) for checked_identity in report.checked),
        "rejected": sum(outcome.rejected for outcome in report.outcomes),
        "outcomes": len(report.outcomes),
        "level": report.level if report.outcomes else None,
    }


# ---------------------------------------------------------------------------- figures and tables
def _describe_figure(figure: Figure, known: Collection[str]) -> dict[str, Any]:
    title, claim = figure.title, f"experiment.{figure.name}"
    caption_text = figure.findings[0].text if figure.findings else title
    return {
        "name": figure.name,
        # with a capital, unless it begins with a name such as k1
        "title": title if title[1:2].isdigit() else title[:1].upper() + title[1:],
        "told": f"{title}: {caption_text}",
        "size": read_size(figure),
        "data": f"data:{KINDS[figure.kind]};base64,{base64.b64encode(figure.image).decode('ascii')}",
        "setup": figure.setup,
        "claim": claim if claim in known else "",
        "findings": [(f.text, f"{f.mark}: {f.paper}" if f.paper else "") for f in figure.findings],
        "differing": sum(finding.outcome == "otherwise" for finding in figure.findings),
        "header": figure.header,
        "rows": figure.rows,
    }


def read_size(figure: Figure) -> tuple[int, ...]:
    """Width and height of a PNG in CSS pixels, so that letters are as large in every figure."""
    if figure.kind != ".png" or figure.image[12:16] != b"IHDR":
        return ()
    chunk_start = figure.image.find(b"pHYs")
    metre, unit = (
        struct.unpack(">IxxxxB", figure.image[chunk_start + 4 : chunk_start + 13])
        if chunk_start > 0
        else (0, 0)
    )
    dpi = metre * 0.0254 if unit and metre else DPI
    return tuple(round(n / dpi * 96 * ENLARGED) for n in struct.unpack(">II", figure.image[16:24]))


def _render_sheet(table: Table, known: Collection[str]) -> dict[str, Any]:
    """A table under its title; the ids of claims lead to them."""

    def render_piece(kind: str, text: str) -> str:
        if kind == CODE and text in known:
            return f'<a class="claim-id" href="#{escape(text)}"><code>{escape(text)}</code></a>'
        return render_html_piece(kind, text)

    def render_cell(one: Cell) -> Markup:
        return Markup(glue_commas("".join(render_piece(kind, text) for kind, text in one.pieces)))

    title, remaining_caption = _split_title(table.caption)
    sheet_data = build_html_data(table, render_cell)
    cells = [one for _, rows in sheet_data["groups"] for row in rows for one in row]
    return sheet_data | {
        "title": title,
        "caption": render_cell(remaining_caption),
        "breaks": any("<wbr/>" in one for one in cells),  # a formula that may be broken
        "labels": [head.striptags() for head in sheet_data["heads"]],
    }


def _split_title(caption: Cell) -> tuple[str, Cell]:
    """The first sentence of a caption, as far as it is of words alone, and the rest."""
    lead = "".join(text for _, text in takewhile(_is_words, caption.pieces))
    title_match = TITLE.match(lead)
    title = title_match[1] if title_match else ""
    remaining_pieces = ((WORDS, lead[len(title) :]), *dropwhile(_is_words, caption.pieces))
    return title, Cell(remaining_pieces, caption.claims)


def _is_words(piece: tuple[str, str]) -> bool:
    return piece[0] == WORDS
