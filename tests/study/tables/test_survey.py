"""The survey of released packages: well-formed data, and a table and a notebook that say the same."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

import klsym
from klsym.language.convert import is_in_core
from klsym.language.parser import parse
from klsym.study.tables.survey import COLUMNS, HOLDS, KNOWN, OTHERS, list_parameters, stored, table
from support.scripts import script

ROOT = Path(__file__).parents[3]
PINNED = tomllib.loads((ROOT / "benchmarks" / "survey.toml").read_text(encoding="utf-8"))["release"]
NOTEBOOK = ROOT / "notebooks" / "16-what-released-code-targets.ipynb"
ROWS = stored()
READ = [row for row in ROWS if "refused" not in row]
SETTINGS = (
    "loss on-policy", "loss off-policy", "reward on-policy", "reward off-policy",
    "reward off-policy weighted",
)  # fmt: skip


@pytest.fixture(scope="module")
def survey():
    return script("survey")


def test_the_stored_rows_are_those_of_the_pinned_releases(survey):
    wanted = {
        (r["name"], r["version"], r["sha256"], c["file"], str(c["code"]), json.dumps(shown))
        for r in PINNED
        for c in r["code"]
        for chosen in survey.choices(c.get("set", {}))
        for shown in [{n: v for n, v in chosen.items() if isinstance(c["set"][n], list)}]
    }
    names = ("package", "version", "sha256", "file", "code")
    assert {(*(row[n] for n in names), json.dumps(row["options"])) for row in ROWS} == wanted
    assert len({(r["name"], r["version"]) for r in PINNED}) >= 12
    assert all(re.fullmatch("[0-9a-f]{64}", r["sha256"]) for r in PINNED)


def test_the_rows_are_well_formed_and_hold_no_code():
    for row in ROWS:
        assert ("refused" in row) != ("expression" in row), row["code"]
        assert all("\n" not in text and len(text) < 400 for text in strings(row))
        for said in row["says"]:
            assert re.fullmatch(r"[\w./-]+\.py:\d+(-\d+)?", said["where"])
            assert said["holds"] in {*HOLDS, "not read"} if said["claim"] else said["holds"] == ""
    for row in READ:
        first, last = row["lines"]
        assert 0 < first <= last and re.fullmatch("[0-9a-f]{64}", row["read"])
        assert set(row["verdicts"]) <= set(SETTINGS) and "loss on-policy" in row["verdicts"]
        for verdict in row["verdicts"].values():
            assert verdict["target"] in {*KNOWN, *OTHERS}
            assert (verdict["target"] in KNOWN) == (verdict["combination"] is not None)


def strings(value):
    if isinstance(value, dict):
        return [text for part in [*value, *value.values()] for text in strings(part)]
    if isinstance(value, list):
        return [text for part in value for text in strings(part)]
    return [value] if isinstance(value, str) else []


EXPRESSIONS = {(row["expression"], list_parameters(row)): row for row in READ}
CORE = {case: row for case, row in EXPRESSIONS.items() if is_in_core(parse(*case))}


@pytest.mark.parametrize("case", sorted(CORE), ids=lambda case: case[0])
@pytest.mark.share(3)
def test_explain_still_says_what_is_stored(case):
    expression, names = case
    for setting, kept in CORE[case]["verdicts"].items():
        use, sampling, *weight = setting.split()
        typed = f"rho*({expression})" if weight else expression
        found = klsym.explain(typed, use=use, sampling=sampling, parameters=names).to_json()
        assert (found["gradient"]["target"], found["trust"]) == (kept["target"], kept["trust"])
        assert kept["combination"] in (None, found["gradient"]["combination"])


def test_a_change_is_told(survey):
    row = dict(READ[0])
    assert list(survey.differences([row], [row])) == []
    [line] = survey.differences([row], [{**row, "expression": "k2*k2"}])
    assert f"expression was {row['expression']}, is k2*k2" in line
    assert [line.partition(":")[0] for line in survey.differences([row], [])] == ["gone"]
    assert [line.partition(":")[0] for line in survey.differences([], [row])] == ["new"]


@pytest.mark.parametrize(
    ("claim", "expression", "so"),
    [
        ("loss on-policy targets reverse-kl", "k2", True),
        ("loss on-policy targets reverse-kl", "-k2", False),
        ("loss on-policy targets reverse-kl", "k3", False), ("loss on-policy targets-not zero", "k1", False),
        ("loss on-policy targets-not zero", "k2", True), ("value on-policy is reverse-kl", "k3", True),
        ("value on-policy is reverse-kl", "k2", False), ("value on-policy is-not reverse-kl", "k2", True),
        ("value off-policy is reverse-kl", "k3", False), ("value off-policy is reverse-kl", "rho*k3", True),
    ],
)  # fmt: skip
def test_what_documentation_claims_is_settled(survey, claim, expression, so):
    assert survey.holds(claim, expression, ()) is so


def test_a_claim_may_hold_inside_the_bounds_only(survey):
    statement = {"where": "f.py:1", "text": "", "claim": "loss on-policy targets forward-kl"}
    answers = {"k3": "yes", "min(k3, 10)": "inside the bounds", "min(k2, 10)": "no"}
    for expression, holds in answers.items():
        assert survey.said(statement, {"expression": expression, "free": {}})["holds"] == holds
    assert survey.said(statement, None)["holds"] == "not read"


def test_the_table_is_what_the_data_say(proofs_settled):
    made = table()
    shown = {
        (row["package"], row["version"], row["code"], *row["options"].values()): line
        for row, line in zip(ROWS, made.rows, strict=True)
    }
    keys = [column.key for column in COLUMNS]

    def cell(*which, column):
        return "".join(text for _, text in shown[which].cells[keys.index(column)].pieces)

    verl = ("verl", "0.9.1", "kl_penalty")
    reverse, forward = (rf"\mathrm{{KL}}({x}\,\Vert\,{y})" for x, y in ("qp", "pq"))
    assert cell(*verl, "k1", column="loss").startswith("on nothing; off ")
    assert cell(*verl, "low_var_kl", column="loss") == f"on inside: {forward}; off neither KL"
    of_mu = r"\mathbb{E}_{\mu}\!\left[\frac{k_1^{2}}{2}\right]"  # the samples of mu are not weighted
    assert cell(*verl, "k3+", column="loss") == f"on {reverse}; off {of_mu}"
    assert cell(*verl, "full", column="formula") == "not read: the code raises NotImplementedError"
    assert "inside the bounds only" in cell(*verl, "low_var_kl", column="said")
    assert cell(*verl, "abs", column="said") == "silent"
    assert cell("trl", "1.16.0", "3083-3105", "token", True, column="loss") == reverse
    assert cell("trl", "0.7.11", "PPOTrainer._kl_penalty", "full", column="reward") == "–"


def test_the_notebook_shows_the_stored_data():
    """What it has printed is what these rows make it print."""
    outputs = json.dumps(
        [c.get("outputs") for c in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]]
    )
    releases = {(row["package"], row["version"]) for row in ROWS}
    packages = {package for package, _ in releases}
    assert (
        f"{len(packages)} packages in {len(releases)} releases: {len(ROWS)} rows, {len(READ)} read" in outputs
    )
    refused = [row for row in ROWS if "refused" in row]
    assert outputs.count("not read: ") >= len(refused) > 0
