"""The term language: what a claim says, as data that every reader shares.  Trusted; standard library only.

A *side* of a statement is a linear combination of products of atoms.  The atoms are

    E(m, a, score)     E_m[a s...s]: expectation under m of a coefficient times score functions
    ExpectedGradient   E_m[grad L]: what automatic differentiation averages
    Gradient           grad of a side: the gradient of a functional of theta
    Point, PointGradient   a s...s and grad L at one sample
    Divergence, Covariance, Bregman   named quantities, unfolded by the rule `definition`
    Indexed, IndexedGradient   E_m[mean_i a s..], E_m[sum_t a s..], or the value at one batch or sequence
    TokenDivergence, Curl, MeanVariance   named quantities of sequences and batches

Coefficients are exponential polynomials in the variables of a *slot* (a random position): `k1`, `w`
(log q - log mu), `log_q`, the theta-free rewards `R` and `A`, the length of a sequence, generic
functions, and their detached copies `sg(k1)`, ...  A single sample is the slot "x", whose name is left
out; another slot (slots.py) is written `k1[self]`.  `score` lists the slots whose score functions
multiply, so ("x", "x") is s^2.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

from klsym.errors import Refused
from klsym.names import MEASURES, PROBABILITIES, SAMPLE, SAMPLE_BASES, WHOLE, Name, parse_name
from klsym.normal_form import ONE, ZERO, ExpPoly, Number
from klsym.slots import SLOTS, is_score

DIVERGENCES = ("KL", "chi2", "J")

Score = tuple[str, ...]


# ---------------------------------------------------------------------------- the setting
@dataclass(frozen=True)
class Context:
    """What a statement quantifies over, and what it is given.

    parameters: names that are constant over samples and theta.
    functions:  generic function name -> the live variables it may depend on.
    on_policy:  the sampler mu is q itself, detached (so w is 0 once differentiated).
    given:      variable -> the value it is known to have at every sample.
    premises:   pairs of sides known to be equal for every theta.
    """

    parameters: tuple[str, ...] = ()
    functions: tuple[tuple[str, tuple[str, ...]], ...] = ()
    on_policy: bool = False
    given: tuple[tuple[str, ExpPoly], ...] = ()
    premises: tuple[tuple[Side, Side], ...] = ()

    @cached_property
    def function_arguments(self) -> dict[str, tuple[str, ...]]:
        return dict(self.functions)

    def is_sample(self, name: str) -> bool:
        """Does the variable change from sample to sample?"""
        return name not in self.parameters

    def check(self, element: ExpPoly, slots: Iterable[str] = WHOLE) -> None:
        """Refuse undeclared names, foreign slots, and division by anything but a parameter or a length."""
        for name in element.names():
            if name in self.parameters:
                continue
            parsed = parse_name(name)
            if parsed.slot not in slots:
                raise Refused(f"unknown slot {parsed.slot!r} in {name!r}")
            function = parsed.base in self.function_arguments
            if not function and (parsed.base not in SAMPLE_BASES or parsed.primes):
                raise Refused(f"unknown name {name!r}")
        for name in element.inverted():
            if name not in (*self.parameters, "length"):
                raise Refused(f"division by the random variable {name}: only parameters divide")

    def is_constant(self, element: ExpPoly) -> bool:
        return not any(self.is_sample(name) for name in element.names())

    def to_json(self) -> dict[str, Any]:
        return {
            "parameters": list(self.parameters),
            "functions": {name: list(args) for name, args in self.functions},
            "on_policy": self.on_policy,
            "given": {name: value.to_json() for name, value in self.given},
            "premises": [[left.to_json(), right.to_json()] for left, right in self.premises],
        }

    @staticmethod
    def from_json(data: Any) -> Context:
        keys = {"parameters", "functions", "on_policy", "given", "premises"}
        if not isinstance(data, dict) or set(data) != keys or not isinstance(data["on_policy"], bool):
            raise Refused(f"context: the keys {sorted(keys)} expected")
        names = data["parameters"]
        if not isinstance(names, list) or len(set(names)) != len(names):
            raise Refused("context: parameters: a list of distinct names expected")
        parameters = tuple(names)
        for name in (*parameters, *data["functions"]):
            if parse_name(name) != Name(name, 0, "x", False) or name in SAMPLE_BASES:
                raise Refused(f"context: {name!r} cannot be declared")
        for name, arguments in data["functions"].items():
            if not isinstance(arguments, list) or not set(arguments) <= {"k1", "w", "log_q"}:
                raise Refused(f"context: {name} may depend on k1, w and log_q only")
        if set(parameters) & set(data["functions"]):
            raise Refused("context: a name is declared twice")
        return Context(
            parameters=parameters,
            functions=tuple((name, tuple(args)) for name, args in sorted(data["functions"].items())),
            on_policy=data["on_policy"],
            given=tuple((n, ExpPoly.from_json(v)) for n, v in sorted(data["given"].items())),
            premises=tuple((Side.from_json(a), Side.from_json(b)) for a, b in data["premises"]),
        )


# ---------------------------------------------------------------------------- atoms
@dataclass(frozen=True)
class E:
    """E_m[a s...s]."""

    measure: str
    coefficient: ExpPoly
    score: Score = ()

    def to_json(self) -> list[Any]:
        return ["E", self.measure, self.coefficient.to_json(), list(self.score)]


@dataclass(frozen=True)
class ExpectedGradient:
    """E_m[grad L], the gradient taken at each sample with sg(.) held constant."""

    measure: str
    loss: ExpPoly

    def to_json(self) -> list[Any]:
        return ["expected gradient", self.measure, self.loss.to_json()]


@dataclass(frozen=True)
class Point:
    """a s...s at one sample."""

    coefficient: ExpPoly
    score: Score = ()

    def to_json(self) -> list[Any]:
        return ["point", self.coefficient.to_json(), list(self.score)]


@dataclass(frozen=True)
class PointGradient:
    """grad L at one sample."""

    loss: ExpPoly

    def to_json(self) -> list[Any]:
        return ["point gradient", self.loss.to_json()]


@dataclass(frozen=True)
class Divergence:
    """KL(a||b), chi2(a||b) or Jeffreys' J(a, b) between two of q, p, mu."""

    kind: str
    first: str
    second: str

    def to_json(self) -> list[Any]:
        return ["divergence", self.kind, self.first, self.second]


