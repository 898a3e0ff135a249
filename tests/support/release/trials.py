"""A wheel alone in a fresh environment: what its commands print there is what the pages show."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CLAIM = "gradient.k3-loss"
# Writes a certificate that the wheel has, and one with another right side and the digest of that.
WRITE_CERTIFICATES = f"""
import copy, json
from klsym.kernel import digest
from klsym.study.ledger.stored import entries
good = entries()["{CLAIM}"]["certificate"]
forged = copy.deepcopy(good)
forged["parts"][0]["right"] = []
forged["digest"] = digest(forged["parts"])
for name, certificate in {{"good": good, "forged": forged}}.items():
    open(f"{{name}}.json", "w").write(json.dumps(certificate))
"""
MEASURE = "docs/guides/measure-your-trainer.md"
# Page, how the command begins, exit code: these blocks are run as they stand.
SHOWN = (("README.md", "klsym explain", 0), ("README.md", "klsym recommend", 0))
SHOWN_WITH_TORCH = (
    ("README.md", "klsym audit tests/", 1),
    (MEASURE, "klsym measure docs/examples/tasks.py:grpo_with_padding", 1),
    (MEASURE, "klsym measure docs/examples/tasks.py:grpo ", 0),
)
AUDITED_FILES = ("docs/examples/tasks.py", "tests/support/audits/audited.py")
BLOCK = re.compile(r"^```console\n\$ (klsym .*)\n((?s:.*?))^```$", re.MULTILINE)
HEAD = re.compile(r" \| head -(\d+)$")
HANDED_DOWN = ("PYTHONPATH", "VIRTUAL_ENV", "COLUMNS", "FORCE_COLOR", "NO_COLOR")


@dataclass(frozen=True)
class Trial:
    """A command, its exit code, and its output: the first `lines` lines of it, or all where that is None."""

    words: tuple[str, ...]
    code: int
    expected: str
    lines: int | None = None

    def find_fault(self, done: subprocess.CompletedProcess[str]) -> str | None:
        """Return what differs from what was expected, in one line; None if nothing does."""
        command = shlex.join(("klsym", *self.words))
        if done.returncode != self.code:
            return f"{command}: exit code {done.returncode}, expected {self.code}: {done.stderr[-300:]!r}"
        printed, expected = done.stdout.splitlines()[: self.lines], self.expected.splitlines()
        if printed == expected:
            return None
        line = next((a for a, b in zip(printed, expected, strict=False) if a != b), f"{len(printed)} lines")
        return f"{command}: prints other lines than expected, first {line!r}"


def find_block(page: str, start: str, code: int) -> Trial:
    """Return the one console block of a page whose command begins so, as a trial.

    >>> find_block("```console\\n$ klsym explain k9 | head -1\\nline\\n```\\n", "klsym explain", 0)
    Trial(words=('explain', 'k9'), code=0, expected='line\\n', lines=1)
    """
    [(command, output)] = [block for block in BLOCK.findall(page) if block[0].startswith(start)]
    cut = HEAD.search(command)
    words = shlex.split(HEAD.sub("", command))[1:]
    return Trial(tuple(words), code, output, int(cut[1]) if cut else None)


def list_trials(home: Path, version: str) -> Iterator[Trial]:
    """Yield what is tried with SymPy and mpmath alone.  home: the repository."""
    yield Trial(("--version",), 0, f"klsym {version}\n")
    for page, start, code in SHOWN:
        yield find_block((home / page).read_text(encoding="utf-8"), start, code)
    yield Trial(("explain", "k9"), 2, "")
    yield Trial(("compare", "k1", "k3"), 0, "", lines=0)
    yield Trial(("claims", "gradient"), 0, "", lines=0)
    yield Trial(("check", "good.json"), 0, "ok good.json\n", lines=1)
    yield Trial(("check", "forged.json"), 1, "", lines=0)  # 1: refused, 2 would be: not read
    for command in ("measure", "audit"):
        yield Trial((command, "docs/examples/tasks.py:grpo"), 2, "")


def list_trials_with_torch(home: Path) -> Iterator[Trial]:
    """Yield what is tried with PyTorch: code that is audited and measured."""
    for page, start, code in SHOWN_WITH_TORCH:
        yield find_block((home / page).read_text(encoding="utf-8"), start, code)


@dataclass(frozen=True)
class Environment:
    """A fresh environment of one Python, beside a folder in which commands run."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    def make(self, python: Path, home: Path) -> None:
        """Make it, with the files that are audited where the pages say they are."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in AUDITED_FILES:
            target = self.folder / "work" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(home / name, target)
        subprocess.run([str(python), "-m", "venv", str(self.folder / "venv")], check=True)

    def install(self, *requirements: str) -> str | None:
        """Install with pip; return the end of what it says if that fails."""
        pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        done = self.run(str(self.python), *pip, *requirements)
        return None if done.returncode == 0 else done.stderr.strip()[-300:]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command where no klsym but the installed one is found."""
        variables = {name: value for name, value in os.environ.items() if name not in HANDED_DOWN}
        variables["XDG_CACHE_HOME"] = str(self.folder / "cache")
        return subprocess.run(
            command, cwd=self.folder / "work", env=variables, capture_output=True, text=True, timeout=900,
            check=False,
        )  # fmt: skip

    def write_certificates(self) -> str | None:
        """Write good.json and forged.json; return what went wrong."""
        done = self.run(str(self.python), "-c", WRITE_CERTIFICATES)
        return None if done.returncode == 0 else done.stderr.strip()[-300:]

    def try_all(self, trials: Iterator[Trial]) -> list[str]:
        """Run trials; return their faults."""
        command = str(self.folder / "venv" / "bin" / "klsym")
        faults = (trial.find_fault(self.run(command, *trial.words)) for trial in trials)
        return [fault for fault in faults if fault is not None]
