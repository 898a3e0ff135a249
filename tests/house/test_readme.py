"""The README's code runs, and prints what the README says."""

import base64
import contextlib
import io
import json
import re
import shlex
from pathlib import Path

import pytest

from klsym.cli import main

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
CONSOLE = re.findall(r"```console\n(.*?)```", README, re.DOTALL)


def printed_by(code: str, namespace: dict) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "README.md", "exec"), namespace)
    return out.getvalue()


def promised(code: str) -> list[str]:
    """Whole-line comments after a print are what it prints."""
    return [line.removeprefix("# ") for line in code.splitlines() if line.startswith("# ")]


def test_python_blocks_print_what_they_promise():
    namespace: dict = {}
    assert len(PYTHON) == 4
    for code in PYTHON:
        assert printed_by(code, namespace).splitlines() == promised(code)


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
    if arguments[0] == "audit":
        pytest.importorskip("torch")
        monkeypatch.chdir(Path(__file__).parents[2])
    assert main(arguments) == 0
    assert capsys.readouterr().out.splitlines()[:lines] == output.splitlines()


@pytest.mark.parametrize(
    "chosen",
    [
        "gradients --only k2 k3 --columns loss gradient coefficient claim",
        "practice --columns use write variance claim",
    ],
)
def test_the_tables_are_what_the_command_prints(chosen, capsys):
    assert main(["tables", *chosen.split(), "--format", "markdown"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(rows) > 10 and "\n".join(rows) in README


def test_each_notebook_is_linked_and_the_figure_is_the_one_of_its_notebook():
    home = Path(__file__).parents[2]
    folder, figure = home / "notebooks", home / "docs" / "figure.png"
    for path in folder.glob("*.ipynb"):
        assert f"(notebooks/{path.name})" in README
    cells = json.loads((folder / "03-off-policy-weighting.ipynb").read_text(encoding="utf-8"))["cells"]
    data = (output.get("data", {}) for cell in cells for output in cell.get("outputs", []))
    pictures = ["".join(one["image/png"]) for one in data if "image/png" in one]
    assert [base64.b64decode(one) for one in pictures] == [figure.read_bytes()]


def test_the_commands_are_shown():
    """All that stand in the README with an output are found, with their arguments."""
    found = [arguments for arguments, *_ in commands()]
    assert len(found) == 18 == len({tuple(words) for words in found})
    assert {words[0] for words in found} == {
        "explain", "recommend", "audit", "optimum", "divergence", "compare",
    }  # fmt: skip


def test_make_targets_exist():
    makefile = (Path(__file__).parents[2] / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^\$ make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
