"""What a claim rests on: rules with their reasons, closings, hypotheses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klsym.render.rules import CLOSINGS, RULES
from klsym.study.ledger.evidence import Evidence

if TYPE_CHECKING:
    from klsym.study.ledger.settle_claim import Settled


def show_axioms(settled: Settled) -> str:
    """For a terminal."""
    claim = settled.claim
    lines = [f"{claim.id}  ({claim.verdict}; trust {settled.trust}; {claim.source})"]
    for part in settled.parts:
        lines.append(f"  {part!r}")
        if isinstance(part, Evidence) and part.source_says:
            lines.append(f"      the source says: {part.source_says}")
    if claim.explanation:
        lines += ["", claim.explanation]
    lines += _list_calculations(settled)
    used = dict.fromkeys(name for theorem in settled.theorems for name in theorem.rules[:-1])
    closed = dict.fromkeys(theorem.close["by"] for theorem in settled.theorems)
    lines += ["", "Rules"] if used else []
    for name in used:
        if name in RULES:
            rule = RULES[name]
            lines += [f"  {name}: {rule.text}", f"      {rule.why} [{rule.cite}]"]
    lines += ["", "Closed by"] if closed else []
    lines += [f"  {name}: {CLOSINGS[name]}" for name in closed]
    lines += ["", "Hypotheses", *(f"  - {item}" for item in settled.hypotheses or ["none"])]
    return "\n".join(lines)


def _list_calculations(settled: Settled) -> list[str]:
    """What stands outside the kernel: the lines of each calculation."""
    lines = []
    for part in settled.parts:
        if isinstance(part, Evidence):
            lines += [f"  {reason}: {latex}" for reason, latex in part.steps]
    return ["", "Beyond the kernel", *lines] if lines else []
