"""Formulas as they are printed: text in the loss grammar, LaTeX without leftovers of Python."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sympy import And, Function, Piecewise

from klsym.errors import UsageError
from klsym.kernel.ring import ExpPoly
from klsym.language.abbreviations import (
    Bregman,
    Context,
    Covariance,
    Divergence,
    E,
    ExpectedGradient,
    Gradient,
    Point,
    PointGradient,
    Side,
    Statement,
)
from klsym.language.convert import to_ring
from klsym.language.expressions import (
    K1,
    clip,
    k1,
    k2,
    k3,
    lam,
    log_mu,
    log_p,
    log_q,
    parameter,
    r,
    rho,
    s,
    sg,
)
from klsym.language.parser import parse
from klsym.notation import formulas
from klsym.notation.combination import format_combination, format_objective_latex
from klsym.notation.hypotheses import show_hypothesis
from klsym.notation.losses import show
from klsym.notation.printers import LATEX, TEXT
from klsym.notation.reading import read
from klsym.notation.text import show_interval, show_statement
from klsym.render.markup.mathml import MATHML
from support.float_sheet import same
from support.latex_complaints import complaints
from support.ring_strategies import losses as loss_texts
from support.ring_strategies import ring_elements

V = ExpPoly.from_variable
VK1, VW, ONE = V("k1"), V("w"), ExpPoly.from_number(1)
R1, RHO = (-VK1).exp(), VW.exp()
K2E, K3E = VK1**2 * Fraction(1, 2), R1 - 1 + VK1
REWARD, OFF = {"use": "reward"}, {"sampling": "off-policy"}


# ---------------------------------------------------------------------------- is it LaTeX?


JUDGED = {
    r"\frac{a}{b": "braces", r"\left(a)": "left and right", "a**2": "no star", "k1 s": "no word",
    "sg(r)": "no word", "a + -b": "no double sign", "a^{}": "no empty group", "a^{2}^{3}": "no double script",
}  # fmt: skip


@pytest.mark.parametrize("latex", JUDGED)
def test_the_judge_sees_what_is_wrong(latex: str) -> None:
    assert JUDGED[latex] in complaints(latex)


# ---------------------------------------------------------------------------- ring elements
@given(ring_elements(), st.integers(-3, 3), st.integers(-3, 3))
def test_element_text_denotes_the_element_and_its_latex_is_clean(e: ExpPoly, over: int, weight: int) -> None:
    for element in (e, e * V("beta") ** over * (VW * weight).exp()):
        assert to_ring(parse(formulas.show_element(element))) == element
        assert complaints(formulas.show_element(element, LATEX)) == []


ELEMENTS = [
    ("0", "0", "0"),
    ("1", "1", "1"),
    ("-1/3", "-1/3", r"-\tfrac{1}{3}"),
    ("k1", "k1", "k_1"),
    ("-k1", "-k1", "-k_1"),
    ("1 - r", "1 - r", "1 - r"),
    ("k1 + 1", "k1 + 1", "k_1 + 1"),
    ("rho*k1 + rho", "rho*(k1 + 1)", r"\rho\,\left(k_1 + 1\right)"),
    ("k1**2/2", "k1**2/2", r"\frac{k_1^{2}}{2}"),
    ("-beta*k1/3", "-beta*k1/3", r"-\frac{\beta\,k_1}{3}"),
    ("22*k1/7", "22*k1/7", r"\frac{22\,k_1}{7}"),
    ("k1/beta", "k1/beta", r"\frac{k_1}{\beta}"),
    ("1/(2*beta)", "1/(2*beta)", r"\frac{1}{2\,\beta}"),
    ("3/beta", "3/beta", r"\frac{3}{\beta}"),
    ("2/(3*n*T)", "2/(3*T*n)", r"\frac{2}{3\,T\,n}"),
    ("r**2*rho", "rho*r**2", r"\rho\,r^{2}"),
    ("1/rho**2", "1/rho**2", r"\frac{1}{\rho^{2}}"),
    ("r**lam", "r**lam", r"r^{\lambda}"),
    ("r**(1/3)", "r**(1/3)", r"r^{\tfrac{1}{3}}"),
    ("rho**(lam - 1)", "rho**(lam - 1)", r"\rho^{\lambda - 1}"),
    ("exp(lam)*k1", "exp(lam)*k1", r"\exp(\lambda)\,k_1"),
    ("log(rho)", "log(rho)", r"\log(\rho)"),
    ("sg(r)**2", "sg(r)**2", r"\mathrm{sg}(r)^{2}"),
    ("sg(rho)*k1", "sg(rho)*k1", r"\mathrm{sg}(\rho)\,k_1"),
    ("log_q**2", "log_q**2", r"\left(\log q\right)^{2}"),
    ("R - beta*k1", "R - beta*k1", r"R - \beta\,k_1"),
    ("eps*alpha", "alpha*eps", r"\alpha\,\varepsilon"),
    ("my_scale*k1", "my_scale*k1", r"\mathit{my}_{scale}\,k_1"),
    ("gamma_2*k1", "gamma_2*k1", r"\gamma_{2}\,k_1"),
]


@pytest.mark.parametrize(("source", "text", "latex"), ELEMENTS, ids=[row[0] for row in ELEMENTS])
def test_element(source: str, text: str, latex: str) -> None:
    element = to_ring(parse(source, ["my_scale", "gamma_2"]))
    assert formulas.show_element(element) == text
    assert formulas.show_element(element, LATEX) == latex


# ---------------------------------------------------------------------------- losses as written
LOSSES = [
    ("sg(rho)*k2", r"\mathrm{sg}(\rho)\,k_2"),
    ("beta*k3 - R", r"\beta\,k_3 - R"),
    ("-k1", "-k_1"),
    ("(k1 + 1)*r", r"\left(k_1 + 1\right)\,r"),
    ("k1/(1 + r)", r"\frac{k_1}{r + 1}"),
    ("1/r**2", r"\frac{1}{r^{2}}"),
    ("sqrt(k2)", r"\sqrt{k_2}"),
    ("abs(k1)", r"\left|k_1\right|"),
    ("clip(r, 0.8, 1.2)", r"\mathrm{clip}(r, \tfrac{4}{5}, \tfrac{6}{5})"),
    ("min(k1, 2)", r"\min(2, k_1)"),
    ("exp(1)*k1", r"\exp(1)\,k_1"),
    ("exp(-lam*k1)", r"\exp(-\lambda\,k_1)"),
    ("(k1 + sg(r))**2", r"\left(k_1 + \mathrm{sg}(r)\right)^{2}"),
    ("log_q**2", r"\left(\log q\right)^{2}"),
    ("log(1 + r)", r"\log(r + 1)"),
]


@pytest.mark.parametrize(("text", "latex"), LOSSES, ids=[row[0] for row in LOSSES])
def test_loss_latex(text: str, latex: str) -> None:
    assert show(parse(text), LATEX) == latex
    assert complaints(latex) == []


@given(loss_texts)
def test_loss_text_is_in_the_grammar_and_denotes_the_loss(text: str) -> None:
    loss = parse(text)
    shown = show(loss, TEXT)
    assert to_ring(parse(shown)) == to_ring(loss)
    assert complaints(show(loss, LATEX)) == []


ROUND_TRIPS = (
    "exp(1)*abs(k1)", "k2**(3/2)", "r**(r + 1)", "2**lam", "(1/3)**lam", "(k2 + 1)**lam", "(k2/3)**0.5",
    "k1/(k2 + 1)/(r + 1)", "-(k1 + 1)*r", "1/(1 + r)**2", "r**(-1/3)", "min(k1, max(r, 2), 3)", "-1/r",
    "abs(k1)**3", "k1 - (r - 1)", "k1 - (-r)", "2*(k1 + 1)/3", "-2*k1*(r - 1)/(3*beta)", "sg(1/(1 + r))",
    "(k1 + sg(k2))**2", "1/(r + sg(rho))**2", "k1/(k3 + exp(1/2))", "(1 - log(1 + r))**3", "(k1*sg(k2))**3",
)  # fmt: skip


@pytest.mark.parametrize("text", ROUND_TRIPS)
def test_loss_text_outside_the_ring(text: str) -> None:
    assert same(show(parse(text), TEXT), text)


def test_an_estimator_of_other_densities_does_not_pose_as_one_of_q_and_p() -> None:
    assert show(K1(log_q, log_mu), TEXT) != "k1" and show(K1(log_q, log_mu), LATEX) != "k_1"
    assert show(rho.subs(log_mu, log_p), TEXT) != "rho"


# ---------------------------------------------------------------------------- atoms and sides
RHO_K3 = to_ring(rho * k3)
LABELS = {K2E: k2, K3E: k3, RHO_K3: rho * k3, to_ring(clip(1, 0, 2) * k1): k1}
KL = Divergence("KL", "q", "p")
ATOMS: list[tuple[Any, str, str]] = [
    (E("q", VK1), "E_q[k1]", r"\mathbb{E}_{q}\!\left[k_1\right]"),
    (E("mu", K2E), "E_mu[k2]", r"\mathbb{E}_{\mu}\!\left[k_2\right]"),
    (E("q", VK1, ("x",)), "E_q[k1*s]", r"\mathbb{E}_{q}\!\left[k_1\,s\right]"),
    (E("q", VK1 + 1, ("x",)), "E_q[(k1 + 1)*s]", r"\mathbb{E}_{q}\!\left[\left(k_1 + 1\right)\,s\right]"),
    (E("q", -ONE, ("x",)), "E_q[-s]", r"\mathbb{E}_{q}\!\left[-s\right]"),
    (E("q", VK1**2, ("x", "x")), "E_q[k1**2*s**2]", r"\mathbb{E}_{q}\!\left[k_1^{2}\,s^{2}\right]"),
    (E("p", R1 * 2), "E_p[2*r]", r"\mathbb{E}_{p}\!\left[2\,r\right]"),
    (E("count", VK1), "sum_x[k1]", r"\sum_x k_1"),
    (E("count", VK1 + 1), "sum_x[k1 + 1]", r"\sum_x \left(k_1 + 1\right)"),
    (ExpectedGradient("q", K3E), "E_q[grad k3]", r"\mathbb{E}_{q}\!\left[\nabla k_3\right]"),
    (ExpectedGradient("mu", RHO_K3), "E_mu[grad(rho*k3)]",
     r"\mathbb{E}_{\mu}\!\left[\nabla\!\left(\rho\,k_3\right)\right]"),
    (Point(VK1, ("x",)), "k1*s", r"k_1\,s"),
    (Point(K3E), "k3", "k_3"),
    (PointGradient(K2E), "grad k2", r"\nabla k_2"),
    (PointGradient(-VK1), "grad(-k1)", r"\nabla\!\left(-k_1\right)"),
    (KL, "KL(q||p)", r"\mathrm{KL}(q\,\Vert\,p)"),
    (Divergence("KL", "mu", "q"), "KL(mu||q)", r"\mathrm{KL}(\mu\,\Vert\,q)"),
    (Divergence("chi2", "p", "q"), "chi2(p||q)", r"\chi^2(p\,\Vert\,q)"),
    (Divergence("J", "p", "q"), "J(p, q)", "J(p,q)"),
    (Covariance("q", VK1, R1 - 1), "Cov_q(k1, r - 1)", r"\mathrm{Cov}_{q}(k_1,\,r - 1)"),
    (Covariance("mu", VK1, VK1), "Var_mu(k1)", r"\mathrm{Var}_{\mu}(k_1)"),
    (Bregman(VK1), "D_phi(r, 1) with phi = k1", r"D_\phi(r, 1)\big|_{\phi = k_1}"),
    (Gradient(Side.from_atom(KL)), "grad KL(q||p)", r"\nabla \mathrm{KL}(q\,\Vert\,p)"),
    (Gradient(Side.combine((1, (KL,)), (1, (Divergence("KL", "p", "q"),)))), "grad(KL(p||q) + KL(q||p))",
     r"\nabla\!\left(\mathrm{KL}(p\,\Vert\,q) + \mathrm{KL}(q\,\Vert\,p)\right)"),
]  # fmt: skip


@pytest.mark.parametrize(("atom", "text", "latex"), ATOMS, ids=[row[1] for row in ATOMS])
def test_atom(atom: Any, text: str, latex: str) -> None:
    assert formulas.show_atom(atom, LABELS, TEXT) == text
    assert formulas.show_atom(atom, LABELS, LATEX) == latex
    assert complaints(latex) == []


SIDES = [
    (Side(), "0", "0"),
    (Side.from_constant(3), "3", "3"),
    (Side.combine((-1, (KL,))), "-KL(q||p)", r"-\mathrm{KL}(q\,\Vert\,p)"),
    (Side.combine((1, (KL,)), (-V("lam"), (Divergence("KL", "p", "q"),))), "KL(q||p) - lam KL(p||q)",
     r"\mathrm{KL}(q\,\Vert\,p) - \lambda\,\mathrm{KL}(p\,\Vert\,q)"),
    (Side.combine((1 - V("lam"), (KL,))), "(1 - lam) KL(q||p)",
     r"\left(1 - \lambda\right)\,\mathrm{KL}(q\,\Vert\,p)"),
    (Side.combine((V("beta").invert(), (KL,))), "(1/beta) KL(q||p)",
     r"\frac{1}{\beta}\,\mathrm{KL}(q\,\Vert\,p)"),
    (Side.combine((Fraction(1, 2), (KL, KL))), "1/2 KL(q||p) KL(q||p)",
     r"\tfrac{1}{2}\,\mathrm{KL}(q\,\Vert\,p)\,\mathrm{KL}(q\,\Vert\,p)"),
]  # fmt: skip


@pytest.mark.parametrize(("side", "text", "latex"), SIDES, ids=[row[1] for row in SIDES])
def test_side(side: Side, text: str, latex: str) -> None:
    assert (formulas.show_side(side), formulas.show_side(side, None, LATEX)) == (text, latex)


@pytest.mark.parametrize(
    ("hypothesis", "words"),
    [
        (("support", "p", "q"), "p << q: wherever p > 0, also q > 0"),
        (("support", "count", "q"), "q > 0 at every outcome"),
        (
            ("exchange", E("mu", K2E)),
            "grad and E_mu may be exchanged in E_mu[k2] (dominated derivative near theta)",
        ),
        (("exists", E("q", K2E)), "E_q[k2] exists"),
        (("exists", Gradient(Side.from_atom(E("q", K2E)))), "grad E_q[k2] exists"),
        (("positive", "beta"), "beta > 0"),
        (("generic", "beta"), "beta takes none of the isolated values at which terms merge or vanish"),
        (("nonnegative", "mu", 2 * VK1 + 1), r"2\*k1 \+ 1 >= 0 wherever mu > 0, that is r <= exp\(1/2\)"),
        (("nonzero", "beta"), "beta is not 0"),
        (("on-policy",), r"on-policy: .*\(mu = sg\(q\)\)"),
        (("given",), r"at every sample R = k1 \+ 1"),
        (("premise", 0), r"for every theta E_q\[k1\] = KL\(q\|\|p\)"),
        (("equal", 0), r"E_q\[k1\] = KL\(q\|\|p\)"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_hypothesis(hypothesis: Any, words: str) -> None:
    premise = (Side.from_atom(E("q", VK1)), Side.from_atom(KL))
    context = Context(given=(("R", VK1 + 1),), premises=(premise,), parameters=("beta",))
    shown = show_hypothesis(hypothesis, context, LABELS)
    assert shown == words or re.fullmatch(words, shown)


@pytest.mark.parametrize(
    ("relation", "kind", "text", "latex"),
    [
        ("=", "proved", "E_q[k1] = KL(q||p)", "="),
        ("<=", "proved", "E_q[k1] <= KL(q||p)", r"\le"),
        ("=", "refuted", "E_q[k1] != KL(q||p)", r"\ne"),
        ("<=", "refuted", None, r"\not\le"),
    ],
)
def test_statement(relation: str, kind: str, text: str | None, latex: str) -> None:
    """A refuted inequality must not be printed as if it held."""
    statement = Statement(Side.from_atom(E("q", VK1)), Side.from_atom(KL), Context(), relation)
    assert text is None or show_statement(statement, None, kind) == text
    assert f"] {latex} \\mathrm" in show_statement(statement, None, kind, LATEX).replace(r"\right]", "]")


# ---------------------------------------------------------------------------- small helpers
@pytest.mark.parametrize(
    ("multiples", "text", "latex"),
    [
        ({}, "0", "0"),
        ({"reverse-kl": "1"}, "grad KL(q||p)", r"\mathrm{KL}(q\,\Vert\,p)"),
        ({"reverse-kl": "-1"}, "-grad KL(q||p)", r"-\mathrm{KL}(q\,\Vert\,p)"),
        ({"forward-kl": "1 - lam", "reverse-kl": "2"}, "(1 - lam) grad KL(p||q) + 2 grad KL(q||p)",
         r"\left(1 - \lambda\right)\,\mathrm{KL}(p\,\Vert\,q) + 2\,\mathrm{KL}(q\,\Vert\,p)"),
        ({"reverse-kl": "lam*beta/2", "reward": "R"}, "(lam*beta/2) grad KL(q||p) + grad E_q[R]",
         r"\mathbb{E}_{q}\!\left[R\right] + \frac{\lambda\,\beta}{2}\,\mathrm{KL}(q\,\Vert\,p)"),
        ({"reward": "-R"}, "-grad E_q[R]", r"-\mathbb{E}_{q}\!\left[R\right]"),
        ({"reward": "sum_t (1 - A_t)"}, "grad E_q[sum_t (1 - A_t)]",
         r"\mathbb{E}_{q}\!\left[\sum_t \left(1 - A_{t}\right)\right]"),
    ],
)  # fmt: skip
def test_combination(multiples: dict[str, str], text: str, latex: str) -> None:
    assert (format_combination(multiples), format_objective_latex(multiples)) == (text, latex)


READ = [
    ("k1 s/2", r"\frac{k_1\,s}{2}"),
    ("1/beta KL(q||p) - 2^(1/2)", r"\frac{1}{\beta}\,\mathrm{KL}(q\,\Vert\,p) - 2^{\tfrac{1}{2}}"),
    ("-lam*k1**2 <= grad E_q[k1_past*s_now]", None),
    ("|r - 1| > Cov_mu(k1, R)", r"\left|r - 1\right| > \mathrm{Cov}_{\mu}(k_1,\,R)"),
    ("f'(k1) << exp(-k1)", r"f'(k_1) \ll \exp(-k_1)"),
]


@pytest.mark.parametrize(("text", "latex"), READ, ids=[row[0] for row in READ])
def test_a_formula_in_words_is_read(text: str, latex: str | None) -> None:
    found = read(text)
    assert latex is None or LATEX(found) == latex
    assert TEXT(read(TEXT(found))) == TEXT(found)


@pytest.mark.parametrize("text", ["", "k1 +", "(k1", "k1)", "E_q[k1", "* r", "k1 = ", "a && b", "\\le"])
def test_what_is_no_formula_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no formula"):
        read(text)


def test_cases_are_printed_as_cases() -> None:
    shown = Piecewise((k1, log_q > 0), (-r, And(log_p <= 0, lam > 1)), (0, True))
    assert show(shown, TEXT) == "{k1 if log_q > 0; -r if log_p <= 0 and lam > 1; 0 otherwise}"
    assert show(shown, LATEX) == (
        r"\begin{cases}k_1 & \text{if }\log q > 0 \\ "
        r"-r & \text{if }\log p \le 0\text{ and }\lambda > 1 \\ 0 & \text{otherwise}\end{cases}"
    )
    assert show(1 + shown, LATEX).startswith(r"\begin{cases}") and "<mtable" in show(shown, MATHML)


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        ("1/4", "1/4", "0.25"),
        ("0", "1/2", "0..0.5"),
        ("-0.5", "-0.5", "-0.5"),
        ("1/3", "1/3", "0.3333333333"),
    ],
)
def test_show_interval(low: str, high: str, shown: str) -> None:
    assert show_interval([low, high]) == shown


def test_generic_functions_and_scores_print() -> None:
    f, g, C = Function("f")(log_q, log_p, log_mu), Function("g")(k1), parameter("C")
    assert (show(f, TEXT), show(g * lam, TEXT), show(sg(g) * s, LATEX)) == (
        "f",
        "lam*g(k1)",
        r"\mathrm{sg}(g(k_1))\,s",
    )
    assert show(f * (rho - C) * r, LATEX) == r"\left(\rho - C\right)\,f\,r"
