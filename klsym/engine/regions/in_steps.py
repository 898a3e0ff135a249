"""Write elements that hold regions and logs as SymPy expressions with steps, for verdicts.  Untrusted.

[x > 0] is Heaviside(x, 0), which is 0 at x = 0; parameters with a fact that says so are positive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import combinations
from typing import Any

import sympy
from sympy import Heaviside

from klsym.engine.regions.relations import find_contradiction
from klsym.kernel.definitions import LOG, REGION
from klsym.kernel.derivatives import attach
from klsym.kernel.names import HELD, LOG_RATIOS, attach_name, parse_name
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.kernel.slots import PARTS, SEQUENCE, name_in_slot
from klsym.kernel.statements import Context
from klsym.language.convert import to_sympy
from klsym.language.expressions import (
    DENSITIES,
    OF_REGIONS,
    Log,
    Region,
    Slot,
    k3,
    log_q,
    s,
    sg,
    unfold,
)

BATCH = PARTS["i"]
MOST_OPERATIONS = 2000  # of what is multiplied out to show steps as signs


@lru_cache(maxsize=1024)
def to_steps(element: ExpPoly, context: Context, tokens: bool = False) -> Any:
    """Return the element as a SymPy expression with a step for each region, and with logs.

    tokens: a bound on a whole sequence is written as one on the sum of its parts.
    """
    element, complements = _replace_complements(element, context)
    steps = {
        sympy.Symbol(name, real=True): Heaviside(
            -to_steps(_split_into_parts(e) if tokens else e, context, tokens), 1
        )
        for name, e in complements.items()
    }
    for name in map(attach_name, element.names()):
        if (e := context.find_definition(name)) is not None:
            is_region, is_log = (context.find_definition(name, kind) is not None for kind in (REGION, LOG))
            k3_term, e = _split_off_k3(e) if is_log else (sympy.S.Zero, e)
            inner = k3_term + _replace_signs_by_abs(
                to_steps(_split_into_parts(e) if tokens else e, context, tokens)
            )
            step = Heaviside(inner, 0) if is_region else sympy.log(inner) if is_log else inner
            steps |= {kind(name, real=True): step for kind in (sympy.Symbol, Region, Log)}
    expression = to_sympy(element).xreplace(steps)
    names = {name for e in context.facts for name in e.names()}
    positive = {sympy.Symbol(name, real=True): sympy.Symbol(name, positive=True) for name in names}
    lasting = {steps[sympy.Symbol(name, real=True)] for name in _find_lasting_regions(element, context)}
    return _combine_steps_to_signs(
        expression.xreplace(positive), {step.args[0].xreplace(positive) for step in lasting}
    )


def _find_lasting_regions(element: ExpPoly, context: Context) -> set[str]:
    """Return the regions x > 0 and -x > 0 whose steps do not add up to the sign of x."""
    element = attach(element)
    regions = {
        name: e for name in element.names() if (e := context.find_definition(name, REGION)) is not None
    }
    pairs = [(a, b) for a, b in combinations(regions, 2) if regions[a] == -regions[b]]
    return {
        name
        for a, b in pairs
        if a in element.substitute({b: ExpPoly.from_variable(a)}).names()
        for name in (a, b)
    }


def _replace_complements(element: ExpPoly, context: Context) -> tuple[ExpPoly, dict[str, ExpPoly]]:
    """Write t - t [x > 0] as t [x <= 0] unless [-x > 0] occurs; return x by the name of [x <= 0]."""
    regions = {
        name: e for name in element.names() if (e := context.find_definition(name, REGION)) is not None
    }
    complements: dict[str, ExpPoly] = {}
    for name, e in sorted(regions.items()):
        terms, complement = dict(element.terms), f"{OF_REGIONS}not{len(complements)}"
        for (monomial, exponent), value in element.terms.items() if -e not in regions.values() else ():
            powers = dict(monomial)
            plain = tuple(item for item in monomial if item[0] != name), exponent
            if powers.pop(name, 0) == 1 and terms.get(plain) == -value:
                del terms[plain], terms[monomial, exponent]
                terms[tuple(sorted({**powers, complement: 1}.items())), exponent] = -value
                complements[complement] = e
        element = ExpPoly(terms)
    return element, complements


def _split_off_k3(e: ExpPoly) -> tuple[Any, ExpPoly]:
    """Return c k3 and the remainder of an element that holds c (r + k1), so that k3 >= 0 is visible."""
    for name in sorted(n for n in e.names() if parse_name(n).base == "k1"):
        x, slot = ExpPoly.from_variable(name), parse_name(name).slot
        [key], [linear_key] = (-x).exp().terms, x.terms
        c = e.terms.get(key, 0)
        if c > 0 and e.terms.get(linear_key, 0) == c:
            k3_element = (-x).exp() - 1 + x
            return c * (k3 if slot == "x" else Slot(slot)(k3)), e - k3_element * c
    return sympy.S.Zero, e


def _combine_steps_to_signs(expression: Any, lasting: set[Any]) -> Any:
    """Write [x > 0] - [-x > 0] as sign(x); lasting: the x to which this does not apply."""
    steps = {step.args[0] for step in expression.atoms(Heaviside)} - lasting
    if any(-x in steps for x in steps) and expression.count_ops() > MOST_OPERATIONS:
        return expression
    for x in sorted(steps, key=sympy.default_sort_key):
        if -x in steps:
            signed = expression.xreplace({Heaviside(-x, 0): Heaviside(x, 0) - sympy.sign(x)}).expand()
            expression = expression if signed.has(Heaviside(x, 0)) else signed
    return expression


def _replace_signs_by_abs(expression: Any) -> Any:
    """Write x sign(x) as |x|."""
    for x in sorted(
        (argument.args[0] for argument in expression.atoms(sympy.sign)), key=sympy.default_sort_key
    ):
        expression = expression.subs(x * sympy.sign(x), sympy.Abs(x))
    return expression


def _split_into_parts(e: ExpPoly) -> ExpPoly:
    """Write names of a whole sequence as sums over the tokens before, at and after one."""
    sequence_names = e.names() & {*LOG_RATIOS, "R", "M", *HELD}
    return e.substitute({name: _sum_parts(name) for name in sequence_names})


def _sum_parts(name: str) -> ExpPoly:
    return sum((ExpPoly.from_variable(name_in_slot(name, slot)) for slot in SEQUENCE), ZERO)


def split_leading_coefficient(x: Any) -> tuple[Any, Any]:
    """x = c y with a rational c, where the first term of y has the coefficient 1: one of the sample if any.

    >>> from klsym.language.expressions import log_q
    >>> split_leading_coefficient(6 - 3 * log_q)
    (-3, log_q - 2)
    """
    terms = [term.as_coeff_Mul() for term in sympy.Add.make_args(x)]
    _, scale = min(
        ((factor, number) for number, factor in terms),
        key=lambda row: (not _has_density(row[0]), row[0].is_number, row[0].sort_key()),
    )
    return scale, sympy.Add(*(number / scale * factor for number, factor in terms))


def _has_density(x: Any) -> bool:
    return any(parse_name(symbol.name).base in {d.name for d in DENSITIES} for symbol in x.free_symbols)


def to_scored_steps(slots: Mapping[str, ExpPoly], context: Context, tokens: bool = False) -> Any:
    """Return the sum of coefficients times scores; a coefficient of the token alone without its score."""
    if len(slots) < 2 and set(slots) <= {"now", "self", "x"} and not (tokens and "x" in slots):
        return sum((to_steps(c, context, tokens) for c in slots.values()), sympy.S.Zero)
    scores = {z: Slot(z)(s) for z in (*SEQUENCE, *BATCH)}
    scores["x"] = sum(scores[z] for z in SEQUENCE)
    return sum((to_steps(c, context, tokens) * scores[z] for z, c in sorted(slots.items())), sympy.S.Zero)


SCORES = tuple(Slot(z)(s) for z in (*SEQUENCE, *BATCH))


def has_scores(x: Any) -> bool:
    """Does the expression name its scores?"""
    return bool(x.has(*SCORES))


def collect_scores(x: Any) -> Any:
    """Collect a sum over the scores of slots, with their common factor in front.

    >>> from klsym.language.expressions import R, now
    >>> past = Slot("past")(s)
    >>> collect_scores(2 * now(R) * past - now(R) * past + now(R) * now(s))
    R[now]*(s[now] + s[past])
    """
    coefficients = {score: x.expand().coeff(score) for score in SCORES if x.has(score)}
    if not coefficients:
        return x
    fronts = {score: sympy.factor_terms(c) for score, c in coefficients.items()}
    front = next(iter(fronts.values()))
    if all(sympy.expand(front - factor) == 0 for factor in fronts.values()):
        return front * sympy.Add(*fronts)
    return sympy.Add(*(c * score for score, c in fronts.items()))


def multiply_by_ratios(element: ExpPoly, context: Context) -> ExpPoly:
    """Multiply truncated terms by the rho or rho_old of the bound: 2 [rho > 2] is 0 where q = mu.

    A mask such as k1 (1 - [rho > 2]) equals k1 where q = mu, and is left as it is.
    """
    total = ZERO
    for terms, regions in _group_by_regions(element, context):
        definitions = {name: context.find_definition(name) or ZERO for name in regions}
        ratios = {n for e in definitions.values() for n in e.names() if parse_name(n).base in ("w", "o")}
        bounds = {name for name, e in definitions.items() if ratios & e.names()}
        bare = True
        for tie in (ZERO, ONE):
            values = {name: _find_value_at_start(definitions[name], context, tie) for name in bounds}
            terms_at_start = terms.substitute(
                {name: value for name, value in values.items() if value is not None}
            )
            bare = bare and any(
                bounds.isdisjoint(name for name, _ in monomial) for monomial, _ in terms_at_start.terms
            )
        weight = ZERO if bare else sum(map(ExpPoly.from_variable, sorted(ratios)), ZERO)
        total = total + terms * weight.exp()
    return total


def _find_value_at_start(e: ExpPoly, context: Context, tie: ExpPoly) -> ExpPoly | None:
    """Return [e > 0] where q = mu = old, or tie if e is 0 there; None where this is not known."""
    element_at_start = e.substitute({n: ZERO for n in e.names() if parse_name(n).base in ("w", "o")})
    if not element_at_start:
        return tie
    for value, signed in ((ZERO, element_at_start), (ONE, -element_at_start)):
        if find_contradiction(((signed, False),), context) is not None:
            return value
    return None


def select_unbounded_terms(element: ExpPoly, context: Context) -> ExpPoly:
    """Return the terms that no region multiplies."""
    return sum((terms for terms, regions in _group_by_regions(element, context) if not regions), ZERO)


def _group_by_regions(element: ExpPoly, context: Context) -> Iterator[tuple[ExpPoly, set[str]]]:
    """Yield terms that differ in regions alone, and those regions: r (1 - B) is one group."""
    groups: dict[Any, tuple[ExpPoly, set[str]]] = {}
    for (monomial, exponent), value in element.terms.items():
        regions = {name for name, _ in monomial if context.find_definition(name, REGION) is not None}
        key = tuple(item for item in monomial if item[0] not in regions), exponent
        terms, regions_of_group = groups.get(key, (ZERO, set()))
        groups[key] = terms + ExpPoly({(monomial, exponent): value}), regions_of_group | regions
    yield from groups.values()


def detaches_policy(e: Any) -> bool:
    """Is there a detached part that depends on theta within a region?  What a comparison chooses does not.

    >>> from klsym.language.parser import parse
    >>> [detaches_policy(parse(loss)) for loss in ("sg(rho)*k2", "where(rho < 2, k2, 0)", "sg(A)*k2")]
    [True, False, False]
    >>> detaches_policy(parse("sg(where(rho > 2, 2, rho))*k2"))
    True
    """
    regions = {step: sympy.Dummy() for step in e.atoms(sympy.Heaviside)}
    return any(unfold(x.args[0].xreplace(regions)).has(log_q) for x in e.atoms(sg))
