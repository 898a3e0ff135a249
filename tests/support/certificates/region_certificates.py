"""True certificates about regions and logs: the piecewise losses of trainers, unfolded by hand.

A clamp, a minimum or an absolute value is a polynomial in regions: min(rho A, clip(rho) A) is rho A less
pos high A (rho - 1 - nu) and neg low A (rho - 1 + nu), where nu is the width of the clip.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from klsym.kernel.definitions import Definition
from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import Side
from support.certificates.faulty_certificates import *
from support.certificates.kernel_words import Mg
from support.certificates.region_words import bound, cell, log, region
from support.certificates.slot_helpers import mean_i, n, now, others, own, past, sum_t
from support.certificates.valid_certificates import refuted
from support.faulty.trees import node

HALF, TENTH, TWO_ = Fraction(1, 2), Fraction(1, 10), number(2)
NAMES = ("pos", "neg", "high", "low", "out", "under", "over", "short", "long", "up", "down", "below")
pos, neg, high, low, out, under, over, short, long, up, down, below = map(V, NAMES)
inv = (-V("inv")).exp()  # 1/e where inv is log(e)
o, M = V("o"), V("M")


def setting(parameters: str, *definitions: Definition, facts: Any = (), **witness: int) -> dict[str, Any]:
    """The context of a draft."""
    return {
        "parameters": tuple(parameters.split()), "definitions": definitions, "facts": tuple(facts),
        "witness": tuple(sorted(witness.items())),
    }  # fmt: skip


# ---------------------------------------------------------------------------- clipped ratios
SIGNS = (region("pos", A), region("neg", -A))
CLIP = (region("high", rho - 1 - nu), region("low", 1 - nu - rho))
PPO = setting("nu", *SIGNS, *CLIP)


def clipped(x: ExpPoly = rho, up: ExpPoly = high, down: ExpPoly = low) -> ExpPoly:
    """-min(x A, clip(x, 1 - nu, 1 + nu) A)."""
    return -A * x + pos * up * A * (x - 1 - nu) + neg * down * A * (x - 1 + nu)


CLIPPED, KEPT = clipped(), 1 - pos * high - neg * low  # KEPT: where the ratio is not clipped
JUMPS = {"high": pos * A, "low": -neg * A}
TOKEN = clipped(now(rho), now(high), now(low))
TOKEN_KEPT = 1 - pos * now(high) - neg * now(low)
TOKEN_JUMPS = {"high[now]": pos * A, "low[now]": -neg * A}


def ppo(coefficient: ExpPoly = -A * KEPT) -> Draft:
    """E_mu[grad L] = E_q[c s]"""
    draft = Draft(Mg("mu", CLIPPED), Em("q", coefficient, 1), **PPO)
    return draft.step("chain rule").step("change of measure", to="q")


def objective(
    loss: ExpPoly, context: dict[str, Any], believed: Side | None = None, index: str = "", **jumps: ExpPoly
) -> Draft:
    """E_mu[grad L] = grad E_mu[L]"""
    draft = Draft(mean_grad(index, "mu", loss), grad(mean(index, "mu", loss)), **context)
    return draft.right("log-derivative", believed, **({"jumps": jumps} if jumps else {}))


def ppo_objective() -> Draft:
    return objective(CLIPPED, PPO, **JUMPS)


def ppo_token() -> Draft:
    draft = Draft(Mg("mu", TOKEN, "t"), sum_t("mu", -A * now(rho) * TOKEN_KEPT, "now"), **PPO)
    return draft.step("chain rule")


def ppo_token_objective() -> Draft:
    return objective(TOKEN, PPO, index="t", **TOKEN_JUMPS)


ON_POLICY = setting("nu", *SIGNS, region("high", -nu), region("low", -nu), facts=[nu], nu=1)
COPY = on_policy(rho)


def ppo_on_policy(context: dict[str, Any] = ON_POLICY, believed: Side | None = None, *facts: Any) -> Draft:
    """At q = mu no ratio is clipped, as nu >= 0."""
    draft = Draft(Eg("q", clipped(COPY)), Em("q", -A, 1), **context).step("chain rule")
    facts = facts or (bound(0),)
    first = Em("q", -A * (1 - neg * low), 1) if believed is not None else None
    draft.step("region", first, **cell({"high": 1}, bound("high"), *facts, times=A * pos))
    return draft.step("region", believed, **cell({"low": 1}, bound("low"), *facts, times=A * neg))


ABOVE, BELOW = rho - 1 - nu, rho - 1 + nu  # 0 on the bounds
GAP = A * high * ABOVE + A * low * BELOW  # rho A less clip(rho) A
TYPED = setting("nu", *SIGNS, *CLIP, region("second", GAP), facts=[nu], nu=1)


def as_typed() -> Draft:
    """-min(rho A, clip(rho) A), where `second` chooses the clipped one, is the polynomial above."""
    second = V("second")
    draft = Draft(point(-(A * rho - second * GAP)), point(CLIPPED), **TYPED)
    for bound_, other, sign, e in (("high", "low", "pos", ABOVE), ("low", "high", "neg", BELOW)):
        for chosen in (0, 1):
            values = {bound_: 1, other: 0, "second": chosen, sign: 1 - chosen}
            rows, b = (bound("second"), bound(sign, bound_)), A * e * (1 if chosen else -1)
            draft.step("region", **cell(values, *rows, times=b))
    b = A * ABOVE * (second - pos) + A * BELOW * (second - neg)
    rows = (bound("high"), bound("low"), bound(0, weight=TWO_))
    return draft.step("region", **cell({"high": 1, "low": 1}, *rows, times=b))


GSPO = setting("nu", *SIGNS, region("high", (w * T.invert()).exp() - 1 - nu),
               region("low", 1 - nu - (w * T.invert()).exp()))  # fmt: skip
MEAN_RATIO = (w * T.invert()).exp()


def gspo() -> Draft:
    draft = Draft(Mg("mu", clipped(MEAN_RATIO)), Em("mu", -A * MEAN_RATIO * T.invert() * KEPT, 1), **GSPO)
    return draft.step("chain rule")


def gspo_objective() -> Draft:
    return objective(clipped(MEAN_RATIO), GSPO, **JUMPS)


def not_kl(nu_: str = "2/3", context: dict[str, Any] = PPO, **rewards: Any) -> Draft:
    """PPO's expected gradient is not that of KL(q||p)."""
    draft = Draft(grad(Em("mu", CLIPPED)), grad(Em("q", k1)), **context)
    draft.step("log-derivative", jumps=JUMPS).step("chain rule")
    draft.right("log-derivative").right("chain rule", term=1)
    tree = {"q": ["1/2", "1/2"], "p": ["1/4", "3/4"], "mu": ["1/3", "2/3"], "u": ["1", "0"], "v": ["0", "0"],
            "rewards": rewards or {"A": ["-1", "1"]}, "next": [None, None]}  # fmt: skip
    return refuted(draft, tree, nu=nu_)


