"""What a theorem assumes.  Every premise of a step is recorded here and nowhere else.  Trusted.

    ("support", a, b)         a << b
    ("exchange", mean)        grad may be taken inside the mean;  ("lipschitz", mean): where terms have kinks
    ("away", m, e)            no sample from m lies where e = 0;  ("above", m, e): every one where e > 0
    ("off", m, e)             nor where e moves with theta besides;  ("apart", m, e): nor at any theta nearby
    ("fact", e)               e >= 0
    ("exists", atom)          the mean exists; over t that of the sum of absolute values
    ("ends", m)               sequences drawn from m end
    ("batch", m)              the samples of a batch are independent draws from m
    ("nonzero", name)         a parameter that divides;  "positive" and "generic" likewise
    ("nonnegative", m, a)     the region of an inequality
    ("equal", F, G)           a premise;  ("premise", F, G): for every theta

Standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from klsym.errors import NotInRing, Refused
from klsym.kernel.definitions import LET, REGION
from klsym.kernel.names import PROBABILITIES, SAMPLE, WHOLE, parse_name
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.kernel.statements import Atom, Context, Mean, Side, walk_atoms, walk_elements

Hypothesis = tuple[Any, ...]
Data = dict[str, Any]


def refuse_unless(condition: bool, reason: str) -> None:
    if not condition:
        raise Refused(reason)


BRIEF = 300  # characters of a side in a message


def show_brief(side: Side) -> str:
    """Return the start of a side in JSON, for a message: the first term, and no other is written out."""
    return Side(side.terms[:1]).text[:BRIEF] + f" and {len(side.terms) - 1} more" * (len(side.terms) > 1)


def read_choice(data: Data, key: str, known: Iterable[str]) -> str:
    """Return what a certificate chooses."""
    choices = sorted(known)
    refuse_unless(data[key] in choices, f"{key}: one of {choices} expected, got {str(data[key])[:20]!r}")
    return str(data[key])


class Assumptions:
    """The hypotheses of one part.

    masses: the measures that samples are drawn from, whose mass is 1.  Sequences that do not end have no part
    in it: where the part speaks of sequences, each of these measures must end.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.found: set[Hypothesis] = set()
        self.masses: set[str] = set()
        self.sequences = False

    def add(self, kind: str, *about: Any) -> None:
        self.found.add((kind, *about))

    # -- what is written down ------------------------------------------------------------
    def use(self, *sides: Side) -> None:
        """Note sides that a proof mentions: what divides is not 0, and do they speak of sequences?"""
        for element in walk_elements(*sides):
            self.divide(element)
            self.sequences |= any(parse_name(name).base == "length" for name in element.names())
        self.sequences |= any("t" in getattr(atom, "index", "") for atom in walk_atoms(*sides))

    def read(self, data: Any, slots: Iterable[str] = WHOLE) -> ExpPoly:
        """Return an element that a certificate gives: its names are declared, and what divides is not 0."""
        element = ExpPoly.from_json(data)
        self.context.check(element, slots)
        self.divide(element)
        return element

    def divide(self, element: ExpPoly) -> None:
        for name in element.collect_divisors().intersection(self.context.parameters):
            self.add("nonzero", name)

    # -- what a mean presupposes ---------------------------------------------------------
    def draw(self, index: str, *measures: str) -> None:
        """Assume draws from these measures: sequences end, samples of a batch are independent."""
        for m in measures:
            self.masses |= {m} & set(PROBABILITIES)
            for kind, mark in (("ends", "t"), ("batch", "i")):
                if mark in index and m != SAMPLE:
                    self.add(kind, m)

    def assume_exchange(self, mean: Mean, kind: str = "exchange") -> None:
        self.add(kind, mean)
        self.draw(mean.index, mean.measure)

    def assume_existence(self, *atoms: Atom) -> None:
        """Assume that means exist into which one is split, or whose sum over t is exchanged with the
        expectation.

        A sum over t may have a mean although those of its terms do not add up to it (optional stopping), so
        that over t the sum of absolute values is meant.
        """
        for atom in atoms:
            if not self.is_finite(atom):
                self.add("exists", atom)

    def combine_means(self, means: list[Mean]) -> Side:
        """Return one mean as a sum of several."""
        self.assume_existence(*(means if len(means) > 1 else ()))
        return Side.combine(*((1, (mean,)) for mean in means))

    def assume_support(self, a: str, b: str) -> None:
        if a != b:
            self.add("support", a, b)

    def is_finite(self, atom: Atom) -> bool:
        """Is this a mean that exists in any case: of a constant, or a value at one sample?"""
        if not isinstance(atom, Mean):
            return False
        constant = not atom.score and self.context.is_constant(atom.coefficient) and "t" not in atom.index
        return atom.measure == SAMPLE or (constant and atom.measure != "count")

    # -- the whole -----------------------------------------------------------------------
    def cite(self, hypotheses: Iterable[Hypothesis], masses: Iterable[str]) -> None:
        """Assume what a theorem that is cited assumes."""
        self.found |= {*hypotheses}
        self.masses |= {*masses}

    def complete(self) -> tuple[Hypothesis, ...]:
        """Return all hypotheses, sorted; if the part speaks of sequences, all that are drawn end."""
        if self.sequences:
            self.found |= {("ends", m) for m in self.masses}
        for hypothesis in self.found:
            possible = not is_evidently_false(hypothesis, self.context)
            excerpt = str(write_hypothesis(hypothesis))[:BRIEF]
            refuse_unless(possible, f"hypotheses: {excerpt} fails at the witness or at every sample")
        return tuple(sorted(self.found, key=lambda hypothesis: json.dumps(write_hypothesis(hypothesis))))


