"""False gradients, citations, models and contexts that speak of definitions, each beside a true one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klsym.kernel.definitions import Definition
from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import Mean, Side
from support.certificates.faulty_certificates import *
from support.certificates.kernel_words import Mg
from support.certificates.region_certificates import *
from support.certificates.region_words import bound, cell, log, region
from support.certificates.slot_helpers import mean_i, n, now, other, others, own, past, sum_t
from support.faulty.regions import COMPARISONS, LOGS, Pair, compared
from support.faulty.statements import context

JUMP = "where {} changes, the coefficient does not change by its multiple"


# ---------------------------------------------------------------------------- gradients
def nested(e: ExpPoly, loss: ExpPoly, **jumps: ExpPoly) -> Draft:
    """grad E_mu[L] = E_mu[grad L] beside a region that speaks of another."""
    context = setting("", region("up", k1), region("flip", e))
    draft = Draft(grad(Em("mu", loss)), Mg("mu", loss), **context)
    return draft.step("log-derivative", Mg("mu", loss), **({"jumps": jumps} if jumps else {}))


flip = V("flip")
LOSS = CLIPPED + pos * high
CURVED = setting("lam", region("up", lam * k1))

QUOTIENT_OF_K1 = setting("", log("inv", k1))
GIVEN_H = setting("", region("up", H)) | {"premises": ((Em("q", up * k1), Em("q", R)),)}


def of_quotient(m: str = "mu") -> Draft:
    """The slope of k1^2/k1 is not 0 at k1 = 0, where log(k1) is any number and has no slope."""
    draft = Draft(Mg(m, inv * k1 * k1), Em(m, 2 * inv * k1 - inv**2 * k1**2, 1), **QUOTIENT_OF_K1)
    return draft.step("chain rule")


def of_sign() -> Draft:
    """grad [1/k1 > 0] = 0 at one sample."""
    context = setting("", log("inv", k1), region("up", inv))
    draft = Draft(grad(point(up)), NOTHING, **context)
    return draft.step("log-derivative").step("chain rule")


GRADIENTS: list[Any] = [
    ("a wrong constant in a branch", STEP1, JUMP.format("high"),
        lambda: objective(LOSS, PPO, Mg("mu", LOSS), **JUMPS), ppo_objective),
    ("a mask taken for continuous", STEP1, JUMP.format("(short|long)"),
        lambda: mask_objective(Mg("mu", MASKED), short=ZERO, long=ZERO), mask_objective),
    ("a mask taken for a kink", STEP1, JUMP.format("(short|long)"),
        lambda: mask_objective(Mg("mu", MASKED), short=rho * A * (1 - long), long=-rho * A * (1 - short)),
        mask_objective),
    ("where a mask jumps, not recorded", PART, "hypotheses: .*apart.*recorded",
        lambda: mask_objective().without("apart"), mask_objective),
    ("where a mask jumps, recorded at this theta alone", PART, "hypotheses: .*apart.*recorded .*off",
        lambda: mask_objective().without("apart").assuming("off", "mu", a - rho)
        .assuming("off", "mu", rho - lam), mask_objective),
    ("where a loss has a kink, not recorded", PART, "hypotheses: .*off.*recorded",
        lambda: ppo_objective().without("off"), ppo_objective),
    ("Lipschitz terms recorded as differentiable ones", PART, "hypotheses: .*lipschitz.*recorded .*exchange",
        lambda: ppo_objective().without("lipschitz")
        .assuming("exchange", Mean("", "mu", CLIPPED)), ppo_objective),
    ("of a kink at one sample", PART, "hypotheses: .*off.*recorded",
        lambda: absolute_objective("sample").without("off"), lambda: absolute_objective("sample")),
    ("a pole of what a region speaks of, not recorded", PART, "hypotheses: .*above.*recorded",
        lambda: of_sign().without("above"), of_sign),
    ("a region of a region", STEP1, "jumps: what regions define moves with them",
        lambda: nested(up - HALF, flip * R, flip=ZERO), lambda: nested(up - HALF, flip * R)),
    ("a kink of a region of a region", STEP1, "jumps: what regions define moves with them",
        lambda: nested(k1 * up - 1, flip * (k1 * up - 1), flip=ONE),
        lambda: nested(k1 * up - 1, flip * (k1 * up - 1))),
    ("a jump of what does not move", STEP1, "jumps: regions that move with theta expected",
        lambda: objective(CLIPPED, PPO, Mg("mu", CLIPPED), **JUMPS, pos=ZERO), ppo_objective),
    ("a jump of what is held constant", STEP1, "jumps: regions that move with theta expected",
        lambda: objective(sg(up) * k1, ABS, Mg("mu", sg(up) * k1), up=ONE),
        lambda: objective(sg(up) * k1, ABS)),
    ("jumps of two means at once", STEP1, "jumps: the gradient of a single mean expected",
        lambda: Draft(grad(Em("mu", up * k1) + Em("q", up * k1)), NOTHING, **ABS)
        .step("log-derivative", NOTHING, jumps={"up": ONE}),
        lambda: Draft(grad(Em("mu", up * k1)), Em("mu", up, 1), **ABS)
        .step("log-derivative", jumps={"up": ONE}).step("chain rule")),
    ("a change that divides, not recorded", PART, "hypotheses: .*nonzero.*lam.*recorded",
        lambda: objective(up * k1, CURVED, up=lam.invert()).without("nonzero"),
        lambda: objective(up * k1, CURVED, up=lam.invert())),
]  # fmt: skip


# ---------------------------------------------------------------------------- other rules and closings
JOINED = setting("n", region("win", own(R) - others(R)))
SIZES = setting("lam", region("up", lam))


def cited(definition: Any = None) -> Draft:
    """A theorem about `over` in a part where the name has a meaning."""
    context = PREFIX | {"definitions": definition or PREFIX["definitions"]}
    draft = Draft(sum_t("q", over, "future"), NOTHING, cites=(causal(),), **context)
    return draft.equation(0, NOTHING, cited=0)


def powers_cited(kind: Callable[..., Any] = region) -> Draft:
    """E_q[up^2] = E_q[up], cited where `up` is 1/k1."""
    one = Draft(Em("q", up**2), Em("q", up), **setting("", region("up", k1)))
    one.step("region", **cell({}, times=ZERO))
    draft = Draft(Em("q", up**2), Em("q", up), cites=(one,), **setting("", kind("up", k1)))
    return draft.equation(0, Em("q", up), cited=0)


def assumed_fact(*facts: ExpPoly) -> Draft:
    """A theorem given that nu >= 0, cited."""
    one = Draft(Em("q", up * A), NOTHING, **setting("nu", region("up", -nu), facts=[nu], nu=0))
    one.step("region", **cell({"up": 1}, bound("up"), bound(0), times=A))
    more = {"facts": facts, "nu": 0} if facts else {}
    draft = Draft(Em("q", up * A), NOTHING, cites=(one,), **setting("nu", region("up", -nu), **more))
    return draft.equation(0, NOTHING, cited=0)


def divided(scale: ExpPoly, believed: Side | None = None) -> Draft:
    """E_q[c R] E_q[w] = c E_q[R] E_q[w]"""
    left = Em("q", scale * R).multiply(Em("q", w))
    draft = Draft(left, Em("q", R).multiply(Em("q", w)) * scale, **SIZES)
    factor = next(i for i, atom in enumerate(left.terms[0][1]) if "R" in str(atom))
    return draft.step("linearity", believed, factor=factor, constant=scale)


def solved_beside(*definitions: Any, **more: Any) -> Draft:
    """g with E_q[(g - k1) s] = 0."""
    context = setting("a", *definitions, **more)
    draft = Draft(Em("q", V("g") - k1, 1), NOTHING, functions=G, **context)
    return draft.close("completeness", function="g", family=k1 + a, unit=ONE, coordinate="k1", order=1,
                       constants=["a"])  # fmt: skip


def field_of_quotient() -> Draft:
    return Draft(curl("", "q", sg(inv) * k1), NOTHING, **QUOTIENT_OF_K1).step("curl")


def differentiated(given: ExpPoly = H, gradient: int = 1) -> Draft:
    """A premise about a region of a reward."""
    left, right = Em("q", up * k1), Em("q", R)
    if gradient:
        left, right = grad(left), grad(right)
    context = GIVEN_H | {"definitions": (region("up", given),)}
    return Draft(left, right, **context).equation(0, right, gradient=gradient)


def beside_h(gradient: int) -> Draft:
    left, right = Em("q", flip * k1), Em("q", R)
    context = setting("", region("up", H), region("flip", up - HALF)) | {"premises": ((left, right),)}
    if gradient:
        left, right = grad(left), grad(right)
    return Draft(left, right, **context).equation(0, right, gradient=gradient)


OTHERS: dict[str, list[Any]] = {
    "chain rule": [
        ("of a quotient at a pole, not recorded", PART, "hypotheses: .*above.*recorded",
            lambda: of_quotient().without("above"), of_quotient),
        ("of a quotient at a pole at one sample, not recorded", PART, "hypotheses: .*above.*recorded",
            lambda: of_quotient(m="sample").without("above"), lambda: of_quotient(m="sample")),
        ("of a quotient at a pole, recorded for another measure", PART,
            "hypotheses: .*above.*recorded .*above",
            lambda: of_quotient().without("above").assuming("above", "q", k1), of_quotient),
    ],
    "equation": [
        ("a region of what is known at one theta, differentiated", STEP1, "premise: it holds a detached",
            differentiated, lambda: differentiated(R)),
        ("a region of a region of what is known at one theta", STEP1, "premise: it holds a detached",
            lambda: beside_h(1), lambda: beside_h(0)),
    ],
    "curl": [
        ("of a loss that jumps, not recorded", PART, "hypotheses: .*apart.*recorded",
            lambda: token_field().without("apart"), token_field),
        ("of a quotient at a pole, not recorded", PART, "hypotheses: .*above.*recorded",
            lambda: field_of_quotient().without("above"), field_of_quotient),
    ],
    "score mean zero": [
        ("beside a region of the step itself", STEP1, "\\['now'\\] may depend on the slot now",
            lambda: causal("now", NOTHING), causal),
        ("beside a region, of the past", STEP1, "slot: one of", lambda: causal("past", NOTHING), causal),
    ],
    "independence": [
        ("of a region that joins two samples", STEP1, "a definition that names slots of a batch",
            lambda: Draft(mean_i("q", V("win") * own(R)), Em("q", R), **JOINED)
            .step("independence", Em("q", R)), batch_of_regions),
    ],
    "linearity": [
        ("by a region of parameters", STEP1, "constant: it depends on the sample, or may be 0",
            lambda: divided(up, NOTHING), lambda: divided(lam)),
    ],
    "citation": [
        ("of a theorem about another region of that name", STEP1, "names or premises not declared",
            lambda: cited((region("over", RATIO - beta - 1),)), cited),
        ("of a region that is a log here", STEP1, "names or premises not declared",
            lambda: powers_cited(log), powers_cited),
        ("of a theorem that is given a fact", STEP1, "names or premises not declared",
            lambda: assumed_fact(), lambda: assumed_fact(nu)),
    ],
    "finite model": [
        ("with a sample on a bound", CLOSE, "a sample on a bound, or too close to it",
            lambda: not_kl("1/2"), not_kl),
        ("in which a fact fails", CLOSE, "a fact fails in the model",
            lambda: not_kl("-1/3", PPO | {"facts": (nu,), "witness": (("nu", 0),)}),
            lambda: not_kl("2/3", PPO | {"facts": (nu,), "witness": (("nu", 0),)})),
    ],
    "completeness": [
        ("beside a region", CLOSE, "no premises, definitions or facts",
            lambda: solved_beside(region("up", k1)), solved_beside),
        ("given a fact", CLOSE, "no premises, definitions or facts",
            lambda: solved_beside(facts=[R], R=0), solved_beside),
    ],
}  # fmt: skip


# ---------------------------------------------------------------------------- what never holds
NEVER = "hypotheses: .* fails at the witness or at every sample"


def log_of(e: ExpPoly, *before: Any, **more: Any) -> Draft:
    """E_q[e/e + H] = E_q[1 + H] where l is log(e)."""
    held = setting("lam", *before, log("inv", e), **more)
    return Draft(Em("q", e * inv + H), Em("q", 1 + H), **held).step("definition", name="inv", times=ONE)


def at_no_tie(e: ExpPoly, *before: Any) -> Draft:
    """E_q[(1 - [e > 0]) (1 - [-e > 0])] = 0 where no sample has e = 0."""
    held = setting("", *before, region("up", e), region("down", -e))
    row = bound("up"), bound("down")
    return compared((1 - up) * (1 - down), *row, values={"up": 0, "down": 0}, apart=["up"], setting=held)


def given_lam(fact: ExpPoly, value: int) -> Draft:
    """E_q[up down R] = 0 for up = [lam k1 > 0] and lam > 0"""
    rows = bound("up"), bound("down", weight=lam)
    held = setting("lam", region("up", lam * k1), region("down", -k1), facts=[fact], lam=value)
    return compared(up * down * R, *rows, values={"up": 1, "down": 1}, times=R, setting=held)


def divided_by_lam(*facts: ExpPoly, value: int) -> Draft:
    """E_q[1 - [lam^2 > 0]] = 0 for lam that is not 0"""
    held = setting("lam", region("up", lam**2), facts=facts, lam=value)
    return compared(1 - up, bound("up", square=lam.invert()), values={"up": 0}, setting=held)


def premise(left: ExpPoly, right: ExpPoly) -> Draft:
    held = {"parameters": ("lam",), "premises": ((constant(left), constant(right)),)}
    return Draft(constant(left), constant(right), **held).equation(0)


flag, minus = region("flip", k1), Definition("c", "let", -ONE)
NEVER_HOLDS: dict[str, list[Any]] = {
    "definition": [
        ("a log of -1", PART, NEVER, lambda: log_of(-ONE), lambda: log_of(k1)),
        ("a log of 0", PART, NEVER, lambda: log_of(ZERO), lambda: log_of(k1 * R)),
        ("a log of a negative square", PART, NEVER, lambda: log_of(-(k1**2)), lambda: log_of(k1**2)),
        ("a log of a negative exponential", PART, NEVER,
            lambda: log_of(-r - k1**2), lambda: log_of(-r + k1**2)),
        ("a log of a negative length", PART, NEVER, lambda: log_of(-T), lambda: log_of(T)),
        ("a log of a region less 1", PART, NEVER, lambda: log_of(flip - 1, flag),
            lambda: log_of(1 - flip, flag)),
        ("a log of a region that is 0", PART, NEVER, lambda: log_of(flip, region("flip", -ONE)),
            lambda: log_of(flip, region("flip", k1 - 1))),
        ("a log of a name of -1", PART, NEVER, lambda: log_of(V("c") - k1**2, minus),
            lambda: log_of(V("c") + k1**2, minus)),
        ("a log of what a fact takes to 0", PART, NEVER,
            lambda: log_of(R * k1, facts=[R, -R], R=0), lambda: log_of(R * k1, facts=[R], R=1)),
    ],
    "region": [
        ("no sample where 0 = 0", PART, NEVER, lambda: at_no_tie(ZERO), lambda: at_no_tie(k1)),
        ("no sample where a region is not its square", PART, NEVER,
            lambda: at_no_tie(flip - flip**2, flag), lambda: at_no_tie(flip - 2 * flip**2, flag)),
        ("a positive weight that a fact makes negative", PART, NEVER,
            lambda: given_lam(-lam, -1), lambda: given_lam(lam, 1)),
        ("a positive weight that is 0 at the witness", PART, NEVER,
            lambda: given_lam(-lam, 0), lambda: given_lam(1 - lam, 1)),
        ("a divisor that facts take to 0", PART, NEVER,
            lambda: divided_by_lam(lam, -lam, value=0), lambda: divided_by_lam(-lam, value=-1)),
    ],
    "equation": [
        ("a premise that 0 is 1", PART, NEVER, lambda: premise(ZERO, ONE), lambda: premise(lam, ONE)),
        ("a premise that two numbers are equal", PART, NEVER,
            lambda: premise(lam + 1, lam), lambda: premise(lam + 1, 2 * lam)),
    ],
}  # fmt: skip


# ---------------------------------------------------------------------------- contexts
def declared(*rows: Any, **more: Any) -> Draft:
    """0 = 0 in a context that defines something."""
    return context(Draft(NOTHING, NOTHING), **({"definitions": plain(rows)} if rows else {}), **plain(more))


def known(*facts: ExpPoly, **witness: str) -> Draft:
    return declared(facts=facts, witness=witness)


def kinds(kind: str = "region", name: str = "up", e: Any = k1) -> Draft:
    return declared([name, kind, e])


CONTEXTS: list[Any] = [
    ("a definition of itself", PART, "unknown name 'up'", lambda: kinds(e=up), kinds),
    ("a definition of a later one", PART, "unknown name 'down'",
        lambda: declared(["up", "region", down], ["down", "region", k1]),
        lambda: declared(["down", "region", k1], ["up", "region", down])),
    ("a definition that holds what is detached", PART, "holds sg\\(..\\), or a derivative",
        lambda: kinds(e=sg(k1)), kinds),
    ("a region of a derivative", PART, "holds sg\\(..\\), or a derivative",
        lambda: context(kinds(e=V("f'")), functions={"f": ["k1"]}),
        lambda: context(kinds(e=f), functions={"f": ["k1"]})),
    ("a definition that divides", PART, "division by the random variable k1",
        lambda: kinds(e=k1.invert()), kinds),
    ("a definition called rho", PART, "'rho' cannot be declared", lambda: kinds(name="rho"), kinds),
    ("a definition called n", PART, "'n' cannot be declared", lambda: kinds(name="n"), kinds),
    ("a name defined twice", PART, "a name is declared twice",
        lambda: declared(["up", "region", k1], ["up", "region", -k1]), kinds),
    ("a parameter that is defined", PART, "a name is declared twice",
        lambda: context(kinds(), parameters=["up"]), kinds),
    ("a function that is defined", PART, "a name is declared twice",
        lambda: context(kinds(), functions={"up": ["k1"]}), kinds),
    ("a definition of an unknown kind", PART, "rows \\[name, one of \\['region', 'log', 'let', .*\\]",
        lambda: kinds("root"), kinds),
    ("a definition without a kind", PART, "rows \\[name", lambda: declared(["up", k1]), kinds),
    ("a definition with a further entry", PART, "rows \\[name",
        lambda: declared(["up", "region", k1, k1]), kinds),
    ("a definition that is no row", PART, "rows \\[name", lambda: declared(5), kinds),
    ("definitions by name", PART, "rows \\[name",
        lambda: context(Draft(NOTHING, NOTHING), definitions={"up": plain(k1)}), kinds),
    ("no definitions", PART, "context: the keys .* expected",
        lambda: context(Draft(NOTHING, NOTHING), definitions=[]), kinds),
    ("an unknown key", PART, "context: the keys .* expected", lambda: declared(regions=[k1]), kinds),
    ("a region that divides in a statement", PART, "division by the random variable up",
        lambda: Draft(Em("q", up.invert()), Em("q", up.invert()), **ABS),
        lambda: Draft(Em("q", up), Em("q", up), **ABS)),
    ("a derivative of a region", PART, "stands for no sum",
        lambda: Draft(Em("q", V("up'")), Em("q", V("up'")), **ABS),
        lambda: Draft(Em("q", sg(up)), Em("q", sg(up)), **ABS)),
    ("a sum of regions over positions", PART, "'up\\[past\\]': what is defined stands for no sum",
        lambda: Draft(sum_t("q", past(up)), sum_t("q", past(up)), **ABS),
        lambda: Draft(sum_t("q", now(up)), sum_t("q", now(up)), **ABS)),
    ("a region of a prefix at one sample", PART, "'over' speaks of the slots \\['now', 'past'\\], not here",
        lambda: Draft(Em("q", over), Em("q", over), **PREFIX),
        lambda: Draft(sum_t("q", over), sum_t("q", over), **PREFIX)),
    ("a region of a prefix at another step", PART, "stands for no sum",
        lambda: Draft(sum_t("q", V("over[now]")), sum_t("q", V("over[now]")), **PREFIX),
        lambda: Draft(sum_t("q", over), sum_t("q", over), **PREFIX)),
    ("a region outside of its mean", PART, "a random coefficient stands outside its mean",
        lambda: Draft(constant(up), constant(up), **ABS),
        lambda: Draft(constant(up), constant(up), **SIZES)),
    ("a fact about densities", PART, "a fact speaks of R, A, M, H, H2, H3, H4, length and parameters alone",
        lambda: known(R + A + H + M + T + k1, R="0", A="0", H="0", M="0", length="1", k1="0"),
        lambda: known(R + A + H + M + T, R="0", A="0", H="0", M="0", length="1")),
    ("a fact about a region", PART, "unknown name 'up'|a fact speaks of",
        lambda: context(kinds(), facts=plain([up]), witness={"up": "1"}),
        lambda: context(kinds(), facts=plain([R]), witness={"R": "1"})),
    ("a fact about nothing", PART, "a fact speaks of", lambda: known(number(1), R="0"),
        lambda: known(R, R="0")),
    ("a fact about what is detached", PART, "holds sg\\(..\\)", lambda: known(sg(R), **{"sg(R)": "0"}),
        lambda: known(R, R="0")),
    ("facts that exclude one another", PART, "witness: a fact fails there",
        lambda: known(R - 1, -R, R="1"), lambda: known(R - 1, 2 - R, R="1")),
    ("a witness that fails", PART, "witness: a fact fails there", lambda: known(R, R="-1"),
        lambda: known(R, R="0")),
    ("a witness whose value is not known", PART, "or its value is no rational number",
        lambda: known(R.exp() - 1, R="1"), lambda: known(R.exp() - 1, R="0")),
    ("a witness at which a fact divides by 0", PART, "division by zero",
        lambda: context(known(R * lam.invert(), R="0", lam="0"), parameters=["lam"]),
        lambda: context(known(R * lam.invert(), R="0", lam="1"), parameters=["lam"])),
    ("a witness at which a fact is no rational number", PART, "or its value is no rational number",
        lambda: known(-R.exp(), R="1"), lambda: known(-R.exp() + 1, R="0")),
    ("a witness that is a list", PART, "a value for each name in the facts expected",
        lambda: declared(facts=[R], witness=["R"]), lambda: known(R, R="0")),
    ("a witness without a value", PART, "a value for each name in the facts expected",
        lambda: known(R + A, R="0"), lambda: known(R + A, R="0", A="0")),
    ("a witness with a value too much", PART, "a value for each name in the facts expected",
        lambda: known(R, R="0", A="0"), lambda: known(R, R="0")),
    ("a witness without facts", PART, "a value for each name in the facts expected",
        lambda: declared(witness={"R": "0"}), lambda: known(R, R="0")),
    ("facts without a witness", PART, "a value for each name in the facts expected",
        lambda: declared(facts=[R]), lambda: known(R, R="0")),
    ("a witness of a sequence without steps", PART, "no sequence has length = 0",
        lambda: known(T, length="0"), lambda: known(T, length="1")),
    ("a witness of half a step", PART, "no sequence has length = 1/2",
        lambda: known(T, length="1/2"), lambda: known(T - 3, length="3")),
    ("a witness of a negative number of steps", PART, "no sequence has length = -1",
        lambda: known(-T, length="-1"), lambda: known(3 - T, length="3")),
    ("a witness of a step of length 2", PART, "no sample has length\\[now\\] = 2",
        lambda: known(now(T) - 2, **{"length[now]": "2"}), lambda: known(now(T) - 1, **{"length[now]": "1"})),
    ("a witness of a step of no length", PART, "no sample has length\\[now\\] = 0",
        lambda: known(-now(T), **{"length[now]": "0"}), lambda: known(1 - now(T), **{"length[now]": "1"})),
    ("a witness of a sample of a batch without steps", PART, "no sequence has length = 0",
        lambda: known(own(T), **{"length[self]": "0"}), lambda: known(own(T), **{"length[self]": "1"})),
    ("a witness of a batch of one", PART, "n is the size of a batch",
        lambda: context(known(1 - n, n="1"), parameters=["n"]),
        lambda: context(known(2 - n, n="2"), parameters=["n"])),
    ("a witness of a batch of two and a half", PART, "n is the size of a batch",
        lambda: context(known(n, n="5/2"), parameters=["n"]),
        lambda: context(known(b, b="5/2"), parameters=["b"])),
    ("a witness of samples each better than the other", PART, "no sample has R\\[self\\] = 1",
        lambda: known(own(R) - other(R) - 1, **{"R[self]": "1", "R[other]": "0"}),
        lambda: known(own(R) - other(R), **{"R[self]": "1", "R[other]": "1"})),
    ("a witness of another reward in a batch", PART, "no sample has R\\[self\\] = -1",
        lambda: known(R, -own(R), **{"R": "1", "R[self]": "-1"}),
        lambda: known(R, own(R), **{"R": "1", "R[self]": "1"})),
    ("a witness of a reward without those of the steps", PART, "no sequence has R = 5 and R\\[now\\] = 0",
        lambda: known(R - 5, -now(R), **{"R": "5", "R[now]": "0"}),
        lambda: known(R - 5, 1 - now(R), **{"R": "5", "R[now]": "1"})),
    ("a witness of a step and a half", PART, "no sequence has R = 3 and R\\[now\\] = 2",
        lambda: known(R - 3, now(R) - 2, **{"R": "3", "R[now]": "2"}),
        lambda: known(R - 3, now(R) - 2, **{"R": "4", "R[now]": "2"})),
    ("a witness of steps that take off", PART, "no sequence has M = -2 and M\\[now\\] = 1",
        lambda: known(-M, now(M), **{"M": "-2", "M[now]": "1"}),
        lambda: known(-M, -now(M), **{"M": "-2", "M[now]": "-1"})),
    ("a witness of two lengths", PART, "no sequence has R = 2 and R\\[now\\] = 1",
        lambda: known(R, now(R), H, now(H), **{"R": "2", "R[now]": "1", "H": "3", "H[now]": "1"}),
        lambda: known(R, now(R), H, now(H), **{"R": "2", "R[now]": "1", "H": "4", "H[now]": "2"})),
    ("a witness of another length", PART, "no sequence has R = 2 and R\\[now\\] = 1",
        lambda: known(T - 3, R, now(R), **{"length": "3", "R": "2", "R[now]": "1"}),
        lambda: known(T - 3, R, now(R), **{"length": "3", "R": "3", "R[now]": "1"})),
    ("a witness of an advantage, which is no sum", PART, "no sequence has R = 0 and R\\[now\\] = 1",
        lambda: known(-R, now(R) - 1, **{"R": "0", "R[now]": "1"}),
        lambda: known(-A, now(A) - 1, **{"A": "0", "A[now]": "1"})),
    ("a fact about the past, which is empty at the first step", PART, "unknown slot 'past'",
        lambda: known(past(R) - 1, **{"R[past]": "1"}), lambda: known(now(R) - 1, **{"R[now]": "1"})),
    ("a fact about the future, which is empty at the last step", PART, "unknown slot 'future'",
        lambda: known(V("length[future]") - 1, **{"length[future]": "1"}),
        lambda: known(T - 1, length="1")),
    ("a fact about the other samples", PART, "unknown slot 'others'",
        lambda: known(others(R), **{"R[others]": "0"}), lambda: known(other(R), **{"R[other]": "0"})),
    ("a witness that is a decimal", PART, "an exact number", lambda: known(R, R="0.5"),
        lambda: known(R, R="1/2")),
]  # fmt: skip

PAIRS = [
    Pair(rule, *row)
    for rule, rows in {
        "region": [*COMPARISONS, *NEVER_HOLDS["region"]],
        "definition": [*LOGS, *NEVER_HOLDS["definition"]], "log-derivative": GRADIENTS,
        **OTHERS, "equation": [*OTHERS["equation"], *NEVER_HOLDS["equation"]], "context": CONTEXTS,
    }.items()
    for row in rows
]  # fmt: skip
REGIONS = {rule: [pair[1:5] for pair in PAIRS if pair.rule == rule] for rule in {p.rule: 0 for p in PAIRS}}
