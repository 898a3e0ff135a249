"""CPU time of tests and notebooks, that of the processes they waited for too: `make test-times`.

As a plugin of pytest, `-p support.cpu_times`, it appends a line of JSON for each test to the file that
KLSYM_CPU_TIMES names.  The command prints the files, the slowest first, and the slowest tests:

    python -m support.cpu_times build/cpu-times.jsonl [--count 40]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "KLSYM_CPU_TIMES"
COLLECTION = "(collection)"


def measure_cpu() -> float:
    """Return the CPU seconds of this process and of those it waited for."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _measure(name: str) -> Generator[None, Any, Any]:
    before = measure_cpu()
    try:
        return (yield)
    finally:
        line = json.dumps([name, round(measure_cpu() - before, 4)])
        with open(os.environ[VARIABLE], "a", encoding="utf-8") as file:
            file.write(f"{line}\n")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Measure a test with its fixtures; a kernel counts for the last cell of its notebook."""
    return (yield from _measure(item.nodeid))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Measure the collection, in each worker."""
    return (yield from _measure(COLLECTION))


def sum_by_file(times: list[tuple[str, float]]) -> dict[str, float]:
    """Return the CPU seconds of each file, the slowest first.

    >>> sum_by_file([("a.py::test_x", 1.0), ("b.py::test_y", 3.0), ("a.py::test_z", 0.5)])
    {'b.py': 3.0, 'a.py': 1.5}
    """
    sums: dict[str, float] = defaultdict(float)
    for name, seconds in times:
        sums[name.partition("::")[0]] += seconds
    return dict(sorted(sums.items(), key=lambda pair: -pair[1]))


def main(argv: list[str] | None = None) -> int:
    """Print the slowest files and tests."""
    parser = argparse.ArgumentParser(description="Prints the slowest files and tests.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--count", type=int, default=40)
    options = parser.parse_args(argv)
    times = [tuple(json.loads(line)) for line in options.file.read_text(encoding="utf-8").splitlines()]
    print(f"{sum(seconds for _, seconds in times):8.1f} s of CPU time in all")
    for table in (sum_by_file(times), dict(sorted(times, key=lambda pair: -pair[1]))):
        print()
        for name, seconds in list(table.items())[: options.count]:
            print(f"{seconds:8.1f} {name}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