# ---------------------------------------------------------------------------- detached weights
CISPO = setting("beta", region("over", rho - beta))
CAPPED = rho - over * (rho - beta)  # min(rho, beta)


CISPO_KEPT = -A * (1 - over) - A * over * beta * (-w).exp()


def cispo(coefficient: ExpPoly = CISPO_KEPT) -> Draft:
    """-sg(min(rho, beta)) A log q"""
    draft = Draft(Mg("mu", -sg(CAPPED) * A * log_q), Em("q", coefficient, 1), **CISPO)
    return draft.step("chain rule").step("change of measure", to="q")


OLD = setting("beta", region("over", (w - o).exp() - beta))
STALE = (w - o).exp() - over * ((w - o).exp() - beta)  # min(old/mu, beta)


def tis() -> Draft:
    """-sg(min(old/mu, beta)) (q/old) A"""
    coefficient = -A * (1 - over) - A * over * beta * (o - w).exp()
    draft = Draft(Mg("mu", -sg(STALE) * o.exp() * A), Em("q", coefficient, 1), **OLD)
    return draft.step("chain rule").step("change of measure", to="q")


def tis_objective() -> Draft:
    """Attached it is the same: old and mu do not move."""
    return objective(-STALE * o.exp() * A, OLD)


ICEPOP = setting("a lam", region("short", a - rho), region("long", rho - lam), facts=[lam - a], a=0, lam=1)
MASKED = -(1 - short) * (1 - long) * rho * A


