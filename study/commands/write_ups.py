"""The write-ups: `klsym tables`, `klsym report`, `klsym paper`."""

from __future__ import annotations

import argparse

from klsym.commands.console import announce_step, make_output_folder, show_bar, show_progress, split_names
from klsym.escaping import printable


def write_tables(options: argparse.Namespace) -> int:
    """The tables to stdout, or one file each; 2 before anything is written if a name is unknown."""
    from klsym.study.tables.catalogue import listing, select, tables
    from klsym.study.tables.writing.layouts import LAYOUTS, write

    if options.list:
        print(listing())
        return 0
    names = select(split_names("TABLE", options.names))
    chosen_rows, columns = split_names("--only", options.only), split_names("--columns", options.columns)
    folder = None if options.output is None else make_output_folder(options.output)
    made_tables = list(
        tables(tuple(names), chosen_rows, columns, show_progress, claims=not options.no_claims)
    )
    if folder is None:
        layout, _ = LAYOUTS[options.format]
        print("\n\n".join(layout(table, options.notation) for table in made_tables))
    else:
        for path in write(made_tables, folder, options.format, options.notation):
            print(printable(str(path)))
    return 0


def write_report(options: argparse.Namespace) -> int:
    from klsym.study.write_up.run import make_report

    with show_bar("check") as sampled:
        summary = make_report(
            make_output_folder(options.output), progress=show_progress, sampled=sampled, here=False,
            announce=announce_step,
        )  # fmt: skip
    print(summary)
    return 0 if summary.passed else 1


def write_paper(options: argparse.Namespace) -> int:
    """The generated parts of the paper."""
    from klsym.paper.generate import write_parts

    folder = make_output_folder(options.output)
    written = write_parts(folder, progress=show_progress, here=False)
    print(f"{len(written)} files in {printable(str(folder))}")
    return 0
