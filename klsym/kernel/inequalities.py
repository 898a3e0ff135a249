"""Inequalities: right - left is a positive sum of what is never negative.  Trusted; standard library only.

tangent         c E_m[exp(v) (exp(u) - 1 - u)]        0 exactly where u = 0, since exp(u) > 1 + u elsewhere
sum of squares  c f^2 E_m[exp(v) a (b s^k)^2]         0 exactly where f = 0 or a b s^k = 0
square          c (E_m[(b s^k)^2] - E_m[b s^k]^2)     a variance: 0 exactly where b s^k is constant
contact         such a sum at lam = lam0 and for no other lam: the slope at r = 1 is a multiple of lam - lam0

c > 0 is a single term in parameters, f a constant; the first two also hold at one sample, without E_m.
a is 1, or a function of k1 and w that the theorem assumes to be at least 0 wherever m > 0: its region.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from klsym.errors import Refused
from klsym.kernel.evaluation import Assumed, Data, divisors, refuse_unless, vanishes
from klsym.names import MEASURES, PROBABILITIES, WHOLE
from klsym.normal_form import ONE, ZERO, ExpPoly
from klsym.statements import Context, E, Point, Score, Side, Statement

SAMPLE = "sample"  # the place of a term at one sample, not averaged
TANGENT_KEYS = {"scale", "at", "v", "u"}
SQUARE_KEYS = {"scale", "factor", "at", "v", "b", "score"}
REGION = "nonnegative"  # a further key of a square: what is assumed to be at least 0
Term = tuple[Side, Assumed]


# ---------------------------------------------------------------------------- what is never negative
def tangent_term(row: Any, context: Context) -> Term:
    """c exp(v) (exp(u) - 1 - u), averaged under a measure or at one sample."""
    _keys(row, TANGENT_KEYS)
    scale, assumed = _positive(row["scale"], context)
    v, u = (_element(row[key], context) for key in ("v", "u"))
    refuse_unless(bool(u), "u: it is zero")
    term = _placed(row["at"], scale * v.exp() * (u.exp() - 1 - u))
    return term, assumed | divisors(context, v, u)


def square_term(row: Any, context: Context) -> Term:
    """c f^2 exp(v) a b^2 s^2k, averaged under a measure or at one sample; a >= 0 is assumed there."""
    region = isinstance(row, dict) and REGION in row
    _keys(row, SQUARE_KEYS | {REGION} if region else SQUARE_KEYS)
    scale, assumed = _positive(row["scale"], context)
    factor, v, b = (_element(row[key], context) for key in ("factor", "v", "b"))
    refuse_unless(context.is_constant(factor), "factor: a constant expected")
    refuse_unless(bool(factor) and bool(b), "a square of zero")
    assumed = assumed | divisors(context, factor, v, b)
    squared = scale * factor**2 * v.exp() * b**2
    if region:
        a = _region(row[REGION])
        squared, assumed = squared * a, assumed | {(REGION, row["at"], a)}
    return _placed(row["at"], squared, _score(row["score"]) * 2), assumed


def _region(data: Any) -> ExpPoly:
    """a(k1, w) with a > 0 at k1 = w = 0: q, p and mu that are close enough to one another are in it.

    So the assumption a >= 0 is never empty, whatever a is; it says nothing of parameters.
    """
    a = ExpPoly.from_json(data)
    refuse_unless(bool(a.names()) and a.names() <= {"k1", "w"}, f"{REGION}: a function of k1 and w expected")
    refuse_unless(not a.inverted(), f"{REGION}: division by k1 or w, which may be zero")
    at_equality = a.substitute({"k1": ZERO, "w": ZERO})
    number = at_equality.terms.get(((), ()), 0)
    known = at_equality == ExpPoly.number(number)
    refuse_unless(known and number > 0, f"{REGION}: it is not positive at q = p = mu")
    return a


def _keys(row: Any, keys: set[str]) -> None:
    refuse_unless(isinstance(row, dict) and set(row) == keys, f"terms: the keys {sorted(keys)} expected")


def _element(data: Any, context: Context) -> ExpPoly:
    element = ExpPoly.from_json(data)
    context.check(element)
    return element


def _positive(data: Any, context: Context) -> tuple[ExpPoly, Assumed]:
    """A term c x^i exp(..) in parameters: positive when c > 0 and x > 0 (for even i: x is not 0)."""
    scale = _element(data, context)
    refuse_unless(len(scale.terms) == 1, "scale: a single term expected, not a sum or zero")
    refuse_unless(context.is_constant(scale), "scale: a constant expected")
    [((monomial, _), number)] = scale.terms.items()
    refuse_unless(number > 0, f"the factor {number} is not positive")
    signs = {("positive" if power % 2 else "nonzero", name) for name, power in monomial}
    return scale, signs | divisors(context, scale)


def _score(data: Any) -> Score:
    known = isinstance(data, list) and all(slot in WHOLE for slot in data)
    refuse_unless(known, f"score: a list of slots among {list(WHOLE)} expected")
    return tuple(data)


def _placed(at: Any, element: ExpPoly, score: Score = ()) -> Side:
    score = tuple(sorted(score))
    if at == SAMPLE:
        return Side.atom(Point(element, score))
    refuse_unless(at in MEASURES, f"at: {SAMPLE!r} or one of {MEASURES} expected")
    return Side.atom(E(at, element, score))


# ---------------------------------------------------------------------------- closings
def tangent(left: Side, right: Side, data: Data, statement: Statement) -> Assumed:
    """right - left is a positive sum of exp(v) (exp(u) - 1 - u)."""
    return _at_most(right - left, tangent_term, data, statement)


def sum_of_squares(left: Side, right: Side, data: Data, statement: Statement) -> Assumed:
    """right - left is a positive sum of f^2 exp(v) (b s^k)^2."""
    return _at_most(right - left, square_term, data, statement)


def _at_most(gap: Side, term: Callable[[Any, Context], Term], data: Data, statement: Statement) -> Assumed:
    refuse_unless(statement.relation == "<=", f"{data['by']} closes an inequality")
    total, assumed = _sum(data["terms"], term, statement.context)
    return assumed | vanishes(gap - total, data, statement)


def _sum(rows: Any, term: Callable[[Any, Context], Term], context: Context) -> Term:
    refuse_unless(isinstance(rows, list) and bool(rows), "terms: a nonempty list expected")
    total, assumed = Side(), Assumed()
    for row in rows:
        side, added = term(row, context)
        total, assumed = total + side, assumed | added
    return total, assumed


def square(left: Side, right: Side, data: Data, statement: Statement) -> Assumed:
    """right - left = c (E_m[b^2 s^2k] - E_m[b s^k]^2)."""
    refuse_unless(statement.relation == "<=", "square closes an inequality")
    scale, assumed = _positive(data["scale"], statement.context)
    b, m, score = _element(data["b"], statement.context), data["measure"], _score(data["score"])
    refuse_unless(m in PROBABILITIES, "square: a probability measure expected")
    mean = _placed(m, b, score)
    variance = (_placed(m, b * b, score * 2) - mean.times(mean)) * scale
    assumed = assumed | divisors(statement.context, b)
    return assumed | vanishes(right - left - variance, data, statement)


def contact(left: Side, right: Side, data: Data, statement: Statement) -> Assumed:
    """left <= right at one sample, for every r > 0, if and only if the parameter lam is lam0.

    c = right - left is a function of k1 with c = 0 and dc/dk1 = m (lam - lam0), m not 0, at k1 = 0
    (r = 1).  If c >= 0 on both sides of k1 = 0, the slope is 0, so lam = lam0.  In return, at lam = lam0
    c is a positive sum of tangents and squares.
    """
    context, name = statement.context, data["parameter"]
    c = _function_of_r(right - left, statement)
    refuse_unless(name in context.parameters, "parameter: it is not declared")
    fixed = replace(context, parameters=tuple(n for n in context.parameters if n != name))
    value, lam = _element(data["value"], fixed), ExpPoly.variable(name)
    refuse_unless(fixed.is_constant(value), "value: a constant expected")
    refuse_unless(not c.substitute({"k1": ZERO}), "the two sides differ at r = 1")
    slope = _derivative(c, "k1").substitute({"k1": ZERO})
    unit = _derivative(slope, name)
    refuse_unless(len(unit.terms) == 1 and name not in unit.names(), f"the slope is not linear in {name}")
    refuse_unless(
        slope == unit * (lam - value), f"the slope at r = 1 does not vanish there: {slope.to_json()}"
    )
    total, assumed = _sum(data["terms"], _at_a_sample, fixed)
    refuse_unless(total == Side.atom(Point(c.substitute({name: value}))), "the two sides differ")
    [(monomial, _)] = unit.terms
    return assumed | divisors(context, value) | {("nonzero", parameter) for parameter, _ in monomial}


def _function_of_r(gap: Side, statement: Statement) -> ExpPoly:
    """c(k1), where nothing else that is said of q, p and mu narrows the values of k1."""
    context = statement.context
    refuse_unless(statement.relation == "<=", "contact closes an inequality")
    refuse_unless(not context.premises, "contact needs every q and p: no premises")
    refuse_unless(not context.given and not context.functions, "no given values, no generic functions")
    match gap.terms:
        case ((_, (Point(c, ()),)),) if c.names() <= {"k1", *context.parameters}:
            return c
    raise Refused("a function of k1 alone at one sample expected")


def _derivative(element: ExpPoly, name: str) -> ExpPoly:
    return element.derive(lambda n: ONE if n == name else ZERO)


def _at_a_sample(row: Any, context: Context) -> Term:
    square_row = isinstance(row, dict) and "b" in row
    side, assumed = (square_term if square_row else tangent_term)(row, context)
    refuse_unless(row["at"] == SAMPLE, "terms: values at one sample expected")
    refuse_unless(REGION not in row, f"{REGION}: contact speaks of every r")
    return side, assumed


# ---------------------------------------------------------------------------- equality
@dataclass(frozen=True)
class Zero:
    """A term of the sum is zero exactly when `factor` is zero, or `element` s..s is, at each outcome of `at`.

    constant: it suffices that it is the same at each outcome (a variance).
    """

    at: str
    element: ExpPoly
    score: Score = ()
    factor: ExpPoly = ONE
    constant: bool = False


def equality(close: Data) -> tuple[Zero, ...]:
    """When both sides of an inequality are equal: all of these hold; () for other closings."""
    if close["by"] == "square":
        b = ExpPoly.from_json(close["b"])
        return (Zero(close["measure"], b, tuple(close["score"]), constant=True),)
    return tuple(_zero(row) for row in close["terms"]) if close["by"] in SUMS else ()


SUMS = ("tangent", "sum of squares")


def _zero(row: Data) -> Zero:
    if "u" in row:
        return Zero(row["at"], ExpPoly.from_json(row["u"]))
    b, factor = (ExpPoly.from_json(row[key]) for key in ("b", "factor"))
    within = ExpPoly.from_json(row[REGION]) if REGION in row else ONE
    return Zero(row["at"], within * b, tuple(row["score"]), factor)
