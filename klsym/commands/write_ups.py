"""The write-ups: `klsym tables`, `klsym report`, `klsym paper`."""

from __future__ import annotations

import argparse
from pathlib import Path

from klsym.commands.console import bar, make_folder, progress


def write_tables(options: argparse.Namespace) -> int:
    from klsym.tables.catalogue import tables
    from klsym.tables.layouts import LAYOUTS, write

    layout, _ = LAYOUTS[options.format]
    made = list(tables(tuple(options.names), tuple(options.only), tuple(options.columns)))
    if options.output is None:
        print("\n\n".join(layout(table, options.notation) for table in made))
        return 0
    folder = Path(options.output)
    make_folder(folder)
    for path in write(made, folder, options.format, options.notation):
        print(path)
    return 0


def write_report(options: argparse.Namespace) -> int:
    from klsym.write_up.run import produce

    with bar("check") as sampled:
        summary = produce(Path(options.output), progress=progress, sampled=sampled)
    print(summary)
    return 0 if summary.passed else 1


def write_paper(options: argparse.Namespace) -> int:
    from klsym.write_up.paper import write_parts

    folder = Path(options.output)
    make_folder(folder)
    written = write_parts(folder, progress=progress)
    print(f"{len(written)} files in {folder}")
    return 0
