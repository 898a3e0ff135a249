"""klsym on many random losses against the literal oracle of tests/, in parallel processes.

    python benchmarks/random_losses.py anywhere --count 20000 --seed 0   # all settings and levels
    python benchmarks/random_losses.py sums --count 10000 --seed 0       # losses that name their sums
    python benchmarks/random_losses.py clamped --count 3000 --seed 0     # clamps, masks, third policies; kept
    python benchmarks/random_losses.py discounted --count 2000 --seed 0  # discounted sums over tokens
    python benchmarks/random_losses.py shipped --count 5000 --seed 0     # masks, critics, cut samplers
    python benchmarks/random_losses.py methods --count 3000 --seed 0     # gates, logs of 1 - q, exact means
    python benchmarks/random_losses.py detached --count 3000 --seed 0    # held quotients beside masks
    python benchmarks/random_losses.py tokens --count 10000 --seed 0     # the kernel's rules on sums over t

Each failing loss is printed as soon as it is found; at the end stand the share of open answers in every
setting and their reasons, and one line in summary.  The exit code is 1 if any loss failed.  A loss is known
by its seed and number, so neither --jobs nor --count changes what it is: what is in the file of --log is not
done again, so that a run that was cut off goes on.  With "tokens", losses whose exact gradients are equal
though klsym's canonical forms differ are printed too: they are no failures, but what that form misses.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

# The only place that knows where the helpers live; in front, because this script shares a name with one.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
# One thread a process: the matrices are small, and the processes fill the machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from support.campaigns import stored as campaigns
from support.judges import bounds_judge, cut_judge, loss_judge, token_loss_judge
from support.losses import random_losses

SHOWN = 5  # failing losses in the summary line; all are printed above it
LONGEST = 160  # characters of a reason
CENTRED, KINKED = re.compile(r"\b(loo|centred|others)\("), re.compile(r"\b(clip|min|max|abs)\(")
SUMS = re.compile(r"\b(past|now|future|whole|togo|seqmean|others|loo|centred)\(")
LIMIT = 120  # seconds of the processor for a loss; what takes longer has failed
FORMULA = re.compile(
    r"'[^']*'|(?<=for h = )[^;]*|(?<= at ).*?(?= in the )"
)  # what differs between two tellings of one reason


NAMES = {
    "anywhere": "losses", "sums": "named sums", "clamped": "clamped losses",
    "discounted": "discounted losses", "shipped": "shipped losses", "methods": "losses of new methods",
    "detached": "detached functions",
}  # fmt: skip
JUDGES = {"clamped": bounds_judge.examined, "shipped": cut_judge.examined}


class TooSlow(Exception):
    """A loss was not done within the limit."""


def judge(seed: int, number: int, kind: str = "anywhere") -> tuple[int, dict[str, Any]]:
    """Generate, explain and judge one loss."""
    case, one = random_losses.generate(kind, seed, number), JUDGES.get(kind, loss_judge.examine)
    start = time.process_time()
    signal.signal(signal.SIGPROF, _too_slow)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    try:
        found = one(case)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    answer = {"text": case.text, "room": random_losses.room_of(case), "target": found.target}
    return number, answer | {
        "reason": found.reason, "complaints": list(found.complaints), "seconds": time.process_time() - start,
    }  # fmt: skip


def _too_slow(*_: Any) -> None:
    raise TooSlow(f"more than {LIMIT} s of the processor")


def judge_tokens(seed: int, number: int) -> token_loss_judge.Outcome:
    """Generate, reduce and judge one loss over sequences; some with a certificate."""
    case = random_losses.quantity(seed, number)
    return token_loss_judge.examine(case, certified=number % token_loss_judge.CERTIFIED == 0)


# ---------------------------------------------------------------------------- verdicts
def verdicts(chosen: argparse.Namespace) -> bool:
    """Judge so many verdicts, those in the log included; has any failed?"""
    kind, name = chosen.kind, NAMES[chosen.kind]
    log = Path(chosen.log or campaigns.log_of(name, chosen.seed))
    start, base = time.perf_counter(), campaigns.version()
    one = partial(judge, kind=kind)
    answers = campaigns.resumed(log, chosen.count, one, chosen.seed, chosen.jobs, _print_failed)
    print(table(answers))
    print(_in_short(answers, time.perf_counter() - start))
    seconds = sum(answer["seconds"] for answer in answers)
    shares = {"reasons": reasons(answers), "settings": by_setting(answers)}
    campaigns.record(name, counted(answers), chosen.seed, seconds, base, **shares)
    return any(answer["complaints"] for answer in answers)


def _print_failed(number: int, answer: dict[str, Any]) -> None:
    print(f"FAILED {number} {_told(answer)}", flush=True)


def _told(answer: dict[str, Any]) -> str:
    return f"{answer['text']!r} ({answer['room']}): {'; '.join(answer['complaints'])[:300]}"


def table(answers: list[dict[str, Any]]) -> str:
    """The share of open, refused and failed losses in every setting, and why they are open or refused."""
    lines = [f"{'setting':68} {'losses':>6} {'open':>6} {'refused':>8} {'failed':>7}"]
    for room in [*sorted({answer["room"] for answer in answers}), "all"]:
        here = [answer for answer in answers if room in (answer["room"], "all")]
        counts = [sum(answer["target"] == of for answer in here) for of in ("open", "refused")]
        counts.append(sum(bool(answer["complaints"]) for answer in here))
        shares = [f"{100 * count / len(here):.1f}%" for count in counts]
        lines.append(f"{room:68} {len(here):6} {shares[0]:>6} {shares[1]:>8} {counts[2]:7}")
    for of in ("open", "refused"):
        lines.append(f"{of}, because")
        for reason, losses in because(answers, of).items():
            lines.append(f"{len(losses):6}  {reason}, as for {min(losses, key=len)}")
    return "\n".join(lines)


def because(answers: list[dict[str, Any]], of: str) -> dict[str, list[str]]:
    """The losses that are open, or refused, by reason; the most frequent first."""
    found: dict[str, list[str]] = {}
    for answer in answers:
        if answer["target"] == of:
            reason = FORMULA.sub("..", answer["reason"])[:LONGEST] or "nothing is said"
            found.setdefault(reason, []).append(f"{answer['text']!r} ({answer['room']})")
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def counted(answers: list[dict[str, Any]]) -> dict[str, int]:
    """What is stored of a run."""
    kinds = {
        "per token": lambda a: a["room"].startswith("token"),
        "in batches": lambda a: a["room"].startswith("batch") or CENTRED.search(a["text"]),
        "with clamps": lambda a: KINKED.search(a["text"]),
        "with a third policy": lambda a: "old" in a["text"],
        "with masks": lambda a: "M*" in a["text"],
        "naming sums": lambda a: SUMS.search(a["text"]),
        "open": lambda a: a["target"] == "open",
        "refused": lambda a: a["target"] == "refused",
        "contradicted": lambda a: bool(a["complaints"]),
    }
    counts = {name: sum(bool(is_one(a)) for a in answers) for name, is_one in kinds.items()}
    seconds = sorted(answer["seconds"] for answer in answers)
    times = {"median ms": round(1000 * seconds[len(seconds) // 2]), "slowest s": round(seconds[-1])}
    return {"losses": len(answers), **counts, **times}


def by_setting(answers: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Losses, open ones, refused ones and complaints, by level, batch and sampling."""
    found: dict[str, list[dict[str, Any]]] = {}
    for answer in answers:
        words = answer["room"].split(", ")
        at = next(i for i, word in enumerate(words) if word in ("loss", "reward"))
        found.setdefault(", ".join((*words[:at], words[at + 1])), []).append(answer)
    counts = {room: counted(there) for room, there in sorted(found.items())}
    shown = ("losses", "open", "refused", "contradicted")
    return {room: {name: counts[room][name] for name in shown} for room in counts}


