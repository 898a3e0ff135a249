"""The tables: what a cell says is what a claim says, in each format, and bad choices are refused."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest
import sympy

from klsym.cli import main
from klsym.derivations.tools.gaussian_quadrature import ESTIMATORS, mean_and_sd
from klsym.errors import UsageError
from klsym.experiments.gaussians.schulman import agrees
from klsym.language.expressions import k1, k2, k3
from klsym.study.ledger.experiment_result import Finding
from klsym.study.ledger.registry import ERRATA, load
from klsym.study.ledger.settle_claim import recall
from klsym.study.ledger.view import format_statement_latex
from klsym.study.tables import experiments, gaussian, rewards
from klsym.study.tables.catalogue import NAMES, build, tables
from klsym.study.tables.writing.layouts import LAYOUTS, markdown, write_html, write_latex
from klsym.study.tables.writing.notation import rewrite_letters, rewrite_words
from klsym.study.tables.writing.table import Cell, Column, Row, Table, code, math, words

QUICK = [name for name in NAMES if name != "experiments"]
PROVED = [name for name in QUICK if not name.startswith("measured")]  # a measurement rests on no claim
COLUMNS = (Column("a", words("A")), Column("b", words("B & C"), 0.3))
NASTY = Table(
    "nasty",
    words("100% of q_1 & {x} #1 ~ ^ \\ $ <b>"),
    COLUMNS,
    (
        Row((words("a|b <c> \\ _x"), math(r"\left|x\right| < 1", "gradient.k1-loss")), ("x",), "one & two"),
        Row((code("sg(rho)*k_2|"), words("")), ("y",), "other"),
    ),
)


def cell_of(name: str, tag: str, column: str) -> Cell:
    table = build(name)
    place = [one.key for one in table.columns].index(column)
    (row,) = (row for row in table.rows if row.tags[0] == tag or tag in row.claims[:1])
    return row.cells[place]


# ---------------------------------------------------------------------------- traced to claims
@pytest.mark.parametrize("name", ["gradients", "rewards"])
def test_each_expected_gradient_is_the_right_side_of_the_claims_beside_it(name):
    table = build(name)
    place = [column.key for column in table.columns].index("gradient")
    traced = 0
    for row in table.rows:
        shown = row.cells[place]
        for claim in shown.claims:
            endings = [format_statement_latex(part) for part in recall(claim).parts]
            assert any(text.endswith(f" {shown.pieces[0][1]}") for text in endings), claim
            traced += 1
    assert traced >= 2 * len(table.rows) / 3  # the others say that no claim states them


def test_a_gradient_is_not_traced_to_the_claim_of_another_loss():
    shown = cell_of("gradients", "gradient.k3-loss", "gradient").pieces[0][1]
    assert format_statement_latex(recall("gradient.k3-loss").parts[0]).endswith(shown)
    assert not format_statement_latex(recall("gradient.k2-loss").parts[0]).endswith(shown)


@pytest.mark.parametrize("name", PROVED)
@pytest.mark.share(3)
def test_every_row_rests_on_claims_or_says_that_it_does_not(name):
    known = load()
    for row in build(name).rows:
        assert set(row.claims) <= set(known)
        ids = [text for kind, text in row.cells[-1].pieces if kind == "code"]
        assert set(ids) <= set(row.claims)
        assert ids or row.cells[-1].pieces == words("–").pieces


@pytest.mark.parametrize(
    ("loss", "sampling", "use", "right"),
    [
        ("k1", "on-policy", "loss", False), ("k2", "on-policy", "loss", True),
        ("k3", "on-policy", "loss", False), ("rho*k1", "off-policy", "loss", True),
        ("rho*k2", "off-policy", "loss", False), ("rho*k3", "off-policy", "loss", True),
        ("sg(rho)*k2", "off-policy", "loss", True), ("sg(rho)*k3", "off-policy", "loss", False),
        ("k1", "on-policy", "reward", True), ("k3", "on-policy", "reward", False),
        ("rho*k1", "off-policy", "reward", True), ("k1", "off-policy", "reward", False),
    ],
)  # fmt: skip
def test_which_penalties_descend_the_reverse_kl(loss, sampling, use, right):
    table = build("gradients")
    (row,) = (row for row in table.rows if row.tags[0] == loss and {sampling, use} <= set(row.tags))
    assert row.cells[3].pieces == (("words", "yes" if right else "no"),)


@pytest.mark.parametrize("place", gaussian.PLACES)
@pytest.mark.parametrize("estimator", [k1, k2, k3])
def test_gaussian_figures_against_quadrature(place, estimator):
    d = float(gaussian.PLACES[place])
    mean, sd = mean_and_sd(ESTIMATORS[str(estimator)], (0.0, 1.0), (d, 1.0))
    true = d**2 / 2
    bias, spread = gaussian.compute_figures(estimator, place)
    assert float(bias) == pytest.approx((mean - true) / true, abs=1e-9)
    assert float(spread) == pytest.approx(sd / true, rel=1e-9)
    shown = [sympy.sympify(v) for v in gaussian.compute_closed_form(estimator)]
    at = dict.fromkeys(shown[1].free_symbols, gaussian.PLACES[place])
    assert float(shown[0].subs(at)) == pytest.approx((mean - true) / true, abs=1e-9)
    assert float(shown[1].subs(at)) == pytest.approx(sd**2, rel=1e-8)


@pytest.mark.parametrize(
    ("printed", "exact", "right"),
    [
        ("0.002", sympy.Rational(1, 400), True), ("0.003", sympy.Rational(1, 400), True),
        ("0.002", sympy.Rational(2501, 10**6), False), ("0.0020", sympy.Rational(1, 400), False),
        ("0.25", sympy.Rational(1, 4), True), ("1.73", sympy.sqrt(3), True), ("1.74", sympy.sqrt(3), False),
        ("1.7", 2 * sympy.sqrt(sympy.E - 2), True), ("1.6", 2 * sympy.sqrt(sympy.E - 2), False),
        ("0", sympy.S.Zero, True), ("1", sympy.S.Zero, False),
    ],
)  # fmt: skip
def test_a_printed_figure_is_right_within_half_a_unit_of_its_last_digit(printed, exact, right):
    assert agrees(printed, exact) is right


def test_errata_hold_each_corrected_claim_once_with_its_printed_form_and_a_witness():
    rows = build("errata").rows
    assert {row.tags[0] for row in rows} == {i for i, c in load().items() if c.verdict == "corrected"}
    kinds = [row.group for row in rows]
    assert kinds == sorted(kinds, key=ERRATA.index) and set(kinds) == set(ERRATA)
    for row in rows:
        source, printed, true, shown, _ = row.cells
        claim = load()[row.tags[0]]
        assert source.pieces[0][1].startswith(claim.source) and source.pieces[0][1].endswith(claim.later)
        assert claim.words in printed.pieces[0][1] or not claim.words
        assert printed.pieces != true.pieces and shown.pieces


def test_the_witness_of_the_sign_in_appendix_a_by_hand():
    # q = (1/2, 1/2), p = (1/4, 3/4), u = (1, 0): E_q[r s.u] = p_0 - q_0, and grad KL(p||q).u = q_0 - p_0
    shown = cell_of("errata", "gradient.appendix-a-sign", "witness").pieces
    assert shown[0] == ("math", r"q = (\tfrac12, \tfrac12)".replace("12", "{1}{2}"))
    assert shown[-1] == ("math", rf"{1 / 4 - 1 / 2} \ne {1 / 2 - 1 / 4}")


def test_experiments_quote_their_findings(monkeypatch):
    found = Finding("KL(q||p) falls to 5% & stays < 1", True, "it rises_", False)
    monkeypatch.setattr(experiments, "result", lambda name: SimpleNamespace(findings=(found,)))
    table = experiments.table()
    assert {row.cells[2].pieces[0][1] for row in table.rows} == {"not what the paper says"}
    assert r"KL(q\textbar{}\textbar{}p) falls to 5\% \& stays \textless{} 1" in write_latex(table)


# ---------------------------------------------------------------------------- formats
def test_latex_escapes_and_keeps_one_row_a_line():
    text = write_latex(NASTY)
    assert text.startswith("% Made by `klsym tables nasty --format latex`")
    assert r"100\% of q\_1 \& \{x\} \#1" in text and r"\label{tab:klsym-nasty}" in text
    assert text.count(r"\tabularnewline") == 3  # the heads and two rows
    assert "mathbb" not in write_latex(build("gradients"))


def test_markdown_rows_have_equally_many_cells():
    for table in (NASTY, build("gradients")):
        rows = [line for line in markdown(table).splitlines() if line.startswith("|")]
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1


class Balanced(HTMLParser):
    """Every tag that opens closes, in order."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", [*QUICK, "nasty"])
