"""Named cases of the rules at an index: what replaces an atom, or the message of the refusal."""

from __future__ import annotations

from typing import Any

from klsym.kernel.statements import Atom, Context, Side
from support.certificates.faulty_certificates import *
from support.certificates.region_words import *
from support.certificates.slot_helpers import (
    future,
    lone,
    mean_i,
    n,
    now,
    only,
    other,
    others,
    own,
    past,
    rest,
    sum_t,
)

FUNCTIONS = (("f", ("k1", "log_q", "w")), ("g", ("k1",)))
PLAIN = Context(parameters=("beta", "nu", "n"), functions=FUNCTIONS, **KNOWN)
BARE = Context(parameters=("beta",))  # no batch size
f1, N2 = V("f'"), n - 2


def of(side: Side, *names: str) -> tuple[Atom, dict[str, Any]]:
    return only(side, of=list(names))


def swap(side: Side, x: Any, y: Any, slot: Any = "future", **data: Any) -> tuple[Atom, dict[str, Any]]:
    return only(side, now=x, other=y, slot=slot, **data)


REFUSES_WHOLE = "'x'\\] may depend on the slot"
SUMS = {
    "sum over t": [
        ("log ratio", only(Em("q", k1), of="k1"), PLAIN, sum_t("q", now(k1))),
        ("one factor of two", only(Em("mu", k1 * k1, 1), of="k1"), PLAIN, sum_t("mu", k1 * now(k1), "x")),
        ("reward", only(Em("p", R * T.invert()), of="R"), PLAIN, sum_t("p", now(R) * T.invert())),
        ("score", only(Em("q", A, 1), of="s"), PLAIN, sum_t("q", A, "now")),
        ("one score of two", only(Em("q", A, 2), of="s"), PLAIN, sum_t("q", A, "now", "x")),
        ("length", only(point(T * r), of="length"), PLAIN, sum_t("sample", r)),
        ("part", only(Em("q", H + k2), of="H", part=H), PLAIN, Em("q", k2) + sum_t("q", now(H))),
        ("ratio", only(Em("q", r), of="k1"), PLAIN, "k1 is no factor"),
        ("every term", only(Em("q", k3), of="k1"), PLAIN, "k1 is no factor"),
        ("inside an exponent", only(Em("q", (k1 * R).exp()), of="k1"), PLAIN, "k1 is no factor"),
        ("detached", only(Em("q", sg(k1)), of="sg(k1)"), PLAIN, "of: one of"),
        ("advantage", only(Em("q", A), of="A"), PLAIN, "of: one of"),
        ("function", only(Em("q", f), of="f"), PLAIN, "of: one of"),
        ("no score", only(Em("q", k1), of="s"), PLAIN, "no score function in the slot x"),
        ("in a denominator", only(Em("q", T.invert()), of="length"), PLAIN, "length is no factor"),
        ("counting measure", only(Em("count", k1), of="k1"), PLAIN, "a mean over whole sequences expected"),
        ("part at a sample", only(point(k1 + 1), of="k1", part=k1), PLAIN,
            sum_t("sample", now(k1)) + point(ONE)),
        ("a sum over t", only(sum_t("q", k1), of="k1"), PLAIN, "a mean over whole sequences expected"),
    ],
    "parts of a sum": [
        ("log ratio", of(sum_t("q", k1, "now"), "k1"), PLAIN,
            sum_t("q", past(k1) + now(k1) + future(k1), "now")),
        ("scores", of(sum_t("q", R, "x"), "s"), PLAIN,
            sum_t("q", R, "past") + sum_t("q", R, "now") + sum_t("q", R, "future")),
        ("length", of(sum_t("p", T), "length"), PLAIN, sum_t("p", past(T) + 1 + future(T))),
        ("inside an exponent", of(sum_t("mu", rho), "w"), PLAIN,
            sum_t("mu", past(rho) * now(rho) * future(rho))),
        ("both at once", of(sum_t("sample", R, "now", "x"), "R", "s"), PLAIN, Side.combine(*(
            (1, (lone(sum_t("sample", past(R) + now(R) + future(R), "now", z)),))
            for z in ("past", "now", "future")))),
        ("second direction", of(sum_t("q", A, "x'", "now"), "s"), PLAIN, Side.combine(*(
            (1, (lone(sum_t("q", A, z, "now")),)) for z in ("past'", "now'", "future'")))),
        ("of a batch of sequences", of(mean("it", "q", H * others(k1)), "H"), PLAIN,
            mean("it", "q", (past(H) + now(H) + future(H)) * others(k1))),
        ("a quotient", of(sum_t("q", T.invert()), "length"), PLAIN, "division by a sum"),
        ("function", of(sum_t("q", f), "f"), PLAIN, "of: a list of names"),
        ("advantage", of(sum_t("q", A), "A"), PLAIN, "of: a list of names"),
        ("no list", only(sum_t("q", k1), of="k1"), PLAIN, "of: a list of names"),
        ("single samples", of(Em("q", k1), "k1"), PLAIN, "a sum over t expected"),
        ("a batch", of(mean_i("q", own(k1)), "k1"), PLAIN, "a sum over t expected"),
        ("part", only(sum_t("q", R + k1, "now"), of=["k1"], part=k1), PLAIN,
            sum_t("q", R + past(k1) + now(k1) + future(k1), "now")),
        ("this step counts as one", of(sum_t("sample", now(T) * T), "length"), PLAIN,
            sum_t("sample", past(T) + 1 + future(T))),
        ("no data", only(sum_t("q", k1)), PLAIN, "data: expected \\['of'\\]"),
    ],
    "exchange of sums": [
        ("reward to go", swap(sum_t("q", future(R), "now"), "s", "R"), PLAIN, sum_t("q", now(R), "past")),
        ("the past", swap(sum_t("mu", past(k1) * now(w)), "w", "k1", "past"), PLAIN,
            sum_t("mu", now(k1) * future(w))),
        ("times what is whole", swap(sum_t("q", future(k1) * T.invert() * A, "now", "x"), "s", "k1"), PLAIN,
            sum_t("q", now(k1) * T.invert() * A, "past", "x")),
        ("steps", swap(sum_t("p", future(T)), "length", "length"), PLAIN, sum_t("p", past(T))),
        ("generic functions", swap(sum_t("q", now(f1) * future(f)), "f'", "f"), PLAIN,
            sum_t("q", past(f1) * now(f))),
        ("two scores", swap(sum_t("q", A, "now", "future"), "s", "s"), PLAIN, sum_t("q", A, "past", "now")),
        ("beside other sequences", swap(mean("it", "q", others(R) * future(H), "now"), "s", "H"), PLAIN,
            mean("it", "q", others(R) * now(H), "past")),
        ("part", swap(sum_t("q", future(R) - past(R), "now"), "s", "R", part=future(R)), PLAIN,
            sum_t("q", -past(R), "now") + sum_t("q", now(R), "past")),
        ("the past as well", swap(sum_t("q", future(R) * past(A), "now"), "s", "R"), PLAIN,
            "more than s and R depends on t: \\['past'\\]"),
        ("a past score", swap(sum_t("q", future(R), "now", "past'"), "s", "R"), PLAIN, "depends on t"),
        ("twice", swap(sum_t("q", future(R) * future(R), "now"), "s", "R"), PLAIN, "depends on t"),
        ("inside an exponent", swap(sum_t("q", future(r), "now"), "s", "k1"), PLAIN, "is no factor"),
        ("not there", swap(sum_t("q", future(R)), "k1", "R"), PLAIN, "is no factor"),
        ("advantage", swap(sum_t("q", future(A), "now"), "s", "A"), PLAIN, "'A' is no sum over positions"),
        ("detached", swap(sum_t("q", future(sg(k1)), "now"), "s", "sg(k1)"), PLAIN, "is no sum"),
        ("now for later", swap(sum_t("q", now(k1) * now(R)), "k1", "R", "now"), PLAIN, "slot: one of"),
        ("a score that is not there", swap(sum_t("q", future(R)), "s", "R"), PLAIN, "no score function"),
        ("a batch", swap(mean_i("q", own(k1)), "k1", "k1"), PLAIN, "a sum over t expected"),
        ("single samples", swap(Em("q", k1), "k1", "k1"), PLAIN, "a sum over t expected"),
    ],
    "curl": [
        ("sequence k2", only(curl("t", "q", k2)), PLAIN, NOTHING),
        ("token k2", only(curl("t", "q", now(k2))), PLAIN,
            sum_t("q", now(k1), "now", "x'") - sum_t("q", now(k1), "now'", "x")),
        ("weighted", only(curl("t", "mu", past(rho) * now(k1))), PLAIN, NOTHING),
        ("detached weight", only(curl("t", "p", past(sg(w)) * now(k1))), PLAIN,
            sum_t("p", ONE, "now", "past'") - sum_t("p", ONE, "now'", "past")),
        ("a copy of the sampler", only(curl("t", "q", now((log_q - sg(log_q)).exp() * k1))), PLAIN,
            sum_t("q", now(k1) + 1, "now", "x'") - sum_t("q", now(k1) + 1, "now'", "x")),
        ("one sample", only(curl("", "q", k3)), PLAIN, NOTHING),
        ("one sample of a detached weight", only(curl("", "p", sg(k1) * w)), PLAIN, NOTHING),
        ("a batch", only(curl("i", "mu", own(k1) * others(sg(k1)))), PLAIN,
            mean_i("mu", ONE, "self", "others'") - mean_i("mu", ONE, "others", "self'")),
        ("at one sample", only(curl("", "sample", k1)), PLAIN, "a field is a mean under q, p or mu"),
        ("under the counting measure", only(curl("", "count", k1)), PLAIN, "a field is a mean"),
        ("function of the others", only(curl("i", "q", others(f))), PLAIN, "is a sum over positions"),
        ("function of earlier steps", only(curl("t", "q", past(f))), PLAIN, "is a sum over positions"),
        ("detached function of earlier steps", only(curl("t", "q", past(sg(f)) * now(k1))), PLAIN,
            "is a sum over positions"),
        ("of a sum", only(sum_t("q", now(k1))), PLAIN, "Curl expected, got Mean"),
        ("data", only(curl("t", "q", now(k2)), to="q"), PLAIN, "data: expected \\[\\]"),
    ],
}  # fmt: skip

