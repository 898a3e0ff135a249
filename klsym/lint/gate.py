"""The exit rule: which findings fail a gate.

A target with an expectation fails if it is not met.  A target without one fails if a finding of level error
is new.  Warnings and notes fail nothing, unless `select` names their code in full.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from klsym.lint.config import Config
from klsym.lint.findings import Finding

BASELINE = "klsym-baseline.json"
# What an expectation that is met says already: which divergence, or that there is no objective.
IMPLIED = "KL002", "KL007", "KL013"


def accept_expected(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings beside an expectation that is met: those it implies are gone, others warn."""
    kept = [finding for finding in findings if finding.code not in IMPLIED]
    return [replace(one, level="warning") if one.level == "error" else one for one in kept]


def is_failing(finding: Finding, config: Config) -> bool:
    """Does a new finding fail the gate?"""
    return finding.level == "error" or finding.code in config.select


def find_baseline(config: Config, named: str | None) -> Path | None:
    """Return the baseline that was named, or that the project has."""
    if named or config.baseline:
        return Path(named or config.baseline)
    return Path(BASELINE) if Path(BASELINE).exists() else None