def test_html_is_balanced(name):
    page = Balanced()
    page.feed(write_html(NASTY if name == "nasty" else build(name)))
    assert not page.open and {"table", "caption", "thead", "tbody", "math"} <= set(page.seen)
    assert "b" not in page.seen and "c" not in page.seen  # what looked like tags


@pytest.mark.parametrize("form", LAYOUTS)
def test_the_same_table_gives_the_same_bytes(form):
    layout, _ = LAYOUTS[form]
    assert layout(rewards.table()) == layout(build("rewards"))


PDFLATEX = shutil.which("pdflatex")


@pytest.mark.skipif(PDFLATEX is None, reason="pdflatex is not installed")
@pytest.mark.parametrize("notation", ["wang-zhang", "tang-munos"])
@pytest.mark.parametrize("page", ["10pt", "11pt", "twocolumn", "11pt,twocolumn"])
@pytest.mark.share(3)
def test_tables_fit_a_page_of_one_column_and_of_two(page, notation, tmp_path):
    """With booktabs and amsmath alone, each from a page of its own."""
    body = "".join(rf"\typeout{{Table {name}}}\input{{{name}}}\clearpage " for name in QUICK)
    for name in QUICK:
        (tmp_path / f"{name}.tex").write_text(write_latex(build(name), notation))
    head = rf"\documentclass[{page}]{{article}}\usepackage{{booktabs,amsmath}}"
    (tmp_path / "all.tex").write_text(rf"{head}\begin{{document}}{body}\end{{document}}")
    command = [PDFLATEX, "-halt-on-error", "-interaction=nonstopmode", "all.tex"]
    for _ in range(2):  # the labels settle
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout[-600:]
    log = (tmp_path / "all.log").read_text(errors="replace")
    faults = [line for line in log.splitlines() if re.match(r"Table |Overfull|LaTeX Warning", line)]
    assert faults == [f"Table {name}" for name in QUICK]


