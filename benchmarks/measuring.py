"""What `klsym measure` takes: CPU seconds against the number of runs of a loss.  Prints a table.

    python benchmarks/measuring.py --framework jax

The loss is GRPO with k3: a group of n samples of at most T out of V words.  Each row is a fresh measurement;
its runs are those of the loss, one for each group of samples at each theta.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import klsym

SHAPES = ((3, 2, 1), (3, 2, 2), (3, 2, 3), (4, 2, 2), (3, 3, 1), (3, 3, 2), (5, 2, 2), (4, 3, 1))
SECONDS = 600.0


def make_loss(exp: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return -(R - mean R) log q + 0.04 k3, summed over the words of each sequence, averaged over a group."""

    def loss(batch: Any) -> Any:
        advantages = batch.rewards - batch.rewards.mean()
        log_ratio = batch.ref_logp - batch.logp
        k3 = exp(log_ratio) - 1 - log_ratio
        return ((0.04 * k3 - advantages[:, None] * batch.logp) * batch.mask).sum(-1).mean()

    return loss


def load_exp(framework: str) -> Callable[[Any], Any]:
    if framework == "jax":
        import jax

        return jax.numpy.exp  # type: ignore[no-any-return]
    import torch

    return torch.exp  # type: ignore[no-any-return]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--framework", choices=("torch", "jax"), default="torch")
    options = parser.parse_args()
    loss = make_loss(load_exp(options.framework))
    print(f"{'V':>3} {'T':>3} {'n':>3} {'runs':>8} {'CPU s':>8} {'us a run':>9}")
    for words, length, group in SHAPES:
        start = time.process_time()
        answer = klsym.measure(
            loss, words=words, length=length, group=group, framework=options.framework, seconds=SECONDS
        )
        took = time.process_time() - start
        each = 1e6 * took / answer.runs
        print(f"{words:>3} {length:>3} {group:>3} {answer.runs:>8} {took:>8.2f} {each:>9.0f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
