"""What a certificate speaks of, written in the words of rocq/statements/Statements.v."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction

from klsym.kernel.names import SLOT_WORDS, parse_name
from klsym.kernel.ring import Exponent, ExpPoly, Key, Monomial, Number
from klsym.kernel.slots import is_second
from klsym.kernel.statements import Atom, Context, Gradient, Mean, MeanGradient, Score, Side

MEASURES = {"q": "Mq", "p": "Mp", "mu": "Mmu", "count": "Mcount", "sample": "Msample"}
BASES = {"k1": "K1", "w": "W", "log_q": "LogQ", "length": "Length"}
GIVEN = ("R", "A", "H", "M")  # any functions of the outcome
BASES |= {name: f"(Given {i})" for i, name in enumerate(GIVEN)}
BASES["A"] = "Any"  # of all that is in its slot, where the others add up
INDICES = {"": "Single", "i": "Batch", "ij": "Pair", "t": "Steps", "it": "BatchSteps"}
SLOTS = {"x": "Whole", **{slot: slot.capitalize() for slot in SLOT_WORDS}}
SEVERAL = ("past", "future")  # slots of several steps, over which a generic function would be a sum


class Outside(Exception):
    """What the verified checker does not reach, in a few words."""


def place(measure: str) -> str:
    """What is averaged over, or the one sample.

    >>> place("mu")
    'Mmu'
    """
    if measure not in MEASURES:
        raise Outside(f"the measure {measure}")
    return MEASURES[measure]


def name_base(name: str) -> str:
    """What is a sum over the steps of a sequence.

    >>> name_base("k1"), name_base("s"), name_base("R")
    ('K1', 'Score', '(Given 0)')
    """
    base_name = "Score" if name == "s" else BASES.get(name)
    if base_name is None or base_name == "Any":
        raise Outside(f"the variable {name}")
    return base_name


def write_list(items: Iterable[str]) -> str:
    """A list of Rocq.

    >>> write_list(["a", "b"])
    '[a; b]'
    """
    return f"[{'; '.join(items)}]"


def write_rational(value: Number) -> str:
    """A rational of Rocq.

    >>> write_rational(Fraction(-1, 2))
    '(Qmake (-1) 2)'
    """
    exact = Fraction(value)
    top = f"({exact.numerator})" if exact < 0 else f"{exact.numerator}"
    return f"(Qmake {top} {exact.denominator})"


@dataclass(frozen=True)
class Words:
    """How the names of one context are written; parameters that are not 0 have names of their own."""

    context: Context
    nonzero: frozenset[str] = field(default_factory=frozenset)

    def write_variable(self, name: str) -> str:
        """A variable, sg(k1) as `Sample K1 true`."""
        if name in self.context.parameters:
            marked = "true" if name in self.nonzero else "false"
            return f"Par {self.context.parameters.index(name)} {marked}"
        parsed = parse_name(name)
        base = BASES.get(parsed.base)
        if base is None:
            functions = sorted(self.context.function_arguments)
            if parsed.base not in functions:
                raise Outside(f"the variable {parsed.base}")
            if parsed.slot in SEVERAL:
                raise Outside("a function of several steps")
            base = f"(Fn {functions.index(parsed.base)} {parsed.primes})"
        return f"Sample {SLOTS[parsed.slot]} {base} {'true' if parsed.detached else 'false'}"

    def write_monomial(self, monomial: Monomial) -> str:
        factors = []
        for name, power in monomial:
            if power < 0 and name not in self.nonzero and name != "length":
                raise Outside(f"division by {name}")
            factors.append(f"({self.write_variable(name)}, {f'({power})' if power < 0 else power}%Z)")
        return write_list(factors)

    def write_exponent(self, exponent: Exponent) -> str:
        return write_list(f"({write_rational(value)}, {self.write_monomial(m)})" for m, value in exponent)

    def write_element(self, a: ExpPoly, score: Score = ()) -> str:
        """An exponential polynomial, its terms as they stand in a certificate, times score functions."""
        return write_list(f"({self.write_term(key, value, score)})" for key, value in sorted(a.terms.items()))

    def write_term(self, key: Key, value: Number, score: Score = ()) -> str:
        """c, powers, and the exponent; the score function of a slot is a variable."""
        if any(is_second(entry) or entry not in SLOTS for entry in score):
            raise Outside("a second direction")
        powers = [f"(Sample {SLOTS[z]} Score false, {n}%Z)" for z, n in Counter(score).items()]
        monomial = self.write_monomial(key[0])[1:-1]
        factors = write_list([monomial] * bool(monomial) + powers)
        return f"{write_rational(value)}, {factors}, {self.write_exponent(key[1])}"

    def place(self, index: str, measure: str) -> str:
        """The index of a mean, and what is averaged over."""
        return f"{INDICES[index]} {place(measure)}"

    def mean(self, mean: Mean) -> str:
        """Index, measure and coefficient, score functions included."""
        return f"{self.place(mean.index, mean.measure)} {self.write_element(mean.coefficient, mean.score)}"

    def write_atom(self, atom: Atom) -> str:
        match atom:
            case Mean():
                return f"Mean {self.mean(atom)}"
            case MeanGradient(index, measure, loss):
                return f"MeanGradient {self.place(index, measure)} {self.write_element(loss)}"
            case Gradient(of):
                return f"Gradient {self.write_combination(of)}"
        raise Outside("the curl of a field")

    def write_combination(self, side: Side) -> str:
        """A linear combination of means without scores, as it stands under a gradient."""
        rows = []
        for coefficient, atoms in side.terms:
            element_option = "None"
            if atoms:
                mean = atoms[0]
                if len(atoms) > 1 or not isinstance(mean, Mean) or mean.score:
                    raise Outside("the gradient of a product")
                at = self.place(mean.index, mean.measure).replace(" ", ", ")
                element_option = f"Some ({at}, {self.write_element(mean.coefficient)})"
            rows.append(f"({self.write_element(coefficient)}, {element_option})")
        return write_list(rows)

    def write_side(self, side: Side) -> str:
        return write_list(
            f"({self.write_element(c)}, {write_list(map(self.write_atom, atoms))})" for c, atoms in side.terms
        )
