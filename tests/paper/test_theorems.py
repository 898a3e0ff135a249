"""Settled claims in LaTeX: escaping, where formulas may be broken, every claim whole, models of refusals."""

from __future__ import annotations

import re
from functools import cache

import pytest

from klsym.notation import formulas
from klsym.notation.hypotheses import OVER_T, STANDING
from klsym.notation.printers import LATEX
from klsym.paper.assumptions import AUTOMATIC, in_full, in_short
from klsym.paper.theorems import claim_latex, derivation_latex, digest_of, models, statements
from klsym.render.rules import RULE_OF
from klsym.study.ledger.evidence import Evidence
from klsym.study.ledger.registry import load
from klsym.study.ledger.settle_all import check_settled
from klsym.study.ledger.settle_claim import Settled, recall
from klsym.study.write_up.prose import render_prose
from klsym.study.write_up.tex import allow_breaks, escape
from support.latex_judge import balanced

FAST = [claim.id for claim in load().values() if claim.verdict != "computed"]


@cache
def written(id: str) -> tuple[str, str]:
    """A claim and its derivation."""
    return claim_latex(recall(id)), derivation_latex(recall(id))


@pytest.fixture
def ledger(proofs_settled: dict[str, Settled]) -> dict[str, Settled]:
    return proofs_settled


@pytest.mark.parametrize(
    "text, latex",
    [
        ("5% of a_b & c#1 $2 {x}", r"5\% of a\_b \& c\#1 \$2 \{x\}"),
        (r"a\b", r"a\textbackslash{}b"),
        ("a < b | c > d", r"a \textless{} b \textbar{} c \textgreater{} d"),
        ("x^2 ~ y", r"x\textasciicircum{}2 \textasciitilde{} y"),
        ("plain words", "plain words"),
    ],
)
def test_escape(text, latex):
    assert escape(text) == latex


@pytest.mark.parametrize(
    "text, latex",
    [
        ("q << p: wherever q > 0", r"$q \ll p$: wherever $q \brk> 0$"),
        ("E_q[k1^2 s^2] is finite", r"$\mathbb{E}_{q}[k_1^{2}\,s^{2}]$ is finite"),
        ("grad and E_q may be exchanged", r"$\nabla$ and $\mathbb{E}_{q}$ may be exchanged"),
        ("(near theta)", r"(near $\theta$)"),
        ("sup |p/q - 1| is small", r"$\sup \bigl|p/q \brk- 1\bigr|$ is small"),
        ("a sample, and 5% of a_plain_name[0]", r"a sample, and 5\% of \texttt{a\_plain\_name[0]}"),
        ("8.6e-05 nats", r"$8.6\cdot 10^{-5}$ nats"),
        ("where (b - r) s is (1/2, 1/2)", r"where $(b \sbrk- r)\,s$ is $(1/2, \cut 1/2)$"),
        ("the log ratio is log 2", r"the log ratio is $\log 2$"),
        ("lambda = 1, M = 1 and f''(1) = 0", r"$\lambda \brk= 1$, $M \brk= 1$ and $f''(1) \brk= 0$"),
        ("is_above is 1 where sum_{j <= t} s_j < 1/2", None),
        ("a curve (b) of A sample", "a curve (b) of A sample"),
        ("it is tau S (1 - S), so", r"it is tau S ($1 \brk- S$), so"),
        ("a factor (1 - lambda) (rho - 1)", r"a factor $(1 \sbrk- \lambda)\,\cut (\rho \sbrk- 1)$"),
        ("exp(-tau (rho - 1))", r"exp(-tau ($\rho \brk- 1$))"),
        ("KL(q||pi*) is 0.76", r"$\mathrm{KL}(q\,\Vert\,\pi^\star)$ is 0.76"),
    ],
)
def test_prose(text, latex):
    shown = render_prose(text)
    assert latex in (None, shown), shown
    assert balanced(shown) and shown.count("$") % 2 == 0


@pytest.mark.parametrize(
    "latex, broken",
    [
        (r"a + b = c", r"a \brk+ b \brk= c"),
        (r"\left(a + b\right)^{2}", r"(a \sbrk+ b)^{2}"),
        (r"\left(\frac{1}{n} - 1\right)", r"\Bigl(\frac{1}{n} \sbrk- 1\Bigr)"),
        (r"E\!\left[\left(\sum_t k_t\right)\,s\right]", r"E\Bigl[\Bigl(\sum_t k_t\Bigr)\,s\Bigr]"),
        (r"\text{not: a + b} x", r"\text{not: a + b} x"),
        (r"\frac{a + b}{2}", r"\frac{a + b}{2}"),
        (r"x,\quad y", r"x,\quad \cut y"),
        (r"x,\ y", r"x,\ \cut y"),
    ],
)  # fmt: skip
def test_formulas_may_be_broken_outside_braces(latex, broken):
    assert allow_breaks(latex) == broken


@pytest.mark.parametrize("latex", [r"\left(a", r"a\right)"])
def test_a_lone_bracket_is_refused(latex):
    with pytest.raises(ValueError, match="bracket"):
        allow_breaks(latex)


@pytest.mark.parametrize(
    "latex, good",
    [
        (r"\begin{a}{x}\end{a}", True), (r"\{", True), (r"{", False), (r"}{", False),
        (r"\begin{a}", False), (r"\end{a}", False), (r"\begin{a}{\end{a}}", False),
        (r"\begin{a}\end{b}", False), (r"\begin{tabular}{@{}l@{}} \\ \end{tabular}", True),
    ],
)  # fmt: skip
def test_balanced(latex, good):
    assert balanced(latex) is good


def test_no_claim_is_missing_from_the_cases():
    assert len(FAST) > 90


