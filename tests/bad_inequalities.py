"""False inequalities and evaluations: what no tangent, square or contact shows, or has another value."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from drafts import (
    CLOSE,
    KL,
    NOTHING,
    ONE,
    PART,
    PQ,
    QP,
    REVERSE,
    ZERO,
    Draft,
    Em,
    G,
    R,
    a,
    beta,
    g,
    k1,
    k2,
    k3,
    lam,
    number,
    point,
    r,
    sg,
    w,
)  # fmt: skip

from klsym.normal_form import ExpPoly
from klsym.statements import Covariance, E, Side

SKEW = {"scale": ONE.to_json(), "at": "q", "v": [], "u": (-k1).to_json()}  # E_q[k3]
FLAT = {"scale": ONE.to_json(), "factor": ONE.to_json(), "at": "q", "v": [], "b": k1.to_json(), "score": []}


UP_TO_ROOT_E = 2 * k1 + 1  # at least 0 where r <= exp(1/2)


def assuming(hypothesis: Any, draft: Draft) -> Draft:
    """The draft, with a hypothesis that its author believes to suffice."""
    draft.hypotheses.add(hypothesis)
    return draft


def plain(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value.to_json() if isinstance(value, ExpPoly) else value for key, value in data.items()}


def at_most(
    by: str,
    left: Side,
    right: Side,
    *rows: dict[str, Any],
    relation: str = "<=",
    using: Any = (),
    **context: Any,
) -> Draft:
    """left <= right by one term for each row of changes to SKEW or FLAT; `using` are premises."""
    start = {"tangent": SKEW, "sum of squares": FLAT}[by]
    rows = rows or ({},)
    return Draft(left, right, relation, **context).close(
        by, terms=[{**start, **plain(row)} for row in rows], premises=times(using)
    )


def times(using: Any) -> list[dict[str, Any]]:
    return [{"number": number, "times": side.to_json()} for number, side in using]


def tangent(left: Side, right: Side, *rows: dict[str, Any], **how: Any) -> Draft:
    return at_most("tangent", left, right, *rows, **how)


def squares(left: Side, right: Side, *rows: dict[str, Any], **how: Any) -> Draft:
    return at_most("sum of squares", left, right, *rows, **how)


def variance(left: Side, right: Side, relation: str = "<=", **change: Any) -> Draft:
    """left <= right for the variance of k1 under q."""
    context = {key: change.pop(key) for key in ("parameters",) if key in change}
    data = {"scale": ONE, "b": k1, "measure": "q", "score": [], "premises": []}
    return Draft(left, right, relation, **context).close("square", **data | change)


def var(of: ExpPoly) -> Side:
    return Side.atom(Covariance("q", of, of))


def contact(c: ExpPoly | Side, value: ExpPoly, *rows: dict[str, Any], **change: Any) -> Draft:
    """0 <= c at one sample iff lam is the value; rows change the tangent SKEW, or FLAT where they hold b."""
    right = c if isinstance(c, Side) else point(c)
    found = [{**(FLAT if "b" in row else SKEW), "at": "sample", **plain(row)} for row in rows or ({},)]
    context = {"parameters": ("beta", "lam")} | {key: change.pop(key) for key in CONTEXT if key in change}
    left, relation = change.pop("left", NOTHING), change.pop("relation", "<=")
    data = {"parameter": "lam", "value": value, "terms": found}
    return Draft(left, right, relation, **context).close("contact", **data | change)


CONTEXT = ("parameters", "functions", "on_policy", "given", "premises")
K_LAM = k1 + lam * (r - 1)
IS_LAM = ((KL("p", "q", "J"), KL("p", "q", "chi2") * lam),)  # J(p, q) = lam chi2(p||q)
JEFFREYS = {"premises": IS_LAM, "parameters": ("lam",)}


def equal(left: Side, right: Side, *using: Any, relation: str = "=", **context: Any) -> Draft:
    return Draft(left, right, relation, **context).close("evaluation", premises=times(using))


INEQUALITIES = {
    "evaluation": [
        ("unbiased for the other divergence", CLOSE, "evaluation: the two sides differ",
            lambda: equal(Em("q", k3), PQ)),
        ("mean of a ratio the wrong way round", CLOSE, "the two sides differ",
            lambda: equal(Em("q", k1.exp()), Side.constant(1))),
        ("support hypothesis left out", PART, "hypotheses: .*support.*recorded \\[\\]",
            lambda: equal(Em("q", r), Side.constant(1))),
        ("mean of a square for the square of a mean", CLOSE, "the two sides differ",
            lambda: equal(Em("q", k1 * k1), QP.times(QP))),
        ("a variance without its mean", CLOSE, "the two sides differ",
            lambda: equal(Side.atom(Covariance("q", k1, k1)), Em("q", k1 * k1))),
        ("closes an inequality", CLOSE, "evaluation closes an equation",
            lambda: equal(Em("q", k1), QP, relation="<=")),
        ("the counting measure has no total mass", CLOSE, "the two sides differ",
            lambda: equal(Em("count", ONE), Side.constant(1))),
        ("moments of a product multiplied out left out", PART, "hypotheses: .*moment.*recorded",
            lambda: equal(Em("q", k1 + w).times(QP), Em("q", k1).times(QP) + Em("q", w).times(QP))),
        ("the mean of a product multiplied out", CLOSE, "the two sides differ",
            lambda: equal(Em("q", k1 * k1 + k1 * w), Em("q", k1).times(Em("q", k1 + w)))),
        ("a premise times what is random", CLOSE, "times: constants and means expected",
            lambda: equal(QP.times(point(k1)), PQ.times(point(k1)), (0, point(-k1)), premises=((QP, PQ),))),
        ("a premise times a random coefficient", CLOSE, "times: constants and means expected",
            lambda: equal(QP, PQ, (0, Side.constant(-k1)), premises=((QP, PQ),))),
        ("a premise that is not there", CLOSE, "no such premise",
            lambda: equal(QP, PQ, (0, Side.constant(-1)))),
        ("a premise used backwards", CLOSE, "the two sides differ",
            lambda: equal(QP, PQ, (0, Side.constant(1)), premises=((QP, PQ),))),
        ("a premise not recorded", PART, "hypotheses: .*equal.*recorded",
            lambda: equal(QP, PQ, (0, Side.constant(-1)), premises=((QP, PQ),))),
    ],
    "tangent": [
        ("a negative factor", CLOSE, "tangent: the factor -1 is not positive",
            lambda: tangent(Em("q", k3), NOTHING, {"scale": -ONE})),
        ("closes an equality", CLOSE, "tangent closes an inequality",
            lambda: tangent(NOTHING, Em("q", k3), relation="=")),
        ("sign of the exponent", CLOSE, "the two sides differ",
            lambda: tangent(Em("q", k1), Em("q", 1 - r))),
        ("kl bounds chi2 from above", CLOSE, "the two sides differ",
            lambda: tangent(Em("q", (r - 1) ** 2), Em("q", -r * k1), {"v": -k1})),
        ("weighted by another measure", CLOSE, "the two sides differ",
            lambda: tangent(NOTHING, Em("q", k3), {"at": "mu"})),
        ("k1 is nonnegative in the mean but not at a sample", CLOSE, "the two sides differ",
            lambda: tangent(NOTHING, point(k1), {"at": "sample"})),
        ("the mean of r is one but not r", CLOSE, "the two sides differ",
            lambda: tangent(NOTHING, point(k1), {"at": "q"})),
        ("at no place", CLOSE, "at: 'sample' or one of",
            lambda: tangent(NOTHING, point(k3), {"at": ""}, {"at": "", "u": k1})),
        ("a mean for the value at a sample", CLOSE, "the two sides differ",
            lambda: tangent(NOTHING, point(k3), {"at": "q"})),
        ("a factor of unknown sign", PART, "hypotheses: .*positive.*beta",  # beta = -1
            lambda: tangent(NOTHING, Em("q", beta * k3), {"scale": beta}, parameters=("beta",))),
        ("a factor that may vanish", PART, "hypotheses: .*nonzero.*beta",  # beta = 0: equal for every r
            lambda: tangent(NOTHING, Em("q", beta**2 * k3), {"scale": beta**2}, parameters=("beta",))),
        ("a factor that is a sum", CLOSE, "scale: a single term expected",  # beta = 1/2
            lambda: tangent(NOTHING, Em("q", (beta - 1) * k3), {"scale": beta - 1}, parameters=("beta",))),
        ("a random factor", CLOSE, "scale: a constant expected",
            lambda: tangent(NOTHING, Em("q", k1 * k3), {"scale": k1})),
        ("support of the mean of the ratio left out", PART, "hypotheses: .*support",
            lambda: tangent(NOTHING, Em("q", k1))),  # the proof needs E_q[r] = 1
        ("no terms", CLOSE, "terms: a nonempty list expected",
            lambda: Draft(NOTHING, NOTHING, "<=").close("tangent", terms=[], premises=[])),
        ("a term that is zero", CLOSE, "u: it is zero",  # equality everywhere, not where u = 0
            lambda: tangent(Em("q", k1), Em("q", k1), {"u": ZERO})),
        ("a region", CLOSE, "terms: the keys",
            lambda: tangent(NOTHING, Em("q", (k1 + 1) * k3), {"nonnegative": k1 + 1})),
        ("exp of an exp", CLOSE, "exp of an exponential",
            lambda: tangent(NOTHING, Em("q", k3), {"u": r - 1})),
    ],
    "sum of squares": [
        ("a negative factor", CLOSE, "sum of squares: the factor -1/2 is not positive",
            lambda: squares(point(k2), NOTHING, {"at": "sample", "scale": number(Fraction(-1, 2))})),
        ("closes an equality", CLOSE, "sum of squares closes an inequality",
            lambda: squares(NOTHING, Em("q", k1 * k1), relation="=")),
        ("half a square forgotten", CLOSE, "the two sides differ",
            lambda: squares(NOTHING, point(k2), {"at": "sample"})),
        ("a square under another measure", CLOSE, "the two sides differ",
            lambda: squares(NOTHING, Em("mu", k1 * k1))),
        ("a score that is not squared", CLOSE, "the two sides differ",  # s has either sign
            lambda: squares(NOTHING, Em("q", k1 * k1, 1), {"score": ["x"]})),
        ("a factor that is not squared", CLOSE, "the two sides differ",
            lambda: squares(NOTHING, Em("q", beta * k1 * k1), {"factor": beta}, parameters=("beta",))),
        ("a random factor", CLOSE, "factor: a constant expected",
            lambda: squares(NOTHING, Em("q", k1 * k1), {"factor": k1, "b": ONE})),
        ("a slot that is not there", CLOSE, "score: a list of slots",
            lambda: squares(NOTHING, Em("q", k1 * k1, 2), {"score": ["self"]})),
        ("chi2 the wrong way round", CLOSE, "the two sides differ",
            lambda: squares(NOTHING, KL("q", "p", "chi2"), {"b": r - 1})),
        ("a parameter in a denominator", PART, "hypotheses: .*nonzero.*beta",  # f = 1/beta, b = beta k1
            lambda: squares(NOTHING, Em("q", k1 * k1), {"factor": beta.inverse(), "b": beta * k1},
                            parameters=("beta",))),
        ("the square of zero", CLOSE, "a square of zero",
            lambda: squares(Em("q", k1), Em("q", k1), {"b": ZERO})),
        ("the best lambda is the worst", CLOSE, "the two sides differ",
            lambda: squares(var(k1 + a * (r - 1)), var(K_LAM), {"b": r - 1, "factor": a - lam},
                            using=[(0, Side.constant(2 * (lam - a)))],
                            premises=IS_LAM, parameters=("a", "lam"))),
        ("a region that is not recorded", PART, "hypotheses: .*nonnegative.*recorded \\[\\]",
            lambda: squares(NOTHING, Em("q", UP_TO_ROOT_E * k1 * k1), {"nonnegative": UP_TO_ROOT_E})),
        ("a region that is recorded under another measure", PART, "hypotheses: .*nonnegative.*recorded",
            lambda: assuming(("nonnegative", "p", UP_TO_ROOT_E), squares(
                NOTHING, Em("q", UP_TO_ROOT_E * k1 * k1), {"nonnegative": UP_TO_ROOT_E}))),
        ("a larger region than is recorded", PART, "hypotheses: .*nonnegative.*recorded",
            lambda: assuming(("nonnegative", "q", k1 + 1), squares(
                NOTHING, Em("q", UP_TO_ROOT_E * k1 * k1), {"nonnegative": UP_TO_ROOT_E}))),
        ("a region that is left out", CLOSE, "the two sides differ",
            lambda: squares(NOTHING, Em("q", UP_TO_ROOT_E * k1 * k1))),
        ("a region of another inequality", CLOSE, "the two sides differ",
            lambda: squares(NOTHING, Em("q", UP_TO_ROOT_E * k1 * k1), {"nonnegative": k1 + 1})),
        ("a region without q and p that agree", CLOSE, "not positive at q = p = mu",  # r < 1/e everywhere
            lambda: squares(NOTHING, Em("q", (k1 - 1) * k1 * k1), {"nonnegative": k1 - 1})),
        ("a region of q and p that agree", CLOSE, "not positive at q = p = mu",  # r <= 1 everywhere
            lambda: squares(NOTHING, Em("q", k1 * k1 * k1), {"nonnegative": k1})),
        ("an empty region", CLOSE, "not positive at q = p = mu",
            lambda: squares(Em("q", k1 * k1 * (k1 * k1 + 1)), NOTHING, {"nonnegative": -k1 * k1 - 1})),
        ("an empty region of constants", CLOSE, "a function of k1 and w expected",
            lambda: squares(Em("q", k1 * k1), NOTHING, {"nonnegative": -ONE})),
        ("a region that a parameter empties", CLOSE, "a function of k1 and w expected",  # beta = -1
            lambda: squares(NOTHING, Em("q", (beta + r) * k1 * k1), {"nonnegative": beta + r},
                            parameters=("beta",))),
        ("a region of rewards", CLOSE, "a function of k1 and w expected",
            lambda: squares(NOTHING, Em("q", (R + 1) * k1 * k1), {"nonnegative": R + 1})),
        ("a detached region", CLOSE, "a function of k1 and w expected",
            lambda: squares(NOTHING, Em("q", (sg(k1) + 1) * k1 * k1), {"nonnegative": sg(k1) + 1})),
        ("a region with a division", CLOSE, "division by k1 or w",
            lambda: squares(NOTHING, Em("q", k1 + k1 * k1), {"nonnegative": k1.inverse() + 1})),
        ("a region at no place", CLOSE, "at: 'sample' or one of",
            lambda: squares(NOTHING, point(k1 + 1), {"at": "", "b": ONE, "nonnegative": k1 + 1})),
        ("best for lambda without the premise", CLOSE, "the two sides differ",
            lambda: squares(var(K_LAM), var(k3), {"b": r - 1, "factor": lam - 1}, **JEFFREYS)),
    ],
    "square": [
        ("the wrong way round", CLOSE, "the two sides differ",
            lambda: variance(Em("q", k1 * k1), Em("q", k1).times(Em("q", k1)))),
        ("under the counting measure", CLOSE, "a probability measure expected",
            lambda: variance(Em("count", k1).times(Em("count", k1)), Em("count", k1 * k1), measure="count")),
        ("score not squared", CLOSE, "the two sides differ",
            lambda: variance(REVERSE.times(REVERSE), Em("q", k1 * k1, 1), score=["x"])),
        ("closes an equality", CLOSE, "square closes an inequality",
            lambda: variance(REVERSE.times(REVERSE), Em("q", k1 * k1, 2), "=", score=["x"])),
        ("means under two measures", CLOSE, "the two sides differ",
            lambda: variance(Em("q", k1).times(Em("p", k1)), Em("q", k1 * k1))),
        ("at a sample", CLOSE, "a probability measure expected",
            lambda: variance(point(k1).times(point(k1)), point(k1 * k1), measure="sample")),
        ("a negative factor", CLOSE, "the factor -1 is not positive",
            lambda: variance(Em("q", k1 * k1), Em("q", k1).times(Em("q", k1)), scale=-ONE)),
        ("a number of samples of unknown sign", PART, "hypotheses: .*positive.*beta",  # beta = -1
            lambda: variance(
                Side.of((beta, (E("q", k1), E("q", k1)))), Em("q", beta * k1 * k1), scale=beta,
                parameters=("beta",))),
        ("the mean of the ratio under p", CLOSE, "the two sides differ",  # E_p[r] is not 1
            lambda: variance(Side.constant(1), Em("p", r * r), b=r, measure="p")),
    ],
    "contact": [
        ("in a region only", CLOSE, "contact speaks of every r",
            lambda: contact(k1 * k1 * (k1 + 1) + (lam - 1) * k1, ONE, {"b": k1, "nonnegative": k1 + 1})),
        ("another value", CLOSE, "the slope at r = 1 does not vanish there",
            lambda: contact(K_LAM, number(2))),
        ("no value has contact", CLOSE, "the two sides differ at r = 1",  # k1 + lam r <= 0 for small r
            lambda: contact(k1 + lam * r, ONE)),
        ("a constant below", CLOSE, "a function of k1 alone at one sample expected",
            lambda: contact(K_LAM, ONE, left=Side.constant(-1))),
        ("tangents of another function", CLOSE, "the two sides differ",
            lambda: contact(K_LAM, ONE, {"u": k1})),
        ("one value more", CLOSE, "the slope is not linear in lam",
            lambda: contact(K_LAM * lam, ONE)),  # lam k1 + lam^2 (r - 1), and 0 at lam = 0
        ("two values", CLOSE, "the slope is not linear in lam",  # lam = -1 as well
            lambda: contact(k1 + lam * lam * (r - 1), ONE)),
        ("a slope of cube", CLOSE, "the slope is not linear in lam",
            lambda: contact(k1 * lam**3 - r + 1, -ONE)),
        ("never negative whatever lam is", CLOSE, "the slope is not linear in lam",
            lambda: contact(k1 * k1 * lam**2, ZERO, {"b": k1})),
        ("a slope that beta may make vanish", PART, "hypotheses: .*nonzero.*beta",  # beta = 0: any lam
            lambda: contact(k3 + beta * (lam - 1) * (r - 1), ONE)),
        ("a sign that beta decides", PART, "hypotheses: .*positive.*beta",  # beta = -1: no lam at all
            lambda: contact(beta * K_LAM, ONE, {"scale": beta})),
        ("a value that is not there", PART, "hypotheses: .*nonzero.*beta",  # beta = 0
            lambda: contact(k1 * beta + lam * beta**2 * (r - 1), beta.inverse(), {"scale": beta})),
        ("a negative function at the value", CLOSE, "the factor -1 is not positive",
            lambda: contact(-K_LAM, ONE, {"scale": -ONE})),
        ("the parameter in the value", CLOSE, "unknown name 'lam'",
            lambda: contact(K_LAM, lam)),
        ("the parameter in the terms", CLOSE, "unknown name 'lam'",
            lambda: contact(K_LAM, ONE, {"scale": lam})),
        ("a random value", CLOSE, "value: a constant expected",
            lambda: contact(K_LAM, k1)),
        ("no parameter", CLOSE, "parameter: it is not declared",
            lambda: contact(K_LAM, ONE, parameter="alpha")),
        ("another ratio", CLOSE, "a function of k1 alone",
            lambda: contact(w + lam * ((-w).exp() - 1), ONE, {"u": -w})),
        ("on-policy where w is zero", CLOSE, "a function of k1 alone",  # any lam
            lambda: contact(k3 + (lam - 1) * w, ONE, on_policy=True)),
        ("a reward that may vanish", CLOSE, "a function of k1 alone",
            lambda: contact(k3 + R * (lam - 1) * k1, ONE)),
        ("a given reward", CLOSE, "no given values",
            lambda: contact(K_LAM, ONE, given=(("R", k1),))),
        ("sg left in", CLOSE, "a function of k1 alone",
            lambda: contact(k3 + (lam - 1) * (k1 - sg(k1)), ONE)),  # 0: any lam
        ("a generic function", CLOSE, "no generic functions",
            lambda: contact(k3 + (lam - 1) * g, ONE, functions=G)),
        ("premises that leave one ratio only", CLOSE, "no premises",  # q = p: any lam
            lambda: contact(K_LAM, ONE, premises=((QP, NOTHING),))),
        ("in the mean", CLOSE, "a function of k1 alone at one sample expected",  # E_q[k(lam)] = KL: any lam
            lambda: contact(Em("q", K_LAM), ONE)),
        ("times the score", CLOSE, "a function of k1 alone at one sample expected",
            lambda: contact(point(K_LAM, 1), ONE)),
        ("terms in the mean", CLOSE, "terms: values at one sample expected",
            lambda: contact(K_LAM, ONE, {"at": "q"})),
        ("closes an equality", CLOSE, "contact closes an inequality",
            lambda: contact(K_LAM, ONE, relation="=")),
        ("the slope of what is squared", CLOSE, "the two sides differ",  # -k1^2 at lam = 1
            lambda: contact(k1 * (1 - lam) - k1 * k1, ONE, {"b": k1})),
    ],
}  # fmt: skip
