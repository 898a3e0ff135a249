"""What claims are written in: names and settings that abbreviate what the kernel proves.  Untrusted.

    KL(a||b) = E_a[log a/b]      chi2(a||b) = E_b[(a/b - 1)^2]      J(a, b) = KL(a||b) + KL(b||a)
    Cov_m(a, b) = E_m[a b] - E_m[a] E_m[b]      D_phi(r, 1) = phi(r) - phi(1) - phi'(1) (r - 1)
    E_m[sum_t KL(a_t||b_t)], the prefixes y_<t drawn from m      Var_m(mean_i X_i), of a batch
    on-policy: mu is a detached copy of q      given: the value of a reward at every sample

They are data, as the atoms of `statements` are; unfolding.py writes them out.  `E`, `Point` and `Indexed` are
kinds of the one atom Mean, to match by.

>>> mean = E("q", ExpPoly.from_variable("k1"))
>>> isinstance(mean, Mean), isinstance(mean, E), isinstance(mean, Point)
(True, True, False)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import klsym.kernel.statements as statements
from klsym.kernel.names import SAMPLE, WHOLE
from klsym.kernel.ring import ExpPoly
from klsym.kernel.slots import SLOTS
from klsym.kernel.statements import Curl as Curl
from klsym.kernel.statements import Gradient as Gradient
from klsym.kernel.statements import Mean as Mean
from klsym.kernel.statements import MeanGradient as MeanGradient
from klsym.kernel.statements import Score as Score
from klsym.kernel.statements import Side as Side


# ---------------------------------------------------------------------------- named quantities
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
class TokenDivergence:
    """E_m[sum_t KL(a(.|y_<t)||b(.|y_<t))], or E_m[sum_t grad KL(..)] with the prefixes held fixed."""

    measure: str
    first: str
    second: str
    gradient: bool = False

    def to_json(self) -> list[Any]:
        return ["token divergence", self.measure, self.first, self.second, int(self.gradient)]


@dataclass(frozen=True)
class MeanVariance:
    """Var_m(mean_i a s_i^k) over a batch of n independent samples, a in the slots self and others."""

    measure: str
    coefficient: ExpPoly
    score: Score = ()

    def to_json(self) -> list[Any]:
        return ["variance of a mean", self.measure, self.coefficient.to_json(), list(self.score)]


NAMED = (Divergence, Covariance, Bregman, TokenDivergence, MeanVariance)
Named = Divergence | Covariance | Bregman | TokenDivergence | MeanVariance
Atom = statements.Atom | Named


# ---------------------------------------------------------------------------- kinds of means
class _Kind(type):
    """A class whose instances are the means of one kind; called, it makes one."""

    def __instancecheck__(cls, item: object) -> bool:
        return isinstance(item, cls.of) and cls.holds(item)  # type: ignore[attr-defined]

    def __call__(cls, *args: Any, **named: Any) -> Any:
        return cls.make(*args, **named)  # type: ignore[attr-defined]


def _make_kind(of: type, *fields: str, index: bool, sample: bool) -> Any:
    """Return a class of means, or mean gradients, with or without an index, at one sample or not."""

    def holds(item: Any) -> bool:
        return bool(item.index) if index else not item.index and (item.measure == SAMPLE) == sample

    def make(*args: Any) -> Any:
        return of(*(() if index else ("",)), *((SAMPLE,) if sample else ()), *args)

    names = {"of": of, "holds": staticmethod(holds), "make": staticmethod(make), "__match_args__": fields}
    return _Kind(of.__name__, (), names)


E: Any = _make_kind(Mean, "measure", "coefficient", "score", index=False, sample=False)
Point: Any = _make_kind(Mean, "coefficient", "score", index=False, sample=True)
Indexed: Any = _make_kind(Mean, "index", "measure", "coefficient", "score", index=True, sample=False)
ExpectedGradient: Any = _make_kind(MeanGradient, "measure", "loss", index=False, sample=False)
PointGradient: Any = _make_kind(MeanGradient, "loss", index=False, sample=True)
IndexedGradient: Any = _make_kind(MeanGradient, "index", "measure", "loss", index=True, sample=False)


# ---------------------------------------------------------------------------- statements
@dataclass(frozen=True)
class Context(statements.Context):
    """What a claim quantifies over, and the setting that it abbreviates.

    on_policy: the sampler mu is q itself, detached.
    given:     variable -> the value it is known to have at every sample, or (as in R[now]) at every step.
    """

    on_policy: bool = False
    given: tuple[tuple[str, ExpPoly], ...] = ()


@dataclass(frozen=True)
class Statement:
    """`left relation right` in a context; the relation is "=" or "<="."""

    left: Side
    right: Side
    context: Context = Context()
    relation: str = "="


# ---------------------------------------------------------------------------- what a side speaks of
def walk_atoms(*sides: Side) -> Iterator[Any]:
    """Return every atom of sides, those under a gradient included."""
    return statements.walk_atoms(*sides)


def collect_measures(side: Side) -> set[str]:
    """Return every measure that a side mentions."""
    names: set[str] = set()
    for atom in walk_atoms(side):
        match atom:
            case Divergence(_, a, b):
                names |= {a, b}
            case TokenDivergence(m, a, b, _):
                names |= {m, a, b}
            case Gradient() | Bregman():
                pass
            case _ if atom.measure != SAMPLE:
                names.add(atom.measure)
    return names


def pair_elements_with_slots(side: Side) -> Iterator[tuple[ExpPoly, tuple[str, ...]]]:
    """Yield every exponential polynomial that a side mentions, with the slots that it may speak of."""
    yield from ((coefficient, WHOLE) for coefficient, _ in side.terms)
    for atom in walk_atoms(side):
        match atom:
            case Mean(index, _, a, _) | MeanGradient(index, _, a) | Curl(index, _, a):
                yield a, SLOTS[index]
            case Gradient(of):
                yield from ((coefficient, WHOLE) for coefficient, _ in of.terms)
            case Bregman(a):
                yield a, WHOLE
            case Covariance(_, a, b):
                yield from ((a, WHOLE), (b, WHOLE))
            case MeanVariance(_, a, _):
                yield a, SLOTS["i"]


def walk_elements(side: Side) -> Iterator[ExpPoly]:
    """Return every exponential polynomial that a side mentions."""
    return (element for element, _ in pair_elements_with_slots(side))


def as_side(atom: Any) -> Side:
    """Return a side of one atom, which may be a named quantity."""
    return Side.from_atom(atom)


def with_coefficient(mean: Mean, a: ExpPoly) -> Mean:
    """Return the same mean with another coefficient."""
    return Mean(mean.index, mean.measure, a, mean.score)
