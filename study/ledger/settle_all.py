"""Settling the whole ledger: proofs replayed, each checked on exact finite models, certificates written."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from klsym.engine.proof.derivation import Proof
from klsym.files import write_whole
from klsym.render.listing import align_columns
from klsym.study.ledger.evidence import Evidence
from klsym.study.ledger.progress import Wrapper, show_nothing
from klsym.study.ledger.registry import Claim
from klsym.study.ledger.settle_claim import Settled, settle


@dataclass(frozen=True)
class Judged:
    """A settled claim, and what the exact oracle says of it."""

    settled: Settled
    judged: tuple[tuple[bool, str], ...]  # of each part: does the oracle agree, and what it measured

    @property
    def oracle(self) -> tuple[str, ...]:
        """One line for each part that disagrees."""
        return tuple(
            f"part {number}: the exact oracle disagrees: {text}"
            for number, (agrees, text) in enumerate(self.judged, start=1)
            if not agrees
        )

    @property
    def checked(self) -> int:
        return len(self.judged)

    @property
    def error(self) -> str:
        return self.settled.error or "; ".join(self.oracle)


def settle_all(claims: list[Claim], progress: Wrapper = show_nothing) -> list[Judged]:
    """Settle each claim and let the exact oracle judge each of its theorems."""
    return visit_claims(claims, lambda claim: check_settled(settle(claim)), progress)


def visit_claims(
    claims: list[Claim], work: Callable[[Claim], Any], progress: Wrapper = show_nothing
) -> list[Any]:
    """What comes of each claim, in their order; experiments last, for other processes may be running them."""
    last = sorted(claims, key=lambda claim: claim.verdict == "computed")
    finished_claims = {id(claim): work(claim) for claim in progress(last, lambda claim: claim.id)}
    return [finished_claims[id(claim)] for claim in claims]


def check_settled(settled: Settled) -> Judged:
    return Judged(settled, tuple(judge(part, settled.claim) for part in settled.parts))


def judge(part: Proof | Evidence, claim: Claim) -> tuple[bool, str]:
    """Does the independent check bear a part out?  Experiments are their own measurement."""
    if isinstance(part, Evidence):
        return _ask(part) if part.oracle else (part.holds, "computed")
    from klsym.numeric.exact import check_theorem

    outcome = check_theorem(part.theorem, functions=claim.instances or None)
    return outcome.passed, outcome.text


def _ask(part: Evidence) -> tuple[bool, str]:
    try:
        passed, text = part.oracle() if part.oracle else (True, "")
        return bool(passed), text
    except Exception as error:  # one bad check must not stop the others
        return False, f"its check failed: {type(error).__name__}: {error}"


def count_results(results: list[Judged]) -> str:
    """Counts by area."""
    rows: list[tuple[str, ...]] = [("area", "claims", "settled", "trust kernel", "parts", "checks agree")]
    areas = list(dict.fromkeys(result.settled.claim.area for result in results))
    for area in [*areas, "all"]:
        chosen = [r for r in results if area in (r.settled.claim.area, "all")]
        settled = [r for r in chosen if not r.settled.error]
        kernel = [r for r in settled if r.settled.trust == "kernel"]
        parts = sum(r.checked for r in chosen)
        agrees = parts - sum(len(r.oracle) for r in chosen)
        rows.append((area, *map(str, (len(chosen), len(settled), len(kernel), parts, agrees))))
    lines = list(align_columns(rows, 1))
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:-1], "-" * len(lines[0]), lines[-1]])


def write_certificates(results: list[Judged], folder: Path) -> int:
    """One file a claim, each whole or not at all; how many.

    Raises UsageError: a file that cannot be written.
    """
    written = 0
    for result in results:
        if result.settled.error or not result.settled.proofs:
            continue
        text = json.dumps(result.settled.certificate(), indent=1, sort_keys=True) + "\n"
        write_whole(folder / f"{result.settled.claim.id}.json", text)
        written += 1
    return written
