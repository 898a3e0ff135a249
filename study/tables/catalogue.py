"""The tables by name, and what a user may choose of them."""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from klsym.errors import UsageError
from klsym.study.ledger.progress import Wrapper, show_nothing
from klsym.study.tables.writing.table import Table

# name -> what it shows; the module of that name makes it
NAMES = {
    "gradients": "what each loss descends: estimator, placement, weight, sampling",
    "values": "bias, sign and variance of the values, with exact Gaussian columns",
    "rewards": "a KL penalty in the reward",
    "variances": "variance differences and where they have a sign",
    "centring": "what centring in a batch leaves of the penalty",
    "sequences": "token-level and sequence-level losses",
    "schulman": "Schulman's tables, printed beside exact",
    "experiments": "published experiments, run again (about a minute)",
    "practice": "what to write for the reverse and the forward KL, and what not",
    "trainers": "losses as released trainers write them, and what each does",
    "trainer-sources": "where those losses stand in public code",
    "errata": "printed forms that are false, their true forms and witnesses",
    "survey": "what released packages do with a KL: their own code, audited",
    "measured": "what the losses of released trainers minimise, measured by running them",
    "measured-short": "of these, the defaults and what differs from a documentation",
    "measured-survey": "how many functions of released packages are read, and how many measured",
}


def tables(
    names: tuple[str, ...] = (),
    only: tuple[str, ...] = (),
    columns: tuple[str, ...] = (),
    progress: Wrapper = show_nothing,
    claims: bool = True,
) -> Iterator[Table]:
    """The chosen tables, all where none is named, with the chosen rows and columns.

    >>> [table.name for table in tables(("gradients", "rewards"), only=("reward.k1",))]
    ['gradients', 'rewards']

    names: of tables.  only: tags of rows (a loss such as k3, on-policy, reward), claims or areas; a table
    without such a row is left out.  columns: their keys, in this order; likewise.
    progress: wraps the list of names, as in `settle_all`.  claims: also the column of their ids.
    Raises UsageError: an unknown table; a name in `only` to which no row answers; a column that no chosen
    table has.
    """
    made_tables = [build(name, only) for name in progress(select(names), str)]
    for name in only:
        if not any(table.select_rows((name,)).rows for table in made_tables):
            raise UsageError(f"--only {name[:60]!r}: {_suggest_names(name, made_tables)}")
    made_tables = [table for table in (table.select_rows(only) for table in made_tables) if table.rows]
    known_keys = {column.key for table in made_tables for column in table.columns}
    for key in columns:
        if key not in known_keys:
            raise UsageError(f"no column {key[:60]!r}: there are {', '.join(sorted(known_keys))}")
    options = [*(["--only", *only] if only else []), *(["--columns", *columns] if columns else [])]
    options += [] if claims else ["--no-claims"]
    for table in made_tables:
        keys = [column.key for column in table.columns]
        shown_keys = tuple(key for key in columns or keys if key in keys and (claims or key != "claim"))
        if shown_keys:
            yield replace(table.with_columns(shown_keys), options=shlex.join(options))


def select(names: tuple[str, ...]) -> list[str]:
    """The tables with these names, each once; all where there are none.

    >>> select(("values", "values")), len(select(())) == len(NAMES)
    (['values'], True)

    Raises UsageError: an unknown name.
    """
    for name in names:
        if name not in NAMES:
            raise UsageError(f"unknown table {name[:60]!r}: known are {', '.join(NAMES)}")
    return list(dict.fromkeys(names or NAMES))


def _suggest_names(name: str, made: list[Table]) -> str:
    if name in NAMES:
        return "this names a table, and tables come before --only"
    tags = dict.fromkeys(tag for table in made for row in table.rows for tag in row.tags)
    tag_list = ", ".join(tags) or "the names of the others"
    return f"no row of these tables answers to that; claims and areas do, and {tag_list}"


def build(name: str, only: tuple[str, ...] = ()) -> Table:
    """One table, whole; of the experiments, which take seconds each, those asked for."""
    made_table: Table = _load_module(name).table(only) if name == "experiments" else _load_built(name)
    return made_table


@cache
def _load_built(name: str) -> Table:
    made_table: Table = _load_module(name).table()
    return made_table


def _load_module(name: str) -> Any:
    return importlib.import_module(f"klsym.study.tables.{name.replace('-', '_')}")


def listing() -> str:
    """Every table with what it shows and the keys of its columns.

    >>> print(listing().splitlines()[1].strip())
    columns: loss gradient coefficient reverse claim
    """
    lines = []
    for name, shows in NAMES.items():
        columns = _load_module(name).COLUMNS
        lines += [f"{name:<12} {shows}", f"{'':<12} columns: {' '.join(column.key for column in columns)}"]
    return "\n".join(lines)
