"""The first screen of the report: what it is, what was settled, what failed, how far it is to be trusted;
then the results most people come for, and the errata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from klsym.evidence import against_sources
from klsym.finding import MARKS
from klsym.ledger import TRUSTS, VERDICTS
from klsym.render.claims import statement_latex
from klsym.write_up.page_claims import formula, printed_latex, true_parts
from klsym.write_up.page_prose import prose_html
from klsym.write_up.page_style import mark
from klsym.write_up.page_tables import claim_link

if TYPE_CHECKING:
    from klsym.sampling.verify import Report
    from klsym.write_up.page_material import Figure, Material

LEAD = (
    "Training code adds a KL penalty in a dozen ways: k1, k2 or k3, in the loss or in the reward, with an"
    " importance weight or without, detached or not. Each choice descends something else. This page says"
    " what, with a proof or a counterexample for every claim."
)
TRUSTED = {
    "kernel": "replayed by a small kernel that needs Python's standard library alone",
    "sympy": "resting on SymPy",
    "numeric": "resting on numbers",
}
# What most people come for; the words and formulas are those of the claims.
HEADLINES = (
    "gradient.k1-loss", "gradient.k2-loss", "gradient.k3-loss", "reward.k1", "reward.k3", "offpolicy.rho-k3",
    "offpolicy.detach-trap", "sequence.token-loss-partial",
)  # fmt: skip


def failures(material: Material) -> dict[str, str]:
    """Claim id -> why it failed: not settled, or not borne out by the oracle or by samples."""
    found = {r.settled.claim.id: " ".join(r.error.split()) for r in material.results if r.error}
    for one in material.cross_check.checked if material.cross_check is not None else []:
        if not one.passed:
            found.setdefault(one.identity.claim.id, "the cross-check with numbers does not agree")
    return found


def top(material: Material) -> Iterator[str]:
    failed = failures(material)
    yield '<a class="skip" href="#ledger">To the ledger</a>'
    yield '<header class="top"><h1>What a KL penalty optimises</h1>'
    yield f'<p class="lead">{prose_html(LEAD)}</p>'
    yield from _status(material, failed)
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{shown}</dd>" for name, shown in _facts(material, failed))
    yield f'<dl class="facts-of-run">{facts}</dl></header>'


def _status(material: Material, failed: Mapping[str, str]) -> Iterator[str]:
    """Did everything hold?"""
    count = len(material.results)
    if failed:
        yield f'<div class="status failed"><p>{mark("failed", f"{len(failed)} of {count} claims failed")}</p>'
        items = "".join(f"<li>{claim_link(id)}: {escape(error)}</li>" for id, error in failed.items())
        yield f'<ul class="failure">{items}</ul></div>'
    elif count:
        words = f"All {count} claims are settled, and every check agrees"
        yield f'<p class="status proved">{mark("proved", words)}</p>'


def _facts(material: Material, failed: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What the run found, fact by fact; every count is of this run."""
    settled = [r.settled for r in material.results if r.settled.claim.id not in failed]
    yield "Settled", _counts(settled)
    trusts = [(sum(s.trust == trust for s in settled), TRUSTED[trust]) for trust in TRUSTS]
    yield "Trust", "; ".join(f"<b>{count}</b> {words}" for count, words in trusts if count)
    if material.cross_check is not None:
        yield from _cross_checked(material.cross_check)
    yield from _literature(settled)


def _counts(settled: Sequence[Any]) -> str:
    """How many claims of each verdict, which is also what the marks mean."""
    words = {
        "proved": "proved",
        "refuted": "refuted by an explicit model",
        "corrected": "corrected: printed wrongly in the source",
        "exact": "calculated exactly",
        "computed": "found by experiment",
    }
    counts = {verdict: sum(s.claim.verdict == verdict for s in settled) for verdict in VERDICTS}
    items = "".join(
        f"<li>{mark(v, str(count))} {escape(words[v])}</li>" for v, count in counts.items() if count
    )
    return f'<ul class="legend">{items}</ul>'


def _cross_checked(report: Report) -> Iterator[tuple[str, str]]:
    agreeing = sum(one.passed for one in report.checked)
    words = f"<b>{agreeing}</b> of {len(report.checked)} statements agree with an exact numeric oracle that"
    words += " shares no rule with the proofs"
    outcomes = report.outcomes
    if outcomes and report.level is not None:
        sampled = sum(bool(one.outcomes) for one in report.checked)
        rejected = sum(outcome.rejected for outcome in outcomes)
        words += (
            f"; <b>{sampled}</b> were sampled too, {report.level.comparisons:,} comparisons with one"
            f" false-alarm rate of 1 in {1 / report.level.false_alarm:,.0f}; <b>{rejected}</b> of"
            f" {len(outcomes)} deliberately wrong controls were told apart"
        )
    yield "Checked", f'{words} (<a href="#checks">how</a>)'


