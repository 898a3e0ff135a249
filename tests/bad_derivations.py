"""False derivations, one plausible mistake each; `python tests/bad_derivations.py` writes tests/bad/.

Every row is a complete certificate with a correct digest, so that the replay itself has to find the
mistake.  A `Draft` computes the honest steps with the kernel's own rules and records what the
mistaken author believes for the others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
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
        self, rule: str, believed: Side | None = None, term: int = 0, factor: int = 0, side: str = "left",
        **data: Any,
    ) -> Draft:  # fmt: skip
        """One step: computed by the kernel, or `believed` by the author."""
        data = {key: v.to_json() if isinstance(v, ExpPoly) else v for key, v in data.items()}
        step = {"rule": rule, "side": side, "term": term, "factor": factor, "data": data}
        if believed is None:
            believed, added = apply_step(self.sides, step, self.context)
            self.hypotheses |= added
        self.sides[side] = believed
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
G = (("g", ("k1",)),)

DEFINITIONS = [
    Bad("definition", "kl under the wrong measure", STEP1, "definition: got .*'E', 'q'.*recorded .*'E', 'p'",
        lambda: Draft(KL("q", "p"), Em("p", k1)).step("definition", Em("p", k1))),
    Bad("definition", "chi2 ratio the wrong way round", STEP1, "definition: got .* recorded",
        lambda: Draft(KL("p", "q", "chi2"), Em("q", (k1.exp() - 1) ** 2))
        .step("definition", Em("q", (k1.exp() - 1) ** 2))),
    Bad("definition", "jeffreys with one direction only", STEP1, "definition: got .* recorded",
        lambda: Draft(KL("q", "p", "J"), Em("q", k1)).step("definition", KL("q", "p")).step("definition")),
    Bad("definition", "covariance without the product of means", STEP1, "definition: got .* recorded",
        lambda: Draft(Side.atom(Covariance("q", k1, r)), Em("q", k1 * r))
        .step("definition", Em("q", k1 * r))),
    Bad("definition", "bregman without its tangent", STEP1, "definition: got .* recorded",
        lambda: Draft(Side.atom(Bregman(k1)), point(k1)).step("definition", point(k1))),
    Bad("definition", "a name for what has none", STEP1, "nothing to unfold in E",
        lambda: Draft(Em("q", k3), Em("q", k1)).step("definition", Em("q", k1))),
    Bad("definition", "support hypothesis left out", PART, "hypotheses: the steps use .*support.*recorded \\[\\]",
        lambda: Draft(KL("q", "p"), Em("q", k1)).step("definition").without("support")),
]  # fmt: skip

DERIVATIVES = [
    Bad("chain rule", "sg dropped before differentiating", STEP1, "chain rule: got .* recorded",
        lambda: Draft(Eg("mu", sg(rho) * k2), Em("q", k1 + k2, 1))
        .step("chain rule", Em("mu", rho * (k1 + k2), 1)).step("change of measure", to="q")),
    Bad("chain rule", "weight treated as detached", STEP1, "chain rule: got .* recorded",
        lambda: Draft(Eg("mu", rho * k2), REVERSE).step("chain rule", Em("mu", rho * k1, 1))
        .step("change of measure", to="q")),
    Bad("chain rule", "sign of the slope of k3", STEP1, "chain rule: got .* recorded",
        lambda: Draft(Eg("q", k3), Em("q", r, 1)).step("chain rule", Em("q", 1 + r, 1))
        .step("score mean zero", part=ONE)),
    Bad("chain rule", "the measure held constant", STEP1, "a gradient of a loss expected, got Gradient",
        lambda: Draft(grad(Em("q", k2)), REVERSE).step("chain rule", REVERSE)),
    Bad("chain rule", "a reward differentiated", STEP1, "chain rule: got .* recorded",
        lambda: Draft(Side.atom(PointGradient(R * log_q)), point(R + log_q, 1))
        .step("chain rule", point(R + log_q, 1))),
    Bad("stop-gradient", "dropped inside the loss", STEP1, "only once differentiated, not inside a gradient",
        lambda: Draft(Eg("mu", sg(rho) * k2), Em("q", k1 + k2, 1))
        .step("stop-gradient", Eg("mu", rho * k2)).step("chain rule").step("change of measure", to="q")),
    Bad("stop-gradient", "dropped inside the gradient of an expectation", STEP1, "not inside a gradient",
        lambda: Draft(grad(Em("q", sg(k2))), Em("q", k2 + k1, 1))
        .step("stop-gradient", grad(Em("q", k2))).step("log-derivative").step("chain rule", term=1)),
    Bad("stop-gradient", "a detached factor replaced by one", STEP1, "stop-gradient: got .* recorded",
        lambda: Draft(Em("mu", sg(rho) * k1, 1), Em("mu", k1, 1))
        .step("stop-gradient", Em("mu", k1, 1))),
    Bad("stop-gradient", "told what to detach", STEP1, "data: expected \\[\\], got \\['of'\\]",
        lambda: Draft(Em("q", sg(k1) * k1, 1), Em("q", k1, 1))
        .step("stop-gradient", Em("q", k1, 1), of="k1")),
    Bad("log-derivative", "score term forgotten", STEP1, "log-derivative: got .* recorded",
        lambda: Draft(grad(Em("q", k2)), REVERSE).step("log-derivative", Eg("q", k2)).step("chain rule")),
    Bad("log-derivative", "pathwise term forgotten", STEP1, "log-derivative: got .* recorded",
        lambda: Draft(grad(Em("q", k2)), Em("q", k2, 1)).step("log-derivative", Em("q", k2, 1))),
    Bad("log-derivative", "the sampler mu differentiated", STEP1, "log-derivative: got .* recorded",
        lambda: Draft(grad(Em("mu", k2)), Em("mu", k2 + k1, 1))
        .step("log-derivative", Em("mu", k2, 1) + Eg("mu", k2)).step("chain rule", term=1)),
    Bad("log-derivative", "of a product of expectations", STEP1, "gradient of one expectation expected",
        lambda: Draft(grad(Em("q", k1).times(Em("p", k1))), NOTHING).step("log-derivative", NOTHING)),
    Bad("log-derivative", "exchange hypothesis left out", PART, "hypotheses: the steps use .*exchange",
        lambda: Draft(grad(Em("p", k1)), Em("p", ONE, 1)).step("log-derivative").step("chain rule")
        .without("exchange")),
    Bad("linearity", "gradient of a product", STEP1, "the gradient of a product is not linear",
        lambda: Draft(grad(KL("q", "p").times(KL("p", "q"))), grad(KL("q", "p")).times(KL("p", "q")))
        .step("linearity", grad(KL("q", "p")).times(KL("p", "q")))),
    Bad("linearity", "factor lost", STEP1, "linearity: got .* recorded",
        lambda: Draft(grad(KL("q", "p") * beta), grad(KL("q", "p")), parameters=("beta",))
        .step("linearity", grad(KL("q", "p")))),
    Bad("linearity", "sign lost", STEP1, "linearity: got .* recorded",
        lambda: Draft(grad(KL("q", "p") - KL("p", "q")), grad(KL("q", "p")) + grad(KL("p", "q")))
        .step("linearity", grad(KL("q", "p")) + grad(KL("p", "q")))),
    Bad("linearity", "a constant with a gradient", STEP1, "linearity: got .* recorded",
        lambda: Draft(grad(KL("q", "p") + Side.constant(2)), grad(KL("q", "p")) + Side.constant(2))
        .step("linearity", grad(KL("q", "p")) + Side.constant(2))),
    Bad("linearity", "of what is no gradient", STEP1, "a gradient expected, got E",
        lambda: Draft(Em("q", k1 * k1), Em("q", k1) * 2).step("linearity", Em("q", k1) * 2)),
]  # fmt: skip

MEASURES = [
    Bad("change of measure", "ratio the wrong way round", STEP1, "change of measure: got .* recorded",
        lambda: Draft(Em("mu", k1, 1), Em("q", rho * k1, 1))
        .step("change of measure", Em("q", rho * k1, 1), to="q")),
    Bad("change of measure", "ratio forgotten", STEP1, "change of measure: got .* recorded",
        lambda: Draft(Em("mu", k1, 1), REVERSE).step("change of measure", REVERSE, to="q")),
    Bad("change of measure", "to an unknown measure", STEP1, "to: one of .* expected, got 'pi'",
        lambda: Draft(Em("mu", rho * k1, 1), REVERSE).step("change of measure", REVERSE, to="pi")),
    Bad("change of measure", "counting measure without the density", STEP1, "change of measure: got",
        lambda: Draft(Em("q", k1), Em("count", k1)).step("change of measure", Em("count", k1), to="count")),
    Bad("change of measure", "the rest moved too", STEP1, "change of measure: got .* recorded",
        lambda: Draft(Em("mu", rho * k1 + 1), Em("q", k1 + 1))
        .step("change of measure", Em("q", k1 + 1), to="q", part=rho * k1)),
    Bad("change of measure", "support hypothesis left out", PART, "the steps use .*support.*recorded \\[\\]",
        lambda: Draft(Em("mu", rho * k1, 1), REVERSE).step("change of measure", to="q").without("support")),
    Bad("change of measure", "moment hypothesis left out", PART, "hypotheses: the steps use .*moment",
        lambda: Draft(Em("q", k1 - r), Em("q", k1) - Em("p", ONE))
        .step("change of measure", to="p", part=r).without("moment")),
    Bad("score mean zero", "under mu", STEP2, "needs m = q, got m = mu",
        lambda: Draft(Eg("mu", log_q), NOTHING).step("chain rule").step("score mean zero", NOTHING)),
    Bad("score mean zero", "a baseline that depends on the sample", STEP1, "coefficient depends on the sample",
        lambda: Draft(Em("q", k1 - A, 1), REVERSE).step("score mean zero", REVERSE, part=-A)),
    Bad("score mean zero", "an unfolded loss", STEP2, "the coefficient depends on the sample",
        lambda: Draft(Eg("q", k2), NOTHING).step("chain rule").step("score mean zero", NOTHING)),
    Bad("score mean zero", "without a score", STEP1, "one score function expected, got \\[\\]",
        lambda: Draft(Em("q", beta), NOTHING, parameters=("beta",)).step("score mean zero", NOTHING)),
    Bad("score mean zero", "of a squared score", STEP1, "one score function expected, got \\['x', 'x'\\]",
        lambda: Draft(Em("q", ONE, 2), NOTHING).step("score mean zero", NOTHING)),
    Bad("score mean zero", "at one sample", STEP1, "an expectation expected, got Point",
        lambda: Draft(point(ONE, 1), NOTHING).step("score mean zero", NOTHING)),
    Bad("score mean zero", "exchange hypothesis left out", PART, "hypotheses: the steps use .*exchange",
        lambda: Draft(Em("q", ONE, 1), NOTHING).step("score mean zero").without("exchange")),
    Bad("normalisation", "of the counting measure", STEP1, "counting measure has no total mass one",
        lambda: Draft(Em("count", ONE), Side.constant(1)).step("normalisation", Side.constant(1))),
    Bad("normalisation", "of a random variable", STEP1, "the coefficient depends on the sample",
        lambda: Draft(Em("q", R - 1), NOTHING).step("normalisation", NOTHING)),
    Bad("normalisation", "with a score", STEP1, "no score function expected",
        lambda: Draft(Em("q", beta, 1), Side.constant(beta), parameters=("beta",))
        .step("normalisation", Side.constant(beta))),
    Bad("normalisation", "constant replaced by one", STEP1, "normalisation: got .* recorded",
        lambda: Draft(Em("q", beta), Side.constant(1), parameters=("beta",))
        .step("normalisation", Side.constant(1))),
    Bad("ratio mean one", "ratio the wrong way round", STEP1, "not a constant multiple of p/q",
        lambda: Draft(Em("q", k1.exp()), Side.constant(1)).step("ratio mean one", Side.constant(1), of="p")),
    Bad("ratio mean one", "rho under q", STEP1, "not a constant multiple of mu/q",
        lambda: Draft(Em("q", rho), Side.constant(1)).step("ratio mean one", Side.constant(1), of="mu")),
    Bad("ratio mean one", "squared ratio", STEP1, "not a constant multiple of p/q",
        lambda: Draft(Em("q", r * r), Side.constant(1)).step("ratio mean one", Side.constant(1), of="p")),
    Bad("ratio mean one", "with a score", STEP1, "no score function expected",
        lambda: Draft(Em("q", r, 1), Side.constant(1)).step("ratio mean one", Side.constant(1), of="p")),
    Bad("ratio mean one", "of the counting measure", STEP1, "two probability measures expected",
        lambda: Draft(Em("count", (log_q - k1).exp()), Side.constant(1))
        .step("ratio mean one", Side.constant(1), of="p")),
    Bad("ratio mean one", "support hypothesis left out", PART, "hypotheses: the steps use .*support",
        lambda: Draft(Em("mu", rho), Side.constant(1)).step("ratio mean one", of="q").without("support")),
]  # fmt: skip

OPTIMUM = (("R", nu + beta * k1),)
BETA_NU = ("beta", "nu")
AGREE = ((KL("q", "p"), Em("q", f)),)
ANY_F = (("f", ("k1", "log_q", "w")),)

SETTINGS = [
    Bad("on-policy", "used off-policy", STEP1, "the statement does not say that the sampler is q",
        lambda: Draft(Em("mu", k1, 1), REVERSE).step("on-policy", REVERSE)),
    Bad("on-policy", "weight set to one before differentiating", STEP1, "w is 0 only once differentiated",
        lambda: Draft(Eg("mu", rho * k2), REVERSE, on_policy=True)
        .step("on-policy", Eg("q", k2)).step("chain rule")),
    Bad("on-policy", "log ratio to the reference zeroed", STEP1, "on-policy: got .* recorded",
        lambda: Draft(Em("mu", rho * k1, 1), NOTHING, on_policy=True).step("on-policy", NOTHING)),
    Bad("on-policy", "reference taken for the policy", STEP1, "on-policy: got .* recorded",
        lambda: Draft(Em("p", k1, 1), REVERSE, on_policy=True).step("on-policy", REVERSE)),
    Bad("on-policy", "hypothesis left out", PART, "hypotheses: the steps use .*on-policy.*recorded \\[\\]",
        lambda: Draft(Em("mu", rho * k1, 1), REVERSE, on_policy=True).step("on-policy").without("on-policy")),
    Bad("given", "nothing is given", STEP1, "the statement is given no values",
        lambda: Draft(Em("q", R - beta * k1, 1), NOTHING, parameters=("beta",)).step("given", NOTHING)),
    Bad("given", "put in before differentiating", STEP1, "values are put in only once differentiated",
        lambda: Draft(Eg("q", R * log_q), Em("q", k1 + log_q, 1), given=(("R", k1),))
        .step("given", Eg("q", k1 * log_q)).step("chain rule")),
    Bad("given", "sign of the value", STEP1, "given: got .* recorded",
        lambda: Draft(Em("q", R, 1), Em("q", nu - beta * k1, 1), given=OPTIMUM, parameters=BETA_NU)
        .step("given", Em("q", nu - beta * k1, 1))),
    Bad("given", "a value for what depends on theta", PART, "given: only .* can be given a value, not 'k1'",
        lambda: Draft(REVERSE, NOTHING, given=(("k1", ZERO),)).step("given")),
    Bad("given", "hypothesis left out", PART, "hypotheses: the steps use .*given.*recorded \\[\\]",
        lambda: Draft(Em("q", R, 1), Em("q", nu + beta * k1, 1), given=OPTIMUM, parameters=BETA_NU)
        .step("given").without("given")),
    Bad("premise", "misquoted", STEP1, "premise 0 speaks of something else",
        lambda: Draft(grad(Em("q", k2)), grad(Em("q", f)), premises=AGREE, functions=ANY_F)
        .step("premise", grad(Em("q", f)), number=0)),
    Bad("premise", "read from right to left", STEP1, "premise 0 speaks of something else",
        lambda: Draft(grad(Em("q", f)), grad(KL("q", "p")), premises=AGREE, functions=ANY_F)
        .step("premise", grad(KL("q", "p")), number=0)),
    Bad("premise", "one that is not there", STEP1, "no such premise",
        lambda: Draft(grad(KL("p", "q")), grad(Em("q", f)), premises=AGREE, functions=ANY_F)
        .step("premise", grad(Em("q", f)), number=1)),
    Bad("premise", "gradient of the premise without its score term", STEP1, "premise: got .* recorded",
        lambda: Draft(grad(KL("q", "p")), Eg("q", f), premises=AGREE, functions=ANY_F)
        .step("premise", Eg("q", f), number=0)),
    Bad("premise", "hypothesis left out", PART, "hypotheses: the steps use .*premise.*recorded \\[\\]",
        lambda: Draft(KL("q", "p"), Em("q", f), premises=AGREE, functions=ANY_F)
        .step("premise", number=0).without("premise")),
]  # fmt: skip

SKEW = [{"scale": "1", "measure": "q", "v": [], "u": (-k1).to_json()}]  # E_q[k3]


def gap(**change: Any) -> list[dict[str, Any]]:
    return [{**SKEW[0], **change}]


EQUALITIES = [
    Bad("ring equality", "forward for reverse", CLOSE, "ring equality: the two sides differ: left - right = ",
        lambda: Draft(Eg("q", k3), REVERSE).step("chain rule").step("score mean zero", part=ONE)),
    Bad("ring equality", "k3 is k1 in the mean but not at a sample", CLOSE, "the two sides differ",
        lambda: Draft(point(k3), point(k1))),
    Bad("ring equality", "half a square", CLOSE, "the two sides differ",
        lambda: Draft(Side.atom(PointGradient(k2)), point(k1 * 2, 1)).step("chain rule")),
    Bad("ring equality", "a constant times the score at a sample", CLOSE, "the two sides differ",
        lambda: Draft(Side.atom(PointGradient(rho * k1)), point(rho * k1, 1)).step("chain rule")),
    Bad("ring equality", "mean of a product is no product of means", CLOSE, "the two sides differ",
        lambda: Draft(Em("q", k1 * r), Em("q", k1).times(Em("q", r)))),
    Bad("tangent", "a negative factor", CLOSE, "tangent: the factor -1 is not positive",
        lambda: Draft(Em("q", k3), NOTHING, "<=").close("tangent", terms=gap(scale="-1"))),
    Bad("tangent", "closes an equality", CLOSE, "tangent closes an inequality",
        lambda: Draft(NOTHING, Em("q", k3)).close("tangent", terms=SKEW)),
    Bad("tangent", "sign of the exponent", CLOSE, "the two sides differ",
        lambda: Draft(Em("q", k1), Em("q", r - 1), "<=").close("tangent", terms=SKEW)),
    Bad("tangent", "kl bounds chi2 from above", CLOSE, "the two sides differ",
        lambda: Draft(Em("q", (r - 1) ** 2), Em("q", -r * k1), "<=")
        .close("tangent", terms=gap(v=(-k1).to_json(), u=(-k1).to_json()))),
    Bad("tangent", "weighted by another measure", CLOSE, "the two sides differ",
        lambda: Draft(NOTHING, Em("q", k3), "<=").close("tangent", terms=gap(measure="mu"))),
    Bad("square", "the wrong way round", CLOSE, "the two sides differ",
        lambda: Draft(Em("q", k1 * k1), Em("q", k1).times(Em("q", k1)), "<=")
        .close("square", b=k1, measure="q", score=[])),
    Bad("square", "under the counting measure", CLOSE, "a probability measure expected",
        lambda: Draft(Em("count", k1).times(Em("count", k1)), Em("count", k1 * k1), "<=")
        .close("square", b=k1, measure="count", score=[])),
    Bad("square", "score not squared", CLOSE, "the two sides differ",
        lambda: Draft(REVERSE.times(REVERSE), Em("q", k1 * k1, 1), "<=")
        .close("square", b=k1, measure="q", score=["x"])),
    Bad("square", "closes an equality", CLOSE, "square closes an inequality",
        lambda: Draft(REVERSE.times(REVERSE), Em("q", k1 * k1, 2)).close("square", b=k1, measure="q", score=["x"])),
    Bad("square", "means under two measures", CLOSE, "the two sides differ",
        lambda: Draft(Em("q", k1).times(Em("p", k1)), Em("q", k1 * k1), "<=")
        .close("square", b=k1, measure="q", score=[])),
]  # fmt: skip

MODEL = {
    "q": ["1/2", "1/2"], "p": ["1/4", "3/4"], "mu": ["1/3", "2/3"], "u": ["1", "0"],
    "parameters": {}, "rewards": {"R": ["0", "3"]}, "outcome": 0,
}  # fmt: skip


def witness(left: str, right: str, **change: Any) -> dict[str, Any]:
    """Close data whose two enclosures are single points."""
    return {"model": {**MODEL, **change}, "left": [left] * 2, "right": [right] * 2}


def sold(left: Side, right: Side, data: dict[str, Any], relation: str = "=", **context: Any) -> Draft:
    return Draft(left, right, relation, **context).close("finite model", **data)


REFUTATIONS = [  # E_q[r] = 1, E_p[r] = 5/4, E_mu[R] = 2, E_q[R] = 3/2
    Bad("finite model", "tampered enclosure", CLOSE, "left side: enclosed in \\[1, 1\\], recorded \\[2, 2\\]",
        lambda: sold(Em("q", r), Side.constant(1), witness("2", "1"))),
    Bad("finite model", "does not separate", CLOSE, "the enclosures do not contradict the relation",
        lambda: sold(Em("p", r), Side.constant(1), witness("1", "1", p=["1/2", "1/2"]))),
    Bad("finite model", "separates in the allowed direction", CLOSE, "do not contradict the relation",
        lambda: sold(Side.constant(1), Em("p", r), witness("1", "5/4"), "<=")),
    Bad("finite model", "on-policy with another sampler", CLOSE, "on-policy, mu must equal q",
        lambda: sold(Em("mu", R), Em("q", R), witness("2", "3/2"), on_policy=True)),
    Bad("finite model", "probabilities that do not add up", CLOSE, "p is no full-support distribution",
        lambda: sold(Em("q", r), Side.constant(1), witness("2", "1", p=["1", "1"]))),
    Bad("finite model", "an outcome without probability", CLOSE, "p is no full-support distribution",
        lambda: sold(Em("p", ONE), Em("q", r), witness("1", "1/2", p=["0", "1"]))),
    Bad("finite model", "against the premises", CLOSE, "a model need not satisfy the premises",
        lambda: sold(Em("p", r), Side.constant(1), witness("5/4", "1"),
                     premises=((Em("p", r), Em("q", r)),))),
    Bad("finite model", "given value not put in", CLOSE, "put the given values in first",
        lambda: sold(Em("mu", R), Em("q", R), witness("2", "3/2"), given=(("R", beta),), parameters=("beta",))),
    Bad("finite model", "a gradient still to be taken", CLOSE, "Gradient must be reduced to expectations",
        lambda: sold(grad(Em("mu", R)), Side.constant(1), witness("0", "1"))),
    Bad("finite model", "decimal probabilities", CLOSE, "an exact number such as .* expected, got '0.5'",
        lambda: sold(Em("p", r), Side.constant(1), witness("5/4", "1", q=["0.5", "0.5"]))),
    Bad("finite model", "a parameter without a value", CLOSE, "no value for beta",
        lambda: sold(Em("q", beta), Side.constant(1), witness("2", "1"), parameters=("beta",))),
]  # fmt: skip


def solved(c: ExpPoly, family: ExpPoly, constants: list[str], order: int = 2, **change: Any) -> Draft:
    """E_q[c s] = 0 iff g is the family."""
    draft = Draft(Em("q", c, 1), NOTHING, parameters=("a", "b"), functions=G)
    data = {"function": "g", "family": family, "unit": ONE, "coordinate": "k1"}
    return draft.close("completeness", **data | {"order": order, "constants": constants} | change)


def apart(c: ExpPoly, term: ExpPoly, **context: Any) -> Draft:
    """E_q[c s] is no combination of the KL gradients."""
    return Draft(Em("q", c, 1), NOTHING, **context).close("independence", term=term)


COMPLETENESS = [
    Bad("completeness", "a free constant missing", CLOSE, "2 free constants expected, got \\['b'\\]",
        lambda: solved(g1 - k1, k2 + b, ["b"])),
    Bad("completeness", "half a square missing", CLOSE, "the family does not solve the condition",
        lambda: solved(g1 - k1, k1 * k1 + a * k1 + b, ["b", "a"])),
    Bad("completeness", "the same constant twice", CLOSE, "2 free constants expected",
        lambda: solved(g1 - k1, k2 + b * k1 + b, ["b", "b"])),
    Bad("completeness", "free constants that do not span", CLOSE, "the free constants do not span 1, k1",
        lambda: solved(g1 - k1, k2 + a + b, ["b", "a"])),
    Bad("completeness", "a free constant of the equation", CLOSE, "free constant stands in the equation",
        lambda: solved(g1 - a * k1, a * k2 + a * k1 + b, ["b", "a"])),
    Bad("completeness", "another coordinate is left over", CLOSE, "does not make the coefficient constant",
        lambda: solved(g1 - k1 - w, k2 + a * k1 + b, ["b", "a"])),
    Bad("completeness", "order of the equation", CLOSE, "the condition is not g''' = h",
        lambda: solved(g1 - k1, k2 + a * k1 + b, ["b", "a"], order=3)),
    Bad("completeness", "sg left in the coefficient", CLOSE, "drop sg\\(.\\) before completeness is used",
        lambda: solved(g1 - sg(k1), k2 + a * k1 + b, ["b", "a"])),
    Bad("completeness", "family in another variable", CLOSE, "family: a function of k1 alone",
        lambda: solved(g1 - k1, k2 + a * k1 + b + w, ["b", "a"])),
    Bad("completeness", "a variance instead of a mean", CLOSE, "reduce the equation to .* first",
        lambda: Draft(Em("q", g1 - k1, 2), NOTHING, parameters=("a", "b"), functions=G)
        .close("completeness", function="g", family=k2 + a * k1 + b, unit=ONE, coordinate="k1", order=2,
               constants=["b", "a"])),
    Bad("completeness", "premises narrow the models", CLOSE, "completeness needs every q, p, mu: no premises",
        lambda: Draft(Em("q", g1, 1), NOTHING, parameters=("b",), functions=G,
                      premises=((KL("q", "p"), NOTHING),))
        .close("completeness", function="g", family=b, unit=ONE, coordinate="k1", order=1, constants=["b"])),
    Bad("independence", "a term that is not there", CLOSE, "term: it does not stand in the coefficient",
        lambda: apart(k1 - r, k1 * k1)),
    Bad("independence", "a multiple of k1", CLOSE, "term: a reward, or a multiple of k1 or of r",
        lambda: apart(beta * k1, beta * k1, parameters=("beta",))),
    Bad("independence", "a multiple of r", CLOSE, "term: a reward, or a multiple of k1 or of r",
        lambda: apart(k1 - r, -r)),
    Bad("independence", "a reward", CLOSE, "term: a reward, or a multiple of k1 or of r",
        lambda: apart(k1 + R * A, R * A)),
    Bad("independence", "a constant", CLOSE, "term: a reward, or a multiple of k1 or of r",
        lambda: apart(k1 + 1, ONE)),
    Bad("independence", "terms that cancel in another form", CLOSE, "drop sg\\(.\\) first",
        lambda: apart(k2 - sg(k2), k2)),
    Bad("independence", "a generic function that may be k1", CLOSE, "no generic functions expected",
        lambda: apart(g * k1, g * k1, functions=G)),
    Bad("independence", "a term with another factor", CLOSE, "term: it does not stand in the coefficient",
        lambda: apart(k1 * k1, k1 * k1 * 2)),
]  # fmt: skip

STATEMENTS = [
    Bad("statement", "division by a random variable", PART, "division by the random variable k1",
        lambda: Draft(Em("q", k1.inverse()), NOTHING)),
    Bad("statement", "division by a random variable in an exponent", PART, "division by the random variable R",
        lambda: Draft(Em("q", R.inverse().exp()), NOTHING)),
    Bad("statement", "a random coefficient outside its expectation", PART, "outside its expectation",
        lambda: Draft(KL("q", "p") * k1, NOTHING)),
    Bad("statement", "a parameter that is not declared", PART, "unknown name 'beta'",
        lambda: Draft(Em("q", beta), Side.constant(beta)).step("normalisation", Side.constant(beta))),
    Bad("statement", "log q as a parameter", PART, "'log_q' cannot be declared",
        lambda: Draft(Em("q", log_q, 1), NOTHING, parameters=("log_q",)).step("score mean zero")),
    Bad("statement", "a function that is also a parameter", PART, "a name is declared twice",
        lambda: Draft(Em("q", f, 1), NOTHING, parameters=("f",), functions=ANY_F).step("score mean zero")),
    Bad("statement", "an undeclared name in a part", STEP1, "unknown name 'beta'",
        lambda: Draft(Em("q", k1, 1), Em("q", k1 - beta, 1))
        .step("score mean zero", Em("q", k1 - beta, 1), part=beta)),
    Bad("statement", "nonzero hypothesis left out", PART, "hypotheses: the steps use .*nonzero.*recorded \\[\\]",
        lambda: Draft(Em("q", beta.inverse() * k1), Em("q", k1 * beta.inverse()), parameters=("beta",))),
]  # fmt: skip

TABLE = [
    *DEFINITIONS, *DERIVATIVES, *MEASURES, *SETTINGS,
    *EQUALITIES, *REFUTATIONS, *COMPLETENESS, *STATEMENTS,
]  # fmt: skip
