"""What released packages do with a KL: their own code, downloaded, audited, and written down as data.

    python benchmarks/survey.py            # says what differs from the stored results
    python benchmarks/survey.py --write    # stores them
    python benchmarks/survey.py verl trl   # only these packages

The releases are those of survey.toml, with the SHA-256 of each.  pip downloads them without what they depend
on; of their files only the lines that are named are run, by `klsym audit`, in a process of its own.  None of
their code is kept: the results are verdicts, line numbers and digests.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import klsym
from klsym.audit.binding import parse_option
from klsym.confirmed.child import Runner
from klsym.engine.targets.clamp_messages import remove_clips
from klsym.files import write_whole
from klsym.language.parser import parse
from klsym.notation import losses
from klsym.notation.printers import TEXT
from klsym.study.tables.survey import KNOWN, LONGEST, STORED

HERE = Path(__file__).parent
BUILD = HERE.parent / "build" / "survey"
# Off-policy the policy loss multiplies the whole reward by rho: "weighted" is the term with that weight.
SETTINGS: list[tuple[str, ...]] = [
    ("loss", "on-policy"), ("loss", "off-policy"), ("reward", "on-policy"), ("reward", "off-policy"),
    ("reward", "off-policy", "weighted"),
]  # fmt: skip
SECONDS, GIGABYTES = 300, 4
WHEELS = ("--only-binary", ":all:", "--implementation", "cp", "--python-version", "3.12")
PLATFORMS = ("any", "manylinux1_x86_64", "manylinux2014_x86_64", "manylinux_2_28_x86_64")
BY_OLD = ("--only-binary", ":all:", "--implementation", "cp", "--python-version", "3.11")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packages", nargs="*", help="all of survey.toml if none is named")
    parser.add_argument("--write", action="store_true", help="store the results")
    options = parser.parse_args()
    if importlib.util.find_spec("torch") is None:
        print('the survey runs PyTorch code: pip install "klsym[torch]"', file=sys.stderr)
        return 2
    releases = tomllib.loads((HERE / "survey.toml").read_text(encoding="utf-8"))["release"]
    chosen = [r for r in releases if not options.packages or r["name"] in options.packages]
    kept = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else []
    found: list[dict[str, Any]] = []
    changes = 0
    for release in chosen:
        rows = surveyed(release)
        before = [row for row in kept if identity(row) == (release["name"], release["version"])]
        told = list(differences(before, rows)) if rows else []
        changes += len(told)
        found += rows or before
        same = "not run" if rows is None else f"{len(rows)} rows, {len(told)} changed"
        print(f"{release['name']} {release['version']}: {same}", flush=True)
        for line in told:
            print(f"  {line}", flush=True)
    if options.write:
        names = {(r["name"], r["version"]) for r in chosen}
        rest = [row for row in kept if identity(row) not in names]
        order = {(r["name"], r["version"]): n for n, r in enumerate(releases)}
        whole = sorted([*rest, *found], key=lambda row: order[identity(row)])
        write_whole(STORED, json.dumps(whole, indent=1, ensure_ascii=False) + "\n")
    return 1 if changes and not options.write else 0


def identity(row: dict[str, Any]) -> tuple[str, str]:
    return row["package"], row["version"]


def differences(before: list[dict[str, Any]], rows: list[dict[str, Any]]) -> Iterator[str]:
    """What differs, a line each."""
    old = {key(row): row for row in before}
    for row in rows:
        was = old.pop(key(row), None)
        fields = [name for name in {**(was or {}), **row} if was and row.get(name) != was.get(name)]
        if was is None:
            yield f"new: {' '.join(key(row))}"
        for name in fields:
            yield f"{' '.join(key(row))}: {name} was {str(was.get(name))[:90]}, is {str(row.get(name))[:90]}"
    for gone in old:
        yield f"gone: {' '.join(gone)}"


def key(row: dict[str, Any]) -> tuple[str, ...]:
    return row["file"], row["code"], json.dumps(row["options"])


# ---------------------------------------------------------------------------- one release
def surveyed(release: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Its rows; None where it cannot be had or run here."""
    if release.get("needs") and importlib.util.find_spec(release["needs"]) is None:
        print(f"{release['name']}: needs {release['needs']}, which is not installed", file=sys.stderr)
        return None
    wheel = downloaded(release)
    if wheel is None:
        return None
    folder = unpacked(wheel)
    with Runner(SECONDS, GIGABYTES) as runner:
        return [
            row_of(release, item, chosen, folder, runner)
            for item in release["code"]
            for chosen in choices(item.get("set", {}))
        ]


def downloaded(release: dict[str, Any]) -> Path | None:
    """The wheel with the digest that is pinned; pip refuses any other."""
    place = BUILD / "wheels" / f"{release['name']}-{release['version']}"
    for wheel in place.glob("*.whl"):
        if hashlib.sha256(wheel.read_bytes()).hexdigest() == release["sha256"]:
            return wheel
    platforms = [word for name in PLATFORMS for word in ("--platform", name)]
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder) / "wanted.txt"
        pin = f"{release['name']}=={release['version']} --hash=sha256:{release['sha256']}\n"
        wanted.write_text(pin, encoding="utf-8")
        asked = ["--no-deps", "--require-hashes", "-r", str(wanted), "-d", str(place)]
        for which in (WHEELS, BY_OLD):
            command = [sys.executable, "-m", "pip", "download", "--quiet", *which, *platforms, *asked]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return next(place.glob("*.whl"))
    reason = [line for line in done.stderr.splitlines() if "ERROR" in line][-1:] or ["no answer"]
    print(f"{release['name']} {release['version']}: cannot be had ({reason[0][:160]})", file=sys.stderr)
    return None


