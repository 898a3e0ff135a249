"""What a table quotes from the ledger: theorems, found by what they speak of or by the claim they settle.

>>> from klsym.calculus import expected_gradient, k3, q
>>> quote = about(expected_gradient(k3, under=q))
>>> quote.claims[0], quote.text
('gradient.k3-loss', 'E_q[grad k3] = grad KL(p||q)')
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from klsym.engine.derivation import Proof
from klsym.engine.quantities import Quantity
from klsym.evidence import Evidence
from klsym.ledger import Settled, load, recall
from klsym.render import formulas
from klsym.render.claims import statement_latex
from klsym.render.spelling import LATEX
from klsym.statements import E, ExpectedGradient, Side
from klsym.tables.table import Cell, math

settled = cache(recall)


@dataclass(frozen=True)
class Quote:
    """A theorem and the claims that state it; none where it was proved for the table alone."""

    proof: Proof
    claims: tuple[str, ...]

    @property
    def text(self) -> str:
        return repr(self.proof)

    @property
    def left(self) -> Cell:
        return math(formulas.side(self.proof.theorem.statement.left, self.proof.labels, LATEX), *self.claims)

    @property
    def right(self) -> Cell:
        """The right side; of a refuted equation as what the left side is not."""
        labels = formulas.on_the_right(self.proof.labels)
        shown = formulas.side(self.proof.theorem.statement.right, labels, LATEX)
        return math(rf"\ne {shown}" if self.proof.theorem.kind == "refuted" else shown, *self.claims)

    @property
    def statement(self) -> Cell:
        return math(statement_latex(self.proof), *self.claims)


def quote(claim: str, number: int = 0) -> Quote:
    """One part of a claim, counted from 0, which must be a kernel proof.

    Raises ValueError: that part is none.
    """
    part = settled(claim).parts[number]
    if not isinstance(part, Proof):
        raise ValueError(f"{claim}: part {number} is no proof")
    return Quote(part, (claim,))


def about(left: Quantity) -> Quote | None:
    """The equation of the ledger whose left side this is, the one with the best known right side."""
    found = _index().get(left.side, [])
    if not found:
        return None
    best = min(found, key=lambda item: _unnamed(item[1].theorem.statement.right))
    right = best[1].theorem.statement.right
    same = {claim for claim, proof in found if proof.theorem.statement.right == right}
    return Quote(best[1], tuple(sorted(same, key=lambda claim: (len(parts(claim)), claim))))


def parts(claim: str) -> tuple[Any, ...]:
    return settled(claim).parts


def evidence(claim: str, kind: str = "exact") -> Evidence:
    """The first part of a claim that is a calculation of this kind."""
    return next(part for part in parts(claim) if isinstance(part, Evidence) and part.kind == kind)


def all_settled() -> Iterator[Settled]:
    """Every claim but the experiments."""
    yield from (settled(name) for name, claim in load().items() if claim.verdict != "computed")


@cache
def _index() -> dict[Side, list[tuple[str, Proof]]]:
    """Proved equations without side settings, by their left sides."""
    found: dict[Side, list[tuple[str, Proof]]] = {}
    for claim in all_settled():
        for proof in claim.proofs:
            statement, context = proof.theorem.statement, proof.theorem.statement.context
            plain = not (context.on_policy or context.given or context.premises)
            if proof.theorem.kind == "proved" and statement.relation == "=" and plain:
                found.setdefault(statement.left, []).append((claim.claim.id, proof))
    return found


def _unnamed(side: Side) -> int:
    """How many atoms of a side are means without a name of their own."""
    return sum(isinstance(atom, E | ExpectedGradient) for _, atoms in side.terms for atom in atoms)