def reasons(answers: list[dict[str, Any]]) -> dict[str, int]:
    kinds = (("open", because(answers, "open")), ("refused", because(answers, "refused")))
    return {
        f"{of}: {reason.removeprefix('open: ')}": len(n) for of, found in kinds for reason, n in found.items()
    }


def _in_short(answers: list[dict[str, Any]], seconds: float) -> str:
    targets = Counter(answer["target"] for answer in answers)
    failed = [repr(answer["text"]) for answer in answers if answer["complaints"]]
    slowest = max(answers, key=lambda answer: answer["seconds"])
    parts = (f"{len(answers)} losses in {seconds:.0f} s", _listed(targets), _failures(failed),
             f"the slowest took {slowest['seconds']:.1f} s: {slowest['text']!r}")  # fmt: skip
    return "; ".join(parts)


# ---------------------------------------------------------------------------- canonical forms
def forms(chosen: argparse.Namespace) -> bool:
    """Judge the rules on so many losses over sequences; has any failed?"""
    outcomes: list[token_loss_judge.Outcome] = []

    def keep(outcome: token_loss_judge.Outcome) -> None:
        outcomes.append(outcome)
        if outcome.complaints:
            print(f"FAILED {_shown(outcome.case)}: {'; '.join(outcome.complaints)[:300]}", flush=True)

    start = time.perf_counter()
    campaigns.run(judge_tokens, list(range(chosen.count)), chosen.seed, chosen.jobs, keep)
    print(summary_of_tokens(outcomes, time.perf_counter() - start))
    return any(outcome.complaints for outcome in outcomes)


