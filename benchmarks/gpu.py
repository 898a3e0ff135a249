"""Cross-check the whole ledger on a GPU and time sampling there; the results are kept in benchmarks/gpu.json.

    python benchmarks/gpu.py [--device cuda] [--repeats N]

The check is that of `klsym verify --backend torch --device cuda`. The cost of sampling is a ratio to
drawing the same normal numbers alone on the same card.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import date
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))  # where the campaigns are

from sampling import gaussian_ratios

from klsym.study.ledger.registry import load
from klsym.study.ledger.settle_claim import settle
from klsym.study.sampling.backends import choose_backend
from klsym.study.sampling.identities import Options
from klsym.study.sampling.verify import Report, build_table, summarise, verify
from support.campaigns.stored import version

STORED = Path(__file__).with_name("gpu.json")


def cross_checked(report: Report) -> dict[str, Any]:
    """Return the counts of a verification: identities, comparisons, negative controls, the worst autograd."""
    outcomes = report.outcomes
    autograd = [one.autograd for one in report.checked if one.autograd is not None]
    return {
        "identities": len(report.checked),
        "disagreeing": report.failed,
        "sampled comparisons": report.level.comparisons if report.level else 0,
        "negative controls": len(outcomes),
        "negative controls rejected": sum(outcome.rejected for outcome in outcomes),
        "compared with autograd": len(autograd),
        "largest relative difference from autograd": float(f"{max(autograd, default=0.0):.1e}"),
    }


def measured(device: str, repeats: int) -> dict[str, Any]:
    """Return everything that is stored; prints the table of the cross-check as it goes."""
    on = choose_backend("torch", device)
    settled = [settle(claim) for claim in load().values() if claim.verdict != "computed"]
    report = verify(settled, Options(on))
    print(build_table(report), *summarise(report), sep="\n", flush=True)
    sampling = {}
    for dtype in ("float64", "float32"):
        rate, ratios = gaussian_ratios(choose_backend("torch", device, dtype), repeats)
        sampling[dtype] = {"million normal numbers per second, alone": round(rate / 1e6)} | {
            f"{name} over the draw alone": float(f"{ratio:.3g}") for name, ratio in ratios.items()
        }
    return {"on": on.describe(), "claims": len(settled), **cross_checked(report), "sampling": sampling}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--repeats", type=int, default=5, help="each time is the best of these (5)")
    parser.add_argument("--commit", help="the commit that is tried, where git is not at hand")
    parser.add_argument("--output", type=Path, default=STORED)
    chosen = parser.parse_args()
    found = measured(chosen.device, chosen.repeats)
    found |= {"version": chosen.commit or version(), "date": date.today().isoformat()}
    chosen.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
