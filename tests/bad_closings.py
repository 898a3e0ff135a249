"""False endings: what no equality, model or completeness argument shows."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from drafts import (
    CLOSE,
    NOTHING,
    ONE,
    OPTIMUM,
    PART,
    QP,
    REVERSE,
    A,
    Draft,
    Eg,
    Em,
    G,
    R,
    a,
    b,
    beta,
    g,
    g1,
    grad,
    k1,
    k2,
    k3,
    point,
    r,
    rho,
    sg,
    w,
)  # fmt: skip

from klsym.normal_form import ExpPoly
from klsym.statements import E, PointGradient, Side

EQUALITIES = {
    "ring equality": [
        ("forward for reverse", CLOSE, "ring equality: the two sides differ: left - right = ",
            lambda: Draft(Eg("q", k3), REVERSE).step("chain rule")
            .step("score mean zero", part=ONE)),
        ("k3 is k1 in the mean but not at a sample", CLOSE, "the two sides differ",
            lambda: Draft(point(k3), point(k1))),
        ("half a square", CLOSE, "the two sides differ",
            lambda: Draft(Side.atom(PointGradient(k2)), point(k1 * 2, 1)).step("chain rule")),
        ("a constant times the score at a sample", CLOSE, "the two sides differ",
            lambda: Draft(Side.atom(PointGradient(rho * k1)), point(rho * k1, 1))
            .step("chain rule")),
        ("mean of a product is no product of means", CLOSE, "the two sides differ",
            lambda: Draft(Em("q", k1 * r), Em("q", k1).times(Em("q", r)))),
    ],
}  # fmt: skip

MODEL = {
    "q": ["1/2", "1/2"], "p": ["1/4", "3/4"], "mu": ["1/3", "2/3"], "u": ["1", "0"],
    "parameters": {}, "rewards": {"R": ["0", "3"]}, "outcome": 0,
}  # fmt: skip


AT_1 = {"beta": "1"}


def witness(left: str, right: str, **change: Any) -> dict[str, Any]:
    """Close data whose two enclosures are single points."""
    return {"model": {**MODEL, **change}, "left": [left] * 2, "right": [right] * 2}


def sold(left: Side, right: Side, data: Any, relation: str = "=", **context: Any) -> Draft:
    """A refutation by a witness."""
    return Draft(left, right, relation, **context).close("finite model", **data)


REFUTATIONS = {  # E_q[r] = 1, E_p[r] = 5/4, E_mu[R] = 2, E_q[R] = 3/2
    "finite model": [
        ("tampered enclosure", CLOSE, "left side: enclosed in \\[1, 1\\], recorded \\[2, 2\\]",
            lambda: sold(Em("q", r), Side.constant(1), witness("2", "1"))),
        ("does not separate", CLOSE, "the enclosures do not contradict the relation",
            lambda: sold(Em("p", r), Side.constant(1), witness("1", "1", p=["1/2", "1/2"]))),
        ("separates in the allowed direction", CLOSE, "do not contradict the relation",
            lambda: sold(Side.constant(1), Em("p", r), witness("1", "5/4"), "<=")),
        ("on-policy with another sampler", CLOSE, "on-policy, mu must equal q",
            lambda: sold(Em("mu", R), Em("q", R), witness("2", "3/2"), on_policy=True)),
        ("probabilities that do not add up", CLOSE, "p is no full-support distribution",
            lambda: sold(Em("q", r), Side.constant(1), witness("2", "1", p=["1", "1"]))),
        ("an outcome without probability", CLOSE, "p is no full-support distribution",
            lambda: sold(Em("p", ONE), Em("q", r), witness("1", "1/2", p=["0", "1"]))),
        ("against the premises", CLOSE, "a model need not satisfy the premises",
            lambda: sold(Em("p", r), Side.constant(1), witness("5/4", "1"),
                         premises=((Em("p", r), Em("q", r)),))),
        ("given value not put in", CLOSE, "put the given values in first",
            lambda: sold(Em("mu", R), Em("q", R), witness("2", "3/2"), **OPTIMUM)),
        ("a gradient still to be taken", CLOSE, "Gradient must be reduced to expectations",
            lambda: sold(grad(Em("mu", R)), Side.constant(1), witness("0", "1"))),
        ("decimal probabilities", CLOSE, "an exact number such as .* expected, got '0.5'",
            lambda: sold(Em("p", r), Side.constant(1), witness("5/4", "1", q=["0.5", "0.5"]))),
        ("a parameter without a value", CLOSE, "no value for beta",
            lambda: sold(Em("q", beta), Side.constant(1), witness("2", "1"), parameters=("beta",))),
        ("given value of a detached reward", CLOSE, "put the given values in first",
            lambda: sold(Em("q", sg(R)), Side.constant(beta), witness("3/2", "1", parameters=AT_1),
                         given=(("R", beta),), parameters=("beta",))),
        ("given value in terms of itself", PART, "the value of R mentions a given name",
            lambda: sold(Em("q", A), NOTHING, witness("1/2", "0", rewards={"A": ["0", "1"]}),
                         given=(("R", R + 2 * A),))),  # it says that A is 0
        ("slots taken for one another", PART, "slot",  # E_q[R s_self] = 0: independent slots
            lambda: sold(Side.atom(E("q", R, ("self",))), NOTHING, witness("-3/4", "0"))),
    ],
}  # fmt: skip


def solved(c: ExpPoly | Side, family: ExpPoly, constants: str, **change: Any) -> Draft:
    """E_q[c s] = 0 iff g is the family, with one letter for each free constant."""
    left = c if isinstance(c, Side) else Em("q", c, 1)
    data = {"function": "g", "family": family, "unit": ONE, "coordinate": "k1"}
    data |= {"constants": list(constants), "order": len(constants)}
    context = {"parameters": ("a", "b", "beta"), "functions": G}
    context |= {key: change.pop(key) for key in ("premises", "on_policy") if key in change}
    relation = change.pop("relation", "=")
    return Draft(left, NOTHING, relation, **context).close("completeness", **data | change)


def apart(c: ExpPoly, term: ExpPoly, **context: Any) -> Draft:
    """E_q[c s] is no combination of the KL gradients."""
    return Draft(Em("q", c, 1), NOTHING, **context).close("independence", term=term)


QUADRATIC = k2 + a * k1 + b

COMPLETENESS = {
    "completeness": [
        ("a free constant missing", CLOSE, "2 free constants expected, got \\['b'\\]",
            lambda: solved(g1 - k1, k2 + b, "b", order=2)),
        ("half a square missing", CLOSE, "the family does not solve the condition",
            lambda: solved(g1 - k1, k1 * k1 + a * k1 + b, "ba")),
        ("the same constant twice", CLOSE, "2 free constants expected",
            lambda: solved(g1 - k1, k2 + b * k1 + b, "bb")),
        ("free constants that do not span", CLOSE, "the free constants do not span 1, k1",
            lambda: solved(g1 - k1, k2 + a + b, "ba")),
        ("a free constant of the equation", CLOSE, "free constant stands in the equation",
            lambda: solved(g1 - a * k1, a * k2 + a * k1 + b, "ba")),
        ("another coordinate is left over", CLOSE, "does not make the coefficient constant",
            lambda: solved(g1 - k1 - w, QUADRATIC, "ba")),
        ("order of the equation", CLOSE, "the condition is not g''' = h",
            lambda: solved(g1 - k1, QUADRATIC, "ba", order=3)),
        ("sg left in the coefficient", CLOSE, "drop sg\\(.\\) before completeness is used",
            lambda: solved(g1 - sg(k1), QUADRATIC, "ba")),
        ("family in another variable", CLOSE, "family: a function of k1 alone",
            lambda: solved(g1 - k1, k2 + a * k1 + b + w, "ba")),
        ("a variance instead of a mean", CLOSE, "reduce the equation to .* first",
            lambda: solved(Em("q", g1 - k1, 2), QUADRATIC, "ba")),
        ("premises narrow the models", CLOSE,
            "completeness needs every q, p, mu: no premises",
            lambda: solved(g1, b, "b", premises=((QP, NOTHING),))),
        ("unit that needs a nonzero parameter", PART, "hypotheses: .*nonzero",  # beta = 0: any g
            lambda: solved((g1 - k1) * beta, QUADRATIC, "ba", unit=beta.inverse())),
        ("unit that vanishes with the unknown", CLOSE,  # g = 5
            "division by the random variable g'",
            lambda: solved(g1 * g1 * Fraction(1, 2) - g, QUADRATIC, "ba", unit=g1.inverse())),
        ("on-policy along w", CLOSE, "put that in first",  # on-policy w = 0: any g
            lambda: solved(g1 * w, b, "b", coordinate="w", on_policy=True)),
        ("unit that vanishes with the reward", CLOSE,  # R = 0: any g
            "division by the random variable R",
            lambda: solved(w * R * (g1 - k1), k2 + b, "b", coordinate="w", unit=R.inverse())),
        ("closes an inequality", CLOSE, "an equation expected, not an inequality",
            lambda: solved(g1 - k1, QUADRATIC, "ba", relation="<=")),
    ],
    "independence": [
        ("a term that is not there", CLOSE, "term: it does not stand in the coefficient",
            lambda: apart(k1 - r, k1 * k1)),
        ("a multiple of k1", CLOSE, "term: a reward, or a multiple of k1 or of r",
            lambda: apart(beta * k1, beta * k1, parameters=("beta",))),
        ("a multiple of r", CLOSE, "term: a reward, or a multiple of k1 or of r",
            lambda: apart(k1 - r, -r)),
        ("a reward", CLOSE, "term: a reward, or a multiple of k1 or of r",
            lambda: apart(k1 + R * A, R * A)),
        ("a constant", CLOSE, "term: a reward, or a multiple of k1 or of r",
            lambda: apart(k1 + 1, ONE)),
        ("terms that cancel in another form", CLOSE, "drop sg\\(.\\) first",
            lambda: apart(k2 - sg(k2), k2)),
        ("a generic function that may be k1", CLOSE, "no generic functions expected",
            lambda: apart(g * k1, g * k1, functions=G)),
        ("a term with another factor", CLOSE, "term: it does not stand in the coefficient",
            lambda: apart(k1 * k1, k1 * k1 * 2)),
        ("a factor that may vanish", PART, "hypotheses: .*(nonzero|generic)",  # beta = 0
            lambda: apart(beta * k2, beta * k2, parameters=("beta",))),
        ("an exponent that may be minus one", PART,  # beta = -1: the forward KL
            "hypotheses: .*(nonzero|generic)",
            lambda: apart((beta * k1).exp(), (beta * k1).exp(), parameters=("beta",))),
        ("on-policy with a multiple of w", CLOSE, "put that in first",  # on-policy it is 0
            lambda: apart(w * k1, w * k1, on_policy=True)),
        ("a reward with a given value", CLOSE, "a given reward is no free one",  # whatever R is
            lambda: Draft(Em("q", R, 1), NOTHING, given=(("R", k2),)).step("given")
            .close("independence", term=k2)),
        ("exponentials of a parameter that may cancel", PART,  # beta = 1
            "hypotheses: .*'generic', 'beta'.*recorded \\[\\]",
            lambda: apart((beta.exp() - ONE.exp()) * k2, beta.exp() * k2, parameters=("beta",))),
        ("closes an inequality", CLOSE, "an equation expected, not an inequality",
            lambda: Draft(Em("q", k2, 1), NOTHING, "<=").close("independence", term=k2)),
    ],
}  # fmt: skip
