"""False derivations, one plausible mistake each.

Every row is a complete certificate with a correct digest, so that the replay itself has to find the
mistake.  The rows about rules at one sample are here, those about statements and hypotheses in
statements.py, about files in files.py, about an index of a batch or a sequence in indexed.py and
trees.py, about closings in closings.py and inequalities.py, about regions and logs in
regions.py and definitions.py.
"""

from __future__ import annotations

from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import Side
from support.certificates.faulty_certificates import *
from support.faulty.closings import CITATIONS, COMPLETENESS, EQUALITIES, REFUTATIONS
from support.faulty.definitions import REGIONS
from support.faulty.expectations import EXPECTATIONS
from support.faulty.files import FILES
from support.faulty.hypotheses import FORGOTTEN
from support.faulty.indexed import INDEXED
from support.faulty.inequalities import INEQUALITIES
from support.faulty.statements import HYPOTHESES, STATEMENTS
from support.faulty.trees import TREES

BETA = {"parameters": ("beta",)}
NU = {"parameters": ("beta", "nu")}
AGREE = {"premises": ((QP, Em("q", f)),), "functions": ANY_F}


def same(left: Side, right: Side) -> Draft:
    """An equation that its author takes for a definition."""
    return Draft(left, right)


MU = Em("mu", k1)


def product(a: Side, b: Side, believed: Side) -> Draft:
    """The gradient of a product, with what its author believes it to be."""
    return Draft(grad(a.multiply(b)), believed).step("product rule", believed)


