"""What a choice of an option means is said once, in klsym.engine.options: no other module compares its name.

A comparison with a name takes every choice that it does not know for another one.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from klsym.engine.options.option_table import CHOICES
from support.sources import read_tree

ROOT = Path(__file__).parents[2]
# How many comparisons there still are in a folder: the number may only fall.
COMPARISONS = {
    "klsym/audit": 24, "klsym/commands": 2, "klsym/diagnostics": 0, "klsym/engine": 0, "klsym/kernel": 0,
    "klsym/language": 0, "klsym/lint": 0, "klsym/measure": 1, "klsym/notation": 0, "klsym/numeric": 0,
    "klsym/render": 0, "klsym/worlds": 0, "study": 1,
}  # fmt: skip


def name_value(node: ast.AST) -> object:
    """Return the name in level, setting.level, options["level"] or options.get("level")."""
    match node:
        case ast.Name(name) | ast.Attribute(_, name):
            return name
        case ast.Subscript(_, ast.Constant(name)):
            return name
        case ast.Call(ast.Attribute(_, "get"), [ast.Constant(name), *_]):
            return name
    return None


def count_comparisons(tree: ast.AST) -> int:
    """Comparisons of an option with one of its choices, alone or in a tuple."""
    count = 0
    for node in (node for node in ast.walk(tree) if isinstance(node, ast.Compare)):
        parts = [part for side in (node.left, *node.comparators) for part in ast.walk(side)]
        words = {part.value for part in parts if isinstance(part, ast.Constant)}
        count += any(words & {*CHOICES[name]} for name in map(name_value, parts) if name in CHOICES)
    return count


def count_in_folder(folder: str) -> int:
    meanings = ROOT / "klsym" / "engine" / "options"
    paths = [path for path in (ROOT / folder).rglob("*.py") if path.parent != meanings]
    return sum(count_comparisons(read_tree(path)) for path in paths)


@pytest.mark.parametrize("folder", COMPARISONS)
def test_no_more_choices_are_compared_by_name_than_before(folder: str) -> None:
    assert count_in_folder(folder) == COMPARISONS[folder]


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ('setting.level == "token"', 1),
        ('use != "reward" and options["batch"] == "none"', 2),
        ('options.get("sampling") in ("on-policy", "truncated")', 1),
        ('(level, use) == ("token", "loss")', 1),
        ('verdict.target == "no-objective"', 0),
        ('use == "value"', 0),
        ("setting.level == other.level", 0),
        ('kind == "sum"', 0),
    ],
)
def test_the_counter_sees_the_choices_of_options_alone(code: str, count: int) -> None:
    assert count_comparisons(ast.parse(code)) == count
