"""The term language: what a theorem says, as data.  Trusted; standard library only.

A *side* of a statement is a linear combination of products of atoms.  There are four:

    Mean(index, m, a, score)    E_m[a s..s], E_m[mean_i a s..s], E_m[sum_t a s..s]
    MeanGradient(index, m, L)   the same mean of grad L, sg(.) held constant: what autograd averages
    Gradient(side)              grad of a linear combination of means without scores
    Curl(index, m, L)           d_v F.u - d_u F.v for the field F = MeanGradient(index, m, L)

The index says what is averaged (slots.py): "" one sample, i a batch, t the steps of a sequence.  m is q, p,
mu, for one sample also "count" (the sum over all outcomes), or "sample": the value at one of them.

Coefficients are exponential polynomials in the variables of slots: `k1`, `w` (log q - log mu), `log_q`, the
theta-free `R`, `A` and `H`, the length of a sequence, generic functions, and their detached copies `sg(k1)`.
A variable of another slot than x is written `k1[self]`.  `score` lists the slots whose scores multiply.
All else, such as KL(q||p), abbreviates these (abbreviations.py) and is written out before the kernel sees it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

from klsym.errors import Refused
from klsym.kernel.definitions import FACT, KINDS, MEANS, OF_SAMPLES, Definition, read_defined
from klsym.kernel.names import (
    LOG_RATIOS,
    MEASURES,
    SAMPLE,
    SAMPLE_BASES,
    WHOLE,
    is_declarable,
    parse_name,
)
from klsym.kernel.ring import ONE, ZERO, ExpPoly, Number, charge
from klsym.kernel.slots import LENGTHS, SINGLE, SLOTS, is_score, name_in_slot
from klsym.kernel.witness import BATCH_SIZE, read_witness

Score = tuple[str, ...]
canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode  # JSON without spaces, in ASCII


# ---------------------------------------------------------------------------- the setting
@dataclass(frozen=True)
class Context:
    """What a statement quantifies over.

    parameters:  names that are constant over samples and theta.
    functions:   generic function name -> the live variables it may depend on.
    premises:    pairs of sides that are assumed to be equal.
    definitions: what further names stand for; each speaks of those before it.
    facts:       elements free of theta that are assumed to be at least 0 at every sample and step.
    witness:     values at which all facts hold (witness.py).
    """

    parameters: tuple[str, ...] = ()
    functions: tuple[tuple[str, tuple[str, ...]], ...] = ()
    premises: tuple[tuple[Side, Side], ...] = ()
    definitions: tuple[Definition, ...] = ()
    facts: tuple[ExpPoly, ...] = ()
    witness: tuple[tuple[str, Number], ...] = ()

    @cached_property
    def function_arguments(self) -> dict[str, tuple[str, ...]]:
        return dict(self.functions)

    @cached_property
    def _defined(self) -> dict[str, Definition]:
        return {definition.name: definition for definition in self.definitions}

    @cached_property
    def _slots(self) -> dict[str, frozenset[str]]:
        """The slots of the names that were asked for, as a definition may lead through many others."""
        return {}

    def find_definition(self, name: str, *kinds: str) -> ExpPoly | None:
        """Return e in the slot of a name with a value at each sample; sg(name) has the same value."""
        if not self.definitions:
            return None
        definition, slot = self._defined.get(parse_name(name).base), parse_name(name).slot
        if definition is None or definition.kind not in (kinds or OF_SAMPLES):
            return None
        charge(definition.e.measure_work()[0])
        if slot == "x":
            return definition.e
        return definition.e.rename(lambda n: name_in_slot(n, slot) if self.is_sample(n) else n)

    def find_mean(self, name: str) -> Mean | None:
        """Return the expectation that has this name, or None; sg(name) has the same value."""
        definition = self._defined.get(parse_name(name).base) if self.definitions else None
        if definition is None or definition.kind not in MEANS:
            return None
        return Mean("", MEANS[definition.kind], definition.e)

    def walk_definitions(self, *elements: ExpPoly, kinds: tuple[str, ...] = ()) -> Iterator[ExpPoly]:
        """Yield these elements, and those that define the names in them, as one of these kinds."""
        waiting, seen = [*elements], set[str]()
        while waiting:
            yield (element := waiting.pop())
            new = element.names() - seen
            seen |= new
            waiting += [e for name in new if (e := self.find_definition(name, *kinds)) is not None]

    @property
    def named_means(self) -> tuple[Mean, ...]:
        """The expectations that have a name."""
        found = (self.find_mean(definition.name) for definition in self.definitions)
        return tuple(mean for mean in found if mean is not None)

    def list_names_of_means(self, element: ExpPoly) -> list[str]:
        """Return the names of expectations in an element, and in what defines names in it."""
        names = {name for e in self.walk_definitions(element) for name in e.names()}
        return sorted(name for name in names if self.find_mean(name) is not None)

    def find_slots(self, name: str) -> frozenset[str]:
        """Return the slots that a variable speaks of; none if it is constant."""
        if name in self.parameters or self.find_mean(name) is not None:
            return frozenset()
        if name not in self._slots:
            plain = parse_name(name).base not in self._defined
            alone = ExpPoly.from_variable(name)
            self._slots[name] = frozenset({parse_name(name).slot}) if plain else self.collect_slots(alone)
        return self._slots[name]

    def collect_slots(self, element: ExpPoly) -> frozenset[str]:
        """Return the slots that an element speaks of."""
        names = {
            name
            for e in self.walk_definitions(element)
            for name in e.names()
            if self.find_definition(name) is None and self.find_mean(name) is None
        }
        return frozenset(parse_name(name).slot for name in names - set(self.parameters))

    def is_sample(self, name: str) -> bool:
        """Does the variable change from sample to sample?"""
        return bool(self.find_slots(name))

    def is_constant(self, element: ExpPoly) -> bool:
        return not self.collect_slots(element)

    def check(self, element: ExpPoly, slots: Iterable[str] = WHOLE) -> None:
        """Refuse undeclared names, foreign slots, and division by anything but a parameter or a length."""
        for name in element.names() - set(self.parameters):
            parsed = parse_name(name)
            if parsed.base in self._defined:
                self._check_defined(name, frozenset(slots))
            elif parsed.slot not in slots:
                raise Refused(f"unknown slot {parsed.slot!r} in {name!r}")
            elif parsed.base not in self.function_arguments and (
                parsed.base not in SAMPLE_BASES or parsed.primes
            ):
                raise Refused(f"unknown name {name!r}")
        for name in element.collect_divisors() - LENGTHS - {*self.parameters}:
            raise Refused(f"division by the random variable {name}: only parameters divide")

    def _check_defined(self, name: str, slots: frozenset[str]) -> None:
        """Refuse what is defined at several positions: no sum over positions has a name."""
        parsed = parse_name(name)
        own_slots = self.find_slots(parsed.base)
        if parsed.primes or (parsed.slot != "x" and (own_slots != {"x"} or parsed.slot not in SINGLE)):
            raise Refused(f"{name!r}: what is defined stands for no sum over positions")
        if not self.find_slots(name) <= slots:
            raise Refused(f"{name!r} speaks of the slots {sorted(self.find_slots(name) - slots)}, not here")

    def to_json(self) -> dict[str, Any]:
        optional = {
            "definitions": [[name, kind, e.to_json()] for name, kind, e in self.definitions],
            "facts": [e.to_json() for e in self.facts],
            "witness": {name: str(value) for name, value in self.witness},
        }
        return {
            "parameters": list(self.parameters),
            "functions": {name: list(args) for name, args in self.functions},
            "premises": [[left.to_json(), right.to_json()] for left, right in self.premises],
            **{key: value for key, value in optional.items() if value},
        }

    @staticmethod
    def from_json(data: Any) -> Context:
        keys, optional = {"parameters", "functions", "premises"}, {"definitions", "facts", "witness"}
        has_keys = isinstance(data, dict) and set(data) - optional == keys
        if not has_keys or not all(data[key] for key in optional & set(data)):
            raise Refused(f"context: the keys {sorted(keys)} expected")
        names, functions, defined = data["parameters"], data["functions"], data.get("definitions", [])
        if not isinstance(names, list) or not isinstance(functions, dict):
            raise Refused("context: a list of parameters and an object of functions expected")
        if any(not isinstance(row, list) or len(row) != 3 or row[1] not in KINDS for row in defined):
            raise Refused(f"context: definitions: rows [name, one of {list(KINDS)}, element] expected")
        declared = [*names, *functions, *(row[0] for row in defined)]
        for name in declared:
            if not is_declarable(name) or (name == BATCH_SIZE and name not in names):
                raise Refused(
                    f"context: {str(name)[:60]!r} cannot be declared: it is reserved, or no plain name"
                )
        if len(set(declared)) != len(declared):
            raise Refused("context: a name is declared twice")
        for name, arguments in functions.items():
            if not isinstance(arguments, list) or not set(arguments) <= set(LOG_RATIOS):
                raise Refused(f"context: {name} may depend on {', '.join(LOG_RATIOS)} only")
        listed = tuple((name, tuple(args)) for name, args in sorted(functions.items()))
        context = Context(tuple(names), listed)
        for name, kind, e in defined:
            charge(len(context.definitions))
            definition = Definition(name, kind, read_defined(e, context, kind))
            context = replace(context, definitions=(*context.definitions, definition))
        facts = tuple(read_defined(e, context, FACT) for e in data.get("facts", []))
        witness = read_witness(data.get("witness", {}), facts)
        premises = tuple((Side.from_json(a), Side.from_json(b)) for a, b in data["premises"])
        return replace(context, premises=premises, facts=facts, witness=witness)


# ---------------------------------------------------------------------------- atoms
class Atom:
    """What a side is made of; written as [class name, *fields]."""

    __match_args__: tuple[str, ...]

    def to_json(self) -> list[Any]:
        values = (getattr(self, name) for name in self.__match_args__)
        return [type(self).__name__, *(v if isinstance(v, str) else _to_json(v) for v in values)]


def _to_json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value.to_json()


@dataclass(frozen=True)
class Mean(Atom):
    """E_m[a s..s] at an index; its value at one sample, batch or sequence if m is "sample"."""

    index: str
    measure: str
    coefficient: ExpPoly
    score: Score = ()


@dataclass(frozen=True)
class Field(Atom):
    """What a loss, a measure and an index name."""

    index: str
    measure: str
    loss: ExpPoly


class MeanGradient(Field):
    """E_m[grad L] at an index, the gradient taken at each sample with sg(.) held constant."""


class Curl(Field):
    """d_v F.u - d_u F.v for the field F = E_m[grad L] at the index: 0 if F is the gradient of a function."""


@dataclass(frozen=True)
class Gradient(Atom):
    """grad of a linear combination of means that hold no score function."""

    of: Side


def read_atom(data: Any) -> Atom:
    """Read one atom; raises Refused on anything malformed."""
    match data:
        case ["Mean", str() as index, str() as m, a, list() as score] if _is_place(index, m):
            if not all(is_score(entry, index) for entry in score):
                raise Refused(
                    f"score: a list of slots among {list(SLOTS[index])} expected, got {str(score)[:60]}"
                )
            return Mean(index, m, ExpPoly.from_json(a), tuple(sorted(score)))
        case ["MeanGradient" | "Curl" as kind, str() as index, str() as m, loss] if _is_place(index, m):
            return (Curl if kind == "Curl" else MeanGradient)(index, m, ExpPoly.from_json(loss))
        case ["Gradient", side]:
            return Gradient(Side.from_json(side))
    raise Refused(f"unknown atom {json.dumps(data)[:80]}")


def _is_place(index: str, measure: str) -> bool:
    return index in SLOTS and measure in (*MEASURES, SAMPLE) and not (index and measure == "count")


# ---------------------------------------------------------------------------- sides
@dataclass(frozen=True)
class Side:
    """A linear combination of products of atoms, in canonical form: sorted (coefficient, atoms).

    Lone means absorb their coefficients and merge: E_m[a] + c E_m[b] is E_m[a + c b].  In a product each mean
    starts with the coefficient 1.
    """

    terms: tuple[tuple[ExpPoly, tuple[Atom, ...]], ...] = field(default=())

    @staticmethod
    def combine(*terms: Term) -> Side:
        return Side(_merge_terms(terms))

    @staticmethod
    def from_atom(atom: Atom) -> Side:
        return Side(((ONE, (atom,)),) if not isinstance(atom, Mean) or atom.coefficient else ())

    @staticmethod
    def from_constant(value: ExpPoly | Number) -> Side:
        return Side.combine((value, ()))

    def __add__(self, other: Side) -> Side:
        return Side.combine(*self.terms, *other.terms)

    def __sub__(self, other: Side) -> Side:
        return self + other * -1

    def __mul__(self, scale: ExpPoly | Number) -> Side:
        return Side.combine(*((scale * c, atoms) for c, atoms in self.terms))

    __rmul__ = __mul__

    def __neg__(self) -> Side:
        return self * -1

    def multiply(self, other: Side) -> Side:
        charge(4 * sum(1 + len(a) + len(b) for _, a in self.terms for _, b in other.terms))
        return Side.combine(*((c * d, a + b) for c, a in self.terms for d, b in other.terms))

    def to_json(self) -> list[Any]:
        return [[c.to_json(), [atom.to_json() for atom in atoms]] for c, atoms in self.terms]

    @cached_property
    def text(self) -> str:
        """The canonical text of `to_json`."""
        terms = (f"[{_write_text(c)},[{','.join(map(_write_text, atoms))}]]" for c, atoms in self.terms)
        return f"[{','.join(terms)}]"

    @staticmethod
    def from_json(data: Any) -> Side:
        return Side.combine(*Side.as_written(data).terms)

    @staticmethod
    def as_written(data: Any) -> Side:
        """Read the terms of a side without merging them."""
        rows = []
        for row in data if isinstance(data, list) else [data]:
            if not isinstance(row, list) or len(row) != 2 or not isinstance(row[1], list):
                raise Refused(
                    f"a side: a list of terms expected, each [coefficient, atoms], got {str(row)[:60]}"
                )
            rows.append((ExpPoly.from_json(row[0]), tuple(read_atom(item) for item in row[1])))
        return Side(tuple(rows))


Term = tuple[ExpPoly | Number, tuple[Atom, ...]]


@lru_cache(maxsize=8192)
def _write_text(item: Atom | ExpPoly) -> str:
    return canonical(item.to_json())


def _merge_terms(terms: tuple[Term, ...]) -> tuple[tuple[ExpPoly, tuple[Atom, ...]], ...]:
    means: dict[tuple[str, str, Score], ExpPoly] = {}  # index, measure, score -> the coefficient
    others: dict[tuple[Atom, ...], ExpPoly] = {}
    for raw, atoms in terms:
        charge(1 + 20 * len(atoms))
        coefficient = raw if isinstance(raw, ExpPoly) else ExpPoly.from_number(raw)
        first = atoms[0] if len(atoms) == 1 else None
        if isinstance(first, Mean):
            key = first.index, first.measure, first.score
            means[key] = means.get(key, ZERO) + coefficient * first.coefficient
        else:
            scale, ordered = _split_leading_numbers(atoms) if len(atoms) > 1 else (1, atoms)
            others[ordered] = others.get(ordered, ZERO) + coefficient * scale
    result: list[tuple[ExpPoly, tuple[Atom, ...]]] = [
        (ONE, (Mean(index, m, a, score),)) for (index, m, score), a in means.items() if a
    ]
    result.extend((c, atoms) for atoms, c in others.items() if c)
    if len(result) > 1:
        result.sort(key=lambda term: [_write_text(atom) for atom in term[1]])
    return tuple(result)


def _split_leading_numbers(atoms: tuple[Atom, ...]) -> tuple[Number, tuple[Atom, ...]]:
    """Return the leading rational of the means of a product, and its factors, sorted and without it."""
    scale: Number = 1
    factors: list[Atom] = []
    for atom in atoms:
        if isinstance(atom, Mean):
            terms = atom.coefficient.terms
            lead = terms[min(terms)] if terms else 0
            scale = scale * lead
            if lead not in (0, 1):
                atom = replace(atom, coefficient=atom.coefficient * ExpPoly.from_number(lead).invert())
        factors.append(atom)
    return scale, tuple(sorted(factors, key=_write_text))


# ---------------------------------------------------------------------------- statements
@dataclass(frozen=True)
class Statement:
    """`left relation right` in a context; the relation is "=" or "<="."""

    left: Side
    right: Side
    context: Context = Context()
    relation: str = "="


def walk_atoms(*sides: Side) -> Iterator[Atom]:
    """Yield every atom of sides, those under a gradient included."""
    for atom in (atom for side in sides for _, atoms in side.terms for atom in atoms):
        yield atom
        if isinstance(atom, Gradient):
            yield from walk_atoms(atom.of)


def pair_elements_with_slots(*sides: Side) -> Iterator[tuple[ExpPoly, tuple[str, ...]]]:
    """Yield every exponential polynomial that sides mention, with the slots that it may speak of."""
    atoms = tuple(walk_atoms(*sides))
    for side in (*sides, *(atom.of for atom in atoms if isinstance(atom, Gradient))):
        yield from ((coefficient, WHOLE) for coefficient, _ in side.terms)
    for atom in atoms:
        if isinstance(atom, Mean | Field):
            yield atom.coefficient if isinstance(atom, Mean) else atom.loss, SLOTS[atom.index]


def walk_elements(*sides: Side) -> Iterator[ExpPoly]:
    """Return every exponential polynomial that sides mention."""
    return (element for element, _ in pair_elements_with_slots(*sides))
