"""Piecewise expressions region by region: polynomials in indicators.

    min(a, b) = a + (b - a) 1[a > b]        clip(x, lo, hi) = min(max(x, lo), hi)
    max(a, b) = a + (b - a) 1[b > a]        |x| = x (2 1[x > 0] - 1)

A derivative holds steps Heaviside(x, h) too, which are h at x = 0 (`engine.slopes`).  Where x is 0 at every
sample, or in a whole region, the step is this h there; any other tie has probability zero.  A step is 1 or 0
where its argument has one sign at all samples (`engine.branches`).  Then only indicators are left; an
indicator is its own square, x > 1 implies x > 0 and excludes x < 0.  What remains is a polynomial whose
coefficients the ring can decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from itertools import combinations, permutations, product
from typing import Any

import sympy
from sympy import Heaviside, Rational

from klsym.convert import to_ring
from klsym.engine.regions.root_isolation import LOG_RATIOS, joint, signs
from klsym.errors import NotInRing
from klsym.language import REWARDS, Estimator, clip, k3, log_mu, log_old, log_p, log_q, unfold
from klsym.names import parse_name
from klsym.ring import ExpPoly

DENSITIES = (log_q, log_p, log_mu, log_old)
HALF = Rational(1, 2)
OWN = "_" * 32  # in names of the engine's own: longer than any that a user may declare
MAX_NESTED = 8  # indicators inside one indicator: 2^8 regions


def is_piecewise(e: Any) -> bool:
    return bool(e.has(sympy.Min, sympy.Max, sympy.Abs, clip, Heaviside, sympy.sign))


class Regions:
    """Indicators of regions: symbol -> x, where it stands for 1[x > 0] and x is no longer piecewise."""

    def __init__(self) -> None:
        self.table: dict[Any, Any] = {}
        self.known: dict[tuple[Any, Any], frozenset[Any]] = {}

    def polynomial(self, e: Any) -> Any:
        """e with min, max, clip, abs, steps written with indicators, none of them inside exp or log."""
        if not e.has(*DENSITIES) or e.is_Atom or isinstance(e, Estimator):
            return e
        arguments = [self.polynomial(argument) for argument in e.args]
        match e:
            case sympy.Abs():
                return arguments[0] * (2 * self.step(arguments[0]) - 1)
            case sympy.sign():
                return 2 * self.step(arguments[0]) - 1
            case Heaviside():
                return self.step(*arguments)
            case sympy.Min():
                return reduce(lambda a, b: a + (b - a) * self.step(a - b), arguments)
            case sympy.Max():
                return reduce(lambda a, b: a + (b - a) * self.step(b - a), arguments)
            case clip():
                return self.clipped(*arguments)
        whole = e.is_Add or e.is_Mul or (e.is_Pow and e.exp.is_Integer and e.exp > 0)
        return e.func(*arguments) if whole else self.by_region(e.func, arguments)

    def clipped(self, x: Any, lo: Any, hi: Any) -> Any:
        """min(max(x, lo), hi): x in between, hi where x > hi or lo > hi."""
        above_lo, above_hi, crossed = self.step(x - lo), self.step(x - hi), self.step(lo - hi)
        under = 1 - above_lo
        at_hi = above_lo * above_hi + under * crossed
        return above_lo * (1 - above_hi) * x + under * (1 - crossed) * lo + at_hi * hi

    def step(self, x: Any, at_zero: Any = HALF) -> Any:
        """Heaviside(x, at_zero) for an x that may be piecewise."""
        return self.tidied(self.by_region(lambda value: self._step(value, at_zero), [self.polynomial(x)]))

    def by_region(self, function: Callable[..., Any], arguments: Iterable[Any]) -> Any:
        """function(arguments), for each answer of the indicators in them."""
        arguments = list(arguments)
        found = {symbol for argument in arguments for symbol in argument.free_symbols & self.table.keys()}
        indicators = sorted(found, key=str)
        if len(indicators) > MAX_NESTED:
            raise NotInRing(f"more than {2**MAX_NESTED} regions")
        parts = []
        for answer in product((1, 0), repeat=len(indicators)):
            region = dict(zip(indicators, map(sympy.Integer, answer), strict=True))
            if self._contradicts(region):
                continue
            here = sympy.Mul(*(symbol if yes else 1 - symbol for symbol, yes in region.items()))
            value = function(*(argument.xreplace(region) for argument in arguments))
            if value.has(sympy.zoo, sympy.nan, sympy.oo):
                raise NotInRing(f"{value} in a region")
            parts.append((here, value))
        values = {value for _, value in parts}
        return values.pop() if len(values) == 1 else sum(here * value for here, value in parts)

    def _step(self, x: Any, at_zero: Any) -> Any:
        """A number where the sign is known; an opaque step of parameters and rewards; or an indicator."""
        expanded = sympy.expand(unfold(x))
        if expanded.is_zero:
            return at_zero
        for y in (x, expanded, _with_k3(expanded)):
            known = _known_step(y, at_zero)
            if known is not None:
                return known
        if expanded.has(*DENSITIES):
            taken = signs_of(expanded)
            if taken and len(taken) == 1:
                return sympy.Integer(taken[0] > 0)
        scale, x = led_by_one(expanded)
        if scale < 0:
            return 1 - self._step_of(x, 1 - at_zero)
        return self._step_of(x, at_zero)

    def _step_of(self, x: Any, at_zero: Any) -> Any:
        if not x.has(*DENSITIES):
            return Heaviside(x, at_zero)
        for symbol, y in self.table.items():
            both = {(1, 1), (-1, -1)} if y == x else set(joint_signs(x, y) or ())
            if both and both <= {(1, 1), (-1, -1)}:
                return symbol
            if both and both <= {(1, -1), (-1, 1)}:
                return 1 - symbol
        symbol = sympy.Symbol(f"indicator{OWN}{len(self.table)}", real=True)
        self.table[symbol] = x
        return symbol

    # -- arithmetic -----------------------------------------------------------------
    def together(self, one: Any, other: Any) -> frozenset[Any]:
        """The signs that x and y may take at one sample: a pair is left out where that is known."""
        if (one, other) not in self.known:
            x, y = self.table[one], self.table[other]
            found = set(joint_signs(x, y) or product((1, -1), repeat=2))
            found -= {(1, -1)} if (y - x).is_nonnegative else set()
            found -= {(-1, 1)} if (x - y).is_nonnegative else set()
            self.known[one, other] = frozenset(found)
        return self.known[one, other]

    def implies(self, one: Any, other: Any) -> bool:
        """Does x > 0 imply y > 0?"""
        return (1, -1) not in self.together(one, other)

    def _contradicts(self, region: dict[Any, Any]) -> bool:
        signed = [(symbol, 1 if answer else -1) for symbol, answer in region.items()]
        pairs = combinations(signed, 2)
        return any((i, j) not in self.together(one, other) for (one, i), (other, j) in pairs)

    def _excluded(self, present: set[Any]) -> bool:
        """Are two of the regions disjoint?"""
        return any((1, 1) not in self.together(*pair) for pair in combinations(sorted(present, key=str), 2))

    def tidied(self, e: Any) -> Any:
        """A polynomial in indicators with few terms: implied ones dropped, each to the first power."""
        terms = []
        for term in sympy.Add.make_args(sympy.expand(e)):
            present = term.free_symbols & self.table.keys()
            if self._excluded(present):
                continue
            rest = term.xreplace(dict.fromkeys(present, sympy.S.One))
            terms.append(sympy.Mul(rest, *(present - self._implied(present))))
        return sympy.Add(*terms)

    def reduced(self, element: ExpPoly) -> ExpPoly:
        """1[x > 0]^2 = 1[x > 0]; 1[x > 0] 1[y > 0] is 1[x > 0] if x > 0 implies y > 0, 0 if not both hold."""
        symbols = {symbol.name: symbol for symbol in self.table}
        total = ExpPoly({})
        for (monomial, exponent), value in element.terms.items():
            present = {symbols[name] for name, _ in monomial if name in symbols}
            if self._excluded(present):
                continue
            implied = self._implied(present)
            names = {symbol.name for symbol in implied}
            powers = tuple((n, 1 if n in symbols else p) for n, p in monomial if n not in names)
            total = total + ExpPoly({(powers, exponent): value})
        return total

    def _implied(self, present: set[Any]) -> set[Any]:
        pairs = ((one, other) for one in present for other in present if one != other)
        return {other for one, other in pairs if self.implies(one, other)}


def signs_of(x: Any) -> tuple[int, ...] | None:
    """The signs that x takes at samples, where that is known."""
    try:
        return signs(to_ring(x))
    except NotInRing:
        return None


def joint_signs(*values: Any) -> dict[tuple[int, ...], Any] | None:
    """The signs that functions of one log ratio take together, each with places; None where it is open."""
    try:
        elements = tuple(map(to_ring, values))
    except NotInRing:
        return None
    return joint(elements) if all(e.names() <= {*LOG_RATIOS} for e in elements) else None


def _known_step(x: Any, at_zero: Any) -> Any | None:
    """1 or 0 where the sign of x is known; a tie that is no identity has probability zero."""
    sampled = x.has(*DENSITIES)
    if x.is_positive or (x.is_nonnegative and (sampled or at_zero == 1)):
        return sympy.S.One
    if x.is_negative or (x.is_nonpositive and (sampled or at_zero == 0)):
        return sympy.S.Zero
    return None


def _with_k3(x: Any) -> Any:
    """exp(a - b) - 1 - (a - b) >= 0 written as the k3 of b and a, which SymPy knows is not negative."""
    coefficients = x.as_coefficients_dict()
    for a, b in permutations(DENSITIES, 2):
        ratio = sympy.expand(sympy.exp(a - b))
        if coefficients[ratio]:
            x = sympy.expand(x - coefficients[ratio] * (ratio - 1 - a + b))
            x += coefficients[ratio] * k3.func(b, a)
    return x


def led_by_one(x: Any) -> tuple[Any, Any]:
    """x = c y with a rational c, where the first term of y has the coefficient 1: one of the sample if any.

    >>> led_by_one(6 - 3 * log_q)
    (-3, log_q - 2)
    """
    terms = [term.as_coeff_Mul() for term in sympy.Add.make_args(x)]
    _, scale = min(
        ((rest, number) for number, rest in terms),
        key=lambda row: (not _of_densities(row[0]), row[0].is_number, row[0].sort_key()),
    )
    return scale, sympy.Add(*(number / scale * rest for number, rest in terms))


def _of_densities(x: Any) -> bool:
    return any(parse_name(symbol.name).base in {d.name for d in DENSITIES} for symbol in x.free_symbols)


def inside_clamps(loss: Any) -> Any | None:
    """The loss where no bound binds: clip(x, lo, hi) -> x, min and max -> the one argument that speaks of
    densities, or else the one that is random."""
    free = loss.replace(lambda e: isinstance(e, clip), lambda e: e.args[0])
    free = free.replace(lambda e: isinstance(e, sympy.Min | sympy.Max), _unclamped)
    return None if free == loss else free


def _unclamped(e: Any) -> Any:
    moving = {a for a in e.args if a.has(Estimator, *DENSITIES)}
    free = moving or {a for a in e.args if a.has(*REWARDS)}
    return free.pop() if len(free) == 1 else e
