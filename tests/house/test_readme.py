"""The code in the README and in docs/ runs, and prints what the pages say."""

import contextlib
import io
import json
import re
import runpy
import shlex
from pathlib import Path

import pytest

from klsym.cli import main

pytestmark = pytest.mark.usefixtures("without_copies", "forked_audits")

HOME = Path(__file__).parents[2]
FOLDERS = ("tutorials", "tasks", "guides", "explanation", "reference")
FILES = [
    HOME / "README.md",
    *(path for name in FOLDERS for path in sorted((HOME / "docs" / name).glob("*.md"))),
]
PAGES = {path.relative_to(HOME).as_posix(): path.read_text(encoding="utf-8") for path in FILES}
README = PAGES["README.md"]
PYTHON = {name: re.findall(r"```python\n(.*?)```", text, re.DOTALL) for name, text in PAGES.items()}
CONSOLE = re.findall(r"```console\n(.*?)```", "".join(PAGES.values()), re.DOTALL)


def printed_by(code: str, namespace: dict) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "README.md", "exec"), namespace)
    return out.getvalue()


def promised(code: str) -> list[str]:
    """Whole-line comments after a print are what it prints."""
    return [line.removeprefix("# ") for line in code.splitlines() if line.startswith("# ")]


@pytest.mark.parametrize("name", [name for name, blocks in PYTHON.items() if blocks])
def test_python_blocks_print_what_they_promise(name):
    namespace: dict = {}
    for code in PYTHON[name]:
        assert printed_by(code, namespace).splitlines() == promised(code)


def test_the_python_blocks_are_found():
    assert sum(map(len, PYTHON.values())) == 5


def test_the_code_of_a_task_is_the_code_that_is_audited():
    code = (HOME / "docs" / "examples" / "tasks.py").read_text(encoding="utf-8")
    shown = re.findall(r"```py\n(.*?)```", "".join(PAGES.values()), re.DOTALL)
    assert len(shown) == 7 and all(block in code for block in shown)


def test_the_gate_of_a_task_turns_red(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(HOME)
    gate = ["--expect", "-token-policy-gradient inside the clip range"]
    assert main(["audit", "docs/examples/tasks.py:ppo_without_minus", *gate]) == 1


@pytest.mark.parametrize(("name", "code"), [("grpo", 0), ("grpo_with_padding", 1)])
def test_the_gate_of_the_guide_is_green_and_red(name, code, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(HOME)
    gate = ["--group", "2", "--expect", "-0.5*policy-gradient + 0.04*reverse-kl"]
    assert main(["measure", f"docs/examples/tasks.py:{name}", *gate]) == code


def test_the_readme_is_short():
    assert README.count("\n") <= 150


HEAD = re.compile(r" \| head -(\d+)$")


def commands() -> list[tuple[list[str], int | None, str]]:
    """(arguments, lines shown or None, output) of each klsym command that is shown with its output."""
    found = []
    for block in CONSOLE:
        first, _, output = block.partition("\n")
        if first.startswith("$ klsym ") and output:
            cut = HEAD.search(first)
            words = shlex.split(HEAD.sub("", first).removeprefix("$ klsym "))
            found.append((words, int(cut[1]) if cut else None, output))
    return found


@pytest.mark.parametrize(("arguments", "lines", "output"), commands(), ids=str)
def test_console_output_is_real(arguments, lines, output, capsys, monkeypatch):
    if arguments[0] in ("audit", "measure"):
        pytest.importorskip("torch")
        monkeypatch.chdir(HOME)
    faulty = ("detached_ratio_k3", "grpo_with_padding")
    fails = "--diff" in arguments or any(name in word for name in faulty for word in arguments)
    assert main(arguments) == int(fails)  # 1: an error is found, or there is a change
    assert capsys.readouterr().out.splitlines()[:lines] == output.splitlines()


@pytest.mark.parametrize(
    ("chosen", "page"),
    [
        ("gradients --only k2 k3 --columns loss gradient coefficient claim", "docs/guides/read-a-verdict.md"),
        ("practice --columns use write variance claim", "docs/guides/choose-a-penalty.md"),
    ],
)
def test_the_tables_are_what_the_command_prints(chosen, page, capsys):
    assert main(["tables", *chosen.split(), "--format", "markdown"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(rows) > 10 and "\n".join(rows) in PAGES[page]


def test_each_notebook_is_linked_by_its_title_and_the_figure_is_drawn():
    folder = HOME / "notebooks"
    listed = (HOME / "docs" / "notebooks.md").read_text(encoding="utf-8")
    for path in folder.glob("*.ipynb"):
        first = json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"]
        title = "".join(first).splitlines()[0].removeprefix("# ")
        assert f"[{title}](../notebooks/{path.name})" in listed
    script = runpy.run_path(str(folder / "readme_figure.py"))
    stored = (HOME / "docs" / "figure.png").read_bytes()
    assert script["main"](["--check"]) == 0
    assert not script["is_same_picture"](stored, b"") and not script["is_same_picture"](b"", stored)


def test_the_commands_are_shown():
    """The tests find every command with an output, with its arguments; no command is shown twice with it."""
    found = [(*arguments, lines) for arguments, lines, _ in commands()]
    assert len(found) == 70 == len(set(found))
    assert {words[0] for words in found} == {
        "explain", "recommend", "audit", "optimum", "divergence", "compare",
        "measure",
    }  # fmt: skip


def test_make_targets_exist():
    makefile = (HOME / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^\$ make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
