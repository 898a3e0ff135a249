"""What klsym costs, as ratios within one run, kept release by release in benchmarks/releases.json.

    python benchmarks/ratios.py [--repeats 5] [--only verdicts ledger ...]
    PYTHONPATH=FOLDER python benchmarks/ratios.py --only verdicts   klsym of another folder

The unit is `import sympy` in a fresh interpreter, measured in the same run.  Times are of the processor,
children included, the least of several where they are short.  As a machine gets faster and slower while it
is measured, what has an aim is timed in turns with what it is compared with, and the median ratio counts.
Beside each ratio that of the release before is printed.
`make pages` writes docs/benchmarks.md from what is stored.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from itertools import combinations, count
from pathlib import Path
from typing import Any

HOME = Path(__file__).resolve().parents[1]
STORED = Path(__file__).with_name("releases.json")
Measures = dict[str, float]
SIZES = (4, 8, 16, 32, 64)  # terms of a loss
OFF_POLICY = ("--sampling", "off-policy")
ASKED = {  # one verdict each, as it is asked for on the command line
    "one verdict": ("explain", "rho*k3", *OFF_POLICY, "--json"),
    "a verdict on PPO's clip": ("explain", "-min(rho*A, clip(rho, 1-eps, 1+eps)*A)", *OFF_POLICY),
    "a verdict on k3 per token": ("explain", "k3", "--level", "token"),
    "a verdict on GSPO": ("explain", "gspo"),
    "klsym --help": ("--help",),
}
SUM = "import sympy; sympy.Symbol('x') + sympy.Symbol('y')"  # for which SymPy imports its tensors
TERMS = (
    "k1",
    "rho*k1",
    "sg(rho)*k3",
    "rho*k3",
    "R*log_q",
    "rho*A",
    "rho*k1**2",
    "r*k1",
    "sg(k1)*log_q",
    "k2",
)
PAIRS = [*combinations(TERMS, 2)]
STREAM = [*(f"{a} - lam*{b}" for a, b in PAIRS), *(f"{a} + {n}*{b}" for n, (a, b) in enumerate(PAIRS, 2))]
AUDITED = ("audit", "tests/support/audits/audited.py:ratio_k3", *OFF_POLICY)


# ---------------------------------------------------------------------------- measuring
def child(*command: str, text: str = "") -> tuple[float, float]:
    """Seconds of the processor and megabytes that a command takes at most; text: what it reads."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    installed = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(command, cwd=tree(), env=installed, stdin=subprocess.PIPE, text=True, **quiet)
    assert process.stdin is not None
    with process.stdin:
        process.stdin.write(text)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)[:80]}: exit code {process.returncode}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


@cache
def tree() -> Path:
    """The folder of the klsym that is imported."""
    found = find_spec("klsym")
    assert found is not None and found.origin is not None
    return Path(found.origin).resolve().parents[1]


def cli(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "klsym", *arguments)


