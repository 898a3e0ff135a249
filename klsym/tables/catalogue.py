"""The tables by name, and what a user may choose of them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import replace

from klsym.errors import UsageError
from klsym.tables.table import Table

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
    "errata": "printed forms that are false, their true forms and witnesses",
}


def tables(
    names: tuple[str, ...] = (), only: tuple[str, ...] = (), columns: tuple[str, ...] = ()
) -> Iterator[Table]:
    """The chosen tables, all where none is named, with the chosen rows and columns.

    >>> [table.name for table in tables(("gradients", "rewards"), only=("reward.k1",))]
    ['gradients', 'rewards']

    names: of tables.  only: tags of rows (a loss such as k3, on-policy, reward), claims or areas; a table
    without such a row is left out.  columns: their keys, in this order.
    Raises UsageError: an unknown table; no row that answers; a column that no chosen table has.
    """
    for name in names:
        if name not in NAMES:
            raise UsageError(f"unknown table {name[:60]!r}: known are {', '.join(NAMES)}")
    made = [table.only(only) for table in (build(name) for name in names or NAMES)]
    made = [table for table in made if table.rows]
    if not made:
        raise UsageError(f"--only {' '.join(only)[:60]}: no row of these tables answers to that")
    known = {column.key for table in made for column in table.columns}
    for key in columns:
        if key not in known:
            raise UsageError(f"no column {key[:60]!r}: there are {', '.join(sorted(known))}")
    options = " ".join(
        ["--only " + " ".join(only)] * bool(only) + ["--columns " + " ".join(columns)] * bool(columns)
    )
    for table in made:
        if not columns or {column.key for column in table.columns} & set(columns):
            yield replace(table.with_columns(columns), options=options)


def build(name: str) -> Table:
    """One table, whole."""
    made: Table = importlib.import_module(f"klsym.tables.{name}").table()
    return made