def icepop(
    *rows: Any, context: dict[str, Any] = ICEPOP, believed: Side | None = None, times: ExpPoly = -A
) -> Draft:
    """A detached mask 1[a <= rho <= lam] on rho A."""
    mask = sg((1 - short) * (1 - long))
    draft = Draft(Mg("mu", -mask * rho * A), Em("q", -A * (1 - short - long), 1), **context)
    draft.step("chain rule").step("change of measure", to="q")
    rows = rows or (bound("short"), bound("long"), bound(0))
    return draft.step("region", believed, **cell({"short": 1, "long": 1}, *rows, times=times))


def mask_objective(believed: Side | None = None, **jumps: ExpPoly) -> Draft:
    """Attached, the mask jumps."""
    return objective(MASKED, ICEPOP, believed, **jumps)


PREFIX = setting("beta", region("over", (V("w[past]") + V("w[now]")).exp() - beta))
RATIO = past(rho) * now(rho)


def prefix_ratio() -> Draft:
    """The ratio of the prefix up to a token, capped: a region that names two slots."""
    loss = -sg(RATIO - over * (RATIO - beta)) * now(R * log_q)
    right = sum_t("q", -now(R) * (1 - over) - now(R) * over * beta * RATIO.invert(), "now")
    draft = Draft(Mg("mu", loss, "t"), right, **PREFIX).step("chain rule")
    return draft.step("change of measure", to="q").step("ratio mean one", of="mu", slot="future")


def causal(score: str = "future", believed: Side | None = None, slot: str = "") -> Draft:
    """A later score has mean 0 beside a region of what came before."""
    draft = Draft(sum_t("q", over, score), NOTHING, **PREFIX)
    return draft.step("score mean zero", believed, slot=slot or score)


def mask_of_tokens(**change: Any) -> Draft:
    """min(M, 1) = M, given M <= 1."""
    more = V("more")
    context = setting("", region("more", M - 1), facts=[1 - M], M=0)
    draft = Draft(Mg("mu", (M - more * (M - 1)) * k2), Em("mu", M * k1, 1), **context).step("chain rule")
    return draft.step("region", **cell({"more": 1}, bound("more"), bound(0), times=(1 - M) * k1))


# ---------------------------------------------------------------------------- clamped estimators
K3 = setting("", region("out", k3 - 10), region("under", 10 - k3))
TIE = (out + 1 - under) * HALF  # 1 above the bound, 1/2 on it
CLAMPED = k3 - TIE * (k3 - 10)


def clamped_k3() -> Draft:
    """min(k3, 10) on-policy, with the slope of torch on the bound."""
    return Draft(Eg("q", CLAMPED), Em("q", (1 - r) * (1 - TIE), 1), **K3).step("chain rule")


def clamped_k3_bias() -> Draft:
    """It is the forward KL and a bias."""
    right = Em("q", -r, 1) - Em("q", TIE * (1 - r), 1)
    draft = Draft(Eg("q", CLAMPED), right, **K3).step("chain rule")
    return draft.step("score mean zero", slot="x", part=ONE)


def clamped_k3_no_ties() -> Draft:
    """Where no sample is on the bound, one region is enough."""
    draft = Draft(Eg("q", CLAMPED), Em("q", (1 - out) * (1 - r), 1), **K3).step("chain rule")
    both, slope = (bound("under"), bound("out")), (1 - r) * HALF
    draft.step("region", **cell({"out": 0, "under": 0}, *both, times=-slope, apart=["out"]))
    return draft.step("region", **cell({"out": 1, "under": 1}, *both, times=slope))


def clamped_k3_objective() -> Draft:
    loss = k3 - out * (k3 - 10)
    draft = Draft(
        grad(Em("q", loss)), Em("q", (1 - out) * (1 - r) + loss, 1), **setting("", region("out", k3 - 10))
    )
    return draft.step("log-derivative", jumps={"out": -ONE}).step("chain rule", term=1)


def token_field() -> Draft:
    """Per token, clamped k3 is the gradient of nothing."""
    context = setting("", region("out", k3 - TENTH))
    loss = now(k3 - out * (k3 - TENTH))
    last = node(q=["1/4", "3/4"], p=["9/10", "1/10"], mu=["1/4", "3/4"], u=["0", "0"], v=["1", "0"])
    other = node(q=["1/3", "2/3"], p=["1/2", "1/2"], mu=["1/3", "2/3"], u=["0", "0"], v=["0", "1"])
    tree = node(q=["1/2", "1/2"], p=["1/5", "4/5"], u=["1", "0"], v=["0", "0"], next=[last, other])
    return refuted(Draft(curl("t", "q", loss), NOTHING, **context).step("curl"), tree)


