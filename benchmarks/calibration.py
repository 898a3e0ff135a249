"""Do the sampled cross-checks keep the error rates that they state?  Prints tables; exit code 1 if not.

    python benchmarks/calibration.py --runs 2000 --seed 0

Family-wise false alarms, uniform p-values and missed biases are counted over many seeds; tails far out,
where nothing can be counted, come from exact laws (binomial, gamma, multinomial) and, for every trial of
the ledger, from the saddlepoint approximation to the law of its estimate.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "study" / "sampling"))  # its laws

from test_statistics import LAWS, least_samples

from klsym.calculus import KL, covariance, expectation, expected_gradient, grad, k1, k3, mu, p, q, r, rho
from klsym.language.abbreviations import Context
from klsym.numeric.models import random_model
from klsym.study.ledger.registry import select
from klsym.study.ledger.settle_claim import settle
from klsym.study.sampling.backends import choose_backend
from klsym.study.sampling.finite import FiniteSampler
from klsym.study.sampling.gaussians import GaussianSampler
from klsym.study.sampling.identities import GAUSSIANS, Options, list_identities
from klsym.study.sampling.means import expand_side
from klsym.study.sampling.monte_carlo_check import Trial
from klsym.study.sampling.sampler import Sampler
from klsym.study.sampling.statistics import Level, TooFew
from klsym.study.sampling.streams import Stream

RATES = (0.4, 0.1, 0.01)
SURE = 3.3  # standard errors of a count: both sides of a 99.9 % interval
VALUES = (
    expectation(k3, q),
    expectation(rho * k1, mu),
    expectation(r, q),
    KL(q, p),
    covariance(k1, r, under=q),
)
GRADIENTS = (grad(KL(q, p)), expected_gradient(k3, q), expected_gradient(rho * k3, mu))
Row = tuple[str, ...]


# ---------------------------------------------------------------------------- trials of true identities
def trials(sampler: Sampler, quantities: Any, samples: int) -> list[Trial]:
    """Each side against its own exact value: an identity that holds."""
    found = []
    for quantity in quantities:
        products = expand_side(quantity.side, Context())
        found.append(
            Trial(sampler, products, sampler.measure_spread(products).value, "=", samples, Stream(0))
        )
    return found


def finite(size: int, gradient: bool) -> FiniteSampler:
    return FiniteSampler(random_model(3, size), Context(), directions=np.eye(size) if gradient else None)


CASES: list[tuple[str, Callable[[], Sampler], Any, int]] = [
    ("finite, values", lambda: finite(6, False), VALUES, 10**3),
    ("finite, values", lambda: finite(6, False), VALUES, 3 * 10**4),
    ("finite, values", lambda: finite(6, False), VALUES, 10**6),
    ("finite, values", lambda: finite(6, False), VALUES, 10**12),
    ("finite, 8 logits", lambda: finite(8, True), GRADIENTS, 10**6),
    ("finite, 8 logits", lambda: finite(8, True), GRADIENTS, 10**12),
    ("Gaussians, 2 directions", lambda: GaussianSampler(GAUSSIANS), GRADIENTS, 10**4),
    ("Gaussians, 2 directions", lambda: GaussianSampler(GAUSSIANS), GRADIENTS, 10**5),
]  # fmt: skip


def z_scores(trial: Trial, seed: int, i: int) -> Any:
    """The z of every direction, as `Trial.judge` finds it."""
    means = list(dict.fromkeys(mean for _, ms in trial.side for mean in ms))
    averages = trial.sampler.draw_averages(means, trial.samples, Stream(seed).derive_child(i))
    spread = trial.spread
    gap = trial.sampler.combine(trial.side, averages) - spread.bias / trial.samples - trial.reference
    return gap / (spread.deviation / math.sqrt(trial.samples))


# ---------------------------------------------------------------------------- tables
def false_alarms(runs: int, seed: int) -> Iterator[tuple[Row, bool]]:
    """The share of runs with any alarm beside the rate stated for the run."""
    for name, make, quantities, samples in CASES:
        chosen = trials(make(), quantities, samples)
        comparisons = sum(trial.comparisons for trial in chosen) // 2  # true sides: no control can alarm
        kept = []
        for run in tqdm(range(runs), desc=f"{name}, N = {samples:.0e}", leave=False, disable=None):
            kept.append(np.concatenate([z_scores(t, seed + run, i) for i, t in enumerate(chosen)]))
        for rate in RATES:
            # as `verify` counts, with a control beside each comparison; and without
            for count, label in ((2 * comparisons, "with controls"), (comparisons, "without")):
                told, kept_rate = _alarms(chosen, np.abs(kept), rate, count, comparisons)
                yield (name, f"{samples:.0e}", str(count), label, f"{rate}", *told), kept_rate


def _alarms(
    chosen: list[Trial], z: Any, rate: float, count: int, comparisons: int
) -> tuple[tuple[str, str, str, str], bool]:
    """The share of runs beyond a threshold, what it is of independent comparisons, and whether it is kept."""
    try:
        thresholds = np.concatenate([_thresholds(t, Level(count, rate)) for t in chosen])
    except TooFew as few:
        return (f"too few: {few.needed}", "", "", ""), True
    measured = float(np.mean(np.any(z > thresholds, axis=1)))
    independent = 1 - (1 - rate / count) ** comparisons
    error = SURE * math.sqrt(independent * (1 - independent) / len(z))
    kept = measured <= independent + error
    shown = (f"{measured:.4f}", f"{independent:.4f}", f"+- {error:.4f}", "ok" if kept else "TOO MANY")
    return shown, kept


def _thresholds(trial: Trial, level: Level) -> Any:
    shapes = zip(trial.spread.skewness, trial.spread.kurtosis, strict=True)
    return np.array([level.find_threshold(trial.samples, float(g), float(k)) for g, k in shapes])


def uniformity(runs: int, seed: int) -> Iterator[tuple[Row, bool]]:
    """The Kolmogorov distance of single p-values to the uniform law; above 1.95 once in a thousand."""
    for name, make, quantities, samples in CASES:
        for trial, quantity in zip(trials(make(), quantities, samples), quantities, strict=True):
            z = np.array([z_scores(trial, seed + run, 0)[0] for run in range(runs)])
            p_values = np.sort(np.vectorize(math.erfc)(np.abs(z) / math.sqrt(2)))
            grid = np.arange(runs + 1) / runs
            distance = math.sqrt(runs) * max(np.max(grid[1:] - p_values), np.max(p_values - grid[:-1]))
            good = distance < 2.6  # 2 exp(-2 d^2): some thirty of these at once, one in ten thousand
            yield (
                (
                    name,
                    f"{samples:.0e}",
                    repr(quantity),
                    f"{distance:.2f}",
                    f"{z.mean():+.3f}",
                    f"{z.std():.3f}",
                ),
                good,
            )


def far_tails() -> Iterator[tuple[Row, bool]]:
    """Exact rates beyond the thresholds over what is stated, at the fewest samples that are allowed."""
    for law, (exact, (skewness, kurtosis)) in LAWS.items():
        for level in (Level(1), Level(1000)):
            samples, stated = least_samples(level, skewness, kurtosis), level.false_alarm / level.comparisons
            row = [law, f"{skewness:.3g}", f"{kurtosis:.3g}", f"{stated:.0e}", f"{samples}"]
            for z in (level.normal_threshold, level.find_threshold(samples, skewness, kurtosis)):
                rate = exact(samples, z, 1) + exact(samples, z, -1)
                row += [f"{z:.3f}", f"{rate / stated:.2f}"]
            yield tuple(row), rate / stated < 1.1


def misses(runs: int, seed: int) -> Iterator[tuple[Row, bool]]:
    """How often a bias of exactly the stated size is overlooked."""
    for name, make, quantities, samples in CASES:
        for miss in (0.1, 0.02):
            trial = trials(make(), quantities, samples)[0]
            level = Level(10, 0.01, miss)
            try:
                trial = replace(trial, samples=trial.count_needed_samples(level))
                seen = _thresholds(trial, level)
            except TooFew:
                continue
            shapes = zip(seen, trial.spread.skewness, trial.spread.kurtosis, strict=True)
            bias = [level.find_detectable_bias(z, trial.samples, float(g), float(k)) for z, g, k in shapes]
            z = np.array([z_scores(trial, seed + run, 0)[0] for run in range(runs)])
            missed = (
                float(np.mean(np.abs(z + bias[0]) <= seen[0])),
                float(np.mean(np.abs(z - bias[0]) <= seen[0])),
            )
            limit = miss + SURE * math.sqrt(miss * (1 - miss) / runs)
            row = (name, f"{trial.samples:.0e}", f"{miss}", f"{missed[0]:.4f}", f"{missed[1]:.4f}")
            yield row, max(missed) <= limit


# ---------------------------------------------------------------------------- the ledger
def ledger(seed: int) -> Iterator[tuple[Row, bool]]:
    """The true rate of false alarms of every comparison of the ledger over the stated one."""
    on = Options(choose_backend("numpy"), seed=seed)
    every = [
        (identity.name, trial)
        for number, claim in enumerate(c for c in select([]) if c.verdict != "computed")
        for identity in list_identities(settle(claim), number, on)
        for trial in identity.trials
    ]
    level = Level(sum(trial.comparisons for _, trial in every))
    stated = level.false_alarm / level.comparisons
    for kind in (FiniteSampler, GaussianSampler):
        ratios = []
        for name, trial in tqdm(every, desc=kind.__name__, leave=False, disable=None):
            trial = trial.enlarge(level, 4)
            if isinstance(trial.sampler, kind) and trial.needed(level) == trial.samples:
                ratios += [(tail_ratio(trial, i, level, stated), name) for i in _live(trial)]
        worst, name = max(ratios)
        shares = np.array([ratio for ratio, _ in ratios])
        row = (
            kind.__name__,
            str(len(ratios)),
            f"{stated:.1e}",
            f"{np.median(shares):.3f}",
            f"{worst:.3f}",
            name,
        )
        yield row, worst < 1.5


def _live(trial: Trial) -> list[int]:
    """Directions along which samples differ."""
    error = trial.spread.deviation / math.sqrt(trial.samples)
    return [i for i, (e, r) in enumerate(zip(error, trial.spread.rounding, strict=True)) if e > r]


def tail_ratio(trial: Trial, direction: int, level: Level, stated: float) -> float:
    """P(|Z| > threshold) of the linear part of the estimate over the stated rate.

    Samples so rare that the whole run holds one with probability 1/1000 at most count as one big jump,
    beside which all others are normal; the saddlepoint approximation takes the others.
    """
    spread = trial.spread
    z = level.find_threshold(
        trial.samples, float(spread.skewness[direction]), float(spread.kurtosis[direction])
    )
    scale = 1 / (float(spread.deviation[direction]) * math.sqrt(trial.samples))
    total = 0.0
    for sign in (1, -1):
        common = []
        for h, w in influence_laws(trial, direction):
            order = np.argsort(w)
            rare = np.zeros(len(w), bool)
            rare[order[: np.searchsorted(np.cumsum(w[order]), 1e-3 / trial.samples)]] = True
            jumps = (
                np.vectorize(math.erfc)((z - sign * scale * h[rare]) / math.sqrt(2)) / 2
                if rare.any()
                else 0.0
            )
            total += trial.samples * float(np.sum(w[rare] * jumps))
            common.append((sign * scale * h[~rare], w[~rare]))
        total += _saddlepoint(common, trial.samples, z)
    return total / stated


def _saddlepoint(laws: list[tuple[Any, Any]], samples: int, z: float) -> float:
    """P(Z > z) = exp(K(t) - t z + t^2 K''(t)/2) Phi(-t sqrt(K''(t))), K'(t) = z, exp(K(t)) = E exp(t Z)."""

    def cumulants(t: float) -> tuple[float, float, float]:
        total = np.zeros(3)
        for h, w in laws:
            tilted = w * np.expm1(t * h)
            norm = 1 + tilted.sum()
            mean = (tilted @ h) / norm  # E h = 0
            total += math.log1p(tilted.sum()), mean, ((tilted + w) @ h**2) / norm - mean**2
        return tuple(samples * total)  # type: ignore[return-value]

    low, high = 0.0, z
    while cumulants(high)[1] < z:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if cumulants(middle)[1] < z else (low, middle)
    k, _, second = cumulants(low)
    width = low * math.sqrt(second)
    return math.exp(k - low * z + width**2 / 2) * math.erfc(width / math.sqrt(2)) / 2


