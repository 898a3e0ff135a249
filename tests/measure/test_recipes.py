"""The recipes of docs/examples/measure: each case has a stored result, and a changed result is noticed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from klsym.engine.answers.objectives import read_objective
from klsym.measure.child import KINDS
from klsym.measure.expectation import read_multiples
from klsym.measure.objectives import NamedGradients
from klsym.measure.world import MeasuredWorld
from klsym.worlds.words import WordTree, draw_tables

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs/examples/measure"


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"recipe_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RUNNER = load(ROOT / "benchmarks/measured_trainers.py")
STORED = RUNNER.read_stored()
RECIPES = RUNNER.list_recipes()
TREE = WordTree(3, 2)
WORLDS = [
    MeasuredWorld(TREE, draw_tables(TREE, 0), sampling, group)
    for sampling in ("on-policy", "off-policy")
    for group in (1, 2)
]
NAMES = {name for world in WORLDS for name in NamedGradients(world, world.theta).gradients}


@pytest.mark.parametrize("name", RECIPES)
def test_each_case_has_a_stored_result(name: str) -> None:
    _, cases = RUNNER.read_table(name)
    wanted = [{"recipe": name, **case} for case in cases]
    assert len({RUNNER.key(case) for case in wanted}) == len(wanted)
    stored = {RUNNER.key(row): row for row in STORED if row["recipe"] == name}
    assert stored.keys() == {RUNNER.key(case) for case in wanted}
    for case in wanted:
        assert {name: stored[RUNNER.key(case)][name] for name in case} == case


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_says_how_it_is_run(name: str) -> None:
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    package, cases = RUNNER.read_table(name)
    versions = {row["version"] for row in STORED if row["recipe"] == name}
    assert [f"{package}=={version}" in text for version in versions] == [True]
    assert "pip install " in text and f"klsym measure docs/examples/measure/{name}.py:" in text
    assert package.replace("-", "_") != name, "it would hide its package"
    for case in cases:
        assert f"\n{case['function']} = " in text or f"\ndef {case['function']}(" in text
        assert bool(case["promised"]) == bool(case["place"])


@pytest.mark.parametrize("row", STORED, ids=lambda row: " ".join(map(str, RUNNER.key(row))))
def test_a_stored_result_is_well_formed(row: dict[str, Any]) -> None:
    assert row["kind"] in KINDS
    assert row["multiples"].keys() <= NAMES and bool(row["multiples"]) == (row["kind"] == "named")
    assert (row["kept"] is None) == (not row["promised"])
    if row["promised"]:
        assert {*read_multiples(read_objective(row["promised"]), NAMES)} <= NAMES
    if row["kept"] is False:
        assert row["why"]


def test_a_changed_result_is_noticed() -> None:
    row = next(row for row in STORED if row["kind"] == "named" and row["promised"])
    assert not RUNNER.differs(row, {**row, "seconds": 9.0, "date": "1999-01-01"})
    name, value = next(iter(row["multiples"].items()))
    for change in (
        {"multiples": {**row["multiples"], name: value * 1.01}}, {"kind": "undecided"}, {"version": "0"},
        {"kept": not row["kept"]}, {"promised": "-E[R]"}, {"has_objective": None},
    ):  # fmt: skip
        assert RUNNER.differs(row, {**row, **change})
    assert RUNNER.differs(None, row)


def test_a_missing_package_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(RUNNER, "read_table", lambda name: ("no-such-package", []))
    assert RUNNER.run_recipe("trl_grpo") == []
    assert capsys.readouterr().out == "trl_grpo: no-such-package is not installed here\n"


def test_stubs_stand_for_missing_packages_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    stubs = load(EXAMPLES / "stubs.py")
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    stubs.add("missing_trainer", "json")
    import json

    import missing_trainer.core as core

    assert json.loads("1") == 1
    assert not core.is_available() and core.Model | None is object

    @core.remote
    def run() -> int:
        return 3

    @core.remote(num_gpus=1)
    class Actor(core.Base[int]):
        pass

    assert run() == 3 and isinstance(Actor, type)