BATCHES = {
    "independence": [
        ("self", only(mean_i("q", own(k1))), PLAIN, Em("q", k1)),
        ("others", only(mean_i("mu", others(k1), "self")), PLAIN,
            Em("mu", ONE, 1).multiply(Em("mu", k1)) * (n - 1)),
        ("square of a sum", only(mean_i("p", others(k1) ** 2)), PLAIN,
            Em("p", ONE).multiply(Em("p", k1 * k1)) * (n - 1)
            + Em("p", ONE).multiply(Em("p", k1)).multiply(Em("p", k1)) * ((n - 1) * N2)),
        ("a score and a sum", only(mean_i("q", own(A) * others(R), "others")), PLAIN,
            Em("q", A).multiply(Em("q", R, 1)) * (n - 1)
            + Em("q", A).multiply(Em("q", ONE, 1)).multiply(Em("q", R)) * ((n - 1) * N2)),
        ("pairs", only(mean("ij", "q", own(r) * other(A.exp()) * rest(w), "other")), PLAIN,
            Em("q", r).multiply(Em("q", A.exp(), 1)).multiply(Em("q", w)) * N2),
        ("sequences", only(mean("it", "q", past(A) * T * others(R), "now")), PLAIN,
            sum_t("q", past(A) * T, "now").multiply(Em("q", R)) * (n - 1)),
        ("advantages of others", only(mean_i("q", others(A))), PLAIN, "is any function of its slot"),
        ("part", only(mean_i("q", own(k1) - others(k1).exp()), part=own(k1)), PLAIN,
            Em("q", k1) - mean_i("q", others(k1).exp())),
        ("joined by an exponent", only(mean_i("q", (own(k1) * others(k1)).exp())), PLAIN,
            "an exponent joins the slots \\['others', 'self'\\]"),
        ("an exponent of a sum", only(mean_i("q", others(r))), PLAIN, "an exponent holds the sum"),
        ("three factors", only(mean_i("q", others(k1) ** 3)), PLAIN, "a product of 3 sums"),
        ("two scores and a sum", only(mean_i("q", others(k1), "others", "others")), PLAIN, "of 3 sums"),
        ("a sum in a denominator", only(mean_i("q", others(k1).invert())), PLAIN, "division by k1\\[others"),
        ("no batch size", only(mean_i("q", others(k1))), BARE, "the batch size n is not declared"),
        ("one sequence", only(sum_t("q", now(k1) * past(k1))), PLAIN, "a mean over batches expected"),
        ("one batch", only(mean_i("sample", own(k1) * others(k1))), PLAIN, "a mean over batches expected"),
        ("two directions", only(mean("ij", "q", own(k1), "self", "other'")), PLAIN, "one direction"),
        ("a second direction of self", only(mean_i("q", own(k1), "self'")), PLAIN, "one direction"),
        ("a second direction now", only(mean("it", "q", now(k1), "now'")), PLAIN, "one direction"),
        ("single samples", only(Em("q", k1 * k1)), PLAIN, "a mean over batches expected"),
    ],
}  # fmt: skip