@dataclass(frozen=True)
class Covariance:
    """Cov_m(a, b); the variance when a = b."""

    measure: str
    first: ExpPoly
    second: ExpPoly

    def to_json(self) -> list[Any]:
        return ["covariance", self.measure, self.first.to_json(), self.second.to_json()]


@dataclass(frozen=True)
class Bregman:
    """phi(r) - phi(1) - phi'(1)(r - 1), phi given as an exponential polynomial in k1 = -log r."""

    phi: ExpPoly

    def to_json(self) -> list[Any]:
        return ["bregman", self.phi.to_json()]


@dataclass(frozen=True)
class Gradient:
    """grad of a side that holds no score function."""

    of: Side

    def to_json(self) -> list[Any]:
        return ["gradient", self.of.to_json()]


@dataclass(frozen=True)
class Indexed:
    """E_m[mean_i a s..s] or E_m[sum_t a s..s]; if m is "sample", its value at one i of a batch, or one y."""

    index: str
    measure: str
    coefficient: ExpPoly
    score: Score = ()

    def to_json(self) -> list[Any]:
        return ["indexed", self.index, self.measure, self.coefficient.to_json(), list(self.score)]


@dataclass(frozen=True)
class IndexedGradient:
    """E_m[mean_i grad L] or E_m[sum_t grad L], sg(.) held constant; at one sample if m is "sample"."""

    index: str
    measure: str
    loss: ExpPoly

    def to_json(self) -> list[Any]:
        return ["indexed gradient", self.index, self.measure, self.loss.to_json()]


@dataclass(frozen=True)
class TokenDivergence:
    """E_m[sum_t KL(a(.|y_<t)||b(.|y_<t))], or E_m[sum_t grad KL(..)] with the prefixes held fixed."""

    measure: str
    first: str
    second: str
    gradient: bool = False

    def to_json(self) -> list[Any]:
        return ["token divergence", self.measure, self.first, self.second, int(self.gradient)]


@dataclass(frozen=True)
class Curl:
    """d_v F.u - d_u F.v for the field F = E_m[sum_t grad L]: 0 if F is the gradient of a function."""

    measure: str
    loss: ExpPoly

    def to_json(self) -> list[Any]:
        return ["curl", self.measure, self.loss.to_json()]


@dataclass(frozen=True)
class MeanVariance:
    """Var_m(mean_i a s_i^k) over a batch of n independent samples, a in the slots self and others."""

    measure: str
    coefficient: ExpPoly
    score: Score = ()

    def to_json(self) -> list[Any]:
        return ["variance of a mean", self.measure, self.coefficient.to_json(), list(self.score)]


Named = Divergence | Covariance | Bregman | TokenDivergence | Curl | MeanVariance
Atom = E | ExpectedGradient | Point | PointGradient | Indexed | IndexedGradient | Gradient | Named


