"""How many random losses klsym decides, and what the answers rest on, by kind of loss.

    python benchmarks/decision_rate.py --count 1000 --write

The losses are those of random_losses.py, of samples, of tokens, of batches, and with clamps and masks; each
counts as proved (replayed by the kernel), resting on SymPy, on numbers, open, or refused.  With --write
the counts go to study/tables/decision_rate.json, from which the paper takes them.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import klsym
from support.losses.random_losses import Case, generate

STORED = Path(__file__).parent.parent / "study" / "tables" / "decision_rate.json"
LIMIT = 60  # seconds of the processor for a loss; what takes longer is open
KINDS = {  # name -> generator, and which of its losses count
    "samples": ("core", lambda case: True),
    "tokens": ("anywhere", lambda case: case.level == "token"),
    "batches": ("anywhere", lambda case: case.batch != "none"),
    "clamps": ("clamped", lambda case: True),
}
TRUST = {"kernel": "proved", "sympy": "sympy", "numeric": "numbers"}


class TooSlowError(Exception):
    """A loss was not done within the limit."""


def list_cases(kind: str, seed: int) -> Iterator[Case]:
    """Yield the losses of a kind, without end."""
    generator, belongs = KINDS[kind]
    return (case for number in count() if belongs(case := generate(generator, seed, number)))


def judge(case: Case) -> str:
    """Return what the answer to a loss rests on."""
    options: dict[str, Any] = {
        name: getattr(case, name)
        for name in ("sampling", "use", "level", "batch", "credit", "weights", "aggregate")
        if getattr(case, name) not in ("", "none")
    }
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT)
    try:
        verdict = klsym.explain(case.text, **options)
    except klsym.UsageError:
        return "refused"
    except TooSlowError:
        return "open"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return "open" if verdict.target in (None, "open") else TRUST[verdict.trust]


def _stop(*_: Any) -> None:
    raise TooSlowError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000, help="losses of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="store the counts for the paper")
    options = parser.parse_args()
    signal.signal(signal.SIGVTALRM, _stop)
    rates = {}
    for kind in KINDS:
        counts = Counter(map(judge, islice(list_cases(kind, options.seed), options.count)))
        rates[kind] = {name: counts[name] for name in (*TRUST.values(), "open", "refused")}
        print(kind, rates[kind], flush=True)
    if options.write:
        stored = {"count": options.count, "seed": options.seed, "kinds": rates}
        STORED.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
