"""What a certificate speaks of, written in the words of rocq/statements/Statements.v."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction

from klsym.kernel.definitions import LET, LOG, REGION
from klsym.kernel.derivatives import is_live
from klsym.kernel.names import SLOT_WORDS, parse_name
from klsym.kernel.ring import Exponent, ExpPoly, Key, Monomial, Number
from klsym.kernel.slots import SINGLE, find_slot, is_second, name_in_slot
from klsym.kernel.statements import Atom, Context, Gradient, Mean, MeanGradient, Score, Side

MEASURES = {"q": "Mq", "p": "Mp", "mu": "Mmu", "count": "Mcount", "sample": "Msample"}
BASES = {"k1": "K1", "w": "W", "log_q": "LogQ", "o": "ToOld", "length": "Length"}
GIVEN = ("R", "A", "H", "M", "H2", "H3", "H4")  # any functions of the outcome
BASES |= {name: f"(Given {i})" for i, name in enumerate(GIVEN)}
BASES["A"] = "Any"  # of all that is in its slot, where the others add up
INDICES = {"": "Single", "i": "Batch", "ij": "Pair", "t": "Steps", "it": "BatchSteps"}
SLOTS = {"x": "Whole", **{slot: slot.capitalize() for slot in SLOT_WORDS}}
STANDING = {REGION: "Region", LOG: "Log", LET: "Let"}
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
    """How the names of one context are written; parameters that are not 0 have names of their own.

    defined: the names of the author's own that were written, by what they are called and where they speak;
    each with its number and its definition.  A constant one is written as one more parameter, of any value.
    """

    context: Context
    nonzero: frozenset[str] = field(default_factory=frozenset)
    has_model: bool = False
    defined: dict[tuple[str, ...], tuple[int, str]] = field(default_factory=dict, compare=False)

    def write_variable(self, name: str) -> str:
        """A variable, sg(k1) as `Sample K1 true`."""
        if name in self.context.parameters:
            marked = "true" if name in self.nonzero else "false"
            return f"Par {self.context.parameters.index(name)} {marked}"
        parsed = parse_name(name)
        if any(parsed.base == definition.name for definition in self.context.definitions):
            return self.write_name(name)
        base = BASES.get(parsed.base)
        if base is None:
            functions = sorted(self.context.function_arguments)
            if parsed.base not in functions:
                raise Outside(f"the variable {parsed.base}")
            if parsed.slot in SEVERAL:
                raise Outside("a function of several steps")
            base = f"(Fn {functions.index(parsed.base)} {parsed.primes})"
        return f"Sample {SLOTS[parsed.slot]} {base} {'true' if parsed.detached else 'false'}"

    def write_name(self, name: str) -> str:
        """A name of the author's own: the slots that it speaks of, its number, and whether it moves."""
        parsed = parse_name(name)
        [definition] = [d for d in self.context.definitions if d.name == parsed.base]
        if definition.kind not in STANDING:
            raise Outside("a name of an expectation")
        if parsed.primes or parsed.slot not in SINGLE:
            raise Outside("a sum of names, or a derivative of one")
        if not self.context.is_sample(name):
            if self.has_model:
                raise Outside("a model with a log of parameters")
            constants = [d.name for d in self.context.definitions]
            return f"Par {len(self.context.parameters) + constants.index(parsed.base)} false"
        moves = definition.kind != REGION and is_live(ExpPoly.from_variable(parsed.base), self.context)
        case = "Moving" if moves else "Still"
        places = self._write_slots(name)
        return f"Named {places} {self.number(name)} {case} {str(parsed.detached).lower()}"

    def number(self, name: str) -> int:
        """The number of what defines a name; the same for each sample of a batch."""
        parsed = parse_name(name)
        of_a_sample = self.context.find_slots(parsed.base) == {"x"}
        place = parsed.slot if of_a_sample and parsed.slot == "now" else "x"
        key = parsed.base, place
        if key not in self.defined:
            plain = name_in_slot(parsed.base, place)
            [kind] = [d.kind for d in self.context.definitions if d.name == parsed.base]
            element = self.context.find_definition(plain)
            assert element is not None
            text = f"Define {self._write_slots(plain)} {STANDING[kind]} {self.write_element(element)}"
            self.defined[key] = len(self.defined), text
        return self.defined[key][0]

    def _write_slots(self, name: str) -> str:
        slots = self.context.find_slots(name)
        return write_list(text for slot, text in SLOTS.items() if slot in slots)

    def write_definitions(self) -> str:
        """What defines the names that were written, in the order of their numbers."""
        return write_list(f"({text})" for _, text in sorted(self.defined.values()))

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
        """c, powers, and the exponent; the score function of a slot is a variable.

        Along the second direction of a model it stands in the place of a generic function.
        """
        if any(is_second(entry) for entry in score) and (self.context.functions or not self.has_model):
            raise Outside("a second direction")
        scores = {
            entry: f"{SLOTS[find_slot(entry)]} {'(Fn 0 0)' if is_second(entry) else 'Score'}"
            for entry in score
        }
        powers = [f"(Sample {scores[entry]} false, {n}%Z)" for entry, n in Counter(score).items()]
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