def atom_from_json(data: Any) -> Atom:
    """Read one atom; raises Refused on anything malformed."""
    match data:
        case ["E", str() as m, a, list() as score] if m in MEASURES:
            return E(m, ExpPoly.from_json(a), _score(score))
        case ["expected gradient", str() as m, loss] if m in PROBABILITIES:
            return ExpectedGradient(m, ExpPoly.from_json(loss))
        case ["point", a, list() as score]:
            return Point(ExpPoly.from_json(a), _score(score))
        case ["point gradient", loss]:
            return PointGradient(ExpPoly.from_json(loss))
        case ["divergence", str() as kind, str() as a, str() as b] if (
            kind in DIVERGENCES and a in PROBABILITIES and b in PROBABILITIES
        ):
            return Divergence(kind, a, b)
        case ["covariance", str() as m, a, b] if m in PROBABILITIES:
            return Covariance(m, ExpPoly.from_json(a), ExpPoly.from_json(b))
        case ["bregman", phi]:
            return Bregman(ExpPoly.from_json(phi))
        case ["gradient", side]:
            return Gradient(Side.from_json(side))
        case ["indexed", str() as index, str() as m, a, list() as score] if _is_indexed(index, m):
            return Indexed(index, m, ExpPoly.from_json(a), _score(score, index))
        case ["indexed gradient", str() as index, str() as m, loss] if _is_indexed(index, m):
            return IndexedGradient(index, m, ExpPoly.from_json(loss))
        case ["token divergence", str() as m, str() as a, str() as b, 0 | 1 as gradient] if {m, a, b} <= set(
            PROBABILITIES
        ):
            return TokenDivergence(m, a, b, bool(gradient))
        case ["curl", str() as m, loss] if m in PROBABILITIES:
            return Curl(m, ExpPoly.from_json(loss))
        case ["variance of a mean", str() as m, a, list() as score] if m in PROBABILITIES:
            return MeanVariance(m, ExpPoly.from_json(a), _score(score, "i"))
    raise Refused(f"unknown atom {json.dumps(data)[:80]}")


def _is_indexed(index: str, measure: str) -> bool:
    return index in SLOTS and measure in (*PROBABILITIES, SAMPLE)


def _score(data: list[Any], index: str = "") -> Score:
    slots = SLOTS.get(index, WHOLE)
    if not all(is_score(slot, index) if index else slot in slots for slot in data):
        raise Refused(f"score: a list of slots among {list(slots)} expected, got {str(data)[:60]}")
    return tuple(sorted(data))


# ---------------------------------------------------------------------------- sides
@dataclass(frozen=True)
class Side:
    """A linear combination of products of atoms, in canonical form: sorted (coefficient, atoms).

    Lone expectations absorb their coefficients and merge: E_m[a] + c E_m[b] is E_m[a + c b].
    """

    terms: tuple[tuple[ExpPoly, tuple[Atom, ...]], ...] = field(default=())

    @staticmethod
    def of(*terms: tuple[ExpPoly | Number, tuple[Atom, ...]]) -> Side:
        return Side(_canonical(terms))

    @staticmethod
    def atom(atom: Atom) -> Side:
        return Side.of((ONE, (atom,)))

    @staticmethod
    def constant(value: ExpPoly | Number) -> Side:
        return Side.of((value, ()))

    def __add__(self, other: Side) -> Side:
        return Side.of(*self.terms, *other.terms)

    def __sub__(self, other: Side) -> Side:
        return self + other * -1

    def __mul__(self, scale: ExpPoly | Number) -> Side:
        return Side.of(*((scale * c, atoms) for c, atoms in self.terms))

    __rmul__ = __mul__

    def __neg__(self) -> Side:
        return self * -1

    def times(self, other: Side) -> Side:
        return Side.of(*((c * d, a + b) for c, a in self.terms for d, b in other.terms))

    @cached_property
    def _json(self) -> list[Any]:
        return [[c.to_json(), [atom.to_json() for atom in atoms]] for c, atoms in self.terms]

    def to_json(self) -> list[Any]:
        return self._json

    @staticmethod
    def from_json(data: Any) -> Side:
        if not isinstance(data, list):
            raise Refused(f"a side: a list of terms expected, got {str(data)[:60]}")
        rows = []
        for row in data:
            if not isinstance(row, list) or len(row) != 2 or not isinstance(row[1], list):
                raise Refused(f"a side: [coefficient, atoms] expected, got {str(row)[:60]}")
            atoms = tuple(atom_from_json(item) for item in row[1])
            rows.append((ExpPoly.from_json(row[0]), atoms))
        return Side.of(*rows)


def _is_canonical(coefficient: ExpPoly | Number, atoms: tuple[Atom, ...]) -> bool:
    """One atom with the coefficient one, and nothing to merge."""
    if len(atoms) != 1 or not (isinstance(coefficient, ExpPoly) and coefficient == ONE):
        return False
    return not isinstance(atoms[0], Linear) or bool(atoms[0].coefficient)


Linear = E | Point | Indexed  # linear in their coefficients, so that they merge


