"""The objectives of many random c(r) against floats that share nothing with klsym.

    python benchmarks/implied_objectives.py --count 1000 --seed 0

Each fault is printed; the exit code is 1 if there is any.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from multiprocessing import Pool
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))  # where the judge lives

from tqdm import tqdm

import klsym
from support.judges import implied_judge


def judge(case: tuple[int, int]) -> tuple[str, str, list[str]]:
    """The coefficient, what was said of its convexity, and what is wrong."""
    c = implied_judge.coefficient(*case)
    told = klsym.explain(c, use="reward").to_json()["gradient"]
    if told["f"] is None:
        return c, told["target"], [] if told["target"] == "zero" else ["no f"]
    genuine = told["genuine_divergence"]
    said = "open" if genuine is None else "convex" if genuine["holds"] else "in a region"
    said = "nowhere" if genuine and not genuine["holds"] and genuine["where"] is None else said
    return c, said, implied_judge.faults(c, told, case[1])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    cases, said, failed = [(options.seed, i) for i in range(options.count)], Counter[str](), 0
    with Pool(options.jobs) as pool:
        for c, kind, wrong in tqdm(pool.imap(judge, cases, chunksize=10), total=len(cases), disable=None):
            said[kind] += 1
            failed += bool(wrong)
            for line in wrong:
                tqdm.write(f"{c}: {line}")
    print(f"{len(cases)} coefficients, {failed} with faults; convex: {dict(sorted(said.items()))}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
