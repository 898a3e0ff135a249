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

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from typing import Any

import sympy
from mpmath import iv

from klsym.engine.regions.bounds_in_order import find_witness
from klsym.engine.regions.in_span import is_positive_multiple, is_positive_somewhere
from klsym.engine.regions.logs import detach
from klsym.engine.regions.positivity import drop_positive_factors, find_positive_sum, split_common_factors
from klsym.engine.regions.relations import divide_exactly, find_square_root, reduce_by_relations
from klsym.engine.regions.root_isolation import find_joint_signs
from klsym.errors import NotInRing, TooManyRegions, UsageError
from klsym.kernel.definitions import LET, LOG, REGION, Definition
from klsym.kernel.derivatives import attach, is_live
from klsym.kernel.names import LOG_RATIOS, SAMPLE_BASES, THETA_FREE, parse_name
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.kernel.slots import name_in_slot
from klsym.kernel.statements import Context
from klsym.language.convert import substitute_on_policy, to_ring, to_sympy
from klsym.language.defined import name_definition
from klsym.language.expressions import OF_REGIONS, clip
from klsym.language.unfolding import PLAIN

KINKED = (sympy.Min, sympy.Max, sympy.Abs, clip)
PIECEWISE = (*KINKED, sympy.Heaviside)
HALF = ExpPoly.from_number(Fraction(1, 2))
MAX_REGIONS = 64  # in one loss
OF_CLIP, OF_PAIR, OF_ABS = ("is_high", "is_low"), ("is_above", "is_below"), ("is_up", "is_down")
OF_CASE = ("is_case", "is_else")
Labels = tuple[str, ...]  # what a region is called, and its opposite


