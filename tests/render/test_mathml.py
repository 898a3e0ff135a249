"""MathML: every formula of every claim arrives whole, with the right spaces, and what is none is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from klsym.errors import UsageError
from klsym.notation.printers import LATEX
from klsym.notation.text import format_chain, format_conclusion, show_statement, show_theorem
from klsym.render.markup.mathml import MATHML, mathml
from klsym.render.rules import RULES
from klsym.study.ledger.evidence import Evidence
from klsym.study.ledger.registry import load
from klsym.study.ledger.settle_claim import recall
from klsym.study.ledger.view import format_statement_latex

# What a reader must see of each command: written down here, apart from the code under test.
SEEN = {
    "mathbb{E}": "𝔼", "mathbb{R}": "ℝ", "mathcal{N}": "𝒩", "mathbf{u}": "𝐮", "mathbf{v}": "𝐯",
    "mathbf{1}": "𝟏", "alpha": "α",
    "nabla": "∇", "beta": "β", "lambda": "λ", "mu": "μ", "nu": "ν", "rho": "ρ", "phi": "ϕ", "chi": "χ",
    "tau": "τ", "theta": "θ",
    "sigma": "σ", "varepsilon": "ε", "ell": "ℓ", "infty": "∞", "star": "⋆", "sum": "∑", "prod": "∏",
    "partial": "∂", "Phi": "Φ", "int": "∫",
    "le": "≤", "ge": "≥", "ne": "≠", "in": "∈", "notin": "∉", "not\\le": "≰", "iff": "⟺", "implies": "⟹",
    "Rightarrow": "⇒", "forall": "∀", "to": "→", "propto": "∝", "sim": "∼",
    "mid": "∣", "cdot": "·", "Vert": "‖", "|": "‖",
    "ldots": "…", "log": "log", "exp": "exp", "sup": "sup", "min": "min", "max": "max", "{": "{", "}": "}",
}  # fmt: skip
UNSEEN = (
    "left", "right", "big", "quad", "!", ",", " ", "frac", "tfrac", "sqrt", "mathrm", "mathit",
    "operatorname",
)  # fmt: skip
COMMAND = re.compile(r"\\(mathbb\{.\}|mathcal\{.\}|mathbf\{.\}|not\\le\b|[A-Za-z]+|.)")


def formulas() -> Iterator[str]:
    """Every formula that a page may show."""
    for rule in RULES.values():
        yield rule.latex
    for claim in load().values():
        if claim.verdict == "computed":  # experiments are told in words
            continue
        for part in recall(claim.id).parts:
            yield format_statement_latex(part)
            if isinstance(part, Evidence):
                yield part.latex
                yield from (latex for _, latex in part.steps)
            else:
                yield show_statement(part.theorem.statement, part.labels, spell=LATEX)
                yield from (latex for latex, _ in format_chain(part, LATEX))
                yield from [format_conclusion(part)] if format_conclusion(part) else []


@pytest.fixture(scope="module")
def every() -> list[str]:
    return sorted(set(formulas()))


def seen(latex: str) -> str:
    """The symbols that stand in a formula, in reading order."""
    found, rest = "", latex
    while rest:
        words = re.match(r"\\text\{((?:[^{}\\]|\\.)*)\}", rest)
        command = COMMAND.match(rest)
        if words:
            found += re.sub(r"\\(.)", r"\1", words[1])
            rest = rest[words.end() :]
        elif command:
            assert command[1] in SEEN or command[1] in UNSEEN, command[1]
            found += SEEN.get(command[1], "")
            rest = rest[command.end() :]
        else:
            found += {"{": "", "}": "", "^": "", "_": "", "-": "−", "'": "′"}.get(rest[0], rest[0])
            rest = rest[1:]
    return re.sub(r"\s", "", found.replace(":=", "≔").replace("′′", "″"))


def shown(markup: str) -> str:
    return re.sub(r"\s", "", "".join(ElementTree.fromstring(markup).itertext()))


def test_every_formula_of_every_claim_arrives_whole(every: list[str]) -> None:
    assert len(every) > 500
    lost = [latex for latex in every if shown(mathml(latex, True)) != seen(latex)]
    assert lost == []


def test_the_printer_of_trees_and_the_reader_of_latex_agree() -> None:
    for claim in load().values():
        for part in recall(claim.id).proofs if claim.verdict != "computed" else ():
            shown = format_chain(part, MATHML)
            assert [markup for markup, _ in shown] == [
                mathml(latex) for latex, _ in format_chain(part, LATEX)
            ]
            assert show_theorem(part.theorem, part.labels, MATHML) == mathml(format_statement_latex(part))


def test_the_formula_is_the_same_in_both_styles(every: list[str]) -> None:
    assert all(shown(mathml(latex)) == shown(mathml(latex, True)) for latex in every)
    assert not any("\\" in mathml(latex) for latex in every)


CASES = [
    ("r^{2}", "<msup><mi>r</mi><mn>2</mn></msup>"),
    ("k_1^2", "<msubsup><mi>k</mi><mn>1</mn><mn>2</mn></msubsup>"),
    (r"\tfrac12", "<mfrac><mn>1</mn><mn>2</mn></mfrac>"),
    (r"2\log q", '<mn>2</mn><mspace width="0.167em"/><mi>log</mi><mspace width="0.167em"/><mi>q</mi>'),
    (r"\exp\!\left(x\right)", '<mi>exp</mi><mrow><mo fence="true" form="prefix" stretchy="false">(</mo>'),
    (r"a \iff b", "<mi>a</mi><mo>⟺</mo><mi>b</mi>"),
    (r"0 \not\le k_1", "<mo>≰</mo>"),
    (r"\mathrm{KL}", "<math><mi>KL</mi></math>"),
    (r"\mathrm{n}", '<mi mathvariant="normal">n</mi>'),
    (r"\operatorname{Var}_q k", '<msub><mi>Var</mi><mi>q</mi></msub><mspace width="0.167em"/>'),
    ("a = -b", '<mo>=</mo><mo form="prefix">−</mo><mi>b</mi>'),
    ("a - b", "<mi>a</mi><mo>−</mo><mi>b</mi>"),
    (r"\rho_{<t}", '<mo lspace="0" rspace="0">&lt;</mo>'),
    (r"\text{5\% of p\_x if q < 1}", "<mtext>5%\xa0of\xa0p_x\xa0if\xa0q\xa0&lt;\xa01</mtext>"),
    (r"\text{if $r < 1$ }", "<mtext>if\xa0</mtext><mi>r</mi><mo>&lt;</mo><mn>1</mn>"),
    (r"\text{a\textbackslash{}b}", "<mtext>a\\b</mtext>"),
    ("<script>", "<mo>&lt;</mo>"),
    (r"\text{<script>}", "<mtext>&lt;script&gt;</mtext>"),
    (r"\sum_{u<t} k_u", "<munder><mo>∑</mo>"),
    (r"\int_0^h f(t)\,dt", "<munderover><mo>∫</mo>"),
    (r"\left(\frac{1}{r}\right)", '<mo fence="true" form="prefix">(</mo>'),
    (
        r"\begin{cases}a & \text{if }b \\ c & \text{otherwise}\end{cases}",
        "</mtd></mtr><mtr><mtd><mi>c</mi></mtd>",
    ),
    (r"\bigl(x\bigr)", 'minsize="1.2em"'),
    (r"\left.x\right|_0", "<mi>x</mi>"),
    ("r'", '<mi>r</mi><mo lspace="0" rspace="0" form="postfix">′</mo>'),
    ("f''", '<mo lspace="0" rspace="0" form="postfix">″</mo>'),
    (r"\left[\tfrac{1}{n}r\right]", '>[</mo><mspace width="0.167em"/><mstyle'),
]


@pytest.mark.parametrize(("latex", "part"), CASES)
def test_what_comes_out(latex: str, part: str) -> None:
    found = mathml(latex)
    assert part in found
    ElementTree.fromstring(found)


@pytest.mark.parametrize(
    "latex",
    [
        "", " ", "{a", "a}", r"\frac{1}", r"\frac{}{2}", r"\frac", r"\sqrt{}", "a^", "_a", "a_1_2", "a^b^c",
        r"\left(a", r"a\right)", "a & b", r"a \\ b", "a % b", "$a$", r"\begin{aligned}a\end{aligned}",
        r"\foo",
        r"\foo{a}",
        r"\text{a", r"\text{\foo}", r"\text{if $\foo$}", r"\text{if $a^$}",
    ],
)  # fmt: skip
def test_what_is_no_formula_is_refused(latex: str) -> None:
    with pytest.raises(UsageError, match=r"^formula [^\n]{5,200}$"):
        mathml(latex)
