"""False derivations about names of expectations, each beside a true one.

a = E_q[M] moves with theta, and is the same number at each sample.
"""

from __future__ import annotations

from typing import Any

from klsym.kernel.definitions import Definition
from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import Side
from support.certificates.faulty_certificates import *
from support.certificates.kernel_words import Mg
from support.certificates.region_certificates import M, setting
from support.certificates.region_words import cell, log
from support.certificates.slot_helpers import now, past, sum_t
from support.faulty.definitions import declared
from support.faulty.regions import Pair
from support.faulty.trees import node

mass, l = V("mass"), V("l")  # noqa: E741
OF_MASS = Definition("mass", "E_q", M)
KEPT = setting("lam", OF_MASS, log("l", 1 - mass))
GRADIENT = grad(Em("q", M))


def slope(believed: Side | None = None, loss: ExpPoly = mass * R) -> Draft:
    """E_p[grad (a R)] = E_p[R] grad a, as R and p do not move."""
    return Draft(Mg("p", loss), Em("p", R).multiply(GRADIENT), **KEPT).step("chain rule", believed)


def slope_of_twins(believed: Side | None = None) -> Draft:
    """E_p[grad ((a + b) R)] = 2 E_p[R] grad a for two names a, b of E_q[M]"""
    context = setting("", OF_MASS, Definition("again", "E_q", M))
    right = Em("p", R * 2).multiply(GRADIENT)
    return Draft(Mg("p", (mass + V("again")) * R), right, **context).step("chain rule", believed)


def slope_of_log(believed: Side | None = None) -> Draft:
    """E_p[grad log(1 - a)] = -E_p[1/(1 - a)] grad a"""
    right = Em("p", -(-l).exp()).multiply(GRADIENT)
    return Draft(Mg("p", l), right, **KEPT).step("chain rule", believed)


def slope_of_name(e: ExpPoly, m: str = "q", *, nested: bool = False) -> Draft:
    """E_m[grad v] for a name v of log(e), or of log(1 + v^2)"""
    names = [log("l", e), Definition("gain", "let", l)]
    names += [log("outer", V("gain") ** 2 + 1), Definition("last", "let", V("outer"))] if nested else []
    context = setting("", OF_MASS, *names)
    draft = Draft(Mg(m, V("last") if nested else V("gain")), NOTHING, **context).step("chain rule")
    draft.part["right"] = draft.sides["left"].to_json()
    return draft


def objective(believed: Side | None = None, of: ExpPoly = mass * R) -> Draft:
    """grad E_q[a R] = E_q[a R s] + E_q[R] grad a"""
    right = Em("q", of, 1) + Em("q", R).multiply(GRADIENT)
    draft = Draft(grad(Em("q", of)), right, **KEPT).step("log-derivative", believed)
    return draft.step("chain rule", term=1) if believed is None else draft


def taken_out(believed: Side | None = None, under: str = "q") -> Draft:
    """E_p[a k1] = E_q[M] E_p[k1]"""
    right = Em(under, M).multiply(Em("p", k1))
    return Draft(Em("p", mass * k1), right, **KEPT).step("definition", believed, name="mass", times=k1)


def divided(believed: Side | None = None) -> Draft:
    """E_q[(1 - a)/(1 - a) R] = E_q[R]"""
    draft = Draft(Em("q", (1 - mass) * (-l).exp() * R), Em("q", R), **KEPT)
    return draft.step("definition", believed, name="l", times=R)


def scaled(factor: ExpPoly, believed: Side | None = None) -> Draft:
    """grad (c E_q[R] E_p[R]) by the product rule."""
    product = Em("q", R).multiply(Em("p", R)) * factor
    terms = grad(Em("q", R)).multiply(Em("p", R)) + Em("q", R).multiply(grad(Em("p", R)))
    return Draft(grad(product), terms * factor, **KEPT).step("product rule", believed)


def constant_gradient(c: ExpPoly, believed: Side | None = None) -> Draft:
    """grad c = 0"""
    return Draft(grad(constant(c)), NOTHING, **KEPT).step("log-derivative", believed)


def field(loss: ExpPoly, believed: Side | None = None) -> Draft:
    """curl E_q[grad (c log q)] = 0 for a constant c"""
    return Draft(curl("", "q", loss), NOTHING, **KEPT).step("curl", believed)


def in_a_model(c: ExpPoly) -> Draft:
    """E_q[c R] against 0 at one outcome."""
    model = {"tree": node(), "path": [], "parameters": {"lam": "1"}}
    draft = Draft(Em("q", c * R), NOTHING, **KEPT)
    return draft.close("finite model", model=model, left=["1/3", "1/3"], right=["0", "0"])


