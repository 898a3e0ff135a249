"""An objective as an update moves it: minimised or maximised, from its terms with their signs.

The headline and the line of each term take their verb and their signs from here.

>>> from klsym.engine.explain import explain
>>> [describe_objective(explain(text, use="reward"), True) for text in ("A - k1", "-A", "-k1")]
['maximises E_q[A] - KL(q||p)', 'minimises E_q[A]', 'minimises KL(q||p)']
"""

from __future__ import annotations

from collections.abc import Sequence

from klsym.engine.verdicts.verdict import Verdict
from klsym.notation.combination import objective_rows
from klsym.notation.printers import TEXT
from klsym.notation.tree import Formula, Minus, negated, total

SENSE = {False: "minimised", True: "maximised"}
VERB = {False: "minimises", True: "maximises"}


def choose_sense(terms: Sequence[Formula], ascends: bool, rewards: bool) -> tuple[bool, Formula]:
    """Is the objective maximised, and which one?

    terms: of the objective whose gradient is the expected gradient, with its rewards first if there are any.
    ascends: does the update follow this gradient?  Else it goes against it.

    A reward is maximised unless all that the update does is to lower its terms; a loss is minimised unless it
    lowers minus a reward.
    """
    lowered = [negated(term) for term in terms] if ascends else list(terms)
    deciding = lowered if ascends else lowered[: int(rewards)]
    maximised = any(isinstance(term, Minus) for term in deciding)
    return maximised, total(*(negated(term) for term in lowered) if maximised else lowered)


def describe_terms(terms: Sequence[Formula], ascends: bool, rewards: bool) -> str:
    """maximises E_q[A] - KL(q||p)."""
    maximised, formula = choose_sense(terms, ascends, rewards)
    return f"{VERB[maximised]} {TEXT(formula)}"


def describe_objective(verdict: Verdict, ascends: bool) -> str:
    """What an update does to the objective of a verdict; empty where none is known."""
    terms, named = (
        verdict.list_objective_terms(TEXT),
        verdict.implied is None and verdict.objective_formula is None,
    )
    rewards = named and "reward" in verdict.gradient.multiples
    return describe_terms(terms, ascends, rewards) if terms else ""


def describe_multiples(multiples: dict[str, str], ascends: bool) -> str:
    """The same of multiples of the KLs and rewards."""
    return describe_terms(objective_rows(multiples), ascends, "reward" in multiples)