def _literature(settled: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """What is false in print, and what experiments did not find again."""
    wrong = sum(s.claim.verdict == "corrected" for s in settled)
    compared, differing = against_sources(part for item in settled for part in item.parts)
    found = []
    if wrong:
        found.append(f'<a href="#errata"><b>{wrong}</b> printed forms are false</a>')
    if differing:
        found.append(
            f'<a href="#figures"><b>{differing}</b> of {compared} findings of published experiments</a>'
            " came out differently"
        )
    if found:
        yield "Against the papers", "; ".join(found)


# ---------------------------------------------------------------------------- in short, and errata
def in_short(material: Material) -> Iterator[str]:
    """The results that most people come for, quoted from the ledger."""
    known = {result.settled.claim.id: result.settled for result in material.results}
    failed = failures(material)
    rows = [_headline(known[id]) for id in HEADLINES if id in known and id not in failed]
    if rows:
        yield f'<ul class="short">{"".join(rows)}</ul>'


def _headline(settled: Any) -> str:
    parts = true_parts(settled)
    return (
        f"<li>{formula(statement_latex(parts[0]))}<p>{prose_html(settled.claim.explanation)}"
        f" {claim_link(settled.claim.id)}</p></li>"
    )


def errata(material: Material) -> Iterator[str]:
    """Each printed form that is false, beside the true one."""
    failed = failures(material)
    corrected = [
        result.settled
        for result in material.results
        if result.settled.claim.verdict == "corrected" and result.settled.claim.id not in failed
    ]
    if not corrected:
        return
    yield "<p>Printed in the literature, and false: each is refuted by an explicit model or by a calculation."
    yield "</p>"
    for settled in corrected:
        yield '<div class="erratum">'
        yield f'<p class="facts">{escape(settled.claim.source)} {claim_link(settled.claim.id)}</p>'
        wrong = "".join(map(formula, printed_latex(settled)))
        right = "".join(formula(statement_latex(part)) for part in true_parts(settled))
        yield f'<div class="pair"><div>{mark("refuted", "printed")}{wrong}</div>'
        yield f"<div>{mark('proved', 'true')}{right}</div></div></div>"


# ---------------------------------------------------------------------------- the ledger at a glance
def overview(material: Material, names: Mapping[str, str]) -> Iterator[str]:
    """Areas against verdicts.  names: area -> its title, in the order of the page."""
    failed = failures(material)
    verdicts = [(r.settled.claim.area, _verdict(r.settled, failed)) for r in material.results]
    heads = [verdict for verdict in (*VERDICTS, "failed") if any(v == verdict for _, v in verdicts)]
    shown = "".join(f'<th scope="col" class="n">{mark(verdict)}</th>' for verdict in heads)
    yield '<div class="scroll"><table class="counts"><thead><tr><th scope="col">area</th>'
    yield f'{shown}<th scope="col" class="n">all</th></tr></thead><tbody>'
    for area, title in names.items():
        mine = [verdict for where, verdict in verdicts if where == area]
        cells = "".join(f'<td class="n">{mine.count(verdict) or ""}</td>' for verdict in heads)
        link = f'<a href="#area.{escape(area)}">{escape(title)}</a>'
        yield f'<tr><th scope="row">{link}</th>{cells}<td class="n">{len(mine)}</td></tr>'
    yield "</tbody></table></div>"


def _verdict(settled: Any, failed: Mapping[str, str]) -> str:
    return "failed" if settled.claim.id in failed else str(settled.claim.verdict)


def heading(title: str) -> str:
    """With a capital, unless it begins with a name such as k1.

    >>> heading("k1 in the reward"), heading("error of k1")
    ('k1 in the reward', 'Error of k1')
    """
    return title if title[1:2].isdigit() else title[:1].upper() + title[1:]


def figure_counts(figures: Sequence[Figure]) -> Iterator[str]:
    """The figures by title, each with how many findings came out differently."""
    for figure in figures:
        differing = sum(finding.compared is False for finding in figure.findings)
        title = prose_html(heading(figure.title))
        note = f' <span class="quiet">({differing} {MARKS[False]})</span>' if differing else ""
        yield f'<li><a href="#figure.{escape(figure.name)}">{title}</a>{note}</li>'
