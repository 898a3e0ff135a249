"""The ways a derivation may end, each checked against the two sides it arrived at.  Trusted.

ring equality   the two sides have the same normal form
evaluation      they are worth the same: constants, ratio means, named values, premises (evaluation.py)
tangent, sum of squares, square, contact   inequalities (inequalities.py)
finite model    an explicit model encloses the two sides in disjoint intervals: a refutation
completeness    E_q[c s] = 0 for all q, p, mu iff c is constant: solved for a generic function
independence    c holds a term outside span{1, k1, r, rewards}: no combination of the KL gradients
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from klsym.errors import Refused
from klsym.kernel.derivatives import d_log_q, density_ratio, given_bases, sample_part
from klsym.kernel.evaluation import Assumed, Data, evaluation, refuse_unless
from klsym.kernel.inequalities import contact, square, sum_of_squares, tangent
from klsym.kernel.intervals import Interval
from klsym.kernel.model import Model, enclose
from klsym.kernel.trees import Tree
from klsym.names import parse_name
from klsym.normal_form import ONE, ZERO, ExpPoly, Key, read_number
from klsym.statements import (
    Context,
    E,
    Gradient,
    Indexed,
    IndexedGradient,
    MeanVariance,
    Side,
    Statement,
    elements,
)

COORDINATES = ("k1", "w", "log_q")


def ring_equality(left: Side, right: Side, data: Data, statement: Statement) -> Assumed:
    if left != right:
        raise Refused(f"the two sides differ: left - right = {(left - right).to_json()}")
    return set()


def finite_model(left: Side, right: Side, data: Data, statement: Statement) -> Assumed:
    """The recorded enclosures are recomputed; they must contradict the relation."""
    _without_given(statement.context, left, right)
    model = read_model(data["model"], statement.context)
    _as_assumed(model, statement)
    got = {"left": enclose(left, model), "right": enclose(right, model)}
    for name, interval in got.items():
        recorded = Interval(*(_fraction(end) for end in data[name]))
        if recorded != interval:
            raise Refused(f"{name} side: enclosed in {_show(interval)}, recorded {_show(recorded)}")
    above = got["left"].lower > got["right"].upper
    below = got["left"].upper < got["right"].lower
    refuse_unless(
        above or (below and statement.relation == "="),
        "the enclosures do not contradict the relation",
    )
    return set()


def read_model(data: Any, context: Context) -> Model | Tree:
    """A model of single samples, or one of sequences, which has the key "tree"."""
    kind = Tree if isinstance(data, dict) and "tree" in data else Model
    return kind.from_json(data, context)


def _speaks_of_batches(side: Side) -> bool:
    """Does a side hold a mean over a batch, whose size is the parameter n?"""
    for atom in (atom for _, atoms in side.terms for atom in atoms):
        batch = isinstance(atom, Indexed | IndexedGradient) and atom.index != "t"
        inside = isinstance(atom, Gradient) and _speaks_of_batches(atom.of)
        if batch or inside or isinstance(atom, MeanVariance):
            return True
    return False


def _as_assumed(model: Model | Tree, statement: Statement) -> None:
    """Premises about parameters alone hold in the model, and the size of a batch is a whole number."""
    for left, right in statement.context.premises:
        gap = left - right
        plain = all(not atoms for _, atoms in gap.terms)
        refuse_unless(plain, "a model need not satisfy the premises")
        refuse_unless(enclose(gap, model) == Interval.exact(0), "the model does not satisfy the premises")
    if any(_speaks_of_batches(side) for side in (statement.left, statement.right)):
        n = model.parameters.get("n", Fraction(2))
        refuse_unless(n.denominator == 1 and n >= 2, f"the model has a batch of size {n}: 2 or more expected")


def _fraction(text: Any) -> Any:
    return Interval.exact(read_number(text)).lower


def _show(interval: Interval) -> str:
    return f"[{_decimal(interval.lower)}, {_decimal(interval.upper)}]"


def _decimal(value: Fraction) -> str:
    return f"{float(value):.12g}" if abs(value) < 10**300 else "beyond 1e300"


def _without_given(context: Context, *sides: Side) -> None:
    found = {name for side in sides for element in elements(side) for name in element.names()}
    names = {parse_name(name).base for name in found}
    refuse_unless(not names & given_bases(context), "put the given values in first")


# ---------------------------------------------------------------------------- completeness
def score_coefficient(left: Side, right: Side) -> ExpPoly:
    match (left - right).terms:
        case ((_, (E("q", c, ("x",)),)),):
            return c
        case ():
            return ZERO
    raise Refused("reduce the equation to E_q[c s] = 0 first")


def _for_all_models(statement: Statement, left: Side, right: Side) -> None:
    """Completeness quantifies over every q, p, mu, which premises would narrow."""
    context = statement.context
    refuse_unless(statement.relation == "=", "an equation expected, not an inequality")
    refuse_unless(not context.premises, "completeness needs every q, p, mu: no premises")
    _without_given(context, left, right)
    if context.on_policy:
        names = score_coefficient(left, right).names()
        refuse_unless("w" not in names, "on-policy w is 0: put that in first")


def completeness(left: Side, right: Side, data: Data, statement: Statement) -> Assumed:
    """E_q[c s] = 0 for all q, p, mu iff c is constant; solved for the unknown function g.

    A constant c has dc/dv = 0 for each coordinate v.  With a unit m, m dc/dv = g^(n) - h gives
    g^(n) = h, whose solutions are one antiderivative plus n powers with free constants.  In
    return, putting the family back must make c constant.
    """
    context, c = statement.context, score_coefficient(left, right)
    _for_all_models(statement, left, right)
    unknown, family = data["function"], ExpPoly.from_json(data["family"])
    refuse_unless(context.function_arguments == {unknown: ("k1",)}, "one unknown function of k1 expected")
    context.check(family)
    refuse_unless(family.names() <= {"k1", *context.parameters}, "family: a function of k1 alone")
    unit = ExpPoly.from_json(data["unit"])
    unit.inverse()  # refuses zero and sums
    context.check(unit)
    refuse_unless(all(parse_name(n).base != unknown for n in unit.names()), "unit: free of the unknown")
    refuse_unless(data["coordinate"] in COORDINATES, f"coordinate: one of {COORDINATES}")
    condition = unit * partial(c, data["coordinate"], context)
    order, constants = data["order"], list(data["constants"])
    refuse_unless(type(order) is int and 0 < order <= 8, "order: an integer from 1 to 8")
    top = unknown + "'" * order
    h = ExpPoly.variable(top) - condition
    refuse_unless(h.names() <= {"k1", *context.parameters}, f"the condition is not {top} = h(k1)")
    _check_family(family, h, order, constants, c, context)
    solved = c.substitute(_jets(unknown, family, c, context))
    refuse_unless(context.is_constant(solved), "the family does not make the coefficient constant")
    divisors = family.inverted() | unit.names()
    return {("nonzero", name) for name in divisors & set(context.parameters)}


def partial(c: ExpPoly, coordinate: str, context: Context) -> ExpPoly:
    def rule(name: str) -> ExpPoly:
        if name in context.parameters:
            return ZERO
        parsed = parse_name(name)
        refuse_unless(not parsed.detached, "drop sg(.) before completeness is used")
        if parsed.base in context.function_arguments:
            return ExpPoly.variable(name + "'") if coordinate == "k1" else ZERO
        return ONE if name == coordinate else ZERO

    return c.derive(rule)


def _check_family(
    family: ExpPoly, h: ExpPoly, order: int, constants: list[str], c: ExpPoly, context: Context
) -> None:
    refuse_unless(len(set(constants)) == order, f"{order} free constants expected, got {constants}")
    refuse_unless(set(constants) <= set(context.parameters), "a free constant is not declared")
    refuse_unless(not (c.names() | h.names()) & set(constants), "a free constant stands in the equation")
    k1 = ExpPoly.variable("k1")
    free = sum((ExpPoly.variable(a) * k1**i for i, a in enumerate(constants)), ZERO)
    refuse_unless(not (family - free).names() & set(constants), "the free constants do not span 1, k1, ...")
    derived = family
    for _ in range(order):
        derived = d_log_q(derived, context)
    refuse_unless(derived == h, "the family does not solve the condition")


def _jets(unknown: str, family: ExpPoly, c: ExpPoly, context: Context) -> dict[str, ExpPoly]:
    depth = max((parse_name(n).primes for n in c.names() if parse_name(n).base == unknown), default=0)
    jets, derived = {}, family
    for n in range(depth + 1):
        jets[unknown + "'" * n] = derived
        derived = d_log_q(derived, context)
    return jets


def independence(left: Side, right: Side, data: Data, statement: Statement) -> Assumed:
    """The coefficient has a term in k1, w, log_q that is neither k1 nor r times a constant."""
    context, c = statement.context, score_coefficient(left, right)
    _for_all_models(statement, left, right)
    refuse_unless(not context.given, "a given reward is no free one: no given values expected")
    refuse_unless(not context.functions, "independence: no generic functions expected")
    refuse_unless(all(not parse_name(n).detached for n in c.names()), "drop sg(.) first")
    term = ExpPoly.from_json(data["term"])
    refuse_unless(len(term.terms) == 1, "term: a single term expected")
    [(key, value)] = term.terms.items()
    refuse_unless(c.terms.get(key) == value, "term: it does not stand in the coefficient")
    refuse_unless(is_foreign(term, context), "term: a reward, or a multiple of k1 or of r")
    return _where_it_survives(c, key, context)


def _where_it_survives(c: ExpPoly, key: Key, context: Context) -> Assumed:
    """For which parameters the term neither vanishes nor merges with another one."""
    sample = sample_part(*key, context)
    group = [k for k in c.terms if sample_part(*k, context) == sample]
    exponents = {n for k in c.terms for n in sample_part(*k, context).names()}
    parameters = set(context.parameters)
    if exponents & parameters:  # exponents may coincide, as those of r**lam and r do at lam = 1
        return {("generic", name) for name in c.names() & parameters}
    if len(group) > 1:  # a sum such as lam - 1
        names = {n for k in group for n in ExpPoly({k: 1}).names()}
        return {("generic", name) for name in names & parameters}
    return {("nonzero", name) for name, _ in key[0] if name in parameters}


def is_foreign(term: ExpPoly, context: Context) -> bool:
    """Does a single term depend on a log ratio other than as a constant times k1 or r?"""
    [key] = term.terms
    sample = sample_part(*key, context)
    known = (ExpPoly.variable("k1"), density_ratio("p", "q"))
    return bool(sample.names() & set(COORDINATES)) and sample not in known


@dataclass(frozen=True)
class Closing:
    """One ending: what the theorem then says, the check, the keys of its data, and why it is sound."""

    kind: str
    verify: Callable[[Side, Side, Data, Statement], Assumed]
    keys: frozenset[str]
    why: str


BY_VALUE = (
    "Sides are compared with definitions, changes of measure, constants and ratio means put in, and products"
    " of means multiplied out."
)
FAMILY_KEYS = frozenset({"function", "family", "unit", "coordinate", "order", "constants"})
CLOSINGS: dict[str, Closing] = {
    "ring equality": Closing(
        "proved", ring_equality, frozenset(),
        "Equal normal forms are equal functions of the sample."),
    "evaluation": Closing(
        "proved", evaluation, frozenset({"premises"}),
        f"Both sides are worth the same. {BY_VALUE}"),
    "tangent": Closing(
        "proved", tangent, frozenset({"terms", "premises"}),
        "exp(u) > 1 + u unless u = 0, so a positive sum of exp(v) (exp(u) - 1 - u) is at least 0, at a"
        f" sample as in the mean, and 0 only where each u is. {BY_VALUE}"),
    "sum of squares": Closing(
        "proved", sum_of_squares, frozenset({"terms", "premises"}),
        "A positive sum of squares is at least 0, at a sample as in the mean, and 0 only where each is."
        f" A square may be weighted by what the theorem assumes to be at least 0. {BY_VALUE}"),
    "square": Closing(
        "proved", square, frozenset({"scale", "b", "measure", "score", "premises"}),
        f"A variance is never negative, and 0 only where its variable is constant. {BY_VALUE}"),
    "contact": Closing(
        "iff", contact, frozenset({"parameter", "value", "terms"}),
        "What is 0 at r = 1 and nowhere negative has slope 0 there, which fixes the parameter; with that"
        " value it is a positive sum of tangents and squares."),
    "finite model": Closing(
        "refuted", finite_model, frozenset({"model", "left", "right"}),
        "One model in which the two sides lie in disjoint intervals refutes the statement."),
    "completeness": Closing(
        "unique", completeness, FAMILY_KEYS,
        "E_q[c s] = 0 for all q, p, mu on three outcomes with softmax logits forces c to be constant."),
    "independence": Closing(
        "independent", independence, frozenset({"term"}),
        "E_q[c s] vanishes for all q, p, mu only if c is constant, and distinct terms of the ring are"
        " linearly independent."),
}  # fmt: skip
