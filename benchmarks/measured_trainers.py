"""Measure the losses of released trainers: run every case of the recipes in docs/examples/measure.

    python benchmarks/measured_trainers.py                    # says what differs from the stored results
    python benchmarks/measured_trainers.py --write            # stores them
    python benchmarks/measured_trainers.py trl_grpo liger     # only these recipes

A recipe whose trainer is not installed is left out, and its stored rows stay.  Trainers need environments
of their own: run this in each.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import importlib.metadata
import json
import math
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

from klsym.errors import KlsymError
from klsym.files import write_whole
from klsym.measure.binding import load_function
from klsym.measure.measurement import Measurement
from klsym.measure.measuring import measure
from klsym.study.tables.measured_data import TRAINERS as STORED

HERE = Path(__file__).parent
RECIPES = HERE.parent / "docs/examples/measure"
HELPERS = ("stubs",)
SECONDS = 300
CASE = {"sampling": "on-policy", "group": 1, "promised": "", "place": "", "why": ""}
MEASURED = (  # of a row; the others say what was run
    "version", "kind", "multiples", "has_objective", "curl", "kept", "cosine", "notes", "error",
)  # fmt: skip
NEAR = 0.02  # relative: curls and cosines differ in the last digits between machines
SAME = 1e-5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipes", nargs="*", help=f"all of {', '.join(list_recipes())} if none is named")
    parser.add_argument("--write", action="store_true", help="store the results")
    options = parser.parse_args()
    rows = []
    for name in options.recipes or list_recipes():
        rows += run_recipe(name)
    stored = read_stored()
    before = {key(row): row for row in stored}
    changed = [row for row in rows if differs(before.get(key(row)), row)]
    for row in changed:
        old = before.get(key(row))
        print(
            f"{' '.join(map(str, key(row)))}: {describe(row)} (stored: {describe(old) if old else 'nothing'})"
        )
    print(json.dumps(count(rows)))
    if options.write and rows:
        packages = {row["recipe"] for row in rows}
        rest = [row for row in stored if row["recipe"] not in packages]
        write_whole(STORED, json.dumps(sorted([*rest, *rows], key=lambda r: r["recipe"]), indent=1) + "\n")
    return 1 if changed and not options.write else 0


def read_stored() -> list[dict[str, Any]]:
    return json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else []


def list_recipes() -> list[str]:
    return sorted(path.stem for path in RECIPES.glob("*.py") if path.stem not in HELPERS)


def read_table(name: str) -> tuple[str, list[dict[str, Any]]]:
    """Return the package of a recipe and its cases, with the defaults of CASE; no code of it is run."""
    found = {}
    for node in ast.parse((RECIPES / f"{name}.py").read_text(encoding="utf-8")).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(target, ast.Name) and target.id in ("PACKAGE", "WHY", "CASES"):
            found[target.id] = ast.literal_eval(node.value)
    reasons = {"": "", **found.get("WHY", {})}
    cases = [{**CASE, **case} for case in found["CASES"]]
    return found["PACKAGE"], [{**case, "why": reasons[case["why"]]} for case in cases]


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["recipe"], row["function"], row["sampling"], row["group"]


def differs(old: dict[str, Any] | None, new: dict[str, Any]) -> bool:
    """Is a row new, or measured otherwise than before?  Times and dates do not count."""
    if old is None or {**CASE, **old}["promised"] != new["promised"] or old["settings"] != new["settings"]:
        return True
    return any(not is_near(old.get(name), new.get(name), NEAR if name in ("curl", "cosine") else SAME)
               for name in MEASURED)  # fmt: skip


def is_near(old: Any, new: Any, tolerance: float) -> bool:
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(is_near(old[k], new[k], tolerance) for k in old)
    if isinstance(old, float) and isinstance(new, float):
        return abs(old - new) <= tolerance * max(abs(old), abs(new))
    return bool(old == new)


# ---------------------------------------------------------------------------- running
def run_recipe(name: str) -> list[dict[str, Any]]:
    """Return the rows of a recipe; none where its trainer is not installed."""
    package, cases = read_table(name)
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        print(f"{name}: {package} is not installed here")
        return []
    rows = []
    load_function(f"{RECIPES / name}.py:{cases[0]['function']}")  # importing a trainer takes seconds
    for case in cases:
        start = time.process_time()
        result = run_case(name, case)
        rows.append({
            "recipe": name, "package": package, "version": version, **case, **result,
            "seconds": round(time.process_time() - start, 2), "date": datetime.date.today().isoformat(),
        })  # fmt: skip
    return rows


def run_case(name: str, case: dict[str, Any]) -> dict[str, Any]:
    """Return what was measured of a case."""
    try:
        function = load_function(f"{RECIPES / name}.py:{case['function']}")
        answer = measure(
            function, sampling=case["sampling"], group=case["group"], expect=case["promised"] or None,
            seconds=SECONDS,
        )  # fmt: skip
    except KlsymError as error:
        return {"kind": "refused", "error": str(error)[:300]}
    return summarise(answer)


def summarise(answer: Measurement) -> dict[str, Any]:
    expected = answer.expected
    return {
        "kind": answer.kind,
        "multiples": answer.multiples,
        "has_objective": answer.has_objective,
        "curl": round_to(answer.curl, 2) if answer.has_objective is False else None,
        "residual": f"1e{math.floor(math.log10(max(answer.residual, 1e-16)))}" if answer.residual else "",
        "nearest": dict([*answer.cosines.items()][:1]),
        "kept": None if expected is None else expected.ok,
        "cosine": None if expected is None or math.isnan(expected.cosine) else round_to(expected.cosine, 3),
        "notes": [note for note in answer.notes if "depend" not in note or "shape" in note],
    }


def round_to(value: float | None, digits: int) -> float | None:
    return None if value is None else float(f"{value:.{digits}g}")


def describe(row: dict[str, Any]) -> str:
    shown = {
        name: row.get(name)
        for name in ("kind", "multiples", "curl", "kept", "error")
        if row.get(name) is not None
    }
    return json.dumps(shown)


def count(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how many cases of how many packages gave which kind, and the CPU time."""
    seconds = [row["seconds"] for row in rows] or [0.0]
    return {
        "packages": len({row["package"] for row in rows}), "cases": len(rows),
        "kinds": dict(sorted(Counter(row["kind"] for row in rows).items())),
        "promises": dict(sorted(Counter(str(row.get("kept")) for row in rows if row["promised"]).items())),
        "seconds": {"median": round_to(median(seconds), 3), "worst": max(seconds)},
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
