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
from klsym.study.tables.losses import OFF, ON, gradient, written
from klsym.study.tables.writing.ledger_lookup import Quote, quote
from klsym.study.tables.writing.pieces import premise
from klsym.study.tables.writing.table import NONE, Cell, Column, Row, Table, behind, cited, math, text, words
from klsym.study.tables.writing.witness import witness

CAPTION = text(
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

    >>> [row.claims for row in table().only(("batch.mean-centering",)).rows]
    [('batch.mean-centering', 'batch.centering-identity')]
    """
    return Table("centring", CAPTION, COLUMNS, tuple(_rows()))


def _rows() -> Iterator[Row]:
    yield from (_none(), _mean(), _left_out())
    yield from (_of_reward(0, "reward alone: "), _of_reward(1, "both by the batch mean: "))
    yield _pair()
    yield _weighted_alone()
    yield from (_weighted(MEAN), _weighted(LEFT_OUT))


def _row(group: str, tags: tuple[str, ...], *cells: Cell) -> Row:
    return Row((*cells, cited(behind(cells))), tags, group)


# ---------------------------------------------------------------------------- on-policy
def _none() -> Row:
    found = quote("batch.no-centering")
    return _on_policy(found, NONE_OFF, "k1", kept(found), NONE)


def _mean() -> Row:
    """A multiple of the estimate that leaves each sample out: its variance takes the square of it."""
    found, other = quote("batch.mean-centering"), quote("batch.leave-one-out")
    share = _share(found)
    same = quote("batch.centering-identity")
    if same.proof.theorem.statement.right != _at_sample(other) * share:
        raise ValueError("the mean is no such multiple of leave-one-out")
    factor = math(LATEX(Power(coefficient_of(share), Number(2))), *same.claims)
    return _on_policy(found, MEAN, "k1", kept(found), factor + words(" times that of leave-one-out"))


def _left_out() -> Row:
    found, more = quote("batch.leave-one-out"), quote("variance.loo-not-always-better", 1)
    variances = witness(more.proof, *more.claims).pieces[-1]
    noted = text("not always lower than without: in a model, <v>", v=Cell((variances,), more.claims))
    return _on_policy(found, LEFT_OUT, "k1", kept(found), noted)


def _of_reward(number: int, lead: str) -> Row:
    """R - beta k1, of which the batch mean of the reward alone, or of both, is taken off."""
    found = quote("batch.reward-only-centering", number)
    rewards = math(formulas.show_element(_share(found, 1, REWARD), LATEX))
    shares = text("<kept>; of the reward <rewards>", kept=kept(found, -beta), rewards=rewards)
    row = (words(lead) + coefficient(found), found.right, shares, NONE)
    return _row("On-policy", (MEAN, ON, "reward"), *row)


def _pair() -> Row:
    """k_i - kbar is half the difference, and its square the variance: their quotient is a sign."""
    name = "batch.std-normalisation-pair"
    half, square = quote(name), quote(name, 1)
    apart = half.proof.theorem.statement.right * 2
    sign = math(formulas.show_side(apart, None, LATEX), *square.claims)
    lead = text("over the standard deviation, <half>: the sign of <sign>", half=premise(half), sign=sign)
    return _row("On-policy", ("std", ON, "k1"), lead, NONE, words("only a sign"), NONE)


def _on_policy(found: Quote, centring: str, penalty: str, *cells: Cell) -> Row:
    first = words(WORDS[centring]) + coefficient(found)
    return _row("On-policy", (centring, ON, penalty), first, found.right, *cells)


# ---------------------------------------------------------------------------- off-policy
def _weighted_alone() -> Row:
    found = gradient(rho * k1, OFF, "reward")
    first = words(WORDS[NONE_OFF]) + written(rho * k1)
    return _row(OFF_POLICY, (NONE_OFF, OFF, "rho*k1"), first, found.right, kept(found), NONE)


def _weighted(centring: str) -> Row:
    """The score has no mean zero under mu, so that what is taken off stays."""
    answer = ask(show(rho * k1, TEXT), sampling=OFF, use="reward", batch=centring)
    found = Quote(answer.proof.theorems[0], ())
    [(name, value)] = found.proof.theorem.statement.context.given
    given = math(f"{LATEX.name(name)} = {formulas.show_element(value, LATEX)}")
    first = words(WORDS[centring]) + text("<a>, <given>", a=coefficient(found), given=given)
    whole = found.right + words(", the gradient of no function" if answer.target == "none" else "")
    return _row(OFF_POLICY, (centring, OFF, "rho*k1"), first, whole, kept(found), NONE)


# ---------------------------------------------------------------------------- pieces of these theorems
def coefficient(found: Quote) -> Cell:
    """What multiplies the score of sample i."""
    return math(formulas.show_side(_at_sample(found), None, LATEX), *found.claims)


def _at_sample(found: Quote) -> Side:
    """a_i, for E_m[mean_i a_i s_i]."""
    [(one, (atom,))] = found.proof.theorem.statement.left.terms
    if one != ONE or not isinstance(atom, Indexed) or atom.score != ("self",):
        raise ValueError(f"no mean of scores: {found.text}")
    return Side.from_atom(Indexed(atom.index, "sample", atom.coefficient))


def kept(found: Quote, uncentred: Any = 1) -> Cell:
    """The multiple of grad KL(q||p) over that without centring."""
    return math(formulas.show_element(_share(found, uncentred), LATEX), *found.claims)


def _share(found: Quote, uncentred: Any = 1, of: Side = PENALTY) -> ExpPoly:
    [(_, atoms)] = of.terms
    terms = {factors: c for c, factors in found.proof.theorem.statement.right.terms}
    return terms.get(atoms, ZERO) * to_ring(uncentred).invert()
