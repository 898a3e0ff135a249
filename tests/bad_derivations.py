"""False derivations, one plausible mistake each; running this file writes them to tests/bad.

Every row is a complete certificate with a correct digest, so that the replay itself has to find the
mistake.  A `Draft` computes the honest steps with the kernel's own rules and records what the
mistaken author believes for the others.  More than 500 lines, because one table holds them all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from klsym.kernel import FORMAT, apply_step, digest
from klsym.kernel.replay import hypotheses_to_json
from klsym.normal_form import ExpPoly
from klsym.statements import (
    Bregman,
    Context,
    Covariance,
    Divergence,
    E,
    ExpectedGradient,
    Gradient,
    Point,
    PointGradient,
    Side,
    detach_name,
)

FOLDER = Path(__file__).parent / "bad"

V, number = ExpPoly.variable, ExpPoly.number
SELF = V("k1[self]")
ONE, ZERO = number(1), number(0)
k1, w, log_q, R, A, g, g1, f = (V(n) for n in ("k1", "w", "log_q", "R", "A", "g", "g'", "f"))
a, b, beta, nu = (V(n) for n in ("a", "b", "beta", "nu"))
r, rho, k2 = (-k1).exp(), w.exp(), k1 * k1 * Fraction(1, 2)
k3 = r - 1 + k1


def sg(x: ExpPoly) -> ExpPoly:
    return x.rename(detach_name)


def Em(measure: str, of: ExpPoly, power: int = 0) -> Side:
    return Side.atom(E(measure, of, ("x",) * power))


def Eg(measure: str, loss: ExpPoly) -> Side:
    return Side.atom(ExpectedGradient(measure, loss))


def KL(first: str, second: str, kind: str = "KL") -> Side:
    return Side.atom(Divergence(kind, first, second))


def grad(side: Side) -> Side:
    return Side.atom(Gradient(side))


def point(of: ExpPoly, power: int = 0) -> Side:
    return Side.atom(Point(of, ("x",) * power))


NOTHING = Side()


class Draft:
    """A derivation being written down, right or wrong."""

    def __init__(self, left: Side, right: Side, relation: str = "=", **context: Any) -> None:
        self.context = Context(**context)
        self.sides = {"left": left, "right": right}
        self.hypotheses: set[Any] = set()
        self.part: dict[str, Any] = {
            "context": self.context.to_json(),
            "relation": relation,
            "left": left.to_json(),
            "right": right.to_json(),
            "steps": [],
            "close": {"by": "ring equality"},
        }

    def step(
        self, rule: str, believed: Side | None = None, term: int = 0, **data: Any
    ) -> Draft:
        """One step: computed by the kernel, or `believed` by the author."""
        data = {key: v.to_json() if isinstance(v, ExpPoly) else v for key, v in data.items()}
        step = {"rule": rule, "side": "left", "term": term, "factor": 0, "data": data}
        if believed is None:
            believed, added = apply_step(self.sides, step, self.context)
            self.hypotheses |= added
        self.sides["left"] = believed
        self.part["steps"].append({**step, "result": believed.to_json()})
        return self

    def close(self, by: str, **data: Any) -> Draft:
        data = {key: v.to_json() if isinstance(v, ExpPoly) else v for key, v in data.items()}
        self.part["close"] = {"by": by, **data}
        return self

    def without(self, kind: str) -> Draft:
        """The same derivation, silent about one kind of hypothesis."""
        assert kind in {h[0] for h in self.hypotheses}, f"{kind} is not used"
        self.hypotheses = {h for h in self.hypotheses if h[0] != kind}
        return self

    def certificate(self, claim: str) -> dict[str, Any]:
        part = {**self.part, "hypotheses": hypotheses_to_json(self.hypotheses)}
        whole = {"format": FORMAT, "claim": claim, "parts": [part]}
        return {**whole, "digest": digest(whole)}


class Bad(NamedTuple):
    """One false derivation: the rule or closing, the mistake, where and how it is refused."""

    rule: str
    mistake: str
    where: str
    message: str
    build: Callable[[], Draft]

    @property
    def file_name(self) -> str:
        return f"{re.sub(' ', '-', self.rule)}--{re.sub('[^a-z0-9]+', '-', self.mistake)}.json"

    def certificate(self) -> dict[str, Any]:
        return self.build().certificate(f"false: {self.rule}, {self.mistake}")


STEP1, STEP2, CLOSE, PART = "part 1, step 1", "part 1, step 2", "part 1, close", "part 1"
REVERSE = Em("q", k1, 1)  # grad KL(q||p), reduced
QUOTIENT = Em("q", k1 * beta.inverse())
QP, PQ = KL("q", "p"), KL("p", "q")
TWO = Side.constant(2)
GOT = "got .* recorded"
G = (("g", ("k1",)),)

DEFINITIONS = {
    "definition": [
        ("kl under the wrong measure", STEP1, "definition: got .*'E', 'q'.*recorded .*'E', 'p'",
            lambda: Draft(KL("q", "p"), Em("p", k1)).step("definition", Em("p", k1))),
        ("chi2 ratio the wrong way round", STEP1, GOT,
            lambda: Draft(KL("p", "q", "chi2"), Em("q", (k1.exp() - 1) ** 2))
            .step("definition", Em("q", (k1.exp() - 1) ** 2))),
        ("jeffreys with one direction only", STEP1, GOT,
            lambda: Draft(KL("q", "p", "J"), Em("q", k1)).step("definition", KL("q", "p"))
            .step("definition")),
        ("covariance without the product of means", STEP1, GOT,
            lambda: Draft(Side.atom(Covariance("q", k1, r)), Em("q", k1 * r))
            .step("definition", Em("q", k1 * r))),
        ("bregman without its tangent", STEP1, GOT,
            lambda: Draft(Side.atom(Bregman(k1)), point(k1)).step("definition", point(k1))),
        ("a name for what has none", STEP1, "nothing to unfold in E",
            lambda: Draft(Em("q", k3), Em("q", k1)).step("definition", Em("q", k1))),
        ("support hypothesis left out", PART,
            "hypotheses: .*support.*recorded \\[\\]",
            lambda: Draft(KL("q", "p"), Em("q", k1)).step("definition").without("support")),
    ],
}  # fmt: skip

DERIVATIVES = {
    "chain rule": [
        ("sg dropped before differentiating", STEP1, GOT,
            lambda: Draft(Eg("mu", sg(rho) * k2), Em("q", k1 + k2, 1))
            .step("chain rule", Em("mu", rho * (k1 + k2), 1)).step("change of measure", to="q")),
        ("weight treated as detached", STEP1, GOT,
            lambda: Draft(Eg("mu", rho * k2), REVERSE).step("chain rule", Em("mu", rho * k1, 1))
            .step("change of measure", to="q")),
        ("sign of the slope of k3", STEP1, GOT,
            lambda: Draft(Eg("q", k3), Em("q", r, 1)).step("chain rule", Em("q", 1 + r, 1))
            .step("score mean zero", part=ONE)),
        ("the measure held constant", STEP1, "a gradient of a loss expected, got Gradient",
            lambda: Draft(grad(Em("q", k2)), REVERSE).step("chain rule", REVERSE)),
        ("a reward differentiated", STEP1, GOT,
            lambda: Draft(Side.atom(PointGradient(R * log_q)), point(R + log_q, 1))
            .step("chain rule", point(R + log_q, 1))),
        ("the variable of another slot", PART, "slot",  # E_q[grad k1_self] = E_q[s]
            lambda: Draft(Eg("q", SELF * k1), Em("q", SELF + k1, 1)).step("chain rule")),
    ],
    "stop-gradient": [
        ("dropped inside the loss", STEP1, "only once differentiated, not inside a gradient",
            lambda: Draft(Eg("mu", sg(rho) * k2), Em("q", k1 + k2, 1))
            .step("stop-gradient", Eg("mu", rho * k2)).step("chain rule")
            .step("change of measure", to="q")),
        ("dropped inside the gradient of an expectation", STEP1, "not inside a gradient",
            lambda: Draft(grad(Em("q", sg(k2))), Em("q", k2 + k1, 1))
            .step("stop-gradient", grad(Em("q", k2))).step("log-derivative")
            .step("chain rule", term=1)),
        ("a detached factor replaced by one", STEP1, GOT,
            lambda: Draft(Em("mu", sg(rho) * k1, 1), Em("mu", k1, 1))
            .step("stop-gradient", Em("mu", k1, 1))),
        ("told what to detach", STEP1, "data: expected \\[\\], got \\['of'\\]",
            lambda: Draft(Em("q", sg(k1) * k1, 1), Em("q", k1, 1))
            .step("stop-gradient", Em("q", k1, 1), of="k1")),
    ],
    "log-derivative": [
        ("score term forgotten", STEP1, GOT,
            lambda: Draft(grad(Em("q", k2)), REVERSE).step("log-derivative", Eg("q", k2))
            .step("chain rule")),
        ("pathwise term forgotten", STEP1, GOT,
            lambda: Draft(grad(Em("q", k2)), Em("q", k2, 1))
            .step("log-derivative", Em("q", k2, 1))),
        ("the sampler mu differentiated", STEP1, GOT,
            lambda: Draft(grad(Em("mu", k2)), Em("mu", k2 + k1, 1))
            .step("log-derivative", Em("mu", k2, 1) + Eg("mu", k2)).step("chain rule", term=1)),
        ("of a product of expectations", STEP1, "gradient of one expectation expected",
            lambda: Draft(grad(Em("q", k1).times(Em("p", k1))), NOTHING)
            .step("log-derivative", NOTHING)),
        ("exchange hypothesis left out", PART, "hypotheses: .*exchange",
            lambda: Draft(grad(Em("p", k1)), Em("p", ONE, 1)).step("log-derivative")
            .step("chain rule")
            .without("exchange")),
    ],
    "linearity": [
        ("gradient of a product", STEP1, "the gradient of a product is not linear",
            lambda: Draft(grad(QP.times(PQ)), grad(QP).times(PQ))
            .step("linearity", grad(QP).times(PQ))),
        ("factor lost", STEP1, GOT,
            lambda: Draft(grad(KL("q", "p") * beta), grad(KL("q", "p")), parameters=("beta",))
            .step("linearity", grad(KL("q", "p")))),
        ("sign lost", STEP1, GOT,
            lambda: Draft(grad(QP - PQ), grad(QP) + grad(PQ))
            .step("linearity", grad(QP) + grad(PQ))),
        ("a constant with a gradient", STEP1, GOT,
            lambda: Draft(grad(QP + TWO), grad(QP) + TWO)
            .step("linearity", grad(QP) + TWO)),
        ("of what is no gradient", STEP1, "a gradient expected, got E",
            lambda: Draft(Em("q", k1 * k1), Em("q", k1) * 2).step("linearity", Em("q", k1) * 2)),
    ],
}  # fmt: skip

MEASURES = {
    "change of measure": [
        ("ratio the wrong way round", STEP1, GOT,
            lambda: Draft(Em("mu", k1, 1), Em("q", rho * k1, 1))
            .step("change of measure", Em("q", rho * k1, 1), to="q")),
        ("ratio forgotten", STEP1, GOT,
            lambda: Draft(Em("mu", k1, 1), REVERSE).step("change of measure", REVERSE, to="q")),
        ("to an unknown measure", STEP1, "to: one of .* expected, got 'pi'",
            lambda: Draft(Em("mu", rho * k1, 1), REVERSE)
            .step("change of measure", REVERSE, to="pi")),
        ("counting measure without the density", STEP1, "change of measure: got",
            lambda: Draft(Em("q", k1), Em("count", k1))
            .step("change of measure", Em("count", k1), to="count")),
        ("the rest moved too", STEP1, GOT,
            lambda: Draft(Em("mu", rho * k1 + 1), Em("q", k1 + 1))
            .step("change of measure", Em("q", k1 + 1), to="q", part=rho * k1)),
        ("support hypothesis left out", PART, "hypotheses: .*support.*recorded \\[\\]",
            lambda: Draft(Em("mu", rho * k1, 1), REVERSE).step("change of measure", to="q")
            .without("support")),
        ("moment hypothesis left out", PART, "hypotheses: .*moment",
            lambda: Draft(Em("q", k1 - r), Em("q", k1) - Em("p", ONE))
            .step("change of measure", to="p", part=-r).without("moment")),
    ],
    "score mean zero": [
        ("under mu", STEP2, "needs m = q, got m = mu",
            lambda: Draft(Eg("mu", log_q), NOTHING).step("chain rule")
            .step("score mean zero", NOTHING)),
        ("a baseline that depends on the sample", STEP1, "coefficient depends on the sample",
            lambda: Draft(Em("q", k1 - A, 1), REVERSE).step("score mean zero", REVERSE, part=-A)),
        ("an unfolded loss", STEP2, "the coefficient depends on the sample",
            lambda: Draft(Eg("q", k2), NOTHING).step("chain rule")
            .step("score mean zero", NOTHING)),
        ("without a score", STEP1, "one score function expected, got \\[\\]",
            lambda: Draft(Em("q", beta), NOTHING, parameters=("beta",))
            .step("score mean zero", NOTHING)),
        ("of a squared score", STEP1, "one score function expected, got \\['x', 'x'\\]",
            lambda: Draft(Em("q", ONE, 2), NOTHING).step("score mean zero", NOTHING)),
        ("at one sample", STEP1, "an expectation expected, got Point",
            lambda: Draft(point(ONE, 1), NOTHING).step("score mean zero", NOTHING)),
        ("exchange hypothesis left out", PART, "hypotheses: .*exchange",
            lambda: Draft(Em("q", ONE, 1), NOTHING).step("score mean zero").without("exchange")),
    ],
    "normalisation": [
        ("of the counting measure", STEP1, "counting measure has no total mass one",
            lambda: Draft(Em("count", ONE), Side.constant(1))
            .step("normalisation", Side.constant(1))),
        ("of a random variable", STEP1, "the coefficient depends on the sample",
            lambda: Draft(Em("q", R - 1), NOTHING).step("normalisation", NOTHING)),
        ("with a score", STEP1, "no score function expected",
            lambda: Draft(Em("q", beta, 1), Side.constant(beta), parameters=("beta",))
            .step("normalisation", Side.constant(beta))),
        ("constant replaced by one", STEP1, GOT,
            lambda: Draft(Em("q", beta), Side.constant(1), parameters=("beta",))
            .step("normalisation", Side.constant(1))),
    ],
    "ratio mean one": [
        ("ratio the wrong way round", STEP1, "not a constant multiple of p/q",
            lambda: Draft(Em("q", k1.exp()), Side.constant(1))
            .step("ratio mean one", Side.constant(1), of="p")),
        ("rho under q", STEP1, "not a constant multiple of mu/q",
            lambda: Draft(Em("q", rho), Side.constant(1))
            .step("ratio mean one", Side.constant(1), of="mu")),
        ("squared ratio", STEP1, "not a constant multiple of p/q",
            lambda: Draft(Em("q", r * r), Side.constant(1))
            .step("ratio mean one", Side.constant(1), of="p")),
        ("with a score", STEP1, "no score function expected",
            lambda: Draft(Em("q", r, 1), Side.constant(1))
            .step("ratio mean one", Side.constant(1), of="p")),
        ("of the counting measure", STEP1, "two probability measures expected",
            lambda: Draft(Em("count", (log_q - k1).exp()), Side.constant(1))
            .step("ratio mean one", Side.constant(1), of="p")),
        ("support hypothesis left out", PART, "hypotheses: .*support",
            lambda: Draft(Em("mu", rho), Side.constant(1)).step("ratio mean one", of="q")
            .without("support")),
    ],
}  # fmt: skip

OPTIMUM = {"given": (("R", nu + beta * k1),), "parameters": ("beta", "nu")}
ANY_F = (("f", ("k1", "log_q", "w")),)
AGREE = {"premises": ((QP, Em("q", f)),), "functions": ANY_F}

SETTINGS = {
    "on-policy": [
        ("used off-policy", STEP1, "the statement does not say that the sampler is q",
            lambda: Draft(Em("mu", k1, 1), REVERSE).step("on-policy", REVERSE)),
        ("weight set to one before differentiating", STEP1, "w is 0 only once differentiated",
            lambda: Draft(Eg("mu", rho * k2), REVERSE, on_policy=True)
            .step("on-policy", Eg("q", k2)).step("chain rule")),
        ("log ratio to the reference zeroed", STEP1, GOT,
            lambda: Draft(Em("mu", rho * k1, 1), NOTHING, on_policy=True)
            .step("on-policy", NOTHING)),
        ("reference taken for the policy", STEP1, GOT,
            lambda: Draft(Em("p", k1, 1), REVERSE, on_policy=True).step("on-policy", REVERSE)),
        ("hypothesis left out", PART, "hypotheses: .*on-policy.*recorded \\[\\]",
            lambda: Draft(Em("mu", rho * k1, 1), REVERSE, on_policy=True).step("on-policy")
            .without("on-policy")),
    ],
    "given": [
        ("nothing is given", STEP1, "the statement is given no values",
            lambda: Draft(Em("q", R - beta * k1, 1), NOTHING, parameters=("beta",))
            .step("given", NOTHING)),
        ("put in before differentiating", STEP1, "values are put in only once differentiated",
            lambda: Draft(Eg("q", R * log_q), Em("q", k1 + log_q, 1), given=(("R", k1),))
            .step("given", Eg("q", k1 * log_q)).step("chain rule")),
        ("sign of the value", STEP1, GOT,
            lambda: Draft(Em("q", R, 1), Em("q", nu - beta * k1, 1), **OPTIMUM)
            .step("given", Em("q", nu - beta * k1, 1))),
        ("a value for what depends on theta", PART, "given: only .* can be given a value, not 'k1'",
            lambda: Draft(REVERSE, NOTHING, given=(("k1", ZERO),)).step("given")),
        ("hypothesis left out", PART, "hypotheses: .*given.*recorded \\[\\]",
            lambda: Draft(Em("q", R, 1), Em("q", nu + beta * k1, 1), **OPTIMUM)
            .step("given").without("given")),
    ],
    "premise": [
        ("misquoted", STEP1, "premise 0 speaks of something else",
            lambda: Draft(grad(Em("q", k2)), grad(Em("q", f)), **AGREE)
            .step("premise", grad(Em("q", f)), number=0)),
        ("read from right to left", STEP1, "premise 0 speaks of something else",
            lambda: Draft(grad(Em("q", f)), grad(KL("q", "p")), **AGREE)
            .step("premise", grad(KL("q", "p")), number=0)),
        ("one that is not there", STEP1, "no such premise",
            lambda: Draft(grad(KL("p", "q")), grad(Em("q", f)), **AGREE)
            .step("premise", grad(Em("q", f)), number=1)),
        ("gradient of the premise without its score term", STEP1, GOT,
            lambda: Draft(grad(KL("q", "p")), Eg("q", f), **AGREE)
            .step("premise", Eg("q", f), number=0)),
        ("hypothesis left out", PART, "hypotheses: .*premise.*recorded \\[\\]",
            lambda: Draft(KL("q", "p"), Em("q", f), **AGREE)
            .step("premise", number=0).without("premise")),
        ("equal values with different detached parts", PART, "holds a detached quantity",
            lambda: Draft(grad(Em("q", sg(k2))), Em("q", k2 + k1, 1),
                          premises=((Em("q", sg(k2)), Em("q", k2)),))
            .step("premise", number=0).step("log-derivative").step("chain rule", term=1)),
        ("equal values on-policy with the sampler differentiated", PART, "does not tell a gradient",
            lambda: Draft(grad(Em("mu", k2)), Em("q", k2 + k1, 1), on_policy=True,
                          premises=((Em("mu", k2), Em("q", k2)),))
            .step("premise", number=0).step("log-derivative").step("chain rule", term=1)),
    ],
}  # fmt: skip

SKEW = [{"scale": "1", "measure": "q", "v": [], "u": (-k1).to_json()}]  # E_q[k3]


def gap(**change: Any) -> list[dict[str, Any]]:
    return [{**SKEW[0], **change}]


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
    "tangent": [
        ("a negative factor", CLOSE, "tangent: the factor -1 is not positive",
            lambda: Draft(Em("q", k3), NOTHING, "<=").close("tangent", terms=gap(scale="-1"))),
        ("closes an equality", CLOSE, "tangent closes an inequality",
            lambda: Draft(NOTHING, Em("q", k3)).close("tangent", terms=SKEW)),
        ("sign of the exponent", CLOSE, "the two sides differ",
            lambda: Draft(Em("q", k1), Em("q", r - 1), "<=").close("tangent", terms=SKEW)),
        ("kl bounds chi2 from above", CLOSE, "the two sides differ",
            lambda: Draft(Em("q", (r - 1) ** 2), Em("q", -r * k1), "<=")
            .close("tangent", terms=gap(v=(-k1).to_json(), u=(-k1).to_json()))),
        ("weighted by another measure", CLOSE, "the two sides differ",
            lambda: Draft(NOTHING, Em("q", k3), "<=").close("tangent", terms=gap(measure="mu"))),
    ],
    "square": [
        ("the wrong way round", CLOSE, "the two sides differ",
            lambda: Draft(Em("q", k1 * k1), Em("q", k1).times(Em("q", k1)), "<=")
            .close("square", b=k1, measure="q", score=[])),
        ("under the counting measure", CLOSE, "a probability measure expected",
            lambda: Draft(Em("count", k1).times(Em("count", k1)), Em("count", k1 * k1), "<=")
            .close("square", b=k1, measure="count", score=[])),
        ("score not squared", CLOSE, "the two sides differ",
            lambda: Draft(REVERSE.times(REVERSE), Em("q", k1 * k1, 1), "<=")
            .close("square", b=k1, measure="q", score=["x"])),
        ("closes an equality", CLOSE, "square closes an inequality",
            lambda: Draft(REVERSE.times(REVERSE), Em("q", k1 * k1, 2))
            .close("square", b=k1, measure="q", score=["x"])),
        ("means under two measures", CLOSE, "the two sides differ",
            lambda: Draft(Em("q", k1).times(Em("p", k1)), Em("q", k1 * k1), "<=")
            .close("square", b=k1, measure="q", score=[])),
    ],
}  # fmt: skip

MODEL = {
    "q": ["1/2", "1/2"], "p": ["1/4", "3/4"], "mu": ["1/3", "2/3"], "u": ["1", "0"],
    "parameters": {}, "rewards": {"R": ["0", "3"]}, "outcome": 0,
}  # fmt: skip


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
        ("unit that vanishes with the unknown", CLOSE, "free of the unknown",  # g = 5
            lambda: solved(g1 * g1 * Fraction(1, 2) - g, QUADRATIC, "ba", unit=g1.inverse())),
        ("on-policy along w", CLOSE, "put that in first",  # on-policy w = 0: any g
            lambda: solved(g1 * w, b, "b", coordinate="w", on_policy=True)),
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
    ],
}  # fmt: skip

STATEMENTS = {
    "statement": [
        ("division by a random variable", PART, "division by the random variable k1",
            lambda: Draft(Em("q", k1.inverse()), NOTHING)),
        ("division by a random variable in an exponent", PART, "division by the random variable R",
            lambda: Draft(Em("q", R.inverse().exp()), NOTHING)),
        ("a random coefficient outside its expectation", PART, "outside its expectation",
            lambda: Draft(KL("q", "p") * k1, NOTHING)),
        ("a parameter that is not declared", PART, "unknown name 'beta'",
            lambda: Draft(Em("q", beta), Side.constant(beta))
            .step("normalisation", Side.constant(beta))),
        ("log q as a parameter", PART, "'log_q' cannot be declared",
            lambda: Draft(Em("q", log_q, 1), NOTHING, parameters=("log_q",))
            .step("score mean zero")),
        ("a function that is also a parameter", PART, "a name is declared twice",
            lambda: Draft(Em("q", f, 1), NOTHING, parameters=("f",), functions=ANY_F)
            .step("score mean zero")),
        ("an undeclared name in a part", STEP1, "unknown name 'beta'",
            lambda: Draft(REVERSE, NOTHING).step("score mean zero", NOTHING, part=beta)),
        ("nonzero hypothesis left out", PART,
            "hypotheses: .*nonzero.*recorded \\[\\]",
            lambda: Draft(QUOTIENT, QUOTIENT, parameters=("beta",))),
    ],
}  # fmt: skip

# Certificates of false statements that the kernel accepts today: moved into a table above, with
# the message of the refusal, once it refuses them.
ANY = "."
AT_1 = {"beta": "1"}
HOLES: dict[str, list[Any]] = {
    "linearity": [
        ("a random coefficient inside a gradient", PART, ANY,  # grad k1 = 0
            lambda: Draft(grad(Side.constant(k1)), NOTHING).step("linearity")),
    ],
    "premise": [
        ("on-policy for a function of the weight", PART, ANY,  # f = k1 + w k1 has f' = 1 + k1 + w
            lambda: Draft(grad(Em("q", f)), grad(QP), on_policy=True,
                          premises=((Em("q", f), QP),), functions=ANY_F)
            .step("premise", number=0)),
    ],
    "given": [
        ("a parameter of the value that must not be zero", PART, ANY,
            lambda: Draft(Em("q", R * beta), Em("q", k1), parameters=("beta",),
                          given=(("R", k1 * beta.inverse()),)).step("given")),
    ],
    "finite model": [
        ("given value of a detached reward", CLOSE, ANY,
            lambda: sold(Em("q", sg(R)), Side.constant(beta), witness("3/2", "1", parameters=AT_1),
                         given=(("R", beta),), parameters=("beta",))),
        ("given value in terms of itself", CLOSE, ANY,  # R = R + 2 A says that A is 0
            lambda: sold(Em("q", A), NOTHING, witness("1/2", "0", rewards={"A": ["0", "1"]}),
                         given=(("R", R + 2 * A),))),
    ],
    "completeness": [
        ("unit that vanishes with the reward", CLOSE, ANY,  # R = 0: any g
            lambda: solved(w * R * (g1 - k1), k2 + b, "b", coordinate="w", unit=R.inverse())),
        ("closes an inequality", CLOSE, ANY,
            lambda: solved(g1 - k1, QUADRATIC, "ba", relation="<=")),
    ],
    "independence": [
        ("a difference of theta-free log densities", CLOSE, ANY,  # log p - log mu, a reward
            lambda: apart(w - k1, w)),
        ("a ratio of theta-free densities", CLOSE, ANY,  # p/mu, a reward
            lambda: apart((w - k1).exp(), (w - k1).exp())),
        ("a reward with a given value", CLOSE, ANY,  # a policy gradient, whatever R is
            lambda: Draft(Em("q", R, 1), NOTHING, given=(("R", k2),)).step("given")
            .close("independence", term=k2)),
        ("exponentials of a parameter that may cancel", PART, ANY,  # beta = 1
            lambda: apart((beta.exp() - ONE.exp()) * k2, beta.exp() * k2, parameters=("beta",))),
        ("the entropy gradient", CLOSE, ANY,  # log q = k1 + log p, and log p is a reward
            lambda: apart(log_q, log_q)),
        ("closes an inequality", CLOSE, ANY,
            lambda: Draft(Em("q", k2, 1), NOTHING, "<=").close("independence", term=k2)),
    ],
}  # fmt: skip


def rows(*tables: dict[str, list[Any]]) -> list[Bad]:
    return [Bad(rule, *row) for table in tables for rule, cases in table.items() for row in cases]


TABLE = rows(
    DEFINITIONS, DERIVATIVES, MEASURES, SETTINGS,
    EQUALITIES, REFUTATIONS, COMPLETENESS, STATEMENTS,
)  # fmt: skip
OPEN = rows(HOLES)


def text(row: Bad) -> str:
    """What the file of a row holds."""
    return json.dumps(row.certificate(), sort_keys=True) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.json"):
        old.unlink()
    for row in TABLE:
        (FOLDER / row.file_name).write_text(text(row))
