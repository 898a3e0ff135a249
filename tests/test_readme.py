"""The README's code runs, and prints what the README says."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from klsym.cli import main

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
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
    assert len(PYTHON) == 3
    for code in PYTHON:
        assert printed_by(code, namespace).splitlines() == promised(code)


def commands() -> list[tuple[list[str], str]]:
    """(arguments, output) of each klsym command that is shown with its output."""
    found = []
    for block in CONSOLE:
        first, _, output = block.partition("\n")
        if first.startswith("$ klsym ") and output:
            found.append((shlex.split(first.removeprefix("$ klsym ")), output))
    return found


@pytest.mark.parametrize(("arguments", "output"), commands(), ids=str)
def test_console_output_is_real(arguments, output, capsys):
    assert main(arguments) == 0
    assert capsys.readouterr().out == output


def test_the_commands_are_shown():
    assert [arguments for arguments, _ in commands()] == [
        ["explain", "k3"],
        ["compare", "rho*k1", "rho*k3", "--sampling", "off-policy"],
        ["explain", "k1", "--level", "token", "--aggregate", "mean"],
    ]


def test_make_targets_exist():
    makefile = (Path(__file__).parent.parent / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^\$ make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
