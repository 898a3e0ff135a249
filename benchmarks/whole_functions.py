"""How many whole loss functions of released packages are read: at first try, and after --map and --set.

    python benchmarks/whole_functions.py            # says what differs from the stored results
    python benchmarks/whole_functions.py --write    # stores them
    python benchmarks/whole_functions.py verl trl   # only these packages

The functions are those of whole_functions.toml, each with the formula that was read by hand from its source;
what an audit reads is compared with it by numbers, value and gradient.  The code is run as by `klsym audit`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from survey import choices, downloaded, unpacked

from klsym.audit.duals import Dual, evaluate
from klsym.confirmed.child import Runner
from klsym.errors import KlsymError
from klsym.files import write_whole
from klsym.language.expressions import unfold
from klsym.language.parser import parse_asked
from klsym.language.sums import OverVocabulary, Whole
from klsym.study.tables.measured_data import FUNCTIONS as STORED
from klsym.worker_process import Reply

HERE = Path(__file__).parent
SETTINGS = HERE / "whole_functions.toml"
SECONDS, GIGABYTES = 90, 4
POINTS = 200
ATOMS = {
    "log_q",
    "log_p",
    "log_mu",
    "log_old",
    "A",
    "R",
    "k1",
    "k2",
    "k3",
    "r",
    "rho",
    "rho_old",
    "T",
    "M",
    "n",
}
FUNCTIONS = {
    "sg", "clip", "min", "max", "exp", "log", "abs", "sqrt", "where", "full", "whole", "normalised", "future",
    "past", "js", "centred", "loo", "or", "and", "not",
}  # fmt: skip
MOST = 20_000  # assignments of the parameters that are tried


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packages", nargs="*", help="all of whole_functions.toml if none is named")
    parser.add_argument("--write", action="store_true", help="store the results")
    options = parser.parse_args()
    releases = all_releases()
    chosen = [r for r in releases if not options.packages or r["name"] in options.packages]
    rows = [row for release in chosen for row in rows_of(release)]
    kept = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else []
    before = {key(row): row for row in kept}
    changed = [row for row in rows if before.get(key(row)) != row]
    for row in changed:
        print(f"{' '.join(key(row)[:3])}: {json.dumps(row)[:240]}")
    print(json.dumps(counts(rows)))
    if options.write:
        names = {(row["package"], row["version"]) for row in rows}
        rest = [row for row in kept if (row["package"], row["version"]) not in names]
        whole = sorted([*rest, *rows], key=key)
        write_whole(STORED, json.dumps(whole, indent=1) + "\n")
    return 1 if changed and not options.write else 0


def all_releases() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads(SETTINGS.read_text(encoding="utf-8"))["release"]
    return found


def key(row: dict[str, Any]) -> tuple[str, ...]:
    return row["package"], row["version"], row["code"], row["file"], json.dumps(row["set"])


def counts(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Functions, releases, packages; how many were read when, and how many of those as by hand."""
    tally: dict[str, Any] = {
        "functions": len(rows), "releases": len({(r["package"], r["version"]) for r in rows}),
        "packages": len({r["package"] for r in rows}),
    }  # fmt: skip
    for name in ("first", "second", "by hand"):
        tally[name] = dict(sorted(Counter(r[name] for r in rows if r[name]).items()))
    measured = [r["measured"] for r in rows if r["measured"]]
    tally["measured"] = dict(sorted(Counter(m["kind"] for m in measured).items()))
    tally["as read"] = dict(sorted(Counter(m["as read"] for m in measured).items()))
    tally["answered"] = sum(r["second"] == "read" or r["measured"] is not None for r in rows)
    return tally


def rows_of(release: dict[str, Any]) -> list[dict[str, Any]]:
    wheel = downloaded(release)
    if wheel is None:
        return []
    folder = beside(unpacked(wheel), release.get("beside", []))
    with Runner(SECONDS, GIGABYTES) as runner:
        return [row_of(release, item, folder, runner) for item in release["function"]]


def beside(folder: Path, names: list[str]) -> Path:
    """The folder, with the files of the packages that are installed beside this one: "verl-0.9.1".

    Their releases are those of whole_functions.toml that have been unpacked before, or are unpacked now.
    """
    releases = {f"{r['name']}-{r['version']}": r for r in all_releases()}
    for name in names:
        wheel = downloaded(releases[name])
        for part in unpacked(wheel).iterdir() if wheel else ():
            if part.is_dir() and not (folder / part.name).exists():
                (folder / part.name).symlink_to(part.resolve())
    return folder