DERIVATIVES = {
    "chain rule": [
        ("token loss", only(mean_grad("t", "q", now(k2))), PLAIN, sum_t("q", now(k1), "now")),
        ("prefix weight", only(mean_grad("t", "mu", past(rho) * now(k1))), PLAIN,
            sum_t("mu", past(rho) * now(k1), "past") + sum_t("mu", past(rho), "now")),
        ("detached prefix weight", only(mean_grad("t", "mu", past(sg(rho)) * now(k1))), PLAIN,
            sum_t("mu", past(rho), "now")),
        ("theta-free", only(mean_grad("t", "q", past(R * T) * H * T.invert() * A)), PLAIN, NOTHING),
        ("functions at one position", only(mean_grad("t", "sample", now(f) * f)), PLAIN,
            sum_t("sample", now(f1) * f, "now") + sum_t("sample", now(f) * f1, "x")),
        ("a mean of others", only(mean_grad("i", "q", own(k1) * others(k1))), PLAIN,
            mean_i("q", others(k1), "self") + mean_i("q", own(k1), "others")),
        ("pairs", only(mean_grad("ij", "q", other(f) * rest(k1))), PLAIN,
            mean("ij", "q", other(f1) * rest(k1), "other") + mean("ij", "q", other(f), "rest")),
        ("function of the past", only(mean_grad("t", "q", past(f))), PLAIN,
            "f\\[past\\] is a sum over positions"),
        ("function of others", only(mean_grad("i", "q", others(g))), PLAIN, "is a sum over positions"),
        ("function of other sequences", only(mean_grad("it", "q", others(f) * now(k1))), PLAIN, "is a sum"),
        ("a mean", only(sum_t("q", now(k2))), PLAIN, "MeanGradient expected, got Mean"),
    ],
    "stop-gradient": [
        ("prefix weight", only(sum_t("mu", past(sg(rho)), "now")), PLAIN, sum_t("mu", past(rho), "now")),
        ("baseline", only(mean_i("q", own(k1) - others(sg(k1)), "self")), PLAIN,
            mean_i("q", own(k1) - others(k1), "self")),
        ("function of the past", only(sum_t("q", past(sg(f)))), PLAIN, sum_t("q", past(f))),
        ("loss", only(mean_grad("t", "q", past(sg(k1)))), PLAIN, "Mean expected, got MeanGradient"),
        ("gradient", only(grad(sum_t("q", past(sg(k1))))), PLAIN, "Mean expected, got Gradient"),
        ("curl", only(curl("t", "q", past(sg(k1)))), PLAIN, "Mean expected, got Curl"),
    ],
    "log-derivative": [
        ("under q", only(grad(sum_t("q", now(k1)))), PLAIN,
            sum_t("q", now(k1), "x") + mean_grad("t", "q", now(k1))),
        ("under mu", only(grad(sum_t("mu", now(rho)))), PLAIN, mean_grad("t", "mu", now(rho))),
        ("a batch", only(grad(mean_i("q", own(R) * others(R)))), PLAIN,
            mean_i("q", own(R) * others(R), "self") + mean_i("q", own(R) * others(R), "others")
            + mean_grad("i", "q", own(R) * others(R))),
        ("a batch of sequences", only(grad(mean("it", "q", now(k1) * others(R)) * beta)), PLAIN,
            mean("it", "q", beta * now(k1) * others(R), "x")
            + mean("it", "q", beta * now(k1) * others(R), "others")
            + mean_grad("it", "q", beta * now(k1) * others(R))),
        ("with a score", only(grad(sum_t("q", k1, "now"))), PLAIN, "without score function expected"),
        ("one sequence", only(grad(sum_t("sample", now(k1)))), PLAIN, mean_grad("t", "sample", now(k1))),
        ("a sum", only(grad(sum_t("q", now(k1)) + sum_t("p", now(k1)) * beta + constant(nu))), PLAIN,
            sum_t("q", now(k1), "x") + mean_grad("t", "q", now(k1)) + mean_grad("t", "p", beta * now(k1))),
        ("one sample", only(grad(Em("q", k2))), PLAIN, Em("q", k2, 1) + mean_grad("", "q", k2)),
        ("the counting measure", only(grad(Em("count", k2))), PLAIN, mean_grad("", "count", k2)),
        ("a product", only(grad(Em("q", R).multiply(sum_t("q", now(R))))), PLAIN, "and of no product"),
        ("a gradient of a loss", only(grad(mean_grad("t", "q", now(k1)))), PLAIN, "score function expected"),
        ("not under a gradient", only(sum_t("q", now(k1))), PLAIN, "Gradient expected, got Mean"),
    ],
    "product rule": [
        ("of steps", only(grad(sum_t("q", now(k1)).multiply(sum_t("mu", now(w))))), PLAIN,
            grad(sum_t("q", now(k1))).multiply(sum_t("mu", now(w)))
            + sum_t("q", now(k1)).multiply(grad(sum_t("mu", now(w))))),
        ("of a batch and a sample", only(grad(mean_i("q", own(R)).multiply(Em("q", k1)))), PLAIN,
            grad(mean_i("q", own(R))).multiply(Em("q", k1))
            + mean_i("q", own(R)).multiply(grad(Em("q", k1)))),
        ("a square", only(grad(mean_i("p", own(k1)).multiply(mean_i("p", own(k1))))), PLAIN,
            grad(mean_i("p", own(k1))).multiply(mean_i("p", own(k1))) * 2),
        ("with a score", only(grad(sum_t("q", k1, "now").multiply(Em("q", k1)))), PLAIN,
            "without score function expected"),
        ("one sequence", only(grad(sum_t("sample", now(k1)).multiply(Em("q", k1)))), PLAIN,
            "products of expectations"),
    ],
}  # fmt: skip

