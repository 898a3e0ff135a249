"""Sides of theorems on finite models: the curves of the figures are drawn from them, by the exact oracle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from klsym.engine.proof.derivation import Proof
from klsym.language.abbreviations import Side, Statement
from klsym.numeric.evaluation import evaluate
from klsym.numeric.models import FiniteModel


def left(proof: Proof) -> Statement:
    """The left side of a theorem alone, to be evaluated."""
    return Statement(proof.theorem.statement.left, Side(), proof.theorem.statement.context)


def right(proof: Proof) -> Statement:
    """The right side of a theorem alone, to be evaluated."""
    return Statement(proof.theorem.statement.right, Side(), proof.theorem.statement.context)


def along_logits(side: Statement, model: FiniteModel, n: int | None = None) -> Any:
    """A side on a model, along each logit, shape (outcomes,).

    >>> from klsym.study.ledger.settle_claim import recall
    >>> k2 = recall("gradient.k2-loss").proofs[0]
    >>> along_logits(left(k2), FiniteModel(q=[0.5, 0.5], p=[0.25, 0.75], u=[1, 0])).round(4)
    array([ 0.2747, -0.2747])

    side: see `left` and `right`.  n: the size of the batch, for sides that have one; m is then n - 1.
    """
    if n is not None:
        values = {"n": Fraction(n), "m": Fraction(n - 1)}
        model = replace(model, parameters={name: values[name] for name in side.context.parameters})
    return np.array([evaluate(side, replace(model, u=row))[0] for row in np.eye(model.size).tolist()])


def tilted(p: Sequence[float], t: float) -> FiniteModel:
    """q = (p_0 e^t, p_1)/Z, a path that starts at p; its direction is the first logit.

    >>> [round(value, 12) for value in tilted([0.25, 0.75], 0.0).q]
    [0.25, 0.75]
    """
    return FiniteModel.from_logits([np.log(p[0]) + t, np.log(p[1])], p=p, u=[1, 0])


def along_odds(side: Statement, p: Sequence[float], ts: Any) -> Any:
    """A side on two outcomes, along the path `tilted`, shape (ts,); a gradient is that in t.

    >>> from klsym.study.ledger.settle_claim import recall
    >>> k1 = recall("gradient.k1-loss").proofs[0]
    >>> along_odds(left(k1), [0.25, 0.75], [-1.0, 1.0]).round(12) + 0.0
    array([0., 0.])
    """
    return np.array([evaluate(side, tilted(p, float(t)))[0] for t in ts])
