"""The numeric cross-check of a verdict: its theorems judged by the exact oracle."""

from __future__ import annotations

from dataclasses import replace

from klsym.engine.verdict import Verdict
from klsym.numeric.exact import check_theorem


def with_check(verdict: Verdict) -> Verdict:
    """The verdict with `check`: {"passed", "text"}; a loss outside the ring is judged in floats only."""
    if not verdict.proofs:
        text = "not checked: outside the decidable core there is no kernel theorem to check"
        return replace(verdict, check={"passed": None, "text": text})
    outcomes = [check_theorem(proof.theorem) for proof in verdict.proofs]
    passed = all(outcome.passed for outcome in outcomes)
    return replace(verdict, check={"passed": passed, "text": "; ".join(o.text for o in outcomes)})
