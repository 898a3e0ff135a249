"""Is something the same for two losses?  A proof that it is, a model where it is not, or open.  Untrusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from klsym.engine.proof.derivation import Proof, derive
from klsym.engine.proof.quantities import Quantity
from klsym.engine.proof.shown_counterexample import shown_witness
from klsym.engine.questions.variances import model_of
from klsym.errors import ProofError


@dataclass(frozen=True)
class Answer:
    """Is something the same for both losses?  None: open."""

    same: bool | None
    statement: str
    trust: str
    proof: Proof | None = None
    witness: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "same": self.same, "statement": self.statement, "trust": self.trust, "witness": self.witness,
        }  # fmt: skip


def decided(left: Quantity, right: Quantity, copied: bool) -> Answer:
    """A proof that both are equal for all q, p, mu, or a model in which they are not."""
    start = derive(left, on_policy=copied)
    try:
        proof = start.equals(right)
        return Answer(True, str(proof), "kernel", proof)
    except ProofError:
        pass
    try:
        proof = start.differs_from(right)
    except ProofError:
        return Answer(None, "", "open")
    shown = shown_witness if "tree" in proof.theorem.close["model"] else model_of
    return Answer(False, str(proof), "kernel", proof, shown(proof))