def _shape(atom: E | Point | Indexed) -> tuple[str, str, Score]:
    """What atoms that merge have in common."""
    index = atom.index if isinstance(atom, Indexed) else "E" if isinstance(atom, E) else ""
    return index, "" if isinstance(atom, Point) else atom.measure, atom.score


def with_coefficient(atom: E | Point | Indexed, a: ExpPoly) -> E | Point | Indexed:
    """The same atom with another coefficient."""
    return replace(atom, coefficient=a)


@lru_cache(maxsize=8192)
def _sort_key(atom: Atom) -> str:
    return json.dumps(atom.to_json(), separators=(",", ":"))


def _canonical(
    terms: Iterable[tuple[ExpPoly | Number, tuple[Atom, ...]]],
) -> tuple[tuple[ExpPoly, tuple[Atom, ...]], ...]:
    terms = tuple(terms)
    if not terms or (len(terms) == 1 and _is_canonical(*terms[0])):
        return terms  # type: ignore[return-value]
    lone: dict[tuple[str, str, Score], tuple[Any, ExpPoly]] = {}  # shape -> an atom, the coefficient
    others: dict[tuple[Atom, ...], ExpPoly] = {}
    for raw, atoms in terms:
        coefficient = raw if isinstance(raw, ExpPoly) else ExpPoly.number(raw)
        atom = atoms[0] if len(atoms) == 1 else None
        if isinstance(atom, Linear):
            key = _shape(atom)
            lone[key] = (atom, lone.get(key, (atom, ZERO))[1] + coefficient * atom.coefficient)
        else:
            scale, ordered = _monic(atoms) if len(atoms) > 1 else (1, atoms)
            others[ordered] = others.get(ordered, ZERO) + coefficient * scale
    result: list[tuple[ExpPoly, tuple[Atom, ...]]] = [
        (ONE, (with_coefficient(atom, a),)) for atom, a in lone.values() if a
    ]
    result.extend((c, atoms) for atoms, c in others.items() if c)
    if len(result) > 1:
        result.sort(key=lambda term: [_sort_key(atom) for atom in term[1]])
    return tuple(result)


def _monic(atoms: tuple[Atom, ...]) -> tuple[Number, tuple[Atom, ...]]:
    """In a product, pull each expectation's leading rational out, and sort the factors."""
    scale: Number = 1
    factors: list[Atom] = []
    for atom in atoms:
        if isinstance(atom, E | Indexed) and atom.coefficient:
            lead = atom.coefficient.terms[min(atom.coefficient.terms)]
            scale = scale * lead
            atom = with_coefficient(atom, atom.coefficient * ExpPoly.number(lead).inverse())
        elif isinstance(atom, E | Indexed):
            scale = 0
        factors.append(atom)
    if len(factors) > 1:
        factors.sort(key=_sort_key)
    return scale, tuple(factors)


# ---------------------------------------------------------------------------- statements
@dataclass(frozen=True)
class Statement:
    """`left relation right` in a context; the relation is "=" or "<="."""

    left: Side
    right: Side
    context: Context = Context()
    relation: str = "="


def measures(side: Side) -> set[str]:
    """Every measure that a side mentions."""
    found: set[str] = set()
    for _, atoms in side.terms:
        for atom in atoms:
            match atom:
                case E() | ExpectedGradient() | Covariance() | MeanVariance() | Curl():
                    found.add(atom.measure)
                case Indexed(_, m, _, _) | IndexedGradient(_, m, _) if m != SAMPLE:
                    found.add(m)
                case Divergence(_, a, b):
                    found |= {a, b}
                case TokenDivergence(m, a, b, _):
                    found |= {m, a, b}
                case Gradient(of):
                    found |= measures(of)
    return found


def elements(side: Side) -> Iterator[ExpPoly]:
    """Every exponential polynomial that a side mentions."""
    return (element for element, _ in slotted(side))


def slotted(side: Side) -> Iterator[tuple[ExpPoly, tuple[str, ...]]]:
    """Every exponential polynomial that a side mentions, with the slots that it may speak of."""
    for coefficient, atoms in side.terms:
        yield coefficient, WHOLE
        for atom in atoms:
            match atom:
                case E(_, a, _) | ExpectedGradient(_, a) | Point(a, _) | PointGradient(a) | Bregman(a):
                    yield a, WHOLE
                case Covariance(_, a, b):
                    yield from ((a, WHOLE), (b, WHOLE))
                case Indexed(index, _, a, _) | IndexedGradient(index, _, a):
                    yield a, SLOTS[index]
                case Curl(_, a):
                    yield a, SLOTS["t"]
                case MeanVariance(_, a, _):
                    yield a, SLOTS["i"]
                case Gradient(of):
                    yield from slotted(of)
