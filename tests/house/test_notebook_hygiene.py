"""What nbval does not look at: a notebook can pass it without anything being compared.

nbval skips a cell without execution count, ignores the order of the counts, and runs
into false alarms on stderr, addresses and paths. Nor does it read: a notebook asks a
question under the number of its file, quotes a claim of the ledger instead of typing
its formula again, ends with what to do in code, and names the next one. So each stored notebook is held to a
few rules here, and each rule is shown to catch the notebook that breaks it.
"""

import copy
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from klsym.engine.answers.dispatch import as_written
from klsym.errors import UsageError

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
NAME = re.compile(r"(\d\d)-[a-z-]+\.ipynb")
HEADING = re.compile(r"^#+ .*$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)  # a # in there is a comment
ADVICE = "## What to do in code"
LINKED = re.compile(r"\]\((\d\d-[a-z-]+\.ipynb)\)")
QUOTING = re.compile(r"""^[^#\n]*\bklsym\.claim\(""", re.MULTILINE)
DISPLAYED = re.compile(r"\$\$|\\\[|\\begin\{")
CODE_SPAN = re.compile(r"`([^`\n]+)`")
LOG_PROBABILITY = re.compile(r"\blog_?(p|q|mu|pi|prob)")
# Markers with which a cell is not run, not compared, or allowed to fail.
SKIPPING = re.compile(
    r"(nbval|pytest[-_]validate)[-_](skip|ignore[-_]output|raises[-_]exception)|raises-exception",
    re.IGNORECASE,
)
ASSERTION = re.compile(r"^\s*assert\b", re.MULTILINE)
DEEP = re.compile(r"^\s*(?:import klsym\.|from klsym\b(?!\.calculus import \*$))", re.MULTILINE)
ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+")
# A slash that starts a word of two parts or more; fractions and URLs have something before it.
ABSOLUTE_PATH = re.compile(r"""(?:^|[\s"'(=])/[\w.-]+/[\w.-]|\b[A-Z]:\\\w+\\""", re.MULTILINE)


def defects(notebook: dict, name: str) -> list[str]:
    """Every rule that the notebook in a file of this name breaks."""
    return [*layout_defects(notebook, name), *output_defects(notebook)]


def layout_defects(notebook: dict, name: str) -> list[str]:
    """What is wrong with how it reads."""
    first, cells = notebook["cells"][0], notebook["cells"]
    prose = [text(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    code = [text(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    headings = [line for source in prose for line in HEADING.findall(FENCED.sub("", source))]
    titles = [line for line in headings if line.startswith("# ")]
    numbered = NAME.fullmatch(name)
    title = f"# {int(numbered[1])}. " if numbered else ""
    rules = {
        "the file has no number": not numbered,
        "the title has another number": [line.startswith(title) for line in titles] != [True],
        "the title does not come first": first["cell_type"] != "markdown"
        or not text(first["source"]).startswith("# "),
        "the title is no question": not any(line.endswith("?") for line in titles),
        "the last section is not what to do in code": headings[-1:] != [ADVICE],
        "no claim is quoted": not any(map(QUOTING.search, code)),
        "a displayed formula is typed": any(map(DISPLAYED.search, prose)),
    }
    return [rule for rule, broken in rules.items() if broken]


def output_defects(notebook: dict) -> list[str]:
    """What is wrong with what is stored."""
    cells = notebook["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    outputs = [output for cell in code for output in cell["outputs"]]
    sources = [text(cell["source"]) for cell in code]
    shown = [string for output in outputs for string in printed(output)]
    rules = {
        "counts are not 1..n": [cell["execution_count"] for cell in code] != list(range(1, len(code) + 1)),
        "a code cell is empty": not all(source.strip() for source in sources),
        "output on stderr": any(output.get("name") == "stderr" for output in outputs),
        "an address": any(map(ADDRESS.search, shown)),
        "an absolute path": any(map(ABSOLUTE_PATH.search, sources + shown)),
        "metadata is not minimal": notebook["metadata"] != METADATA
        or any(cell["metadata"].keys() - {"tags", "mystnb"} for cell in cells),
        "no stored output": not outputs,
        "a cell hides from nbval": any(
            SKIPPING.search(f"{text(cell['source'])} {cell['metadata'].get('tags')}") for cell in code
        ),
        "no assertion": not any(map(ASSERTION.search, sources)),
        "a module of the engine is imported": any(map(DEEP.search, sources)),
    }
    return [rule for rule, broken in rules.items() if broken]


def advised_losses(notebook: dict) -> list[str]:
    """The code in the advice that names a log-probability."""
    prose = "\n".join(text(c["source"]) for c in notebook["cells"] if c["cell_type"] == "markdown")
    spans = CODE_SPAN.findall(FENCED.sub("", prose.partition(ADVICE)[2]))
    return [span for span in spans if LOG_PROBABILITY.search(span)]


def pointed_at(notebook: dict) -> list[str]:
    """The notebooks that its last cell links to, if that is prose."""
    last = notebook["cells"][-1]
    return LINKED.findall(text(last["source"])) if last["cell_type"] == "markdown" else []


def text(lines: str | list[str]) -> str:
    """The notebook format stores a string whole or as a list of lines."""
    return "".join(lines)


def printed(output: dict) -> Iterator[str]:
    """The readable parts of an output; pictures in base64 are not."""
    if "text" in output:
        yield text(output["text"])
    for kind, value in output.get("data", {}).items():
        if kind not in ("image/png", "image/jpeg", "image/svg+xml"):
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


def prose_cell(*lines: str) -> dict:
    return {"cell_type": "markdown", "id": "cell-0", "metadata": {}, "source": "\n".join(lines)}


GOOD_NAME = "04-fractions.ipynb"
GOOD = {
    "cells": [
        prose_cell("# 4. What is q/p?", "", "It is r, and r costs $5."),
        code_cell(1, "print(1/2/4, 'see https://a.example/b/c')", stream("0.125 /n\n")),
        code_cell(2, 'assert klsym.claim("value.ratio").trust == "kernel"'),
        prose_cell("## What to do in code", "", "```", "# divide", "```"),
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


TITLE, ADVISES = ("cells", 0, "source"), ("cells", 3, "source")
CODE, OUTPUTS, QUOTES = ("cells", 1), ("cells", 1, "outputs"), ("cells", 2, "source")
TAGS = (*CODE, "metadata")
HIDDEN, TYPED = "a cell hides from nbval", "a displayed formula is typed"
LAST = "the last section is not what to do in code"
BAD = [
    ("the title has another number", broken(TITLE, "# 5. What is q/p?")),
    ("the title has another number", broken(TITLE, "# 44. What is q/p?")),
    ("the title has another number", broken(TITLE, "# 4. What is q/p?\n\n# 4. And p/q?")),
    ("the title does not come first", broken(TITLE, "## Before\n# 4. What is q/p?")),
    ("the title does not come first", broken(("cells",), [GOOD["cells"][i] for i in (1, 0, 2, 3)])),
    ("the title is no question", broken(TITLE, "# 4. The ratio q/p")),
    (LAST, broken(ADVISES, "## What to do")),
    (LAST, broken(ADVISES, "```\n## What to do in code\n```")),
    (LAST, broken(ADVISES, "## What to do in code\n\nNothing.\n\n## Sources")),
    ("no claim is quoted", broken(QUOTES, 'assert settle("value.ratio")')),
    ("no claim is quoted", broken(QUOTES, '# klsym.claim("value.ratio")\nassert True')),
    (TYPED, broken(TITLE, "# 4. What is q/p?\n$$ r = p/q $$")),
    (TYPED, broken(TITLE, "# 4. What is q/p?\n\\[ r = p/q \\]")),
    (TYPED, broken(ADVISES, ADVICE + "\n\\begin{equation} r = p/q \\end{equation}")),
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
    ("metadata is not minimal", broken(TAGS, {"execution": {"start": 0}})),
    ("no stored output", broken(OUTPUTS, [])),
    (HIDDEN, broken((*CODE, "source"), "# NBVAL_IGNORE_OUTPUT\nprint(1)")),
    (HIDDEN, broken((*CODE, "source"), "print(1)\n# PYTEST_VALIDATE_IGNORE_OUTPUT")),
    (HIDDEN, broken(TAGS, {"tags": ["nbval-skip"]})),
    (HIDDEN, broken(TAGS, {"tags": ["nbval-raises-exception"]})),
    (HIDDEN, broken(TAGS, {"tags": ["raises-exception"]})),
    (
        "a module of the engine is imported",
        broken(QUOTES, "from klsym.engine import x\nassert klsym.claim('a')"),
    ),
    ("a module of the engine is imported", broken(QUOTES, "import klsym.kernel\nassert klsym.claim('a')")),
    ("a module of the engine is imported", broken(QUOTES, "from klsym import x\nassert klsym.claim('a')")),
    ("no assertion", broken(QUOTES, 'asserted = klsym.claim("value.ratio")  # assert')),
]


def test_there_are_notebooks():
    assert NOTEBOOKS


def test_the_numbers_are_a_reading_order():
    """No number twice, none left out."""
    numbers = [int(path.name[:2]) for path in NOTEBOOKS]
    assert numbers == list(range(1, len(NOTEBOOKS) + 1))


@pytest.mark.parametrize(("path", "following"), list(itertools.pairwise([*NOTEBOOKS, *NOTEBOOKS[:1]])))
def test_each_notebook_ends_with_the_next(path, following):
    """The last one points back to the first."""
    assert pointed_at(json.loads(path.read_text(encoding="utf-8"))) == [following.name]


def test_a_link_counts_in_the_last_cell_and_in_prose_only():
    link = "**Next.** [notebook 5](05-next.ipynb) asks more."
    assert pointed_at({"cells": [*GOOD["cells"], prose_cell(link)]}) == ["05-next.ipynb"]
    assert pointed_at(GOOD) == pointed_at({"cells": [prose_cell(link), *GOOD["cells"]]}) == []
    assert pointed_at({"cells": [code_cell(1, f"# {link}")]}) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_is_clean(path):
    assert defects(json.loads(path.read_text(encoding="utf-8")), path.name) == []


def test_a_good_notebook_has_no_defect():
    assert defects(GOOD, GOOD_NAME) == []


@pytest.mark.parametrize(("defect", "notebook"), BAD)
def test_each_defect_is_flagged_alone(defect, notebook):
    assert defects(notebook, GOOD_NAME) == [defect]


@pytest.mark.parametrize("name", ["fractions.ipynb", "4-fractions.ipynb", "04_Fractions.ipynb"])
def test_a_file_without_a_number_is_flagged(name):
    assert defects(GOOD, name) == ["the file has no number"]


ADVISED = {  # what the code of the advice is, in the order of the notebooks
    "01": ["k3"], "02": ["k2", "k1"], "03": ["-A*rho", "-A*exp(log_q - sg(log_q))"],
    "05": ["sg(k1)"], "09": ["r"], "10": ["k2"], "22": ["k1"],
}  # fmt: skip


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_the_advice_can_be_pasted(path):
    """klsym explain reads the code that a notebook recommends as the loss that the notebook speaks of."""
    found = advised_losses(json.loads(path.read_text(encoding="utf-8")))
    assert [str(as_written(loss, ()).expression) for loss in found] == ADVISED.get(path.name[:2], [])
    for loss in found:  # a line for each statement, as in a file
        assert as_written(loss.replace("; ", "\n"), ()).expression == as_written(loss, ()).expression


@pytest.mark.parametrize("loss", ["d = logp - logq; k3 = torch.expm1(d) - d", "loss = 0.5*(logq - logp)**2",
                                  "w = (logq - logmu).exp()", "0.5 * (logp - ref) ** 2"])  # fmt: skip
def test_advice_that_cannot_be_pasted_is_found(loss):
    advice = {"cells": [prose_cell("## What to do in code", "", f"- Write `{loss}`.")]}
    assert advised_losses(advice) == [loss]
    with pytest.raises(UsageError):
        as_written(loss, ())
