"""The table of variances: its formulas are those differences, its regions hold and end where it says."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

from klsym.calculus import derive, expectation, k1, k2, mu, rho, s
from klsym.derivations.tools.gaussian_quadrature import ESTIMATORS, mean_and_sd
from klsym.derivations.tools.sequence_examples import offset_pair
from klsym.study.ledger.settle_claim import recall
from klsym.study.sequences.sequence_fields import compute_kl_variances
from klsym.study.tables import variances
from klsym.study.tables.catalogue import build
from klsym.study.tables.writing.ledger_lookup import find_claim, quote
from klsym.study.tables.writing.pieces import show_region
from support.table_judge import formulas, number, of, plain, row_of, spread, world

table = partial(build, "variances")
PAIR, DIFFERENCE, LOWER = range(3)
WEIGHTED = ("offpolicy.per-sample", "practice.loss-against-reward", "variance.difference",
            "variance.sufficient-region", "variance.no-universal-order")  # fmt: skip


def batch(values: dict[str, Any], n: int, left_out: bool) -> float:
    """The variance of mean_i (k_i - kbar_-i) s_i, or without the mean: all batches of n are enumerated."""
    q, k, score = values["q"], values["k1"], values["s"]
    chances, found = [], []
    for drawn in product(range(len(q)), repeat=n):
        rows = k[list(drawn)]
        kept = rows - (rows.sum() - rows) / (n - 1) if left_out else rows
        chances.append(np.prod(q[list(drawn)]))
        found.append((kept * score[list(drawn)]).mean())
    return spread(np.array(chances), np.array(found))


def weighted(v: dict[str, Any]) -> tuple[float, float]:
    """The variances of the gradients of rho k1 and rho k3."""
    return spread(v["mu"], v["rho"] * (v["k1"] + 1) * v["s"]), spread(v["mu"], v["rho"] * v["k1"] * v["s"])


def gap(v: dict[str, Any], name: str) -> float:
    """Var A - Var B from the probabilities alone."""
    q, k, score, n = v["q"], v["k1"], v["s"], v.get("n")
    if name == "weighted":
        return weighted(v)[0] - weighted(v)[1]
    if name == "analytic":
        return spread(q, k * score)
    if name == "baseline":
        return spread(q, (k - v["b"]) * score) - spread(q, (k - v["b_star"]) * score)
    if name == "leave-one-out":
        return batch(v, n, False) - batch(v, n, True)
    if name == "alone":
        return batch(v, n, True)
    if name == "any":
        return spread(q, k + v["lam"] * (v["r"] - 1)) - spread(q, k)
    if name == "best":
        return spread(q, k + v["lam"] * (v["r"] - 1)) - spread(q, k + v["lam_star"] * (v["r"] - 1))
    errors = [spread(q, v[x]) / n + (q @ v[x] - v["KL"]) ** 2 for x in ("k1", "k2")]
    return errors[0] - errors[1]


@pytest.mark.parametrize(
    ("name", "claims"),
    [
        ("weighted", WEIGHTED),
        ("analytic", ("gradient.analytic",)),
        ("baseline", ("variance.optimal-baseline",)),
        ("leave-one-out", ("variance.loo-not-always-better",)),
        ("alone", ("variance.loo",)),
        ("any", ("value.optimal-lambda", "value.control-variate-covariance")),
        ("best", ("value.optimal-lambda",)),
        ("errors", ("value.mse-crossover",)),
    ],
)
def test_each_formula_is_the_difference_of_the_variances(name: str, claims: tuple[str, ...]) -> None:
    row = next(row for row in table().rows if row.claims == claims)
    [formula] = formulas(row.cells[DIFFERENCE])
    for seed in range(4):
        v = world(seed, 3 if name in ("leave-one-out", "alone") else 4)
        q, k, score = v["q"], v["k1"], v["s"]
        v |= {"n": 2 + seed % 2, "m": 1 + seed % 2, "b": 0.3, "lam": 0.7, "lam_star": v["J"] / v["chi2"]}
        v["b_star"] = (q @ (k * score**2)) / (q @ score**2)
        assert number(formula, v) == pytest.approx(gap(v, name), rel=1e-9)
        assert number(formula, v) != pytest.approx(1.01 * gap(v, name), rel=1e-9)  # it can fail


def test_the_order_holds_in_its_region_and_fails_in_its_model() -> None:
    lower = row_of(table(), *WEIGHTED).cells[LOWER]
    assert formulas(lower)[:4] == ["B", r"r \le \exp(\tfrac{1}{2})", r"2\,k_1 + 1 \ge 0", r"\mu > 0"]
    inside = [world(seed, ratios=(0.7, 1.1)) for seed in range(20)]
    assert all(v["r"].max() <= np.exp(0.5) for v in inside)
    for v in inside:
        first, second = weighted(v)
        assert second < first
    model = recall("variance.no-universal-order").theorems[0].close["model"]
    v = of(*([Fraction(x) for x in model[name]] for name in ("q", "p", "mu", "u")))
    first, second = weighted(v)
    assert v["r"].max() > np.exp(0.5) and formulas(lower)[-1] == f"{second:.4g} > {first:.4g}"
    assert formulas(lower)[-5] == "q = (" + ", ".join(_fraction(x) for x in model["q"]) + ")"


def _fraction(text: str) -> str:
    value = Fraction(text)
    return rf"\tfrac{{{value.numerator}}}{{{value.denominator}}}"


def test_leave_one_out_varies_more_in_its_model() -> None:
    lower = row_of(table(), "variance.loo-not-always-better").cells[LOWER]
    model = recall("variance.loo-not-always-better").theorems[1].close["model"]
    v = of(*([Fraction(x) for x in model[name]] for name in ("q", "p", "mu", "u")))
    centred, plain_ = batch(v, 2, True), batch(v, 2, False)
    assert model["parameters"]["n"] == "2" and formulas(lower)[-1] == f"{centred:.4g} > {plain_:.4g}"


def test_the_order_of_two_gaussians_turns_at_the_root_that_is_printed() -> None:
    row = row_of(table(), "value.gaussian-crossover")
    root = next(
        float(text.split("= ")[-1].split(r"\l")[0]) for text in formulas(row.cells[LOWER]) if "W_" in text
    )

    def third_less_first(squared: float) -> float:
        sds = [mean_and_sd(ESTIMATORS[k], (0.0, 1.0), (squared**0.5, 1.0))[1] for k in ("k3", "k1")]
        return sds[0] ** 2 - sds[1] ** 2

    assert third_less_first(0.1) < 0 and third_less_first(root - 1e-3) < 0 < third_less_first(root + 1e-3)
    assert formulas(row.cells[PAIR])[2:] == [r"q = \mathcal{N}(0,1)", r"p = \mathcal{N}(d,1)"]


def test_exact_steps_vary_more_in_their_model() -> None:
    row = row_of(table(), "neighbour.rao-blackwell")
    shown = formulas(row.cells[LOWER])[-1]
    values = [Fraction(int(a), int(b)) for a, b in re.findall(r"\\tfrac\{(\d+)\}\{(\d+)\}", shown)]
    found, unit = compute_kl_variances(*offset_pair()), np.log(9) ** 2
    assert [float(x) * unit for x in values] == pytest.approx([found.exact_steps, found.sampled])
    assert values[0] > values[1] and formulas(row.cells[PAIR]) == [r"\sum_t l_t", r"\sum_t \mathrm{KL}_t"]


def test_near_p_the_variance_of_b_vanishes_and_that_of_a_does_not() -> None:
    row = row_of(table(), "variance.orders")
    texts = [part.latex for part in recall("variance.orders").parts]
    assert all(text.split(r",\quad")[0] in formulas(row.cells[DIFFERENCE]) for text in texts)
    far, near = (weighted(world(3, ratios=(1 - e, 1 + e))) for e in (0.02, 0.01))
    assert near[0] == pytest.approx(far[0], rel=0.2) and near[1] == pytest.approx(far[1] / 4, rel=0.1)


STATED = {
    "variance.noise-term": (1, [r"\rho\,s"]),
    "variance.optimal-baseline": (2, [r"\mathbb{E}_{q}\!\left[\left(b - b_{\star}\right)^{2}\,s^{2}\right]"]),
}


def test_every_row_has_claims_and_quotes_them() -> None:
    for row in table().rows:
        assert row.claims and plain(row.cells[-1]).split(", ") == list(row.claims)
    for name, (number_of_rows, quoted) in STATED.items():
        rows = [row for row in table().rows if row.claims == (name,)]
        assert len(rows) == number_of_rows and formulas(rows[0].cells[DIFFERENCE]) == quoted
        assert any(quoted[0] in part._repr_latex_() for part in recall(name).parts)
    covariance = [row for row in table().rows if row.claims == ("variance.optimal-baseline",)][1].cells[LOWER]
    assert formulas(covariance)[-1] == quote("variance.optimal-baseline", 2).statement.pieces[0][1]


def test_what_the_table_cannot_say_is_refused() -> None:
    with pytest.raises(ValueError, match="do not compare"):
        variances._compare_spread(rho * k1, rho * k2)
    with pytest.raises(ValueError, match="no region"):
        show_region(quote("variance.difference"))
    other = derive(expectation(rho * s, under=mu)).equals(2 * expectation(rho * s, under=mu))
    with pytest.raises(ValueError, match="no claim says"):
        find_claim(other)
