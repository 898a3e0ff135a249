"""One version, and files that repeat it agree; codes, schemas and the project's address stand still."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

import klsym
from klsym.diagnostics.codes import load_codes
from klsym.lint.baseline import VERSION as BASELINE
from klsym.measure import estimating, measurement
from klsym.render.verdict_json import SCHEMA

HOME = Path(__file__).parents[2]
PROJECT = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))
POLICY = (HOME / "docs" / "reference" / "stability.md").read_text(encoding="utf-8")
# Where the version is repeated: each match of the pattern is one.
REPEATED = {
    "CITATION.cff": r"^version: (\S+)$",
    ".pre-commit-hooks.yaml": r"rev: v(\S+)$",
    "docs/tutorials/trainer-in-ci.md": r"(?:klsym@v|rev: v)(\d[\d.]*)",
    "study/tables/writing/layouts.py": r"klsym (\d[\d.]*): do not edit",
    "notebooks/09-errata.ipynb": r"klsym (\d[\d.]*): do not edit",
}
# Released in 0.2.0.  A line is never changed or taken away: see docs/reference/stability.md.
CODES = [
    "zero-gradient", "forward-not-reverse", "detached-weight", "missing-weight", "biased-in-reward",
    "token-weight-only", "no-objective", "wrong-sign", "unused-input", "clamp-drops-gradient",
    "centred-after-weight", "length-bias", "other-divergence", "overflow", "attached-weight",
    "ratio-upside-down", "value-gradient-mismatch", "truncated-support", "normalised-penalty",
    "truncated-weight",
]  # fmt: skip
FIELDS = {  # of the JSON of explain, by the number of its schema
    4: "schema target summary objective trust diagnostics remedy expect loss read_as sampling use level "
       "batch credit weights aggregate gradient value hypotheses warnings names expansion",
}  # fmt: skip
TARGETS = {4: "zero reverse-kl forward-kl combination f-divergence own-mean objective no-objective open"}


def find_versions(name: str, text: str) -> list[str]:
    """The versions that a file repeats."""
    return re.findall(REPEATED[name], text, re.MULTILINE)


def test_pyproject_states_no_version_of_its_own() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"] and "version" not in PROJECT["project"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "klsym.__version__"}


@pytest.mark.parametrize("name", REPEATED)
def test_a_file_that_repeats_the_version_agrees(name: str) -> None:
    text = (HOME / name).read_text(encoding="utf-8")
    assert {*find_versions(name, text)} == {klsym.__version__}
    changed = text.replace(klsym.__version__, "9.8.7")
    assert {*find_versions(name, changed)} == {"9.8.7"}  # the pattern reads a version, whichever it is


def test_the_changelog_has_the_version_with_its_date() -> None:
    text = (HOME / "CHANGELOG.md").read_text(encoding="utf-8")
    unreleased, latest, *_ = re.findall(r"^## \[(.+?)\](?: - (\S+))?$", text, re.MULTILINE)
    assert unreleased == ("Unreleased", "") and latest[0] == klsym.__version__
    citation = (HOME / "CITATION.cff").read_text(encoding="utf-8")
    assert f"date-released: {latest[1]}\n" in citation


def test_no_code_has_changed_its_name() -> None:
    assert [one.name for one in load_codes()][: len(CODES)] == CODES


def test_the_schema_has_its_number_everywhere_and_keeps_its_fields() -> None:
    schema = json.loads((HOME / "docs" / "explain.schema.json").read_text(encoding="utf-8"))
    assert schema["properties"]["schema"] == {"const": SCHEMA}
    assert schema["$id"] == f"urn:klsym:explain:{SCHEMA}" and schema["title"].endswith(f"schema {SCHEMA}")
    assert f"now {SCHEMA}." in POLICY
    assert {*FIELDS[SCHEMA].split()} <= {*schema["required"]} <= {*schema["properties"]}
    assert schema["properties"]["target"]["enum"] == TARGETS[SCHEMA].split()
    answer = klsym.explain("k3").to_json()
    assert {*FIELDS[SCHEMA].split()} <= {*answer} and answer["schema"] == SCHEMA


def test_the_policy_has_the_numbers_of_the_other_formats() -> None:
    assert measurement.SCHEMA == estimating.SCHEMA == BASELINE == 1
    assert POLICY.count("now 1") == 2 and "`klsym/v1`" in POLICY


def test_the_address_of_the_project_stands_in_one_place() -> None:
    """The placeholder, and any other address once it is there."""
    [address] = {url.removesuffix("/docs") for url in PROJECT["project"]["urls"].values()}
    kinds = (".py", ".md", ".toml", ".yml", ".yaml", ".cff", ".html", ".js", ".mjs", ".tex", ".j2", ".ipynb")
    folders = ("klsym", "study", "derivations", "experiments", "docs", "web", "paper", "notebooks")
    files = [path for path in HOME.iterdir() if path.is_file()]
    files += [path for name in folders for path in (HOME / name).rglob("*") if path.is_file()]
    holders = [
        path.relative_to(HOME).as_posix()
        for path in files
        if path.suffix in kinds and "node_modules" not in path.parts
        and address in path.read_text(encoding="utf-8")
    ]  # fmt: skip
    assert holders == ["pyproject.toml"]
