"""Bias, sign and variance of the values, with the exact columns for two Gaussians."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.language.abbreviations import walk_atoms
from klsym.language.expressions import k, k1, k2, k3, lam, rho
from klsym.notation import formulas
from klsym.notation.printers import LATEX
from klsym.study.tables.gaussian import show_closed_forms
from klsym.study.tables.losses import ESTIMATORS, OFF, ON, cite_quote, list_tags, mean, write_loss
from klsym.study.tables.writing.ledger_lookup import Quote, list_parts, quote
from klsym.study.tables.writing.table import NONE, Cell, Column, Row, Table, build_text, math, words

CAPTION = build_text(
    "What each estimator's value tells. Mean under the sampler, sign of a single value, variance near"
    r" $q = p$ to lowest order in $\varepsilon = r - 1$; exactly for $q = \mathcal{N}(0, 1)$, $p ="
    r" \mathcal{N}(d, 1)$, where $\mathrm{KL} = d^2/2$."
)
GAUSSIAN = words("Gaussians")
COLUMNS = (
    Column("estimator", words("estimator")),
    Column("mean", words("mean"), 0.15),
    Column("sign", words("sign"), 0.1),
    Column("variance", words("variance"), 0.13),
    Column("gaussian-bias", words("bias/KL"), over=GAUSSIAN),
    Column("gaussian-variance", words("variance"), over=GAUSSIAN),
    Column("claim", words("claim"), 0.13),
)
CASES: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
    ("Samples from q", ON, ESTIMATORS),
    ("Samples from mu, weighted", OFF, (rho * k1, rho * k2, rho * k3)),
    ("Samples from mu, no weight", OFF, (k1,)),
)
SIGNED = "value.k3-nonnegative"


def table() -> Table:
    """The table of values.

    >>> [row.claims[0] for row in table().select_rows(("k3",)).rows if row.claims]
    ['value.k3-unbiased', 'offpolicy.rho-k3']
    """
    return Table("values", CAPTION, COLUMNS, tuple(_list_rows()))


def _list_rows() -> Iterator[Row]:
    for group, sampling, losses in CASES:
        for loss in losses:
            yield Row(_list_cells(loss, sampling), list_tags(loss, sampling, "value"), group)


def _list_cells(loss: Any, sampling: str) -> tuple[Cell, ...]:
    quoted = mean(loss, sampling)
    quoted = quote("value.k2-biased") if (loss, sampling) == (k2, ON) else quoted
    value = quoted.right if quoted else NONE
    on = loss if sampling == ON else None
    return (
        write_loss(loss),
        value,
        _sign(loss),
        _show_variance(on),
        *show_closed_forms(on),
        cite_quote(quoted),
    )


def _sign(loss: Any) -> Cell:
    """Of a single value: the inequalities at one sample that the ledger proves or refutes."""
    base = loss / rho if loss.has(rho) else loss
    inequalities = {k3: (0,), k2: (1,), k1: (2, 3)}
    if base == k(lam):
        return _show_bound_at_one(quote("value.lambda-one-unique", 1))
    quotes = [quote(SIGNED, number) for number in inequalities[base]]
    kinds = {quoted.proof.kind for quoted in quotes}
    return math(r"\ge 0", SIGNED) if kinds == {"proved"} else words("both", SIGNED)


def _show_bound_at_one(above: Quote) -> Cell:
    """The bound above k(lam) is 0 at r = 1, and changes its sign there unless its slope is 0."""
    statement = above.proof.theorem.statement
    [bound], [parameter] = walk_atoms(statement.right), statement.context.parameters
    slope = _differentiate_element(bound.coefficient, "k1").substitute({"k1": ZERO})
    critical_value = -slope.substitute({parameter: ZERO}) * _differentiate_element(slope, parameter).invert()
    condition = f"{LATEX.name(parameter)} = {formulas.show_element(critical_value, LATEX)}"
    return words("both, but at ", *above.claims) + math(condition)


def _differentiate_element(element: ExpPoly, variable: str) -> ExpPoly:
    return element.derive(lambda name: ONE if name == variable else ZERO)


def _show_variance(loss: Any) -> Cell:
    """Near q = p, from the expansion; that of k(lam) is a parabola in lam, in the table of variances."""
    name = "value.variance-small-kl"
    place = {k1: 0, k2: 1, k3: 2}.get(loss)
    if place is None:
        return NONE
    expansion = list_parts(name)[place].latex.partition("=")[2].partition(r",\quad")[0]
    return math(expansion.strip(), name)
