"""False comparisons of regions, and uses of inverses, each beside a true one without the mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from klsym.kernel.ring import ExpPoly
from support.certificates.faulty_certificates import *
from support.certificates.region_certificates import *
from support.certificates.region_words import bound, cell, region
from support.certificates.slot_helpers import now, past, sum_t

ROWS = "the rows do not add up to -x\\^2, or to 0 with one positive"
UNKNOWN = "is neither a region of the cell nor a fact"


class Pair(NamedTuple):
    """A mistake, how it is refused, and the same without the mistake."""

    rule: str
    mistake: str
    where: str
    message: str
    wrong: Callable[[], Draft | dict[str, Any]]
    right: Callable[[], Draft]


def compared(
    element: ExpPoly,
    *rows: Any,
    values: dict[str, int] | None = None,
    setting: Any = ABS,
    m: str = "q",
    index: str = "",
    **data: Any,
) -> Draft:
    """E_m[element] = 0 in one comparison."""
    draft = Draft(mean(index, m, element), NOTHING, **setting)
    return draft.step("region", NOTHING, **cell(values or {}, *rows, **data))


def both(*rows: Any, **data: Any) -> Draft:
    """E_q[up down R] = 0"""
    rows = rows or (bound("up"), bound("down"))
    return compared(up * down * R, *rows, values={"up": 1, "down": 1}, times=R, **data)


def neither(*rows: Any, **data: Any) -> Draft:
    """E_q[(1 - up)(1 - down) R] = 0, off the bound"""
    rows = rows or (bound("up"), bound("down"))
    data = {"times": R, "apart": ["up"], **data}
    return compared((1 - up) * (1 - down) * R, *rows, values={"up": 0, "down": 0}, **data)


MORE = setting("", region("more", M - 1), facts=[1 - M], M=0)


def masked(fact: int = 0, context: Any = MORE) -> Draft:
    """E_q[[M > 1] R] = 0, given M <= 1"""
    more = V("more")
    return compared(more * R, bound("more"), bound(fact), values={"more": 1}, times=R, setting=context)


LAM = setting("lam", region("up", lam * k1), region("down", -k1))
EVEN = setting("lam", region("up", lam**2))


def weighted(weight: ExpPoly = lam) -> Draft:
    """E_q[up down R] = 0 for up = [lam k1 > 0] and lam > 0"""
    return compared(
        up * down * R, bound("up"), bound("down", weight=weight), values={"up": 1, "down": 1}, times=R,
        setting=LAM,
    )  # fmt: skip


def even() -> Draft:
    """E_q[1 - [lam^2 > 0]] = 0 for lam that is not 0"""
    return compared(1 - up, bound("up", square=lam.invert()), values={"up": 0}, setting=EVEN)


def signs_of_f() -> Draft:
    """E_mu[[f > 0] [-f > 0] R] = 0 for a function f of k1"""
    context = setting("", region("up", f), region("down", -f)) | {"functions": (("f", ("k1",)),)}
    return both(setting=context, m="mu")


def long_enough(e: ExpPoly, weight: ExpPoly, *rows: Any, square: Any = ONE) -> Draft:
    """E_q[1 - [e > 0]] = 0 for e that is positive if there is a step"""
    first = bound("up") if rows else bound("up", weight=weight)
    more = (bound(weight=weight, square=square), *rows) if rows else ()
    return compared(1 - up, first, *more, values={"up": 0}, setting=setting("", region("up", e)))


def per_step() -> Draft:
    """E_q[[R/T > 0] [-R/T > 0]] = 0"""
    context = setting("", region("up", R * T.invert()), region("down", -R * T.invert()))
    return both(setting=context)


TOUCHED = setting("", region("up", R), region("down", R * (k1.exp() - 1 - k1)))


def touched(**data: Any) -> Draft:
    """E_q[up (1 - down)] = 0: R > 0 and R (exp(k1) - 1 - k1) <= 0, which k1 = 0 satisfies"""
    rows = (bound("up", tangent=k1), bound("down"))
    return compared(up * (1 - down), *rows, values={"up": 1, "down": 0}, setting=TOUCHED, **data)


def product_of(*factors: str) -> Draft:
    """E_q[(1 - up)(1 - down) k1] = 0 by one row"""
    element = (1 - up) * (1 - down) * k1
    return compared(element, bound(*factors), values={"up": 0, "down": 0}, of=k1)


COMPARISONS: list[Any] = [
    ("the sign of the advantage flipped", CLOSE, DIFFER, lambda: ppo(A * KEPT), ppo),
    ("a bound of the clip forgotten", CLOSE, DIFFER, lambda: ppo(-A * (1 - pos * high)), ppo),
    ("the bounds of the clip swapped", CLOSE, DIFFER, lambda: ppo(-A * (1 - neg * high - pos * low)), ppo),
    ("clipped whatever the advantage is", CLOSE, DIFFER, lambda: ppo(-A * (1 - high - low)), ppo),
    ("cispo whose clamp stops the gradient", CLOSE, DIFFER, lambda: cispo(-A * (1 - over)), cispo),
    ("a slope at the kink by fiat", CLOSE, DIFFER,
        lambda: Draft(Eg("q", k1 * (up - down)), Em("q", 1 - 2 * down, 1), **ABS).step("chain rule"),
        absolute),
    ("no tie although none is excluded", STEP1, ROWS, lambda: neither(apart=[]), neither),
    ("no tie, not recorded", PART, "hypotheses: .*away.*recorded",
        lambda: neither().without("away"), neither),
    ("densities that vanish, not recorded", PART, "hypotheses: .*support.*recorded",
        lambda: both().without("support"), both),
    ("functions of densities that vanish, not recorded", PART, "hypotheses: .*support.*recorded",
        lambda: signs_of_f().without("support"), signs_of_f),
    ("a sequence without steps, not recorded", PART, "hypotheses: .*nonzero.*length.*recorded",
        lambda: long_enough(T, T.invert()).without("nonzero"), lambda: long_enough(T, T.invert())),
    ("a sequence without steps, in an element", PART, "hypotheses: .*nonzero.*length.*recorded",
        lambda: per_step().without("nonzero"), per_step),
    ("a sequence without steps, in a weight", PART, "hypotheses: .*positive.*length.*recorded",
        lambda: long_enough(T * R * R + 1, T, bound(), square=R).without("positive"),
        lambda: long_enough(T * R * R + 1, T, bound(), square=R)),
    ("apart from a bound on the side where it is 1", STEP1, "apart: regions that are 0 in the cell expected",
        lambda: both(apart=["up"]), both),
    ("a row left out", STEP1, ROWS, lambda: both(bound("up")), both),
    ("a row twice", STEP1, ROWS, lambda: both(bound("up"), bound("down"), bound("down")), both),
    ("a mask without the order of its ends", STEP3, UNKNOWN,
        lambda: icepop(context=ICEPOP | {"facts": (), "witness": ()},
                       believed=Em("q", -A * (1 - short - long), 1)), icepop),
    ("a mask whose proof leaves the order of its ends out", STEP3, ROWS,
        lambda: icepop(bound("short"), bound("long"), believed=Em("q", -A * (1 - short - long), 1)), icepop),
    ("a fact not recorded", PART, "hypotheses: .*fact.*recorded", lambda: icepop().without("fact"), icepop),
    ("a fact of another number", STEP1, f"'1' {UNKNOWN}", lambda: masked(1), masked),
    ("a fact counted from the end", STEP1, f"'-1' {UNKNOWN}", lambda: masked(-1), masked),
    ("a fact with the other sign", STEP1, ROWS,
        lambda: masked(0, setting("", region("more", M - 1), facts=[M - 1], M=1)), masked),
    ("a fact about another slot", STEP1, "unknown slot 'now'",
        lambda: masked(0, MORE | {"facts": (1 - now(M),), "witness": (("M[now]", 0),)}), masked),
    ("on-policy with nothing known of the width", STEP2, UNKNOWN,
        lambda: ppo_on_policy(ON_POLICY | {"facts": (), "witness": ()}, Em("q", -A, 1)), ppo_on_policy),
    ("on-policy with a negative width", STEP2, ROWS,
        lambda: ppo_on_policy(ON_POLICY | {"facts": (-nu,), "witness": (("nu", -1),)}, Em("q", -A, 1)),
        ppo_on_policy),
    ("a bound that is touched taken for one that is not", STEP2, ROWS,
        lambda: never_chosen(ONE, Em("q", k1 - 1 + ONE, 1)), never_chosen),
    ("a random weight", STEP1, "a positive factor of parameters, lengths and exp\\(..\\) expected",
        lambda: both(bound("up", weight=k1), bound("down", weight=k1)), both),
    ("a negative weight", STEP1, "the factor -1 is not positive",
        lambda: both(bound("up"), bound("up", weight=-ONE)), both),
    ("a weight of 0", STEP1, "a single term expected", lambda: both(bound("up", weight=ZERO)), both),
    ("a region as a weight", STEP1, "a positive factor", lambda: both(bound("up", weight=V("some")),
        bound("down"), setting=setting("lam", *ABS["definitions"], region("some", lam))), both),
    ("the length of what came before as a weight", STEP1, "a positive factor",
        lambda: compared(now(up), bound("up[now]", weight=past(T)), values={"up[now]": 1}, index="t"),
        lambda: compared(now(up * down), bound("up[now]", weight=T), bound("down[now]", weight=T),
                         values={"up[now]": 1, "down[now]": 1}, index="t")),
    ("a weight of unknown sign", PART, "hypotheses: .*positive.*lam.*recorded",
        lambda: weighted().without("positive"), weighted),
    ("the square of a weight in place of it", STEP1, ROWS, lambda: weighted(lam**2), weighted),
    ("a square that divides", PART, "hypotheses: .*nonzero.*lam.*recorded",
        lambda: even().without("nonzero"), even),
    ("a tangent that is no polynomial", STEP1, "exp of an exponential",
        lambda: compared(below * R, bound("below"), bound(tangent=-r), values={"below": 1}, times=R,
                         setting=setting("", region("below", -k3))), never_negative),
    ("a tangent at another point", STEP1, ROWS,
        lambda: compared(below * R, bound("below"), bound(tangent=k1), values={"below": 1}, times=R,
                         setting=setting("", region("below", -k3))), never_negative),
    ("a product that may be negative", STEP1, ROWS,
        lambda: product_of("up", "up"), lambda: product_of("up", "down")),
    ("a strict row that is a square", STEP1, ROWS,
        lambda: compared(1 - up, bound("up"), bound(square=k1), values={"up": 0},
                         setting=setting("", region("up", k1**2))),
        lambda: compared(1 - up, bound("up"), bound(square=k1), bound(), values={"up": 0},
                         setting=setting("", region("up", k1**2 + 1)))),
    ("a strict row that is a tangent", STEP1, ROWS, touched, lambda: touched(apart=["down"])),
    ("a cell of what is no region", STEP1, "cell: 0 or 1 expected for each of some regions",
        lambda: compared(k1, bound("k1"), values={"k1": 1}, of=k1), both),
    ("a cell of a log", STEP1, "cell: 0 or 1 expected",
        lambda: compared(inv, bound("inv"), values={"inv": 0}, setting=SIGMOID), both),
    ("a cell with another number", STEP1, "cell: 0 or 1 expected",
        lambda: compared(up, bound("up"), values={"up": -1}), both),
    ("a row about a region outside the cell", STEP1, UNKNOWN,
        lambda: compared(up * k1, bound("down"), bound("up"), values={"up": 1}, of=k1), both),
    ("inside an exponent", CLOSE, DIFFER,
        lambda: Draft(Em("q", (up * R).exp()), Em("q", 1 + up * (R.exp() - 1)), **ABS)
        .step("region", **cell({}, times=ZERO)),
        lambda: Draft(Em("q", up**2 * R.exp()), Em("q", up * R.exp()), **ABS)
        .step("region", **cell({}, times=ZERO))),
    ("at another step", STEP1, ROWS,
        lambda: compared(now(up) * down, bound("up[now]"), bound("down"), values={"up[now]": 1, "down": 1},
                         index="t"),
        lambda: compared(now(up * down), bound("up[now]"), bound("down[now]"),
                         values={"up[now]": 1, "down[now]": 1}, index="t")),
]  # fmt: skip

# ---------------------------------------------------------------------------- logs
LOGS: list[Any] = [
    ("a slope without its square", CLOSE, DIFFER, lambda: sigmoid(inv), sigmoid),
    ("another multiple", CLOSE, DIFFER, lambda: sigmoid(times=ONE), sigmoid),
    ("where it divides by 0, not recorded", PART, "hypotheses: .*above.*recorded",
        lambda: kept_token_mean_of_one().without("above"), kept_token_mean_of_one),
    ("where a density vanishes, not recorded", PART, "hypotheses: .*support.*recorded",
        lambda: sigmoid().without("support"), sigmoid),
    ("of a region", STEP1, "'up' is no name of a log",
        lambda: Draft(Em("q", up), constant(1), **ABS).step("definition", constant(1), name="up", times=ONE),
        kept_token_mean_of_one),
    ("of what is not defined", STEP1, "'inv' is no name of a log",
        lambda: Draft(Em("q", R), constant(1), **ABS).step("definition", constant(1), name="inv", times=ONE),
        kept_token_mean_of_one),
    ("of other positions", STEP1, "'inv\\[past\\]': what is defined stands for no sum over positions",
        lambda: Draft(sum_t("q", R), NOTHING, **SIGMOID)
        .step("definition", NOTHING, name="inv[past]", times=ONE),
        lambda: Draft(sum_t("q", now(inv * (1 + r))), sum_t("q", ONE), **SIGMOID)
        .step("definition", name="inv[now]", times=ONE)),
    ("of an indicator, not recorded", PART, "hypotheses: .*above.*recorded",
        lambda: divided_by_a_region().without("above"), divided_by_a_region),
]  # fmt: skip
