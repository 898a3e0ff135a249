"""Write one page for each claim of the ledger, from the same templates as `klsym report`."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from markupsafe import Markup

from generate.sources import write
from klsym.study.ledger.registry import Claim, load
from klsym.study.ledger.settle_all import Judged, check_settled, write_certificates
from klsym.study.ledger.settle_claim import settle
from klsym.study.ledger.stored import entries
from klsym.study.ledger.view import TRUST
from klsym.study.tables.catalogue import tables
from klsym.study.write_up.page import AREAS, build_environment, collect_data
from klsym.study.write_up.page_material import Material
from klsym.study.write_up.run import check_by_sampling, list_sources

FOLDER = "reference/theorems"
TABLES = (
    "gradients",
    "values",
    "rewards",
    "variances",
    "centring",
    "sequences",
    "schulman",
    "survey",
)
CERTIFICATES = "certificates"
HREF = re.compile(r'href="#([^"]+)"')
MACROS = (
    '{% from "macros.html.j2" import claim_link, findings, formula, grid, listed, mark with context %}'
    '{% from "claim.html.j2" import claim_body with context %}'
    '{% from "table.html.j2" import sheet with context %}'
)
SECTIONS = {
    "rules": (
        "reference/rules.md", "Rules and cross-check",
        "The rules that the kernel replays, and how every statement is checked with numbers.",
    ),
    "errata": ("errata.md", "Errata", "Sentences of papers that are refuted or corrected, with the models."),
    "sources": ("reference/sources.md", "Sources", "The papers, posts and code of the claims."),
}  # fmt: skip
SURVEY = "The KL terms of released packages, as klsym reads their code."
SHEETS = "The tables of the study, each row with its claim."
HEAD = """---
orphan: true
myst:
  html_meta:
    keywords: "{words}"
---
"""  # the words are found by the search
CLAIM = """<div class="{{ one.verdict }}"><p class="facts">{{ mark(one.verdict) }} {{ one.trust }}</p>
{% if not one.more %}{{ formula(one.true[0], "formula stated") }}{% endif %}{{ claim_body(one) }}</div>"""
EXPERIMENT = """<div class="computed"><p class="facts">{{ mark("computed") }} {{ trust }}</p>
<p>{{ claim.explanation|prose }}</p><p class="facts">Source: {{ claim.source }}.</p>
<ul class="findings">{% for line in answer.statement.split("; ") %}<li>{{ line|prose }}</li>{% endfor %}</ul>
{{ listed(answer.hypotheses, "Set-up") }}</div>"""
LINE = """<table class="ledger"><tbody>{% for id, verdict, shown in rows %}<tr><td>{{ mark(verdict) }}</td>
<td>{{ claim_link(id) }}</td><td>{{ shown }}</td></tr>{% endfor %}</tbody></table>"""


Outcomes = Sequence[tuple[bool, str]]  # of the exact oracle, for each part of a claim


def judged(id: str) -> Outcomes:
    """Settle a claim and let the exact oracle judge it; for a process of its own."""
    return check_settled(settle(load()[id])).judged


class Later(Sequence[tuple[bool, str]]):
    """Outcomes that another process finds, awaited when they are looked at."""

    def __init__(self, found: Future[Outcomes]) -> None:
        self.found = found

    def __getitem__(self, place: Any) -> Any:
        return self.found.result()[place]

    def __len__(self) -> int:
        return len(self.found.result())


def write_theorems(into: Path, certificates: Path, outcomes: dict[str, Future[Outcomes]]) -> None:
    """Settle the ledger, compare it with samples, and write its pages.

    outcomes: of the oracle, for each claim that is no experiment.
    """
    claims = load()
    computed = [claim for claim in claims.values() if claim.verdict == "computed"]
    found = collect_data(_material(certificates, outcomes))
    site = Pages(into, set(claims))
    for area in found["areas"]:
        for one in area["claims"]:
            site.claim(one.settled.claim, site.render(CLAIM, one=one))
    for claim in computed:
        answer = entries()[claim.id]["answer"]
        shown = site.render(EXPERIMENT, claim=claim, answer=answer, trust=TRUST[answer["trust"]])
        site.claim(claim, shown)
    site.index(found, computed)
    sheets = {sheet["name"]: site.render("{{ sheet(it) }}", it=sheet) for sheet in found["tables"]}
    site.page("survey.md", "Survey of released packages", sheets.pop("survey"), SURVEY)
    site.page("reference/tables.md", "Tables", "\n".join(sheets.values()), SHEETS)
    for template, (name, title, lead) in SECTIONS.items():
        site.page(name, title, site.render(f'{{% include "{template}.html.j2" %}}', **found), lead)


def _material(certificates: Path, outcomes: dict[str, Future[Outcomes]]) -> Material:
    """Return the data of the report's templates, without figures."""
    proved = [settle(claim) for claim in load().values() if claim.verdict != "computed"]
    results = [Judged(one, Later(outcomes[one.claim.id])) for one in proved]  # type: ignore[arg-type]
    report, _ = check_by_sampling(results)
    if failed := [one.settled.claim.id for one in results if one.error]:
        raise SystemExit(f"these claims fail: {', '.join(failed)}")
    (certificates / CERTIFICATES).mkdir(parents=True)
    write_certificates(results, certificates / CERTIFICATES)
    links = {one.claim.id: f"{CERTIFICATES}/{one.claim.id}.json" for one in proved if one.proofs}
    return Material(results, report, (), list(tables(TABLES)), list_sources(), links)


