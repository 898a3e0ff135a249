"""pdflatex with its warnings as errors: `python -m klsym.paper.compile paper/klsym.tex build/paper`.

Runs until the references settle; a fixed date makes the same text the same PDF.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from klsym.errors import KlsymError, UsageError
from klsym.escaping import printable
from klsym.files import make_folder, write_whole

RUNS = 5
RERUN = re.compile(r"Rerun to get|Label\(s\) may have changed")
FAULTS = re.compile(
    r"^(?:\S*:\d+: .*|! .*|Overfull .*|(?:LaTeX|Package|pdfTeX)[^\n]* [Ww]arning.*)$", re.MULTILINE
)
HARMLESS = re.compile(r"rerunfilecheck|microtype")
OPTIONS = ("-halt-on-error", "-interaction=nonstopmode", "-file-line-error")
DATE = {"SOURCE_DATE_EPOCH": "0", "FORCE_SOURCE_DATE": "1"}
DATES = r"\pdfinfoomitdate=1\pdfsuppressptexinfo=-1\pdftrailerid{}"


def compile_paper(source: Path, folder: Path) -> Path:
    """The PDF of a LaTeX file, whose parts are looked for in the folder that it is written into, whole.

    Raises UsageError: no pdflatex, or no such file.  KlsymError: an error or a warning of LaTeX, its first
    line.
    """
    program = shutil.which("pdflatex")
    if program is None:
        raise UsageError("pdflatex not found: install texlive-latex-recommended")
    if not source.is_file():
        raise UsageError(f"{source}: no such file")
    make_folder(folder)
    with TemporaryDirectory(prefix="klsym-") as scratch:
        for _ in range(RUNS):
            log = _run(program, source, folder, scratch)
            write_whole(folder / f"{source.stem}.log", log)
            fault = first_fault(log, final=not RERUN.search(log))
            if fault:
                raise KlsymError(f"{source.name}: {fault}")
            if not RERUN.search(log):
                name = f"{source.stem}.pdf"
                return write_whole(folder / name, (Path(scratch) / name).read_bytes())
    raise KlsymError(f"{source.name}: references did not settle in {RUNS} runs")


def _run(program: str, source: Path, folder: Path, scratch: str) -> str:
    """The log of one run."""
    path = os.pathsep.join((scratch, str(folder.resolve()), str(source.parent.resolve()), ""))
    width = {"max_print_line": "1000"}  # no broken lines in the log
    command = [program, *OPTIONS, f"-output-directory={scratch}", f"-jobname={source.stem}"]
    subprocess.run(
        [*command, rf"{DATES}\input{{{source.name}}}"], cwd=source.parent, check=False, capture_output=True,
        env={**os.environ, **DATE, **width, "TEXINPUTS": path},
    )  # fmt: skip
    return (Path(scratch) / f"{source.stem}.log").read_text(encoding="utf-8", errors="replace")


def first_fault(log: str, final: bool = True) -> str:
    """The first error or, once the references have settled, warning in a log; empty if there is none.

    >>> first_fault("Overfull \\\\hbox (3.2pt too wide) in paragraph at lines 4--5")
    'Overfull \\\\hbox (3.2pt too wide) in paragraph at lines 4--5'
    """
    for found in FAULTS.finditer(log):
        line = found.group()
        error = line.startswith("!") or re.match(r"\S*:\d+: ", line)
        if (error or final) and not HARMLESS.search(line):
            return line
    return ""


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print("usage: python -m klsym.paper.compile FILE.tex FOLDER", file=sys.stderr)
        return 2
    try:
        print(printable(str(compile_paper(Path(arguments[0]), Path(arguments[1])))))
    except UsageError as error:
        print(f"klsym: {printable(str(error))}", file=sys.stderr)
        return 2
    except KlsymError as error:
        print(f"klsym: {printable(str(error))}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
