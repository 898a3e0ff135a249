"""Hypotheses left out in batches and sequences, and slots, indices and directions taken for one another."""

from __future__ import annotations

from typing import Any

from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import Side
from support.certificates.faulty_certificates import *
from support.certificates.slot_helpers import future, lone, mean_i, now, other, others, own, past, rest, sum_t

BATCH: dict[str, Any] = {"parameters": ("n",)}
FUNCTIONS: dict[str, Any] = {"functions": (("f", ("k1", "log_q", "w")),)}
PREFIX, BACK = past(rho) * now(rho), (-w).exp()
NO_BATCH, NO_END = "hypotheses: .*batch.*recorded", "hypotheses: .*ends.*recorded"
NO_MEAN, NO_EXCHANGE = "hypotheses: .*exists.*recorded", "hypotheses: .*exchange.*recorded"
NO_SUPPORT = "hypotheses: .*'support', '(mu|p|q)', '(mu|q)'.*recorded"


def zero(side: Side, slot: str, **how: Any) -> Draft:
    """A score function with mean zero, taken by the kernel."""
    return Draft(side, NOTHING, **how).step("score mean zero", slot=slot)


def ratio(side: Side, right: Side, slot: str, of: str) -> Draft:
    return Draft(side, right).step("ratio mean one", of=of, slot=slot)


def independent(side: Side) -> Draft:
    """A mean over batches, and what it is for independent samples."""
    draft = Draft(side, NOTHING, **BATCH).step("independence")
    return Draft(side, draft.sides["left"], **BATCH).step("independence")


def moved(measure: str, index: str, of: ExpPoly, to: str, *score: str) -> Draft:
    """A mean moved to another measure, and what it is there."""
    draft = Draft(mean(index, measure, of, *score), NOTHING).step("change of measure", to=to)
    return Draft(mean(index, measure, of, *score), draft.sides["left"]).step("change of measure", to=to)


def row(index: str, kind: str, of: ExpPoly, *score: str) -> dict[str, Any]:
    """A row under q that is never negative."""
    return {
        "kind": kind, "scale": ONE, "factor": ONE, "at": [index, "q"], "v": ONE - 1, "of": of,
        "score": list(score),
    }  # fmt: skip


# ---------------------------------------------------------------------------- samples need not be independent
SAMPLES = {
    "score mean zero": [
        ("in a batch of dependent samples", PART, NO_BATCH,
            lambda: zero(mean_i("q", others(R), "self"), "self", **BATCH).without("batch")),
        ("of the others of dependent samples", PART, NO_BATCH,
            lambda: zero(mean_i("q", own(R), "others"), "others", **BATCH).without("batch")),
        ("of one of a pair of dependent samples", PART, NO_BATCH,
            lambda: zero(mean("ij", "q", own(R) * rest(k1), "self", "other"), "other").without("batch")),
        ("in a batch of dependent sequences", PART, NO_BATCH,
            lambda: zero(mean("it", "q", others(R), "now"), "now").without("batch")),
    ],
    "ratio mean one": [
        ("in a batch of dependent samples", PART, NO_BATCH,
            lambda: ratio(mean_i("q", own(k1) * others(r)), mean_i("q", own(k1)), "others", "p")
            .without("batch")),
        ("in a batch that is independent under one measure only", PART, NO_BATCH,
            lambda: ratio(mean_i("mu", own(rho) * others(R)), mean_i("mu", others(R)), "self", "q")
            .without("batch", "q")),
    ],
    "change of measure": [
        ("of dependent samples", PART, NO_BATCH,
            lambda: moved("mu", "i", own(rho * R) * others(rho), "q").without("batch")),
        ("to a batch that need not be independent", PART, NO_BATCH,
            lambda: moved("mu", "ij", own(rho) * other(rho * R) * rest(rho), "q").without("batch", "q")),
    ],
    "log-derivative": [
        ("of dependent samples", PART, NO_BATCH,
            lambda: Draft(grad(mean_i("q", others(R))), mean_i("q", others(R), "self")
                          + mean_i("q", others(R), "others"), **BATCH)
            .step("log-derivative").step("chain rule", term=2).without("batch")),
        ("of pairs of dependent samples", PART, NO_BATCH,
            lambda: Draft(grad(mean("ij", "q", own(R) * other(R))), Side.combine(*(
                (1, (lone(mean("ij", "q", own(R) * other(R), z)),)) for z in ("self", "other", "rest"))))
            .step("log-derivative").step("chain rule", term=3).without("batch")),
    ],
    "curl": [
        ("of a field over dependent samples", PART, NO_BATCH,
            lambda: Draft(curl("i", "mu", own(k1) * others(k1)), NOTHING).step("curl").without("batch")),
    ],
    "equality": [
        ("a square over dependent samples", PART, NO_BATCH,
            lambda: Draft(NOTHING, mean_i("q", (own(R) - others(R)) ** 2), "<=")
            .rows(row("i", "square", own(R) - others(R))).without("batch")),
        ("a variance over the steps of a sequence", PART, "variance: of one sample or batch",
            lambda: Draft(NOTHING, sum_t("q", now(R * R)), "<=").rows(row("t", "variance", now(R)))),
        ("a square over sequences that need not end", PART, NO_END,
            lambda: Draft(NOTHING, sum_t("q", now(k1) ** 2, "now", "now"), "<=")
            .rows(row("t", "square", now(k1), "now")).without("ends")),
    ],
}  # fmt: skip

