"""Values at an index of a batch or a sequence in print: sums are sums, and no bracket is missing."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klsym.kernel.names import attach_name
from klsym.kernel.ring import ExpPoly
from klsym.kernel.slots import SLOTS, name_in_slot
from klsym.language.abbreviations import (
    Atom,
    Context,
    Curl,
    E,
    Gradient,
    Indexed,
    IndexedGradient,
    MeanVariance,
    Side,
    TokenDivergence,
)
from klsym.language.convert import to_ring
from klsym.language.parser import parse
from klsym.notation import formulas
from klsym.notation.hypotheses import show_hypothesis
from klsym.notation.printers import LATEX, TEXT
from support.latex_complaints import complaints
from support.latex_judge import World, total, value_of

ONE, BETA, M, N = ExpPoly.from_number(1), *map(ExpPoly.from_variable, ("beta", "m", "n"))
T = ExpPoly.from_variable("length")


def v(base: str, *slots: str) -> ExpPoly:
    return sum((ExpPoly.from_variable(name_in_slot(base, slot)) for slot in slots), ExpPoly.from_number(0))


def k(*slots: str) -> ExpPoly:
    return v("k1", *slots)


def rho(*slots: str) -> ExpPoly:
    return v("w", *slots).exp()


def t(a: ExpPoly, *score: str, m: str = "q") -> Indexed:
    return Indexed("t", m, a, score)


def i(a: ExpPoly, *score: str, m: str = "q") -> Indexed:
    return Indexed("i", m, a, score)


K2 = k("now") ** 2 * Fraction(1, 2)
LEAVE_ONE_OUT = k("self") - k("others") * M.invert()
# The atom, its text, and its LaTeX between E_q[ and ], or all of it where it is no mean.
ATOMS: list[tuple[Atom, str, str]] = [
    (t(k("now"), "now"), "E_q[sum_t k1_now*s_now]", r"\sum_t k_{1,t}\,s_t"),
    (t(k("past"), "now"), "E_q[sum_t k1_past*s_now]", r"\sum_t s_t \sum_{u<t} k_{1,u}"),
    (t(k("future"), "now"), "E_q[sum_t k1_future*s_now]", r"\sum_t s_t \sum_{u>t} k_{1,u}"),
    (t(k("now", "future"), "now"), "E_q[sum_t (k1_now + k1_future)*s_now]",
     r"\sum_t s_t \sum_{u\ge t} k_{1,u}"),
    (t(k("past", "now"), "now"), "E_q[sum_t (k1_past + k1_now)*s_now]", r"\sum_t s_t \sum_{u\le t} k_{1,u}"),
    (t(k("past", "now", "future"), "now"), "E_q[sum_t (k1_past + k1_now + k1_future)*s_now]",
     r"\sum_t s_t \sum_u k_{1,u}"),
    (t(k("past") - k("now"), "past"), "E_q[sum_t (k1_past - k1_now)*s_past]",
     r"\sum_t \left(-k_{1,t} + \sum_{u<t} k_{1,u}\right) \sum_{u<t} s_u"),
    (t(k("past") * 2 + k("now"), "now"), "E_q[sum_t (2*k1_past + k1_now)*s_now]",
     r"\sum_t \left(k_{1,t} + 2 \sum_{u<t} k_{1,u}\right)\,s_t"),
    (t(k("past", "now") ** 2, "now"), "E_q[sum_t (k1_past**2 + 2*k1_past*k1_now + k1_now**2)*s_now]",
     r"\sum_t \left(\sum_{u\le t} k_{1,u}\right)^{2}\,s_t"),
    (t(k("now") ** 2 + k("now") * k("future") * 2, "now"),
     "E_q[sum_t (k1_now**2 + 2*k1_now*k1_future)*s_now]",
     r"\sum_t \left(k_{1,t}^{2} + 2\,k_{1,t} \sum_{u>t} k_{1,u}\right)\,s_t"),
    (t(k("past"), "past"), "E_q[sum_t k1_past*s_past]",
     r"\sum_t \left(\sum_{u<t} k_{1,u}\right) \sum_{u<t} s_u"),
    (t(k("now"), "now", "now"), "E_q[sum_t k1_now*s_now**2]", r"\sum_t k_{1,t}\,s_t^{2}"),
    (t(k("past") * BETA * Fraction(1, 2), "now"), "E_q[sum_t beta*k1_past*s_now/2]",
     r"\sum_t \tfrac{\beta}{2}\,s_t \sum_{u<t} k_{1,u}"),
    (t(T.invert(), "now"), "E_q[sum_t s_now/T]", r"\sum_t \frac{s_t}{T}"),
    (t(k("now"), "x"), "E_q[sum_t k1_now*s]", r"\sum_t k_{1,t}\,s"),
    (t(k("x") * rho("x"), "now"), "E_q[sum_t rho*k1*s_now]", r"\sum_t \rho\,k_1\,s_t"),
    (t(rho("past", "now") * k("now"), "now"), "E_q[sum_t rho_past*rho_now*k1_now*s_now]",
     r"\sum_t \rho_{\le t}\,k_{1,t}\,s_t"),
    (t(rho("now", "future"), "now"), "E_q[sum_t rho_now*rho_future*s_now]", r"\sum_t \rho_{\ge t}\,s_t"),
    (t(rho("past", "now", "future"), "now"), "E_q[sum_t rho_past*rho_now*rho_future*s_now]",
     r"\sum_t \rho\,s_t"),
    (t((-k("past")).exp() ** 2, "now"), "E_q[sum_t r_past**2*s_now]", r"\sum_t r_{<t}^{2}\,s_t"),
    (t(v("w", "past", "now"), "now"), "E_q[sum_t (log(rho_past) + log(rho_now))*s_now]",
     r"\sum_t \log(\rho_{\le t})\,s_t"),
    (t(v("sg(k1)", "past", "now"), "now"), "E_q[sum_t (sg(k1_past) + sg(k1_now))*s_now]",
     r"\sum_t \mathrm{sg}\!\left(\sum_{u\le t} k_{1,u}\right)\,s_t"),
    (t(v("R", "now", "future"), "now"), "E_q[sum_t (R_now + R_future)*s_now]",
     r"\sum_t s_t \sum_{u\ge t} R_u"),
    (t(v("A", "past") * v("A", "now"), "now"), "E_q[sum_t V*V_next*s_now]",
     r"\sum_t V_t\,V_{t+1}\,s_t"),
    (t(v("f", "now") * v("f", "past"), "now"), "E_q[sum_t f_past*f_now*s_now]",
     r"\sum_t f_t\,s_t \sum_{u<t} f_u"),
    (t(v("f'", "now") ** 2, "now"), "E_q[sum_t (f'_now)**2*s_now]", r"\sum_t \left(f'_t\right)^{2}\,s_t"),
    (t(v("log_q", "past"), "now"), "E_q[sum_t log_q_past*s_now]", r"\sum_t s_t \sum_{u<t} \log q_u"),
    (t(k("now") * v("length", "past")), "E_q[sum_t k1_now*T_past]", r"\sum_t k_{1,t}\,\left(t - 1\right)"),
    (t(k("now") * v("length", "future")), "E_q[sum_t k1_now*T_future]",
     r"\sum_t k_{1,t}\,\left(T - t\right)"),
    (t(k("now") * v("length", "now")), "E_q[sum_t k1_now*T_now]", r"\sum_t k_{1,t}"),
    (t(ONE, "now", "past'"), "E_q[sum_t u.s_now*v.s_past]",
     r"\sum_t \left(\mathbf{u}\cdot s_t\right)\,\left(\mathbf{v}\cdot \sum_{u<t} s_u\right)"),
    (t(ONE, "past'", "now"), "E_q[sum_t u.s_now*v.s_past]",
     r"\sum_t \left(\mathbf{u}\cdot s_t\right)\,\left(\mathbf{v}\cdot \sum_{u<t} s_u\right)"),
    (i(k("self"), "self"), "E_q[mean_i k1_self*s_self]", r"\tfrac1n\sum_i k_{1,i}\,s_i"),
    (i(LEAVE_ONE_OUT, "self"), "E_q[mean_i (k1_self - k1_others/m)*s_self]",
     r"\tfrac1n\sum_i \left(k_{1,i} - \tfrac{1}{m} \sum_{j\ne i} k_{1,j}\right)\,s_i"),
    (i(k("self", "others") * N.invert(), "self"), "E_q[mean_i (k1_self/n + k1_others/n)*s_self]",
     r"\tfrac1n\sum_i \tfrac{1}{n}\,s_i \sum_j k_{1,j}"),
    (i(rho("others") * k("self"), "self"), "E_q[mean_i rho_others*k1_self*s_self]",
     r"\tfrac1n\sum_i k_{1,i}\,s_i \prod_{j\ne i} \rho_j"),
    (Indexed("ij", "q", k("self") * k("other"), ("other", "self")),
     "E_q[mean_{i!=j} k1_self*k1_other*s_self*s_other]",
     r"\tfrac1{n(n-1)}\sum_{i\ne j} k_{1,i}\,k_{1,j}\,s_i\,s_j"),
    (Indexed("ij", "q", k("rest"), ("self",)), "E_q[mean_{i!=j} k1_rest*s_self]",
     r"\tfrac1{n(n-1)}\sum_{i\ne j} s_i \sum_{l\ne i,j} k_{1,l}"),
    (Indexed("ij", "q", k("self", "other", "rest"), ("self",)),
     "E_q[mean_{i!=j} (k1_self + k1_other + k1_rest)*s_self]",
     r"\tfrac1{n(n-1)}\sum_{i\ne j} s_i \sum_l k_{1,l}"),
    (Indexed("it", "q", rho("past") * k("now") * T.invert(), ("now",)),
     "E_q[mean_i sum_t rho_past*k1_now*s_now/T]",
     r"\tfrac1n\sum_i\sum_t \frac{\rho_{i,<t}\,k_{1,i,t}\,s_{i,t}}{T_i}"),
    (Indexed("it", "q", k("x") - k("others") * M.invert(), ("now",)),
     "E_q[mean_i sum_t (k1 - k1_others/m)*s_now]",
     r"\tfrac1n\sum_i\sum_t \left(k_{1,i} - \tfrac{1}{m} \sum_{j\ne i} k_{1,j}\right)\,s_{i,t}"),
    (IndexedGradient("t", "q", k("now")), "E_q[sum_t grad k1_now]", r"\sum_t \nabla k_{1,t}"),
    (IndexedGradient("t", "q", K2), "E_q[sum_t grad(k1_now**2/2)]",
     r"\sum_t \nabla\!\left(\frac{k_{1,t}^{2}}{2}\right)"),
    (IndexedGradient("t", "q", k("past")), "E_q[sum_t grad k1_past]",
     r"\sum_t \nabla\!\left(\sum_{u<t} k_{1,u}\right)"),
    (TokenDivergence("q", "q", "p"), "E_q[sum_t KL(q_t||p_t)]", r"\sum_t \mathrm{KL}(q_t\,\Vert\,p_t)"),
    (TokenDivergence("q", "mu", "p", True), "E_q[sum_t grad KL(mu_t||p_t)]",
     r"\sum_t \nabla \mathrm{KL}(\mu_t\,\Vert\,p_t)"),
]  # fmt: skip
WHOLE: list[tuple[Atom, str, str]] = [  # those that are no mean, or more than one
    (t(k("now") + 1, m="sample"), "sum_t (k1_now + 1)", r"\sum_t \left(k_{1,t} + 1\right)"),
    (i(k("self") - 1, m="sample"), "k1_self - 1", "k_{1,i} - 1"),
    (Indexed("ij", "sample", k("other"), ("self",)), "k1_other*s_self", r"k_{1,j}\,s_i"),
    (Indexed("it", "sample", k("now"), ("now",)), "sum_t k1_now*s_now", r"\sum_t k_{1,i,t}\,s_{i,t}"),
    (IndexedGradient("t", "sample", K2), "sum_t grad(k1_now**2/2)",
     r"\sum_t \nabla\!\left(\frac{k_{1,t}^{2}}{2}\right)"),
    (IndexedGradient("i", "sample", k("self")), "grad k1_self", r"\nabla k_{1,i}"),
    (t(k("now"), "now", m="mu"), "E_mu[sum_t k1_now*s_now]",
     r"\mathbb{E}_{\mu}\!\left[\sum_t k_{1,t}\,s_t\right]"),
    (Curl("t", "q", K2), "curl E_q[sum_t grad(k1_now**2/2)]",
     r"\operatorname{curl}\,\mathbb{E}_{q}\!\left[\sum_t \nabla\!\left(\frac{k_{1,t}^{2}}{2}\right)\right]"),
    (MeanVariance("q", LEAVE_ONE_OUT, ("self",)), "Var_q(mean_i (k1_self - k1_others/m)*s_self)",
     r"\mathrm{Var}_{q}\!\left(\tfrac1n\sum_i \left(k_{1,i} - \tfrac{1}{m} \sum_{j\ne i} k_{1,j}\right)"
     r"\,s_i\right)"),
]  # fmt: skip
TABLE = [(a, text, rf"\mathbb{{E}}_{{q}}\!\left[{latex}\right]") for a, text, latex in ATOMS] + WHOLE


@pytest.mark.parametrize(("atom", "text", "latex"), TABLE, ids=[row[1] for row in TABLE])
def test_atom(atom: Atom, text: str, latex: str) -> None:
    assert formulas.show_atom(atom, {}, TEXT) == text
    assert formulas.show_atom(atom, {}, LATEX) == latex
    assert complaints(latex) == []


Q = E("q", ExpPoly.from_variable("k1"))
SIDES: list[tuple[Side, str]] = [
    (Side.from_atom(t(k("now"), "past")) + Side.from_atom(t(k("now"), "now")),
     "E_q[sum_t k1_now*(s_past + s_now)]"),
    (Side.from_atom(t(k("now"), "future")) + Side.from_atom(t(k("now"), "now")),
     "E_q[sum_t k1_now*(s_now + s_future)]"),
    (Side.from_atom(t(k("now"), "past")) + Side.from_atom(t(k("now"), "future")),
     "E_q[sum_t k1_now*s_future] + E_q[sum_t k1_now*s_past]"),
    (Side.from_atom(i(k("self"), "self")) + Side.from_atom(i(k("self"), "others")),
     "E_q[mean_i k1_self*(s_self + s_others)]"),
    (Side.from_atom(t(k("now"), "past")) + Side.from_atom(t(k("now"), "now", m="mu")),
     "E_mu[sum_t k1_now*s_now] + E_q[sum_t k1_now*s_past]"),
    (-Side.from_atom(t(k("now") + 1, "now")), "-E_q[sum_t (k1_now + 1)*s_now]"),
    (Side.from_atom(Q) - Side.from_atom(i(k("self") + 1, m="sample")), "E_q[k1] - (k1_self + 1)"),
    (Side.from_atom(Q) - Side.from_atom(i(k("self") + 1, "self", m="sample")),
     "E_q[k1] - (k1_self + 1)*s_self"),
    (Side.combine((BETA, (Q, i(k("self") + 1, m="sample")))), "beta E_q[k1] (k1_self + 1)"),
    (Side.combine((1, (Q, t(k("now"), "now", m="sample")))), "E_q[k1] (sum_t k1_now*s_now)"),
    (Side.from_constant(-1 - BETA), "-(beta + 1)"),
    (Side.from_atom(Q) - Side.from_constant(1 + BETA), "E_q[k1] - (beta + 1)"),
    (Side.from_atom(Gradient(Side.from_atom(t(k("now"))))), "grad E_q[sum_t k1_now]"),
    (Side.from_atom(Gradient(Side.from_atom(t(-k("now"))))), "grad(-E_q[sum_t k1_now])"),
]  # fmt: skip


@pytest.mark.parametrize(("side", "text"), SIDES, ids=[row[1] for row in SIDES])
def test_side(side: Side, text: str) -> None:
    assert formulas.show_side(side) == text
    assert complaints(formulas.show_side(side, None, LATEX)) == []


@pytest.mark.parametrize(
    ("slots", "latex"),
    [
        (("past", "now"), r"\sum_{u\le t} s_u"),
        (("now", "future"), r"\sum_{u\ge t} s_u"),
        (("past", "now", "future"), r"\sum_u s_u"),
    ],
)
def test_scores_of_adjacent_slots_are_one_sum(slots: tuple[str, ...], latex: str) -> None:
    side = sum((Side.from_atom(t(k("now"), slot)) for slot in slots), Side())
    shown = formulas.show_side(side, None, LATEX)
    assert shown == rf"\mathbb{{E}}_{{q}}\!\left[\sum_t k_{{1,t}} {latex}\right]"


def test_a_negative_sum_at_one_sample_keeps_its_sign_in_latex() -> None:
    a = k("others") - k("self")
    shown = formulas.show_side(Side.from_atom(Q) + Side.from_atom(i(a, m="sample")), None, LATEX)
    assert shown == r"\mathbb{E}_{q}\!\left[k_1\right] - k_{1,i} + \sum_{j\ne i} k_{1,j}"


@pytest.mark.parametrize("value", ["k1", None])
def test_what_is_no_atom_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="is no atom"):
        formulas.show_atom(value, {}, TEXT)


@pytest.mark.parametrize(
    ("hypothesis", "words"),
    [
        (("batch", "mu"), r"the n samples of a batch are independent draws from mu"),
        (("ends", "q"), r".*prefix.* sequences .*from q end with probability 1"),
        (("exists", t(k("now"), "now")), r"E_q\[sum_t k1_now\*s_now\] exists with absolute values .*"),
        (("exists", i(k("self"))), r"E_q\[mean_i k1_self\] exists"),
        (
            ("exchange", t(k("now"))),
            r"grad and E_q may be exchanged in E_q\[sum_t k1_now\] \(dominated derivative near theta\)",
        ),
    ],
    ids=["batch", "ends", "a mean of a sequence", "a mean of a batch", "exchange at an index"],
)
def test_hypothesis(hypothesis: Any, words: str) -> None:
    assert re.fullmatch(words, show_hypothesis(hypothesis, Context()))


# ---------------------------------------------------------------------------- the print is what is meant
@st.composite
def indexed_values(draw: Any, bases: tuple[str, ...]) -> Indexed:
    """A value at an index: sums over some slots, products of ratios and scores."""
    index = draw(st.sampled_from(["t", "i", "ij", "it"]))
    slots = SLOTS[index]

    def several() -> list[str]:
        return list(draw(st.sets(st.sampled_from(slots), min_size=1)))

    total_ = ExpPoly.from_number(0)
    for _ in range(draw(st.integers(1, 3))):
        term = ExpPoly.from_number(
            Fraction(draw(st.sampled_from([-2, -1, 1, 1, 3])), draw(st.integers(1, 2)))
        )
        for _ in range(draw(st.integers(0, 2))):
            term = term * v(draw(st.sampled_from(bases)), *several()) ** draw(st.integers(1, 2))
        for name, sign in (("k1", -1), ("w", 1)):
            if draw(st.booleans()):
                term = term * (v(name, *several()) * (sign * draw(st.sampled_from([1, 1, 2, -1])))).exp()
        total_ = total_ + term * draw(st.sampled_from([ONE, ONE, BETA, M.invert()]))
    score = draw(st.lists(st.sampled_from(slots), max_size=2))
    return Indexed(index, "q", total_ or ONE, tuple(sorted(score)))


@given(indexed_values(("k1", "R", "length", "sg(k1)")), st.randoms(use_true_random=False))
def test_latex_denotes_the_value(atom: Indexed, random: Any) -> None:
    """Evaluated as it reads, on a batch or sequences of different lengths."""
    lengths = [random.randint(1, 4) for _ in range(3)] if "t" in atom.index else [1] * 3
    steps = [
        tuple({b: random.uniform(-1, 1) for b in ("k1", "w", "R", "s")} for _ in range(n)) for n in lengths
    ]
    world = World(tuple(steps), {"beta": 0.7, "\\beta": 0.7, "m": 2.0, "n": 3.0})
    latex = formulas.show_atom(atom, {}, LATEX)
    expected, size = total(atom.index, atom.coefficient, atom.score, world)
    assert complaints(latex) == []
    assert value_of(latex, world) == pytest.approx(expected, rel=1e-10, abs=1e-10 * size)


@given(indexed_values(("k1", "R", "length", "sg(k1)")))
def test_text_denotes_the_value(atom: Indexed) -> None:
    """Read back by the parser, each name of a slot a parameter, and so with sg left out."""
    shown = formulas.show_atom(atom, {}, TEXT)
    inner = re.fullmatch(r"E_q\[(?:mean_\S+ )?(?:sum_t )?(.*)\]", shown)
    assert inner is not None
    known = {"k1": "k1", "R": "R", "T": "length", "s": "s"}
    values = {"T": T}
    for slot in SLOTS[atom.index]:
        values |= {
            f"{shown}_{slot}": ExpPoly.from_variable(name_in_slot(name, slot))
            for shown, name in known.items()
        }
        values |= {f"r_{slot}": (-k(slot)).exp(), f"rho_{slot}": rho(slot)}
    names = [*(values.keys() - {"T"}), "m"]
    read = to_ring(parse(re.sub(r"\bs\b", "s_x", inner[1]), names)).substitute(values)
    scores = ONE
    for slot in atom.score:
        scores = scores * v("s", slot)
    assert read.rename(attach_name) == (atom.coefficient * scores).rename(attach_name)
