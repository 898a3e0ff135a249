"""Theorems that are false where a hypothesis of theirs fails, recorded without it.

Optional stopping: a player stakes A[past] = 2^k until the first win (q = 1/2), and a forced step with the
opposite stake follows each bet.  Then the sums over t have means 1/2, 1/2 and 0, though each term has mean 0.
"""

from __future__ import annotations

from support.certificates.faulty_certificates import *
from support.certificates.kernel_words import row
from support.certificates.slot_helpers import future, lone, mean, mean_i, now, own, past, sum_t
from support.faulty.closings import ER, sold, witness
from support.faulty.inequalities import rows

ENDS_P, ENDS_Q, ENDS_MU = (f"hypotheses: .*'ends', '{m}'.*recorded" for m in ("p", "q", "mu"))
EXISTS = "hypotheses: .*exists.*recorded"
NONZERO = "hypotheses: .*'nonzero', 'beta'.*recorded"
BETA = {"parameters": ("beta",)}
ONE_OVER_BETA = beta.invert()
CITED = Draft(Em("q", r), constant(1)).step("ratio mean one", of="p", slot="x").step("normalisation")
STEPS = sum_t("q", ONE)
TOKENS = Draft(Em("q", k1), sum_t("q", now(k1))).step("sum over t", of="k1")

STOPPING = {
    "score mean zero": [
        ("bets until the first win", PART, EXISTS,
            lambda: Draft(sum_t("q", past(A), "now"), NOTHING).step("score mean zero", slot="now")
            .without("exists")),
        ("bets until the first win and the score of what follows", PART, EXISTS,
            lambda: Draft(sum_t("q", past(A) + now(A), "future"), NOTHING)
            .step("score mean zero", slot="future").without("exists")),
        ("bets in a batch", PART, EXISTS,
            lambda: Draft(mean("it", "q", past(A), "now"), NOTHING).step("score mean zero", slot="now")
            .without("exists")),
        ("bets that the sum beside them names", PART, EXISTS,
            lambda: Draft(sum_t("q", past(A) + now(A), "now"), sum_t("q", now(A), "now"))
            .step("score mean zero", slot="now", part=past(A)).without("exists")),
        ("the sum without absolute values", PART, EXISTS,
            lambda: Draft(sum_t("q", past(A), "now"), NOTHING).step("score mean zero", slot="now")
            .without("exists").assuming("exchange", lone(sum_t("q", past(A), "now")))),
    ],
    "ratio mean one": [
        ("bets weighted by a ratio", PART, EXISTS,
            lambda: Draft(sum_t("q", past(A) * now(r)), sum_t("q", past(A)))
            .step("ratio mean one", of="p", slot="now").without("exists")),
        ("bets weighted by the ratio of what follows", PART, EXISTS,
            lambda: Draft(sum_t("q", now(A) * future(r)), sum_t("q", now(A)))
            .step("ratio mean one", of="p", slot="future").without("exists")),
        ("bets weighted by another policy in a batch", PART, EXISTS,
            lambda: Draft(mean("it", "q", past(A) * (-now(w)).exp()), mean("it", "q", past(A)))
            .step("ratio mean one", of="mu", slot="now").without("exists")),
    ],
}  # fmt: skip

