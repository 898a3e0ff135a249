"""Piecewise losses as polynomials in regions, with the slopes at ties that PyTorch takes.  Untrusted.

    max(a, b) = b + t (a - b)     t = ([a > b] + 1 - [b > a])/2, which share a tie by halves
    clip(x, lo, hi) = x + (lo - x)[lo > x] - (x - hi)[x > hi]     where lo <= hi: 1 is the slope at its bounds
    |x| = x ([x > 0] - [-x > 0])     of slope 0 at 0

Regions are constant under grad.  Those of an x that holds regions are taken apart, so that each speaks of a
plain element, and a product by its factors:

    [x > 0] = B [x1 > 0] + (1 - B) [x0 > 0]       [x y > 0] = [x > 0][y > 0] + [-x > 0][-y > 0]
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce
from typing import Any

import sympy
from mpmath import iv

from klsym.convert import to_ring, to_sympy
from klsym.engine.regions.positivity import _stripped, without_positive_factors
from klsym.engine.regions.relations import reduced
from klsym.errors import NotInRing
from klsym.kernel.derivatives import attach, is_live
from klsym.language import OF_REGIONS, REWARDS, clip, log_mu, log_old, log_p, log_q, parameter
from klsym.names import SAMPLE_BASES, THETA_FREE, parse_name
from klsym.ring import ONE, ZERO, ExpPoly
from klsym.slots import at_slot
from klsym.statements import REGION, Context, Definition
from klsym.unfolding import PLAIN

DENSITIES = (log_q, log_p, log_mu, log_old)
PIECEWISE = (sympy.Min, sympy.Max, sympy.Abs, clip)
HALF = ExpPoly.number(Fraction(1, 2))
MAX_REGIONS = 24  # in one loss
OF_CLIP, OF_PAIR, OF_ABS = ("is_high", "is_low"), ("is_above", "is_below"), ("is_up", "is_down")


@dataclass
class Unfolding:
    """The regions of one loss, as its parts are written out: names that are taken, and what is known.

    ties: None, or unknown slopes at ties that every sample meets: name -> the kind of tie.
    constants: parameters that stand for constants outside the ring, and their values.
    """

    on_policy: bool
    taken: set[str]
    context: Context
    ties: dict[str, str] | None = None
    constants: dict[str, Any] = field(default_factory=dict)
    moving: bool = True

    def __call__(self, node: Any, values: list[ExpPoly], still: bool = False) -> ExpPoly:
        """A piecewise function of elements; still: it is not differentiated."""
        moving = not still and any(is_live(x, self.context) for x in values)
        self.moving, self.shares = moving, self._in_halves if moving else self._of_the_greater
        match node:
            case sympy.Abs():
                [x] = values
                if not moving:
                    return self._tidy(x * (2 * self.positive(x, OF_ABS) - 1))
                tie = self._tie("abs", HALF)
                sign = self.positive(x, OF_ABS, tie) - self.positive(-x, OF_ABS[::-1], 1 - tie)
                return self._tidy(x * sign)
            case clip():
                return self._clipped(*values)
            case sympy.Max():
                return reduce(self._greater, self._in_pairs(values))
        return -reduce(self._greater, self._in_pairs([-x for x in values]))

    def by_cases(self, function: Any, values: list[ExpPoly]) -> ExpPoly:
        """A function that is no polynomial, such as exp, of elements that hold regions."""
        inside = sorted({n for x in values for n in x.names() if self.context.defined(n) is not None})
        if not inside:
            return to_ring(function(*map(to_sympy, values)))
        held = ExpPoly.variable(inside[0])
        ends = ([x.substitute({inside[0]: value}) for x in values] for value in (ONE, ZERO))
        there, elsewhere = (self.by_cases(function, end) for end in ends)
        return self._tidy(held * there + (1 - held) * elsewhere)

    def constant(self, e: Any) -> Any:
        """A parameter for a constant outside the ring, such as sqrt(2): for its log, where it is positive."""
        known = {value: name for name, value in self.constants.items()}
        value = sympy.log(e) if e.is_positive else e
        name = known.get(value) or self._free("const1")
        self.constants[name] = value
        self.taken.add(name)
        if name not in self.context.parameters:
            self.context = replace(self.context, parameters=(*self.context.parameters, name))
        symbol = parameter(name)
        return sympy.exp(symbol) if e.is_positive else symbol

    def _tidy(self, element: ExpPoly) -> ExpPoly:
        return reduced(element, self.context, self.moving)

    # -- functions ---------------------------------------------------------------------
    def _in_pairs(self, values: list[ExpPoly]) -> list[ExpPoly]:
        """What varies from sample to sample, before the greatest of what does not."""
        fixed = [x for x in values if self.context.is_constant(x)]
        varying = [x for x in values if x not in fixed]
        return varying + ([reduce(self._greater, fixed)] if fixed else [])

    def _greater(self, a: ExpPoly, b: ExpPoly) -> ExpPoly:
        """max(a, b)."""
        return self._tidy(b + self.shares(a - b) * (a - b))

    def _in_halves(self, gap: ExpPoly) -> ExpPoly:
        """1 where the gap is positive, 1/2 where it is 0: so min and max share the slope at a tie."""
        tie = self._tie("min", HALF)
        over, under = self.positive(gap, OF_PAIR, tie), self.positive(-gap, OF_PAIR[::-1], 1 - tie)
        return (over + 1 - under) * HALF

    def _of_the_greater(self, gap: ExpPoly) -> ExpPoly:
        return self.positive(gap, OF_PAIR)

    def _clipped(self, x: ExpPoly, lo: ExpPoly, hi: ExpPoly) -> ExpPoly:
        """min(max(x, lo), hi), of slope 1 at both bounds; hi where lo > hi."""
        over = self.positive(x - hi, OF_CLIP, self._tie("clip", ZERO))
        under = self.positive(lo - x, OF_CLIP[::-1], self._tie("clip", ZERO))
        crossed = self.positive(lo - hi, ("is_crossed", "is_ordered"))
        between = x + (lo - x) * under - (x - hi) * over
        if not crossed:
            return self._tidy(between)
        # with bounds that cross it is hi, and where lo > x and x > hi both hold they do
        return self._tidy(between + (hi - between) * crossed)

    def _tie(self, kind: str, known: ExpPoly) -> ExpPoly:
        """[x > 0] where x is 0 at every sample."""
        if self.ties is None:
            return known
        name = f"{OF_REGIONS}tie{len(self.ties)}"
        self.ties[name] = kind
        self.context = replace(self.context, parameters=(*self.context.parameters, name))
        return ExpPoly.variable(name)

    # -- regions -----------------------------------------------------------------------
    def positive(self, x: ExpPoly, named: Iterable[str], tie: ExpPoly = ZERO) -> ExpPoly:
        """[x > 0] of the value of x at a sample, as a polynomial in regions; tie: what it is if x = 0 there.

        named: what regions are called.
        """
        value = attach(x)
        return self._split(self._tidy(at_policy(value) if self.on_policy else value), tuple(named), tie)

    def _split(self, x: ExpPoly, named: tuple[str, ...], tie: ExpPoly) -> ExpPoly:
        inside = sorted(name for name in x.names() if self.context.defined(name) is not None)
        if not inside:
            return self._of_factors(x, named) if x else tie
        held = ExpPoly.variable(inside[0])
        there, elsewhere = (
            self._split(self._tidy(x.substitute({inside[0]: value})), named, tie) for value in (ONE, ZERO)
        )
        return self._tidy(held * there + (1 - held) * elsewhere)

    def _of_factors(self, x: ExpPoly, named: tuple[str, ...]) -> ExpPoly:
        number, _, monomial, rest = _stripped(without_positive_factors(x))
        [(powers, _)] = monomial.terms
        factors = [ExpPoly.variable(name) for name, _ in powers]
        if rest != ONE or not factors:
            factors.append(rest)
        return self._of_product(factors, 1 if number > 0 else -1, named)

    def _of_product(self, factors: list[ExpPoly], sign: int, named: tuple[str, ...]) -> ExpPoly:
        """[sign f g .. > 0]."""
        first, *more = factors
        if not more:
            return self._of_one(first * sign, named)
        both = (self._of_one(first * s, named if s > 0 else named[::-1]) for s in (1, -1))
        rest = (self._of_product(more, sign * s, named) for s in (1, -1))
        return self._tidy(sum((a * b for a, b in zip(both, rest, strict=True)), ZERO))

    def _of_one(self, x: ExpPoly, named: tuple[str, ...]) -> ExpPoly:
        if not x.names():
            return ONE if _number(x) > 0 else ZERO
        for definition in self.context.definitions:
            for slot in _slots(x):
                name = at_slot(definition.name, slot)
                if self.context.defined(name) == x:
                    return ExpPoly.variable(name)
        return self._tidy(self._defined(x, named))

    def _defined(self, x: ExpPoly, named: tuple[str, ...]) -> ExpPoly:
        """A new region: of one position at each of them, or of the slots that it names."""
        if len(self.context.definitions) >= MAX_REGIONS:
            raise NotInRing(f"more than {MAX_REGIONS} regions")
        slots = _slots(x)
        slot = slots[0] if len(slots) == 1 and slots[0] in ("now", "self") else "x"
        e = x.rename(lambda n: n.replace(f"[{slot}]", "")) if slot != "x" else x
        name = self._named(e, named)
        definitions = (*self.context.definitions, Definition(name, REGION, e))
        self.context = replace(self.context, definitions=definitions)
        return ExpPoly.variable(at_slot(name, slot))

    def _named(self, e: ExpPoly, named: tuple[str, ...]) -> str:
        bases = {parse_name(n).base for n in e.names()} & {*SAMPLE_BASES}
        first = named[0]
        if len(e.terms) == 1 and bases and bases <= {*THETA_FREE}:
            first = "is_pos" if min(e.terms.values()) > 0 else "is_neg"
        return self._free(first)

    def _free(self, name: str) -> str:
        """A name that is not taken."""
        stem, number = name.rstrip("1"), 1
        while name in self.taken:
            number += 1
            name = f"{stem}{number}"
        self.taken.add(name)
        return name


def unfolding(on_policy: bool, parameters: Iterable[str], positive: Iterable[str]) -> Unfolding:
    """Nothing written out yet; positive: parameters that are known to be at least 0."""
    known = sorted(positive)
    facts = tuple(ExpPoly.variable(name) for name in known)
    context = Context(tuple(sorted(parameters)), (), (), (), facts, tuple((name, 1) for name in known))
    return Unfolding(on_policy, set(context.parameters), context)


def only_used(context: Context, *elements: ExpPoly) -> Context:
    """The context with those regions alone that elements name, in whichever slot."""
    bases = {parse_name(name).base for element in elements for name in element.names()}
    kept = tuple(definition for definition in context.definitions if definition.name in bases)
    return replace(context, definitions=kept) if kept else PLAIN


def bounds_in_order(loss: Any) -> list[str]:
    """The parameters that are positive if each clip, such as clip(rho, 1 - eps, 1 + eps), has lo <= hi."""
    found: set[str] = set()
    for e in loss.atoms(clip):
        width, ordered = _width(e)
        if ordered and not width.is_nonnegative:
            found |= {x.name for x in width.free_symbols if not x.is_positive}
    return sorted(found)


def crossing(loss: Any) -> bool:
    """May lo exceed hi in a clip, even for positive parameters?"""
    return not all(_width(e)[1] for e in loss.atoms(clip))


def _width(e: Any) -> tuple[Any, bool]:
    """hi - lo, and is it at least 0 for positive parameters?"""
    _, lo, hi = e.args
    width = sympy.expand(hi - lo)
    positive = {x: sympy.Symbol(x.name, positive=True) for x in width.free_symbols - {*DENSITIES, *REWARDS}}
    return width, bool(width.xreplace(positive).is_nonnegative)


def _slots(x: ExpPoly) -> list[str]:
    found = {parse_name(n).slot for n in x.names() if parse_name(n).base in SAMPLE_BASES}
    return sorted(found) or ["x"]


def _number(x: ExpPoly) -> Any:
    """The sign of a sum of exponentials of numbers, which is not 0."""
    iv.prec = 400
    total = iv.mpf(0)
    for (_, exponent), value in x.terms.items():
        power = sum((iv.mpf(v.numerator) / v.denominator for _, v in exponent), iv.mpf(0))
        total += iv.exp(power) * value.numerator / value.denominator
    if 0 in total:
        raise NotInRing("a number whose sign is not decided")
    return 1 if total > 0 else -1


def at_policy(h: ExpPoly) -> ExpPoly:
    """The value at a sample from q itself: w = log q - log mu is 0, so that rho is 1."""
    return h.substitute({name: ZERO for name in h.names() if parse_name(name).base == "w"})
