"""How many verdicts of `explain` the verified checker accepts as well, of random losses and of the gallery.

    python benchmarks/verified_verdicts.py --count 500 --seed 0 [--jobs 1]

The random losses are those of random_losses.py, of five kinds in turn: samples, all settings, named sums,
clamps and masks, and comparisons, critics and cut samplers.  A verdict counts as accepted where Rocq accepts
each part of each of its proofs; it is outside where a part has no script, for the reason that is printed.
The exit code is 1 if Rocq refuses a script.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import klsym
from klsym.study.rocq.export import export
from klsym.study.tables.trainers import trainers
from support.campaigns.stored import HOME
from support.judges import loss_worlds, verified_checker
from support.losses.random_losses import generate

KINDS = ("core", "anywhere", "sums", "clamped", "shipped")
LIMIT = 60  # seconds of the processor for a loss


class TooSlowError(Exception):
    """A loss was not done within the limit."""


def list_questions(count: int, seed: int) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield a name, a loss and its options: the gallery, then so many random losses, the kinds in turn."""
    for one in trainers():
        if one.loss:
            yield f"gallery {one.id}", one.loss, dict(one.options)
    for n in range(count):
        kind = KINDS[n % len(KINDS)]
        case = generate(kind, seed, n // len(KINDS))
        yield f"{kind} {n // len(KINDS)}", case.text, loss_worlds.options(case)


def list_certificates(loss: str, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the certificates of a verdict; none where it rests on no proof."""
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    try:
        return [proof.certificate() for proof in klsym.explain(loss, **options).proof.theorems]
    except (klsym.UsageError, TooSlowError):
        return []
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def print_counts(group: str, names: list[str], proofs: dict[str, Any], bad: set[str]) -> None:
    """Print how many verdicts of a group are accepted, and why the others are not."""
    reasons = Counter(why for name in names for why in {*proofs[name].outside.values()})
    proved = [name for name in names if proofs[name].parts]
    whole = [name for name in proved if not proofs[name].outside and not bad & {*proofs[name].scripts}]
    parts = sum(proofs[name].parts for name in proved)
    scripts = sum(len({*proofs[name].scripts} - bad) for name in proved)
    print(f"{group}: {len(whole)} of {len(names)} verdicts accepted as a whole, {len(proved)} have proofs")
    print(f"    {scripts} of {parts} parts; outside, verdicts:")
    print(*(f"    {count:4}  {why}" for why, count in reasons.most_common()), sep="\n")


def _stop(*_: Any) -> None:
    raise TooSlowError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=500, help="random losses")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes of Rocq")
    chosen = parser.parse_args()
    signal.signal(signal.SIGPROF, _stop)
    proofs = {}
    for name, loss, options in list_questions(chosen.count, chosen.seed):
        certificates = enumerate(list_certificates(loss, options), start=1)
        proofs[name] = export({f"{name} proof {number}": certificate for number, certificate in certificates})
    scripts = {part: text for exported in proofs.values() for part, text in exported.scripts.items()}
    refused = verified_checker.list_refused(scripts, HOME / "build" / "verified-verdicts", chosen.jobs)
    groups = ("gallery", *KINDS)
    for group in groups:
        print_counts(group, [name for name in proofs if name.split()[0] == group], proofs, {*refused})
    print_counts("random", [name for name in proofs if name.split()[0] in KINDS], proofs, {*refused})
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