def unpacked(wheel: Path) -> Path:
    """The Python files of a wheel, in a folder beside it."""
    folder = wheel.parent / "files"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.endswith(".py")])
    pure = next(folder.glob("*.data/purelib"), folder)
    return pure


def choices(options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A value for each option that has several."""
    lists = {name: value if isinstance(value, list) else [value] for name, value in options.items()}
    for values in product(*lists.values()):
        plain = (parse_option(value) if isinstance(value, str) else value for value in values)
        yield dict(zip(lists, plain, strict=True))


# ---------------------------------------------------------------------------- one row
def row_of(
    release: dict[str, Any], item: dict[str, Any], chosen: dict[str, Any], folder: Path, runner: Runner
) -> dict[str, Any]:
    """What the audit says of one code with one choice of options."""
    path = folder / item["file"]
    maps = item.get("map", {})
    several = [name for name, value in item.get("set", {}).items() if isinstance(value, list)]
    shown = {name: chosen[name] for name in several}
    off = any(word in text for text in maps.values() for word in ("log_mu", "rho"))
    question = {"map": maps, "set": chosen, "result": item.get("result"), "use": "loss",
                "sampling": "off-policy" if off else "on-policy"}  # fmt: skip
    asked = {"target": f"{path}:{item['code']}", "options": question, "expect": None}
    reply = runner.ask(asked)
    row: dict[str, Any] = {
        "package": release["name"], "version": release["version"], "sha256": release["sha256"],
        "file": item["file"], "code": str(item["code"]), "place": item["place"], "options": shown,
        "fixed": {name: value for name, value in chosen.items() if name not in several}, "map": maps,
    }  # fmt: skip
    stated = [s for s in item.get("says", []) if "of" not in s or set(s["of"]) & set(shown.values())]
    if "error" in reply:
        reason = reply["error"].replace(str(path), item["file"]).replace(str(folder), "")
        row |= {"refused": reason, "says": [said(s, None) for s in stated]}
        return row
    answer = reply["json"]
    first, last = answer["lines"]
    lines = path.read_text(encoding="utf-8").splitlines()[first - 1 : last]
    row |= {
        "lines": [first, last], "read": hashlib.sha256("\n".join(lines).encode()).hexdigest(),
        "expression": answer["expression"], "aggregation": answer["aggregation"],
        "framework": answer["confirmed"]["framework"], "reads": answer["map"], "free": answer["free"],
        "findings": [f["text"] for f in answer["findings"]],
        "verdicts": {" ".join(s): verdict(answer["expression"], s, names(answer)) for s in SETTINGS
                     if not (s[0] == "reward" and "vocabulary" in str(answer["findings"]))},
        "says": [said(s, answer) for s in stated],
    }  # fmt: skip
    return row


def names(answer: dict[str, Any]) -> tuple[str, ...]:
    """The parameters of the formula."""
    return tuple(sorted(answer["free"].values()))


@cache
def asked(expression: str, setting: tuple[str, ...], parameters: tuple[str, ...]) -> dict[str, Any]:
    use, sampling, *weight = setting
    level = "token" if "whole(" in expression else "sample"
    expression = f"rho*({expression})" if weight else expression

    found: dict[str, Any] = klsym.explain(
        expression, use=use, sampling=sampling, parameters=parameters, level=level
    ).to_json()
    return found


def verdict(expression: str, setting: tuple[str, ...], parameters: tuple[str, ...]) -> dict[str, Any]:
    """What is kept of `klsym explain`."""
    found = asked(expression, setting, parameters)
    inside = found["gradient"]["inside_clamps"]
    return {
        **named(found["gradient"], found["gradient"]["objective"]),
        "inside": inside and named(inside, None),
        "trust": found["trust"],
    }


def named(gradient: dict[str, Any], objective: str | None) -> dict[str, Any]:
    """The target, with the multiples of what has a name, or with a short objective."""
    shown = gradient["combination"] if gradient["target"] in KNOWN else None
    short = objective if objective and len(objective) <= LONGEST else None
    return {"target": gradient["target"], "combination": shown, "objective": short}


# ---------------------------------------------------------------------------- what documentation says
def said(statement: dict[str, Any], answer: dict[str, Any] | None) -> dict[str, Any]:
    """The statement, and whether it holds: "yes", "inside the bounds", "no"; "" where nothing is settled."""
    kept = {name: statement.get(name, "") for name in ("where", "text", "claim")}
    if answer is None or not kept["claim"]:
        return kept | {"holds": "not read" if kept["claim"] else ""}
    free = names(answer)
    if holds(kept["claim"], answer["expression"], free):
        return kept | {"holds": "yes"}
    inside = remove_clips(parse(answer["expression"], free))
    if inside is not None and holds(kept["claim"], str(losses.show(inside, TEXT)), free):
        return kept | {"holds": "inside the bounds"}
    return kept | {"holds": "no"}


def holds(claim: str, expression: str, parameters: tuple[str, ...]) -> bool:
    """Is "loss on-policy targets reverse-kl" or "value on-policy is-not reverse-kl" so?"""
    what, sampling, verb, target = claim.split()
    if what == "value":
        found = asked(expression, ("loss", sampling), parameters)["value"]
        so = bool(found[f"unbiased_for_{target.replace('-', '_')}"])
    else:
        found = asked(expression, (what, sampling), parameters)["gradient"]
        turned = (found["combination"] or {}).get(target, "1").startswith("-")
        so = found["target"] == target and not turned
    return so != verb.endswith("-not")


if __name__ == "__main__":
    raise SystemExit(main())
