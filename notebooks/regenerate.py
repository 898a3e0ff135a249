"""Runs the notebooks and stores their outputs, byte for byte the same every time.

Usage, with the Python that has klsym and the packages of the lock:

    python notebooks/regenerate.py                  # all notebooks, in place
    python notebooks/regenerate.py a.ipynb b.ipynb  # only these
    python notebooks/regenerate.py --check          # write nothing, fail on any difference
    python notebooks/regenerate.py --check --needing torch  # only those that need this package
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellControlSignal, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

FOLDER = Path(__file__).parent
DRAWING = "image/svg+xml"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
NEAR = 0.03  # points: what the last bits of a processor's arithmetic may move
CELL_TIMEOUT = 120  # seconds, the same as nbval gets in the Makefile
NEEDS = dict.fromkeys(  # packages that klsym does not install
    (
        "15-a-real-network.ipynb",
        "16-what-released-code-targets.ipynb",
        "20-audit-and-measure-your-trainer.ipynb",
        "21-what-trainers-minimise.ipynb",
    ),
    "torch",
)
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


class NotebookFailure(Exception):
    """A notebook that cannot be read or run; the message is one line."""


def main(argv: list[str] | None = None) -> int:
    """Regenerates or checks the named notebooks; returns the exit status."""
    parser = argparse.ArgumentParser(description="Runs the notebooks and stores their outputs.")
    parser.add_argument("files", nargs="*", type=Path, help="all of this folder if none is named")
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    parser.add_argument("--needing", metavar="PACKAGE", help="only notebooks that need this package")
    options = parser.parse_args(argv)
    paths = options.files or sorted(FOLDER.glob("*.ipynb"))
    if options.needing:
        paths = [path for path in paths if NEEDS.get(path.name) == options.needing]
    if not paths:
        print(f"no notebook in {FOLDER}", file=sys.stderr)
        return 1
    step = check if options.check else rewrite
    left_out = lacking()
    for path in paths:
        if path.name in left_out:
            print(f"{path.name}: left out, it needs {NEEDS[path.name]}", flush=True)
    failed = [path for path in paths if path.name not in left_out and not run_step(step, path)]
    return 1 if failed else 0


def lacking() -> list[str]:
    """The notebooks whose packages are not installed."""
    return [name for name, package in NEEDS.items() if importlib.util.find_spec(package) is None]


def run_step(step: Callable[[Path], str], path: Path) -> bool:
    """Takes one step on one notebook; says on one line what came of it."""
    try:
        print(f"{path.name}: {step(path)}", flush=True)
    except NotebookFailure as failure:
        print(f"{path.name}: {failure}", file=sys.stderr, flush=True)
        return False
    return True


def rewrite(path: Path) -> str:
    """Stores the fresh outputs in the file."""
    fresh = regenerated(path)
    if fresh == path.read_bytes():
        return "unchanged"
    path.write_bytes(fresh)
    return "rewritten"


def check(path: Path) -> str:
    """Compares the file with the fresh outputs, in memory only."""
    if regenerated(path) != path.read_bytes():
        raise NotebookFailure("differs from its regenerated form; run `make notebooks`")
    return "up to date"


def regenerated(path: Path) -> bytes:
    """The bytes that the file should hold; a stored drawing stays while it is the same."""
    notebook = read(path)
    stored = pictures(notebook)
    execute(notebook, path.parent)
    normalise(notebook)
    for place, fresh in pictures(notebook).items():
        if place in stored and is_same_drawing(stored[place][DRAWING], fresh[DRAWING]):
            fresh[DRAWING] = stored[place][DRAWING]
    return (nbformat.writes(notebook) + "\n").encode()  # nbformat: indent 1, sorted, not ASCII only


def pictures(notebook: NotebookNode) -> dict[tuple[int, int], NotebookNode]:
    """The data of each output that holds a picture, by cell and output."""
    return {
        (i, j): output.data
        for i, cell in enumerate(notebook.cells)
        for j, output in enumerate(cell.get("outputs", []))
        if DRAWING in output.get("data", {})
    }


def is_same_drawing(stored: str | list[str], fresh: str | list[str]) -> bool:
    """Are two drawings the same, but for numbers that are NEAR each other?"""
    one, other = "".join(stored), "".join(fresh)
    if one == other:
        return True
    if NUMBER.sub("", one) != NUMBER.sub("", other):
        return False
    pairs = zip(NUMBER.findall(one), NUMBER.findall(other), strict=True)
    return all(a == b or abs(float(a) - float(b)) <= NEAR for a, b in pairs)  # an id may read as inf


def read(path: Path) -> NotebookNode:
    """The notebook in the newest format, which has cell ids; invalid ones are refused."""
    try:
        notebook = nbformat.read(path, as_version=4)
        number_cells(notebook)  # before validating: a missing id is given here
        nbformat.validate(notebook)
    except (OSError, ValueError, TypeError, AttributeError, nbformat.ValidationError) as error:
        raise NotebookFailure(f"cannot be read: {first_line(error)}") from error
    return notebook


def number_cells(notebook: NotebookNode) -> None:
    """Fixed ids: those that editors give are random."""
    notebook.nbformat_minor = 5
    for number, cell in enumerate(notebook.cells, start=1):
        cell.id = f"cell-{number}"


def execute(notebook: NotebookNode, folder: Path) -> None:
    """Runs the cells in order, in the folder, with the interpreter of this script."""
    client = NotebookClient(
        notebook,
        km=AsyncKernelManager(kernel_spec_manager=native_kernel_only()),
        timeout=CELL_TIMEOUT,
        record_timing=False,
        coalesce_streams=True,  # how prints are cut into messages is a matter of timing
        resources={"metadata": {"path": str(folder)}},
        extra_arguments=["--log-level=ERROR"],  # no notice on how the kernel is connected
    )
    with client.setup_kernel(cleanup_kc=True):  # the kernel ends with its notebook
        for index, cell in enumerate(notebook.cells):
            run_cell(client, cell, index)


def native_kernel_only() -> KernelSpecManager:
    """Ignores the kernels a user has installed, which may belong to another Python."""
    return KernelSpecManager(kernel_dirs=[])


def run_cell(client: NotebookClient, cell: NotebookNode, index: int) -> None:
    """Runs one cell; its error, if any, becomes one line that names the cell.

    History stays off because nbval keeps it off: with history a trailing `;` would hide
    an output here that nbval then finds.
    """
    try:
        client.execute_cell(cell, index, store_history=False)
    except (CellControlSignal, CellTimeoutError, DeadKernelError) as error:
        raise NotebookFailure(f"{cell.id}: {reason(error)}") from error


def reason(error: Exception) -> str:
    """The exception of the cell if there is one, else what became of the kernel."""
    name, value = getattr(error, "ename", ""), getattr(error, "evalue", "")
    return first_line(f"{name}: {value}" if name else error)


def first_line(message: object) -> str:
    """One line of a message that may have many."""
    return str(message).strip().partition("\n")[0]


def normalise(notebook: NotebookNode) -> None:
    """Leaves nothing that depends on the machine, the editor or the time."""
    notebook.metadata = METADATA
    for cell in notebook.cells:
        tags = cell.metadata.get("tags")  # tags steer nbval; other metadata is the editor's
        cell.metadata = ({"tags": tags} if tags else {}) | describe_picture(cell)
    code_cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for count, cell in enumerate(code_cells, start=1):
        set_count(cell, count)


def describe_picture(cell: NotebookNode) -> dict[str, Any]:
    """The words for those who do not see the picture of a cell, where the site looks for them."""
    alts = [output.metadata.get(DRAWING, {}).get("alt") for output in cell.get("outputs", [])
            if output.output_type != "stream"]  # fmt: skip
    return {"mystnb": {"image": {"alt": alts[0]}}} if any(alts) else {}


def set_count(cell: NotebookNode, count: int) -> None:
    """Gives a code cell and its result the same execution count."""
    cell.execution_count = count
    for output in cell.outputs:
        if output.output_type == "execute_result":
            output.execution_count = count


if __name__ == "__main__":
    raise SystemExit(main())
