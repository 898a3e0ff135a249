"""Shorthand for statements about batches and sequences, shared by the tests of the oracle."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from klsym.kernel.names import detach_name
from klsym.kernel.ring import ExpPoly
from klsym.language.abbreviations import (
    Context,
    Curl,
    Divergence,
    E,
    ExpectedGradient,
    Gradient,
    Indexed,
    IndexedGradient,
    MeanVariance,
    Side,
    Statement,
    TokenDivergence,
)

V, HALF = ExpPoly.from_variable, Fraction(1, 2)
ONE, NOTHING = ExpPoly.from_number(1), Side()
n, m, lam = V("n"), V("m"), V("lam")
length = V("length")


def at(name: str, slot: str) -> ExpPoly:
    """A variable in a slot."""
    return V(name if slot == "x" else f"{name}[{slot}]")


def k1(slot: str) -> ExpPoly:
    return at("k1", slot)


def k2(slot: str) -> ExpPoly:
    return k1(slot) * k1(slot) * HALF


def r(slot: str) -> ExpPoly:
    return (-k1(slot)).exp()


def k3(slot: str) -> ExpPoly:
    return r(slot) - 1 + k1(slot)


def rho(slot: str) -> ExpPoly:
    return at("w", slot).exp()


def sg(a: ExpPoly) -> ExpPoly:
    return a.rename(detach_name)


def mean(index: str, measure: str, a: ExpPoly | int, *score: str) -> Side:
    coefficient = a if isinstance(a, ExpPoly) else ExpPoly.from_number(a)
    return Side.from_atom(Indexed(index, measure, coefficient, tuple(sorted(score))))


def over_t(a: ExpPoly | int, *score: str, m: str = "q") -> Side:
    return mean("t", m, a, *score)


def over_i(a: ExpPoly | int, *score: str, m: str = "q") -> Side:
    return mean("i", m, a, *score)


def gradient_over(index: str, loss: ExpPoly, m: str = "q") -> Side:
    return Side.from_atom(IndexedGradient(index, m, loss))


def whole(a: ExpPoly | int, power: int = 0, m: str = "q") -> Side:
    coefficient = a if isinstance(a, ExpPoly) else ExpPoly.from_number(a)
    return Side.from_atom(E(m, coefficient, ("x",) * power))


def whole_gradient(loss: ExpPoly, m: str = "q") -> Side:
    return Side.from_atom(ExpectedGradient(m, loss))


def tokens(a: str, b: str, m: str = "q", gradient: bool = False) -> Side:
    return Side.from_atom(TokenDivergence(m, a, b, gradient))


def curl(loss: ExpPoly, m: str = "q") -> Side:
    return Side.from_atom(Curl("t", m, loss))


def variance(a: ExpPoly, *score: str, m: str = "q") -> Side:
    return Side.from_atom(MeanVariance(m, a, score))


def grad(side: Side) -> Side:
    return Side.from_atom(Gradient(side))


def KL(a: str, b: str) -> Side:
    return Side.from_atom(Divergence("KL", a, b))


REVERSE, FORWARD = grad(KL("q", "p")), grad(KL("p", "q"))


def claim(left: Side, right: Side | int = 0, **setting: Any) -> Statement:
    """left = right, in the setting of a Context."""
    other = Side.from_constant(right) if isinstance(right, int) else right
    return Statement(left, other, Context(**setting))
