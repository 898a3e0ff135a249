"""Shorthand for what stands at an index of a batch or a sequence, shared by the kernel's tests."""

from __future__ import annotations

from typing import Any

from klsym.kernel.ring import ExpPoly
from klsym.kernel.slots import name_in_slot
from klsym.kernel.statements import Atom, Side
from support.certificates.faulty_certificates import LOG, V, mean, plain

PARAMETERS = ("beta", "nu", "n", "m", "a", "lam")
n = V("n")


def at(slot: str, of: ExpPoly) -> ExpPoly:
    """What is said of one sample, said of a slot."""
    return of.rename(lambda name: name if name in PARAMETERS else name_in_slot(name, slot))


def past(of: ExpPoly) -> ExpPoly:
    return at("past", of)


def now(of: ExpPoly) -> ExpPoly:
    return at("now", of)


def future(of: ExpPoly) -> ExpPoly:
    return at("future", of)


def own(of: ExpPoly) -> ExpPoly:
    return at("self", of)


def other(of: ExpPoly) -> ExpPoly:
    return at("other", of)


def others(of: ExpPoly) -> ExpPoly:
    return at("others", of)


def rest(of: ExpPoly) -> ExpPoly:
    return at("rest", of)


def sum_t(measure: str, of: ExpPoly, *score: str) -> Side:
    return mean("t", measure, of, *score)


def mean_i(measure: str, of: ExpPoly, *score: str) -> Side:
    return mean("i", measure, of, *score)


def token_KL(measure: str, first: str, second: str) -> Side:
    """E_m[sum_t KL(a||b) of the next token], written out."""
    weight = (LOG[first] - LOG[measure]).exp()
    return sum_t(measure, now(weight * (LOG[first] - LOG[second])))


def spread(measure: str, mine: ExpPoly, yours: ExpPoly, *score: str) -> Side:
    """Var(mean_i X_i) written out, with X_j beside X_i as given."""
    both = [*score, *(z.replace("self", "other") for z in score)]
    single = mean_i(measure, mine, *score)
    pair = mean("ij", measure, mine * yours, *both)
    return (
        mean_i(measure, mine * mine, *score, *score) * n.invert()
        + pair * (1 - n.invert())
        - single.multiply(single)
    )


def lone(side: Side) -> Atom:
    """The single atom of a side."""
    ((_, (atom,)),) = side.terms
    return atom


def only(side: Side, **data: Any) -> tuple[Atom, dict[str, Any]]:
    """The single atom of a side, and the data of a rule."""
    return lone(side), plain(data)
