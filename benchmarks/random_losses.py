"""klsym on many random losses against the independent oracles of tests/, in parallel processes.

    python benchmarks/random_losses.py --count 10000 --seed 0             # verdicts on losses of one sample
    python benchmarks/random_losses.py --tokens --count 10000 --seed 0    # losses over sequences

Each failing loss is printed as soon as it is found; the last line of stdout is the summary, and the
exit code is 1 if any loss failed.  A loss is known by its seed and number, so neither --jobs nor
--count changes what it is.  With --tokens, losses whose exact gradients are equal though klsym's canonical
forms differ are printed too: they are no failures, but what the canonical form misses.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from typing import Any

# The only place that knows where the helpers live; in front, because this script shares a name with one.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
# One thread a process: the matrices are small, and the processes fill the machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import loss_judge
import random_losses
import random_token_losses
import token_loss_judge
from tqdm import tqdm

CHUNK = 20  # losses sent to a process at a time
SHOWN = 5  # failing losses in the summary line; all are printed above it


def judge(seed: int, number: int) -> loss_judge.Outcome:
    """Generate, explain and judge one loss."""
    return loss_judge.examine(random_losses.generate(seed, number))


def judge_tokens(seed: int, number: int) -> token_loss_judge.Outcome:
    """Generate, reduce and judge one loss over sequences; some with a certificate."""
    case = random_token_losses.generate(seed, number)
    return token_loss_judge.examine(case, certified=number % token_loss_judge.CERTIFIED == 0)


def run(examine: Callable[[int, int], Any], count: int, seed: int, jobs: int) -> list[Any]:
    """All outcomes, in the order in which they come."""
    found = []
    # a bar on a terminal, a line every ten seconds in a log
    pause = 0.2 if sys.stderr.isatty() else 10
    with Pool(jobs, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)) as pool:
        outcomes = pool.imap_unordered(partial(examine, seed), range(count), chunksize=CHUNK)
        for outcome in tqdm(outcomes, total=count, unit="loss", mininterval=pause, file=sys.stderr):
            found.append(outcome)
            if outcome.complaints:
                print(f"FAILED {describe(outcome)}", flush=True)
    return found


def describe(outcome: Any) -> str:
    return f"{_shown(outcome.case)}: {'; '.join(outcome.complaints)[:300]}"


def _shown(case: Any) -> str:
    return f"{case.text!r} ({', '.join(str(v) for name, v in vars(case).items() if name != 'text')})"


def summary(outcomes: list[Any], seconds: float) -> str:
    """One line: targets, settings, failures."""
    targets = Counter(outcome.target for outcome in outcomes)
    settings = Counter(f"{outcome.case.sampling} {outcome.case.use}" for outcome in outcomes)
    head = f"{len(outcomes)} losses in {seconds:.0f} s; {_listed(targets)}; {_listed(settings)}"
    return f"{head}; {_failures(outcomes)}"


def summary_of_tokens(outcomes: list[Any], seconds: float) -> str:
    """One line: kinds, settings, errors, certificates, how far the forms are complete, failures."""
    for one, other in (found := token_loss_judge.compare(outcomes)).missed:
        print(f"EQUAL GRADIENTS, TWO FORMS {_shown(one.case)} and {_shown(other.case)}")
    kinds = Counter(outcome.case.kind for outcome in outcomes)
    settings = Counter(f"{outcome.case.sampling} under {outcome.case.under}" for outcome in outcomes)
    judged = [outcome.errors for outcome in outcomes if outcome.errors]
    largest = max((max(e["form"], e["in steps"]) for e in judged), default=0.0)
    least = min((e["changed"] for e in judged), default=0.0)
    refused = sum(line.startswith("refused") for outcome in outcomes for line in outcome.complaints)
    parts = (
        f"{len(outcomes)} losses in {seconds:.0f} s; {_listed(kinds)}; {_listed(settings)}",
        f"largest error {largest:.1e} of the terms, least of a wrong coefficient {least:.1e}",
        f"{found.forms} canonical forms of {found.gradients} gradients, {len(found.undecided)} undecided",
        f"largest distance under one form {found.worst:.1e}; {refused} refused",
        _failures(outcomes),
    )
    return "; ".join(parts)


def _listed(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(counter.items()))


def _failures(outcomes: list[Any]) -> str:
    texts = [repr(outcome.case.text) for outcome in outcomes if outcome.complaints]
    shown = texts[:SHOWN] + ["..."] * (len(texts) > SHOWN)
    return f"{len(texts)} failures" + (f": {', '.join(shown)}" if texts else "")


def options(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Judge klsym on random losses.")
    parser.add_argument("--count", type=int, default=10_000, help="how many losses (10000)")
    parser.add_argument("--seed", type=int, default=0, help="of the sequence of losses (0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (one a core)")
    parser.add_argument("--tokens", action="store_true", help="losses over sequences of random length")
    chosen = parser.parse_args(argv)
    if chosen.count < 1 or chosen.jobs < 1:
        parser.error("--count and --jobs: positive numbers expected")
    return chosen


def main(argv: list[str] | None = None) -> Any:
    chosen = options(argv)
    start = time.perf_counter()
    outcomes = run(judge_tokens if chosen.tokens else judge, chosen.count, chosen.seed, chosen.jobs)
    seconds = time.perf_counter() - start
    print((summary_of_tokens if chosen.tokens else summary)(outcomes, seconds))
    return 1 if any(outcome.complaints for outcome in outcomes) else 0


if __name__ == "__main__":
    raise SystemExit(main())
