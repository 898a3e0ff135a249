"""What nbval does not look at: a notebook can pass it without anything being compared.

nbval skips a cell without execution count, ignores the order of the counts, and runs
into false alarms on stderr, addresses and paths. So each stored notebook is held to a
few rules here, and each rule is shown to catch the notebook that breaks it.
"""

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
SKIPPING = re.compile(r"nbval[-_](skip|ignore[-_]output)", re.IGNORECASE)
ASSERTION = re.compile(r"^\s*assert\b", re.MULTILINE)
ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+")
# A slash that starts a word of two parts or more; fractions and URLs have something before it.
ABSOLUTE_PATH = re.compile(r"""(?:^|[\s"'(=])/[\w.-]+/[\w.-]|\b[A-Z]:\\\w+\\""", re.MULTILINE)


def defects(notebook: dict) -> list[str]:
    """Every rule that the notebook breaks."""
    cells = notebook["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    outputs = [output for cell in code for output in cell["outputs"]]
    sources = [text(cell["source"]) for cell in code]
    shown = [string for output in outputs for string in printed(output)]
    rules = {
        "counts are not 1..n": [cell["execution_count"] for cell in code]
        != list(range(1, len(code) + 1)),
        "a code cell is empty": not all(source.strip() for source in sources),
        "output on stderr": any(output.get("name") == "stderr" for output in outputs),
        "an address": any(map(ADDRESS.search, shown)),
        "an absolute path": any(map(ABSOLUTE_PATH.search, sources + shown)),
        "metadata is not minimal": notebook["metadata"] != METADATA
        or any(cell["metadata"].keys() - {"tags"} for cell in cells),
        "no stored output": not outputs,
        "a cell hides from nbval": any(
            SKIPPING.search(f"{text(cell['source'])} {cell['metadata'].get('tags')}")
            for cell in code
        ),
        "no assertion": not any(map(ASSERTION.search, sources)),
    }
    return [rule for rule, broken in rules.items() if broken]


def text(lines: str | list[str]) -> str:
    """The notebook format stores a string whole or as a list of lines."""
    return "".join(lines)


def printed(output: dict) -> Iterator[str]:
    """The readable parts of an output; pictures in base64 are not."""
    if "text" in output:
        yield text(output["text"])
    for kind, value in output.get("data", {}).items():
        if kind not in ("image/png", "image/jpeg"):
            yield value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def code_cell(count: int, source: str, *outputs: dict) -> dict:
    return {
        "cell_type": "code",
        "id": f"cell-{count}",
        "execution_count": count,
        "metadata": {},
        "outputs": list(outputs),
        "source": source,
    }


def stream(content: str, name: str = "stdout") -> dict:
    return {"output_type": "stream", "name": name, "text": [content]}


GOOD = {
    "cells": [
        {"cell_type": "markdown", "id": "cell-0", "metadata": {}, "source": "q/p is r"},
        code_cell(1, "print(1/2/4, 'see https://a.example/b/c')", stream("0.125 /n\n")),
        code_cell(2, "assert 1 < 2"),
    ],
    "metadata": METADATA,
    "nbformat": 4,
    "nbformat_minor": 5,
}


def broken(place: tuple, value: object) -> dict:
    """The good notebook with one value changed."""
    notebook = copy.deepcopy(GOOD)
    *path, last = place
    target = notebook
    for key in path:
        target = target[key]
    target[last] = value
    return notebook


CODE, OUTPUTS = ("cells", 1), ("cells", 1, "outputs")
BAD = [
    ("counts are not 1..n", broken((*CODE, "execution_count"), None)),
    ("counts are not 1..n", broken((*CODE, "execution_count"), 3)),
    ("a code cell is empty", broken((*CODE, "source"), [" \n"])),
    ("output on stderr", broken(OUTPUTS, [stream("a warning", name="stderr")])),
    ("an address", broken(OUTPUTS, [stream("<object at 0x7f3a5c>")])),
    ("an address", broken(OUTPUTS, [{"data": {"text/html": ["<i>0x7f3a5c</i>"]}}])),
    ("an absolute path", broken(OUTPUTS, [stream("File '/home/someone/loss.py'")])),
    ("an absolute path", broken(OUTPUTS, [stream("C:\\Users\\someone")])),
    ("an absolute path", broken((*CODE, "source"), "open('/data/losses.txt')")),
    ("metadata is not minimal", broken(("metadata", "language_info", "version"), "3.11.7")),
    ("metadata is not minimal", broken((*CODE, "metadata"), {"execution": {"start": 0}})),
    ("no stored output", broken(OUTPUTS, [])),
    ("a cell hides from nbval", broken((*CODE, "source"), "# NBVAL_IGNORE_OUTPUT\nprint(1)")),
    ("a cell hides from nbval", broken((*CODE, "metadata"), {"tags": ["nbval-skip"]})),
    ("no assertion", broken(("cells", 2, "source"), "asserted = 1  # assert")),
]


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_is_clean(path):
    assert defects(json.loads(path.read_text(encoding="utf-8"))) == []


def test_a_good_notebook_has_no_defect():
    assert defects(GOOD) == []


@pytest.mark.parametrize(("defect", "notebook"), BAD)
def test_each_defect_is_flagged_alone(defect, notebook):
    assert defects(notebook) == [defect]
