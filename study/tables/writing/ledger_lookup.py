"""What a table quotes from the ledger: theorems, found by what they speak of or by the claim they settle.

>>> from klsym.calculus import expected_gradient, k3, q
>>> quote = find_equation(expected_gradient(k3, under=q))
>>> quote.claims[0], quote.text
('gradient.k3-loss', 'E_q[grad k3] = grad KL(p||q)')
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from klsym.engine.proof.derivation import Proof
from klsym.engine.proof.quantities import Quantity
from klsym.language.abbreviations import E, ExpectedGradient, Side
from klsym.notation import formulas
from klsym.notation.printers import LATEX
from klsym.study.ledger.evidence import Evidence
from klsym.study.ledger.registry import load
from klsym.study.ledger.settle_claim import Settled, recall
from klsym.study.ledger.view import format_statement_latex
from klsym.study.tables.writing.table import Cell, math


@dataclass(frozen=True)
class Quote:
    """A theorem and the claims that state it; none where it was proved for the table alone."""

    proof: Proof
    claims: tuple[str, ...]

    @property
    def text(self) -> str:
        """The theorem as a terminal shows it."""
        return repr(self.proof)

    @property
    def left(self) -> Cell:
        """The left side."""
        return math(
            formulas.show_side(self.proof.theorem.statement.left, self.proof.labels, LATEX), *self.claims
        )

    @property
    def right(self) -> Cell:
        """The right side; of a refuted equation as what the left side is not."""
        labels = formulas.choose_right_labels(self.proof.labels)
        side_latex = formulas.show_side(self.proof.theorem.statement.right, labels, LATEX)
        return math(rf"\ne {side_latex}" if self.proof.kind == "refuted" else side_latex, *self.claims)

    @property
    def statement(self) -> Cell:
        """Both sides and what is between them."""
        return math(format_statement_latex(self.proof), *self.claims)


def quote(claim: str, number: int = 0) -> Quote:
    """One part of a claim, counted from 0, which must be a kernel proof.

    >>> quote("gradient.k1-loss").text
    'E_q[grad k1] = 0'

    Raises ValueError: that part is none.
    """
    part = recall(claim).parts[number]
    if not isinstance(part, Proof):
        raise ValueError(f"{claim}: part {number} is no proof")
    return Quote(part, (claim,))


def find_equation(left: Quantity) -> Quote | None:
    """The equation of the ledger whose left side this is, the one with the best known right side.

    >>> from klsym.calculus import expected_gradient, k2, mu
    >>> find_equation(expected_gradient(k2, under=mu) + expected_gradient(k2, under=mu)) is None
    True
    """
    plain_quotes = [
        plain_quote for plain_quote in find_by_left_side(left.side) if _is_plain(plain_quote.proof)
    ]
    if not plain_quotes:
        return None
    best = min(
        (plain_quote.proof for plain_quote in plain_quotes),
        key=lambda proof: _count_unnamed(proof.theorem.statement.right),
    )
    right = best.theorem.statement.right
    equal_claims = {
        claim
        for plain_quote in plain_quotes
        if plain_quote.proof.theorem.statement.right == right
        for claim in plain_quote.claims
    }
    return Quote(best, tuple(sorted(equal_claims, key=lambda claim: (len(list_parts(claim)), claim))))


def _is_plain(proof: Proof) -> bool:
    """A proved equation without side settings?"""
    statement, context = proof.theorem.statement, proof.theorem.statement.context
    free = not (context.on_policy or context.given or context.premises)
    return proof.kind == "proved" and statement.relation == "=" and free


def _count_unnamed(side: Side) -> int:
    """How many atoms of a side are means without a name of their own."""
    return sum(isinstance(atom, E | ExpectedGradient) for _, atoms in side.terms for atom in atoms)


def find_claim(proof: Proof) -> Quote:
    """The claim that states this theorem.

    >>> find_claim(quote("gradient.k1-loss").proof).claims
    ('gradient.k1-loss',)

    Raises ValueError: there is none.
    """
    for quoted in find_by_left_side(proof.theorem.statement.left):
        theorem = quoted.proof.theorem
        if (theorem.kind, theorem.statement) == (proof.theorem.kind, proof.theorem.statement):
            return quoted
    raise ValueError(f"no claim says {proof}")


def find_by_left_side(left: Side) -> tuple[Quote, ...]:
    """All theorems of the ledger with this left side, the refuted ones too.

    >>> [found.text for found in find_by_left_side(quote("value.k2-biased").proof.theorem.statement.left)]
    ['E_q[k2] != KL(q||p) in general']
    """
    return tuple(quoted for quoted in find_by_side(left) if quoted.proof.theorem.statement.left == left)


def find_by_side(value: Side) -> tuple[Quote, ...]:
    """All theorems of the ledger with this side, left or right."""
    return tuple(_index_by_side().get(value, ()))


@cache
def _index_by_side() -> dict[Side, list[Quote]]:
    quotes_by_side: dict[Side, list[Quote]] = {}
    for claim in list_settled():
        for proof in claim.proofs:
            statement = proof.theorem.statement
            for value in dict.fromkeys((statement.left, statement.right)):
                quotes_by_side.setdefault(value, []).append(Quote(proof, (claim.claim.id,)))
    return quotes_by_side


def list_parts(claim: str) -> tuple[Any, ...]:
    """What settles a claim, in its order: proofs and calculations.

    >>> [part.kind for part in list_parts("gradient.appendix-a-sign")]
    ['proved', 'proved', 'refuted']

    Raises UsageError: an unknown claim.
    """
    return recall(claim).parts


def find_evidence(claim: str, kind: str = "exact") -> Evidence:
    """The first part of a claim that is a calculation of this kind.

    >>> find_evidence("value.gaussian-crossover").trust
    'sympy'

    Raises ValueError: there is none.
    """
    for part in list_parts(claim):
        if isinstance(part, Evidence) and part.kind == kind:
            return part
    raise ValueError(f"{claim}: no part is a calculation, {kind}")


def list_settled() -> Iterator[Settled]:
    """Every claim but the experiments."""
    yield from (recall(name) for name, claim in load().items() if claim.verdict != "computed")
