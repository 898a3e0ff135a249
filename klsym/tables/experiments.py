"""What the published experiments show when they are run again, beside what their papers say."""

from __future__ import annotations

from collections.abc import Iterator

from klsym.experiments.catalogue import EXPERIMENTS, result
from klsym.ledger.registry import load
from klsym.tables.writing.table import NONE, Column, Row, Table, words

CAPTION = words(
    "Published experiments, run again. What was found at the documented set-up, and what the paper says"
    " of it; numbers come from the run."
)
COLUMNS = (
    Column("finding", words("found"), 0.52),
    Column("paper", words("the paper says"), 0.27),
    Column("mark", words("agreement"), 0.14),
)


def table(only: tuple[str, ...] = ()) -> Table:
    """One row for each finding; the first call runs the experiments, about a minute.

    >>> table(("no experiment",)).rows
    ()

    only: experiments, their claims or the area `experiment`; no other experiment is run.  All if empty.
    """
    return Table("experiments", CAPTION, COLUMNS, tuple(_rows(only)))


def _rows(only: tuple[str, ...]) -> Iterator[Row]:
    claims = load()
    for name, experiment in EXPERIMENTS.items():
        claim = f"experiment.{name}"
        if only and not {name, claim, "experiment"} & set(only):
            continue
        behind = (claim,) if claim in claims else ()
        for finding in result(name).findings:
            said = words(finding.paper) if finding.paper else NONE
            cells = (words(finding.text, *behind), said, words(finding.mark))
            yield Row(cells, (name,), f"{name}: {experiment.title}")
