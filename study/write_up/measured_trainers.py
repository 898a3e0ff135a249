"""docs/reference/measured-trainers.md: what released trainers minimise, and what their documentation says.

    python -m klsym.study.write_up.measured_trainers docs/examples/measure docs/reference/measured-trainers.md

Nothing on the page is measured here: the rows are stored, and the recipes say how to run them again.
"""

from __future__ import annotations

import ast
import shlex
import sys
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from klsym.files import write_whole
from klsym.study.tables.measured import COLUMNS, build_rows, show_measured, show_text
from klsym.study.tables.measured_data import (
    Finding,
    Rows,
    describe_release,
    describe_sampling,
    list_findings,
    read_functions,
    read_trainers,
)
from klsym.study.tables.measured_survey import COLUMNS as COUNTED
from klsym.study.tables.measured_survey import build_table, count_functions
from klsym.study.tables.writing.layouts import render_markdown_piece
from klsym.study.tables.writing.table import Cell, join_cells

LEAD = """# What trainers minimise, measured

{cases} cases of {packages} released packages, run by the recipes in `docs/examples/measure/`: each loss
is called on every sample of small worlds, and its exact expected gradient, by the code's own autograd,
is compared with those of named objectives. A measurement is not a theorem: the
[guide](../guides/measure-your-trainer.md) explains the method. `klsym tables measured` prints the same
rows for a paper, and `klsym tables measured-short` the defaults and the differences alone.

| word | meaning |
| --- | --- |
| `-X` | X is maximised |
| `E[R]` | the mean reward of sequences under the policy |
| `policy-gradient/T` | the mean of the reward over the number T of tokens; `/N`: over that of the group |
| `token-policy-gradient` | the ratio to the sampler corrects each token, and not its prefix |
| `log-likelihood` | E_mu[R log q] at fixed samples |
| `reverse-kl`, `forward-kl` | KL(q, p) and KL(p, q) of sequences: q is trained, p the reference |
| `next-token-..` | the sum over tokens of that quantity of the next token, at fixed sampled prefixes |
| `sampler-kl`, `inverse-length` | KL(mu, q) to the sampler mu; E[1/T] |
| `E_mu[..]` | a mean over the sampler mu, whose samples are held fixed; on-policy mu is q, held fixed |
| objective | is the expected gradient that of any function? On-policy, samples move with the policy |
"""
FINDINGS = """## Settings whose documentation names another objective

In {count} settings the gradient is not that of the objective that the documentation names. Each entry
says under which reading the documentation is correct: often the value of a KL estimate is right, or the
KL of each next token is meant. The cosine is to the gradient of that objective on the worlds that were
run; with a small coefficient of the KL, or where the multiple alone differs, it is near 1. "No
objective": the expected gradient is that of no function.
"""
VALUES = """## Comments on the value of an estimate

These comments name the divergence that a term estimates. They are correct for the value, and say nothing
about the gradient; the gradient is not that of this divergence.
"""
CASES = """## All cases

The defaults of a trainer come first. "Recipe": the function in its file. A dash: no sentence of the
documentation was found that names an objective. "Clip off": a clip range that never binds.
"""
SURVEY = """## Functions of the survey

{functions} loss functions of {releases} releases of {packages} packages. For {either} of them klsym has an
answer: it reads {read} and measures {measured}. Of the {both} that are read and measured, {agree} agree, and
of {apart} the two gradients were not compared. For {differ} more, the formula that was read has another
gradient than was measured on small worlds, and klsym answers with the measurement alone. {neither} have
neither; {unstored} of these were read after their inputs were named, and had another gradient than was
measured then, which is not stored.
"""


def write_page(recipes: Path, rows: Rows, functions: Rows) -> str:
    """Return the page.  recipes: the folder with the files that name their packages."""
    known, surveyed = [*rows], [*functions]
    findings = list_findings(known)
    otherwise = [one for one in findings if not one.is_on_value]
    lines = [
        LEAD.format(cases=len(known), packages=len({row["package"] for row in known})),
        FINDINGS.format(count=len(otherwise)),
        *(line for one in otherwise for line in _write_finding(one, recipes)),
        VALUES,
        *(line for one in findings if one.is_on_value for line in _write_finding(one, recipes)),
        CASES,
        *_write_cases(known),
        *_write_survey(surveyed),
    ]
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------------------- findings
def _write_finding(finding: Finding, recipes: Path) -> Iterator[str]:
    first, sentences = finding.first, finding.sentences
    file, _, argument = first["place"].partition(": ")
    said = "Comment" if finding.is_on_value else "Documentation"
    yield from (f"### {describe_release(first)}: {_show(first['settings'])}", "")
    yield f"- **{said}**, `{file}`, {_show(argument)}: {sentences.says}"
    lead = "Read as an objective" if finding.is_on_value else "As an objective"
    yield f"  {lead}: `{first['promised']}`."
    for row in finding.rows:
        yield f"- **Measured**, {_describe_result(row)}."
    yield f"- **Why.** {_show(first['why'])}"
    yield from (f"- **Where it holds.** {sentences.holds}", "")
    commands = [write_command(row) for row in finding.rows if row["kept"] is False]
    yield from ("```text", *list_installs(recipes, first["recipe"]), *commands, "```", "")


