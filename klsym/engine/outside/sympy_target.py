"""Losses outside the ring (clip, min, max, abs, sqrt, log(1 + r), ...): what their coefficient is.

The verdict rests on SymPy and says so.  The target is read off the very coefficient that is shown, for a
piecewise loss region by region (`engine.piecewise`).  What is free of the sample, such as sqrt(2) or
1/(1 + beta), counts as an opaque constant, and what depends on rewards alone as an opaque reward; often the
coefficient then lies in the ring after all.  Otherwise a combination of smooth functions is fitted in
40-digit arithmetic and confirmed by `simplify`.  The trust label is `numeric` for what was only fitted or
could not be tried at all.  Numbers judge every answer on a piecewise loss, on both sides of each bound:
a name that they refute, and an unnamed coefficient that they do not tell from a named one, are open.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

import mpmath
import sympy
from sympy import Rational

from klsym.convert import to_ring, to_sympy
from klsym.engine.fields.named_terms import Further, NamedParts, recognise, recognise_value
from klsym.engine.regions.piecewise import DENSITIES, OWN, Regions, joint_signs
from klsym.engine.regions.subgradients import expression_at_policy
from klsym.errors import NotInRing
from klsym.language import (
    REWARDS,
    A,
    Estimator,
    M,
    R,
    k1,
    length,
    log_mu,
    log_old,
    log_p,
    log_q,
    r,
    rho,
    unfold,
)
from klsym.names import LOG_RATIOS
from klsym.ring import ZERO, ExpPoly

DIGITS = 40
BISECTIONS = 40
_unfolded = lru_cache(maxsize=1024)(unfold)  # one expression has values at many places
ZERO_TOLERANCE = mpmath.mpf(10) ** -18
MAX_EXPONENT = sympy.Integer(10) ** 300  # exp(x) takes as many bits of precision as x has
ZERO_PART = sympy.Integer(0)
BASIS = (k1, -r, R, A, sympy.Integer(1))  # reverse KL, forward KL, rewards, the constant that drops
# log q, log p, log mu, log old at which smooth coefficients are compared
POINTS = [
    tuple(Rational(n, 100) for n in (*row, -7 - 37 * i * i % 293))
    for i, row in enumerate((
        (-131, -52, -207), (-73, -461, -112), (-309, -18, -27), (-11, -290, -333), (-620, -35, -84),
        (-47, -51, -44), (-5, -713, -260), (-402, -399, -6), (-95, -84, -121), (-260, -577, -19),
        (-33, -171, -402), (-540, -208, -61), (-150, -3, -310), (-22, -26, -29), (-8, -404, -3),
    ))
]  # fmt: skip


@dataclass(frozen=True)
class SympyTarget:
    """What a coefficient or value is: its parts as SymPy expressions, and how that was established.

    The target None is open.
    """

    target: str | None
    multiples: dict[str, Any]
    constant: Any
    trust: str


UNDECIDED = SympyTarget(None, {}, sympy.S.Zero, "sympy")
WITHOUT_PARTS = ("f-divergence", "separable")
UNNAMED_IN_R = SympyTarget("f-divergence", {}, sympy.S.Zero, "sympy")
GIVEN = (*REWARDS, length)  # T is random, and free of theta
NAMES = tuple(symbol.name for symbol in GIVEN)


def under_q(expression: Any, on_policy: bool) -> Any:
    """The integrand under q: on-policy with w = 0, off-policy divided by rho."""
    return expression_at_policy(expression) if on_policy else sympy.powsimp(expression / rho)


# ---------------------------------------------------------------------------- recognition
def find(c: Any, value: bool = False) -> SympyTarget:
    """The target of E_q[c s] (or of E_q[c] for a value), for a smooth c."""
    tried: list[SympyTarget | None] = []
    for prepare in (lambda e: e, sympy.expand, lambda e: sympy.simplify(unfold(e))):
        if len(tried) == 2 and _is_unnamed_in_r(c, value):  # simplify may take a minute
            return next((found for found in tried if found is not None), UNNAMED_IN_R)
        found = _in_ring(prepare(c), value)
        if found is not None and found.target not in WITHOUT_PARTS:
            return found
        tried.append(found)
    fitted = None if value else _fit(c)
    if fitted is not None:
        return fitted
    known = next((found for found in tried if found is not None), None)
    if known is not None:
        return known
    trust = "numeric" if parameters(c) else "sympy"  # with free parameters no fit was tried
    return SympyTarget("separable" if depends_beyond_r(c) else "f-divergence", {}, sympy.S.Zero, trust)


def _is_unnamed_in_r(c: Any, value: bool) -> bool:
    """Is it a function of r, without parameters, that differs from each combination of names?"""
    if c.free_symbols - {*DENSITIES} or fits_a_name(c, (), value):
        return False
    with mpmath.workdps(DIGITS):
        return not depends_beyond_r(c)


def find_piecewise(c: Any, value: bool = False) -> SympyTarget:
    """The target of E_q[c s] (or of E_q[c]) for a c with steps, min, max, clip or abs: region by region."""
    regions = Regions()
    try:
        e = regions.polynomial(c)
    except NotInRing:
        found = None
    else:
        found = next(filter(None, (_in_ring(x, value, regions) for x in _written_out(e, regions))), None)
    if found is not None and found.target not in WITHOUT_PARTS:
        return found if value or _agrees(c, found, regions.table.values()) else UNDECIDED
    if fits_a_name(c, regions.table.values(), value):
        return UNDECIDED
    if found is not None:
        return found
    return SympyTarget("separable" if depends_beyond_r(c) else "f-divergence", {}, sympy.S.Zero, "numeric")


def _written_out(e: Any, regions: Regions) -> Iterator[Any]:
    """The same in forms of which one may be of the ring, which multiplies out at less cost than SymPy."""
    with suppress(NotInRing):
        _element(e, regions)
        yield e
    yield from (sympy.expand(x) for x in (e, unfold(e)))


def _element(e: Any, regions: Regions) -> ExpPoly:
    """The element of the ring, each product without the regions that are empty."""
    if not regions.table or not (e.is_Add or e.is_Mul):
        return to_ring(e)
    parts = (_element(x, regions) for x in e.args)
    return reduce(lambda a, b: a + b if e.is_Add else regions.reduced(a * b), parts)


def _in_ring(c: Any, value: bool, regions: Regions | None = None) -> SympyTarget | None:
    regions = regions or Regions()
    hidden: dict[Any, Any] = {}
    try:
        element = regions.reduced(_element(_hide(c, hidden, regions), regions))
    except NotInRing:
        return None
    indicators = frozenset(symbol.name for symbol in regions.table)
    lengths = frozenset(symbol.name for symbol, e in hidden.items() if e.has(length))
    rewards = frozenset(symbol.name for symbol, e in hidden.items() if e.has(*REWARDS)) - lengths
    random = indicators | lengths
    names = Further(rewards, random)
    found = (
        recognise_value(_without_ratios(element, rewards | random), names)
        if value
        else recognise(element, names)
    )
    back = {name: to_sympy(part).xreplace(hidden) for name, part in found.multiples.items()}
    if found.rest:  # a reward times an indicator: what is the reward's own part depends on the writing
        mixed = any({*NAMES, *rewards} & names and indicators & names for names in _terms(found.rest))
        back = {name: part for name, part in back.items() if name == "reward" and not mixed}
    bounds = [x for symbol, x in regions.table.items() if symbol.name in found.rest.names()]
    target = found.target
    given = (rewards | lengths) & found.rest.names()
    if target == "f-divergence" and (given or any(map(depends_beyond_r, bounds))):
        target = "separable"
    return SympyTarget(target, back, to_sympy(found.constant).xreplace(hidden), "sympy")


def _terms(element: ExpPoly) -> list[frozenset[str]]:
    """The names in each term."""
    return [frozenset(ExpPoly({key: value}).names()) for key, value in element.terms.items()]


def _hide(e: Any, hidden: dict[Any, Any], regions: Regions) -> Any:
    """Replace what is free of the sample and no ring element by a symbol of its own."""
    if not e.has(*DENSITIES, *regions.table):
        try:
            to_ring(e)
            return e
        except NotInRing:
            if not (e.is_Add or e.is_Mul) or not e.has(*GIVEN):
                return _symbol_for(e, hidden)
    if e.is_Atom or isinstance(e, Estimator | sympy.Piecewise):
        return e
    return e.func(*(_hide(argument, hidden, regions) for argument in e.args))


def _symbol_for(e: Any, hidden: dict[Any, Any]) -> Any:
    for symbol, known in hidden.items():
        if known == e:
            return symbol
    symbol = sympy.Symbol(f"opaque{OWN}{len(hidden)}", real=True)
    hidden[symbol] = e
    return symbol


def _without_ratios(v: ExpPoly, rewards: frozenset[str]) -> ExpPoly:
    """E_q[c r] = c and E_q[c/rho] = c: the ratios leave their constants behind."""
    k, w = ExpPoly.variable("k1"), ExpPoly.variable("w")
    for ratio in ((-k).exp(), (-w).exp()):
        for key, value in list(v.terms.items()):
            term = ExpPoly({key: value})
            factor = term * ratio.inverse()
            if not ({*LOG_RATIOS, *NAMES} | rewards) & factor.names():
                v = v - term + factor
    return v


def _fit(c: Any) -> SympyTarget | None:
    """c as a combination of BASIS with rational multiples, fitted on POINTS."""
    if c.free_symbols - {*DENSITIES, *REWARDS}:
        return None
    with mpmath.workdps(DIGITS):
        rows = [_row(c, point, i) for i, point in enumerate(POINTS)]
        solution = _least_squares([row for row in rows if row is not None])
    if solution is None:
        return None
    multiples = [_rational(x) for x in solution]
    if any(m.q > 10**6 or abs(m.p) > 10**6 for m in multiples):
        return None
    combination = sum(m * b for m, b in zip(multiples, BASIS, strict=True))
    if not _agree_far_out(c, combination):
        return None
    confirmed = sympy.simplify(unfold(c - combination)) == 0
    reverse, forward, reward, advantage, constant = multiples
    rewards = to_ring(reward * R + advantage * A)
    found = NamedParts(to_ring(reverse), to_ring(forward), rewards, to_ring(constant), ZERO)
    back = {name: to_sympy(part) for name, part in found.multiples.items()}
    return SympyTarget(found.target, back, constant, "sympy" if confirmed else "numeric")


def fits_a_name(c: Any, bounds: Iterable[Any], value: bool = False) -> bool:
    """Is c = a k1 + b r + h(rewards) at all places tried, as if what tells them apart were an empty region?

    A mean value E_q[c] may also hold r k1, and 1/rho, whose mean is 1.
    """
    basis = (k1, r, A, sympy.Integer(1)) + ((k1 * r, 1 / rho) if value else ())
    with mpmath.workdps(2 * DIGITS):
        places = list(_seeds(c))
        few = [place for i, place in enumerate(places) if i % len(POINTS) < 2 * len(basis)]
        multiples = _spanned(c, few[: 2 * len(basis)], basis)
        if multiples is None:
            return False
        return multiples == [] or all(
            _is_sum(c, at, multiples, basis) for at in places + _near(bounds, places)
        )


def _is_sum(c: Any, at: dict[Any, Any], multiples: list[Any], basis: tuple[Any, ...]) -> bool:
    """Is c the combination there?  Measured by what it is made of, however large other parts are."""
    value = number_at(c, at)
    parts = [m * x for m, x in zip(multiples, (number_at(e, at) for e in basis), strict=True) if m and x]
    return value is None or abs(value - sum(parts)) <= ZERO_TOLERANCE * max(map(abs, [value, *parts]))


def _agrees(c: Any, found: SympyTarget, bounds: Iterable[Any]) -> bool:
    """Is c the named combination, up to one constant, at all places tried?"""
    multiples = {"reverse-kl": ZERO_PART, "forward-kl": ZERO_PART, "reward": ZERO_PART} | found.multiples
    named = multiples["reverse-kl"] * k1 - multiples["forward-kl"] * r + multiples["reward"]
    with mpmath.workdps(2 * DIGITS):
        places = list(_seeds(c - named))
        for at in places + _near(bounds, places):
            values = [x for x in (number_at(e, at) for e in (c, named + found.constant)) if x is not None]
            if len(values) == 2 and abs(values[0] - values[1]) > ZERO_TOLERANCE * (1 + abs(values[0])):
                return False
    return True


def _seeds(c: Any) -> Iterator[dict[Any, Any]]:
    """Samples, the parameters being the same at all of them, and two values of the rewards, neither one 0:
    what a reward multiplies shows at each."""
    scale = 3 * (1 + max(map(abs, c.atoms(sympy.Rational)), default=0))
    fixed = {s: Rational(1 + j % 5, 5) for j, s in enumerate(parameters(c))}
    for j, factor in enumerate((Rational(1), scale if scale < 1000 else Rational(1000), Rational(1, 10))):
        for i, point in enumerate(POINTS):
            rewards = {R: Rational(1 + i % 2, 3), A: Rational(1 - 3 * (i % 2)), M: Rational((i // 2 + j) % 2)}
            rewards[length] = Rational(1 + i % 3)
            logs = zip(DENSITIES, (factor * x for x in point), strict=True)
            yield dict(logs) | fixed | rewards


def _near(bounds: Iterable[Any], places: list[dict[Any, Any]]) -> list[dict[Any, Any]]:
    """Places in each region of one log ratio, and on both sides of what bounds any other region; no ties."""
    bounds = list(bounds)
    meet = places[0] | dict.fromkeys(DENSITIES, Rational(-1))
    found = []
    for x in bounds:
        inside = _by_ratio([x], places) + [p for y in bounds if y != x for p in _by_ratio([x, y], places)]
        ends = [places[:-1], [*reversed(places), meet]]
        found += inside or [end for starts in ends for end in _sides(x, starts)]
    return [at for at in found if all(number_at(x, at) != 0 for x in bounds)]


def _by_ratio(bounds: list[Any], places: list[dict[Any, Any]]) -> list[dict[Any, Any]]:
    """Places for each combination of signs of functions of one log ratio."""
    regions = joint_signs(*bounds)
    if regions is None:
        return []
    moved = next(x for x in (log_p, log_old, log_mu) if any(bound.has(x) for bound in bounds) or x is log_mu)
    found = []
    for ratio in (ratio for cell in regions.values() for ratio in cell):
        for at in places[:2]:
            found.append(at | {log_q: min(ZERO_PART, ratio) - 1, moved: min(ZERO_PART, ratio) - 1 - ratio})
    return found


def _sides(x: Any, places: list[dict[Any, Any]]) -> list[dict[Any, Any]]:
    """Two places close to x = 0, on either side of it; none where x keeps its sign."""
    values = [(number_at(x, at), at) for at in places]
    over, under = (
        next((at for value, at in values if value is not None and sign * value > 0), None) for sign in (1, -1)
    )
    if over is None or under is None:
        return []
    for _ in range(BISECTIONS):
        middle = {symbol: (over[symbol] + under[symbol]) / 2 for symbol in over}
        value = number_at(x, middle)
        over, under = (middle, under) if value is not None and value > 0 else (over, middle)
    return [over, under]


def _spanned(c: Any, places: list[dict[Any, Any]], basis: tuple[Any, ...]) -> list[Any] | None:
    """The multiples of the basis that c is made of at these places; none where too few places have values."""
    rows = []
    for at in places:
        row = [x for x in (number_at(e, at) for e in (*basis, c)) if x is not None]
        if len(row) == len(basis) + 1:
            size = max(map(abs, row))
            rows.append([x / size for x in row])
    if len(rows) < len(basis) + 2:
        return []
    matrix, target = mpmath.matrix([row[:-1] for row in rows]), mpmath.matrix([row[-1] for row in rows])
    found = mpmath.lu_solve(matrix, target)
    fits = mpmath.norm(matrix * found - target, mpmath.inf) < ZERO_TOLERANCE
    return [x if abs(x) > ZERO_TOLERANCE else 0 for x in found] if fits else None


def _rational(x: Any) -> Any:
    """The simplest rational within 1e-18."""
    if abs(x) < ZERO_TOLERANCE:
        return ZERO_PART
    return sympy.nsimplify(sympy.Float(mpmath.nstr(x, 30), 30), tolerance=Rational(1, 10**18), rational=True)


def _agree_far_out(c: Any, combination: Any) -> bool:
    """Do the two agree beyond every bound that c mentions, too?"""
    numbers = [abs(x) for x in c.atoms(sympy.Rational)]
    scale = 3 * (1 + max(numbers, default=0))
    with mpmath.workdps(DIGITS):
        for i, point in enumerate(POINTS):
            at = _point(tuple(x * scale for x in point), i)
            one, other = number_at(c, at), number_at(combination, at)
            if one is not None and other is not None and abs(one - other) > ZERO_TOLERANCE * (1 + abs(one)):
                return False
    return True


def _row(c: Any, point: tuple[Any, ...], i: int) -> tuple[list[Any], Any] | None:
    numbers = [number_at(e, _point(point, i)) for e in (*BASIS, c)]
    return None if numbers[-1] is None else (numbers[:-1], numbers[-1])


def _least_squares(rows: list[tuple[list[Any], Any]]) -> list[Any] | None:
    if len(rows) < 2 * len(BASIS):
        return None
    matrix = mpmath.matrix([row for row, _ in rows])
    target = mpmath.matrix([value for _, value in rows])
    solution = mpmath.lu_solve(matrix, target)
    residual = mpmath.norm(matrix * solution - target, mpmath.inf)
    scale = 1 + mpmath.norm(target, mpmath.inf)
    return list(solution) if residual < scale * ZERO_TOLERANCE else None


def number_at(expression: Any, at: dict[Any, Any]) -> Any | None:
    """The real value of an expression to DIGITS digits; None where it has none, or holds exp of more than
    LARGEST."""
    try:
        if any(abs(sympy.N(x.xreplace(at))) > MAX_EXPONENT for x in _nested(expression)):
            return None
        value = sympy.N(_unfolded(expression).xreplace(at), DIGITS)
    except (ValueError, TypeError):  # such as a comparison with infinity
        return None
    known = value._mpf_ if value.is_Float else int(value) if value.is_Integer else None
    return None if known is None else mpmath.mpf(known)


@lru_cache(maxsize=1024)
def _nested(expression: Any) -> tuple[Any, ...]:
    """What holds exponentials and stands in one, the innermost first."""
    inside = (e.args[0] for e in _unfolded(expression).atoms(sympy.exp))
    return tuple(sorted((x for x in inside if x.has(sympy.exp)), key=sympy.count_ops))


def has_values(c: Any) -> bool:
    """Is c a real number of moderate size at any of the points?  1/0 by rounding is a huge one."""
    fixed = {s: Rational(7 + 2 * i, 5) for i, s in enumerate(parameters(c))}
    values = (number_at(c, fixed | _point(point, i)) for i, point in enumerate(POINTS))
    return any(value is not None and abs(value) < 1e30 for value in values)


def _point(point: tuple[Any, ...], i: int) -> dict[Any, Any]:
    return dict(zip(DENSITIES, point, strict=True)) | {
        R: Rational(1 + 3 * i % 7),
        A: Rational(1 + 5 * i % 11),
        M: Rational(1 + i % 2),
        length: Rational(1 + i % 3),
    }


def depends_beyond_r(c: Any) -> bool:
    """Does c change when log q and log p move together, or when log mu or a reward moves?"""
    with suppress(NotInRing):
        return bool({"w", "o", "log_q", *NAMES} & to_ring(c).names())
    fixed = {s: Rational(7 + 2 * i, 5) for i, s in enumerate(parameters(c))}
    with mpmath.workdps(DIGITS):
        for i, (q, p, m, o) in enumerate(POINTS):
            rewards = (
                {R: Rational(1 + i % 3), A: Rational(1 + i % 5), M: Rational(1 + i % 7), length: Rational(1)},
                {R: Rational(2), A: Rational(-1), M: Rational(0), length: Rational(3)},
            )
            logs = (q, p, m, o), (q - 1, p - 1, m - 2, o - 3)
            here, moved = (
                fixed | dict(zip(DENSITIES, at, strict=True)) | values
                for at, values in zip(logs, rewards, strict=True)
            )
            before, after = number_at(c, here), number_at(c, moved)
            if before is None or after is None:
                continue
            if abs(before - after) > ZERO_TOLERANCE * (1 + abs(before)):
                return True
    return False


def parameters(c: Any) -> list[Any]:
    """Symbols that are neither densities nor given at a sample."""
    return sorted(c.free_symbols - {*DENSITIES, *GIVEN}, key=str)
