"""The hook for pre-commit and the GitHub action in a small repository: red with a fault, green when fixed."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

HOME = Path(__file__).parents[2]
TRAINER = """\
import torch


def penalty(logps, ref_logps):
    d = ref_logps - logps
    return torch.exp(d) - d - 1


def pg_loss(logps, old_logps, advantages):
    return -torch.exp(logps - old_logps) * advantages
"""
CONFIG = """\
[[target]]
code = "trainer.py:penalty"
expect = "reverse-kl"

[[target]]
code = "trainer.py:pg_loss"
sampling = "off-policy"
expect = "-E[A]"
"""
# sitecustomize.py of a Python that finds no package but those of PYTHONPATH.
WITHOUT_OTHERS = "import sys\nsys.path[:] = [path for path in sys.path if not path.endswith('-packages')]\n"
yaml = pytest.importorskip("yaml")
ACTION = yaml.safe_load((HOME / "action.yml").read_text(encoding="utf-8"))
[HOOK] = yaml.safe_load((HOME / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))


def run_git(*words: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *identity, *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose penalty is k3, expected to be the reverse KL; `klsym` is the one that is tested."""
    if shutil.which("git") is None:
        pytest.skip("no git here")
    root, programs = tmp_path / "trainer", tmp_path / "bin"
    root.mkdir()
    programs.mkdir()
    stubs = {
        "klsym": f'exec {shlex.quote(sys.executable)} -m klsym "$@"',
        "python": 'printf "%s\\n" "$@" > "$STUB_LOG"',  # what the action would install
    }
    for name, body in stubs.items():
        (programs / name).write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    monkeypatch.setenv("STUB_LOG", str(tmp_path / "installed.txt"))
    monkeypatch.chdir(root)
    (root / "trainer.py").write_text(TRAINER, encoding="utf-8")
    (root / "klsym.toml").write_text(CONFIG, encoding="utf-8")
    run_git("init", "--quiet")
    run_git("add", ".")
    run_git("commit", "--quiet", "--message", "Add a trainer")
    return root


def run_hook(*files: str) -> subprocess.CompletedProcess[str]:
    """Run the hook as pre-commit does in the root of a repository: files are arguments if it takes them."""
    names = files if HOOK.get("pass_filenames", True) else ()
    command = [*shlex.split(HOOK["entry"]), *HOOK.get("args", ()), *names]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def fill(text: str, inputs: dict[str, str]) -> str:
    """Replace the expressions of GitHub that the action uses; another one is a KeyError."""
    values = {f"inputs.{name}": value for name, value in inputs.items()} | {"github.action_path": str(HOME)}
    return re.sub(r"\$\{\{\s*([\w.-]+)\s*\}\}", lambda match: values[match[1]], text)


def run_action(**given: str) -> subprocess.CompletedProcess[str]:
    """Run the shell steps of the action with the flags of GitHub's runners, up to one that fails."""
    inputs = {name: row["default"] for name, row in ACTION["inputs"].items()} | given
    done = None
    for step in ACTION["runs"]["steps"]:
        if "run" not in step:
            continue
        assert step["shell"] == "bash" and "${{" not in step["run"]  # an input is never part of a script
        variables = {name: fill(value, inputs) for name, value in step["env"].items()}
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        environment = {**os.environ, **variables}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            break
    assert done is not None
    return done


def test_red_with_a_planted_fault_and_green_once_it_is_fixed(repository: Path) -> None:
    pytest.importorskip("torch")
    hook, action = run_hook("trainer.py"), run_action()
    assert hook.returncode == action.returncode == 1
    assert re.search(r"^trainer\.py:4: KL900 .*expected reverse-kl", hook.stdout, re.MULTILINE)
    errors = [line for line in action.stdout.splitlines() if line.startswith("::error ")]
    assert "(pg_loss)" not in hook.stdout and "(penalty)" in hook.stdout
    assert errors[0].startswith("::error file=trainer.py,line=4,title=KL900 unmet-expectation::")
    assert run_git("status", "--porcelain") == ""  # neither changes the repository

    fixed = subprocess.run(["klsym", "audit", "--fix"], capture_output=True, text=True, check=False)
    assert fixed.returncode == 0 and "changed" in fixed.stderr
    added = [line for line in run_git("diff", "--unified=0").splitlines() if re.match(r"[+-](?![+-])", line)]
    assert added == ["-    return torch.exp(d) - d - 1", "+    return 0.5 * d ** 2"]
    hook, action = run_hook("trainer.py"), run_action()
    assert hook.returncode == action.returncode == 0, hook.stdout + action.stderr
    assert "KL900" not in hook.stdout and "::error" not in action.stdout