# ---------------------------------------------------------------------------- sequences need not end
SEQUENCES = {
    "sum over t": [
        ("of a sequence that need not end", PART, NO_END,
            lambda: Draft(Em("mu", k1), sum_t("mu", now(k1))).step("sum over t", of="k1").without("ends")),
        ("of a score function of a sequence that need not end", PART, NO_END,
            lambda: Draft(Em("q", R, 1), sum_t("q", R, "now")).step("sum over t", of="s").without("ends")),
    ],
    "score mean zero": [
        ("of later steps of a sequence that need not end", PART, NO_END,
            lambda: zero(sum_t("q", now(k1), "future"), "future").without("ends")),
        ("beside other sequences that need not end", PART, NO_END,
            lambda: zero(mean("it", "q", now(k1), "others"), "others").without("ends")),
    ],
    "ratio mean one": [
        ("of this step of a sequence that need not end", PART, NO_END,
            lambda: ratio(sum_t("q", past(k1) * now(r)), sum_t("q", past(k1)), "now", "p")
            .without("ends", "q")),
        ("of later steps that need not end under the other measure", PART, NO_END,
            lambda: ratio(sum_t("mu", now(k1) * future(rho)), sum_t("mu", now(k1)), "future", "q")
            .without("ends", "q")),
    ],
    "change of measure": [
        ("from sequences that need not end", PART, NO_END,
            lambda: moved("mu", "t", rho * now(k1), "q").without("ends", "mu")),
    ],
    "independence": [
        ("of sequences that need not end", PART, NO_END,
            lambda: Draft(mean("it", "q", now(R)), sum_t("q", now(R)), **BATCH).step("independence")
            .without("ends")),
    ],
}  # fmt: skip