def differentiated(of: ExpPoly) -> Draft:
    """grad E_q[a k1] = grad E_q[R], given that E_q[a k1] = E_q[R] for every theta."""
    left, right = Em("q", mass * k1), Em("q", R)
    context = setting("", Definition("mass", "E_q", of)) | {"premises": ((left, right),)}
    return Draft(grad(left), grad(right), **context).equation(0, grad(right), gradient=1)


def kinds(kind: str = "E_q", e: Any = M, name: str = "mass") -> Draft:
    return declared([name, kind, e])


PAIRS: list[Any] = [
    Pair("chain rule", "an expectation taken for a number", STEP1, GOT, lambda: slope(NOTHING), slope),
    Pair("chain rule", "an expectation moved at each sample", STEP1, GOT,
        lambda: slope(Em("p", R, 1)), slope),
    Pair("chain rule", "one of two names of an expectation taken for a number", STEP1, GOT,
        lambda: slope_of_twins(Em("p", R).multiply(GRADIENT)), slope_of_twins),
    Pair("chain rule", "a log in the name of an element, where it is positive not recorded", PART,
        "hypotheses: .*above.*recorded", lambda: slope_of_name(k1).without("above"),
        lambda: slope_of_name(k1)),
    Pair("chain rule", "a log of a negative number in the name of an element", PART,
        "fails at the witness or at every sample", lambda: slope_of_name(-(k1.exp())),
        lambda: slope_of_name(k1.exp() - 2)),
    Pair("chain rule", "a log in a name in a log in a name, where it is positive not recorded", PART,
        "hypotheses: .*above.*recorded", lambda: slope_of_name(k1, nested=True).without("above"),
        lambda: slope_of_name(k1, nested=True)),
    Pair("chain rule", "a log of an expectation in a name, where it is positive not recorded", PART,
        "hypotheses: .*above.*recorded", lambda: slope_of_name(1 - mass, "p").without("above"),
        lambda: slope_of_name(1 - mass, "p")),
    Pair("chain rule", "a detached expectation that moves", STEP1, GOT,
        lambda: slope(Em("p", R).multiply(GRADIENT), sg(mass) * R), slope),
    Pair("chain rule", "a log of an expectation without its divisor", STEP1, GOT,
        lambda: slope_of_log(Em("p", -ONE).multiply(GRADIENT)), slope_of_log),
    Pair("chain rule", "the gradient of an expectation, not recorded", PART,
        "hypotheses: .*exists.*Gradient.*recorded",
        lambda: slope().without("exists", GRADIENT.terms[0][1][0]), slope),
    Pair("chain rule", "what multiplies the gradient of an expectation, not recorded", PART,
        "hypotheses: .*exists.*recorded",
        lambda: slope().without("exists", Em("p", R).terms[0][1][0]), slope),
    Pair("chain rule", "where a log of an expectation is positive, not recorded", PART,
        "hypotheses: .*above.*recorded", lambda: slope_of_log().without("above"), slope_of_log),
    Pair("log-derivative", "an expectation beside it taken for a number", STEP1, GOT,
        lambda: objective(Em("q", mass * R, 1)), objective),
    Pair("log-derivative", "an expectation alone", STEP1, "an expectation multiplies a mean",
        lambda: constant_gradient(mass, NOTHING), lambda: constant_gradient(lam)),
    Pair("product rule", "an expectation times a product", STEP1, "an expectation multiplies a mean",
        lambda: scaled(mass, NOTHING), lambda: scaled(lam)),
    Pair("definition", "an expectation taken inside another", STEP1, GOT,
        lambda: taken_out(Em("p", M * k1)), taken_out),
    Pair("definition", "an expectation under another measure", STEP1, GOT,
        lambda: taken_out(Em("p", M).multiply(Em("p", k1)), under="p"), taken_out),
    Pair("definition", "an expectation at a step", STEP1, "stands for no sum",
        lambda: Draft(sum_t("q", mass), NOTHING, **KEPT).step(
            "definition", NOTHING, name="mass[now]", times=ONE),
        taken_out),
    Pair("definition", "where a log of an expectation is positive, not recorded", PART,
        "hypotheses: .*above.*recorded", lambda: divided().without("above"), divided),
    Pair("curl", "of an expectation", STEP1, "an expectation in the loss moves with theta",
        lambda: field(mass * log_q, NOTHING), lambda: field(lam * log_q)),
    Pair("curl", "of a detached expectation", STEP1, "an expectation in the loss moves with theta",
        lambda: field(sg(mass) * log_q, NOTHING), lambda: field(lam * log_q)),
    Pair("curl", "of a detached log of an expectation", STEP1, "an expectation in the loss moves with theta",
        lambda: field(sg(l) * log_q, NOTHING), lambda: field(lam * log_q)),
    Pair("region", "an expectation as a region of the cell", STEP1, "cell: 0 or 1 expected",
        lambda: Draft(Em("q", mass**2), Em("q", mass), **KEPT).step(
            "region", Em("q", mass), **cell({"mass": 1}, times=ZERO)),
        taken_out),
    Pair("region", "an expectation taken for its square", STEP1, GOT,
        lambda: Draft(Em("q", mass**2), Em("q", mass), **KEPT).step(
            "region", Em("q", mass), **cell({}, times=ZERO)),
        taken_out),
    Pair("equation", "an expectation of what is known at one theta, differentiated", STEP1,
        "premise: it holds a detached", lambda: differentiated(H), lambda: differentiated(R)),
    Pair("linearity", "by an expectation, which may be 0", STEP1, "it depends on the sample, or may be 0",
        lambda: Draft(Em("q", mass * R).multiply(Em("q", R)), NOTHING, **KEPT).step(
            "linearity", NOTHING, constant=mass),
        taken_out),
    Pair("finite model", "without a value of an expectation", CLOSE, "no value for mass",
        lambda: in_a_model(mass), taken_out),
    Pair("hypotheses", "an expectation that has a name, not recorded", PART,
        "hypotheses: .*exists.*recorded",
        lambda: Draft(Em("q", R), Em("q", R), **KEPT).without("exists"),
        lambda: Draft(Em("q", R), Em("q", R), **KEPT)),
    Pair("context", "a region of an expectation", PART, "a region is defined by an expectation",
        lambda: declared(["mass", "E_q", M], ["up", "region", mass - 1]),
        lambda: declared(["mass", "E_q", M], ["up", "let", mass - 1])),
    Pair("context", "a region of a log of an expectation", PART, "a region is defined by an expectation",
        lambda: declared(["mass", "E_q", M], ["l", "log", mass], ["up", "region", l]),
        lambda: declared(["mass", "E_q", M], ["l", "log", mass], ["up", "let", l])),
    Pair("context", "an expectation of what is detached", PART, "holds sg\\(..\\), or a derivative",
        lambda: kinds(e=sg(k1)), kinds),
    Pair("context", "an expectation of a step", PART, "unknown slot 'now'", lambda: kinds(e=now(k1)), kinds),
    Pair("context", "an expectation of a prefix", PART, "unknown slot 'past'",
        lambda: kinds(e=past(R)), kinds),
    Pair("context", "an expectation that divides", PART, "division by the random variable mass",
        lambda: declared(["mass", "E_q", M], ["up", "let", mass.invert()]),
        lambda: declared(["mass", "E_q", M], ["l", "log", mass], ["up", "let", (-l).exp()])),
    Pair("context", "an expectation of itself", PART, "unknown name 'mass'", lambda: kinds(e=mass), kinds),
    Pair("context", "an expectation under old", PART, "rows \\[name", lambda: kinds("E_old"), kinds),
    Pair("context", "a sum over all outcomes", PART, "rows \\[name", lambda: kinds("E_count"), kinds),
    Pair("context", "a fact about an expectation", PART, "unknown name 'mass'|a fact speaks of",
        lambda: _given(mass), lambda: _given(M)),
    Pair("context", "an expectation in a slot", PART, "stands for no sum",
        lambda: Draft(sum_t("q", V("mass[now]")), sum_t("q", V("mass[now]")), **KEPT),
        lambda: Draft(sum_t("q", mass), sum_t("q", mass), **KEPT)),
    Pair("context", "a derivative of an expectation", PART, "stands for no sum",
        lambda: Draft(Em("q", V("mass'")), Em("q", V("mass'")), **KEPT),
        lambda: Draft(Em("q", sg(mass)), Em("q", sg(mass)), **KEPT)),
]  # fmt: skip


def _given(e: ExpPoly) -> Draft:
    """0 = 0, given that e >= 0."""
    draft = declared(["mass", "E_q", M])
    change = {"facts": plain([e]), "witness": dict.fromkeys(e.names(), "1")}
    draft.part["context"] = draft.part["context"] | change
    return draft


RULES = dict.fromkeys(pair.rule for pair in PAIRS)
EXPECTATIONS = {rule: [pair[1:5] for pair in PAIRS if pair.rule == rule] for rule in RULES}
