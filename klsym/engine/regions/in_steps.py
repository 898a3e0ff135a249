"""Elements that hold regions and logs as SymPy expressions in steps: how verdicts show them.  Untrusted.

[x > 0] is Heaviside(x, 0), which is 0 at x = 0; parameters of which that is a fact are positive
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import sympy
from sympy import Heaviside

from klsym.engine.regions.relations import contradiction
from klsym.kernel.names import HELD, LOG_RATIOS, attach_name, parse_name
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.kernel.slots import PARTS, SEQUENCE, at_slot
from klsym.kernel.statements import LOG, REGION, Context
from klsym.language.convert import to_sympy
from klsym.language.expressions import DENSITIES, OF_REGIONS, Log, Region, Slot, k3, s

BATCH = PARTS["i"]
MOST_OPERATIONS = 2000  # of what is multiplied out to show steps as signs


@lru_cache(maxsize=1024)
def in_steps(element: ExpPoly, context: Context, tokens: bool = False) -> Any:
    """The element with a step for each region, and logs as they are.

    tokens: what a bound says of a whole sequence is said of the sum of its parts.
    """
    element, complements = _with_complements(element, context)
    steps = {
        sympy.Symbol(name, real=True): Heaviside(-in_steps(_in_parts(e) if tokens else e, context, tokens), 1)
        for name, e in complements.items()
    }
    for name in map(attach_name, element.names()):
        if (e := context.defined(name)) is not None:
            of_region, of_log = (context.defined(name, kind) is not None for kind in (REGION, LOG))
            three, e = _k3_in(e) if of_log else (sympy.S.Zero, e)
            inner = three + _without_signs(in_steps(_in_parts(e) if tokens else e, context, tokens))
            step = Heaviside(inner, 0) if of_region else sympy.log(inner) if of_log else inner
            steps |= {kind(name, real=True): step for kind in (sympy.Symbol, Region, Log)}
    shown = to_sympy(element).xreplace(steps)
    known = {sympy.Symbol(name, real=True) for e in context.facts for name in e.names()}
    return _with_signs(shown.xreplace({x: sympy.Symbol(x.name, positive=True) for x in known}))


def _with_complements(element: ExpPoly, context: Context) -> tuple[ExpPoly, dict[str, ExpPoly]]:
    """t - t [x > 0] as t [x <= 0], where [-x > 0] does not stand beside it, and x by the name of [x <= 0]."""
    regions = {name: e for name in element.names() if (e := context.defined(name, REGION)) is not None}
    found: dict[str, ExpPoly] = {}
    for name, e in sorted(regions.items()):
        terms, other = dict(element.terms), f"{OF_REGIONS}not{len(found)}"
        for (monomial, exponent), value in element.terms.items() if -e not in regions.values() else ():
            powers = dict(monomial)
            plain = tuple(item for item in monomial if item[0] != name), exponent
            if powers.pop(name, 0) == 1 and terms.get(plain) == -value:
                del terms[plain], terms[monomial, exponent]
                terms[tuple(sorted({**powers, other: 1}.items())), exponent] = -value
                found[other] = e
        element = ExpPoly(terms)
    return element, found


def _k3_in(e: ExpPoly) -> tuple[Any, ExpPoly]:
    """c k3 and the rest of an element that holds c (r + k1): so it is seen to be positive."""
    for name in sorted(n for n in e.names() if parse_name(n).base == "k1"):
        x, slot = ExpPoly.variable(name), parse_name(name).slot
        [key], [line] = (-x).exp().terms, x.terms
        c = e.terms.get(key, 0)
        if c > 0 and e.terms.get(line, 0) == c:
            three = (-x).exp() - 1 + x
            return c * (k3 if slot == "x" else Slot(slot)(k3)), e - three * c
    return sympy.S.Zero, e


def _with_signs(shown: Any) -> Any:
    """[x > 0] - [-x > 0] is sign(x)."""
    steps = {step.args[0] for step in shown.atoms(Heaviside)}
    if any(-x in steps for x in steps) and shown.count_ops() > MOST_OPERATIONS:
        return shown
    for x in sorted(steps, key=sympy.default_sort_key):
        if -x in steps:
            signed = shown.xreplace({Heaviside(-x, 0): Heaviside(x, 0) - sympy.sign(x)}).expand()
            shown = shown if signed.has(Heaviside(x, 0)) else signed
    return shown


def _without_signs(shown: Any) -> Any:
    """x sign(x) is |x|."""
    for x in sorted((of.args[0] for of in shown.atoms(sympy.sign)), key=sympy.default_sort_key):
        shown = shown.subs(x * sympy.sign(x), sympy.Abs(x))
    return shown


def _in_parts(e: ExpPoly) -> ExpPoly:
    """What a whole sequence has, as the sum over the tokens before, at and after one."""
    whole = e.names() & {*LOG_RATIOS, "R", "M", *HELD}
    return e.substitute({name: _sum_of_parts(name) for name in whole})


def _sum_of_parts(name: str) -> ExpPoly:
    return sum((ExpPoly.variable(at_slot(name, slot)) for slot in SEQUENCE), ZERO)


def led_by_one(x: Any) -> tuple[Any, Any]:
    """x = c y with a rational c, where the first term of y has the coefficient 1: one of the sample if any.

    >>> from klsym.language.expressions import log_q
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


