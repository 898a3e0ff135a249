"""Times the sampled cross-checks against what they cannot do without; prints ratios of one run.

    python benchmarks/sampling.py [--repeats N] [--largest 1e8] [--backend torch --device cuda]

The cost of Gaussian samples is compared with drawing the same normal numbers alone, the cost of counts
at different N, the check of a gradient with a plain PyTorch loop that calls autograd sample by sample, and
the peak memory of a growing number of samples.  Times are the best of several.
"""

from __future__ import annotations

import argparse
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from klsym.engine.proof.quantities import Quantity, expectation, expected_gradient
from klsym.language.abbreviations import Context
from klsym.language.expressions import k1, k3, rho
from klsym.numeric.models import random_model
from klsym.study.gaussian.exact import GaussianModel
from klsym.study.sampling.backends import Backend, choose_backend
from klsym.study.sampling.finite import FiniteSampler
from klsym.study.sampling.gaussians import BLOCK, DEVICE_BLOCK, GaussianSampler
from klsym.study.sampling.means import expand_side
from klsym.study.sampling.sampler import Sampler, list_means
from klsym.study.sampling.streams import Plan, Stream

Row = tuple[str, str, str]  # what, measured, aim
DRAWN = 2**23
LOOP = 2000  # samples of the plain loop, which is slow
MODEL = GaussianModel((0.0, 1.0), (0.5, 1.0), (-0.2, 1.2))
CHECKS: dict[str, Quantity] = {
    "E_q[k1]": expectation(k1, under="q"),
    "E_q[k3]": expectation(k3, under="q"),
    "E_q[grad k3]": expected_gradient(k3, under="q"),
    "E_mu[grad(rho k3)]": expected_gradient(rho * k3, under="mu"),
}