ENDS = {
    "ratio mean one": [
        ("beside a length, of a policy that need not end", PART, ENDS_P,
            lambda: Draft(Em("q", r + T), constant(1) + STEPS)
            .step("ratio mean one", of="p", slot="x", part=r).step("normalisation", part=ONE)
            .step("sum over t", of="length", term=1).without("ends", "p")),
        ("beside a sum over t, of a policy that need not end", PART, ENDS_P,
            lambda: Draft(Em("q", r) + STEPS, constant(1) + STEPS).step("ratio mean one", of="p", slot="x")
            .step("normalisation", term=0).without("ends", "p")),
        ("beside a detached length", PART, ENDS_P,
            lambda: Draft(Em("q", r + sg(T)), constant(1) + Em("q", sg(T)))
            .step("ratio mean one", of="p", slot="x", part=r).step("normalisation", part=ONE)
            .without("ends", "p")),
        ("of a batch beside a sum over t", PART, ENDS_MU,
            lambda: Draft(mean_i("q", (-own(w)).exp()) + STEPS, constant(1) + STEPS)
            .step("ratio mean one", of="mu", slot="self", term=0).step("normalisation", term=0)
            .without("ends", "mu")),
    ],
    "normalisation": [
        ("beside a length, of a policy that need not end", PART, ENDS_MU,
            lambda: Draft(Em("mu", ONE + T), constant(1) + Em("mu", T)).step("normalisation", part=ONE)
            .without("ends", "mu")),
    ],
    "score mean zero": [
        ("of the mass of a policy that need not end", PART, ENDS_Q,
            lambda: Draft(Em("q", ONE + T, 1), Em("q", T, 1)).step("score mean zero", slot="x", part=ONE)
            .without("ends", "q")),
    ],
    "citation": [
        ("of a mass among sequences that need not end", PART, ENDS_P,
            lambda: Draft(Em("q", r) + STEPS, constant(1) + STEPS, cites=(CITED,)).equation(0, cited=0)
            .without("ends", "p")),
        ("of sums over t that the statement does not name", PART, ENDS_P,
            lambda: Draft(Em("q", r + k1), constant(1) + Em("q", k1), cites=(TOKENS,))
            .step("ratio mean one", of="p", slot="x", part=r).step("normalisation", part=ONE)
            .equation(0, cited=0).equation(0, cited=0, times=constant(-1)).without("ends", "p")),
    ],
}  # fmt: skip

DIVISORS = {
    "square": [
        ("a divisor in the exponent of the scale", PART, NONZERO,
            lambda: rows(Em("q", -k1 * k1 * ONE_OVER_BETA.exp()), NOTHING,
                         row("square", k1, scale=ONE_OVER_BETA.exp()), **BETA).without("nonzero")),
        ("a divisor that the row cancels", PART, NONZERO,
            lambda: rows(Em("q", -k1 * k1 * ONE_OVER_BETA * ONE_OVER_BETA), NOTHING,
                         row("square", k1, factor=ONE_OVER_BETA), **BETA).without("nonzero")),
        ("a divisor in what is squared", PART, NONZERO,
            lambda: rows(Em("q", -k1 * k1 * ONE_OVER_BETA * ONE_OVER_BETA), NOTHING,
                         row("square", k1 * ONE_OVER_BETA), **BETA).without("nonzero")),
        ("a divisor in the weight", PART, NONZERO,
            lambda: rows(Em("q", -k1 * k1 * (k1 * ONE_OVER_BETA).exp()), NOTHING,
                         row("square", k1, v=k1 * ONE_OVER_BETA), **BETA).without("nonzero")),
        ("a further policy that vanishes", PART, "hypotheses: .*'support', 'q', 'old'.*recorded",
            lambda: rows(Em("q", -(V("o").exp() - (-V("o")).exp()) ** 2), NOTHING,
                         row("square", V("o").exp() - (-V("o")).exp())).without("support")),
    ],
    "tangent": [
        ("a divisor in the exponent of the scale", PART, NONZERO,
            lambda: rows(Em("q", (1 + k1 - k1.exp()) * ONE_OVER_BETA.exp()), NOTHING,
                         row("tangent", k1, scale=ONE_OVER_BETA.exp()), **BETA).without("nonzero")),
    ],
    "finite model": [
        ("an enclosure that is an object", CLOSE, "left side: enclosed in \\['1', '1'\\], recorded \\{",
            lambda: sold(*ER, witness("1", "2") | {"left": {"1": "proved", "1/1": ""}})),
    ],
}  # fmt: skip
FORGOTTEN = (STOPPING, ENDS, DIVISORS)
