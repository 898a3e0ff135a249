"""Change any text that a notebook stores, and nbval fails: nothing in it is printed unchecked.

nbval's own comparison judges, on its own items: the stored outputs stand for what a run prints, a
corrupted copy for what the file holds.  No notebook is run for that.  One small run with real kernels,
at the end, shows that a failed comparison fails the run.
"""

import copy
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbval.plugin import IPyNbFile, coalesce_streams

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
PICTURES = ("image/png", "image/jpeg")  # the only thing stored that nbval does not compare


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


def agrees(cell, printed, stored):
    """As in IPyNbCell.runtest: what was printed beside what is stored."""
    printed, stored = (coalesce_streams(copy.deepcopy(outputs)) for outputs in (printed, stored))
    return cell.compare_outputs(printed, stored)


# ---------------------------------------------------------------------------- corruptions
def texts(output):
    """Where an output stores text: (the dictionary, the key)."""
    if output.output_type == "stream":
        return [(output, "text")]
    return [(output.data, kind) for kind in output.get("data", {}) if kind not in PICTURES]


def changed(value):
    """The same text with one character changed, in the middle; other data with a key more."""
    if not isinstance(value, str):
        return {**value, "changed": True}
    middle = len(value) // 2
    return value[:middle] + ("x" if value[middle : middle + 1] != "x" else "y") + value[middle + 1 :]


CORRUPTIONS = {
    "a character changed": lambda value: changed(value),
    "the last character left out": lambda value: value[:-1] if isinstance(value, str) else {},
    "a space more": lambda value: value + " " if isinstance(value, str) else {**value, " ": ""},
    "emptied": lambda value: "" if isinstance(value, str) else {},
}


def corrupted(outputs):
    """Every way to corrupt one text or to lose one text or output: (what was done, the corrupted outputs)."""
    for i, output in enumerate(outputs):
        yield f"output {i} is gone", [*outputs[:i], *outputs[i + 1 :]]
        yield f"output {i} is there twice", [*outputs[: i + 1], *outputs[i:]]
        for j, (_, kind) in enumerate(texts(output)):
            for what, corrupt in CORRUPTIONS.items():
                copied = copy.deepcopy(outputs)
                holder, key = texts(copied[i])[j]
                holder[key] = corrupt(holder[key])
                yield f"output {i}, {kind}: {what}", copied
            if output.output_type != "stream":
                copied = copy.deepcopy(outputs)
                del copied[i].data[kind]
                yield f"output {i}, {kind} is gone", copied


def unnoticed(cell):
    """The corruptions of the stored outputs that nbval would not see."""
    stored = cell.cell.outputs
    return [what for what, outputs in corrupted(stored) if agrees(cell, stored, outputs)]


def unchecked(cell):
    """The outputs that nbval would accept whatever they hold."""
    skipped = cell.parent.skip_compare
    keys = [[key for _, key in texts(output) if key not in skipped] for output in cell.cell.outputs]
    return [i for i, checked in enumerate(keys) if not checked]


# ---------------------------------------------------------------------------- the notebooks
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_every_cell_is_compared(path, request):
    cells = cells_of(path, request)
    assert cells
    assert [cell.name for cell in cells if not compared(cell)] == []
    assert [cell.name for cell in cells if unchecked(cell)] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_any_corruption_of_a_stored_text_is_noticed(path, request):
    cells = cells_of(path, request)
    assert all(agrees(cell, cell.cell.outputs, cell.cell.outputs) for cell in cells)
    assert [(cell.name, what) for cell in cells for what in unnoticed(cell)] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_an_output_that_is_not_stored_is_noticed(path, request):
    """Stripping the outputs of a cell does not make it pass."""
    cells = [cell for cell in cells_of(path, request) if cell.cell.outputs]
    assert cells
    assert not any(agrees(cell, cell.cell.outputs, []) for cell in cells)


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


PICTURE = result(image_png="iVBORw0KGgo=")
PRINTED = nbformat.v4.new_output("stream", name="stdout", text="1\n")


def only_cell(tmp_path, request, source="1", outputs=(PRINTED,), **fields):
    notebook = notebook_of((source, outputs))
    notebook.cells[0].update(fields)
    path = tmp_path / "one.ipynb"
    nbformat.write(notebook, path)
    return cells_of(path, request)[0]


def test_a_plain_cell_is_compared(tmp_path, request):
    cell = only_cell(tmp_path, request, "print(1)")
    assert compared(cell) and not unchecked(cell) and not unnoticed(cell)


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
    assert not compared(only_cell(tmp_path, request, **fields))


def test_an_output_that_is_nothing_but_a_picture_is_found(tmp_path, request):
    cell = only_cell(tmp_path, request, outputs=[PRINTED, PICTURE])
    assert unchecked(cell) == [1]
    assert unnoticed(cell) == ["output 1 is gone", "output 1 is there twice"]


def test_a_comparison_that_leaves_latex_out_is_found(tmp_path, request):
    """What an option of nbval could do: every corruption of the LaTeX goes unnoticed."""
    cell = only_cell(tmp_path, request, outputs=[result(text_plain="r", text_latex="$r$")])
    assert unnoticed(cell) == []
    cell.parent.skip_compare += ("text/latex",)
    assert len(unnoticed(cell)) == len(CORRUPTIONS) + 1


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
