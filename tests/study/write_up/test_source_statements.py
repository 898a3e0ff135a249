"""docs/sources.md: the page is what its generator writes, and no row says more than its claims support."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from generate.sources import markdown, place
from klsym.study.ledger.registry import load
from klsym.study.ledger.stored import entries
from klsym.study.tables.catalogue import NAMES
from klsym.study.write_up.source_statements import (
    ANSWERS,
    FIVE,
    HOWS,
    Statement,
    find_faults,
    load_statements,
    write_page,
)

PAGE = (Path(__file__).parents[3] / "docs" / "sources.md").read_text(encoding="utf-8")
CITES = re.compile(rf"\b({'|'.join(FIVE)})\b")
RIGHT = Statement(
    "TM", "3", "The k1 loss has expected gradient zero.", "holds", "general", ("gradient.k1-loss",)
)
ROW = """[[statement]]
source = "TM"
section = "3"
says = "The k1 loss has expected gradient zero."
answer = "holds"
how = "general"
settled_by = ["gradient.k1-loss"]
"""


def test_the_page_is_what_the_generator_writes():
    assert write_page() == PAGE


def test_the_statements_are_many_and_each_is_listed_once():
    statements = load_statements()
    places = [(one.source, one.section, one.says) for one in statements]
    assert len(statements) >= 120 and len(set(places)) == len(places)
    assert list(dict.fromkeys(one.source for one in statements)) == list(FIVE)


def test_every_claim_that_cites_one_of_the_sources_is_on_the_page():
    citing = {id for id, claim in load().items() if CITES.search(claim.source)}
    on_the_page = {id for one in load_statements() for id in one.claims}
    assert len(citing) > 100 and citing <= on_the_page
    assert all(f"`{id}`" in PAGE for id in citing)


def test_every_name_on_the_page_is_a_claim_or_a_table():
    for one in load_statements():
        assert set(one.claims) <= set(load()) and set(one.tables) <= set(NAMES)
        assert one.how in HOWS and one.answer in ANSWERS


def test_a_statement_that_nothing_settles_has_no_claim():
    unsettled = [one for one in load_statements() if one.how == "none"]
    assert unsettled and all(not one.settled_by and one.answer == "open" for one in unsettled)
    assert PAGE.count("| open | – | not at all |") == len(unsettled)


def test_what_is_settled_in_general_is_a_theorem():
    for one in load_statements():
        if one.how == "general":
            answers = [entries()[id]["answer"] for id in one.claims]
            assert any(
                a["trust"] != "numeric" and a["verdict"] not in ("refuted", "computed") for a in answers
            )


def test_the_counts_add_up():
    rows = [[*map(str.strip, line.split("|")[1:-1])] for line in PAGE.splitlines()]
    counts = {row[0]: [*map(int, row[1:])] for row in rows if row and row[0] in (*FIVE, "all")}
    assert [sum(column) for column in zip(*(counts[tag] for tag in FIVE), strict=True)] == counts["all"]
    for total, *numbers in counts.values():
        assert sum(numbers[: len(HOWS)]) == sum(numbers[len(HOWS) :]) == total


def test_the_page_of_the_site_links_each_claim_and_clashes_with_none():
    assert place("docs/sources.md") == "sources.md"
    shown = markdown(PAGE, "docs/sources.md")
    assert "[`gradient.k3-loss`](reference/theorems/gradient.k3-loss.md)" in shown


def test_cells_keep_the_columns_of_their_table():
    tables = PAGE.partition("## RE")[2].splitlines()
    assert all(line.count("|") == 6 for line in tables if line.startswith("|"))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"settled_by": ("gradient.k4-loss",)}, "the ledger has no claim 'gradient.k4-loss'"),
        ({"settled_by": ("gradient.k1-loss", "table:secrets")}, "klsym has no table 'secrets'"),
        ({"how": "somehow"}, "how 'somehow' is not one of general, family, model, none"),
        ({"answer": "perhaps"}, "answer 'perhaps' is not one of holds"),
        ({"source": "MR"}, "source 'MR' is not one of RE, SH, TM, WZ1, WZ2"),
        ({"how": "none", "answer": "open"}, "which takes none"),
        ({"settled_by": ()}, "a claim or table is needed"),
        ({"how": "none", "settled_by": ()}, "belong together"),
        ({"answer": "open"}, "belong together"),
        ({"settled_by": ("gradient.k3-loss-not-reverse",)}, "'general' needs a claim"),
        ({"settled_by": ("experiment.tm-fig1",)}, "'general' needs a claim"),
        ({"settled_by": ("table:gradients",)}, "'general' needs a claim"),
        ({"answer": "refuted"}, "'refuted' needs a claim"),
    ],
)
def test_more_than_the_claims_support_is_refused(change, fault):
    assert any(fault in message for message in find_faults(replace(RIGHT, **change)))


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"how": "model", "settled_by": ("experiment.tm-fig1", "table:experiments")},
        {"how": "none", "answer": "open", "settled_by": ()},
        {"answer": "refuted", "settled_by": ("gradient.k-lambda-loss",)},
        {"answer": "refuted", "how": "model", "settled_by": ("reward.double-weight",)},
    ],
)
def test_what_the_claims_support_is_accepted(change):
    assert list(find_faults(replace(RIGHT, **change))) == []


def test_a_file_with_a_wrong_row_is_refused_with_its_place(tmp_path):
    path = tmp_path / "statements.toml"
    path.write_text(ROW, encoding="utf-8")
    assert load_statements(path) == (RIGHT,)
    path.write_text(ROW.replace("gradient.k1-loss", "gradient.k4-loss"), encoding="utf-8")
    with pytest.raises(
        ValueError, match=r"^statements.toml: TM 3, 'The k1 loss .*no claim 'gradient.k4-loss'$"
    ):
        load_statements(path)