def best(action: Callable[[], Any], repeats: int) -> float:
    """The least of several wall times, in seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def sample(sampler: Sampler, quantity: Quantity, samples: int) -> Any:
    means = list_means(expand_side(quantity.side, Context()))
    return sampler.draw_averages(means, samples, Stream(0))


# ---------------------------------------------------------------------------- Gaussians
def draw_alone(on: Backend, samples: int) -> None:
    """The same normal numbers from the same streams, thrown away."""
    block = BLOCK if on.device == "cpu" else DEVICE_BLOCK
    for chunk in Plan(samples, Stream(0)).list_chunks():
        for number, start in enumerate(range(0, chunk.size, block)):
            on.draw_normals(chunk.stream.derive_child(number), (min(block, chunk.size - start),))
    on.wait()


def gaussian_ratios(on: Backend, repeats: int) -> tuple[float, dict[str, float]]:
    """Return the normal numbers drawn per second, and the time of each check over drawing them alone."""
    alone = best(lambda: draw_alone(on, DRAWN), repeats)
    sampler = GaussianSampler(MODEL, on=on)
    taken = {n: best(lambda c=c: sample(sampler, c, DRAWN), repeats) for n, c in CHECKS.items()}
    return DRAWN / alone, {name: seconds / alone for name, seconds in taken.items()}


def gaussian_rows(on: Backend, repeats: int) -> Iterator[Row]:
    rate, ratios = gaussian_ratios(on, repeats)
    yield f"normal numbers alone, {on.describe()}", f"{rate / 1e6:.0f} million/s", ""
    for name, ratio in ratios.items():
        yield f"Gaussian {name} over the draw alone", f"{ratio:.2f}", "<= 2"


# ---------------------------------------------------------------------------- counts
def count_rows(repeats: int) -> Iterator[Row]:
    quantity = CHECKS["E_q[grad k3]"]
    times = {}
    for n in (10**3, 10**6, 10**12):
        sampler = FiniteSampler(random_model(0, 8), Context(), directions=np.eye(8))
        times[n] = best(lambda s=sampler, n=n: sample(s, quantity, n), 50 * repeats)
        yield f"counts of 8 outcomes, N = 1e{round(math.log10(n))}", f"{times[n] * 1e6:.0f} us", ""
    yield "N = 1e12 over N = 1e3", f"{times[10**12] / times[10**3]:.2f}", "about 1"


# ---------------------------------------------------------------------------- a plain loop
def plain_loop(samples: int) -> Any:
    """E_q[grad k3] of a softmax model as one writes it first: sample, loss, backward, add up."""
    import torch

    model = random_model(0, 8)
    theta = torch.log(torch.tensor(model.q, dtype=torch.float64)).requires_grad_()
    log_p = torch.log(torch.tensor(model.p, dtype=torch.float64))
    total = torch.zeros_like(theta)
    generator = torch.Generator().manual_seed(0)
    probabilities = torch.tensor(model.q, dtype=torch.float64)
    for _ in range(samples):
        x = torch.multinomial(probabilities, 1, generator=generator)
        k = (torch.log_softmax(theta, 0) - log_p)[x]
        (slope,) = torch.autograd.grad((torch.exp(-k) - 1 + k).sum(), theta)
        total += slope
    return total / samples


def loop_rows(repeats: int) -> Iterator[Row]:
    try:
        import torch  # noqa: F401
    except ImportError:
        yield "plain PyTorch loop", "PyTorch is not installed", ""
        return
    slow = best(lambda: plain_loop(LOOP), repeats) / LOOP
    sampler = FiniteSampler(random_model(0, 8), Context(), directions=np.eye(8))
    fast = best(lambda: sample(sampler, CHECKS["E_q[grad k3]"], 10**6), 20) / 10**6
    yield "plain PyTorch loop over counts, per sample at N = 1e6", f"{slow / fast:,.0f}x", ">= 50x"
    drawn = best(lambda: sample(GaussianSampler(MODEL), CHECKS["E_q[grad k3]"], DRAWN), repeats) / DRAWN
    yield "plain PyTorch loop over Gaussian samples, per sample", f"{slow / drawn:,.0f}x", ">= 50x"


# ---------------------------------------------------------------------------- memory
def peak(samples: int) -> float:
    """The peak memory of a fresh process that draws this many Gaussian samples, MiB."""
    command = [sys.executable, __file__, "--one-run", str(samples)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def one_run(samples: int) -> None:
    sample(GaussianSampler(MODEL), CHECKS["E_q[grad k3]"], samples)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def memory_rows(largest: int) -> Iterator[Row]:
    sizes = [10**k for k in range(6, 16) if 10**k <= largest]
    peaks = [peak(n) for n in sizes]
    for n, found in zip(sizes, peaks, strict=True):
        yield f"peak memory at N = 1e{round(math.log10(n))}", f"{found:.0f} MiB", ""
    yield "greatest over least peak", f"{max(peaks) / min(peaks):.2f}", "about 1"


def table(lines: list[Row]) -> str:
    widths = [max(len(line[i]) for line in lines) for i in range(3)]
    return "\n".join(f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c}".rstrip() for a, b, c in lines)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Time the sampled cross-checks.")
    parser.add_argument("--repeats", type=int, default=5, help="each time is the best of these (5)")
    parser.add_argument(
        "--largest", type=float, default=1e7, help="samples up to which memory is watched (1e7)"
    )
    parser.add_argument("--backend", default="numpy")
    parser.add_argument("--device")
    parser.add_argument("--one-run", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args(argv)
    if chosen.one_run:
        one_run(chosen.one_run)
        return
    lines: list[Row] = [("measure", "value", "aim")]
    for dtype in ("float64", "float32"):
        lines += gaussian_rows(choose_backend(chosen.backend, chosen.device, dtype), chosen.repeats)
    lines += [*count_rows(chosen.repeats), *loop_rows(chosen.repeats), *memory_rows(int(chosen.largest))]
    print(table(lines))


if __name__ == "__main__":
    main()