def never_chosen(of: ExpPoly = k1 - 1, believed: Side | None = None) -> Draft:
    """max(k2, k1 - 1/2) = k2: the other is never larger."""
    e = k2 - k1 + HALF
    draft = Draft(Eg("q", k1 - HALF + up * e), Em("q", k1, 1), **setting("", region("up", e)))
    data = cell({"up": 0}, bound("up", weight=TWO_), of=of, times=-ONE)
    return draft.step("chain rule").step("region", believed, **data)


ABS = setting("", region("up", k1), region("down", -k1))


def absolute() -> Draft:
    """|k1| has the slope 0 at 0."""
    return Draft(Eg("q", k1 * (up - down)), Em("q", up - down, 1), **ABS).step("chain rule")


def absolute_objective(m: str = "mu") -> Draft:
    draft = Draft(grad(Em(m, k1 * (up - down))), Em(m, up - down, 1), **ABS)
    return draft.step("log-derivative", jumps={"up": ONE, "down": ONE}).step("chain rule")


def never_negative() -> Draft:
    """k3 >= 0, by a tangent."""
    draft = Draft(Em("p", below * R), NOTHING, **setting("", region("below", -k3)))
    return draft.step("region", **cell({"below": 1}, bound("below"), bound(tangent=-k1), times=R))


def batch_of_regions() -> Draft:
    """In a batch, a region belongs to one sample."""
    right = Em("q", out, 1).multiply(Em("q", R)) * (n - 1)
    draft = Draft(mean_i("q", own(out) * others(R), "self"), right, **setting("n", region("out", k3 - 10)))
    return draft.step("independence")


# ---------------------------------------------------------------------------- logs
SIGMOID = setting("", log("inv", 1 + r))
KEPT_TOKENS = setting("", log("inv", M))


def sigmoid(coefficient: ExpPoly = inv - inv**2, times: ExpPoly = inv) -> Draft:
    """The slope of 1/(1 + exp(-k1)) = v is v (1 - v)."""
    draft = Draft(Mg("mu", inv), Em("mu", coefficient, 1), **SIGMOID).step("chain rule")
    return draft.step("definition", name="inv", times=times)


def sigmoid_is_not_kl() -> Draft:
    draft = Draft(Mg("q", inv), grad(Em("q", k1)), **SIGMOID).step("chain rule")
    draft.right("log-derivative").right("chain rule", term=1)
    return refuted(draft, node(q=["1/2", "1/2"], p=["1/4", "3/4"], u=["1", "0"]))


def kept_token_mean() -> Draft:
    """sum_t M_t k2_t / sum_t M_t"""
    draft = Draft(Mg("mu", inv * now(M * k2), "t"), sum_t("mu", inv * now(M * k1), "now"), **KEPT_TOKENS)
    return draft.step("chain rule")


def kept_token_mean_of_one() -> Draft:
    draft = Draft(Em("mu", inv * M), constant(1), **KEPT_TOKENS)
    return draft.step("definition", name="inv", times=ONE).step("normalisation")


def divided_by_a_region() -> Draft:
    """Where no sample lies outside of it."""
    draft = Draft(Em("q", inv * pos), constant(1), **setting("", region("pos", k1), log("inv", pos)))
    return draft.step("definition", name="inv", times=ONE).step("normalisation")


CERTIFICATES: dict[str, Callable[[], Draft]] = {
    draft.__name__.replace("_", " "): draft
    for draft in (
        ppo, ppo_objective, ppo_token, ppo_token_objective, ppo_on_policy, as_typed, gspo, gspo_objective,
        not_kl, cispo, tis, tis_objective, icepop, mask_objective, prefix_ratio, causal, mask_of_tokens,
        clamped_k3, clamped_k3_bias, clamped_k3_no_ties, clamped_k3_objective, token_field, never_chosen,
        absolute, absolute_objective, never_negative, batch_of_regions, sigmoid, sigmoid_is_not_kl,
        kept_token_mean, kept_token_mean_of_one, divided_by_a_region,
    )
}  # fmt: skip
