"""The table of centring: what it prints as coefficient has, over all batches, the mean that it prints."""

from __future__ import annotations

import math
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

from klsym.study.ledger.settle_claim import recall
from klsym.study.ledger.view import format_statement_latex
from klsym.study.tables import centring
from klsym.study.tables.catalogue import build
from klsym.study.tables.writing.ledger_lookup import quote
from support.judges import batch_judge as judge
from support.latex_judge import World, value_of
from support.table_judge import formulas, number, plain

table = partial(build, "centring")
BETA, STEP = 0.6, 1e-6
CLAIMS = [
    ("batch.no-centering",),
    ("batch.mean-centering", "batch.centering-identity"),
    ("batch.leave-one-out", "variance.loo-not-always-better"),
    ("batch.reward-only-centering",),
    ("batch.reward-only-centering",),
    ("batch.std-normalisation-pair",),
    ("reward.offpolicy",),
    (),
    (),
]


def test_the_rows_rest_on_these_claims() -> None:
    assert [row.claims for row in table().rows] == CLAIMS
    assert all(plain(row.cells[-1]) == (", ".join(row.claims) or "–") for row in table().rows)


def slope(of: Any) -> Any:
    return np.array(
        [(of(judge.THETA + STEP * e) - of(judge.THETA - STEP * e)) / (2 * STEP) for e in np.eye(3)]
    )


def values(n: int) -> dict[str, Any]:
    """What a gradient is made of, by differences of the objectives."""

    def kl(a: Any, b: Any) -> float:
        return float(a @ np.log(a / b))

    at = judge.softmax(judge.THETA)
    rows = [judge.names(x, judge.THETA) for x in range(3)]
    return {
        "slope_q_p": slope(lambda theta: kl(judge.softmax(theta), judge.P)),
        "slope_mu_q": slope(lambda theta: kl(judge.MU, judge.softmax(theta))),
        "slope_R": slope(lambda theta: judge.softmax(theta) @ np.array(judge.R)),
        "n": n, "m": n - 1, "beta": BETA, "mu": judge.MU, "q": at,
        **{name: np.array([row[name] for row in rows]) for name in ("k1", "rho")},
    }  # fmt: skip


def coefficients(formula: str, drawn: tuple[int, ...], off_policy: bool) -> list[float]:
    """The printed coefficient at each sample of a batch; H, what is centred off-policy, is rho k1."""
    n = len(drawn)
    steps = []
    for x in drawn:
        names = judge.names(x, judge.THETA)
        h = names["rho"] * names["k1"] if off_policy else judge.R[x]
        steps.append(({"k1": names["k1"], "R": h, "s": 0.0, "w": math.log(names["rho"])},))
    world = World(tuple(steps), {"n": n, "m": n - 1, r"\beta": BETA})
    return [value_of(formula.replace("H", "R"), world.put("i", i)) for i in range(n)]


def mean_field(formula: str, n: int, off_policy: bool) -> Any:
    """E_m[mean_i c_i s_i] over all batches of n draws from three outcomes."""
    m, scores = judge.MU if off_policy else judge.softmax(judge.THETA), judge.scores(judge.THETA)
    answer = np.zeros(3)
    for drawn in map(list, product(range(3), repeat=n)):
        shown = np.array(coefficients(formula, tuple(drawn), off_policy))
        answer += np.prod(m[drawn]) * (shown @ scores[drawn]) / n
    return answer


