"""Runs the notebooks and stores their outputs, byte for byte the same every time.

Usage, with the Python that has klsym and the packages of the lock:

    python notebooks/regenerate.py                  # all notebooks, in place
    python notebooks/regenerate.py a.ipynb b.ipynb  # only these
    python notebooks/regenerate.py --check          # write nothing, fail on any difference
"""

from __future__ import annotations

import argparse
import base64
import importlib.util
import io
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import numpy as np
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellControlSignal, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from PIL import Image

FOLDER = Path(__file__).parent
LEVELS, CORNERS = 3, 1e-3
CELL_TIMEOUT = 120  # seconds, the same as nbval gets in the Makefile
NEEDS = dict.fromkeys(  # packages that klsym does not install
    ("15-a-real-network.ipynb", "16-what-released-code-targets.ipynb"), "torch"
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
    options = parser.parse_args(argv)
    paths = options.files or sorted(FOLDER.glob("*.ipynb"))
    if not paths:
        print(f"no notebook in {FOLDER}", file=sys.stderr)
        return 1
    step = check if options.check else rewrite
    left_out = lacking()
    for path in paths:
        if path.name in left_out:
            print(f"{path.name}: left out, it needs {NEEDS[path.name]}", flush=True)
    failed = [path for path in paths if path.name not in left_out and not succeeds(step, path)]
    return 1 if failed else 0


def lacking() -> list[str]:
    """The notebooks whose packages are not installed."""
    return [name for name, package in NEEDS.items() if importlib.util.find_spec(package) is None]


def succeeds(step: Callable[[Path], str], path: Path) -> bool:
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
    """The bytes that the file should hold; a stored picture stays while it is the same."""
    notebook = read(path)
    stored = pictures(notebook)
    execute(notebook, path.parent)
    normalise(notebook)
    for place, fresh in pictures(notebook).items():
        if place in stored and same_picture(stored[place]["image/png"], fresh["image/png"]):
            fresh["image/png"] = stored[place]["image/png"]
    return (nbformat.writes(notebook) + "\n").encode()  # nbformat: indent 1, sorted, not ASCII only


def pictures(notebook: NotebookNode) -> dict[tuple[int, int], NotebookNode]:
    """The data of each output that holds a picture, by cell and output."""
    return {
        (i, j): output.data
        for i, cell in enumerate(notebook.cells)
        for j, output in enumerate(cell.get("outputs", []))
        if "image/png" in output.get("data", {})
    }


def same_picture(stored: str, fresh: str) -> bool:
    """Are two pictures the same, but for what the last bits of a processor's arithmetic decide?

    The corner of a line may be painted a shade lighter on another processor: LEVELS of 255, in no more than
    a share CORNERS of the pixels.
    """
    if stored == fresh:
        return True
    try:
        a, b = (np.asarray(Image.open(io.BytesIO(base64.b64decode(one))), int) for one in (stored, fresh))
    except (OSError, ValueError):  # what is stored is no picture
        return False
    if a.shape != b.shape:
        return False
    apart = np.abs(a - b).max(axis=-1)
    return bool(apart.max() <= LEVELS and (apart > 0).mean() <= CORNERS)


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
        cell.metadata = {"tags": tags} if tags else {}
    code_cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for count, cell in enumerate(code_cells, start=1):
        set_count(cell, count)


def set_count(cell: NotebookNode, count: int) -> None:
    """Gives a code cell and its result the same execution count."""
    cell.execution_count = count
    for output in cell.outputs:
        if output.output_type == "execute_result":
            output.execution_count = count


if __name__ == "__main__":
    raise SystemExit(main())
