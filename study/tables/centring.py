"""What taking a mean over a batch off the coefficient of the score does to a KL penalty."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from klsym.api import ask
from klsym.engine.proof.quantities import KL, expectation, grad, p, q
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.language.abbreviations import Indexed, Side
from klsym.language.convert import to_ring
from klsym.language.expressions import R, beta, k1, rho
from klsym.notation import formulas
from klsym.notation.coefficients import build_coefficient as coefficient_of
from klsym.notation.losses import show
from klsym.notation.printers import LATEX, TEXT
from klsym.notation.tree import Number, Power
from klsym.study.tables.losses import OFF, ON, find_gradient_quote, write_loss
from klsym.study.tables.writing.ledger_lookup import Quote, quote
from klsym.study.tables.writing.pieces import show_premise
from klsym.study.tables.writing.table import (
    NONE,
    Cell,
    Column,
    Row,
    Table,
    build_text,
    cite_claims,
    collect_claims,
    math,
    words,
)
from klsym.study.tables.writing.witness import show_witness

CAPTION = build_text(
    "What centring does to a KL penalty. In a batch of $n$ samples the penalty of sample $i$, detached,"
    r" multiplies its score $s_i$, less a mean over the batch; $m = n - 1$, $\rho = q/\mu$. Kept: the"
    " multiple of the gradient of the reverse KL that is left. Under claim, a dash: proved for this"
    " table."
)
COLUMNS = (
    Column("multiplies", words("what multiplies the score"), 0.245),
    Column("gradient", words("expected gradient"), 0.265),
    Column("kept", words("kept"), 0.09),
    Column("variance", words("variance"), 0.125),
    Column("claim", words("claim"), 0.18),
)
PENALTY, REWARD = grad(KL(q, p)).side, grad(expectation(R, under=q)).side
OFF_POLICY = "Off-policy, samples of the sampler, weighted"
NONE_OFF, MEAN, LEFT_OUT = "none", "mean", "leave-one-out"
WORDS = {NONE_OFF: "no centring: ", MEAN: "batch mean: ", LEFT_OUT: "leave-one-out: "}


def table() -> Table:
    """Centring on-policy, from the ledger; off-policy as `explain` proves it.

    >>> [row.claims for row in table().select_rows(("batch.mean-centering",)).rows]
    [('batch.mean-centering', 'batch.centering-identity')]
    """
    return Table("centring", CAPTION, COLUMNS, tuple(_list_rows()))


def _list_rows() -> Iterator[Row]:
    yield from (_build_uncentred_row(), _mean(), _build_leave_one_out_row())
    yield from (_build_reward_row(0, "reward alone: "), _build_reward_row(1, "both by the batch mean: "))
    yield _build_pair_row()
    yield _build_weighted_only_row()
    yield from (_build_weighted_row(MEAN), _build_weighted_row(LEFT_OUT))


def _build_row(group: str, tags: tuple[str, ...], *cells: Cell) -> Row:
    return Row((*cells, cite_claims(collect_claims(cells))), tags, group)


# ---------------------------------------------------------------------------- on-policy
def _build_uncentred_row() -> Row:
    quoted = quote("batch.no-centering")
    return _on_policy(quoted, NONE_OFF, "k1", show_kept_share(quoted), NONE)


def _mean() -> Row:
    """A multiple of the estimate that leaves each sample out: its variance takes the square of it."""
    quoted, leave_one_out = quote("batch.mean-centering"), quote("batch.leave-one-out")
    share = _compute_share(quoted)
    identity = quote("batch.centering-identity")
    if identity.proof.theorem.statement.right != _take_sample_side(leave_one_out) * share:
        raise ValueError("the mean is no such multiple of leave-one-out")
    factor = math(LATEX(Power(coefficient_of(share), Number(2))), *identity.claims)
    return _on_policy(
        quoted, MEAN, "k1", show_kept_share(quoted), factor + words(" times that of leave-one-out")
    )


def _build_leave_one_out_row() -> Row:
    quoted, variance_quote = quote("batch.leave-one-out"), quote("variance.loo-not-always-better", 1)
    variances = show_witness(variance_quote.proof, *variance_quote.claims).pieces[-1]
    noted = build_text(
        "not always lower than without: in a model, <v>", v=Cell((variances,), variance_quote.claims)
    )
    return _on_policy(quoted, LEFT_OUT, "k1", show_kept_share(quoted), noted)


def _build_reward_row(number: int, lead: str) -> Row:
    """R - beta k1 less the batch mean of the reward alone, or of both."""
    quoted = quote("batch.reward-only-centering", number)
    rewards = math(formulas.show_element(_compute_share(quoted, 1, REWARD), LATEX))
    shares = build_text(
        "<kept>; of the reward <rewards>", kept=show_kept_share(quoted, -beta), rewards=rewards
    )
    row = (words(lead) + show_coefficient(quoted), quoted.right, shares, NONE)
    return _build_row("On-policy", (MEAN, ON, "reward"), *row)


def _build_pair_row() -> Row:
    """k_i - kbar is half the difference, and its square the variance: their quotient is a sign."""
    name = "batch.std-normalisation-pair"
    half, square = quote(name), quote(name, 1)
    apart = half.proof.theorem.statement.right * 2
    sign = math(formulas.show_side(apart, None, LATEX), *square.claims)
    lead = build_text(
        "over the standard deviation, <half>: the sign of <sign>", half=show_premise(half), sign=sign
    )
    return _build_row("On-policy", ("std", ON, "k1"), lead, NONE, words("only a sign"), NONE)


def _on_policy(found: Quote, centring: str, penalty: str, *cells: Cell) -> Row:
    first = words(WORDS[centring]) + show_coefficient(found)
    return _build_row("On-policy", (centring, ON, penalty), first, found.right, *cells)


# ---------------------------------------------------------------------------- off-policy
def _build_weighted_only_row() -> Row:
    quoted = find_gradient_quote(rho * k1, OFF, "reward")
    first = words(WORDS[NONE_OFF]) + write_loss(rho * k1)
    return _build_row(
        OFF_POLICY, (NONE_OFF, OFF, "rho*k1"), first, quoted.right, show_kept_share(quoted), NONE
    )


def _build_weighted_row(centring: str) -> Row:
    """The score has another mean than zero under mu, so that the baseline changes the gradient."""
    answer = ask(show(rho * k1, TEXT), sampling=OFF, use="reward", batch=centring)
    quoted = Quote(answer.proof.theorems[0], ())
    [(name, value)] = quoted.proof.theorem.statement.context.given
    assumption = math(f"{LATEX.name(name)} = {formulas.show_element(value, LATEX)}")
    first = words(WORDS[centring]) + build_text("<a>, <given>", a=show_coefficient(quoted), given=assumption)
    whole = quoted.right + words(", the gradient of no function" if answer.target == "no-objective" else "")
    return _build_row(OFF_POLICY, (centring, OFF, "rho*k1"), first, whole, show_kept_share(quoted), NONE)


# ---------------------------------------------------------------------------- pieces of these theorems
def show_coefficient(found: Quote) -> Cell:
    """What multiplies the score of sample i."""
    return math(formulas.show_side(_take_sample_side(found), None, LATEX), *found.claims)


def _take_sample_side(found: Quote) -> Side:
    """a_i, for E_m[mean_i a_i s_i]."""
    [(first_factor, (atom,))] = found.proof.theorem.statement.left.terms
    if first_factor != ONE or not isinstance(atom, Indexed) or atom.score != ("self",):
        raise ValueError(f"no mean of scores: {found.text}")
    return Side.from_atom(Indexed(atom.index, "sample", atom.coefficient))


def show_kept_share(found: Quote, uncentred: Any = 1) -> Cell:
    """The multiple of grad KL(q||p) over that without centring."""
    return math(formulas.show_element(_compute_share(found, uncentred), LATEX), *found.claims)


def _compute_share(found: Quote, uncentred: Any = 1, of: Side = PENALTY) -> ExpPoly:
    [(_, atoms)] = of.terms
    terms = {factors: c for c, factors in found.proof.theorem.statement.right.terms}
    return terms.get(atoms, ZERO) * to_ring(uncentred).invert()
