"""A penalty in the reward: what each one descends, and what the number that is logged estimates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from klsym.engine.proof.quantities import expectation, expected_gradient, q
from klsym.errors import ProofError
from klsym.language.expressions import k, k1, k2, k3, lam, rho, s, sg
from klsym.notation.losses import show
from klsym.notation.printers import TEXT
from klsym.study.tables.losses import OFF, ON, claims, gradient, mean, tags, verdict, written
from klsym.study.tables.writing.ledger_lookup import about, quote
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

    >>> [(row.tags[0], row.claims[0]) for row in table().only(("reward.k3", "reward.double-weight")).rows]
    [('k3', 'reward.k3'), ('rho*sg(rho*k1)', 'reward.double-weight')]
    """
    return Table("rewards", CAPTION, COLUMNS, (*_rows(), _weighted_twice(), *_in_both()))


def _rows() -> Iterator[Row]:
    for group, sampling, losses in CASES:
        for loss in losses:
            found = gradient(loss, sampling, "reward")
            right = verdict(loss, sampling, "reward").target == "reverse-kl"
            cells = (
                written(loss), found.right, _logged(loss, sampling),
                words("yes" if right else "no", *found.claims), claims(found),
            )  # fmt: skip
            yield Row(cells, tags(loss, sampling, "reward"), group)


def _logged(loss: Any, sampling: str) -> Cell:
    found = mean(loss, sampling)
    return found.right if found else NONE


def _weighted_twice() -> Row:
    """The weight is in the reward already: once more is once too often."""
    wrong = quote("reward.double-weight")
    loss = rho * sg(rho * k1)
    left = written(loss)
    cells = (left, wrong.right, NONE, words("no", *wrong.claims), claims(wrong))
    return Row(cells, (show(loss, TEXT), OFF, "reward"), "Off-policy, weighted twice")


def _in_both() -> Iterator[Row]:
    """The penalty as a reward plus the penalty as a loss."""
    for loss in BOTH:
        field = expectation(sg(loss) * s, under=q) + expected_gradient(loss, under=q)
        found = about(field)
        if found is None:
            raise ProofError(f"no claim says what {loss} in the reward and in the loss descends")
        cells = (
            written(loss), found.right, _logged(loss, ON), words("yes", *found.claims), claims(found),
        )  # fmt: skip
        yield Row(cells, (show(loss, TEXT), ON, "both"), "On-policy, in the reward and in the loss")
