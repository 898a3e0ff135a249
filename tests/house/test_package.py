"""What an installed klsym offers: typed names, the API alone in `dir`, declared packages."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

import klsym
from klsym import calculus
from klsym.engine.options.option_table import CHOICES, OPTIONS
from support.sources import read_tree

HOME = Path(__file__).parents[2]
FUNCTIONS = ("explain", "compare", "explore")


def options() -> list[tuple[str, str, str]]:
    return [
        (name, option, value)
        for name in FUNCTIONS
        for option, values in CHOICES.items()
        for value in values
        if option in inspect.signature(getattr(klsym, name)).parameters
    ]


def call(name: str, option: str, value: str) -> str:
    losses = {"compare": '"k1", "k3"'}.get(name, '"k3"')
    return f'klsym.{name}({losses}, {option}="{value}")'


# As in `mypy --strict`, but for the user's file alone: what `make types` has stored of klsym is used again.
STRICT = (
    "# mypy: check-untyped-defs, disallow-any-generics, disallow-incomplete-defs, disallow-subclassing-any,"
    " disallow-untyped-calls, disallow-untyped-decorators, disallow-untyped-defs, strict-equality,"
    " warn-return-any, warn-unused-ignores"
)


def test_mypy_knows_what_the_library_offers(tmp_path):
    """Every word of an option, and none misspelt; typed results.  An ignored line without an error is one."""
    pytest.importorskip("mypy")
    right = [call(*option) for option in options()]
    wrong = [
        f"{call(name, option, value[1:])}  # type: ignore[arg-type]" for name, option, value in options()
    ]
    assert len(right) > 40
    shown = [f"reveal_type(klsym.{name})" for name in klsym.__all__]
    misspelt = ['klsym.explain("k3", sampling="of-policy")', "klsym.explian"]
    (tmp_path / "user.py").write_text("\n".join([STRICT, "import klsym", *shown, *right, *wrong, *misspelt]))
    if not (HOME / "build" / "typed" / "klsym").exists():
        subprocess.run(["make", "typed"], cwd=HOME, check=True)
    command = [sys.executable, "-m", "mypy", str(tmp_path / "user.py")]
    said = subprocess.run(command, cwd=HOME, capture_output=True, text=True).stdout
    assert said.count(": error:") == 2 and "[arg-type]" in said and "[attr-defined]" in said, said
    assert "-> klsym.render.verdict.PrintedVerdict" in said
    untyped = re.findall(r'user.py:(\d+): note: Revealed type is "Any"', said)
    assert not untyped


def test_dir_shows_the_api_alone():
    assert dir(klsym) == sorted(klsym.__all__) and not {*klsym.__all__} & {*calculus.__all__}
    assert all(hasattr(klsym, name) for name in dir(klsym))


def test_no_module_is_longer_than_450_lines():
    lengths = {
        path: len(path.read_text(encoding="utf-8").splitlines()) for path in (HOME / "klsym").rglob("*.py")
    }
    assert len(lengths) > 300 and not {str(path) for path, length in lengths.items() if length > 450}


def declared_packages() -> set[str]:
    project = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    return {re.split(r"[>=<]", line)[0].replace("-", "_") for lines in lists for line in lines}


@cache
def imported_packages() -> set[str]:
    trees = (read_tree(path) for top in ("klsym", "derivations") for path in (HOME / top).rglob("*.py"))
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) - {"klsym"}


def test_every_package_that_is_imported_is_declared():
    brought = {"IPython": "ipywidgets"}
    assert "mpmath" in imported_packages()
    assert {brought.get(name, name) for name in imported_packages()} <= declared_packages()


def test_what_is_declared_is_locked():
    locked = re.findall(r"^([\w-]+)==", (HOME / "requirements.lock").read_text(), re.MULTILINE)
    project = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["report"]]
    assert {re.split(r"[>=<]", line)[0] for line in needed} <= set(locked)


def test_the_options_are_said_once() -> None:
    """Command line, docstring and signature are those of the table."""
    from klsym.commands.parser import build_parser

    explain = build_parser()._subparsers._group_actions[0].choices["explain"]
    actions = {action.dest: action for action in explain._actions}
    for option in OPTIONS:
        assert actions[option.name].choices == option.choices and option.meaning in actions[option.name].help
        choices = ", ".join(f'"{choice}"' for choice in option.choices)
        assert f"{option.name} : {{{choices}}}, optional\n" in klsym.explain.__doc__
        assert (
            inspect.signature(klsym.explain).parameters[option.name].default == actions[option.name].default
        )
