"""Sides of statements by dynamic programming on autoregressive models, and these models as trees.

A tree enumerates the sequences that a programme never lists, and its branches share the logits of their
states: what is sampled on the one is judged by the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from klsym.kernel.ring import ExpPoly
from klsym.language.abbreviations import (
    Atom,
    Context,
    Divergence,
    Gradient,
    Mean,
    MeanGradient,
    Side,
    TokenDivergence,
)
from klsym.numeric.models import FiniteModel
from klsym.study.sequences.autoregressive import (
    Autoregressive,
    compute_sequence_kl,
    compute_token_gradient,
    random_autoregressive,
)
from klsym.study.sequences.sequence_fields import (
    compute_forward_kl,
    compute_length_gradients,
    compute_weighted_token_gradient,
)

K1 = ExpPoly.from_variable("k1[now]")
LOSSES = {K1**2 * ExpPoly.from_number(2).invert(): "k2", (-K1).exp() - 1 + K1: "k3"}
INVERSE_LENGTH = ExpPoly.from_variable("length").invert()


@dataclass(frozen=True, eq=False)
class Chains:
    """Three autoregressive models of one shape: q, p and the sampler mu.

    >>> chains = random_chains(0, Context(), vocabulary=2, max_length=4)
    >>> chains.tree.size, len(chains.directions) == chains.q.logits.size
    (15, True)
    """

    q: Autoregressive
    p: Autoregressive
    mu: Autoregressive

    @cached_property
    def _branches(self) -> tuple[Any, list[tuple[int, int]]]:
        """The shape of the tree, and the state and symbol of each branch; -1 where stop is forced."""
        branches: list[tuple[int, int]] = []

        def add_node(state: int, step: int) -> Any:
            if step == self.q.max_length:
                branches.append((-1, self.q.stop))
                return (None,)
            branches.extend((state, symbol) for symbol in range(self.q.stop + 1))
            return (*(add_node(after, step + 1) for after in self.q.successors[state].tolist()), None)

        return add_node(0, 1), branches

    @cached_property
    def tree(self) -> FiniteModel:
        """All sequences; u and v are two directions of the logits, in order."""
        shape, branches = self._branches
        rows = {
            name: [
                1.0 if state < 0 else float(model.probabilities[state, symbol]) for state, symbol in branches
            ]
            for name, model in (("q", self.q), ("p", self.p), ("mu", self.mu))
        }
        u, v = self.directions[:2].tolist()
        zero = {"R": [0] * len(branches)}
        return FiniteModel(rows["q"], rows["p"], u, rows["mu"], rewards=zero, v=v, shape=shape)

    @cached_property
    def directions(self) -> Any:
        """For each logit of q, the branches that it moves, shape (logits, branches)."""
        matrix = np.zeros((self.q.logits.size, len(self._branches[1])))
        for branch, (state, symbol) in enumerate(self._branches[1]):
            if state >= 0:
                matrix[state * (self.q.stop + 1) + symbol, branch] = 1
        return matrix


def random_chains(seed: int, context: Context, vocabulary: int = 3, max_length: int = 6) -> Chains:
    """Return three random models with memory 1; on-policy mu is q."""
    q, p, mu = (
        random_autoregressive(seed + i, vocabulary, memory=1, max_length=max_length, spread=0.6)
        for i in range(3)
    )
    return Chains(q, p, q if context.on_policy else mu)


def compute_side(side: Side, chains: Chains) -> Any:
    """Return a side by dynamic programming, along each logit of q; None where there is no programme for it.

    >>> from klsym.engine.proof.quantities import KL, grad
    >>> chains = random_chains(0, Context())
    >>> compute_side(grad(KL("q", "p")).side, chains).shape, compute_side(KL("mu", "p").side, chains)
    ((16,), None)

    Terms with parameters, products and other atoms have none.
    """
    total = np.zeros(chains.q.logits.size)
    for coefficient, atoms in side.terms:
        value = _compute_atom(atoms[0], chains) if len(atoms) == 1 and not coefficient.names() else None
        if value is None:
            return None
        total = total + float(coefficient.terms[((), ())]) * np.ravel(value)
    return total


def _compute_atom(atom: Atom, chains: Chains) -> Any:
    q, p = chains.q, chains.p
    match atom:
        case Divergence("KL", "q", "p") | TokenDivergence("q", "q", "p", False):
            return compute_sequence_kl(q, p)[0]
        case Divergence("KL", "p", "q") | TokenDivergence("p", "p", "q", False):
            return compute_forward_kl(q, p)[0]
        case TokenDivergence("q", "q", "p", True):
            return compute_token_gradient(q, p, "k2")
        case TokenDivergence("q", "p", "q", True):
            return compute_token_gradient(q, p, "k3")
        case TokenDivergence("mu", "q", "p", True):
            return compute_weighted_token_gradient(q, p, chains.mu)
        case MeanGradient("t", "q", loss) if loss in LOSSES:
            return compute_token_gradient(q, p, LOSSES[loss])
        case Gradient(of):
            return _compute_gradient(of, chains)
    return None


def _compute_gradient(of: Side, chains: Chains) -> Any:
    match of.terms:
        case ((coefficient, (atom,)),) if not coefficient.names():
            scale = float(coefficient.terms[((), ())])
        case _:
            return None
    match atom:
        case Divergence("KL", "q", "p") | TokenDivergence("q", "q", "p", False):
            return scale * compute_sequence_kl(chains.q, chains.p)[1]
        case Divergence("KL", "p", "q"):
            return scale * compute_forward_kl(chains.q, chains.p)[1]
        case Mean("", "q", a, ()) if a == INVERSE_LENGTH:
            return scale * compute_length_gradients(chains.q).inverse_gradient
        case Mean("", "q", a, ()) if a == ExpPoly.from_variable("length"):
            return scale * compute_length_gradients(chains.q).mean_gradient
    return None