# ---------------------------------------------------------------------------- means that need not exist
EXISTENCE = {
    "chain rule": [
        ("a product whose two means need not exist", PART, NO_MEAN,
            lambda: Draft(mean_grad("t", "q", past(k1) * now(k1)),
                          sum_t("q", past(k1), "now") + sum_t("q", now(k1), "past"))
            .step("chain rule").without("exists")),
        ("one mean of a product left out", PART, NO_MEAN,
            lambda: Draft(mean_grad("i", "mu", own(k1) * others(w)),
                          mean_i("mu", others(w), "self") + mean_i("mu", own(k1), "others"))
            .step("chain rule").without("exists", lone(mean_i("mu", own(k1), "others")).to_json())),
    ],
    "log-derivative": [
        ("a mean with the score of the sequence left out", PART, NO_MEAN,
            lambda: Draft(grad(sum_t("q", now(k1))), sum_t("q", now(k1), "x") + mean_grad("t", "q", now(k1)))
            .step("log-derivative").without("exists")),
        ("a mean with the score of the others left out", PART, NO_MEAN,
            lambda: Draft(grad(mean_i("q", own(R))), mean_i("q", own(R), "self")
                          + mean_i("q", own(R), "others"))
            .step("log-derivative").step("chain rule", term=2)
            .without("exists", lone(mean_i("q", own(R), "others")).to_json())),
    ],
    "curl": [
        ("one direction without its mean", PART, NO_MEAN,
            lambda: Draft(curl("i", "mu", own(k1) * others(sg(k1))), CURL_OF_HALF).step("curl")
            .without("exists")),
    ],
    "parts of a sum": [
        ("two score functions without their means", PART, NO_MEAN,  # E_q[sum_t s_past s_now] may not exist
            lambda: Draft(sum_t("q", ONE, "x", "x"), Side.combine(*(
                (c, (lone(sum_t("q", ONE, *z)),)) for c, z in SQUARE)))
            .step("parts of a sum", of=["s"]).without("exists")),
        ("one mean of two score functions left out", PART, NO_MEAN,
            lambda: Draft(sum_t("q", R, "now", "x"), Side.combine(*(
                (1, (lone(sum_t("q", R, "now", z)),)) for z in ("past", "now", "future"))))
            .step("parts of a sum", of=["s"])
            .without("exists", lone(sum_t("q", R, "now", "now")).to_json())),
    ],
    "score mean zero": [
        ("two score functions split from the rest", PART, NO_MEAN,
            lambda: Draft(sum_t("q", past(R) + now(R), "now", "past"), sum_t("q", now(R), "now", "past"))
            .step("score mean zero", slot="now", part=past(R)).without("exists")),
        ("a constant times two score functions split from the rest", PART, NO_MEAN,
            lambda: Draft(mean("ij", "q", own(R) + 1, "other", "self"),
                          mean("ij", "q", own(R), "other", "self"))
            .step("score mean zero", slot="other", part=ONE).without("exists")),
        ("a constant times the score of a step split from the rest", PART, NO_MEAN,  # E_q[sum_t |s_t|]
            lambda: Draft(sum_t("q", now(R) + 1, "now"), sum_t("q", now(R), "now"))
            .step("score mean zero", slot="now", part=ONE).without("exists")),
    ],
    "change of measure": [
        ("two score functions split from the rest", PART, NO_MEAN,
            lambda: Draft(mean_i("mu", own(rho + R), "self", "self"),
                          mean_i("mu", own(R), "self", "self")
                          + mean_i("q", others(BACK), "self", "self"))
            .step("change of measure", to="q", part=own(rho)).without("exists")),
    ],
    "independence": [
        ("a square of the score function without its mean", PART, NO_MEAN,  # E_q[s^2] may be infinite
            lambda: independent(mean_i("q", others(k1), "self", "self"))
            .without("exists", lone(Em("q", ONE, 2)).to_json())),
        ("a square of the score functions of the others", PART, NO_MEAN,
            lambda: independent(mean_i("q", own(R), "others", "others"))
            .without("exists", lone(Em("q", ONE, 2)).to_json())),
        ("two score functions of a sequence", PART, NO_MEAN,
            lambda: independent(mean("it", "q", now(R) * others(R), "now", "past"))
            .without("exists", lone(sum_t("q", now(R), "now", "past")).to_json())),
    ],
}  # fmt: skip