@pytest.mark.parametrize("position", [0, 1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("n", [2, 3])
def test_what_multiplies_the_score_has_the_mean_that_is_printed(position: int, n: int) -> None:
    row = table().rows[position]
    coefficient, gradient = formulas(row.cells[0])[0], formulas(row.cells[1])[0]
    found = mean_field(coefficient, n, "off-policy" in row.tags)
    assert np.abs(found - number(gradient, values(n))).max() < 1e-8
    assert np.abs(found - 1.001 * number(gradient, values(n))).max() > 1e-6  # it can fail


@pytest.mark.parametrize("position", [1, 2, 7, 8])
def test_it_is_the_centring_that_its_words_say(position: int) -> None:
    row, off_policy = table().rows[position], position > 6
    words, batch = row.cells[0].pieces[0][1], row.tags[0]
    drawn = (0, 2, 2, 1)
    names = [judge.names(x, judge.THETA) for x in drawn]
    h = np.array([x["k1"] * (x["rho"] if off_policy else 1) for x in names])
    shown = coefficients(formulas(row.cells[0])[0], drawn, off_policy)
    assert words.startswith({"mean": "batch mean", "leave-one-out": "leave-one-out"}[batch])
    assert np.allclose(shown, judge.centred(h, batch), atol=1e-12)


def test_what_is_kept_is_the_multiple_in_the_gradient() -> None:
    kept = [[number(text, values(4)) for text in formulas(row.cells[2])] for row in table().rows]
    assert kept == [[1], [0.75], [1], [1, 0.75], [0.75, 0.75], [], [1], [0.75], [1]]
    zero = {**values(4), "slope_mu_q": 0 * judge.THETA, "slope_R": 0 * judge.THETA}
    for row, shares in zip(table().rows, kept, strict=True):
        if shares:
            lead = -BETA if "reward" in row.tags else 1
            found = number(formulas(row.cells[1])[0], zero)
            assert np.allclose(found, lead * shares[0] * zero["slope_q_p"])


def test_the_mean_varies_as_the_square_of_the_share_of_leave_one_out() -> None:
    n = 3
    chances, both = [], []
    at, scores = judge.softmax(judge.THETA), judge.scores(judge.THETA)[:, 0]
    for drawn in product(range(3), repeat=n):
        h = np.array([judge.names(x, judge.THETA)["k1"] for x in drawn])
        chances.append(np.prod(at[list(drawn)]))
        both.append([(judge.centred(h, b) * scores[list(drawn)]).mean() for b in ("mean", "leave-one-out")])
    weights, found = np.array(chances), np.array(both)
    mean, left_out = weights @ (found - weights @ found) ** 2
    cell = table().rows[1].cells[3]
    assert number(formulas(cell)[0], values(n)) == pytest.approx(mean / left_out)
    assert plain(cell).endswith("times that of leave-one-out")


def test_a_pair_keeps_its_sign_alone() -> None:
    row = table().rows[5]
    premise, sign = formulas(row.cells[0])
    assert premise == "n = 2" and row.cells[1].pieces == (("words", "–"),)
    for drawn in ((0, 1), (2, 1)):
        h = np.array([judge.names(x, judge.THETA)["k1"] for x in drawn])
        shown = np.sign(coefficients(sign, drawn, False))
        assert np.allclose(judge.centred(h, "std"), shown)


def test_off_policy_centring_is_the_gradient_of_no_function() -> None:
    def twist(batch: str) -> float:
        return judge.twist(lambda theta: judge.field(judge.formula("rho*k1"), theta, False, batch, 2))

    for position, batch in ((7, "mean"), (8, "leave-one-out")):
        assert table().rows[position].cells[1].pieces[-1] == ("words", ", the gradient of no function")
        assert twist(batch) > 1e-3
    assert twist("none") < 1e-6


def test_quoted_cells_are_the_sides_of_their_claims() -> None:
    for row in table().rows[:5]:
        stated = [format_statement_latex(part) for claim in row.claims for part in recall(claim).parts]
        shown = formulas(row.cells[0])[0], formulas(row.cells[1])[0]
        assert any(shown[0] in text and text.endswith(f"= {shown[1]}") for text in stated)
    noted = formulas(table().rows[2].cells[3])
    assert noted == [noted[0]] and noted[0].count(">") == 1


def test_a_sum_over_n_is_printed_in_brackets() -> None:
    """(k_i + sum_j k_j)/n, not k_i/n + sum_j k_j: both sides of the identity are worth the same."""
    for number_ in (0, 1):
        found = quote("batch.centering-identity", number_)
        sides = [formulas(cell)[0] for cell in (found.left, found.right)]
        left, right = (coefficients(side, (0, 2, 1), False) for side in sides)
        assert np.allclose(left, right, atol=1e-12)


def test_a_claim_without_scores_has_no_coefficient() -> None:
    with pytest.raises(ValueError, match="no mean of scores"):
        centring.show_coefficient(quote("batch.centering-identity"))
