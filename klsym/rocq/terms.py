"""What a certificate speaks of, written in the words of rocq/Statements.v."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction

from klsym.names import THETA_FREE, parse_name
from klsym.ring import Exponent, ExpPoly, Monomial, Number
from klsym.statements import Atom, Context, Gradient, Mean, MeanGradient, Side

MEASURES = {"q": "Mq", "p": "Mp", "mu": "Mmu", "count": "Mcount", "sample": "Msample"}
BASES = {"k1": "K1", "w": "W", "log_q": "LogQ", "length": "Length"}
GIVEN = tuple(name for name in THETA_FREE if name != "length")  # any functions of the outcome
BASES |= {name: f"(Given {i})" for i, name in enumerate(GIVEN)}
INDICES = {"i": "batches", "ij": "batches", "t": "sequences", "it": "batches of sequences"}


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


def listed(items: Iterable[str]) -> str:
    """A list of Rocq.

    >>> listed(["a", "b"])
    '[a; b]'
    """
    return f"[{'; '.join(items)}]"


def rational(value: Number) -> str:
    """A rational of Rocq.

    >>> rational(Fraction(-1, 2))
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

    def variable(self, name: str) -> str:
        """A variable, sg(k1) as `Sample K1 true`."""
        if name in self.context.parameters:
            marked = "true" if name in self.nonzero else "false"
            return f"Par {self.context.parameters.index(name)} {marked}"
        parsed = parse_name(name)
        if parsed.slot != "x":
            raise Outside(f"the slot {parsed.slot}")
        base = BASES.get(parsed.base)
        if base is None:
            functions = sorted(self.context.function_arguments)
            if parsed.base not in functions:
                raise Outside(f"the variable {parsed.base}")
            base = f"(Fn {functions.index(parsed.base)} {parsed.primes})"
        return f"Sample {base} {'true' if parsed.detached else 'false'}"

    def monomial(self, monomial: Monomial) -> str:
        factors = []
        for name, power in monomial:
            if power < 0 and name not in self.nonzero and name != "length":
                raise Outside(f"division by {name}")
            factors.append(f"({self.variable(name)}, {f'({power})' if power < 0 else power}%Z)")
        return listed(factors)

    def exponent(self, exponent: Exponent) -> str:
        return listed(f"({rational(value)}, {self.monomial(m)})" for m, value in exponent)

    def element(self, a: ExpPoly) -> str:
        """An exponential polynomial, its terms as they stand in a certificate."""
        rows = sorted(a.terms.items())
        return listed(f"({rational(v)}, {self.monomial(m)}, {self.exponent(e)})" for (m, e), v in rows)

    def measure(self, index: str, measure: str) -> str:
        if index:
            raise Outside(INDICES[index])
        return place(measure)

    def mean(self, mean: Mean) -> tuple[str, str, int]:
        """Measure, coefficient and number of scores."""
        measure = self.measure(mean.index, mean.measure)
        if set(mean.score) - {"x"}:
            raise Outside("a second direction")
        return measure, self.element(mean.coefficient), len(mean.score)

    def atom(self, atom: Atom) -> str:
        match atom:
            case Mean():
                return "Mean {} {} {}".format(*self.mean(atom))
            case MeanGradient(index, measure, loss):
                return f"MeanGradient {self.measure(index, measure)} {self.element(loss)}"
            case Gradient(of):
                return f"Gradient {self.combination(of)}"
        raise Outside("the curl of a field")

    def combination(self, side: Side) -> str:
        """A linear combination of means without scores, as it stands under a gradient."""
        rows = []
        for coefficient, atoms in side.terms:
            of = "None"
            if atoms:
                mean = atoms[0]
                if len(atoms) > 1 or not isinstance(mean, Mean) or mean.score:
                    raise Outside("the gradient of a product")
                of = "Some ({}, {})".format(*self.mean(mean)[:2])
            rows.append(f"({self.element(coefficient)}, {of})")
        return listed(rows)

    def side(self, side: Side) -> str:
        return listed(f"({self.element(c)}, {listed(map(self.atom, atoms))})" for c, atoms in side.terms)
