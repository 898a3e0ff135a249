"""Certificates changed at random: each is refused in one line or true, within 10 s and 500 MB.

    python -m support.campaigns.mutated_certificates --count 100000 [--seed 0] [--out accepted.jsonl]

A worker process checks them one after another under limits of time and memory; when it dies, the mutant that
killed it is reported and another worker goes on.  Accepted mutants are written to a file to be judged.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from klsym.errors import KlsymError, Refused
from klsym.kernel import FORMAT, apply_step, certify, check, digest, read
from klsym.kernel.assumptions import Assumptions
from klsym.kernel.replay import read_rows, read_statement
from klsym.kernel.ring import set_budget
from support.certificates.region_certificates import CERTIFICATES
from support.certificates.valid_certificates import PROOFS, certificate

SECONDS, MEGABYTES = 10, 500
WITH_SUPPORT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # for a worker
SLOTS = ("past", "now", "future", "x", "self", "other", "others", "rest", "now'", "x'", "past'")
NAMES = (
    "k1",
    "w",
    "log_q",
    "R",
    "A",
    "H",
    "length",
    "f",
    "g",
    "g'",
    "a",
    "b",
    "beta",
    "n",
    "sg(k1)",
    "sg(w)",
    "high",
    "inv",
    "sg(up)",
    "M",
)
WORDS: tuple[tuple[str, ...], ...] = (
    ("q", "p", "mu", "count", "sample"), ("", "i", "ij", "t", "it"), SLOTS, ("=", "<="), ("left", "right"),
    ("Mean", "MeanGradient", "Gradient", "Curl"), ("tangent", "square", "variance"),
    ("equality", "finite model", "completeness", "independence"),
    ("chain rule", "stop-gradient", "log-derivative", "linearity", "change of measure", "score mean zero",
     "ratio mean one", "normalisation", "sum over t", "parts of a sum", "exchange of sums", "curl",
     "independence", "equation", "region", "definition"),
    ("region", "log", "let"), ("definitions", "facts", "witness"),
)  # fmt: skip
NUMBERS = (
    "0",
    "1",
    "-1",
    "2",
    "-2",
    "1/2",
    "-1/2",
    "3",
    "7/3",
    "4096",
    "-4096",
    "1000000007",
    "1/1000000007",
)
HUGE = ("9" * 400, "9" * 3999, "1/" + "7" * 3999, "-" + "3" * 4000, "9" * 4001, "1" + "0" * 30)
POWERS = (1, -1, 2, 3, -2, 5, 64, 65, 400, 4096, -4096, 4097, 10**15, 0)
JUNK: tuple[Any, ...] = (
    None,
    True,
    False,
    1.5,
    "",
    "x",
    [],
    {},
    [[]],
    -1,
    10**18,
    "\n",
    "k1[x]",
    "sg(sg(k1))",
)

Place = tuple[str | int, ...]
DEFINING = {
    f"{name}, defined": CERTIFICATES[name]
    for name in (
        "ppo", "ppo objective", "as typed", "icepop", "clamped k3 no ties", "never negative", "sigmoid",
        "not kl", "causal", "mask objective", "kept token mean of one",
    )
}  # fmt: skip


# ---------------------------------------------------------------------------- one mutation
def places(data: Any, path: Place = ()) -> Iterator[Place]:
    """Every place of the data, down to a depth of 40."""
    yield path
    items = enumerate(data) if isinstance(data, list) else data.items() if isinstance(data, dict) else ()
    for key, value in items if len(path) < 40 else ():
        yield from places(value, (*path, key))


def look(data: Any, path: Place) -> Any:
    for key in path:
        data = data[key]
    return data


def put(data: Any, path: Place, value: Any) -> Any:
    """The data with one place changed; what is not on the way is shared."""
    if not path:
        return value
    changed = copy.copy(data)
    changed[path[0]] = put(data[path[0]], path[1:], value)
    return changed


def is_powers(value: Any) -> bool:
    return isinstance(value, dict) and all(type(power) is int for power in value.values())


def new_leaf(value: Any, rng: random.Random) -> Any:
    """Another leaf of the same kind, mostly."""
    if rng.random() < 0.05:
        return rng.choice(JUNK)
    if isinstance(value, str):
        for words in WORDS:
            if value in words and rng.random() < 0.9:
                return rng.choice(words)
        numeric = value.lstrip("-").replace("/", "").isdigit()
        if numeric:
            return rng.choice(HUGE if rng.random() < 0.1 else NUMBERS)
        return rng.choice(NAMES)
    if type(value) is int:
        return rng.choice([value + 1, value - 1, 0, rng.choice(POWERS)])
    return rng.choice(JUNK)


def new_powers(value: dict[str, int], rng: random.Random) -> dict[str, int]:
    """Another monomial: a variable more, less, in another slot, or to another power."""
    powers = dict(value)
    name = rng.choice(sorted(powers)) if powers and rng.random() < 0.7 else rng.choice(NAMES)
    match rng.randrange(4):
        case 0:
            powers.pop(name, None)
        case 1:
            powers[name] = rng.choice(POWERS[:5] if rng.random() < 0.8 else POWERS)
        case 2:
            base, power = name.partition("[")[0], powers.pop(name, 1)
            base = base.removeprefix("sg(").removesuffix(")")
            slot = rng.choice(("", "[past]", "[now]", "[future]", "[self]", "[others]", "[other]"))
            powers[rng.choice((base + slot, f"sg({base + slot})"))] = power
        case _:
            power = powers.pop(name, 1)
            powers[rng.choice(NAMES)] = power
    return powers


def deeper(value: Any, rng: random.Random) -> Any:
    depth = rng.choice((1, 3, 30, 150, 900, 3000))
    kind = rng.randrange(3)
    for _ in range(depth):
        value = (
            [value] if kind == 0 else {"k1": value} if kind == 1 else [[[["1", {}]], [["Gradient", value]]]]
        )
    return value


def longer(value: list[Any], rng: random.Random) -> list[Any]:
    if not value:
        return [rng.choice(JUNK)]
    if rng.random() < 0.15:
        return (value * rng.choice((3, 24, 200, 5000)))[:6000]
    k = rng.randrange(len(value))
    return [*value[:k], value[k], *value[k:]]


def mutate(data: Any, rng: random.Random, donors: list[Any]) -> Any:
    """One random change at one random place."""
    found = list(places(data))
    path = rng.choice(found)
    value = look(data, path)
    roll = rng.random()
    if is_powers(value) and roll < 0.7:
        return put(data, path, new_powers(value, rng))
    if not isinstance(value, list | dict) and roll < 0.8:
        return put(data, path, new_leaf(value, rng))
    if roll < 0.3:
        donor = rng.choice(donors) if rng.random() < 0.5 else data
        return put(data, path, look(donor, rng.choice(list(places(donor)))))
    if roll < 0.5 and path:
        return put(data, path[:-1], without(look(data, path[:-1]), path[-1]))
    if roll < 0.75 and isinstance(value, list):
        return put(data, path, longer(value, rng))
    if roll < 0.8:
        return put(data, path, deeper(value, rng))
    other = rng.choice(found)
    if other[: len(path)] == path or path[: len(other)] == other:
        return put(data, path, rng.choice(JUNK))
    return put(put(data, path, look(data, other)), other, value)


def enlarge(data: Any, rng: random.Random) -> Any:
    """One thing made as large as a small file may hold: a number, a power, a list of terms or steps."""
    found = list(places(data))
    path = rng.choice(found)
    value = look(data, path)
    if is_powers(value) and value:
        return put(data, path, {name: rng.choice((power, 64, 400, 4096)) for name, power in value.items()})
    if isinstance(value, str) and value.lstrip("-").replace("/", "").isdigit():
        return put(data, path, rng.choice((*HUGE[:4], *NUMBERS[-4:])))
    if isinstance(value, list) and value:
        size = len(json.dumps(value))
        times = min(rng.choice((2, 6, 18, 60, 400)), max(1, 30_000 // size))
        longer = [item for item in value for _ in range(times)]
        return put(data, path, longer)
    return data


def without(parent: Any, key: Any) -> Any:
    changed = copy.copy(parent)
    del changed[key]
    return changed


# ---------------------------------------------------------------------------- whole mutants
@cache
def originals() -> dict[str, dict[str, Any]]:
    return {name: certificate(name) for name in PROOFS} | {
        n: make().certificate() for n, make in DEFINING.items()
    }


def repaired(part: Any, cites: Any) -> Any:
    """The part with every result and hypothesis recomputed, where that is possible."""
    known = {digest(body): check_body(body) for body in cites}
    statement = read_statement(part)
    sides = {"left": statement.left, "right": statement.right}
    for side, _ in read_rows(part["close"], statement, Assumptions(statement.context)):
        sides["left"] = sides["left"] + side
    steps = []
    for step in part["steps"]:
        sides[step["side"]] = apply_step(sides, step, statement.context, known)[0]
        steps.append({**step, "result": sides[step["side"]].to_json()})
    part = {**part, "left": statement.left.to_json(), "right": statement.right.to_json(), "steps": steps}
    if part["close"].get("by") == "equality" and not part["close"].get("rows"):
        ends = {"left": sides["left"].to_json(), "right": sides["right"].to_json()}
        part["right"] = part["right"] if ends["left"] == ends["right"] else ends["left"]
        part["steps"] = [s for s in steps if s["side"] == "left" or ends["left"] == ends["right"]]
    return certify(part, known)[0]


def check_body(body: Any) -> Any:
    return check({"format": FORMAT, "cites": [], "parts": body, "digest": digest(body)})


def mutant(name: str, rng: random.Random) -> Any:
    """A certificate with up to four changes, signed anew; half of them with what follows made to follow."""
    body: Any = {key: value for key, value in originals()[name].items() if key != "digest"}
    donors = list(originals().values())
    target = ("parts",) if rng.random() < 0.8 else ()
    heavy = rng.choice((1, 2, 3, 5, 8)) if rng.random() < 0.15 else 0
    for _ in range(heavy):
        larger = {**body, "parts": enlarge(body["parts"], rng)}
        body = larger if len(json.dumps(larger)) < 100_000 else body
    for _ in range(0 if heavy else rng.choice((1, 1, 1, 2, 3, 4))):
        body = put(body, target, mutate(look(body, target), rng, donors)) if isinstance(body, dict) else body
    if not isinstance(body, dict):
        return body
    if rng.random() < 0.6:
        with (
            contextlib.suppress(
                KlsymError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError
            ),
            contextlib.suppress(AttributeError),
            set_budget(4_000_000),
        ):
            body = {**body, "parts": [repaired(part, body["cites"]) for part in body["parts"]]}
    try:
        return {**body, "digest": digest(body.get("parts"))}
    except (RecursionError, TypeError, ValueError):
        return {**body, "digest": ""}


def verdict(certificate: Any) -> tuple[str, Any]:
    """("refused", the line), ("accepted", theorems) or ("broken", what came out)."""
    try:
        return "accepted", check(as_read(certificate))
    except Refused as refusal:
        line = str(refusal)
        return ("refused", line) if line and "\n" not in line and len(line) < 900 else ("broken", line)
    except BaseException as error:
        return "broken", f"{type(error).__name__}: {error}"[:300]


def as_read(certificate: Any) -> Any:
    """What is read from the file of a certificate; what no file can hold stays as it is."""
    try:
        text = json.dumps(certificate)
    except (RecursionError, TypeError, ValueError):
        return certificate
    return read(text)


def of_number(seed: int, number: int) -> tuple[str, Any]:
    rng = random.Random(f"{seed} {number}")
    return name_of(seed, number), mutant(name_of(seed, number), rng)


def name_of(seed: int, number: int) -> str:
    return random.Random(f"name {seed} {number}").choice(sorted([*PROOFS, *DEFINING]))


# ---------------------------------------------------------------------------- workers
def work(seed: int, start: int, stop: int, step: int) -> None:
    """Check mutants; every line on stdout is an event, the first of each mutant before it is checked."""
    originals()
    resource.setrlimit(resource.RLIMIT_AS, (MEGABYTES << 20, MEGABYTES << 20))
    for number in range(start, stop, step):
        print(json.dumps(["start", number]), flush=True)
        signal.setitimer(
            signal.ITIMER_PROF, 2 * SECONDS
        )  # of the processor's time; then the worker is killed
        name, changed = of_number(seed, number)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        began = time.process_time()
        kind, found = verdict(changed)
        spent = time.process_time() - began
        signal.setitimer(signal.ITIMER_PROF, 0)
        event: list[Any] = [kind, number, name, round(spent, 3)]
        if kind == "broken":
            event.append(found)
        if kind == "accepted" and changed != originals()[name]:
            event.append(changed)
        print(json.dumps(event), flush=True)


def events(seed: int, count: int, job: int, jobs: int) -> Iterator[list[Any]]:
    """What workers say, one after another; a worker that dies is a mutant that breaks the limits."""
    start = job
    while start < count:
        command = [sys.executable, __file__, "--work", f"{seed},{start},{count},{jobs}"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL, env=WITH_SUPPORT
        ) as worker:
            assert worker.stdout is not None
            done = True
            for line in worker.stdout:
                event = json.loads(line)
                start, done = event[1], event[0] != "start"
                if done:
                    yield event
        if not done or worker.returncode:
            yield [
                "broken",
                start,
                name_of(seed, start),
                SECONDS,
                f"the worker ended with {worker.returncode}",
            ]
        start += jobs


def survey(seed: int, count: int, out: Path | None = None, job: int = 0, jobs: int = 1) -> dict[str, Any]:
    """Check so many mutants in subprocesses: how many of each kind, the slowest, and all that broke."""
    kinds, slowest, broken, accepted = Counter[str](), (0.0, -1), [], []
    for kind, number, name, spent, *more in events(seed, count, job, jobs):
        kinds[kind] += 1
        slowest = max(slowest, (spent, number))
        if kind == "broken":
            broken.append([number, name, spent, *more])
            print(f"BROKEN {number} {name} {more}", flush=True)
        if kind == "accepted" and more:
            accepted.append([number, name, more[0]])
    if out:
        out.write_text("".join(json.dumps(row) + "\n" for row in accepted))
    return {"kinds": dict(kinds), "slowest": slowest, "broken": broken, "accepted": accepted}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(*map(int, options.work.split(",")))
        return 0
    found = survey(options.seed, options.count, options.out)
    print(f"{found['kinds']}, slowest {found['slowest'][0]} s (number {found['slowest'][1]})")
    return 1 if found["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
