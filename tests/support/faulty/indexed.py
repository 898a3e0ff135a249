"""False derivations at an index of a batch or a sequence: sums, slots and independence."""

from __future__ import annotations

from typing import Any

from klsym.kernel.statements import Mean, Side
from support.certificates.faulty_certificates import *
from support.certificates.slot_helpers import (
    future,
    mean_i,
    n,
    now,
    other,
    others,
    own,
    past,
    rest,
    spread,
    sum_t,
    token_KL,
)  # fmt: skip
from support.faulty.batches import NEIGHBOURS

f1 = V("f'")
FUNCTIONS = (("f", ("k1", "log_q", "w")),)
BATCH: dict[str, Any] = {"parameters": ("n",)}
TO_GO = now(R) + future(R)
MEAN = mean_i("q", own(k1))

SUMS = {
    "sum over t": [
        ("the ratio of a sequence is no sum", STEP1, "k1 is no factor of the coefficient",
            lambda: Draft(Em("q", r), sum_t("q", now(r))).step("sum over t", sum_t("q", now(r)), of="k1")),
        ("k3 of a sequence for that of its tokens", STEP1, "k1 is no factor of the coefficient",
            lambda: Draft(Em("q", k3), sum_t("q", now(k3))).step("sum over t", sum_t("q", now(k3)), of="k1")),
        ("k2 of a sequence for that of its tokens", STEP1, GOT,
            lambda: Draft(Em("q", k2), sum_t("q", now(k2))).step("sum over t", sum_t("q", now(k2)), of="k1")),
        ("a divergence of sequences token by token", STEP1, GOT,  # without the weight of the prefix
            lambda: Draft(Em("p", -k1), sum_t("q", now(-r * k1)))
            .step("sum over t", sum_t("q", now(-r * k1)), of="k1")),
        ("an advantage", STEP1, "of: one of .* expected, got 'A'",
            lambda: Draft(Em("q", A), sum_t("q", now(A))).step("sum over t", sum_t("q", now(A)), of="A")),
        ("a detached log ratio", STEP1, "k1 is no factor of the coefficient",
            lambda: Draft(Em("q", sg(k1)), sum_t("q", now(k1)))
            .step("sum over t", sum_t("q", now(k1)), of="k1")),
        ("score and reward of the same step", STEP1, GOT,
            lambda: Draft(Em("q", R, 1), sum_t("q", now(R), "now"))
            .step("sum over t", sum_t("q", now(R), "now"), of="s")),
        ("one over the length", STEP1, "length is no factor",
            lambda: Draft(Em("q", R * T.invert()), sum_t("q", now(R)))
            .step("sum over t", sum_t("q", R), of="length")),
        ("the counting measure", STEP1, "a mean over whole sequences expected",
            lambda: Draft(Em("count", k1), NOTHING).step("sum over t", NOTHING, of="k1")),
        ("moment hypothesis left out", PART, "hypotheses: .*exists.*recorded \\[\\]",
            lambda: Draft(Em("q", R + r), Em("q", r) + sum_t("q", now(R)))
            .step("sum over t", of="R", part=R).without("exists")),
    ],
    "parts of a sum": [
        ("of one over the length", STEP1, "division by a sum",
            lambda: Draft(sum_t("q", T.invert()), constant(1)).step(
                "parts of a sum", sum_t("q", now(T).invert()), of=["length"])),
        ("of a generic function", STEP1, "of: a list of names among",
            lambda: Draft(sum_t("q", f), sum_t("q", past(f) + now(f) + future(f)), functions=FUNCTIONS)
            .step("parts of a sum", sum_t("q", past(f) + now(f) + future(f)), of=["f"])),
        ("of an advantage", STEP1, "of: a list of names among",
            lambda: Draft(sum_t("q", A), sum_t("q", past(A) + now(A) + future(A)))
            .step("parts of a sum", sum_t("q", past(A) + now(A) + future(A)), of=["A"])),
        ("without this step", STEP1, GOT,
            lambda: Draft(sum_t("q", R), sum_t("q", past(R) + future(R)))
            .step("parts of a sum", sum_t("q", past(R) + future(R)), of=["R"])),
        ("without the past", STEP1, GOT,
            lambda: Draft(sum_t("q", k1, "now"), sum_t("q", now(k1) + future(k1), "now"))
            .step("parts of a sum", sum_t("q", now(k1) + future(k1), "now"), of=["k1"])),
        ("a ratio as a sum of ratios", STEP1, GOT,
            lambda: Draft(sum_t("q", r), sum_t("q", past(r) + now(r) + future(r)))
            .step("parts of a sum", sum_t("q", past(r) + now(r) + future(r)), of=["k1"])),
        ("of one batch", STEP1, "a sum over t expected",
            lambda: Draft(mean_i("q", own(k1)), mean_i("q", others(k1)), **BATCH)
            .step("parts of a sum", mean_i("q", others(k1)), of=["k1"])),
        ("a part without its moment", PART, "hypotheses: .*exists.*recorded \\[\\]",
            lambda: Draft(sum_t("q", R + k1), sum_t("q", R + past(k1) + now(k1) + future(k1)))
            .step("parts of a sum", of=["k1"], part=k1).without("exists")),
        ("the second direction lost", STEP1, GOT,
            lambda: Draft(sum_t("q", R, "now", "x'"), sum_t("q", R, "now", "now"))
            .step("parts of a sum", sum_t("q", R, "now", "now"), of=["s"])),
    ],
    "exchange of sums": [
        ("the past beside the future", STEP1, "more than s and R depends on t: \\['past'\\]",
            lambda: Draft(sum_t("q", past(A) * future(R), "now"), sum_t("q", past(A) * now(R), "past"))
            .step("exchange of sums", sum_t("q", past(A) * now(R), "past"),
                  now="s", other="R", slot="future")),
        ("a weight of the steps between", STEP1, "depends on t",
            lambda: Draft(sum_t("q", future(k1 * r), "now"), sum_t("q", now(k1 * r), "past"))
            .step("exchange of sums", sum_t("q", now(k1 * r), "past"), now="s", other="k1", slot="future")),
        ("inside an exponent", STEP1, "is no factor of the coefficient",
            lambda: Draft(sum_t("q", future(r), "now"), sum_t("q", now(r), "past"))
            .step("exchange of sums", sum_t("q", now(r), "past"), now="s", other="k1", slot="future")),
        ("the slot kept", STEP1, GOT,
            lambda: Draft(sum_t("q", future(R), "now"), sum_t("q", now(R), "future"))
            .step("exchange of sums", sum_t("q", now(R), "future"), now="s", other="R", slot="future")),
        ("a square of a sum", STEP1, "depends on t",
            lambda: Draft(sum_t("q", future(R * R), "now"), sum_t("q", now(R * R), "past"))
            .step("exchange of sums", sum_t("q", now(R * R), "past"), now="s", other="R", slot="future")),
        ("an advantage", STEP1, "'A' is no sum over positions",
            lambda: Draft(sum_t("q", future(A), "now"), sum_t("q", now(A), "past"))
            .step("exchange of sums", sum_t("q", now(A), "past"), now="s", other="A", slot="future")),
        ("of the whole", STEP1, "slot: one of",
            lambda: Draft(sum_t("q", R, "now"), sum_t("q", now(R), "x"))
            .step("exchange of sums", sum_t("q", now(R), "x"), now="s", other="R", slot="x")),
        ("of samples", STEP1, "a sum over t expected",
            lambda: Draft(mean_i("q", own(k1) * others(R)), mean_i("q", own(R) * others(k1)), **BATCH)
            .step("exchange of sums", mean_i("q", own(R) * others(k1)), now="k1", other="R", slot="past")),
    ],
    "equality": [
        ("a next-token divergence under the wrong measure", CLOSE, DIFFER,
            lambda: Draft(token_KL("mu", "q", "p"), sum_t("mu", now(k1)))),
        ("a next-token divergence with the weight of the prefix", CLOSE, DIFFER,
            lambda: Draft(token_KL("mu", "q", "p"), sum_t("mu", past(rho) * now(k1)))),
        ("a sum over the next tokens for a value of the sequence", CLOSE, DIFFER,
            lambda: Draft(sum_t("q", k1), Em("q", k1))),
        ("the second moment for the variance of a mean", CLOSE, DIFFER,
            lambda: Draft(spread("q", own(k1), other(k1)), mean_i("q", own(k1) ** 2) * n.invert(), **BATCH)),
    ],
    "curl": [
        ("second direction dropped", STEP1, GOT,
            lambda: Draft(curl("t", "q", now(k2)), NOTHING)
            .step("curl", sum_t("q", now(k1), "now", "x"))),
        ("the prefixes held fixed", STEP1, GOT,
            lambda: Draft(curl("t", "q", now(k2)), NOTHING).step("curl", NOTHING)),
        ("a detached weight that moves", STEP1, GOT,
            lambda: Draft(curl("t", "p", past(sg(w)) * now(k1)), NOTHING).step("curl", NOTHING)),
        ("the sampler taken for q", STEP1, GOT,
            lambda: Draft(curl("t", "mu", now(k2)), sum_t("mu", now(k1), "now", "x'")
                          - sum_t("mu", now(k1), "now'", "x"))
            .step("curl", sum_t("mu", now(k1), "now", "x'") - sum_t("mu", now(k1), "now'", "x"))),
        ("a function of the past", STEP1, "sg\\(f\\[past\\]\\)|f\\[past\\] is a sum over positions",
            lambda: Draft(curl("t", "q", past(sg(f)) * now(k1)), NOTHING, functions=FUNCTIONS)
            .step("curl", NOTHING)),
        ("exchange hypothesis left out", PART, "hypotheses: .*exchange.*recorded",
            lambda: Draft(curl("t", "q", k2), NOTHING).step("curl").without("exchange")),
        ("a weight that is held constant", STEP1, GOT,  # sg(.) is held constant inside the loss alone
            lambda: Draft(curl("t", "mu", sg(f) * now(R * k1)), NOTHING, functions=FUNCTIONS)
            .step("curl", NOTHING)),
        ("the exchange in the loss for that in its gradient", PART, "hypotheses: .*exchange.*recorded",
            lambda: Draft(curl("", "q", k2), NOTHING).step("curl").without("exchange")
            .assuming("exchange", Mean("", "q", k2))),
        ("sequences that need not end", PART, "hypotheses: .*ends.*recorded",
            lambda: Draft(curl("t", "q", k2), NOTHING).step("curl").without("ends")),
    ],
}  # fmt: skip

