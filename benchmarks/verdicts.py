"""CPU time of a verdict with its JSON, over losses of the golden corpus, beside another tree in the same run.

    python benchmarks/verdicts.py [--against FOLDER] [--rounds 5] [--profile | --by-cost]

The losses lie in the ring: 50 per level.  Each round answers all of them in a fresh process per tree, in turn
after one verdict that is not counted.  Reported: the median and the total of each tree, as the least of the
rounds for each loss, and the median ratio of the totals.

    python benchmarks/verdicts.py --profile own      where the time goes, by function (own, or cumulative)
    python benchmarks/verdicts.py --by-cost          the losses by their cost
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

HOME = Path(__file__).resolve().parents[1]
LEVELS = ("sample", "sequence", "token")
EACH = 50
ORDERS = {"own": "tottime", "cumulative": "cumtime"}
Loss = dict[str, Any]


def losses(each: int = EACH) -> list[Loss]:
    """Losses of the corpus whose score coefficient lies in the ring, evenly from each level."""
    sys.path.insert(0, str(HOME / "tests"))
    from support.golden.stored import read

    found: list[Loss] = []
    for level in LEVELS:
        of_level = [
            {"loss": pair.text, "parameters": pair.parameters, **dict(pair.options)}
            for pair, answer in read()
            if pair.option("level") == level and {"ring", "slots"} & set(answer.get("h", ()))
        ]
        found += of_level[:: len(of_level) // each][:each]
    return found


def answer(chosen: Sequence[Loss]) -> list[float | None]:
    """Seconds of CPU time of each verdict with its JSON; None for a loss that this tree refuses."""
    from klsym import UsageError, explain

    explain("2*k3 + k1", sampling="off-policy").to_json()
    seconds: list[float | None] = []
    for one in chosen:
        start = time.process_time()
        with suppress(UsageError):
            explain(**one).to_json()
            seconds.append(time.process_time() - start)
            continue
        seconds.append(None)
    return seconds


def in_process_of(tree: Path, chosen: Sequence[Loss]) -> list[float | None]:
    """`answer` in a fresh process that imports klsym from a tree."""
    command = [sys.executable, __file__, "--answer"]
    path = {**os.environ, "PYTHONPATH": str(tree), "PYTHONHASHSEED": "0"}
    path.pop("PYTHONDONTWRITEBYTECODE", None)  # both trees as they are when installed
    done = subprocess.run(
        command, input=json.dumps(chosen), env=path, cwd=tree, capture_output=True, text=True, check=True
    )
    where, *seconds = json.loads(done.stdout)
    if Path(where).resolve().parents[1] != tree:
        raise SystemExit(f"{where} was imported, not {tree}/klsym: give the folder that holds klsym")
    return seconds


def compare(trees: Sequence[Path], rounds: int) -> None:
    """Print the costs of the trees, measured in turns, and their ratio."""
    chosen = losses()
    runs = [[in_process_of(tree, chosen) for tree in trees] for _ in range(rounds)]
    both = [i for i in range(len(chosen)) if all(times[i] is not None for times in runs[0])]
    found = [[[times[i] for i in both] for times in of_tree] for of_tree in zip(*runs, strict=True)]
    print(f"{len(both)} of {len(chosen)} losses, which all trees answer, {rounds} rounds; CPU time in ms")
    sums = []
    for of_tree, tree in zip(found, trees, strict=True):
        least = [1000 * min(times) for times in zip(*of_tree, strict=True)]
        sums.append(sum(least))
        print(f"median {statistics.median(least):6.1f}   total {sum(least):8.0f}   {tree}")
    if len(trees) == 2:
        print(f"ratio of these totals: {sums[0] / sums[1]:.3f}")
        totals = [sum(one) / sum(other) for one, other in zip(*found, strict=True)]
        medians = [statistics.median(a) / statistics.median(b) for a, b in zip(*found, strict=True)]
        for name, ratios in (("totals", totals), ("medians", medians)):
            print(
                f"ratio of {name}: {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
            )


def profile(order: str) -> None:
    """Print where the time of all verdicts goes."""
    chosen, profiler = losses(), cProfile.Profile()
    answer([])
    profiler.runcall(answer, chosen)
    pstats.Stats(profiler).sort_stats(ORDERS[order]).print_stats(70)


def by_cost() -> None:
    """Print the losses, the most expensive first."""
    chosen = losses()
    for seconds, one in sorted(zip(answer(chosen), chosen, strict=True), key=lambda row: -(row[0] or 0)):
        print(f"{1000 * seconds:7.1f} ms  {one}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--against", type=Path, help="the folder of another tree")
    parser.add_argument("--rounds", type=int, default=5, help="fresh processes per tree (5)")
    parser.add_argument("--profile", choices=ORDERS, help="print where the time goes instead")
    parser.add_argument("--by-cost", action="store_true", help="print the losses by their cost instead")
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.answer:
        import klsym

        print(json.dumps([klsym.__file__, *answer(json.load(sys.stdin))]))
    elif given.profile:
        profile(given.profile)
    elif given.by_cost:
        by_cost()
    else:
        compare([HOME, *([given.against.resolve()] if given.against else [])], given.rounds)


if __name__ == "__main__":
    main()
