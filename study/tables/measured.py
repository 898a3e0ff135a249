"""What trainers minimise, measured: every case of the recipes in docs/examples/measure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from klsym.study.tables.measured_data import (
    NAMELESS,
    Rows,
    describe_objective,
    describe_release,
    describe_sampling,
    describe_shape,
    find_defaults,
    get_place,
    name_nearest,
    read_sentences,
    read_trainers,
    write_multiples,
)
from klsym.study.tables.writing.table import NONE, Cell, Column, Row, Table, build_text, code, words

LETTERS = (
    r" $\mathrm{E}[R]$ is the mean reward of sequences; policy-gradient/T that of the reward over the length"
    " $T$; token-policy-gradient weights each token by its own ratio; log-likelihood is"
    r" $\mathrm{E}_\mu[R \log q]$; next-token: at sampled prefixes, held fixed; E_mu: with the samples held"
    " fixed; N: the tokens of a group. What has a minus is maximised. Objective: is the expected gradient"
    " that of any function? Measured: the exact expected gradient on small worlds, by the code's own"
    " autograd; no theorem. The advantages are the rewards, unless the setting says more."
)
CAPTION = build_text("What the losses of released trainers minimise, measured." + LETTERS)
COLUMNS = (
    Column("setting", words("setting"), 0.235),
    Column("sampling", words("sampling"), 0.12),
    Column("documented", words("documented"), 0.185),
    Column("measured", words("measured"), 0.265),
    Column("objective", words("objective"), 0.095),
)
NAME = re.compile(r"([\w./]*_[\w./]*\w(?:\[[^\]]*\])?)")
OUTCOMES = {True: "; so measured", False: "; measured otherwise"}


def table() -> Table:
    """One row for each case of a recipe, what a trainer does by default first.

    >>> len(table().rows) == len(read_trainers())
    True
    """
    return Table("measured", CAPTION, COLUMNS, build_rows(read_trainers()), size="scriptsize")


def build_rows(rows: Rows) -> tuple[Row, ...]:
    """Return rows of the table."""
    known = [*rows]
    defaults = find_defaults(known)
    return tuple(_build_row(row, defaults[row["recipe"]] == row["function"]) for row in known)


def _build_row(row: Mapping[str, Any], is_default: bool) -> Row:
    cells = (
        show_text(row["settings"]),
        words(describe_sampling(row)),
        show_promise(row),
        show_measured(row),
        words(describe_objective(row)),
    )
    tags = [row["package"], row["recipe"], row["function"], row["sampling"]]
    tags += ["defaults"] * is_default + ["differs"] * (row["kept"] is False)
    return Row(cells, tuple(tags), f"{describe_release(row)}, recipe {row['recipe']}.py")


def show_promise(row: Mapping[str, Any]) -> Cell:
    """Return the objective that a documentation names, its place, and whether it was measured."""
    if not row["promised"]:
        return NONE
    sentences = read_sentences().get(get_place(row))
    lead, outcome = "", OUTCOMES[row["kept"]]
    if sentences and sentences.about == "value":
        lead, outcome = "as a value, ", "; the gradient is another"
    return words(lead) + code(row["promised"]) + words(" (") + show_text(row["place"]) + words(f"){outcome}")


def show_measured(row: Mapping[str, Any]) -> Cell:
    """Return the objective whose gradient was measured."""
    if row["kind"] == "named":
        return code(write_multiples(row["multiples"])) + words(describe_shape(row))
    shown = words(NAMELESS[row["kind"]])
    if row["nearest"]:
        shown += words("; nearest: ") + code(name_nearest(row))
        shown += words(f", cosine {next(iter(row['nearest'].values())):.3f}")
    return shown


def show_text(text: str) -> Cell:
    """Return words, with names of options and files as code.

    >>> show_text("loss_type dapo, beta 0").pieces
    (('code', 'loss_type'), ('words', ' dapo, beta 0'))
    """
    pieces = NAME.split(text)
    return sum((code(part) if at % 2 else words(part) for at, part in enumerate(pieces) if part), Cell())
