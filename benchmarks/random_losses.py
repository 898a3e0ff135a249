"""Verdicts on many random losses against the independent oracle of tests/, in parallel processes.

    python benchmarks/random_losses.py --count 10000 --seed 0

Each failing loss is printed as soon as it is found; the last line of stdout is the summary, and the
exit code is 1 if any loss failed.  A loss is known by its seed and number, so neither --jobs nor
--count changes what it is.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections import Counter
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from typing import Any

# The only place that knows where the helpers live; in front, because this script shares a name with one.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
# One thread a process: the matrices are small, and the processes fill the machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from loss_judge import Outcome, examine
from random_losses import generate
from tqdm import tqdm

CHUNK = 20  # losses sent to a process at a time
SHOWN = 5  # failing losses in the summary line; all are printed above it


def judge(seed: int, number: int) -> Outcome:
    """Generate, explain and judge one loss."""
    return examine(generate(seed, number))


def run(count: int, seed: int, jobs: int) -> tuple[Counter[tuple[str, ...]], list[Outcome]]:
    """Counts by (setting, target), and the outcomes with complaints."""
    counts: Counter[tuple[str, ...]] = Counter()
    failures = []
    # a bar on a terminal, a line every ten seconds in a log
    pause = 0.2 if sys.stderr.isatty() else 10
    with Pool(jobs, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)) as pool:
        outcomes = pool.imap_unordered(partial(judge, seed), range(count), chunksize=CHUNK)
        for outcome in tqdm(outcomes, total=count, unit="loss", mininterval=pause, file=sys.stderr):
            counts[outcome.case.sampling, outcome.case.use, outcome.target] += 1
            if outcome.complaints:
                failures.append(outcome)
                print(f"FAILED {describe(outcome)}", flush=True)
    return counts, failures


def describe(outcome: Outcome) -> str:
    case = outcome.case
    return f"{case.text!r} ({case.sampling}, {case.use}): {'; '.join(outcome.complaints)[:300]}"


def summary(counts: Counter[tuple[str, ...]], failures: list[Outcome], seconds: float) -> str:
    """One line: targets, settings, failures."""
    targets, settings = Counter[str](), Counter[str]()
    for (sampling, use, target), number in counts.items():
        targets[target] += number
        settings[f"{sampling} {use}"] += number

    def listed(counter: Counter[str]) -> str:
        return ", ".join(f"{name} {number}" for name, number in sorted(counter.items()))

    line = f"{counts.total()} losses in {seconds:.0f} s; {listed(targets)}; {listed(settings)}"
    texts = [repr(f.case.text) for f in failures[:SHOWN]] + ["..."] * (len(failures) > SHOWN)
    return f"{line}; {len(failures)} failures" + (f": {', '.join(texts)}" if texts else "")


def options(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Judge klsym's verdicts on random losses.")
    parser.add_argument("--count", type=int, default=10_000, help="how many losses (10000)")
    parser.add_argument("--seed", type=int, default=0, help="of the sequence of losses (0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (one a core)")
    chosen = parser.parse_args(argv)
    if chosen.count < 1 or chosen.jobs < 1:
        parser.error("--count and --jobs: positive numbers expected")
    return chosen


def main(argv: list[str] | None = None) -> Any:
    chosen = options(argv)
    start = time.perf_counter()
    counts, failures = run(chosen.count, chosen.seed, chosen.jobs)
    print(summary(counts, failures, time.perf_counter() - start))
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