MEAN = mean_i("q", own(k1))
MEANS = {
    "change of measure": [
        ("a sequence", only(sum_t("mu", past(rho) * now(rho * k1)), to="q"), PLAIN,
            sum_t("q", now(k1) * future((-w).exp()))),
        ("a batch", only(mean_i("q", own(r) * others(r)), to="p"), PLAIN, mean_i("p", ONE)),
        ("a batch of sequences", only(mean("it", "mu", now(A), "x"), to="q"), PLAIN,
            mean("it", "q", now(A) * past((-w).exp()) * now((-w).exp()) * future((-w).exp())
                     * others((-w).exp()), "x")),
        ("to the counting measure", only(sum_t("q", now(k1)), to="count"), PLAIN, "speaks of single samples"),
        ("from one batch", only(mean_i("sample", own(k1)), to="q"), PLAIN, "not the value at one sample"),
        ("unknown", only(sum_t("q", now(k1)), to="sample"), PLAIN, "to: one of"),
    ],
    "score mean zero": [
        ("causality", only(sum_t("q", past(R * k1 * A * T), "now"), slot="now"), PLAIN, NOTHING),
        ("later scores", only(sum_t("q", now(A.exp()) * past(r), "now", "future"), slot="future"), PLAIN,
            NOTHING),
        ("earlier scores beside", only(sum_t("q", past(R), "now", "past'"), slot="now"), PLAIN, NOTHING),
        ("baseline of others", only(mean_i("q", others(r * A), "self"), slot="self"), PLAIN, NOTHING),
        ("pairs", only(mean("ij", "q", own(k1) * rest(k1), "self", "other"), slot="other"), PLAIN,
            NOTHING),
        ("a batch of sequences", only(mean("it", "q", others(R) * past(R), "now"), slot="now"), PLAIN,
            NOTHING),
        ("other sequences", only(mean("it", "q", R * T.invert() * future(A), "others"), slot="others"),
            PLAIN, NOTHING),
        ("part", only(sum_t("q", past(R) + now(R), "now"), slot="now", part=past(R)), PLAIN,
            sum_t("q", now(R), "now")),
        ("reward to go", only(sum_t("q", now(R) + future(R), "now"), slot="now"), PLAIN,
            "\\['future', 'now'\\] may depend on the slot now"),
        ("this step", only(sum_t("q", now(A), "now"), slot="now"), PLAIN, "may depend on the slot"),
        ("the whole sequence", only(sum_t("q", k1, "now"), slot="now"), PLAIN, REFUSES_WHOLE),
        ("its length", only(sum_t("q", T.invert(), "now"), slot="now"), PLAIN, REFUSES_WHOLE),
        ("later scores with later rewards", only(sum_t("q", future(R), "future"), slot="future"), PLAIN,
            "may depend on the slot future"),
        ("earlier scores", only(sum_t("q", ONE, "past"), slot="past"), PLAIN, "slot: one of"),  # grad E_q[T]
        ("the whole score", only(sum_t("q", ONE, "x"), slot="x"), PLAIN, "slot: one of"),  # grad E_q[T]
        ("two scores", only(sum_t("q", ONE, "now", "now"), slot="now"), PLAIN, "one score function"),
        ("two directions", only(sum_t("q", ONE, "now", "now'"), slot="now"), PLAIN, "one score function"),
        ("a later score beside", only(sum_t("q", ONE, "now", "future"), slot="now"), PLAIN, "\\['future'\\]"),
        ("under mu", only(sum_t("mu", ONE, "now"), slot="now"), PLAIN, "needs m = q, got m = mu"),
        ("one sequence", only(sum_t("sample", ONE, "now"), slot="now"), PLAIN, "got m = sample"),
        ("own value", only(mean_i("q", own(R) * others(R), "self"), slot="self"), PLAIN, "\\['self'\\]"),
        ("the slot left out", only(sum_t("q", ONE, "now")), PLAIN, "data: expected"),
        ("one sample", only(Em("q", beta, 1), slot="x"), PLAIN, NOTHING),
        ("one sample beside a second direction", only(mean("", "q", beta, "x", "x'"), slot="x"), PLAIN,
            "one score function"),
        ("a score of what has none", only(Em("q", k1), slot="x"), PLAIN, "one score function"),
        ("a batch of sequences, the whole", only(mean("it", "q", ONE, "x"), slot="x"), PLAIN, "slot: one of"),
    ],
    "ratio mean one": [
        ("this step", only(sum_t("q", past(k1) * now(r)), of="p", slot="now"), PLAIN, sum_t("q", past(k1))),
        ("later steps", only(sum_t("mu", now(A) * future(rho), "now"), of="q", slot="future"), PLAIN,
            sum_t("mu", now(A), "now")),
        ("others", only(mean_i("q", own(k1) * others(r), "self"), of="p", slot="others"), PLAIN,
            mean_i("q", own(k1), "self")),
        ("a batch of sequences",
            only(mean("it", "p", now((k1 - w).exp()) * others(R)), of="mu", slot="now"), PLAIN,
            mean("it", "p", others(R))),
        ("the future beside", only(sum_t("q", now(r) * future(k1)), of="p", slot="now"), PLAIN,
            "\\['future'\\] may depend on the slot now"),
        ("earlier steps", only(sum_t("q", past(r)), of="p", slot="past"), PLAIN, "slot: one of"),
        ("the whole sequence", only(sum_t("q", r), of="p", slot="x"), PLAIN, "slot: one of"),
        ("with its score", only(sum_t("q", now(r), "now"), of="p", slot="now"), PLAIN, "\\['now'\\]"),
        ("squared", only(sum_t("q", now(r * r)), of="p", slot="now"), PLAIN, "\\['now'\\] may depend"),
        ("wrong way", only(sum_t("q", now(k1).exp()), of="p", slot="now"), PLAIN, "\\['now'\\] may depend"),
        ("of the counting measure", only(sum_t("q", now((-log_q).exp())), of="count", slot="now"), PLAIN,
            "of: one of|a mean under a probability"),
        ("one batch", only(mean_i("sample", others(r)), of="p", slot="others"), PLAIN, "one of|a mean under"),
        ("a foreign slot", only(mean_i("q", own(r)), of="p", slot="now"), PLAIN, "slot: one of"),
        ("one sample", only(Em("mu", beta * rho), of="q", slot="x"), PLAIN, Em("mu", beta)),
        ("one sample at a step", only(Em("mu", rho), of="q", slot="now"), PLAIN, "slot: one of"),
    ],
    "normalisation": [
        ("one sample", only(Em("mu", beta * nu)), PLAIN, constant(beta * nu)),
        ("a batch", only(mean_i("q", beta)), PLAIN, constant(beta)),
        ("a pair", only(mean("ij", "sample", beta.invert())), PLAIN, constant(beta.invert())),
        ("part", only(mean_i("q", own(k1) + beta), part=beta), PLAIN, MEAN + constant(beta)),
        ("steps", only(sum_t("q", ONE)), PLAIN, "a multiple of the length"),
        ("steps of a batch", only(mean("it", "q", ONE)), PLAIN, "a multiple of the length"),
        ("the counting measure", only(Em("count", ONE)), PLAIN, "no total mass one"),
        ("a score", only(mean_i("q", ONE, "self")), PLAIN, "no score function expected"),
        ("what varies", only(mean_i("q", own(T))), PLAIN, "depends on the sample"),
    ],
    "linearity": [
        ("a sum over t", only(sum_t("q", beta * now(k1), "now"), constant=beta), PLAIN,
            sum_t("q", now(k1), "now") * beta),
        ("a batch", only(mean_i("mu", nu * own(k1)), constant=(nu * 2).exp()), PLAIN,
            mean_i("mu", nu * own(k1))),
        ("one sample of a batch", only(mean_i("sample", nu * own(k1)), constant=nu * 2), PLAIN,
            mean_i("sample", nu * own(k1))),
        ("part", only(sum_t("q", beta * now(k1) + R), constant=beta, part=beta * now(k1)), PLAIN,
            sum_t("q", beta * now(k1) + R)),
        ("the length", only(sum_t("q", T * now(k1)), constant=T), PLAIN, "it depends on the sample"),
        ("a sum", only(sum_t("q", (beta + 1) * now(k1)), constant=beta + 1), PLAIN, "division by a sum"),
        ("zero", only(sum_t("q", now(k1)), constant=ONE * 0), PLAIN, "division by zero"),
        ("another slot", only(sum_t("q", now(k1)), constant=past(R)), PLAIN, "unknown slot"),
    ],
}  # fmt: skip