@dataclass
class Unfolding:
    """The regions of one loss while its parts are written as polynomials in them.

    ties: None, or unknown slopes at ties that every sample meets: name -> the kind of tie.
    roots: regions may exclude each other by isolated zeros of functions of one log ratio, too.
    has_gradient: the function is differentiated.
    has_permanent_tie: a slope was needed of an argument that is 0 at every sample.
    ignores_ties: 1 - [-x > 0] will do for [x > 0], since it does not matter where x is 0.
    """

    on_policy: bool
    used_names: set[str]
    context: Context
    ties: dict[str, str] | None = None
    roots: bool = False
    has_gradient: bool = True
    has_permanent_tie: bool = False
    ignores_ties: bool = False

    def copy(self) -> Unfolding:
        """Return a copy that can be extended independently."""
        return replace(self, used_names={*self.used_names})

    def __call__(self, node: Any, values: list[ExpPoly], detached: bool = False) -> ExpPoly:
        """Return a piecewise function of elements; detached: it is not differentiated."""
        has_gradient = not detached and any(is_live(x, self.context) for x in values)
        self.has_gradient = has_gradient
        self.share_slope = self._share_ties if has_gradient else self._choose_greater
        self.ignores_ties = not has_gradient and not isinstance(node, sympy.Heaviside)
        match node:
            case sympy.Abs():
                [x] = values
                if not has_gradient:
                    return self.simplify(x * (2 * self.build_region(x, OF_ABS) - 1))
                tie = self._resolve_tie("abs", HALF)
                sign = self.build_region(x, OF_ABS, tie) - self.build_region(-x, OF_ABS[::-1], 1 - tie)
                return self.simplify(x * sign)
            case clip():
                empty = not has_gradient and values[1] == values[2]
                return values[1] if empty else self._clip(*values)
            case sympy.Heaviside():
                x, at_zero = values
                region = self.build_region(-x, OF_CASE[::-1]) if at_zero else self.build_region(x, OF_CASE)
                return 1 - region if at_zero else region
            case sympy.Max():
                return reduce(self._build_maximum, self._order_constants_last(values))
        return -reduce(self._build_maximum, self._order_constants_last([-x for x in values]))

    # -- logs and powers ---------------------------------------------------------------
    def apply_smooth(self, function: Any, x: ExpPoly, power: ExpPoly = ZERO) -> ExpPoly:
        """Return exp(x), x^power, or log(x) with slope x^(power - 1); exp by cases if x holds regions."""
        region_names = sorted(n for n in x.names() if self.context.find_definition(n, REGION) is not None)
        if region_names and function is sympy.exp:
            region, name = ExpPoly.from_variable(region_names[0]), region_names[0]
            inside, outside = (self.apply_smooth(function, x.substitute({name: end})) for end in (ONE, ZERO))
            return self.simplify(region * inside + (1 - region) * outside)
        with suppress(NotInRing):
            return _convert_to_ring(function, x, power)
        detached = any(parse_name(name).detached for name in x.names())
        weighted = self.on_policy and any(parse_name(name).base == "w" for name in x.names())
        if not detached and not weighted:
            return self._compute_smooth_value(function, x, power)
        value = attach(substitute_on_policy(attach(x)) if weighted else x)
        if not is_live(x, self.context):
            return detach(self._compute_smooth_value(function, value, power), self.context)
        applied = self._compute_smooth_value(function, value, power)
        factor = ONE if function is sympy.log else power
        slope = (
            applied
            if function is sympy.exp
            else self._compute_smooth_value(sympy.Pow, value, power - 1) * factor
        )
        held, rate, at = (detach(part, self.context) for part in (applied, slope, attach(x)))
        return held + rate * (x - at)

    def _compute_smooth_value(self, function: Any, x: ExpPoly, power: ExpPoly) -> ExpPoly:
        """Return exp(x), log(x) or x^power of an x without sg(..)."""
        with suppress(NotInRing):
            return _convert_to_ring(function, x, power)
        if function is sympy.exp:
            return self._build_exponential(x)
        if not (x := self.simplify(x)):
            raise UsageError("a division by zero, or the log of zero")
        if function is sympy.log:
            return self._expand_log(x)
        whole = Fraction(power.terms.get(((), ()), 0)) if not power.names() else Fraction(1, 2)
        if whole.denominator > 1:
            return (self._expand_log(x) * power).exp()
        number = max(split_common_factors(e).number for e in (x, -x))  # no log of it is asked for
        x = x * (1 / number)
        if whole < 0 and not self._is_positive(x):  # 1/x = x/x^2
            return x ** int(-whole) * (self._expand_log(x * x) * power).exp() * number ** int(whole)
        return (self._expand_log(x) * power).exp() * number ** int(whole)

    def _is_positive(self, x: ExpPoly) -> bool:
        """Is x evidently positive where each region e > 0 holds, and where it does not?"""
        region = next(
            (n for n in sorted(x.names()) if self.context.find_definition(n, REGION) is not None), None
        )
        if region is None:
            return _is_evidently_positive(x) or bool(find_mixing_weights(x, self.context))
        inside, outside = (x.substitute({region: end}) for end in (ONE, ZERO))
        e = self.context.find_definition(region) or ZERO
        return all(
            self._is_positive(case) or self._is_positive(case - gain)
            for case, gain in ((inside, e), (outside, -e))
        )

    def _build_exponential(self, x: ExpPoly) -> ExpPoly:
        """Return exp(x); exponentials in x get a name."""
        exponential_part = ExpPoly({key: value for key, value in x.terms.items() if key[1]})
        return (x - exponential_part + self._find_or_define(exponential_part, LET)).exp()

    def _expand_log(self, x: ExpPoly) -> ExpPoly:
        """Return log(exp(Q) * remainder) as a sum."""
        unit = split_common_factors(x).exponential
        [((_, exponent), _)] = unit.terms.items()
        remainder = x * unit.invert()
        total = ExpPoly({(m, ()): value for m, value in exponent})
        root = find_square_root(remainder)
        if root is not None and _is_evidently_positive(root):
            return total + self._expand_log(root) * 2
        if remainder == ONE:
            return total
        share = Fraction(remainder.terms.get(((), ()), 0))
        if share.numerator == 1 and remainder == ExpPoly.from_number(share):  # log(1/2) = -log(2)
            return total - self._expand_log(ExpPoly.from_number(share.denominator))
        name, ratio = self._find_multiple_of_log(remainder)
        if name:
            return total + ExpPoly.from_variable(name) + self._expand_log(ratio)
        return total + self._find_or_define(remainder, LOG)

    def _find_multiple_of_log(self, x: ExpPoly) -> tuple[str, ExpPoly]:
        """Return the name of a log of a multiple of x, and the ratio of the two; or "" and 1."""
        for definition in self.context.definitions if self.context.collect_slots(x) else ():
            name = name_in_slot(definition.name, self._find_slot(x))
            e = self.context.find_definition(name, LOG)
            if e is not None and e != x and e.terms.keys() == x.terms.keys():
                ratio = ExpPoly.from_number(Fraction(x.terms[key := min(x.terms)]) / e.terms[key])
                if e * ratio == x:
                    return name, ratio
        return "", ONE

    def _find_or_define(self, e: ExpPoly, kind: str) -> ExpPoly:
        definition = self._find_definition(e, kind)
        if definition is None and kind == LOG and not is_positive_somewhere(e, self.context):
            reason = "a division by zero, or a log or a root of what is not positive, at every sample tried"
            raise UsageError(f"{reason} (of batches those of n = 2)")
        return self._add_definition(e, kind) if definition is None else definition

    def simplify(self, element: ExpPoly) -> ExpPoly:
        return reduce_by_relations(element, self.context, self.has_gradient, roots=self.roots)

    # -- functions ---------------------------------------------------------------------
    def _order_constants_last(self, values: list[ExpPoly]) -> list[ExpPoly]:
        """Put what varies from sample to sample before the greatest of what does not."""
        fixed = [x for x in values if self.context.is_constant(x)]
        varying = [x for x in values if x not in fixed]
        return varying + ([reduce(self._build_maximum, fixed)] if fixed else [])

    def _build_maximum(self, a: ExpPoly, b: ExpPoly) -> ExpPoly:
        """Return max(a, b)."""
        return self.simplify(b + self.share_slope(a - b) * (a - b))

    def _share_ties(self, gap: ExpPoly) -> ExpPoly:
        """Return 1 where the gap is positive and 1/2 where it is 0: min and max share the slope at a tie."""
        tie = self._resolve_tie("min", HALF)
        over, under = self.build_region(gap, OF_PAIR, tie), self.build_region(-gap, OF_PAIR[::-1], 1 - tie)
        return (over + 1 - under) * HALF

    def _choose_greater(self, gap: ExpPoly) -> ExpPoly:
        return self.build_region(gap, OF_PAIR)

    def _clip(self, x: ExpPoly, lo: ExpPoly, hi: ExpPoly) -> ExpPoly:
        """Return min(max(x, lo), hi), of slope 1 at both bounds; hi where lo > hi."""
        over = self.build_region(x - hi, OF_CLIP, self._resolve_tie("clip", ZERO))
        under = self.build_region(lo - x, OF_CLIP[::-1], self._resolve_tie("clip", ZERO))
        crossed = self.build_region(lo - hi, ("is_crossed", "is_ordered"))
        between = x + (lo - x) * under - (x - hi) * over
        if not crossed:
            return self.simplify(between)
        # with bounds that cross it is hi, and where lo > x and x > hi both hold they do
        return self.simplify(between + (hi - between) * crossed)

    def _resolve_tie(self, kind: str, slope: ExpPoly) -> ExpPoly:
        """Return [x > 0] where x is 0 at every sample."""
        if self.ties is None:
            return slope
        name = f"{OF_REGIONS}tie{len(self.ties)}"
        self.ties[name] = kind
        self.context = replace(self.context, parameters=(*self.context.parameters, name))
        return ExpPoly.from_variable(name)

    # -- regions -----------------------------------------------------------------------
    def build_region(self, x: ExpPoly, labels: Iterable[str], tie: ExpPoly = ZERO) -> ExpPoly:
        """Return [x > 0] at a sample, as a polynomial in regions; tie: its value if x = 0 at every sample."""
        value = attach(x)
        value = self.simplify(substitute_on_policy(value) if self.on_policy else value)
        return self._split_by_regions(value, x, tuple(labels), tie)

    def _split_by_regions(self, x: ExpPoly, original: ExpPoly, labels: Labels, tie: ExpPoly) -> ExpPoly:
        """Return [x > 0] by cases of the regions in x.

        original: x with its detached parts; where that is 0 too, so are its slopes, whatever the tie is.
        """
        names = sorted(name for name in x.names() if self.context.find_definition(name, REGION) is not None)
        if not names:
            self.has_permanent_tie = self.has_permanent_tie or bool(not x and self.simplify(original))
            return self._build_factored_region(x, labels) if x else tie
        region = ExpPoly.from_variable(names[0])
        inside, outside = (
            self._split_by_regions(self.simplify(x.substitute(at)), original.substitute(at), labels, tie)
            for at in ({names[0]: ONE}, {names[0]: ZERO})
        )
        return self.simplify(region * inside + (1 - region) * outside)

    def _build_factored_region(self, x: ExpPoly, labels: Labels) -> ExpPoly:
        common = split_common_factors(drop_positive_factors(x))
        [(powers, _)] = common.monomial.terms
        factors = [ExpPoly.from_variable(name) for name, _ in powers]
        if common.remainder != ONE or not factors:
            factors += _split_common_factor(common.remainder)
        return self._build_product_region(factors, 1 if common.number > 0 else -1, labels)

    def _build_product_region(self, factors: list[ExpPoly], sign: int, labels: Labels) -> ExpPoly:
        """Return [sign f g .. > 0]."""
        first, *others = factors
        if not others:
            return self._build_plain_region(first * sign, labels)
        both = (self._build_plain_region(first * s, labels if s > 0 else labels[::-1]) for s in (1, -1))
        products = (self._build_product_region(others, sign * s, labels) for s in (1, -1))
        return self.simplify(sum((a * b for a, b in zip(both, products, strict=True)), ZERO))

    def _build_plain_region(self, x: ExpPoly, labels: Labels) -> ExpPoly:
        if not x.names():
            return ONE if _find_sign_of_number(x) > 0 else ZERO
        region = self._find_definition(x, REGION)
        opposite = self._find_definition(-x, REGION) if region is None and self.ignores_ties else None
        region = region if opposite is None else 1 - opposite
        if region is None and self.roots:
            region = self._find_equal_region(x)
        return self.simplify(self._add_definition(x, REGION, labels[0]) if region is None else region)

    def _find_equal_region(self, x: ExpPoly) -> ExpPoly | None:
        """Return a region or a complement that equals [x > 0] except at isolated zeros."""
        for name, kind, e in self.context.definitions:
            both = e.names() | x.names()
            joint_signs = find_joint_signs((e, x)) if kind == REGION and both <= {*LOG_RATIOS} else None
            signs = {(a, b) for a, b in joint_signs or () if a and b}
            if signs and all(a == b for a, b in signs):
                return ExpPoly.from_variable(name)
            if signs and all(a != b for a, b in signs):
                return 1 - ExpPoly.from_variable(name)
        return None

    def _find_definition(self, x: ExpPoly, kind: str) -> ExpPoly | None:
        """Return the name that x defines already; of a region, that an element of the same sign defines."""
        is_same = is_positive_multiple if kind == REGION else ExpPoly.__eq__
        for definition in self.context.definitions:
            name = name_in_slot(definition.name, self._find_slot(x))
            if (e := self.context.find_definition(name, kind)) is not None and is_same(e, x):
                return ExpPoly.from_variable(name)
        return None

    def _find_slot(self, x: ExpPoly) -> str:
        """Return the one slot that x depends on, or "x": then its name names slots itself."""
        slots = self.context.collect_slots(x)
        return min(slots) if len(slots) == 1 and slots <= {"now", "self"} else "x"

    def _add_definition(self, x: ExpPoly, kind: str, label: str = "") -> ExpPoly:
        """Define a new name: of one slot for each of them, or of the slots that it names."""
        if len(self.context.definitions) >= MAX_REGIONS:
            raise TooManyRegions(MAX_REGIONS)
        slot = self._find_slot(x)
        e = x.rename(lambda n: n.replace(f"[{slot}]", "")) if slot != "x" else x
        bases = {parse_name(n).base for n in e.names()} & {*SAMPLE_BASES}
        if kind == REGION and len(e.terms) == 1 and bases and bases <= {*THETA_FREE}:
            label = "is_pos" if min(e.terms.values()) > 0 else "is_neg"
        name = self._choose_free_name(label) if kind == REGION else name_definition(kind, e)
        known_bases = {*SAMPLE_BASES, *(definition.name for definition in self.context.definitions)}
        parameters = {n for n in e.names() if parse_name(n).base not in known_bases}
        self.context = replace(
            self.context,
            parameters=tuple(sorted({*self.context.parameters, *parameters})),
            definitions=(*self.context.definitions, Definition(name, kind, e)),
        )
        return ExpPoly.from_variable(name_in_slot(name, slot))

    def _choose_free_name(self, name: str) -> str:
        """Return a name that is not in use."""
        stem, number = name.rstrip("1"), 1
        while name in self.used_names:
            number += 1
            name = f"{stem}{number}"
        self.used_names.add(name)
        return name


