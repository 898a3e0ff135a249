"""False derivations at an index of a batch or a sequence: sums, slots, independence and trees."""

from __future__ import annotations

from typing import Any

from drafts import (
    GOT,
    KL,
    NOTHING,
    ONE,
    PART,
    QP,
    STEP1,
    A,
    Draft,
    Em,
    R,
    V,
    grad,
    k1,
    k2,
    k3,
    r,
    rho,
    sg,
    w,
)  # fmt: skip
from slotted import (
    at_index,
    curl,
    f,
    future,
    gradient_of,
    mean_i,
    n,
    now,
    other,
    others,
    own,
    past,
    spread,
    sum_t,
    token_gradient_KL,
    token_KL,
)  # fmt: skip

from klsym.statements import Side

H, T, f1 = V("H"), V("length"), V("f'")
FUNCTIONS = (("f", ("k1", "log_q", "w")),)
BATCH: dict[str, Any] = {"parameters": ("n",)}
TO_GO = now(R) + future(R)
PREFIX = past(rho) * now(rho)
MEAN, QP_MEAN = mean_i("q", own(k1)), Em("q", k1)

SUMS = {
    "sum over t": [
        ("the ratio of a sequence is no sum", STEP1, "k1 is no factor of the coefficient",
            lambda: Draft(Em("q", r), sum_t("q", now(r))).step("sum over t", sum_t("q", now(r)), of="k1")),
        ("k3 of a sequence for that of its tokens", STEP1, "k1 is no factor of the coefficient",
            lambda: Draft(Em("q", k3), sum_t("q", now(k3))).step("sum over t", sum_t("q", now(k3)), of="k1")),
        ("k2 of a sequence for that of its tokens", STEP1, GOT,
            lambda: Draft(Em("q", k2), sum_t("q", now(k2))).step("sum over t", sum_t("q", now(k2)), of="k1")),
        ("an advantage", STEP1, "of: one of .* expected, got 'A'",
            lambda: Draft(Em("q", A), sum_t("q", now(A))).step("sum over t", sum_t("q", now(A)), of="A")),
        ("a detached log ratio", STEP1, "k1 is no factor of the coefficient",
            lambda: Draft(Em("q", sg(k1)), sum_t("q", now(k1)))
            .step("sum over t", sum_t("q", now(k1)), of="k1")),
        ("score and reward of the same step", STEP1, GOT,
            lambda: Draft(Em("q", R, 1), sum_t("q", now(R), "now"))
            .step("sum over t", sum_t("q", now(R), "now"), of="s")),
        ("one over the length", STEP1, "length is no factor",
            lambda: Draft(Em("q", R * T.inverse()), sum_t("q", now(R)))
            .step("sum over t", sum_t("q", R), of="length")),
        ("the counting measure", STEP1, "a mean over sequences expected",
            lambda: Draft(Em("count", k1), NOTHING).step("sum over t", NOTHING, of="k1")),
        ("moment hypothesis left out", PART, "hypotheses: .*moment.*recorded \\[\\]",
            lambda: Draft(Em("q", R + r), Em("q", r) + sum_t("q", now(R)))
            .step("sum over t", of="R", part=R).without("moment")),
    ],
    "parts of a sum": [
        ("of one over the length", STEP1, "division by a sum",
            lambda: Draft(sum_t("q", T.inverse()), Side.constant(1)).step(
                "parts of a sum", sum_t("q", now(T).inverse()), of=["length"])),
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
        ("a part without its moment", PART, "hypotheses: .*moment.*recorded \\[\\]",
            lambda: Draft(sum_t("q", R + k1), sum_t("q", R + past(k1) + now(k1) + future(k1)))
            .step("parts of a sum", of=["k1"], part=k1).without("moment")),
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
        ("inside an exponent", STEP1, "depends on t",
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
        ("of the whole", STEP1, "slot: 'past' or 'future' expected",
            lambda: Draft(sum_t("q", R, "now"), sum_t("q", now(R), "x"))
            .step("exchange of sums", sum_t("q", now(R), "x"), now="s", other="R", slot="x")),
        ("of samples", STEP1, "a sum over t expected",
            lambda: Draft(mean_i("q", own(k1) * others(R)), mean_i("q", own(R) * others(k1)), **BATCH)
            .step("exchange of sums", mean_i("q", own(R) * others(k1)), now="k1", other="R", slot="past")),
    ],
    "tower": [
        ("under the wrong measure", STEP1, GOT,
            lambda: Draft(token_KL("mu", "q", "p"), sum_t("mu", now(k1)))
            .step("tower", sum_t("mu", now(k1)))),
        ("the weight of the prefix instead of the token", STEP1, GOT,
            lambda: Draft(token_KL("mu", "q", "p"), sum_t("mu", past(rho) * now(k1)))
            .step("tower", sum_t("mu", past(rho) * now(k1)))),
        ("prefixes held fixed for the whole gradient", STEP1, GOT,
            lambda: Draft(grad(token_KL("q", "q", "p")), sum_t("q", now(k1), "now"))
            .step("tower", sum_t("q", now(k1), "now"))),
        ("the score term forgotten", STEP1, GOT,
            lambda: Draft(token_gradient_KL("q", "q", "p"), sum_t("q", ONE, "now"))
            .step("tower", sum_t("q", ONE, "now"))),
        ("a divergence of sequences", STEP1, "next-token divergences expected, got Divergence",
            lambda: Draft(KL("p", "q"), sum_t("q", now(-r * k1))).step("tower", sum_t("q", now(-r * k1)))),
        ("support hypothesis left out", PART, "hypotheses: .*.support., .q., .mu.",
            lambda: Draft(token_KL("mu", "q", "p"), sum_t("mu", now(rho * k1))).step("tower")
            .without("support", "q", "mu")),
        ("sequences that need not end", PART, "hypotheses: .*ends.*recorded",
            lambda: Draft(token_KL("q", "q", "p"), sum_t("q", now(k1))).step("tower").without("ends")),
        ("exchange hypothesis left out", PART, "hypotheses: .*exchange.*recorded",
            lambda: Draft(token_gradient_KL("q", "p", "q"), sum_t("q", now(-r), "now")).step("tower")
            .without("exchange")),
    ],
    "curl": [
        ("second direction dropped", STEP1, GOT,
            lambda: Draft(curl("q", now(k2)), NOTHING)
            .step("curl", sum_t("q", now(k1), "now", "x") - sum_t("q", now(k1), "now", "x"))),
        ("the prefixes held fixed", STEP1, GOT,
            lambda: Draft(curl("q", now(k2)), NOTHING).step("curl", NOTHING)),
        ("a detached weight that moves", STEP1, GOT,
            lambda: Draft(curl("p", past(sg(w)) * now(k1)), NOTHING).step("curl", NOTHING)),
        ("the sampler taken for q", STEP1, GOT,
            lambda: Draft(curl("mu", now(k2)), sum_t("mu", now(k1), "now", "x'")
                          - sum_t("mu", now(k1), "now'", "x"))
            .step("curl", sum_t("mu", now(k1), "now", "x'") - sum_t("mu", now(k1), "now'", "x"))),
        ("a function of the past", STEP1, "sg\\(f\\[past\\]\\)|f\\[past\\] is a sum over positions",
            lambda: Draft(curl("q", past(sg(f)) * now(k1)), NOTHING, functions=FUNCTIONS)
            .step("curl", NOTHING)),
        ("exchange hypothesis left out", PART, "hypotheses: .*exchange.*recorded",
            lambda: Draft(curl("q", k2), NOTHING).step("curl").without("exchange")),
        ("sequences that need not end", PART, "hypotheses: .*ends.*recorded",
            lambda: Draft(curl("q", k2), NOTHING).step("curl").without("ends")),
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
            lambda: Draft(mean_i("sample", own(k1) * others(k1)), QP.times(QP), **BATCH)
            .step("independence", QP.times(QP))),
        ("of the steps of a sequence", STEP1, "a batch expected, not a single sequence",
            lambda: Draft(sum_t("q", past(k1) * now(k1)), sum_t("q", past(k1)).times(sum_t("q", now(k1))))
            .step("independence", sum_t("q", past(k1)).times(sum_t("q", now(k1))))),
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
            lambda: Draft(MEAN, Em("q", k1)).step("independence").without("batch")),
        ("moments of a product of means left out", PART, "hypotheses: .*moment.*recorded",
            lambda: Draft(mean_i("q", own(k1) * others(R)), Em("q", R).times(QP_MEAN) * (n - 1), **BATCH)
            .step("independence").without("moment")),
    ],
    "variance of a mean": [
        ("score of the others", STEP1, "score functions of self expected",
            lambda: Draft(spread("q", own(k1), "others"), NOTHING, **BATCH)
            .step("variance of a mean", NOTHING)),
        ("an advantage of all the others", STEP1, "A\\[others\\] is any function of its slot",
            lambda: Draft(spread("q", others(A)), NOTHING, **BATCH).step("variance of a mean", NOTHING)),
        ("of dependent terms as if independent", STEP1, "variance of a mean: got",
            lambda: Draft(spread("q", own(k1) - others(k1)), NOTHING, **BATCH)
            .step("variance of a mean", mean_i("q", (own(k1) - others(k1)) ** 2) * n.inverse()
                  - mean_i("q", own(k1) - others(k1)).times(mean_i("q", own(k1) - others(k1)))
                  * n.inverse())),
        ("a second moment for a variance", STEP1, GOT,
            lambda: Draft(spread("q", own(k1)), mean_i("q", own(k1) ** 2) * n.inverse(), **BATCH)
            .step("variance of a mean", mean_i("q", own(k1) ** 2) * n.inverse())),
        ("a batch of unknown size", STEP1, "the batch size n is not declared",
            lambda: Draft(spread("q", own(k1)), NOTHING).step("variance of a mean", NOTHING)),
        ("of a single mean", STEP1, "the variance of a mean expected, got Indexed",
            lambda: Draft(MEAN, NOTHING, **BATCH).step("variance of a mean", NOTHING)),
        ("second moment left out", PART, "hypotheses: .*moment.*recorded",
            lambda: Draft(spread("q", own(k1)), _unfolded(own(k1), other(k1)), **BATCH)
            .step("variance of a mean").without("moment")),
        ("batch hypothesis left out", PART, "hypotheses: .*batch.*recorded",
            lambda: Draft(spread("q", own(k1)), _unfolded(own(k1), other(k1)), **BATCH)
            .step("variance of a mean").without("batch")),
    ],
}  # fmt: skip


