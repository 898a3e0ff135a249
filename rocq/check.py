"""Compile the verified checker, let it check exported certificates, and say how many parts it accepts.

    python rocq/check.py FOLDER

FOLDER holds what `klsym export --rocq FOLDER` wrote.  Needs Rocq with Coquelicot; standard library only.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).parent
ORDER = (
    "statements/Sums", "statements/Tokens", "statements/Setting", "statements/Ring",
    "statements/Statements", "statements/Instances", "rules/Derivatives", "rules/Stepwise",
    "rules/Densities", "rules/Independence", "rules/Along", "rules/Names", "rules/Rules", "rules/Existence",
    "rules/Checker", "rules/Softmax", "rules/Completeness", "rules/Combinations", "models/Enclosures",
    "models/Elements", "models/Models", "models/Fields", "certificates/Scripts", "certificates/Parts",
    "certificates/Refused", "certificates/RefusedSteps", "statements/Plain",
)  # fmt: skip
MISSING = (
    "Rocq is not installed: apt-get install coq libcoq-coquelicot (Debian); nothing else of klsym needs it"
)
UNPROVED = re.compile(
    r"\b(Admitted|admit|Axioms?|Parameters?|Conjecture|Abort|bypass_check|Unset +(Guard|Positivity))\b"
)
THEOREM = re.compile(r"^(?:Theorem|Corollary) (\S+)", re.MULTILINE)
OPENED, CLOSED = re.compile(r"\s*Section\s"), re.compile(r"\s*End\s")
ASSUMED = re.compile(r"\s*(Hypothes[ie]s|Variables?|Context)\b")  # a premise in a section, an axiom outside
NAMED = re.compile(r'^\(?\("([^"]+)"%string, Script ', re.MULTILINE)  # a part, in a file of them
COMMENT = re.compile(r"\(\*.*?\*\)", re.DOTALL)


class Failed(Exception):
    """One line that says what went wrong."""


def main(folder: Path) -> int:
    try:
        print(summary(folder))
    except Failed as failure:
        print(f"rocq: {failure}", file=sys.stderr)
        return 1
    return 0


def summary(folder: Path) -> str:
    """Compile everything; the lines to print."""
    if shutil.which("coqc") is None:
        raise Failed(MISSING)
    exported = sorted(folder.glob("Parts_*.v"))
    if not exported:
        raise Failed(f"{folder}: no Parts_*.v; write them with klsym export --rocq {folder}")
    library, theorems = folder / "checker", folder / "theorems"
    library.mkdir(exist_ok=True)
    theorems.mkdir(exist_ok=True)
    for name in ORDER:
        compiled(Path(shutil.copy(SOURCES / f"{name}.v", library)), library)
    accepted, wrong = list[str](), 0
    for path in exported:
        path = Path(shutil.copy(path, theorems))
        parts, mutants = counts(path, compiled(path, library))
        accepted, wrong = accepted + names(path, parts), wrong + mutants
    headlines, plain = (
        theorems / "Headlines.v",
        (SOURCES / "statements" / "Headlines.v").read_text(encoding="utf-8"),
    )
    stated = THEOREM.findall(plain)
    every = f"Definition every_theorem := ({', '.join(stated)}).\nPrint Assumptions every_theorem.\n"
    headlines.write_text(plain + every, encoding="utf-8")
    expect_axioms(headlines, compiled(headlines, library))
    outside = (folder / "outside.txt").read_text(encoding="utf-8").splitlines()
    reasons = [line.rpartition(": ")[2] for line in outside]
    lines = [f"outside: {reasons.count(reason)} ({reason})" for reason in sorted(set(reasons))]
    lines.append(f"wrong versions refused: {wrong}; headline theorems: {len(stated)}")
    lines.append(f"{len(accepted)} of {len(accepted) + len(outside)} parts accepted")
    found = {"checker": digest(), "refused": wrong, "headlines": len(stated), "accepted": accepted}
    (folder / "checked.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return "\n".join(lines)


def compiled(path: Path, library: Path) -> str:
    """What Rocq prints while it compiles a file in which nothing is taken for granted."""
    taken = unproved(path.read_text(encoding="utf-8"))
    if taken:
        raise Failed(f"{path.name}: {taken} leaves something unproved")
    path, library = path.resolve(), library.resolve()
    beside = [] if path.parent == library else ["-R", str(path.parent), ""]
    command = ["coqc", "-w", "-ambiguous-paths", "-Q", str(library), "Klsym", *beside, str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=path.parent)
    if run.returncode:
        raise Failed(f"{path.name} is refused: {' '.join((run.stderr or run.stdout).split())[:300]}")
    return run.stdout


def unproved(text: str) -> str:
    """A word that takes something for granted; a premise outside every section is an axiom."""
    text, depth = COMMENT.sub("", text), 0
    for sentence in re.split(r"\.(?=\s|$)", text):
        depth += bool(OPENED.match(sentence + " ")) - bool(CLOSED.match(sentence + " "))
        if depth == 0 and (assumed := ASSUMED.match(sentence)):
            return f"{assumed[1]} outside a section"
    found = UNPROVED.search(text)
    return found[0] if found else ""


def counts(path: Path, printed: str) -> tuple[int, int]:
    """How many parts a file of certificates holds, and how many wrong versions of them were tried."""
    expect_axioms(path, printed)
    found = [int(number) for number in re.findall(r"= (\d+)\s*: nat", printed)]
    if len(found) != 2:
        raise Failed(f"{path.name}: two counts expected, got {found}")
    return found[0], found[1]


def names(path: Path, parts: int) -> list[str]:
    """The names of the parts in a file, as many as Rocq counts."""
    found = NAMED.findall(path.read_text(encoding="utf-8"))
    if len(set(found)) != parts:
        raise Failed(f"{path.name}: {parts} parts, and {len(set(found))} names")
    return found


def digest() -> str:
    """Of the sources of the checker; study/rocq/accepted.py compares it with what is here."""
    found = sorted(SOURCES.rglob("*.v"), key=lambda path: path.name)
    sources = "\0".join(path.read_text(encoding="utf-8") for path in found)
    return hashlib.sha256(sources.encode()).hexdigest()[:16]


def expect_axioms(path: Path, printed: str) -> None:
    """Only the axioms of the reals may be used, those of axioms.txt."""
    known = set((SOURCES / "axioms.txt").read_text(encoding="utf-8").split())
    used = set(re.findall(r"^(\S+)(?: :|$)", printed.partition("Axioms:\n")[2], re.MULTILINE))
    if not used or used - known:
        raise Failed(f"{path.name}: axioms {sorted(used - known) or 'are not printed'}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python rocq/check.py FOLDER")
    sys.exit(main(Path(sys.argv[1])))