def row_of(release: dict[str, Any], item: dict[str, Any], folder: Path, runner: Runner) -> dict[str, Any]:
    """The results of the two tries."""
    [given] = choices(item.get("set", {}))
    first = asked(item, folder, runner, {}, given)
    [more] = choices(item.get("with", {}))
    named = {**item, "result": item.get("named", item.get("result"))}
    mapped = asked(named, folder, runner, item.get("map", {}), {**given, **more})
    second = mapped if "json" in mapped or outcome(mapped) == "differs" else first
    both = second.get("both") or mapped.get("both") or {}
    reason = "" if "json" in second else mapped["error"].replace(f"{folder}/", "")[:300]
    read = second["json"]["expression"] if "json" in second else ""
    numbers = [float(x) for x in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?:/\d+)?", read) if "/" not in x]
    return {
        "package": release["name"], "version": release["version"], "file": item["file"], "code": item["code"],
        "kind": item["kind"], "set": item.get("set", {}), "first": outcome(first), "second": outcome(second),
        "by hand": by_hand(read, item["formula"], numbers) if read else "", "read": read, "reason": reason,
        "measured": summarise(both.get("measured")),
        "unmeasured": str(both.get("unmeasured", "")).replace(f"{folder}/", "")[:300],
    }  # fmt: skip


def asked(item: dict[str, Any], folder: Path, runner: Runner, maps: Any, options: Any) -> Reply:
    use = {"use": "reward"} if item["kind"] == "reward" else {"sampling": "off-policy"}
    question = {"map": maps, "set": options, "result": item.get("result"), **use}
    return runner.ask(
        {
            "target": f"{folder / item['file']}:{item['code']}",
            "options": question,
            "expect": None,
            "measure": True,
        }
    )


def summarise(measured: dict[str, Any] | None) -> dict[str, Any] | None:
    """The part of a measurement that is stored: its answer, and whether it agrees with the reading."""
    if measured is None:
        return None
    is_same = {True: "yes", False: "no", None: "not compared"}[measured["agrees"]]
    kept = {name: measured[name] for name in ("kind", "multiples", "has_objective")}
    return {**kept, "as read": is_same}


def outcome(reply: Reply) -> str:
    if "json" in reply:
        return "read"
    error = reply["error"]
    named = {
        "whose gradient is not": "differs",
        "disagrees with the code": "differs",
        "please report it": "crashed",
        "no answer within": "late",
    }
    return next((name for words, name in named.items() if words in error), "refused")


# ---------------------------------------------------------------------------- by hand
def by_hand(read: str, formula: str, numbers: list[float]) -> str:
    """Is what is read the formula by hand, for some values of its parameters?  By eye if not compared."""
    try:
        mine, other = (unfold(parse_asked(text, parameters(text))) for text in (read, formula))
    except KlsymError:
        return "by eye"
    if any(e.atoms(Whole, OverVocabulary) for e in (mine, other)) or not formula:
        return "by eye"
    free, wanted = parameters(read), parameters(formula)
    values = {name: 0.11 + 0.083 * n for n, name in enumerate(free)}
    candidates = sorted({*values.values(), *numbers, 0.2, 0.25, 1 / 3, 3.0, 1.0})
    for chosen in itertools.islice(itertools.product(candidates, repeat=len(wanted)), MOST):
        if same(mine, values, other, dict(zip(wanted, chosen, strict=True))):
            return "yes"
    return "no"


def parameters(text: str) -> list[str]:
    return sorted({*re.findall(r"[A-Za-z_]\w*", text)} - {*ATOMS, *FUNCTIONS})


def same(mine: Any, values: dict[str, float], other: Any, chosen: dict[str, float]) -> bool:
    rng = np.random.default_rng(3)
    base = {name: rng.normal(size=(POINTS, 1, 1)) for name in ("A", "R")}
    base |= {f"log_{x}": -1.5 - np.abs(rng.normal(size=(POINTS, 1, 1))) for x in ("q", "p", "mu", "old")}
    both = []
    for e, numbers in ((mine, values), (other, chosen)):
        known = {}
        for x in e.free_symbols:
            value = base.get(x.name, np.full((POINTS, 1, 1), numbers.get(x.name, 5.0)))
            known[x] = Dual(value, np.ones((POINTS, 1, 1, 1)) if x.name == "log_q" else None)
        found = evaluate(e, known)
        slope = np.zeros(1) if found.slope is None else found.slope
        both.append((np.broadcast_to(found.value, (POINTS, 1, 1)), np.broadcast_to(slope, (POINTS, 1, 1, 1))))
    (a, da), (b, db) = both
    sound = np.isfinite(a) & np.isfinite(b)
    close = np.allclose(a[sound], b[sound], rtol=1e-5, atol=1e-8)
    return bool(close and np.allclose(da[sound], db[sound], rtol=1e-5, atol=1e-8))


if __name__ == "__main__":
    sys.exit(main())
