"""What trainers minimise, measured: tables and page say what is stored, and change with it."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from klsym.cli import main
from klsym.commands.parser import build_parser
from klsym.engine.answers.objectives import read_objective
from klsym.measure.expectation import read_multiples
from klsym.study.tables import measured, measured_short, measured_survey
from klsym.study.tables.measured_data import (
    FUNCTIONS,
    TRAINERS,
    find_defaults,
    get_place,
    list_findings,
    order_rows,
    read_functions,
    read_sentences,
    read_trainers,
    write_multiples,
)
from klsym.study.tables.writing.layouts import write_latex
from klsym.study.tables.writing.table import Row
from klsym.study.write_up.measured_trainers import list_installs, write_command, write_page

ROOT = Path(__file__).parents[3]
RECIPES, PAGE = ROOT / "docs/examples/measure", ROOT / "docs/reference/measured-trainers.md"
STORED: list[dict[str, Any]] = json.loads(TRAINERS.read_text(encoding="utf-8"))
SURVEYED: list[dict[str, Any]] = json.loads(FUNCTIONS.read_text(encoding="utf-8"))
NAMED = [row for row in STORED if row["kind"] == "named"]
FINDINGS = list_findings(read_trainers())
KEYS = [column.key for column in measured.COLUMNS]


def show(row: Row) -> dict[str, str]:
    return {key: "".join(text for _, text in cell.pieces) for key, cell in zip(KEYS, row.cells, strict=True)}


def find_row(**wanted: Any) -> dict[str, Any]:
    (row,) = (row for row in STORED if all(row[name] == value for name, value in wanted.items()))
    return row


# ---------------------------------------------------------------------------- the table of the recipes
def test_the_table_has_each_stored_case_once():
    known, shown = read_trainers(), measured.table().rows
    assert len(shown) == len(STORED)
    assert Counter(map(json.dumps, known)) == Counter(map(json.dumps, STORED))
    for stored, row in zip(known, shown, strict=True):
        cells = show(row)
        assert row.group == f"{stored['package']} {stored['version']}, recipe {stored['recipe']}.py"
        assert cells["setting"] == stored["settings"]
        assert cells["sampling"].startswith(stored["sampling"])
        assert ("groups of" in cells["sampling"]) == (stored["group"] > 1)
        assert (cells["documented"] == "–") == (not stored["promised"])
        assert stored["promised"] in cells["documented"] and stored["place"] in cells["documented"]
        decided = "yes" if stored["has_objective"] else "no"
        assert cells["objective"] == ("not decided" if stored["kind"] == "undecided" else decided)


@pytest.mark.parametrize("row", NAMED, ids=lambda row: f"{row['recipe']} {row['function']} {row['sampling']}")
def test_what_is_printed_can_be_expected(row):
    """The words are those that `klsym measure --expect` reads, and mean the stored multiples."""
    wanted = read_objective(write_multiples(row["multiples"]))
    assert read_multiples(wanted, row["multiples"]) == pytest.approx(row["multiples"], rel=1e-4)


def test_an_objective_stands_only_where_one_was_named():
    for stored, row in zip(read_trainers(), measured.table().rows, strict=True):
        cell = row.cells[KEYS.index("measured")]
        assert (cell.pieces[0][0] == "code") == (stored["kind"] == "named")
        assert ("depend on the shape" in show(row)["measured"]) == any(
            "depend on the shape" in note for note in stored["notes"]
        )


def test_defaults_come_first():
    recipes = [row["recipe"] for row in read_trainers()]
    defaults = find_defaults(STORED)
    assert set(defaults) == {path.stem for path in RECIPES.glob("*.py")} - {"stubs"}
    assert len(list(dict.fromkeys(recipes))) == sum(
        a != b for a, b in zip(recipes, ["", *recipes], strict=False)
    )
    for recipe, name in defaults.items():
        is_default = [row["function"] == name for row in read_trainers() if row["recipe"] == recipe]
        assert is_default == sorted(is_default, reverse=True) and is_default[0]


def test_the_short_table_has_the_defaults_and_what_differs():
    short = measured_short.table()
    wanted = [row for row in measured.table().rows if {"defaults", "differs"} & set(row.tags)]
    assert list(short.rows) == wanted
    assert sum("differs" in row.tags for row in wanted) == sum(row["kept"] is False for row in STORED) > 0
    assert len(find_defaults(STORED)) <= sum("defaults" in row.tags for row in wanted)


@pytest.mark.parametrize(
    ("change", "column"),
    [
        ({"multiples": {"reverse-kl": 0.5}}, "measured"), ({"kind": "zero", "multiples": {}}, "measured"),
        ({"has_objective": None}, "objective"), ({"promised": "-E[R]"}, "documented"),
        ({"kept": True}, "documented"), ({"place": "other.py: beta"}, "documented"),
        ({"settings": "beta 7"}, "setting"), ({"sampling": "truncated"}, "sampling"),
        ({"group": 3}, "sampling"),
    ],
)  # fmt: skip
def test_a_changed_datum_changes_its_cell(change, column):
    row = find_row(recipe="trl_grpo", function="dr_grpo", sampling="on-policy")
    (before,), (after,) = (measured.build_rows([one]) for one in (row, {**row, **change}))
    assert {key for key in KEYS if show(before)[key] != show(after)[key]} == {column}


def test_a_comment_on_a_value_is_said_to_be_one():
    for finding in FINDINGS:
        for row in measured.build_rows(row for row in finding.rows if row["kept"] is False):
            assert show(row)["documented"].startswith("as a value") == finding.is_on_value
            assert show(row)["documented"].endswith(
                "the gradient is another" if finding.is_on_value else "measured otherwise"
            )


def test_it_is_set_as_other_tables_are(capsys):
    names = ("measured", "measured-short", "measured-survey")
    for made in (measured.table(), measured_short.table(), measured_survey.table()):
        text = write_latex(made)
        assert made.name in names and rf"\label{{tab:klsym-{made.name}}}" in text
        assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") >= 1
        assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")
    assert main(["tables", "measured", "--only", "trl_rloo", "--columns", "setting", "measured"]) == 0
    printed = capsys.readouterr().out
    assert "trl" in printed and "verl" not in printed
    rows = sum(row["recipe"] == "trl_rloo" for row in STORED)
    assert len(re.findall(r"tabularnewline", printed)) == rows + printed.count(r"\toprule")


# ---------------------------------------------------------------------------- the counts of the survey
@pytest.mark.parametrize("kind", ["all", *sorted({row["kind"] for row in SURVEYED})])
def test_counts_add_up(kind):
    count = measured_survey.count_functions(row for row in SURVEYED if kind in ("all", row["kind"]))
    both = count["agree"] + count["apart"]
    assert count["either"] == count["read"] + count["measured"] - both
    assert count["functions"] == count["either"] + count["neither"]
    assert count["differ"] <= count["measured"] - both
    assert count["unstored"] <= count["neither"]


def test_kinds_add_up_to_all():
    *kinds, whole = (
        [int(cell.pieces[0][1]) for cell in row.cells[1:]] for row in measured_survey.table().rows
    )
    assert [sum(column) for column in zip(*kinds, strict=True)] == whole
    assert whole[0] == len(SURVEYED) == len(read_functions())


@pytest.mark.parametrize(
    ("change", "moved"),
    [
        ({"second": "refused"}, {"read": -1, "agree": -1}),
        ({"measured": None}, {"measured": -1, "agree": -1}),
        ({"second": "refused", "measured": None},
         {"read": -1, "measured": -1, "agree": -1, "either": -1, "neither": 1}),
        ({"second": "differs", "measured": {"as read": "no"}}, {"read": -1, "agree": -1, "differ": 1}),
        ({"measured": {"as read": "not compared"}}, {"agree": -1, "apart": 1}),
    ],
)  # fmt: skip
def test_a_changed_function_changes_the_counts(change, moved):
    place, row = next(
        (n, row) for n, row in enumerate(SURVEYED)
        if row["second"] == "read" and row["measured"] and row["measured"]["as read"] == "yes"
    )  # fmt: skip
    before = measured_survey.count_functions(SURVEYED)
    after = measured_survey.count_functions([*SURVEYED[:place], {**row, **change}, *SURVEYED[place + 1 :]])
    assert {name: after[name] - before[name] for name in before if after[name] != before[name]} == moved


# ---------------------------------------------------------------------------- the page
def test_the_page_is_what_is_stored():
    written = write_page(RECIPES, read_trainers(), read_functions())
    assert PAGE.read_text(encoding="utf-8") == written, "run `make notebooks`"


def test_each_difference_has_its_sentences_and_no_other_setting_has():
    assert {get_place(finding.first) for finding in FINDINGS} == set(read_sentences())
    for finding in FINDINGS:
        assert finding.first["why"] and ": " in finding.first["place"]
        assert finding.sentences.about in ("gradient", "value")
        known = {row["function"] for row in STORED if row["recipe"] == finding.first["recipe"]}
        assert set(re.findall(r"\(`(\w+)`\)", finding.sentences.holds)) <= known


def test_where_a_sentence_holds_was_measured():
    for finding in FINDINGS:
        others = [row for row in finding.rows if row["kept"] is False]
        if finding.sentences.holds.endswith("it is so, with both samplings."):
            assert len(others) == 2
            assert all("next-token-reverse-kl" in row["multiples"] for row in others)
    luspo = [
        {row["sampling"]: row["multiples"] for row in STORED if get_place(row) == place}
        for place in (("liger", "luspo_sequence"), ("trl_grpo", "luspo"))
    ]
    assert luspo[0] == luspo[1] and len(luspo[0]) == 2


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: " ".join(get_place(finding.first)))
def test_a_difference_can_be_reproduced(finding):
    """The lines of the page install the package at its version, and the command is one of klsym."""
    assert any(
        f"{finding.first['package']}=={finding.first['version']}" in line
        for line in list_installs(RECIPES, finding.first["recipe"])
    )
    for row in finding.rows:
        options = build_parser().parse_args(shlex.split(write_command(row))[1:])
        assert (options.sampling, options.group or 1, options.expect) == (
            row["sampling"], row["group"], row["promised"],
        )  # fmt: skip


def test_a_changed_row_changes_the_page():
    page = write_page(RECIPES, read_trainers(), SURVEYED)
    row = find_row(recipe="trl_grpo", function="dr_grpo", sampling="on-policy")
    kept = order_rows({**one, "kept": True} if one == row else one for one in STORED)
    assert "on-policy: `-E[R] + 0.04*next-token-reverse-kl`; it is no objective; as documented" in write_page(
        RECIPES, kept, SURVEYED
    )
    assert write_page(RECIPES, read_trainers(), SURVEYED[1:]) != page


def test_the_page_is_linked():
    for name in ("index.md", "guides/measure-your-trainer.md"):
        assert "reference/measured-trainers.md" in (ROOT / "docs" / name).read_text(encoding="utf-8")
