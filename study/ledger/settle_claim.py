"""Settle one claim: build its proofs, replay them, and compare them with what the ledger states.

>>> settled = settle(load()["gradient.k3-loss"])
>>> settled.status, settled.trust, settled.statement
('settled', 'kernel', 'E_q[grad k3] = grad KL(p||q)')
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from klsym.engine.proof.derivation import Proof
from klsym.engine.proof.lemmas import collect_cited_parts
from klsym.errors import ProofError, UsageError
from klsym.kernel import FORMAT, digest
from klsym.language.unfolding import Theorem
from klsym.study.ledger.evidence import Evidence
from klsym.study.ledger.registry import TRUSTS, Claim, load
from klsym.study.ledger.view import SettledView
from klsym.study.rocq.accepted import Mark, mark

ESTABLISHED = ("proved", "unique", "independent")


@dataclass(frozen=True, repr=False)
class Settled(SettledView):
    """What became of a claim: what settles it, part by part, or the reason why it failed."""

    claim: Claim
    parts: tuple[Proof | Evidence, ...] = ()
    error: str = ""

    @property
    def proofs(self) -> tuple[Proof, ...]:
        """The parts that the kernel replays."""
        return tuple(part for part in self.parts if isinstance(part, Proof))

    @property
    def theorems(self) -> tuple[Theorem, ...]:
        return tuple(proof.theorem for proof in self.proofs)

    @property
    def status(self) -> str:
        return "failed" if self.error else "settled"

    @property
    def trust(self) -> str:
        """The weakest trust among the parts."""
        return max((part.trust for part in self.parts), key=TRUSTS.index, default="numeric")

    @cached_property
    def verified(self) -> Mark | None:
        """How far the checker that Rocq has proved sound accepts the claim; None without a certificate."""
        if self.error or not self.proofs:
            return None
        places = [number for number, part in enumerate(self.parts, start=1) if isinstance(part, Proof)]
        return mark(self.claim.id, self.certificate()).mark_parts(places, len(self.parts))

    @property
    def statement(self) -> str:
        """What the parts establish, in text; of a refuted claim the equation that is false."""
        if self.claim.verdict == "refuted":
            return "; ".join(_as_printed(part) for part in self.parts)
        corrected = self.claim.verdict == "corrected"
        return "; ".join(repr(part) for part in self.parts if not (corrected and part.kind == "refuted"))

    @property
    def printed(self) -> str | None:
        """The false form that stands in the source, for a corrected claim."""
        if self.claim.verdict != "corrected":
            return None
        return "; ".join(_as_printed(part) for part in self.parts if part.kind == "refuted")

    @property
    def hypotheses(self) -> list[str]:
        lines = (line for part in self.parts for line in part.hypotheses)
        return list(dict.fromkeys((*self.claim.reading, *lines)))

    def certificate(self) -> dict[str, Any]:
        """The certificate that `klsym check` replays: the parts that are kernel proofs."""
        parts = [proof.part for proof in self.proofs]
        return {
            "format": FORMAT,
            "cites": collect_cited_parts(parts),
            "parts": parts,
            "digest": digest(parts),
        }

    def entry(self) -> dict[str, Any]:
        """The answer, and the certificate if there is a proof."""
        return {"answer": self.to_json(), "certificate": self.certificate() if self.proofs else None}

    def to_json(self) -> dict[str, Any]:
        """One entry of `klsym claims --json`."""
        return {
            "id": self.claim.id,
            "verdict": self.claim.verdict,
            "status": self.status,
            "trust": self.trust,
            "source": self.claim.source,
            "statement": self.statement,
            "hypotheses": self.hypotheses,
            "printed": self.printed,
            "verified": self.verified.to_json() if self.verified else None,
        }


@cache
def recall(id: str) -> Settled:
    """The settled claim of this id, to be quoted; settled once in a process.

    >>> recall("gradient.k1-loss").statement
    'E_q[grad k1] = 0'

    Raises UsageError: an unknown id.  ProofError: a claim that does not hold as the ledger states it.
    """
    entry = load().get(id)
    if entry is None:
        raise UsageError(f"unknown claim {id[:60]!r}: `klsym claims` lists them")
    settled = settle(entry)
    if settled.error:
        raise ProofError(f"claim {id}: {settled.error}")
    return settled


def settle(entry: Claim) -> Settled:
    """Build the proofs of a claim and replay them; a failure is recorded, not raised."""
    try:
        built = entry.build()
    except Exception as error:  # one bad script must not stop the others
        return Settled(entry, (), f"{type(error).__name__}: {error}")
    parts = built if isinstance(built, tuple) else (built,)
    if not all(isinstance(part, Proof | Evidence) for part in parts):
        names = ", ".join(type(part).__name__ for part in parts)
        return Settled(entry, (), f"the derivation returns {names}: end it with equals(...) or its like")
    missed = [part for part in parts if isinstance(part, Evidence) and not part.holds]
    if missed:
        return Settled(entry, parts, f"not what was computed: {missed[0]}")
    return Settled(entry, parts, _explain_mismatch(entry.verdict, [part.kind for part in parts]))


def _as_printed(part: Proof | Evidence) -> str:
    """The statement itself, also where it is false."""
    return part.text if isinstance(part, Evidence) else part.stated


def _explain_mismatch(verdict: str, kinds: list[str]) -> str:
    """Why parts of these kinds do not give the verdict; empty when they do."""
    established = any(kind in ESTABLISHED for kind in kinds)
    refuted, exact = "refuted" in kinds, "exact" in kinds
    wanted = {
        "proved": established,
        "refuted": refuted and not established,
        "corrected": refuted and (established or exact),
        "exact": exact and not refuted,
        "computed": bool(kinds) and set(kinds) == {"computed"},
    }
    return (
        "" if wanted[verdict] else f"the ledger says {verdict}, the proofs are {', '.join(kinds) or 'none'}"
    )