MASS = Em("q", V("M") + r)
UP, DOWN = {"up[now]": 1, "down[now]": 1}, bound("down[now]")
DEFINED_NAMES = {
    "region": [
        ("a step", only(sum_t("q", now(up * down) * past(R) + R), **cell(UP, bound("up[now]"), DOWN,
            times=past(R))), PLAIN, sum_t("q", R)),
        ("a step and its sequence", only(sum_t("mu", now(up * down) + up * down),
            **cell({"up": 1, "down": 1}, bound("up"), bound("down"))), PLAIN, sum_t("mu", now(up * down))),
        ("a prefix", only(sum_t("p", over**2, "now"), **cell({}, times=ZERO)), PLAIN,
            sum_t("p", over, "now")),
        ("a sample of a batch", only(mean_i("q", own((1 - up) * (1 - down) * k1) * others(R)),
            **cell({"up[self]": 0, "down[self]": 0}, bound("up[self]", "down[self]"), of=own(k1),
            times=others(R))), PLAIN, NOTHING),
        ("the other of a pair", only(mean("ij", "sample", other(below) * rest(R)), **cell(
            {"below[other]": 1}, bound("below[other]"), bound(tangent=-other(k1)), times=rest(R))), PLAIN,
            NOTHING),
        ("two samples", only(mean_i("mu", win**3 * own(pos)), **cell({}, times=ZERO)), PLAIN,
            mean_i("mu", win * own(pos))),
        ("a step of a batch", only(mean("it", "q", now(high * low) * others(R), "others"), **cell(
            {"high[now]": 1, "low[now]": 1}, bound("high[now]"), bound("low[now]"), bound(0, weight=ONE * 2),
            times=others(R))), PLAIN, NOTHING),
        ("the step of another slot", only(sum_t("q", now(up) * down),
            **cell({"up[now]": 1, "down": 1}, bound("up[now]"), bound("down"))), PLAIN, "do not add up"),
        ("a sum over positions", only(sum_t("q", past(up)), **cell({"up[past]": 1}, bound("up[past]"))),
            PLAIN, "stands for no sum over positions"),
        ("the others of a batch", only(mean_i("q", own(up)), **cell({"up[others]": 1})), PLAIN,
            "stands for no sum"),
        ("a prefix of one sample", only(Em("q", R), **cell({"over": 1}, bound("over"))), PLAIN,
            "'over' speaks of the slots"),
        ("a prefix now", only(sum_t("q", R), **cell({"over[now]": 1}, bound("over[now]"))), PLAIN,
            "stands for no sum"),
    ],
    "definition": [
        ("a step", only(sum_t("q", now(inv * (r + 1)) * R), name="inv[now]", times=R), PLAIN, sum_t("q", R)),
        ("its sequence", only(sum_t("sample", inv * (r + 1), "now"), name="inv", times=ONE), PLAIN,
            sum_t("sample", ONE, "now")),
        ("the other of a pair", only(mean("ij", "mu", other(quot * (up + 1))), name="quot[other]", times=ONE),
            PLAIN, mean("ij", "mu", ONE)),
        ("a sum over positions", only(mean_i("q", own(k1)), name="inv[others]", times=ONE), PLAIN,
            "stands for no sum"),
        ("a step of one sample", only(Em("q", k1), name="inv[now]", times=ONE), PLAIN, "speaks of the slots"),
        ("a region", only(sum_t("q", now(up)), name="up[now]", times=ONE), PLAIN, "is no name of a log"),
        ("an expectation", only(sum_t("mu", mass * now(k1) + R), name="mass", times=now(k1)), PLAIN,
            sum_t("mu", R) + MASS.multiply(sum_t("mu", now(k1)))),
        ("an expectation, put in", only(mean_i("q", own(R), "self"), name="theirs", times=-ONE), PLAIN,
            mean_i("q", own(R) + theirs, "self") - Em("p", k1 * R).multiply(mean_i("q", ONE, "self"))),
        ("an expectation under mu", only(sum_t("q", cost * now(R)), name="cost", times=now(R)), PLAIN,
            Em("mu", rho * R).multiply(sum_t("q", now(R)))),
        ("a name of an expectation and a reward", only(Em("p", share), name="share", times=ONE), PLAIN,
            Em("p", mass * R + theirs)),
        ("an expectation at a step", only(sum_t("q", mass), name="mass[now]", times=ONE), PLAIN,
            "unknown name|stands for no sum|is no name"),
    ],
}  # fmt: skip