# ---------------------------------------------------------------------------- hypotheses that fail
def is_evidently_false(hypothesis: Hypothesis, context: Context) -> bool:
    """Does a hypothesis evidently fail at every sample, or at the witness of the facts?"""
    witness = dict(context.witness)
    match hypothesis:
        case ("away", _, ExpPoly() as e):
            return _is_true_in_all_regions(e, context, lambda x: not x)
        case ("above", _, ExpPoly() as e):
            return _is_true_in_all_regions(e, context, _is_at_most_0)
        case ("nonzero" | "positive" as kind, str() as name) if name in witness:
            return witness[name] == 0 or (kind == "positive" and witness[name] < 0)
        case ("equal" | "premise", Side() as left, Side() as right):
            gap = (left - right).terms
            return [atoms for _, atoms in gap] == [()] and not gap[0][0].names()
    return False


def _is_true_in_all_regions(e: ExpPoly, context: Context, holds: Callable[[ExpPoly], bool]) -> bool:
    """Does it hold of e at the witness, with names of elements written out and each region 0 or 1?"""
    values = {name: ExpPoly.from_number(value) for name, value in context.witness}
    try:
        element = e.substitute(values)
        for name in sorted(element.names()):
            if (definition := context.find_definition(name, LET)) is not None:
                return _is_true_in_all_regions(element.substitute({name: definition}), context, holds)
            if (definition := context.find_definition(name, REGION)) is not None:
                both = ONE, ZERO
                cases = both[_is_true_in_all_regions(definition, context, _is_at_most_0) :]
                return all(
                    _is_true_in_all_regions(element.substitute({name: x}), context, holds) for x in cases
                )
    except NotInRing:  # what cannot be written out is not evident
        return False
    return holds(element)


def _is_at_most_0(e: ExpPoly) -> bool:
    """Is each term -c x^2i T^j exp(..)?"""
    return all(
        value < 0 and all(power % 2 == 0 or parse_name(name).base == "length" for name, power in monomial)
        for (monomial, _), value in e.terms.items()
    )


def write_hypothesis(hypothesis: Hypothesis) -> list[Any]:
    return [item if isinstance(item, str) else item.to_json() for item in hypothesis]