def _shown(case: Any) -> str:
    return f"{case.text!r} ({', '.join(str(v) for name, v in vars(case).items() if name != 'text')})"


def summary_of_tokens(outcomes: list[Any], seconds: float) -> str:
    """One line: kinds, settings, errors, certificates, how far the forms are complete, failures."""
    for one, other in (found := token_loss_judge.compare(outcomes)).missed:
        print(f"EQUAL GRADIENTS, TWO FORMS {_shown(one.case)} and {_shown(other.case)}")
    kinds = Counter(outcome.case.kind for outcome in outcomes)
    settings = Counter(f"{outcome.case.sampling} under {outcome.case.under}" for outcome in outcomes)
    judged = [outcome.errors for outcome in outcomes if outcome.errors]
    largest = max((max(e["form"], e["in steps"]) for e in judged), default=0.0)
    least = min((e["changed"] for e in judged), default=0.0)
    refused = sum(line.startswith("refused") for outcome in outcomes for line in outcome.complaints)
    parts = (
        f"{len(outcomes)} losses in {seconds:.0f} s; {_listed(kinds)}; {_listed(settings)}",
        f"largest error {largest:.1e} of the terms, least of a wrong coefficient {least:.1e}",
        f"{found.forms} canonical forms of {found.gradients} gradients, {len(found.undecided)} undecided",
        f"largest distance under one form {found.worst:.1e}; {refused} refused",
        _failures([repr(outcome.case.text) for outcome in outcomes if outcome.complaints]),
    )
    return "; ".join(parts)


def _listed(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(counter.items()))


def _failures(texts: list[str]) -> str:
    shown = texts[:SHOWN] + ["..."] * (len(texts) > SHOWN)
    return f"{len(texts)} failures" + (f": {', '.join(shown)}" if texts else "")


def options(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Judge klsym on random losses.")
    parser.add_argument("kind", nargs="?", choices=(*NAMES, "tokens"), default="anywhere", help="of losses")
    parser.add_argument("--count", type=int, default=20_000, help="how many losses (20000)")
    parser.add_argument("--seed", type=int, default=0, help="of the sequence of losses (0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (one a core)")
    parser.add_argument("--log", help="where outcomes are kept (build/losses-KIND-SEED-DIGEST.jsonl)")
    chosen = parser.parse_args(argv)
    if chosen.count < 1 or chosen.jobs < 1:
        parser.error("--count and --jobs: positive numbers expected")
    return chosen


def main(argv: list[str] | None = None) -> int:
    chosen = options(argv)
    return int((forms if chosen.kind == "tokens" else verdicts)(chosen))


if __name__ == "__main__":
    raise SystemExit(main())
