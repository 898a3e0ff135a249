"""Random statements through engine, kernel, literal oracle and verified checker: is a falsehood accepted?

    python benchmarks/soundness.py --count 100000 --seed 0 [--jobs 2] [--rocq-every 10]

A statement says what a random loss descends or estimates, in any setting; about half are false.  Accepted and
contradicted is a soundness bug, in the core and undecided a completeness bug: each is printed when it is
found, and the exit code is 1.  Every other open answer is counted by its reason.  What the kernel accepted
goes to the checker in rocq/ where coqc is installed, some hundred parts at a time; of every tenth statement,
say, since that takes five times as long as all else together.  Outcomes are kept in
build/soundness-*.jsonl, so that a run that was cut off goes on; what came of it is stored in
benchmarks/campaigns.json.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
os.environ.setdefault("OMP_NUM_THREADS", "1")  # the processes fill the machine
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from tqdm import tqdm

from klsym.study.rocq.export import export, write_file
from support.campaigns import random_statements
from support.campaigns import stored as campaigns
from support.campaigns.stored import HOME

BATCH = 300  # parts in a file of Rocq
QUOTED = re.compile(r"'[^']*'|\d+")  # what differs between two tellings of one reason


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rocq-every", type=int, default=10, help="1: all statements; 0: none (10)")
    chosen = parser.parse_args()
    log, start = campaigns.log_of("soundness", chosen.seed), time.perf_counter()
    base, judge = campaigns.version(), random_statements.timed
    answers = campaigns.resumed(log, chosen.count, judge, chosen.seed, chosen.jobs, _print_failed)
    scripts, outside = _scripts(answers, chosen.rocq_every)
    left_out = chosen.rocq_every == 0 or shutil.which("coqc") is None
    refused = None if left_out else verified(scripts, chosen.jobs)
    for name in refused or ():
        print(f"THE VERIFIED CHECKER REFUSES {name}: {answers[int(name.split()[0])]['text']}", flush=True)
    print(table(answers, outside))
    counts = counted(answers, scripts, outside, refused)
    print("; ".join(f"{count} {name}" for name, count in counts.items()))
    seconds = max(time.perf_counter() - start, sum(answer["seconds"] for answer in answers) / chosen.jobs)
    campaigns.record("soundness", counts, chosen.seed, seconds, base)
    return 1 if any(answer["complaints"] for answer in answers) or refused else 0


def _print_failed(number: int, answer: dict[str, Any]) -> None:
    told = (answer["room"], answer["kind"], answer["multiples"], "; ".join(answer["complaints"])[:400])
    print(f"FAILED {number} {answer['text']!r}", *told, flush=True)


def counted(
    answers: list[dict[str, Any]], scripts: dict[str, str], outside: Counter[str], refused: list[str] | None
) -> dict[str, int]:
    """What is stored of a run."""
    said, holds = Counter(a["said"] for a in answers), Counter(a["holds"] for a in answers)
    complaints = Counter(line.partition(":")[0] for a in answers for line in a["complaints"])
    known = complaints["UNSOUND"], complaints["INCOMPLETE"]
    counts = {
        "statements": len(answers),
        "true": holds[True],
        "false": holds[False],
        "proved": said["proved"],
        "refuted": said["refuted"],
        "open": said["open"],
        "refused as input": said["refused"],
        "in the core": sum(a["core"] for a in answers),
        "accepted and contradicted": known[0],
        "in the core and undecided": known[1],
        "other failures": complaints.total() - sum(known),
    }
    if refused is None:
        return counts
    return counts | {
        "handed to the verified checker": len(scripts) + outside.total(),
        "accepted by the verified checker": len(scripts) - len(refused),
        "refused by the verified checker": len(refused),
        "outside the verified checker": outside.total(),
    }


def table(answers: list[dict[str, Any]], outside: Counter[str]) -> str:
    """Verdicts by setting; why statements are open, or outside the verified checker."""
    lines = [f"{'setting':68} {'all':>6} {'true':>6} {'proved':>7} {'refuted':>8} {'open':>6} {'refused':>8}"]
    for room in [*sorted({a["room"] for a in answers}), "all"]:
        here = [a for a in answers if room in (a["room"], "all")]
        counts = [sum(a["said"] == of for a in here) for of in ("proved", "refuted", "open", "refused")]
        true = sum(a["holds"] is True for a in here)
        row = f"{room:68} {len(here):6} {true:6} {counts[0]:7} {counts[1]:8} {counts[2]:6} {counts[3]:8}"
        lines.append(row)
    for of in ("open", "refused"):
        reasons = Counter(QUOTED.sub("..", a["reason"])[:120] for a in answers if a["said"] == of)
        lines += [f"{of}, because", *(f"{count:6}  {reason}" for reason, count in reasons.most_common(20))]
    lines += ["outside the verified checker", *(f"{n:6}  {why}" for why, n in outside.most_common())]
    return "\n".join(lines)


# ---------------------------------------------------------------------------- the verified checker
def _scripts(answers: list[dict[str, Any]], every: int) -> tuple[dict[str, str], Counter[str]]:
    """The terms of what the kernel accepted of every so many; why the others have none."""
    chosen = [*enumerate(answers)][::every] if every else []
    found = {str(n): answer["certificate"] for n, answer in chosen if answer["certificate"]}
    exported = export(found)
    return exported.scripts, Counter(exported.outside.values())


def verified(scripts: dict[str, str], jobs: int) -> list[str]:
    """The names of the terms that the verified checker does not accept."""
    driver, folder = _driver(), HOME / "build" / "soundness"
    folder.mkdir(parents=True, exist_ok=True)
    library, batches = _library(driver), list(enumerate(_batches(scripts)))

    def refused(batch: tuple[int, dict[str, str]]) -> list[str]:
        return _refused(driver, batch[1], library, folder / f"Statements_{batch[0]}.v")

    with ThreadPool(jobs) as pool:  # each waits for a process of Rocq
        found = tqdm(pool.imap(refused, batches), total=len(batches), unit="file", file=sys.stderr)
        return [name for names in found for name in names]


def _library(driver: Any) -> Path:
    """The checker, compiled: by `make rocq`, where that was the one that is here."""
    made, library = HOME / "build" / "rocq" / "checked.json", HOME / "build" / "rocq" / "checker"
    if made.exists() and json.loads(made.read_text())["checker"] == driver.digest():
        return library
    library = HOME / "build" / "soundness-checker"
    library.mkdir(parents=True, exist_ok=True)
    for name in driver.ORDER[: driver.ORDER.index("certificates/Parts") + 1]:
        driver.compiled(Path(shutil.copy(driver.SOURCES / f"{name}.v", library)), library)
    return library


def _batches(scripts: dict[str, str]) -> Iterator[dict[str, str]]:
    names = list(scripts)
    for first in range(0, len(names), BATCH):
        yield {name: scripts[name] for name in names[first : first + BATCH]}


def _refused(driver: Any, scripts: dict[str, str], library: Path, path: Path) -> list[str]:
    """A file that compiles proves all of its parts; one that does not is halved until the parts are found."""
    path.write_text(write_file("random statements", scripts), encoding="utf-8")
    try:
        driver.counts(path, driver.compiled(path, library))
    except driver.Failed as failure:
        names = list(scripts)
        if len(names) == 1:
            print(f"{names[0]}: {failure}", flush=True)
            return names
        halves = [{n: scripts[n] for n in names[i::2]} for i in (0, 1)]
        return [name for half in halves for name in _refused(driver, half, library, path)]
    return []


def _driver() -> Any:
    spec = importlib.util.spec_from_file_location("rocq_check", HOME / "rocq" / "check.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main())
