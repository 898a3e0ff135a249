"""A penalty in the reward: what each one descends, and what the number that is logged estimates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from klsym.engine.proof.quantities import expectation, expected_gradient, q
from klsym.errors import ProofError
from klsym.language.expressions import k, k1, k2, k3, lam, rho, s, sg
from klsym.notation.losses import show
from klsym.notation.printers import TEXT
from klsym.study.tables.losses import (
    OFF,
    ON,
    cite_quote,
    find_gradient_quote,
    find_verdict,
    list_tags,
    mean,
    write_loss,
)
from klsym.study.tables.writing.ledger_lookup import find_equation, quote
from klsym.study.tables.writing.table import NONE, Cell, Column, Row, Table, words

CAPTION = words(
    "A KL penalty in the reward. A detached penalty multiplies the score function: its expected"
    " gradient, and what its mean, the number that is logged, estimates. Below: the same penalty in the"
    " reward and in the loss at once."
)
COLUMNS = (
    Column("penalty", words("penalty")),
    Column("gradient", words("expected gradient"), 0.3),
    Column("mean", words("mean"), 0.19),
    Column("reverse", words("reverse KL?")),
    Column("claim", words("claim"), 0.18),
)
CASES: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
    ("On-policy", ON, (k1, k2, k3, k(lam))),
    ("Off-policy, weighted", OFF, (rho * k1, rho * k2, rho * k3)),
    ("Off-policy, no weight", OFF, (k1, k3)),
)
BOTH = (k1, k3)  # in the reward and in the loss


def table() -> Table:
    """The table.

    >>> chosen = table().select_rows(("reward.k3", "reward.double-weight"))
    >>> [(row.tags[0], row.claims[0]) for row in chosen.rows]
    [('k3', 'reward.k3'), ('rho*sg(rho*k1)', 'reward.double-weight')]
    """
    return Table(
        "rewards", CAPTION, COLUMNS, (*_list_rows(), _build_twice_weighted_row(), *_list_combined_rows())
    )


def _list_rows() -> Iterator[Row]:
    for group, sampling, losses in CASES:
        for loss in losses:
            quoted = find_gradient_quote(loss, sampling, "reward")
            right = find_verdict(loss, sampling, "reward").target == "reverse-kl"
            cells = (
                write_loss(loss), quoted.right, _show_logged(loss, sampling),
                words("yes" if right else "no", *quoted.claims), cite_quote(quoted),
            )  # fmt: skip
            yield Row(cells, list_tags(loss, sampling, "reward"), group)


def _show_logged(loss: Any, sampling: str) -> Cell:
    quoted = mean(loss, sampling)
    return quoted.right if quoted else NONE


def _build_twice_weighted_row() -> Row:
    """The weight is in the reward already: once more is once too often."""
    wrong = quote("reward.double-weight")
    loss = rho * sg(rho * k1)
    loss_cell = write_loss(loss)
    cells = (loss_cell, wrong.right, NONE, words("no", *wrong.claims), cite_quote(wrong))
    return Row(cells, (show(loss, TEXT), OFF, "reward"), "Off-policy, weighted twice")


def _list_combined_rows() -> Iterator[Row]:
    """The penalty as a reward plus the penalty as a loss."""
    for loss in BOTH:
        field = expectation(sg(loss) * s, under=q) + expected_gradient(loss, under=q)
        quoted = find_equation(field)
        if quoted is None:
            raise ProofError(f"no claim says what {loss} in the reward and in the loss descends")
        cells = (
            write_loss(loss), quoted.right, _show_logged(loss, ON), words("yes", *quoted.claims),
            cite_quote(quoted),
        )  # fmt: skip
        yield Row(cells, (show(loss, TEXT), ON, "both"), "On-policy, in the reward and in the loss")
