"""Functions begin with a verb, variables say something, and docstrings name what exists."""

from __future__ import annotations

import ast
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from support.sources import read_tree

ROOT = Path(__file__).parents[2]
WORDS = {
    kind: frozenset(words.split())
    for kind, words in tomllib.loads(
        Path(__file__).with_name("words.toml").read_text(encoding="utf-8")
    ).items()
}


@dataclass(frozen=True)
class Shares:
    """Percent of functions that begin with a verb, and with a participle; of variables that say nothing."""

    verbs: float
    participles: float
    empty: float


# At least so many verbs, at most so many participles and empty names; only to be improved.
LIMITS = {
    "klsym": Shares(90, 2, 2),
    "klsym/commands": Shares(84, 5, 6),
    "klsym/diagnostics": Shares(79, 1, 5),
    "klsym/engine": Shares(88, 2, 2),
    "klsym/lint": Shares(90, 1, 4),
    "klsym/audit": Shares(97, 1, 1),
    "klsym/numeric": Shares(96, 1, 2),
    "klsym/language": Shares(84, 1, 2),
    "klsym/kernel": Shares(94, 1, 2),
    "study": Shares(91, 1, 1),
}


def count_names(folder: Path) -> Shares:
    """Count the names of all functions but properties and special methods, and of all assigned variables."""
    functions: list[str] = []
    variables: list[str] = []
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(read_tree(path)):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("__"):
                if not any("property" in ast.dump(decorator) for decorator in node.decorator_list):
                    functions.append(node.name.lstrip("_").partition("_")[0])
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                variables.append(node.id.strip("_"))
    verbs = sum(word in WORDS["verbs"] for word in functions)
    participles = sum(
        word not in WORDS["verbs"] and (word in WORDS["participles"] or word.endswith("ed"))
        for word in functions
    )
    empty = sum(name in WORDS["empty"] for name in variables)
    per = 100 / max(len(functions), 1)
    return Shares(verbs * per, participles * per, 100 * empty / max(len(variables), 1))


@pytest.mark.parametrize("folder", LIMITS)
def test_names_say_what_is_done(folder: str) -> None:
    shares, limit = count_names(ROOT / folder), LIMITS[folder]
    assert shares.verbs >= limit.verbs, f"{folder}: fewer functions begin with a verb"
    assert shares.participles <= limit.participles, f"{folder}: more functions begin with a participle"
    assert shares.empty <= limit.empty, f"{folder}: more variables say nothing"


def test_the_counter_tells_good_names_from_bad(tmp_path: Path) -> None:
    code = "def find_root(x):\n    root = x\n    return root\n\ndef moved(of):\n    found = of\n"
    (tmp_path / "names.py").write_text(code, encoding="utf-8")
    assert count_names(tmp_path) == Shares(50, 50, 50)


# ---------------------------------------------------------------------------- what docstrings name
CODE = re.compile(r"`([\w.]+?)(?:\(.*?\))?`")
TOPS = "klsym|study|tests|docs|derivations|experiments|benchmarks|notebooks"
FILE = re.compile(rf"\b(?:{TOPS})/[\w/.-]+\.\w+\b")
PROSE = re.compile(r'r?""".*?"""|#[^\n]*', re.DOTALL)
OUTSIDE = {"torch", "jax", "numpy", "np", "F", "array_api_compat"}  # packages whose names docstrings quote
FOLDERS = "|".join(sorted(path.name for path in (ROOT / "klsym").iterdir() if path.is_dir()))
MODULE = re.compile(rf"(?<![\w./])(?:klsym\.)?(?:{FOLDERS})(?:\.[a-z_]+)+\b(?!\()")


@cache
def names_in_code() -> frozenset[str]:
    """Every word in the code of the package and of its tests, docstrings and comments left out."""
    names: set[str] = set()
    for top in ("klsym", "study", "derivations", "experiments", "tests/support"):
        for path in (ROOT / top).rglob("*.py"):
            names.update(path.relative_to(ROOT).with_suffix("").parts)
            names.update(re.findall(r"\w+", PROSE.sub("", path.read_text(encoding="utf-8"))))
    return frozenset(names)


def names_that_are_gone(source: str) -> list[str]:
    """The names in backticks and the files that docstrings and comments mention and that do not exist."""
    tree = ast.parse(source)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    texts = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, documented)]
    texts += re.findall(r"#.*", source)
    gone = []
    for text in texts:
        prose = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith((">>>", "...")))
        for name in CODE.findall(prose):
            words = name.split(".")
            if words[0] not in OUTSIDE and not all(word in names_in_code() for word in words if word):
                gone.append(name)
        gone += [
            path for path in MODULE.findall(prose) if not all(x in names_in_code() for x in path.split("."))
        ]
        gone += [file for file in FILE.findall(prose) if not (ROOT / file).exists()]
    return gone


def test_docstrings_name_what_exists() -> None:
    gone = {}
    for path in sorted(path for top in ("klsym", "study") for path in (ROOT / top).rglob("*.py")):
        if found := names_that_are_gone(path.read_text(encoding="utf-8")):
            gone[str(path.relative_to(ROOT))] = found
    assert gone == {}


def test_a_name_that_is_gone_is_noticed() -> None:
    assert names_that_are_gone('"""See `find_unicorns` and klsym/engine/unicorns.py."""') == [
        "find_unicorns",
        "klsym/engine/unicorns.py",
    ]
    assert names_that_are_gone('"""See `explain` and klsym/engine/explain.py."""') == []