def every_claim_is_whole(id, ledger):
    settled = ledger[id]
    latex, derived = written(id)
    assert latex.count(rf"\klclaim{{{id}}}") == 1 and derived.count(rf"\klderived{{{id}}}") == 1
    for text in (latex, derived):
        assert balanced(text), text
        assert r"\left" not in text.replace(r"\leftskip", "") and r"\right" not in text
        assert len(re.findall(r"(?<!\\)\$", text)) % 2 == 0
    for name, shown in statements(settled):
        assert name.startswith(f"{id}/") and rf"\klpart{{{shown}}}" in latex
    assert all(line in derived for line in in_full(settled))


def a_derivation_says_its_statement(id, ledger):
    """A chain begins with the left side and ends with the right one; one step stands beside the statement."""
    derived = written(id)[1]
    chains = iter(re.split(r"(?=\\klfirst)", derived)[1:])  # one a part, in their order
    for (_, shown), part in zip(statements(ledger[id]), ledger[id].parts, strict=True):
        if rf"\klby{{{shown}}}" in derived:
            continue
        assert not isinstance(part, Evidence)
        rows = re.findall(r"\\kl(?:first|row)\{(.*?)\}(?:\{[^{}]*\})?$", next(chains), re.MULTILINE)
        assert shown.startswith(rows[0]), shown
        ends = [re.sub(r"^(\{\})?(\\brk)?= ", "", row.rpartition(r"\iff ")[2]) for row in rows]
        assert any(shown.endswith(end) for end in ends), shown


def the_digest_is_that_of_the_certificate(id, ledger):
    settled = ledger[id]
    if not settled.proofs:
        assert r"\klnodigest" in written(id)[1]
        return
    digest = settled.certificate()["digest"]
    assert len(digest) == 64 and digest_of(settled) == digest
    assert rf"\kldigest{{{digest}}}" in written(id)[1]


def hypotheses_leave_none_out(id, ledger):
    """Each expectation that a step needs in the derivation, each support at the claim too."""
    settled, short = ledger[id], "; ".join(in_short(ledger[id]))
    whole = "; ".join(in_full(settled))
    assert whole.startswith(short)
    kinds = [(h, proof) for proof in settled.proofs for h in proof.theorem.hypotheses]
    named = {"q": "q", "p": "p", "mu": r"\mu"}
    for kind, proof in kinds:
        if kind[0] in AUTOMATIC:
            needed = allow_breaks(formulas.show_atom(kind[1], proof.labels or {}, LATEX))
            assert needed in whole.rpartition(AUTOMATIC[kind[0]])[2]
        if kind[0] == "support" and kind[1] != "count":
            assert rf"{named[kind[1]]} \ll {named[kind[2]]}" in short
    always = (STANDING, STANDING + OVER_T)
    said = [line for part in settled.parts for line in part.hypotheses if line not in always]
    assert bool(whole) == bool(kinds or said)
    for line in said:
        supports = re.findall(r"\w+ << \w+", line) if line.startswith(STANDING) else ()
        assert all(render_prose(support) in short for support in supports)


@pytest.mark.parametrize("id", FAST)
@pytest.mark.share(4)
def test_a_claim_on_paper(id, ledger):
    every_claim_is_whole(id, ledger)
    a_derivation_says_its_statement(id, ledger)
    the_digest_is_that_of_the_certificate(id, ledger)
    hypotheses_leave_none_out(id, ledger)


def test_what_an_area_reads_alike_is_said_once(ledger):
    settled = ledger["sequence.token-loss-partial"]
    assert r"\klreading" in claim_latex(settled)
    assert r"\klreading" not in claim_latex(settled, known=settled.claim.reading)


def test_a_refuted_part_is_shown_with_its_model(ledger):
    shown = 0
    for settled in ledger.values():
        latex = written(settled.claim.id)[1]
        refuted = [proof for proof in settled.proofs if proof.theorem.kind == "refuted"]
        assert latex.count(r"\klwitness") == len(refuted) == len(list(models(settled)))
        for proof in refuted:
            first = proof.part["close"]["model"]["tree"]["q"][0]
            assert first in ("1",) or r"\tfrac{1}" in latex or first in latex
        shown += len(refuted)
    assert shown > 10


def test_witness_names_the_values_of_the_model():
    latex = derivation_latex(recall("gradient.k3-loss-not-reverse"))
    assert r"$q = (\tfrac{1}{2},\, \tfrac{1}{2})$, $p = (\tfrac{1}{4},\, \tfrac{3}{4})$" in latex
    assert r"{\ne \nabla" in latex and r"u = (1,\, 0)" in latex
    assert r"\mu" not in latex  # the statement does not speak of it


def test_rules_stand_beside_their_steps(ledger):
    for settled in ledger.values():
        latex = written(settled.claim.id)[1]
        for proof in settled.proofs:
            if proof.part["close"]["by"] == "equality" and not (proof.brief or proof.notes):
                for step in proof.part["steps"]:
                    said = [step["rule"], *(name for name, rule in RULE_OF.items() if rule == step["rule"])]
                    assert any(name in latex for name in said)


def test_a_finding_stands_beside_what_its_source_says():
    found = Evidence("computed", "k3 is 5% off at n < 4", "", "numeric", source_says="it is not (not so)")
    settled = Settled(load()["gradient.k1-loss"], (found,))
    latex = claim_latex(settled)
    assert r"\klfinding{$k_3$ is 5\% off at $n \brk< 4$}{\klsays{it is not (not so)}}" in latex


def test_the_page_shows_what_the_oracle_judged(ledger):
    """The claims printed are those that `klsym prove` settles: same parts, no error."""
    result = check_settled(ledger["gradient.k2-loss"])
    assert not result.error and len(result.judged) == len(list(statements(ledger["gradient.k2-loss"])))
