"""Which of two estimates varies less: the difference of their variances, and where it has which sign."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from klsym.api import compare
from klsym.engine.proof.quantities import sample_gradient
from klsym.language.abbreviations import Covariance, as_side
from klsym.language.convert import to_ring
from klsym.language.expressions import k, k1, k2, k3, lam, parameter, rho, s, sg
from klsym.notation import formulas
from klsym.notation.losses import show
from klsym.notation.printers import LATEX, TEXT
from klsym.render.questions.compare import PrintedSpread
from klsym.study.tables.losses import write_loss
from klsym.study.tables.writing.ledger_lookup import (
    Quote,
    find_claim,
    find_equation,
    find_evidence,
    list_parts,
    quote,
)
from klsym.study.tables.writing.pieces import (
    annotate_text,
    show_equality,
    show_premise,
    show_region,
    show_side,
    split_text,
)
from klsym.study.tables.writing.table import (
    NONE,
    Cell,
    Column,
    Row,
    Table,
    build_text,
    cite_claims,
    collect_claims,
    join_cells,
    math,
    words,
)
from klsym.study.tables.writing.witness import show_witness

CAPTION = build_text(
    "Which estimate varies less. $A$ and $B$ are gradients at a sample, or values; $s$ stands for the"
    r" score function along any direction, $\rho = q/\mu$, $r = p/q$, $m = n - 1$; variances are assumed"
    " finite. What is said of a region is proved there; a model, given by the probabilities of its"
    " outcomes and a direction $u$ of the logits, shows that the order fails elsewhere."
)
COLUMNS = (
    Column("pair", math("A") + words(" and ") + math("B"), 0.17),
    Column("difference", math(r"\mathrm{Var}\,A - \mathrm{Var}\,B"), 0.3),
    Column("lower", words("which is lower, and where"), 0.28),
    Column("claim", words("claim"), 0.155),
)
WEIGHTED, GRADIENTS = "Gradients, off-policy", "Gradients, on-policy"
BATCHES, VALUES = "Gradients, means over a batch of n samples", "Values of the reverse KL"
n, b, b_star, lam_star = (parameter(name) for name in ("n", "b", "b_star", "lam_star"))


def table() -> Table:
    """The pairs, each with the claims that compare them.

    >>> [row.claims for row in table().select_rows(("leave-one-out",)).rows]
    [('variance.loo-not-always-better',), ('variance.loo',)]
    """
    return Table("variances", CAPTION, COLUMNS, tuple(_list_rows()))


def _list_rows() -> Iterator[Row]:
    yield from (_build_weighted_row(), _build_noise_row(), _build_orders_row())
    yield from (_build_analytic_row(), _build_baseline_row(), _build_kl_baseline_row())
    yield from (_build_centring_row(), _build_leave_one_out_row())
    yield from (
        _build_any_multiple_row(),
        _build_best_multiple_row(),
        _build_gaussian_row(),
        _build_squared_error_row(),
        _build_exact_step_row(),
    )


def _build_row(group: str, tags: str, pair: Cell, difference: Cell, lower: Cell) -> Row:
    """A row under its claims; those that back a cell stand in the last column, each once."""
    cells = (pair, difference, lower)
    return Row((*cells, cite_claims(collect_claims(cells))), tuple(tags.split()), group)


# ---------------------------------------------------------------------------- gradients
def _build_weighted_row() -> Row:
    """rho k1 against rho k3 and sg(rho) k2, as `compare` judges them and the ledger states it."""
    best, same_gradient = rho * k3, find_equation(sample_gradient(sg(rho) * k2))
    spread = _compare_spread(rho * k1, best)
    assert same_gradient and _compare_spread(rho * k1, sg(rho) * k2).coefficients == spread.coefficients
    theorems = (spread.base[-1], spread.regional, spread.a_less)
    difference, region, second_statement = (find_claim(proof) for proof in theorems if proof)
    pair = build_text("<a> and <b> or <c>, the same at each sample",
                a=_show_gradient(rho * k1), b=_show_gradient(best), c=same_gradient.left)  # fmt: skip
    lower = build_text(
        "$B$ where <region>; not everywhere: <model>",
        region=show_region(region),
        model=_show_greater(second_statement),
    )
    tags = f"{show(rho * k1, TEXT)} {show(best, TEXT)} {show(sg(rho) * k2, TEXT)} off-policy gradient"
    return _build_row(WEIGHTED, tags, pair, difference=difference.right, lower=lower)


def _compare_spread(a: Any, b: Any) -> PrintedSpread:
    """What `compare` says; here B is lower in a region, and only there.

    Raises ValueError: another answer.
    """
    comparison = compare(a, b, sampling="off-policy").variance
    if (
        comparison is None
        or not comparison.exact
        or comparison.regional_lower != "B"
        or comparison.lower != "depends"
    ):
        raise ValueError(f"{a} and {b} do not compare as this table says")
    return comparison


def _show_greater(refuted: Quote) -> Cell:
    """A model in which the variance on the left, that of B, is the greater one."""
    return build_text(r"$\mathrm{Var}\,B > \mathrm{Var}\,A$ for ") + show_witness(
        refuted.proof, *refuted.claims
    )


def _show_gradient(loss: Any) -> Cell:
    quantity = sample_gradient(loss)
    return math(formulas.show_side(quantity.side, quantity.labels, LATEX))


def _build_noise_row() -> Row:
    at_sample, mean = quote("variance.noise-term"), quote("variance.noise-term", 1)
    pair = build_text("the same: <left> at a sample", left=at_sample.left)
    lower = build_text("noise of mean zero, whatever $p$ is: <mean>", mean=mean.statement)
    return _build_row(
        WEIGHTED, "rho*k1 rho*k3 off-policy gradient", pair=pair, difference=at_sample.right, lower=lower
    )


def _build_orders_row() -> Row:
    """Var g1 and Var g* to leading order."""
    name = "variance.orders"
    first, second = (part.latex.split(r",\quad")[0] for part in list_parts(name))
    bounds = join_cells([math(part.latex.split(r",\quad")[1].strip(), name) for part in list_parts(name)])
    small = next(line for line in list_parts(name)[0].hypotheses if line.startswith("e = "))
    radius, _, size = small.replace("sup", r"\sup").partition(" is ")
    pair = build_text(
        r"$g_1$ = <a> and $g_\star$ = <b>", a=_show_gradient(rho * k1), b=_show_gradient(rho * k3)
    )
    difference = build_text(f"each: ${first}$; ${second}$", name)
    near = r"$B$ near $p = q$, where $\varepsilon = r - 1$ vanishes; "
    lower = build_text(f"{near}${radius}$ is {size}, <bounds>", name, bounds=bounds)
    return _build_row(
        WEIGHTED, tags="rho*k1 rho*k3 off-policy gradient", pair=pair, difference=difference, lower=lower
    )


def _build_analytic_row() -> Row:
    """The variance of one is 0, so the difference is that of the other: right - left of an inequality."""
    exact, bound = quote("gradient.analytic"), quote("gradient.analytic", 1)
    pair = build_text(
        "<a> at a sample, and the exact sum over outcomes, <b>", a=write_loss(k1 * s), b=exact.right
    )
    theorem = bound.proof.theorem.statement
    difference = show_side(theorem.right - theorem.left, bound)
    lower = build_text("$B$, always") + show_equality(bound)
    return _build_row(
        GRADIENTS, tags="analytic on-policy gradient", pair=pair, difference=difference, lower=lower
    )


# ---------------------------------------------------------------------------- baselines and batches
def _build_baseline_row() -> Row:
    name = "variance.optimal-baseline"
    difference, order = quote(name), quote(name, 1)
    pair = _join_losses((k1 - b) * s, (k1 - b_star) * s)
    lower = build_text("$B$, always, for <best>", best=show_premise(order)) + show_equality(order)
    return _build_row(
        GRADIENTS, tags="baseline on-policy gradient", pair=pair, difference=difference.right, lower=lower
    )


def _build_kl_baseline_row() -> Row:
    """A covariance that says how far KL(q||p) is from the best baseline."""
    quoted = quote("variance.optimal-baseline", 2)
    pair = build_text("the same, $b$ being <mean>", mean=show_premise(quoted, 1))
    both = _join_losses(k1, s**2)
    lower = build_text(
        "$B$; as good where the covariance of <both> is 0: <so>", both=both, so=quoted.statement
    )
    return _build_row(
        GRADIENTS, "baseline on-policy gradient", pair=pair, difference=words("the same"), lower=lower
    )


def _build_centring_row() -> Row:
    """n (Var A - Var B), over n."""
    name = "variance.loo-not-always-better"
    difference, second_quote = quote(name), quote(name, 1)
    cell = show_side(difference.proof.theorem.statement.right * to_ring(1 / n), difference)
    pair = build_text("$A$: no centring, $B$: leave-one-out")
    lower = build_text("$B$ iff this is positive; not everywhere: ") + _show_greater(second_quote)
    return _build_row(
        BATCHES, tags="leave-one-out on-policy gradient", pair=pair, difference=cell, lower=lower
    )


def _build_leave_one_out_row() -> Row:
    quoted = quote("variance.loo")
    pair, cell = words("leave-one-out alone"), words("its variance: ") + quoted.right
    return _build_row(
        BATCHES, tags="leave-one-out on-policy gradient", pair=pair, difference=cell, lower=NONE
    )


# ---------------------------------------------------------------------------- values
def _build_any_multiple_row() -> Row:
    """Var k(lam) - Var k1, for Var k(lam) = Var k1 + ..."""
    quoted, why = quote("value.optimal-lambda"), quote("value.control-variate-covariance")
    own_variance = as_side(Covariance("q", to_ring(k1), to_ring(k1)))
    difference = show_side(quoted.proof.theorem.statement.right - own_variance, quoted)
    lower = build_text("$A$ iff this is negative; the covariance helps: ") + why.statement
    return _build_row(
        VALUES, "k(lam) k1 on-policy value", _join_losses(k(lam), k1), difference=difference, lower=lower
    )


def _build_best_multiple_row() -> Row:
    name = "value.optimal-lambda"
    quoted, order, limit = quote(name, 1), quote(name, 2), find_evidence(name)
    statement = quoted.proof.theorem.statement
    best = as_side(Covariance("q", to_ring(k(lam_star)), to_ring(k(lam_star))))
    lower = build_text("$B$, always, for <best>", best=show_premise(order)) + show_equality(order)
    lower = lower + words("; ") + split_text(limit.latex.split(r",\quad ")[-1], name)
    pair = _join_losses(k(lam), k(lam_star))
    return _build_row(
        VALUES, "k(lam) on-policy value", pair, show_side(statement.right - best, quoted), lower=lower
    )


def _build_gaussian_row() -> Row:
    """Two Gaussians: the variances, and up to where that of k3 is the lower one."""
    name = "value.gaussian-crossover"
    calculation = find_evidence(name)
    densities = calculation.text.partition(":")[0].replace("N(", r"\mathcal{N}(").split(", ")
    steps = dict(calculation.steps)
    gap = steps["the gap"].partition(",")[0].partition("= ")[2]
    region = calculation.latex.partition(r"\iff ")[2].split(r",\quad ")
    pair = _join_losses(k3, k1) + words(", ") + join_cells([math(part, name) for part in densities], ", ")
    lower = build_text("$A$ just for ") + join_cells([math(part, name) for part in region], ", ")
    difference = build_text(f"${gap}$ with $u = d^2$: ${steps['u = d^2']}$", name)
    return _build_row(
        VALUES, tags="k1 k3 gaussian on-policy value", pair=pair, difference=difference, lower=lower
    )


def _build_squared_error_row() -> Row:
    name = "value.mse-crossover"
    difference, floor = quote(name, 1), quote(name, 2)
    statement = difference.proof.theorem.statement
    cell = words("of squared errors: ") + show_side(statement.right * to_ring(1 / n), difference)
    lower = build_text("$B$ iff this is positive, with <premise>; at any $n$ its error is at least <floor>",
                 premise=show_premise(difference), floor=floor.left)  # fmt: skip
    pair = _join_losses(k1, k2) + build_text(", means over $n$ samples")
    return _build_row(VALUES, tags="k1 k2 on-policy value", pair=pair, difference=cell, lower=lower)


def _build_exact_step_row() -> Row:
    """Sampled log ratios against exact next-token divergences."""
    name = "neighbour.rao-blackwell"
    calculation, refutation = find_evidence(name), find_evidence(name, "refuted")
    left_latex, right = calculation.latex.split(" = ", 1)
    inside = re.findall(r"\\left\((.*?)\\right\)", left_latex)
    pair = join_cells([math(part, name) for part in inside], " and ") + words(
        ", over the tokens of a sequence"
    )
    setting, _, _ = refutation.hypotheses[-1].partition(": the variances")
    lower = build_text("$B$ iff this is positive; not everywhere: ") + annotate_text(setting + "; ")
    lower = lower + build_text(r"$\mathrm{Var}\,B$ and $\mathrm{Var}\,A$ are ")
    lower = lower + math(dict(refutation.steps)["the variances"], name)
    return _build_row(
        VALUES, "rao-blackwell sequence on-policy value", pair, difference=math(right, name), lower=lower
    )


def _join_losses(a: Any, c: Any) -> Cell:
    return build_text("<a> and <c>", a=write_loss(a), c=write_loss(c))
