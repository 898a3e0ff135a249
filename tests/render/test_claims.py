"""A settled claim as Markdown: every sign of its words is shown, and none of them becomes markup."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klsym.study.ledger.settle_claim import recall
from klsym.study.ledger.view import escape_markdown, format_claim_markdown

mistune = pytest.importorskip("mistune")  # what turns the Markdown of a notebook into its page
TAG = re.compile(r"</?([a-z][a-z0-9]*)[^>]*>")
HOSTILE = [
    "b_star and lam_star", "(b**2 - a**2)*s**2", "g* = rho k1 s, g1", "p << q <b>bold</b>",
    "A Csiszar divergence E_q[f(p/q)], f convex", "E_q[f](http://example.com)", "![x](y)",
    "[1]: http://x", "KL(q||p) | KL(p||q)", "`code`", "``", "~~struck~~", "$x$ and $$y$$ cost $5",
    "a \\ b \\* \\(x\\)", "&lt;b&gt; &amp; &copy;", "<!-- hidden -->", "<script>alert(1)</script>",
    "<https://example.com>", "# no heading", "- no item", "+ no item", "* no item", "1. no item",
    "2) no item", "> no quote", "1.5 nats", "-k1 + 1", "+1", "---", "===", "one\ntwo",
    "one\n\ntwo\n- three", "    indented", "\tindented", "trailing  ", "line \\\nbreak", "***", "___",
    "f'(r) and \"quoted\"", "|r - 1| <= 1/2", "E_q[1 - r]",
]  # fmt: skip


def page(markdown: str) -> tuple[set[str], str]:
    """The tags of the page, and its text."""
    html = mistune.html(markdown)
    return set(TAG.findall(html)), unescape(TAG.sub("", html))


@pytest.mark.parametrize("text", HOSTILE)
def test_words_are_shown_as_they_are(text: str) -> None:
    wanted = " ".join(text.split())
    assert page(escape_markdown(text)) == ({"p"}, wanted + "\n")
    tags, item = page(f"- {escape_markdown(text)}")
    assert tags == {"ul", "li"} and item.strip() == wanted


def test_the_page_does_tell_markup() -> None:
    """The same texts unescaped do become something else."""
    changed = [text for text in HOSTILE if page(text) != ({"p"}, " ".join(text.split()) + "\n")]
    assert len(changed) > len(HOSTILE) / 2


@given(st.text(alphabet="ab1_*[]()<>`#|$&~!\\-+.=: \n'\"", max_size=30).filter(str.strip))
def test_any_words_are_shown_as_they_are(text: str) -> None:
    assert page(escape_markdown(text)) == ({"p"}, " ".join(text.split()) + "\n")


def test_no_formula_begins_in_words() -> None:
    """A dollar would open mathematics in Jupyter, which is found before Markdown is."""
    for text in HOSTILE:
        assert not re.search(r"(?<!\\)(\\\\)*\$", escape_markdown(text).replace("\\\\", ""))


@pytest.mark.parametrize(
    "name",
    ["value.k2-not-csiszar", "variance.optimal-baseline", "offpolicy.truncated-weight", "experiment.tm-fig1"],
)
def test_a_claim_shows_its_words_and_statements(name: str) -> None:
    settled = recall(name)
    markdown = format_claim_markdown(settled)
    _, text = page(markdown)
    shown = [settled.claim.explanation, *settled.hypotheses]
    shown += [part.text for part in settled.parts if settled.claim.verdict == "computed"]
    for words in shown:
        assert " ".join(words.split()) in text
    statements = 0 if settled.claim.verdict == "computed" else len(settled.parts)
    assert markdown.count("\n$$ ") == markdown.count(" $$") == statements


def test_a_hostile_claim_stays_in_its_lines() -> None:
    settled = recall("gradient.k3-loss")
    claim = replace(settled.claim, explanation="x\n\n# title <b>", source="TM *3*; a_b_c")
    tags, text = page(format_claim_markdown(replace(settled, claim=claim)))
    assert not tags & {"h1", "b"} and "x # title <b>" in text and "TM *3*; a_b_c" in text
