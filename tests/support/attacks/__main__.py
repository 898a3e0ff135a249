"""Attack the kernel: PYTHONPATH=tests python -m attacks --count 20000 --seed 1."""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from klsym.kernel import EQUATION, show
from klsym.kernel.statements import Context
from support.campaigns import stored as campaigns

from .closings import KINDS
from .defined import with_definitions
from .infinite_worlds import Unjudged, contradicted, random_infinite_world
from .judge import Verdict
from .judge_closings import judge_any
from .moves import PAIRS
from .parts import Accepted, Pool, equation
from .perturb import accepts_without, differs_when_read, perturbed

INFINITE = 6  # infinite worlds in which each theorem is judged
TARGETS = [*PAIRS, (EQUATION, "premise"), (EQUATION, "cited")]
SEQUENCES = [pair for pair in PAIRS if pair[1] in ("", "t") and pair[0] not in ("curl", "stop-gradient")]


@dataclass
class Tally:
    """What a run accepted, and how it was judged."""

    rules: Counter[tuple[str, str]] = field(default_factory=Counter)
    judged_rules: Counter[tuple[str, str]] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    worlds: Counter[str] = field(default_factory=Counter)
    theorems: Counter[str] = field(default_factory=Counter)
    zeros: Counter[str] = field(default_factory=Counter)
    tried: Counter[str] = field(default_factory=Counter)
    against: list[Any] = field(default_factory=list)

    def add(self, accepted: Accepted, verdict: Verdict) -> None:
        self.kinds[accepted.kind] += 1
        self.rules.update(accepted.used.keys())
        if verdict.judged["boundary"]:
            self.judged_rules.update(accepted.used.keys())
        self.worlds.update(verdict.judged)
        self.theorems["accepted"] += 1
        self.zeros.update(verdict.zeros)
        if accepted.theorem.zeros and accepted.theorem.kind == "proved":
            self.theorems["inequalities met as equalities"] += bool(verdict.judged["equality"])
        for name in ("full", "boundary", "touched", "n=1", "T=0", "T>1", "zero parameter"):
            self.theorems[f"judged: {name}"] += bool(verdict.judged[name])
        self.theorems["not judged"] += not (verdict.judged["full"] or verdict.judged["boundary"])
        self.theorems["not identically zero"] += verdict.nontrivial
        if verdict.against:
            self.against.append(accepted)

    def show(self) -> str:
        lines = ["theorems"] + [f"  {name:24} {n}" for name, n in self.theorems.items()]
        lines += ["certificates"] + [f"  {name:24} {n}" for name, n in self.tried.items()]
        lines += ["closings"] + [f"  {name:24} {n}" for name, n in sorted(self.kinds.items())]
        lines += ["worlds"] + [f"  {name:24} {n}" for name, n in self.worlds.most_common()]
        lines += ["theorems by the zeros they met"] + [f"  {z:24} {n}" for z, n in sorted(self.zeros.items())]
        lines += ["theorems by rule and index (judged on a boundary)"]
        for rule, index in sorted(self.rules):
            n, m = self.rules[rule, index], self.judged_rules[rule, index]
            lines.append(f"  {rule:20} {index or 'one':8} {n:6} {m:6}")
        return "\n".join(lines)


def compose(pool: Pool, tally: Tally, rng: random.Random, rules: tuple[str, ...] = ()) -> Accepted | None:
    """A random certificate: most often for the rule and index accepted least among a few.

    rules: only for these, about definitions.
    """
    if rules:
        parameters, functions = (("lam", "beta", "n"), (("f", ("k1",)),))
        context = with_definitions(Context(parameters, functions), rng)
        return equation(*rng.choice([pair for pair in PAIRS if pair[0] in rules]), pool, rng, context)
    if rng.random() < 0.2:  # for infinite worlds, which know no batches, functions and premises
        context = (
            with_definitions(Context(("beta", "lam")), rng) if rng.random() < 0.5 else Context(("beta",))
        )
        return equation(*rng.choice(SEQUENCES), pool, rng, context)
    if rng.random() < 0.4:
        return KINDS[rng.choices(list(KINDS), (6, 2, 1, 1))[0]](pool, rng)
    rule, index = min(rng.sample(TARGETS, 4), key=lambda pair: tally.rules[pair])
    return equation(rule, index, pool, rng)


def attack(
    count: int, seed: int, report: Any = None, to_the_end: bool = True, rules: tuple[str, ...] = ()
) -> Tally:
    """Judge so many accepted theorems, or those up to the first that is contradicted."""
    rng, tally, pool = random.Random(seed), Tally(), Pool()
    start, shown = time.monotonic(), 0
    while tally.theorems["accepted"] < count and (to_the_end or not tally.against):
        accepted = compose(pool, tally, rng, rules)
        if accepted is None:
            tally.tried["refused"] += 1
            continue
        settle(accepted, tally, rng, report)
        for _ in range(3):
            changed = perturbed(accepted, pool, rng)
            tally.tried["perturbed, refused" if changed is None else "perturbed, accepted"] += 1
            if changed and (changed.theorem.statement.relation == "<=" or rng.random() < 0.8):
                settle(changed, tally, rng, report)
        for name, wrong in (("other hypotheses", accepts_without), ("read again", differs_when_read)):
            tally.tried[name] += 1
            if wrong(accepted, pool, rng):
                tally.against.append(accepted)
                print(f"CONTRADICTED: {name}", json.dumps(accepted.part), flush=True)
        if rng.random() < 0.05:
            pool.add(accepted)
        if report and tally.theorems["accepted"] // 1000 > shown:
            shown += 1
            line = f"{tally.theorems['accepted']} in {time.monotonic() - start:.0f} s"
            print(f"{line}, {len(tally.against)} against", file=sys.stderr, flush=True)
    return tally


def settle(accepted: Accepted, tally: Tally, rng: random.Random, report: Any) -> None:
    """Judge one theorem."""
    verdict = judge_any(accepted.theorem, rng)
    tally.add(accepted, verdict)
    suited = not (accepted.theorem.statement.context.functions or accepted.theorem.statement.context.premises)
    for _ in range(INFINITE if suited else 0):
        world = random_infinite_world(accepted.theorem.statement.context.parameters, rng)
        try:
            false = contradicted(accepted.theorem, world)
        except (Unjudged, OverflowError, ZeroDivisionError):
            continue
        tally.theorems["judged: infinite worlds"] += 1
        if false:
            verdict.against = {"infinite world": world.names, "parameters": world.parameters}
            tally.against.append(accepted)
    if verdict.against and report:
        report(accepted, verdict)


def print_contradiction(accepted: Accepted, verdict: Verdict) -> None:
    print("CONTRADICTED\n" + show(accepted.theorem, full=True))
    print(json.dumps({"part": accepted.part, "cites": accepted.cites}))
    print(json.dumps(verdict.against), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    start, base = time.monotonic(), campaigns.version()
    tally = attack(options.count, options.seed, print_contradiction)
    print(tally.show())
    print(f"contradicted: {len(tally.against)}")
    counts = {"theorems": tally.theorems["accepted"], "certificates refused": tally.tried["refused"]}
    counts |= {"in infinite worlds": tally.theorems["judged: infinite worlds"]}
    counts |= {"not judged": tally.theorems["not judged"], "contradicted": len(tally.against)}
    campaigns.record("attacks", counts, options.seed, time.monotonic() - start, base)
    return 1 if tally.against else 0


if __name__ == "__main__":
    sys.exit(main())
