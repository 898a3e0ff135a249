"""The gradient of a printed objective on a finite model, from its formula as it is printed.

    E_q[e]   sum_y q(y) e(y), with the slope sum_y q(y) (e(y) u.s(y) + de(y))
    E_mu[e]  sum_y mu(y) e(y), with the slope sum_y mu(y) de(y)

A formula is read again from its text, so that a wrong print is noticed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from klsym.language.expressions import log_mu, log_p, log_q
from klsym.notation import tree
from klsym.notation.printers import TEXT
from klsym.notation.tree import Formula
from klsym.numeric.checks.world import AT_REST, Dual, Place, World, added
from klsym.render.objective import list_objective_terms

LOG = {"q": log_q, "p": log_p, "mu": log_mu}


OF_NEXT_TOKENS = {"KL(q_t||p_t)": "full(k1)", "KL(p_t||q_t)": "full(-r*k1)"}


class NotEvaluated(Exception):
    """A part of an objective that has no value here, such as the standard deviation of a batch."""


def objective_slope(verdict: Any, read: Callable[[str], Any], world: World) -> Any | None:
    """The derivative along u of the objective of a verdict; None where none is known or evaluated.

    read: an expression from its text.
    """
    terms = list_objective_terms(verdict, TEXT)
    try:
        return _Reader(read, world).of(tree.add_terms(*terms))[1] if terms else None
    except NotEvaluated:
        return None


def in_sums(text: str) -> str:
    """The KL of a next token as a sum over the vocabulary."""
    return reduce(lambda found, pair: found.replace(*pair), OF_NEXT_TOKENS.items(), text)


class _Reader:
    def __init__(self, read: Callable[[str], Any], world: World) -> None:
        self.read, self.world = read, world

    def of(self, formula: Formula) -> Dual:
        """The value of a formula and its slope."""
        match formula:
            case tree.Sum(terms):
                return added(map(self.of, terms))
            case tree.Minus(inner):
                value, slope = self.of(inner)
                return -value, -slope
            case tree.Product(factors):
                return reduce(_times, map(self.of, factors))
            case tree.Divergence("KL", tree.Name(first), tree.Name(second)):
                return self.mean(first, LOG[first] - LOG[second])
            case tree.Mean(measure, tree.Over("t", inner)):
                return self.mean(measure, self.read(in_sums(TEXT(inner))), steps=True)
            case tree.Mean(measure, tree.Over() | tree.Words()):
                raise NotEvaluated(measure)
            case tree.Mean(measure, inner):
                return self.mean(measure, self.read(TEXT(inner)))
            case tree.Covariance(measure, first, second):
                return self.covariance(measure, *(self.read(TEXT(of)) for of in (first, second)))
            case tree.Words():
                raise NotEvaluated(formula.text)
        return self.world.dual(self.read(TEXT(formula)), Place((0,)))[0], AT_REST

    def mean(self, measure: str, e: Any, steps: bool = False) -> Dual:
        """E_m[e], or E_m[sum_t e] with steps."""
        found = []
        for batch, mass in self.world.batches(1, measure):
            whole = Place(batch)
            count = len(self.world.paths[batch[0]])
            places = [Place(batch, 0, t) for t in range(count)] if steps else [whole]
            value, slope = added(self.world.dual(e, place) for place in places)
            moved = value * self.world.score(whole) if measure == "q" else 0
            found.append((mass * value, mass * (slope + moved)))
        return added(found)

    def covariance(self, measure: str, first: Any, second: Any) -> Dual:
        """E_m[a b] - E_m[a] E_m[b]."""
        value, slope = _times(self.mean(measure, first), self.mean(measure, second))
        return added([self.mean(measure, first * second), (-value, -slope)])


def _times(a: Dual, b: Dual) -> Dual:
    return a[0] * b[0], a[0] * b[1] + a[1] * b[0]
