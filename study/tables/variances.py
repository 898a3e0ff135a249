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
from klsym.study.tables.losses import written
from klsym.study.tables.writing.ledger_lookup import Quote, about, evidence, parts, quote, stated
from klsym.study.tables.writing.pieces import equality, noted, premise, side, texts, where
from klsym.study.tables.writing.table import (
    NONE,
    Cell,
    Column,
    Row,
    Table,
    behind,
    cited,
    listed,
    math,
    text,
    words,
)
from klsym.study.tables.writing.witness import witness

CAPTION = text(
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

    >>> [row.claims for row in table().only(("leave-one-out",)).rows]
    [('variance.loo-not-always-better',), ('variance.loo',)]
    """
    return Table("variances", CAPTION, COLUMNS, tuple(_rows()))


def _rows() -> Iterator[Row]:
    yield from (_weighted(), _noise(), _orders())
    yield from (_analytic(), _baseline(), _kl_as_baseline())
    yield from (_centring(), _leave_one_out())
    yield from (_any_multiple(), _best_multiple(), _gaussians(), _squared_errors(), _exact_steps())


def _row(group: str, tags: str, pair: Cell, difference: Cell, lower: Cell) -> Row:
    """A row under its claims; those that back a cell stand in the last column, each once."""
    cells = (pair, difference, lower)
    return Row((*cells, cited(behind(cells))), tuple(tags.split()), group)


# ---------------------------------------------------------------------------- gradients
def _weighted() -> Row:
    """rho k1 against rho k3 and sg(rho) k2, as `compare` judges them and the ledger states it."""
    best, same = rho * k3, about(sample_gradient(sg(rho) * k2))
    spread = _spread(rho * k1, best)
    assert same and _spread(rho * k1, sg(rho) * k2).coefficients == spread.coefficients
    theorems = (spread.base[-1], spread.regional, spread.a_less)
    difference, region, other = (stated(proof) for proof in theorems if proof)
    pair = text("<a> and <b> or <c>, the same at each sample",
                a=_gradient(rho * k1), b=_gradient(best), c=same.left)  # fmt: skip
    lower = text("$B$ where <region>; not everywhere: <model>", region=where(region), model=_greater(other))
    tags = f"{show(rho * k1, TEXT)} {show(best, TEXT)} {show(sg(rho) * k2, TEXT)} off-policy gradient"
    return _row(WEIGHTED, tags, pair, difference.right, lower)


def _spread(a: Any, b: Any) -> PrintedSpread:
    """What `compare` says; here B is lower in a region, and only there.

    Raises ValueError: another answer.
    """
    found = compare(a, b, sampling="off-policy").variance
    if found is None or not found.exact or found.regional_lower != "B" or found.lower != "depends":
        raise ValueError(f"{a} and {b} do not compare as this table says")
    return found


def _greater(refuted: Quote) -> Cell:
    """A model in which the variance on the left, that of B, is the greater one."""
    return text(r"$\mathrm{Var}\,B > \mathrm{Var}\,A$ for ") + witness(refuted.proof, *refuted.claims)


def _gradient(loss: Any) -> Cell:
    quantity = sample_gradient(loss)
    return math(formulas.show_side(quantity.side, quantity.labels, LATEX))


def _noise() -> Row:
    at_sample, mean = quote("variance.noise-term"), quote("variance.noise-term", 1)
    pair = text("the same: <left> at a sample", left=at_sample.left)
    lower = text("noise of mean zero, whatever $p$ is: <mean>", mean=mean.statement)
    return _row(WEIGHTED, "rho*k1 rho*k3 off-policy gradient", pair, at_sample.right, lower)


def _orders() -> Row:
    """Var g1 and Var g* to leading order."""
    name = "variance.orders"
    first, second = (part.latex.split(r",\quad")[0] for part in parts(name))
    bounds = listed([math(part.latex.split(r",\quad")[1].strip(), name) for part in parts(name)])
    small = next(line for line in parts(name)[0].hypotheses if line.startswith("e = "))
    radius, _, size = small.replace("sup", r"\sup").partition(" is ")
    pair = text(r"$g_1$ = <a> and $g_\star$ = <b>", a=_gradient(rho * k1), b=_gradient(rho * k3))
    difference = text(f"each: ${first}$; ${second}$", name)
    near = r"$B$ near $p = q$, where $\varepsilon = r - 1$ vanishes; "
    lower = text(f"{near}${radius}$ is {size}, <bounds>", name, bounds=bounds)
    return _row(WEIGHTED, "rho*k1 rho*k3 off-policy gradient", pair, difference, lower)


def _analytic() -> Row:
    """The variance of one is 0, so the difference is that of the other: right - left of an inequality."""
    exact, bound = quote("gradient.analytic"), quote("gradient.analytic", 1)
    pair = text("<a> at a sample, and the exact sum over outcomes, <b>", a=written(k1 * s), b=exact.right)
    theorem = bound.proof.theorem.statement
    difference = side(theorem.right - theorem.left, bound)
    lower = text("$B$, always") + equality(bound)
    return _row(GRADIENTS, "analytic on-policy gradient", pair, difference, lower)


# ---------------------------------------------------------------------------- baselines and batches
def _baseline() -> Row:
    name = "variance.optimal-baseline"
    difference, order = quote(name), quote(name, 1)
    pair = _and((k1 - b) * s, (k1 - b_star) * s)
    lower = text("$B$, always, for <best>", best=premise(order)) + equality(order)
    return _row(GRADIENTS, "baseline on-policy gradient", pair, difference.right, lower)


def _kl_as_baseline() -> Row:
    """A covariance that says how far KL(q||p) is from the best baseline."""
    found = quote("variance.optimal-baseline", 2)
    pair = text("the same, $b$ being <mean>", mean=premise(found, 1))
    both = _and(k1, s**2)
    lower = text("$B$; as good where the covariance of <both> is 0: <so>", both=both, so=found.statement)
    return _row(GRADIENTS, "baseline on-policy gradient", pair, words("the same"), lower)


def _centring() -> Row:
    """n (Var A - Var B), over n."""
    name = "variance.loo-not-always-better"
    difference, other = quote(name), quote(name, 1)
    cell = side(difference.proof.theorem.statement.right * to_ring(1 / n), difference)
    pair = text("$A$: no centring, $B$: leave-one-out")
    lower = text("$B$ iff this is positive; not everywhere: ") + _greater(other)
    return _row(BATCHES, "leave-one-out on-policy gradient", pair, cell, lower)


def _leave_one_out() -> Row:
    found = quote("variance.loo")
    pair, cell = words("leave-one-out alone"), words("its variance: ") + found.right
    return _row(BATCHES, "leave-one-out on-policy gradient", pair, cell, NONE)


# ---------------------------------------------------------------------------- values
def _any_multiple() -> Row:
    """Var k(lam) = Var k1 + ..., of which Var k1 is taken off."""
    found, why = quote("value.optimal-lambda"), quote("value.control-variate-covariance")
    own = as_side(Covariance("q", to_ring(k1), to_ring(k1)))
    difference = side(found.proof.theorem.statement.right - own, found)
    lower = text("$A$ iff this is negative; the covariance helps: ") + why.statement
    return _row(VALUES, "k(lam) k1 on-policy value", _and(k(lam), k1), difference, lower)


def _best_multiple() -> Row:
    name = "value.optimal-lambda"
    found, order, limit = quote(name, 1), quote(name, 2), evidence(name)
    statement = found.proof.theorem.statement
    best = as_side(Covariance("q", to_ring(k(lam_star)), to_ring(k(lam_star))))
    lower = text("$B$, always, for <best>", best=premise(order)) + equality(order)
    lower = lower + words("; ") + texts(limit.latex.split(r",\quad ")[-1], name)
    pair = _and(k(lam), k(lam_star))
    return _row(VALUES, "k(lam) on-policy value", pair, side(statement.right - best, found), lower)


def _gaussians() -> Row:
    """Two Gaussians: the variances, and up to where that of k3 is the lower one."""
    name = "value.gaussian-crossover"
    found = evidence(name)
    densities = found.text.partition(":")[0].replace("N(", r"\mathcal{N}(").split(", ")
    steps = dict(found.steps)
    gap = steps["the gap"].partition(",")[0].partition("= ")[2]
    region = found.latex.partition(r"\iff ")[2].split(r",\quad ")
    pair = _and(k3, k1) + words(", ") + listed([math(part, name) for part in densities], ", ")
    lower = text("$A$ just for ") + listed([math(part, name) for part in region], ", ")
    difference = text(f"${gap}$ with $u = d^2$: ${steps['u = d^2']}$", name)
    return _row(VALUES, "k1 k3 gaussian on-policy value", pair, difference, lower)


def _squared_errors() -> Row:
    name = "value.mse-crossover"
    difference, floor = quote(name, 1), quote(name, 2)
    statement = difference.proof.theorem.statement
    cell = words("of squared errors: ") + side(statement.right * to_ring(1 / n), difference)
    lower = text("$B$ iff this is positive, with <premise>; at any $n$ its error is at least <floor>",
                 premise=premise(difference), floor=floor.left)  # fmt: skip
    pair = _and(k1, k2) + text(", means over $n$ samples")
    return _row(VALUES, "k1 k2 on-policy value", pair, cell, lower)


def _exact_steps() -> Row:
    """Sampled log ratios against exact next-token divergences."""
    name = "neighbour.rao-blackwell"
    found, other = evidence(name), evidence(name, "refuted")
    left, right = found.latex.split(" = ", 1)
    inside = re.findall(r"\\left\((.*?)\\right\)", left)
    pair = listed([math(part, name) for part in inside], " and ") + words(", over the tokens of a sequence")
    setting, _, _ = other.hypotheses[-1].partition(": the variances")
    lower = text("$B$ iff this is positive; not everywhere: ") + noted(setting + "; ")
    lower = lower + text(r"$\mathrm{Var}\,B$ and $\mathrm{Var}\,A$ are ")
    lower = lower + math(dict(other.steps)["the variances"], name)
    return _row(VALUES, "rao-blackwell sequence on-policy value", pair, math(right, name), lower)


def _and(a: Any, c: Any) -> Cell:
    return text("<a> and <c>", a=written(a), c=written(c))
