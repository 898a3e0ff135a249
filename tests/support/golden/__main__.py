"""The command of the golden corpus: PYTHONPATH=tests python -m golden [--write | --coverage].

Without a flag it answers all pairs again, and fails on differences that are not listed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence

from klsym.render.listing import align_columns as aligned

from . import compared, stored
from .answers import BESIDE, COLUMNS
from .compared import Difference, Intended
from .coverage import coverage_lines
from .pairs import pairs
from .running import SLOWEST, answers


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="golden", description="Compare the answers of this tree with the stored ones."
    )
    parser.add_argument("--write", action="store_true", help="choose the pairs and store their answers anew")
    parser.add_argument("--coverage", action="store_true", help="count the stored pairs by what they cover")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="compare every N-th pair only")
    parser.add_argument("--column", action="append", help="show this column only; may be repeated")
    parser.add_argument("--examples", type=int, default=3, help="examples of each kind (default 3)")
    parser.add_argument("--jobs", type=int, help="processes (default: all processors)")
    given = parser.parse_args(argv)
    if given.coverage:
        print(*coverage_lines(stored.read()), sep="\n")
        return 0
    return write(given.jobs) if given.write else compare(given)


def write(jobs: int | None) -> int:
    """Store the answers to all pairs that are quick enough."""
    start, rows, slow = time.monotonic(), [], []
    for pair, answer, seconds in answers(pairs(), jobs):
        if seconds > SLOWEST:
            slow.append(pair)
        else:
            rows.append((pair, answer))
    stored.write(rows)
    print(f"{len(rows)} pairs, {stored.FILE.stat().st_size:,} bytes, {time.monotonic() - start:.0f} s")
    print(f"{len(slow)} left out, of more than {SLOWEST} s of CPU time:", *slow, sep="\n  ")
    print(*coverage_lines(stored.read()), sep="\n")
    return 0


def compare(given: argparse.Namespace) -> int:
    """Report the differences; 1 where one is not listed, or where an entry of the list covers none."""
    start, listed = time.monotonic(), compared.intended()
    rows = stored.read()[:: given.every]
    found: list[Difference] = []
    for (_, was), (pair, now, _) in zip(rows, answers([pair for pair, _ in rows], given.jobs), strict=True):
        found += compared.differences(pair, was, now)
    left, covered = compared.sorted_out(found, listed)
    print(f"{len(rows)} pairs in {time.monotonic() - start:.0f} s")
    report(len(rows), found, left, given)
    idle = [entry for entry, count in covered.items() if not count and given.every == 1]
    for entry, count in covered.items():
        print(f"listed: {entry.column}, {entry.kind}: {count} differences: {entry.reason}")
    told(idle, left)
    return 1 if left or idle else 0


def report(pairs: int, found: list[Difference], left: list[Difference], given: argparse.Namespace) -> None:
    """The table of agreements, then each kind with examples."""
    differing, unlisted = (
        Counter(column for column, _ in {(x.column, x.pair) for x in of}) for of in (found, left)
    )
    table = [("column", "agree", "differ", "not listed")]
    for column in (*COLUMNS, *BESIDE):
        table.append((column, str(pairs - differing[column]), str(differing[column]), str(unlisted[column])))
    print(*aligned(table, left=1), sep="\n")
    by_kind: dict[tuple[str, str], list[Difference]] = defaultdict(list)
    for one in left:
        if not given.column or one.column in given.column:
            by_kind[one.column, one.kind].append(one)
    for (column, kind), ones in by_kind.items():
        print(f"\n{column}: {kind}: {len(ones)}")
        for one in ones[: given.examples]:
            print(f"  {one.pair.key}  {one.pair}")
            print(f"    was {compared.shown(one.was)}\n    now {compared.shown(one.now)}")


def told(idle: list[Intended], left: list[Difference]) -> None:
    """What is wrong, in one line each."""
    for entry in idle:
        where = f"{compared.LISTED.name}: {entry.column}, {entry.kind}"
        print(f"{where}: no difference is left; delete this entry", file=sys.stderr)
    if left:
        name = compared.LISTED.name
        print(f"{len(left)} differences are not in {name}: list each kind with its reason", file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