# ---------------------------------------------------------------------------- notation
@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        (r"\mathbb{E}_{q}[k_1]", r"\mathbb{E}_{\pi}[k_1]"),
        (r"\mathrm{KL}(q_t\,\Vert\,p_t)", r"\mathrm{KL}(\pi_{t}\,\Vert\,\pi_{\mathrm{ref},t})"),
        (r"\operatorname{Var}_q k_1", r"\operatorname{Var}_{\pi} k_1"),
        (r"\log p x", r"\log \pi_{\mathrm{ref}} x"),
        (r"qx", r"\pi x"),
        (r"\text{for all q}", r"\text{for all q}"),
        (r"\mathrm{sg}(\rho)\,k_2", r"\mathrm{sg}(\rho)\,k_2"),
        (r"E_{q}[r] \ne \Vert p\Vert", r"E_{\pi}[r] \ne \Vert \pi_{\mathrm{ref}}\Vert"),
    ],
)
def test_formulas_in_the_letters_of_tang_and_munos(formula, expected):
    assert rewrite_letters(formula, "tang-munos") == expected
    assert rewrite_letters(formula, "wang-zhang") == formula


def test_words_in_the_letters_of_tang_and_munos():
    assert rewrite_words("samples from q, p << q", "tang-munos") == "samples from pi, pi_ref << pi"
    assert rewrite_words("equal parts", "tang-munos") == "equal parts"


# ---------------------------------------------------------------------------- choices
def test_rows_and_columns_are_chosen():
    (table,) = tables(("gradients",), ("k3",), ("claim", "loss"))
    assert [column.key for column in table.columns] == ["claim", "loss"]
    assert table.rows and all("k3" in row.tags for row in table.rows)
    assert "--only k3 --columns claim loss" in write_latex(table).partition("\n")[0]


def test_ids_of_claims_are_left_out_on_request(capsys):
    assert main(["tables", "rewards", "--no-claims"]) == 0
    shown = capsys.readouterr().out
    assert "--no-claims" in shown.partition("\n")[0] and r"\texttt{reward" not in shown
    whole = build("rewards").columns
    (table,) = tables(("rewards",), claims=False)
    assert table.columns == tuple(column for column in whole if column.key != "claim")


def test_a_claim_chooses_rows_of_several_tables():
    chosen = {table.name for table in tables(tuple(QUICK), ("reward.k3",))}
    assert {"gradients", "rewards"} <= chosen and "schulman" not in chosen


def test_files_are_written_whole(tmp_path):
    assert main(["tables", "rewards", "schulman", "-o", str(tmp_path / "new"), "--format", "markdown"]) == 0
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["rewards.md", "schulman.md"]


def test_a_row_with_too_few_cells_is_refused():
    with pytest.raises(ValueError, match="1 cells"):
        Table("x", words(""), COLUMNS, (Row((words("a"),)),))


def test_no_column_of_a_table_is_an_error():
    with pytest.raises(UsageError, match="no column"):
        NASTY.with_columns(("z",))


def test_the_printed_figures_are_right_to_the_digits_given():
    rows = build("schulman").rows
    assert len(rows) == 6
    assert {row.cells[i].pieces[0] for row in rows for i in (3, 6)} == {("words", "yes")}
