"""Where training ends: the stationary policies of E_q[R] - beta (penalty), all of them.  Untrusted.

The field of the penalty is E_q[c s] with c = c(k1, w, log q), so a policy is stationary where

    R_j - beta c_j(k_j) = nu  on its support,      sum_j p_j exp(k_j) = 1

with one number nu.  Each c_j falls into pieces on which it is monotone (branches.stretches: the zeros of its
slope are enclosed), so that nu fixes k_j on each piece.  A choice of pieces has a mass S(nu), and the
stationary policies are the roots of S = 1.  Where all pieces rise, S falls and there is at most one.
Elsewhere an interval of nu is left out if the bounds of S over it, those of its ends, do not meet 1.

>>> from klsym.convert import to_ring
>>> from klsym.language import k1
>>> found = optimum(to_ring(k1), 1.0, [1.0, 0.0], [0.5, 0.5])
>>> [round(x, 6) for x in found.stationary[0].policy], found.unique, found.complete
([0.731059, 0.268941], True, True)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import numpy as np

from klsym.engine.branches import stretches
from klsym.engine.generators import limit, slope
from klsym.errors import UsageError
from klsym.ring import ExpPoly

CHOICES = 20_000  # of pieces, for all outcomes together
CELLS = 20_000  # intervals of nu that are looked at for one choice
NARROW = 1e-13  # width of nu, relative to its range, below which an interval is taken for a root
SAME = 1e-6  # policies nearer than this are one
FLAT = 1e-6  # eigenvalues nearer to 0 decide nothing
DEEPEST = -700.0  # log q/p below which a policy has left an outcome


@dataclass(frozen=True)
class Stationary:
    """A policy at which the expected update is 0, with R - beta c = nu on its support."""

    policy: tuple[float, ...]
    multiplier: float
    stable: bool

    def to_json(self) -> dict[str, object]:
        return {"policy": list(self.policy), "multiplier": self.multiplier, "stable": self.stable}


@dataclass(frozen=True)
class Optimum:
    """All stationary policies inside the simplex, and those on its boundary that attract.

    complete: no other interior policy is stationary.  unique: complete, and just one.
    """

    stationary: tuple[Stationary, ...]
    boundary: tuple[Stationary, ...]
    complete: bool

    @property
    def unique(self) -> bool:
        return self.complete and len(self.stationary) == 1


@dataclass(frozen=True)
class Piece:
    """An interval of k = log q/p on which c is monotone."""

    lower: float
    upper: float
    rising: bool


class Outcome:
    """What nu says about one outcome: level(k) = R - beta c(k), and its inverse on each piece."""

    def __init__(self, c: ExpPoly, beta: float, reward: float, p: float) -> None:
        self.beta, self.reward, self.log_p = beta, reward, math.log(p)
        self.terms, self.slopes = _in_floats(c), _in_floats(slope(c))
        self.pieces = tuple(_pieces(c, -self.log_p))
        self.far = reward - beta * limit(c) if beta else reward

    def level(self, k: float) -> float:
        return self.reward - self.beta * _value(self.terms, k)

    def rate(self, k: float) -> float:
        """d level/dk."""
        return -self.beta * _value(self.slopes, k)

    def at(self, piece: Piece, nu: float) -> float:
        """k on the piece with level(k) = nu, by bisection."""
        falling = piece.rising == (self.beta > 0)
        low, high = piece.lower, piece.upper
        for _ in range(200):
            middle = (low + high) / 2
            if middle in (low, high):
                break
            if (self.level(middle) > nu) == falling:
                low = middle
            else:
                high = middle
        return (low + high) / 2

    def levels(self, piece: Piece) -> tuple[float, float]:
        ends = self.level(piece.lower), self.level(piece.upper)
        return min(ends), max(ends)


# ---------------------------------------------------------------------------- one outcome
Terms = list[tuple[float, int, float]]  # c k^n exp(a k)


def _in_floats(c: ExpPoly) -> Terms:
    found: Terms = []
    for (monomial, exponent), value in c.terms.items():
        shift = float(dict(exponent).get((), 0))
        rate = float(dict(exponent).get((("k1", 1),), 0))
        found.append((float(value) * math.exp(shift), dict(monomial).get("k1", 0), rate))
    return found


def _value(terms: Terms, k: float) -> float:
    total = 0.0
    for c, n, a in terms:
        total += c * k**n * math.exp(min(a * k, 700.0))
    return total


def coefficient_at(c: ExpPoly) -> Callable[[Any], Any]:
    """A coefficient in k1 alone as a function of arrays."""
    terms = _in_floats(c)
    return lambda k: sum(value * k**n * np.exp(a * k) for value, n, a in terms)


def _pieces(c: ExpPoly, top: float) -> Iterator[Piece]:
    """Between the zeros of dc/dk, up to q = 1."""
    rising = slope(c)
    if not rising:
        return
    if not rising.names():
        yield Piece(DEEPEST, top, next(iter(rising.terms.values())) > 0)
        return
    found = stretches(rising)
    if found is None:
        raise UsageError("the zeros of the slope of the coefficient cannot be enclosed")
    for sign, (lower, upper) in found:
        low = DEEPEST if lower is None else float((lower[0] + lower[1]) / 2)
        high = top if upper is None else min(top, float((upper[0] + upper[1]) / 2))
        if low < high:
            yield Piece(low, high, sign > 0)


# ---------------------------------------------------------------------------- all outcomes
def optimum(
    c: ExpPoly,
    beta: float,
    rewards: Sequence[float],
    reference: Sequence[float],
    behaviour: Sequence[float] | None = None,
) -> Optimum:
    """The stationary policies of rewards less beta times a penalty with the score coefficient c.

    c: in k1, w and log q, without parameters.  rewards, reference, behaviour: one number an outcome; the
    last two are probabilities.  Raises UsageError: a coefficient with other names, more than 20,000 choices
    of branches.
    """
    foreign = c.names() - {"k1", "w", "log_q"}
    if foreign:
        raise UsageError(f"optimum: a number for {min(foreign)} expected")
    behaviour = reference if behaviour is None else behaviour
    outcomes = [
        Outcome(_at_outcome(c, p, mu), beta, reward, p)
        for reward, p, mu in zip(rewards, reference, behaviour, strict=True)
    ]
    everything = tuple(range(len(outcomes)))
    inside, complete = _interior(outcomes, everything)
    boundary = []
    for size in range(1, len(outcomes)):
        for face in combinations(everything, size):
            boundary += [found for found in _interior(outcomes, face)[0] if _attracts(found, outcomes, face)]
    return Optimum(tuple(inside), tuple(boundary), complete)


def _at_outcome(c: ExpPoly, p: float, mu: float) -> ExpPoly:
    """w = k1 + log p/mu and log q = k1 + log p, the logs as the rationals that floats are."""
    k1 = ExpPoly.variable("k1")
    values = {"w": Fraction(math.log(p) - math.log(mu)), "log_q": Fraction(math.log(p))}
    return c.substitute({name: k1 + value for name, value in values.items()})


def _interior(outcomes: list[Outcome], face: tuple[int, ...]) -> tuple[list[Stationary], bool]:
    """The stationary policies that put mass on just these outcomes; are they all?"""
    on = [outcomes[j] for j in face]
    if len(face) == 1:
        top = -on[0].log_p
        return [_stationary(outcomes, face, [top], on[0].level(top))], True
    if not any(o.pieces for o in on):  # no penalty: rewards alone decide
        return [], len({o.reward for o in on}) > 1
    if math.prod(len(o.pieces) for o in on) > CHOICES:
        raise UsageError(f"optimum: more than {CHOICES} choices of branches: fewer outcomes expected")
    low, high = _range_of_nu(on)
    found: list[Stationary] = []
    complete = all(o.pieces for o in on)
    for choice in product(*(o.pieces for o in on)):
        bounds = [o.levels(piece) for o, piece in zip(on, choice, strict=True)]
        lower, upper = max([low, *(b[0] for b in bounds)]), min([high, *(b[1] for b in bounds)])
        if lower > upper:
            continue
        roots, all_found = _roots(on, choice, lower, upper)
        complete = complete and all_found
        for nu in roots:
            logs = [o.at(piece, nu) for o, piece in zip(on, choice, strict=True)]
            found.append(_stationary(outcomes, face, logs, nu))
    return _distinct(found), complete


def _distinct(found: list[Stationary]) -> list[Stationary]:
    """Two choices of pieces meet where a slope is 0."""
    kept: list[Stationary] = []
    for one in sorted(found, key=lambda s: s.policy):
        gaps = (max(abs(a - b) for a, b in zip(one.policy, s.policy, strict=True)) for s in kept)
        if all(gap >= SAME for gap in gaps):
            kept.append(one)
    return kept


def _range_of_nu(on: list[Outcome]) -> tuple[float, float]:
    """Some outcome has between 1/n and all of the mass, and its level there is nu."""
    levels = []
    for o in on:
        low, high = -o.log_p - math.log(len(on)), -o.log_p
        turns = [k for piece in o.pieces for k in (piece.lower, piece.upper) if low < k < high]
        levels += [o.level(k) for k in (low, *turns, high)]
    margin = 1e-9 * (1 + max(map(abs, levels)))
    return min(levels) - margin, max(levels) + margin


def _mass(on: list[Outcome], choice: tuple[Piece, ...], nu: float) -> list[float]:
    return [math.exp(o.log_p + o.at(piece, nu)) for o, piece in zip(on, choice, strict=True)]


def _roots(
    on: list[Outcome], choice: tuple[Piece, ...], lower: float, upper: float
) -> tuple[list[float], bool]:
    """nu with mass 1 for one choice of pieces; are they all?"""
    ends = [(nu, _mass(on, choice, nu)) for nu in (lower, upper)]
    near = [nu for nu, mass in ends if abs(sum(mass) - 1) < 1e-9]
    if len({piece.rising for piece in choice}) == 1:
        first, last = (sum(mass) - 1 for _, mass in ends)
        return (near or ([_bisected(on, choice, lower, upper)] if first * last < 0 else [])), True
    width, cells = upper - lower, [(*ends[0], *ends[1])]
    narrow: list[tuple[float, float, float, float]] = []
    for _ in range(CELLS):
        if not cells:
            break
        a, at_a, b, at_b = cells.pop()
        least = sum(map(min, at_a, at_b)) - 1
        most = sum(map(max, at_a, at_b)) - 1
        if least > 1e-12 or most < -1e-12:
            continue
        if b - a <= NARROW * max(width, abs(lower), abs(upper)):
            narrow.append((a, sum(at_a) - 1, b, sum(at_b) - 1))
            continue
        middle = (a + b) / 2
        at_middle = _mass(on, choice, middle)
        cells += [(a, at_a, middle, at_middle), (middle, at_middle, b, at_b)]
    roots, crossed = _joined(narrow)
    return near + roots, crossed and not cells


def _joined(narrow: list[tuple[float, float, float, float]]) -> tuple[list[float], bool]:
    """One root for each run of narrow intervals that touch; does S cross 1 in each?"""
    runs: list[tuple[float, float, float, float]] = []
    for a, at_a, b, at_b in sorted(narrow):
        if runs and a <= runs[-1][2]:
            runs[-1] = (*runs[-1][:2], b, at_b)
        else:
            runs.append((a, at_a, b, at_b))
    return [(a + b) / 2 for a, _, b, _ in runs], all(at_a * at_b <= 0 for _, at_a, _, at_b in runs)


def _bisected(on: list[Outcome], choice: tuple[Piece, ...], low: float, high: float) -> float:
    before = sum(_mass(on, choice, low)) > 1
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if (sum(_mass(on, choice, middle)) > 1) == before:
            low = middle
        else:
            high = middle
    return (low + high) / 2


# ---------------------------------------------------------------------------- stability
def _stationary(outcomes: list[Outcome], face: tuple[int, ...], logs: list[float], nu: float) -> Stationary:
    masses = [math.exp(outcomes[j].log_p + k) for j, k in zip(face, logs, strict=True)]
    policy = [0.0] * len(outcomes)
    for j, mass in zip(face, masses, strict=True):
        policy[j] = mass / sum(masses)
    rates = [outcomes[j].rate(k) for j, k in zip(face, logs, strict=True)]
    return Stationary(tuple(policy), nu, _is_stable(np.array(masses), np.array(rates)))


def _is_stable(q: np.ndarray, rates: np.ndarray) -> bool:
    """Do all eigenvalues of the Jacobian of q_j (C_j - sum q C) along the logits have a negative real part?

    dC_j = rate_j dlog q_j with dlog q = (1 - 1 q^T) dtheta; a shift of all logits changes nothing.
    """
    if len(q) == 1:
        return True
    centred = np.eye(len(q)) - np.outer(np.ones(len(q)), q)
    jacobian = np.diag(q) @ centred @ np.diag(rates) @ centred
    basis = np.linalg.svd(np.ones((1, len(q))))[2][1:]
    values = np.linalg.eigvals(basis @ jacobian @ basis.T)
    return bool(np.max(values.real) < -FLAT * max(1.0, float(np.max(np.abs(rates)))))


def _attracts(found: Stationary, outcomes: list[Outcome], face: tuple[int, ...]) -> bool:
    """Is it stable on its face, and does mass put elsewhere fall: level below nu as q_j goes to 0?"""
    away = (j for j in range(len(outcomes)) if j not in face)
    return found.stable and all(outcomes[j].far < found.multiplier for j in away)
