"""Two theorems about all densities at once.  Trusted; standard library only.

E_q[c s] = 0 for all q, p, mu if and only if the coefficient c(k1, w, log q) is constant: on a finite space
with softmax logits the component of outcome j is q_j (c_j - E_q c), and three outcomes reach any two values.

completeness   solved for an unknown function of k1: c is constant for one family of functions, and no other
independence   c holds a term outside span{1, k1, r, rewards}: E_q[c s] is no combination of the KL gradients
"""

from __future__ import annotations

from klsym.errors import Refused
from klsym.kernel.assumptions import Assumptions, Data, refuse_unless
from klsym.kernel.densities import build_density_ratio
from klsym.kernel.derivatives import differentiate_name, select_sample_part
from klsym.kernel.names import LOG_RATIOS, parse_name
from klsym.kernel.ring import ONE, ZERO, ExpPoly, Key
from klsym.kernel.statements import Context, Mean, Side, Statement


def read_score_coefficient(left: Side, right: Side) -> ExpPoly:
    """Return the coefficient c of an equation that has been reduced to E_q[c s] = 0."""
    refuse_unless(right == Side(), "the right side is not 0")
    match left.terms:
        case ((_, (Mean("", "q", c, ("x",)),)),):
            return c
        case ():
            return ZERO
    raise Refused("reduce the equation to E_q[c s] = 0 first")


def _read_general_coefficient(left: Side, right: Side, statement: Statement) -> ExpPoly:
    """Return the coefficient, where the statement narrows neither q, p and mu nor the rewards."""
    refuse_unless(statement.relation == "=", "an equation expected, not an inequality")
    refuse_unless(statement.right == Side(), "the right side of the statement is not 0")
    context = statement.context
    plain = not (context.premises or context.definitions or context.facts)
    refuse_unless(plain, "it speaks of every q, p, mu: no premises, definitions or facts")
    c = read_score_coefficient(left, right)
    attached = all(not parse_name(n).detached for n in c.names())
    refuse_unless(attached, "drop sg(.) first")
    return c


def differentiate(c: ExpPoly, coordinate: str, context: Context) -> ExpPoly:
    """Return dc/d coordinate, one of k1, w, log q; a generic function depends on k1."""

    def apply_rule(name: str) -> ExpPoly:
        if parse_name(name).base in context.function_arguments:
            return differentiate_name(name) if coordinate == "k1" else ZERO
        return ONE if name == coordinate else ZERO

    return c.derive(apply_rule)


# ---------------------------------------------------------------------------- one family of functions
def check_completeness(
    left: Side, right: Side, data: Data, statement: Statement, assumed: Assumptions
) -> None:
    """Check that E_q[c s] = 0 for all q, p, mu iff c is constant; solved for the unknown function g.

    A constant c has dc/dv = 0 for each coordinate v.  With a unit m, m dc/dv = g^(n) - h gives
    g^(n) = h, whose solutions are one antiderivative plus n powers with free constants.  In
    return, putting the family back must make c constant.
    """
    context, c = statement.context, _read_general_coefficient(left, right, statement)
    unknown, family, unit = data["function"], assumed.read(data["family"]), assumed.read(data["unit"])
    refuse_unless(context.function_arguments == {unknown: ("k1",)}, "one unknown function of k1 expected")
    refuse_unless(family.names() <= {"k1", *context.parameters}, "family: a function of k1 alone")
    refuse_unless(len(unit.terms) == 1, "unit: a single term expected, not zero or a sum")
    refuse_unless(all(parse_name(n).base != unknown for n in unit.names()), "unit: free of the unknown")
    refuse_unless(data["coordinate"] in LOG_RATIOS, f"coordinate: one of {LOG_RATIOS}")
    order, constants = data["order"], data["constants"]
    refuse_unless(isinstance(constants, list), "constants: a list expected")
    refuse_unless(0 < order <= 8, "order: an integer from 1 to 8")
    top = unknown + "'" * order
    h = ExpPoly.from_variable(top) - unit * differentiate(c, data["coordinate"], context)
    refuse_unless(h.names() <= {"k1", *context.parameters}, f"the condition is not {top} = h(k1)")
    _check_family(family, h, order, constants, c=c, context=context)
    jets, derived = {}, family
    for n in range(order + 1):
        jets[unknown + "'" * n] = derived
        derived = differentiate(derived, "k1", context)
    refuse_unless(
        context.is_constant(c.substitute(jets)), "the family does not make the coefficient constant"
    )


def _check_family(
    family: ExpPoly, h: ExpPoly, order: int, constants: list[str], c: ExpPoly, context: Context
) -> None:
    refuse_unless(
        len(set(constants)) == order == len(constants), f"{order} free constants expected, got {constants}"
    )
    refuse_unless(set(constants) <= set(context.parameters), "a free constant is not declared")
    refuse_unless(not c.names() & set(constants), "a free constant stands in the equation")
    k1 = ExpPoly.from_variable("k1")
    free = sum((ExpPoly.from_variable(a) * k1**i for i, a in enumerate(constants)), ZERO)
    refuse_unless(not (family - free).names() & set(constants), "the free constants do not span 1, k1, ...")
    derived = family
    for _ in range(order):
        derived = differentiate(derived, "k1", context)
    refuse_unless(derived == h, "the family does not solve the condition")


# ---------------------------------------------------------------------------- no combination
def check_independence(
    left: Side, right: Side, data: Data, statement: Statement, assumed: Assumptions
) -> None:
    """Check that the coefficient has a term in k1, w, log_q that is neither k1 nor r times a constant."""
    context, c = statement.context, _read_general_coefficient(left, right, statement)
    refuse_unless(not context.functions, "independence: no generic functions expected")
    term = assumed.read(data["term"])
    refuse_unless(len(term.terms) == 1, "term: a single term expected")
    [(key, value)] = term.terms.items()
    refuse_unless(c.terms.get(key) == value, "term: it does not stand in the coefficient")
    refuse_unless(is_foreign(term, context), "term: a reward, or a multiple of k1 or of r")
    for kind, name in _list_conditions(c, key, context):
        assumed.add(kind, name)


def is_foreign(term: ExpPoly, context: Context) -> bool:
    """Does a single term depend on a log ratio other than as a constant times k1 or r?"""
    [key] = term.terms
    sample = select_sample_part(*key, context)
    multiples = (ExpPoly.from_variable("k1"), build_density_ratio("p", "q"))
    return bool(sample.names() & set(LOG_RATIOS)) and sample not in multiples


def _list_conditions(c: ExpPoly, key: Key, context: Context) -> set[tuple[str, str]]:
    """Return for which parameters the term neither vanishes nor merges with another one."""
    sample = select_sample_part(*key, context)
    group = [k for k in c.terms if select_sample_part(*k, context) == sample]
    exponents = {n for k in c.terms for n in select_sample_part(*k, context).names()}
    parameters = set(context.parameters)
    if exponents & parameters:  # exponents may coincide, as those of r**lam and r do at lam = 1
        return {("generic", name) for name in c.names() & parameters}
    if len(group) > 1:  # a sum such as lam - 1
        names = {n for k in group for n in ExpPoly({k: 1}).names()}
        return {("generic", name) for name in names & parameters}
    return {("nonzero", name) for name, _ in key[0] if name in parameters}
