"""Every loss of the gallery of trainers against the literal oracle, which enumerates trees of tokens.

python benchmarks/trainers.py
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from loss_judge import examine
from test_trainers import case_of

from klsym.tables.trainers import trainers


def main() -> int:
    """Prints a line a loss, with the seconds it took; 1 if a verdict is wrong."""
    wrong = 0
    for one in (one for one in trainers() if one.loss and "normalised" not in one.loss):
        start = time.process_time()
        outcome = examine(case_of(one))
        wrong += bool(outcome.complaints)
        print(
            f"{one.id:<30} {outcome.target:<12} {time.process_time() - start:5.1f} s",
            *outcome.complaints,
            flush=True,
        )
    print(f"{wrong} verdicts that the oracle contradicts")
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
