"""The ledger of claims as functions."""

from __future__ import annotations

from klsym.render.questions.listing import Listing, build_listing
from klsym.study.ledger.registry import Claim, select
from klsym.study.ledger.settle_claim import Settled, recall


def claims(area: str = "") -> Listing[Claim]:
    """Return the claims of the ledger: what klsym has settled, each with its source.

    Parameters
    ----------
    area : str
        The first word of their names, such as "gradient"; all where nothing is said.

    Returns
    -------
    Listing
        By name; `claim` settles one of them.

    Raises
    ------
    UsageError
        There is no such area.

    Examples
    --------
    >>> claims("gradient")["gradient.k3-loss"].verdict
    'proved'
    """
    rows = {row.id: row for row in select([area] if area else [])}
    return build_listing(rows, ("name", "verdict", "source"), lambda row: (row.id, row.verdict, row.source))


def claim(id: str) -> Settled:
    """Settle a claim of the ledger: its proofs are built and replayed now.

    Parameters
    ----------
    id : str
        The name of the claim.

    Returns
    -------
    Settled
        With `statement`, `trust`, `hypotheses`, and `certificate()` for `check`.

    Raises
    ------
    UsageError
        There is no such claim.
    ProofError
        The claim does not hold as the ledger states it.

    Examples
    --------
    >>> claim("gradient.k1-loss").statement
    'E_q[grad k1] = 0'
    """
    return recall(id)
