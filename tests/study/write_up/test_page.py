"""The report page: well formed, self-contained, escaped, and every text on it traced to what was settled."""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from markupsafe import Markup

from klsym.experiments.catalogue import EXPERIMENTS
from klsym.kernel import FORMAT, check
from klsym.notation.printers import LATEX
from klsym.notation.text import format_chain, show_statement
from klsym.render.markup.mathml import mathml
from klsym.render.rules import CLOSINGS, RULE_OF, RULES
from klsym.study.ledger.experiment_result import Finding
from klsym.study.ledger.registry import PRINTED, SLIP, WORDS, Claim, load
from klsym.study.ledger.settle_all import Judged
from klsym.study.ledger.settle_claim import Settled, settle
from klsym.study.ledger.view import format_statement_latex
from klsym.study.tables.writing.table import Column, Row, Table, code, math, words
from klsym.study.write_up import run
from klsym.study.write_up.page import HEADLINES, build_environment, list_entries, read_size, write_page
from klsym.study.write_up.page_checks import summarise_checks
from klsym.study.write_up.page_claims import Entry, name_closing, name_rule
from klsym.study.write_up.page_glossary import GLOSSARY
from klsym.study.write_up.page_material import Figure, Material
from klsym.study.write_up.page_prose import render_prose

VOID = ("meta", "img", "input", "br", "hr", "link", "wbr")
PIXEL = b"\x89PNG\r\n\x1a\n"