def influence_laws(trial: Trial, direction: int) -> Iterator[tuple[Any, Any]]:
    """The centred influence function and its weights, a pair for each measure."""
    sampler = trial.sampler
    exact = {mean: sampler.compute_exact_mean(mean) for _, ms in trial.side for mean in ms}
    by_measure: dict[str, list[tuple[Any, float]]] = {}
    for coefficient, means in trial.side:
        for j, mean in enumerate(means):
            others = [float(exact[m][direction]) for m in means[:j] + means[j + 1 :]]
            weight = sampler.evaluate_constant(coefficient) * math.prod(others)
            by_measure.setdefault(mean.measure, []).append((mean, weight))
    for measure, parts in by_measure.items():
        if isinstance(sampler, FiniteSampler):
            weights = sampler.probabilities[measure]
            rows = [sampler.compute_rows(mean)[direction] for mean, _ in parts]
        else:
            assert isinstance(sampler, GaussianSampler)
            x = np.linspace(-12, 12, 6001)
            weights = np.exp(-(x**2) / 2) / np.exp(-(x**2) / 2).sum()
            asked = tuple((mean.coefficient, (direction,) * len(mean.score)) for mean, _ in parts)
            rows = list(sampler.build_task(measure, asked).evaluate_rows(x))
        h = sum(weight * row for (_, weight), row in zip(parts, rows, strict=True))
        yield h - h @ weights, weights


