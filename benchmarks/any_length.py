"""What a proof costs for batches of any size n and sequences of any length T, beside checking one n or T.

    python benchmarks/any_length.py --repeats 5

A proof never mentions a number for n or T, so that there is one time and one certificate for all of them.
The columns are times of evaluating both sides once, by enumerating every batch of n samples of two outcomes
or every sequence of at most T tokens of two kinds, in units of the time in which the kernel replays the
proof; where the rows lie is known beforehand.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from tqdm import tqdm

from klsym.engine.proof.derivation import Proof
from klsym.kernel import check
from klsym.language.abbreviations import Context
from klsym.numeric.evaluation import evaluate
from klsym.numeric.models import FiniteModel, random_model
from klsym.numeric.random_models import find_allowed_model
from klsym.study.ledger.registry import load
from klsym.study.ledger.settle_claim import settle
from klsym.study.sequences.dynamic_programming import random_chains

BATCHES = ("batch.mean-centering", "batch.leave-one-out", "variance.loo")
SEQUENCES = ("sequence.cumulative", "sequence.prefix-weights", "sequence.token-loss-partial")
SIZES = (2, 6, 10, 12, 14)
LENGTHS = (3, 5, 7, 9)


def best(action: Callable[[], Any], repeats: int) -> float:
    """The least of several wall times, in seconds: other work can only make one longer."""
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        found.append(time.perf_counter() - start)
    return min(found)


def proof_of(name: str) -> Proof:
    return settle(load()[name]).proofs[0]


def batch_of(size: int, proof: Proof) -> FiniteModel:
    """Two outcomes, and batches of the given size; m = n - 1 where the statement has it."""
    model = random_model(0, 2, proof.theorem.statement.context)
    model = replace(model, parameters={**model.parameters, "n": Fraction(size)})
    return find_allowed_model(proof.theorem, model, {})


def sequences_of(length: int) -> FiniteModel:
    """Two tokens or stop at each step, at most `length` steps."""
    return random_chains(0, Context(), vocabulary=2, max_length=length).tree


def row(name: str, models: list[FiniteModel], repeats: int, bar: Any) -> list[str]:
    """The proof's time and certificate, and the times of enumerations in units of its replay."""
    proof = proof_of(name)
    certificate = json.loads(json.dumps(proof.certificate()))
    found = best(lambda: proof_of(name), repeats)
    replayed = best(lambda: check(certificate), repeats)
    cells = [name, f"{1e3 * found:.1f} ms", f"{1e3 * replayed:.2f} ms", f"{len(json.dumps(certificate)):,} B"]
    for model in models:
        spent = best(lambda model=model: evaluate(proof.theorem.statement, model), repeats)  # type: ignore[misc]
        cells.append(f"{spent / replayed:,.1f}")
        bar.update()
    return cells


def table(names: tuple[str, ...], letter: str, sizes: tuple[int, ...], models: Any, options: Any) -> str:
    heads = ["claim", "proof found", "replayed", "certificate", *(f"{letter} = {size}" for size in sizes)]
    with tqdm(total=len(names) * len(sizes), desc=letter, disable=None, leave=False) as bar:
        rows = [row(name, models(proof_of(name)), options.repeats, bar) for name in names]
    widths = [max(len(line[i]) for line in [heads, *rows]) for i in range(len(heads))]
    shown = [
        "  ".join(
            [line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))]
        )
        for line in [heads, *rows]
    ]
    return "\n".join([shown[0], "-" * len(shown[0]), *shown[1:]])


def main() -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5, help="each time is the best of so many")
    options = parser.parse_args()
    if options.repeats < 1:
        print(f"--repeats {options.repeats}: 1 or more expected", file=sys.stderr)
        return 2
    print("one proof for every n; enumerating all batches of two outcomes, in units of the replay\n")
    print(table(BATCHES, "n", SIZES, lambda proof: [batch_of(n, proof) for n in SIZES], options))
    print("\none proof for every T; enumerating all sequences of two tokens, in units of the replay\n")
    print(table(SEQUENCES, "T", LENGTHS, lambda proof: [sequences_of(t) for t in LENGTHS], options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
