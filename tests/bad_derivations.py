"""False derivations, one plausible mistake each; running this file writes them to tests/bad.

Every row is a complete certificate with a correct digest, so that the replay itself has to find the
mistake.  The rows about rules and statements are here, those about an index of a batch or a sequence in
bad_indexed.py and bad_trees.py, those about closings in bad_closings.py and bad_inequalities.py.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

from bad_closings import COMPLETENESS, EQUALITIES, QUADRATIC, REFUTATIONS, apart, solved
from bad_indexed import INDEXED
from bad_inequalities import INEQUALITIES
from bad_trees import TREES
from drafts import (
    ANY_F,
    GOT,
    KL,
    NOTHING,
    ONE,
    OPTIMUM,
    PART,
    PQ,
    QP,
    QUOTIENT,
    REVERSE,
    SELF,
    STEP1,
    STEP2,
    TWO,
    ZERO,
    A,
    Bad,
    Draft,
    Eg,
    Em,
    R,
    V,
    beta,
    f,
    g1,
    grad,
    k1,
    k2,
    k3,
    log_q,
    nu,
    point,
    r,
    rho,
    sg,
)  # fmt: skip

from klsym.statements import Bregman, Covariance, PointGradient, Side

FOLDER = Path(__file__).parent / "bad"

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
        ("dropped inside the loss", STEP1, "and sample values, not in the gradient of a loss",
            lambda: Draft(Eg("mu", sg(rho) * k2), Em("q", k1 + k2, 1))
            .step("stop-gradient", Eg("mu", rho * k2)).step("chain rule")
            .step("change of measure", to="q")),
        ("dropped inside the gradient of an expectation", STEP1, "and sample values, not in a gradient",
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
        ("of a product of expectations", STEP1, "the gradient of one expectation under .* expected",
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
        ("a random coefficient inside a gradient", PART, "outside its expectation",  # grad k1 = 0
            lambda: Draft(grad(Side.constant(k1)), NOTHING).step("linearity")),
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
        ("the weight says nothing of the support", PART,
            "hypotheses: .*.support., .q., .mu.",
            lambda: Draft(Em("mu", rho * k1, 1), REVERSE).step("change of measure", to="q")
            .without("support", "q", "mu")),
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

AGREE = {"premises": ((QP, Em("q", f)),), "functions": ANY_F}

SETTINGS = {
    "on-policy": [
        ("used off-policy", STEP1, "the statement does not say that the sampler is q",
            lambda: Draft(Em("mu", k1, 1), REVERSE).step("on-policy", REVERSE)),
        ("weight set to one before differentiating", STEP1, "expectation .*, got the gradient of a loss",
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
        ("a parameter of the value that must not be zero", PART,
            "hypotheses: .*'nonzero', 'beta'.*recorded \\[\\['given'\\]\\]$",
            lambda: Draft(Em("q", R * beta), Em("q", k1), parameters=("beta",),
                          given=(("R", k1 * beta.inverse()),)).step("given")),
        ("nothing is given", STEP1, "the statement is given no values",
            lambda: Draft(Em("q", R - beta * k1, 1), NOTHING, parameters=("beta",))
            .step("given", NOTHING)),
        ("put in before differentiating", STEP1, "sample values, not into the gradient of a loss",
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
        ("on-policy for a function of the weight", PART,  # f = k1 + w k1 has f' = 1 + k1 + w
            "mu is a detached copy of q: its value does not tell a gradient",
            lambda: Draft(grad(Em("q", f)), grad(QP), on_policy=True,
                          premises=((Em("q", f), QP),), functions=ANY_F)
            .step("premise", number=0)),
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


KX, WX = V("k1[x]"), V("w[x]")  # k1 and w once more, under other names
FORMER_HOLES: dict[str, list[Any]] = {  # once accepted, each found by reading the kernel as an adversary
    "statement": [
        ("a second name of k1", PART, "the slot x is not written out",  # the coefficient is 0
            lambda: apart(k2 - KX * KX * Fraction(1, 2), k2)),
        ("a second name of w", PART, "the slot x is not written out",  # on-policy the coefficient is 0
            lambda: apart(WX * k1, WX * k1, on_policy=True)),
        ("an argument of a function that is no live variable", PART,  # f = k1 + w k1
            "may depend on k1, w and log_q only",
            lambda: Draft(grad(Em("q", f)), grad(QP), on_policy=True, premises=((Em("q", f), QP),),
                          functions=(("f", ("k1", "w[x]")),)).step("premise", number=0)),
    ],
    "premise": [
        ("values of a reward whose gradients differ", PART,  # R is k1, held constant
            "given at one theta only",
            lambda: Draft(grad(Em("q", R * R)), Em("q", k1 * k1 + 2 * k1, 1), given=(("R", k1),),
                          premises=((Em("q", R * R), Em("q", k1 * k1)),))
            .step("premise", number=0).step("log-derivative").step("chain rule", term=1)),
    ],
    "completeness": [
        ("family divided by a parameter", PART, "hypotheses: .*nonzero.*beta",  # beta = 0: no such family
            lambda: solved(g1 - k1, QUADRATIC + beta.inverse(), "ba")),
    ],
}  # fmt: skip


def rows(*tables: dict[str, list[Any]]) -> list[Bad]:
    return [Bad(rule, *row) for table in tables for rule, cases in table.items() for row in cases]


TABLE = rows(
    DEFINITIONS, DERIVATIVES, MEASURES, SETTINGS,
    EQUALITIES, INEQUALITIES, REFUTATIONS, COMPLETENESS, STATEMENTS, FORMER_HOLES, *INDEXED, *TREES,
)  # fmt: skip


def text(row: Bad) -> str:
    """What the file of a row holds."""
    return json.dumps(row.certificate(), sort_keys=True) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.json"):
        old.unlink()
    for row in TABLE:
        (FOLDER / row.file_name).write_text(text(row))
