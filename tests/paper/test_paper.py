"""The paper: the same parts every time, each claim once, citations that are defined, a clean compile."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from klsym.errors import KlsymError
from klsym.experiments.catalogue import EXPERIMENTS
from klsym.experiments.gallery import GALLERY
from klsym.paper import generate as paper
from klsym.paper import survey
from klsym.paper.compile import compile_paper, first_fault, main
from klsym.render.rules import CLOSINGS, RULES
from klsym.study.figures.style import apply_style, save
from klsym.study.ledger.evidence import Evidence, build_evidence
from klsym.study.ledger.experiment_result import Finding
from klsym.study.ledger.registry import load
from klsym.study.ledger.settle_all import Judged
from klsym.study.ledger.settle_claim import Settled, settle
from klsym.study.tables.survey import stored
from klsym.study.write_up.bibliography import SOURCES, TAG, cite_tags, listing, write_bibliography
from klsym.study.write_up.page import write_page
from klsym.study.write_up.page_material import Figure, Material
from support.latex_judge import balanced

HOME = Path(__file__).parents[2] / "paper"
FRAME = HOME / "klsym.tex"


@pytest.fixture(scope="module")
def ledger(proofs_settled: dict[str, Settled]) -> list[Settled]:
    """The ledger, with a stand-in for the findings of experiments, which take a minute."""
    said = "it falls (not what the paper says)"
    found = Evidence(
        "computed", "k3 rises", "", "numeric", ("a stand-in",), source_says=said, outcome="otherwise"
    )
    claims = load().values()
    return [proofs_settled.get(claim.id, Settled(claim, (found,))) for claim in claims]


@pytest.fixture(scope="module")
def parts(ledger):
    return paper.parts(ledger)


def test_parts_are_deterministic(ledger, parts):
    """Every twentieth claim is settled anew."""
    proved = [item.claim for item in ledger if item.claim.verdict != "computed"]
    anew = {claim.id: settle(claim) for claim in proved[::20]}
    assert paper.parts([anew.get(item.claim.id, item) for item in ledger]) == parts


def test_each_claim_stands_in_the_parts_once(ledger, parts):
    """In full if the text cites it, else on a line of the index; what the main text quotes is derived."""
    printed = re.findall(r"\\klclaim\{([^}]*)\}", parts["claims"] + parts["experiments"])
    listed = re.findall(r"\\klindexed\{([^}]*)\}", parts["index"])
    assert sorted([*printed, *listed]) == sorted(item.claim.id for item in ledger)
    derived = re.findall(r"\\klderived\{([^}]*)\}", parts["derivations"])
    assert (
        set(derived) == paper.list_quoted(paper.MAIN_TEXT) < paper.list_cited(paper.MAIN_TEXT) <= {*printed}
    )
    assert len(derived) == len(set(derived)) > 20 and len(listed) > len(derived)


@pytest.mark.parametrize(
    "name",
    ["claims", "index", "derivations", "experiments", "quotes", "ledger", "corrections", "contradictions",
     "map", "survey", "rules", "closings", "bibliography"],
)  # fmt: skip
def test_each_part_is_balanced(name, parts):
    assert balanced(parts[name])


def test_rules_and_closings_are_all_there(parts):
    assert parts["rules"].count(r"\klrule{") == len(RULES)
    assert parts["closings"].count(r"\klclosing{") == len(CLOSINGS)
    assert all(rf"\klrule{{{name}}}" in parts["rules"] for name in RULES)


def test_corrections_show_both_forms(ledger, parts):
    corrected = [item for item in ledger if item.claim.verdict == "corrected"]
    assert corrected
    shown = [parts["corrections"].count(macro) for macro in (r"\klcorrection{", r"\klfalse", r"\kltrue")]
    assert shown == [len(corrected)] * 3


def test_page_and_paper_count_the_same_findings(parts, ledger):
    """Also where the source is silent, or was found right; figures that no claim states count on neither."""
    many = [
        Finding("a", True, "rises", False), Finding("b", True, "falls", True), Finding("c", True),
        Finding("d", True, "stays", False), Finding("e", True, "ends", True), Finding("f", True, "is", True),
    ]  # fmt: skip
    computed_ = next(item for item in ledger if item.claim.verdict == "computed")
    settled = [Settled(computed_.claim, build_evidence(many, "a set-up")), *ledger[:3]]
    quotes = paper.parts(settled)["quotes"]
    counts = ("compared}{5", "agrees}{3", "otherwise}{2", "exception}{0", "undecided}{0", "advice}{0")
    assert all(rf"\kldefine{{count/{words}}}" in quotes for words in counts)
    elsewhere = Figure("x", "X", b"", ".png", "a set-up", many)
    shown = write_page(Material([Judged(item, ()) for item in settled], figures=[elsewhere]))
    assert "3 agree, 0 agree with an exception, 2 disagree, 0 undecided" in shown


def test_contradictions_are_those_that_say_so(parts, ledger):
    assert parts["contradictions"].count(r"\item") == sum(i.claim.verdict == "computed" for i in ledger)


def test_counts_are_those_of_the_ledger(parts, ledger):
    counts = dict(re.findall(r"\\kldefine\{count/(\w+)\}\{(\d+)\}", parts["quotes"]))
    assert int(counts["claims"]) == len(ledger)
    assert sum(int(counts[verdict]) for verdict in paper.VERDICTS) == len(ledger)


def test_every_area_has_a_name_and_a_count(parts, ledger):
    areas = Counter(item.claim.area for item in ledger)
    assert set(areas) == set(paper.AREAS)
    assert all(rf"\kldefine{{count/area-{area}}}{{{n}}}" in parts["quotes"] for area, n in areas.items())


def test_the_survey_counts_only_terms_that_are_read():
    read_rows = [row for row in stored() if "refused" not in row]
    counts = survey.counts()
    assert counts["survey-read"] == len(read_rows) < len(stored())
    assert counts["survey-silent"] == sum(not row["says"] for row in read_rows)
    assert counts["survey-says"] == sum(len(row["says"]) for row in read_rows)


def test_the_text_on_released_code_holds(parts):
    """Fewer than half of the terms in the loss have the reverse gradient; off-policy most depend on mu."""
    counts = {
        name: int(n)
        for name, n in re.findall(r"\\kldefine\{count/survey-([\w-]+)\}\{(\d+)\}", parts["quotes"])
    }
    assert 2 * counts["loss-reverse"] < counts["loss"] and 4 * counts["off-reverse"] < counts["loss"]
    last = [
        int(row.split("&")[-1].strip(" \\") or 0)
        for row in parts["survey"].splitlines()
        if row.startswith("in the")
    ]
    assert 2 * last[1] > counts["loss"] and len(last) == 5
    assert counts["reward-bare"] == 0 < counts["reward-weighted"] < counts["reward"]


def test_the_frame_quotes_and_names_only_what_there_is(parts, ledger):
    body = FRAME.read_text(encoding="utf-8").partition(r"\begin{document}")[2]
    body += (HOME / "supplement.tex").read_text(encoding="utf-8")
    known = set(re.findall(r"\\kldefine\{([^}]*)\}", parts["quotes"]))
    several = re.findall(r"\\kl(?:two|three)((?:\{[^}#]*\})+)", body)
    quoted = set(re.findall(r"\\kl(?:show|quote)\{([^}#]*)\}", body))
    quoted |= {name for names in several for name in re.findall(r"\{([^}]*)\}", names)}
    assert quoted and quoted <= known
    named = set(re.findall(r"\\ref\{claim:([^}#]*)\}", body))
    named |= {name for name in re.findall(r"\\klwide\{([^}#]*)\}", body) if "." in name}
    assert named and named <= {item.claim.id for item in ledger}
    drawn = set(re.findall(r"\\klfigure\{([^}#]*)\}", body))
    drawn |= {name for pair in re.findall(r"\\klpair\{([^}#]*)\}\{([^}#]*)\}", body) for name in pair}
    assert set(GALLERY) <= drawn <= {*EXPERIMENTS, *GALLERY}


def test_citations_are_defined(parts):
    further = (HOME / "references.tex").read_text(encoding="utf-8")
    keys = re.findall(r"\\bibitem\{(\w+)\}", further)
    assert len(set(keys)) == len(keys) >= 40
    text = FRAME.read_text(encoding="utf-8") + "".join(parts.values())
    groups = re.findall(r"\\cite(?:\[[^\]]*\])?\{([^}]*)\}", text)
    used = {key for group in groups for key in group.split(",")}
    assert set(keys) <= used <= {*SOURCES, *keys}
    order = [*SOURCES, *keys]
    assert all(group.split(",") == sorted(group.split(","), key=order.index) for group in groups)
    assert set(re.findall(r"\\bibitem\[\w+\]\{(\w+)\}", write_bibliography())) == set(SOURCES)


def test_every_tag_of_the_ledger_is_a_source():
    for claim in load().values():
        tags = set(re.findall(r"\b[A-Z]{2}\d?\b", claim.source)) - {"KL"}
        assert tags <= set(SOURCES), claim.id
        assert len(TAG.findall(claim.source)) == cite_tags(claim.source).count(r"\cite")


@pytest.mark.parametrize(
    "source, latex",
    [
        ("WZ1 trap 1; SH", r"\cite[trap~1]{WZ1}; \cite{SH}"),
        ("TM (7)", r"\cite[(7)]{TM}"),
        ("TM app. A step (c)", r"\cite[app.~A step~(c)]{TM}"),
        ("TM 3, WZ2 8.1 (in words); form new", r"\cite[3]{TM}, \cite[8.1]{WZ2} (in words); form new"),
        ("RE (defines r = q/p)", r"\cite{RE} (defines $r \brk= q/p$)"),
        ("new", "new"),
    ],
)
def test_cited(source, latex):
    assert cite_tags(source) == latex


def test_the_listing_names_every_source():
    assert all(re.search(rf"^{tag} ", listing(), re.MULTILINE) for tag in SOURCES)


def test_parts_are_written_whole(tmp_path, monkeypatch):
    chosen = {id: load()[id] for id in ("gradient.k1-loss", "value.k2-biased")}
    monkeypatch.setattr(paper, "load", lambda: chosen)
    written = paper.write_parts(tmp_path, figures=False)
    assert all(path.read_text(encoding="utf-8").startswith("% Made by `klsym paper`") for path in written)
    assert {path.name for path in written} == {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize(
    "log, fault",
    [
        ("all well\n", ""),
        ("Overfull \\hbox (3pt too wide) in paragraph\n", "Overfull \\hbox (3pt too wide) in paragraph"),
        ("LaTeX Warning: Reference `x' undefined\n", "LaTeX Warning: Reference `x' undefined"),
        ("LaTeX Font Warning: size substitution\n", "LaTeX Font Warning: size substitution"),
        ("Package klsym Warning: nothing to quote: x\n", "Package klsym Warning: nothing to quote: x"),
        ("./a.tex:3: Undefined control sequence.\n", "./a.tex:3: Undefined control sequence."),
        ("Underfull \\hbox (badness 10000)\n", ""),
    ],
)
def test_faults_of_a_log(log, fault):
    assert first_fault(log) == fault


needs_latex = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")


def test_without_pdflatex_it_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert main([str(FRAME), str(tmp_path)]) == 2
    assert capsys.readouterr().err == "klsym: pdflatex not found: install texlive-latex-recommended\n"


@needs_latex
@pytest.mark.parametrize(
    "body, fault",
    [
        (r"\noindent\rule{40cm}{1pt}", "Overfull"),
        (r"See \ref{nothing}.", "undefined"),
        (r"\cite{nobody}", "undefined"),
        (r"\undefinedmacro", "Undefined control sequence"),
    ],
)
def test_what_is_wrong_is_refused(body, fault, tmp_path):
    source = tmp_path / "short.tex"
    text = rf"\documentclass{{article}}\begin{{document}}{body}\end{{document}}"
    source.write_text(text, encoding="utf-8")
    with pytest.raises(KlsymError, match=fault):
        compile_paper(source, tmp_path / "out")


@needs_latex
@pytest.mark.parametrize("columns", ["", r"\def\kltwocolumn{}"])
def test_a_paper_compiles_twice_to_the_same_bytes(columns, parts, tmp_path):
    """The head of klsym's own, its claims, its bibliography, an empty picture; `make paper` does all."""
    for name, body in parts.items():
        (tmp_path / f"{name}.tex").write_text(body, encoding="utf-8")
    with apply_style() as Figure:
        save(Figure(figsize=(1, 1)), tmp_path / "figures", "empty")
    shutil.copy(HOME / "preamble.tex", tmp_path)
    head = FRAME.read_text(encoding="utf-8").partition(r"\begin{document}")[0]
    body = r"\klfront{An abstract.}\begin{figure*}\includegraphics{empty}\end{figure*}\klshow{reward.k3/1}"
    body += r"\kltwo{reward.k1/1}{reward.k3/1}\klquote{correction/practice.reward-k3-advised}"
    body += r"\begin{table*}\small\tabcolsep=5pt\input{map}\par\input{survey}\end{table*}"
    body += r"\begin{thebibliography}{WZ2}\raggedright\input{bibliography}\end{thebibliography}"
    body += r"\klsupplement{\small\input{claims}}"
    source = tmp_path / "short.tex"
    source.write_text(rf"{columns}{head}\begin{{document}}{body}\end{{document}}", encoding="utf-8")
    first = compile_paper(source, tmp_path).read_bytes()
    assert first.startswith(b"%PDF")
    assert compile_paper(source, tmp_path).read_bytes() == first