def _describe_result(row: Mapping[str, Any]) -> str:
    shown = _render(show_measured({**row, "nearest": {}}))
    objective = "; it is no objective" if row["kind"] == "named" and row["has_objective"] is False else ""
    said = "; as documented" if row["kept"] else f"; cosine {row['cosine']:.3f}" if row["cosine"] else ""
    return f"{describe_sampling(row)}: {shown}{objective}{said}"


def list_installs(recipes: Path, recipe: str) -> list[str]:
    """Return the lines of a recipe that install its packages."""
    text = ast.get_docstring(ast.parse((recipes / f"{recipe}.py").read_text(encoding="utf-8"))) or ""
    return [line.strip() for line in text.splitlines() if line.strip().startswith("pip install ")]


def write_command(row: Mapping[str, Any]) -> str:
    """Return what measures a row again.

    >>> row = {"recipe": "liger", "function": "grpo", "sampling": "on-policy", "group": 2, "promised": ""}
    >>> write_command(row)
    'klsym measure docs/examples/measure/liger.py:grpo --sampling on-policy --group 2'
    """
    parts = [f"docs/examples/measure/{row['recipe']}.py:{row['function']}"]
    parts += ["--sampling", row["sampling"]]
    parts += ["--group", str(row["group"])] if row["group"] > 1 else []
    parts += [f"--expect={row['promised']}"] if row["promised"] else []
    return f"klsym measure {shlex.join(parts)}"


# ---------------------------------------------------------------------------- tables
def _write_cases(rows: Rows) -> Iterator[str]:
    for release, of_release in groupby(rows, key=describe_release):
        yield from (f"### {release}", "")
        for recipe, some in groupby(of_release, key=lambda row: row["recipe"]):
            known = [*some]
            yield from (f"`{recipe}.py`", "")
            heads = ["recipe", *(_render(column.head) for column in COLUMNS)]
            lines = (
                [f"`{row['function']}`", *map(_render, shown.cells)]
                for row, shown in zip(known, build_rows(known), strict=True)
            )
            yield from (*_write_pipes(heads, lines), "")
            yield from _list_reasons(known)


def _list_reasons(rows: Rows) -> Iterator[str]:
    """Each reason once, with the functions that it is about."""
    functions: dict[str, dict[str, None]] = {}
    for row in rows:
        if row["why"]:
            functions.setdefault(row["why"], {})[f"`{row['function']}`"] = None
    for why, names in functions.items():
        yield f"- {', '.join(names)}: {_show(why)}"
    if functions:
        yield ""


def _write_survey(rows: list[Mapping[str, Any]]) -> Iterator[str]:
    counts = count_functions(rows)
    releases = {describe_release(row) for row in rows}
    packages = {row["package"] for row in rows}
    yield SURVEY.format(
        **counts, both=counts["agree"] + counts["apart"], releases=len(releases), packages=len(packages)
    )
    heads = [_render(join_cells([c.over, c.head], ": ") if c.over.pieces else c.head) for c in COUNTED]
    table = build_table(rows)
    yield from _write_pipes(heads, (list(map(_render, row.cells)) for row in table.rows))


def _write_pipes(heads: list[str], rows: Iterator[list[str]]) -> Iterator[str]:
    for cells in (heads, ["---"] * len(heads), *rows):
        yield f"| {' | '.join(cells)} |"


def _render(cell: Cell) -> str:
    return "".join(render_markdown_piece(kind, text) for kind, text in cell.pieces)


def _show(text: str) -> str:
    return _render(show_text(text))


if __name__ == "__main__":
    write_whole(Path(sys.argv[2]), write_page(Path(sys.argv[1]), read_trainers(), read_functions()))