def start_unfolding(on_policy: bool, parameters: Collection[str], nonnegative: Iterable[Any]) -> Unfolding:
    """Return an unfolding without regions.

    nonnegative: expressions that are at least 0, as `collect_clip_facts` returns them.
    """
    facts = tuple(map(to_ring, nonnegative))
    witness = tuple(sorted((find_witness(facts) or {}).items()))
    return Unfolding(
        on_policy, {*parameters}, Context(tuple(sorted(parameters)), facts=facts, witness=witness)
    )


def is_piecewise(e: Any) -> bool:
    return bool(e.has(*PIECEWISE, sympy.sign))


def keep_used_regions(context: Context, *elements: ExpPoly) -> Context:
    """Return the context with only those regions that elements name, in whichever slot."""
    bases = {parse_name(name).base for element in elements for name in element.names()}
    used: tuple[Definition, ...] = ()
    for definition in reversed(context.definitions):
        if definition.name in bases:
            used = (definition, *used)
            bases |= {parse_name(name).base for name in definition.e.names()}
    return replace(context, definitions=used) if used else PLAIN


def _convert_to_ring(function: Any, x: ExpPoly, power: ExpPoly) -> ExpPoly:
    if is_token_count(x) and any(value < 0 for value in power.terms.values()):
        raise NotInRing("division by what may be 0")
    return to_ring(function(*map(to_sympy, (x, power) if function is sympy.Pow else (x,))))


