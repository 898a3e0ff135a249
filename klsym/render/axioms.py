"""What a claim rests on: rules with their reasons, closings, hypotheses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klsym.kernel import RULES
from klsym.kernel.closing import CLOSINGS
from klsym.render.text import show_theorem

if TYPE_CHECKING:
    from klsym.ledger import Settled


def show_axioms(settled: Settled) -> str:
    """For a terminal."""
    claim = settled.claim
    lines = [f"{claim.id}  ({claim.verdict}; trust {settled.trust}; {claim.source})"]
    lines += [f"  {show_theorem(proof.theorem, proof.labels)}" for proof in settled.proofs]
    if claim.explanation:
        lines += ["", claim.explanation]
    used = dict.fromkeys(name for theorem in settled.theorems for name in theorem.rules)
    lines += ["", "Rules"]
    for name in used:
        if name in RULES:
            rule = RULES[name]
            lines += [f"  {name}: {rule.text}", f"      {rule.why} [{rule.cite}]"]
    lines += ["", "Closed by"]
    lines += [f"  {name}: {CLOSINGS[name].why}" for name in used if name in CLOSINGS]
    lines += ["", "Hypotheses", *(f"  - {item}" for item in settled.hypotheses or ["none"])]
    return "\n".join(lines)