BATCHES = {
    "independence": [
        ("an exponent that joins samples", STEP1, "an exponent joins the slots",
            lambda: Draft(mean_i("q", (own(k1) * others(k1)).exp()), Em("q", k1.exp()), **BATCH)
            .step("independence", Em("q", k1.exp()))),
        ("three sums over the others", STEP1, "a product of 3 sums over positions",
            lambda: Draft(mean_i("q", others(k1) ** 3), Em("q", (n - 1) * k1**3), **BATCH)
            .step("independence", Em("q", (n - 1) * k1**3))),
        ("a batch of unknown size", STEP1, "the batch size n is not declared",
            lambda: Draft(mean_i("q", others(k1)), Em("q", k1)).step("independence", Em("q", k1))),
        ("an advantage of all the others", STEP1, "A\\[others\\] is any function of its slot",
            lambda: Draft(mean_i("q", others(A)), Em("q", (n - 1) * A), **BATCH)
            .step("independence", Em("q", (n - 1) * A))),
        ("an exponent of the sum of the others", STEP1, "an exponent holds the sum over others",
            lambda: Draft(mean_i("mu", others(w).exp() * own(R)), Em("mu", R), **BATCH)
            .step("independence", Em("mu", R))),
        ("at one batch", STEP1, "a mean over batches expected",
            lambda: Draft(mean_i("sample", own(k1) * others(k1)), QP.multiply(QP), **BATCH)
            .step("independence", QP.multiply(QP))),
        ("of the steps of a sequence", STEP1, "a mean over batches expected",
            lambda: Draft(sum_t("q", past(k1) * now(k1)), sum_t("q", past(k1)).multiply(sum_t("q", now(k1))))
            .step("independence", sum_t("q", past(k1)).multiply(sum_t("q", now(k1))))),
        ("n others instead of n less one", STEP1, GOT,
            lambda: Draft(mean_i("q", others(k1)), Em("q", n * k1), **BATCH)
            .step("independence", Em("q", n * k1))),
        ("the square of a sum without its pairs", STEP1, GOT,
            lambda: Draft(mean_i("q", others(k1) ** 2), Em("q", (n - 1) * k1**2), **BATCH)
            .step("independence", Em("q", (n - 1) * k1**2))),
        ("a score that meets its own sum", STEP1, GOT,
            lambda: Draft(mean_i("q", others(k1), "others"), NOTHING, **BATCH).step("independence", NOTHING)),
        ("an equation at other samples as well", STEP1, GOT,
            lambda: Draft(mean_i("q", own(k1) * others(R)), Em("q", k1 * R), **BATCH)
            .step("independence", Em("q", k1 * R))),
        ("batch hypothesis left out", PART, "hypotheses: .*batch.*recorded",
            lambda: Draft(MEAN, Em("q", k1), **BATCH).step("independence").without("batch")),
        ("moments of a product of means left out", PART, "hypotheses: .*exists.*recorded",
            lambda: Draft(mean_i("q", own(k1) * others(R)), Em("q", R).multiply(QP) * (n - 1), **BATCH)
            .step("independence").without("exists")),
        ("a second direction dropped", STEP1, "one direction expected",  # E_q[k1 s'] is not E_q[k1]
            lambda: Draft(mean_i("q", own(k1), "self'"), Em("q", k1)).step("independence", Em("q", k1))),
        ("a second direction of a step dropped", STEP1, "one direction expected",
            lambda: Draft(mean("it", "q", past(k1), "now'"), sum_t("q", past(k1)))
            .step("independence", sum_t("q", past(k1)))),
        ("one sample twice for a pair of samples", STEP1, GOT,  # Var(X), not Var(X)/n
            lambda: Draft(mean("ij", "q", own(f1) * other(f1)), NOTHING, functions=FUNCTIONS, **BATCH)
            .step("independence", Em("q", f1 * f1))),
        ("the other of a pair counted among the rest", STEP1, GOT,
            lambda: Draft(mean("ij", "q", rest(k1)), Em("q", k1) * (n - 1), **BATCH)
            .step("independence", Em("q", k1) * (n - 1))),
        ("pairs of the others with themselves", STEP1, GOT,
            lambda: Draft(mean_i("q", others(k1) * others(R)), NOTHING, **BATCH)
            .step("independence", Em("q", k1 * R) * (n - 1) + QP.multiply(Em("q", R)) * ((n - 1) * (n - 1)))),
        ("dependent terms as if independent", STEP1, GOT,
            lambda: Draft(mean("ij", "q", (own(R) - other(R)) * (other(R) - own(R))), NOTHING, **BATCH)
            .step("independence", NOTHING)),
        ("the remaining samples of a batch of unknown size", STEP1, "the batch size n is not declared",
            lambda: Draft(mean("ij", "q", rest(k1)), Em("q", k1)).step("independence", Em("q", k1))),
        ("the second moment of a pair left out", PART, "hypotheses: .*exists.*recorded",
            lambda: Draft(mean("ij", "q", own(k1) * other(k1)), QP.multiply(QP), **BATCH).step("independence")
            .without("exists")),
        ("a pair that need not be independent", PART, "hypotheses: .*batch.*recorded",
            lambda: Draft(mean("ij", "q", own(k1) * other(k1)), QP.multiply(QP), **BATCH).step("independence")
            .without("batch")),
    ],
}  # fmt: skip


