"""Calls and results that a reader can follow: names for many arguments, a class for three values together."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_POSITIONAL, MOST_VALUES = 4, 2
# How many there still are in a folder: the number may only fall.
POSITIONAL = {"klsym": 173, "study": 71}
TUPLES = {"klsym": 11, "study": 9}
UNTYPED = {"klsym": 0}  # parameters called verdict without their type


def trees(folder: str) -> Iterator[ast.Module]:
    for path in sorted((ROOT / folder).rglob("*.py")):
        yield ast.parse(path.read_text(encoding="utf-8"))


def count_positional_calls(tree: ast.AST) -> int:
    """Calls with five positional arguments or more, none of them starred."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return sum(
        len(call.args) > MOST_POSITIONAL and not any(isinstance(x, ast.Starred) for x in call.args)
        for call in calls
    )


def count_tuple_results(tree: ast.AST) -> int:
    """Functions that return a tuple of three values or more; tuple[X, ...] is none."""
    count = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and isinstance(node.returns, ast.Subscript):
            values = node.returns.slice
            is_tuple = getattr(node.returns.value, "id", "") == "tuple" and isinstance(values, ast.Tuple)
            fixed = is_tuple and not any(isinstance(x, ast.Constant) for x in values.elts)
            count += fixed and len(values.elts) > MOST_VALUES
    return count


def count_untyped_verdicts(tree: ast.AST) -> int:
    arguments = (node for node in ast.walk(tree) if isinstance(node, ast.arg) and node.arg == "verdict")
    return sum(getattr(node.annotation, "id", "") == "Any" for node in arguments)


@pytest.mark.parametrize(
    ("count", "limits"),
    [(count_positional_calls, POSITIONAL), (count_tuple_results, TUPLES), (count_untyped_verdicts, UNTYPED)],
    ids=["positional calls", "tuples of three", "verdicts without a type"],
)
def test_there_are_no_more_than_there_were(count, limits) -> None:
    assert {folder: sum(map(count, trees(folder))) for folder in limits} == limits


def test_the_counters_see_what_they_count() -> None:
    code = "def f(verdict: Any) -> tuple[int, int, int]:\n    return g(1, 2, 3, 4, 5)\n"
    tree = ast.parse(code)
    counted = (count_positional_calls(tree), count_tuple_results(tree), count_untyped_verdicts(tree))
    assert counted == (1, 1, 1)
    fine = ast.parse("def f(v: Verdict) -> tuple[int, ...]:\n    return g(1, 2, c=3, d=4, e=5)\n")
    assert not count_positional_calls(fine) + count_tuple_results(fine) + count_untyped_verdicts(fine)
