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
import os
import re
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
os.environ.setdefault("OMP_NUM_THREADS", "1")  # the processes fill the machine
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from klsym.study.rocq.export import export
from support.campaigns import random_statements
from support.campaigns import stored as campaigns
from support.campaigns.stored import HOME
from support.judges import verified_checker

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
    left_out = chosen.rocq_every == 0 or not verified_checker.is_installed()
    folder = HOME / "build" / "soundness"
    refused = None if left_out else verified_checker.list_refused(scripts, folder, chosen.jobs)
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


if __name__ == "__main__":
    sys.exit(main())
