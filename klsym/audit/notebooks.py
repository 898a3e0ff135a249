"""The code cells of a notebook as one Python file: `nb.ipynb:func`, or `nb.ipynb:3` for the third of them.

If a cell ends with the definition of a function, that function is audited.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import TYPE_CHECKING

from klsym.errors import UsageError

if TYPE_CHECKING:
    from klsym.audit.source import File

NOTEBOOK = ".ipynb"
HEAD = "# klsym reads cell "  # before each cell; lines of messages count from the first head on
COMMANDS = ("%", "!", "?")  # lines that IPython runs


def join_cells(path: Path, text: str) -> str:
    """Return the code of all cells, each below a line with its number; commands of IPython are left out.

    Raises UsageError: it is no notebook.
    """
    try:
        cells = [c["source"] for c in json.loads(text)["cells"] if c["cell_type"] == "code"]
        sources = ["".join(source).splitlines() for source in cells]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise UsageError(f"{path}: no notebook") from None
    lines: list[str] = []
    for number, source in enumerate(sources, start=1):
        lines.append(f"{HEAD}{number}")
        is_python = not (source and source[0].startswith("%%"))
        lines += [f"# {x}" if not is_python or x.lstrip().startswith(COMMANDS) else x for x in source]
    return "\n".join([*lines, ""])


def list_lasting(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements of cells without variables that are computed: no cell is run for them."""
    return [n for n in body if not isinstance(n, ast.Assign) or isinstance(n.value, ast.Constant)]


def find_cell(file: File, number: int) -> str:
    """Return the lines of a cell, such as 12-30, without calls at its end; or the function that it ends in.

    Raises UsageError: there is no such cell, or it has no code.
    """
    lines = file.text.splitlines()
    heads = [n for n, line in enumerate(lines, start=1) if line.startswith(HEAD)]
    ends = [0, *heads, len(lines) + 1][number : number + 2]
    inside = [node for node in file.tree.body if len(ends) == 2 and ends[0] < node.lineno < ends[1]]
    while inside and isinstance(inside[-1], ast.Expr) and isinstance(inside[-1].value, ast.Call):
        inside.pop()  # loss.backward(), print(loss)
    if not inside:
        raise UsageError(f"{file.path}: no code in cell {number} (there are {len(heads)} cells of code)")
    end = inside[-1]
    return end.name if isinstance(end, ast.FunctionDef) else f"{inside[0].lineno}-{end.end_lineno}"
