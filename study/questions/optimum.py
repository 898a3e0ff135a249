"""Where training ends: the stationary policies of E_q[R] - beta (penalty), all of them.  Untrusted.

The field of the penalty is E_q[c s] with c = c(k1, w, log q), so a policy is stationary where

    C_j(k_j) = R_j - beta c_j(k_j) = nu  on its support,      sum_j p_j exp(k_j) = 1

with one number nu.  On each piece on which c_j is monotone, nu fixes k_j (`engine.outcomes`).  A choice of
pieces has a mass S(nu), and the stationary policies are the roots of S = 1 (`engine.questions.roots`).

The logits follow dtheta_j/dt = q_j (C_j - sum q C).  At a root its Jacobian is F diag(C_j'/q_j) F with the
Fisher matrix F, so that it is stable if no C_j' is positive, or one is and S' > 0 (Debreu's criterion).

On the boundary q_j goes to 0, and q_j C_j to -a_j.  If all a_j are 0, an outcome stays away where C_j < nu.
If a = sum a_j > 0, all other logits drift: on a face of m outcomes they come to rest, relative to each
other, where C_j - a/(m q_j) is one number.

>>> from klsym.language.convert import to_ring
>>> from klsym.language.expressions import k1
>>> found = find_optimum(to_ring(k1), 1.0, [1.0, 0.0], [0.5, 0.5])
>>> [round(x, 6) for x in found.stationary[0].policy], found.unique, found.complete
([0.731059, 0.268941], True, True)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations

from klsym.errors import UsageError
from klsym.kernel.ring import ExpPoly
from klsym.study.questions.outcomes import Number, Outcome
from klsym.study.questions.roots import StationaryPoint, find_roots


@dataclass(frozen=True)
class Stationary:
    """A policy at which the expected update is 0, with R - beta c = nu on its support.

    multiplier: nu; None on a face on which all logits rise at one rate.  stable: None: not decided.
    errors: a bound of the error of each probability; None: not decided.
    """

    policy: tuple[float, ...]
    multiplier: float | None
    stable: bool | None
    errors: tuple[float, ...] | None = None

    def to_json(self) -> dict[str, object]:
        return {"policy": list(self.policy), "multiplier": self.multiplier, "stable": self.stable}


@dataclass(frozen=True)
class Optimum:
    """All stationary policies inside the simplex, and the attracting policies on its boundary.

    complete: no other interior policy is stationary (False: there are more, None: not decided).
    boundary_complete: no other policy on the boundary attracts, or None.  continua: supports whose
    stationary policies are not isolated.
    """

    stationary: tuple[Stationary, ...]
    boundary: tuple[Stationary, ...]
    complete: bool | None
    boundary_complete: bool | None = True
    continua: tuple[tuple[int, ...], ...] = ()

    @property
    def unique(self) -> bool | None:
        """Is exactly one interior policy stationary?  None: not decided."""
        if self.complete is None:
            return None
        return self.complete and len(self.stationary) == 1


def find_optimum(
    c: ExpPoly,
    beta: Number,
    rewards: Sequence[Number],
    reference: Sequence[Number],
    behaviour: Sequence[Number] | None = None,
    reward_errors: Sequence[float] | None = None,
) -> Optimum:
    """The stationary policies of rewards less beta times a penalty with the score coefficient c.

    c: in k1, w and log q, without parameters.  rewards, reference, behaviour: one number an outcome; the
    last two are probabilities.  reward_errors: bounds of the errors of rewards that were computed.  Raises
    UsageError: a coefficient with other names, more than 20,000 choices of pieces.
    """
    foreign = c.names() - {"k1", "w", "log_q"}
    if foreign:
        raise UsageError(f"optimum: a number for {min(foreign)} expected")
    errors = reward_errors or (0.0,) * len(rewards)
    outcomes = [
        Outcome(substitute_outcome(c, p, mu), beta, reward, p, reward_error=error)
        for reward, p, mu, error in zip(rewards, reference, behaviour or reference, errors, strict=True)
    ]
    everything = tuple(range(len(outcomes)))
    inside = find_roots(outcomes)
    edge = _Boundary(outcomes)
    for size in range(1, len(outcomes)):
        for face in combinations(everything, size):
            edge.search(face)
    continua = (everything,) if inside.complete is False else tuple(edge.continua)
    stationary = tuple(_build_stationary(outcomes, everything, point) for point in inside.points)
    return Optimum(stationary, tuple(edge.attractors), inside.complete, edge.complete, continua=continua)


def substitute_outcome(c: ExpPoly, p: Number, mu: Number) -> ExpPoly:
    """w = k1 + log p/mu and log q = k1 + log p, the logs as the rationals that floats are."""
    k1 = ExpPoly.from_variable("k1")
    values = {"w": Fraction(math.log(p) - math.log(mu)) if p != mu else 0, "log_q": Fraction(math.log(p))}
    return c.substitute({name: k1 + value for name, value in values.items()})


def _build_stationary(outcomes: list[Outcome], face: tuple[int, ...], point: StationaryPoint) -> Stationary:
    masses = [outcomes[j].compute_mass(k) for j, k in zip(face, point.logs, strict=True)]
    policy = [0.0] * len(outcomes)
    errors = [0.0] * len(outcomes)
    for j, mass, error in zip(face, masses, point.errors or masses, strict=True):
        policy[j], errors[j] = mass / sum(masses), error
    return Stationary(tuple(policy), point.nu, point.stable, tuple(errors) if point.errors else None)


class _Boundary:
    """The attracting policies of one face after the other."""

    def __init__(self, outcomes: list[Outcome]) -> None:
        self.outcomes = outcomes
        self.attractors: list[Stationary] = []
        self.continua: list[tuple[int, ...]] = []
        self.complete: bool | None = True

    def search(self, face: tuple[int, ...]) -> None:
        """Look for policies with mass on these outcomes alone."""
        away = [o for j, o in enumerate(self.outcomes) if j not in face]
        pushes = [o.push for o in away]
        if min(pushes) < 0:
            return  # an outcome that is left comes back
        if any(pushes):
            return self._search_with_drift(face, sum(pushes))
        if any(o.far == math.inf for o in away):
            return None
        result = find_roots([self.outcomes[j] for j in face], unstable=False)
        if result.complete is None:
            self.complete = None
        if result.complete is False and all(o.far < result.nu for o in away):
            self.continua.append(face)
        for point in result.points:
            below = [_is_below(o, [self.outcomes[j] for j in face], point.nu) for o in away]
            self._add_attractor(face, point, _is_true_of_all([*below, point.stable]))
        return None

    def _search_with_drift(self, face: tuple[int, ...], push: float) -> None:
        """The other logits rise at the rate push/m."""
        if len(face) == 1:
            one = self.outcomes[face[0]]
            top = StationaryPoint((-one.log_p,), one.level_at_one, True, (0.0,))
            return self._add_attractor(face, top, True)
        if push == math.inf:
            return None  # the larger of two probabilities grows
        result = find_roots([self.outcomes[j].add_drift(push / len(face)) for j in face], unstable=False)
        if result.complete is not True:
            self.complete = None
        for point in result.points:
            drifting = StationaryPoint(point.logs, None, point.stable, point.errors)
            self._add_attractor(face, drifting, point.stable)
        return None

    def _add_attractor(self, face: tuple[int, ...], point: StationaryPoint, stable: bool | None) -> None:
        if stable is not False:
            stationary = _build_stationary(self.outcomes, face, point)
            self.attractors.append(replace(stationary, stable=stable))


def _is_below(away: Outcome, on: list[Outcome], nu: float | None) -> bool | None:
    """Is the level of an outcome, as its q goes to 0, below nu?"""
    assert nu is not None
    constant = [o for o in on if not o.pieces]
    if constant and not away.pieces:  # nu is a constant level, too
        gap = away.compare_levels(constant[0])
        return None if gap is None else gap < 0
    scale = 1e-12 * (1 + abs(nu) + abs(away.reward) + max(abs(o.reward) for o in on))
    scale += away.reward_error + max(o.reward_error for o in on)
    return None if abs(away.far - nu) <= scale else away.far < nu


def _is_true_of_all(answers: list[bool | None]) -> bool | None:
    """True if all are, False if one is not, None if it is not decided."""
    return False if False in answers else None if None in answers else True