# ---------------------------------------------------------------------------- output
def show(title: str, head: Row, rows: Iterator[tuple[Row, bool]]) -> bool:
    found = list(rows)
    widths = [max(len(row[i]) for row in (head, *(row for row, _ in found))) for i in range(len(head))]
    print(f"\n{title}")
    for row in (head, *(row for row, _ in found)):
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return all(good for _, good in found)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure the error rates of the sampled cross-checks.")
    parser.add_argument("--runs", type=int, default=2000, help="seeds of each count (2000)")
    parser.add_argument("--seed", type=int, default=0, help="the first of them (0)")
    chosen = parser.parse_args(argv)
    if chosen.runs < 100 or chosen.seed < 0:
        parser.error("--runs: 100 or more, --seed: 0 or more, expected")
    start, runs, seed = time.perf_counter(), chosen.runs, chosen.seed
    good = [show(title.format(runs=runs), tuple(head.split("|")), rows) for title, head, rows in (
        ("Runs with any false alarm, of {runs}",
         "identities on|N|comparisons|counted|stated|measured|if independent|99.9 %|",
         false_alarms(runs, seed)),
        ("p-values of single comparisons, {runs} seeds: Kolmogorov distance times sqrt(n)",
         "identities on|N|estimate of|distance|mean z|sd z", uniformity(runs, seed)),
        ("Far tails, exactly: rate beyond the threshold over the stated rate, at the fewest samples",
         "law|skewness|kurtosis|stated|N|normal z|ratio|corrected z|ratio", far_tails()),
        ("Biases of exactly the stated size that were missed, of {runs}",
         "identities on|N|stated|upwards|downwards", misses(runs, seed)),
        ("The ledger: rate of false alarms of each comparison (saddlepoint) over the stated rate",
         "sampled on|comparisons|stated|median|worst|of", ledger(seed)),
    )]  # fmt: skip
    verdict = "every rate is kept" if all(good) else "SOME RATE IS NOT KEPT"
    print(f"\n{verdict}; {time.perf_counter() - start:.0f} s")
    return 0 if all(good) else 1


if __name__ == "__main__":
    raise SystemExit(main())