DERIVATIVES = {
    "chain rule": [
        ("a function of the past", STEP1, "f\\[past\\] is a sum over positions",
            lambda: Draft(mean_grad("t", "q", past(f)), sum_t("q", past(f1), "past"), functions=FUNCTIONS)
            .step("chain rule", sum_t("q", past(f1), "past"))),
        ("a function of the others", STEP1, "f\\[others\\] is a sum over positions",
            lambda: Draft(mean_grad("i", "q", others(f)), mean_i("q", others(f1), "others"),
                          functions=FUNCTIONS).step("chain rule", mean_i("q", others(f1), "others"))),
        ("a prefix weight treated as detached", STEP1, GOT,
            lambda: Draft(mean_grad("t", "mu", past(rho) * now(k1)), sum_t("mu", past(rho), "now"))
            .step("chain rule", sum_t("mu", past(rho), "now"))),
        ("a detached prefix weight differentiated", STEP1, GOT,
            lambda: Draft(mean_grad("t", "mu", past(sg(rho)) * R), sum_t("mu", past(rho) * R, "past"))
            .step("chain rule", sum_t("mu", past(rho) * R, "past"))),
        ("the score of this step for that of all", STEP1, GOT,
            lambda: Draft(mean_grad("t", "q", k2), sum_t("q", k1, "now"))
            .step("chain rule", sum_t("q", k1, "now"))),
        ("a length differentiated", STEP1, GOT,
            lambda: Draft(mean_grad("t", "q", T), sum_t("q", ONE, "x"))
            .step("chain rule", sum_t("q", ONE, "x"))),
    ],
    "stop-gradient": [
        ("dropped in the loss of a token", STEP1, "Mean expected, got MeanGradient",
            lambda: Draft(mean_grad("t", "mu", past(sg(rho)) * now(k1)), sum_t("mu", past(rho), "now"))
            .step("stop-gradient", mean_grad("t", "mu", past(rho) * now(k1))).step("chain rule")),
        ("dropped in a curl", STEP1, "Mean expected, got Curl",
            lambda: Draft(curl("t", "mu", past(sg(rho)) * now(k1)), NOTHING)
            .step("stop-gradient", curl("t", "mu", past(rho) * now(k1))).step("curl")),
        ("dropped in the gradient of a sum", STEP1, "Mean expected, got Gradient",
            lambda: Draft(grad(sum_t("q", now(sg(k1)))), grad(sum_t("q", now(k1))))
            .step("stop-gradient", grad(sum_t("q", now(k1))))),
        ("a slot changed on the way", STEP1, GOT,
            lambda: Draft(sum_t("q", past(sg(k1)), "now"), sum_t("q", now(k1), "now"))
            .step("stop-gradient", sum_t("q", now(k1), "now"))),
    ],
    "log-derivative": [
        ("the score of this step alone", STEP1, GOT,
            lambda: Draft(grad(sum_t("q", now(R))), sum_t("q", now(R), "now"))
            .step("log-derivative", sum_t("q", now(R), "now"))),
        ("the scores of the others forgotten", STEP1, GOT,
            lambda: Draft(grad(mean_i("q", others(R))), mean_i("q", others(R), "self"), **BATCH)
            .step("log-derivative", mean_i("q", others(R), "self"))),
        ("at one sequence as if it were drawn", STEP1, GOT,
            lambda: Draft(grad(sum_t("sample", now(k1))), NOTHING)
            .step("log-derivative", sum_t("sample", now(k1), "x") + mean_grad("t", "sample", now(k1)))),
        ("the prefixes of next-token divergences held fixed", STEP1, GOT,
            lambda: Draft(grad(token_KL("q", "q", "p")), sum_t("q", now(k1), "now"))
            .step("log-derivative", sum_t("q", now(k1), "now"))),
        ("the score term of the next token forgotten", STEP1, GOT,
            lambda: Draft(grad(token_KL("q", "q", "p")), NOTHING)
            .step("log-derivative", mean_grad("t", "q", now(k1)))),
        ("of a sum that holds a score", STEP1, "without score function expected",
            lambda: Draft(grad(sum_t("q", past(R), "now")), sum_t("q", past(R), "now", "x"))
            .step("log-derivative", sum_t("q", past(R), "now", "x"))),
        ("sequences that need not end", PART, "hypotheses: .*ends.*recorded",
            lambda: Draft(grad(sum_t("mu", now(k1))), mean_grad("t", "mu", now(k1)))
            .step("log-derivative").without("ends")),
    ],
}  # fmt: skip