class Pages:
    """Writes pages of HTML fragments, whose links lead to the pages of the site."""

    def __init__(self, into: Path, known: Collection[str]) -> None:
        self.into, self.known = into, known

    def render(self, template: str, **names: Any) -> str:
        return str(build_environment().from_string(MACROS + template).render(names))

    def claim(self, claim: Claim, shown: str) -> None:
        """The page of a claim, which links to its area instead of to itself."""
        id, area = claim.id, claim.area
        words = sorted(set(re.findall(r"[a-z]{4,}", f"{id} {claim.explanation}".lower())))
        head = HEAD.format(words=", ".join(words))
        above = f"[Theorems](index.md) / [{AREAS.get(area, area)}](index.md#{area})"
        own = f'<a href="#{id}">Link to this claim</a>.'
        self.page(f"{FOLDER}/{id}.md", f"`{id}`", shown.replace(own, ""), above, head)

    def page(self, name: str, title: str, shown: str, above: str = "", head: str = "") -> None:
        write(self.into / name, f"{head}# {title}\n\n{above}\n\n{raw(self.linked(shown, name))}")

    def linked(self, shown: str, name: str) -> str:
        """Turn the anchors of the report's one page into links between pages."""

        def address(found: re.Match[str]) -> str:
            target = found[1]
            if target.startswith("source."):
                page = f"reference/sources.html#{target}"
            elif target in self.known:
                page = f"{FOLDER}/{target}.html"
            else:
                page = f"reference/rules.html#{target}"
            return f'href="{posixpath.relpath(page, posixpath.dirname(name) or ".")}"'

        shown = HREF.sub(address, shown)
        up = posixpath.relpath(".", posixpath.dirname(name) or ".")
        return shown.replace(f'href="{CERTIFICATES}/', f'href="{up}/{CERTIFICATES}/')

    def index(self, found: dict[str, Any], computed: list[Claim]) -> None:
        """The list of all theorems, area by area."""
        name = f"{FOLDER}/index.md"
        lines = ["# Theorems", "", LEAD]
        for area in found["areas"]:
            rows = [
                (e.settled.claim.id, e.verdict, self.render("{{ formula(it) }}", it=e.true[0]))
                for e in area["claims"]
            ]
            lines += self._area(area["name"], area["title"], rows, name)
        rows = [
            (claim.id, "computed", self.render("{{ it|prose }}", it=claim.explanation)) for claim in computed
        ]
        lines += self._area("experiment", AREAS["experiment"], rows, name)
        write(self.into / name, "\n".join(lines))

    def _area(self, area: str, title: str, rows: list[tuple[str, str, str]], name: str) -> list[str]:
        shown = self.render(LINE, rows=[(id, verdict, Markup(text)) for id, verdict, text in rows])
        return ["", f"({area})=", f"## {title}", "", raw(self.linked(shown, name))]


LEAD = """Each claim of the ledger has a page: the statement, the derivation or the calculation, the
hypotheses, the counterexample, the numeric cross-check, and the marks of the kernel and of the verified
checker.
`klsym claims` prints the same ledger, and `klsym report` writes it as one page."""


def raw(shown: str) -> str:
    """HTML inside Markdown."""
    assert "`````" not in shown
    return f'`````{{raw}} html\n<div class="claim-page">\n{shown}\n</div>\n`````'