def _split_common_factor(x: ExpPoly) -> list[ExpPoly]:
    """Return (rho - 6/5) and a for a sum rho a - 6/5 a, with a sum a; else the sum itself."""
    groups: dict[Any, ExpPoly] = {}
    for (monomial, exponent), value in x.terms.items():
        groups[exponent] = groups.get(exponent, ZERO) + ExpPoly({(monomial, ()): value})
    least = min(groups.values(), key=lambda c: len(c.terms))
    if len(groups) > 1 and len(least.terms) > 1 and (g := divide_exactly(x, least)) is not None:
        return [g, least]
    return [x]


def is_token_count(x: ExpPoly) -> bool:
    """Is it a number of tokens that a mask keeps: of all tokens, or with a positive number added?"""
    names = {parse_name(name) for name in x.names()}
    powers = {power for monomial, exponent in x.terms for _, power in (*monomial, *exponent)}
    whole = ((), ()) in x.terms or {name.slot for name in names} == {"x"}
    masks = "M" in {name.base for name in names} <= {"M", "length"}
    return whole and masks and powers <= {1} and all(value > 0 for value in x.terms.values())


def find_mixing_weights(e: ExpPoly, context: Context) -> list[str]:
    """Return the parameters w of a mixture w a + (1 - w) b of positive a and b: 0 <= w <= 1."""
    weights = []
    for w in sorted(e.names().intersection(context.parameters)):
        powers = {power for monomial, _ in e.terms for name, power in monomial if name == w}
        if powers != {1}:  # such as 1/n, or w in an exponent alone
            continue
        ends = [e.substitute({w: end}) for end in (ZERO, ONE)]
        gap = ends[1] - ends[0]
        crossing = all(map(_is_evidently_positive, ends)) and not any(
            map(_is_evidently_positive, (gap, -gap))
        )
        weights += [w] if crossing and ends[0] + ExpPoly.from_variable(w) * gap == e else []
    return weights


def _is_evidently_positive(x: ExpPoly) -> bool:
    """Are all its terms at least 0, and one of them positive?  Or is it the square of such a sum?

    That a mask keeps at least one token is a hypothesis.
    """
    if is_token_count(x):
        return True
    terms, root = find_positive_sum(x), find_square_root(x)
    positive = terms is not None and any(to_ring(row["b"]) == ONE for row in terms.squares)
    return positive or (root is not None and _is_evidently_positive(root))


def _find_sign_of_number(x: ExpPoly) -> Any:
    """Return the sign of a sum of exponentials of numbers, which is not 0."""
    iv.prec = 400
    total = iv.mpf(0)
    for (_, exponent), value in x.terms.items():
        power = sum((iv.mpf(v.numerator) / v.denominator for _, v in exponent), iv.mpf(0))
        total += iv.exp(power) * value.numerator / value.denominator
    if 0 in total:
        raise NotInRing("a number whose sign is not decided")
    return 1 if total > 0 else -1
