"""Say whether an update minimises or maximises an objective, from its terms with their signs.

The headline and the line of each term take their verb and their signs from here.

>>> from klsym.engine.explain import explain
>>> [describe_objective(explain(text, use="reward"), True) for text in ("A - k1", "-A", "-k1")]
['maximises E_q[A] - KL(q||p)', 'minimises E_q[A]', 'minimises KL(q||p)']
"""

from __future__ import annotations

from collections.abc import Sequence

from klsym.engine.verdicts.verdict import Verdict
from klsym.notation.combination import build_objective_terms
from klsym.notation.printers import TEXT
from klsym.notation.tree import Formula, Minus, add_terms, negate

SENSE = {False: "minimised", True: "maximised"}
VERB = {False: "minimises", True: "maximises"}


def choose_sense(terms: Sequence[Formula], ascends: bool, rewards: bool) -> tuple[bool, Formula]:
    """Return whether the objective is maximised, and the objective.

    terms: of the objective whose gradient is the expected gradient, with its rewards first if there are any.
    ascends: does the update follow this gradient?  Else it goes against it.

    A reward is maximised unless all that the update does is to lower its terms; a loss is minimised unless it
    lowers minus a reward.
    """
    lowered = [negate(term) for term in terms] if ascends else list(terms)
    deciding = lowered if ascends else lowered[: int(rewards)]
    maximised = any(isinstance(term, Minus) for term in deciding)
    return maximised, add_terms(*(negate(term) for term in lowered) if maximised else lowered)


def describe_terms(terms: Sequence[Formula], ascends: bool, rewards: bool) -> str:
    """Return text such as "maximises E_q[A] - KL(q||p)"."""
    maximised, formula = choose_sense(terms, ascends, rewards)
    return f"{VERB[maximised]} {TEXT(formula)}"


def describe_objective(verdict: Verdict, ascends: bool) -> str:
    """Describe what an update does to the objective of a verdict; empty if none is known."""
    terms, named = (
        verdict.list_objective_terms(TEXT),
        verdict.implied is None and verdict.objective_formula is None,
    )
    rewards = named and "reward" in verdict.gradient.multiples
    return describe_terms(terms, ascends, rewards) if terms else ""


def describe_multiples(multiples: dict[str, str], ascends: bool) -> str:
    """Describe what an update does to a sum of multiples of the KLs and rewards."""
    return describe_terms(build_objective_terms(multiples), ascends, "reward" in multiples)
