"""`make release`: what its checks accept and refuse, and that the wheel and sdist of these sources pass."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from support.release import pythons
from support.release.archives import (
    SDIST_LIMIT,
    WHEEL_LIMIT,
    Project,
    check_sdist,
    check_wheel,
    read_sdist,
    read_wheel,
)
from support.release.trials import Trial, find_block, list_trials, list_trials_with_torch

HOME = Path(__file__).parents[2]
LEFT_OUT = (
    "__pycache__", "build", "dist", "*.egg-info", "*.pyc", "node_modules", ".git*", ".venv", ".ci",
    ".*_cache", ".hypothesis", ".ipynb_checkpoints", ".coverage",
)  # fmt: skip
Files = dict[str, bytes]


class Built(NamedTuple):
    """The sources, and the files and sizes of what was built of them."""

    project: Project
    wheel: Files
    sdist: Files
    wheel_size: int
    sdist_size: int


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    if importlib.util.find_spec("setuptools") is None:
        pytest.skip("no setuptools here")
    source = tmp_path_factory.mktemp("release") / "source"
    shutil.copytree(HOME, source, ignore=shutil.ignore_patterns(*LEFT_OUT))
    code = "from setuptools import build_meta as b; b.build_sdist('made'); b.build_wheel('made')"
    subprocess.run([sys.executable, "-c", code], cwd=source, check=True, capture_output=True)
    [wheel], [sdist] = (source / "made").glob("*.whl"), (source / "made").glob("*.tar.gz")
    sizes = wheel.stat().st_size, sdist.stat().st_size
    return Built(Project(source), read_wheel(wheel), read_sdist(sdist), *sizes)


def test_the_wheel_and_the_sdist_pass(built: Built) -> None:
    assert check_wheel(built.wheel, built.wheel_size, built.project) == []
    assert check_sdist(built.sdist, built.sdist_size) == []
    assert len(built.wheel) > 500 and "klsym/study/ledger/stored.json.xz" in built.wheel


def test_the_sdist_holds_what_its_tests_need(built: Built) -> None:
    root = built.project.root
    paths = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    needed = {str(path) for path in paths if not {"made", "build"} & {*path.parts}}
    needed = {name for name in needed if ".egg-info" not in name}
    assert {"tests/conftest.py", "docs/figure.png", "klsym/py.typed"} <= needed <= {*built.sdist}
    assert not [name for name in built.sdist if name.endswith(".pyc")]


def put(name: str, content: bytes = b"x") -> Callable[[Files], Files]:
    return lambda files: {**files, name: content}


def drop(end: str) -> Callable[[Files], Files]:
    return lambda files: {name: content for name, content in files.items() if not name.endswith(end)}


def change(end: str, old: bytes, new: bytes) -> Callable[[Files], Files]:
    def changed(files: Files) -> Files:
        [name] = [name for name in files if name.endswith(end)]
        assert old in files[name]
        return {**files, name: files[name].replace(old, new, 1)}

    return changed


WHEELS = {  # a fault of a wheel, and the complaint
    "a module is missing": (drop("klsym/kernel/ring.py"), "the wheel lacks klsym/kernel/ring.py"),
    "the types are missing": (drop("py.typed"), "the wheel lacks klsym/py.typed"),
    "the stored ledger is missing": (drop(".xz"), "the wheel lacks klsym/study/ledger/stored.json.xz"),
    "tests": (put("tests/test_a.py"), "the wheel has tests/test_a.py"),
    "a test in a package": (put("klsym/kernel/test_ring.py"), "the wheel has klsym/kernel/test_ring.py"),
    "another top folder": (put("study/api.py"), "the wheel has study/api.py, which is in no package"),
    "more certificates": (put("klsym/certificates/k3.json"), "no module reads klsym/certificates/k3.json"),
    "a source of the paper": (put("klsym/paper/preamble.tex"), "preamble.tex, which is in no package"),
    "compiled code": (put("klsym/__pycache__/api.cpython-311.pyc"), "the wheel has klsym/__pycache__/api"),
    "another version": (change("/METADATA", b"\nVersion: ", b"\nVersion: 9"), "project: version"),
    "older Pythons": (change("/METADATA", b"Requires-Python: >=3.11", b"Requires-Python: >=3.9"), "Python"),
    "one more dependency": (
        change("/METADATA", b"Requires-Dist: mpmath", b"Requires-Dist: numpy\nRequires-Dist: mpmath"),
        "project: dependencies",
    ),
    "another README": (change("/METADATA", b"Training code", b"Code"), "project: README"),
    "no command": (drop("/entry_points.txt"), "project: command"),
    "no licence": (drop("/LICENSE"), "project: licence"),
}


@pytest.mark.parametrize("name", WHEELS)
def test_a_wheel_that_is_wrong_is_refused(name: str, built: Built) -> None:
    spoil, words = WHEELS[name]
    complaints = check_wheel(spoil(built.wheel), built.wheel_size, built.project)
    assert complaints and any(words in line for line in complaints), complaints


def test_a_wheel_or_an_sdist_that_is_large_is_refused(built: Built) -> None:
    for extra in (0, 1):
        wheel = check_wheel(built.wheel, WHEEL_LIMIT + extra, built.project)
        sdist = check_sdist(built.sdist, SDIST_LIMIT + extra)
        assert len(wheel) == len(sdist) == extra


@pytest.mark.parametrize("name", ["build/lib/klsym/api.py", ".venv/pyvenv.cfg", "klsym/a.pyc", ".git/HEAD"])
def test_an_sdist_that_is_wrong_is_refused(name: str, built: Built) -> None:
    assert check_sdist({**built.sdist, name: b""}, built.sdist_size) == [f"the sdist has {name}"]
    lacking = check_sdist(drop("tests/conftest.py")(built.sdist), built.sdist_size)
    assert lacking == ["the sdist lacks tests/conftest.py"]


# ---------------------------------------------------------------------------- trials
TRIAL = Trial(("explain", "k3"), 0, "one\ntwo\n", lines=2)


@pytest.mark.parametrize(
    ("code", "text", "words"),
    [
        (0, "one\ntwo\nthree\n", None),
        (0, "one\ntwo", None),
        (1, "one\ntwo\n", "klsym explain k3: exit code 1, expected 0"),
        (0, "one\n2\n", "other lines than expected, first '2'"),
        (0, "one\n", "other lines than expected, first '1 lines'"),
        (0, "", "first '0 lines'"),
    ],
)
def test_a_trial_compares_code_and_lines(code: int, text: str, words: str | None) -> None:
    fault = TRIAL.find_fault(subprocess.CompletedProcess([], code, text, "why"))
    assert fault is None if words is None else fault is not None and words in fault


def test_a_trial_without_a_number_of_lines_compares_all() -> None:
    whole = Trial(("explain", "k3"), 0, "one\n")
    assert whole.find_fault(subprocess.CompletedProcess([], 0, "one\n", "")) is None
    assert whole.find_fault(subprocess.CompletedProcess([], 0, "one\ntwo\n", "")) is not None


def test_the_pages_have_what_is_tried() -> None:
    trials = [*list_trials(HOME, "0.2.0"), *list_trials_with_torch(HOME)]
    assert [trial.words[0] for trial in trials] == [
        "--version", "explain", "recommend", "explain", "compare", "claims", "check", "check", "measure",
        "audit", "audit", "measure", "measure",
    ]  # fmt: skip
    assert sum(trial.expected.count("proved") for trial in trials) >= 4
    for page in (
        "no block",
        "```console\n$ klsym explain k3\na\n```\n```console\n$ klsym explain k2\nb\n```\n",
    ):
        with pytest.raises(ValueError, match="unpack"):
            find_block(page, "klsym explain", 0)


# ---------------------------------------------------------------------------- Pythons and tools
@pytest.mark.parametrize(
    ("says", "is_found"),
    [("echo 3 14", True), ("echo 3 10", False), ("exit 127", False), ("echo 3 14; exit 1", False)],
)
def test_a_python_is_found_if_it_is_what_its_name_says(
    says: str, is_found: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "versions" / "3.14.2" / "bin" / "python3.14"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{says}\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.setattr(pythons, "SUPPORTED", ((3, 14), sys.version_info[:2]))
    installed = pythons.find_pythons()
    assert installed[3, 14] == (program if is_found else None)
    assert installed[sys.version_info[:2]] is not None


def test_the_tools_of_a_release_are_pinned_and_no_index_is_named() -> None:
    text = (HOME / "tests" / "support" / "release" / "requirements.lock").read_text(encoding="utf-8")
    entries = re.split(r"\n(?=\S)", text.strip())
    assert all(re.match(r"[\w-]+==[\w.]+.*\\\n(?:    --hash=sha256:[0-9a-f]{64}.*\n?)+$", e) for e in entries)
    names = {entry.partition("==")[0] for entry in entries}
    assert {"build", "twine", "setuptools"} <= names and "://" not in text and "index" not in text
