"""The gradient of a printed objective on a finite model, from its formula as it is printed.

    E_q[e]   sum_y q(y) e(y), with the slope sum_y q(y) (e(y) u.s(y) + de(y))
    E_mu[e]  sum_y mu(y) e(y), with the slope sum_y mu(y) de(y)

A formula is read again from its text, so that a wrong print is noticed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any

from klsym.language.expressions import log_mu, log_p, log_q
from klsym.notation import tree
from klsym.notation.printers import TEXT
from klsym.notation.tree import Formula
from klsym.render.objective import list_objective_terms
from klsym.worlds.losses import LossWorld
from klsym.worlds.numbers import Dual
from klsym.worlds.world import Place

if TYPE_CHECKING:
    from klsym.engine.verdicts.verdict import Verdict

LOG = {"q": log_q, "p": log_p, "mu": log_mu}


OF_NEXT_TOKENS = {"KL(q_t||p_t)": "full(k1)", "KL(p_t||q_t)": "full(-r*k1)"}


class NotEvaluated(Exception):
    """A part of an objective that has no value here, such as the standard deviation of a batch."""


def differentiate_objective(verdict: Verdict, read: Callable[[str], Any], world: LossWorld) -> Any | None:
    """Return the derivative along u of the objective of a verdict; None where none is known or evaluated.

    read: an expression from its text.
    """
    terms = list_objective_terms(verdict, TEXT)
    try:
        return _Reader(read, world).evaluate(tree.add_terms(*terms)).slope if terms else None
    except NotEvaluated:
        return None


def expand_token_kl(text: str) -> str:
    """Return the KL of a next token as a sum over the vocabulary."""
    return reduce(lambda found, pair: found.replace(*pair), OF_NEXT_TOKENS.items(), text)


class _Reader:
    def __init__(self, read: Callable[[str], Any], world: LossWorld) -> None:
        self.read, self.world = read, world

    def evaluate(self, formula: Formula) -> Dual:
        """Return the value of a formula and its slope."""
        match formula:
            case tree.Sum(terms):
                return self.world.duals.add(map(self.evaluate, terms))
            case tree.Minus(inner):
                return -self.evaluate(inner)
            case tree.Product(factors):
                return self.world.duals.multiply(map(self.evaluate, factors))
            case tree.Divergence("KL", tree.Name(first), tree.Name(second)):
                return self.compute_mean(first, LOG[first] - LOG[second])
            case tree.Mean(measure, tree.Over("t", inner)):
                return self.compute_mean(measure, self.read(expand_token_kl(TEXT(inner))), steps=True)
            case tree.Mean(measure, tree.Over() | tree.Words()):
                raise NotEvaluated(measure)
            case tree.Mean(measure, inner):
                return self.compute_mean(measure, self.read(TEXT(inner)))
            case tree.Covariance(measure, first, second):
                return self.compute_covariance(measure, *(self.read(TEXT(part)) for part in (first, second)))
            case tree.Words():
                raise NotEvaluated(formula.text)
        value = self.world.evaluate_at(self.read(TEXT(formula)), Place((0,))).value
        return Dual(value, self.world.system.zero)

    def compute_mean(self, measure: str, e: Any, steps: bool = False) -> Dual:
        """Return E_m[e], or E_m[sum_t e] with steps."""
        terms = []
        for batch, mass in self.world.enumerate_batches(1, measure):
            whole = Place(batch)
            count = len(self.world.paths[batch[0]])
            places = [Place(batch, 0, t) for t in range(count)] if steps else [whole]
            total = self.world.duals.add(self.world.evaluate_at(e, place) for place in places)
            score_term = total.value * self.world.compute_score(whole) if measure == "q" else 0
            terms.append(Dual(mass * total.value, mass * (total.slope + score_term)))
        return self.world.duals.add(terms)

    def compute_covariance(self, measure: str, first: Any, second: Any) -> Dual:
        """Return E_m[a b] - E_m[a] E_m[b]."""
        means = [self.compute_mean(measure, e) for e in (first, second)]
        of_product = self.compute_mean(measure, first * second)
        return self.world.duals.add([of_product, -self.world.duals.multiply(means)])
