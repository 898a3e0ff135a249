"""Every loss of the gallery of trainers against the literal oracle, which enumerates trees of tokens, and
against PyTorch's autograd on such trees.

python benchmarks/trainers.py
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "study" / "tables"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from test_trainers import case_of

import klsym
from klsym.study.tables.trainers import trainers
from support.judges.autograd_trees import AGREE, misfit
from support.judges.loss_judge import examine
from support.judges.loss_worlds import options


def main() -> int:
    """Prints a line a loss, with the seconds it took; 1 if a verdict is wrong."""
    argparse.ArgumentParser(
        description="Judge the losses of the gallery by enumeration and autograd."
    ).parse_args()
    wrong = 0
    beyond = [one for one in trainers() if "normalised" in one.loss or "truncated" in one.options.values()]
    for one in (one for one in trainers() if one not in beyond):
        start = time.process_time()
        case = case_of(one)
        outcome = examine(case)
        off = misfit(case, klsym.explain(case.text, **options(case)).to_json())
        wrong += bool(outcome.complaints) or off > AGREE
        print(
            f"{one.id:<30} {outcome.target:<12} {time.process_time() - start:5.1f} s   autograd {off:.0e}",
            *outcome.complaints,
            flush=True,
        )
    print(f"{wrong} verdicts that the oracle or autograd contradicts; not judged: {len(beyond)}")
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
