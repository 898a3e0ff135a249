"""Who may import whom, and what an import may load."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import klsym
from klsym.commands.parser import STUDY_COMMANDS, build_parser
from support.sources import read_tree

FOLDER = Path(klsym.__file__).parent
FILES = sorted(
    path
    for place in (
        FOLDER,
        *(FOLDER.parent / name for name in ("study", "experiments", "derivations", "paper")),
    )
    for path in place.rglob("*.py")
)


def module_name(path: Path) -> str:
    """The study, derivations, experiments and the paper stand beside the library, in its name space."""
    inside = path.relative_to(FOLDER if path.is_relative_to(FOLDER) else FOLDER.parent)
    return ".".join(("klsym", *inside.with_suffix("").parts)).removesuffix(".__init__")


MODULES = {module_name(file) for file in FILES}


def for_types_alone(tree: ast.Module) -> set[ast.AST]:
    """What stands below `if TYPE_CHECKING:`, which nothing runs."""
    blocks = (
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.If) and isinstance(n.test, ast.Name) and n.test.id == "TYPE_CHECKING"
    )
    return {inside for block in blocks for inside in ast.walk(block)}


def imported(path: Path) -> tuple[set[str], set[str]]:
    """The modules that a file names in an import, wherever it stands; and those of them that it may load."""
    tree = read_tree(path)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    left_out = for_types_alone(tree)
    return named(path, imports), named(path, [node for node in imports if node not in left_out])


def named(path: Path, imports: list[ast.Import | ast.ImportFrom]) -> set[str]:
    found = set()
    for node in imports:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        else:
            assert not node.level, f"{path}: relative import"
            module = node.module or ""
            found.add(module)
            inside = {f"{module}.{alias.name}" for alias in node.names}
            found |= inside & MODULES
    return found


@cache
def both() -> dict[str, tuple[set[str], set[str]]]:
    """Of each module; read when a test first asks for it, not by each process that lists the tests."""
    return {module_name(path): imported(path) for path in FILES}


@cache
def graph() -> dict[str, set[str]]:
    return {name: everywhere for name, (everywhere, _) in both().items()}


@cache
def run() -> dict[str, set[str]]:
    return {name: at_run for name, (_, at_run) in both().items()}


# Each trusted module, and all of klsym that it may import.
ALLOWED = {
    "klsym.errors": set(),
    "klsym.kernel.ring": {"klsym.errors"},
    "klsym.kernel.names": {"klsym.errors"},
    "klsym.kernel.slots": set(),
    "klsym.kernel.definitions": {
        f"klsym.{name}" for name in ("errors", "kernel.names", "kernel.ring", "kernel.slots")
    },
    "klsym.kernel.statements": {
        f"klsym.{name}"
        for name in (
            "errors",
            "kernel.definitions",
            "kernel.names",
            "kernel.ring",
            "kernel.slots",
            "kernel.witness",
        )
    },
    "klsym.kernel.witness": {f"klsym.{name}" for name in ("errors", "kernel.names", "kernel.ring")},
}
# The rooms of the house, from the ground up: each may use what stands before it.
TOOL = [
    "errors", "escaping", "files", "worker_process", "kernel", "language", "notation", "worlds",
    "engine", "diagnostics", "render", "numeric", "calculus", "api", "audit", "measure", "confirmed",
    "fixing", "testing", "lint", "commands", "cli", "__main__",
]  # fmt: skip
STUDY = [
    "study", "study.templates", "study.gaussian", "study.sequences", "study.questions", "study.render",
    "study.rocq", "study.ledger", "study.api", "study.claims", "study.explorer", "study.sampling",
    "study.figures", "experiments", "study.tables", "derivations", "study.write_up",
    "study.notebook", "paper",
    "study.commands",
]  # fmt: skip
ROOMS = [*TOOL, *STUDY]
HOUSE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")
KERNEL = {name for name in MODULES if name.split(".")[:2] == ["klsym", "kernel"]}


def test_the_graph_is_not_empty():
    assert {*ALLOWED, "klsym.kernel.means", "klsym.language.expressions"} <= set(graph())
    assert "klsym.kernel" in graph()["klsym.engine.proof.derivation"]
    assert "sympy" in graph()["klsym.language.expressions"]


@pytest.mark.parametrize("name", sorted(KERNEL | set(ALLOWED)))
def test_the_trusted_part_imports_itself_and_the_standard_library(name):
    ours = {module for module in graph()[name] if module.startswith("klsym")}
    assert ours <= ALLOWED.get(name, KERNEL | set(ALLOWED))
    assert {module.partition(".")[0] for module in graph()[name] - ours} <= sys.stdlib_module_names


def room(name: str) -> str:
    parts = name.split(".")[1:]
    return ".".join(parts[: 2 if parts[:1] == ["study"] else 1])


def test_every_room_has_its_place():
    assert {room(name) for name in graph()} - {""} == set(ROOMS)


def test_the_description_of_the_house_has_the_rooms_in_this_order():
    tool, _, study = HOUSE.partition("\nklsym/")[2].partition("\nexperiments/")[0].partition("\nstudy/")
    listed = [re.findall(r"^  (\w+)(?:\.py|/) ", part, re.MULTILINE) for part in (tool, study)]
    assert listed[0] == [name for name in TOOL if name != "__main__"]
    assert listed[1] == [name.removeprefix("study.") for name in STUDY if name.startswith("study.")]


def test_imports_run_one_way():
    place = {name: number for number, name in enumerate(["", *ROOMS])}
    ours = [
        (name, m) for name in set(run()) - {"klsym"} for m in run()[name] if m.partition(".")[0] == "klsym"
    ]
    assert len(ours) > len(run())
    assert [(name, m) for name, m in ours if place[room(m)] > place[room(name)]] == []


def test_the_tool_imports_nothing_of_the_study():
    """Lazily neither: its commands and names are found by their texts.  `klsym` itself has their types."""
    tool = {name for name in graph() if room(name) in TOOL}
    assert len(tool) > 100 and room("klsym.study.ledger.registry") in STUDY
    assert [(name, m) for name in tool for m in graph()[name] if room(m) in STUDY] == []
    assert [m for m in run()["klsym"] if room(m) in STUDY] == []


WITHOUT_STUDY = """
import importlib.abc, sys
class NoStudy(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.startswith("klsym.study"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, NoStudy())
from klsym.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("explain", "k3"), 0, "minimises KL(p||q)"),
        (("recommend", "--target", "reverse-kl"), 0, "k2"),
        (("rules",), 0, "KL004"),
        (
            ("prove",),
            2,
            'klsym prove belongs to klsym.study, which is missing here: pip install "klsym[report]"',
        ),
        (("optimum", "k3"), 2, "klsym optimum belongs to klsym.study"),
        (("prvoe",), 2, "invalid choice"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_the_tool_runs_without_the_study(words, code, says):
    done = subprocess.run([sys.executable, "-c", WITHOUT_STUDY, *words], capture_output=True, text=True)
    assert (done.returncode, says in done.stdout + done.stderr) == (code, True), done.stderr


def test_the_tool_knows_the_commands_of_the_study():
    of_tool = {"explain", "compare", "recommend", "audit", "measure", "rule", "rules", "examples", "check"}
    actions = build_parser()._subparsers._group_actions[0].choices
    assert set(actions) - of_tool == set(STUDY_COMMANDS)


# The rooms of the engine, from the ground up.
ENGINE = ["options", "regions", "proof", "fields", "divergences", "verdicts", "targets", "outside", "answers",
          "explain", "questions"]  # fmt: skip
MOST_FILES, CROWDED = 15, 20


def test_imports_in_the_engine_run_one_way():
    place = {name: number for number, name in enumerate(ENGINE)}
    inside = {name for name in run() if name.startswith("klsym.engine.")}
    assert {name.split(".")[2] for name in inside} == {*ENGINE}
    pairs = [(n, m) for n in inside for m in run()[n] & inside]
    wrong = [(n, m) for n, m in pairs if place[n.split(".")[2]] < place[m.split(".")[2]]]
    assert wrong == []


def test_each_room_of_the_engine_is_small_and_described():
    for name in (FOLDER / "engine").iterdir():
        if name.is_dir() and name.name != "__pycache__":
            assert len([*name.glob("*.py")]) - 1 <= MOST_FILES, name
            assert f"    {name.name}/" in HOUSE, name


def test_no_folder_is_crowded():
    folders = {path.parent for top in (FOLDER, FOLDER.parent / "tests") for path in top.rglob("*.py")}
    assert {folder: n for folder in folders if (n := len([*folder.glob("*.py")])) > CROWDED} == {}


@pytest.mark.parametrize("name", sorted(n for n in MODULES if room(n) in ("numeric", "worlds")))
def test_the_oracle_shares_nothing_with_what_it_judges(name):
    """Arithmetic of intervals is no rule; `explain --check` alone holds a verdict in its hands."""
    judged = ("engine", "kernel")
    shared = {m for m in run()[name] if room(m) in judged or m == "klsym.language.unfolding"}
    held = {"klsym.engine.verdicts.verdict"} if name == "klsym.numeric.checks.cross_check" else set()
    assert shared <= {"klsym.kernel.intervals", *ALLOWED} | held
    path = Path(__file__).parents[2].joinpath(*name.split("."))
    found = [file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()]
    tree = ast.parse(found[0].read_text(encoding="utf-8"))
    called = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not called & {"derive", "substitute"}  # the ring's own derivatives


def test_sampling_says_what_it_shares_with_the_kernel():
    """README and architecture name it: the rules that write out a gradient at a sample, and no other."""
    sampling = [name for name in graph() if room(name) == "study.sampling"]
    rule = {"klsym.language.unfolding", *KERNEL} - set(ALLOWED)
    shared = {m: n for n in sampling for m in run()[n] & rule}
    rules = {f"klsym.kernel.{name}" for name in ("assumptions", "densities", "derivatives", "means", "sums")}
    assert set(shared) == rules | {"klsym.language.unfolding"}
    assert {n for n in sampling if run()[n] & (set(shared) - {"klsym.kernel.derivatives"})} == {
        "klsym.study.sampling.identities",  # the class of theorems
        "klsym.study.sampling.means",
    }


def test_abbreviations_are_data():
    """What the judge reads statements in rests on the foundation alone."""
    ours = {m for m in graph()["klsym.language.abbreviations"] if m.startswith("klsym")}
    assert ours <= {"klsym", *ALLOWED}


def loaded(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter holds after a statement."""
    code = f"{statement}; import sys; print(*sorted({{m.partition('.')[0] for m in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import klsym.kernel", {"sympy", "numpy", "mpmath", "matplotlib", "torch", "jax"}),
        ("import klsym.kernel.ring, klsym.kernel.statements", {"sympy", "numpy"}),
        ("import klsym", {"torch", "jax", "matplotlib"}),
        ("import klsym.engine.proof.derivation", {"torch", "jax", "matplotlib"}),
        ("import klsym.worlds.losses, klsym.worlds.means, klsym.worlds.words", {"numpy", "torch", "jax"}),
    ],
)
def test_an_import_loads_only_what_it_needs(statement, absent):
    modules = loaded(statement)
    assert "klsym" in modules and not modules & absent


@pytest.mark.parametrize(
    ("imports", "modules", "back"),
    [
        (graph, (KERNEL | set(ALLOWED)) - {"klsym.kernel"}, ("klsym.kernel.ring", "klsym.kernel.means")),
        (run, {n for n in MODULES if n.startswith("klsym.engine.")},
         ("klsym.engine.options.settings", "klsym.engine.explain")),
    ],
    ids=["kernel", "engine"],
)  # fmt: skip
def test_imports_go_round_in_no_circle(imports, modules, back):
    """Imports within functions count too; one import back would be noticed."""
    needs = {name: imports()[name] & modules for name in modules}
    assert len([*TopologicalSorter(needs).static_order()]) == len(modules)
    module, user = back
    with pytest.raises(CycleError):
        TopologicalSorter({**needs, module: {user}}).prepare()
