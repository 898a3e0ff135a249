"""Calls and results that a reader can follow: names for many arguments, a class for three values together."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from support.sources import read_tree

ROOT = Path(__file__).parents[2]
MOST_POSITIONAL, MOST_VALUES = 4, 2
# Functions of libraries that take a list of arguments, each of which means the same.
OF_LIBRARIES = {"has", "atoms", "And", "Or", "Add", "Mul", "Tuple", "max", "min", "print"}
# How many there still are in a folder: the number may only fall.
POSITIONAL = {"klsym": 29, "study": 0}
TUPLES = {"klsym": 4, "study": 0}
UNTYPED = {"klsym": 0}  # parameters called verdict without their type


def trees(folder: str) -> Iterator[ast.Module]:
    for path in sorted((ROOT / folder).rglob("*.py")):
        yield read_tree(path)


def collect_variadic_names(*trees_of_package: ast.AST) -> set[str]:
    """Functions with *args, and classes whose __init__ has them, where no other definition has that name."""
    takes_any: dict[str, set[bool]] = defaultdict(set)
    for node in (node for tree in trees_of_package for node in ast.walk(tree)):
        if isinstance(node, ast.FunctionDef):
            takes_any[node.name].add(node.args.vararg is not None)
        elif isinstance(node, ast.ClassDef):
            inits = [x for x in node.body if isinstance(x, ast.FunctionDef) and x.name == "__init__"]
            takes_any[node.name].add(any(x.args.vararg is not None for x in inits))
    return {name for name, found in takes_any.items() if found == {True}}


@cache
def read_variadic_names() -> set[str]:
    return OF_LIBRARIES | collect_variadic_names(*trees("klsym"), *trees("study"))


def count_positional_calls(tree: ast.AST) -> int:
    """Calls with five positional arguments or more, without those that are a list of any length."""
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    variadic = (read_variadic_names() - own) | collect_variadic_names(tree)
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return sum(
        len(call.args) > MOST_POSITIONAL
        and not any(isinstance(x, ast.Starred) for x in call.args)
        and getattr(call.func, "attr", getattr(call.func, "id", "")) not in variadic
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
    function_and_class = "def g(x, *rest): ...\nclass C:\n    def __init__(self, *rest): ...\n"
    variadic = ast.parse(function_and_class + "g(1, 2, 3, 4, 5)\nC(1, 2, 3, 4, 5)\n")
    assert not count_positional_calls(variadic) and not count_positional_calls(
        ast.parse("x.has(a, b, c, d, e)")
    )
    mixed = ast.parse(
        "class C:\n    def g(self, *rest): ...\nclass D:\n    def g(self): ...\nc.g(1, 2, 3, 4, 5)\n"
    )
    assert count_positional_calls(mixed) == 1
    fine = ast.parse("def f(v: Verdict) -> tuple[int, ...]:\n    return g(1, 2, c=3, d=4, e=5)\n")
    assert not count_positional_calls(fine) + count_tuple_results(fine) + count_untyped_verdicts(fine)