def scored_steps(slots: Mapping[str, ExpPoly], context: Context, tokens: bool = False) -> Any:
    """The sum of coefficients times the scores of slots; that of the position alone goes without it."""
    if len(slots) < 2 and set(slots) <= {"now", "self", "x"} and not (tokens and "x" in slots):
        return sum((in_steps(c, context, tokens) for c in slots.values()), sympy.S.Zero)
    scores = {z: Slot(z)(s) for z in (*SEQUENCE, *BATCH)}
    scores["x"] = sum(scores[z] for z in SEQUENCE)
    return sum((in_steps(c, context, tokens) * scores[z] for z, c in sorted(slots.items())), sympy.S.Zero)


SCORES = tuple(Slot(z)(s) for z in (*SEQUENCE, *BATCH))


def names_scores(x: Any) -> bool:
    """Does it hold the scores that it stands beside?"""
    return bool(x.has(*SCORES))


def by_scores(x: Any) -> Any:
    """A sum over the scores of slots, with what they share in front.

    >>> from klsym.language.expressions import R, now
    >>> past = Slot("past")(s)
    >>> by_scores(2 * now(R) * past - now(R) * past + now(R) * now(s))
    R[now]*(s[now] + s[past])
    """
    beside = {score: x.expand().coeff(score) for score in SCORES if x.has(score)}
    if not beside:
        return x
    fronts = {score: sympy.factor_terms(c) for score, c in beside.items()}
    front = next(iter(fronts.values()))
    if all(sympy.expand(front - other) == 0 for other in fronts.values()):
        return front * sympy.Add(*fronts)
    return sympy.Add(*(c * score for score, c in fronts.items()))


def with_ratios(element: ExpPoly, context: Context) -> ExpPoly:
    """The element, with rho or rho_old beside what truncates it: 2 [rho > 2], which is 0 where q = mu.

    A mask such as k1 (1 - [rho > 2]) leaves k1 as it is there, and weighs nothing.
    """
    total = ZERO
    for terms, regions in _by_regions(element, context):
        found = {name: context.defined(name) or ZERO for name in regions}
        ratios = {n for e in found.values() for n in e.names() if parse_name(n).base in ("w", "o")}
        bounds = {name for name, e in found.items() if ratios & e.names()}
        bare = True
        for tie in (ZERO, ONE):
            known = {name: _at_start(found[name], context, tie) for name in bounds}
            there = terms.substitute({name: value for name, value in known.items() if value is not None})
            bare = bare and any(
                bounds.isdisjoint(name for name, _ in monomial) for monomial, _ in there.terms
            )
        weight = ZERO if bare else sum(map(ExpPoly.variable, sorted(ratios)), ZERO)
        total = total + terms * weight.exp()
    return total


def _at_start(e: ExpPoly, context: Context, tie: ExpPoly) -> ExpPoly | None:
    """[e > 0] where q = mu = old, or tie if e is 0 there; None where this is not known."""
    there = e.substitute({n: ZERO for n in e.names() if parse_name(n).base in ("w", "o")})
    if not there:
        return tie
    for value, signed in ((ZERO, there), (ONE, -there)):
        if contradiction(((signed, False),), context) is not None:
            return value
    return None


def unbounded(element: ExpPoly, context: Context) -> ExpPoly:
    """The terms beside which no bound stands."""
    return sum((terms for terms, regions in _by_regions(element, context) if not regions), ZERO)


def _by_regions(element: ExpPoly, context: Context) -> Iterator[tuple[ExpPoly, set[str]]]:
    """The terms that are the same but for regions, and those regions: r (1 - B) is r beside B."""
    groups: dict[Any, tuple[ExpPoly, set[str]]] = {}
    for (monomial, exponent), value in element.terms.items():
        regions = {name for name, _ in monomial if context.defined(name, REGION) is not None}
        key = tuple(item for item in monomial if item[0] not in regions), exponent
        terms, known = groups.get(key, (ZERO, set()))
        groups[key] = terms + ExpPoly({(monomial, exponent): value}), known | regions
    yield from groups.values()