def least(action: Callable[[], Any], repeats: int) -> float:
    """The least seconds of the processor that it takes."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return min(times)


def in_turns(one: Callable[[], float], other: Callable[[], float], repeats: int) -> float:
    """The median of the other's time over the first one's, taken one right after the other."""
    pairs = [(one(), other()) for _ in range(repeats)]
    return statistics.median(second / first for first, second in pairs)


def bare(modules: str) -> float:
    """Seconds to import them in a fresh interpreter."""
    return child(sys.executable, "-c", f"import {modules}")[0]


@cache
def unit(repeats: int) -> tuple[float, float]:
    """Seconds and megabytes of `import sympy`."""
    return min(child(sys.executable, "-c", "import sympy") for _ in range(repeats))


# ---------------------------------------------------------------------------- what is measured
def verdicts(repeats: int) -> Iterator[tuple[str, float]]:
    """One verdict, with all that is loaded for it; and many, in a process that runs."""
    seconds, megabytes = unit(repeats)
    for name, words in ASKED.items():
        spent = in_turns(lambda: bare("sympy"), lambda words=words: child(*cli(*words))[0], 4 * repeats)
        yield f"{name} over import sympy", spent
    added = in_turns(lambda: bare("sympy"), lambda: child(sys.executable, "-c", SUM)[0], 4 * repeats)
    yield "a first sum in SymPy over import sympy", added
    yield "import klsym over import sympy", in_turns(lambda: bare("sympy"), lambda: bare("klsym"), repeats)
    one = [child(*cli(*ASKED["one verdict"]))[1] for _ in range(repeats)]
    yield "peak memory of a verdict over that of import sympy", min(one) / megabytes
    spent = in_turns(lambda: bare("sympy"), stream, repeats)
    yield "losses of a stream with JSON in the time of one import sympy", len(STREAM) / spent
    yield "losses of a stream with JSON in a second of this processor", len(STREAM) / spent / seconds
    from klsym import explain

    losses = ("k1", "k2", "k3", "rho*k1", "sg(rho)*k3 + R*k1", "rho*k3 - lam*k2", "k1*r + k2", "sg(k1)*log_q")
    fresh = count(2)  # a factor, so that nothing is looked up

    def some() -> None:
        factor = next(fresh)
        for loss in losses:
            explain(f"{factor}*({loss})", sampling="off-policy")

    spent = least(some, repeats + 1)
    yield "verdicts in the time of one import sympy", seconds * len(losses) / spent


def stream() -> float:
    """Seconds for the losses of a stream, off-policy with two terms each, less what it costs to start."""
    asked = cli("explain", "-", *OFF_POLICY)
    whole, start = (child(*asked, text="\n".join(losses))[0] for losses in (["k1", *STREAM], ["k1"]))
    return whole - start


def ledger(repeats: int) -> Iterator[tuple[str, float]]:
    """All claims but experiments: the search for proofs, the kernel alone, the exact oracle."""
    from klsym.kernel import check
    from klsym.kernel import replay as kernel
    from klsym.study.ledger.registry import load
    from klsym.study.ledger.settle_all import check_settled
    from klsym.study.ledger.settle_claim import settle

    seconds, megabytes = unit(repeats)
    # First: Linux counts what its parent holds as the peak of a child.
    area = child(*cli("prove", "gradient", "offpolicy", "value"))
    yield "peak memory of proving three areas over that of import sympy", area[1] / megabytes
    claims, settled = [claim for claim in load().values() if claim.verdict != "computed"], list[Any]()
    spent = least(lambda: settled.extend(map(settle, claims)), 1)
    yield "the ledger settled, in imports of SymPy", spent / seconds
    certificates = [json.loads(json.dumps(one.certificate())) for one in settled if one.proofs]

    def replay() -> None:
        kernel._CHECKED.clear()
        for certificate in certificates:
            check(certificate)

    yield "its certificates replayed, in imports of SymPy", least(replay, repeats) / seconds
    yield (
        "judged by the exact oracle, in imports of SymPy",
        least(lambda: [*map(check_settled, settled)], 1) / seconds,
    )


def rocq(repeats: int) -> Iterator[tuple[str, float]]:
    """The verified checker: compiled, and run on the whole ledger."""
    if shutil.which("coqc"):
        folder = HOME / "build" / "bench-rocq"
        shutil.rmtree(folder, ignore_errors=True)
        child(*cli("export", "--rocq", str(folder)))
        spent = child(sys.executable, "rocq/check.py", str(folder))[0]
        yield "checked by Rocq, its checker compiled, in imports of SymPy", spent / unit(repeats)[0]


def growth(repeats: int) -> Iterator[tuple[str, float]]:
    """The exponent a of the cost n^a of explaining a loss of n terms, by least squares on logarithms."""
    from klsym import explain

    fresh = count(2)  # a factor, so that nothing is looked up

    def verdict(size: int) -> None:
        factor = next(fresh)
        terms = (f"{factor * (n + 1)}*rho*k1**{n % 6}*r**{n // 6}" for n in range(size))
        explain(" + ".join(terms), sampling="off-policy")

    verdict(2)
    points = [(math.log(n), math.log(least(lambda n=n: verdict(n), repeats))) for n in SIZES]
    yield f"growth exponent of a verdict, {SIZES[0]} to {SIZES[-1]} terms", slope(points)


def slope(points: list[tuple[float, float]]) -> float:
    """
    >>> slope([(0, 1), (1, 3), (2, 5)])
    2.0
    """
    x, y = (sum(values) / len(points) for values in zip(*points, strict=True))
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)


def sampling(repeats: int) -> Iterator[tuple[str, float]]:
    """Gaussian gradients beside their normal numbers alone; counts, which cost the same for every N."""
    import numpy as np
    from sampling import CHECKS, DRAWN, MODEL, draw_alone, random_model, sample

    from klsym.language.abbreviations import Context
    from klsym.study.sampling.backends import choose_backend
    from klsym.study.sampling.finite import FiniteSampler
    from klsym.study.sampling.gaussians import GaussianSampler

    on, check = choose_backend("numpy", None), CHECKS["E_q[grad k3]"]
    spent = in_turns(
        lambda: least(lambda: draw_alone(on, DRAWN), 1),
        lambda: least(lambda: sample(GaussianSampler(MODEL, on=on), check, DRAWN), 1),
        4 * repeats,
    )
    yield "sampling Gaussian gradients over the draw alone", spent

    def counts(number: int) -> float:
        sampler = FiniteSampler(random_model(0, 8), Context(), directions=np.eye(8))
        return least(lambda: [sample(sampler, check, number) for _ in range(50)], repeats)

    spent = in_turns(lambda: counts(10**3), lambda: counts(10**12), 4 * repeats)
    yield "counting 1e12 samples over counting 1e3", spent


def experiments(repeats: int) -> Iterator[tuple[str, float]]:
    """All experiments, run one after the other."""
    from klsym.experiments.catalogue import EXPERIMENTS, result

    spent = least(lambda: [result(name) for name in EXPERIMENTS], 1)
    yield "all experiments, in imports of SymPy", spent / unit(repeats)[0]


def audit(repeats: int) -> Iterator[tuple[str, float]]:
    """One function read, confirmed by autograd and explained, beside the import that it needs."""
    try:
        import torch  # noqa: F401
    except ImportError:
        return
    spent = in_turns(lambda: bare("torch, sympy"), lambda: child(*cli(*AUDITED))[0], repeats)
    yield "one audit over import torch, sympy", spent


GROUPS: dict[str, Callable[[int], Iterator[tuple[str, float]]]] = {
    "verdicts": verdicts, "growth": growth, "ledger": ledger, "rocq": rocq, "sampling": sampling,
    "experiments": experiments, "audit": audit,
}  # fmt: skip


def record(measures: Measures, release: str, stored: Path = STORED) -> None:
    """What this release measures, beside what earlier ones did; what was left out stays as it was."""
    found = json.loads(stored.read_text(encoding="utf-8")) if stored.exists() else {}
    found[release] = found.get(release, {}) | {
        name: float(f"{value:.3g}") for name, value in measures.items()
    }
    stored.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def previous(release: str, what: str) -> str:
    """Return what the previous release measured, as text."""
    releases = json.loads(STORED.read_text(encoding="utf-8"))
    found = [(name, row[what]) for name, row in releases.items() if name != release and what in row]
    return f"{found[-1][0]}: {found[-1][1]:g}" if found else ""


def main() -> None:
    from klsym import __version__

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=5, help="of what is short (5)")
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=list(GROUPS), help="what is measured")
    chosen = parser.parse_args()
    for name in chosen.only:
        for what, value in GROUPS[name](chosen.repeats):
            print(f"{what:60} {value:8.3g}   {previous(__version__, what)}", flush=True)
            record({what: value}, __version__)


if __name__ == "__main__":
    main()