class Reader(HTMLParser):
    """Tags that do not match, ids, attributes and the words of each element with an id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.faults: list[str] = []
        self.ids: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self.feed(text)
        self.faults += self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids.update(value or "" for name, value in attrs if name == "id")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["style"], ["script"]):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def results(proofs_settled: dict[str, Settled]) -> list[Judged]:
    return [Judged(one, ()) for one in proofs_settled.values()]


@pytest.fixture(scope="module")
def whole(results: list[Judged]) -> str:
    finding = Finding("5 < 6 & so", True, "it <falls>", False)
    figure = Figure("f&1", "a < b", PIXEL, ".png", "n < 4", (finding,), ("x",), (("1 & 2",),))
    row = Row((code("gradient.k1-loss"), code("gradient.none"), math("k_1") + words(", so")))
    columns = (Column("a", words("a")), Column("b", words("b")), Column("c", words("c")))
    table = Table("x", words("5 < 6. And so on."), columns, (row,))
    return write_page(
        Material(results, None, (figure,), (table,), run.list_sources(), {"gradient.k1-loss": "c.json"})
    )


def test_the_page_is_well_formed(whole: str) -> None:
    reader = Reader(whole)
    assert reader.faults == []
    assert [id for id, count in reader.ids.items() if count > 1] == []
    assert whole.startswith("<!DOCTYPE html>") and whole.endswith("</html>\n")


def test_a_page_that_is_not_well_formed_is_noticed() -> None:
    assert Reader("<p><b></p>").faults
    assert Reader("<p id='a'></p><p id='a'></p>").ids["a"] == 2


def test_every_claim_stands_on_it_once(whole: str, results: list[Judged]) -> None:
    ids = Reader(whole).ids
    assert len(results) > 90
    assert all(ids[result.settled.claim.id] == 1 for result in results)
    assert whole.count('<details class="claim ') == len(results)


def test_nothing_is_fetched_and_every_link_leads_somewhere(whole: str) -> None:
    reader = Reader(whole)
    loads = [v for _, name, v in reader.attributes if name in ("src", "srcset", "data", "action", "poster")]
    assert loads and all(value.startswith("data:") for value in loads)
    links = [v for _, name, v in reader.attributes if name == "href"]
    assert {v for v in links if not v.startswith("#")} == {"c.json"}
    assert [v for v in links if v.startswith("#") and v[1:] not in reader.ids] == []
    assert not re.search(r"https?:|url\(|@import|<link|<iframe|<object", whole)
    assert "default-src 'none'" in whole


def test_signs_are_escaped(whole: str) -> None:
    assert "5 &lt; 6 &amp; so" in whole and "it &lt;falls&gt;" in whole and "it <falls>" not in whole
    assert 'id="figure.f&amp;1"' in whole and "1 &amp; 2" in whole
    evil = Claim("x.<i>", "proved", '"><script>', "a <b> & c", lambda: None)
    shown = written("claim", Entry(Settled(evil, (), "no <u> proof")))
    assert not re.search(r"<(i|b|u|script)>", shown) and Reader(shown).faults == []


def test_every_statement_is_traced_to_its_proof(whole: str, results: list[Judged]) -> None:
    for result in results:
        settled = result.settled
        mine = claim_of(whole, settled.claim.id)
        assert settled.claim.verdict in mine and settled.trust in mine
        for part in settled.parts:
            assert mathml(format_statement_latex(part), True, True) in mine, settled.claim.id
        assert all(f"<li>{render_prose(line)}</li>" in mine for line in settled.hypotheses), settled.claim.id
        assert render_prose(settled.claim.explanation) in mine
        if settled.proofs:
            assert settled.certificate()["digest"] in mine


def test_every_step_is_there_with_its_rule(whole: str, results: list[Judged]) -> None:
    steps = 0
    for result in results:
        mine = claim_of(whole, result.settled.claim.id)
        for proof in result.settled.proofs:
            for latex, why in format_chain(proof, LATEX)[1:]:
                assert mathml(latex, True, True) in mine
                notes = {words for *_, by in proof.notes for words in by.split(", ")}
                for name in why.split(", "):
                    rule = RULE_OF.get(name, name)
                    linked = rule in RULES or rule in CLOSINGS
                    assert (link_of(rule) if linked else escape(name)) in mine
                    assert linked or name in UNLINKED | notes
                steps += 1
    assert steps > 500


def test_refutations_show_their_model(whole: str, results: list[Judged]) -> None:
    refuted = 0
    for result in results:
        mine = claim_of(whole, result.settled.claim.id)
        kinds = [theorem.kind for theorem in result.settled.theorems]
        assert mine.count("<h4>Counterexample</h4>") == kinds.count("refuted")
        refuted += kinds.count("refuted")
    assert refuted > 15
    k3 = Reader(claim_of(whole, "gradient.k3-loss-not-reverse")).text
    assert "q 1/2 1/2 p 1/4 3/4" in k3 and "mu" not in k3.partition("Counterexample")[2].split("Hyp")[0]
    tree = Reader(claim_of(whole, "sequence.token-loss-partial")).text
    assert "start 1/2, 1/2 2/3, 1/3" in tree


def test_a_corrected_claim_shows_what_its_source_prints(whole: str, results: list[Judged]) -> None:
    shown = claim_of(whole, "gradient.appendix-a-sign")
    [wrong] = [p for p in settle(load()["gradient.appendix-a-sign"]).proofs if p.theorem.kind == "refuted"]
    printed = mathml(show_statement(wrong.theorem.statement, wrong.labels, spell=LATEX), True, True)
    assert printed in shown.partition("As printed")[2].partition("Statement 1")[0]
    corrected = [r for r in results if r.settled.claim.verdict == "corrected"]
    kinds = [r.settled.claim.erratum for r in corrected]
    plain, slip, words = (kinds.count(kind) for kind in (PRINTED, SLIP, WORDS))
    assert whole.count("<h4>As printed, false") == plain and whole.count("<h4>As printed, a slip") == slip
    assert whole.count("<h4>Our reading of: ") == words and plain and slip and words


def test_all_rules_and_closings_are_explained(whole: str) -> None:
    assert all(render_prose(rule.why) in whole and escape(rule.cite) in whole for rule in RULES.values())
    assert all(render_prose(" ".join(why.split())) in whole for why in CLOSINGS.values())


def test_a_certificate_is_linked_where_it_lies_beside(whole: str) -> None:
    assert '<a href="c.json">certificate</a>' in claim_of(whole, "gradient.k1-loss")
    assert "<a href" not in claim_of(whole, "gradient.k3-loss").partition("digest")[2]
    [table] = re.findall(r'<table class="klsym" id="table-x">.*?</table>', whole, re.DOTALL)
    assert 'href="#gradient.k1-loss"><code>gradient.k1-loss</code></a>' in table
    assert "<td><code>gradient.none</code></td>" in table and "</math>&NoBreak;, so" in table
    assert "<caption><b>5 &lt; 6.</b> And so on.</caption>" in table


def test_the_counts_are_those_of_the_run(results: list[Judged]) -> None:
    some = Material(results[:4])
    counted = Reader(head_of(write_page(some))).text
    trusted = sum(result.settled.trust == "kernel" for result in results[:4])
    assert "All 4 claims are settled" in counted and f"{trusted} replayed by a small kernel" in counted
    assert 'class="failure"' not in write_page(some) and "failed" not in counted


def _fails(result: Judged) -> Judged:
    return Judged(replace(result.settled, error="it <fails>"), ())


def _disagrees(result: Judged) -> Judged:
    return Judged(result.settled, ((False, "it <fails>"),))


@pytest.mark.parametrize("spoil", [_fails, _disagrees])
def test_a_claim_that_fails_is_seen_at_the_top_and_in_its_line(results: list[Judged], spoil: Any) -> None:
    """Whether it did not settle, or the exact oracle disagrees."""
    id = results[0].settled.claim.id
    material = Material([spoil(results[0]), *results[1:4]])
    shown = write_page(material)
    said = Reader(head_of(shown)).text
    assert "1 of 4 claims failed" in said and "it <fails>" in said and "All 4" not in said
    assert f'<details class="claim failed" id="{id}" open' in shown
    assert "it &lt;fails&gt;" in claim_of(shown, id)
    assert failed(material) == {id}
    assert shown.count('class="claim failed"') == 1


def test_a_claim_that_samples_contradict_has_failed(results: list[Judged]) -> None:
    [k3] = [result for result in results if result.settled.claim.id == "gradient.k3-loss"]
    wrong = SimpleNamespace(**vars(checked(passed=False)))
    wrong.identity.claim = k3.settled.claim
    right = SimpleNamespace(**vars(checked()))
    right.identity.claim = k3.settled.claim
    for one, expected in ((wrong, {"gradient.k3-loss"}), (right, set())):
        run_of = SimpleNamespace(checked=[one])
        assert failed(Material([k3], run_of)) == expected  # type: ignore[arg-type]


def test_the_errata_stand_near_the_top(whole: str, results: list[Judged]) -> None:
    [shown] = re.findall(r'<section id="errata">.*?</section>', whole, re.DOTALL)
    assert whole.index(shown) < whole.index('<section id="ledger">')
    corrected = [r.settled for r in results if r.settled.claim.verdict == "corrected"]
    assert shown.count('class="erratum"') == len(corrected) > 0
    for settled in corrected:
        assert f'href="#{settled.claim.id}"' in shown
        entry = Entry(settled)
        assert entry.printed and entry.true and len(entry.printed) + len(entry.true) == len(settled.parts)
        for one in (*entry.printed, *entry.true):
            assert (one if isinstance(one, Markup) else mathml(one, True, True)) in shown


def test_what_most_people_come_for_is_quoted(whole: str) -> None:
    [shown] = re.findall(r'<section id="short">.*?</section>', whole, re.DOTALL)
    assert all(f'href="#{id}"' in shown for id in HEADLINES) and set(HEADLINES) <= load().keys()


def test_the_ledger_at_a_glance_adds_up(whole: str, results: list[Judged]) -> None:
    rows = re.findall(r'<tr><th scope="row"><a href="#area[^"]*">.*?</tr>', whole)
    cells = [[int(n or 0) for n in re.findall(r'<td class="n">(\d*)</td>', row)] for row in rows]
    assert all(sum(row[:-1]) == row[-1] for row in cells)
    assert sum(row[-1] for row in cells) == len(results)


def test_sentences_are_set_with_their_formulas(results: list[Judged]) -> None:
    """No LaTeX is left, no word is lost; lambda is a letter."""
    every = [result.settled for result in results]
    texts = {settled.claim.explanation for settled in every} | {h for one in every for h in one.hypotheses}
    texts |= {rule.why for rule in RULES.values()} | {words for pair in GLOSSARY for words in pair}
    assert len(texts) > 200
    for text in texts:
        shown = Reader(f"<p>{render_prose(text)}</p>")
        assert shown.faults == [] and not set(shown.text) & set("\\$`"), text
        words = re.findall(r"(?<![\w*])(?!lambda\b)[a-z]{6,}(?![\w(*])", text)
        assert [word for word in words if word not in shown.text] == [], text
    assert sum("<math" in render_prose(text) for text in texts) > 100


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('say "<b>no & c"', 'say "&lt;b&gt;no &amp; c"'),
        ("`detach` it", "<code>detach</code> it"),
        ("5% of both", "5% of both"),
        ("it is k1.", "it is <math><msub><mi>k</mi><mn>1</mn></msub></math>&NoBreak;."),
        (" spaced ", " spaced "),
        ("", ""),
    ],
)
def test_how_a_sentence_is_set(text: str, shown: str) -> None:
    assert render_prose(text) == shown


def test_a_figure_is_as_large_as_its_letters_need() -> None:
    head = PIXEL + struct.pack(">I4sII5s", 13, b"IHDR", 2100, 780, bytes(5))
    dense = struct.pack(">I4sIIB", 9, b"pHYs", 11811, 11811, 1)
    for image, expected in ((head + dense, (1008, 374)), (head, (1008, 374)), (PIXEL, ())):
        figure = Figure("f", "t", image)
        shown = re.findall(r'width="(\d+)" height="(\d+)"', write_page(Material([], figures=(figure,))))
        assert read_size(figure) == expected and shown == ([tuple(map(str, expected))] if expected else [])


# ---------------------------------------------------------------------------- the cross-check
def checked(**changes: Any) -> SimpleNamespace:
    outcome = SimpleNamespace(
        z=-1.24,
        threshold=5.99,
        holds=True,
        sees=2e-5,
        control=141.0,
        rejected=True,
        samples=10**12,
        relation="=",
    )
    identity = SimpleNamespace(
        number=1, of=2, finite=[SimpleNamespace(name="left side")], gaussian="", notes=[]
    )
    plain = {"identity": identity, "passed": True, "exact": (True, "apart by 0"), "finite": [outcome],
             "gaussian": "p < q", "autograd": None, "few": [], "outcomes": [outcome]}  # fmt: skip
    return SimpleNamespace(**(plain | changes))


def test_the_cross_check_says_what_was_seen() -> None:
    shown = written("cross_check", summarise_checks([checked()]))
    text = Reader(shown).text
    assert "Statement 1, exactly: apart by 0" in text and "finite model, left side" in text
    assert "10 12 −1.2 |z| ≤ 5.99 2×10 −5 detected, |z| = 140" in text
    assert "agrees : the exact oracle bears out 1 of 1 statement; 1 of 1 sampled side as required" in text
    assert "a bias of 2×10 −5 of its size would have shown; 1 of 1 wrong control detected" in text
    assert "not sampled on Gaussians: p < q" in text and "failure" not in shown
    assert summarise_checks([]) == {}


@pytest.mark.parametrize(
    ("change", "word"), [({"holds": False}, "−1.2"), ({"rejected": False}, "not detected")]
)
def test_a_failed_comparison_is_marked(change: dict[str, bool], word: str) -> None:
    outcome = SimpleNamespace(**(vars(checked().outcomes[0]) | change))
    one = checked(finite=[outcome], outcomes=[outcome], passed=False)
    shown = written("cross_check", summarise_checks([one]))
    assert "does not agree" in shown and f'class="failure">{word}' in shown
    assert 'class="failure"' in written("cross_check", summarise_checks([checked(exact=(False, "apart"))]))


# ---------------------------------------------------------------------------- files
def test_everything_is_made_and_said_where(tmp_path: Path) -> None:
    claims = [load()["gradient.k1-loss"], load()["gradient.k3-loss-not-reverse"]]
    folder = tmp_path / "out"
    (folder / "certificates").mkdir(parents=True)
    (folder / "certificates" / "notes.json").write_text("[1]", encoding="utf-8")
    stale = json.dumps({"format": FORMAT, "claim": "gradient.gone", "parts": []})
    (folder / "certificates" / "gradient.gone.json").write_text(stale, encoding="utf-8")
    table = Table("mine", words("All."), (Column("a", words("a")),), (Row((words("one cell"),)),))
    steps: list[str] = []
    made = run.make_report(folder, claims=claims, experiments=[], tables=[table], announce=steps.append)
    assert len(steps) == 5 and steps[0] == "proving and checking 2 claims"
    assert made.passed and str(folder / "report.html") in str(made)
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert 'href="certificates/gradient.k1-loss.json"' in text and "one cell" in text
    (folder / "certificates" / "notes.json").unlink()  # is not ours to remove
    made_now = sorted((folder / "certificates").iterdir())
    assert [path.stem for path in made_now] == sorted(claim.id for claim in claims)
    for path in made_now:
        assert check(json.loads(path.read_text(encoding="utf-8")))
        assert json.loads(path.read_text(encoding="utf-8"))["digest"] in text
    verified = (folder / "verify.txt").read_text(encoding="utf-8")
    assert "all 2 identities agree" in verified and verified.strip() in str(made)
    assert "2 of 2 statements agree" in Reader(text).text


def test_findings_are_listed_as_the_experiments_have_them() -> None:
    figure = Figure("f", "t", PIXEL, findings=(Finding("up", True, "down", False), Finding("flat", True)))
    assert run.list_findings([figure]) == ["f: t", "  - up [not what the paper says: down]", "  - flat"]
    assert all(experiment.title for experiment in EXPERIMENTS.values())


def test_a_claim_is_found_by_its_words(results: list[Judged]) -> None:
    [k1] = [r.settled for r in results if r.settled.claim.id == "gradient.k1-loss"]
    shown = written("claim", Entry(k1))
    found = next(v for _, name, v in Reader(shown).attributes if name == "data-words")
    assert k1.statement.lower() in found and "proved" in found and "kernel" in found


# What is put in for an abbreviation, and what is left out.
UNLINKED = {"definition", "on-policy", "given", "evaluation"}


def written(macro: str, data: Any) -> str:
    """What a template makes of one claim, or of one cross-check."""
    template = {"claim": "claim.html.j2", "cross_check": "checks.html.j2"}[macro]
    return str(getattr(build_environment().get_template(template).module, macro)(data))


def head_of(whole: str) -> str:
    """The first screen."""
    return whole.partition("<header")[2].partition("</header>")[0]


def failed(material: Material) -> set[str]:
    return {entry.settled.claim.id for entry in list_entries(material) if entry.error}


def link_of(name: str) -> str:
    return f'href="#{name_rule(name) if name in RULES else name_closing(name)}"'


def claim_of(whole: str, id: str) -> str:
    """The markup of one claim."""
    _, _, rest = whole.partition(f'id="{id}"')
    assert rest, id
    mine = re.split(r'<details class="claim|</section>', rest)[0]
    return f'<details id="{id}"{mine}'
