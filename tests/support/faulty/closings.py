"""False endings: what no equality, model, completeness or independence shows, and false citations."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import Mean, Side
from support.certificates.faulty_certificates import *

BETA = {"parameters": ("beta",)}
EQUALITIES = {
    "equality": [
        ("forward for reverse", CLOSE, "equality: the two sides differ: left - right = ",
            lambda: Draft(Eg("q", k3), REVERSE).step("chain rule")
            .step("score mean zero", part=ONE, slot="x")),
        ("k3 is k1 in the mean but not at a sample", CLOSE, DIFFER, lambda: Draft(point(k3), point(k1))),
        ("half a square", CLOSE, DIFFER,
            lambda: Draft(mean_grad("", "sample", k2), point(k1 * 2, 1)).step("chain rule")),
        ("a constant times the score at a sample", CLOSE, DIFFER,
            lambda: Draft(mean_grad("", "sample", rho * k1), point(rho * k1, 1)).step("chain rule")),
        ("mean of a product is no product of means", CLOSE, DIFFER,
            lambda: Draft(Em("q", k1 * r), Em("q", k1).multiply(Em("q", r)))),
        ("unbiased for the other divergence", CLOSE, DIFFER,
            lambda: Draft(Em("q", k3), PQ).step("ratio mean one", part=r, of="p", slot="x")),
        ("mean of a ratio the wrong way round", CLOSE, DIFFER,
            lambda: Draft(Em("q", k1.exp()), constant(1)).step("change of measure", to="p")),
        ("mean of a square for the square of a mean", CLOSE, DIFFER,
            lambda: Draft(Em("q", k1 * k1), QP.multiply(QP))),
        ("a variance without its mean", CLOSE, DIFFER,
            lambda: Draft(cov("q", k1, k1), Em("q", k1 * k1))),
        ("the counting measure has no total mass", CLOSE, DIFFER,
            lambda: Draft(Em("count", ONE), constant(1))),
        ("the mean of a product multiplied out", CLOSE, DIFFER,
            lambda: Draft(Em("q", k1 * k1 + k1 * w), Em("q", k1).multiply(Em("q", k1 + w)))
            .right("linearity", part=k1, factor=1, constant=ONE)),
        ("the value at a sample for the mean", CLOSE, DIFFER, lambda: Draft(point(k1), Em("q", k1))),
        ("a premise that is not used", CLOSE, DIFFER, lambda: Draft(QP, PQ, premises=((QP, PQ),))),
        ("of an inequality without its row", CLOSE, DIFFER, lambda: Draft(NOTHING, Em("q", k3), "<=")),
        ("detached for live", CLOSE, DIFFER, lambda: Draft(Em("q", sg(k1), 1), REVERSE)),
        ("a function for its derivative", CLOSE, DIFFER,
            lambda: Draft(Em("q", g), Em("q", g1), functions=G)),
        ("rows of another form", PART, "rows: a list expected",
            lambda: Draft(QP, PQ, "<=").close("equality", rows={})),
        ("without saying which rows", PART, "close: the keys \\['rows'\\] expected",
            lambda: Draft(QP, QP).close("equality")),
        ("by a name that is none", CLOSE, "one of .* expected",
            lambda: Draft(QP, PQ).close("evaluation", premises=[])),
    ],
}  # fmt: skip


# ---------------------------------------------------------------------------- models
NODE = {
    "q": ["1/2", "1/2"], "p": ["1/4", "3/4"], "mu": ["1/3", "2/3"], "u": ["1", "0"], "v": ["0", "1"],
    "rewards": {"R": ["0", "3"]}, "next": [None, None],
}  # fmt: skip
OF_MODEL = ("tree", "path", "parameters")


def witness(left: str, right: str, **change: Any) -> dict[str, Any]:
    """Close data whose two enclosures are single points; changes to the node, or to the model."""
    node = NODE | {key: value for key, value in change.items() if key not in OF_MODEL}
    model = {"tree": node, "path": [0], "parameters": {}}
    model |= {key: value for key, value in change.items() if key in OF_MODEL}
    return {"model": model, "left": [left] * 2, "right": [right] * 2}


def sold(left: Side, right: Side, data: Any, relation: str = "=", **context: Any) -> Draft:
    """A refutation by a witness."""
    return Draft(left, right, relation, **context).close("finite model", **data)


N = ExpPoly.from_variable("n")
ER = (Em("q", r), constant(1))
WRONG = ("1", "2")  # E_q[r] is not 2
BETA_IS_1 = {"premises": ((constant(beta), constant(1)),), **BETA}

REFUTATIONS = {  # E_q[r] = 1, E_p[r] = 5/4, E_mu[R] = 2, E_q[R] = 3/2
    "finite model": [
        ("tampered enclosure", CLOSE, "left side: enclosed in \\['1', '1'\\], recorded \\['2', '2'\\]",
            lambda: sold(*ER, witness("2", "1"))),
        ("a wider enclosure", CLOSE, "right side: enclosed in",
            lambda: sold(Em("p", r), constant(1), witness("5/4", "1") | {"right": ["0", "1"]})),
        ("enclosures swapped", CLOSE, "left side: enclosed in",
            lambda: sold(Em("p", r), constant(1), witness("1", "5/4"))),
        ("does not separate", CLOSE, "the enclosures do not contradict the relation",
            lambda: sold(Em("p", r), constant(1), witness("1", "1", p=["1/2", "1/2"]))),
        ("separates in the allowed direction", CLOSE, "do not contradict the relation",
            lambda: sold(constant(1), Em("p", r), witness("1", "5/4"), "<=")),
        ("probabilities that do not add up", CLOSE, "p is no full-support distribution",
            lambda: sold(*ER, witness(*WRONG, p=["1", "1"]))),
        ("a negative probability", CLOSE, "p is no full-support distribution",
            lambda: sold(*ER, witness(*WRONG, p=["-1/2", "3/2"]))),
        ("an outcome without probability", CLOSE, "p is no full-support distribution",
            lambda: sold(Em("p", ONE), Em("q", r), witness("1", "1/2", p=["0", "1"]))),
        ("a policy of unlike lengths", CLOSE, "the lists of a node differ in length",
            lambda: sold(*ER, witness(*WRONG, q=["1/2", "1/4", "1/4"]))),
        ("a direction of unlike length", CLOSE, "the lists of a node differ in length",
            lambda: sold(*ER, witness(*WRONG, u=["1"]))),
        ("no outcome", CLOSE, "q is no full-support distribution",
            lambda: sold(*ER, witness("0", "1", q=[], p=[], mu=[], u=[], v=[], rewards={}, next=[]))),
        ("without the second direction", CLOSE, "a node has the keys",
            lambda: sold(*ER, witness(*WRONG, tree={k: v for k, v in NODE.items() if k != "v"}))),
        ("without a path", CLOSE, "the keys \\['parameters', 'path', 'tree'\\] expected",
            lambda: _without_path(sold(point(r), constant(1), witness("1/2", "1")))),
        ("against the premises", CLOSE, "a model need not satisfy the premises",
            lambda: sold(Em("p", r), constant(1), witness("5/4", "1"), premises=((Em("p", r), Em("q", r)),))),
        ("against a premise about parameters", CLOSE, "the model does not satisfy the premises",
            lambda: sold(Em("q", beta), constant(1), witness("2", "1", parameters={"beta": "2"}),
                         **BETA_IS_1)),
        ("a gradient still to be taken", CLOSE, "reduce both sides to means",
            lambda: sold(grad(Em("mu", R)), constant(1), witness("0", "1"))),
        ("the gradient of a loss still to be taken", CLOSE, "reduce both sides to means",
            lambda: sold(Eg("q", R), constant(1), witness("0", "1"))),
        ("the curl of one sample still to be taken", CLOSE, "reduce both sides to means",
            lambda: sold(curl("", "q", R), constant(1), witness("0", "1"))),
        ("a batch of unknown size", CLOSE, "reduce both sides to means",
            lambda: sold(mean("i", "q", ONE), constant(2), witness("1", "2"))),
        ("decimal probabilities", CLOSE, "an exact number such as .* expected, got '0.5'",
            lambda: sold(Em("p", r), constant(1), witness("5/4", "1", q=["0.5", "0.5"]))),
        ("a fraction not in lowest terms", CLOSE, "in lowest terms expected",
            lambda: sold(*ER, witness("1", "2", q=["2/4", "1/2"]))),
        ("a probability with a zero denominator", CLOSE, "in lowest terms expected",
            lambda: sold(*ER, witness("1", "2", q=["1/0", "1/2"]))),
        ("an enclosure that is no text", CLOSE, "left side: enclosed in \\['1', '1'\\], recorded \\[1, 1\\]",
            lambda: sold(*ER, witness(1, 2))),
        ("a parameter without a value", CLOSE, "no value for beta",
            lambda: sold(Em("q", beta), constant(1), witness("2", "1"), **BETA)),
        ("a parameter that is not declared", CLOSE, "an undeclared parameter",
            lambda: sold(*ER, witness("1", "2", parameters={"beta": "2"}))),
        ("a log ratio for a parameter", CLOSE, "an undeclared parameter",
            lambda: sold(Em("q", k1), NOTHING, witness("2", "0", parameters={"k1": "2"}))),
        ("a function without a value", CLOSE, "no value for g",
            lambda: sold(Em("q", g), NOTHING, witness("1", "0"), functions=G)),
        ("a reward without values", CLOSE, "no value for A",
            lambda: sold(Em("q", A), NOTHING, witness("1", "0"))),
        ("a reward for a log ratio", CLOSE, "rewards: .* expected",
            lambda: sold(Em("q", k1), NOTHING, witness("1", "0", rewards={"k1": ["1", "1"]}))),
        ("a reward of unlike length", CLOSE, "the lists of a node differ in length",
            lambda: sold(Em("q", R), NOTHING, witness("1", "0", rewards={"R": ["1"]}))),
        ("the value at a sample that is not chosen", CLOSE, "path: a value at one sample needs one",
            lambda: sold(point(r), constant(1), witness("1/2", "1", path=[]))),
        ("the value at a sample that is not there", CLOSE, "there is no branch 2",
            lambda: sold(point(r), constant(1), witness("1/2", "1", path=[2]))),
        ("the value at a sample counted from the end", CLOSE, "there is no branch -1",
            lambda: sold(point(r), constant(1), witness("3/2", "1", path=[-1]))),
        ("the value at another sample", CLOSE, "left side: enclosed in \\['3/2', '3/2'\\], recorded",
            lambda: sold(point(r), constant(1), witness("1/2", "1", path=[1]))),
        ("half a batch", CLOSE, "a batch of size 3/2: 2 or more expected",
            lambda: sold(constant(N), constant(2), witness("3/2", "2", parameters={"n": "3/2"}),
                         parameters=("n",))),
        ("a model of a batch of one", CLOSE, "a batch of size 1: 2 or more expected",
            lambda: sold(constant(N), constant(2), witness("1", "2", parameters={"n": "1"}),
                         parameters=("n",))),
        ("a score along another slot", PART, "score: a list of slots",  # E_q[R s_self] = 0: independent slots
            lambda: sold(mean("", "q", R, "self"), NOTHING, witness("-3/4", "0"))),
        ("a score of another scale", CLOSE, "left side: enclosed in",  # s = u - E_q[u]
            lambda: sold(Em("q", R, 1), NOTHING, witness("3/2", "0"))),
        ("an on-policy weight that is not one", CLOSE, "do not contradict the relation",
            lambda: sold(Em("q", on_policy(rho)), constant(1), witness("1", "1"))),
        ("as a text", CLOSE, "finite model: the keys", lambda: _model_is("a tree")),
    ],
}  # fmt: skip


def _without_path(draft: Draft) -> Draft:
    del draft.part["close"]["model"]["path"]
    return draft


def _model_is(model: Any) -> Draft:
    return sold(*ER, witness(*WRONG) | {"model": model})


# ---------------------------------------------------------------------------- theorems about all densities
def solved(c: ExpPoly | Side, family: ExpPoly, constants: str | list[str], **change: Any) -> Draft:
    """E_q[c s] = 0 iff g is the family, with a letter, or a name, for each free constant."""
    left = c if isinstance(c, Side) else Em("q", c, 1)
    data = {"function": "g", "family": family, "unit": ONE, "coordinate": "k1"}
    data |= {"constants": list(constants), "order": len(constants)}
    context = {"parameters": ("a", "b", "beta"), "functions": G}
    context |= {key: change.pop(key) for key in ("parameters", "premises", "functions") if key in change}
    relation, right = change.pop("relation", "="), change.pop("right", NOTHING)
    return Draft(left, right, relation, **context).close("completeness", **data | change)


def apart(c: ExpPoly | Side, term: ExpPoly, right: Side = NOTHING, **context: Any) -> Draft:
    """E_q[c s] is no combination of the KL gradients."""
    left = c if isinstance(c, Side) else Em("q", c, 1)
    return Draft(left, right, **context).close("independence", term=term)


QUADRATIC = k2 + a * k1 + b
NOT_ZERO = "the right side of the statement is not 0"
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
        ("a free constant squared", CLOSE, "the free constants do not span 1, k1",
            lambda: solved(g1 - k1, k2 + a * a * k1 + b, "ba")),
        ("free constants in another order", CLOSE, "the free constants do not span 1, k1",
            lambda: solved(g1 - k1, QUADRATIC, "ab")),
        ("a free constant of the equation", CLOSE, "free constant stands in the equation",
            lambda: solved(g1 - a * k1, a * k2 + a * k1 + b, "ba")),
        # g = k1 + b solves g' = 1: with k1 itself as the "constant", the family misses what it cannot see
        ("the variable as the free constant", CLOSE, "a free constant is not declared",
            lambda: solved((g1 - 1) * rho, k1, ["k1"], unit=rho.invert(), coordinate="w")),
        ("the variable in place of the linear term", CLOSE, "a free constant is not declared",
            lambda: solved((ExpPoly.from_variable("g''") - 2) * rho, k1 * k1 + a, ["a", "k1"],
                unit=rho.invert(), coordinate="w")),
        ("the variable in place of the constant term", CLOSE, "a free constant is not declared",
            lambda: solved(ExpPoly.from_variable("g''") * rho, k1 + a * k1, ["k1", "a"],
                unit=rho.invert(), coordinate="w")),
        ("a free constant that is not declared", CLOSE, "unknown name 'd'",
            lambda: solved(g1 - k1, k2 + ExpPoly.from_variable("d") * k1 + b, "bd")),
        ("another coordinate is left over", CLOSE, "does not make the coefficient constant",
            lambda: solved(g1 - k1 - w, QUADRATIC, "ba")),
        ("order of the equation", CLOSE, "the condition is not g''' = h",
            lambda: solved(g1 - k1, QUADRATIC, "ba", order=3)),
        ("an order beyond the limit", CLOSE, "order: an integer from 1 to 8",
            lambda: solved(g1 - k1, QUADRATIC, "ba", order=9)),
        ("sg left in the coefficient", CLOSE, "drop sg\\(.\\) first",
            lambda: solved(g1 - sg(k1), QUADRATIC, "ba")),
        ("family in another variable", CLOSE, "family: a function of k1 alone",
            lambda: solved(g1 - k1, k2 + a * k1 + b + w, "ba")),
        ("family in the unknown itself", CLOSE, "family: a function of k1 alone",
            lambda: solved(g1 - k1, QUADRATIC + g, "ba")),
        ("a variance instead of a mean", CLOSE, "reduce the equation to .* first",
            lambda: solved(Em("q", g1 - k1, 2), QUADRATIC, "ba")),
        ("under mu", CLOSE, "reduce the equation to .* first",
            lambda: solved(Em("mu", g1 - k1, 1), QUADRATIC, "ba")),
        ("at one sample", CLOSE, "reduce the equation to .* first",
            lambda: solved(point(g1 - k1, 1), QUADRATIC, "ba")),
        ("without the score", CLOSE, "reduce the equation to .* first",
            lambda: solved(Em("q", g1 - k1), QUADRATIC, "ba")),
        ("premises narrow the models", CLOSE, "it speaks of every q, p, mu: no premises",
            lambda: solved(g1, b, "b", premises=((QP, NOTHING),))),
        ("a right side", CLOSE, NOT_ZERO,
            lambda: solved(g1 - k1, QUADRATIC, "ba", right=Em("q", ONE, 1))),
        ("a right side that a rule takes to zero", CLOSE, NOT_ZERO,
            lambda: solved(g1 - k1, QUADRATIC, "ba", right=Em("q", ONE, 1))
            .right("score mean zero", slot="x")),
        ("unit that needs a nonzero parameter", PART, "hypotheses: .*nonzero",  # beta = 0: any g
            lambda: solved((g1 - k1) * beta, QUADRATIC, "ba", unit=beta.invert()).without("nonzero")),
        ("family divided by a parameter", PART, "hypotheses: .*nonzero.*beta",  # beta = 0: no such family
            lambda: solved(g1 - k1, QUADRATIC + beta.invert(), "ba").without("nonzero")),
        ("unit that vanishes with the unknown", CLOSE,  # g = 5
            "division by the random variable g'",
            lambda: solved(g1 * g1 * Fraction(1, 2) - g, QUADRATIC, "ba", unit=g1.invert())),
        ("unit that mentions the unknown", CLOSE, "unit: free of the unknown",
            lambda: solved(g1 - k1, QUADRATIC, "ba", unit=g)),
        ("unit that is zero", CLOSE, "unit: a single term expected, not zero",
            lambda: solved(g1 - k1, QUADRATIC, "ba", unit=ZERO)),
        ("unit that is a sum", CLOSE, "unit: a single term expected",
            lambda: solved(g1 - k1, QUADRATIC, "ba", unit=ONE + w)),
        ("on-policy along w", CLOSE, "drop sg\\(.\\) first",  # w = 0: any g
            lambda: solved(g1 * on_policy(w), b, "b", coordinate="log_q", unit=ONE)),
        ("on-policy when all has vanished", CLOSE, "the condition is not g' = h",  # w = 0: any g
            lambda: solved(g1 * on_policy(w), b, "b", coordinate="log_q").step("stop-gradient")),
        ("unit that vanishes with the reward", CLOSE,  # R = 0: any g
            "division by the random variable R",
            lambda: solved(w * R * (g1 - k1), k2 + b, "b", coordinate="w", unit=R.invert())),
        ("along a reward", CLOSE, "coordinate: one of",
            lambda: solved(R * (g1 - k1), QUADRATIC, "ba", coordinate="R")),
        ("of a function of another log ratio", CLOSE, "one unknown function of k1 expected",
            lambda: solved(g1 - k1, QUADRATIC, "ba", functions=(("g", ("w",)),))),
        ("of two unknown functions", CLOSE, "one unknown function of k1 expected",
            lambda: solved(g1 - f, QUADRATIC, "ba", functions=(("f", ("k1",)), *G))),
        ("of what is no function", CLOSE, "one unknown function of k1 expected",
            lambda: solved(g1 - k1, QUADRATIC, "ba", function="beta")),
        ("closes an inequality", CLOSE, "an equation expected, not an inequality",
            lambda: solved(g1 - k1, QUADRATIC, "ba", relation="<=")),
    ],
    "independence": [
        ("a term that is not there", CLOSE, "term: it does not stand in the coefficient",
            lambda: apart(k1 - r, k1 * k1)),
        ("a multiple of k1", CLOSE, "term: a reward, or a multiple of k1 or of r",
            lambda: apart(beta * k1, beta * k1, **BETA)),
        ("a multiple of r", CLOSE, "term: a reward, or a multiple of k1 or of r",
            lambda: apart(k1 - r, -r)),
        ("a reward", CLOSE, "term: a reward, or a multiple of k1 or of r",
            lambda: apart(k1 + R * A, R * A)),
        ("a constant", CLOSE, "term: a reward, or a multiple of k1 or of r", lambda: apart(k1 + 1, ONE)),
        ("a term that is a sum", CLOSE, "term: a single term expected", lambda: apart(k2 + w, k2 + w)),
        ("no term", CLOSE, "term: a single term expected", lambda: apart(k2, ZERO)),
        ("terms that cancel in another form", CLOSE, "drop sg\\(.\\) first",
            lambda: apart(k2 - sg(k2), k2)),
        ("a generic function that may be k1", CLOSE, "no generic functions expected",
            lambda: apart(g * k1, g * k1, functions=G)),
        ("a term with another factor", CLOSE, "term: it does not stand in the coefficient",
            lambda: apart(k1 * k1, k1 * k1 * 2)),
        ("a factor that may vanish", PART, "hypotheses: .*(nonzero|generic)",  # beta = 0
            lambda: apart(beta * k2, beta * k2, **BETA).without("nonzero")),
        ("an exponent that may be minus one", PART,  # beta = -1: the forward KL
            "hypotheses: .*(nonzero|generic)",
            lambda: apart((beta * k1).exp(), (beta * k1).exp(), **BETA).without("generic")),
        ("a sum of factors that may vanish", PART, "hypotheses: .*'generic', 'beta'",  # beta = 1
            lambda: apart((beta - 1) * k2, beta * k2, **BETA).without("generic")),
        ("generic recorded as nonzero", PART, "hypotheses: .*'generic', 'beta'.*recorded",
            lambda: apart((beta - 1) * k2, beta * k2, **BETA).without("generic").assuming("nonzero", "beta")),
        ("on-policy with a multiple of w", CLOSE, "drop sg\\(.\\) first",  # w = 0
            lambda: apart(on_policy(w) * k1, log_q * k1)),
        ("on-policy when all has vanished", CLOSE, "term: it does not stand in the coefficient",
            lambda: apart(on_policy(w) * k1, log_q * k1).step("stop-gradient")),
        ("exponentials of a parameter that may cancel", PART,  # beta = 1
            "hypotheses: .*'generic', 'beta'.*recorded \\[\\]",
            lambda: apart((beta.exp() - ONE.exp()) * k2, beta.exp() * k2, **BETA).without("generic")),
        ("closes an inequality", CLOSE, "an equation expected, not an inequality",
            lambda: Draft(Em("q", k2, 1), NOTHING, "<=").close("independence", term=k2)),
        ("premises narrow the models", CLOSE, "no premises",
            lambda: apart(k2, k2, premises=((QP, NOTHING),))),
        ("a mean without a score", CLOSE, "reduce the equation to", lambda: apart(Em("q", k2), k2)),
        ("the same term on both sides", CLOSE, NOT_ZERO,  # 0 = 0 is a combination
            lambda: apart(k2, k2, Em("q", k2, 1))),
        ("nothing against a foreign term", CLOSE, NOT_ZERO,
            lambda: apart(NOTHING, -k2, Em("q", k2, 1))),
        ("a gradient against a foreign term", CLOSE, NOT_ZERO,  # grad KL(q||p) is a combination
            lambda: apart(k1, k2, Em("q", k2, 1))),
        ("a right side of value zero", CLOSE, NOT_ZERO,
            lambda: apart(k2, k2, Em("q", ONE, 1)).right("score mean zero", slot="x")),
        ("a constant on the right", CLOSE, NOT_ZERO, lambda: apart(k2, k2, constant(nu), parameters=("nu",))),
        ("a right side that is left over", CLOSE, NOT_ZERO,
            lambda: apart(grad(QP), k1, REVERSE).step("log-derivative").step("chain rule", term=1)
            .step("score mean zero", part=ONE, slot="x")),
    ],
}  # fmt: skip


# ---------------------------------------------------------------------------- citations
def to_p() -> Draft:
    """E_q[k1] = E_p[k1/r], if q << p."""
    return Draft(QP, Em("p", k1 * k1.exp())).step("change of measure", to="p")


def total(value: ExpPoly, **context: Any) -> Draft:
    return Draft(Em("q", value), constant(value), **context).step("normalisation")


UNDER = {"premises": ((QP, PQ),)}


def citing(cited: Draft, believed: Side | None = None, number: int = 0, **data: Any) -> Draft:
    """KL(q||p) = E_p[k1/r] by a theorem that is cited."""
    draft = Draft(QP, Em("p", k1 * k1.exp()), cites=(cited,))
    return draft.equation(number, believed, cited=0, **data)


def _cites(draft: Draft, change: Any) -> dict[str, Any]:
    """The certificate of a draft with its list of what is cited changed; its digest is of its parts."""
    whole = draft.certificate()
    return whole | {"cites": change(whole["cites"])}


REFUTES = witness("5/4", "1")
OF_W = Draft(Em("q", g), Em("q", g), functions=(("g", ("w",)),))
GOAL = Em("p", k1 * k1.exp())
CITATIONS = {
    "citation": [
        ("of what is not carried", STEP1, "no theorem [0-9a-f]{12} is carried before this one",
            lambda: _cites(citing(to_p()), lambda bodies: [])),
        ("of something else that is carried", STEP1, "no theorem [0-9a-f]{12} is carried before this one",
            lambda: _cites(citing(to_p()), lambda bodies: [total(ONE).parts()])),
        ("of a theorem carried after what cites it", "cited 1, part 1, step 1", "is carried before this one",
            lambda: _cites(citing(citing(to_p())), lambda bodies: bodies[::-1])),
        ("of a false theorem", "cited 1, part 1, close", DIFFER, lambda: citing(Draft(QP, GOAL), GOAL)),
        ("of a false step", "cited 1, part 1, step 1", GOT,
            lambda: citing(Draft(QP, GOAL).step("normalisation", GOAL, part=ZERO), GOAL)),
        ("of a theorem with a hypothesis left out", "cited 1, part 1",
            "hypotheses: .*support.*recorded \\[\\]",
            lambda: citing(to_p().without("support"), GOAL)),
        ("of a part that is not there", STEP1, "part 1: there are 1", lambda: citing(to_p(), GOAL, 1)),
        ("of a part counted from the end", STEP1, "part -1: there are 1", lambda: citing(to_p(), GOAL, -1)),
        ("of a refutation", STEP1, "only equations that are proved",
            lambda: Draft(Em("p", r), constant(1), cites=(sold(Em("p", r), constant(1), REFUTES),))
            .equation(0, constant(1), cited=0)),
        ("of an inequality", STEP1, "only equations that are proved",
            lambda: Draft(NOTHING, Em("q", k3), cites=(_row_of_k3(),)).equation(0, Em("q", k3), cited=0)),
        ("of an inequality without rows", STEP1, "only equations that are proved",
            lambda: Draft(QP, PQ, cites=(Draft(QP, QP, "<="),)).equation(0, PQ, cited=0)),
        ("of the uniqueness of a function", STEP1, "only equations that are proved",
            lambda: Draft(Em("q", g1 - k1, 1), NOTHING, parameters=("a", "b", "beta"), functions=G,
                          cites=(solved(g1 - k1, QUADRATIC, "ba"),)).equation(0, NOTHING, cited=0)),
        ("of what is no combination", STEP1, "only equations that are proved",
            lambda: Draft(Em("q", k2, 1), NOTHING, cites=(apart(k2, k2),)).equation(0, NOTHING, cited=0)),
        ("with a parameter that is not declared", STEP1, "names or premises not declared",
            lambda: Draft(constant(1), constant(1), cites=(total(beta, **BETA),))
            .equation(0, constant(1), cited=0)),
        ("with a function of more arguments", STEP1, "names or premises not declared",
            lambda: Draft(Em("q", g), Em("q", g), cites=(OF_W,), functions=G)
           .equation(0, Em("q", g), cited=0)),
        ("with a function for a parameter", STEP1, "names or premises not declared",
            lambda: Draft(Em("q", g), Em("q", g), cites=(total(g, parameters=("g",)),), functions=G)
            .equation(0, Em("q", g), cited=0)),
        ("with a premise that is not made", STEP1, "names or premises not declared",
            lambda: Draft(QP, PQ, cites=(Draft(QP, PQ, **UNDER).equation(0),)).equation(0, PQ, cited=0)),
        ("with its premise the other way round", STEP1, "names or premises not declared",
            lambda: Draft(QP, PQ, cites=(Draft(QP, PQ, **UNDER).equation(0),), premises=((PQ, QP),))
            .equation(0, PQ, cited=0)),
        ("under a gradient", STEP1, "has no gradient",
            lambda: Draft(grad(QP), grad(GOAL), cites=(to_p(),))
            .equation(0, grad(GOAL), cited=0, gradient=1)),
        ("misquoted", STEP1, GOT, lambda: citing(to_p(), Em("p", k1))),
        ("backwards", CLOSE, DIFFER,
            lambda: Draft(GOAL, QP, cites=(to_p(),)).equation(0, cited=0)),
        ("once for twice", CLOSE, DIFFER,
            lambda: Draft(QP * 2, GOAL * 2, cites=(to_p(),)).equation(0, cited=0)),
        ("times a gradient", STEP1, "times: constants and means expected",
            lambda: citing(to_p(), GOAL, times=grad(QP))),
        ("by two numbers", STEP1, "of: a digest and the number of a part expected",
            lambda: Draft(QP, GOAL).equation([0, 1, 2], GOAL)),
        ("by a number for a digest", STEP1, "of: a digest and the number of a part expected",
            lambda: Draft(QP, GOAL).equation([0, 0], GOAL)),
        ("its hypotheses left out", PART, "hypotheses: .*support.*recorded",
            lambda: citing(to_p()).without("support")),
        ("the existence of a mean that it brings left out", PART, "hypotheses: .*exists.*recorded",
            lambda: citing(to_p()).without("exists")),
        ("the existence of its multiplier left out", PART, "hypotheses: .*exists.*recorded",
            lambda: Draft(QP.multiply(Em("q", k2)), GOAL.multiply(Em("q", k2)), cites=(to_p(),))
            .equation(0, cited=0, times=Em("q", k2)).without("exists", Mean("", "q", k2))),
    ],
}  # fmt: skip


def _row_of_k3() -> Draft:
    row = {"kind": "tangent", "scale": ONE, "factor": ONE, "at": ["", "q"], "v": ZERO, "of": -k1, "score": []}
    return Draft(NOTHING, Em("q", k3), "<=").rows(row)
