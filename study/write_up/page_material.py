"""What a report is made from: computed by others, handed over whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from klsym.study.ledger.experiment_result import Finding

if TYPE_CHECKING:
    from klsym.study.ledger.settle_all import Judged
    from klsym.study.sampling.verify import Report
    from klsym.study.tables.writing.table import Table


@dataclass(frozen=True)
class Figure:
    """An experiment, drawn.

    image: the bytes of a PNG or SVG.  kind: its suffix.  header, rows: the numbers behind it.
    """

    name: str
    title: str
    image: bytes
    kind: str = ".png"
    setup: str = ""
    findings: Sequence[Finding] = ()
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


@dataclass(frozen=True)
class Material:
    """What a report is made from.

    results: the settled claims.  cross_check: the run of sampling.verify on them, if there was one.
    sources: tag -> full reference.  certificates: claim id -> link to its file.
    """

    results: Sequence[Judged]
    cross_check: Report | None = None
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    certificates: Mapping[str, str] = field(default_factory=dict)
