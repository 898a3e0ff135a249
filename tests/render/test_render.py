"""Claims and verdicts as they are printed: clean LaTeX, safe Markdown and HTML, headlines and values."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any
from xml.etree import ElementTree

import pytest

from klsym.api import explain
from klsym.kernel.ring import ExpPoly
from klsym.ledger.registry import load, recall
from klsym.notation.latex import derivation_block, theorem_latex
from klsym.notation.text import show_theorem
from klsym.render.verdict import headline, value_line, verdict_html, verdict_markdown
from support.float_sheet import SHEET
from support.latex_complaints import complaints

V = ExpPoly.variable
VK1, VW, ONE = V("k1"), V("w"), ExpPoly.number(1)
R1, RHO = (-VK1).exp(), VW.exp()
K2E, K3E = VK1**2 * Fraction(1, 2), R1 - 1 + VK1
REWARD, OFF = {"use": "reward"}, {"sampling": "off-policy"}


# ---------------------------------------------------------------------------- every claim, every verdict
@pytest.mark.parametrize("name", [name for name, claim in load().items() if claim.verdict != "computed"])
def test_claims_print_cleanly(name: str) -> None:
    for proof in recall(name).proofs:
        assert complaints(theorem_latex(proof)) == []
        assert complaints(derivation_block(proof).strip("$\n")) == []
        text = show_theorem(proof.theorem, proof.labels)
        assert text.isprintable() and "\\" not in text and "ExpPoly" not in text
        if proof.theorem.kind == "refuted":
            assert re.search(r"!=.*in general|fails in a model", text)
            assert re.search(r"\\ne |\\not", theorem_latex(proof))


@pytest.mark.parametrize(("loss", "sampling", "use", "row"), SHEET)
def test_verdicts_print_cleanly(loss: str, sampling: str, use: str, row: Any) -> None:
    verdict = explain(loss, sampling=sampling, use=use, parameters=["har"])
    for _, text, latex in verdict.steps:
        assert complaints(latex) == [] and text.isprintable()
    assert complaints(verdict.coefficient_latex) == [] and complaints(verdict.loss_latex) == []
    assert verdict.objective is None or complaints(verdict.objective) == []
    assert complaints(verdict._repr_latex_().strip("$\n")) == []
    check_views(verdict)


@pytest.mark.parametrize("loss", ["clip(k3, 0, 5)", "abs(k1)", "min(k1, 2)", "exp(1)*abs(k1)", "sqrt(k2)"])
def test_verdicts_outside_the_ring_print_cleanly(loss: str) -> None:
    verdict = explain(loss)
    assert [complaints(latex) for _, _, latex in verdict.steps] == [[]] * len(verdict.steps)
    assert complaints(verdict.coefficient_latex) == []
    check_views(verdict)


def check_views(verdict: Any) -> None:
    assert str(verdict).startswith(headline(verdict)) and repr(verdict) == str(verdict)
    assert all(line == line.rstrip() and line.isprintable() for line in str(verdict).splitlines())
    markdown = verdict_markdown(verdict)
    prose = re.sub(r"\$\$.*?\$\$|```.*?```|`[^`]*`", "", markdown, flags=re.S)
    assert not re.search(r"(?<![\\*])\*(?!\*)|(?<!\\)_|(?<!\\)<", prose)
    first = markdown.splitlines()[0]
    assert re.sub(r"\\([*_|<])", r"\1", first.strip("*")) == headline(verdict)
    assert html_text(verdict_html(verdict))


def html_text(html: str) -> str:
    """The text of an HTML fragment, whose tags must nest."""
    return " ".join(ElementTree.fromstring(f"<div>{html}</div>").itertext())


def test_html_shows_the_hypotheses() -> None:
    text = html_text(verdict_html(explain("k3")))
    assert "p << q" in text and "forward KL" in text and "has mean zero" in text


def test_html_shows_the_derivation_and_the_counterexample() -> None:
    text = html_text(verdict_html(explain("k3")))
    assert r"\begin{aligned}" in text and r"\text{chain rule}" in text and r"\text{theorem}" in text
    assert "Counterexample to E_q[grad k3] = grad KL(q||p)" in text and "q   = (1/2, 1/2)" in text
    moved = html_text(verdict_html(explain("rho*k3", **OFF)))
    assert r"\text{change of measure}" in moved and "Counterexample" not in moved
    assert "Counterexample" not in html_text(verdict_html(explain("k2")))


@pytest.mark.parametrize(
    ("loss", "options", "line"),
    [
        ("k1", {}, "k1  (on-policy, as a loss) targets nothing: the expected gradient is zero"),
        ("k3", {}, "k3  (on-policy, as a loss) targets the forward KL, KL(p||q)"),
        ("rho*k3", OFF, "rho*k3  (off-policy, as a loss) targets the reverse KL, KL(q||p)"),
        ("beta*k2", {}, "beta*k2  (on-policy, as a loss) targets beta grad KL(q||p)"),
        ("k3", REWARD, "k3  (on-policy, as a detached reward) targets grad KL(q||p) - grad KL(p||q)"),
        ("-k2", {}, "-k2  (on-policy, as a loss) targets -grad KL(q||p)"),
        ("A - beta*k1", REWARD, "grad E_q[A]"),
        ("k2/beta", {}, "targets (1/beta) grad KL(q||p)"),
        ("k1**3", {}, "neither KL"),
        ("k1", OFF, "depends on more than r"),
    ],
)
def test_headline(loss: str, options: dict[str, str], line: str) -> None:
    assert line in headline(explain(loss, **options))


@pytest.mark.parametrize(
    ("loss", "options", "line"),
    [
        ("k3", {}, "unbiased for KL(q||p)"),
        ("r*log(r)", {}, "unbiased for KL(p||q)"),
        ("r", {}, "1"),
        ("k2", {}, "not an unbiased estimate of either KL"),
        ("2*k1 + 3", {}, "2 KL(q||p) + 3"),
        ("k1 - 3", {}, "KL(q||p) - 3"),
        ("k1 - beta*R", {}, "KL(q||p) - E_q[beta*R]"),
    ],
)
def test_value_line(loss: str, options: dict[str, str], line: str) -> None:
    assert value_line(explain(loss, **options)) == line


def test_a_witness_with_rewards_shows_them() -> None:
    """Without the rewards nobody can recompute the two sides."""
    verdict = explain("A*log_q + k3")
    assert verdict.witness is not None and verdict.witness["rewards"]["A"]
    assert f"A   = ({', '.join(verdict.witness['rewards']['A'])})" in str(verdict)