EXPANSIONS = {  # abbreviations written out wrongly
    "expansion": [
        ("kl under the wrong measure", CLOSE, DIFFER, lambda: same(KL("q", "p"), Em("p", k1))),
        ("kl of the other direction under its measure", CLOSE, DIFFER,
            lambda: same(KL("p", "q"), Em("p", k1))),
        ("chi2 ratio the wrong way round", CLOSE, DIFFER,
            lambda: same(chi2("p", "q"), Em("q", (k1.exp() - 1) ** 2))),
        ("chi2 without its square", CLOSE, DIFFER, lambda: same(chi2("p", "q"), Em("q", r - 1))),
        ("jeffreys with one direction only", CLOSE, DIFFER, lambda: same(jeffreys("q", "p"), KL("q", "p"))),
        ("covariance without the product of means", CLOSE, DIFFER,
            lambda: same(cov("q", k1, r), Em("q", k1 * r))),
        ("bregman without its tangent", CLOSE, DIFFER,
            lambda: same(point(k1.exp() - 1 - k1), point(k1.exp() - 1))),
        ("reference taken for the policy", CLOSE, DIFFER, lambda: same(Em("p", k1, 1), REVERSE)),
        ("support hypothesis left out", PART, "hypotheses: .*support.*recorded \\[\\]",
            lambda: Draft(KL("q", "p"), Em("p", k1 * k1.exp())).step("change of measure", to="p")
            .without("support")),
    ],
    "on-policy": [
        ("used off-policy", CLOSE, DIFFER, lambda: same(Em("mu", k1, 1), REVERSE)),
        ("weight set to one before differentiating", STEP1, GOT,
            lambda: Draft(Eg("q", on_policy(rho * k2)), REVERSE).step("chain rule", REVERSE)),
        ("log ratio to the reference zeroed", STEP1, GOT,
            lambda: Draft(Em("q", on_policy(sg(rho) * k1), 1), NOTHING).step("stop-gradient", NOTHING)),
        ("the detached sampler differentiated", CLOSE, DIFFER,
            lambda: Draft(Eg("q", on_policy(w)), grad(Em("q", on_policy(w)))).step("chain rule")
            .right("log-derivative").right("chain rule", term=1)),
        ("the weight detached with its sampler", STEP1, GOT,
            lambda: Draft(Eg("q", on_policy(w * k1)), Em("q", on_policy(w), 1))
            .step("chain rule", Em("q", on_policy(w), 1))),
    ],
    "given": [
        ("nothing is given", CLOSE, DIFFER, lambda: Draft(Em("q", R - beta * k1, 1), NOTHING, **BETA)),
        ("put in before differentiating", STEP1, GOT,
            lambda: Draft(Eg("q", given_values(R * log_q, R=k1)), Em("q", k1 + log_q, 1))
            .step("chain rule", Em("q", k1 + log_q, 1))),
        ("sign of the value", STEP1, GOT,
            lambda: Draft(Em("q", given_values(R, R=nu + beta * k1), 1), Em("q", nu - beta * k1, 1), **NU)
            .step("stop-gradient", Em("q", nu - beta * k1, 1))),
        ("a value for what depends on theta", STEP1, GOT,
            lambda: Draft(Eg("q", sg(k1)), Em("q", ONE, 1)).step("chain rule", Em("q", ONE, 1))),
        ("a parameter of the value that must not be zero", PART,
            "hypotheses: .*'nonzero', 'beta'.*recorded \\[\\]$",
            lambda: Draft(Em("q", given_values(R, R=k1 * beta.invert())), QUOTIENT, **BETA)
            .step("stop-gradient").without("nonzero")),
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
            .step("score mean zero", part=ONE, slot="x")),
        ("the measure held constant", STEP1, "MeanGradient expected, got Gradient",
            lambda: Draft(grad(Em("q", k2)), REVERSE).step("chain rule", REVERSE)),
        ("a reward differentiated", STEP1, GOT,
            lambda: Draft(mean_grad("", "sample", R * log_q), point(R + log_q, 1))
            .step("chain rule", point(R + log_q, 1))),
        ("a parameter differentiated", STEP1, GOT,
            lambda: Draft(Eg("q", beta * k1), Em("q", beta + k1, 1), **BETA)
            .step("chain rule", Em("q", beta + k1, 1))),
        ("a function differentiated along one argument", STEP1, GOT,
            lambda: Draft(Eg("q", f * k1), Em("q", f, 1), functions=ANY_F).step("chain rule", Em("q", f, 1))),
        ("the score of the sampler for that of the policy", STEP1, GOT,
            lambda: Draft(Eg("mu", k2), REVERSE).step("chain rule", REVERSE)),
        ("the square of the score", STEP1, GOT,
            lambda: Draft(Eg("q", k2), Em("q", k1, 2)).step("chain rule", Em("q", k1, 2))),
        ("of what is no gradient", STEP1, "MeanGradient expected, got Mean",
            lambda: Draft(Em("q", k2), REVERSE).step("chain rule", REVERSE)),
    ],
    "stop-gradient": [
        ("dropped inside the loss", STEP1, "Mean expected, got MeanGradient",
            lambda: Draft(Eg("mu", sg(rho) * k2), Em("q", k1 + k2, 1))
            .step("stop-gradient", Eg("mu", rho * k2)).step("chain rule").step("change of measure", to="q")),
        ("dropped inside the gradient of an expectation", STEP1, "Mean expected, got Gradient",
            lambda: Draft(grad(Em("q", sg(k2))), Em("q", k2 + k1, 1))
            .step("stop-gradient", grad(Em("q", k2))).step("log-derivative").step("chain rule", term=1)),
        ("a detached factor replaced by one", STEP1, GOT,
            lambda: Draft(Em("mu", sg(rho) * k1, 1), Em("mu", k1, 1))
            .step("stop-gradient", Em("mu", k1, 1))),
        ("told what to detach", STEP1, "data: expected \\[\\], got \\['of'\\]",
            lambda: Draft(Em("q", sg(k1) * k1, 1), Em("q", k1, 1))
            .step("stop-gradient", Em("q", k1, 1), of="k1")),
        ("in one of two terms", STEP1, GOT,
            lambda: Draft(Em("q", sg(k1)).multiply(Em("q", sg(k2))), QP.multiply(Em("q", k2)))
            .step("stop-gradient", QP.multiply(Em("q", k2)))),
    ],
    "log-derivative": [
        ("score term forgotten", STEP1, GOT,
            lambda: Draft(grad(Em("q", k2)), REVERSE).step("log-derivative", Eg("q", k2)).step("chain rule")),
        ("pathwise term forgotten", STEP1, GOT,
            lambda: Draft(grad(Em("q", k2)), Em("q", k2, 1)).step("log-derivative", Em("q", k2, 1))),
        ("the sampler mu differentiated", STEP1, GOT,
            lambda: Draft(grad(Em("mu", k2)), Em("mu", k2 + k1, 1))
            .step("log-derivative", Em("mu", k2, 1) + Eg("mu", k2)).step("chain rule", term=1)),
        ("the reference differentiated", STEP1, GOT,
            lambda: Draft(grad(PQ), Em("p", -k1 - 1, 1))
            .step("log-derivative", Em("p", -k1, 1) + Eg("p", -k1)).step("chain rule", term=1)),
        ("the gradient of a product", STEP1, "without score function expected, and of no product",
            lambda: Draft(grad(QP.multiply(PQ)), grad(QP).multiply(PQ))
            .step("log-derivative", grad(QP).multiply(PQ))),
        ("of a product of expectations", STEP1, "without score function expected, and of no product",
            lambda: Draft(grad(Em("q", k1).multiply(Em("p", k1))), NOTHING).step("log-derivative", NOTHING)),
        ("of a mean with a score", STEP1, "means without score function expected",
            lambda: Draft(grad(REVERSE), Em("q", ONE, 1)).step("log-derivative", Em("q", ONE, 1))),
        ("of a gradient", STEP1, "means without score function expected",
            lambda: Draft(grad(Eg("q", k2)), NOTHING).step("log-derivative", NOTHING)),
        ("factor lost", STEP1, GOT,
            lambda: Draft(grad(PQ * beta), Eg("p", -k1), **BETA).step("log-derivative", Eg("p", -k1))),
        ("sign lost", STEP1, GOT,
            lambda: Draft(grad(Em("p", k1) - Em("mu", k2)), Eg("p", k1) + Eg("mu", k2))
            .step("log-derivative", Eg("p", k1) + Eg("mu", k2))),
        ("a constant with a gradient", STEP1, GOT,
            lambda: Draft(grad(PQ + TWO), Eg("p", -k1) + TWO).step("log-derivative", Eg("p", -k1) + TWO)),
        ("of what is no gradient", STEP1, "Gradient expected, got Mean",
            lambda: Draft(Em("q", k1 * k1), Em("q", k1) * 2).step("log-derivative", Em("q", k1) * 2)),
        ("a value at a sample drawn from q", STEP1, GOT,
            lambda: Draft(grad(point(k2)), point(k2 + k1, 1))
            .step("log-derivative", point(k2, 1) + mean_grad("", "sample", k2)).step("chain rule", term=1)),
    ],
    "product rule": [
        ("a square that moves once", STEP1, GOT, lambda: product(QP, QP, grad(QP).multiply(QP))),
        ("the product of the gradients", STEP1, GOT, lambda: product(QP, MU, grad(QP).multiply(grad(MU)))),
        ("each factor kept beside its own gradient", STEP1, GOT,
            lambda: product(QP, MU, grad(QP).multiply(QP) + grad(MU).multiply(MU))),
        ("a sign", STEP1, GOT, lambda: product(QP, MU, grad(QP).multiply(MU) - grad(MU).multiply(QP))),
        ("the second factor constant", STEP1, GOT, lambda: product(QP, MU, grad(QP).multiply(MU))),
        ("the first factor constant", STEP1, GOT, lambda: product(QP, MU, grad(MU).multiply(QP))),
        ("the sum of the gradients", STEP1, GOT, lambda: product(QP, MU, grad(QP) + grad(MU))),
        ("the gradient of the mean of the product", STEP1, GOT,
            lambda: product(QP, MU, grad(Em("q", k1 * k1)))),
        ("a detached factor differentiated as if attached", STEP1, GOT,
            lambda: product(Em("q", sg(k1)), QP, grad(QP).multiply(QP) * 2)),
        ("the mean under another measure differentiated", STEP1, GOT,
            lambda: product(MU, QP, grad(QP).multiply(QP) + grad(QP).multiply(MU))),
        ("a factor with a score", STEP1, "without score function expected",
            lambda: product(REVERSE, QP, grad(REVERSE).multiply(QP) + grad(QP).multiply(REVERSE))),
        ("a loss that is no number", STEP1, "products of expectations",
            lambda: product(Eg("q", k2), QP, grad(Eg("q", k2)).multiply(QP))),
        ("a gradient of a gradient", STEP1, "products of expectations",
            lambda: product(grad(QP), QP, grad(grad(QP)).multiply(QP) + grad(QP).multiply(grad(QP)))),
        ("the product of what one sample has", STEP1, "products of expectations",
            lambda: product(point(k2), QP, grad(QP).multiply(point(k2)))),
        ("told which factor moves", STEP1, "data: expected \\[\\], got \\['of'\\]",
            lambda: Draft(grad(QP.multiply(MU)), NOTHING).step("product rule", NOTHING, of="k1")),
        ("its hypotheses left out", PART, "hypotheses: .*exists.*recorded",
            lambda: product(QP, MU, grad(QP).multiply(MU) + grad(MU).multiply(QP)).without("exists")),
    ],
    "linearity": [
        ("factor lost", STEP1, GOT,
            lambda: Draft(Em("q", beta * k1).multiply(PQ), QP.multiply(PQ), **BETA)
            .step("linearity", QP.multiply(PQ), factor=1, constant=beta)),
        ("a factor that is random", STEP1, "constant: it depends on the sample",
            lambda: Draft(Em("q", k1 * k1), QP).step("linearity", QP, constant=k1)),
        ("a factor that is a sum", STEP1, "division by a sum",
            lambda: Draft(Em("q", (beta + 1) * k1).multiply(PQ), QP.multiply(PQ), **BETA)
            .step("linearity", QP.multiply(PQ), factor=1, constant=beta + 1)),
        ("a factor that is zero", STEP1, "division by zero",
            lambda: Draft(QP.multiply(PQ), NOTHING).step("linearity", NOTHING, constant=ZERO)),
        ("a factor that is not declared", STEP1, "unknown name 'beta'",
            lambda: Draft(QP, NOTHING).step("linearity", NOTHING, constant=beta)),
        ("the square of a factor", STEP1, GOT,
            lambda: Draft(Em("q", beta * beta * k1).multiply(PQ), Em("q", k1).multiply(PQ) * beta, **BETA)
            .step("linearity", Em("q", k1).multiply(PQ) * beta, factor=1, constant=beta * beta)),
        ("of a gradient", STEP1, "Mean expected, got Gradient",
            lambda: Draft(grad(QP * beta), grad(QP), **BETA).step("linearity", grad(QP), constant=beta)),
        ("of a loss", STEP1, "Mean expected, got MeanGradient",
            lambda: Draft(Eg("q", beta * k1), Eg("q", k1), **BETA)
            .step("linearity", Eg("q", k1), constant=beta)),
        ("in a part of a product alone", STEP1, GOT,
            lambda: Draft(Em("q", k1 + w).multiply(PQ), Em("q", k1).multiply(PQ))
            .step("linearity", Em("q", k1).multiply(PQ), factor=1, part=k1, constant=ONE)),
    ],
}  # fmt: skip