def _unfolded(mine: Any, yours: Any) -> Side:
    """Var(mean_i X_i) of a function of one sample, with the pairs X_i X_j as given."""
    mean = mean_i("q", mine)
    pair = at_index("ij", "q", mine * yours)
    return mean_i("q", mine * mine) * n.inverse() + pair * (1 - n.inverse()) - mean.times(mean)


DERIVATIVES = {
    "chain rule": [
        ("a function of the past", STEP1, "f\\[past\\] is a sum over positions",
            lambda: Draft(gradient_of("t", "q", past(f)), sum_t("q", past(f1), "past"), functions=FUNCTIONS)
            .step("chain rule", sum_t("q", past(f1), "past"))),
        ("a function of the others", STEP1, "f\\[others\\] is a sum over positions",
            lambda: Draft(gradient_of("i", "q", others(f)), mean_i("q", others(f1), "others"),
                          functions=FUNCTIONS).step("chain rule", mean_i("q", others(f1), "others"))),
        ("a prefix weight treated as detached", STEP1, GOT,
            lambda: Draft(gradient_of("t", "mu", past(rho) * now(k1)), sum_t("mu", past(rho), "now"))
            .step("chain rule", sum_t("mu", past(rho), "now"))),
        ("a detached prefix weight differentiated", STEP1, GOT,
            lambda: Draft(gradient_of("t", "mu", past(sg(rho)) * R), sum_t("mu", past(rho) * R, "past"))
            .step("chain rule", sum_t("mu", past(rho) * R, "past"))),
        ("the score of this step for that of all", STEP1, GOT,
            lambda: Draft(gradient_of("t", "q", k2), sum_t("q", k1, "now"))
            .step("chain rule", sum_t("q", k1, "now"))),
        ("a length differentiated", STEP1, GOT,
            lambda: Draft(gradient_of("t", "q", T), sum_t("q", ONE, "x"))
            .step("chain rule", sum_t("q", ONE, "x"))),
    ],
    "stop-gradient": [
        ("dropped in the loss of a token", STEP1, "sg\\(.\\) is dropped in expectations",
            lambda: Draft(gradient_of("t", "mu", past(sg(rho)) * now(k1)), sum_t("mu", past(rho), "now"))
            .step("stop-gradient", gradient_of("t", "mu", past(rho) * now(k1))).step("chain rule")),
        ("dropped in a curl", STEP1, "sg\\(.\\) is dropped in expectations",
            lambda: Draft(curl("mu", past(sg(rho)) * now(k1)), NOTHING)
            .step("stop-gradient", curl("mu", past(rho) * now(k1))).step("curl")),
        ("dropped in the gradient of a sum", STEP1, "not in a gradient",
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
        ("at one sequence", STEP1, "the gradient of one expectation under .* expected",
            lambda: Draft(grad(sum_t("sample", now(k1))), sum_t("sample", ONE, "now"))
            .step("log-derivative", sum_t("sample", ONE, "now"))),
        ("of a sum that holds a score", STEP1, "without score function, expected",
            lambda: Draft(grad(sum_t("q", past(R), "now")), sum_t("q", past(R), "now", "x"))
            .step("log-derivative", sum_t("q", past(R), "now", "x"))),
        ("sequences that need not end", PART, "hypotheses: .*ends.*recorded",
            lambda: Draft(grad(sum_t("mu", now(k1))), gradient_of("t", "mu", now(k1)))
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
        ("a batch to the counting measure", STEP1, "from one probability measure to another",
            lambda: moved(mean_i("q", own(k1)), Em("count", k1 * V("log_q").exp()), to="count")),
        ("at one sequence", STEP1, "from one probability measure to another",
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
            lambda: mean_zero(sum_t("q", past(R) * T.inverse(), "now"), "now")),
        ("later scores with what is later", STEP1, "\\['future'\\] may depend on the slot future",
            lambda: mean_zero(sum_t("q", now(k1) * future(R), "future"), "future")),
        ("later scores with what remains", STEP1, "\\['future'\\] may depend on the slot future",
            lambda: mean_zero(sum_t("q", future(T), "future"), "future")),
        ("earlier scores", STEP1, "slot: one of \\['future', 'now'\\] expected, got 'past'",  # grad E_q[T]
            lambda: mean_zero(sum_t("q", ONE, "past"), "past")),
        ("earlier scores of other sequences", STEP1, "slot: one of .* expected, got 'past'",
            lambda: mean_zero(at_index("it", "q", others(R), "past"), "past")),
        ("the score of the sequence at each step", STEP1, "slot: one of .* expected, got 'x'",  # grad E_q[T]
            lambda: mean_zero(sum_t("q", ONE, "x"), "x")),
        ("a baseline of the same sample", STEP1, "\\['self'\\] may depend on the slot self",
            lambda: mean_zero(mean_i("q", own(k1) + others(k1), "self"), "self", **BATCH)),
        ("a mean over the batch as baseline", STEP1, "\\['self'\\] may depend on the slot self",
            lambda: mean_zero(mean_i("q", (own(R) + others(R)) * n.inverse(), "self"), "self", **BATCH)),
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
        ("a slot of a single sample", STEP1, "slot: a mean over a batch or sequence expected",
            lambda: mean_zero(Em("q", ONE, 1), "x")),
        ("causality without the exchange", PART, "hypotheses: .*exchange.*recorded",
            lambda: Draft(sum_t("q", past(R), "now"), NOTHING).step("score mean zero", slot="now")
            .without("exchange")),
        ("causality for sequences that need not end", PART, "hypotheses: .*ends.*recorded",
            lambda: Draft(sum_t("q", past(R), "now"), NOTHING).step("score mean zero", slot="now")
            .without("ends")),
        ("a mean split from the rest without its moment", PART, "hypotheses: .*moment.*recorded",
            lambda: Draft(sum_t("q", past(R) + now(R), "now"), sum_t("q", now(R), "now"))
            .step("score mean zero", slot="now", part=past(R)).without("moment")),
    ],
    "ratio mean one": [
        ("the future is mentioned", STEP1, "\\['future'\\] may depend on the slot now",
            lambda: mean_one(sum_t("q", now(r) * future(k1)), sum_t("q", future(k1)), "now")),
        ("of the past", STEP1, "slot: one of .* expected, got 'past'",  # its steps are counted afterwards
            lambda: mean_one(sum_t("q", past(r)), sum_t("q", ONE), "past")),
        ("of the whole sequence at each step", STEP1, "slot: one of .* expected, got 'x'",
            lambda: mean_one(sum_t("q", r), sum_t("q", ONE), "x")),
        ("the length is mentioned", STEP1, "\\['x'\\] may depend on the slot now",
            lambda: mean_one(sum_t("mu", now(rho) * T.inverse()), Side.constant(1), "now", "q")),
        ("with the score of the same step", STEP1, "\\['now'\\] may depend on the slot now",
            lambda: mean_one(sum_t("q", now(r), "now"), NOTHING, "now")),
        ("with a later score", STEP1, "\\['future'\\] may depend on the slot now",
            lambda: mean_one(sum_t("mu", now(rho), "future"), sum_t("mu", ONE, "future"), "now", "q")),
        ("squared at one step", STEP1, "\\['now'\\] may depend on the slot now",
            lambda: mean_one(sum_t("q", now(r * r)), sum_t("q", now(r)) * 2, "now")),
        ("of the wrong samples", STEP1, "\\['others'\\] may depend on the slot others",
            lambda: mean_one(mean_i("q", own(r) * others(k1)), mean_i("q", others(k1)), "others", **BATCH)),
        ("at one batch", STEP1, "two probability measures expected",
            lambda: mean_one(mean_i("sample", others(r)), mean_i("sample", ONE), "others", **BATCH)),
        ("a slot of another index", STEP1, "unknown slot 'self'",
            lambda: mean_one(sum_t("q", now(r)), sum_t("q", ONE), "self")),
        ("support at an index left out", PART, "hypotheses: .*support.*recorded",
            lambda: Draft(sum_t("q", now(r)), sum_t("q", ONE)).step("ratio mean one", of="p", slot="now")
            .without("support")),
        ("sequences that need not end", PART, "hypotheses: .*ends.*recorded",  # E_q[future(r)] < 1 then
            lambda: Draft(sum_t("q", future(r)), sum_t("q", ONE))
            .step("ratio mean one", of="p", slot="future").without("ends", "p")),
    ],
}  # fmt: skip

FIELD = f * now(R * k1)
WITH_THE_SLOPE_OF_F = sum_t("q", f * now(R), "now", "x'") - sum_t("q", f * now(R), "now'", "x")
HOLES: dict[str, list[Any]] = {  # each found by reading the kernel as an adversary
    "independence": [
        ("a second direction dropped", STEP1, "one direction expected",  # E_q[k1 s'] is not E_q[k1]
            lambda: Draft(mean_i("q", own(k1), "self'"), Em("q", k1)).step("independence", Em("q", k1))),
        ("a second direction of a step dropped", STEP1, "one direction expected",
            lambda: Draft(at_index("it", "q", past(k1), "now'"), sum_t("q", past(k1)))
            .step("independence", sum_t("q", past(k1)))),
    ],
    "variance of a mean": [
        ("the derivative of a function at one sample only", STEP1, GOT,  # Var(X), not Var(X)/n
            lambda: Draft(spread("q", own(f1)), _unfolded(own(f1), own(f1)), functions=FUNCTIONS, **BATCH)
            .step("variance of a mean", _unfolded(own(f1), own(f1)))),
    ],
    "curl": [
        ("on-policy a function of the weight", STEP1, "on-policy",  # f(w) = f(0) for every theta
            lambda: Draft(curl("mu", FIELD), WITH_THE_SLOPE_OF_F, functions=FUNCTIONS, on_policy=True)
            .step("curl", WITH_THE_SLOPE_OF_F)),
    ],
}  # fmt: skip

INDEXED = (SUMS, BATCHES, DERIVATIVES, MEANS, HOLES)
