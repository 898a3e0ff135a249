"""What each rule does to one sample: the result and all that it assumes, or why it refuses."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from drafts import *
from drafts import T as length
from kernel_words import C, Mg
from slotted import lone

from klsym.ring import ONE
from klsym.statements import Side

QP, PQ, QM, MQ, PM = (
    ("support", x, y) for x, y in (("q", "p"), ("p", "q"), ("q", "mu"), ("mu", "q"), ("p", "mu"))
)
HALF = Fraction(1, 2)


def exchange(of: Side) -> tuple[Any, ...]:
    return "exchange", lone(of)


def exists(of: Side) -> tuple[Any, ...]:
    return "exists", lone(of)


# rule: (name, side, data, what comes of it, what that assumes) or (name, side, data, why it is refused)
CASES: dict[str, list[Any]] = {
    "chain rule": [
        ("k2", Mg("q", k2), {}, Em("q", k1, 1), set()),
        ("k3 under mu", Mg("mu", rho * k3), {}, Em("mu", rho * k1, 1), set()),
        ("detached weight", Mg("mu", sg(rho) * k2), {}, Em("mu", rho * k1, 1), set()),
        ("reward", Mg("q", R * log_q), {}, Em("q", R, 1), set()),
        ("function", Mg("q", f * k1), {}, Em("q", f + V("f'") * k1, 1), set()),
        ("all detached", Mg("sample", sg(k2) + R), {}, NOTHING, set()),
        ("theta-free", Mg("p", A * H + length.inverse()), {}, NOTHING, set()),
        ("at a sample", Mg("sample", k2 * beta), {}, Em("sample", beta * k1, 1), set()),
        ("over all outcomes", Mg("count", log_q.exp()), {}, Em("count", log_q.exp(), 1), set()),
        ("gradient", grad(Em("q", k2)), {}, "MeanGradient expected, got Gradient"),
        ("mean", Em("q", k2), {}, "MeanGradient expected, got Mean"),
        ("curl", curl("", "q", k2), {}, "MeanGradient expected, got Curl"),
        ("part", Mg("q", k2), {"part": ONE}, "data: expected \\[\\], got \\['part'\\]"),
    ],
    "stop-gradient": [
        ("weight", Em("mu", sg(rho) * k1, 1), {}, Em("mu", rho * k1, 1), set()),
        ("function", Em("q", sg(f) * f), {}, Em("q", f * f), set()),
        ("at a sample", Em("sample", sg(k1) - k1, 1), {}, NOTHING, set()),
        ("nothing detached", Em("p", k1), {}, Em("p", k1), set()),
        ("part", Em("q", sg(k1) + sg(w)), {"part": sg(k1)}, Em("q", k1 + sg(w)), {exists(Em("q", sg(k1)))}),
        ("part at a sample", Em("sample", sg(k1) + w), {"part": sg(k1)}, Em("sample", k1 + w), set()),
        ("loss", Mg("q", sg(k1)), {}, "Mean expected, got MeanGradient"),
        ("gradient", grad(Em("q", sg(k1))), {}, "Mean expected, got Gradient"),
        ("curl", curl("", "q", sg(k1)), {}, "Mean expected, got Curl"),
    ],
    "log-derivative": [
        ("under q", grad(Em("q", k2)), {}, Em("q", k2, 1) + Mg("q", k2),
            {exchange(Em("q", k2)), exists(Em("q", k2, 1))}),
        ("theta-free", grad(Em("q", R)), {}, Em("q", R, 1) + Mg("q", R), {exchange(Em("q", R))}),
        ("detached", grad(Em("q", sg(k2))), {}, Em("q", sg(k2), 1) + Mg("q", sg(k2)),
            {exchange(Em("q", sg(k2)))}),
        ("under p", grad(Em("p", k2)), {}, Mg("p", k2), {exchange(Em("p", k2))}),
        ("under mu", grad(Em("mu", rho)), {}, Mg("mu", rho), {exchange(Em("mu", rho))}),
        ("over all outcomes", grad(Em("count", log_q.exp())), {}, Mg("count", log_q.exp()),
            {exchange(Em("count", log_q.exp()))}),
        ("at a sample", grad(Em("sample", k2)), {}, Mg("sample", k2), set()),
        ("a combination", grad(Em("p", k1) * beta - Em("mu", w) + C(nu)), {},
            Mg("p", k1 * beta) + Mg("mu", -w), {exchange(Em("p", k1 * beta)), exchange(Em("mu", -w))}),
        ("a constant", grad(C(beta)), {}, NOTHING, set()),
        ("with a score", grad(Em("q", k2, 1)), {}, "means without score function expected"),
        ("a product", grad(Em("q", k1).times(Em("p", k1))), {}, "and of no product"),
        ("a gradient", grad(grad(Em("q", k1))), {}, "means without score function expected"),
        ("the mean of a gradient", grad(Mg("q", k1)), {}, "means without score function expected"),
        ("a loss", Mg("q", k2), {}, "Gradient expected, got MeanGradient"),
    ],
    "linearity": [
        ("in a product", Em("p", k1 * beta).times(Em("q", w)), {"constant": beta},
            Em("p", k1).times(Em("q", w)) * beta, {exists(Em("p", k1))}),
        ("a number", Em("p", k1 + 2).times(Em("q", w)), {"constant": number(2)},
            Em("p", k1 * HALF + 1).times(Em("q", w)) * 2, set()),
        ("part", Em("p", k1 * beta + w).times(Em("q", w)), {"constant": beta, "part": k1 * beta},
            Em("p", k1).times(Em("q", w)) * beta + Em("p", w).times(Em("q", w)),
            {exists(Em("p", k1)), exists(Em("p", k1 * beta))}),
        ("constant mean", Em("p", beta).times(Em("q", k1)), {"constant": beta},
            Em("p", ONE).times(Em("q", k1)) * beta, set()),
        ("at a sample", Em("sample", beta * k1).times(Mg("q", w)), {"constant": beta},
            Em("sample", k1).times(Mg("q", w)) * beta, set()),
        ("random", Em("q", k1), {"constant": k1}, "constant: it depends on the sample"),
        ("a reward", Em("q", R), {"constant": R}, "constant: it depends on the sample"),
        ("a sum", Em("q", k1), {"constant": beta + 1}, "division by a sum"),
        ("zero", Em("q", k1), {"constant": number(0)}, "division by zero"),
        ("not declared", Em("q", k1), {"constant": V("c")}, "unknown name 'c'"),
        ("gradient", grad(Em("q", k1)), {"constant": beta}, "Mean expected, got Gradient"),
    ],
    "change of measure": [
        ("mu to q", Em("mu", rho * k1, 1), {"to": "q"}, Em("q", k1, 1), {QM}),
        ("q to p", Em("q", r, 2), {"to": "p"}, Em("p", ONE, 2), {PQ}),
        ("p to mu", Em("p", R), {"to": "mu"}, Em("mu", R * (w - k1).exp()), {PM}),
        ("q to all outcomes", Em("q", k1), {"to": "count"}, Em("count", k1 * log_q.exp()), set()),
        ("all outcomes to q", Em("count", ONE), {"to": "q"}, Em("q", (-log_q).exp()),
            {("support", "count", "q")}),
        ("part", Em("q", k1 - r), {"to": "p", "part": -r}, Em("q", k1) - Em("p", ONE),
            {PQ, exists(Em("q", -r))}),
        ("to itself", Em("q", f), {"to": "q"}, Em("q", f), set()),
        ("a function", Em("q", f), {"to": "p"}, Em("p", f * k1.exp()), {QP, PQ}),
        ("no power", Em("q", (-k1 * k1).exp()), {"to": "p"}, Em("p", (k1 - k1 * k1).exp()), {QP, PQ}),
        ("an unknown power", Em("mu", (beta * w).exp()), {"to": "q"}, Em("q", (beta * w - w).exp()),
            {QM, MQ}),
        ("half powers", Em("mu", (w * HALF).exp()), {"to": "q"}, Em("q", (-w * HALF).exp()), set()),
        ("one score", Em("q", R, 1), {"to": "mu"}, Em("mu", R * rho, 1), {QM}),
        ("two scores", Em("q", R, 2), {"to": "mu"}, Em("mu", R * rho, 2), {QM, MQ}),
        ("half a power and a score", Em("mu", (w * HALF).exp(), 1), {"to": "q"},
            Em("q", (-w * HALF).exp(), 1), {MQ}),
        ("a detached ratio", Em("mu", sg(rho) * k1), {"to": "q"}, Em("q", sg(rho) * k1 * (-w).exp()), {QM}),
        ("one term fades", Em("mu", rho + R), {"to": "q"}, Em("q", ONE + R * (-w).exp()), {QM, MQ}),
        ("no target", Em("q", k1), {}, "data: expected \\['to'\\], got \\[\\]"),
        ("unknown", Em("q", k1), {"to": "pi"}, "to: one of"),
        ("no text", Em("q", k1), {"to": 1}, "to: one of"),
        ("a sample", Em("q", k1), {"to": "sample"}, "to: one of"),
        ("from a sample", Em("sample", k1), {"to": "q"}, "not the value at one sample"),
        ("a loss", Mg("q", k1), {"to": "p"}, "Mean expected, got MeanGradient"),
        ("part not declared", Em("q", k1), {"to": "p", "part": V("c")}, "unknown name 'c'"),
        ("part in another slot", Em("q", k1), {"to": "p", "part": V("k1[now]")}, "unknown slot 'now'"),
    ],
    "score mean zero": [
        ("one", Em("q", ONE, 1), {"slot": "x"}, NOTHING, {exchange(Em("q", ONE))}),
        ("parameter", Em("q", beta * 3, 1), {"slot": "x"}, NOTHING, {exchange(Em("q", ONE))}),
        ("second direction", mean("", "q", ONE, "x'"), {"slot": "x"}, NOTHING, {exchange(Em("q", ONE))}),
        ("part", Em("q", k1 + 1, 1), {"slot": "x", "part": ONE}, Em("q", k1, 1), {exchange(Em("q", ONE))}),
        ("baseline", Em("q", R, 1), {"slot": "x", "part": nu}, Em("q", R - nu, 1), {exchange(Em("q", ONE))}),
        ("under p", Em("p", ONE, 1), {"slot": "x"}, "needs m = q, got m = p"),
        ("under mu", Em("mu", ONE, 1), {"slot": "x"}, "needs m = q, got m = mu"),
        ("at a sample", Em("sample", ONE, 1), {"slot": "x"}, "needs m = q, got m = sample"),
        ("reward", Em("q", R, 1), {"slot": "x"}, "\\['x'\\] may depend on the slot x"),
        ("detached", Em("q", sg(k1), 1), {"slot": "x"}, "may depend on the slot x"),
        ("part random", Em("q", k1 + 1, 1), {"slot": "x", "part": k1}, "may depend on the slot x"),
        ("squared", Em("q", ONE, 2), {"slot": "x"}, "one score function of the slot x expected"),
        ("two directions", mean("", "q", ONE, "x", "x'"), {"slot": "x"}, "one score function of the slot x"),
        ("no score", Em("q", ONE), {"slot": "x"}, "one score function of the slot x expected"),
        ("no slot", Em("q", ONE, 1), {"slot": "now"}, "one score function of the slot now expected"),
        ("a list", Em("q", ONE, 1), {"slot": ["x"]}, "one score function of the slot"),
    ],
    "ratio mean one": [
        ("r", Em("q", beta * r), {"of": "p", "slot": "x"}, Em("q", beta), {PQ}),
        ("rho", Em("mu", rho), {"of": "q", "slot": "x"}, Em("mu", ONE), {QM}),
        ("under p", Em("p", (k1 - w).exp()), {"of": "mu", "slot": "x"}, Em("p", ONE),
            {("support", "mu", "p")}),
        ("part", Em("q", r - 1 + k1), {"of": "p", "slot": "x", "part": r}, Em("q", k1), {PQ}),
        ("wrong way", Em("q", k1.exp()), {"of": "p", "slot": "x"}, "may depend on the slot x"),
        ("rho under q", Em("q", rho), {"of": "mu", "slot": "x"}, "may depend on the slot x"),
        ("detached", Em("q", sg(r)), {"of": "p", "slot": "x"}, "may depend on the slot x"),
        ("score", Em("q", r, 1), {"of": "p", "slot": "x"}, "may depend on the slot x"),
        ("all outcomes", Em("q", (-log_q).exp()), {"of": "count", "slot": "x"}, "one of|a mean under"),
        ("under all outcomes", Em("count", log_q.exp()), {"of": "q", "slot": "x"},
            "one of|a mean under"),
        ("at a sample", Em("sample", r), {"of": "p", "slot": "x"}, "one of|a mean under"),
        ("no ratio", Em("q", r), {"slot": "x"}, "data: expected \\['of', 'slot'\\]"),
        ("no slot", Em("q", r), {"of": "p", "slot": "now"}, "slot: one of \\['x'\\] expected"),
    ],
    "normalisation": [
        ("under q", Em("q", beta), {}, C(beta), set()),
        ("under mu", Em("mu", number(3)), {}, C(3), set()),
        ("at a sample", Em("sample", a.inverse()), {}, C(a.inverse()), {("nonzero", "a")}),
        ("part", Em("p", k1 - 1), {"part": -ONE}, Em("p", k1) - C(1), set()),
        ("all outcomes", Em("count", ONE), {}, "no total mass one"),
        ("random", Em("q", R), {}, "the coefficient depends on the sample"),
        ("a length", Em("q", length), {}, "the coefficient depends on the sample"),
        ("score", Em("q", ONE, 1), {}, "no score function expected"),
    ],
    "curl": [
        ("k2", curl("", "q", k2), {}, NOTHING, {exchange(Em("q", k1, 1))}),
        ("under mu", curl("", "mu", sg(w) * k1), {}, NOTHING, {exchange(Em("mu", w, 1))}),
        ("function", curl("", "p", f * R), {}, NOTHING, {exchange(Em("p", V("f'") * R, 1))}),
        ("at a sample", curl("", "sample", k2), {}, "a field is a mean under q, p or mu"),
        ("all outcomes", curl("", "count", k2), {}, "a field is a mean under q, p or mu"),
        ("mean", Em("q", k2), {}, "Curl expected, got Mean"),
    ],
    "sum over t": [
        ("reward", Em("q", R), {"of": "R"}, mean("t", "q", V("R[now]")), {("ends", "q")}),
        ("score", Em("p", k1, 2), {"of": "s"}, mean("t", "p", k1, "now", "x"), {("ends", "p")}),
        ("at a sample", Em("sample", length * w), {"of": "length"}, mean("t", "sample", w), set()),
        ("all outcomes", Em("count", R), {"of": "R"}, "a mean over whole sequences expected"),
        ("no factor", Em("q", k1 + 1), {"of": "k1"}, "k1 is no factor of the coefficient"),
        ("no score", Em("q", k1), {"of": "s"}, "no score function in the slot x"),
        ("no sum", Em("q", A), {"of": "A"}, "of: one of"),
        ("a function", Em("q", f), {"of": "f"}, "of: one of"),
        ("detached", Em("q", sg(k1)), {"of": "sg(k1)"}, "of: one of"),
    ],
}  # fmt: skip
ELSEWHERE = {  # these speak of no single sample
    "parts of a sum": {"of": ["k1"]},
    "exchange of sums": {"now": "k1", "other": "s", "slot": "past"},
    "independence": {},
}