# ---------------------------------------------------------------------------- gradients inside other means
EXCHANGES = {
    "score mean zero": [
        ("an exchange in the mean of one sample", PART, NO_EXCHANGE,
            lambda: zero(sum_t("q", past(R), "now"), "now").without("exchange")
            .assuming("exchange", lone(Em("q", R)))),
        ("an exchange in the mean of this step", PART, NO_EXCHANGE,
            lambda: zero(sum_t("q", past(R), "now"), "now").without("exchange")
            .assuming("exchange", lone(sum_t("q", now(R))))),
        ("an exchange in the mean without the other score", PART, NO_EXCHANGE,
            lambda: zero(mean_i("q", others(R), "others", "self"), "self").without("exchange")
            .assuming("exchange", lone(mean_i("q", others(R))))),
        ("an exchange under the sampler", PART, NO_EXCHANGE,
            lambda: zero(mean_i("q", others(R), "self"), "self").without("exchange")
            .assuming("exchange", lone(mean_i("mu", others(R))))),
    ],
    "log-derivative": [
        ("an exchange in the mean of the sequence", PART, NO_EXCHANGE,
            lambda: Draft(grad(sum_t("mu", now(k1))), mean_grad("t", "mu", now(k1)))
            .step("log-derivative").without("exchange").assuming("exchange", lone(Em("mu", k1)))),
        ("an exchange in one mean of two", PART, NO_EXCHANGE,
            lambda: Draft(grad(sum_t("p", now(k1)) + mean_i("p", own(R))),
                          mean_grad("t", "p", now(k1)) + mean_grad("i", "p", own(R)))
            .step("log-derivative").without("exchange", lone(mean_i("p", own(R))).to_json())),
    ],
    "curl": [
        ("an exchange in the loss with its copies held constant", PART, NO_EXCHANGE,
            lambda: Draft(curl("i", "mu", own(k1) * others(sg(k1))), CURL_OF_HALF).step("curl")
            .without("exchange").assuming("exchange", lone(mean_i("mu", own(k1) * others(sg(k1)))))),
    ],
}  # fmt: skip

SQUARE = [
    (1 if first == second else 2, (first, second))
    for i, first in enumerate(("future", "now", "past"))
    for second in ("future", "now", "past")[i:]
]
CURL_OF_HALF = mean_i("mu", ONE, "self", "others'") - mean_i("mu", ONE, "others", "self'")

# ---------------------------------------------------------------------------- any function of the others
ADVANTAGES = {
    "independence": [
        ("an advantage of the remaining samples", STEP1, "A\\[rest\\] is any function of its slot",
            lambda: Draft(mean("ij", "q", own(k1) * rest(A)), NOTHING, **BATCH)
            .step("independence", NOTHING)),
        ("an advantage of the others times their score", STEP1, "A\\[others\\] is any function",
            lambda: Draft(mean_i("q", others(A), "others"), Em("q", A, 1), **BATCH)
            .step("independence", Em("q", A, 1))),
        ("an advantage of the other sequences", STEP1, "A\\[others\\] is any function",
            lambda: Draft(mean("it", "q", now(k1) * others(A)), NOTHING, **BATCH)
            .step("independence", sum_t("q", now(k1)).multiply(Em("q", A)))),
        ("the exponential of an advantage of the others", STEP1, "an exponent holds the sum over others",
            lambda: Draft(mean_i("q", others(A.exp())), Em("q", A.exp()), **BATCH)
            .step("independence", Em("q", A.exp()))),
    ],
    "parts of a sum": [
        ("an advantage of the past for a sum", STEP1, "of: a list of names among",
            lambda: Draft(sum_t("q", past(A), "now"), NOTHING)
            .step("parts of a sum", NOTHING, of=["A[past]"])),
    ],
    "exchange of sums": [
        ("an advantage of the past", STEP1, "'A' is no sum over positions",
            lambda: Draft(sum_t("q", past(A) * now(k1)), sum_t("q", now(A) * future(k1)))
            .step("exchange of sums", sum_t("q", now(A) * future(k1)), now="k1", other="A", slot="past")),
    ],
}  # fmt: skip

