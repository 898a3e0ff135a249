"""Claims and verdicts as they are printed: clean LaTeX, safe Markdown and HTML, headlines and values."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any
from xml.etree import ElementTree

import pytest

from klsym.api import explain
from klsym.kernel.ring import ExpPoly
from klsym.notation import losses
from klsym.notation.decimals import choose_decimals
from klsym.notation.printers import LATEX
from klsym.notation.text import format_derivation, show_theorem, show_theorem_latex
from klsym.render.details import describe_value
from klsym.render.headline import describe_update
from klsym.render.markup.verdict import format_verdict_html
from klsym.render.objective import write_objective_latex
from klsym.render.question import describe_answer, describe_question
from klsym.render.verdict import format_verdict_markdown
from klsym.render.words import describe_place
from klsym.study.ledger.registry import load
from klsym.study.ledger.settle_claim import recall
from support.float_sheet import SHEET
from support.latex_complaints import complaints

V = ExpPoly.from_variable
VK1, VW, ONE = V("k1"), V("w"), ExpPoly.from_number(1)
R1, RHO = (-VK1).exp(), VW.exp()
K2E, K3E = VK1**2 * Fraction(1, 2), R1 - 1 + VK1
REWARD, OFF = {"use": "reward"}, {"sampling": "off-policy"}


# ---------------------------------------------------------------------------- every claim, every verdict
@pytest.mark.parametrize("name", [name for name, claim in load().items() if claim.verdict != "computed"])
def test_claims_print_cleanly(name: str) -> None:
    for proof in recall(name).proofs:
        assert complaints(show_theorem_latex(proof)) == []
        assert complaints(format_derivation(proof).strip("$\n")) == []
        text = show_theorem(proof.theorem, proof.labels)
        assert text.isprintable() and "\\" not in text and "ExpPoly" not in text
        if proof.theorem.kind == "refuted":
            assert re.search(r"!=.*in general|fails in a model", text)
            assert re.search(r"\\ne |\\not", show_theorem_latex(proof))


@pytest.mark.parametrize(("loss", "sampling", "use", "row"), SHEET)
@pytest.mark.share(4)
def test_verdicts_print_cleanly(loss: str, sampling: str, use: str, row: Any) -> None:
    verdict = explain(loss, sampling=sampling, use=use, parameters=["har"])
    for _, text, latex in verdict.proof.steps:
        assert complaints(latex) == [] and text.isprintable()
    assert complaints(verdict.gradient.canonical_latex) == []
    assert complaints(losses.show(verdict.loss.written, LATEX)) == []
    assert write_objective_latex(verdict) is None or complaints(write_objective_latex(verdict)) == []
    assert complaints(verdict._repr_latex_().strip("$\n")) == []
    check_views(verdict)


@pytest.mark.parametrize("loss", ["clip(k3, 0, 5)", "abs(k1)", "min(k1, 2)", "exp(1)*abs(k1)", "sqrt(k2)"])
def test_verdicts_outside_the_ring_print_cleanly(loss: str) -> None:
    verdict = explain(loss)
    assert [complaints(latex) for _, _, latex in verdict.proof.steps] == [[]] * len(verdict.proof.steps)
    assert complaints(verdict.gradient.canonical_latex) == []
    check_views(verdict)


def check_views(verdict: Any) -> None:
    assert repr(verdict) == str(verdict) and re.sub(r"\s+", " ", str(verdict)).startswith(
        describe_question(verdict)
    )
    whole = f"{verdict}\n{verdict.text(full=True)}"
    assert all(line == line.rstrip() and line.isprintable() for line in whole.splitlines())
    assert len(str(verdict).splitlines()) <= 12
    markdown = format_verdict_markdown(verdict)
    prose = re.sub(r"\$\$.*?\$\$|```.*?```|`[^`]*`", "", markdown, flags=re.S)
    assert not re.search(r"(?<![\\*])\*(?!\*)|(?<!\\)_|(?<!\\)<", prose)
    first = markdown.splitlines()[0]
    assert re.sub(r"\\([*_|<])", r"\1", first.strip("*")).startswith(describe_question(verdict))
    assert html_text(format_verdict_html(verdict))


def html_text(html: str) -> str:
    """The text of an HTML fragment, whose tags must nest."""
    return " ".join(ElementTree.fromstring(f"<div>{html}</div>").itertext())


def test_html_shows_the_hypotheses() -> None:
    text = html_text(format_verdict_html(explain("k3")))
    assert "p << q" in text and "forward KL" in text and "its expectation is zero" in text


def test_html_shows_the_derivation_and_the_counterexample() -> None:
    text = html_text(format_verdict_html(explain("k3")))
    assert "<math" in format_verdict_html(explain("k3")) and "chain rule" in text and "theorem" in text
    assert "Counterexample to E_q[grad k3] = grad KL(q||p)" in text and "q   = (1/2, 1/2)" in text
    moved = html_text(format_verdict_html(explain("rho*k3", **OFF)))
    assert "change of measure" in moved and "Counterexample" not in moved
    assert "Counterexample" not in html_text(format_verdict_html(explain("k2")))


@pytest.mark.parametrize(
    ("loss", "options", "line"),
    [
        ("k1", {}, "has zero expected gradient: it only adds noise"),
        ("sg(k1)", {}, "has zero gradient at every sample"),
        ("k3", {}, "minimises KL(p||q), the forward KL"),
        ("rho*k3", OFF, "minimises KL(q||p), the reverse KL"),
        ("beta*k2", {}, "minimises beta*KL(q||p)"),
        ("k3", REWARD, "subtracted from the reward, minimises KL(q||p) - KL(p||q)"),
        ("-k2", {}, "minimises -KL(q||p)"),
        ("A - beta*k1", REWARD, "maximises E_q[A] - beta*KL(q||p)"),
        ("k2/beta", {}, "minimises 1/beta*KL(q||p)"),
        ("-A*log_q", {}, "maximises E_q[A] (a policy gradient)"),
        ("A*log_q", {}, "minimises E_q[A]"),
        ("k1**3", {}, "minimises E_q[f(r)] with f = "),
        ("k1", OFF, "minimises -KL(mu||q), which pushes the policy away from mu"),
        ("clip(k3, 0, 10)", {}, "the forward KL, inside the clip range; no gradient where k3 > 10"),
        ("k2", {"level": "token"}, "descends the reverse KL of each next token, at prefixes of q; the sum"),
        ("-clip(rho, 0.8, 1.2)*A", {"level": "token", **OFF}, "maximises E[A] of each token, at prefixes"),
        ("-rho**2*A", OFF, "with the weight 2*rho**2"),
        ("1e-8*k2", {}, "minimises 1e-8*KL(q||p)"),
    ],
)  # fmt: skip
def test_what_minimising_does(loss: str, options: dict[str, str], line: str) -> None:
    assert line in describe_update(explain(loss, **options))


@pytest.mark.parametrize(
    ("loss", "place"),
    [
        ("-min(rho, 2)*A", "where rho < 2"), ("k2*sg(max(rho, 0.5))", "where rho > 0.5"),
        ("min(k3, 5)*rho", "where k3 < 5"), ("-clip(rho, 0.8, 1.2)*A", "inside the clip range"),
        ("-min(rho*A, clip(rho, 0.8, 1.2)*A)", "inside the clip range"),
        ("max(min(k3, 5), 1)", "inside the clip range"), ("min(k1, k3)", "inside the clip range"),
    ],
)  # fmt: skip
def test_a_single_bound_is_said_as_a_region(loss: str, place: str) -> None:
    """min(k1, k3) compares two values that vary, and two bounds make a range."""
    verdict = explain(loss, **OFF)
    assert choose_decimals(loss)(describe_place(verdict)) == place
    others = {"inside the clip range", "where rho < 2"} - {place}
    assert not any(other in verdict.text() for other in others)


@pytest.mark.parametrize(
    ("loss", "options", "headline"),
    [
        ("k3", OFF, "Not a KL penalty: minimises E_mu[r] - KL(mu||q)"),
        ("min(k3, 9)", OFF, "Not a KL penalty: minimises its own mean under mu, E_mu[min(k3, 9)]"),
        ("rho**2*k1", OFF, "Not a KL penalty: minimises its own mean under mu, E_mu[rho**2*k1]"),
        ("-log(rho)*A", OFF, "A policy gradient: A times the score, with the weight 1"),
        ("k1", {}, "No effect: its expected gradient is zero, it only adds noise"),
        ("sg(k1)", {}, "No effect: the gradient is zero at every sample"),
        ("-A*log_q", {}, "A policy gradient: maximises E_q[A]"),
        ("-rho*sg(centred(R))", {"level": "sequence"}, "A policy gradient: maximises E_q[R - R/n]"),
        ("rho*sg(centred(R))", {"level": "sequence"},
         "The wrong sign for a policy gradient: minimises E_q[R - R/n]"),
        ("k3", REWARD, "A difference of the two KLs: subtracted from the reward, it minimises KL(q||p) -"
         " KL(p||q)"),
    ],
)  # fmt: skip
def test_a_headline_says_the_kind_once(loss: str, options: dict[str, str], headline: str) -> None:
    assert describe_answer(explain(loss, **options)) == headline


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
    assert describe_value(explain(loss, **options)) == line


def test_a_witness_with_rewards_shows_them() -> None:
    """Without the rewards nobody can recompute the two sides."""
    verdict = explain("A*log_q + k3")
    assert verdict.counterexample.model is not None and verdict.counterexample.model["rewards"]["A"]
    assert f"A   = ({', '.join(verdict.counterexample.model['rewards']['A'])})" in verdict.text(proof=True)
