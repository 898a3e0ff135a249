"""The policies on a support with one level nu: roots of S(nu) = 1, each counted.  Untrusted.

S(nu) = sum_j p_j exp(k_j(nu)) for a choice of one monotone piece an outcome, and S' = sum_j q_j/C_j'.  An
interval of nu is left out where bounds of S over it exclude 1.  Where bounds of S' exclude 0, signs of
S - 1 at both ends count its roots.  Any other interval is halved; one that is too narrow is not decided.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from klsym.errors import UsageError
from klsym.study.questions.outcomes import LOWEST, ROUNDING, Interval, MonotonePiece, Outcome

MAX_CHOICES = 20_000  # of pieces, for all outcomes together
CELLS = 2_000  # intervals of nu of one choice
NARROW = 1e-13  # width of nu, relative to its range, that is not halved
SAME = 1e-6  # error of a policy
APART = 1e-4  # what is not decided is listed if it is farther than this from all others
SURE = 1e-13  # relative rounding error of a sum of masses
PARTS = (0.487, 0.61, 0.353)  # where an interval is cut


@dataclass(frozen=True)
class StationaryPoint:
    """log q/p of each outcome, nu (None: there is none), and whether it is stable (None: not decided).

    errors: a bound of the error of each probability; None: not decided.
    """

    logs: tuple[float, ...]
    nu: float | None
    stable: bool | None
    errors: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Roots:
    """What was found; complete: that is all (False: a continuum at the level nu, None: not decided)."""

    points: tuple[StationaryPoint, ...] = ()
    complete: bool | None = True
    nu: float = math.nan


def find_roots(on: Sequence[Outcome], unstable: bool = True) -> Roots:
    """All policies with one level on these outcomes and mass on each.

    unstable: False leaves those out that are certainly unstable.
    """
    if len(on) == 1:
        return Roots((StationaryPoint((-on[0].log_p,), on[0].level_at_one, True, (0.0,)),))
    if math.prod(len(o.pieces) or 1 for o in on) > MAX_CHOICES:
        raise UsageError(f"optimum: more than {MAX_CHOICES} choices of pieces: fewer outcomes expected")
    if any(not o.pieces for o in on):
        return _find_with_constants(on)
    points: list[StationaryPoint] = []
    doubtful: list[StationaryPoint] = []
    complete = True
    for low, high in _iterate_intervals(on):
        for choice in _iterate_choices(on, low, high, unstable):
            search = _Search(on, choice, low, high)
            search.run()
            points += search.points
            doubtful += search.doubtful
            complete = complete and search.complete
    seen = list(points)
    for point in sorted(doubtful, key=lambda point: _measure_slowness(on, point)):
        if all(_measure_distance(on, point, known_point) > APART for known_point in seen):
            points.append(point)
        seen.append(point)
    points.sort(key=lambda point: [o.compute_mass(k) for o, k in zip(on, point.logs, strict=True)])
    return Roots(tuple(points), True if complete else None)


def _measure_distance(on: Sequence[Outcome], a: StationaryPoint, b: StationaryPoint) -> float:
    return max(abs(o.compute_mass(x) - o.compute_mass(y)) for o, x, y in zip(on, a.logs, b.logs, strict=True))


def _measure_slowness(on: Sequence[Outcome], one: StationaryPoint) -> float:
    """Where levels hardly change, policies are hard to tell apart; the slowest stands for those beside it."""
    return max(max(map(abs, o.bound_rate(k, k))) for o, k in zip(on, one.logs, strict=True))


def _iterate_intervals(on: Sequence[Outcome]) -> Iterator[Interval]:
    """Of nu, cut at the ends of all pieces.

    Some outcome has between 1/n and all of the mass, and its level there is nu.
    """
    levels = []
    for o in on:
        low, high = -o.log_p - math.log(len(on)), -o.log_p
        turns = [k for piece in o.pieces for k in (piece.lower, piece.upper) if low < k < high]
        levels += [o.compute_level(k)[0] for k in (low, *turns, high)]
    margin = 0.01 * (max(levels) - min(levels)) + 1e-9 * max(map(abs, levels))
    first, last = min(levels) - margin, max(levels) + margin
    ends = {nu for o in on for piece in o.pieces for nu in o.list_ends(piece) if first < nu < last}
    cuts = sorted({first, last, *ends})
    yield from pairwise(cuts)


def _iterate_choices(
    on: Sequence[Outcome], low: float, high: float, unstable: bool
) -> Iterator[tuple[MonotonePiece, ...]]:
    """One piece an outcome, such that the masses over this interval may sum to 1."""
    offered: list[list[tuple[MonotonePiece, float, float]]] = []
    for o in on:
        pieces = [p for p in o.pieces if o.list_ends(p)[0] <= low and high <= o.list_ends(p)[1]]
        boxes = [_bound_box(o, p, low, high) for p in pieces]
        offered.append(
            [(p, o.compute_mass(a), o.compute_mass(b)) for p, (a, b) in zip(pieces, boxes, strict=True)]
        )
        if not pieces:
            return
    least_mass = [sum(min(m for _, m, _ in row) for row in offered[j:]) for j in range(len(on) + 1)]
    most_mass = [sum(max(m for _, _, m in row) for row in offered[j:]) for j in range(len(on) + 1)]

    def extend(
        chosen: tuple[MonotonePiece, ...], lower: float, upper: float
    ) -> Iterator[tuple[MonotonePiece, ...]]:
        j = len(chosen)
        if lower + least_mass[j] > 1 + SURE or upper + most_mass[j] < 1 - SURE:
            return
        if not unstable and sum(piece.level_rises for piece in chosen) > 1:
            return
        if j == len(on):
            yield chosen
            return
        for piece, m, upper_mass in offered[j]:
            yield from extend((*chosen, piece), lower + m, upper + upper_mass)

    yield from extend((), 0.0, 0.0)


def _bound_box(o: Outcome, piece: MonotonePiece, low: float, high: float) -> Interval:
    """k on a piece for nu in an interval."""
    ends = (*o.enclose_inverse(piece, low), *o.enclose_inverse(piece, high))
    return min(ends), max(ends)


class _Search:
    """The roots of one choice of pieces in one interval of nu."""

    def __init__(
        self, on: Sequence[Outcome], choice: tuple[MonotonePiece, ...], low: float, high: float
    ) -> None:
        self.on, self.choice, self.low, self.high = on, choice, low, high
        self.pairs = list(zip(on, choice, strict=True))
        self.rising = sum(piece.level_rises for piece in choice)
        self.points: list[StationaryPoint] = []
        self.doubtful: list[StationaryPoint] = []
        self.complete = True

    def run(self) -> None:
        narrow = NARROW * max(self.high - self.low, abs(self.low), abs(self.high))
        cells = [(self.low, self.high)]
        for _ in range(CELLS):
            if not cells:
                return
            low, high = cells.pop()
            boxes = [_bound_box(o, piece, low, high) for o, piece in self.pairs]
            if self._find_side(boxes):
                continue
            slope = self._find_slope_sign(boxes)
            if slope:
                self._count_root(low, high, slope)
            elif high - low <= narrow:
                self._add_doubtful((low + high) / 2)
            else:
                middle = self._choose_cut(low, high)
                cells += [(low, middle), (middle, high)]
        self.complete = False

    def _find_side(self, boxes: list[Interval]) -> int:
        """The sign of S - 1; 0: not certain."""
        lower = sum(o.compute_mass(k) for o, (k, _) in zip(self.on, boxes, strict=True))
        upper = sum(o.compute_mass(k) for o, (_, k) in zip(self.on, boxes, strict=True))
        return 1 if lower > 1 + SURE else -1 if upper < 1 - SURE else 0

    def _find_side_at(self, nu: float) -> int:
        return self._find_side([o.enclose_inverse(piece, nu) for o, piece in self.pairs])

    def _find_side_at_end(self, nu: float) -> int:
        """The same; where one outcome alone has all of the mass, S is more than 1."""
        tops = (o.level_at_one for o, piece in self.pairs if piece.upper == -o.log_p)
        return self._find_side_at(nu) or (1 if nu in tops else 0)

    def _find_slope_sign(self, boxes: list[Interval]) -> int:
        """The sign of S' over the boxes; 0: not certain."""
        if self.rising in (0, len(self.on)):
            return 1 if self.rising else -1
        lower = upper = 0.0
        for (o, piece), (low, high) in zip(self.pairs, boxes, strict=True):
            rates = o.bound_rate(low, high)
            slow, fast = (max(0.0, x) for x in (rates if piece.level_rises else (-rates[1], -rates[0])))
            small, large = (
                o.compute_mass(low) / fast if fast else math.inf,
                o.compute_mass(high) / slow if slow else math.inf,
            )
            lower, upper = (
                (lower + small, upper + large) if piece.level_rises else (lower - large, upper - small)
            )
        return 1 if lower > 0 else -1 if upper < 0 else 0

    def _count_root(self, low: float, high: float, slope: int) -> None:
        """S is monotone here: no root, or one."""
        before, after = self._find_side_at_end(low) * slope, self._find_side_at_end(high) * slope
        if before > 0 or after < 0:
            return
        if before < 0 < after:
            nu = self._find_root(low, high, slope)
            stable = self.rising == 0 or (self.rising == 1 and slope > 0)
            self.complete = self.complete and self._is_exact(nu)
            if self._is_near(nu):
                logs = self._compute_logs(nu)
                errors = self._bound_errors(nu, logs, ends=(low, high))
                self.points.append(StationaryPoint(logs, nu, stable, errors))
        else:
            self._add_doubtful(low if not before else high)

    def _find_root(self, low: float, high: float, slope: int) -> float:
        """By the Illinois method, each third step a bisection, until rounding decides the sign of S - 1."""
        below, above, side = -1.0, 1.0, 0  # weights of the ends: S - 1 there, halved where an end stays
        for number in range(200):
            nu = (low * above - high * below) / (above - below) if number % 3 else (low + high) / 2
            nu = nu if low < nu < high else (low + high) / 2
            if nu in (low, high):
                break
            gap = slope * (self._compute_total(nu) - 1)
            if abs(gap) <= ROUNDING:
                return nu
            if gap > 0:
                high, above, below = nu, gap, below / 2 if side > 0 else below
            else:
                low, below, above = nu, gap, above / 2 if side < 0 else above
            side = 1 if gap > 0 else -1
        return (low + high) / 2

    def _compute_total(self, nu: float) -> float:
        """S(nu) in floats."""
        return sum(o.compute_mass(k) for o, k in zip(self.on, self._compute_logs(nu), strict=True))

    def _bound_errors(self, nu: float, logs: tuple[float, ...], ends: Interval) -> tuple[float, ...] | None:
        """Of each mass at the root near nu: that nu lies between two at which S - 1 has certain signs."""
        width = 4e-16 * (1 + abs(nu))
        while self._find_side_at(nu - width) * self._find_side_at(nu + width) >= 0:
            width *= 4
            if nu - width < ends[0] or nu + width > ends[1]:
                return None
        masses = [o.compute_mass(k) for o, k in zip(self.on, logs, strict=True)]
        surplus = abs(sum(masses) - 1)  # the policy is divided by the sum
        boxes = [_bound_box(o, piece, nu - width, nu + width) for o, piece in self.pairs]
        return tuple(
            max(mass - o.compute_mass(low), o.compute_mass(high) - mass) + mass * (surplus + 1e-15)
            for (o, _), (low, high), mass in zip(self.pairs, boxes, masses, strict=True)
        )

    def _choose_cut(self, low: float, high: float) -> float:
        """A cut at which S is certainly not 1, where there is one."""
        cuts = [low + part * (high - low) for part in PARTS]
        return next((nu for nu in cuts if self._find_side_at(nu)), cuts[0])

    def _compute_logs(self, nu: float) -> tuple[float, ...]:
        boxes = [o.enclose_inverse(piece, nu) for o, piece in self.pairs]
        return tuple(high if low < LOWEST else (low + high) / 2 for low, high in boxes)

    def _is_near(self, nu: float) -> bool:
        return abs(self._compute_total(nu) - 1) < SAME

    def _is_exact(self, nu: float) -> bool:
        boxes = [(o, o.enclose_inverse(piece, nu)) for o, piece in self.pairs]
        return all(o.compute_mass(high) - o.compute_mass(low) < SAME for o, (low, high) in boxes)

    def _add_doubtful(self, nu: float) -> None:
        """A policy that may be stationary, or one of a few that are so near to each other."""
        self.complete = False
        logs = self._compute_logs(nu)
        if not self._is_near(nu):
            return
        rates = [o.bound_rate(k - SAME, k + SAME) for o, k in zip(self.on, logs, strict=True)]
        stable = True if all(high < 0 for _, high in rates) else None
        if sum(low > 0 for low, _ in rates) > 1:
            stable = False
        self.doubtful.append(StationaryPoint(logs, nu, stable))


