"""Mutants of the trusted base: is every line of it held by a test?

    make mutants  (or this file with [--file klsym/kernel/means.py] [--sample 200] [--jobs 2])

The package and the tests are copied to a temporary folder.  A first run there notes which test executes which
line; then each mutant is tried in a process of its own, against the tests that execute its statement, the
fastest first, up to the first that fails.  What none notices within 20 seconds is alive.  Results are kept in
build/mutants.json for as long as the base and the test that killed are the same.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import compileall
import gc
import hashlib
import importlib
import json
import os
import random
import re
import resource
import shutil
import sys
import tempfile
import time
import tomllib
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from itertools import accumulate
from pathlib import Path
from typing import Any

import hypothesis
import mpmath  # noqa: F401  loaded once, before the processes fork
import numpy  # noqa: F401
import pytest
import sympy  # noqa: F401

from support.campaigns import stored as campaigns
from support.campaigns.mutations import Mutant, Source, is_text

HOME = Path(__file__).resolve().parents[3]
KERNEL = "klsym/kernel/*.py"
TESTS = ["kernel/test_*.py", "kernel/rules/test_*.py"]
RULES = "rules/test_rules.py"  # direct tests of what most of the kernel is there for
JUDGED = Path(__file__).with_name("mutants_equivalent.toml")
IMPORT = "import"  # what is executed when the base is imported
KEPT = HOME / "build" / "mutants.json"
SECONDS = 5  # of a processor, for one test of a mutant, beside three times what it takes without
ENOUGH = 20  # of a processor, for all tests of a mutant: what only later ones would notice counts as alive
MEMORY = 4 << 30
OFF = ("cacheprovider", "doctest", "unraisableexception", "threadexception")
OPTIONS = ["-x", "-q", "--tb=no", "--assert=plain", "-c", os.devnull, *(f"-pno:{name}" for name in OFF)]


# ---------------------------------------------------------------------------- the tests
@dataclass(eq=False)
class Selection:
    """A plugin: runs the tests named, in this order, and notes the first that fails.

    A test that has another name than without the mutant is one of a table whose entries the mutant changes.
    """

    tests: dict[str, float]  # the seconds that each takes without a mutant
    others: frozenset[str]  # tests that need not be run
    failed: str = ""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        order = {name: i for i, name in enumerate(self.tests)}
        items[:] = [item for item in items if item.nodeid not in self.others]
        items.sort(key=lambda item: order.get(item.nodeid, len(order)))

    def pytest_runtest_setup(self, item: Any) -> None:
        spend(SECONDS + 3 * self.tests.get(item.nodeid, 1))

    def pytest_collectreport(self, report: Any) -> None:
        self.failed = self.failed or (report.nodeid if report.failed else "")

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.failed = self.failed or (report.nodeid if report.failed else "")

    def pytest_sessionstart(self) -> None:
        """A failing example need not be made small."""
        phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
        hypothesis.settings.register_profile("mutants", parent=hypothesis.settings(), phases=phases)
        hypothesis.settings.load_profile("mutants")


@dataclass(eq=False)
class Coverage:
    """A plugin: which test executes which statement of the base, and for how long it runs."""

    found: dict[str, Any] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    lines: set[tuple[str, int]] = field(default_factory=set)
    name: str = ""
    began: float = 0

    def start(self, name: str) -> None:
        """Nothing that another test has computed is remembered."""
        modules = [module for key, module in sys.modules.items() if key.startswith("klsym")]
        for value in [value for module in modules for value in vars(module).values()]:
            if hasattr(value, "cache_clear"):
                value.cache_clear()
        getattr(sys.modules.get("klsym.kernel.replay"), "_CHECKED", {}).clear()
        self.lines.clear()
        self.name, self.began = name, time.process_time()

    def stop(self) -> None:
        lines: dict[str, list[int]] = {}
        for file, line in sorted(self.lines):
            lines.setdefault(file, []).append(line)
        self.found[self.name] = {"seconds": time.process_time() - self.began, "lines": lines}

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: Any) -> Iterator[None]:
        self.start(collector.nodeid)
        result = yield
        self.stop()
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        self.start(item.nodeid)
        result = yield
        self.stop()
        return result

    def pytest_collectreport(self, report: Any) -> None:
        self.failed += [report.nodeid] if report.failed else []

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.failed += [report.nodeid] if report.failed else []


# ---------------------------------------------------------------------------- one mutant
def spend(seconds: float) -> None:
    """End this process after so many more seconds of a processor."""
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + seconds) + 1, most))


class Mutated(SourceFileLoader):
    """Loads one module from a changed tree, and leaves all others alone."""

    tree: Any = None

    def get_code(self, fullname: str) -> Any:
        return compile(ast.fix_missing_locations(self.tree), self.path, "exec")

    def install(self, tree: ast.AST) -> None:
        self.tree = tree
        sys.meta_path.insert(0, self)  # type: ignore[arg-type]

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        return spec_from_file_location(name, self.path, loader=self) if name == self.name else None


def marked(tree: ast.AST, file: str) -> ast.AST:
    """The tree with a call before each statement that notes its line."""
    for node in list(ast.walk(tree)):
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(node, name, None)
            if not isinstance(statements, list):
                continue
            marked: list[ast.stmt] = []
            for statement in statements:
                note = ast.parse(f"executed(({file!r}, {statement.lineno}))").body
                plain = isinstance(statement, ast.ImportFrom) or is_text(statement)
                marked += [statement] if plain else [*note, statement]
            setattr(node, name, marked)
    return tree


def module_of(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def digest(paths: list[Path]) -> str:
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()[:16]


def imported(tests: list[Path]) -> list[Path]:
    """The modules in `support` that some tests need, and the certificates beside them."""
    support = next(path for path in tests[0].parents if path.name == "tests") / "support"
    found: dict[Path, None] = {}
    waiting = [*tests]
    while waiting:
        for name in re.findall(r"(?:from|import) support\.([\w.]+)", waiting.pop().read_text()):
            module = support / f"{name.replace('.', '/')}.py"
            if module.exists() and module not in found:
                found[module] = None
                waiting.append(module)
    return sorted({*found, *(p for module in found for p in module.parent.rglob("*.json"))})


def judged() -> set[str]:
    """The keys of the mutants that change no result, each with its reason in the file."""
    rows = tomllib.loads(JUDGED.read_text())["mutant"]
    return {" | ".join((row["file"], row["where"], row["before"], a)) for row in rows for a in row["after"]}


class Copy:
    """The package and the tests, out of reach of whoever edits them."""

    def __init__(self, folder: str, patterns: list[str]) -> None:
        self.root = Path(folder).resolve()
        for name in ("klsym", "tests"):
            shutil.copytree(HOME / name, self.root / name, ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(self.root, quiet=1)
        self.base = sorted(str(p.relative_to(self.root)) for p in self.root.glob(KERNEL))
        self.sources = {name: Source(name, (self.root / name).read_text()) for name in self.base}
        self.mutants = [mutant for source in self.sources.values() for mutant in source.mutants]
        tests = (p for pattern in patterns for p in self.root.glob(f"tests/{pattern}"))
        self.tests = sorted(str(p.relative_to(self.root)) for p in tests)
        settings = self.root / "tests" / "conftest.py"
        shared = imported([settings, *(self.root / name for name in self.tests)])
        self.changed = digest([self.root / name for name in self.base])  # what mutants change
        key = self.changed + digest([settings, *shared])
        self.keys = {name: key + digest([self.root / name]) for name in self.tests}
        self.key = key + digest([self.root / name for name in self.tests])

    def enter(self) -> None:
        """Import from here and from nowhere else."""
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        os.environ |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        os.chdir(self.root)
        sys.path[:0] = [str(self.root), str(self.root / "tests")]
        sys.dont_write_bytecode = True

    def run(self, mutant: Mutant, tests: dict[str, float], others: frozenset[str]) -> str:
        """The first of the tests that fails on a mutant, or nothing."""
        self.enter()
        spend(SECONDS)
        mutant.apply()
        loader = Mutated(module_of(mutant.file), str(self.root / mutant.file))
        loader.install(self.sources[mutant.file].tree)
        selection = Selection(tests, others)
        for file in dict.fromkeys(name.partition("::")[0] for name in tests):
            code = pytest.main([*OPTIONS, f"--rootdir={self.root}", file], plugins=[selection])
            if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
                return selection.failed or f"pytest ends with {code}"
        spec = sys.modules[loader.name].__spec__
        assert spec is not None and spec.loader is loader, "the mutant was not imported"
        return ""

    def cover(self, test: str) -> dict[str, Any]:
        """For each test of a file its time and what it executes; what fails without a mutant."""
        self.enter()
        coverage = Coverage()
        builtins.executed = coverage.lines.add  # type: ignore[attr-defined]
        for name, source in self.sources.items():
            Mutated(module_of(name), str(self.root / name)).install(marked(source.tree, name))
        coverage.start(IMPORT)
        for name in self.base:
            importlib.import_module(module_of(name))
        coverage.stop()
        assert sys.modules["klsym"].__file__ == str(self.root / "klsym/__init__.py")
        options = ["--continue-on-collection-errors", *OPTIONS[1:], f"--rootdir={self.root}"]
        code = pytest.main([*options, test], plugins=[coverage])
        assert code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED), f"pytest ends with {code}"
        return {"tests": coverage.found, "failed": sorted(set(coverage.failed)), "key": self.keys[test]}


# ---------------------------------------------------------------------------- processes
def forked(work: Callable[[], Any], answer: Path) -> int:
    """Some work in a process of its own, whose answer goes to a file."""
    gc.freeze()
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        quiet = os.open(answer.with_suffix(".txt"), os.O_WRONLY | os.O_CREAT)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        answer.write_text(json.dumps(work()))
        code = 0
    finally:
        if code:
            traceback.print_exc()
        os._exit(code)


def in_processes(
    folder: Path, jobs: int, tasks: list[tuple[Any, Callable[[], Any]]]
) -> Iterator[tuple[Any, Any]]:
    """The answer to each task, so many at a time; that of a process which was ended is the signal."""
    running: dict[int, tuple[Any, Path]] = {}
    waiting = list(enumerate(tasks))[::-1]
    while waiting or running:
        while waiting and len(running) < jobs:
            number, (task, work) = waiting.pop()
            running[forked(work, folder / f"{number}.json")] = task, folder / f"{number}.json"
        process, status = os.wait()
        task, answer = running.pop(process)
        text = answer.with_suffix(".txt")
        if os.WIFEXITED(status) and status:
            raise SystemExit(f"{task}\n{text.read_text()[-2000:]}")
        yield task, f"signal {os.WTERMSIG(status)}" if status else json.loads(answer.read_text())
        for path in (answer, text):
            path.unlink(missing_ok=True)


# ---------------------------------------------------------------------------- all of them
class Search:
    """Which mutants are alive; what is known from earlier runs is not tried again."""

    def __init__(self, copy: Copy, file: Path) -> None:
        self.copy, self.file = copy, file
        kept = json.loads(file.read_text()) if file.exists() else {}
        self.coverage: dict[str, Any] = kept.get("coverage", {})
        self.results: dict[str, dict[str, str]] = kept.get("results", {})
        self.by_line: dict[tuple[str, int], set[str]] = {}
        self.tests: dict[str, Any] = {}
        self.left_out: list[str] = []
        self.judged, self.version = judged(), campaigns.version()
        self.began = time.monotonic() - kept.get("seconds", {}).get(copy.changed, 0)  # of all runs
        self.names: list[str] = []

    def cover(self, jobs: int) -> None:
        """Run the tests without a mutant, those that have changed since."""
        new = [t for t, key in self.copy.keys.items() if self.coverage.get(t, {}).get("key") != key]
        for test, answer in in_processes(
            self.copy.root, jobs, [(t, partial(self.copy.cover, t)) for t in new]
        ):
            self.coverage[test] = answer
            self.save()
        self.coverage = {test: self.coverage[test] for test in self.copy.tests}
        for file in self.copy.tests:
            self.tests |= self.coverage[file]["tests"]
            self.left_out += self.coverage[file]["failed"]
        for test, noted in self.tests.items():
            for file, lines in noted["lines"].items():
                for line in lines:
                    self.by_line.setdefault((file, line), set()).add(test)
        self.names = [t for t in self.tests if ".py::" in t and not self._fails(t)]
        self.save()

    def _fails(self, test: str) -> bool:
        return any(test == name or test.startswith(f"{name}::") for name in self.left_out)

    def tests_for(self, mutant: Mutant) -> dict[str, float]:
        """The tests that execute the statement, file by file: what killed before first, then the fastest."""
        lines = range(mutant.statement[0], mutant.statement[1] + 1)
        found = set().union(*(self.by_line.get((mutant.file, line), ()) for line in lines))
        files = {name for name in found if "::" not in name}
        noted, killer = self.tests, self.results.get(mutant.key, {}).get("by", "")
        chosen = [t for t in self.names if t in found or t.partition("::")[0] in files or IMPORT in found]
        cost: dict[str, float] = {}
        for test in chosen:
            file = test.partition("::")[0]
            cost[file] = cost.get(file, noted[file]["seconds"]) + noted[test]["seconds"]
        own = Path(mutant.file).name
        likely = (f"test_{own}", f"rules/test_{own}", RULES)
        first = (killer.partition("::")[0], *(f"tests/kernel/{name}" for name in likely))

        def order(test: str) -> tuple[bool, float, str, bool, float]:
            file = test.partition("::")[0]
            return file not in first, cost[file], file, test != killer, noted[test]["seconds"]

        chosen.sort(key=order)
        spent = accumulate(noted[test]["seconds"] for test in chosen)
        return {t: noted[t]["seconds"] for t, so_far in zip(chosen, spent, strict=True) if so_far < ENOUGH}

    def key(self, mutant: Mutant, by: str) -> str | None:
        """A digest: of the file that killed it, of all tests if alive, of the base if equivalent."""
        alive = self.copy.changed if mutant.key in self.judged else self.copy.key
        return self.copy.keys.get(by.partition("::")[0]) if by else alive

    def known(self, mutant: Mutant) -> bool:
        result = self.results.get(mutant.key)
        return result is not None and result["key"] == self.key(mutant, result["by"])

    def keep(self, mutant: Mutant, by: str) -> None:
        self.results[mutant.key] = {"by": by, "key": self.key(mutant, by) or ""}

    @property
    def seconds(self) -> dict[str, float]:
        """The digest of the base -> the time of all runs on it."""
        return {self.copy.changed: time.monotonic() - self.began}

    def save(self) -> None:
        self.file.parent.mkdir(exist_ok=True)
        kept = {"coverage": self.coverage, "results": self.results, "seconds": self.seconds}
        self.file.write_text(json.dumps(kept))

    def run(self, mutants: list[Mutant], jobs: int) -> None:
        todo = [(mutant, self.tests_for(mutant)) for mutant in mutants if not self.known(mutant)]
        for mutant in [mutant for mutant, tests in todo if not tests]:
            self.keep(mutant, "")
        every = frozenset(self.tests)
        work = [(m, partial(self.copy.run, m, tests, every - set(tests))) for m, tests in todo if tests]
        for number, (mutant, by) in enumerate(in_processes(self.copy.root, jobs, work)):
            self.keep(mutant, by)
            if number % 50 == 0:
                print(f"{number} of {len(work)}", file=sys.stderr, flush=True)
                self.save()
        self.save()


def main() -> int:
    parser = argparse.ArgumentParser(description="Mutate the trusted base; list what no test notices.")
    parser.add_argument("--file", help="mutants of one file alone, such as klsym/kernel/ring.py")
    parser.add_argument("--only", type=int, help="one mutant, by its number in the list")
    parser.add_argument("--sample", type=int, help="so many mutants, drawn by the seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tests", nargs="+", default=TESTS, help="files of tests, such as test_ring.py")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(folder, chosen.tests)
        search = Search(copy, KEPT if chosen.tests == TESTS else KEPT.with_stem("mutants-of-some"))
        numbered = [(i, m) for i, m in enumerate(copy.mutants) if chosen.file in (None, m.file)]
        numbered = [(i, m) for i, m in numbered if chosen.only in (None, i)]
        if chosen.sample is not None and chosen.sample < len(numbered):
            numbered = random.Random(chosen.seed).sample(numbered, chosen.sample)
        search.cover(chosen.jobs)
        search.run([mutant for _, mutant in numbered], chosen.jobs)
    return report(sorted(numbered, key=lambda pair: pair[0]), copy.mutants, search)


def report(numbered: list[tuple[int, Mutant]], mutants: list[Mutant], search: Search) -> int:
    """Print what is alive; 0 if nothing is, and no judgement speaks of what is not there."""
    stale = search.judged - {mutant.key for mutant in mutants}
    alive = [(i, mutant) for i, mutant in numbered if not search.results[mutant.key]["by"]]
    equivalent = [mutant for _, mutant in alive if mutant.key in search.judged]
    alive = [(i, mutant) for i, mutant in alive if mutant.key not in search.judged]
    for i, mutant in alive:
        print(f"{i} {mutant.file}:{mutant.line} {mutant.where}\n- {mutant.before}\n+ {mutant.after}")
    for name in search.left_out:
        print(f"left out, it fails without a mutant: {name}")
    for key in sorted(stale):
        print(f"judged equivalent, but there is no such mutant: {key}")
    print(f"{len(numbered)} mutants, {len(alive)} alive, {len(equivalent)} equivalent")
    counts = {"mutants": len(numbered), "alive": len(alive), "equivalent": len(equivalent)}
    [seconds] = search.seconds.values()
    campaigns.record("mutants", counts, 0, seconds, search.version, full=len(mutants))
    return 1 if alive or stale or search.left_out else 0


if __name__ == "__main__":
    sys.exit(main())
