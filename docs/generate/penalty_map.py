"""The map: estimator x placement x weight x sampling, each cell with a page of its own."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from html import escape
from pathlib import Path

from generate.sources import write
from klsym.api import Verdict
from klsym.language.parser import parse
from klsym.render.details import derivation_latex, hypotheses_of
from klsym.render.snippets import code
from klsym.study.ledger.stored import entries
from klsym.study.tables.penalty_map import ESTIMATORS, OFF, ON, ROWS, SAMPLES, TARGETS, WEIGHTS, Cell, cells
from klsym.study.write_up.hypothesis_groups import group_hypotheses

SAID = {
    "reverse": "descends KL(q‖p)", "forward": "descends KL(p‖q)", "zero": "has expected gradient zero",
    "divergence": "descends E_q[f(r)] with another f", "combination": "descends KL(q‖p) − KL(p‖q)",
    "sampler": "descends an expectation under mu, which is no divergence between q and p",
}  # fmt: skip


def write_map(into: Path) -> None:
    """A page for each cell.  The table itself is put into the front page."""
    for cell in cells():
        write(into / f"map/{cell.name}.md", "\n".join(page(cell)))


def table() -> str:
    """The map as an HTML table, whose cells lead to their pages."""
    head = "".join(f'<th scope="col"><code>{estimator}</code></th>' for estimator in ESTIMATORS)
    lines = ['<table class="map">', f"<thead><tr><th></th>{head}</tr></thead>"]
    for sampling in (ON, OFF):
        lines.append(
            f'<tbody><tr><th scope="rowgroup" colspan="{len(ESTIMATORS) + 1}">{SAMPLES[sampling]}</th></tr>'
        )
        lines += [_row(*row) for row in ROWS if row[0] == sampling]
        lines.append("</tbody>")
    keys = (f'<li><span class="{name}">{words}</span> {SAID[name]}</li>' for name, words in TARGETS.values())
    return "\n".join([*lines, "</table>", f'<ul class="map-legend">{"".join(keys)}</ul>'])


def _row(sampling: str, use: str, weight: str) -> str:
    shown = ""
    for estimator in ESTIMATORS:
        cell = Cell(estimator, sampling, use, weight)
        colour, words = TARGETS[str(cell.verdict.target)]
        title = escape(f"{cell.loss}: {cell.verdict.summary}")
        shown += f'<td class="{colour}"><a href="map/{cell.name}.html" title="{title}">{words}</a></td>'
    return f'<tr><th scope="row">in the {use}, {WEIGHTS[weight]}</th>{shown}</tr>'


def page(cell: Cell) -> Iterator[str]:
    """The verdict of a cell, its proof, its objective, its code."""
    verdict = cell.verdict
    yield from (
        "---",
        "orphan: true",
        "---",
        f"# `{cell.loss}` in the {cell.use}, {SAMPLES[cell.sampling]}",
        "",
    )
    yield from ("[The map](../index.md#the-map)", "", "## Verdict", "")
    yield from ("```console", f"$ {cell.command}", str(verdict), "```", "")
    if objective := verdict.to_json()["objective"]:
        yield from ("## Objective", "", "$$", objective["latex"], "$$", "")
    yield from ("## Code", "")
    yield from ("```python", *snippet(cell), "```", "", "## Proof", "")
    yield from ("$$", derivation_latex(verdict), "$$", "")
    if same := theorems(verdict):
        links = ", ".join(f"[`{id}`](../reference/theorems/{id}.md)" for id in same)
        yield from (f"In the ledger: {links}.", "")
    yield from folded_hypotheses(hypotheses_of(verdict))


def folded_hypotheses(lines: tuple[str, ...]) -> Iterator[str]:
    """The groups of hypotheses, folded."""
    yield from ("`````{raw} html", f"<details><summary>Hypotheses ({len(lines)})</summary>")
    for title, group in group_hypotheses(lines).items():
        yield f"<h4>{title}</h4><ul>{''.join(f'<li><code>{escape(line)}</code></li>' for line in group)}</ul>"
    yield from ("</details>", "`````", "")


def snippet(cell: Cell) -> list[str]:
    """The loss as a PyTorch function, one value for each sample."""
    body = code(parse(cell.loss, ()), "torch")
    weighted, off = "rho" in body, cell.sampling == OFF
    lines = ["k1 = log_q - log_p"]
    if weighted:
        lines.append(f"rho = torch.exp(log_q - {'log_mu' if off else 'log_q.detach()'})")
    lines.append(_returned(body, cell.use))
    names = ["log_q", "log_p", *(["log_mu"] if weighted and off else [])]
    return [f"def penalty({', '.join(names)}):", *(f"    {line}" for line in lines)]


def _returned(body: str, use: str) -> str:
    """In the reward, a detached penalty multiplies the score."""
    return f"return ({body}).detach()*log_q" if use == "reward" else f"return {body}"


def theorems(verdict: Verdict) -> list[str]:
    """The claims whose statement is that of the verdict."""
    if len(verdict.proof.steps) < 2:
        return []
    first, last = verdict.proof.steps[0][1], verdict.proof.steps[-1][1]
    return [id for id, statement in statements() if f"{first} = {last}" in statement]


@cache
def statements() -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple((id, tuple(one["answer"]["statement"].split("; "))) for id, one in entries().items())