# ---------------------------------------------------------------------------- supports, slot by slot
SUPPORTS = {
    "change of measure": [
        ("prefix weights leave the future without weight", PART, NO_SUPPORT,
            lambda: moved("mu", "t", PREFIX * now(k1), "q").without("support", "mu", "q")),
        ("a weight of this step alone says nothing of the past", PART, NO_SUPPORT,
            lambda: moved("mu", "t", now(rho * k1), "q").without("support", "mu", "q")),
        ("a weight of one sample leaves the others without weight", PART, NO_SUPPORT,
            lambda: moved("mu", "i", own(rho * R), "q").without("support", "mu", "q")),
        ("a weight of a pair leaves the rest without weight", PART, NO_SUPPORT,
            lambda: moved("mu", "ij", own(rho) * other(rho * k1), "q").without("support", "mu", "q")),
        ("a weight of one sequence leaves the others without weight", PART, NO_SUPPORT,
            lambda: moved("mu", "it", rho * now(k1), "q").without("support", "mu", "q")),
        ("a weight that fades in one term of two", PART, NO_SUPPORT,
            lambda: moved("mu", "t", rho * now(k1) + past(rho), "q").without("support", "mu", "q")),
        ("two score functions against one power", PART, NO_SUPPORT,  # q s^2 need not vanish with q
            lambda: moved("mu", "t", rho * now(k1), "q", "now", "now").without("support", "mu", "q")),
        ("a function that may grow in one slot", PART, NO_SUPPORT,
            lambda: Draft(mean_i("mu", own(rho * f) * others(rho)), mean_i("q", own(f)), **FUNCTIONS)
            .step("change of measure", to="q").without("support", "mu", "q")),
    ],
    "ratio mean one": [
        ("of this step without its support", PART, NO_SUPPORT,
            lambda: ratio(sum_t("mu", past(k1) * now(rho)), sum_t("mu", past(k1)), "now", "q")
            .without("support")),
        ("of the others without their support", PART, NO_SUPPORT,
            lambda: ratio(mean_i("mu", own(k1) * others(rho)), mean_i("mu", own(k1)), "others", "q")
            .without("support")),
        ("the support the other way round", PART, NO_SUPPORT,
            lambda: ratio(sum_t("q", now(r)), sum_t("q", ONE), "now", "p").without("support")
            .assuming("support", "q", "p")),
    ],
}  # fmt: skip

# ---------------------------------------------------------------------------- the number of steps
LENGTHS = {
    "linearity": [
        ("the length for a constant", STEP1, "constant: it depends on the sample",
            lambda: Draft(sum_t("q", now(k1) * T.invert()), NOTHING)
            .step("linearity", NOTHING, constant=T.invert())),
    ],
    "score mean zero": [
        ("a mean over the steps so far and to come", STEP1, "\\['x'\\] may depend on the slot future",
            lambda: Draft(sum_t("q", now(R) * T.invert(), "future"), NOTHING)
            .step("score mean zero", NOTHING, slot="future")),
        ("a part divided by the length", STEP1, "\\['x'\\] may depend on the slot now",
            lambda: Draft(sum_t("q", past(R) * T.invert() + now(R), "now"), sum_t("q", now(R), "now"))
            .step("score mean zero", sum_t("q", now(R), "now"), slot="now", part=past(R) * T.invert())),
    ],
    "normalisation": [
        ("of one over the length", STEP1, "the coefficient depends on the sample",
            lambda: Draft(Em("q", T.invert()), constant(1)).step("normalisation", constant(1))),
        ("of the steps of a sequence", STEP1, "a sum over t of a constant is a multiple of the length",
            lambda: Draft(sum_t("q", ONE), constant(1)).step("normalisation", constant(1))),
    ],
    "sum over t": [
        ("the length beside one over the length", STEP1, "length is no factor of the coefficient",
            lambda: Draft(Em("q", T + T.invert()), sum_t("q", ONE))
            .step("sum over t", sum_t("q", ONE), of="length")),
    ],
    "parts of a sum": [
        ("a reward divided by the length of its parts", STEP1, "division by a sum",
            lambda: Draft(sum_t("q", R * T.invert()), sum_t("q", now(R)))
            .step("parts of a sum", sum_t("q", now(R)), of=["R", "length"])),
    ],
}  # fmt: skip