def test_the_action_installs_itself_and_passes_words_without_a_shell(repository: Path) -> None:
    """An input is words for klsym: neither commands nor patterns of files."""
    evil = "*.py:penalty; touch spoiled $(touch spoiled) `touch spoiled`"
    done = run_action(arguments=evil, torch="torch==2.13.0")
    assert "*.py" in done.stdout and "trainer.py" not in done.stdout + done.stderr  # no pattern
    assert not (repository / "spoiled").exists()
    installed = Path(os.environ["STUB_LOG"]).read_text(encoding="utf-8").splitlines()
    assert installed == ["-m", "pip", "install", "--quiet", f"{HOME}[torch]", "torch==2.13.0"]
    listed = run_action(arguments="--scan trainer.py --exit-zero")
    assert listed.returncode == 0, listed.stderr


def list_distributions(requirements: list[str]) -> dict[str, metadata.Distribution]:
    """The distributions that pip would install for these, by name, without extras."""
    waiting, installed = list(requirements), dict[str, metadata.Distribution]()
    while waiting:
        requirement = Requirement(waiting.pop())
        name = requirement.name.lower()
        is_wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if is_wanted and name not in installed:
            installed[name] = metadata.distribution(name)
            waiting += installed[name].requires or []
    return installed


def make_environment(folder: Path, requirements: list[str]) -> Path:
    """A folder that has klsym and what is installed for these requirements, and no other package."""
    for distribution in list_distributions(requirements).values():
        for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            if not (folder / top).exists():
                (folder / top).symlink_to(Path(str(distribution.locate_file(top))))
    (folder / "klsym").mkdir()
    parts = [*(HOME / "klsym").iterdir(), *(HOME / name for name in ("study", "derivations", "experiments"))]
    for part in parts:
        (folder / "klsym" / part.name).symlink_to(part)
    (folder / "sitecustomize.py").write_text(WITHOUT_OTHERS, encoding="utf-8")
    return folder


@pytest.mark.parametrize("missing", ["", "array-api-compat", "numpy"])
def test_the_hook_installs_what_an_audit_needs(missing: str, repository: Path, tmp_path: Path) -> None:
    """pre-commit installs klsym without extras, and the dependencies that the hook names."""
    pytest.importorskip("torch")
    dependencies = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "dependencies"
    ]
    named = [one for one in HOOK["additional_dependencies"] if not missing or not one.startswith(missing)]
    alone = tmp_path / "alone"
    alone.mkdir()
    make_environment(alone, [*dependencies, *named])
    command = [sys.executable, "-m", "klsym", "audit", "trainer.py:penalty", "--expect", "reverse-kl"]
    environment = {**os.environ, "PYTHONPATH": str(alone)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if missing:
        assert done.returncode == 2 and f"needs {missing.replace('-', '_')}, which is not" in done.stderr
    else:
        assert done.returncode == 1 and "minimises KL(p||q)" in done.stdout, done.stderr


def test_the_hook_runs_for_code_and_for_what_is_expected() -> None:
    assert {*HOOK["types_or"]} == {"python", "jupyter", "toml"} and "types" not in HOOK
    assert (HOOK["language"], HOOK["pass_filenames"]) == ("python", False)
    project = (HOME / "pyproject.toml").read_text(encoding="utf-8")
    assert all(f'"{one}"' in project for one in HOOK["additional_dependencies"])
    assert f'"{ACTION["inputs"]["torch"]["default"]}"' in project


def test_an_expression_that_the_action_does_not_have_is_noticed() -> None:
    assert fill("a ${{ inputs.torch }}", {"torch": "b"}) == "a b"
    with pytest.raises(KeyError):
        fill("${{ github.token }}", {})
