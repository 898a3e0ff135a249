"""What the published experiments show when they are run again, beside what their papers say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from klsym.experiments.catalogue import EXPERIMENTS, result
from klsym.study.ledger.experiment_result import Finding, count_outcomes, describe_outcomes
from klsym.study.ledger.registry import load
from klsym.study.tables.writing.table import NONE, Column, Row, Table, words

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
    findings_by_name = {name: result(name).findings for name in _select_experiments(only)}
    rows = [row for name, findings in findings_by_name.items() for row in _list_rows(name, findings)]
    counts = count_outcomes(finding.outcome for findings in findings_by_name.values() for finding in findings)
    counted = words(
        f" Of {sum(counts.values())} findings that a source speaks of: {describe_outcomes(counts)}."
    )
    return Table("experiments", CAPTION + counted if any(counts.values()) else CAPTION, COLUMNS, tuple(rows))


def _select_experiments(only: tuple[str, ...]) -> list[str]:
    """The experiments asked for by their names, their claims or the area; all if nothing is asked for."""
    asked = set(only)
    return [name for name in EXPERIMENTS if not asked or asked & {name, f"experiment.{name}", "experiment"}]


def _list_rows(name: str, findings: Iterable[Finding]) -> Iterator[Row]:
    claim, title = f"experiment.{name}", f"{name}: {EXPERIMENTS[name].title}"
    behind = (claim,) if claim in load() else ()
    for finding in findings:
        said = words(finding.paper) if finding.paper else NONE
        yield Row((words(finding.text, *behind), said, words(finding.mark)), (name,), title)