# ---------------------------------------------------------------------------- levels that do not depend on k
def _find_with_constants(on: Sequence[Outcome]) -> Roots:
    """Some levels are constant: nu is theirs, and these outcomes share the mass that the others leave."""
    constant = [o for o in on if not o.pieces]
    first = constant[0]
    nu = first.far
    gaps = [o.compare_levels(first) for o in constant]
    if any(gaps):
        return Roots()
    if None in gaps:
        return Roots((), None)
    if len(constant) == len(on):
        return Roots((), False, nu)
    return _find_with_level(on, [o for o in on if o.pieces], nu)


def _find_with_level(on: Sequence[Outcome], moving: list[Outcome], nu: float) -> Roots:
    """The policies with the level nu: one for each choice of pieces that leaves mass, or a continuum."""
    points: list[StationaryPoint] = []
    partial: list[tuple[tuple[float, ...], float, int]] = [((), 0.0, 0)]
    for o in moving:
        hits = [piece for piece in o.pieces if o.list_ends(piece)[0] <= nu <= o.list_ends(piece)[1]]
        if any(min(abs(nu - end) for end in o.list_ends(p)) <= 1e-12 * (1 + abs(nu)) for p in o.pieces):
            return Roots((), None)
        solutions = [(sum(o.enclose_inverse(piece, nu)) / 2, piece.level_rises) for piece in hits]
        partial = [
            ((*logs, k), mass + o.compute_mass(k), rising + up)
            for logs, mass, rising in partial
            for k, up in solutions
        ]
    if any(abs(mass - 1) < 1e-9 for _, mass, _ in partial):
        return Roots((), None)
    remaining = [(logs, 1 - mass, rising) for logs, mass, rising in partial if mass < 1]
    if remaining and len(on) - len(moving) > 1:
        return Roots((), False, nu)
    for logs, remaining_mass, rising in remaining:
        logs_in_order = iter(logs)
        points.append(
            StationaryPoint(
                tuple(next(logs_in_order) if o.pieces else math.log(remaining_mass / o.p) for o in on),
                nu,
                rising == 0,
            )
        )
    return Roots(tuple(points))
