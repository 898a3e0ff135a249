"""Is something the same for two losses?  A proof that it is, a model where it is not, or open.  Untrusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from klsym.engine.proof.derivation import Proof, derive
from klsym.engine.proof.quantities import Quantity
from klsym.engine.proof.shown_counterexample import describe_counterexample
from klsym.engine.questions.variances import describe_outcome_model
from klsym.errors import ProofError
from klsym.kernel.statements import Context


@dataclass(frozen=True)
class Answer:
    """Is something the same for both losses?  None: open."""

    same: bool | None = None
    trust: str = "open"
    proof: Proof | None = None
    witness: dict[str, Any] | None = None


OPEN_ANSWER = Answer()


def decided(left: Quantity, right: Quantity, copied: bool, defined: Context) -> Answer:
    """A proof that both are equal for all q, p, mu, or a model in which they are not."""
    start = derive(left, on_policy=copied, defined=defined)
    try:
        return Answer(True, "kernel", start.equals(right))
    except ProofError:
        pass
    try:
        proof = start.differs_from(right)
    except ProofError:
        return OPEN_ANSWER
    shown = describe_counterexample if "tree" in proof.theorem.close["model"] else describe_outcome_model
    return Answer(False, "kernel", proof, shown(proof))
