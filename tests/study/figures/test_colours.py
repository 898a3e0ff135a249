"""One estimator has one colour in every figure."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

from klsym.experiments import pictures
from klsym.study.figures import style

LEFT_OUT = ("__init__", "style")
MODULES = {
    f"{package.__name__}.{path.stem}": path
    for package in (pictures, importlib.import_module("klsym.study.figures"))
    for path in sorted(Path(str(package.__file__)).parent.glob("*.py"))
    if path.stem not in LEFT_OUT
}
RESERVED = ("BLUE", "GREEN", "VERMILION")  # k1, k2, k3


def reserved_in(code: str) -> set[str]:
    """The colours of k1, k2 and k3 that code names, rather than the estimators."""
    nodes = list(ast.walk(ast.parse(code)))
    names = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    names |= {node.id for node in nodes if isinstance(node, ast.Name)}
    return names & set(RESERVED)


def test_the_reserved_colours_are_those_of_the_estimators():
    assert [style.COLOURS[name] for name in ("k1", "k2", "k3")] == [getattr(style, c) for c in RESERVED]
    assert reserved_in("ax.plot(x, color=style.BLUE)") == {"BLUE"} == reserved_in("x = BLUE")


@pytest.mark.parametrize("name", MODULES)
def test_figures_ask_for_an_estimator_and_not_for_its_colour(name):
    assert reserved_in(MODULES[name].read_text()) == set()


@pytest.mark.parametrize("name", MODULES)
def test_a_table_of_colours_agrees_with_the_one_of_the_house(name):
    module = importlib.import_module(name)
    own = dict(getattr(module, "COLOURS", {}))
    own |= {key: look[0] for key, look in getattr(module, "LOOK", {}).items()}
    shared = own.keys() & style.COLOURS.keys()
    assert {key: own[key] for key in shared} == {key: style.COLOURS[key] for key in shared}


def test_colours_are_kept_apart_where_estimators_are_drawn_together():
    together = (
        ("k1", "k2", "k3"), ("k1 loss", "k3 loss", "vanilla", "leave-one-out", "analytic"),
        ("token k3", "token vanilla", "sequence vanilla", "leave-one-out", "cumulative", "analytic"),
    )  # fmt: skip
    for names in together:
        assert len({style.COLOURS[name] for name in names}) == len(names)
