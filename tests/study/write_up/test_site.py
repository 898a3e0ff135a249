"""The pages of the documentation site, without Sphinx: links, formulas, the map, codes, commands."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from generate import cheat_sheet, check, codes, commands, grammar, penalty_map, sources
from generate.formulas import html_of
from klsym.commands.parser import build_parser
from klsym.diagnostics.codes import load_codes as known_codes
from klsym.errors import UsageError
from klsym.study.ledger.stored import entries
from klsym.study.write_up.hypothesis_groups import group_hypotheses

HOME = sources.HOME
FORMULA = re.compile(r"\$\$(.+?)\$\$|(?<![\\$])\$(?!\s)([^$\n]+?)(?<![\s\\])\$(?!\d)", re.DOTALL)
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


# ---------------------------------------------------------------------------- formulas
def texts() -> Iterator[str]:
    """Markdown of pages and notebooks, and what their cells show."""
    for path in [HOME / "README.md", *(HOME / "docs").rglob("*.md")]:
        yield path.read_text(encoding="utf-8")
    for path in (HOME / "notebooks").glob("*.ipynb"):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "markdown":
                yield "".join(cell["source"])
            for output in cell.get("outputs", ()):
                data = output.get("data", {})
                yield from ("".join(data[kind]) for kind in ("text/markdown", "text/latex") if kind in data)


def test_every_formula_of_the_site_becomes_mathml() -> None:
    found = [one or two for text in texts() for one, two in FORMULA.findall(CODE.sub("", text))]
    assert len(found) > 500
    for latex in found:
        assert html_of(latex, display=True).count("<math") >= 1, latex


def test_a_derivation_has_three_columns() -> None:
    shown = html_of(
        r"\begin{aligned} a &= b && \text{x} \\ &= \begin{cases} 1 & 2 \\ 3 & 4 \end{cases} \end{aligned}"
    )
    kinds = re.findall(r'<div class="(\w+)">', shown)
    assert kinds == ["aligned", *("left", "right", "rule") * 2] and shown.count("<mtd>") == 4


def test_an_unknown_command_is_refused() -> None:
    with pytest.raises(UsageError):
        html_of(r"\unknown{x}")


# ---------------------------------------------------------------------------- links
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[a](../codes.md)", "[a](../reference/codes/index.md)"),
        ("[a](../../README.md#install)", "[a](../index.md#install)"),
        ("[a](../../notebooks/01-values.ipynb)", "[a](../notebooks/01-values.ipynb)"),
        ("[`LICENSE`](../../LICENSE)", "`LICENSE`"),
        ("[the licence](../../LICENSE)", "the licence (`LICENSE`)"),
        ("[a](https://x.y/z)", "[a](https://x.y/z)"),
        ('<a id="sign"></a>', "(sign)="),
        ("```text\n[a](../codes.md)\n```", "```text\n[a](../codes.md)\n```"),
    ],
)
def test_links_are_those_of_the_site(text: str, shown: str) -> None:
    assert sources.markdown(text, "docs/guides/off-policy.md") == shown


def test_a_part_of_another_page_is_included() -> None:
    text = "```{include} ../../README.md\n:start-after: <!-- audit -->\n:end-before: <!-- /audit -->\n```"
    shown = sources.markdown(text, "docs/guides/off-policy.md")
    assert shown.startswith("**Audit training code in CI.**") and "include" not in shown
    with pytest.raises(ValueError, match="no part between"):
        sources.markdown(text.replace("/audit", "/nothing"), "docs/guides/off-policy.md")


def test_relative_links_lead_to_files() -> None:
    for path in [HOME / "README.md", *(HOME / "docs").rglob("*.md")]:
        text = CODE.sub("", path.read_text(encoding="utf-8"))
        for _, _, target in sources.LINK.findall(text):
            file = target.partition("#")[0]
            if file and not re.match("[a-z]+:", file):
                assert (path.parent / file).exists(), f"{path.name}: {target}"


def test_faults_of_a_built_page_are_found(tmp_path: Path) -> None:
    links = "".join(
        f'<a href="{to}">x</a>' for to in ("b.html", "#x", "#y", "https://x.y/", "try/index.html")
    )
    (tmp_path / "a.html").write_text(f'<p id="x">$k_1$ {links}</p><pre>$k_1$</pre>')
    found = check.static_faults(tmp_path)
    pages = ["a.html: no page b.html", "a.html: no anchor #y", "a.html: no page try/index.html"]
    assert found == [*pages, "a.html: LaTeX '$k_1$'"]


def test_a_page_without_description_or_top_bar_is_found(tmp_path: Path) -> None:
    (tmp_path / "_static").mkdir()
    (tmp_path / "_static" / "social.png").write_bytes(b"")
    whole = '<meta name="description"><meta property="og:image"><script src="copybutton.js"></script>'
    (tmp_path / "a.html").write_text(f'{whole}<a class="try"></a>')
    assert check.head_faults(tmp_path) == []
    (tmp_path / "b.html").write_text(whole)
    assert check.head_faults(tmp_path) == ['b.html: no class="try"']


def test_words_that_the_search_does_not_find_are_named(tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("sphinx")
    terms = {"entropi": [0, 1], "bonu": 1, "bonus": 1}
    index = {"docnames": ["a", "b"], "terms": terms, "titleterms": {"entropi": 0}}
    (tmp_path / "searchindex.js").write_text(f"Search.setIndex({json.dumps(index)})")
    words = tmp_path / "words.txt"
    monkeypatch.setattr(check, "SEARCHED", words)
    words.write_text("# a comment\nentropy bonus : b\nthe entropy : a\n")
    assert check.search_faults(tmp_path) == []
    words.write_text("entropy bonus : a\nvariance : b\n")
    assert check.search_faults(tmp_path) == [
        "search: 'entropy bonus' does not find a", "search: 'variance' does not find b",
    ]  # fmt: skip


def test_the_words_that_are_searched_are_sixty() -> None:
    lines = [line for line in check.SEARCHED.read_text(encoding="utf-8").splitlines() if " : " in line]
    assert len(lines) == len(set(lines)) >= 60


def test_the_cheat_sheet_is_asked_of_klsym(tmp_path: Path) -> None:
    cheat_sheet.write_cheat_sheet(tmp_path, tmp_path)
    page = (tmp_path / "cheat-sheet.md").read_text(encoding="utf-8")
    assert page.count("<td class=") == 14 * 3
    assert (tmp_path / "klsym-cheat-sheet.pdf").read_bytes().startswith(b"%PDF")
    for loss, target in (("k1", "zero"), ("k2", "reverse"), ("k3", "forward")):
        assert f'<td class="{target}" title="klsym explain {loss}: ' in page


def test_the_words_of_the_grammar_are_those_that_the_parser_knows(tmp_path: Path) -> None:
    (tmp_path / "reference").mkdir()
    (tmp_path / "reference" / "grammar.md").write_text(f"# A\n\n{grammar.MARK}\n", encoding="utf-8")
    grammar.write_words(tmp_path)
    table = (tmp_path / "reference" / "grammar.md").read_text(encoding="utf-8")
    assert table.count("\n| `") >= 20 and "KL(q\\|\\|p), the reverse KL (proved)" in table
    with pytest.raises(ValueError, match="has no"):
        grammar.write_words(tmp_path)


# ---------------------------------------------------------------------------- generated pages
def test_every_cell_of_the_map_has_a_colour_and_a_page() -> None:
    names = [cell.name for cell in penalty_map.cells()]
    assert len(names) == len(set(names)) == 32
    table = penalty_map.table()
    assert all(f'href="map/{name}.html"' in table for name in names)


def test_a_cell_shows_verdict_code_proof_and_theorem() -> None:
    shown = "\n".join(penalty_map.page(penalty_map.Cell("k3", "off-policy", "loss", "rho")))
    assert (
        '$ klsym explain "rho*k3" --sampling off-policy\nrho*k3 in the loss, samples from an older policy mu'
        in shown
    )
    assert "return rho*(torch.expm1(-k1) + k1)" in shown and r"\begin{aligned}" in shown
    assert "theorems/offpolicy.rho-k3.md" in shown and "<summary>Hypotheses (7)</summary>" in shown


def test_each_code_has_a_page_with_answers(tmp_path: Path) -> None:
    codes.write_codes(tmp_path)
    for one in known_codes():
        page = (tmp_path / codes.FOLDER / f"{one.code}.md").read_text(encoding="utf-8")
        assert page.startswith(f"# {one.code} {one.name}\n")
        assert page.count("```console\n$ klsym explain") == 2
        assert f"\n  {one.code} {one.name}" in page


def test_each_command_is_described(tmp_path: Path) -> None:
    commands.write_commands(tmp_path)
    page = (tmp_path / "reference" / "commands.md").read_text(encoding="utf-8")
    names = re.findall(r"^## klsym (.+)$", page, re.MULTILINE)
    assert {"explain", "audit", "report", "rules"} <= set(names)
    assert all(name in build_parser().format_help() for name in names)


# ---------------------------------------------------------------------------- hypotheses
def test_each_hypothesis_is_in_one_group() -> None:
    for entry in entries().values():
        lines = list(dict.fromkeys(entry["answer"]["hypotheses"]))
        assert sorted(line for group in group_hypotheses(lines).values() for line in group) == sorted(lines)


@pytest.mark.parametrize("words", ["exists", "may be exchanged", "<<", "is not 0", "probability 1"])
def test_what_is_assumed_counts_as_an_assumption(words: str) -> None:
    lines = {line for entry in entries().values() for line in entry["answer"]["hypotheses"] if words in line}
    assert lines and set(group_hypotheses(lines)["Assumptions"]) >= {
        line for line in lines if line.endswith(words)
    }