# ---------------------------------------------------------------------------- one index for another
ONE_STEP = Em("q", k1)
INDICES = {
    "equality": [
        ("a sum over t for one sample", CLOSE, DIFFER,
            lambda: Draft(sum_t("q", now(k1)), ONE_STEP)),
        ("one sample of a batch for one sample", CLOSE, DIFFER,
            lambda: Draft(mean_i("q", own(k1)), ONE_STEP)),
        ("a batch of sequences for one sequence", CLOSE, DIFFER,
            lambda: Draft(mean("it", "q", now(k1)), sum_t("q", now(k1)))),
    ],
    "score mean zero": [
        ("the score of the sequence at each step of a batch", STEP1, "slot: one of .* expected, got 'x'",
            lambda: Draft(mean("it", "q", ONE, "x"), NOTHING).step("score mean zero", NOTHING, slot="x")),
        ("the score of the sequence beside the past", STEP1, "slot: one of .* expected, got 'x'",
            lambda: Draft(sum_t("q", past(R), "x"), NOTHING).step("score mean zero", NOTHING, slot="x")),
        ("later steps of one sequence of a batch", STEP1, "\\['future'\\] may depend on the slot now",
            lambda: Draft(mean("it", "q", future(R) * others(R), "now"), NOTHING)
            .step("score mean zero", NOTHING, slot="now")),
        ("one of a pair among the rest", STEP1, "\\['rest'\\] may depend on the slot rest",
            lambda: Draft(mean("ij", "q", own(R) * rest(R), "rest"), NOTHING)
            .step("score mean zero", NOTHING, slot="rest")),
        ("the score of this step among scores of the sequence", STEP1, "\\['x'\\] may depend on the slot now",
            lambda: Draft(sum_t("q", ONE, "now", "x"), NOTHING)
            .step("score mean zero", NOTHING, slot="now")),
    ],
    "ratio mean one": [
        ("of the whole sequence at each step of a batch", STEP1, "slot: one of .*'others'. expected",
            lambda: Draft(mean("it", "q", r), mean("it", "q", ONE))
            .step("ratio mean one", mean("it", "q", ONE), of="p", slot="x")),
        ("of the past of a batch of sequences", STEP1, "slot: one of .*'others'. expected",
            lambda: Draft(mean("it", "mu", past(rho)), mean("it", "mu", ONE))
            .step("ratio mean one", mean("it", "mu", ONE), of="q", slot="past")),
        ("of this step for a single sample", STEP1, "slot: one of \\['x'\\] expected",
            lambda: Draft(Em("q", r), constant(1)).step("ratio mean one", constant(1), of="p", slot="now")),
        ("of the sequence beside what it draws", STEP1, "\\['x'\\] may depend on the slot now",
            lambda: Draft(sum_t("mu", now(rho) * R), sum_t("mu", R))
            .step("ratio mean one", sum_t("mu", R), of="q", slot="now")),
    ],
    "sum over t": [
        ("of a sum over t", STEP1, "a mean over whole sequences expected",
            lambda: Draft(sum_t("q", k1), sum_t("q", now(k1)))
            .step("sum over t", sum_t("q", now(k1)), of="k1")),
        ("of a batch", STEP1, "a mean over whole sequences expected",
            lambda: Draft(mean_i("q", own(k1)), mean("it", "q", now(k1)))
            .step("sum over t", mean("it", "q", now(k1)), of="k1")),
    ],
    "parts of a sum": [
        ("of a single sample", STEP1, "a sum over t expected",
            lambda: Draft(Em("q", k1), sum_t("q", past(k1) + now(k1) + future(k1)))
            .step("parts of a sum", sum_t("q", past(k1) + now(k1) + future(k1)), of=["k1"])),
    ],
    "exchange of sums": [
        ("of a single sample", STEP1, "a sum over t expected",
            lambda: Draft(Em("q", k1 * R), NOTHING)
            .step("exchange of sums", NOTHING, now="k1", other="R", slot="future")),
    ],
    "independence": [
        ("of the scores of a single sample", STEP1, "a mean over batches expected",
            lambda: Draft(Em("q", k1 * R), Em("q", k1).multiply(Em("q", R)))
            .step("independence", Em("q", k1).multiply(Em("q", R)))),
    ],
    "chain rule": [
        ("a token loss as if it were that of the sequence", STEP1, GOT,
            lambda: Draft(mean_grad("t", "q", now(k2)), Em("q", k1, 1)).step("chain rule", Em("q", k1, 1))),
        ("the slope of the others given to the sample itself", STEP1, GOT,
            lambda: Draft(mean_grad("i", "q", own(R) * others(k1)), mean_i("q", own(R), "self"))
            .step("chain rule", mean_i("q", own(R), "self"))),
    ],
    "log-derivative": [
        ("the other sequences held fixed", STEP1, GOT,
            lambda: Draft(grad(mean("it", "q", now(R) * others(R))), mean("it", "q", now(R) * others(R), "x"))
            .step("log-derivative", mean("it", "q", now(R) * others(R), "x"))),
        ("the remaining samples held fixed", STEP1, GOT,
            lambda: Draft(grad(mean("ij", "q", own(R) * other(R))), NOTHING)
            .step("log-derivative", mean("ij", "q", own(R) * other(R), "self")
                  + mean("ij", "q", own(R) * other(R), "other"))),
    ],
}  # fmt: skip

