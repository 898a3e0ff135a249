"""nbval compares every output that a notebook stores: no cell is skipped, none holds a picture alone.

nbval's own items judge, and no notebook is run for that.  One small run with real kernels, at the end,
shows that a failed comparison fails the run.
"""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbval.plugin import IPyNbFile

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
PICTURES = ("image/png", "image/jpeg", "image/svg+xml")  # nbval does not compare these


# ---------------------------------------------------------------------------- nbval's judgement
def cells_of(path, request):
    """nbval's test items, one a code cell."""
    cells = list(IPyNbFile.from_parent(request.session, path=path).collect())
    for cell in cells:
        cell.format_output_compare = lambda *_: None  # reporting takes longer than judging
    return cells


def compared(cell):
    """Does nbval compare the outputs of this cell, and demand that it runs without an error?"""
    options = cell.options
    marked = options["skip"] or options["check_exception"] or not options["check"]
    return not marked and cell.cell.execution_count is not None


def unchecked(cell):
    """The outputs that nbval would accept whatever they hold."""
    skipped = cell.parent.skip_compare
    kinds = [
        ["text"] if output.output_type == "stream" else output.get("data", {}) for output in cell.cell.outputs
    ]
    return [i for i, found in enumerate(kinds) if not set(found) - {*PICTURES, *skipped}]


# ---------------------------------------------------------------------------- the notebooks
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_every_cell_is_compared(path, request):
    cells = cells_of(path, request)
    assert cells
    assert [cell.name for cell in cells if not compared(cell)] == []
    assert [cell.name for cell in cells if unchecked(cell)] == []


# ---------------------------------------------------------------------------- the test can fail
def notebook_of(*cells):
    """A notebook of code cells: (source, outputs), counted 1..n."""
    made = [
        nbformat.v4.new_code_cell(source, outputs=list(outputs), execution_count=count)
        for count, (source, outputs) in enumerate(cells, start=1)
    ]
    return nbformat.v4.new_notebook(cells=made)


def result(**data):
    data = {kind.replace("_", "/"): value for kind, value in data.items()}
    return nbformat.v4.new_output("execute_result", data=data, execution_count=1)


def changed(text):
    """The same text with one character changed, in the middle."""
    middle = len(text) // 2
    return text[:middle] + ("x" if text[middle : middle + 1] != "x" else "y") + text[middle + 1 :]


PICTURE = result(image_png="iVBORw0KGgo=")
PRINTED = nbformat.v4.new_output("stream", name="stdout", text="1\n")


def only_cell(tmp_path, request, source="1", outputs=(PRINTED,), **fields):
    notebook = notebook_of((source, outputs))
    notebook.cells[0].update(fields)
    path = tmp_path / "one.ipynb"
    nbformat.write(notebook, path)
    return cells_of(path, request)[0]


@pytest.mark.parametrize(
    "fields",
    [
        {"source": "# NBVAL_SKIP\n1"},
        {"source": "# NBVAL_IGNORE_OUTPUT\n1"},
        {"source": "# NBVAL_RAISES_EXCEPTION\n1"},
        {"metadata": {"tags": ["raises-exception"]}},
        {"metadata": {"tags": ["nbval-ignore-output"]}},
        {"execution_count": None},
    ],
    ids=str,
)
def test_a_cell_that_hides_is_found(fields, tmp_path, request):
    assert compared(only_cell(tmp_path, request))
    assert not compared(only_cell(tmp_path, request, **fields))


def test_an_output_that_is_nothing_but_a_picture_is_found(tmp_path, request):
    assert unchecked(only_cell(tmp_path, request, outputs=[PRINTED, PICTURE])) == [1]


# ---------------------------------------------------------------------------- one real run
SHOWING = """class Shown:
    def __repr__(self):
        return "r"

    def _repr_latex_(self):
        return "$r$"

    def _repr_html_(self):
        return "<i>r</i>"

    def _repr_markdown_(self):
        return "*r*"


Shown()"""
SHOWN = {"text_plain": "r", "text_latex": "$r$", "text_html": "<i>r</i>", "text_markdown": "*r*"}


def test_a_run_fails_on_every_corrupted_cell_and_on_no_other(tmp_path):
    """One kernel: a cell with all kinds of text and one that prints, as they are and corrupted each way."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    other = nbformat.v4.new_output("stream", name="stdout", text="2\n")
    good = [(SHOWING, [result(**SHOWN)]), ("print(1)", [PRINTED])]
    bad = [(SHOWING, [result(**SHOWN | {kind: changed(value)})]) for kind, value in SHOWN.items()]
    cells = [*good, *bad, ("print(1)", [other]), ("print(1)", []), ("None", [PRINTED])]
    nbformat.write(notebook_of(*cells), tmp_path / "tiny.ipynb")
    command = [sys.executable, "-m", "pytest", "-rA", "--nbval", "--nbval-current-env", "--tb=no"]
    command += ["-p", "no:cacheprovider", "--color=no"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert run.returncode == 1, run.stdout + run.stderr
    found = re.findall(r"^(PASSED|FAILED) tiny\.ipynb::Cell (\d+)", run.stdout, re.MULTILINE)
    passed = {int(number) for verdict, number in found if verdict == "PASSED"}
    assert (len(found), passed) == (len(cells), {0, 1}), run.stdout
