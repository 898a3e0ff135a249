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
from klsym.kernel.assumptions import Assumptions, Data, refuse_unless
from klsym.kernel.densities import denominators
from klsym.kernel.names import PROBABILITIES
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.kernel.slots import SLOTS
from klsym.kernel.statements import Mean, Score, Side, Statement, atom_from_json, brief

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
    """What is never negative: its value, and when it is 0."""
    keys = ROW | ({REGION} if REGION in data else set())
    refuse_unless(set(data) == keys, f"rows: the keys {sorted(ROW)} expected")
    place = atom_from_json(["Mean", *_pair(data["at"]), [], data["score"]])
    assert isinstance(place, Mean)
    index, measure, kind = place.index, place.measure, data["kind"]
    scale, factor, v, of = (assumed.read(data[key], SLOTS[index]) for key in ("scale", "factor", "v", "of"))
    plain = assumed.context.is_constant(factor) and factor and of
    refuse_unless(bool(plain), "a row that is 0, or no constant factor")
    refuse_unless(kind in KINDS, f"kind: one of {KINDS} expected")
    refuse_unless(
        REGION not in keys or (kind == "square" and not index), f"{REGION}: squares at one sample have one"
    )
    region = _region(data[REGION], place, assumed) if REGION in keys else ONE
    value, score = _value(kind, v, of * of * region if kind == "square" else of, place)
    means = [Mean(index, measure, c * v.exp(), tuple(sorted(score * n))) for n, c in value]
    side = Side.of(*((1, (mean,)) for mean in means[:1]))
    if kind == "variance":
        side = side - Side.atom(means[1]).times(Side.atom(means[1]))
    refuse_unless(assumed.context.is_constant(scale), "scale: a constant expected")
    assume_positive(scale, assumed)
    assumed.draw(index, measure)
    assumed.exist(*means)
    if kind != "tangent":
        for density in denominators(place, (v.exp() * of, of, region), assumed.context):
            assumed.support(measure, density)
    weight = v.exp() + (v + of).exp() if kind == "tangent" else v.exp()
    weight = ONE if v == ZERO or (kind == "tangent" and v + of == ZERO) else weight
    zero = Zero(index, measure, weight, of * region, score, factor, kind == "variance")
    return side * (scale * factor**2), zero


def _value(kind: str, v: ExpPoly, of: ExpPoly, place: Mean) -> tuple[list[tuple[int, ExpPoly]], Score]:
    """(power of the scores, coefficient) of the means that a row is made of, less exp(v)."""
    if kind == "tangent":
        refuse_unless(not place.score, "tangent: no score function expected")
        return [(1, of.exp() - 1 - of)], ()
    if kind == "square":
        return [(2, of)], place.score
    refuse_unless(place.measure in PROBABILITIES, "variance: a probability measure expected")
    refuse_unless("t" not in place.index and not v, "variance: of one sample or batch, and unweighted")
    return [(2, of * of), (1, of)], place.score


def _pair(data: Any) -> list[Any]:
    refuse_unless(isinstance(data, list) and len(data) == 2, "at: an index and a measure expected")
    return list(data)


def _region(data: Any, place: Mean, assumed: Assumptions) -> ExpPoly:
    """a(k1, w) with a > 0 at k1 = w = 0: q, p and mu that are close enough to one another are in it.

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
    """A term c x^i T^j exp(..): positive when c > 0 and each parameter x > 0 (for even i: x is not 0)."""
    refuse_unless(len(scale.terms) == 1, "a single term expected as a positive factor, not a sum or zero")
    [((monomial, _), number)] = scale.terms.items()
    refuse_unless(number > 0, f"the factor {str(number)[:40]} is not positive")
    for name, power in monomial:
        fixed = name in (*assumed.context.parameters, "length")
        refuse_unless(fixed, "a positive factor of parameters, lengths and exp(..) expected")
        assumed.add("positive" if power % 2 else "nonzero", name)


def equality(left: Side, right: Side, data: Data, statement: Statement, assumed: Assumptions) -> None:
    if left != right:
        raise Refused(f"the two sides differ: left - right = {brief(left - right)}")


def rows_of(close: Data, statement: Statement, assumed: Assumptions) -> list[tuple[Side, Zero]]:
    """The rows that an inequality starts with beside its left side."""
    rows = close.get("rows", [])
    refuse_unless(isinstance(rows, list), "rows: a list expected")
    refuse_unless(statement.relation == "<=" or not rows, "rows: an inequality expected, not an equation")
    return [read_row(row, assumed) for row in rows]