# ---------------------------------------------------------------------------- two directions
ALONG_U = sum_t("q", now(k1), "now", "x'")
CURLS = {
    "curl": [
        ("one direction of one sample", STEP1, GOT,  # s u.s v.s is symmetric: it cancels
            lambda: Draft(curl("", "q", k2), NOTHING).step("curl", mean("", "q", k1, "x", "x'"))),
        ("one direction of one sample under the sampler", STEP1, GOT,
            lambda: Draft(curl("", "mu", sg(k1) * R * k1), NOTHING)
            .step("curl", mean("", "mu", R, "x", "x'"))),
        ("one direction along a sequence", STEP1, GOT,
            lambda: Draft(curl("t", "q", now(k2)), ALONG_U).step("curl", ALONG_U)),
        ("the two directions with one sign", STEP1, GOT,
            lambda: Draft(curl("t", "q", now(k2)), NOTHING)
            .step("curl", ALONG_U + sum_t("q", now(k1), "now'", "x"))),
        ("one direction in a batch", STEP1, GOT,
            lambda: Draft(curl("i", "mu", own(k1) * others(sg(k1))), NOTHING)
            .step("curl", mean_i("mu", ONE, "self", "others'"))),
        ("one sample for a sequence", STEP1, GOT,
            lambda: Draft(curl("t", "q", now(k2)), NOTHING)
            .step("curl", mean("", "q", k1, "x", "x'"))),
        ("at one sample", STEP1, "a field is a mean under q, p or mu",
            lambda: Draft(curl("", "sample", k2), NOTHING).step("curl", NOTHING)),
        ("a function of the others", STEP1, "f\\[others\\] is a sum over positions",
            lambda: Draft(curl("i", "q", own(k1) * others(f)), NOTHING, **FUNCTIONS).step("curl", NOTHING)),
        ("the score of this step taken for that of the sequence", STEP2, "\\['x'\\] may depend",
            lambda: Draft(curl("t", "q", now(k1)), NOTHING).step("curl")
            .step("score mean zero", NOTHING, slot="now")),
    ],
}  # fmt: skip

NEIGHBOURS = (
    SAMPLES, SEQUENCES, EXISTENCE, EXCHANGES, ADVANTAGES, SUPPORTS, LENGTHS, INDICES, CURLS,
)  # fmt: skip