MEASURES = {
    "change of measure": [
        ("ratio the wrong way round", STEP1, GOT,
            lambda: Draft(Em("mu", k1, 1), Em("q", rho * k1, 1))
            .step("change of measure", Em("q", rho * k1, 1), to="q")),
        ("ratio forgotten", STEP1, GOT,
            lambda: Draft(Em("mu", k1, 1), REVERSE).step("change of measure", REVERSE, to="q")),
        ("the ratio of the reference", STEP1, GOT,
            lambda: Draft(Em("p", k1, 1), Em("q", rho * k1, 1))
            .step("change of measure", Em("q", rho * k1, 1), to="q")),
        ("to an unknown measure", STEP1, "to: one of .* expected, got 'pi'",
            lambda: Draft(Em("mu", rho * k1, 1), REVERSE).step("change of measure", REVERSE, to="pi")),
        ("of the value at one sample", STEP1, "a mean expected, not the value at one sample",
            lambda: Draft(point(k1), Em("q", k1)).step("change of measure", Em("q", k1), to="q")),
        ("to the value at one sample", STEP1, "to: one of .* expected, got 'sample'",
            lambda: Draft(Em("q", k1), point(k1)).step("change of measure", point(k1), to="sample")),
        ("counting measure without the density", STEP1, GOT,
            lambda: Draft(Em("q", k1), Em("count", k1))
            .step("change of measure", Em("count", k1), to="count")),
        ("the rest moved too", STEP1, GOT,
            lambda: Draft(Em("mu", rho * k1 + 1), Em("q", k1 + 1))
            .step("change of measure", Em("q", k1 + 1), to="q", part=rho * k1)),
        ("of a loss before it is differentiated", STEP1, "Mean expected, got MeanGradient",
            lambda: Draft(Eg("mu", rho * k2), REVERSE)  # sg belongs on the weight
            .step("change of measure", Eg("q", k2), to="q").step("chain rule")),
        ("under a gradient", STEP1, "Mean expected, got Gradient",
            lambda: Draft(grad(Em("mu", k2)), grad(Em("q", k2)))
            .step("change of measure", grad(Em("q", k2)), to="q")),
        ("of one factor of a product for both", STEP1, GOT,
            lambda: Draft(Em("mu", k1).multiply(Em("mu", k2)), Em("q", k1).multiply(Em("q", k2)))
            .step("change of measure", Em("q", k1).multiply(Em("q", k2)), to="q")),
    ],
    "score mean zero": [
        ("under mu", STEP2, "needs m = q, got m = mu",
            lambda: Draft(Eg("mu", log_q), NOTHING).step("chain rule")
            .step("score mean zero", NOTHING, slot="x")),
        ("a baseline that depends on the sample", STEP1, "\\['x'\\] may depend on the slot x",
            lambda: Draft(Em("q", k1 - A, 1), REVERSE).step("score mean zero", REVERSE, part=-A, slot="x")),
        ("an unfolded loss", STEP2, "\\['x'\\] may depend on the slot x",
            lambda: Draft(Eg("q", k2), NOTHING).step("chain rule")
            .step("score mean zero", NOTHING, slot="x")),
        ("without a score", STEP1, "one score function of the slot x expected, got \\[\\]",
            lambda: Draft(Em("q", beta), NOTHING, **BETA).step("score mean zero", NOTHING, slot="x")),
        ("of a squared score", STEP1, "one score function of the slot x expected, got \\['x', 'x'\\]",
            lambda: Draft(Em("q", ONE, 2), NOTHING).step("score mean zero", NOTHING, slot="x")),
        ("at one sample", STEP1, "needs m = q, got m = sample",
            lambda: Draft(point(ONE, 1), NOTHING).step("score mean zero", NOTHING, slot="x")),
        ("under the counting measure", STEP1, "needs m = q, got m = count",
            lambda: Draft(Em("count", ONE, 1), NOTHING).step("score mean zero", NOTHING, slot="x")),
        ("of a detached baseline that depends on the sample", STEP1, "may depend on the slot x",
            lambda: Draft(Em("q", sg(k1), 1), NOTHING).step("score mean zero", NOTHING, slot="x")),
        ("of a slot that one sample has not", STEP1, "of the slot self expected",
            lambda: Draft(Em("q", ONE, 1), NOTHING).step("score mean zero", NOTHING, slot="self")),
        ("the part is more than what is there", STEP1, GOT,
            lambda: Draft(Em("q", k1 + 1, 1), REVERSE)
            .step("score mean zero", REVERSE, part=number(2), slot="x")),
    ],
    "normalisation": [
        ("of the counting measure", STEP1, "counting measure has no total mass one",
            lambda: Draft(Em("count", ONE), constant(1)).step("normalisation", constant(1))),
        ("of a random variable", STEP1, "the coefficient depends on the sample",
            lambda: Draft(Em("q", R - 1), NOTHING).step("normalisation", NOTHING)),
        ("of a ratio", STEP1, "the coefficient depends on the sample",
            lambda: Draft(Em("p", r), constant(1)).step("normalisation", constant(1))),
        ("with a score", STEP1, "no score function expected",
            lambda: Draft(Em("q", beta, 1), constant(beta), **BETA).step("normalisation", constant(beta))),
        ("constant replaced by one", STEP1, GOT,
            lambda: Draft(Em("q", beta), constant(1), **BETA).step("normalisation", constant(1))),
        ("of a detached random variable", STEP1, "the coefficient depends on the sample",
            lambda: Draft(point(sg(k1)), NOTHING).step("normalisation", NOTHING)),
        ("of the gradient of a constant", STEP1, "Mean expected, got MeanGradient",
            lambda: Draft(Eg("q", beta), constant(beta), **BETA).step("normalisation", constant(beta))),
    ],
    "ratio mean one": [
        ("ratio the wrong way round", STEP1, "\\['x'\\] may depend on the slot x",
            lambda: Draft(Em("q", k1.exp()), constant(1))
            .step("ratio mean one", Em("q", ONE), of="p", slot="x")),
        ("rho under q", STEP1, "\\['x'\\] may depend on the slot x",
            lambda: Draft(Em("q", rho), constant(1)).step("ratio mean one", Em("q", ONE), of="mu", slot="x")),
        ("squared ratio", STEP1, "\\['x'\\] may depend on the slot x",
            lambda: Draft(Em("q", r * r), constant(1))
            .step("ratio mean one", Em("q", ONE), of="p", slot="x")),
        ("ratio times a log ratio", STEP1, "\\['x'\\] may depend on the slot x",
            lambda: Draft(Em("q", r * k1), Em("q", k1))
            .step("ratio mean one", Em("q", k1), of="p", slot="x")),
        ("ratio times a reward", STEP1, "\\['x'\\] may depend on the slot x",
            lambda: Draft(Em("q", r * R), Em("q", R)).step("ratio mean one", Em("q", R), of="p", slot="x")),
        ("with a score", STEP1, "\\['x'\\] may depend on the slot x",
            lambda: Draft(Em("q", r, 1), constant(1))
            .step("ratio mean one", Em("q", ONE, 1), of="p", slot="x")),
        ("of the counting measure", STEP1, "of: one of|a mean under a probability",
            lambda: Draft(Em("count", (log_q - k1).exp()), constant(1))
            .step("ratio mean one", Em("count", ONE), of="p", slot="x")),
        ("at one sample", STEP1, "of: one of|a mean under a probability",
            lambda: Draft(point(r), constant(1)).step("ratio mean one", point(ONE), of="p", slot="x")),
        ("of a slot that one sample has not", STEP1, "slot: one of \\['x'\\] expected",
            lambda: Draft(Em("q", r), constant(1)).step("ratio mean one", Em("q", ONE), of="p", slot="now")),
        ("its constant lost", STEP1, GOT,
            lambda: Draft(Em("q", beta * r), Em("q", ONE), **BETA)
            .step("ratio mean one", Em("q", ONE), of="p", slot="x")),
    ],
}  # fmt: skip

