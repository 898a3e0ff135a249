"""How a derivation ends with what it set out to prove: equal normal forms.  Trusted; standard library only.

left = right    both sides have arrived at the same normal form
left <= right   left plus some rows has, and a row is never negative:

    tangent     c f^2 E_m[exp(v) (exp(u) - 1 - u)]    0 where u = 0, since exp(u) > 1 + u elsewhere
    square      c f^2 E_m[exp(v) a (b s..s)^2]        0 where f = 0 or a b s..s = 0
    variance    c f^2 (E_m[(b s..s)^2] - E_m[b s..s]^2)   0 where f = 0 or b s..s is constant

c > 0 is a single term in parameters, f a constant, m any place of a mean ("sample" for a value at one
sample).  a is 1, or a function of k1 and w that the theorem assumes to be at least 0 wherever m > 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from klsym.errors import Refused
from klsym.kernel.assumptions import Assumptions, Data, refuse_unless, show_brief
from klsym.kernel.densities import list_denominators
from klsym.kernel.names import PROBABILITIES
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.kernel.slots import SLOTS
from klsym.kernel.statements import Mean, Score, Side, Statement, read_atom

ROW = {"kind", "scale", "factor", "at", "v", "of", "score"}
KINDS = ("tangent", "square", "variance")
REGION = "nonnegative"  # a further key of a square: what is assumed to be at least 0


@dataclass(frozen=True)
class Zero:
    """A row is 0 just where `factor` is, or where `element` s..s is 0 wherever place and weight have mass.

    constant: it suffices that it is the same at each outcome (a variance).
    """

    index: str
    measure: str
    weight: ExpPoly
    element: ExpPoly
    score: Score
    factor: ExpPoly
    constant: bool


def read_row(data: Any, assumed: Assumptions) -> tuple[Side, Zero]:
    """Return what is never negative: its value, and when it is 0."""
    keys = ROW | ({REGION} if REGION in data else set())
    refuse_unless(set(data) == keys, f"rows: the keys {sorted(ROW)} expected")
    place = read_atom(["Mean", *_read_pair(data["at"]), [], data["score"]])
    assert isinstance(place, Mean)
    index, measure, kind = place.index, place.measure, data["kind"]
    scale, factor, v, element = (
        assumed.read(data[key], SLOTS[index]) for key in ("scale", "factor", "v", "of")
    )
    plain = assumed.context.is_constant(factor) and factor and element
    refuse_unless(bool(plain), "a row that is 0, or no constant factor")
    refuse_unless(kind in KINDS, f"kind: one of {KINDS} expected")
    refuse_unless(
        REGION not in keys or (kind == "square" and not index), f"{REGION}: squares at one sample have one"
    )
    region = _read_region(data[REGION], place, assumed) if REGION in keys else ONE
    value, score = _list_means(kind, v, element * element * region if kind == "square" else element, place)
    means = [Mean(index, measure, c * v.exp(), tuple(sorted(score * n))) for n, c in value]
    side = Side.combine(*((1, (mean,)) for mean in means[:1]))
    if kind == "variance":
        side = side - Side.from_atom(means[1]).multiply(Side.from_atom(means[1]))
    refuse_unless(assumed.context.is_constant(scale), "scale: a constant expected")
    assume_positive(scale, assumed)
    assumed.draw(index, measure)
    assumed.assume_existence(*means)
    if kind != "tangent":
        for density in list_denominators(place, (v.exp() * element, element, region), assumed.context):
            assumed.assume_support(measure, density)
    weight = v.exp() + (v + element).exp() if kind == "tangent" else v.exp()
    weight = ONE if v == ZERO or (kind == "tangent" and v + element == ZERO) else weight
    zero = Zero(
        index, measure, weight, element * region, score=score, factor=factor, constant=kind == "variance"
    )
    return side * (scale * factor**2), zero


def _list_means(kind: str, v: ExpPoly, of: ExpPoly, place: Mean) -> tuple[list[tuple[int, ExpPoly]], Score]:
    """Return (power of the scores, coefficient) of the means that a row is made of, less exp(v)."""
    if kind == "tangent":
        refuse_unless(not place.score, "tangent: no score function expected")
        return [(1, of.exp() - 1 - of)], ()
    if kind == "square":
        return [(2, of)], place.score
    refuse_unless(place.measure in PROBABILITIES, "variance: a probability measure expected")
    refuse_unless("t" not in place.index and not v, "variance: of one sample or batch, and unweighted")
    return [(2, of * of), (1, of)], place.score


def _read_pair(data: Any) -> list[Any]:
    refuse_unless(isinstance(data, list) and len(data) == 2, "at: an index and a measure expected")
    return list(data)


def _read_region(data: Any, place: Mean, assumed: Assumptions) -> ExpPoly:
    """Return a(k1, w) > 0 at k1 = w = 0: q, p and mu that are close enough to one another are in it.

    So the assumption a >= 0 is never empty, whatever a is; it says nothing of parameters.
    """
    a = assumed.read(data)
    refuse_unless(bool(a.names()) and a.names() <= {"k1", "w"}, f"{REGION}: a function of k1 and w expected")
    number = a.substitute({"k1": ZERO, "w": ZERO}).terms
    positive = len(number) == 1 and number.get(((), ()), 0) > 0
    refuse_unless(positive, f"{REGION}: it is not positive at q = p = mu")
    assumed.add(REGION, place.measure, a)
    return a


def assume_positive(scale: ExpPoly, assumed: Assumptions) -> None:
    """Assume c x^i T^j exp(..) > 0: so it is if c > 0 and each parameter x > 0 (for even i: x is not 0)."""
    refuse_unless(len(scale.terms) == 1, "a single term expected as a positive factor, not a sum or zero")
    [((monomial, _), number)] = scale.terms.items()
    refuse_unless(number > 0, f"the factor {str(number)[:40]} is not positive")
    for name, power in monomial:
        fixed = name in (*assumed.context.parameters, "length")
        refuse_unless(fixed, "a positive factor of parameters, lengths and exp(..) expected")
        assumed.add("positive" if power % 2 else "nonzero", name)


def check_equality(left: Side, right: Side, data: Data, statement: Statement, assumed: Assumptions) -> None:
    if left != right:
        raise Refused(f"the two sides differ: left - right = {show_brief(left - right)}")


def read_rows(close: Data, statement: Statement, assumed: Assumptions) -> list[tuple[Side, Zero]]:
    """Return the rows that an inequality starts with beside its left side."""
    rows = close.get("rows", [])
    refuse_unless(isinstance(rows, list), "rows: a list expected")
    refuse_unless(statement.relation == "<=" or not rows, "rows: an inequality expected, not an equation")
    return [read_row(row, assumed) for row in rows]