OF_MASS, OF_THEIRS = grad(MASS), grad(Em("p", k1 * R))
EXPECTATIONS = {
    "chain rule": [
        ("an expectation that has a name", only(mean_grad("t", "mu", mass * now(k1))), PLAIN,
            sum_t("mu", mass, "now") + sum_t("mu", now(k1)).multiply(OF_MASS)),
        ("a log of an expectation", only(mean_grad("", "p", spare * R)), PLAIN,
            Em("p", R * (-spare).exp()).multiply(OF_MASS)),
        ("a name of two expectations", only(mean_grad("i", "q", own(share))), PLAIN,
            mean_i("q", own(R)).multiply(OF_MASS) + mean_i("q", ONE).multiply(OF_THEIRS)),
        ("a detached expectation", only(mean_grad("t", "mu", sg(mass) * now(k1))), PLAIN,
            sum_t("mu", mass, "now")),
        ("a detached log of an expectation", only(mean_grad("", "p", sg(spare) * k1)), PLAIN,
            Em("p", spare, 1)),
        ("an expectation under mu", only(mean_grad("", "p", cost * R)), PLAIN,
            Em("p", R).multiply(grad(Em("mu", rho * R)))),
        ("an expectation at one sample", only(mean_grad("", "sample", mass**2)), PLAIN,
            point(2 * mass).multiply(OF_MASS)),
    ],
    "log-derivative": [
        ("beside an expectation", only(grad(Em("q", mass * R))), PLAIN,
            Em("q", mass * R, 1) + mean_grad("", "q", mass * R)),
        ("an expectation times a mean", only(grad(Em("q", R).multiply(Em("p", k1)) * mass)), PLAIN,
            "an expectation multiplies a mean"),
        ("an expectation alone", only(grad(constant(mass))), PLAIN, "an expectation multiplies a mean"),
        ("a log of an expectation alone", only(grad(constant(spare))), PLAIN,
            "an expectation multiplies a mean"),
    ],
    "product rule": [
        ("an expectation times two means", only(grad(Em("q", R).multiply(Em("p", k1)) * mass)), PLAIN,
            "an expectation multiplies a mean"),
    ],
    "curl": [
        ("an expectation in the loss", only(curl("t", "q", mass * now(k1))), PLAIN, "moves with theta"),
        ("a detached expectation", only(curl("", "q", sg(mass) * k1)), PLAIN, "moves with theta"),
        ("a detached log of an expectation", only(curl("", "mu", sg(spare) * k1)), PLAIN, "moves with theta"),
    ],
}  # fmt: skip

CASES: dict[str, list[Any]] = {**SUMS, **BATCHES, **DERIVATIVES, **MEANS, **DEFINED_NAMES}
for rule, cases in EXPECTATIONS.items():
    CASES[rule] = [*CASES.get(rule, []), *cases]
