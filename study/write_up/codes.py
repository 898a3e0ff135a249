"""docs/codes.md: the page of each diagnostic code, and where released code triggers it.

    python -m klsym.study.write_up.codes docs/codes.md

The formulas are those that `make survey` has read in released packages; each is diagnosed here anew, as the
loss or the reward that the package makes of it, with samples of q and of mu.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from klsym.api import explain
from klsym.diagnostics.codes import Code, load_codes
from klsym.errors import KlsymError
from klsym.files import write_whole
from klsym.study.tables.survey import list_parameters, stored

LEAD = """# Diagnostic codes

`klsym explain` names what is wrong with a loss by a code; a code never changes its meaning. An error means
that the loss has another objective than it seems to have; a warning is about numerics, noise or an
approximation. `klsym rule KL004` prints one of these pages. Each example triggers its code and each fix does
not: the tests run both.
The releases are those of `klsym tables survey`: "loss on" means that the formula of the release, used as a
loss with samples from q, triggers the code, "off" with samples from mu, "per token" as the loss of each
token with the release's own averaging. Which of these a training run uses depends on its configuration.
"""
USES = {"loss": ("loss",), "reward": ("reward",), "loss and reward": ("loss", "reward")}
SAMPLINGS = {"on-policy": "on", "off-policy": "off"}
AGGREGATES = {"averaged over all tokens of the batch": "batch", "averaged over the tokens of each": "mean"}
Uses = dict[tuple[str, str], list[str]]  # formula and release -> how it is used
OF_TOKENS = ("KL006", "KL007", "KL012")  # codes of sequences alone


def write_page() -> str:
    """All of docs/codes.md."""
    seen = collect_uses()
    rows = ["| code | level | name | says |", "| --- | --- | --- | --- |"]
    rows += [
        f"| [{item.code}](#{item.code.lower()}) | {item.level} | {item.name} | {_escape_cell(item.says)} |"
        for item in load_codes()
    ]
    return "\n".join(
        [
            LEAD,
            *rows,
            "",
            *(line for item in load_codes() for line in _write_section(item, seen)),
        ]
    )


def _write_section(one: Code, seen: dict[str, Uses]) -> Iterator[str]:
    yield from (f'<a id="{one.code.lower()}"></a>', "", f"## {one.code} {one.name}", "")
    yield from (f"**What it means.** {one.means}", "", f"**Why it matters.** {one.matters}", "")
    yield from ("```console", f"$ klsym explain {one.example.words}", "```", "", "Write instead:", "")
    yield from ("```console", f"$ klsym explain {one.write.words}", "```", "")
    if one.theorem:
        yield from (f"**Theorem.** `{one.theorem}` of the ledger: `klsym claims {one.theorem}`.", "")
    yield from (*_write_uses(seen.get(one.code, {})), "")


def _write_uses(uses_of_formulas: Uses) -> Iterator[str]:
    """Yield a table of formulas, each with the releases that have it; of one use, one row."""
    if not uses_of_formulas:
        yield "Not among the surveyed releases."
        return
    yield from ("**Seen in released code.**", "", "| formula | used as | releases |", "| --- | --- | --- |")
    rows: dict[tuple[str, str], list[str]] = {}
    for (formula, release), uses in uses_of_formulas.items():
        rows.setdefault((formula, ", ".join(dict.fromkeys(uses))), []).append(release)
    for (formula, used), releases in rows.items():
        yield f"| `{_escape_cell(formula)}` | {used} | {', '.join(releases)} |"


def collect_uses() -> dict[str, Uses]:
    """Code -> formula and release -> how it is used there."""
    uses_by_code: dict[str, Uses] = {}
    for row in stored():
        if "expression" not in row:
            continue
        for use in USES[row["place"]]:
            for sampling, short in SAMPLINGS.items():
                for name, how in _list_codes(row, use, sampling):
                    place = (row["expression"], f"{row['package']} {row['version']}")
                    uses_by_code.setdefault(name, {}).setdefault(place, []).append(f"{use} {short}{how}")
    return uses_by_code


def _list_codes(row: dict[str, Any], use: str, sampling: str) -> Iterator[tuple[str, str]]:
    """The codes of one formula at one sample, and those of sequences at each token."""
    starts = [name for start, name in AGGREGATES.items() if row["aggregation"].startswith(start)]
    tokens = {"level": "token", "aggregate": starts[0] if starts else "sum"}
    for options, how in (({}, ""), (tokens, " per token")):
        options = {**options, "sampling": sampling, "use": use}
        try:
            verdict = explain(row["expression"], parameters=list_parameters(row), **options)  # type: ignore[arg-type]
        except KlsymError:
            continue
        for diagnostic in verdict.diagnostics:
            if not how or diagnostic.code.code in OF_TOKENS:
                yield diagnostic.code.code, how


def _escape_cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    write_whole(Path(sys.argv[1]), write_page())