def mean_zero(side: Side, slot: str, **how: Any) -> Draft:
    """The author believes that the side is 0."""
    return Draft(side, NOTHING, **how).step("score mean zero", NOTHING, slot=slot)


def mean_one(side: Side, right: Side, slot: str, of: str = "p", **how: Any) -> Draft:
    """The author believes that the ratio of the slot has mean one."""
    return Draft(side, right, **how).step("ratio mean one", right, of=of, slot=slot)


def moved(side: Side, right: Side, to: str = "q", **how: Any) -> Draft:
    return Draft(side, right, **how).step("change of measure", right, to=to)


MEANS = {
    "change of measure": [
        ("the weight of this step alone", STEP1, GOT,
            lambda: moved(sum_t("mu", now(rho * k1)), sum_t("q", now(k1)))),
        ("the weight of the prefix alone", STEP1, GOT,
            lambda: moved(sum_t("mu", past(rho) * now(k1)), sum_t("q", now(k1)))),
        ("the weights of the others forgotten", STEP1, GOT,
            lambda: moved(mean_i("mu", own(rho * R) * others(R)), mean_i("q", own(R) * others(R)), **BATCH)),
        ("a batch to the counting measure", STEP1, "the counting measure speaks of single samples",
            lambda: moved(mean_i("q", own(k1)), Em("count", k1 * V("log_q").exp()), to="count")),
        ("at one sequence", STEP1, "not the value at one sample",
            lambda: moved(sum_t("sample", now(rho * k1)), sum_t("q", now(k1)))),
        ("no support of the other measure at an index", PART, "hypotheses: .*.support., .q., .mu.",
            lambda: Draft(mean_i("mu", own(rho) * others(rho)), mean_i("q", ONE), **BATCH)
            .step("change of measure", to="q").without("support", "q", "mu")),
        ("sequences that need not end", PART, "hypotheses: .*ends.*recorded",
            lambda: Draft(sum_t("mu", rho * now(k1)), sum_t("q", rho * now(k1) * past((-w).exp())
                          * now((-w).exp()) * future((-w).exp())))
            .step("change of measure", to="q").without("ends", "q")),
    ],
    "score mean zero": [
        ("causality with the reward to go", STEP1, "\\['future', 'now'\\] may depend on the slot now",
            lambda: mean_zero(sum_t("q", TO_GO, "now"), "now")),
        ("an advantage that knows this step", STEP1, "\\['now'\\] may depend on the slot now",
            lambda: mean_zero(sum_t("q", now(A), "now"), "now")),
        ("the log ratio of the whole sequence", STEP1, "\\['x'\\] may depend on the slot now",
            lambda: mean_zero(sum_t("q", k1, "now"), "now")),
        ("a baseline divided by the length", STEP1, "\\['x'\\] may depend on the slot now",
            lambda: mean_zero(sum_t("q", past(R) * T.invert(), "now"), "now")),
        ("later scores with what is later", STEP1, "\\['future'\\] may depend on the slot future",
            lambda: mean_zero(sum_t("q", now(k1) * future(R), "future"), "future")),
        ("later scores with what remains", STEP1, "\\['future'\\] may depend on the slot future",
            lambda: mean_zero(sum_t("q", future(T), "future"), "future")),
        ("earlier scores", STEP1, "slot: one of \\['future', 'now'\\] expected, got 'past'",  # grad E_q[T]
            lambda: mean_zero(sum_t("q", ONE, "past"), "past")),
        ("earlier scores of other sequences", STEP1, "slot: one of .* expected, got 'past'",
            lambda: mean_zero(mean("it", "q", others(R), "past"), "past")),
        ("the score of the sequence at each step", STEP1, "slot: one of .* expected, got 'x'",  # grad E_q[T]
            lambda: mean_zero(sum_t("q", ONE, "x"), "x")),
        ("a baseline of the same sample", STEP1, "\\['self'\\] may depend on the slot self",
            lambda: mean_zero(mean_i("q", own(k1) + others(k1), "self"), "self", **BATCH)),
        ("a mean over the batch as baseline", STEP1, "\\['self'\\] may depend on the slot self",
            lambda: mean_zero(mean_i("q", (own(R) + others(R)) * n.invert(), "self"), "self", **BATCH)),
        ("other samples with their own values", STEP1, "\\['others'\\] may depend on the slot others",
            lambda: mean_zero(mean_i("q", own(R) * others(R), "others"), "others", **BATCH)),
        ("a product with a later score", STEP1, "\\['future'\\] may depend on the slot now",
            lambda: mean_zero(sum_t("q", ONE, "future", "now"), "now")),
        ("the square of a score", STEP1, "one score function of the slot now expected",
            lambda: mean_zero(sum_t("q", past(R), "now", "now"), "now")),
        ("along two directions", STEP1, "one score function of the slot self expected",
            lambda: mean_zero(mean_i("q", ONE, "self", "self'"), "self")),
        ("of a batch under mu", STEP1, "needs m = q, got m = mu",
            lambda: mean_zero(mean_i("mu", others(R), "self"), "self", **BATCH)),
        ("at one sequence", STEP1, "needs m = q, got m = sample",
            lambda: mean_zero(sum_t("sample", past(R), "now"), "now")),
        ("the step of a single sample", STEP1, "one score function of the slot now expected",
            lambda: mean_zero(Em("q", ONE, 1), "now")),
        ("causality without the exchange", PART, "hypotheses: .*exchange.*recorded",
            lambda: Draft(sum_t("q", past(R), "now"), NOTHING).step("score mean zero", slot="now")
            .without("exchange")),
        ("causality for sequences that need not end", PART, "hypotheses: .*ends.*recorded",
            lambda: Draft(sum_t("q", past(R), "now"), NOTHING).step("score mean zero", slot="now")
            .without("ends")),
        ("a mean split from the rest without its moment", PART, "hypotheses: .*exists.*recorded",
            lambda: Draft(sum_t("q", past(R) + now(R), "now"), sum_t("q", now(R), "now"))
            .step("score mean zero", slot="now", part=past(R)).without("exists")),
    ],
    "ratio mean one": [
        ("the future is mentioned", STEP1, "\\['future'\\] may depend on the slot now",
            lambda: mean_one(sum_t("q", now(r) * future(k1)), sum_t("q", future(k1)), "now")),
        ("of the past", STEP1, "slot: one of .*'now'. expected",  # its steps are counted afterwards
            lambda: mean_one(sum_t("q", past(r)), sum_t("q", ONE), "past")),
        ("of the whole sequence at each step", STEP1, "slot: one of .*'now'. expected",
            lambda: mean_one(sum_t("q", r), sum_t("q", ONE), "x")),
        ("the length is mentioned", STEP1, "\\['x'\\] may depend on the slot now",
            lambda: mean_one(sum_t("mu", now(rho) * T.invert()), constant(1), "now", "q")),
        ("with the score of the same step", STEP1, "\\['now'\\] may depend on the slot now",
            lambda: mean_one(sum_t("q", now(r), "now"), NOTHING, "now")),
        ("with a later score", STEP1, "\\['future'\\] may depend on the slot now",
            lambda: mean_one(sum_t("mu", now(rho), "future"), sum_t("mu", ONE, "future"), "now", "q")),
        ("squared at one step", STEP1, "\\['now'\\] may depend on the slot now",
            lambda: mean_one(sum_t("q", now(r * r)), sum_t("q", now(r)) * 2, "now")),
        ("of the wrong samples", STEP1, "\\['others'\\] may depend on the slot others",
            lambda: mean_one(mean_i("q", own(r) * others(k1)), mean_i("q", others(k1)), "others", **BATCH)),
        ("at one batch", STEP1, "of: one of|a mean under a probability",
            lambda: mean_one(mean_i("sample", others(r)), mean_i("sample", ONE), "others", **BATCH)),
        ("a slot of another index", STEP1, "slot: one of .* expected",
            lambda: mean_one(sum_t("q", now(r)), sum_t("q", ONE), "self")),
        ("support at an index left out", PART, "hypotheses: .*support.*recorded",
            lambda: Draft(sum_t("q", now(r)), sum_t("q", ONE)).step("ratio mean one", of="p", slot="now")
            .without("support")),
        ("sequences that need not end", PART, "hypotheses: .*ends.*recorded",  # E_q[future(r)] < 1 then
            lambda: Draft(sum_t("q", future(r)), sum_t("q", ONE))
            .step("ratio mean one", of="p", slot="future").without("ends", "p")),
    ],
}  # fmt: skip

INDEXED = (SUMS, BATCHES, DERIVATIVES, MEANS, *NEIGHBOURS)
