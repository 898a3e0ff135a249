"""Shorthand for atoms at an index of a batch or a sequence, shared by the kernel's tests."""

from __future__ import annotations

from drafts import V

from klsym.normal_form import ExpPoly
from klsym.slots import at_slot
from klsym.statements import Curl, Indexed, IndexedGradient, MeanVariance, Side, TokenDivergence

PARAMETERS = ("beta", "nu", "n", "a", "lam")
n, f = V("n"), V("f")


def at(slot: str, of: ExpPoly) -> ExpPoly:
    """What is said of one sample, said of a slot."""
    return of.rename(lambda name: name if name in PARAMETERS else at_slot(name, slot))


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


def at_index(index: str, measure: str, of: ExpPoly, *score: str) -> Side:
    return Side.atom(Indexed(index, measure, of, tuple(sorted(score))))


def sum_t(measure: str, of: ExpPoly, *score: str) -> Side:
    return at_index("t", measure, of, *score)


def mean_i(measure: str, of: ExpPoly, *score: str) -> Side:
    return at_index("i", measure, of, *score)


def gradient_of(index: str, measure: str, loss: ExpPoly) -> Side:
    return Side.atom(IndexedGradient(index, measure, loss))


def token_KL(measure: str, first: str, second: str) -> Side:
    return Side.atom(TokenDivergence(measure, first, second))


def token_gradient_KL(measure: str, first: str, second: str) -> Side:
    return Side.atom(TokenDivergence(measure, first, second, True))


def curl(measure: str, loss: ExpPoly) -> Side:
    return Side.atom(Curl(measure, loss))


def spread(measure: str, of: ExpPoly, *score: str) -> Side:
    return Side.atom(MeanVariance(measure, of, score))