NOT_ALIKE = {"premises": ((Em("q", sg(k2)), Em("q", k2)),)}


def times(by: Side | ExpPoly, believed: Side, **context: object) -> Draft:
    """A multiple of the premise KL(q||p) = KL(p||q) that may not be added."""
    return Draft(QP, PQ, premises=((QP, PQ),), **context).equation(0, believed, times=by)


EQUATIONS = {
    "equation": [
        ("misquoted", STEP1, GOT,
            lambda: Draft(grad(Em("q", k2)), grad(Em("q", f)), **AGREE)
            .equation(0, grad(Em("q", f)), gradient=1)),
        ("read from right to left", CLOSE, DIFFER,
            lambda: Draft(grad(Em("q", f)), grad(QP), **AGREE).equation(0, gradient=1)),
        ("one that is not there", STEP1, "premise 1: there are 1",
            lambda: Draft(grad(PQ), grad(Em("q", f)), **AGREE).equation(1, grad(Em("q", f)), gradient=1)),
        ("where there is none", STEP1, "premise 0: there are 0", lambda: Draft(QP, PQ).equation(0, PQ)),
        ("gradient of the premise without its score term", STEP1, GOT,
            lambda: Draft(grad(QP), Eg("q", f), **AGREE).equation(0, Eg("q", f), gradient=1)),
        ("its value taken for its gradient", STEP1, GOT,
            lambda: Draft(grad(QP), grad(Em("q", f)), **AGREE).equation(0, grad(Em("q", f)))),
        ("its gradient taken for its value", STEP1, GOT,
            lambda: Draft(QP, Em("q", f), **AGREE).equation(0, Em("q", f), gradient=1)),
        ("its second gradient", STEP1, "gradient: 0 or 1",
            lambda: Draft(QP, Em("q", f), **AGREE).equation(0, Em("q", f), gradient=2)),
        ("equal values with different detached parts", STEP1, "holds a detached quantity",
            lambda: Draft(grad(Em("q", sg(k2))), Em("q", k2 + k1, 1), **NOT_ALIKE)
            .equation(0, grad(Em("q", k2)), gradient=1).step("log-derivative").step("chain rule", term=1)),
        ("equal values on-policy of a function of the weight", STEP1, "holds a detached quantity",
            lambda: Draft(grad(Em("q", on_policy(k1 + w * k1))), grad(QP),
                          premises=((Em("q", on_policy(k1 + w * k1)), QP),))
            .equation(0, grad(QP), gradient=1)),
        ("equal values on-policy with the sampler differentiated", STEP1, "holds a detached quantity",
            lambda: Draft(grad(Em("q", on_policy(w))), Em("q", ONE, 1),
                          premises=((Em("q", on_policy(w)), NOTHING),))
            .equation(0, NOTHING, gradient=1)),
        ("values of a reward whose gradients differ", STEP1, "holds a detached quantity",  # R is k1, constant
            lambda: Draft(grad(Em("q", sg(k1) ** 2)), Em("q", k1 * k1 + 2 * k1, 1),
                          premises=((Em("q", sg(k1) ** 2), Em("q", k1 * k1)),))
            .equation(0, grad(Em("q", k1 * k1)), gradient=1)
            .step("log-derivative").step("chain rule", term=1)),
        ("a value of H whose gradient differs", STEP1, "holds a detached quantity",  # H is k2, constant
            lambda: Draft(grad(Em("p", H)), grad(Em("p", k2)), premises=((Em("p", H), Em("p", k2)),))
            .equation(0, grad(Em("p", k2)), gradient=1)),
        ("times what is random", STEP1, "outside its mean",
            lambda: times(constant(k1), NOTHING)),
        ("times a value at one sample for that at all", CLOSE, DIFFER,
            lambda: Draft(QP.multiply(Em("q", k2)), PQ.multiply(Em("q", k2)), premises=((QP, PQ),))
            .equation(0, times=point(k2))),
        ("times a gradient", STEP1, "times: constants and means expected",
            lambda: times(grad(QP), NOTHING)),
        ("times the mean of a gradient", STEP1, "times: constants and means expected",
            lambda: times(Eg("q", k1), NOTHING)),
        ("times what is not declared", STEP1, "unknown name 'beta'", lambda: times(constant(beta), NOTHING)),
        ("with the wrong multiple", CLOSE, DIFFER,
            lambda: Draft(QP * 2, PQ * 2, premises=((QP, PQ),)).equation(0)),
        ("in one term of a product", STEP1, "equation: term and factor: null expected",
            lambda: Draft(QP, PQ, premises=((QP, PQ),))
            .step("equation", PQ, of=0, times=constant(1), gradient=0)),
        ("without saying how often", STEP1, "data: expected \\['gradient', 'of', 'times'\\]",
            lambda: Draft(QP, PQ, premises=((QP, PQ),)).step("equation", PQ, None, of=0)),
        ("under the gradient at one theta", PART, "hypotheses: .*premise.*recorded .*equal",
            lambda: Draft(grad(QP), grad(Em("q", f)), **AGREE).equation(0, gradient=1)
            .without("premise").assuming("equal", *AGREE["premises"][0])),
        ("premise not recorded", PART, "hypotheses: .*premise.*recorded \\[\\]",
            lambda: Draft(grad(QP), grad(Em("q", f)), **AGREE).equation(0, gradient=1).without("premise")),
        ("values not recorded as equal", PART, "hypotheses: .*equal.*recorded \\[\\]",
            lambda: Draft(QP, Em("q", f), **AGREE).equation(0).without("equal")),
    ],
    "step": [
        ("an unknown rule", STEP1, "unknown rule 'expansion'",
            lambda: Draft(QP, Em("q", k1 * k1)).step("expansion", Em("q", k1 * k1))),
        ("a closing as a rule", STEP1, "unknown rule 'completeness'",
            lambda: Draft(QP, PQ).step("completeness", PQ)),
        ("of a term that is not there", STEP1, "term 1: there are 1",
            lambda: Draft(Em("q", beta), constant(beta), **BETA)
            .step("normalisation", constant(beta), term=1)),
        ("of a term counted from the end", STEP1, "term -1: there are 1",
            lambda: Draft(Em("q", beta), constant(1), **BETA).step("normalisation", constant(1), term=-1)),
        ("of a factor that is not there", STEP1, "factor 1: there are 1",
            lambda: Draft(Em("q", beta), constant(1), **BETA).step("normalisation", constant(1), factor=1)),
        ("of a constant", STEP1, "factor 0: there are 0",
            lambda: Draft(constant(2), constant(1)).step("normalisation", constant(1))),
        ("of both sides", STEP1, "side: 'left' or 'right' expected",
            lambda: _both(Draft(QP, PQ).step("stop-gradient", PQ))),
        ("that records another result", STEP1, GOT,
            lambda: Draft(Em("q", ONE), constant(2)).step("normalisation", constant(2))),
        ("with a part of a gradient", STEP1, "data: expected \\[\\], got \\['part'\\]",
            lambda: Draft(grad(QP), NOTHING).step("log-derivative", NOTHING, part=k1)),
        ("with a part that is not declared", STEP1, "unknown name 'beta'",
            lambda: Draft(REVERSE, NOTHING).step("score mean zero", NOTHING, part=beta, slot="x")),
        ("with a part of another slot", STEP1, "unknown slot 'now'",
            lambda: Draft(REVERSE, NOTHING).step("stop-gradient", NOTHING, part=V("k1[now]"))),
    ],
}  # fmt: skip


def _both(draft: Draft) -> Draft:
    draft.part["steps"][0]["side"] = "both"
    return draft


def rows(*tables: dict[str, list]) -> list[Bad]:
    return [Bad(rule, *row) for table in tables for rule, cases in table.items() for row in cases]


TABLE = rows(
    EXPANSIONS, DERIVATIVES, MEASURES, EQUATIONS, EQUALITIES, INEQUALITIES, REFUTATIONS, COMPLETENESS,
    CITATIONS, FILES, STATEMENTS, HYPOTHESES, REGIONS, EXPECTATIONS, *INDEXED, *TREES, *FORGOTTEN,
)  # fmt: skip
