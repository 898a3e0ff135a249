"""Piecewise losses as polynomials in regions, with the slopes at ties that PyTorch takes.  Untrusted.

    max(a, b) = b + t (a - b)     t = ([a > b] + 1 - [b > a])/2, which share a tie by halves
    clip(x, lo, hi) = x + (lo - x)[lo > x] - (x - hi)[x > hi]     where lo <= hi: 1 is the slope at its bounds
    |x| = x ([x > 0] - [-x > 0])     of slope 0 at 0
    where(x > y, a, b) = [x - y > 0] a + (1 - [x - y > 0]) b     the comparison has no slope

Regions are constant under grad.  Those of an x that holds regions are taken apart, so that each speaks of a
plain element, and a product by its factors:

    [x > 0] = B [x1 > 0] + (1 - B) [x0 > 0]       [x y > 0] = [x > 0][y > 0] + [-x > 0][-y > 0]

Logs and powers of sums are written with the log l of an element e > 0, x^a = exp(a l) where x = e.  Of x that
holds sg(..) beside what moves, or of rho on-policy, only the value v and the slope count:

    f(x) = sg(f(v)) + sg(f'(v)) (x - sg(v))
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from typing import Any

import sympy
from mpmath import iv

from klsym.engine.regions.bounds_in_order import find_witness
from klsym.engine.regions.in_span import positive_somewhere
from klsym.engine.regions.positivity import _stripped, positive_sum, without_positive_factors
from klsym.engine.regions.relations import quotient, reduced, square_root
from klsym.engine.regions.root_isolation import joint
from klsym.errors import NotInRing, TooManyRegions, UsageError
from klsym.kernel.derivatives import attach, is_live
from klsym.kernel.names import LOG_RATIOS, SAMPLE_BASES, THETA_FREE, detach_name, parse_name
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.kernel.slots import at_slot
from klsym.kernel.statements import LET, LOG, REGION, Context, Definition
from klsym.language.convert import to_ring, to_sympy
from klsym.language.defined import name_of
from klsym.language.expressions import OF_REGIONS, clip
from klsym.language.unfolding import PLAIN

KINKED = (sympy.Min, sympy.Max, sympy.Abs, clip)
PIECEWISE = (*KINKED, sympy.Heaviside)
HALF = ExpPoly.number(Fraction(1, 2))
MAX_REGIONS = 64  # in one loss
OF_CLIP, OF_PAIR, OF_ABS = ("is_high", "is_low"), ("is_above", "is_below"), ("is_up", "is_down")
OF_CASE = ("is_case", "is_else")


@dataclass
class Unfolding:
    """The regions of one loss, as its parts are written out: names that are taken, and what is known.

    ties: None, or unknown slopes at ties that every sample meets: name -> the kind of tie.
    roots: what excludes what is told by zeros of functions of one log ratio too.
    tied: was the slope asked for of what is 0 at every sample?
    either: 1 - [-x > 0] will do for [x > 0], since it does not matter where x is 0.
    """

    on_policy: bool
    taken: set[str]
    context: Context
    ties: dict[str, str] | None = None
    roots: bool = False
    moving: bool = True
    tied: bool = False
    either: bool = False

    def copy(self) -> Unfolding:
        """One that goes on from here."""
        return replace(self, taken={*self.taken})

    def __call__(self, node: Any, values: list[ExpPoly], still: bool = False) -> ExpPoly:
        """A piecewise function of elements; still: it is not differentiated."""
        moving = not still and any(is_live(x, self.context) for x in values)
        self.moving, self.shares = moving, self._in_halves if moving else self._of_the_greater
        self.either = not moving and not isinstance(node, sympy.Heaviside)
        match node:
            case sympy.Abs():
                [x] = values
                if not moving:
                    return self.tidy(x * (2 * self.positive(x, OF_ABS) - 1))
                tie = self._tie("abs", HALF)
                sign = self.positive(x, OF_ABS, tie) - self.positive(-x, OF_ABS[::-1], 1 - tie)
                return self.tidy(x * sign)
            case clip():
                empty = not moving and values[1] == values[2]
                return values[1] if empty else self._clipped(*values)
            case sympy.Heaviside():
                x, at_zero = values
                if at_zero:
                    return 1 - self.positive(-x, OF_CASE[::-1])
                return self.positive(x, OF_CASE)
            case sympy.Max():
                return reduce(self._greater, self._in_pairs(values))
        return -reduce(self._greater, self._in_pairs([-x for x in values]))

    # -- logs and powers ---------------------------------------------------------------
    def smooth(self, function: Any, x: ExpPoly, power: ExpPoly = ZERO) -> ExpPoly:
        """exp(x), x^power, or log(x) of the slope x^(power - 1); exp by cases where x holds regions."""
        inside = sorted(n for n in x.names() if self.context.defined(n, REGION) is not None)
        if inside and function is sympy.exp:
            held, name = ExpPoly.variable(inside[0]), inside[0]
            there, elsewhere = (self.smooth(function, x.substitute({name: end})) for end in (ONE, ZERO))
            return self.tidy(held * there + (1 - held) * elsewhere)
        with suppress(NotInRing):
            return _in_ring(function, x, power)
        detached = any(parse_name(name).detached for name in x.names())
        weighted = self.on_policy and any(parse_name(name).base == "w" for name in x.names())
        if not detached and not weighted:
            return self._value(function, x, power)
        value = attach(at_policy(attach(x)) if weighted else x)
        if not is_live(x, self.context):
            return self._detached(self._value(function, value, power))
        found = self._value(function, value, power)
        times = ONE if function is sympy.log else power
        slope = found if function is sympy.exp else self._value(sympy.Pow, value, power - 1) * times
        return self._detached(found) + self._detached(slope) * (x - self._detached(attach(x)))

    def _value(self, function: Any, x: ExpPoly, power: ExpPoly) -> ExpPoly:
        """exp(x), log(x) or x^power of an x without sg(..)."""
        with suppress(NotInRing):
            return _in_ring(function, x, power)
        if function is sympy.exp:
            return self._exponential(x)
        if not (x := self.tidy(x)):
            raise UsageError("a division by zero, or the log of zero")
        if function is sympy.log:
            return self._log(x)
        whole = Fraction(power.terms.get(((), ()), 0)) if not power.names() else Fraction(1, 2)
        if whole.denominator > 1:
            return (self._log(x) * power).exp()
        number = max(_stripped(x)[0], _stripped(-x)[0])  # no log of it is asked for
        x = x * (1 / number)
        if whole < 0 and not self._is_positive(x):  # 1/x = x/x^2
            return x ** int(-whole) * (self._log(x * x) * power).exp() * number ** int(whole)
        return (self._log(x) * power).exp() * number ** int(whole)

    def _is_positive(self, x: ExpPoly) -> bool:
        """Is it evident where each region holds, of a positive e, and where it does not?"""
        held = next((n for n in sorted(x.names()) if self.context.defined(n, REGION) is not None), None)
        if held is None:
            return _is_evident(x) or bool(mixed_by(x, self.context))
        there, elsewhere = (x.substitute({held: end}) for end in (ONE, ZERO))
        e = self.context.defined(held) or ZERO
        return all(
            self._is_positive(case) or self._is_positive(case - more)
            for case, more in ((there, e), (elsewhere, -e))
        )

    def _exponential(self, x: ExpPoly) -> ExpPoly:
        """exp(x): exponentials in it get a name."""
        held = ExpPoly({key: value for key, value in x.terms.items() if key[1]})
        return (x - held + self._named(held, LET)).exp()

    def _log(self, x: ExpPoly) -> ExpPoly:
        """log(exp(Q) * rest)."""
        _, unit, _, _ = _stripped(x)
        [((_, exponent), _)] = unit.terms.items()
        rest = x * unit.inverse()
        total = ExpPoly({(m, ()): value for m, value in exponent})
        root = square_root(rest)
        if root is not None and _is_evident(root):
            return total + self._log(root) * 2
        if rest == ONE:
            return total
        share = Fraction(rest.terms.get(((), ()), 0))
        if share.numerator == 1 and rest == ExpPoly.number(share):  # log(1/2) = -log(2)
            return total - self._log(ExpPoly.number(share.denominator))
        name, ratio = self._multiple_of(rest)
        return total + (ExpPoly.variable(name) + self._log(ratio) if name else self._named(rest, LOG))

    def _multiple_of(self, x: ExpPoly) -> tuple[str, ExpPoly]:
        """The log of an element of which x is another multiple, and which."""
        for definition in self.context.definitions if self.context.speaks_of(x) else ():
            name = at_slot(definition.name, self._slot(x))
            e = self.context.defined(name, LOG)
            if e is not None and e != x and e.terms.keys() == x.terms.keys():
                ratio = ExpPoly.number(Fraction(x.terms[key := min(x.terms)]) / e.terms[key])
                if e * ratio == x:
                    return name, ratio
        return "", ONE

    def _named(self, e: ExpPoly, kind: str) -> ExpPoly:
        known = self._known(e, kind)
        if known is None and kind == LOG and not positive_somewhere(e, self.context):
            raise UsageError("a division by zero, or the log of zero, at every sample")
        return self._define(e, kind) if known is None else known

    def _detached(self, x: ExpPoly) -> ExpPoly:
        """sg(x)."""
        return x.rename(lambda n: detach_name(n) if is_live(ExpPoly.variable(n), self.context) else n)

    def tidy(self, element: ExpPoly) -> ExpPoly:
        return reduced(element, self.context, self.moving, roots=self.roots)

    # -- functions ---------------------------------------------------------------------
    def _in_pairs(self, values: list[ExpPoly]) -> list[ExpPoly]:
        """What varies from sample to sample, before the greatest of what does not."""
        fixed = [x for x in values if self.context.is_constant(x)]
        varying = [x for x in values if x not in fixed]
        return varying + ([reduce(self._greater, fixed)] if fixed else [])

    def _greater(self, a: ExpPoly, b: ExpPoly) -> ExpPoly:
        """max(a, b)."""
        return self.tidy(b + self.shares(a - b) * (a - b))

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
            return self.tidy(between)
        # with bounds that cross it is hi, and where lo > x and x > hi both hold they do
        return self.tidy(between + (hi - between) * crossed)

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
        value = self.tidy(at_policy(value) if self.on_policy else value)
        return self._split(value, x, tuple(named), tie)

    def _split(self, x: ExpPoly, moving: ExpPoly, named: tuple[str, ...], tie: ExpPoly) -> ExpPoly:
        """moving: x with what is detached; where that is 0 too, so are its slopes, whatever the tie is."""
        inside = sorted(name for name in x.names() if self.context.defined(name, REGION) is not None)
        if not inside:
            self.tied = self.tied or bool(not x and self.tidy(moving))
            return self._of_factors(x, named) if x else tie
        held = ExpPoly.variable(inside[0])
        there, elsewhere = (
            self._split(
                self.tidy(x.substitute({inside[0]: value})), moving.substitute({inside[0]: value}), named, tie
            )
            for value in (ONE, ZERO)
        )
        return self.tidy(held * there + (1 - held) * elsewhere)

    def _of_factors(self, x: ExpPoly, named: tuple[str, ...]) -> ExpPoly:
        number, _, monomial, rest = _stripped(without_positive_factors(x))
        [(powers, _)] = monomial.terms
        factors = [ExpPoly.variable(name) for name, _ in powers]
        if rest != ONE or not factors:
            factors += _common_factor(rest)
        return self._of_product(factors, 1 if number > 0 else -1, named)

    def _of_product(self, factors: list[ExpPoly], sign: int, named: tuple[str, ...]) -> ExpPoly:
        """[sign f g .. > 0]."""
        first, *more = factors
        if not more:
            return self._of_one(first * sign, named)
        both = (self._of_one(first * s, named if s > 0 else named[::-1]) for s in (1, -1))
        rest = (self._of_product(more, sign * s, named) for s in (1, -1))
        return self.tidy(sum((a * b for a, b in zip(both, rest, strict=True)), ZERO))

    def _of_one(self, x: ExpPoly, named: tuple[str, ...]) -> ExpPoly:
        if not x.names():
            return ONE if _number(x) > 0 else ZERO
        known = self._known(x, REGION)
        if known is None and self.either and (opposite := self._known(-x, REGION)) is not None:
            known = 1 - opposite
        if known is None and self.roots:
            known = self._same_by_roots(x)
        return self.tidy(self._define(x, REGION, named[0]) if known is None else known)

    def _same_by_roots(self, x: ExpPoly) -> ExpPoly | None:
        """A region, or its complement, that is the same but for zeros of functions of one log ratio."""
        for name, kind, e in self.context.definitions:
            both = e.names() | x.names()
            found = joint((e, x)) if kind == REGION and both <= {*LOG_RATIOS} else None
            signs = {(a, b) for a, b in found or () if a and b}
            if signs and all(a == b for a, b in signs):
                return ExpPoly.variable(name)
            if signs and all(a != b for a, b in signs):
                return 1 - ExpPoly.variable(name)
        return None

    def _known(self, x: ExpPoly, kind: str) -> ExpPoly | None:
        """The name that is defined by x already."""
        for definition in self.context.definitions:
            name = at_slot(definition.name, self._slot(x))
            if self.context.defined(name, kind) == x:
                return ExpPoly.variable(name)
        return None

    def _slot(self, x: ExpPoly) -> str:
        """The one position that it speaks of, or x: then its name names slots itself."""
        slots = self.context.speaks_of(x)
        return min(slots) if len(slots) == 1 and slots <= {"now", "self"} else "x"

    def _define(self, x: ExpPoly, kind: str, named: str = "") -> ExpPoly:
        """A new name: of one position at each of them, or of the slots that it names."""
        if len(self.context.definitions) >= MAX_REGIONS:
            raise TooManyRegions(MAX_REGIONS)
        slot = self._slot(x)
        e = x.rename(lambda n: n.replace(f"[{slot}]", "")) if slot != "x" else x
        bases = {parse_name(n).base for n in e.names()} & {*SAMPLE_BASES}
        if kind == REGION and len(e.terms) == 1 and bases and bases <= {*THETA_FREE}:
            named = "is_pos" if min(e.terms.values()) > 0 else "is_neg"
        name = self._free(named) if kind == REGION else name_of(kind, e)
        known = {*SAMPLE_BASES, *(definition.name for definition in self.context.definitions)}
        parameters = {n for n in e.names() if parse_name(n).base not in known}
        self.context = replace(
            self.context,
            parameters=tuple(sorted({*self.context.parameters, *parameters})),
            definitions=(*self.context.definitions, Definition(name, kind, e)),
        )
        return ExpPoly.variable(at_slot(name, slot))

    def _free(self, name: str) -> str:
        """A name that is not taken."""
        stem, number = name.rstrip("1"), 1
        while name in self.taken:
            number += 1
            name = f"{stem}{number}"
        self.taken.add(name)
        return name


def unfolding(on_policy: bool, parameters: Iterable[str], nonnegative: Iterable[Any]) -> Unfolding:
    """Nothing written out yet; nonnegative: what is known to be at least 0, as `bounds_in_order` has it."""
    facts = tuple(map(to_ring, nonnegative))
    witness = tuple(sorted((find_witness(facts) or {}).items()))
    context = Context(tuple(sorted(parameters)), (), (), (), facts, witness)
    return Unfolding(on_policy, set(context.parameters), context)


def is_piecewise(e: Any) -> bool:
    return bool(e.has(*PIECEWISE, sympy.sign))


def only_used(context: Context, *elements: ExpPoly) -> Context:
    """The context with those regions alone that elements name, in whichever slot."""
    bases = {parse_name(name).base for element in elements for name in element.names()}
    kept: tuple[Definition, ...] = ()
    for definition in reversed(context.definitions):
        if definition.name in bases:
            kept = (definition, *kept)
            bases |= {parse_name(name).base for name in definition.e.names()}
    return replace(context, definitions=kept) if kept else PLAIN


def _in_ring(function: Any, x: ExpPoly, power: ExpPoly) -> ExpPoly:
    if counts_tokens(x) and any(value < 0 for value in power.terms.values()):
        raise NotInRing("division by what may be 0")
    return to_ring(function(*map(to_sympy, (x, power) if function is sympy.Pow else (x,))))


def _common_factor(x: ExpPoly) -> list[ExpPoly]:
    """(rho - 6/5) and a for the sum rho a - 6/5 a, of a sum a; else the sum itself."""
    groups: dict[Any, ExpPoly] = {}
    for (monomial, exponent), value in x.terms.items():
        groups[exponent] = groups.get(exponent, ZERO) + ExpPoly({(monomial, ()): value})
    least = min(groups.values(), key=lambda c: len(c.terms))
    if len(groups) > 1 and len(least.terms) > 1 and (g := quotient(x, least)) is not None:
        return [g, least]
    return [x]


def counts_tokens(x: ExpPoly) -> bool:
    """Is it a number of tokens that a mask keeps: of all tokens, or with a positive number added?"""
    names = {parse_name(name) for name in x.names()}
    powers = {power for monomial, exponent in x.terms for _, power in (*monomial, *exponent)}
    whole = ((), ()) in x.terms or {name.slot for name in names} == {"x"}
    masks = "M" in {name.base for name in names} <= {"M", "length"}
    return whole and masks and powers <= {1} and all(value > 0 for value in x.terms.values())


def mixed_by(e: ExpPoly, context: Context) -> list[str]:
    """The parameters w of a mixture w a + (1 - w) b of positive a and b, such as b r + 1 - b: 0 <= w <= 1."""
    found = []
    for w in sorted(e.names().intersection(context.parameters)):
        powers = {power for monomial, _ in e.terms for name, power in monomial if name == w}
        if powers != {1}:  # such as 1/n, or w in an exponent alone
            continue
        ends = [e.substitute({w: end}) for end in (ZERO, ONE)]
        gap = ends[1] - ends[0]
        crossing = all(map(_is_evident, ends)) and not _is_evident(gap) and not _is_evident(-gap)
        found += [w] if crossing and ends[0] + ExpPoly.variable(w) * gap == e else []
    return found


def _is_evident(x: ExpPoly) -> bool:
    """Are all its terms at least 0, and one of them positive?  Or is it the square of such a sum?

    Of a number of kept tokens that one is kept is a hypothesis.
    """
    if counts_tokens(x):
        return True
    found, root = positive_sum(x), square_root(x)
    positive = found is not None and any(to_ring(row["b"]) == ONE for row in found.squares)
    return positive or (root is not None and _is_evident(root))


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
