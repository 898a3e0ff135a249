"""Random PyTorch functions audited, against `explain` of the losses that they are the code of.

    python benchmarks/random_audits.py --count 1000

Prints how many agree, differ, and are refused (with each refusal), and what an audit costs over importing
torch.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))


WORDS = {"agrees": "agree", "differs": "differ", "refused": "are refused"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    start = time.process_time()
    import torch  # noqa: F401

    loading = time.process_time() - start
    from klsym.audit import audits
    from support.audits.audit_judge import judge
    from support.audits.random_audits import random_audit

    told: Counter[str] = Counter()
    cost = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.first, options.first + options.count):
            kind, words = judge(seed, Path(folder))
            told[kind] += 1
            if kind != "agrees":
                print(f"seed {seed} {kind}: {words}", flush=True)
        source, _, sampling = random_audit(options.first)
        path = Path(folder) / "cost.py"
        path.write_text(source, encoding="utf-8")
        for _ in range(5):
            start = time.process_time()
            audits.audit(f"{path}:f", sampling=sampling)
            cost += (time.process_time() - start) / 5
    shown = ", ".join(f"{told[kind]} {words}" for kind, words in WORDS.items())
    print(f"{options.count} functions: {shown}; refused are {told['refused'] / options.count:.1%}")
    print(f"an audit costs {cost / loading:.2f} of importing torch ({cost:.2f} s)")
    return 1 if told["differs"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
